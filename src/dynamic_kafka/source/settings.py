"""What a source was asked to do, after all options are parsed and checked: plain values, picklable."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.metadata.service import KafkaMetadataService
from dynamic_kafka.metadata.subscriber import KafkaStreamSubscriber
from dynamic_kafka.source.offsets import Packing

__all__ = ["SourceSettings"]


@dataclass(frozen=True)
class SourceSettings:
    """Everything the engine knows of the user's wishes; the option table says what each one means.

    Args:
        service: Makes the metadata service; called once, in the process that uses it.
        subscriber: Which of its streams are read.
        topics: Those that the user lists (single cluster): a batch read has to find them all.
        pattern: Topics whose whole names match are read besides the listed ones (single cluster).
        partitions: Only these splits are read (single cluster).
        properties: Client properties for every cluster; a cluster's own ones win.
    """

    service: Callable[[], KafkaMetadataService]
    subscriber: KafkaStreamSubscriber
    starting: KafkaOffsetsInitializer
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    stopping: KafkaOffsetsInitializer | None = None
    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[KafkaTopicPartition] | None = None
    # following the metadata
    metadata_interval_ms: int = -1
    metadata_failure_threshold: int = 1
    retention_ms: int = 7 * 24 * 3600 * 1000
    discovery_interval_ms: int = 300_000
    cluster_failure_mode: Literal["fail", "isolate"] = "fail"
    drain: bool = False
    drain_quiet_ms: int = 10_000
    # reading
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    max_offsets_per_cluster: int | None = None
    cluster_limits: Mapping[str, int] = field(default_factory=dict)
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60 * 1000
    packing: Packing = field(default_factory=Packing)
    include_headers: bool = False
    include_leader_epoch: bool = False
    poll_timeout_ms: int = 120_000
    # clients
    group_id: str | None = None
    group_id_prefix: str = "dynamic-kafka-source"
    client_id_prefix: str | None = None
    commit_offsets: bool = True
    call_timeout_ms: int = 10_000
    unavailable_after_ms: int = 60_000
    call_retries: int = 3
    call_retry_interval_ms: int = 1000
    import_spark_checkpoint: bool = False

    @property
    def limited(self) -> bool:
        """Whether a micro-batch has an upper limit."""
        return bool(self.max_offsets_per_trigger or self.max_offsets_per_cluster or self.cluster_limits)

    @property
    def consumer_group(self) -> str:
        """The group named to brokers: the user's, or one that is never joined nor committed to."""
        return self.group_id or self.group_id_prefix

    def cluster_properties(self, own: Mapping[str, str]) -> dict[str, str]:
        """The properties used for a cluster: the global ones, under the cluster's own."""
        properties = {**self.properties, **own}
        if self.client_id_prefix is not None:
            properties["client.id"] = self.client_id_prefix
        return properties

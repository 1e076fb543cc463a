"""The settings of a source after all options are parsed and checked: plain values, picklable.

An option that is one setting is declared here, as a field. The others are declared in `configure`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.kafka.config.documents import DocumentRules, cluster_properties
from dynamic_kafka.metadata.service import KafkaMetadataService
from dynamic_kafka.metadata.subscriber import KafkaStreamSubscriber
from dynamic_kafka.options import Parser, boolean, choice, duration_ms, integer, non_blank, option
from dynamic_kafka.source.document.document import OffsetRange, parse_offset_ranges
from dynamic_kafka.source.document.offsets import Packing

if TYPE_CHECKING:
    from dynamic_kafka.history.settings import HistorySettings
    from dynamic_kafka.observe.settings import MetricsSettings

__all__ = ["SourceSettings"]

ClusterFailureMode = Literal["fail", "isolate"]


@dataclass(frozen=True)
class SourceSettings:
    """The settings of a source.

    Args:
        service: The function that makes the metadata service; called once, in the process that uses it.
        subscriber: The choice of streams to read.
        starting: The starting offsets.
        properties: Client properties for every cluster; a cluster's own ones win.
        document_rules: What the metadata may say of a cluster; None if the metadata is the query's own.
        stopping: The stopping offsets; None never stops.
        topics: The topics that the user lists (single cluster): a batch read has to find them all.
        pattern: Topics with names that match as a whole are read besides the listed ones (single cluster).
        partitions: Only these splits are read (single cluster).
        cluster_limits: The most offsets of a cluster in a micro-batch, for the clusters that have a limit of their own.
        max_offsets_per_cluster: The same for all other clusters.
        packing: The settings for packing ranges into tasks.
        group_id: The property `group.id`.
        commit_offsets: If true, the offsets of finished batches are committed to the group, if there is one.
        call_timeout_ms: The longest time for one request to a cluster.
        unavailable_after_ms: The time without an answer after which a cluster counts as unavailable.
        metrics: What is reported to the metrics server; None for nothing.
        history: What is read before Kafka; None for nothing.
        starts_by_default: True if no starting offsets were given.
        last_row: Whether a row follows the last record; see `spark.last_row`.
    """

    service: Callable[[], KafkaMetadataService] = field(repr=False)
    subscriber: KafkaStreamSubscriber
    starting: KafkaOffsetsInitializer
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    document_rules: DocumentRules | None = None
    stopping: KafkaOffsetsInitializer | None = None
    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[KafkaTopicPartition] | None = None
    cluster_limits: Mapping[str, int] = field(default_factory=dict)
    max_offsets_per_cluster: int | None = None
    packing: Packing = field(default_factory=Packing)
    group_id: str | None = None
    commit_offsets: bool = True
    call_timeout_ms: int = 10_000
    unavailable_after_ms: int = 60_000
    metrics: MetricsSettings | None = None
    history: HistorySettings | None = None
    starts_by_default: bool = False
    last_row: bool = False

    # following the metadata
    metadata_interval_ms: int = option(
        "stream-metadata-discovery-interval-ms",
        duration_ms(),
        "-1",
        doc="The time between two requests to the metadata service. 0 or less asks once, when the query starts; set it to "
        "let a query follow changes.",
    )
    metadata_failure_threshold: int = option(
        "stream-metadata-discovery-failure-threshold",
        integer(at_least=0),
        "1",
        doc="The number of consecutive failures of the metadata service that are tolerated. One more ends the query.",
    )
    retention_ms: int = option(
        "stream-metadata-removed-cluster-retention-ms",
        duration_ms(at_least=0),
        "7 d",
        doc="How long the positions of removed clusters and topics are kept in case they come back. 0 forgets them at once "
        "(Flink: 0, for clusters only).",
    )
    discovery_interval_ms: int = option(
        "partition.discovery.interval.ms",
        duration_ms(),
        "5 min",
        doc="The time between two searches for new topics and partitions on a cluster. 0 or less searches once.",
        aliases=("scan.topic-partition-discovery.interval",),
    )
    cluster_failure_mode: ClusterFailureMode = option(
        "cluster-failure-mode",
        choice(*get_args(ClusterFailureMode)),
        "fail",
        doc="What to do if a cluster does not answer: `fail` ends the query after the client's time-outs, `isolate` reads "
        "the other clusters until it answers again. A cluster that has never answered is known by its name only, so keep "
        "the name until it has.",
    )
    drain: bool = option(
        "drain-on-removal",
        boolean,
        "false",
        doc="If true, a removed topic is still read until no records arrive any more, and under read_committed no "
        "transaction is open. If false, reading stops at once.",
    )
    drain_quiet_ms: int = option(
        "drain-quiet-ms",
        duration_ms(at_least=0),
        "10 s",
        doc="How long a draining topic must receive no records before it is dropped.",
    )
    # reading
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        boolean,
        "true",
        doc="If true, a stream or a batch read fails when records were deleted before they were read. If false, it logs a "
        "warning and goes on after the gap.",
    )
    skip_offsets: tuple[OffsetRange, ...] = option(
        "skip-offsets",
        Parser(parse_offset_ranges, "'cluster/topic/partition:start-end', several of them separated by ';'"),
        "",
        shown_default="none",
        doc="Offsets to give up in the batch that the query repeats when it starts, as `cluster/topic/partition:start-end` "
        "separated by `;`. Copy the value from the error of a batch that cannot be read any more, for one start.",
    )
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger",
        integer(at_least=1),
        doc="The maximum number of offsets in a micro-batch, shared fairly between clusters.",
        shown_default="none",
    )
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger",
        integer(at_least=1),
        doc="The number of new offsets to wait for before a micro-batch starts.",
        shown_default="none",
    )
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay", duration_ms(at_least=0), "15 min", doc="The longest time to wait for `minOffsetsPerTrigger`."
    )
    # event time
    alignment_group: str | None = option(
        "scan.watermark.alignment.group",
        non_blank(),
        doc="Aligns the partitions of this source in record time: none is read ahead of the slowest by more than "
        "`scan.watermark.alignment.max-drift`. The name is shown in the progress.",
        shown_default="none: no alignment",
    )
    alignment_max_drift_ms: int | None = option(
        "scan.watermark.alignment.max-drift",
        duration_ms(at_least=1),
        doc="How far a partition may be ahead of the slowest one, by the timestamps of its records. If it is the delay of "
        "`withWatermark` or less, no row of a partition that is behind comes too late.",
    )
    alignment_update_interval_ms: int = option(
        "scan.watermark.alignment.update-interval",
        duration_ms(at_least=1),
        "1 s",
        doc="How often a source that holds everything back looks whether it still has to. It looks at new records at once, "
        "and it aligns each micro-batch.",
    )
    idle_timeout_ms: int = option(
        "scan.watermark.idle-timeout",
        duration_ms(at_least=1),
        "1 min",
        doc="With alignment: how long a partition that was read to its end, or a cluster that does not answer, still holds "
        "the others back. Without alignment it has no effect.",
    )
    include_headers: bool = option("includeHeaders", boolean, "false", doc="If true, adds the column `headers`.")
    include_leader_epoch: bool = option(
        "includeLeaderEpoch", boolean, "false", doc="If true, adds the column `leader_epoch`."
    )
    poll_timeout_ms: int = option(
        "kafkaConsumer.pollTimeoutMs",
        duration_ms(at_least=1),
        "2 min",
        doc="How long a task waits for records that were planned before it fails. Raise it for slow brokers.",
    )
    call_retries: int = option(
        "fetchOffset.numRetries",
        integer(at_least=0),
        "3",
        doc="The number of times an end offset that moved backwards is checked again before it is treated as data loss.",
    )
    call_retry_interval_ms: int = option(
        "fetchOffset.retryIntervalMs", duration_ms(at_least=0), "1 s", doc="The pause between two of these checks."
    )
    # clients
    group_id_prefix: str = option(
        "groupIdPrefix",
        non_blank(),
        "dynamic-kafka-source",
        doc="The group id that clients send if `group.id` is not set. Nothing joins this group, and no offsets are "
        "committed to it.",
    )
    client_id_prefix: str | None = option(
        "client.id.prefix", non_blank(), doc="The `client.id` of all clients, to recognize them in the brokers' logs."
    )
    import_spark_checkpoint: bool = option(
        "import-kafka-checkpoint",
        boolean,
        "false",
        doc="If true, the query continues from a checkpoint of Spark's own Kafka source (one cluster, the same topics).",
    )

    @property
    def limited(self) -> bool:
        """Return whether a micro-batch has an upper limit."""
        return bool(self.max_offsets_per_trigger or self.max_offsets_per_cluster or self.cluster_limits)

    @property
    def consumer_group(self) -> str:
        """Return the group that brokers see: the user's, or one that is never joined nor committed to."""
        return self.group_id or self.group_id_prefix

    def with_default_start(self, starting: KafkaOffsetsInitializer) -> SourceSettings:
        """Return the settings with these starting offsets, if none were given."""
        return replace(self, starting=starting) if self.starts_by_default else self

    def cluster_properties(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return the properties used for a cluster: the global ones, under the cluster's own.

        Raises:
            ConfigurationError: If the cluster's own ones say what metadata may not say.
        """
        properties = cluster_properties(own, self.properties, self.document_rules)
        if self.client_id_prefix is not None:
            properties["client.id"] = self.client_id_prefix
        return properties

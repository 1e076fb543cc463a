"""What a sink was asked to do, after all options are parsed and checked, and what of it the tasks are told; picklable."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from dynamic_kafka.metadata.service import KafkaMetadataService
from dynamic_kafka.sink.partitioners import KafkaPartitioner

__all__ = ["DEFAULT_TRANSACTION_TIMEOUT_MS", "Destination", "Guarantee", "SinkSettings", "WriteTask"]

DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
"""The brokers' own default of the most that they allow."""

Guarantee = Literal["none", "at-least-once", "exactly-once"]
"""Flink's DeliveryGuarantee, in its options' words."""


@dataclass(frozen=True)
class SinkSettings:
    """Everything the engine knows of the user's wishes; the option table says what each one means.

    Args:
        service: Makes the metadata service; called once, in the process that uses it.
        stream: The stream whose clusters and topics are written to.
        properties: Client properties for every cluster; a cluster's own ones win.
        topic: The topic of all rows; the column `topic` counts if there is none.
        topics: If given, the topics that the column `topic` may name.
        pattern: If given, what the topics that the column `topic` names have to match as a whole.
        partitioner: Chooses partitions for rows that name none; None leaves it to the client, which does as Java's.
        guarantee: What is promised.
        prefix: Of all transactional ids; "" without exactly-once.
        app: `txnAppId` with the sink's name, and `txnVersion`: the identity of a batch write.
        log_topic: The commit log.
        log_cluster: Where it lives; None is the first cluster by name.
        log_replication: Replicas of the commit log; None is the brokers' default.
        lost_transactions: What transactions that a decision named and that are gone do: end the query, or a warning.
        accept_gaps: Whether a batch counts although the commit log does not know the one before it.
    """

    service: Callable[[], KafkaMetadataService]
    stream: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    topic: str | None = None
    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    partitioner: KafkaPartitioner | None = None
    guarantee: Guarantee = "at-least-once"
    prefix: str = ""
    app: tuple[str, int] | None = None
    log_topic: str = ""
    log_cluster: str | None = None
    log_replication: int | None = None
    lost_transactions: Literal["fail", "continue"] = "fail"
    accept_gaps: bool = False


@dataclass(frozen=True)
class Destination:
    """A cluster that rows of one batch may go to.

    Args:
        properties: How to reach it, in Java's or librdkafka's names, secrets as they were given.
        topic: Where rows go that name no topic; None if they have to.
        topics: What rows may name; empty if that is not said.
    """

    properties: Mapping[str, str] = field(repr=False)
    topic: str | None = None
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True)
class WriteTask:
    """What the tasks of one batch are told.

    Args:
        destinations: By the cluster's name in the metadata. Rows need no `cluster` if there is only one.
        settings: The user's wishes.
        chain: The commit log's chain of claims, for exactly-once.
        generation: The claim that this batch is written under: it decides which transactional ids are free.
    """

    destinations: Mapping[str, Destination]
    settings: SinkSettings
    chain: str = ""
    generation: int = 0

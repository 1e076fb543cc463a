"""The settings of a sink after all options are parsed and checked, and what the tasks of a batch get; picklable.

An option that is one setting is declared here, as a field. The others are declared in `configure`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.kafka.config.documents import DocumentRules, cluster_properties
from dynamic_kafka.metadata.model import TOPIC_NAME
from dynamic_kafka.metadata.service import KafkaMetadataService
from dynamic_kafka.options import Parser, choice, integer, name_list, non_blank, option
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.partitioners import KafkaPartitioner

if TYPE_CHECKING:
    from dynamic_kafka.observe.settings import MetricsSettings

__all__ = ["DEFAULT_TRANSACTION_TIMEOUT_MS", "Destination", "Guarantee", "LogPlace", "SinkSettings", "WriteTask"]

DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
"""The brokers' default of `transaction.max.timeout.ms`."""

Guarantee = Literal["none", "at-least-once", "exactly-once"]
"""Flink's DeliveryGuarantee, in the words of its options."""


def _lost_transactions(value: str) -> tuple[Literal["continue", "rewrite"], int] | None:
    word, _, number = value.strip().lower().partition(":")
    match word:
        case "fail" if not number:
            return None
        case "continue" | "rewrite":
            return word, integer(at_least=0)(number)
    raise ValueError


@dataclass(frozen=True)
class SinkSettings:
    """The settings of a sink.

    Args:
        service: The function that makes the metadata service; called once, in the process that uses it.
        stream: The stream to write to.
        properties: Client properties for every cluster; a cluster's own ones win.
        document_rules: What the metadata may say of a cluster; None if the metadata is the query's own.
        topic: The topic of all rows; None if the column `topic` names it.
        topics: If given, the topics that the column `topic` may name.
        pattern: If given, the pattern that topics in the column `topic` must match as a whole.
        partitioner: The partitioner of rows that name no partition; None leaves it to the client, which does as Java's.
        prefix: The beginning of all transactional ids; "" without exactly-once.
        identity: `txnAppId` with the sink's name, and `txnVersion`: the identity of a batch write.
        name: `sink.name`; "" without one.
        log_topic: The topic of the commit log; "" without exactly-once.
        metrics: What is reported to the metrics server; None for nothing.
    """

    service: Callable[[], KafkaMetadataService] = field(repr=False)
    stream: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    document_rules: DocumentRules | None = None
    topic: str | None = None
    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    partitioner: KafkaPartitioner | None = None
    prefix: str = ""
    identity: Identity | None = None
    name: str = ""
    log_topic: str = ""
    metrics: MetricsSettings | None = None

    guarantee: Guarantee = option(
        "sink.delivery-guarantee",
        choice(*get_args(Guarantee)),
        "at-least-once",
        shown_default="at-least-once (builder: none)",
        doc="`none` does not wait for acknowledgements. `at-least-once` waits for all of them before a batch ends. "
        "`exactly-once` writes a batch in transactions that become visible together. `sink.semantic` is Flink's deprecated "
        "name.",
        aliases=("sink.semantic",),
    )
    dead_letter_topic: str | None = option(
        "sink.dead-letter.topic",
        non_blank("a topic's name: at most 249 letters, digits, '.', '_' and '-'", TOPIC_NAME.fullmatch),
        doc="The topic for rows that cannot be written: the producer or the topic does not take a record of their size, or, "
        "in SQL tables, the format cannot encode them. It has to exist on each cluster that rows go to. Without it, such a "
        "row ends the query.",
    )
    log_cluster: str | None = option(
        "sink.commit-log.cluster",
        non_blank("a cluster id"),
        shown_default="where it is found",
        doc="The cluster of the commit log. Without it, the log is searched on all clusters of the stream, and made on the "
        "first active one by name if it does not exist. A log that is on another cluster is moved. Give all writers of a "
        "prefix the same value and the same topic: two that start for the first time at one moment could make two logs.",
    )
    log_replication: int | None = option(
        "sink.commit-log.replication-factor",
        integer(at_least=1),
        shown_default="3, or the number of brokers",
        doc="The number of replicas of the commit log's topic, if the sink creates it.",
    )
    lost_transactions: tuple[Literal["continue", "rewrite"], int] | None = option(
        "sink.lost-transactions",
        Parser(_lost_transactions, "fail, or the value that the error names, such as continue:41 or rewrite:41"),
        "fail",
        doc="What to do if a decided transaction has timed out before it was committed. `fail` ends the query with an error "
        "that names the batch, such as 41. `continue:41` then takes this batch for published, and `rewrite:41` writes the "
        "whole batch again.",
    )
    lost_clusters: tuple[str, ...] | None = option(
        "sink.lost-clusters",
        name_list("names or Kafka's cluster.ids of clusters separated by ';'"),
        shown_default="none",
        doc="Clusters that are lost for good with everything that they held for this prefix: its commit log, or a part of a "
        "decided batch. The sink then stops asking for it. Set it to the name that the error gives.",
    )
    accept_gaps: int | None = option(
        "sink.accept-gaps",
        integer(at_least=0, expected="the number of the batch that the error names, such as 41"),
        doc="The number of a batch that is published even if it is not the next one for the commit log, as an error names "
        "it after a change of the prefix, the commit log or the checkpoint. It applies to this batch only.",
    )
    skip_batch: int | None = option(
        "sink.skip-batch",
        integer(at_least=0, expected="the number of the batch that the error names, such as 41"),
        doc="The number of a batch that is left out, as an error names it when a batch is published already, but with other "
        "rows. It applies to this batch only.",
    )

    def cluster_properties(self, name: str, own: Mapping[str, str]) -> dict[str, str]:
        """Return the properties used for a cluster: the global ones, under the cluster's own.

        Raises:
            ConfigurationError: If the cluster's own ones say what metadata may not say.
        """
        try:
            return cluster_properties(own, self.properties, self.document_rules)
        except ConfigurationError as error:
            raise ConfigurationError(f"Cluster '{name}': {error}", cluster_id=name) from error


@dataclass(frozen=True)
class Destination:
    """A cluster that rows of one batch may go to.

    `topic` is that of rows that name none; None if each row must name one. `topics` are those that rows may name; empty if
    any is allowed.
    """

    properties: Mapping[str, str] = field(repr=False)
    topic: str | None = None
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LogPlace:
    """The place of a commit log: its cluster's name in the metadata, its topic, and its names so far (`State.places`)."""

    cluster: str
    properties: Mapping[str, str] = field(repr=False)
    topic: str
    places: tuple[str, ...]


@dataclass(frozen=True)
class WriteTask:
    """Everything that the tasks of one batch get.

    Args:
        destinations: By the cluster's name in the metadata. Rows need no `cluster` if there is only one.
        settings: The sink's settings.
        chain: The commit log's chain of claims, for exactly-once.
        generation: The claim that this batch is written under: it decides which transactional ids are free.
        log: The commit log, for exactly-once.
    """

    destinations: Mapping[str, Destination]
    settings: SinkSettings
    chain: str = ""
    generation: int = 0
    log: LogPlace | None = None

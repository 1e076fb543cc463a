"""The sink's options."""

from __future__ import annotations

import re

from dynamic_kafka.options.option import BOOL, POSITIVE, ConfigOption, flag, integer, names, regex, text, word

__all__ = ["SINK_OPTIONS"]

# Kafka's protocol ends a string at 32,767 bytes (Flink's own limit, 64,000, is above it), and ids go on after the prefix.
_MAX_PREFIX_BYTES = 32_000
_FROM_0 = "a whole number, 0 or more"


def _one_name(value: str) -> str:
    (name,) = names(";,")(value)
    return str(name)


def _prefix(value: str) -> str:
    prefix = text(value)
    if len(prefix.encode()) >= _MAX_PREFIX_BYTES:
        raise ValueError
    return prefix


def _topic_name(value: str) -> str:
    """Kafka's rule (org.apache.kafka.common.internals.Topic)."""
    name = text(value)
    if name in (".", "..") or re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) is None:
        raise ValueError
    return name


def _topic_names(value: str) -> tuple[str, ...]:
    return tuple(map(_topic_name, names(";,")(value)))


def _sink_name(value: str) -> str:
    name = text(value)
    if "/" in name:
        raise ValueError
    return name


SINK_OPTIONS: tuple[ConfigOption, ...] = (
    # where to write
    ConfigOption(
        "topic",
        _topic_names,
        "topic names separated by ';'",
        "",
        "The topic of all rows, whatever their column `topic` says; of several topics, the column names one for each row. "
        "Without it (and without `stream-ids`) the column alone decides.",
    ),
    ConfigOption(
        "topic-pattern",
        regex,
        "a regular expression",
        "",
        "What the topics in the column `topic` have to match as a whole.",
    ),
    ConfigOption(
        "stream-ids",
        _one_name,
        "one stream id",
        "",
        "The stream whose clusters and topics are written to, looked up for each batch. If it is on several clusters, the "
        "column `cluster` names one for each row; if it has several topics there, the column `topic`.",
    ),
    ConfigOption(
        "metadata-service",
        text,
        "single-cluster, file, http, or package.module:Class",
        "",
        "Who knows the stream; as for the source.",
    ),
    # how
    ConfigOption(
        "sink.delivery-guarantee",
        word("none", "at-least-once", "exactly-once"),
        "one of none, at-least-once, exactly-once",
        "at-least-once (builder: none)",
        "`none` waits for no acknowledgement, `at-least-once` for all of them before a batch ends; `exactly-once` writes a "
        "batch in transactions that become visible together. `sink.semantic` is Flink's deprecated name.",
        ("sink.semantic",),
    ),
    ConfigOption(
        "sink.partitioner",
        text,
        "default, fixed, round-robin, or package.module:Class",
        "default",
        "Who chooses the partition of rows that name none in a column `partition`. `default` does as Java's: by the key's "
        "murmur2 hash, sticky without a key.",
    ),
    ConfigOption(
        "sink.parallelism",
        integer(1),
        POSITIVE,
        "as the DataFrame",
        "How many tasks write. Only the builder heeds it; elsewhere the DataFrame's own number counts, so say "
        "`df.repartition(n)`.",
    ),
    # exactly once
    ConfigOption(
        "sink.transactional-id-prefix",
        _prefix,
        "text of less than 32,000 bytes",
        "from `checkpointLocation`",
        "What all transactional ids begin with; needed for exactly-once. It names the query: never give it to two at once, "
        "and keep it over restarts.",
    ),
    ConfigOption(
        "checkpointLocation",
        text,
        "a path",
        "",
        "Spark's own option. With exactly-once and no prefix, the prefix is made from it; one that is set in Spark's "
        "configuration is not visible to sinks.",
    ),
    ConfigOption(
        "sink.transaction-naming-strategy",
        word("incrementing", "pooling"),
        "incrementing or pooling",
        "pooling",
        "Accepted for Flink's sake; transactional ids always come from a pool.",
    ),
    ConfigOption(
        "txnAppId",
        text,
        "text",
        "",
        "With `txnVersion`, the identity of a batch write (`df.write`, `foreachBatch`): one that was written before is not "
        "written again. Exactly-once only.",
    ),
    ConfigOption(
        "txnVersion", integer(0), _FROM_0, "", "The number of the batch write, such as `foreachBatch`'s batch id."
    ),
    ConfigOption(
        "sink.name",
        _sink_name,
        "text without '/'",
        "",
        "Tells apart several sinks that one batch with `txnAppId` is written to.",
    ),
    ConfigOption(
        "sink.commit-log.topic",
        _topic_name,
        "a topic's name: at most 249 letters, digits, '.', '_' and '-'",
        "`__dynamic-kafka-commits-` and the prefix",
        "The topic that says which batches are published.",
    ),
    ConfigOption("sink.commit-log.cluster", text, "a cluster id", "the first by name", "The cluster of that topic."),
    ConfigOption(
        "sink.commit-log.replication-factor",
        integer(1),
        POSITIVE,
        "the brokers' default",
        "Replicas of that topic, when it is created.",
    ),
    ConfigOption(
        "sink.lost-transactions",
        word("fail", "continue"),
        "fail or continue",
        "fail",
        "What transactions do that were to be published and have timed out since: end the query, or a warning.",
    ),
    ConfigOption(
        "sink.accept-gaps",
        flag,
        BOOL,
        "false",
        "Whether a batch is written although the commit log does not know the one before it, as after a change of prefix, "
        "log or checkpoint.",
    ),
)
"""The sink's table."""

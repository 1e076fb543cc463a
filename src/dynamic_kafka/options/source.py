"""The source's options."""

from __future__ import annotations

from dynamic_kafka.options.option import (
    BOOL,
    POSITIVE,
    ConfigOption,
    duration_from,
    duration_ms,
    flag,
    integer,
    names,
    regex,
    text,
    word,
)

__all__ = ["OPTIONS"]

_MS = "milliseconds, or a number with a unit such as '30 s' or '5 min'"
_JSON_OFFSETS = 'earliest, latest, committed, or JSON such as {"topic": {"0": 23, "1": -2}} (-2 earliest, -1 latest)'
_JSON_TIMES = 'JSON such as {"topic": {"0": 1657256176000}}'
_STARTUP = ("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
_SPECIFIC = "'partition:0,offset:42;partition:1,offset:300'"

OPTIONS: tuple[ConfigOption, ...] = (
    # what to read
    ConfigOption("topic", names(";,"), "topic names separated by ';'", "", "Topics of one cluster.", ("subscribe",)),
    ConfigOption(
        "topic-pattern",
        regex,
        "a regular expression",
        "",
        "Topics of one cluster whose whole names match.",
        ("subscribePattern",),
    ),
    ConfigOption(
        "topic-partitions",
        text,
        'JSON such as {"topic": [0, 1]}',
        "",
        "Single partitions of one cluster.",
        ("assign",),
    ),
    ConfigOption(
        "stream-ids", names(";,"), "stream ids separated by ';'", "", "Streams that the metadata service describes."
    ),
    ConfigOption(
        "stream-pattern",
        regex,
        "a regular expression",
        "",
        "Streams whose ids contain a match (Flink's `find`).",
    ),
    ConfigOption(
        "metadata-service",
        text,
        "single-cluster, file, http, or package.module:Class",
        "",
        "Who knows the streams. Its own options begin with `metadata-service.`: `cluster-id`, `path`, `url`, `timeout-ms`, "
        "`auth-header`, or whatever the class takes.",
    ),
    # where to start and stop
    ConfigOption(
        "scan.startup.mode", word(*_STARTUP), f"one of {', '.join(_STARTUP)}", "", "Where reading starts (Flink SQL)."
    ),
    ConfigOption(
        "scan.startup.timestamp-millis",
        integer(0),
        "milliseconds since 1970",
        "",
        "Start at the first record at or after this time; with mode `timestamp`.",
    ),
    ConfigOption(
        "scan.startup.specific-offsets",
        text,
        _SPECIFIC,
        "",
        "Start at these offsets of a single topic; with mode `specific-offsets`.",
    ),
    ConfigOption(
        "startingOffsets",
        text,
        _JSON_OFFSETS,
        "latest for streams, earliest for batch",
        "Where reading starts (Spark). A word may also stand for all partitions of a topic. Partitions not named start at "
        "the earliest offset.",
    ),
    ConfigOption(
        "startingTimestamp", integer(0), "milliseconds since 1970", "", "Start time for all partitions (Spark)."
    ),
    ConfigOption("startingOffsetsByTimestamp", text, _JSON_TIMES, "", "Start time for each partition (Spark)."),
    ConfigOption(
        "startingOffsetsByTimestampStrategy",
        word("error", "latest"),
        "error or latest",
        "error",
        "What to do where no record is that late (Spark's two options above only).",
    ),
    ConfigOption(
        "scan.bounded.mode",
        word("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets"),
        "one of unbounded, latest-offset, group-offsets, timestamp, specific-offsets",
        "unbounded",
        "Where reading stops (Flink SQL). A streaming query then ends by itself.",
    ),
    ConfigOption(
        "scan.bounded.timestamp-millis",
        integer(0),
        "milliseconds since 1970",
        "",
        "Stop before the first record at or after this time.",
    ),
    ConfigOption("scan.bounded.specific-offsets", text, _SPECIFIC, "", "Stop before these offsets."),
    ConfigOption("endingOffsets", text, _JSON_OFFSETS, "latest for batch", "Where reading stops (Spark)."),
    ConfigOption("endingTimestamp", integer(0), "milliseconds since 1970", "", "Stop time for all partitions (Spark)."),
    ConfigOption("endingOffsetsByTimestamp", text, _JSON_TIMES, "", "Stop time for each partition (Spark)."),
    # following changes
    ConfigOption(
        "stream-metadata-discovery-interval-ms",
        duration_ms,
        _MS,
        "-1",
        "How often the metadata service is asked; 0 or less asks once.",
    ),
    ConfigOption(
        "stream-metadata-discovery-failure-threshold",
        integer(0),
        "a whole number, 0 or more",
        "1",
        "How many failures of the metadata service in a row are tolerated; one more ends the query.",
    ),
    ConfigOption(
        "stream-metadata-removed-cluster-retention-ms",
        duration_ms,
        _MS,
        "7 d",
        "How long positions of removed clusters and topics are kept, in case they come back (Flink: 0, clusters only).",
    ),
    ConfigOption(
        "partition.discovery.interval.ms",
        duration_ms,
        _MS,
        "5 min",
        "How often clusters are asked for new topics and partitions; 0 or less asks once.",
        ("scan.topic-partition-discovery.interval",),
    ),
    ConfigOption(
        "cluster-failure-mode",
        word("fail", "isolate"),
        "fail or isolate",
        "fail",
        "What a cluster that does not answer does: end the query after the client's time-outs, or wait by itself while "
        "the others are read.",
    ),
    ConfigOption(
        "drain-on-removal",
        flag,
        BOOL,
        "false",
        "Whether a removed topic is read on until it is quiet, before it is cut.",
    ),
    ConfigOption("drain-quiet-ms", duration_from(0), _MS, "10 s", "How long a drained topic has to be without news."),
    # reading
    ConfigOption(
        "failOnDataLoss",
        flag,
        BOOL,
        "true",
        "Whether records that are gone before they were read end the query, or are a warning.",
    ),
    ConfigOption(
        "maxOffsetsPerTrigger",
        integer(1),
        POSITIVE,
        "none",
        "Most offsets in a micro-batch, shared fairly over clusters.",
    ),
    ConfigOption(
        "maxOffsetsPerTriggerPerCluster",
        text,
        'a whole number above 0, or JSON such as {"cluster": 1000}',
        "none",
        "Most offsets of a cluster in a micro-batch.",
    ),
    ConfigOption("minOffsetsPerTrigger", integer(1), POSITIVE, "none", "Wait until there are as many offsets."),
    ConfigOption("maxTriggerDelay", duration_from(0), _MS, "15 min", "Longest wait for `minOffsetsPerTrigger`."),
    ConfigOption(
        "scan.parallelism",
        integer(1),
        POSITIVE,
        "by the work",
        "Most tasks of a micro-batch. As many as that are used as soon as there are 1,000 records for each of them.",
    ),
    ConfigOption(
        "minPartitions",
        integer(1),
        POSITIVE,
        "1",
        "Least number of tasks when there is something to read; partitions are cut for that.",
    ),
    ConfigOption(
        "maxRecordsPerPartition",
        integer(1),
        POSITIVE,
        "1000000",
        "About how many records one task reads. If it is given, larger partitions are cut, which gives up their order.",
    ),
    ConfigOption("includeHeaders", flag, BOOL, "false", "Adds the column `headers`."),
    ConfigOption("includeLeaderEpoch", flag, BOOL, "false", "Adds the column `leader_epoch`."),
    ConfigOption(
        "kafkaConsumer.pollTimeoutMs",
        duration_from(0),
        _MS,
        "2 min",
        "How long a task waits for records that were planned, before it fails.",
    ),
    ConfigOption(
        "fetchOffset.numRetries",
        integer(0),
        "a whole number, 0 or more",
        "3",
        "How often an end that went backwards is looked at again before it counts as data loss.",
    ),
    ConfigOption("fetchOffset.retryIntervalMs", duration_from(0), _MS, "1 s", "The pause between those looks."),
    # clients
    ConfigOption(
        "groupIdPrefix",
        text,
        "text",
        "dynamic-kafka-source",
        "The group named to brokers if there is no `group.id`; it is neither joined nor committed to.",
    ),
    ConfigOption("client.id.prefix", text, "text", "", "The `client.id` of all clients."),
    ConfigOption(
        "commit.offsets.on.checkpoint",
        flag,
        BOOL,
        "true if `properties.group.id` is set",
        "Whether the offsets of finished batches are committed to the group, for monitoring only.",
    ),
    ConfigOption(
        "register.consumer.metrics", flag, BOOL, "true", "Accepted for Flink's sake; there is no registry to choose."
    ),
    ConfigOption(
        "import-kafka-checkpoint",
        flag,
        BOOL,
        "false",
        "Whether to go on from a checkpoint of Spark's own Kafka source (one cluster, same topics).",
    ),
)
"""The source's table."""

"""The shape of `/status.json`: `Status`.

Times end in `_ms` (milliseconds since 1970) and durations in `_s` (seconds, as a decimal). null is "not known" or "does not
apply": a number that was not seen within the last 15 seconds is null (`words`). Texts of errors have at most 4,000
characters. A field may be added without a new version. A field that changes its meaning or goes is a new version.

Lag in seconds is the age of the oldest record that is not read yet, as seen from here: the time since the end of the
partition was first seen beyond the current offset. So it does not depend on the timestamps of the records. If such a record
was there before this run looked for the first time, its age is not known: then the lag is the age of the last record that
was read, by its timestamp, and until one was read the time since the first look.

The watermark of a source is the least of the greatest timestamps of all partitions, without those that brought no record
for a minute. It never goes back.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from dynamic_kafka.observe.reports import (
    ClusterFacts,
    ClusterState,
    Commits,
    Event,
    HistoryRead,
    SinkFacts,
    SourceFacts,
    TopicState,
    Transactions,
)
from dynamic_kafka.observe.reports import (
    MetadataStatus as MetadataReport,
)

__all__ = [
    "ClusterStatus",
    "ClusterWord",
    "History",
    "MetadataStatus",
    "MetadataWord",
    "PartitionStatus",
    "QueryState",
    "QueryStatus",
    "SinkClusterStatus",
    "SinkStatus",
    "SourceStatus",
    "Status",
    "TopicStatus",
]

VERSION = 1
"""The version of the shape."""

QueryState = Literal["starting", "running", "degraded", "silent", "failed", "ended", "finished", "unknown"]
"""`starting`: nothing is known to be read or written yet. `degraded`: running, but a cluster is unreachable, a topic does
not exist, the metadata service fails, or a sink's last batch failed (`reason`). `silent`: the reader process is alive but
has not reported for 15 seconds. `failed`: ended by an error (`reason`). `ended`: the reader process ended without an error
of its own, because the query was stopped or failed somewhere else. `finished`: all stopping offsets are reached. These
three are shown for 15 minutes, or until the query runs again. `unknown`: only a sink of it reports, and not for a minute.
`words` says what was seen for each of them."""
ClusterWord = Literal[ClusterState, "unknown"]
"""As in the report; `unknown` if the cluster has not answered for 15 seconds, or its source has not reported."""
MetadataWord = Literal["answered", "fails", "waits", "unknown"]
"""`waits`: it was asked more than 15 seconds ago."""


class MetadataStatus(MetadataReport):
    """The metadata service, as reported, with its state in a word."""

    state: MetadataWord


class PartitionStatus(TypedDict):
    """A partition. `committed`, `end` and `timestamp_ms` are null if they are not known.

    Attributes:
        partition: Its number.
        current: The next offset to read, after the last finished batch.
        committed: The offset that was last committed to the consumer group.
        end: The end of the log.
        pending_records: The offsets from `current` to `end`; null if the end is not known now: its cluster does not answer.
        lag_s: The lag in seconds; 0 if there is nothing to read, null if it is not known.
        records: The records read so far in this run.
        timestamp_ms: The greatest timestamp read so far in this run.
    """

    partition: int
    current: int
    committed: int | None
    end: int | None
    pending_records: int | None
    lag_s: float | None
    records: int
    timestamp_ms: int | None


class TopicStatus(TypedDict):
    """A topic: sums and the greatest lag of its partitions.

    `pending_records` is the sum of what is known, null if nothing is. `lag_known` says whether all of it is.
    `decode_errors` are the messages that cannot be decoded; null if they are not counted.
    `partitions` is null unless the request asks for it: `/status.json?partitions=all`, or `?cluster=NAME&topic=NAME` for
    one topic, or `?cluster=NAME` for one cluster.
    """

    topic: str
    state: TopicState
    partition_count: int
    pending_records: int | None
    lag_s: float | None
    lag_known: bool
    records: int | None
    bytes: int | None
    decode_errors: int | None
    worst_partition: int | None
    partitions: list[PartitionStatus] | None


class History(TypedDict):
    """Numbers over time, one for each time, oldest first: every 5 seconds for up to half an hour.

    Attributes:
        times_ms: The times.
        records_per_s: The records read, with rows of the history in the numbers of a source.
        pending_records: The records to read.
        lag_s: The greatest lag.

    null is not known.
    """

    times_ms: list[int]
    records_per_s: list[float | None]
    pending_records: list[int | None]
    lag_s: list[float | None]


class ClusterStatus(ClusterFacts):
    """A cluster of a source, with sums and the greatest lag of its topics, worst topics first."""

    state: ClusterWord
    failing_for_s: float | None
    partition_count: int
    pending_records: int | None
    lag_s: float | None
    lag_known: bool
    emit_lag_s: float | None
    records: int | None
    bytes: int | None
    records_per_s: float | None
    topics: list[TopicStatus]
    clients: dict[str, float]
    history: History


class SourceStatus(SourceFacts):
    """A source of a query. Nearly all queries have one; a join of two streams has two.

    Attributes:
        run: A random name of this run.
        reported_ms: When the reader process last reported.
        live: Whether that report is of now: it is not the last one of a process that has ended, and 15 seconds old at most.
        batch_running_s: The time since `last_batch_ms`, if Spark has not asked for the next batch; null if it has.
        records: The records read so far, without rows of the history; null if no worker reports what it reads. So are the
            next six then.
        bytes: Their bytes.
        records_per_s: The records, and rows of the history, read in each of the last 15 seconds.
        bytes_per_s: Their bytes.
        tasks: The tasks so far.
        task_errors: The tasks that failed so far.
        given_up: The offsets given up so far.
        partition_count: The number of partitions.
        pending_records: The records to read, where that is known; null if it is nowhere.
        lag_s: The greatest lag; null if none is known.
        lag_known: Whether both are known of all partitions of all clusters that are read.
        emit_lag_s: Flink's currentEmitEventTimeLag, the greatest of all clusters; null before the first record.
        watermark_ms: The watermark; null before the first record with a timestamp.
        watermark_lag_s: Flink's watermarkLag.
        idle_s: Flink's sourceIdleTime: the time since the last record, or since the start.
        commits: The commits of the consumer group's offsets, on all clusters.
        metadata: The metadata service.
        history_read: What was read of the history in this run.
        clusters: The clusters, worst first: unreachable ones, then by lag.
        history: Numbers over time.
    """

    run: str
    reported_ms: int
    live: bool
    batch_running_s: float | None
    records: int | None
    bytes: int | None
    records_per_s: float | None
    bytes_per_s: float | None
    tasks: int | None
    task_errors: int | None
    given_up: int | None
    partition_count: int
    pending_records: int | None
    lag_s: float | None
    lag_known: bool
    emit_lag_s: float | None
    watermark_ms: int | None
    watermark_lag_s: float | None
    idle_s: float | None
    commits: Commits
    metadata: MetadataStatus | None
    history_read: HistoryRead
    clusters: list[ClusterStatus]
    history: History


class SinkClusterStatus(TypedDict):
    """What a sink has written to a cluster so far."""

    cluster: str
    records: int
    bytes: int
    clients: dict[str, float]


class SinkStatus(SinkFacts):
    """A sink of a query, with the totals of all its processes.

    `last_batch_failed` is the outcome of the last batch that came to its end, null before the first one.
    """

    reported_ms: int
    last_batch_failed: bool | None
    batches: int
    errors: int
    dead_letters: int
    records: int
    bytes: int
    records_per_s: float | None
    transactions: Transactions | None
    clusters: list[SinkClusterStatus]


class QueryStatus(TypedDict):
    """A query.

    Attributes:
        query: Its label; unique in the driver.
        query_id: Spark's id of the query; null if it is not known yet.
        name: Spark's name of the query; null without one, or if it is not known yet.
        state: Its state.
        reason: Why it is in this state; "" if that is as it should be.
        started_ms: When its first part was first seen.
        sources: Its sources.
        sinks: Its sinks.
        events: What happened, oldest first.
        reports_dropped: The number of reports about it that could not be sent to this server.
    """

    query: str
    query_id: str | None
    name: str | None
    state: QueryState
    reason: str
    started_ms: int
    sources: list[SourceStatus]
    sinks: list[SinkStatus]
    events: list[Event]
    reports_dropped: int


class Status(TypedDict):
    """The answer of `/status.json`.

    Attributes:
        version: The version of this shape: 1.
        package: The version of pyspark-dynamic-kafka that answers.
        time_ms: The time of the answer.
        started_ms: When the server started.
        queries: The queries of the driver, worst first: by state, then those that are more than a minute behind, then in
            order of their start.
    """

    version: int
    package: str
    time_ms: int
    started_ms: int
    queries: list[QueryStatus]

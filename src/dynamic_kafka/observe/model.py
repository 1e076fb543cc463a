"""The model of what the queries of one driver are doing: reports in, status out. Pure.

Truth is in several processes: the source's reader process (positions, ends, clusters, metadata), Spark's workers (records
read), and the processes that plan and commit the sink's batches (records written, transactions). Each of them reports its
part to one server (`server`), and the model joins the parts.

Rules:

1. A report is everything that its reporter knows, never a difference. So a report that is lost does no harm.
2. Counters are kept by the reporters. The model adds what a reporter's counter has grown by, so a total never falls when
   a reporter ends. A report that overtakes a newer one is dropped (`sequence`).
3. What a source reports no more is gone: partitions, topics, clusters. A source is gone when its process ends.
4. The parts of one query are joined by Spark's query id. The workers tell it; a source does not know it before its first
   batch.

The label of a query (`query`) is the option `metrics.query`, else the query's name in Spark, else what it reads or writes
(`orders,payments`). Of two queries with the same label the later one gets an addition.

Lag in seconds is the age of the oldest record that is not read yet, as seen from here: the time since the end of the
partition was first seen beyond the current offset. So it does not depend on the timestamps of the records. If such a record
was there before this run looked for the first time, its age is not known: then the lag is the age of the last record that
was read, by its timestamp, and until one was read the time since the first look.

The watermark of a source is the least of the greatest timestamps of all partitions, without those that brought no record
for a minute. It never goes back.

The shape of `/status.json` is `Status`. Times end in `_ms` (milliseconds since 1970) and durations in `_s` (seconds, as a
decimal). null is "not known" or "does not apply". A field may be added without a new version; a field that changes its
meaning or goes is a new version.
"""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = [
    "Calls",
    "ClusterReport",
    "ClusterStatus",
    "Commits",
    "Event",
    "History",
    "MetadataStatus",
    "PartitionStatus",
    "QueryStatus",
    "ReadReport",
    "Report",
    "SinkClusterStatus",
    "SinkReport",
    "SinkStatus",
    "SourceReport",
    "SourceStatus",
    "Status",
    "TopicReport",
    "TopicStatus",
    "Transactions",
    "WorkerReport",
]

VERSION = 1
SILENT_AFTER_MS = 15_000
"""A source that has not reported for so long is silent. It reports every second."""
KEPT_AFTER_END_MS = 15 * 60_000
"""A query that has failed is shown for so long. So is a sink after its last batch, if no source of its query is known."""
IDLE_AFTER_MS = 60_000
"""A partition without records for so long does not hold the watermark back."""
HISTORY_INTERVAL_MS = 5_000
HISTORY_LENGTH = 360


# --- what is shared by reports and status -------------------------------------------------------------------------------

ClusterState = Literal["starting", "reading", "draining", "retained", "unreachable"]
"""`starting`: nothing is read yet. `draining`: all topics are removed, and read to their ends. `retained`: all are removed,
and their positions are kept. `unreachable`: the cluster does not answer (`reason`)."""
TopicState = Literal["reading", "draining", "retained"]
QueryState = Literal["starting", "running", "degraded", "silent", "failed", "finished"]
"""`starting`: nothing is known to be read or written yet. `degraded`: running, but a cluster is unreachable, the metadata
service fails, or a sink's last batch failed (`reason`). `silent`: the reader process is alive but has not reported for 15
seconds. `failed`: ended by an error (`reason`), shown for 15 minutes. `finished`: all stopping offsets are reached."""


class Event(TypedDict):
    """Something that happened: `level` is `info`, `warning` or `error`."""

    time_ms: int
    level: str
    text: str


class Calls(TypedDict):
    """Spark's calls of one kind in the reader process: the fixed cost of a batch."""

    count: int
    total_s: float
    last_s: float


class MetadataStatus(TypedDict):
    """The metadata service: answers and failures so far, and the last of them.

    Attributes:
        refreshes: The number of answers.
        failures: The number of failures.
        consecutive_failures: The number of failures since the last answer.
        last_error: The text of the last failure, kept after later answers.
        last_success_ms: The time of the last answer.
        asking_since_ms: The start of the current attempt; null between attempts.
        changes: The number of answers that differed from the one before.
    """

    refreshes: int
    failures: int
    consecutive_failures: int
    last_error: str | None
    last_success_ms: int | None
    asking_since_ms: int | None
    changes: int


class Commits(TypedDict):
    """The commits of the consumer group's offsets."""

    succeeded: int
    failed: int


class Transactions(TypedDict):
    """The transactions of an exactly-once sink.

    Attributes:
        open: Now: prepared by tasks, and not yet known to be committed or aborted.
        decided: So far: named by a decision in the commit log.
        published: So far: committed on their clusters.
        aborted: So far: aborted by the driver, because a batch failed or was published before.
    """

    open: int
    decided: int
    published: int
    aborted: int


# --- reports --------------------------------------------------------------------------------------------------------------


class TopicReport(TypedDict):
    """The partitions of a topic, in columns of the same length.

    Attributes:
        topic: The topic.
        state: Its state.
        partitions: The numbers of the partitions.
        current: The next offset to read, after the last finished batch.
        committed: The offset that was last committed to the consumer group; null if none was.
        end: The end of the log that was last seen; null if none was.
        behind_since_ms: When an end beyond `current` was first seen; null if there is nothing to read.
    """

    topic: str
    state: TopicState
    partitions: list[int]
    current: list[int]
    committed: list[int | None]
    end: list[int | None]
    behind_since_ms: list[int | None]


class ClusterReport(TypedDict):
    """A cluster of a source.

    Attributes:
        cluster: Its name in the metadata.
        kafka_id: Kafka's own cluster.id; "" if it is unknown.
        state: Its state.
        reason: Why it is in this state; "" if that is as it should be.
        failing_since_ms: The first look that it did not answer; null if it answers.
        seen_ms: The last look that it answered; null if there was none.
        watched_since_ms: The first look that it answered in this run; null if there was none.
        commits: The commits of the consumer group's offsets.
        topics: Its topics.
    """

    cluster: str
    kafka_id: str
    state: ClusterState
    reason: str
    failing_since_ms: int | None
    seen_ms: int | None
    watched_since_ms: int | None
    commits: Commits
    topics: list[TopicReport]


class SourceReport(TypedDict):
    """The report of a source's reader process.

    Attributes:
        kind: Which report it is.
        reporter: A random name of this run of the source. Its tasks report with it as `run`.
        sequence: Higher in each report.
        time_ms: The time of the report.
        started_ms: The time when the run started.
        label: The option `metrics.query`; "" without it.
        streams: What it reads: stream ids or a pattern.
        group_id: The consumer group; null without one.
        max_partitions: The option `metrics.max-partitions`.
        reader: What reads: "native" or "python".
        state: "running", or why the process ends: "failed" or "finished".
        reason: The error, if it failed.
        batches: The number of batches that were planned.
        last_batch_ms: When the last one was planned; null if none was.
        calls: Spark's calls by their kind: `latest_offset`, `partitions`, `report`.
        metadata: The metadata service; null before it is asked.
        events: The last events, oldest first.
        clusters: The clusters.
    """

    kind: Literal["source"]
    reporter: str
    sequence: int
    time_ms: int
    started_ms: int
    label: str
    streams: list[str]
    group_id: str | None
    max_partitions: int
    reader: str
    state: Literal["running", "failed", "finished"]
    reason: str
    batches: int
    last_batch_ms: int | None
    calls: dict[str, Calls]
    metadata: MetadataStatus | None
    events: list[Event]
    clusters: list[ClusterReport]


class ReadReport(TypedDict):
    """What a worker has read of a topic since it started, in columns of the same length.

    Attributes:
        cluster: The cluster.
        topic: The topic.
        partitions: The numbers of the partitions.
        records: The numbers of records.
        bytes: Their bytes, as Arrow columns.
        timestamp_ms: The greatest timestamps of the records that ended a batch; null without timestamps.
        read_ms: When the last record was read.
    """

    cluster: str
    topic: str
    partitions: list[int]
    records: list[int]
    bytes: list[int]
    timestamp_ms: list[int | None]
    read_ms: list[int]


class WorkerReport(TypedDict):
    """The report of a worker process of Spark about one source, after a task.

    Attributes:
        kind: Which report it is.
        reporter: A random name of this process for this source.
        sequence: Higher in each report.
        time_ms: The time of the report.
        run: The `reporter` of the source.
        query_id: Spark's id of the query; "" if Spark did not tell.
        name: Spark's name of the query; "" without one.
        reader: What reads: "native" or "python".
        tasks: The number of tasks so far.
        errors: The number of tasks that failed so far.
        given_up: The number of offsets that were given up so far (`failOnDataLoss=false`).
        emit_lag_s: By cluster: the time when the last record was handed to Spark, minus its timestamp.
        read: What was read.
        clients: By cluster: librdkafka's own numbers (`register.consumer.metrics`), by their names in `clients`.
    """

    kind: Literal["worker"]
    reporter: str
    sequence: int
    time_ms: int
    run: str
    query_id: str
    name: str
    reader: str
    tasks: int
    errors: int
    given_up: int
    emit_lag_s: dict[str, float]
    read: list[ReadReport]
    clients: dict[str, dict[str, float]]


class SinkReport(TypedDict):
    """The report of a process that plans or commits a sink's batches.

    Attributes:
        kind: Which report it is.
        reporter: A random name of this process for this sink.
        sequence: Higher in each report.
        time_ms: The time of the report.
        label: The option `metrics.query`; "" without it.
        query_id: Spark's id of the query; "" if it is not known.
        name: Spark's name of the query; "" without one.
        sink: What it writes to: a stream id or topics.
        guarantee: The delivery guarantee.
        writers: What writes: "native" or "python".
        phase: What it is doing: `writing` (a batch is planned), `committing`, `done` or `failed`.
        reason: The error, if it failed.
        batch: The number of the batch; null if it has none.
        batches: The number of batches that were committed so far.
        tasks: The number of tasks of the last batch.
        errors: The number of records that were not acknowledged so far.
        records: By cluster: the records so far.
        bytes: By cluster: their bytes so far.
        send_time_s: Flink's currentSendTime: from handing over the last record until all are acknowledged, in the slowest
            task of the last batch.
        decide_s: The time until the last batch was decided; null without exactly-once.
        finish_s: The time from then on until it was published; the same.
        transactions: The transactions; null without exactly-once.
        clients: By cluster: librdkafka's own numbers (`register.producer.metrics`), by their names in `clients`.
    """

    kind: Literal["sink"]
    reporter: str
    sequence: int
    time_ms: int
    label: str
    query_id: str
    name: str
    sink: str
    guarantee: str
    writers: list[str]
    phase: Literal["writing", "committing", "done", "failed"]
    reason: str
    batch: int | None
    batches: int
    tasks: int
    errors: int
    records: dict[str, int]
    bytes: dict[str, int]
    send_time_s: float | None
    decide_s: float | None
    finish_s: float | None
    transactions: Transactions | None
    clients: dict[str, dict[str, float]]


Report = SourceReport | WorkerReport | SinkReport


# --- status ---------------------------------------------------------------------------------------------------------------


class PartitionStatus(TypedDict):
    """A partition. `committed`, `end` and `timestamp_ms` are null if they are not known.

    Attributes:
        partition: Its number.
        current: The next offset to read, after the last finished batch.
        committed: The offset that was last committed to the consumer group.
        end: The end of the log.
        pending_records: The offsets from `current` to `end`; null if the end is not known.
        lag_s: The lag in seconds; 0 if there is nothing to read, null if nothing is known.
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

    `partitions` is null unless the request asks for it: `/status.json?partitions=all`, or `?cluster=NAME&topic=NAME` for
    one topic, or `?cluster=NAME` for one cluster.
    """

    topic: str
    state: TopicState
    partition_count: int
    pending_records: int
    lag_s: float | None
    records: int
    bytes: int
    worst_partition: int | None
    partitions: list[PartitionStatus] | None


class History(TypedDict):
    """Numbers over time, one for each time, oldest first: every 5 seconds for up to half an hour.

    Attributes:
        times_ms: The times.
        records_per_s: The records read.
        pending_records: The records to read.
        lag_s: The greatest lag.
    """

    times_ms: list[int]
    records_per_s: list[float]
    pending_records: list[int]
    lag_s: list[float | None]


class ClusterStatus(TypedDict):
    """A cluster of a source: as in `ClusterReport`, with sums and the greatest lag of its topics, worst topics first."""

    cluster: str
    kafka_id: str
    state: ClusterState
    reason: str
    failing_for_s: float | None
    seen_ms: int | None
    partition_count: int
    pending_records: int
    lag_s: float | None
    emit_lag_s: float | None
    records: int
    bytes: int
    records_per_s: float
    commits: Commits
    topics: list[TopicStatus]
    clients: dict[str, float]
    history: History


class SourceStatus(TypedDict):
    """A source of a query. Nearly all queries have one; a join of two streams has two.

    Attributes:
        run: A random name of this run.
        started_ms: When the run started.
        reported_ms: When the reader process last reported.
        streams: What it reads.
        group_id: The consumer group.
        reader: What reads: "native" or "python".
        batches: The number of batches that were planned.
        last_batch_ms: When the last one was planned.
        calls: Spark's calls by their kind.
        records: The records read so far.
        bytes: Their bytes.
        records_per_s: The records read in each of the last 15 seconds.
        bytes_per_s: Their bytes.
        tasks: The tasks so far.
        task_errors: The tasks that failed so far.
        given_up: The offsets given up so far.
        partition_count: The number of partitions.
        pending_records: The records to read.
        lag_s: The greatest lag; null if none is known.
        emit_lag_s: Flink's currentEmitEventTimeLag, the greatest of all clusters; null before the first record.
        watermark_ms: The watermark; null before the first record with a timestamp.
        watermark_lag_s: Flink's watermarkLag.
        idle_s: Flink's sourceIdleTime: the time since the last record, or since the start.
        max_partitions: The option `metrics.max-partitions`.
        commits: The commits of the consumer group's offsets, on all clusters.
        metadata: The metadata service.
        clusters: The clusters, worst first: unreachable ones, then by lag.
        history: Numbers over time.
    """

    run: str
    started_ms: int
    reported_ms: int
    streams: list[str]
    group_id: str | None
    reader: str
    batches: int
    last_batch_ms: int | None
    calls: dict[str, Calls]
    records: int
    bytes: int
    records_per_s: float
    bytes_per_s: float
    tasks: int
    task_errors: int
    given_up: int
    partition_count: int
    pending_records: int
    lag_s: float | None
    emit_lag_s: float | None
    watermark_ms: int | None
    watermark_lag_s: float | None
    idle_s: float
    max_partitions: int
    commits: Commits
    metadata: MetadataStatus | None
    clusters: list[ClusterStatus]
    history: History


class SinkClusterStatus(TypedDict):
    """What a sink has written to a cluster so far."""

    cluster: str
    records: int
    bytes: int
    clients: dict[str, float]


class SinkStatus(TypedDict):
    """A sink of a query: as in `SinkReport`, with the totals of all its processes."""

    sink: str
    guarantee: str
    writers: list[str]
    phase: str
    reason: str
    reported_ms: int
    batch: int | None
    batches: int
    tasks: int
    errors: int
    records: int
    bytes: int
    records_per_s: float
    send_time_s: float | None
    decide_s: float | None
    finish_s: float | None
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


class Status(TypedDict):
    """The answer of `/status.json`.

    Attributes:
        version: The version of this shape: 1.
        time_ms: The time of the answer.
        started_ms: When the server started.
        queries: The queries of the driver, in order of their start.
    """

    version: int
    time_ms: int
    started_ms: int
    queries: list[QueryStatus]

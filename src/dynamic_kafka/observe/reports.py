"""The shapes of the reports that our processes send to the metrics server. Each is JSON, sent by POST to `/report`.

A report is everything that its reporter knows (see `model`). Times end in `_ms` (milliseconds since 1970) and durations in
`_s` (seconds, as a decimal).
"""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = [
    "Calls",
    "ClusterFacts",
    "ClusterReport",
    "ClusterState",
    "Commits",
    "DecodeErrors",
    "Event",
    "HistoryLeft",
    "HistoryRead",
    "MetadataStatus",
    "ReadReport",
    "Report",
    "SinkFacts",
    "SinkReport",
    "SourceFacts",
    "SourceReport",
    "TopicReport",
    "TopicState",
    "Transactions",
    "WorkerReport",
]

ClusterState = Literal["starting", "reading", "draining", "retained", "unreachable"]
"""`starting`: nothing is read yet. `draining`: all topics are removed, and read to their ends. `retained`: all are removed,
and their positions are kept. `unreachable`: the cluster does not answer (`reason`)."""
TopicState = Literal["reading", "draining", "retained"]


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
        failures: The number of failures. Each finished attempt adds one to either this or `refreshes`.
        consecutive_failures: The number of failures since the last answer.
        tolerated_failures: The number of failures in a row after which one more ends the query; null if none does now.
        ends_ms: The earliest time at which the query ends if the service goes on failing; null if it answers, or if no
            failure ends the query now.
        last_error: The text of the last failure, kept after later answers.
        last_success_ms: The time of the last answer.
        asking_since_ms: The start of the current attempt; null between attempts. Shows a service that hangs.
        changes: The number of answers that differed from the one before.
    """

    refreshes: int
    failures: int
    consecutive_failures: int
    tolerated_failures: int | None
    ends_ms: int | None
    last_error: str | None
    last_success_ms: int | None
    asking_since_ms: int | None
    changes: int


class Commits(TypedDict):
    """The commits of the consumer group's offsets."""

    succeeded: int
    failed: int


class HistoryLeft(TypedDict):
    """What is left of the history that a source reads before Kafka, after the last finished batch.

    Attributes:
        location: Its folder.
        rows: The number of its rows.
        rows_left: Those that are not read yet.
        files_left: The files that are not read to their ends yet.
        bytes_left: What is left of these files, by the share of their rows.
    """

    location: str
    rows: int
    rows_left: int
    files_left: int
    bytes_left: int


class HistoryRead(TypedDict):
    """What was read of the history.

    Attributes:
        rows: The rows.
        bytes: Their bytes, as Arrow columns.
        read_ms: When the last one was read; null if none was.
    """

    rows: int
    bytes: int
    read_ms: int | None


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


class _Report(TypedDict):
    """The fields of every report.

    Attributes:
        reporter: A random name: of this run of a source, or of this process for a source or a sink.
        sequence: Higher in each report.
        time_ms: The time of the report.
        dropped: The number of reports that could not be sent so far.
    """

    reporter: str
    sequence: int
    time_ms: int
    dropped: int


class ClusterFacts(TypedDict):
    """The fields of a source's cluster, in reports and in the status.

    Attributes:
        cluster: Its name in the metadata.
        kafka_id: Kafka's own cluster.id; "" if it is unknown.
        brokers: The addresses of its brokers, as in the metadata; "" if they are unknown.
        reason: Why it is in its state; "" if there is no problem.
        seen_ms: The last look that it answered; null if there was none.
        missing: A sentence for each topic that is to be read and is not, because it does not exist, the user may not see it,
            or no broker leads some of its partitions.
        commits: The commits of the consumer group's offsets.
    """

    cluster: str
    kafka_id: str
    brokers: str
    reason: str
    seen_ms: int | None
    missing: list[str]
    commits: Commits


class ClusterReport(ClusterFacts):
    """A cluster of a source.

    Attributes:
        state: Its state.
        failing_since_ms: The first look that it did not answer; null if it answers.
        watched_since_ms: The first look that it answered in this run; null if there was none.
        unknown: The number of topics and partitions that are to be read, and of which no end is known.
        topics: Its topics; null if they are as in the report before, which the server has taken.
    """

    state: ClusterState
    unknown: int
    failing_since_ms: int | None
    watched_since_ms: int | None
    topics: list[TopicReport] | None


class SourceFacts(TypedDict):
    """The fields of a source, in reports and in the status.

    Attributes:
        started_ms: The time when the run started.
        streams: What it reads: stream ids or a pattern.
        group_id: The consumer group; null without one.
        batches: The number of batches that were planned.
        last_batch_ms: When the last one was planned; null if none was.
        batch_last_s: How long Spark took from planning the last one until it asked for the next one, or null. That is at
            least as long as the batch: Spark waits for its trigger.
        batch_p95_s: The same, of 95 of the last 100 at most; null if there was none.
        calls: Spark's calls by their kind: `latest_offset`, `partitions`, `report`.
        max_partitions: The option `metrics.max-partitions`.
        history_left: What is left of the history that is read before Kafka; null without one.
    """

    started_ms: int
    streams: list[str]
    group_id: str | None
    batches: int
    last_batch_ms: int | None
    batch_last_s: float | None
    batch_p95_s: float | None
    calls: dict[str, Calls]
    max_partitions: int
    history_left: HistoryLeft | None


class SourceReport(_Report, SourceFacts):
    """The report of a source's reader process. Its tasks report with its `reporter` as `run`.

    Attributes:
        kind: Which report it is.
        label: The option `metrics.query`; "" without it.
        state: "running", or why the process ends: "failed" or "finished".
        reason: The error, if it failed.
        batch_since_ms: When the last batch was planned, if Spark has not asked for the next one; null if it has.
        metadata: The metadata service; null before it is asked.
        events: The last events, oldest first.
        clusters: The clusters.
    """

    kind: Literal["source"]
    label: str
    state: Literal["running", "failed", "finished"]
    reason: str
    batch_since_ms: int | None
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


class DecodeErrors(TypedDict):
    """The number of messages of a topic that a worker has read since it started and could not decode."""

    cluster: str
    topic: str
    records: int


class WorkerReport(_Report):
    """The report of a worker process of Spark about one source, while it reads and after a task.

    Attributes:
        kind: Which report it is.
        run: The `reporter` of the source.
        query_id: Spark's id of the query; "" if Spark did not tell.
        name: Spark's name of the query; "" without one.
        tasks: The number of tasks so far.
        errors: The number of tasks that failed so far.
        given_up: The number of offsets that were given up so far (`failOnDataLoss=false`).
        emit_lag_s: By cluster: the time when the last record was handed to Spark, minus its timestamp.
        read: What was read.
        history_read: What was read of the history so far.
        decode_errors: The messages that cannot be decoded; None if the worker does not decode any.
        clients: By cluster: librdkafka's own numbers (`register.consumer.metrics`), by their names in `clients`.
    """

    kind: Literal["worker"]
    run: str
    query_id: str
    name: str
    tasks: int
    errors: int
    given_up: int
    emit_lag_s: dict[str, float]
    read: list[ReadReport]
    history_read: HistoryRead
    decode_errors: list[DecodeErrors] | None
    clients: dict[str, dict[str, float]]


class SinkFacts(TypedDict):
    """The fields of a sink, in reports and in the status.

    Attributes:
        sink: What it writes to: a stream id or topics.
        guarantee: The delivery guarantee.
        phase: What it is doing: `committing`, `done` or `failed`.
        reason: The error, if it failed.
        batch: The number of the batch; null if it has none.
        tasks: The number of tasks of the last batch.
        send_time_s: Flink's currentSendTime: from handing over the last record until all are acknowledged, in the slowest
            task of the last batch.
        decide_s: The time until the last batch was decided; null without exactly-once.
        finish_s: The time from then on until it was published; the same.
    """

    sink: str
    guarantee: str
    phase: Literal["committing", "done", "failed"]
    reason: str
    batch: int | None
    tasks: int
    send_time_s: float | None
    decide_s: float | None
    finish_s: float | None


class SinkReport(_Report, SinkFacts):
    """The report of a process that commits a sink's batches.

    Attributes:
        kind: Which report it is.
        label: The option `metrics.query`; "" without it.
        query_id: Spark's id of the query; "" if it is not known.
        name: Spark's name of the query; "" without one.
        batches: The number of batches that were committed so far.
        errors: The number of records that were not acknowledged so far.
        dead_letters: The number of rows so far that went to the dead-letter topic.
        records: By cluster: the records so far.
        bytes: By cluster: their bytes so far.
        transactions: The transactions; null without exactly-once.
        clients: By cluster: librdkafka's own numbers (`register.producer.metrics`), by their names in `clients`.
    """

    kind: Literal["sink"]
    label: str
    query_id: str
    name: str
    batches: int
    errors: int
    dead_letters: int
    records: dict[str, int]
    bytes: dict[str, int]
    transactions: Transactions | None
    clients: dict[str, dict[str, float]]


Report = SourceReport | WorkerReport | SinkReport

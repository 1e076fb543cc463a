"""The series for Prometheus and OpenTelemetry: their declarations, and their samples from the status. Pure.

`docs/reference/metrics.md` is made from the declarations. Names follow Prometheus: base units, `_total` for counters. Of
two samples with the same labels (a query that reads a partition twice) counters are added up, and of gauges the greater
one is taken.

`metrics.max-partitions` bounds the number of series of a source. If it has more partitions, `pending_records` and
`lag_seconds` are those of whole topics (with an empty label `partition`), the series of offsets are left out, and
`dynamic_kafka_source_series_cut` is 1. If it has more topics too, they are those of whole clusters, and it is 2.

What is not known has no sample: a lag that is not known is not 0. `dynamic_kafka_source_lag_unknown` is 1 then, which an
alert can ask for. A source that does not report keeps its counters, and no gauge but this one and the state of its clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from dynamic_kafka.observe.status import (
    ClusterStatus,
    ClusterWord,
    QueryState,
    QueryStatus,
    SinkStatus,
    SourceStatus,
    Status,
)

__all__ = ["CLIENTS", "SERIES", "Samples", "Series", "samples"]

Samples = dict[str, dict[tuple[str, ...], float]]
"""The values by the name of the series and the values of its labels."""


@dataclass(frozen=True)
class Series:
    """The declaration of a series.

    Args:
        name: Its name.
        kind: Whether it only grows.
        doc: What it is.
        labels: The names of its labels besides `query`, which is the first of all.
        flink: Flink's name of the same, or of the nearest.
    """

    name: str
    kind: Literal["gauge", "counter"]
    doc: str
    labels: tuple[str, ...] = ()
    flink: str = ""

    @property
    def all_labels(self) -> tuple[str, ...]:
        """Return the names of all labels."""
        return ("query", *self.labels)


_CLUSTER, _TOPIC, _PARTITION = ("cluster",), ("cluster", "topic"), ("cluster", "topic", "partition")
_SINK, _SINK_CLUSTER = ("sink",), ("sink", "cluster")


def _gauge(name: str, doc: str, labels: tuple[str, ...] = (), flink: str = "") -> Series:
    return Series(f"dynamic_kafka_{name}", "gauge", doc, labels, flink)


def _counter(name: str, doc: str, labels: tuple[str, ...] = (), flink: str = "") -> Series:
    return Series(f"dynamic_kafka_{name}_total", "counter", doc, labels, flink)


CLIENTS: Mapping[str, str] = {
    "requests_total": "Requests sent to brokers.",
    "request_errors_total": "Requests that failed on their way.",
    "request_timeouts_total": "Requests without an answer in time.",
    "responses_total": "Answers received from brokers.",
    "sent_bytes_total": "Bytes sent to brokers.",
    "received_bytes_total": "Bytes received from brokers.",
    "messages_total": "Messages received by a consumer, or sent by a producer.",
    "message_bytes_total": "Their bytes.",
    "connects_total": "Connections made, successful or not.",
    "disconnects_total": "Connections lost.",
    "queued_messages": "Messages in the client's queues.",
    "queued_bytes": "Their bytes.",
    "round_trip_seconds": "The mean time from a request to its answer, of the slowest broker. Missing if none has answered.",
    "throttle_seconds": "The mean time that a broker held answers back because of a quota, of the slowest broker.",
}
"""The numbers of librdkafka that are reported, of consumers and of producers: what they are, by the end of their names."""

SERIES: tuple[Series, ...] = (
    _gauge("query_info", "1, with Spark's id and name of the query as labels.", ("query_id", "name")),
    _gauge("query_state", "1 for the state that the query is in, else 0.", ("state",)),
    _counter("reports_dropped", "Reports of the query's processes that could not be sent to the metrics server."),
    _gauge("source_clusters", "Clusters that are read.", (), "kafkaClustersCount"),
    _gauge("source_cluster_state", "1 for the state that the cluster is in, else 0.", ("cluster", "state")),
    _gauge(
        "source_missing_topics",
        "Topics that are not read: they do not exist, the user may not see them, or partitions have no leader.",
        _CLUSTER,
    ),
    _gauge("source_cluster_held", "1 if its records wait for slower partitions (alignment), else 0.", _CLUSTER),
    _gauge(
        "source_current_offset", "The next offset to read, after the last finished batch.", _PARTITION, "currentOffsets"
    ),
    _gauge(
        "source_committed_offset", "The offset last committed to the consumer group.", _PARTITION, "committedOffsets"
    ),
    _gauge("source_end_offset", "The end of the log that was last seen.", _PARTITION),
    _gauge(
        "source_pending_records",
        "Offsets between the current one and the end. No sample while the cluster does not answer.",
        _PARTITION,
        "pendingRecords",
    ),
    _gauge(
        "source_lag_seconds",
        "The age of the oldest record that is not read, since its end was first seen. No sample while the cluster does not "
        "answer.",
        _PARTITION,
    ),
    _gauge(
        "source_lag_unknown",
        "1 if it is not known how far behind the query is on some partition of the cluster, else 0.",
        _CLUSTER,
    ),
    _gauge(
        "source_series_cut",
        "0 if partitions have series of their own, 1 if only topics, 2 if only clusters do (`metrics.max-partitions`).",
    ),
    _counter("source_records", "Records read.", _TOPIC, "numRecordsIn"),
    _counter("source_bytes", "Bytes read, as Arrow columns.", _TOPIC, "numBytesIn"),
    _counter(
        "source_decode_errors",
        "Messages that cannot be decoded, of values that are decoded in the tasks that read.",
        _TOPIC,
    ),
    _counter("source_history_rows", "Rows of the history (`history.path`) read."),
    _counter("source_history_bytes", "Their bytes, as Arrow columns."),
    _gauge("source_history_rows_left", "Rows of the history that no finished batch has read."),
    _gauge("source_history_bytes_left", "Bytes of files of the history that are left, by the share of their rows."),
    _gauge("source_history_files_left", "Files of the history that are not read to their ends."),
    _counter("source_tasks", "Tasks that have read."),
    _counter("source_task_errors", "Tasks that failed while they read.", (), "numRecordsInErrors"),
    _counter("source_given_up_offsets", "Offsets given up because of `failOnDataLoss=false`."),
    _gauge(
        "source_emit_event_time_lag_seconds",
        "The time when the last record was handed to Spark, minus its timestamp.",
        _CLUSTER,
        "currentEmitEventTimeLag",
    ),
    _gauge("source_watermark_lag_seconds", "The time now, minus the watermark of the source.", (), "watermarkLag"),
    _gauge("source_idle_seconds", "The time since the last record was read, or since the start.", (), "sourceIdleTime"),
    _counter("source_commits_succeeded", "Successful commits of the group's offsets.", _CLUSTER, "commitsSucceeded"),
    _counter("source_commits_failed", "Failed commits of the group's offsets.", _CLUSTER, "commitsFailed"),
    _counter("source_batches", "Batches planned."),
    _counter("source_calls", "Spark's calls in the reader process.", ("call",)),
    _counter("source_call_seconds", "The time that these calls took: the fixed cost of a batch.", ("call",)),
    _counter("source_metadata_refreshes", "Answers of the metadata service."),
    _counter("source_metadata_failures", "Failures of the metadata service."),
    _gauge("source_metadata_consecutive_failures", "Failures of the metadata service since its last answer."),
    _counter("source_metadata_changes", "Answers of the metadata service that differed from the one before."),
    _gauge("source_metadata_last_success_timestamp_seconds", "The time of the last answer of the metadata service."),
    _counter("sink_batches", "Batches committed.", _SINK),
    _counter("sink_records", "Records written.", _SINK_CLUSTER, "numRecordsOut, numRecordsSend"),
    _counter("sink_bytes", "Bytes of their keys and values.", _SINK_CLUSTER, "numBytesOut, numBytesSend"),
    _counter("sink_errors", "Records that were not acknowledged.", _SINK, "numRecordsOutErrors, numRecordsSendErrors"),
    _counter("sink_dead_letters", "Rows that could not be written and went to `sink.dead-letter.topic`.", _SINK),
    _gauge(
        "sink_send_time_seconds",
        "The time from handing over the last record until all are acknowledged, in the slowest task of the last batch.",
        _SINK,
        "currentSendTime",
    ),
    _gauge("sink_last_batch_failed", "1 if the last batch that has ended was not written, else 0.", _SINK),
    _gauge("sink_decide_seconds", "The time until the last batch was decided in the commit log.", _SINK),
    _gauge("sink_finish_seconds", "The time from then on until the last batch was published.", _SINK),
    _gauge("sink_transactions_open", "Transactions prepared, and not yet known to be committed or aborted.", _SINK),
    _counter("sink_transactions_decided", "Transactions named by a decision in the commit log.", _SINK),
    _counter("sink_transactions_published", "Transactions committed on their clusters.", _SINK),
    _counter("sink_transactions_aborted", "Transactions aborted by the driver.", _SINK),
    *(
        Series(
            f"dynamic_kafka_{role}_{name}",
            "counter" if name.endswith("_total") else "gauge",
            f"{doc} (librdkafka's {role}s)",
            labels,
            f"KafkaSourceReader.{group}" if role == "consumer" else group,
        )
        for role, group, labels in (
            ("consumer", "KafkaConsumer", _CLUSTER),
            ("producer", "KafkaProducer", _SINK_CLUSTER),
        )
        for name, doc in CLIENTS.items()
    ),
)
"""All series, in the order of the document."""

_COUNTERS = frozenset(series.name for series in SERIES if series.kind == "counter")
_ALSO_OF_SILENT = {"source_cluster_state", "source_lag_unknown"}
_Values = Iterator[tuple[str, tuple[str, ...], float | None]]


def samples(status: Status) -> Samples:
    """Return the samples of all series that have any. The status shows the partitions of small sources."""
    found: Samples = {}
    for query in status["queries"]:
        for short, labels, value in _of_query(query):
            if value is None:
                continue
            name = f"dynamic_kafka_{short}"
            values, key = found.setdefault(name, {}), (query["query"], *labels)
            if key not in values:
                values[key] = value
            else:
                values[key] = values[key] + value if name in _COUNTERS else max(values[key], value)
    return {series.name: found[series.name] for series in SERIES if series.name in found}


def _of_query(query: QueryStatus) -> _Values:
    yield "query_info", (query["query_id"] or "", query["name"] or ""), 1
    for state in get_args(QueryState):
        yield "query_state", (state,), int(query["state"] == state)
    if query["state"] in ("failed", "ended", "finished"):
        return
    yield "reports_dropped_total", (), query["reports_dropped"]
    for source in query["sources"]:
        for short, labels, value in _of_source(source):
            if source["live"] or f"dynamic_kafka_{short}" in _COUNTERS or short in _ALSO_OF_SILENT:
                yield short, labels, value
    for sink in query["sinks"]:
        yield from _of_sink(sink)


def _of_source(source: SourceStatus) -> _Values:
    yield "source_clusters", (), sum(c["state"] != "retained" for c in source["clusters"])
    yield "source_tasks_total", (), source["tasks"]
    yield "source_task_errors_total", (), source["task_errors"]
    yield "source_given_up_offsets_total", (), source["given_up"]
    yield "source_watermark_lag_seconds", (), source["watermark_lag_s"]
    yield "source_idle_seconds", (), source["idle_s"]
    yield "source_batches_total", (), source["batches"]
    if (left := source["history_left"]) is not None:
        yield "source_history_rows_total", (), source["history_read"]["rows"]
        yield "source_history_bytes_total", (), source["history_read"]["bytes"]
        yield "source_history_rows_left", (), left["rows_left"]
        yield "source_history_bytes_left", (), left["bytes_left"]
        yield "source_history_files_left", (), left["files_left"]
    for call, seen in source["calls"].items():
        yield "source_calls_total", (call,), seen["count"]
        yield "source_call_seconds_total", (call,), seen["total_s"]
    if (metadata := source["metadata"]) is not None:
        yield "source_metadata_refreshes_total", (), metadata["refreshes"]
        yield "source_metadata_failures_total", (), metadata["failures"]
        yield "source_metadata_consecutive_failures", (), metadata["consecutive_failures"]
        yield "source_metadata_changes_total", (), metadata["changes"]
        success_ms = metadata["last_success_ms"]
        yield "source_metadata_last_success_timestamp_seconds", (), None if success_ms is None else success_ms / 1000
    most = source["max_partitions"]
    topics = sum(len(c["topics"]) for c in source["clusters"])
    cut = 0 if source["partition_count"] <= most else 1 if topics <= most else 2
    yield "source_series_cut", (), cut
    for cluster in source["clusters"]:
        yield from _of_cluster(cluster, cut)


def _of_cluster(cluster: ClusterStatus, cut: int) -> _Values:
    name = cluster["cluster"]
    for state in get_args(ClusterWord):
        yield "source_cluster_state", (name, state), int(cluster["state"] == state)
    if cluster["state"] != "retained":
        yield "source_lag_unknown", (name,), int(not cluster["lag_known"])
    if cluster["seen_ms"] is not None and cluster["state"] not in ("unreachable", "unknown"):
        yield "source_missing_topics", (name,), len(cluster["missing"])
        yield "source_cluster_held", (name,), int(bool(cluster["reason"]))
    yield "source_emit_event_time_lag_seconds", (name,), cluster["emit_lag_s"]
    yield "source_commits_succeeded_total", (name,), cluster["commits"]["succeeded"]
    yield "source_commits_failed_total", (name,), cluster["commits"]["failed"]
    for number, value in cluster["clients"].items():
        yield f"consumer_{number}", (name,), value
    if cut == 2:
        yield "source_pending_records", (name, "", ""), cluster["pending_records"]
        yield "source_lag_seconds", (name, "", ""), cluster["lag_s"]
        yield "source_records_total", (name, ""), cluster["records"]
        yield "source_bytes_total", (name, ""), cluster["bytes"]
        for topic in cluster["topics"]:  # samples with the same labels are added up
            yield "source_decode_errors_total", (name, ""), topic["decode_errors"]
        return
    for topic in cluster["topics"]:
        of_topic = name, topic["topic"]
        yield "source_records_total", of_topic, topic["records"]
        yield "source_bytes_total", of_topic, topic["bytes"]
        yield "source_decode_errors_total", of_topic, topic["decode_errors"]
        if cut == 1:
            yield "source_pending_records", (*of_topic, ""), topic["pending_records"]
            yield "source_lag_seconds", (*of_topic, ""), topic["lag_s"]
            continue
        for partition in topic["partitions"] or ():
            labels = *of_topic, str(partition["partition"])
            yield "source_current_offset", labels, partition["current"]
            yield "source_committed_offset", labels, partition["committed"]
            yield "source_end_offset", labels, partition["end"]
            yield "source_pending_records", labels, partition["pending_records"]
            yield "source_lag_seconds", labels, partition["lag_s"]


def _of_sink(sink: SinkStatus) -> _Values:
    name = sink["sink"]
    yield "sink_batches_total", (name,), sink["batches"]
    yield "sink_errors_total", (name,), sink["errors"]
    yield "sink_dead_letters_total", (name,), sink["dead_letters"]
    yield "sink_send_time_seconds", (name,), sink["send_time_s"]
    failed = sink["last_batch_failed"]
    yield "sink_last_batch_failed", (name,), None if failed is None else int(failed)
    yield "sink_decide_seconds", (name,), sink["decide_s"]
    yield "sink_finish_seconds", (name,), sink["finish_s"]
    if (transactions := sink["transactions"]) is not None:
        yield "sink_transactions_open", (name,), transactions["open"]
        yield "sink_transactions_decided_total", (name,), transactions["decided"]
        yield "sink_transactions_published_total", (name,), transactions["published"]
        yield "sink_transactions_aborted_total", (name,), transactions["aborted"]
    for cluster in sink["clusters"]:
        labels = name, cluster["cluster"]
        yield "sink_records_total", labels, cluster["records"]
        yield "sink_bytes_total", labels, cluster["bytes"]
        for number, value in cluster["clients"].items():
            yield f"producer_{number}", labels, value

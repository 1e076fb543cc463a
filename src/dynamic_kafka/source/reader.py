"""The reader, the executor's side of the source: reads the ranges of a task into Arrow batches.

Rules:

1. A range is finished when the position has passed its end: a record at or after the end was seen, or the end of the log.
   The position also passes transaction markers, aborted records and compacted gaps.
2. All clusters of the task fetch at the same time; their records are consumed one cluster after the other.
3. Nothing is skipped in silence. Lost offsets (retention, deleted records, a truncated log, a recreated topic) are a
   `DataLossError`, or a warning if the user tolerates it. Offsets without a record within the log are normal.
4. The topic id is compared after the last record was read: if it is still the planned one, no record came from another
   topic of the same name.
5. A planned range must be read: the reader waits for a cluster that does not answer, up to `poll_timeout_ms` without
   progress.
"""

from __future__ import annotations

import gc
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from itertools import groupby
from typing import Any, cast

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, TopicCollection, TopicPartition

from dynamic_kafka.errors import ClusterUnavailableError, DataLossError
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.clients import ClientSettings, ClusterClients, kept_clients
from dynamic_kafka.source.offsets import topic_id_text
from dynamic_kafka.source.planning import Range, ReadTask
from dynamic_kafka.source.rows import Messages, PartitionMessages, to_batch
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["read"]

_log = logging.getLogger(__name__)

_BATCH_RECORDS = 20_000
_POLL_S = 0.1
_PAUSE_S = 0.2
_LOOKUP_S = 10.0
# Ranges are known and mostly small: answer an empty fetch soon (it is what shows the end of a range whose tail holds no
# record), and look again soon after a full queue. The queue bounds a task's memory.
_TUNING = {
    "fetch.wait.max.ms": "20",
    "fetch.queue.backoff.ms": "10",
    "queued.min.messages": "100000",
    "queued.max.messages.kbytes": "32768",
}
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


def read(task: ReadTask, schema: pa.Schema, settings: SourceSettings) -> Iterator[pa.RecordBatch]:
    """Read all ranges of a task.

    Args:
        task: The ranges, and the client properties of their clusters.
        schema: The columns to return (`rows.arrow_schema`).
        settings: The source's settings.

    Yields:
        Batches of up to 20,000 records of one cluster; the records of a partition are in order of offset.

    Raises:
        DataLossError: If records were lost and `fail_on_data_loss` is set.
        ClusterUnavailableError: If a cluster makes no progress within `poll_timeout_ms`.
    """
    collecting = gc.isenabled()
    gc.disable()  # a million short-lived messages contain no cycles; searching for some costs a tenth of the time
    try:
        with ExitStack() as stack:
            readers = []
            for cluster, ranges in groupby(task.ranges, key=lambda r: r.cluster):
                clients = kept_clients("read", cluster, task.properties[cluster], consumer=_consumer_of(settings))
                readers.append(_ClusterReader(cluster, list(ranges), stack.enter_context(clients), settings))
            for reader in readers:
                reader.start()
            for reader in readers:
                for runs in reader.runs():
                    yield to_batch(schema, reader.cluster, runs)  # the topic ids arrive meanwhile
                reader.check_topic_ids()
    finally:
        if collecting:
            gc.enable()


def _consumer_of(settings: SourceSettings) -> ClientSettings:
    return ClientSettings(_TUNING, {"enable.partition.eof": "true", "group.id": settings.consumer_group})


_offset = cast("Callable[[Message], int]", Message.offset)  # None only for events


class _ClusterReader:
    """The reader of one cluster's ranges in a task."""

    def __init__(
        self, cluster: str, ranges: Sequence[Range], clients: ClusterClients, settings: SourceSettings
    ) -> None:
        self.cluster = cluster
        self._clients = clients
        self._settings = settings
        self._ranges = {KafkaTopicPartition(r.topic, r.partition): r for r in ranges}
        self._positions = {tp: r.start for tp, r in self._ranges.items()}
        self._open = set(self._ranges)
        self._topic = ranges[0].topic if len({r.topic for r in ranges}) == 1 else None
        self._gone_since: dict[KafkaTopicPartition, float] = {}
        self._last_error = ""
        self._planned_ids = {r.topic: r.topic_id for r in ranges if r.topic_id}
        self._topic_futures: Mapping[str, Future[Any]] | None = None

    def start(self) -> None:
        """Start to fetch, in the background."""
        self._clients.consumer.assign([TopicPartition(r.topic, r.partition, r.start) for r in self._ranges.values()])

    def runs(self) -> Iterator[list[PartitionMessages]]:
        """Yield the records of the ranges as they arrive."""
        consumer = self._clients.consumer
        progress_at = time.monotonic()
        while self._open:
            # consume() waits until it has as many messages as requested: never request more than are left.
            left = sum(self._ranges[s].end - self._positions[s] for s in self._open)
            found = consumer.consume(min(_BATCH_RECORDS, left), _POLL_S)
            events: Messages = ()
            if any(map(Message.error, found)):
                events = [m for m in found if m.error() is not None]
                found = [m for m in found if m.error() is None]
            kept = self._in_ranges(found)
            for event in events:  # after the records: the event for the end of a log follows its last record
                self._handle(event)
            if not self._open:
                self._ask_topic_ids()
            if kept:
                progress_at = time.monotonic()
                yield kept
            elif not found:
                self._check_progress(progress_at)

    def _in_ranges(self, found: Messages) -> list[PartitionMessages]:
        """Return the messages within their ranges, by partition, and move the positions."""
        kept: list[PartitionMessages] = []
        finished: list[KafkaTopicPartition] = []
        if self._topic is not None:
            topic = self._topic
            partitions = cast("Iterator[int]", map(Message.partition, found))
            runs = [((topic, p), len(list(run))) for p, run in groupby(partitions)]
        else:
            tps = zip(map(Message.topic, found), map(Message.partition, found), strict=True)
            runs = [(tp, len(list(run))) for tp, run in groupby(cast("Iterator[KafkaTopicPartition]", tps))]
        begin = 0
        for tp, length in runs:
            run = found[begin : begin + length]
            begin += length
            if tp not in self._open:
                continue  # fetched before the range was finished
            position, end = self._positions[tp], self._ranges[tp].end
            if _offset(run[0]) < position:  # fetched again after a seek
                run = run[bisect_left(run, position, key=_offset) :]
                if not run:
                    continue
            last = _offset(run[-1])
            if last >= end - 1:
                run = run[: bisect_left(run, end, key=_offset)]
                finished.append(tp)
                self._open.discard(tp)
            self._positions[tp] = min(last + 1, end)
            if run:
                kept.append(PartitionMessages(*tp, run))
        self._stop_fetching(finished)
        return kept

    def _finish(self, tp: KafkaTopicPartition) -> None:
        self._positions[tp] = self._ranges[tp].end
        self._open.discard(tp)
        self._stop_fetching([tp])

    def _stop_fetching(self, finished: Sequence[KafkaTopicPartition]) -> None:
        if finished and self._open:
            self._clients.consumer.incremental_unassign([TopicPartition(topic, p) for topic, p in finished])

    # --- events ---

    def _handle(self, event: Message) -> None:
        error = event.error()
        assert error is not None
        partition = event.partition()
        tp = KafkaTopicPartition(event.topic() or "", -1 if partition is None else partition)
        if tp not in self._open:
            if tp.topic == "":
                self._last_error = error.str()
            return
        offset = event.offset()
        if error.code() == KafkaError._PARTITION_EOF:
            if offset is not None and offset >= self._ranges[tp].end:
                self._finish(tp)
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._handle_out_of_range(tp)
        elif error.code() in _GONE:
            self._handle_gone(tp)
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise ClusterUnavailableError(
                f"Cluster '{self.cluster}', topic '{tp.topic}': not authorized to read; grant Read on the topic to the "
                "principal of this query",
                cluster_id=self.cluster,
            )
        else:
            self._last_error = error.str()

    def _handle_out_of_range(self, tp: KafkaTopicPartition) -> None:
        low, high = self._watermarks(tp)
        position, end = self._positions[tp], self._ranges[tp].end
        if low <= position <= high:  # brokers disagree for a moment
            self._seek(tp, position)
        elif low > position:
            self._lost(tp, f"offsets up to {low} were deleted (retention, or DeleteRecords)")
            if low >= end:
                self._finish(tp)
            else:
                self._seek(tp, low)
        else:
            self._lost(tp, f"the log ends at offset {high}, below the planned range")
            self._finish(tp)

    def _handle_gone(self, tp: KafkaTopicPartition) -> None:
        if tp not in self._gone_since:
            self._gone_since[tp] = time.monotonic()
            self._refresh_metadata(tp.topic)  # a pooled consumer may not know a new partition yet
        since = self._gone_since[tp]
        patience_s = self._settings.call_retries * self._settings.call_retry_interval_ms / 1000
        if time.monotonic() - since >= patience_s and tp.topic not in self._ids(self._describe([tp.topic])):
            self._lost(tp, "the topic was deleted")
            self._finish(tp)

    def _check_progress(self, progress_at: float) -> None:
        """Handle a poll without messages. The rest of a range may contain no records."""
        for tp in list(self._open & set(self._gone_since)):
            self._handle_gone(tp)
        asked = [TopicPartition(topic, p) for topic, p in self._open]
        for position in self._clients.consumer.position(asked):
            tp = KafkaTopicPartition(position.topic, position.partition)
            if position.offset >= self._ranges[tp].end:
                self._finish(tp)
        waited_s = time.monotonic() - progress_at
        if self._open and waited_s * 1000 > self._settings.poll_timeout_ms:
            tp = min(self._open)
            r = self._ranges[tp]
            why = self._clients.errors.last or self._last_error or "no error was reported"
            raise ClusterUnavailableError(
                f"Cluster '{self.cluster}', topic '{tp.topic}', partition {tp.partition}: nothing could be read at offset "
                f"{self._positions[tp]} of [{r.start}, {r.end}) for {waited_s:.0f} s ({why}); bring the cluster back and "
                "start the query again, which reads the same batch again",
                cluster_id=self.cluster,
            )

    def _lost(self, tp: KafkaTopicPartition, reason: str) -> None:
        r = self._ranges[tp]
        error = DataLossError(
            reason, cluster_id=self.cluster, topic=r.topic, partition=r.partition, start=self._positions[tp], end=r.end
        )
        if self._settings.fail_on_data_loss:
            raise error
        _log.warning("%s", error)

    def _seek(self, tp: KafkaTopicPartition, offset: int) -> None:
        self._positions[tp] = offset
        consumer = self._clients.consumer
        consumer.incremental_unassign([TopicPartition(*tp)])
        consumer.incremental_assign([TopicPartition(*tp, offset)])

    def _watermarks(self, tp: KafkaTopicPartition) -> tuple[int, int]:
        try:
            watermarks = self._clients.consumer.get_watermark_offsets(TopicPartition(*tp), timeout=_LOOKUP_S)
        except KafkaException as error:
            raise ClusterUnavailableError(
                f"Cluster '{self.cluster}', topic '{tp.topic}', partition {tp.partition}: offset {self._positions[tp]} is "
                f"out of range, and the start and end offsets could not be fetched: {error.args[0].str()}; start the query "
                "again once the brokers answer",
                cluster_id=self.cluster,
            ) from error
        assert watermarks is not None
        return watermarks

    def _refresh_metadata(self, topic: str) -> None:
        with suppress(KafkaException):  # a broker that does not answer is noticed elsewhere
            self._clients.consumer.list_topics(topic, timeout=_LOOKUP_S)

    # --- topic ids ---

    def _ask_topic_ids(self) -> None:
        """Request the topic ids, after the last record (rule 4)."""
        self._topic_futures = self._describe(self._planned_ids) if self._planned_ids else {}

    def check_topic_ids(self) -> None:
        """Compare the topic ids with the planned ones (rule 4). Call it after the last message."""
        if self._topic_futures is None:  # the last range ended without a record
            self._ask_topic_ids()
        deadline = time.monotonic() + self._settings.poll_timeout_ms / 1000
        while True:
            assert self._topic_futures is not None
            try:
                found = self._ids(self._topic_futures)
                break
            except ClusterUnavailableError:  # rule 5
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)
            self._ask_topic_ids()
        for topic, planned_id in self._planned_ids.items():
            found_id = found.get(topic)
            if found_id not in (None, "", planned_id):
                tp = min(s for s in self._ranges if s[0] == topic)
                self._positions[tp] = self._ranges[tp].start
                self._lost(tp, f"the topic was recreated (topic id {planned_id} is now {found_id})")

    def _describe(self, topics: Collection[str]) -> Mapping[str, Future[Any]]:
        described: Mapping[str, Future[Any]] = self._clients.admin.describe_topics(
            TopicCollection(sorted(topics)), request_timeout=self._settings.call_timeout_ms / 1000
        )
        return described

    def _ids(self, futures: Mapping[str, Future[Any]]) -> dict[str, str]:
        """Return the ids of the topics that exist."""
        ids = {}
        for topic, future in futures.items():
            try:
                ids[topic] = topic_id_text(future.result().topic_id)
            except KafkaException as error:
                if error.args[0].code() not in _GONE:
                    raise ClusterUnavailableError(
                        f"Cluster '{self.cluster}', topic '{topic}': the topic id could not be fetched, so the "
                        f"reader cannot tell if the topic was recreated: {error.args[0].str()}; start the query again once "
                        "the brokers answer",
                        cluster_id=self.cluster,
                    ) from error
        return ids

"""The reader, the executor's side of the source: reads the ranges of a task into Arrow batches.

Rules:

1. A range is finished when the position has passed its end: a record at or after the end was seen, or the end of the log.
   The position also passes transaction markers, aborted records and compacted gaps.
2. All clusters of the task fetch at the same time. Their records are consumed one cluster after the other, but a cluster
   of which nothing arrives lets the others go first.
3. Nothing is skipped in silence. Lost offsets (retention, deleted records, a truncated log, a recreated topic, damaged
   records) are a `DataLossError`, or a warning with their number if the user tolerates it. Offsets without a record within
   the log are normal.
4. No row of another topic of the same name is returned. The topic id is compared before the first row and after the last
   one. If it changed in between, the task fails, also with `failOnDataLoss=false`: Spark drops its rows, and the next
   attempt finds the new topic before its first row.
5. A planned range must be read. If nothing arrives for a few seconds, the reader asks the cluster whether the range can
   still be read (`loss.prove`), and goes on asking. Only an answer of the physical cluster that the offsets belong to proves
   that offsets are lost. If it is not certain yet, the reader asks again until it is. Without an answer the reader waits,
   up to `poll_timeout_ms` without progress. It makes new clients if a secret or a file behind the cluster's properties
   is replaced meanwhile, and from time to time if nothing arrives, because a connection may be dead without a word.
6. A cluster that the metadata does not name any more, or that the metadata service calls inactive (`ClusterAccess.removed`),
   may be gone for good. Its ranges are given up as in 3 if it refuses the login, or does not answer for
   `unavailable_after_ms`. Any other cluster that does not answer is an error.
"""

from __future__ import annotations

import logging
import math
import shlex
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from dynamic_kafka.errors import (
    CheckpointError,
    ClusterUnavailableError,
    ConfigurationError,
    DataLossError,
    DynamicKafkaError,
    may_not,
)
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.clients import ClientSettings, ClusterClients, kept_clients
from dynamic_kafka.kafka.logins import principal, without_token_answer
from dynamic_kafka.native import kernel
from dynamic_kafka.source.document.document import OffsetRange
from dynamic_kafka.source.executor.fetcher import Fetcher, FetchEvent, Span
from dynamic_kafka.source.executor.inquiry import GONE, Inquiry
from dynamic_kafka.source.rules.loss import Proof, prove
from dynamic_kafka.source.rules.planning import ClusterAccess, Range, ReadTask
from dynamic_kafka.source.settings import SourceSettings

if TYPE_CHECKING:
    from dynamic_kafka.source.executor.tally import Tally

__all__ = ["read"]

_log = logging.getLogger(__name__)

_POLL_S = 0.1
_PAUSE_S = 0.2
_STALL_S = 3.0
_SILENCE_S = 10.0
_REFUSED_S = 10.0  # twice as long after each further refused login, which may count against the account
_SHOWN_RANGES = 20
_MOST_LOOKED_UP = 10  # each one is a request; the client looks more of them up at once
# Ranges are known and mostly small: answer an empty fetch soon (it is what shows the end of a range whose tail holds no
# record), and look again soon after a full queue. The queue bounds a task's memory.
_TUNING = {
    "fetch.wait.max.ms": "20",
    "fetch.queue.backoff.ms": "10",
    "queued.min.messages": "100000",
    "queued.max.messages.kbytes": "32768",
}
# A client with the settings above fetches 1 MB of each partition at a time, and the next ones meanwhile. Of a long log, a
# task with a few records would drop most of it. So there is another client for such tasks.
_LITTLE_BYTES = 131_072
_LITTLE = {"max.partition.fetch.bytes": str(_LITTLE_BYTES)}
# librdkafka does not count headers in `queued.max.messages.kbytes`. So with headers its queue is bounded by its records: it
# fetches on if fewer than these are left. Measured with 12,000 records of 60 KB of headers: 131 MB in place of 607.
_HEADERS = {"queued.min.messages": "100"}
# The average size of a record of each cluster, in the last batch that this process has made of it.
_record_bytes: dict[str, float] = {}
# librdkafka reports it as _AUTO_OFFSET_RESET, with this text of _LOG_TRUNCATION in the message.
_TRUNCATION = KafkaError(KafkaError._LOG_TRUNCATION).str().removeprefix("Local: ")


def read(
    task: ReadTask, schema: pa.Schema, settings: SourceSettings, tally: Tally | None = None
) -> Iterator[pa.RecordBatch]:
    """Read all ranges of a task.

    Args:
        task: The ranges, and the client properties of their clusters; or rows of a history.
        schema: The columns to return (`rows.arrow_schema`).
        settings: The source's settings.
        tally: Counts, for the metrics, what is given up and what the clients say of themselves.

    Yields:
        Batches of up to 20,000 records of one cluster; the records of a partition are in order of offset.

    Raises:
        DataLossError: If records were lost and `fail_on_data_loss` is set.
        ClusterUnavailableError: If a cluster makes no progress within `poll_timeout_ms`.
        CheckpointError: If a cluster id leads to another physical cluster than that of the offsets.
    """
    if task.history is not None:
        from dynamic_kafka.history.reader import read_history

        give_up = tally.give_up if tally is not None else lambda _: None
        for batch in read_history(task.history, schema, fail_on_data_loss=settings.fail_on_data_loss, give_up=give_up):
            if tally is not None:
                tally.count_history(len(batch), batch.nbytes)
            yield batch
        return
    with ExitStack() as stack:
        readers = []
        for cluster, grouped in groupby(task.ranges, key=lambda r: r.cluster):
            ranges, access = list(grouped), task.clusters[cluster]
            has_headers = "headers" in schema.names
            opened = stack.enter_context(_clients_for(ranges, access, settings, tally, has_headers=has_headers))
            fetcher = Fetcher(opened, cluster, schema)
            reader = _ClusterReader(cluster, ranges, opened, fetcher, settings=settings, access=access)
            reader.tally = tally
            readers.append(reader)
        for reader in readers:
            reader.start()
        waiting = deque((reader, reader.batches()) for reader in readers)
        while waiting:
            reader, batches = waiting.popleft()
            for batch in batches:
                if batch is None:
                    waiting.append((reader, batches))
                    break
                yield batch
            else:
                reader.check_after_last_row()
                if tally is not None:
                    tally.note_statistics(reader.cluster, reader.statistics())


def _clients_for(
    ranges: Sequence[Range], access: ClusterAccess, settings: SourceSettings, tally: Tally | None, *, has_headers: bool
) -> AbstractContextManager[ClusterClients]:
    """Lease the clients for the ranges of one cluster, by what they will probably fetch."""
    cluster = ranges[0].cluster
    is_little = max(r.end - r.start for r in ranges) * _record_bytes.get(cluster, math.inf) <= _LITTLE_BYTES
    tuning = _TUNING | (_LITTLE if is_little else {}) | (_HEADERS if has_headers else {})
    purpose = ("read a little" if is_little else "read") + (" with headers" if has_headers else "")
    fixed = {"enable.partition.eof": "true", "group.id": settings.consumer_group}
    metrics = None if tally is None else settings.metrics
    consumer = ClientSettings(tuning, fixed, 0 if metrics is None else metrics.statistics_ms)
    return kept_clients(purpose, cluster, access.properties, consumer=consumer)


class _ClusterReader:
    """The reader of one cluster's ranges in a task."""

    def __init__(
        self,
        cluster: str,
        ranges: Sequence[Range],
        clients: ClusterClients,
        fetcher: Fetcher,
        *,
        settings: SourceSettings,
        access: ClusterAccess,
    ) -> None:
        self.cluster = cluster
        self._clients, self._fetcher = clients, fetcher
        self._settings = settings
        self._access = access
        self._ranges = {KafkaTopicPartition(r.topic, r.partition): r for r in ranges}
        if len(self._ranges) < len(ranges):  # one would be lost
            raise CheckpointError(f"Cluster '{cluster}': a task has a partition twice; please report it: {ranges}")
        self._positions = {tp: r.start for tp, r in self._ranges.items()}
        self._open = set(self._ranges)
        self._new_topics: set[str] = set()
        self._last_error = ""
        self._planned_ids = {r.topic: r.topic_id for r in ranges if r.topic_id}
        self._inquiry = Inquiry(cluster, access.kafka_id, clients, settings.call_timeout_ms / 1000)
        self._has_rows = self._is_checked = False
        # What was found, and since when, until it is certain: losses and damaged records.
        self._doubts: dict[KafkaTopicPartition, tuple[object, float]] = {}
        self._damaged: dict[KafkaTopicPartition, tuple[object, float]] = {}
        self._certain_s = settings.call_retries * settings.call_retry_interval_ms / 1000
        self._stall_s = min(_STALL_S, settings.poll_timeout_ms / 2000)
        self._ask_at = 0.0
        self._told = False
        self._connected_at = 0.0
        self._silence_s = _SILENCE_S
        self._refused_s = _REFUSED_S
        self.tally: Tally | None = None

    def statistics(self) -> str:
        """Return the last statistics of the cluster's client; "" if there are none since the last call."""
        return self._clients.statistics.take()

    def start(self) -> None:
        """Start to fetch what is open, in the background."""
        self._connected_at = time.monotonic()
        try:
            spans = {tp: self._span(tp) for tp in self._open}
            self._fetcher.assign(spans)
            self._new_topics = {tp.topic for tp in self._open} - self._clients.topics
            self._clients.topics |= self._new_topics
            if sum(span.end - span.position for span in spans.values()) > kernel().BATCH_RECORDS:
                self._inquiry.request_topic_ids(self._planned_ids)  # the answer arrives with the first records
        except (KafkaException, ConfigurationError) as error:
            text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            if self._access.removed:
                self._give_up_all(f"the client cannot be made ({text})")
            elif isinstance(error, ConfigurationError):
                raise
            else:  # a part of the login is missing
                raise self._unavailable(f"the client cannot be made ({text})") from error

    def batches(self) -> Iterator[pa.RecordBatch | None]:
        """Yield the records of the ranges as they arrive, and None whenever none has arrived for a moment."""
        progress_at = time.monotonic()
        while self._open:
            fetched = self._fetcher.fetch(_POLL_S)
            for tp, position in fetched.positions.items():
                self._positions[tp] = position
                if position >= self._ranges[tp].end:
                    self._open.discard(tp)
            for event in fetched.events:
                self._handle(event)
            if not self._open:
                self._inquiry.request_topic_ids(self._planned_ids)  # the answer arrives while the batch is made
            recreated: Collection[str] = ()
            if fetched.records and not self._has_rows:
                # Before the first row. If that was all, as in most batches, one answer does for rule 4.
                recreated = self._check_topic_ids()
                self._is_checked = not self._open
            runs = fetched.runs() if fetched.records and self.tally is not None else ()
            batch = fetched.batch(recreated) if fetched.records else None
            if batch is not None:
                self._has_rows = True
                _record_bytes[self.cluster] = bytes_per_record = batch.nbytes / batch.num_rows
                if self.tally is not None:
                    self.tally.count(self.cluster, [run for run in runs if run[0] not in recreated], bytes_per_record)
                yield batch
                progress_at = time.monotonic()  # not the time that the rows took downstream
            elif fetched.is_empty or (fetched.events and not fetched.positions):
                self._check_progress(progress_at)
                left_at = time.monotonic()
                yield None
                progress_at += time.monotonic() - left_at  # nor the time of the other clusters

    def _span(self, tp: KafkaTopicPartition) -> Span:
        return Span(self._positions[tp], self._ranges[tp].end)

    def _finish(self, tp: KafkaTopicPartition) -> None:
        self._positions[tp] = self._ranges[tp].end
        self._open.discard(tp)
        self._fetcher.stop([tp])

    # --- events ---

    def _handle(self, event: FetchEvent) -> None:
        tp = KafkaTopicPartition(event.topic, event.partition)
        if tp not in self._open:
            if tp.topic == "":
                self._last_error = without_token_answer(event.text)
            return
        if event.code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            if _TRUNCATION in event.text:
                self._handle_truncation(tp, event.text)
            else:
                self._handle_out_of_range(tp)
        elif event.code in kernel().DAMAGED:
            self._handle_damage(tp, event.offset, event.text)
        elif event.code in GONE:
            if tp not in self._doubts:
                self._doubts[tp] = (None, time.monotonic())
                self._fetcher.look_up(tp.topic)  # a pooled consumer may not know a new partition yet
                self._ask_at = 0.0
        elif event.code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise ClusterUnavailableError(
                f"Cluster '{self.cluster}': {may_not(principal(self._access.properties), ['Read'], 'topic', tp.topic)}",
                cluster_id=self.cluster,
            )
        else:
            self._last_error = event.text

    def _handle_out_of_range(self, tp: KafkaTopicPartition) -> None:
        """Ask what is wrong, and fetch again: the brokers may disagree only for a moment.

        All open ranges are asked about, because what has lost one of them (retention) has probably lost others.
        """
        self._ask_whether_readable(sorted(self._open))
        if tp in self._open:
            time.sleep(_PAUSE_S)
            self._seek(tp, self._positions[tp])

    def _handle_truncation(self, tp: KafkaTopicPartition, text: str) -> None:
        """Report records that a new leader does not have, although the log has grown past them again."""
        position, end = self._positions[tp], self._ranges[tp].end
        self._lost(tp, f"the log was truncated and written again by a new leader ({text})", position, end, kept=True)
        self._seek(tp, position)

    def _handle_damage(self, tp: KafkaTopicPartition, offset: int, text: str) -> None:
        """Fetch damaged records again. They may be whole the next time, but hardly after some seconds of trying."""
        self._last_error = text
        if offset >= self._ranges[tp].end:
            self._finish(tp)  # everything before the damage has arrived
        elif self._is_certain(self._damaged, tp, offset):
            self._lost(tp, f"the records cannot be decoded ({text})", self._positions[tp], self._ranges[tp].end)
            self._finish(tp)
        else:
            time.sleep(_PAUSE_S)
            self._seek(tp, self._positions[tp])

    def _is_certain(
        self, found: dict[KafkaTopicPartition, tuple[object, float]], tp: KafkaTopicPartition, finding: object
    ) -> bool:
        """Note a finding, and return whether it has been the same for as long as a leader change takes."""
        now = time.monotonic()
        before, since = found.get(tp, (None, now))
        found[tp] = finding, since if before == finding else now
        return now - found[tp][1] >= self._certain_s

    # --- stalls ---

    def _check_progress(self, progress_at: float) -> None:
        """Handle a fetch that brought nothing: ask about the ranges from time to time, and give up at last."""
        self._look_up_new_topics()
        self._renew_clients()
        if self._clients.errors.authentication_failed:
            self._rest_after_refusal(progress_at)
        now = time.monotonic()
        if not self._open or now < max(self._ask_at, progress_at if self._doubts else progress_at + self._stall_s):
            return
        answered = self._ask_whether_readable(sorted(self._open))
        self._ask_at = time.monotonic() + (_PAUSE_S if self._doubts else self._stall_s)
        if self._open and not (answered and self._doubts.keys() & self._open):  # doubts are soon certain, or gone
            self._wait_or_give_up(time.monotonic() - progress_at, answered=answered)
        if self._open and time.monotonic() >= max(progress_at, self._connected_at) + self._silence_s:
            _log.info("Cluster '%s': nothing arrives over the connections of this task; connecting again", self.cluster)
            self._silence_s *= 2  # a slow link may need longer for one answer
            self._clients.renew()
            self.start()

    def _look_up_new_topics(self) -> None:
        """Look up the topics that the client reads for the first time. By itself it does that once a second."""
        new, self._new_topics = self._new_topics, set()
        if len(new) <= _MOST_LOOKED_UP:
            for topic in sorted(new):
                self._fetcher.look_up(topic)

    def _renew_clients(self) -> None:
        if self._clients.renew_if_outdated():
            _log.info("Cluster '%s': a secret or certificate was replaced; connecting again", self.cluster)
            self.start()

    def _rest_after_refusal(self, progress_at: float) -> None:
        """Close the clients for a while, or until a secret was replaced: librdkafka would log in three times a second."""
        self._wait_or_give_up(time.monotonic() - progress_at, answered=False)
        if not self._open:
            return
        self._last_error = self._clients.reason()
        self._clients.close()
        now = time.monotonic()
        until = min(now + self._refused_s, max(progress_at + self._settings.poll_timeout_ms / 1000, now + _PAUSE_S))
        while time.monotonic() < until and not self._clients.is_outdated():
            time.sleep(_PAUSE_S)
        self._refused_s *= 2
        self._clients.renew()
        self.start()

    def _wait_or_give_up(self, waited_s: float, *, answered: bool) -> None:
        """Return if the cluster may still answer; else give its ranges up, or raise (rules 5 and 6)."""
        refused = self._clients.errors.authentication_failed
        why = self._clients.reason() or self._last_error or "no error was reported"
        limit_s = self._settings.poll_timeout_ms / 1000
        if self._access.removed and not answered:
            limit_s = 0.0 if refused else min(limit_s, self._settings.unavailable_after_ms / 1000)
            if not self._told and waited_s <= limit_s:
                self._told = True
                text = "Cluster '%s' does not answer, and %s: waiting up to %.0f s for %d planned ranges"
                _log.warning(text, self.cluster, self._access.removed, limit_s, len(self._open))
        if waited_s > limit_s:
            problem = f"nothing could be read for {waited_s:.0f} s ({why})"
            if not self._access.removed:
                raise self._unavailable(problem)
            self._give_up_all(f"the login was refused ({why})" if refused else problem)

    def _ask_whether_readable(self, tps: Collection[KafkaTopicPartition]) -> bool:
        """Ask the cluster about ranges, and act on what the answer proves. Return False if it did not answer."""
        try:
            answers = self._inquiry.partitions(tps)
            proofs = {tp: prove(self._ranges[tp], self._positions[tp], answers[tp]) for tp in tps}
            if any(proofs.values()):
                self._inquiry.check_cluster()
        except ClusterUnavailableError as error:
            self._last_error = str(error.__cause__)
            return False
        accepted = {}
        for tp, proof in proofs.items():
            if proof is None:
                self._doubts.pop(tp, None)
            elif proof.final or self._is_certain(self._doubts, tp, proof.kind):
                accepted[tp] = proof
        lost = [self._lost_part(tp, p.start, p.end) for tp, p in accepted.items() if p.kind != "recreated"]
        for tp, proof in accepted.items():
            if tp in self._open:  # a topic's ranges are given up together
                self._accept(tp, proof, lost)
        return True

    def _accept(self, tp: KafkaTopicPartition, proof: Proof, lost: Sequence[Range]) -> None:
        """Give up what is proved to be lost, and read what is left of the range. `lost` is all that is lost now."""
        if proof.kind == "recreated":
            self._give_up_recreated(tp.topic, proof.reason)
            return
        self._lost(tp, proof.reason, proof.start, proof.end, skip=lost)
        self._doubts.pop(tp, None)
        if proof.end < self._ranges[tp].end:
            self._seek(tp, proof.end)
        elif proof.start > self._positions[tp]:
            self._ranges[tp] = self._ranges[tp]._replace(end=proof.start)
            self._seek(tp, self._positions[tp])  # the end of the log is reported again
        else:
            self._finish(tp)

    def _give_up_recreated(self, topic: str, reason: str) -> None:
        """Give up all ranges of a topic that is another one now, if none of them was read yet (rule 4)."""
        if self._has_rows and not self._settings.fail_on_data_loss:
            raise DynamicKafkaError(
                f"Cluster '{self.cluster}', topic '{topic}': {reason} while it was read. No row of this task is used. If "
                "Spark does not repeat the task by itself, start the query again: it then goes on without the lost records",
                cluster_id=self.cluster,
            )
        ranges = {tp: r for tp, r in sorted(self._ranges.items()) if tp.topic == topic}
        for tp, r in ranges.items():
            self._lost(tp, reason, r.start, r.end, skip=list(ranges.values()))
            if tp in self._open:
                self._finish(tp)
        self._planned_ids.pop(topic, None)

    def _give_up_all(self, problem: str) -> None:
        """Give up what is left of a cluster that is not wanted any more and cannot be read (rule 6)."""
        if self._settings.fail_on_data_loss:
            raise self._unavailable(problem)
        for tp in sorted(self._open):
            reason = f"{problem}, and {self._access.removed}"
            self._lost(tp, reason, self._positions[tp], self._ranges[tp].end)
            self._positions[tp] = self._ranges[tp].end
        self._open.clear()
        self._planned_ids.clear()  # nobody can be asked for the ids

    def _unavailable(self, problem: str) -> ClusterUnavailableError:
        """Return the error for ranges that may be readable later, with all ways to go on."""
        ranges = [self._ranges[tp] for tp in sorted(self._open)]
        first = ranges[0]
        tp = KafkaTopicPartition(first.topic, first.partition)
        advice = "Bring the cluster back and start the query again, which reads the same batch again"
        if self._access.from_checkpoint:
            advice += (
                ". Its properties are those of the checkpoint, which holds no passwords: put it back into the metadata, "
                "and give passwords as ${env:...} or ${file:...}, which the checkpoint keeps"
            )
        if self._settings.cluster_failure_mode == "isolate":
            name = shlex.quote(self.cluster)
            advice += f". To have a later batch read it: dynamic-kafka offsets postpone CHECKPOINT {name}"
        ways = [f"skip-offsets={_skip_text(ranges)}"] + ["failOnDataLoss=false"] * bool(self._access.removed)
        but = f", and {self._access.removed}" if self._access.removed else ""
        return ClusterUnavailableError(
            f"Cluster '{self.cluster}', topic '{first.topic}', partition {first.partition}: {problem} at offset "
            f"{self._positions[tp]} of [{first.start}, {first.end}){but}. {advice}. To give up the unread records of this "
            f"task, start the query once with {' or '.join(ways)}",
            cluster_id=self.cluster,
        )

    def _lost(
        self,
        tp: KafkaTopicPartition,
        reason: str,
        start: int,
        end: int,
        *,
        kept: bool = False,
        skip: Sequence[Range] = (),
    ) -> None:
        """Raise for lost offsets, or warn.

        Args:
            tp: The partition.
            reason: The reason, as a clause.
            start: The first lost offset.
            end: The offset after the last lost one.
            kept: True if the log has other records at these offsets.
            skip: All that is lost now, if there is more.
        """
        if self._settings.fail_on_data_loss:
            raise DataLossError(
                reason,
                cluster_id=self.cluster,
                topic=tp.topic,
                partition=tp.partition,
                start=start,
                end=end,
                skip=_skip_text(skip or [self._lost_part(tp, start, end)]),
            )
        if self.tally is not None:
            self.tally.give_up(end - start)
        what = "the records that are there now are read instead" if kept else f"{end - start} offsets are given up"
        where = (self.cluster, *tp, start, end)
        text = "Cluster '%s', topic '%s', partition %d, offsets [%d, %d): %s; %s, because failOnDataLoss=false"
        _log.warning(text, *where, reason, what)

    def _lost_part(self, tp: KafkaTopicPartition, start: int, end: int) -> Range:
        """Return the part of a range to skip if [start, end) is lost. The next start reads the range from its start."""
        r = self._ranges[tp]
        return r._replace(start=start if end == r.end else r.start, end=end)

    def _seek(self, tp: KafkaTopicPartition, offset: int) -> None:
        self._positions[tp] = offset
        self._fetcher.seek(tp, self._span(tp))

    def check_after_last_row(self) -> None:
        """Compare the topic ids, unless that was done after the last row already (rule 4)."""
        if not self._is_checked:
            self._check_topic_ids()

    def _check_topic_ids(self) -> Collection[str]:
        """Wait for the topic ids, and give up the topics that are not the planned ones. Return these (rule 4)."""
        patience_ms = self._settings.unavailable_after_ms if self._access.removed else self._settings.poll_timeout_ms
        deadline = time.monotonic() + patience_ms / 1000
        other_since: float | None = None
        while True:
            try:
                found = self._inquiry.topic_ids(self._planned_ids)
                other = {t: now for t, now in found.items() if now not in ("", self._planned_ids.get(t, now))}
                if not other:
                    return ()
                self._inquiry.check_cluster()
                other_since = other_since or time.monotonic()
                if time.monotonic() - other_since >= self._certain_s:  # a broker may not know a new topic yet
                    break
            except ClusterUnavailableError as error:  # rule 5
                if time.monotonic() > deadline:
                    if self._access.removed and not self._settings.fail_on_data_loss:
                        _log.warning("%s. %s, so the rows are used all the same", error, self._access.removed)
                        return ()
                    raise
            time.sleep(_PAUSE_S)
            self._renew_clients()
        for topic, topic_id in other.items():
            reason = f"the topic was recreated (topic id {self._planned_ids[topic]} is now {topic_id})"
            self._give_up_recreated(topic, reason)
        return other


def _skip_text(ranges: Sequence[Range]) -> str:
    """Return the value of `skip-offsets` for ranges, with a note if they are too many for an error."""
    texts = [str(OffsetRange(r.cluster, r.topic, r.partition, r.start, r.end)) for r in ranges]
    more = f" (and {len(texts) - _SHOWN_RANGES} more ranges)" if len(texts) > _SHOWN_RANGES else ""
    return ";".join(texts[:_SHOWN_RANGES]) + more

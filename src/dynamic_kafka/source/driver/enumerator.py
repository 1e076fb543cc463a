"""The enumerator, the driver's side of the source: from source snapshots to documents, and from documents to tasks.

It lives in Spark's reader process for the whole run of a query. Spark makes its calls one at a time, from the main thread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dynamic_kafka.errors import CheckpointError, listed
from dynamic_kafka.history.folder import is_at
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.kafka.config.secrets import storable
from dynamic_kafka.observe.reports import ClusterState
from dynamic_kafka.observe.reports import Event as Reported
from dynamic_kafka.source.document.collector import without_collector
from dynamic_kafka.source.document.document import OffsetRange
from dynamic_kafka.source.document.offsets import (
    ClusterOffsets,
    Document,
    check_chain,
    decode,
    encode,
    is_marker,
    is_spark_kafka_offset,
)
from dynamic_kafka.source.document.stage import next_stage, plan_stage, progress
from dynamic_kafka.source.driver.aligner import Aligner
from dynamic_kafka.source.driver.beginning import begin_with_history
from dynamic_kafka.source.driver.resolving import policy_of, resolve
from dynamic_kafka.source.driver.view import SourceView
from dynamic_kafka.source.rules.admission import admit, load
from dynamic_kafka.source.rules.batch import check_streams, open_ranges
from dynamic_kafka.source.rules.differences import differences
from dynamic_kafka.source.rules.migration import unmarked
from dynamic_kafka.source.rules.model import ClusterView, Event, Move, OffsetRequest, ReadPolicy, SourceSnapshot
from dynamic_kafka.source.rules.planning import ReadTask, plan, skip
from dynamic_kafka.source.rules.pruning import (
    Condition,
    Offsets,
    left_out,
    log_start_requests,
    narrow,
    size,
    start_at,
    time_requests,
)
from dynamic_kafka.source.rules.reconcile import Reconciled
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["SourceEnumerator", "state_word"]

_log = logging.getLogger(__name__)

_KEPT_EVENTS = 20
_REMEMBERED_TEXTS = 1000
_REPORTED_MOVES = 100
_LATE_MARKS_S = 60.0


class SourceEnumerator:
    """The enumerator of a query: it answers Spark's calls for offsets and partitions. Created without I/O."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._policy = policy_of(settings)
        self._view = SourceView(settings)
        self._aligner = Aligner(settings, self._view) if settings.alignment_group is not None else None
        self._available_now = False
        self._frozen: SourceSnapshot | None = None
        self._seen: SourceSnapshot | None = None
        # A batch's start and end, newest last.
        self._recent: deque[tuple[Mapping[str, Any], Document]] = deque(maxlen=2)
        self._behind: dict[str, tuple[ClusterOffsets, ClusterView | None, int | None]] = {}
        self._last_batch_at = time.monotonic()
        self._began = time.time(), time.monotonic()
        self._committed: Document | None = None
        self._reported_done = False
        self._compared = False
        self._idle = False
        self._logged: set[str] = set()
        self._unmarked: dict[str, list[KafkaTopicPartition]] = {}
        self._unmarked_since: dict[str, float] = {}
        self._moves: dict[tuple[str, KafkaTopicPartition], Move] = {}
        self._events: deque[Reported] = deque(maxlen=_KEPT_EVENTS)
        # Only for the batch that a query repeats when it starts, which Spark plans before it asks for another one.
        self._given_up: set[OffsetRange] = set(settings.skip_offsets)
        self._skipped: set[OffsetRange] = set()

    def prepare_available_now(self) -> None:
        """From now on, read only up to the ends found by the next call of `latest_offset`."""
        self._available_now = True

    def latest_offset(self, start: Mapping[str, Any], *, limited: bool) -> Mapping[str, Any]:
        """Return the document of the next batch; `start` itself if there is nothing to do.

        Args:
            start: The document of the last finished batch, or the marker.
            limited: If true, the user's limits per trigger apply (`Trigger.Once` has none).

        Raises:
            DynamicKafkaError: If the query has to stop.
        """
        self._stop_skipping()
        previous = self._previous(start)
        if not self._look(previous):
            return start
        assert self._seen is not None
        result = self._next(previous, self._seen)
        self._check_not_ended(previous, result)
        self._idle = False
        document = result.document
        if document.history is not None:
            rows = self._settings.max_offsets_per_trigger if limited else None
            document.history = next_stage(document.history, rows)
            if document.history.history.files:  # Kafka waits
                document.done = 0
                return self._decided(result)
        self._count_done(previous, result)
        limits = self._limits(limited=limited)
        readable = self._readable(previous, result, limits, limited=limited)
        if readable is None:
            return start
        admitted, document.cursor = admit(readable, document.cursor, **limits)
        for cluster, tps in admitted.items():
            ranges = document.clusters[cluster].ranges
            for tp, count in tps.items():
                position = ranges[tp][0]
                ranges[tp] = (position, position + count)
        return self._decided(result)

    def _look(self, previous: Document | None) -> bool:
        """Look at the metadata and the clusters, and return whether there may be something to do."""
        if self._frozen is not None:
            return True
        before, self._seen = self._seen, self._view.collect(previous, at_once=self._available_now)
        if self._available_now:
            self._frozen = self._seen
            self._log_events(_not_found(self._seen))
        elif previous is None and self._policy.stopping is not None and self._settings.metadata_interval_ms <= 0:
            check_streams(self._seen.streams, self._settings)
        rests = self._idle or (self._aligner is not None and self._aligner.rests())
        return not (self._seen is before and rests)

    def _next(self, previous: Document | None, seen: SourceSnapshot) -> Reconciled:
        """Return the next document, in which no range is longer than 0 yet."""
        if previous is None:
            return self._begin(seen)
        self._report_differences(previous, seen)
        self._commit(previous)
        result = self._resolve(previous, seen, self._policy)
        result.document.history, result.document.last_row = previous.history, previous.last_row
        return result

    def _count_done(self, previous: Document | None, result: Reconciled) -> None:
        """Have one batch show that all stopping offsets are reached, also if a finished query was started again.

        With a last row, that batch has it, and one more batch follows, in which the watermark is at its end. See
        `spark.stop_finished` and `spark.last_row`.
        """
        document, last_row = result.document, self._settings.last_row
        if not document.done or (self._available_now and not last_row):
            return
        before = 0 if previous is None else previous.done
        if not self._reported_done:
            self._reported_done = result.changed = True
            document.done = before + 1
            document.last_row = document.done if last_row else document.last_row
        elif previous is not None and previous.done == previous.last_row:
            result.changed = True
            document.done = before + 1

    @staticmethod
    def _check_not_ended(previous: Document | None, result: Reconciled) -> None:
        """Raise if there is more to read after the last row: a query has dropped its windows, and would drop new rows."""
        if previous is not None and previous.last_row and not result.document.done:
            raise CheckpointError(
                "This stream had reached its end, and its query has given out all of its windows. Now there is more to "
                "read, but the query would drop it as late. Start it with a new checkpoint"
            )

    def _limits(self, *, limited: bool) -> dict[str, Any]:
        """Return the limits of a batch, as `admit` and `load` take them."""
        settings = self._settings
        return {
            "limit": settings.max_offsets_per_trigger if limited else None,
            "cluster_limits": settings.cluster_limits if limited else None,
            "default_cluster_limit": settings.max_offsets_per_cluster if limited else None,
        }

    def _readable(
        self, previous: Document | None, result: Reconciled, limits: Mapping[str, Any], *, limited: bool
    ) -> dict[str, dict[KafkaTopicPartition, int]] | None:
        """Return the number of offsets that the batch may read, by cluster and partition; None for no batch now."""
        document = result.document
        readable = backlog = _backlog(document, result.views, result.requests)
        if result.moving.standby and not result.changed and not backlog:
            result.changed = self._view.add_marks(document, result.moving.standby)
            result.changed |= self._view.add_anchors(document, result.moving.comparisons)
            self._note_unmarked(result)
        waits = not result.changed and (not backlog or (limited and self._hold_back(document, backlog)))
        if self._aligner is not None and not waits:
            at_once = self._available_now or not limited
            readable = self._aligner.admit(
                previous, document, result.views, backlog, partial(load, **limits), at_once=at_once
            )
            self._log_events(self._aligner.take_events())
            waits = not result.changed and not readable
        if not waits:
            return readable
        done = not result.requests and not backlog and all(move.done for move in result.moving.moves)
        self._idle = done and not self._unmarked and not result.moving.comparisons
        if self._available_now:
            self._view.finish_commits()
        return None

    def _note_unmarked(self, result: Reconciled) -> None:
        """Note which partitions have no current marks, and warn if that stays so."""
        clusters = result.document.clusters
        found = {
            name: unmarked(clusters[name], topics) for name, topics in result.moving.standby.items() if name in clusters
        }
        self._unmarked = {name: tps for name, tps in found.items() if tps}
        now = time.monotonic()
        self._unmarked_since = {name: self._unmarked_since.get(name, now) for name in self._unmarked}
        for name, tps in self._unmarked.items():
            if now - self._unmarked_since[name] >= _LATE_MARKS_S:
                shown = listed((f"{tp.topic}/{tp.partition}" for tp in tps), 5)
                text = (
                    f"Cluster '{name}' does not answer in time for the marks of its last records. Partitions without them "
                    f"do not move if it dies; now these: {shown}. lastProgress counts them (withoutMarks)"
                )
                self._unmarked_since[name] = float("inf")
                self._log_events([Event("warning", text)])

    def _decided(self, result: Reconciled) -> Mapping[str, Any]:
        """Return the text of the next batch's document."""
        result.document.packing = self._settings.packing
        if result.moving.standby:
            self._view.add_marks(result.document, result.moving.standby)
            self._view.add_anchors(result.document, result.moving.comparisons)
        self._note_unmarked(result)
        self._view.forget_answers(result.requests)
        self._last_batch_at = time.monotonic()
        if self._frozen is not None and self._seen is not None:
            # A log that ended below the position counts once: each later batch would go back there.
            self._seen = replace(self._seen, regressed={})
        self._recent.append((encode(result.document), result.document))
        return self._recent[-1][0]

    def tasks(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[ReadTask]:
        """Return the tasks of the batch that ends with `end`: the same for the same arguments, in any process."""
        if start == end:
            return []
        if is_spark_kafka_offset(end):
            return self._packed(self._imported(end, since=start))
        before = self._previous(start)
        document = self._decoded(end)
        if before is not None:
            check_chain(before, document)
        last = [ReadTask([], {}, last_row=True)] if document.last_row and document.last_row == document.done else []
        return [*self._packed(document), *last]

    def batch_tasks(self, conditions: Sequence[Condition] = ()) -> list[ReadTask]:
        """Return the tasks of a batch read: the history, and Kafka from the starting to the stopping offsets.

        Args:
            conditions: What is known of the rows that are asked for; see `pruning`.
        """
        if self._policy.stopping is None:
            self._policy = replace(self._policy, stopping=KafkaOffsetsInitializer.latest())
        try:
            seen = self._view.collect(None, at_once=True)
            result = self._begin(seen)
            document = result.document
            document.packing = self._settings.packing
            if document.history is not None:
                document.history = next_stage(document.history, None)
            desired = {  # a copy that stands by is not read beside what it is a copy of
                name: replace(wanted, topics=wanted.topics - result.moving.standing_by.get(name, set()))
                for name, wanted in seen.desired.items()
            }
            warnings = open_ranges(document, desired, seen.views, self._settings)
            self._log_events(Event("warning", text) for text in warnings)
            if conditions:
                self._leave_out(document, conditions)
            tasks = self._packed(document)
            self._stop_skipping()
            return tasks
        finally:
            self.close()

    def report(self) -> dict[str, Any]:
        """Return the source's state for Spark's progress: lag of each cluster, health of the metadata, last events."""
        document = self._recent[-1][1] if self._recent else Document()
        views = self._seen.views if self._seen is not None else {}
        clusters: dict[str, dict[str, Any]] = {}
        for name, state in document.clusters.items():
            monitor = self._view.monitors.get(name)
            error = monitor.error if monitor is not None else None
            clusters[name] = {
                "state": state_word(state, failing=error is not None),
                "topics": len(state.topics),
                "partitions": len(state.ranges),
                "behind": None if error is not None else self._records_behind(name, state, views.get(name)),
                "error": None if error is None else str(error),
            }
            if name in self._unmarked:
                clusters[name]["withoutMarks"] = len(self._unmarked[name])
            if moves := [_move_report(move) for move in self._moves.values() if move.request.cluster == name]:
                clusters[name]["continues"] = moves[:_REPORTED_MOVES]
        return {
            "version": 1,
            "clusters": clusters,
            "metadata": self._view.metadata.status(),
            "events": self._last_events(),
            "commitsSucceeded": sum(m.commits.succeeded for m in self._view.monitors.values()),
            "commitsFailed": sum(m.commits.failed for m in self._view.monitors.values()),
            "done": bool(document.done),
            **({} if document.history is None else {"history": progress(document.history)}),
            **({} if self._aligner is None else {"alignment": self._aligner.status()}),
        }

    def _last_events(self) -> list[Reported]:
        """Return the last events of this run and of the metadata service, oldest first. For any thread."""
        of_metadata = [Reported(**{**e, "text": f"metadata: {e['text']}"}) for e in self._view.metadata.events()]
        return sorted([*list(self._events), *of_metadata], key=lambda event: event["time_ms"])

    def _records_behind(self, name: str, state: ClusterOffsets, view: ClusterView | None) -> int | None:
        """Return the number of records to read; None if an end is not known, or what is to be read is not known yet.

        Spark asks at each poll, so the sum is kept while nothing changes.
        """
        known = self._behind.get(name)
        if known is None or known[0] is not state or known[1] is not view:
            behind = None
            is_whole = state.discovered and not state.unresolved and not state.unseen
            if is_whole and view is not None and not view.denied and view.ends.keys() >= state.ranges.keys():
                behind = sum(max(0, view.ends[tp] - end) for tp, (_, end) in state.ranges.items())
            known = state, view, behind
            self._behind[name] = known
        return known[2]

    def close(self) -> None:
        """Have all threads end."""
        self._view.close()

    # --- documents ---

    def _previous(self, offset: Mapping[str, Any]) -> Document | None:
        if is_marker(offset):
            return None
        return self._imported(offset) if is_spark_kafka_offset(offset) else self._decoded(offset)

    def _decoded(self, offset: Mapping[str, Any]) -> Document:
        for known, document in self._recent:
            if known == offset:
                return document
        self._recent.append((offset, decode(offset)))
        return self._recent[-1][1]

    def _imported(self, offset: Mapping[str, Any], since: Mapping[str, Any] | None = None) -> Document:
        """Return the document for an offset of Spark's own Kafka source, which has neither cluster nor topic ids."""
        if not self._settings.import_spark_checkpoint:
            raise CheckpointError(
                "The checkpoint was written by Spark's own Kafka source. Set import-kafka-checkpoint=true to continue from "
                "its offsets (one cluster, same topics), or start with a new checkpoint"
            )
        snapshot = self._view.metadata.snapshot(None)
        assert snapshot is not None
        if len(snapshot.clusters) != 1:
            raise CheckpointError(
                "The checkpoint was written by Spark's own Kafka source, which reads one cluster. The metadata names "
                f"{len(snapshot.clusters)} clusters. For the import, name only the cluster that the checkpoint was read from"
            )
        ((name, metadata),) = snapshot.clusters.items()
        starts = {} if since is None or is_marker(since) else since
        cluster = ClusterOffsets(discovered=True, properties=storable(metadata.properties))
        for topic, ends in sorted(offset.items()):
            cluster.topics[topic] = ""
            for partition, end in sorted((int(p), int(o)) for p, o in ends.items()):
                start = end if since is None else starts.get(topic, {}).get(str(partition))
                if start is None:
                    raise CheckpointError(
                        f"Topic '{topic}', partition {partition}: the last batch in the checkpoint of Spark's own Kafka "
                        "source was not finished, and its starting offset is missing; finish the batch with that source "
                        "first, then import the checkpoint"
                    )
                cluster.ranges[KafkaTopicPartition(topic, partition)] = (int(start), end)
        return Document(clusters={name: cluster}, packing=self._settings.packing)

    def _begin(self, seen: SourceSnapshot) -> Reconciled:
        """Return the first document, with the history that is read before Kafka, if there is one."""
        begin = partial(self._resolve, None)
        if self._settings.history is None:
            return begin(seen, self._policy)
        return begin_with_history(
            self._settings.history, self._policy, seen, begin, self._view.rows_at, tell=self._log_events
        )

    def _resolve(self, previous: Document | None, seen: SourceSnapshot, policy: ReadPolicy) -> Reconciled:
        """Reconcile until no request is open. A first start waits for the answers, later calls only for news."""
        patient = previous is None or self._available_now
        result = resolve(self._view, previous, seen, policy, self._settings, patient=patient, now_ms=self._now_ms)
        self._log_events(result.events)
        self._moves |= {(move.request.cluster, move.request.partition): move for move in result.moving.moves}
        return result

    def _now_ms(self) -> int:
        """Return the wall-clock time, but never more than has passed since this process began.

        Retention must not be over because the clock of the machine was set ahead.
        """
        wall_s, monotonic_s = self._began
        # Rounded to microseconds first: a sum of floats may be a trifle less than the millisecond that it stands for.
        return int(round(min(time.time(), wall_s + time.monotonic() - monotonic_s) * 1000, 3))

    def _leave_out(self, document: Document, conditions: Sequence[Condition]) -> None:
        """Leave out the offsets that cannot have a row that is asked for. Times are looked up after the ends are known."""
        before = size(document)
        narrow(document, conditions)
        if requests := time_requests(document, conditions):
            late_enough = self._found(requests)
            start_at(document, late_enough, self._found(log_start_requests(requests)))
        self._log_events([left_out(before, size(document), conditions)])

    def _found(self, requests: Sequence[OffsetRequest]) -> Offsets:
        """Return the clusters' answers to requests for starts, and nothing of earlier answers."""
        self._view.forget_answers([])
        self._view.request_offsets(requests, patient=True)
        return self._view.answers().start

    def _packed(self, document: Document) -> list[ReadTask]:
        stage = document.history
        before = [] if stage is None else [ReadTask([], {}, task) for task in plan_stage(stage, document.packing)]
        groups, skipped = skip(plan(document), self._given_up)
        self._skipped.update(skipped)
        self._log_events(
            Event("warning", f"skip-offsets={r}: these {r.end - r.start} offsets are given up, as the option says")
            for r in skipped
        )
        if not groups:
            return before
        # On a replay this is the first call of the process. The current metadata wins over the stored properties.
        self._view.metadata.resume(document)
        groups, said = self._view.metadata.with_stand_ins(groups, document)
        self._log_events(Event("warning", text) for text in said)
        names = {r.cluster for ranges in groups for r in ranges}
        access = self._view.access({name: document.clusters.get(name, ClusterOffsets()) for name in sorted(names)})
        return before + [
            ReadTask(ranges, {name: access[name] for name in sorted({r.cluster for r in ranges})}) for ranges in groups
        ]

    def _stop_skipping(self) -> None:
        """Warn of `skip-offsets` that were not found, and forget them all: they are for the repeated batch only."""
        unused = ";".join(map(str, sorted(self._given_up - self._skipped)))
        if unused:
            text = f"skip-offsets={unused} has no effect: the query has no such range to repeat. Take the option out"
            self._log_events([Event("warning", text)])
        self._given_up.clear()
        self._skipped.clear()

    # --- details ---

    def _report_differences(self, previous: Document, seen: SourceSnapshot) -> None:
        """Report once, at the start, what differs from the checkpoint."""
        if not self._compared:
            self._compared = True
            text = differences(previous, seen.desired, self._policy, self._settings.packing)
            self._log_events([Event("warning", text)] if text else [])
            settings, begun = self._settings.history, previous.history
            if settings is not None and begun is None:
                text = (
                    "history.path has no effect: the query has begun without a history. For one, take a new checkpoint"
                )
                self._log_events([Event("warning", text)])
            elif settings is not None and begun is not None and not is_at(begun.history, settings.path):
                text = (
                    f"history.path={settings.path} has no effect: the query has begun with the history in "
                    f"{begun.history.location}. For another one, take a new checkpoint"
                )
                self._log_events([Event("warning", text)])

    def _hold_back(self, document: Document, backlog: Mapping[str, Mapping[KafkaTopicPartition, int]]) -> bool:
        """Return whether to wait for more records (`minOffsetsPerTrigger`, `maxTriggerDelay`), if more can come."""
        least = self._settings.min_offsets_per_trigger
        if least is None or self._available_now:
            return False
        if time.monotonic() - self._last_batch_at >= self._settings.max_trigger_delay_ms / 1000:
            return False
        return sum(sum(tps.values()) for tps in backlog.values()) < least and not _is_the_rest(document, backlog)

    def _commit(self, finished: Document) -> None:
        """Commit the last batch to the consumer group, for monitoring. Spark has finished it when it asks for the next."""
        if self._settings.group_id is None or not self._settings.commit_offsets or finished is self._committed:
            return
        first, self._committed = self._committed is None, finished
        for name, cluster in finished.clusters.items():
            moved = {s: end for s, (start, end) in cluster.ranges.items() if end > start or first}
            if moved and name in self._view.monitors and self._is_seen_as(name, cluster.kafka_id):
                self._view.monitors[name].commit(moved)

    def _is_seen_as(self, name: str, kafka_id: str) -> bool:
        """Return whether the name still leads to the cluster that was read."""
        view = self._seen.views.get(name) if self._seen is not None else None
        return view is None or view.kafka_id == kafka_id

    def _log_events(self, events: Iterable[Event]) -> None:
        """Log events, each text once."""
        for event in events:
            if event.text not in self._logged:
                if len(self._logged) > _REMEMBERED_TEXTS:
                    self._logged.clear()
                self._logged.add(event.text)
                self._events.append(Reported(time_ms=int(time.time() * 1000), level=event.level, text=event.text))
                _log.log(logging.WARNING if event.level == "warning" else logging.INFO, "%s", event.text)


@without_collector
def _backlog(
    document: Document, views: Mapping[str, ClusterView], requests: Iterable[OffsetRequest]
) -> dict[str, dict[KafkaTopicPartition, int]]:
    """Return the number of offsets that can be read now, by cluster and partition."""
    # A partition waits until its stop is known, so that it is never read beyond it.
    waiting = {(request.cluster, tp) for request in requests if request.purpose == "stop" for tp in request.partitions}
    backlog: dict[str, dict[KafkaTopicPartition, int]] = {}
    for name, cluster in document.clusters.items():
        if name not in views:
            continue
        ends, stops = views[name].ends, cluster.stops
        tps = {}
        for tp, (_, position) in cluster.ranges.items():
            available = ends.get(tp, 0)
            if tp in stops:
                available = min(available, stops[tp])
            if available > position and (name, tp) not in waiting:
                tps[tp] = available - position
        if tps:
            backlog[name] = tps
    return backlog


def _is_the_rest(document: Document, backlog: Mapping[str, Mapping[KafkaTopicPartition, int]]) -> bool:
    """Return whether what can be read now reaches the stops of all partitions."""
    return all(
        tp in cluster.stops and position + backlog.get(name, {}).get(tp, 0) >= cluster.stops[tp]
        for name, cluster in document.clusters.items()
        for tp, (_, position) in cluster.ranges.items()
    )


def _not_found(seen: SourceSnapshot) -> Iterator[Event]:
    """Yield a warning for each listed topic that may not exist. A run of AvailableNow ends before it is certain."""
    for name, view in sorted(seen.views.items()):
        listed_topics = seen.desired[name].topics if name in seen.desired else frozenset()
        for topic in sorted(listed_topics & view.unconfirmed):
            yield Event(
                "warning",
                f"Cluster '{name}', topic '{topic}' does not exist, say its brokers. This run reads nothing of it. "
                "A later one reads it once it exists. If the name is wrong, correct it in the metadata or the options",
            )


def _move_report(move: Move) -> dict[str, Any]:
    request, placement = move.request, move.placement
    return {
        "topic": request.partition.topic,
        "partition": request.partition.partition,
        "was": {
            "cluster": request.old_cluster,
            "topic": request.old_partition.topic,
            "offset": request.position,
        },
        "offset": placement.position if placement is not None and move.done else None,
        "guarantee": placement.guarantee if placement is not None and move.done else "waiting",
        "overlap": placement.overlap if placement is not None and move.done else None,
        "evidence": placement.evidence if placement is not None else "the records are being compared",
    }


def state_word(state: ClusterOffsets, *, failing: bool) -> ClusterState:
    """Return the state of a cluster for people."""
    if failing:
        return "unreachable"
    if not state.topics:
        return "retained" if state.retained else "starting"
    return "draining" if state.draining >= set(state.topics) else "reading"

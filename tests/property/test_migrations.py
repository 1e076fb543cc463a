"""Random migrations of one query over three clusters: every record is read once, wherever it is read.

One cluster is written to. A copy of it may be made on another one, with other offsets and some time later, with what it
had from earlier before it. The metadata declares the copy ready, and then moves to it; the old cluster may be dead by
then, and come back later as the copy. Some records are identical, and processes die at any time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from tests.property.test_histories import CLUSTERS, Cluster, ModelView, World, _never

from dynamic_kafka.continuation import Continues, Way
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.snapshot import Snapshot, make_snapshot
from dynamic_kafka.metadata.subscriber import StreamSetSubscriber
from dynamic_kafka.source.document.evidence import MARKS, Marks, MoveRequest, RecordPrint, Sync
from dynamic_kafka.source.document.offsets import MARKER, ClusterOffsets, Document, decode, encode
from dynamic_kafka.source.driver import enumerator as enumerator_module
from dynamic_kafka.source.driver.enumerator import SourceEnumerator
from dynamic_kafka.source.rules.migration import add_marks
from dynamic_kafka.source.rules.placement import follow, place
from dynamic_kafka.source.settings import SourceSettings

PARTITIONS = 2


class Copies(World):
    """The world of `test_histories` with what the records are, and which cluster continues which."""

    def __init__(self) -> None:
        super().__init__(None)
        self.records: dict[tuple[str, int], list[tuple[int, int] | None]] = {}  # id and content; None is a marker
        for name in CLUSTERS:
            self.make_topic(name, "t", PARTITIONS)
            self.records |= {(name, p): [] for p in range(PARTITIONS)}
        self.continues: dict[str, Continues] = {}

    def snapshot(self) -> Snapshot:
        """One stream."""
        return make_snapshot(
            [
                KafkaStream(
                    "s",
                    {
                        name: ClusterMetadata(
                            frozenset(topics),
                            {"bootstrap.servers": f"{name}:9092"},
                            None,
                            None,
                            self.continues.get(name),
                        )
                        for name, topics in self.metadata.items()
                    },
                )
            ]
        )

    def append(self, name: str, partition: int, record: tuple[int, int] | None, time_ms: int) -> None:
        """Add a record or a marker."""
        self.records[name, partition].append(record)
        self.clusters[name].log(KafkaTopicPartition("t", partition)).append(time_ms)


class ModelLog:
    """`RecordLog` over the model."""

    def __init__(self, world: Copies, cluster: Cluster) -> None:
        self._world, self._cluster = world, cluster

    def bounds(self, tp: KafkaTopicPartition) -> tuple[int, int]:
        """Nothing is ever deleted."""
        return 0, len(self._cluster.log(tp))

    def offset_at(self, tp: KafkaTopicPartition, time_ms: int) -> int | None:
        """The first offset that is not older."""
        return next((offset for offset, at_ms in enumerate(self._cluster.log(tp)) if at_ms >= time_ms), None)

    def records(self, tp: KafkaTopicPartition, start: int, end: int) -> Iterator[RecordPrint]:
        """The records of a range."""
        times_ms = self._cluster.log(tp)
        for offset in range(start, min(end, len(times_ms))):
            record = self._world.records[self._cluster.name, tp.partition][offset]
            if record is not None:
                yield RecordPrint(offset, times_ms[offset], str(record[1]), "")

    def syncs(self, topic: str, of: KafkaTopicPartition) -> list[Sync] | None:
        """MirrorMaker is not in use."""
        return None


class MovingView(ModelView):
    """The view with moves and marks."""

    _world: Copies

    def request_moves(
        self, requests: Collection[MoveRequest], clusters: Mapping[str, ClusterOffsets], *, patient: bool
    ) -> bool:
        """Answer at once, what can be answered."""
        answers = {}
        for request in requests:
            new, old = (self._world.clusters[name] for name in (request.cluster, request.old_cluster))
            if new.reachable and (old.reachable or not request.readable):
                log = ModelLog(self._world, old) if request.readable else None
                answers[request] = place(request, log, ModelLog(self._world, new))
        is_new = answers != self._answers.moves
        self._answers.moves = answers
        return is_new

    def add_marks(self, document: Document, standby: Mapping[str, Collection[str]]) -> bool:
        """As the real one, without waiting."""
        added = False
        for name in standby:
            kept, cluster = document.clusters[name], self._world.clusters[name]
            if cluster.reachable:
                for tp, (_, end) in kept.ranges.items():
                    marks = tuple(ModelLog(self._world, cluster).records(tp, 0, end))[-MARKS:]
                    added |= add_marks(kept, tp, Marks(end, marks))
        return added

    def add_anchors(self, document: Document, comparisons: Collection[MoveRequest]) -> bool:
        """As the real one, at once."""
        added = False
        for request in comparisons:
            old, new = (self._world.clusters[name] for name in (request.old_cluster, request.cluster))
            if old.reachable and new.reachable:
                anchor, _ = follow(request, ModelLog(self._world, old), ModelLog(self._world, new), 10**6)
                anchors = document.clusters[request.old_cluster].anchors
                before = anchors.get(request.old_partition)
                if anchor is not None:
                    anchors[request.old_partition] = anchor
                    added |= before is None or before.until < anchor.until
        return added


class Migrations(RuleBasedStateMachine):
    """One query, always read from one place."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Copies()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(enumerator_module, "time", self.world.clock)
        self.settings = SourceSettings(
            service=_never,
            subscriber=StreamSetSubscriber(["s"]),
            starting=KafkaOffsetsInitializer.earliest(),
            cluster_failure_mode="isolate",
            max_offsets_per_trigger=25,
            retention_ms=10**12,
        )
        self.primary, self.copy = "a", ""
        self.way: Way = "records"
        self.ids = 0
        self.log: list[str] = []
        self.written: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}
        self.read: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}
        self.source = self.new_process()

    def new_process(self) -> SourceEnumerator:
        """Spark's reader process, without a memory."""
        source = SourceEnumerator(self.settings)
        source._view = MovingView(self.world, self.settings)  # type: ignore[assignment]
        return source

    def teardown(self) -> None:
        """In the end everything is back, is copied, and is read."""
        try:
            for cluster in self.world.clusters.values():
                cluster.reachable = cluster.active = True
            self.world.service_up = True
            self.copy_all()
            for _ in range(60 + sum(map(len, self.world.records.values())) // 10):
                self.batch()
            assert self.read == self.written, self.source.report()["events"]
            assert not self.batch(), "it does not come to rest"
        finally:
            self.patch.undo()

    @initialize(count=st.integers(0, 5))
    def begin(self, count: int) -> None:
        """A query reads the first cluster."""
        self.world.metadata = {"a": {"t"}}
        self.produce(count, identical=False)
        self.batch()

    @rule(count=st.integers(1, 9), identical=st.booleans())
    def produce(self, count: int, *, identical: bool) -> None:
        """Records arrive; a run of identical ones between two that are not."""
        if not self.world.clusters[self.primary].reachable:
            return
        for p in range(PARTITIONS):
            for i in range(count):
                self.ids += 1
                same = identical and 0 < i < count - 1
                content = -(self.ids - i) if same else self.ids
                self.world.clock.now_ms += 0 if same else 1
                self.world.append(self.primary, p, (self.ids, content), self.world.clock.now_ms)
                self.written[p].append(content)

    @rule(name=st.sampled_from(CLUSTERS), markers=st.integers(0, 3), way=st.sampled_from(["records", "mirror-maker"]))
    def begin_to_copy(self, name: str, markers: int, way: Way) -> None:
        """Another cluster becomes the copy, and stands by; its offsets are others."""
        if self.copy or name == self.primary or not self.world.clusters[name].reachable or not self.has_moved():
            return
        self.copy, self.way = name, way
        for p in range(PARTITIONS):
            for _ in range(markers + p):
                self.world.append(name, p, None, self.world.clock.now_ms)

    def has_moved(self) -> bool:
        """Whether the query reads where records are written. Else the next move would have to wait for this one."""
        clusters = decode(json.loads(self.log[-1])).clusters if self.log else {}
        return self.primary in clusters and len(clusters[self.primary].ranges) == PARTITIONS

    @rule(count=st.integers(1, 20))
    def copy_some(self, count: int) -> None:
        """The copy gets what it does not have yet, in order."""
        if not self.copy or not self.world.clusters[self.primary].reachable:
            return
        for p in range(PARTITIONS):
            has = {record for record in self.world.records[self.copy, p] if record is not None}
            times_ms = self.world.clusters[self.primary].log(KafkaTopicPartition("t", p))
            new = [
                (r, at)
                for r, at in zip(self.world.records[self.primary, p], times_ms, strict=True)
                if r and r not in has
            ]
            for record, at_ms in new[:count]:
                self.world.append(self.copy, p, record, at_ms)

    def copy_all(self) -> None:
        """The copy is complete."""
        self.copy_some(10**6)

    @precondition(lambda self: self.copy)
    @rule()
    def declare(self) -> None:
        """The metadata names the copy beside the cluster that it will continue."""
        self.world.metadata = {self.primary: {"t"}, self.copy: {"t"}}
        self.world.continues = {self.copy: Continues(self.primary, self.way, {"t": "t"})}

    @precondition(lambda self: self.copy)
    @rule(complete=st.booleans(), dead=st.booleans())
    def move(self, complete: bool, dead: bool) -> None:  # noqa: FBT001
        """The metadata names the copy only. Nobody writes until the copy is complete."""
        if not self.world.clusters[self.primary].reachable:
            return
        if complete or dead:
            self.copy_all()
        self.world.metadata = {self.copy: {"t"}}
        self.world.continues = {self.copy: Continues(self.primary, self.way, {"t": "t"})}
        if dead:
            self.world.clusters[self.primary].reachable = self.world.clusters[self.primary].active = False
        for _ in range(3):
            self.batch()
        self.copy_all()
        self.primary, self.copy = self.copy, ""

    @rule(name=st.sampled_from(CLUSTERS))
    def come_back(self, name: str) -> None:
        """A dead cluster answers again."""
        self.world.clusters[name].reachable = self.world.clusters[name].active = True

    @precondition(lambda self: self.log)
    @rule()
    def change_service(self) -> None:
        """The metadata service goes down or comes back. A process that begins meanwhile has only the document."""
        self.world.service_up = not self.world.service_up

    @rule(count=st.integers(1, 3))
    def some_batches(self, count: int) -> None:
        """Some triggers."""
        for _ in range(count):
            self.batch()

    @rule(planned=st.booleans())
    def the_process_dies(self, planned: bool) -> None:  # noqa: FBT001
        """With or without a batch that is logged and not planned."""
        logged = planned and self.next_document()
        self.source = self.new_process()
        if self.log and not logged:
            assert self.source.tasks(*self.last()) == self.new_process().tasks(*self.last())
        elif logged:
            self.read_last()

    def last(self) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """Start and end of the last batch."""
        return json.loads(self.log[-2]) if len(self.log) > 1 else MARKER, json.loads(self.log[-1])

    def batch(self) -> bool:
        """One trigger."""
        if not self.next_document():
            return False
        self.read_last()
        return True

    def next_document(self) -> bool:
        """Ask what comes next, and log it."""
        start = json.loads(self.log[-1]) if self.log else MARKER
        text = json.dumps(self.source.latest_offset(start, limited=True))
        if text == json.dumps(start):
            return False
        assert json.dumps(encode(decode(json.loads(text)))) == text
        self.log.append(text)
        return True

    def read_last(self) -> None:
        """Read what the last batch plans."""
        for task in self.source.tasks(*self.last()):
            for r in task.ranges:
                for record in self.world.records[r.cluster, r.partition][r.start : r.end]:
                    if record is not None:
                        self.read[r.partition].append(record[1])
        for p, values in self.read.items():
            too_often = Counter(values) - Counter(self.written[p])
            assert not too_often, f"partition {p}: read again: {too_often}"


@pytest.mark.hypothesis
def test_every_record_is_read_once_wherever_it_is() -> None:
    """Whatever moves, dies and comes back: nothing is lost, nothing is read twice, and the order of a partition stays."""
    run_state_machine_as_test(Migrations, settings=settings())

"""Random histories of clusters and metadata, read by the real enumerator: no offset is ever skipped or read twice.

The clusters are a small model behind a stand-in for the source view; everything else is the code that runs in production:
the enumerator, `reconcile`, `admission`, the document's text, `planning`. A test's process may die at any time; what
is left then is the log of offset documents, as Spark keeps it.

Views may be late (an old one, or none), partial (a partition without a leader, a topic that the brokers do not show for a
moment or may not show) or absent. A topic that is deleted leaves no record without a word: see `check_told`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from dynamic_kafka.errors import ClusterUnavailableError
from dynamic_kafka.history.formats import Frozen
from dynamic_kafka.history.model import FrozenHistory, HistoryFile
from dynamic_kafka.history.settings import HistorySettings
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.metadata.snapshot import Snapshot, make_snapshot
from dynamic_kafka.metadata.subscriber import StreamSetSubscriber
from dynamic_kafka.observe.reports import Event
from dynamic_kafka.source.document.offsets import (
    MARKER,
    ClusterOffsets,
    Document,
    Packing,
    decode,
    encode,
    topic_id_text,
)
from dynamic_kafka.source.driver import aligner as aligner_module
from dynamic_kafka.source.driver import beginning
from dynamic_kafka.source.driver import enumerator as enumerator_module
from dynamic_kafka.source.driver.aligner import Aligner
from dynamic_kafka.source.driver.enumerator import SourceEnumerator
from dynamic_kafka.source.rules.alignment import TimeAnswer, TimeRequest
from dynamic_kafka.source.rules.desired import desired_cluster, desired_clusters, desired_streams, to_monitor
from dynamic_kafka.source.rules.model import ClusterView, KafkaRow, OffsetAnswers, OffsetRequest, SourceSnapshot
from dynamic_kafka.source.rules.planning import ClusterAccess, Range, ReadTask
from dynamic_kafka.source.rules.record_times import look_up
from dynamic_kafka.source.settings import SourceSettings

CLUSTERS = ("a", "b", "c")
TOPICS = ("t", "u", "v")
LATEST = KafkaOffsetsInitializer.latest()
EARLIEST = KafkaOffsetsInitializer.earliest()

Chain = tuple[str, str, int]
"""Cluster, topic id, partition: what has one log."""


class Clock:
    """Stands in for the module `time`; it moves only when told to."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def time(self) -> float:
        """Wall-clock time in seconds."""
        return self.now_ms / 1000

    def monotonic(self) -> float:
        """The same."""
        return self.now_ms / 1000


@dataclass
class Partition:
    """A log: the time of each record in milliseconds, and the offset before which records were deleted."""

    times_ms: list[int] = field(default_factory=list)
    leader: bool = True
    begin: int = 0


@dataclass
class Topic:
    """A topic and its partitions; made again it is another one."""

    topic_id: str
    partitions: list[Partition] = field(default_factory=lambda: [Partition()])


@dataclass
class Cluster:
    """A cluster: what it holds and hides, and whether it is reachable, answers questions, is slow, is still in use."""

    name: str
    topics: dict[str, Topic] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    reachable: bool = True
    answers: bool = True
    on_time: bool = True
    active: bool = True

    def log(self, tp: KafkaTopicPartition) -> list[int]:
        """The times of a partition's records."""
        return self.topics[tp.topic].partitions[tp.partition].times_ms

    # What an initializer may ask; the names are Flink's.

    @property
    def cluster_id(self) -> str:
        """The cluster's name."""
        return self.name

    def beginning_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """Where the logs begin."""
        return {tp: self.topics[tp.topic].partitions[tp.partition].begin for tp in partitions}

    def end_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The number of records."""
        return {tp: len(self.log(tp)) for tp in partitions}

    def committed_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """No group ever commits."""
        return {}

    def offsets_for_times(self, times_ms: Mapping[KafkaTopicPartition, int]) -> dict[KafkaTopicPartition, int | None]:
        """The first record at or after a time."""
        return {
            tp: next((offset for offset, at_ms in enumerate(self.log(tp)) if at_ms >= time_ms), None)
            for tp, time_ms in times_ms.items()
        }


class World:
    """All clusters, the metadata, and the metadata service's health."""

    def __init__(self, pattern: re.Pattern[str] | None) -> None:
        self.clock = Clock()
        self.pattern = pattern
        self.clusters = {name: Cluster(name) for name in CLUSTERS}
        self.metadata: dict[str, set[str]] = {}
        self.service_up = True
        self._ids = itertools.count()

    def make_topic(self, name: str, topic: str, partitions: int = 1) -> None:
        """Make a topic, in place of the one there may be."""
        topic_id = f"{next(self._ids):011}-and-the-rest"
        self.clusters[name].topics[topic] = Topic(topic_id, [Partition() for _ in range(partitions)])

    def snapshot(self) -> Snapshot:
        """What the metadata service answers: two streams, of which each cluster may serve both."""
        streams: dict[str, dict[str, ClusterMetadata]] = {"even": {}, "odd": {}}
        for name, topics in self.metadata.items():
            for stream, some in (("even", {"t", "v"}), ("odd", {"u"})):
                if topics & some or stream == "even":
                    listed = frozenset(topics & some) if self.pattern is None else frozenset()
                    streams[stream][name] = ClusterMetadata(listed, {"bootstrap.servers": f"{name}:9092"})
        return make_snapshot(KafkaStream(stream, clusters) for stream, clusters in streams.items())


class ModelView:
    """What `SourceView` and its metadata are to the enumerator, over the model; its memory ends with the process."""

    def __init__(self, world: World, settings: SourceSettings) -> None:
        self.metadata = self
        self._world = world
        self._settings = settings
        self.last_views: dict[str, ClusterView] = {}
        self._absent: set[tuple[str, str]] = set()
        self._last_good: Snapshot | None = None
        self._answers = OffsetAnswers()
        self.monitors: dict[str, Any] = {}

    def snapshot(self, previous: Document | None) -> Snapshot | None:
        """The last good answer."""
        if self._world.service_up:
            self._last_good = self._world.snapshot()
        assert previous is not None or self._last_good is not None
        return self._last_good

    def resume(self, document: Document) -> None:
        """The metadata may be down."""

    def access(self, clusters: Mapping[str, ClusterOffsets]) -> dict[str, ClusterAccess]:
        """What the document kept."""
        return {name: ClusterAccess(kept.properties, kept.kafka_id) for name, kept in clusters.items()}

    def rows_at(
        self, cluster: str, _: ClusterOffsets, offsets: Mapping[KafkaTopicPartition, int]
    ) -> dict[KafkaTopicPartition, KafkaRow]:
        """No record is compared, because topics have ids."""
        raise AssertionError((cluster, offsets))

    def with_stand_ins(self, groups: list[list[Range]], document: Document) -> tuple[list[list[Range]], list[str]]:
        """What is planned is read where it was planned."""
        return groups, []

    def collect(self, previous: Document | None, *, at_once: bool) -> SourceSnapshot:
        """As the real one, without waiting."""
        snapshot = self.snapshot(previous)
        clusters = desired_clusters(snapshot, previous)
        known = previous.clusters if previous is not None else {}
        views = {}
        for name in to_monitor(clusters, previous):
            cluster = self._world.clusters[name]
            if cluster.reachable and cluster.on_time:
                self.last_views[name] = self._view(cluster, clusters.get(name), previous)
            if cluster.reachable and name in self.last_views:
                views[name] = self.last_views[name]
        return SourceSnapshot(
            streams=desired_streams(snapshot, previous, clusters),
            desired={
                name: desired_cluster(c, known.get(name), views.get(name), self._settings)
                for name, c in clusters.items()
            },
            views=views,
            fresh=snapshot is not None,
            inactive=frozenset(name for name, c in self._world.clusters.items() if not c.active),
            quiet=_quiet(previous, views),
        )

    def _view(self, cluster: Cluster, metadata: ClusterMetadata | None, previous: Document | None) -> ClusterView:
        asked = set(metadata.topics if metadata is not None else ())
        if previous is not None and cluster.name in previous.clusters:
            asked |= previous.clusters[cluster.name].topics.keys()
        if self._settings.pattern is not None:
            asked |= {name for name in cluster.topics if self._settings.pattern.fullmatch(name)}
        topics = {name: topic for name, topic in cluster.topics.items() if name in asked - cluster.hidden}
        absent = {(cluster.name, topic) for topic in asked - cluster.topics.keys() - cluster.hidden}
        missing = frozenset(topic for _, topic in absent & self._absent)  # for the second time
        self._absent = {key for key in self._absent if key[0] != cluster.name} | absent
        ends = {
            KafkaTopicPartition(name, p): len(partition.times_ms)
            for name, topic in topics.items()
            for p, partition in enumerate(topic.partitions)
            if partition.leader
        }
        last = self.last_views.get(cluster.name)
        last_ends = {} if last is None else {**last.last_ends, **last.ends}
        return ClusterView(
            f"kafka-{cluster.name}",
            {name: topic_id_text(topic.topic_id) for name, topic in topics.items()},
            {name: len(topic.partitions) for name, topic in topics.items()},
            ends,
            missing,
            last_ends={tp: end for tp, end in last_ends.items() if tp not in ends},
        )

    def answers(self) -> OffsetAnswers:
        """All that were given since the last document."""
        return self._answers

    def request_offsets(self, requests: Iterable[OffsetRequest], *, patient: bool) -> bool:
        """Ask the clusters that answer questions at all; waiting for the others makes it late."""
        answered = False
        for request in requests:
            cluster = self._world.clusters[request.cluster]
            if cluster.reachable and cluster.answers and cluster.on_time:
                found = request.initializer.get_partition_offsets(request.partitions, cluster)
                kind = self._answers.start if request.purpose == "start" else self._answers.stop
                kind.update({(request.cluster, tp): offset for tp, offset in found.items()})
                answered = True
        if not answered and patient:
            self._world.clock.now_ms += 60_001
        return answered

    def forget_answers(self, still_open: Collection[OffsetRequest]) -> None:
        """They are in a document now."""
        self._answers = OffsetAnswers()

    def status(self) -> None:
        """The service is not asked."""

    def events(self) -> list[Event]:
        """It reports nothing."""
        return []

    def close(self) -> None:
        """Nothing to close."""


def _quiet(previous: Document | None, views: Mapping[str, ClusterView]) -> set[tuple[str, str]]:
    """Draining topics that have been read to their ends."""
    return {
        (name, topic)
        for name, c in (previous.clusters if previous is not None else {}).items()
        if name in views
        for topic in c.draining
        if all(views[name].ends.get(s, -1) == end for s, (_, end) in c.ranges.items() if s[0] == topic)
    }


def _never() -> InMemoryMetadataService:
    raise AssertionError("the model answers instead")


class History(RuleBasedStateMachine):
    """One query and its world. Subclasses choose the query's options."""

    options: ClassVar[Mapping[str, Any]] = {}
    starting: ClassVar[KafkaOffsetsInitializer] = LATEST
    rows_before: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.options.get("pattern"))
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(enumerator_module, "time", self.world.clock)
        self.settings = SourceSettings(
            service=_never,
            subscriber=StreamSetSubscriber(["even", "odd"]),
            starting=self.starting,
            cluster_failure_mode="isolate",
            fail_on_data_loss=False,
            packing=Packing(records_per_task=400, max_tasks=5),
            **{"retention_ms": 10**12} | dict(self.options),
        )
        self.log: list[str] = []
        self.tasks_of: dict[int, list[ReadTask]] = {}
        self.read: dict[Chain, int] = {}
        self.first_clusters: set[str] = set()
        self.first_start_ms = 0
        self.first_starts: dict[Chain, int] = {}
        self.source = self.new_process()

    def teardown(self) -> None:
        """Every history ends well: heal everything, and read to the ends."""
        try:
            if self.log:
                self.everything_heals_and_is_read()
        finally:
            self.patch.undo()

    def new_process(self) -> SourceEnumerator:
        """Spark's reader process, without a memory."""
        source = SourceEnumerator(self.settings)
        source._view = ModelView(self.world, self.settings)  # type: ignore[assignment]
        return source

    # --- the world ---

    @initialize(
        names=st.sets(st.sampled_from(CLUSTERS), min_size=1),
        topics=st.sets(st.sampled_from(TOPICS), min_size=1),
        count=st.integers(0, 3),
        away=st.sets(st.sampled_from(CLUSTERS)),
    )
    def begin(self, names: set[str], topics: set[str], count: int, away: set[str]) -> None:
        """All clusters hold records; the metadata names some of them, and not all of those can be reached."""
        for name in CLUSTERS:
            for topic in sorted(topics):
                self.world.make_topic(name, topic, 2)
            self.produce(name, count)
        self.world.metadata = {name: set(topics) for name in sorted(names)}
        for name in away:
            self.world.clusters[name].reachable = False
        self.batch()

    @rule(name=st.sampled_from(CLUSTERS), count=st.sampled_from([1, 2, 5, 30]))
    def produce(self, name: str, count: int) -> None:
        """Records arrive in all logs of a cluster, in each as many as it can be told by; time goes on."""
        for i, topic in enumerate(self.world.clusters[name].topics.values()):
            for p, partition in enumerate(topic.partitions):
                self.world.clock.now_ms += 1
                partition.times_ms += [self.world.clock.now_ms] * (count * (i + p + 1) // 2)

    @rule(name=st.sampled_from(CLUSTERS), topic=st.sampled_from(TOPICS), leader=st.booleans())
    def add_partition(self, name: str, topic: str, leader: bool) -> None:  # noqa: FBT001
        """A topic grows; the new partition's leader may not be elected yet."""
        found = self.world.clusters[name].topics.get(topic)
        if found is not None and len(found.partitions) < 4:
            found.partitions.append(Partition(leader=leader))

    @rule(name=st.sampled_from(CLUSTERS), topic=st.sampled_from(TOPICS), batches=st.integers(0, 1))
    def make_again(self, name: str, topic: str, batches: int) -> None:
        """A topic is deleted and made again, shorter."""
        self.world.make_topic(name, topic)
        self.batches(batches)

    @rule(name=st.sampled_from(CLUSTERS), topic=st.sampled_from(TOPICS), batches=st.integers(0, 2))
    def delete(self, name: str, topic: str, batches: int) -> None:
        """A topic is deleted."""
        self.world.clusters[name].topics.pop(topic, None)
        self.batches(batches)

    @rule(name=st.sampled_from(CLUSTERS), topic=st.sampled_from(TOPICS), batches=st.integers(0, 1))
    def hide(self, name: str, topic: str, batches: int) -> None:
        """The brokers do not show a topic for a moment, or show it again."""
        self.world.clusters[name].hidden ^= {topic}
        self.batches(batches)

    @rule(name=st.sampled_from(CLUSTERS), topic=st.sampled_from(TOPICS), partition=st.integers(0, 3))
    def change_leader(self, name: str, topic: str, partition: int) -> None:
        """A partition loses its leader, or gets one."""
        found = self.world.clusters[name].topics.get(topic)
        if found is not None and partition < len(found.partitions):
            found.partitions[partition].leader = not found.partitions[partition].leader

    @rule(
        name=st.sampled_from(CLUSTERS),
        what=st.sampled_from(["reachable", "answers", "on_time", "active"]),
        batches=st.integers(0, 1),
    )
    def change_cluster(self, name: str, what: str, batches: int) -> None:
        """A cluster goes away or comes back, stops answering questions, is slow, or is called inactive."""
        cluster = self.world.clusters[name]
        setattr(cluster, what, not getattr(cluster, what))
        self.batches(batches)

    @rule(name=st.sampled_from(CLUSTERS), topics=st.sets(st.sampled_from(TOPICS)), batches=st.integers(0, 2))
    def change_metadata(self, name: str, topics: set[str], batches: int) -> None:
        """A cluster gets other topics, or comes with them."""
        self.leave(name)
        self.world.metadata[name] = set(topics)
        self.batches(batches)

    @rule(name=st.sampled_from(CLUSTERS))
    def remove_cluster(self, name: str) -> None:
        """A cluster leaves the metadata."""
        self.leave(name)

    @precondition(lambda self: self.log)
    @rule(name=st.sampled_from(CLUSTERS), meanwhile=st.sampled_from(["nothing", "a batch", "inactive", "made again"]))
    def metadata_flaps(self, name: str, meanwhile: str) -> None:
        """n, n - 1, n: with or without a batch, and something else, meanwhile."""
        topics = self.leave(name)
        if meanwhile != "nothing":
            self.world.clusters[name].active = meanwhile != "inactive"
            self.batch()
            self.world.clusters[name].active = True
        if meanwhile == "made again":
            for topic in sorted(self.world.clusters[name].topics):
                self.world.make_topic(name, topic)
        if topics is not None:
            self.world.metadata[name] = topics
        self.batch()

    def leave(self, name: str) -> set[str] | None:
        """Take a cluster out of the metadata; what of it was not met before may now be new, and start at its beginning."""
        self.first_starts = {chain: start for chain, start in self.first_starts.items() if chain[0] != name}
        return self.world.metadata.pop(name, None)

    @precondition(lambda self: self.log)
    @rule()
    def change_service(self) -> None:
        """The metadata service goes down or comes back; a first start needs it."""
        self.world.service_up = not self.world.service_up

    @rule()
    def time_passes(self) -> None:
        """A day."""
        self.world.clock.now_ms += 24 * 3600 * 1000

    # --- Spark ---

    @rule(count=st.integers(1, 3))
    def some_batches(self, count: int) -> None:
        """Some triggers."""
        self.batches(count)

    @rule()
    def the_process_dies(self) -> None:
        """The last batch is planned again in a new process, from the log alone."""
        self.source = self.new_process()
        if self.log:
            self.plan_last()

    @rule()
    def the_process_dies_before_the_batch_is_planned(self) -> None:
        """The document is in the log, and nothing has been read."""
        logged = self.next_document()
        self.source = self.new_process()
        if logged:
            self.plan_last()

    @precondition(lambda self: self.log)
    @rule()
    def everything_heals_and_is_read(self) -> None:
        """Once everything is back, all that is wanted is read to its end, and then there is not one batch more."""
        self.heal()
        self.batch()
        self.batch()
        behind = self.rows_before + sum(
            len(log) - self.read.get((name, topic_id_text(topic.topic_id), p), 0)
            for name, cluster in self.world.clusters.items()
            for topic in cluster.topics.values()
            for p, log in enumerate(q.times_ms for q in topic.partitions)
        )
        limits = [self.settings.max_offsets_per_trigger, *self.settings.cluster_limits.values()]
        least = min([limit for limit in limits if limit is not None], default=10**9)
        for _ in range(behind // least + 5):
            if not self.batch():
                break
        assert not self.batch(), "it does not come to rest"
        self.check_complete(decode(json.loads(self.log[-1])))

    def heal(self) -> None:
        """Everything is back."""
        self.world.service_up = True
        for cluster in self.world.clusters.values():
            cluster.reachable = cluster.answers = cluster.on_time = cluster.active = True
            cluster.hidden.clear()
            for topic in cluster.topics.values():
                for partition in topic.partitions:
                    partition.leader = True

    def batches(self, count: int) -> None:
        """Some triggers."""
        for _ in range(count):
            self.batch()

    def batch(self) -> bool:
        """One trigger; whether there was anything to do."""
        if not self.next_document():
            return False
        self.plan_last()
        return True

    def next_document(self) -> bool:
        """Ask what comes next, and log it."""
        start = json.loads(self.log[-1]) if self.log else MARKER
        if not self.log:
            self.first_clusters = set(self.world.metadata)
            self.first_start_ms = self.world.clock.now_ms
            if self.starting == LATEST:
                self.first_starts = {
                    (name, topic_id_text(topic.topic_id), p): sum(at_ms < self.first_start_ms for at_ms in log.times_ms)
                    for name in self.first_clusters
                    for topic in self.world.clusters[name].topics.values()
                    for p, log in enumerate(topic.partitions)
                }
        text = json.dumps(self.source.latest_offset(start, limited=True))
        if text == json.dumps(start):
            return False
        document = decode(json.loads(text))
        assert json.dumps(encode(document)) == text
        self.check_limits(document)
        self.check_told(decode(start) if self.log else Document(), document)
        self.log.append(text)
        return True

    def plan_last(self) -> None:
        """Plan the last batch, for the first time or again; the same as before, and as any process would."""
        batch = len(self.log) - 1
        start = json.loads(self.log[-2]) if batch else MARKER
        end = json.loads(self.log[-1])
        tasks = self.source.tasks(start, end)
        assert tasks == self.new_process().tasks(start, end)
        first_time = batch not in self.tasks_of
        assert self.tasks_of.setdefault(batch, tasks) == tasks
        if first_time:
            self.read_tasks(tasks, decode(end))

    # --- what must hold ---

    def read_tasks(self, tasks: list[ReadTask], document: Document) -> None:
        """Every range goes on exactly where its chain stands."""
        assert len(tasks) <= document.packing.max_tasks
        planned = [r for task in tasks for r in task.ranges]
        ranges = [r for cluster in document.clusters.values() for r in cluster.ranges.values()]
        assert sum(r.end - r.start for r in planned) == sum(end - start for start, end in ranges)
        assert all(r.start < r.end for r in planned)
        merged: dict[tuple[str, KafkaTopicPartition], tuple[int, int]] = {}
        for r in planned:
            key = r.cluster, KafkaTopicPartition(r.topic, r.partition)
            start, end = merged.setdefault(key, (r.start, r.start))
            assert end == r.start, r
            merged[key] = (start, r.end)
        for name, cluster in document.clusters.items():
            for tp, (start, end) in cluster.ranges.items():
                topic, partition = tp
                chain = (name, cluster.topics[topic], partition)
                if chain not in self.read:
                    assert start <= self.latest_start(name, topic, partition, cluster.topics[topic]), chain
                    assert start >= self.first_starts.get(chain, 0), chain
                assert self.read.setdefault(chain, start) == start, chain
                assert merged.get((name, tp), (start, start)) == (start, end)
                self.read[chain] = end

    def latest_start(self, name: str, topic: str, partition: int, topic_id: str) -> int:
        """The latest offset that the rules let a chain begin with: never after a record written since the first start."""
        found = self.world.clusters[name].topics.get(topic)
        if found is None or topic_id_text(found.topic_id) != topic_id:
            return 10**9  # deleted or made again meanwhile; there is nothing to compare with
        if self.starting == EARLIEST or name not in self.first_clusters:
            return 0
        return sum(at_ms <= self.first_start_ms for at_ms in found.partitions[partition].times_ms)

    def check_limits(self, document: Document) -> None:
        """Never more than the limits say."""
        of_cluster = {
            name: sum(end - start for start, end in c.ranges.values()) for name, c in document.clusters.items()
        }
        assert sum(of_cluster.values()) <= (self.settings.max_offsets_per_trigger or 10**9)
        for name, count in of_cluster.items():
            limit = self.settings.cluster_limits.get(name, self.settings.max_offsets_per_cluster)
            assert limit is None or count <= limit

    def check_told(self, before: Document, after: Document) -> None:
        """A topic only leaves the document with a word, and with a warning unless it is known to be read to its end."""
        told = [event["text"] for event in self.source.report()["events"] if event["level"] == "warning"]
        for name, cluster in before.clusters.items():
            now = after.clusters[name].topics if name in after.clusters else {}
            last = self.source._view.last_views.get(name)  # type: ignore[attr-defined]
            for topic in cluster.topics.keys() - now.keys():
                ends = {} if last is None else {**last.last_ends, **last.ends}
                read = {tp: end for tp, (_, end) in cluster.ranges.items() if tp.topic == topic}
                if any(tp not in ends or ends[tp] > end for tp, end in read.items()):
                    assert any(f"'{name}', topic '{topic}'" in text and " was " in text for text in told), told

    def check_complete(self, document: Document) -> None:
        """At rest each wanted log has been read to its end, and nothing else is held."""
        for name, topics in self.world.metadata.items():
            cluster, state = self.world.clusters[name], document.clusters[name]
            assert state.topics.keys() == cluster.topics.keys() & topics
            assert not state.unresolved
            for topic in state.topics:
                found = cluster.topics[topic]
                for p, partition in enumerate(found.partitions):
                    tp = KafkaTopicPartition(topic, p)
                    start, end = state.ranges[tp]
                    assert end == self.expected_end(state.stops.get(tp), start, len(partition.times_ms))
                    assert self.read[name, topic_id_text(found.topic_id), p] == end
        for name in document.clusters.keys() - self.world.metadata.keys():
            assert not document.clusters[name].topics

    def expected_end(self, stop: int | None, start: int, log_end: int) -> int:
        """Without stops: where the log ends."""
        assert stop is None
        return log_end


class WithLimits(History):
    """Small limits: many batches for each state of the world."""

    options: ClassVar[Mapping[str, Any]] = {
        "max_offsets_per_trigger": 7,
        "max_offsets_per_cluster": 5,
        "cluster_limits": {"a": 3},
    }
    starting = EARLIEST


class WithLimitOne(History):
    """The least limit."""

    options: ClassVar[Mapping[str, Any]] = {"max_offsets_per_trigger": 1}


class Draining(History):
    """What is removed is read to its end first."""

    options: ClassVar[Mapping[str, Any]] = {"drain": True, "max_offsets_per_trigger": 20}


class Bounded(History):
    """Every log has a stop, which is found once."""

    options: ClassVar[Mapping[str, Any]] = {"stopping": LATEST, "max_offsets_per_trigger": 20}
    starting = EARLIEST

    def read_tasks(self, tasks: list[ReadTask], document: Document) -> None:
        """Nothing is read beyond its stop."""
        super().read_tasks(tasks, document)
        for cluster in document.clusters.values():
            assert all(end <= cluster.stops[tp] for tp, (start, end) in cluster.ranges.items() if end > start)

    def check_complete(self, document: Document) -> None:
        """At rest the document says so."""
        super().check_complete(document)
        assert bool(document.done) == bool(self.world.metadata)

    def expected_end(self, stop: int | None, start: int, log_end: int) -> int:
        """With stops: there, unless reading began behind it."""
        assert stop is not None
        assert stop <= log_end
        return max(stop, start)


class ModelMonitor:
    """What a cluster monitor is to watermark alignment."""

    failing_for_s = None
    error = None
    commits = SimpleNamespace(succeeded=0, failed=0)

    def __init__(self, world: World, name: str) -> None:
        self._world, self._cluster = world, world.clusters[name]
        self._found: list[tuple[TimeRequest, TimeAnswer]] = []

    def request_times(self, request: TimeRequest) -> int:
        """Answer at once, or never."""
        cluster = self._cluster
        if cluster.reachable and cluster.answers and cluster.on_time:
            answer = look_up(cluster.offsets_for_times, request, now_ms=self._world.clock.now_ms)
            self._found.append((request, answer))
        return 0

    def wait(self, _ticket: int, _deadline: float) -> bool:
        """A call that fails has been served, too."""
        return True

    def take_times(self) -> list[tuple[TimeRequest, TimeAnswer]]:
        """The answers."""
        found, self._found = self._found, []
        return found


class Aligned(History):
    """Partitions wait for each other by the times of their records, and never for ever."""

    options: ClassVar[Mapping[str, Any]] = {
        "alignment_group": "g",
        "alignment_max_drift_ms": 3,
        "max_offsets_per_trigger": 20,
    }
    starting = EARLIEST

    def new_process(self) -> SourceEnumerator:
        """With monitors that know the times of records."""
        self.patch.setattr(aligner_module, "time", self.world.clock)
        source = super().new_process()
        source._view.monitors = {name: ModelMonitor(self.world, name) for name in CLUSTERS}  # type: ignore[misc]
        source._aligner = Aligner(self.settings, source._view)
        return source

    def batch(self) -> bool:
        """If all is held back, time goes on until nobody waits for what brings no records."""
        before = decode(json.loads(self.log[-1])).frontier_ms if self.log else None
        done = super().batch()
        if not done:
            self.world.clock.now_ms += self.settings.idle_timeout_ms + 1
            done = super().batch()
        after = decode(json.loads(self.log[-1])).frontier_ms if self.log else None
        assert before is None or (after is not None and after >= before)
        return done

    def heal(self) -> None:
        """All is read, in more batches than the limit needs."""
        super().heal()
        for _ in range(10_000):
            if not self.batch():
                break


class AlignedDraining(Aligned):
    """What is removed is read to its end, and nobody waits for it for ever."""

    options: ClassVar[Mapping[str, Any]] = {**Aligned.options, "drain": True, "max_offsets_per_trigger": None}


class AlignedBounded(Aligned, Bounded):
    """Every log has a stop: nobody waits for more behind it."""

    options: ClassVar[Mapping[str, Any]] = {**Aligned.options, "stopping": LATEST}


class Pattern(History):
    """Topics by name, and nothing is retained: what is cut is read again from its start."""

    options: ClassVar[Mapping[str, Any]] = {
        "pattern": re.compile("[tuv]"),
        "retention_ms": 0,
        "max_offsets_per_trigger": 20,
    }
    # By `latest`, a topic that the first look does not show cannot be told from one that is made later.
    starting = EARLIEST

    def change_metadata(self, name: str, topics: set[str], batches: int) -> None:
        """The metadata names the same clusters all the time: only the clusters say which topics there are."""

    def remove_cluster(self, name: str) -> None:
        """As above."""

    def metadata_flaps(self, name: str, meanwhile: str) -> None:
        """As above."""

    def change_service(self) -> None:
        """The service of a single cluster is never down."""

    def check_complete(self, document: Document) -> None:
        """All topics of the named clusters match."""
        self.world.metadata = {name: set(TOPICS) for name in self.world.metadata}
        super().check_complete(document)


class BoundedPattern(Pattern, Bounded):
    """The stops stay, however late the views are."""

    options: ClassVar[Mapping[str, Any]] = {**Pattern.options, "stopping": LATEST}


class AfterFiles(History):
    """Files are read first. They have the first half of some logs, each of which goes on after that, whenever it comes."""

    options: ClassVar[Mapping[str, Any]] = {
        "max_offsets_per_trigger": 4,
        "history": HistorySettings("/h", "parquet", "coordinates", None, ""),
    }
    starting = EARLIEST
    rows_before = 11

    def __init__(self) -> None:
        super().__init__()
        self.continued: dict[Chain, int] = {}
        self.rows_read = 0
        self.patch.setattr(beginning, "freeze", self.freeze)

    def freeze(self, _: HistorySettings) -> Frozen:
        """Some files, made from the clusters that answer."""
        files = tuple(HistoryFile(f"f{i}", 1, 1, 1, rows) for i, rows in enumerate([(3, 2), (), (6,)]))
        largest = {
            (name, topic, p): len(partition.times_ms) // 2 - 1
            for name, cluster in self.world.clusters.items()
            if cluster.reachable
            for topic, found in cluster.topics.items()
            for p, partition in enumerate(found.partitions)
            if len(partition.times_ms) > 1
        }
        self.continued = {
            (name, topic_id_text(self.world.clusters[name].topics[topic].topic_id), p): offset + 1
            for (name, topic, p), offset in largest.items()
        }
        ids = {
            name: {
                "id": f"kafka-{name}",
                "topics": {topic: topic_id_text(found.topic_id) for topic, found in cluster.topics.items()},
            }
            for name, cluster in self.world.clusters.items()
        }
        self.first_starts = dict(self.continued)
        return Frozen(FrozenHistory("/h", "parquet", "3 files", self.rows_before, files), largest, ids, [])

    def next_document(self) -> bool:
        """All clusters have to answer first, also with `isolate`."""
        if not self.log and not all(self.world.clusters[name].reachable for name in self.world.metadata):
            with pytest.raises(ClusterUnavailableError, match="cannot be proved where Kafka goes on"):
                super().next_document()
            self.heal()
            self.source = self.new_process()
        return super().next_document()

    def latest_start(self, name: str, topic: str, partition: int, topic_id: str) -> int:
        """Behind what the files have."""
        return self.continued.get((name, topic_id, partition), super().latest_start(name, topic, partition, topic_id))

    def read_tasks(self, tasks: list[ReadTask], document: Document) -> None:
        """Rows come in order, none twice, and nothing from Kafka before the last one."""
        super().read_tasks(tasks, document)
        rows = [p for task in tasks if task.history is not None for p in task.history.pieces]
        assert document.history is not None
        start, end = document.history.range
        assert start == self.rows_read
        assert sum(p.last - p.first for p in rows) == end - start <= 4
        assert not (rows and any(task.ranges for task in tasks))
        if any(task.ranges for task in tasks):
            assert end == self.rows_before
        self.rows_read = end

    def check_complete(self, document: Document) -> None:
        """At rest all rows were read."""
        super().check_complete(document)
        assert self.rows_read == self.rows_before


class BoundedAfterFiles(AfterFiles, Bounded):
    """It is done when the files and all logs were read, and not before."""

    options: ClassVar[Mapping[str, Any]] = {**AfterFiles.options, "stopping": LATEST}

    def read_tasks(self, tasks: list[ReadTask], document: Document) -> None:
        """As above."""
        super().read_tasks(tasks, document)
        assert not document.done or self.rows_read == self.rows_before


@pytest.mark.hypothesis
@pytest.mark.parametrize(
    "history",
    [
        *(History, WithLimits, WithLimitOne, Draining, Bounded, Pattern, BoundedPattern),
        *(AfterFiles, BoundedAfterFiles, Aligned, AlignedDraining, AlignedBounded),
    ],
)
def test_every_offset_is_planned_once_and_in_order(history: type[History]) -> None:
    """Whatever happens to clusters, metadata and processes, each log is read once, from its resolved start on."""
    run_state_machine_as_test(history, settings=settings())


def test_a_split_whose_stop_is_not_known_waits() -> None:
    """It came back with its position, its cluster does not say where to stop: reading on might go beyond."""
    history = Bounded()
    try:
        history.begin(names={"a"}, topics={"t"}, count=1, away=set())
        history.produce("a", 5)
        history.leave("a")
        history.batch()
        history.world.metadata["a"] = {"t"}
        history.world.clusters["a"].answers = False
        history.batch()
        history.produce("a", 5)
        history.batch()
    finally:
        history.teardown()


def test_a_topic_that_is_hidden_before_its_first_offsets_are_known() -> None:
    """It keeps the time of the first start: with `latest`, nothing before that is read once it is shown again."""
    history = History()
    try:
        history.begin(names={"a", "b"}, topics={"t"}, count=1, away={"b"})
        history.remove_cluster("a")
        history.change_cluster("b", "answers", 0)
        history.change_cluster("b", "reachable", 1)
        history.hide("b", "t", 0)
        history.the_process_dies_before_the_batch_is_planned()
    finally:
        history.teardown()

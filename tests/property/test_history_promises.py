"""Random histories over random logs: a promise of `exact` holds, and nothing else is called so.

The files are real Parquet files with random overlaps, gaps, orders and times. The logs have markers and deleted beginnings,
and a topic may have been made anew after the history was written. Whatever was lost, repeated, or read out of order, the
promise must not be exact.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.histories import write
from tests.property.test_histories import CLUSTERS, ModelView, Partition, World

from dynamic_kafka.continuation import Continues
from dynamic_kafka.errors import OffsetResolutionError
from dynamic_kafka.history.model import HistoryFile, HistoryGap, HistoryTask, pieces
from dynamic_kafka.history.reader import read_history
from dynamic_kafka.history.settings import HistorySettings
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.metadata.snapshot import Snapshot, make_snapshot
from dynamic_kafka.metadata.subscriber import StreamSetSubscriber
from dynamic_kafka.rows import COLUMNS, arrow_schema
from dynamic_kafka.source.document.document import ClusterOffsets, Document
from dynamic_kafka.source.document.offsets import MARKER, Packing, decode
from dynamic_kafka.source.document.promise import Verdict
from dynamic_kafka.source.driver.enumerator import SourceEnumerator
from dynamic_kafka.source.rules.model import KafkaRow
from dynamic_kafka.source.settings import SourceSettings

SCHEMA = arrow_schema(COLUMNS)


class Record(NamedTuple):
    """A record, and where it is."""

    cluster: str
    partition: int
    offset: int
    value: bytes


class Logs(World):
    """Logs of which some offsets have no record."""

    def __init__(self) -> None:
        super().__init__(None)
        self.markers: set[tuple[str, int, int]] = set()
        self.copy = False

    def snapshot(self) -> Snapshot:
        """The metadata, in which `b` may continue `a`."""
        if not self.copy:
            return super().snapshot()
        clusters = {
            name: ClusterMetadata(
                frozenset(topics),
                {"bootstrap.servers": f"{name}:9092"},
                continues=Continues("a", "records") if name == "b" else None,
            )
            for name, topics in self.metadata.items()
        }
        return make_snapshot([KafkaStream("even", clusters)])

    def row(self, name: str, tp: KafkaTopicPartition, offset: int) -> KafkaRow:
        """A record that only this topic has."""
        topic = self.clusters[name].topics[tp.topic]
        value = f"{topic.topic_id}-{tp.partition}-{offset}".encode()
        return KafkaRow(topic.partitions[tp.partition].times_ms[offset], None, value)

    def has(self, name: str, tp: KafkaTopicPartition, offset: int) -> bool:
        """Whether there is a record at an offset."""
        log = self.clusters[name].topics[tp.topic].partitions[tp.partition]
        return log.begin <= offset < len(log.times_ms) and (name, tp.partition, offset) not in self.markers

    def record(self, name: str, partition: int, offset: int) -> Record:
        """The record at an offset."""
        row = self.row(name, KafkaTopicPartition("t", partition), offset)
        assert row.value is not None
        return Record(name, partition, offset, row.value)

    def all(self) -> Iterator[Record]:
        """All records that are there now, of the clusters in the metadata."""
        for name in self.metadata:
            for p, log in enumerate(self.clusters[name].topics["t"].partitions):
                for offset in range(log.begin, len(log.times_ms)):
                    if self.has(name, KafkaTopicPartition("t", p), offset):
                        yield self.record(name, p, offset)


class View(ModelView):
    """The view of a query on these logs."""

    def rows_at(
        self, cluster: str, _: ClusterOffsets, offsets: Mapping[KafkaTopicPartition, int]
    ) -> dict[KafkaTopicPartition, KafkaRow]:
        """Those that exist."""
        world = self._world
        assert isinstance(world, Logs)
        return {tp: world.row(cluster, tp, at) for tp, at in offsets.items() if world.has(cluster, tp, at)}


def never() -> InMemoryMetadataService:
    """The model answers instead."""
    raise AssertionError


def query_of(world: World, path: Path, limit: int | None) -> SourceEnumerator:
    """A query on a history and the logs."""
    columns = tuple(COLUMNS)
    settings = SourceSettings(
        service=never,
        subscriber=StreamSetSubscriber(["even"]),
        starting=KafkaOffsetsInitializer.earliest(),
        fail_on_data_loss=False,
        max_offsets_per_trigger=limit,
        history=HistorySettings(str(path), "parquet", "coordinates", None, "", columns),
        packing=Packing(records_per_task=400),
    )
    source = SourceEnumerator(settings)
    source._view = View(world, settings)  # type: ignore[assignment]
    return source


def read_batch(world: Logs, document: Document) -> Iterator[Record]:
    """The rows of a batch in the order of the history, and then of the logs."""
    stage = document.history
    assert stage is not None
    for piece in pieces(stage.history, *stage.range):
        if isinstance(piece.file, HistoryFile):
            task = HistoryTask(stage.history, [piece])
            for batch in read_history(task, SCHEMA, fail_on_data_loss=True):
                for row in batch.to_pylist():
                    yield Record(row["cluster"], row["partition"], row["offset"], row["value"])
        else:
            gap: HistoryGap = piece.file
            tp = KafkaTopicPartition(gap.topic, gap.partition)
            for offset in range(gap.start + piece.first, gap.start + piece.last):
                if world.has(gap.cluster, tp, offset):
                    yield world.record(gap.cluster, gap.partition, offset)
    for name, cluster in document.clusters.items():
        for tp, (start, end) in cluster.ranges.items():
            for offset in range(start, end):
                if world.has(name, tp, offset):
                    yield world.record(name, tp.partition, offset)


def run(source: SourceEnumerator, world: Logs, log: list[Any]) -> tuple[Verdict, list[Record]]:
    """Read until nothing comes any more; the promise, and the rows."""
    rows: list[Record] = []
    while True:
        end = source.latest_offset(log[-1], limited=True)
        if end == log[-1]:
            break
        log.append(json.loads(json.dumps(end)))
        document = decode(log[-1])
        batch = list(read_batch(world, document))
        planned = source.tasks(log[-2], log[-1])
        assert document.history is not None
        for task in planned:
            assert len({(r.cluster, r.topic, r.partition) for r in task.ranges}) == len(task.ranges)
        ranged = sum(r.end - r.start for task in planned for r in task.ranges)
        filed = sum(p.last - p.first for task in planned if task.history for p in task.history.pieces)
        all_ranges = (r for c in document.clusters.values() for r in c.ranges.values())
        in_stage = document.history.range[1] - document.history.range[0]
        assert ranged + filed == in_stage + sum(end - start for start, end in all_ranges)
        rows += batch
    history = decode(log[-1]).history
    assert history is not None
    return history.promise.verdict, rows


def in_order(rows: list[Record]) -> bool:
    """Whether the rows of each partition are in the order of their offsets."""
    last: dict[tuple[str, int], int] = {}
    for row in rows:
        if last.get(row[:2], -1) >= row.offset:
            return False
        last[row[:2]] = row.offset
    return True


def make_logs(draw: st.DataObject, faults: set[str]) -> Logs:
    """Two clusters with a topic of two partitions each, of which some offsets are markers."""
    world = Logs()
    for name in ("a", "b"):
        world.make_topic(name, "t", 2)
        for p, log in enumerate(world.clusters[name].topics["t"].partitions):
            steps = draw.draw(st.lists(st.sampled_from([0, 1, 1, 1, 50, -40]), min_size=3, max_size=20), f"{name}{p}")
            at_ms = 1_000
            for step in steps:
                at_ms += step
                log.times_ms.append(at_ms)
            markers = draw.draw(st.sets(st.integers(0, len(steps) - 1), max_size=2)) if "markers" in faults else set()
            world.markers |= {(name, p, offset) for offset in markers}
    return world


def write_history(draw: st.DataObject, world: Logs, folder: Path, faults: set[str]) -> list[Record]:
    """Files with pieces of the logs, in any order; the records in them."""
    chunks: list[list[Record]] = []
    for name in ("a", "b"):
        for p, log in enumerate(world.clusters[name].topics["t"].partitions):
            end = draw.draw(st.integers(0, len(log.times_ms)))
            cuts = sorted(draw.draw(st.sets(st.integers(0, end), max_size=3)) | {0, end})
            for start, stop in itertools.pairwise(cuts):
                fault = draw.draw(st.sampled_from(["", *sorted(faults)]), f"{name}{p}:{start}-{stop}")
                first = max(0, start - 2) if fault == "overlap" else start
                offsets = [o for o in range(first, stop) if world.has(name, KafkaTopicPartition("t", p), o)]
                if offsets and fault != "gone":
                    chunk = [world.record(name, p, offset) for offset in offsets]
                    chunks.append(chunk[::-1] if fault == "turned" else chunk)
    order = draw.draw(st.permutations(range(len(chunks))))
    size = draw.draw(st.integers(1, 2))
    statistics = draw.draw(st.booleans())
    for number in range(0, len(chunks), size):
        some = [record for i in order[number : number + size] for record in chunks[i]]
        rows = [
            {
                "value": record.value,
                "topic": "t",
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": world.clusters[record.cluster]
                .topics["t"]
                .partitions[record.partition]
                .times_ms[record.offset]
                * 1000,
                "cluster": record.cluster,
            }
            for record in some
        ]
        write(folder / f"{number:02}.parquet", rows, row_group_size=5, write_statistics=statistics)
    return [record for chunk in chunks for record in chunk]


@given(draw=st.data())
def test_an_exact_promise_holds(draw: st.DataObject) -> None:
    """Every record of the history, of Kafka, and of what there was before, comes once and in order."""
    kinds = ["markers", "overlap", "gone", "turned", "deleted", "made anew"]
    faults = draw.draw(st.sets(st.sampled_from(kinds), max_size=3), "faults")
    world = make_logs(draw, faults)
    before = {record for name in ("a", "b") for record in _with(world, name)}
    world.metadata = {"a": {"t"}, "b": {"t"}}
    with TemporaryDirectory() as folder:
        kept = write_history(draw, world, Path(folder), faults)
        if not kept:
            return
        for name in ("a", "b"):
            for p, log in enumerate(world.clusters[name].topics["t"].partitions):
                latest = len(log.times_ms) if "deleted" in faults else 0
                log.begin = draw.draw(st.integers(0, latest), f"{name}{p} begins")
        if "made anew" in faults:
            old = world.clusters["a"].topics["t"].partitions
            world.make_topic("a", "t", 2)
            lengths = [len(log.times_ms) + draw.draw(st.integers(-3, 5)) for log in old]
            anew = [Partition([9_000] * max(length, 0)) for length in lengths]
            world.clusters["a"].topics["t"].partitions = anew
        later = draw.draw(st.booleans(), "b later")
        if later:
            del world.metadata["b"]
        source = query_of(world, Path(folder), draw.draw(st.sampled_from([None, 3])))
        documents: list[Any] = [dict(MARKER)]
        try:
            verdict, rows = run(source, world, documents)
        except OffsetResolutionError:
            event("refused")
            return  # nothing was read
        if later:
            world.metadata["b"] = {"t"}
            rows += run(source, world, documents)[1]
        wanted = {*kept, *world.all()}
        first: dict[tuple[str, int], int] = {}
        for record in kept:
            first[record[:2]] = min(record.offset, first.get(record[:2], record.offset))
        wanted |= {record for record in before if record[:2] in first and record.offset >= first[record[:2]]}
        if later:  # what Kafka has of it is not known at the start
            wanted = {record for record in wanted if record.cluster == "a" or record in kept}
            rows = [row for row in rows if row.cluster == "a" or row in wanted]
        event(verdict)
        if Counter(rows) != Counter(wanted) or not in_order(rows):
            event("wrong")
            assert verdict != "exact", (sorted(set(wanted) - set(rows)), Counter(rows) - Counter(wanted))


@given(moved=st.integers(0, 40), end=st.integers(0, 50), begin=st.integers(0, 50))
def test_rows_that_come_from_a_cluster_and_its_copy_are_not_called_exact(moved: int, end: int, begin: int) -> None:
    """The rows of `a` are on `b`, too, and only `b` is read: compared by value."""
    world = Logs()
    for name in ("a", "b"):
        world.make_topic(name, "t", 1)
        world.clusters[name].topics["t"].partitions[0].times_ms = list(range(1000, 1060))
    world.clusters["b"].topics["t"].partitions[0].begin = min(begin, max(moved, end))
    world.metadata, world.copy = {"b": {"t"}}, True
    chunks = {"a": range(moved), "b": range(moved, max(moved, end))}
    with TemporaryDirectory() as folder:
        for name, offsets in chunks.items():
            found = [
                {"value": b"%d" % o, "topic": "t", "partition": 0, "offset": o, "timestamp": 1000 * (1000 + o)}
                for o in offsets
            ]
            if found:
                write(Path(folder, f"{name}.parquet"), [{**row, "cluster": name} for row in found])
        if not any(chunks.values()):
            return
        world.row = lambda name, tp, offset: KafkaRow(1000 + offset, None, b"%d" % offset)  # type: ignore[method-assign]
        verdict, rows = run(query_of(world, Path(folder), None), world, [dict(MARKER)])
    values = Counter(row.value for row in rows)
    if moved:
        assert verdict != "exact"
    if moved and chunks["b"]:
        assert set(values.values()) == {1}
    assert set(values) >= {b"%d" % o for o in range(max(moved, end), 60)}


def _with(world: Logs, name: str) -> Iterator[Record]:
    world.metadata = {name: {"t"}}
    return world.all()


@pytest.mark.parametrize(("limit", "times"), [(None, True), (7, True), (7, False)])
def test_a_whole_history_is_exact(tmp_path: Path, limit: int | None, *, times: bool) -> None:
    """With gaps that Kafka still has, whatever the names of the files; a cluster that comes later goes on, too.

    Without times and topic ids nothing shows that Kafka's topics are those of the history.
    """
    world = Logs()
    for name in CLUSTERS[:2]:
        world.make_topic(name, "t", 2)
        for log in world.clusters[name].topics["t"].partitions:
            log.times_ms = list(range(1000, 1060))
    world.metadata = {"a": {"t"}}
    files: list[tuple[str, str, int, range]] = [
        ("d", "a", 0, range(20)),
        ("c", "a", 0, range(25, 40)),
        ("b", "a", 1, range(30)),
        ("a", "b", 0, range(10, 40)),
        ("0", "b", 0, range(10)),
    ]
    for file, name, p, offsets in files:
        found = [world.record(name, p, offset) for offset in offsets]
        rows = [{"value": r.value, "topic": "t", "partition": p, "offset": r.offset, "cluster": name} for r in found]
        if times:
            rows = [{**row, "timestamp": 1000 * (1000 + r.offset)} for row, r in zip(rows, found, strict=True)]
        write(tmp_path / f"{file}.parquet", rows)
    source = query_of(world, tmp_path, limit)
    documents: list[Any] = [dict(MARKER)]
    verdict, rows_read = run(source, world, documents)
    assert verdict == ("exact" if times else "not proved")
    world.metadata["b"] = {"t"}
    rows_read += run(source, world, documents)[1]
    assert Counter(rows_read) == Counter(world.all())
    assert in_order(rows_read)

"""Faults of copies that take over: early producers, mirrors that repeat, and clusters that return with rows of their own.

A cluster's topic is mirrored to another cluster, which then takes its place (`continues`, by the same records). Who gets
another word than `exact` has been told, and a position may wait. But where all positions are `exact`, each row has to be
there once: everything else is a broken promise. The same holds for an archive that a query reads before Kafka. Each fault
ends with a new world.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
from confluent_kafka import Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from dynamic_kafka.errors import ArchiveError
from dynamic_kafka.files import open_files
from dynamic_kafka.history.archive import log
from dynamic_kafka.history.archive.data import write_parts
from dynamic_kafka.history.archive.model import Archive, PartitionKey
from dynamic_kafka.history.archive.plan import batch_of, plan_batch
from dynamic_kafka.source.document.offsets import topic_id_text
from tests.brokers import to_the_end
from tests.chaos.declared import Outcome, fault
from tests.chaos.world import World

_PARTITIONS = (0, 1)
_STANDS_BY_S = 4.0
_MOVES_S = 60.0

_ARCHIVED = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("cluster", pa.string()),
    ]
)

TOLD = Outcome(
    "each row is there once where the move is called `exact`; else the words say that it is not, or it waits"
)


class _Mirror:
    """Copies a topic to another cluster, with times and headers, as a mirror does.

    Args:
        source: Address and topic.
        target: Address and topic.
    """

    def __init__(self, source: tuple[str, str], target: tuple[str, str]) -> None:
        self._source, self._target = source, target
        self._next = dict.fromkeys(_PARTITIONS, 0)

    def skip(self) -> None:
        """Leave out all that is there now."""
        self.read()

    def copy(self, *, again: int = 0) -> None:
        """Copy what is new, and some of the last records before it again."""
        self._next = {partition: max(0, offset - again) for partition, offset in self._next.items()}
        producer = Producer({"bootstrap.servers": self._target[0], "message.max.bytes": 15_000_000, "log_level": 0})
        for message in self.read():
            producer.produce(
                self._target[1],
                key=message.key(),
                value=message.value(),
                partition=message.partition() or 0,
                timestamp=message.timestamp()[1],
                headers=message.headers() or [],
            )
        assert not producer.flush(60)

    def read(self) -> list[Message]:
        """Read what is new."""
        address, topic = self._source
        found = list(to_the_end(address, [TopicPartition(topic, p, offset) for p, offset in self._next.items()]))
        for message in found:
            self._next[message.partition() or 0] = (message.offset() or 0) + 1
        return found


class _Move:
    """A move of what cluster `c` has to cluster `b`.

    Args:
        world: The world.
        topic: The topic on `b`.
    """

    def __init__(self, world: World, topic: str) -> None:
        self._world, self.topic = world, topic
        self._before = world.inputs
        old, new = (world.c.bootstrap_servers, world.inputs["c"].topic), (world.b.bootstrap_servers, topic)
        self.there, self.back = _Mirror(old, new), _Mirror(new, old)
        self._new = replace(world.inputs["b"], topic=topic, continues=("c", world.inputs["c"].topic))

    def write(self, rows: int, *, early: bool = False) -> None:
        """Write rows to the old cluster, or to the new one."""
        self._world.feeder.write("b" if early else "c", rows, topic=self.topic if early else self._before["c"].topic)
        self._world.feeder.flush("b" if early else "c")

    def announce(self) -> None:
        """List the new cluster beside the old one."""
        self._list({**self._before, "moved": self._new})

    def take_over(self) -> None:
        """List the new cluster alone."""
        self._list({"b": self._before["b"], "moved": self._new})

    def return_(self) -> None:
        """List the old cluster again, which continues the new one."""
        returned = replace(self._before["c"], continues=("moved", self.topic))
        self._list({"b": self._before["b"], "c": returned})

    def _list(self, inputs: dict[str, object]) -> None:
        others = {name: entry for name, entry in self._before.items() if name not in {"b", "c"}}
        self._world.inputs = {**others, **inputs}  # type: ignore[dict-item]
        self._world.write_metadata()


@contextmanager
def _move(world: World) -> Iterator[_Move]:
    """Mirror a topic in the block. After it, see whether what was promised is there, and begin anew."""
    if len(world.c.partitions(world.inputs["c"].topic)) != len(_PARTITIONS):  # an earlier fault has changed it
        world.renew()
        world.wait_for_rows()
    topic = f"moved-{world.feeder.next}"
    world.b.create_topic(topic, len(_PARTITIONS), {"max.message.bytes": "12000000"})
    before = world.query.promised()
    with world.feeder.quiet("c"):
        world.settle()
        move = _Move(world, topic)
        move.there.copy()
        move.announce()
        yield move
        _compare(world, before)
    world.renew()
    world.wait_for_rows()


def _compare(world: World, before: dict[str, str]) -> None:
    """Compare what was promised since then with the books."""
    mark = world.feeder.next
    try:
        world.wait_published(mark, _MOVES_S)
    except TimeoutError:
        world.say("  it waits, or rows are missing")
    words = {place: word for place, word in world.query.promised().items() if before.get(place) != word}
    goes_on = world.ledger.goes_on(mark)
    balance = world.balance(mark)
    world.say(f"  promised {words}; {len(balance.lost)} rows missing, {len(balance.twice)} twice")
    if not words:
        world.say("  nothing was promised, so there is nothing to compare")
    if balance.lost and not goes_on:
        world.broken.append("nothing is read any more, so nothing is known of the promise")
    elif (balance.lost or balance.twice) and words and set(words.values()) == {"exact"}:
        world.broken.append(f"{len(balance.lost)} rows lost and {len(balance.twice)} twice under a promise of exact")


def _on_the_mirror(move: _Move) -> Iterator[float]:
    """Let the mirror take over, and write to it."""
    move.take_over()
    yield _STANDS_BY_S
    move.write(20, early=True)
    yield _STANDS_BY_S


@fault(TOLD)
def producer_moves_early(world: World) -> Iterator[float]:
    """A topic is mirrored and moves to the mirror, where one producer writes before the others."""
    with _move(world) as move:
        yield _STANDS_BY_S
        move.write(20)
        move.there.copy()
        move.write(3, early=True)
        move.write(120)
        move.there.copy()
        yield from _on_the_mirror(move)


@fault(TOLD)
def mirror_repeats_its_tail(world: World) -> Iterator[float]:
    """A topic is mirrored and moves to the mirror, which has copied its last ten records again."""
    with _move(world) as move:
        yield _STANDS_BY_S
        move.write(80)
        move.there.copy()
        move.there.copy(again=10)
        yield from _on_the_mirror(move)


@fault(TOLD)
def cluster_returns_with_rows_of_its_own(world: World) -> Iterator[float]:
    """A cluster fails with rows that nobody has read or copied, its mirror takes over, and later it returns with them."""
    with _move(world) as move:
        move.write(60)
        move.there.copy()
        world.settle()
        yield _STANDS_BY_S
        world.c.cut()
        move.write(7)
        move.there.skip()
        move.take_over()
        yield 2 * _STANDS_BY_S
        move.back.skip()
        move.write(80, early=True)
        yield 2 * _STANDS_BY_S
        world.c.restore()
        move.back.copy()
        move.return_()
        yield 2 * _STANDS_BY_S
        move.write(20)
        yield _STANDS_BY_S


@fault(
    Outcome(
        "each row is there once where the switch is called exact; else the words say that it is not, or it stops with them",
        error="ArchiveError|HistoryError|ConfigurationError",
    )
)
def gap_in_an_archive(world: World) -> Iterator[float]:
    """A query begins with an archive that lacks offsets which Kafka still has, and goes on with Kafka."""
    before = world.query.promised()
    path = str(world.folder / f"archive-{world.feeder.next}")

    def archive() -> None:
        for partition in _PARTITIONS:
            world.feeder.write("c", 150, partition=partition)
        world.feeder.flush("c")
        _write_archive(world, path, ((0, 30), (50, 60)))
        world.source["history.path"] = path
        del world.source["startingOffsets"]  # the archive says where Kafka goes on

    world.renew(archive)
    yield 20
    _compare(world, before)
    world.renew()
    world.wait_for_rows()


def _write_archive(world: World, path: str, ranges: tuple[tuple[int, int], ...]) -> None:
    """Archive these offsets of each partition of cluster `c`, a batch for each."""
    topic, admin = world.inputs["c"].topic, AdminClient({"bootstrap.servers": world.c.bootstrap_servers})
    cluster_id = str(admin.describe_cluster().result(20).cluster_id)
    found = admin.describe_topics(TopicCollection([topic]))[topic].result(20)
    messages = _Mirror((world.c.bootstrap_servers, topic), ("", "")).read()
    for p in _PARTITIONS:
        assert sum(m.partition() == p for m in messages) >= ranges[-1][1], "too few rows to archive"
    for number, (start, end) in enumerate(ranges):
        places = {
            ("c", topic, p): (PartitionKey(cluster_id, topic, topic_id_text(found.topic_id), p), start, end)
            for p in _PARTITIONS
        }
        known = log.read_archive(path) or Archive()
        plan = plan_batch(known, places, {cluster_id: "c"}, location=path, query="chaos", batch=number)
        rows = [_row(m, topic) for m in messages if start <= (m.offset() or 0) < end]
        written = write_parts(plan, pa.Table.from_pylist(rows, _ARCHIVED).to_batches())
        assert log.create_record(open_files(path, ArchiveError), "chaos", plan.record, batch_of(plan, [written]))


def _row(message: Message, topic: str) -> dict[str, object]:
    return {
        "key": message.key(),
        "value": message.value(),
        "topic": topic,
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1] * 1000,
        "cluster": "c",
    }

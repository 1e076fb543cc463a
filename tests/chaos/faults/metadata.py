"""Faults of the metadata: slow, gone, empty, wrong, lying; and clusters that are added, renamed, moved and gone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from tests.chaos.declared import GOES_ON, Outcome, fault
from tests.chaos.world import World

ASKS = Outcome("goes on, or stops with an error until the metadata are right", error="Error", way_on=lambda *_: {})


@fault(GOES_ON, cheap=True)
def metadata_gone(world: World) -> Iterator[float]:
    """The metadata file does not exist for eight seconds."""
    world.metadata.path.unlink()
    yield 8
    world.write_metadata()


@fault(GOES_ON, cheap=True)
def metadata_empty(world: World) -> Iterator[float]:
    """The metadata file is empty for eight seconds."""
    world.metadata.path.write_text("")
    yield 8
    world.write_metadata()


@fault(GOES_ON)
def metadata_cut_off(world: World) -> Iterator[float]:
    """The metadata file ends in the middle for five seconds, as while it is written."""
    text = world.metadata.path.read_text()
    world.metadata.path.write_text(text[: len(text) // 2])
    yield 5
    world.write_metadata()


@fault(GOES_ON)
def metadata_slow(world: World) -> Iterator[float]:
    """Reading the metadata file hangs for twelve seconds, as on a network drive (it is a pipe that nobody writes to)."""
    path = world.metadata.path
    path.unlink()
    os.mkfifo(path)
    yield 12
    pipe = path.rename(path.with_suffix(".pipe"))
    world.write_metadata()
    text = path.read_bytes()

    def release() -> None:  # all who are waiting get the document, also those who open the pipe a moment later
        with suppress(OSError), pipe.open("wb") as file:
            file.write(text)

    for _ in range(4):
        thread = threading.Thread(target=release, daemon=True)
        thread.start()
        thread.join(0.5)
    with os.fdopen(os.open(pipe, os.O_RDWR | os.O_NONBLOCK), "rb"):
        pass
    pipe.unlink()


@fault(GOES_ON, cheap=True)
def metadata_with_a_bad_entry(world: World) -> Iterator[float]:
    """One cluster's entry has a property that does not exist, for eight seconds."""
    with world.entry("b", properties=(("security.protocl", "SSL"),)):
        yield 8


@fault(GOES_ON)
def metadata_with_a_missing_secret(world: World) -> Iterator[float]:
    """One cluster's entry refers to a file that does not exist, for eight seconds."""
    with world.entry("b", properties=(("sasl.password", "${file:/does/not/exist}"),)):
        yield 8


@fault(ASKS)
def metadata_lie_about_addresses(world: World) -> Iterator[float]:
    """The entry of one cluster has the addresses of another one for eight seconds."""
    other = world.c
    with world.entry("b", cluster=other):
        yield 8


@fault(GOES_ON)
def metadata_lie_about_topics(world: World) -> Iterator[float]:
    """The entry of one cluster names a topic that does not exist, for eight seconds."""
    with world.entry("c", topic="does-not-exist"):
        yield 8


@fault(GOES_ON)
def stream_without_clusters(world: World) -> Iterator[float]:
    """The stream that is read has no clusters for eight seconds."""
    with world.reading({}):
        yield 8


@fault(GOES_ON, cheap=True)
def cluster_gone_and_back(world: World) -> Iterator[float]:
    """A cluster leaves the stream that is read, and comes back twelve seconds later."""
    others = {name: entry for name, entry in world.inputs.items() if name != "b"}
    with world.feeder.quiet("b"), world.reading(others):
        yield 12


@fault(GOES_ON)
def cluster_gone_from_the_output(world: World) -> Iterator[float]:
    """A cluster leaves the stream that is written, and comes back; the query is restarted with the new list each time."""
    before = world.outputs
    world.query.stop()
    world.outputs = {name: entry for name, entry in before.items() if name != "c"}
    world.write_metadata()
    world.start()
    yield 10
    world.query.stop()
    world.outputs = before
    world.write_metadata()
    world.start()
    yield 0


@fault(GOES_ON)
def cluster_renamed(world: World) -> Iterator[float]:
    """A cluster of the stream that is read gets another name for ten seconds, then its old one again."""
    with world.reading({("other-name" if name == "c" else name): entry for name, entry in world.inputs.items()}):
        yield 10


@fault(GOES_ON)
def cluster_renamed_while_stopped(world: World) -> Iterator[float]:
    """A cluster of the stream that is read gets another name while the query is stopped, and later its old one again."""
    before = world.inputs
    for entries in ({("other-name" if name == "b" else name): entry for name, entry in before.items()}, before):
        world.query.stop()
        world.inputs = entries
        world.write_metadata()
        world.start()
        yield 6


@fault(GOES_ON)
def addresses_reordered(world: World) -> Iterator[float]:
    """The addresses of a cluster are listed in another order."""
    servers = ",".join(reversed(world.clusters[world.first].servers.split(",")))
    with world.entry(world.first, servers=servers):
        yield 5


@fault(GOES_ON)
def topic_moved(world: World) -> Iterator[float]:
    """What a cluster has is written to a new topic of another cluster from now on; the old topic is drained."""
    moved = f"moved-{world.feeder.next}"
    world.b.create_topic(moved, 2, {"max.message.bytes": "12000000"})
    others = {name: entry for name, entry in world.inputs.items() if name != "c"}
    with world.feeder.quiet("c"), world.reading({**others, "moved": replace(world.inputs["b"], topic=moved)}):
        for _ in range(6):
            world.feeder.write("b", 10, topic=moved)
            yield 1
        world.settle()


@fault(GOES_ON)
def cluster_added(world: World) -> Iterator[float]:
    """A cluster with rows joins the stream, under a name that comes before all others; it leaves when it is read."""
    topic = f"added-{world.feeder.next}"
    world.b.create_topic(topic, 2, {"max.message.bytes": "12000000"})
    world.feeder.write("b", 50, topic=topic)
    world.feeder.flush("b")
    with world.reading({"0-added": replace(world.inputs["b"], topic=topic), **world.inputs}):
        yield 6
        world.settle()

"""Faults of topics: made again, grown, emptied, gone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.chaos.declared import GOES_ON, Outcome, fault, stops
from tests.chaos.world import World

CONFIG = {"max.message.bytes": "12000000"}


def _give_up(_: World, __: str) -> dict[str, str]:
    return {"failOnDataLoss": "false"}


def _give_up_or_skip(_: World, error: str) -> dict[str, str]:
    published = re.search(r"sink\.skip-batch=(\d+)", error)  # the query was stopped before Spark noted that batch
    return {"failOnDataLoss": "false"} | ({"sink.skip-batch": published[1]} if published else {})


_WAY_ON = "one start with `failOnDataLoss=false` goes on and reports what is gone"
EXPIRED = stops("DataLossError|CheckpointError", _give_up_or_skip, _WAY_ON, reports="count")
MADE_AGAIN = stops("DataLossError", _give_up, _WAY_ON, reports="recreated|made again|deleted")


def _unread_rows(world: World, name: str) -> None:
    """Have rows in an input topic that the query has not read: it is stopped before they are written."""
    world.query.stop()
    world.feeder.write(name, 60)
    world.feeder.flush(name)


def _remake(world: World, name: str, partitions: int) -> None:
    entry = world.inputs[name]
    with world.feeder.quiet(name):
        world.destroy(name, entry.topic)
        entry.cluster.delete_topic(entry.topic)
        entry.cluster.create_topic(entry.topic, partitions, CONFIG)
    world.feeder.renew(name)


@fault(GOES_ON, cheap=True)
def partitions_added(world: World) -> Iterator[float]:
    """A topic that is read gets one more partition."""
    entry = world.inputs["c"]
    entry.cluster.add_partitions(entry.topic, len(entry.cluster.partitions(entry.topic)) + 1)
    yield 3


@fault(GOES_ON)
def partitions_added_to_the_output(world: World) -> Iterator[float]:
    """A topic that is written gets one more partition."""
    entry = world.outputs["b"]
    entry.cluster.add_partitions(entry.topic, len(entry.cluster.partitions(entry.topic)) + 1)
    yield 3


@fault(MADE_AGAIN)
def topic_made_again_while_stopped(world: World) -> Iterator[float]:
    """A topic with unread rows is deleted and made again while the query is stopped."""
    _unread_rows(world, "b")
    _remake(world, "b", len(world.b.partitions(world.inputs["b"].topic)))
    world.start()
    yield 0


@fault(MADE_AGAIN)
def topic_made_again_with_fewer_partitions(world: World) -> Iterator[float]:
    """A topic with unread rows is deleted and made again with one partition while the query is stopped."""
    _unread_rows(world, "c")
    _remake(world, "c", 1)
    world.start()
    yield 0


@fault(
    Outcome(
        "goes on; stops with DataLossError if rows were not read, then as above",
        error=r"\bDataLossError\b",
        way_on=_give_up,
        reports="recreated|made again|deleted",
    )
)
def topic_made_again_while_running(world: World) -> Iterator[float]:
    """A topic is deleted and made again under the running query."""
    world.settle()
    _remake(world, "b", 2)
    yield 5


@fault(EXPIRED)
def retention_passed(world: World) -> Iterator[float]:
    """Retention deletes rows that the stopped query has not read."""
    _unread_rows(world, "c")
    entry = world.inputs["c"]
    with world.feeder.quiet("c"):
        world.destroy("c", entry.topic)
        entry.cluster.delete_records(entry.topic)
    world.start()
    yield 0


@fault(GOES_ON)
def retention_behind_us(world: World) -> Iterator[float]:
    """Retention deletes rows that the query has read."""
    entry = world.inputs["c"]
    with world.feeder.quiet("c"):
        world.settle()
        entry.cluster.delete_records(entry.topic)
        yield 2


def _make_output(world: World, _: str) -> dict[str, str]:
    entry = world.outputs["c"]
    entry.cluster.create_topic(entry.topic, 2, CONFIG)
    world.auditor.renew("c")
    return {}


@fault(stops("DeliveryError|RowError|ConfigurationError", _make_output, "goes on once the topic exists again"))
def output_topic_deleted(world: World) -> Iterator[float]:
    """A topic that is written is deleted; it is made again after the query has stopped."""
    entry = world.outputs["c"]
    world.settle()
    world.query.stop()
    entry.cluster.delete_topic(entry.topic)
    world.start()
    yield 5


def _allow_large(world: World, _: str) -> dict[str, str]:
    world.b.configure_topic(world.outputs["b"].topic, "max.message.bytes", CONFIG["max.message.bytes"])
    return {}


@fault(stops("RowError|DeliveryError", _allow_large, "goes on once the topic takes it"))
def output_topic_takes_small_messages_only(world: World) -> Iterator[float]:
    """A topic that is written takes messages of up to 2,000 bytes only, and larger ones come."""
    world.b.configure_topic(world.outputs["b"].topic, "max.message.bytes", "2000")
    world.feeder.write("c", 20, payload=b"x" * 5000)
    yield 3

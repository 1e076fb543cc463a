"""Faults of links between Spark and a cluster."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.clusters import Cluster
from tests.chaos.declared import GOES_ON, RESTARTS, fault
from tests.chaos.proxy import STUCK, Condition, Link
from tests.chaos.world import World


def _while(world: World, name: str, condition: Condition, seconds: float) -> Iterator[float]:
    world.clusters[name].condition(condition)
    yield seconds
    world.clusters[name].restore()


def _cut(links: Cluster | Link, seconds: float) -> Iterator[float]:
    links.cut()
    yield seconds
    links.restore()


@fault(GOES_ON, cheap=True)
def slow_link_40_ms(world: World) -> Iterator[float]:
    """A link takes 40 ms in each direction."""
    yield from _while(world, "c", Condition(delay_s=0.04), 10)


@fault(GOES_ON)
def slow_link_200_ms(world: World) -> Iterator[float]:
    """A link takes 200 ms in each direction."""
    yield from _while(world, "b", Condition(delay_s=0.2), 15)


@fault(GOES_ON, needs=["three-brokers"])
def slow_link_to_the_commit_log(world: World) -> Iterator[float]:
    """The links to the cluster of the commit log take 200 ms in each direction."""
    yield from _while(world, "a", Condition(delay_s=0.2), 15)


@fault(GOES_ON)
def query_started_behind_a_slow_link(world: World) -> Iterator[float]:
    """All links take 200 ms in each direction while the query is started."""
    world.query.stop()
    for cluster in world.clusters.values():
        cluster.condition(Condition(delay_s=0.2))
    world.start()
    yield 20
    for cluster in world.clusters.values():
        cluster.restore()


@fault(GOES_ON)
def narrow_link(world: World) -> Iterator[float]:
    """A link lets 30,000 bytes per second through."""
    yield from _while(world, "c", Condition(bytes_per_s=30_000), 10)


@fault(GOES_ON, cheap=True)
def cut_link(world: World) -> Iterator[float]:
    """A link is cut for ten seconds: connections are reset, new ones are refused."""
    yield from _cut(world.b, 10)


@fault(GOES_ON, needs=["three-brokers"])
def cut_link_to_the_commit_log(world: World) -> Iterator[float]:
    """The links to the cluster of the commit log are cut for ten seconds."""
    yield from _cut(world.a, 10)


@fault(RESTARTS)
def cut_link_for_long(world: World) -> Iterator[float]:
    """A link is cut for 80 seconds, longer than the query waits."""
    yield from _cut(world.c, 80)


@fault(GOES_ON)
def flapping_link(world: World) -> Iterator[float]:
    """A link is cut for a second, six times."""
    for _ in range(6):
        yield from _cut(world.b, 1)
        yield 1


@fault(GOES_ON, cheap=True)
def stuck_link(world: World) -> Iterator[float]:
    """Nothing arrives over a link for ten seconds, but its connections stay open."""
    yield from _while(world, "b", STUCK, 10)


@fault(GOES_ON)
def half_open_link(world: World) -> Iterator[float]:
    """All connections of a link are dead for ever without a word; new ones work."""
    world.c.half_open()
    yield 0


@fault(GOES_ON, needs=["three-brokers"])
def half_open_link_to_the_commit_log(world: World) -> Iterator[float]:
    """All connections to the cluster of the commit log are dead for ever without a word; new ones work."""
    world.a.half_open()
    yield 0


@fault(GOES_ON, needs=["three-brokers"])
def cut_link_to_one_of_three(world: World) -> Iterator[float]:
    """The link to the leader of the commit log is cut for 30 seconds, while the cluster itself is whole."""
    leader = world.a.brokers.index(world.a.leader(world.log_topic))
    yield from _cut(world.a.links[leader], 30)

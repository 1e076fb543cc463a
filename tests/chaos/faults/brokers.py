"""Faults of brokers: killed, stopped, restarted in turn, without disk."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.declared import GOES_ON, RESTARTS, fault
from tests.chaos.world import World


@fault(GOES_ON, cheap=True)
def broker_killed(world: World) -> Iterator[float]:
    """The only broker of a cluster is killed, and started again five seconds later."""
    (broker,) = world.b.brokers
    broker.kill()
    yield 5
    broker.start()


@fault(GOES_ON, cheap=True)
def broker_restarted(world: World) -> Iterator[float]:
    """The only broker of a cluster is restarted in order."""
    world.c.brokers[0].restart()
    yield 0


@fault(GOES_ON, cheap=True)
def broker_stopped(world: World) -> Iterator[float]:
    """The only broker of a cluster hangs (SIGSTOP) for ten seconds."""
    (broker,) = world.c.brokers
    broker.pause()
    yield 10
    broker.resume()


@fault(RESTARTS)
def broker_stopped_for_long(world: World) -> Iterator[float]:
    """The only broker of a cluster hangs for 80 seconds, longer than the query waits."""
    (broker,) = world.b.brokers
    broker.pause()
    yield 80
    broker.resume()


@fault(GOES_ON, needs=["three-brokers"])
def commit_log_leader_killed(world: World) -> Iterator[float]:
    """The broker that leads the commit log is killed, and started again five seconds later."""
    broker = world.a.leader(world.log_topic)
    broker.kill()
    yield 5
    broker.start()
    world.a.wait_until_in_sync()


@fault(GOES_ON, needs=["three-brokers"])
def commit_log_leader_stopped(world: World) -> Iterator[float]:
    """The broker that leads the commit log hangs for fifteen seconds."""
    broker = world.a.leader(world.log_topic)
    broker.pause()
    yield 15
    broker.resume()
    world.a.wait_until_in_sync()


@fault(GOES_ON, needs=["three-brokers"])
def rolling_restart(world: World) -> Iterator[float]:
    """The three brokers of a cluster are restarted one after the other."""
    for broker in world.a.brokers:
        broker.restart()
        world.a.wait_until_in_sync()
        yield 1


@fault(GOES_ON, needs=["three-brokers"])
def brokers_killed_in_turn(world: World) -> Iterator[float]:
    """The three brokers of a cluster are killed one after the other, each when the one before is back."""
    for broker in world.a.brokers:
        broker.kill()
        yield 2
        broker.start()
        world.a.wait_until_in_sync()


@fault(GOES_ON, needs=["three-brokers"])
def leaders_moved(world: World) -> Iterator[float]:
    """All partitions get another leader, and then their preferred one again, without the end of any broker."""
    first = world.a.leader(world.log_topic)
    first.restart()  # the others lead what it led
    world.a.wait_until_in_sync()
    yield 1
    world.a.elect_preferred_leaders()
    yield 2


@fault(GOES_ON, needs=["three-brokers"])
def quorum_gone(world: World) -> Iterator[float]:
    """Two of three brokers are killed, so nothing can be written or elected; they start again ten seconds later."""
    for broker in world.a.brokers[1:]:
        broker.kill()
    yield 10
    world.a.start()


@fault(GOES_ON)
def all_brokers_killed(world: World) -> Iterator[float]:
    """All brokers of all clusters are killed at once, as by a power cut, and start again three seconds later."""
    for cluster in world.clusters.values():
        for broker in cluster.brokers:
            broker.kill()
    yield 3
    for cluster in world.clusters.values():
        cluster.start()


@fault(GOES_ON, needs=["mount"])
def disk_full(world: World) -> Iterator[float]:
    """A broker's disk is full, and the broker ends; there is space again, and it is started after ten seconds."""
    (broker,) = world.b.brokers
    filler = world.folder / "b" / "filler"
    try:
        with filler.open("wb") as file:
            while True:
                file.write(bytes(65536))
                file.flush()
    except OSError:
        pass
    yield 10
    filler.unlink()
    broker.restart()

"""Faults of what is written: large messages, many headers, bursts, open and aborted transactions of others."""

from __future__ import annotations

import os
from collections.abc import Iterator

from dynamic_kafka.testing import produce
from tests.brokers import leave_open
from tests.chaos.declared import GOES_ON, fault
from tests.chaos.world import World


@fault(GOES_ON)
def message_of_10_mb(world: World) -> Iterator[float]:
    """A row of 10 MB comes."""
    world.feeder.write("b", 1, payload=os.urandom(5_000_000).hex().encode())
    yield 0


@fault(GOES_ON)
def message_with_100000_headers(world: World) -> Iterator[float]:
    """A row with 100,000 headers comes."""
    world.feeder.write("c", 1, headers=100_000)
    yield 0


@fault(GOES_ON)
def headers_of_1_mb(world: World) -> Iterator[float]:
    """A hundred rows come with a header of 1 MB each."""
    world.feeder.write("c", 100, headers=1, header_bytes=1_000_000)
    yield 0


@fault(GOES_ON, cheap=True)
def burst(world: World) -> Iterator[float]:
    """20,000 rows come at once."""
    for name in world.feeder.targets:
        world.feeder.write(name, 20_000 // len(world.feeder.targets))
    yield 0


@fault(GOES_ON)
def aborted_transactions(world: World) -> Iterator[float]:
    """Somebody writes rows that are aborted to a topic that is read."""
    cluster, topic = world.c, world.inputs["c"].topic
    for _ in range(5):
        produce(cluster.bootstrap_servers, topic, [(None, b"0 aborted")] * 20, transactional="abort")
        yield 0.5


@fault(GOES_ON)
def open_transaction_of_another(world: World) -> Iterator[float]:
    """Somebody's transaction on a topic that is read stays open until it times out after ten seconds."""
    leave_open(world.c, world.inputs["c"].topic, "somebody", **{"transaction.timeout.ms": "10000"})
    yield 12

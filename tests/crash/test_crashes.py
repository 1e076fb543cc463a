"""Drivers, brokers and executors killed at random moments: afterwards every record is in the sink exactly once."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.brokers import repeating
from tests.chaos.query import kill_one, processes_below
from tests.crash.driver import recorded
from tests.crash.drivers import DRIVER_S, Driver, NewDriver, crashes, environment
from tests.crash.standalone import StandaloneCluster
from tests.engine import MetadataFile, part

pytestmark = [pytest.mark.crash, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1800)]

Topic = Callable[..., str]


def held(broker: KafkaBroker, cluster: str, topic: str) -> set[tuple[str, str, int, int]]:
    """What a broker holds of a topic, by its ends (these topics have neither gaps nor retention)."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "check"})
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 10)[1] for p in partitions}
    consumer.close()
    return {(cluster, topic, p, offset) for p, end in ends.items() for offset in range(end)}


def steady_producers(brokers: Mapping[str, KafkaBroker], topic: str) -> AbstractContextManager[None]:
    """Produce to all clusters, a little and often, until the block ends."""
    servers = [broker.bootstrap_servers for broker in brokers.values()]
    return repeating(*(partial(produce, at, topic, [(None, b"v")] * 10) for at in servers))


def batches_in(sink: Path) -> int:
    """How many batches are written."""
    return len(list(sink.glob("*.json")))


def wait_for_batches(sink: Path, count: int) -> None:
    """Wait until so many batches are written."""
    wait_until(lambda: batches_in(sink) >= count, DRIVER_S, f"{count} batches")


def check(job: Mapping[str, Any], expected: set[tuple[str, str, int, int]], running: Driver) -> None:
    """Let a driver read the rest, then compare the sink with what the brokers hold."""
    sink = Path(job["sink"])
    (sink / "stop").write_text(str(len(expected)))
    assert running.wait(DRIVER_S) == 0, running.output[-3000:]
    rows = [tuple(row[:4]) for row in recorded(sink)]
    assert len(rows) == len(set(rows))
    assert set(rows) == expected


def finish(job: dict[str, Any], expected: set[tuple[str, str, int, int]], last: Driver) -> None:
    """Let a last driver read the rest, without the limit, and check."""
    job["options"].pop("maxOffsetsPerTrigger")
    check(job, expected, last.run(job))


def test_killed_drivers_lose_and_repeat_nothing(
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    cluster_c: KafkaBroker,
    topic: Topic,
    tmp_path: Path,
    job: dict[str, Any],
    driver: NewDriver,
    chance: random.Random,
) -> None:
    """Three clusters, one of which comes, goes and returns; the driver is killed at random points of the run."""
    brokers = {"a": cluster_a, "b": cluster_b, "c": cluster_c}
    name = topic(*brokers.values(), partitions=3)
    parts = {c: part(b, name) for c, b in brokers.items()}
    file = MetadataFile(tmp_path / "streams.yaml")
    file.write(s={c: parts[c] for c in "ab"})
    job["options"] = file.options(startingOffsets="earliest", maxOffsetsPerTrigger="100")
    sink = Path(job["sink"])
    changes = itertools.cycle(["abc", "ab", "abc", "bc", "abc"])
    waiting = driver()
    with steady_producers(brokers, name):
        for clusters in itertools.islice(changes, crashes(5)):
            running, waiting = waiting.run(job), driver()
            before = batches_in(sink)
            wait_for_batches(sink, before + 1)
            file.write(s={c: parts[c] for c in clusters})
            wait_for_batches(sink, before + 1 + chance.randrange(4))
            threading.Event().wait(chance.random() / 2)  # the random point
            running.kill()
    expected = set().union(*(held(broker, c, name) for c, broker in brokers.items()))
    finish(job, expected, waiting)


def test_a_broker_killed_and_brought_back(
    cluster_a: KafkaBroker, mortal: KafkaBroker, topic: Topic, tmp_path: Path, job: dict[str, Any], driver: NewDriver
) -> None:
    """The query waits for it and goes on; nothing is lost or repeated, and it was never restarted."""
    running = driver()
    name = topic(cluster_a, mortal, partitions=2)
    file = MetadataFile(tmp_path / "streams.yaml")
    brokers = {"a": cluster_a, "b": mortal}
    file.write(s={c: part(b, name) for c, b in brokers.items()})
    job["options"] = file.options(startingOffsets="earliest", maxOffsetsPerTrigger="50")
    sink = Path(job["sink"])
    for broker in brokers.values():
        produce(broker.bootstrap_servers, name, [(None, b"v")] * 300)
    running.run(job)
    wait_until(lambda: len(recorded(sink)) > 50, DRIVER_S, "the first batches")
    mortal.kill()
    mortal.restart()
    for broker in brokers.values():
        produce(broker.bootstrap_servers, name, [(None, b"v")] * 300)
    check(job, held(cluster_a, "a", name) | held(mortal, "b", name), running)


def test_standalone_cluster_spreads_tasks_and_survives_a_killed_executor(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, tmp_path: Path, job: dict[str, Any], driver: NewDriver
) -> None:
    """Packed partitions run on both executors; one of them killed in the middle loses and repeats nothing."""
    brokers = {"a": cluster_a, "b": cluster_b}
    name = topic(*brokers.values(), partitions=4)
    file = MetadataFile(tmp_path / "streams.yaml")
    file.write(s={c: part(b, name) for c, b in brokers.items()})
    job["options"] = file.options(startingOffsets="earliest", maxOffsetsPerTrigger="2000", minPartitions="4")
    sink = Path(job["sink"])
    for broker in brokers.values():
        produce(broker.bootstrap_servers, name, [(None, b"v")] * 5000)
    conf = {"spark.executor.cores": "1", "spark.executor.memory": "512m"}
    with StandaloneCluster(tmp_path, environment()) as spark:
        running = driver(conf={"spark.master": spark.address, **conf}).run(job)
        wait_until(lambda: len({row[4] for row in recorded(sink)}) == 2, DRIVER_S, "rows from both executors")
        assert kill_one(processes_below({spark.worker_pid(0)}), what="CoarseGrainedExecutorBackend")
        for broker in brokers.values():
            produce(broker.bootstrap_servers, name, [(None, b"v")] * 5000)
        check(job, held(cluster_a, "a", name) | held(cluster_b, "b", name), running)

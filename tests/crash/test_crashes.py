"""Drivers, brokers and executors killed at random moments: afterwards every record is in the sink exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.crash.driver import recorded
from tests.crash.standalone import standalone_cluster
from tests.engine import MetadataFile

pytestmark = [pytest.mark.crash, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

Topic = Callable[..., str]
ENVIRONMENT = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


class Driver:
    """A driver process with everything it started, in a process group of its own."""

    def __init__(self, job: Mapping[str, Any], log: Path) -> None:
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.driver", json.dumps(job)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=ENVIRONMENT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL to driver, JVM, reader process and workers at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait(self, timeout_s: float) -> int:
        """Its exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    """A job for the driver; the options are the test's."""
    (tmp_path / "sink").mkdir()
    return {
        "checkpoint": str(tmp_path / "checkpoint"),
        "sink": str(tmp_path / "sink"),
        "master": "local[2]",
        "options": {},
    }


def held(broker: KafkaBroker, cluster: str, topic: str) -> set[tuple[str, str, int, int]]:
    """What a broker holds of a topic, by its ends (these topics have neither gaps nor retention)."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "check"})
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 10)[1] for p in partitions}
    consumer.close()
    return {(cluster, topic, p, offset) for p, end in ends.items() for offset in range(end)}


@contextmanager
def steady_producers(brokers: Mapping[str, KafkaBroker], topic: str) -> Iterator[None]:
    """Produce to all clusters, a little and often, until the block ends."""
    done = threading.Event()

    def run(broker: KafkaBroker) -> None:
        while not done.wait(0.2):
            produce(broker.bootstrap_servers, topic, [(None, b"v")] * 10)

    threads = [threading.Thread(target=run, args=(broker,)) for broker in brokers.values()]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def finish(job: dict[str, Any], expected: set[tuple[str, str, int, int]], log: Path) -> None:
    """Let a last driver read the rest, without the limit, then compare the sink with what the brokers hold."""
    sink = Path(job["sink"])
    job["options"].pop("maxOffsetsPerTrigger")
    (sink / "stop").write_text(str(len(expected)))
    code = Driver(job, log).wait(150)
    rows = [tuple(row[:4]) for row in recorded(sink)]
    assert code == 0, log.read_text()[-3000:]
    assert len(rows) == len(set(rows))
    assert set(rows) == expected


def test_killed_drivers_lose_and_repeat_nothing(
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    cluster_c: KafkaBroker,
    topic: Topic,
    tmp_path: Path,
    job: dict[str, Any],
) -> None:
    """Three clusters, one of which comes, goes and returns; the driver is killed at random points of the run."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    brokers = {"a": cluster_a, "b": cluster_b, "c": cluster_c}
    name = topic(*brokers.values(), partitions=3)
    parts = {c: {"bootstrapServers": b.bootstrap_servers, "topics": [name]} for c, b in brokers.items()}
    file = MetadataFile(tmp_path / "streams.yaml")
    file.write(s={c: parts[c] for c in "ab"})
    job["options"] = file.options(startingOffsets="earliest", maxOffsetsPerTrigger="100")
    log, sink = tmp_path / "driver.log", Path(job["sink"])
    changes = ["abc", "ab", "abc", "bc", "abc"]
    with steady_producers(brokers, name):
        for clusters in changes:
            driver = Driver(job, log)
            before = len(list(sink.glob("*.json")))
            wait_until(
                lambda before=before: len(list(sink.glob("*.json"))) > before,  # type: ignore[misc]
                90,
                "a batch of this driver",
            )
            file.write(s={c: parts[c] for c in clusters})
            batches = before + 1 + chance.randrange(4)
            wait_until(
                lambda batches=batches: len(list(sink.glob("*.json"))) >= batches,  # type: ignore[misc]
                60,
                "some more batches",
            )
            threading.Event().wait(chance.random() / 2)  # the random point
            driver.kill()
    expected = set().union(*(held(broker, c, name) for c, broker in brokers.items()))
    finish(job, expected, log)


def test_a_broker_killed_and_brought_back(topic: Topic, tmp_path: Path, job: dict[str, Any]) -> None:
    """The query waits for it and goes on; nothing is lost or repeated, and it was never restarted."""
    with KafkaBroker() as one, KafkaBroker() as other:
        name = topic(one, other, partitions=2)
        file = MetadataFile(tmp_path / "streams.yaml")
        brokers = {"a": one, "b": other}
        file.write(s={c: {"bootstrapServers": b.bootstrap_servers, "topics": [name]} for c, b in brokers.items()})
        job["options"] = file.options(startingOffsets="earliest", maxOffsetsPerTrigger="50")
        sink, log = Path(job["sink"]), tmp_path / "driver.log"
        for broker in brokers.values():
            produce(broker.bootstrap_servers, name, [(None, b"v")] * 300)
        driver = Driver(job, log)
        wait_until(lambda: len(recorded(sink)) > 50, 90, "the first batches")
        other.kill()
        other.restart()
        for broker in brokers.values():
            produce(broker.bootstrap_servers, name, [(None, b"v")] * 300)
        expected = held(one, "a", name) | held(other, "b", name)
        (sink / "stop").write_text(str(len(expected)))
        assert driver.wait(120) == 0, log.read_text()[-3000:]
        rows = [tuple(row[:4]) for row in recorded(sink)]
        assert len(rows) == len(set(rows))
        assert set(rows) == expected


def executors() -> list[int]:
    """Process ids of the executors' JVMs on this machine."""
    listed = subprocess.run(
        ["pgrep", "-f", "CoarseGrainedExecutorBackend"], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in listed.stdout.split()]


def test_standalone_cluster_spreads_tasks_and_survives_a_killed_executor(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, tmp_path: Path, job: dict[str, Any]
) -> None:
    """Packed partitions run on both executors; one of them killed in the middle loses and repeats nothing."""
    brokers = {"a": cluster_a, "b": cluster_b}
    name = topic(*brokers.values(), partitions=4)
    file = MetadataFile(tmp_path / "streams.yaml")
    file.write(s={c: {"bootstrapServers": b.bootstrap_servers, "topics": [name]} for c, b in brokers.items()})
    job["options"] = file.options(startingOffsets="earliest", maxOffsetsPerTrigger="2000", minPartitions="4")
    sink, log = Path(job["sink"]), tmp_path / "driver.log"
    for broker in brokers.values():
        produce(broker.bootstrap_servers, name, [(None, b"v")] * 5000)
    with standalone_cluster(tmp_path, ENVIRONMENT) as address:
        job["master"] = address
        job["conf"] = {"spark.executor.cores": "1", "spark.executor.memory": "512m"}
        driver = Driver(job, log)
        try:
            wait_until(lambda: len({row[4] for row in recorded(sink)}) == 2, 120, "rows from both executors")
            os.kill(executors()[0], signal.SIGKILL)
            for broker in brokers.values():
                produce(broker.bootstrap_servers, name, [(None, b"v")] * 5000)
            expected = held(cluster_a, "a", name) | held(cluster_b, "b", name)
            (sink / "stop").write_text(str(len(expected)))
            assert driver.wait(150) == 0, log.read_text()[-3000:]
        finally:
            if driver.process.poll() is None:
                driver.kill()
    rows = [tuple(row[:4]) for row in recorded(sink)]
    assert len(rows) == len(set(rows))
    assert set(rows) == expected

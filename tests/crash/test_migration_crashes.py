"""A query that moves to and fro between two real clusters, and whose process dies again and again, at any step."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dynamic_kafka.source.document.offsets import MARKER
from dynamic_kafka.testing import KafkaBroker
from tests.brokers import bounds
from tests.engine import MetadataFile, Query, part, read_all

pytestmark = [pytest.mark.crash, pytest.mark.broker]

RESTARTS = 200
PARTITIONS = 2


@contextmanager
def copying(old: KafkaBroker, new: KafkaBroker, topic: str, start: list[int]) -> Iterator[list[int]]:
    """Copy all that is written from the offsets on, in the background; the number of copied records of each partition."""
    copied, ended = [0] * PARTITIONS, threading.Event()

    def run() -> None:
        consumer = Consumer({"bootstrap.servers": old.bootstrap_servers, "group.id": "copy"})
        producer = Producer({"bootstrap.servers": new.bootstrap_servers})
        consumer.assign([TopicPartition(topic, p, start[p]) for p in range(PARTITIONS)])
        while not ended.is_set():
            for message in consumer.consume(100, 0.05):
                assert message.error() is None
                p = message.partition() or 0
                producer.produce(topic, message.value(), message.key(), partition=p, timestamp=message.timestamp()[1])
                producer.flush()
                copied[p] += 1
        consumer.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield copied
    finally:
        ended.set()
        thread.join()


def test_two_hundred_restarts_while_it_moves(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each record is in one batch, wherever it is read: a batch that is run again replaces what it had read before."""
    chance = random.Random(1)
    topic = f"{request.node.name}-{time.time_ns()}"
    brokers = {"a": cluster_a, "b": cluster_b}
    for broker in brokers.values():
        broker.create_topic(topic, PARTITIONS)
    file = MetadataFile(tmp_path / "streams.yaml")
    query = Query(file.options(maxOffsetsPerTrigger="40", **{"drain-quiet-ms": "200"}))
    batches: dict[int, list[dict[str, Any]]] = {}
    written, restarts = [0] * PARTITIONS, 0
    producers = {name: Producer({"bootstrap.servers": broker.bootstrap_servers}) for name, broker in brokers.items()}

    def produce(name: str, count: int) -> None:
        for p in range(PARTITIONS):
            for _ in range(count):
                number = written[p]
                same = number - number % 3 if number % 20 < 6 else number
                producers[name].produce(topic, f"{p}-{same}", "k", partition=p)
                written[p] += 1
        producers[name].flush()

    def run_last() -> None:
        start = json.loads(query.log[-2]) if len(query.log) > 1 else MARKER
        tasks = query.enumerator.tasks(start, query.document)
        batches[len(query.log)] = read_all(tasks, query.settings)

    def step() -> None:
        """One batch; the process may die before it is planned, or after it is read."""
        nonlocal restarts
        start = query.document
        end = json.dumps(query.enumerator.latest_offset(start, limited=True))
        logged = end != json.dumps(start)
        if logged:
            query.log.append(end)
        dies = chance.random() * (1 if logged else 8)  # seldom while nothing happens, so that a topic can get quiet
        if dies < 0.3:
            query.restart()
            restarts += 1
        if logged:
            run_last()
        if 0.3 <= dies < 0.6:
            query.restart()
            restarts += 1
            if query.log:
                run_last()

    def read() -> int:
        return sum(len(rows) for rows in batches.values())

    here, there = "a", "b"
    file.write(s={"a": part(brokers["a"], topic)})
    moves = 0
    began = [0] * PARTITIONS
    while restarts < RESTARTS:
        with copying(brokers[here], brokers[there], topic, began) as copied:
            continues = {"cluster": here, "by": chance.choice(["records", "mirror-maker"])}
            if chance.random() < 0.5:
                file.write(
                    s={here: part(brokers[here], topic), there: part(brokers[there], topic, continues=continues)}
                )
            for _ in range(chance.randrange(4, 12)):
                produce(here, chance.randrange(1, 30))
                step()
            file.write(s={there: part(brokers[there], topic, continues=continues)})
            deadline = time.monotonic() + 60
            while list(query.document["clusters"]) != [there] or not query.document["clusters"][there]["start"]:
                step()
                assert time.monotonic() < deadline, query.events()
            ends = [bounds(brokers[here], topic, p)[1] for p in range(PARTITIONS)]
            while [began[p] + copied[p] for p in range(PARTITIONS)] != ends:
                time.sleep(0.05)
                assert time.monotonic() < deadline
        moves += 1
        began = [bounds(brokers[there], topic, p)[1] for p in range(PARTITIONS)]
        here, there = there, here
    while read() < sum(written):
        step()
    query.close()

    rows = Counter(row["value"].decode() for batch in batches.values() for row in batch)
    expected = Counter(f"{p}-{n - n % 3 if n % 20 < 6 else n}" for p in range(PARTITIONS) for n in range(written[p]))
    print(f"{restarts} restarts, {moves} moves, {sum(written)} records")
    assert (expected - rows, rows - expected) == (Counter(), Counter())

"""Watermark alignment on real clusters: what is admitted by the times of records, and what is told of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import Producer

from dynamic_kafka.source.document.offsets import Document, decode
from dynamic_kafka.testing import KafkaBroker, wait_until
from tests.engine import MetadataFile, Query, part

pytestmark = pytest.mark.broker

Topic = Callable[..., str]
CatchUp = Callable[..., Query]
MINUTE_MS, DAY_MS = 60_000, 86_400_000


def write(broker: KafkaBroker, topic: str, times_ms: Iterable[int], partition: int = 0) -> None:
    """Produce a record for each time, in this order."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
    for time_ms in times_ms:
        producer.produce(topic, value=str(time_ms).encode(), timestamp=time_ms, partition=partition)
    producer.flush()


def both(file: MetadataFile, fast: KafkaBroker, slow: KafkaBroker, name: str, **options: str) -> Query:
    """A query of one topic on two clusters, aligned to ten minutes."""
    clusters = {"fast": fast, "slow": slow}
    file.write(
        s={key: part(b, name) for key, b in clusters.items()},
    )
    alignment = {
        "scan.watermark.alignment.group": "g",
        "scan.watermark.alignment.max-drift": "10 min",
        "scan.watermark.alignment.update-interval": "100 ms",
    }
    return Query(file.options(**{**alignment, **options}))


@pytest.fixture
def catch_up(cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile) -> CatchUp:
    """Make a query of two clusters: one has a record for each of the last minutes, the other one those of days before."""

    def query(minutes: int, days: int, **options: str) -> Query:
        name, now_ms = topic(cluster_a, cluster_b), int(time.time() * 1000)
        write(cluster_a, name, range(now_ms - minutes * MINUTE_MS, now_ms, MINUTE_MS))
        began_ms = now_ms - days * DAY_MS
        write(cluster_b, name, range(began_ms, began_ms + minutes * MINUTE_MS, MINUTE_MS))
        return both(file, cluster_a, cluster_b, name, **options)

    return query


def batches(query: Query) -> list[list[int]]:
    """Step until nothing is read; the times of the records of each batch."""
    found = []
    before = len(query.rows)
    while query.step():
        found.append([int(row["value"]) for row in query.rows[before:]])
        before = len(query.rows)
    return found


def late(batches_of_times: list[list[int]], delay_ms: int) -> int:
    """How many rows Spark would drop."""
    watermark_ms, count = 0, 0
    for times_ms in batches_of_times:
        count += sum(1 for time_ms in times_ms if time_ms < watermark_ms)
        watermark_ms = max(watermark_ms, max(times_ms) - delay_ms)
    return count


def frontier(query: Query) -> int | None:
    """The frontier of the last document."""
    document: Document = decode(query.document)
    return document.frontier_ms


def alignment(query: Query) -> dict[str, Any]:
    """What the progress says."""
    found: dict[str, Any] = query.enumerator.report()["alignment"]
    return found


def test_a_slow_cluster_holds_a_fast_one_until_it_is_idle(catch_up: CatchUp) -> None:
    """With small batches, a cluster that is days behind is read first, the other one waits, and no row is late.

    Once the slow one has brought nothing for the idle timeout, the other one is read.
    """
    query = catch_up(minutes=200, days=6, maxOffsetsPerTrigger="20", **{"scan.watermark.idle-timeout": "2 s"})

    first = batches(query)
    assert {row["cluster"] for row in query.rows} == {"slow"}
    assert len(query.rows) == 200
    told = alignment(query)
    assert told["reason"].startswith("Cluster 'fast' waits for cluster 'slow', which is 6 days behind")
    assert told["heldPartitions"] == 1
    assert decode(query.document).frontier_ms is not None

    wait_until(query.step, 10, "the fast cluster")
    last = [int(row["value"]) for row in query.rows[200:]]
    rest = batches(query)
    assert len(query.rows) == 400
    assert late([*first, last, *rest], 10 * MINUTE_MS) == 0
    assert alignment(query)["reason"] == ""
    query.assert_once()
    query.close()


def test_without_alignment_the_same_rows_are_late(catch_up: CatchUp) -> None:
    """The test above is worth something: without alignment most rows of the slow cluster come too late."""
    query = catch_up(minutes=200, days=6, maxOffsetsPerTrigger="20")
    query.options = {k: v for k, v in query.options.items() if "alignment" not in k}
    found = batches(query)
    assert len(query.rows) == 400
    assert late(found, 10 * MINUTE_MS) > 180
    assert "alignment" not in query.enumerator.report()
    assert frontier(query) is None
    query.close()


def test_partitions_that_keep_up_are_read_to_their_ends_in_one_batch(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """Backlogs that end within the drift of each other are one batch, and what follows is read at once."""
    name = topic(cluster_a, cluster_b, partitions=2)
    now_ms = int(time.time() * 1000)
    for broker in (cluster_a, cluster_b):
        for partition in (0, 1):
            write(broker, name, range(now_ms - 3 * DAY_MS, now_ms + 1, 60 * MINUTE_MS), partition)
    query = both(file, cluster_a, cluster_b, name)
    assert [len(found) for found in batches(query)] == [4 * 73]
    write(cluster_a, name, [now_ms + 10, now_ms + 20])
    wait_until(query.step, 5, "the new records")
    write(cluster_b, name, [now_ms + 15], 1)
    wait_until(query.step, 5, "the other new record")
    query.assert_once()
    query.close()


def test_a_restart_keeps_the_frontier_and_the_hold(catch_up: CatchUp) -> None:
    """A process that starts again holds the fast cluster back as before, and a repeated batch is the same."""
    query = catch_up(minutes=100, days=1, maxOffsetsPerTrigger="30")
    count = query.step()
    assert 0 < count <= 30
    before = frontier(query)
    assert before is not None
    read = query.positions()
    query.restart(forget_last_batch=True)
    assert query.positions()[: len(read)] == sorted([*read, *read])[: len(read)]
    query.rows = query.rows[:count]
    batches(query)
    assert {row["cluster"] for row in query.rows} == {"slow"}
    after = frontier(query)
    assert after is not None
    assert after >= before
    query.restart()
    query.step()
    assert len(query.rows) == 100  # the last batch has read the slow cluster, so it may go on
    query.assert_once()
    query.close()


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_holds_for_a_time_and_is_read_when_it_is_back(
    cluster_a: KafkaBroker, mortal: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """While a cluster is away, the other one goes as far as the drift allows; then it is released, and that is told."""
    name = topic(cluster_a, mortal)
    now_ms = int(time.time() * 1000)
    write(cluster_a, name, range(now_ms - 300 * MINUTE_MS, now_ms, MINUTE_MS))
    write(mortal, name, range(now_ms - 300 * MINUTE_MS, now_ms - 100 * MINUTE_MS, MINUTE_MS))
    query = both(
        file,
        cluster_a,
        mortal,
        name,
        maxOffsetsPerTrigger="40",
        **{
            "cluster-failure-mode": "isolate",
            "scan.watermark.idle-timeout": "9 s",  # clearly longer than it takes to notice the silence
            "properties.default.api.timeout.ms": "2000",
        },
    )
    query.step()
    query.step()
    mortal.kill()
    query.run_until(lambda: any("'slow' does not answer" in text for text in query.events()), 30)
    newest = max(int(row["value"]) for row in query.rows)
    behind = max(int(row["value"]) for row in query.rows if row["cluster"] == "slow")
    query.run_until(lambda: sum(row["cluster"] == "fast" for row in query.rows) == 300, 60)
    assert newest - behind <= 20 * MINUTE_MS + MINUTE_MS  # before it was released
    mortal.start()
    query.run_until_rows(500, 30)
    assert any("'slow' answers again" in text for text in query.events())
    query.assert_once()
    query.close()


def test_a_record_of_the_future_is_passed_with_a_warning(
    cluster_a: KafkaBroker, topic: Topic, cluster_b: KafkaBroker, file: MetadataFile
) -> None:
    """A wrong clock of a producer stops nothing."""
    name = topic(
        cluster_a, cluster_b, config={"message.timestamp.after.max.ms": str(365 * DAY_MS)}
    )  # by default an hour
    now_ms = int(time.time() * 1000)
    write(cluster_a, name, [now_ms - 5 * MINUTE_MS, now_ms + 4 * DAY_MS, now_ms - 4 * MINUTE_MS])
    write(cluster_b, name, range(now_ms - 20 * MINUTE_MS, now_ms, MINUTE_MS))
    query = both(file, cluster_a, cluster_b, name)
    query.run_until_rows(23, 10)
    assert any("offset 1 has a time more than a day in the future" in text for text in query.events())
    query.close()

"""A history in Parquet, then Kafka, without Spark: in order, each row once, however often the query starts again."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from dynamic_kafka.errors import OffsetResolutionError
from dynamic_kafka.testing import KafkaBroker, produce
from tests.brokers import delete_records
from tests.engine import MetadataFile, Query, Row, part, read_batch
from tests.histories import write

pytestmark = pytest.mark.broker

Topic = Callable[..., str]
RESTARTS = int(os.environ.get("HISTORY_RESTARTS", "40"))


def fill(broker: KafkaBroker, topic: str, count: int, partitions: int = 3) -> None:
    """Produce to each partition values that count on."""
    for partition in range(partitions):
        values = [(None, f"{partition}-{i}".encode()) for i in range(count)]
        produce(broker.bootstrap_servers, topic, values, partition=partition)


def archive(folder: Path, rows: Iterable[Row], files: int = 3) -> None:
    """Write rows of the source, some to each file."""
    found = [{k: v for k, v in row.items() if k not in ("headers", "leader_epoch")} for row in rows]
    for n in range(files):
        write(folder / f"{n}.parquet", found[n::files], row_group_size=17)


def place(row: Row) -> tuple[str, str, int, int]:
    """Where a row comes from."""
    return row["cluster"], row["topic"], row["partition"], row["offset"]


def on(broker: KafkaBroker, topic: str, **more: str) -> dict[str, str]:
    """Options of a query on a topic."""
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **more}


def test_any_restart_across_the_switch_loses_and_repeats_nothing(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """Two clusters with a history of both; at random the process is new, or the last batch was not finished."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    brokers = {"a": cluster_a, "b": cluster_b}
    name = topic(*brokers.values(), partitions=3)
    file = MetadataFile(tmp_path / "streams.yaml")
    file.write(s={c: part(b, name) for c, b in brokers.items()})
    for broker in brokers.values():
        fill(broker, name, 120)
    rows = read_batch(file.options())
    archive(tmp_path / "h", [row for row in rows if row["offset"] < 60 + 20 * row["partition"]])
    total = 2 * 3 * 120
    with_history = {"history.path": str(tmp_path / "h"), "maxOffsetsPerTrigger": "50"}
    restarts = 0
    while restarts < RESTARTS:
        query = Query(file.options(**with_history))
        kept: list[Row] = []
        while len(query.rows) < total:
            before = len(query.rows)
            query.step()
            if chance.random() < 0.5 and query.log:
                restarts += 1
                # Spark repeats a batch that was logged and not finished: its first rows were never used.
                again = len(query.rows) > before and chance.random() < 0.7
                kept = query.rows[:before] if again else query.rows
                planned = query.rows[before:]
                query.rows = list(kept)
                query.restart(forget_last_batch=again)
                assert not again or sorted(map(place, query.rows[before:])) == sorted(map(place, planned))
        query.assert_once()
        assert query.positions() == sorted(map(place, rows))
        query.close()


def test_the_history_comes_first_and_says_what_is_guaranteed(
    cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """Rows are as from Kafka; a partition that the history lacks starts at its beginning; the switch adds no batch."""
    name = topic(cluster_a, partitions=3)
    fill(cluster_a, name, 100)
    rows = read_batch(on(cluster_a, name))
    old = [row for row in rows if row["partition"] < 2 and row["offset"] < 50]
    archive(tmp_path / "h", old)
    query = Query(on(cluster_a, name, **{"history.path": str(tmp_path / "h")}))
    assert query.step() == 100
    assert query.step() == 200
    assert query.step() == 0

    def key(row: Row) -> Any:
        return row["partition"], row["offset"]

    plain = [row | {"leader_epoch": None, "headers": None} for row in rows]
    assert sorted((row | {"leader_epoch": None, "headers": None} for row in query.rows), key=key) == sorted(
        plain, key=key
    )
    said = query.enumerator.report()["history"]
    assert said["stage"] == "kafka"
    assert "2 partitions in the history; 1 partitions that are not in it start at their beginning" in said["promise"]
    assert any("is read first: 100 rows of 3 files" in text for text in query.events())
    query.close()


def test_another_cluster_or_topic_of_the_same_name_is_refused(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """If the archive says which ones it was made from."""
    name = topic(cluster_a, cluster_b)
    for broker in (cluster_a, cluster_b):
        fill(broker, name, 10, partitions=1)
    first = Query(on(cluster_a, name))
    first.step()
    state = first.document["clusters"]["kafka"]
    first.close()
    archive(tmp_path / "h", first.rows[:5], files=1)
    note = tmp_path / "h" / "_dynamic_kafka" / "archive.json"
    note.parent.mkdir()
    ids = {"id": state["id"], "topics": {name: state["ids"][0]}}
    note.write_text(json.dumps({"version": 1, "clusters": {"kafka": ids}}))
    path = {"history.path": str(tmp_path / "h")}
    right, wrong = Query(on(cluster_a, name, **path)), Query(on(cluster_b, name, **path))
    right.run_until_rows(10)
    assert "by cluster.id and topic id" in right.enumerator.report()["history"]["promise"]
    with pytest.raises(OffsetResolutionError, match=r"its cluster\.id was"):
        wrong.step()
    note.write_text(json.dumps({"version": 1, "clusters": {"kafka": ids | {"topics": {name: "x" * 11}}}}))
    remade = Query(on(cluster_a, name, **path))
    with pytest.raises(OffsetResolutionError, match="was made anew"):
        remade.step()
    for query in (right, wrong, remade):
        query.close()


def test_switching_at_a_time(cluster_a: KafkaBroker, topic: Topic, tmp_path: Path) -> None:
    """Rows from the time on come from Kafka alone, also those that the history has too."""
    name = topic(cluster_a, config={"retention.ms": "-1"})
    began_ms = 1_700_000_000_000
    for i in range(20):
        produce(cluster_a.bootstrap_servers, name, [(None, f"{i}".encode())], timestamp_ms=began_ms + i)
    rows = read_batch(on(cluster_a, name))
    archive(tmp_path / "h", rows[:15])
    switch = {"history.switch": "timestamp", "history.switch.timestamp-millis": str(began_ms + 10)}
    query = Query(on(cluster_a, name, **{"history.path": str(tmp_path / "h"), **switch}))
    query.run_until_rows(20)
    query.assert_once()
    assert [row["offset"] for row in query.rows[10:]] == list(range(10, 20))
    query.close()


def test_another_name_of_the_cluster_is_no_other_cluster(cluster_a: KafkaBroker, topic: Topic, tmp_path: Path) -> None:
    """Without ids, nothing shows that a cluster of the history is none that is read: its rows may come twice.

    Rows of another topic, or from before the log, are not read again.
    """
    name = topic(cluster_a)
    fill(cluster_a, name, 30, partitions=1)
    found = read_batch(on(cluster_a, name))
    other = [row | {"cluster": "old", "topic": "other"} for row in found[:20]]
    for folder, rows, verdict in (
        ("renamed", [row | {"cluster": "old"} for row in found[:20]], "not proved"),
        ("both", [*found[:10], *(row | {"cluster": "old"} for row in found[10:20])], "not proved"),
        ("another", [*found[:10], *other], "exact"),
    ):
        archive(tmp_path / folder, rows, files=1)
        query = Query(on(cluster_a, name, **{"history.path": str(tmp_path / folder)}))
        query.step()
        said = query.enumerator.report()["history"]
        assert said["verdict"] == verdict
        assert (f"kafka/{name}-0 may be old/{name}-0" in said["promise"]) == (verdict == "not proved")
        query.close()


def test_gaps_are_read_from_kafka_and_another_topic_of_the_name_is_refused(
    cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """In their place among the files, which have random names. The last record shows that the topic is the same.

    Several gaps of a partition, and what follows the history, may be in one batch.
    """
    name = topic(cluster_a)
    fill(cluster_a, name, 100, partitions=1)
    found = read_batch(on(cluster_a, name))
    for file, first, last in (("b", 0, 30), ("a", 40, 50), ("d", 53, 60), ("c", 62, 80)):
        archive(tmp_path / "h" / file, found[first:last], files=1)
    path = {"history.path": str(tmp_path / "h")}
    query = Query(on(cluster_a, name, **path, maxOffsetsPerTrigger="7"))
    query.run_until_rows(100)
    read = [row["offset"] for row in query.rows]
    assert sorted(read) == list(range(100))
    assert all(
        abs(offset - number) < 7 for number, offset in enumerate(read)
    )  # in a batch, tasks read at the same time
    said = query.enumerator.report()["history"]
    assert said["verdict"] == "exact"
    gaps = ", ".join(f"kafka/{name}-0: {gap}" for gap in ("30 to 39", "50 to 52", "60 to 61"))
    assert f"15 offsets that the history does not have are read from Kafka: {gaps}" in said["promise"]
    assert "by the last record of the history, which has the same key, value, timestamp in Kafka" in said["promise"]
    query.close()
    at_once = Query(on(cluster_a, name, **path))
    at_once.run_until_rows(100)
    at_once.close()
    for rows in (at_once.rows, read_batch(on(cluster_a, name, **path))):
        assert sorted(row["offset"] for row in rows) == list(range(100))

    delete_records(cluster_a, name, 0, before=90)
    lossy = Query(on(cluster_a, name, **path, failOnDataLoss="false"))
    lossy.step()
    said = lossy.enumerator.report()["history"]
    assert said["verdict"] == "not exact"
    assert [seen["what"] for seen in said["seen"]] == ["deleted", "not compared", "in no file"]
    assert any("15 offsets are in no file" in text for text in lossy.events())
    lossy.close()

    other = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, other, [(None, f"new-{i}".encode()) for i in range(200)])
    renamed = [row | {"topic": other} for row in found[:80]]
    archive(tmp_path / "other", renamed, files=1)
    remade = Query(on(cluster_a, other, **{"history.path": str(tmp_path / "other")}))
    with pytest.raises(
        OffsetResolutionError, match="the record at the history's last offset has another value, timestamp"
    ):
        remade.step()
    assert not remade.log
    remade.close()

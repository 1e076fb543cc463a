"""Reading one cluster: where it starts and stops, and what the rows are."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dynamic_kafka.errors import CheckpointError, DataLossError, OffsetResolutionError
from dynamic_kafka.initializer import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from dynamic_kafka.source.configure import SourceObjects
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.brokers import delete_records, leave_open
from tests.engine import MetadataFile, Query, part, read_batch
from tests.spark.tables import FOR_EVER

pytestmark = pytest.mark.broker

Topic = Callable[..., str]


def options(broker: KafkaBroker, topic: str, **more: str) -> dict[str, str]:
    """Spark's own option names, as an existing query has them."""
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **more}


def values(rows: list[dict[str, object]]) -> list[str]:
    """The values, sorted."""
    return sorted(row["value"].decode() for row in rows if isinstance(row["value"], bytes))


def test_batch_reads_every_record_once(cluster_a: KafkaBroker, topic: Topic) -> None:
    """All partitions are read from the first to the last record, with Spark's columns and the cluster's name."""
    name = topic(cluster_a, partitions=3, config=FOR_EVER)
    for partition in range(3):
        produce(
            cluster_a.bootstrap_servers,
            name,
            [(b"k", f"{partition}-{i}".encode()) for i in range(50)],
            partition=partition,
            timestamp_ms=1_700_000_000_123,
        )
    produce(cluster_a.bootstrap_servers, name, [(None, None)], partition=0, headers=[("h", b"1"), ("h", None)])

    rows = read_batch(options(cluster_a, name))

    assert len(rows) == 151
    assert len({(r["partition"], r["offset"]) for r in rows}) == 151
    first = next(r for r in rows if r["partition"] == 0 and r["offset"] == 0)
    assert first == {
        "key": b"k",
        "value": b"0-0",
        "topic": name,
        "partition": 0,
        "offset": 0,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
        "timestampType": 0,
        "cluster": "kafka",
        "headers": None,
        "leader_epoch": 0,
    }
    tombstone = next(r for r in rows if r["value"] is None)
    assert tombstone["key"] is None
    assert tombstone["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]


def test_bounded_reads_end_without_partitions_or_records(cluster_a: KafkaBroker, topic: Topic) -> None:
    """A pattern that matches nothing and an empty topic both end, with no row."""
    assert read_batch({"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribePattern": "no-such-.*"}) == []
    assert read_batch(options(cluster_a, topic(cluster_a, partitions=2))) == []


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_bounded_reads_end_where_all_records_are_aborted(cluster_a: KafkaBroker, topic: Topic, isolation: str) -> None:
    """A topic that holds only aborted records ends: with no row, or with all rows if uncommitted ones are asked for."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, b"x")] * 10, transactional="abort")

    rows = read_batch(options(cluster_a, name, **{"kafka.isolation.level": isolation}))

    assert len(rows) == (0 if isolation == "read_committed" else 10)


def test_read_committed_sees_committed_records_only(cluster_a: KafkaBroker, topic: Topic) -> None:
    """Aborted records between committed ones are left out and do not stop the range."""
    name = topic(cluster_a)
    servers = cluster_a.bootstrap_servers
    produce(servers, name, [(None, f"a{i}".encode()) for i in range(5)], transactional="commit")
    produce(servers, name, [(None, b"lost")] * 20, transactional="abort")
    produce(servers, name, [(None, f"b{i}".encode()) for i in range(5)], transactional="commit")
    produce(servers, name, [(None, b"lost")] * 3, transactional="abort")

    rows = read_batch(options(cluster_a, name, **{"kafka.isolation.level": "read_committed"}))

    assert values(rows) == [f"{c}{i}" for c in "ab" for i in range(5)]


def test_compacted_gaps_are_no_data_loss(topic: Topic) -> None:
    """Offsets that compaction took out, also at the end of a range, are passed in silence."""
    properties = {"log.cleaner.backoff.ms": "100"}
    with KafkaBroker(properties=properties) as broker:
        name = topic(
            broker,
            config={
                "cleanup.policy": "compact",
                "segment.ms": "200",
                "min.cleanable.dirty.ratio": "0.01",
                "max.compaction.lag.ms": "500",
            },
        )
        records = [(b"k", f"{i}".encode()) for i in range(20)]
        produce(broker.bootstrap_servers, name, [(b"another", b"stays")])

        def compacted() -> bool:
            produce(broker.bootstrap_servers, name, records)
            rows = read_batch(options(broker, name))
            return bool(len(rows) < max(r["offset"] for r in rows) + 1)

        wait_until(compacted, 60, "the cleaner to take out records")
        whole = read_batch(options(broker, name))
        # A stop in the middle of a gap.
        gap = next(a["offset"] + 2 for a, b in pairwise(whole) if b["offset"] > a["offset"] + 2)
        ending = json.dumps({name: {"0": gap}})
        part = read_batch(options(broker, name, endingOffsets=ending))
        assert [r["offset"] for r in part] == [r["offset"] for r in whole if r["offset"] < gap]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ({"startingOffsets": "earliest"}, {}, range(10)),
        ({"startingOffsets": '{"T": {"0": 3}}'}, {}, range(3, 10)),
        ({"startingOffsets": '{"T": {"0": -2}}'}, {"endingOffsets": '{"T": {"0": 4}}'}, range(4)),
        ({"startingOffsets": '{"T": "earliest"}'}, {"endingOffsets": '{"T": {"0": -1}}'}, range(10)),
        ({"startingTimestamp": "1000004"}, {"endingTimestamp": "1000008"}, range(4, 8)),
        ({"startingOffsetsByTimestamp": '{"T": {"0": 1000002}}'}, {}, range(2, 10)),
        (
            {"startingOffsetsByTimestamp": '{"T": {"0": 9000000}}', "startingOffsetsByTimestampStrategy": "latest"},
            {},
            range(0),
        ),
        ({"scan.startup.mode": "earliest-offset"}, {"scan.bounded.mode": "latest-offset"}, range(10)),
        (
            {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "partition:0,offset:7"},
            {"scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": "partition:0,offset:9"},
            range(7, 9),
        ),
        (
            {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "1000009"},
            {"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": "99000000"},
            range(9, 10),
        ),
        ({"startingOffsets": '{"T": {"0": 8}}'}, {"endingOffsets": '{"T": {"0": 4}}'}, range(0)),
    ],
)
def test_starting_and_stopping_offsets(
    cluster_a: KafkaBroker, topic: Topic, start: dict[str, str], end: dict[str, str], expected: range
) -> None:
    """Every way to say where a bounded read starts and stops, in Spark's words and Flink's."""
    name = topic(cluster_a, config=FOR_EVER)
    for i in range(10):
        produce(cluster_a.bootstrap_servers, name, [(None, b"v")], timestamp_ms=1_000_000 + i)
    more = {key: value.replace('"T"', f'"{name}"') for key, value in {**start, **end}.items()}

    rows = read_batch(options(cluster_a, name, **more))

    assert [r["offset"] for r in rows] == list(expected)


def test_a_time_after_the_last_record_is_an_error_by_default(cluster_a: KafkaBroker, topic: Topic) -> None:
    """Spark's strategy `error`: the message names the partition and the way out."""
    name = topic(cluster_a, config=FOR_EVER)
    produce(cluster_a.bootstrap_servers, name, [(None, b"v")], timestamp_ms=1000)

    with pytest.raises(OffsetResolutionError, match=f"{name}-0.*startingOffsetsByTimestampStrategy=latest"):
        read_batch(options(cluster_a, name, startingTimestamp="9000000"))


def test_committed_offsets_with_and_without_a_reset(cluster_a: KafkaBroker, topic: Topic) -> None:
    """A group's offset is where reading starts; partitions without one follow the reset, or are an error."""
    name = topic(cluster_a, partitions=2)
    for partition in range(2):
        produce(cluster_a.bootstrap_servers, name, [(None, b"v")] * 5, partition=partition)
    consumer = Consumer({"bootstrap.servers": cluster_a.bootstrap_servers, "group.id": f"g-{name}"})
    consumer.commit(offsets=[TopicPartition(name, 0, 3)], asynchronous=False)
    consumer.close()
    given = options(cluster_a, name, **{"kafka.group.id": f"g-{name}"})

    def read(reset: KafkaOffsetResetStrategy) -> list[tuple[int, int]]:
        objects = SourceObjects(starting=KafkaOffsetsInitializer.committed_offsets(reset))
        return sorted((r["partition"], r["offset"]) for r in read_batch(given, objects))

    assert read(KafkaOffsetResetStrategy.EARLIEST) == [(0, 3), (0, 4), *((1, i) for i in range(5))]
    assert read(KafkaOffsetResetStrategy.LATEST) == [(0, 3), (0, 4)]
    with pytest.raises(OffsetResolutionError, match=f"{name}-1"):
        read(KafkaOffsetResetStrategy.NONE)


def test_a_partition_set_reads_only_its_partitions(cluster_a: KafkaBroker, topic: Topic) -> None:
    """`assign` names single partitions; others are left alone."""
    name = topic(cluster_a, partitions=3)
    for partition in range(3):
        produce(cluster_a.bootstrap_servers, name, [(None, b"v")], partition=partition)

    given = {"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "assign": json.dumps({name: [0, 2]})}

    assert sorted(r["partition"] for r in read_batch(given)) == [0, 2]


def test_deleted_records_are_an_error_or_a_warning(
    cluster_a: KafkaBroker, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """Records deleted before they were read: one clear error with the coordinates, or the rest with a warning."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, str(i).encode()) for i in range(100)])
    given = options(cluster_a, name, maxOffsetsPerTrigger="10")
    query = Query(given)
    assert query.step() == 10
    delete_records(cluster_a, name, 0, before=50)

    with pytest.raises(DataLossError, match=rf"'kafka', topic '{name}', partition 0, offsets \[10, 20\).*50"):
        query.step()

    query.options["failOnDataLoss"] = "false"
    query.restart(forget_last_batch=True)  # Spark replays the batch that failed
    assert len(query.rows) == 10
    query.run_until_rows(60)
    assert query.positions()[10:] == [("kafka", name, 0, i) for i in range(50, 100)]
    assert "were deleted" in caplog.text
    query.close()


@pytest.mark.parametrize("deleted", [2, 10], ids=["some", "all"])
def test_a_range_whose_records_are_deleted_before_the_start(
    cluster_a: KafkaBroker, topic: Topic, caplog: pytest.LogCaptureFixture, deleted: int
) -> None:
    """Who names offsets that are gone gets an error with them, or what is left with a warning; Flink says nothing."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, str(i).encode()) for i in range(10)])
    delete_records(cluster_a, name, 0, before=deleted)
    given = options(
        cluster_a, name, startingOffsets=f'{{"{name}": {{"0": 1}}}}', endingOffsets=f'{{"{name}": {{"0": 3}}}}'
    )
    with pytest.raises(DataLossError, match=rf"'kafka', topic '{name}', partition 0, offsets \[1, {min(deleted, 3)}\)"):
        read_batch(given)
    assert [r["offset"] for r in read_batch(given | {"failOnDataLoss": "false"})] == list(range(deleted, 3))
    assert "were deleted" in caplog.text


@pytest.mark.parametrize("drain", [False, True])
def test_what_is_behind_an_open_transaction_is_not_known(
    cluster_a: KafkaBroker, topic: Topic, tmp_path: Path, *, drain: bool
) -> None:
    """Records may come of it, and there may be others after it. So a topic that goes has "an unknown number" of them.

    One that drains goes on until the transaction has ended.
    """
    stays, goes = topic(cluster_a), topic(cluster_a)
    for name in (stays, goes):
        produce(cluster_a.bootstrap_servers, name, [(None, b"1")])
    metadata = MetadataFile(tmp_path / "streams.yaml")
    metadata.write(s={"a": part(cluster_a, stays, goes)})
    more = {"kafka.isolation.level": "read_committed", "drain-on-removal": str(drain).lower(), "drain-quiet-ms": "500"}
    query = Query(metadata.options(startingOffsets="earliest") | more)
    query.run_until_rows(2)
    leave_open(cluster_a, goes, "open", **{"transaction.timeout.ms": "8000"})
    produce(cluster_a.bootstrap_servers, goes, [(None, b"after")])
    query.run_for(1)
    metadata.write(s={"a": part(cluster_a, stays)})
    if drain:
        query.run_until_rows(3)

        def is_drained() -> bool:
            query.run_for(0.3)
            return any("was drained" in text for text in query.events())

        wait_until(is_drained, 30, "the end of the transaction")
        assert any("draining an unknown number of records" in text for text in query.events())
        assert any("was drained; 0 records are left unread" in text for text in query.events())
    else:
        query.run_for(2)
        assert any("was removed; an unknown number of records are left unread" in text for text in query.events())
    query.close()


def test_a_log_that_ended_below_the_position_is_read_once(cluster_a: KafkaBroker, topic: Topic) -> None:
    """With AvailableNow, too, whose batches all see the clusters as they were at its first one."""
    name = topic(cluster_a, partitions=2)
    produce(cluster_a.bootstrap_servers, name, [(None, b"0")] * 60, partition=0)
    given = options(cluster_a, name, **{"failOnDataLoss": "false", "fetchOffset.retryIntervalMs": "200"})
    query = Query(given | {"maxOffsetsPerTrigger": "10"})
    query.step()
    beyond = query.document
    beyond["clusters"]["kafka"] |= {"start": [100, 0], "count": [0, 0]}  # the log was longer once
    query.log, query.rows = [json.dumps(beyond)], []
    produce(cluster_a.bootstrap_servers, name, [(None, b"1")] * 30, partition=1)

    def write_on() -> None:
        for _ in range(4):
            time.sleep(0.2)
            produce(cluster_a.bootstrap_servers, name, [(None, b"new")] * 2, partition=0)

    writing = threading.Thread(target=write_on)
    writing.start()
    query.available_now()
    writing.join()
    query.available_now()
    query.assert_once()
    assert query.values().count("1") == 30
    assert "new" in query.values(), "what was written after the first look at the shorter log"
    query.close()


def test_an_open_transaction_makes_no_log_shorter(cluster_a: KafkaBroker, topic: Topic) -> None:
    """A query that read uncommitted records, and then only committed ones, waits for the end of the transaction."""
    name = topic(cluster_a)
    writer = Producer({"bootstrap.servers": cluster_a.bootstrap_servers, "transactional.id": name})
    writer.init_transactions(20)
    writer.begin_transaction()
    for _ in range(5):
        writer.produce(name, b"open")
    writer.flush(20)
    given = options(cluster_a, name, **{"fetchOffset.retryIntervalMs": "200"})
    query = Query(given)
    query.run_until_rows(5)
    query.options["kafka.isolation.level"] = "read_committed"
    query.restart()
    query.run_for(2)  # three attempts, as for a log that was truncated
    assert query.available_now() == 0
    query.restart()
    writer.commit_transaction(20)
    produce(cluster_a.bootstrap_servers, name, [(None, b"later")])
    query.run_until_rows(6)
    assert query.values() == ["later"] + ["open"] * 5
    query.close()


def test_a_topic_made_again_is_never_read_at_old_offsets(cluster_a: KafkaBroker, topic: Topic) -> None:
    """The topic id tells: an error, or the new topic from its start; also if it is longer than the old one was."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, b"old")] * 10)
    query = Query(options(cluster_a, name, **{"partition.discovery.interval.ms": "100"}))
    query.run_until_rows(10)
    cluster_a.delete_topic(name)
    cluster_a.create_topic(name)
    produce(cluster_a.bootstrap_servers, name, [(None, b"new")] * 30)

    with pytest.raises(DataLossError, match="recreated"):
        query.run_until_rows(40)

    query.options["failOnDataLoss"] = "false"
    query.restart()
    query.run_until_rows(40)
    query.run_until_idle()
    assert query.values() == ["new"] * 30 + ["old"] * 10
    query.close()


def test_retention_passing_a_waiting_query(topic: Topic) -> None:
    """Segments deleted by retention while the query was down are data loss with the right offsets."""
    with KafkaBroker(properties={"log.retention.check.interval.ms": "200"}) as broker:
        name = topic(broker, config={"segment.bytes": "1048576", "retention.bytes": "1048576"})
        produce(broker.bootstrap_servers, name, [(None, b"v" * 1000)] * 10)
        query = Query(options(broker, name))
        query.run_until_rows(10)
        query.close()
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})

        def retention_has_passed() -> bool:
            produce(broker.bootstrap_servers, name, [(None, b"v" * 1000)] * 1000)
            low, _ = consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=10)
            return low > 10

        wait_until(retention_has_passed, 60, "retention to delete the first segment")
        consumer.close()
        with pytest.raises(DataLossError, match=r"offsets \[10, \d+\).*retention"):
            query.run_until_idle()
        query.close()


def test_group_offsets_are_committed_after_a_batch(cluster_a: KafkaBroker, topic: Topic) -> None:
    """With a group id the offsets of finished batches reach the group; without one nothing is committed."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, b"v")] * 7)
    consumer = Consumer({"bootstrap.servers": cluster_a.bootstrap_servers, "group.id": f"mon-{name}"})

    def committed() -> int:
        return consumer.committed([TopicPartition(name, 0)], timeout=10)[0].offset

    of_spark = Query(options(cluster_a, name, **{"kafka.group.id": f"mon-{name}"}))
    of_spark.run_until_rows(7)
    of_spark.step()
    of_spark.close()
    query = Query(options(cluster_a, name, **{"properties.group.id": f"mon-{name}"}))
    query.run_until_rows(7)
    assert committed() < 0, "a query in Spark's words commits nothing"
    query.step()  # proves that the batch is finished
    wait_until(lambda: committed() == 7, 10, "the commit")
    assert query.enumerator.report()["commitsFailed"] == 0
    query.close()
    consumer.close()


def test_latest_is_resolved_once(cluster_a: KafkaBroker, topic: Topic) -> None:
    """`latest` is frozen in the first document, idle partitions included: a restart skips nothing."""
    name = topic(cluster_a, partitions=2)
    produce(cluster_a.bootstrap_servers, name, [(None, b"before")] * 3, partition=0)
    query = Query(options(cluster_a, name, startingOffsets="latest"))
    assert query.step() == 0
    assert len(query.log) == 1
    query.close()
    produce(cluster_a.bootstrap_servers, name, [(None, b"after")], partition=0)
    produce(cluster_a.bootstrap_servers, name, [(None, b"after")], partition=1)

    query.run_until_rows(2)

    assert query.values() == ["after", "after"]
    query.close()


def test_a_replay_reads_the_same_rows(cluster_a: KafkaBroker, topic: Topic) -> None:
    """Batch 0 and later ones are replayed in a fresh process from their texts, with other options and newer records."""
    name = topic(cluster_a, partitions=3)
    produce(cluster_a.bootstrap_servers, name, [(None, str(i).encode()) for i in range(30)])
    query = Query(options(cluster_a, name))
    query.step()
    before = query.positions()
    produce(cluster_a.bootstrap_servers, name, [(None, b"later")] * 5)

    query.rows.clear()
    query.options |= {"maxOffsetsPerTrigger": "1", "startingOffsets": "latest"}
    query.restart(forget_last_batch=True)

    assert query.positions() == before
    query.close()


def test_streams_end_themselves_at_their_stops(cluster_a: KafkaBroker, topic: Topic) -> None:
    """`setUnbounded` with a stop: the document says done; so does one more batch of a finished query started again."""
    name = topic(cluster_a, partitions=2)
    produce(cluster_a.bootstrap_servers, name, [(None, b"v")] * 10)
    query = Query(options(cluster_a, name, endingOffsets="latest"))
    query.run_until(lambda: query.document.get("done") == 1)
    produce(cluster_a.bootstrap_servers, name, [(None, b"beyond the stop")] * 10)
    query.run_until_idle()
    assert len(query.rows) == 10

    query.restart()
    query.run_until_idle()

    assert query.document["done"] == 2
    assert len(query.rows) == 10
    query.close()


def test_a_checkpoint_of_sparks_own_source(cluster_a: KafkaBroker, topic: Topic) -> None:
    """It is refused by name, or imported when the user says so, and never taken for a first start."""
    name = topic(cluster_a, partitions=2)
    for partition in range(2):
        produce(cluster_a.bootstrap_servers, name, [(None, str(partition).encode())] * 5, partition=partition)
    query = Query(options(cluster_a, name))
    query.log.append(json.dumps({name: {"0": 3, "1": 5}}))

    with pytest.raises(CheckpointError, match="import-kafka-checkpoint"):
        query.step()

    query.options["import-kafka-checkpoint"] = "true"
    query.restart()
    query.run_until_idle()
    assert [(p, o) for _, _, p, o in query.positions()] == [(0, 3), (0, 4)]
    query.close()

"""Moving a running query between real clusters: the copies are made by a small consumer and producer, with other offsets."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from dynamic_kafka.cli.main import main
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.evidence import MoveRequest, Sync
from dynamic_kafka.source.driver.movers import answer
from dynamic_kafka.source.driver.record_log import OffsetSyncs, open_log
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.brokers import delete_records
from tests.engine import MetadataFile, Query, part, read_batch, write_checkpoint
from tests.mirror_maker import mirror_maker

pytestmark = pytest.mark.broker

Topic = Callable[..., str]


def write(broker: KafkaBroker, topic: str, first: int, count: int, **more: Any) -> None:
    """Produce numbered values into two partitions, with two identical records among them and a header on each."""
    for partition in (0, 1):
        values = [f"{partition}-{i}" for i in range(first, first + count)]
        records = [("same", "same") if value.endswith("7") else ("k", value) for value in values]
        produce(broker.bootstrap_servers, topic, records, partition=partition, headers=[("h", b"1")], **more)
        time.sleep(0.002)  # another timestamp


def shift(broker: KafkaBroker, topic: str) -> None:
    """Give what follows other offsets than on other clusters: ten records in each partition, which are deleted."""
    write(broker, topic, -30, 10)
    delete_records(broker, topic, 0, 1, before=10)


def copy(
    old: KafkaBroker, old_topic: str, new: KafkaBroker, new_topic: str, after: Mapping[int, int]
) -> dict[int, int]:
    """Copy the records from offsets on, with time and headers, and return where the copy ends on the old cluster."""
    consumer = Consumer(
        {"bootstrap.servers": old.bootstrap_servers, "group.id": "copy", "enable.partition.eof": "true"}
    )
    producer = Producer({"bootstrap.servers": new.bootstrap_servers})
    consumer.assign([TopicPartition(old_topic, p, after.get(p, 0)) for p in (0, 1)])
    ends: dict[int, int] = {}
    while len(ends) < 2:
        message = consumer.poll(5)
        assert message is not None
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ends[message.partition() or 0] = message.offset() or 0
            continue
        producer.produce(
            new_topic,
            key=message.key(),
            value=message.value(),
            partition=message.partition() or 0,
            timestamp=message.timestamp()[1],
            headers=message.headers(),
        )
        producer.flush()
    consumer.close()
    return ends


def values(query: Query) -> list[str]:
    """What was read, sorted."""
    return sorted(f"{r['partition']} {r['value'].decode()}" for r in query.rows)


def written(count: int) -> list[str]:
    """What `write` wrote, sorted."""
    every = [(p, f"{p}-{i}") for p in (0, 1) for i in range(count)]
    return sorted(f"{p} {'same' if value.endswith('7') else value}" for p, value in every)


def test_a_query_moves_to_a_copy_with_other_offsets(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """Drained, translated by the same records, read on: nothing is lost or repeated, also over transactions and restarts."""
    name = topic(cluster_a, cluster_b, partitions=2)
    shift(cluster_b, name)
    write(cluster_a, name, 0, 20, transactional="commit")
    file.write(s={"a": part(cluster_a, name)})
    query = Query(file.options(maxOffsetsPerTrigger="10", **{"drain-quiet-ms": "300"}))
    query.step()
    copied = copy(cluster_a, name, cluster_b, name, {})
    write(cluster_a, name, 20, 10)
    copied = copy(cluster_a, name, cluster_b, name, copied)

    file.write(s={"b": part(cluster_b, name, continues={"cluster": "a", "by": "records"})})
    query.run_until(lambda: "a" not in query.document["clusters"])
    query.restart(forget_last_batch=True)
    write(cluster_b, name, 30, 10)
    query.run_until(lambda: len({(r["cluster"], r["partition"], r["offset"]) for r in query.rows}) >= 80)
    query.run_until_idle()

    # The last batch before the restart was read twice, as Spark repeats it.
    query.rows[:] = {(r["cluster"], r["partition"], r["offset"]): r for r in query.rows}.values()
    assert values(query) == written(40)
    report = query.enumerator.report()["clusters"]
    assert list(report) == ["b"]
    query.close()


def test_the_guarantee_is_said_before_anything_is_read(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """In the log and in `lastProgress`; while the copy lags behind, the words say that."""
    name = topic(cluster_a, cluster_b, partitions=2)
    write(cluster_a, name, 0, 12)
    copied = copy(cluster_a, name, cluster_b, name, {})
    write(cluster_a, name, 12, 3)
    file.write(s={"a": part(cluster_a, name)})
    query = Query(file.options(**{"drain-quiet-ms": "300"}))
    query.run_until_rows(30)
    file.write(s={"b": part(cluster_b, name, continues={"cluster": "a", "by": "records"})})
    query.run_until(lambda: any("not on 'b' (yet)" in text for text in query.events()))
    (first, _) = query.enumerator.report()["clusters"]["b"]["continues"]
    assert first["guarantee"] == "waiting"
    assert first["was"] == {"cluster": "a", "topic": name, "offset": 15}
    query.run_until_idle()
    assert len(query.rows) == 30

    copy(cluster_a, name, cluster_b, name, copied)
    query.run_until(lambda: "a" not in query.document["clusters"])
    (first, _) = query.enumerator.report()["clusters"]["b"]["continues"]
    assert (first["guarantee"], first["overlap"], first["offset"]) == ("exact", 0, 15)
    assert any(f"topic '{name}' continues" in text and "exact" in text for text in query.events())
    query.run_until_idle()
    assert values(query) == written(15)
    query.close()


def test_same_offsets_are_proved_or_refused(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """A copy with the same offsets is gone on with at once; another log under the same name is not."""
    name, renamed = topic(cluster_a, partitions=2), topic(cluster_b, partitions=2)
    write(cluster_a, name, 0, 10)
    write(cluster_b, renamed, 0, 10)
    file.write(s={"a": part(cluster_a, name)})
    query = Query(file.options(**{"drain-quiet-ms": "300"}))
    query.run_until_rows(20)
    move = {"cluster": "a", "topics": {name: renamed}, "by": "same-offsets"}
    file.write(s={"b": part(cluster_b, renamed, continues=move)})
    query.run_until(lambda: any("is not a copy with same offsets" in text for text in query.events()))
    assert query.document["clusters"]["a"]["draining"] == [name]

    twin = topic(cluster_b, partitions=2)
    copy(cluster_a, name, cluster_b, twin, {})
    move["topics"] = {name: twin}
    file.write(s={"b": part(cluster_b, twin, continues=move)})
    query.run_until(lambda: "a" not in query.document["clusters"])
    write(cluster_b, twin, 10, 5)
    query.run_until_rows(30)
    assert values(query) == written(15)
    query.close()


def test_what_a_copy_has_besides_is_told_with_its_offsets(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """A producer that moved early, far before the position, and a mirror that repeats its last records: neither is exact."""
    name = topic(cluster_a, cluster_b, partitions=2)
    write(cluster_a, name, 0, 10)
    copied = copy(cluster_a, name, cluster_b, name, {})
    produce(cluster_b.bootstrap_servers, name, [("k", "early")], partition=0)
    write(cluster_a, name, 10, 40)
    copy(cluster_a, name, cluster_b, name, copied)
    copy(cluster_a, name, cluster_b, name, {0: 50, 1: 47})
    file.write(s={"a": part(cluster_a, name)})
    query = Query(file.options(**{"drain-quiet-ms": "300"}))
    query.run_until_rows(100)
    move = {"cluster": "a", "by": "records"}
    file.write(s={"b": part(cluster_b, name, continues=move)})

    def is_said(*parts: str) -> bool:
        return any(all(part in text for part in parts) for text in query.events())

    early = "1 record on 'b' that 'a' does not have there (offset 10): is not read"
    query.run_until(lambda: is_said("partition 0", "offset 51 would be unproved", early))
    query.run_until(lambda: is_said("partition 1", "with up to 3 records again", "there before (offsets 50 to 52)"))
    query.run_until_idle()
    assert values(query) == written(50)
    query.close()


@pytest.mark.slow
def test_a_cluster_dies_its_mirror_takes_over_and_the_first_comes_back(
    mortal: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """The anchor in the document proves the position. On the way back, what nobody has read is told and can be read."""
    name = topic(mortal, cluster_b, partitions=2)
    shift(cluster_b, name)
    write(mortal, name, 0, 10)
    move = {"cluster": "a", "by": "records"}
    file.write(s={"a": part(mortal, name), "b": part(cluster_b, name, continues=move)})
    query = Query(
        file.options(
            **{"drain-quiet-ms": "300", "cluster-failure-mode": "isolate", "properties.default.api.timeout.ms": "4000"}
        )
    )
    query.run_until_rows(20)
    copied = copy(mortal, name, cluster_b, name, {})
    assert {r["cluster"] for r in read_batch(file.options())} == {"a"}
    marks = query.document["clusters"]["a"]["marks"][name]
    assert [len(marks[p][-1][1]) for p in ("0", "1")] == [6, 6]
    query.run_until(lambda: _compared(query, "a", name) == [10, 10])
    unread = [("k", "unread-0"), ("k", "unread-1")]
    produce(mortal.bootstrap_servers, name, unread, partition=0)

    mortal.kill()
    try:
        ends = _ends(cluster_b, name)
        write(cluster_b, name, 10, 5)
        file.write(s={"b": part(cluster_b, name, continues=move)})
        query.restart()
        query.run_until_rows(30, timeout_s=60)
        assert list(query.document["clusters"]) == ["b"]
        assert any("exact" in text for text in query.events())
    finally:
        mortal.start()
    copy(cluster_b, name, mortal, name, ends)
    assert copied

    back = {"cluster": "b", "by": "records"}
    file.write(s={"a": part(mortal, name, continues=back)})
    told = "2 records on 'a' that 'b' does not have there (offsets 10 to 11): are not read"
    query.run_until(lambda: any(told in text and "would be unproved" in text for text in query.events()))
    assert len(query.rows) == 30
    only_a = MetadataFile(file.path.parent / "a.yaml")
    only_a.write(s={"a": part(mortal, name)})
    offsets = {"startingOffsets": {name: {"0": 10, "1": 10}}, "endingOffsets": {name: {"0": 12, "1": 10}}}
    rows = read_batch(only_a.options(**{option: json.dumps(value) for option, value in offsets.items()}))
    assert [row["value"].decode() for row in rows] == ["unread-0", "unread-1"]

    file.write(s={"a": part(mortal, name, continues={**back, "guarantee": "unproved"})})
    query.run_until(lambda: list(query.document["clusters"]) == ["a"])
    write(mortal, name, 15, 5)
    query.run_until_rows(40)
    query.run_until_idle()
    assert values(query) == written(20)
    assert json.dumps(query.document).count("marks") == 0
    query.close()


@pytest.mark.slow
def test_a_batch_that_was_planned_before_the_cluster_died_is_read_from_the_copy(
    mortal: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """Spark repeats it as its document says: the same records, from another place."""
    name = topic(mortal, cluster_b, partitions=2)
    shift(cluster_b, name)
    write(mortal, name, 0, 10)
    move = {"cluster": "a", "by": "records"}
    file.write(s={"a": part(mortal, name), "b": part(cluster_b, name, continues=move)})
    query = Query(
        file.options(
            maxOffsetsPerTrigger="8", **{"cluster-failure-mode": "isolate", "properties.default.api.timeout.ms": "4000"}
        )
    )
    query.run_until_rows(8)
    query.log.append(json.dumps(query.enumerator.latest_offset(query.document, limited=True)))
    copy(mortal, name, cluster_b, name, {})

    mortal.kill()
    try:
        # The copy began when nothing was compared any more.
        file.write(s={"b": part(cluster_b, name, continues={**move, "guarantee": "unproved"})})
        query.restart(forget_last_batch=True)
        assert len(query.rows) == 16
        assert {r["cluster"] for r in query.rows[8:]} == {"b"}
        query.run_until_rows(20, timeout_s=60)
        query.run_until_idle()
        assert values(query) == written(10)
    finally:
        query.close()
        mortal.start()


def _compared(query: Query, cluster: str, topic: str) -> list[int]:
    """Up to which offset the document says that each partition was compared, or counted."""
    of_topic = query.document["clusters"][cluster].get("anchors", {}).get(topic, {})
    return [of_topic[p][9] for p in ("0", "1") if p in of_topic]


def _ends(broker: KafkaBroker, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "ends"})
    try:
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in (0, 1)}
    finally:
        consumer.close()


@pytest.mark.slow
def test_a_real_mirror_maker_is_followed(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile, tmp_path: Path
) -> None:
    """Its topic has another name and other offsets; its syncs are read, and the records make them exact."""
    name = topic(cluster_a, partitions=2)
    for first in range(0, 60, 20):
        write(cluster_a, name, first, 20, transactional="commit")
    mirrored = f"a.{name}"
    cluster_b.create_topic(mirrored, 2)
    shift(cluster_b, mirrored)
    file.write(s={"a": part(cluster_a, name)})
    query = Query(file.options(**{"drain-quiet-ms": "300"}))
    query.run_until_rows(120)
    properties = {n: {"bootstrap.servers": c.bootstrap_servers} for n, c in (("a", cluster_a), ("b", cluster_b))}
    partition = KafkaTopicPartition(name, 0)

    def syncs() -> list[Sync] | None:
        with open_log("b", properties["b"], group_id="g", timeout_s=10) as log:
            return log.syncs("mm2-offset-syncs.a.internal", partition)

    move = {"cluster": "a", "by": "mirror-maker"}
    with mirror_maker(cluster_a, cluster_b, name, tmp_path, **{"offset-syncs.topic.location": "target"}):
        wait_until(lambda: len(syncs() or ()) > 1, 120, "offset syncs")
        (known, *_) = reversed(syncs() or ())
        for position in (known.upstream, known.upstream + 1, 63):
            there = KafkaTopicPartition(mirrored, 0)
            request = MoveRequest("b", there, "a", partition, position, "mirror-maker", "", False, ())
            found = answer(request, properties, OffsetSyncs(), group_id="g", timeout_s=10)
            assert found.guarantee == "at-least-once"
            assert found.position is not None
            assert 10 <= found.position <= 70
        file.write(s={"b": part(cluster_b, mirrored, continues=move)})
        query.run_until(lambda: "a" not in query.document["clusters"], timeout_s=120)
        (moved, _) = query.enumerator.report()["clusters"]["b"]["continues"]
        assert (moved["guarantee"], moved["offset"]) == ("exact", 70)
        write(cluster_a, name, 60, 10)
        query.run_until_rows(140, timeout_s=60)
    query.run_until_idle()
    assert values(query) == written(70)
    assert {r["topic"] for r in query.rows if r["cluster"] == "b"} == {mirrored}
    query.close()


def test_the_command_says_where_positions_are_before_anything_moves(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a table and as JSON; it ends with 1 if a partition would wait."""
    name, empty = topic(cluster_a, cluster_b, partitions=2), topic(cluster_b, partitions=2)
    shift(cluster_b, name)
    write(cluster_a, name, 0, 10)
    copy(cluster_a, name, cluster_b, name, {})
    file.write(s={"a": part(cluster_a, name)})
    query = Query(file.options())
    query.run_until_rows(20)
    query.close()
    checkpoint = file.path.parent / "checkpoint"
    write_checkpoint(checkpoint, query.log)
    (checkpoint / "metadata").write_text('{"id": "x"}')
    file.write(s={"b": part(cluster_b, name, empty)})
    options = ["metadata-service=file", f"metadata-service.path={file.path}", "stream-ids=s"]
    command = ["offsets", "translate", str(checkpoint), "--from", "a", "--to", "b"]
    command += [part for option in options for part in ("-o", option)]

    assert main([*command, "--by", "records"]) == 0
    shown = capsys.readouterr().out
    assert "READ AGAIN" in shown
    assert re.search(rf"{name} +0 +10 +{name} +20 +exact +0 ", shown)
    assert main([*command, "--by", "records", "--topic", f"{name}={empty}", "--output", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["moves"]
    assert found["partitions"][0]["new_position"] is None
    assert "none of the last 10 records before it is on" in found["partitions"][0]["evidence"]
    assert main([*command, "--by", "timestamp", "--topic", f"{name}={empty}"]) == 1
    assert "has no record of time" in capsys.readouterr().out

"""Following the metadata on real clusters: the rows of the table in docs/explanations/following.md that need a broker."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from dynamic_kafka.errors import (
    ClusterUnavailableError,
    DataLossError,
    DynamicKafkaError,
)
from dynamic_kafka.source.driver import monitor as monitor_module
from dynamic_kafka.source.settings import SourceSettings
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.engine import MetadataFile, Query, part, read_all, read_batch

pytestmark = pytest.mark.broker

Topic = Callable[..., str]


def write(broker: KafkaBroker, topic: str, *values: str, **more: Any) -> None:
    """Produce values."""
    produce(broker.bootstrap_servers, topic, [(None, value.encode()) for value in values], **more)


def test_one_stream_over_two_clusters(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """The same topic on two clusters is read from both, each row says which, and each limit is shared fairly."""
    name = topic(cluster_a, cluster_b, partitions=2)
    write(cluster_a, name, *(f"a{i}" for i in range(100)))
    write(cluster_b, name, *(f"b{i}" for i in range(10)))
    file.write(s={"a": part(cluster_a, name), "b": part(cluster_b, name)})

    query = Query(file.options(maxOffsetsPerTrigger="20"))

    assert query.step() == 20
    assert Counter(r["cluster"] for r in query.rows) == {"a": 10, "b": 10}
    query.run_until_rows(110)
    query.assert_once()
    assert query.values() == sorted([f"a{i}" for i in range(100)] + [f"b{i}" for i in range(10)])
    query.close()


def test_cluster_found_later_is_read_from_earliest_or_its_own_offsets(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, cluster_c: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """A global `latest` is for the first snapshot only; a cluster found later loses nothing unless it says so."""
    name = topic(cluster_a, cluster_b, cluster_c)
    for broker in (cluster_a, cluster_b, cluster_c):
        write(broker, name, "before")
    file.write(s={"a": part(cluster_a, name)})
    query = Query(file.options(startingOffsets="latest"))
    query.run_until_idle()
    assert query.rows == []

    file.write(
        s={
            "a": part(cluster_a, name),
            "b": part(cluster_b, name),
            "c": part(cluster_c, name, startingOffsets="latest"),
        }
    )

    query.run_until(lambda: set(query.document["clusters"]) == {"a", "b", "c"})
    query.run_until_idle()
    write(cluster_c, name, "after")
    query.run_until_rows(2)
    assert sorted((r["cluster"], r["value"]) for r in query.rows) == [("b", b"before"), ("c", b"after")]
    query.close()


def test_new_topic_and_new_partition_are_read_from_earliest(
    cluster_a: KafkaBroker, topic: Topic, file: MetadataFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the starting offsets say; a listed topic that is not there yet is a warning, then read from its start."""
    monkeypatch.setattr(monitor_module, "_MISSING_AFTER_S", 1.0)
    first, second = topic(cluster_a), topic()
    file.write(s={"a": part(cluster_a, first)})
    query = Query(file.options(startingOffsets="latest"))
    query.run_until_idle()
    admin = AdminClient({"bootstrap.servers": cluster_a.bootstrap_servers})
    admin.create_partitions([NewPartitions(first, 2)])[first].result()
    write(cluster_a, first, "p1", partition=1)

    query.run_until_rows(1)
    file.write(s={"a": part(cluster_a, first, second)})
    query.run_until(lambda: any("does not exist yet" in text for text in query.events()))
    cluster_a.create_topic(second)
    write(cluster_a, second, "t2")

    query.run_until_rows(2)
    assert query.values() == ["p1", "t2"]
    query.close()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_deleted_topic_with_unread_records_is_data_loss(
    cluster_a: KafkaBroker, topic: Topic, fail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is the only one. The error, or the warning, counts; made again, the topic is read from its start."""
    monkeypatch.setattr(monitor_module, "_MISSING_AFTER_S", 1.0)
    name = topic(cluster_a)
    write(cluster_a, name, *"1234567")
    options = {
        "kafka.bootstrap.servers": cluster_a.bootstrap_servers,
        "subscribePattern": name,
        "partition.discovery.interval.ms": "500",
    }
    limits = {"maxOffsetsPerTrigger": "4", "minOffsetsPerTrigger": "4"}  # nothing is planned while the topic goes
    query = Query(options | limits | {"failOnDataLoss": fail, "startingOffsets": "earliest"})
    query.step()
    admin = AdminClient({"bootstrap.servers": cluster_a.bootstrap_servers})
    admin.delete_topics([name])[name].result()
    if fail == "true":
        with pytest.raises(
            DataLossError, match=f"'{name}', partition 0, offsets .4, 7.: the topic was deleted; 3 records"
        ):
            query.run_until(lambda: False)
    else:
        query.run_until(lambda: any("was deleted; 3 records are left unread" in text for text in query.events()))
        cluster_a.create_topic(name)
        write(cluster_a, name, *"abcd")
        query.run_until_rows(8)
        assert query.values() == [*"1234", *"abcd"]
    query.close()


def test_removed_cluster_is_cut_and_resumes_when_it_comes_back(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """Positions are retained, over a restart too; the gap is read once."""
    name = topic(cluster_a, cluster_b)
    both = {"a": part(cluster_a, name), "b": part(cluster_b, name)}
    file.write(s=both)
    write(cluster_b, name, "1")
    query = Query(file.options())
    query.run_until_rows(1)
    file.write(s={"a": both["a"]})
    query.run_until(lambda: query.document["clusters"]["b"].get("retained") is not None)
    write(cluster_b, name, "2", "3")
    query.run_until_idle()
    assert query.values() == ["1"]

    query.restart()
    file.write(s=both)

    query.run_until_rows(3)
    query.run_until_idle()
    assert query.values() == ["1", "2", "3"]
    query.close()


def test_drain_on_removal_reads_on_until_quiet(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """With draining a topic that moves is read to its end on the old cluster, over a restart, and nothing is read twice."""
    name = topic(cluster_a, cluster_b)
    write(cluster_a, name, *(f"a{i}" for i in range(50)))
    file.write(s={"a": part(cluster_a, name)})
    options = file.options(maxOffsetsPerTrigger="10", **{"drain-on-removal": "true", "drain-quiet-ms": "500"})
    query = Query(options)
    query.step()
    file.write(s={"b": part(cluster_b, name)})
    write(cluster_b, name, *(f"b{i}" for i in range(10)))
    query.run_until(lambda: bool(query.document["clusters"]["a"].get("draining")))
    query.restart()

    query.run_until_rows(60)
    query.run_until(lambda: "retained" in query.document["clusters"]["a"])
    query.run_until_idle()

    query.assert_once()
    assert len(query.rows) == 60
    assert any("'a'" in text and "was drained; 0 records" in text for text in query.events())
    query.close()


def test_available_now_across_changes(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """Each run reads what was there at its start, also when clusters and partitions changed in between."""
    name = topic(cluster_a, cluster_b)
    write(cluster_a, name, "1", "2", "3")
    file.write(s={"a": part(cluster_a, name)})
    query = Query(file.options(maxOffsetsPerTrigger="2"))
    assert query.available_now() == 3
    write(cluster_a, name, "4")
    write(cluster_b, name, "5")
    file.write(s={"a": part(cluster_a, name), "b": part(cluster_b, name)})
    assert query.available_now() == 2
    file.write(s={"b": part(cluster_b, name)})
    assert query.available_now() == 0
    assert query.available_now() == 0
    write(cluster_a, name, "6")
    file.write(s={"a": part(cluster_a, name), "b": part(cluster_b, name)})
    assert query.available_now() == 1
    assert query.values() == list("123456")
    query.assert_once()
    query.close()


@pytest.mark.slow
def test_replay_with_the_metadata_service_down(cluster_a: KafkaBroker, topic: Topic, file: MetadataFile) -> None:
    """A logged batch is read again from its text alone."""
    name = topic(cluster_a)
    write(cluster_a, name, "1", "2")
    file.write(s={"a": part(cluster_a, name)})
    query = Query(file.options())
    query.step()
    file.path.unlink()
    query.rows.clear()

    query.restart(forget_last_batch=True)

    assert query.values() == ["1", "2"]
    query.close()


def test_dead_cluster_isolated_while_the_others_are_read(
    cluster_a: KafkaBroker, mortal: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """Mode `isolate`: the dead one is shown as unreachable, its positions wait, and it goes on when it is back."""
    name = topic(cluster_a, mortal)
    file.write(s={"a": part(cluster_a, name), "b": part(mortal, name)})
    options = file.options(**{"cluster-failure-mode": "isolate", "properties.default.api.timeout.ms": "3000"})
    query = Query(options)
    query.run_until_idle()
    mortal.kill()
    write(cluster_a, name, "1")
    query.run_until_rows(1)
    query.run_until(lambda: query.enumerator.report()["clusters"]["b"]["state"] == "unreachable")
    slowest = max(timed(query.step) for _ in range(20))
    assert slowest < 1.0  # no call waits for the dead one
    mortal.restart()
    write(mortal, name, "2")

    query.run_until_rows(2, 60)
    assert query.values() == ["1", "2"]
    query.close()


def timed(function: Callable[[], Any]) -> float:
    """How long a call takes, in seconds."""
    begin = time.monotonic()
    function()
    return time.monotonic() - begin


def test_dead_cluster_ends_the_query_by_default(
    cluster_a: KafkaBroker, mortal: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """Mode `fail`: after the client's time-outs, with an error that names the cluster and what to do."""
    name = topic(cluster_a, mortal)
    file.write(s={"a": part(cluster_a, name), "b": part(mortal, name)})
    query = Query(file.options(**{"properties.default.api.timeout.ms": "3000"}))
    query.run_until_idle()
    mortal.kill()

    with pytest.raises(ClusterUnavailableError, match=r"'b'.*cluster-failure-mode=isolate") as caught:
        query.run_until(lambda: False)
    assert caught.value.cluster_id == "b"
    query.close()


@pytest.mark.slow
def test_a_broker_that_comes_back_in_time_is_no_error(mortal: KafkaBroker, topic: Topic, file: MetadataFile) -> None:
    """A planned range waits in its task for a broker that is down, and is read once it is back."""
    name = topic(mortal)
    write(mortal, name, *"12345")
    file.write(s={"b": part(mortal, name)})
    query = Query(file.options(maxOffsetsPerTrigger="2"))
    query.step()
    end = query.enumerator.latest_offset(query.document, limited=True)
    tasks = query.enumerator.tasks(query.document, end)
    mortal.kill()
    back = threading.Timer(2.0, mortal.restart)
    back.start()

    rows = read_all(tasks, query.settings)

    back.join()
    assert [r["value"] for r in rows] == [b"3", b"4"]
    query.close()


def test_a_changed_password_takes_effect_without_a_restart(
    topic: Topic, file: MetadataFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Properties that change with the same topics are used from then on; before, the error comes after one more look."""
    monkeypatch.setattr(monitor_module, "_REFUSED_BACKOFF_S", (1.0,))
    monkeypatch.setattr(SourceSettings, "call_timeout_ms", 2_000)
    with KafkaBroker(sasl_plain={"reader": "old"}) as broker:
        name = topic(broker)
        properties = broker.client_properties("reader")
        write_properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "reader",
        }
        produce(broker.bootstrap_servers, name, [(None, b"1")], properties=write_properties | {"sasl.password": "old"})
        own = {k: v for k, v in properties.items() if k != "bootstrap.servers"}
        file.write(s={"a": part(broker, name, properties=own)})
        query = Query(file.options(**{"properties.default.api.timeout.ms": "30000"}))
        query.run_until_rows(1)
        assert "old" not in query.log[-1]

        broker.restart(sasl_plain={"reader": "new"})
        produce(broker.bootstrap_servers, name, [(None, b"2")], properties=write_properties | {"sasl.password": "new"})
        renewed = broker.client_properties("reader")
        file.write(s={"a": part(broker, name, properties={k: v for k, v in renewed.items() if k in own})})

        query.run_until_rows(2, 60)
        assert query.values() == ["1", "2"]
        query.close()


def test_two_names_for_one_cluster_are_a_warning(cluster_a: KafkaBroker, topic: Topic, file: MetadataFile) -> None:
    """A topic that both name is read once, and the warning says so."""
    name = topic(cluster_a)
    write(cluster_a, name, "1")
    file.write(s={"a": part(cluster_a, name), "b": part(cluster_a, name)})
    query = Query(file.options())
    query.run_until_rows(1)
    query.run_until_idle()
    assert query.values() == ["1"]
    assert any("are one Kafka cluster" in text and name in text for text in query.events())
    query.close()


def test_a_wrong_bootstrap_server_is_named(topic: Topic) -> None:
    """A dead address: the error says which cluster and address, and what to do."""
    with pytest.raises(DynamicKafkaError, match=r"'kafka' at 127\.0\.0\.1:1 does not answer"):
        read_batch(
            {
                "kafka.bootstrap.servers": "127.0.0.1:1",
                "subscribe": "t",
                "kafka.default.api.timeout.ms": "2000",
            }
        )


@pytest.mark.slow
def test_what_is_known_to_be_unread_is_read_over_an_outage(
    mortal: KafkaBroker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `fail`, a broker that is away between two batches neither ends the query nor looks like the end."""
    monkeypatch.setattr(SourceSettings, "call_timeout_ms", 2_000)
    name = topic(mortal)
    write(mortal, name, *map(str, range(10)))
    options = {"kafka.bootstrap.servers": mortal.bootstrap_servers, "subscribe": name, "maxOffsetsPerTrigger": "4"}
    quick = {"properties.metadata.max.age.ms": "1000", "properties.reconnect.backoff.max.ms": "500"}
    query = Query(options | quick)
    assert query.step() == 4
    mortal.kill()
    wait_until(lambda: not mortal.is_running, 10, "the broker to be gone")
    monitors = query.enumerator._view.monitors
    wait_until(
        lambda: (
            query.enumerator.latest_offset(query.document, limited=True) and monitors["kafka"].failing_for_s is not None
        ),
        30,
        "the source to see it",
    )
    threading.Timer(3, mortal.start).start()
    assert query.step() == 4, "the batch waits for the broker"
    query.run_until_rows(10)
    assert query.values() == list("0123456789")
    query.close()

"""Metrics of real queries: the names of the seeds, read from `/metrics`."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from dynamic_kafka.cli.main import main
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.engine import MetadataFile
from tests.spark.tables import Topic, create, on
from tests.versions import needs

pytestmark = [pytest.mark.broker, pytest.mark.spark]

Found = dict[str, dict[frozenset[tuple[str, str]], float]]


def address_of(query: StreamingQuery) -> str:
    """Where the metrics are, as the query's progress says."""

    def told() -> str | None:
        assert query.exception() is None, query.exception()
        progress = query.lastProgress
        latest = progress.sources[0].latestOffset if progress is not None else None
        found = json.loads(latest) if isinstance(latest, str) else latest
        return found.get("metrics") if isinstance(found, dict) else None

    return str(wait_until(told, 60, "the address of the metrics"))


def get(url: str) -> str:
    """The text of an answer."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def series(url: str) -> Found:
    """The samples by name and labels."""
    found: Found = {}
    for family in text_string_to_metric_families(get(f"{url}metrics")):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def of(found: Found, series: str, /, **labels: str) -> float | None:
    """The value of the only sample that has these labels."""
    wanted = labels.items()
    values = [value for key, value in found.get(f"dynamic_kafka_{series}", {}).items() if wanted <= set(key)]
    assert len(values) <= 1, (series, values)
    return values[0] if values else None


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
def test_every_metric_of_the_seeds_is_served(
    spark: SparkSession,
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    topic: Topic,
    tmp_path: Path,
    checkpoint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A query reads two clusters, commits to a group, and writes exactly once."""
    name, target = topic(cluster_a, cluster_b, partitions=2), topic(cluster_a)
    for broker, count in ((cluster_a, 3), (cluster_b, 5)):
        produce(broker.bootstrap_servers, name, [(str(i), str(i)) for i in range(count)])
    metadata = MetadataFile(tmp_path / "streams.yaml")
    servers = {"a": cluster_a.bootstrap_servers, "b": cluster_b.bootstrap_servers}
    metadata.write(orders={c: {"topics": [name], "bootstrapServers": at} for c, at in servers.items()})
    rows = (
        spark.readStream.format("dynamic-kafka")
        .options(**metadata.options("orders", startingOffsets="earliest"))
        .options(**{"properties.group.id": target, "metrics.port": "0"})
        .load()
    )
    query = (
        rows.select("value")
        .writeStream.format("dynamic-kafka")
        .queryName("nightly")
        .options(**{"properties.bootstrap.servers": cluster_a.bootstrap_servers, "topic": target})
        .options(**{"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": target})
        .options(**{"metrics.port": "0", "checkpointLocation": checkpoint})
        .start()
    )
    url = address_of(query)

    counts = {"a": 3, "b": 5}

    def has_read() -> bool:
        assert query.exception() is None, query.exception()
        return of(series(url), "source_records_total", query="nightly", cluster="b", topic=name) == counts["b"]

    def has_clients_numbers() -> bool:
        # librdkafka tells them at intervals, and a task that ends later passes them on.
        produce(cluster_b.bootstrap_servers, name, [("more", "1")])
        counts["b"] += 1
        wait_until(has_read, 60, "the record")
        found = series(url)
        consumers = of(found, "consumer_requests_total", query="nightly", cluster="b")
        return bool(consumers and of(found, "producer_messages_total", query="nightly"))

    wait_until(has_clients_numbers, 60, "the numbers of the clients")

    def complete() -> Found | None:
        found = series(url)
        done = {
            "commits": of(found, "source_commits_succeeded_total", query="nightly", cluster="b"),
            "written": of(found, "sink_records_total", query="nightly") == sum(counts.values()),
            "read": of(found, "source_records_total", query="nightly", cluster="b", topic=name) == counts["b"],
        }
        committed = [v for k, v in found.get("dynamic_kafka_source_committed_offset", {}).items()]
        done["committed"] = sum(committed) == sum(counts.values())
        return found if all(done.values()) else None

    found = wait_until(complete, 60, "all metrics")
    assert found is not None

    def value(series: str, /, **labels: str) -> float | None:
        return of(found, series, query="nightly", **labels)

    assert value("source_clusters") == 2  # kafkaClustersCount
    for cluster, count in counts.items():
        labels = [{"cluster": cluster, "topic": name, "partition": str(p)} for p in range(2)]
        current = [value("source_current_offset", **on) for on in labels]  # currentOffsets
        assert sum(offset or 0 for offset in current) == count
        assert [value("source_end_offset", **on) for on in labels] == current
        assert [value("source_committed_offset", **on) for on in labels] == current  # committedOffsets
        assert [value("source_pending_records", **on) for on in labels] == [0, 0]  # pendingRecords
        assert value("source_records_total", cluster=cluster, topic=name) == count  # numRecordsIn
        assert (value("source_commits_succeeded_total", cluster=cluster) or 0) >= 1  # commitsSucceeded
        assert value("source_commits_failed_total", cluster=cluster) == 0  # commitsFailed
        assert 0 < (value("source_emit_event_time_lag_seconds", cluster=cluster) or 0) < 300  # currentEmitEventTimeLag
        assert value("source_cluster_state", cluster=cluster, state="reading") == 1
    assert (value("consumer_received_bytes_total", cluster="b") or 0) > 0  # KafkaConsumer
    assert 0 < (value("source_watermark_lag_seconds") or 0) < 300  # watermarkLag
    assert 0 <= (value("source_idle_seconds") or -1) < 300  # sourceIdleTime
    assert (value("source_bytes_total", cluster="a") or 0) > 0  # numBytesIn
    assert value("source_task_errors_total") == 0  # numRecordsInErrors
    assert (value("source_calls_total", call="latest_offset") or 0) > 0
    assert value("source_metadata_failures_total") == 0
    assert value("sink_records_total", sink=target) == sum(counts.values())  # numRecordsOut
    assert (value("sink_bytes_total", sink=target) or 0) > 0  # numBytesOut
    assert value("sink_errors_total") == 0  # numRecordsOutErrors
    assert 0 <= (value("sink_send_time_seconds") or -1) < 60  # currentSendTime
    assert value("sink_transactions_open") == 0
    assert (value("sink_transactions_decided_total") or 0) >= 1
    assert value("sink_transactions_published_total") == value("sink_transactions_decided_total")
    assert value("query_info", query_id=str(query.id), name="nightly") == 1

    assert (value("producer_messages_total", cluster="kafka") or 0) > 0  # KafkaProducer
    assert main(["lag", "--url", url, "--query", "nightly", "--by", "partition", "--output", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["lag"], shown["partitions"], shown["unknown_partitions"]) == (0, 4, 0)

    status: Any = json.loads(get(f"{url}status.json?partitions=all"))
    (seen,) = (q for q in status["queries"] if q["query"] == "nightly")
    assert (seen["state"], len(seen["sources"]), len(seen["sinks"])) == ("running", 1, 1)
    query.stop()

    def has_ended() -> bool:  # it is said for a while, and nothing else
        left = {name for name, at in series(url).items() if any(("query", "nightly") in labels for labels in at)}
        ended = of(series(url), "query_state", query="nightly", state="ended") == 1
        return ended and left == {"dynamic_kafka_query_state", "dynamic_kafka_query_info"}

    wait_until(has_ended, 30, "the end of its series")


@needs("lastProgress")
@pytest.mark.usefixtures("stopped")
def test_messages_that_cannot_be_decoded_are_counted(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, checkpoint: str
) -> None:
    """JSON in quotes can be decoded."""
    names = {"json": topic(cluster_a), "avro": topic(cluster_a)}
    good = {"json": b'{"id":1}', "avro": b"\x02\x02"}
    for form, name in names.items():
        values = [good[form], b'{"id":"2"}', b"{", good[form]]
        produce(cluster_a.bootstrap_servers, name, [(None, value) for value in values], partition=0)
        options = {"format": form, "format.on-error": "skip", "metrics.port": "0", "metrics.query": form}
        create(env, form, "id INT", on(cluster_a, name) | options)
        rows = env.from_path(form).writeStream.format("noop").option("checkpointLocation", f"{checkpoint}-{form}")
        url = address_of(rows.start())
    numbers = ("source_records_total", "source_decode_errors_total")

    def counted() -> list[float | None]:
        found = series(url)
        return [of(found, number, query=form) for form in names for number in numbers]

    wait_until(lambda: counted() == [4, 1, 4, 2], 60, "the counts")


@pytest.mark.usefixtures("stopped")
def test_without_the_option_nothing_runs_and_nothing_is_said(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, checkpoint: str
) -> None:
    """Neither a thread nor a byte in a task."""
    from dynamic_kafka.spark.datasource import DynamicKafkaDataSource, DynamicKafkaInputPartition

    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [("k", "1")])
    options = {
        "properties.bootstrap.servers": cluster_a.bootstrap_servers,
        "topic": name,
        "startingOffsets": "earliest",
    }
    source = DynamicKafkaDataSource(options)
    reader: Any = source.streamReader(source.schema())
    start = reader.initialOffset()
    tasks = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert {type(task) for task in tasks} == {DynamicKafkaInputPartition}
    assert "metrics" not in reader.reportLatestOffset()
    reader.stop()

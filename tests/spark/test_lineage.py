"""OpenLineage events of real queries, received by a server."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.lineage import OpenLineageListener
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.spark.sinks import once
from tests.spark.tables import Topic
from tests.web import WebServer

pytestmark = [pytest.mark.broker, pytest.mark.spark]


class Server(WebServer):
    """Takes events as an OpenLineage server does."""

    def __init__(self) -> None:
        super().__init__(lambda _: (201, {}, b""))

    def of(self, run: str) -> list[dict[str, Any]]:
        """The events of a run."""
        events = [json.loads(request.body) for request in self.requests]
        return [event for event in events if event["run"]["runId"] == run]


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of the test's own."""
    with Server() as running:
        yield running


@pytest.mark.slow
def test_a_query_tells_what_it_reads_and_writes(
    spark: SparkSession,
    cluster_a: KafkaBroker,
    topic: Topic,
    server: Server,
    checkpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At its start, when that is known, and at its end, also after an error. A server that refuses changes nothing."""
    one, two, out = topic(cluster_a), topic(cluster_a), topic(cluster_a)
    monkeypatch.setenv("LINEAGE_KEY", "k3y")
    options = once(cluster_a, out, out)
    listener = OpenLineageListener(server.url, "tests", {"copy": options}, api_key="${env:LINEAGE_KEY}")
    produce(cluster_a.bootstrap_servers, one, [(None, "a")])

    def run(column: str) -> str:
        reader = spark.readStream.format("dynamic-kafka").option("kafka.bootstrap.servers", cluster_a.bootstrap_servers)
        rows = reader.option("subscribe", f"{one},{two}").option("startingOffsets", "earliest").load()
        writer = rows.selectExpr(f"{column} AS value").writeStream.format("dynamic-kafka").options(**options)
        query = writer.queryName("copy").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination(120)
        return str(query.runId)

    spark.streams.addListener(listener)
    try:
        first = run("value")
        wait_until(lambda: len(server.of(first)) == 3, 20, "the end of the run")
        produce(cluster_a.bootstrap_servers, two, [(None, "b")])
        server.answer = lambda _: (500, {}, b"")
        with caplog.at_level(logging.WARNING, "dynamic_kafka.lineage"):
            second = run("raise_error('broken') || value")
            wait_until(
                lambda: server.of(second)[-1:] and server.of(second)[-1]["eventType"] == "FAIL", 20, "the failure"
            )
    finally:
        spark.streams.removeListener(listener)
    start, running, complete = server.of(first)
    assert [event["eventType"] for event in (start, running, complete)] == ["START", "RUNNING", "COMPLETE"]
    namespace = f"kafka://{cluster_a.bootstrap_servers}"
    assert running["inputs"] == [{"namespace": namespace, "name": name} for name in sorted((one, two))]
    assert running["outputs"] == [{"namespace": namespace, "name": out}]
    assert {key: complete[key] for key in ("inputs", "outputs")} == {key: running[key] for key in ("inputs", "outputs")}
    assert start["job"] == {"namespace": "tests", "name": "copy"}
    assert {(r.path, r.headers["authorization"]) for r in server.requests} == {("/api/v1/lineage", "Bearer k3y")}
    assert "broken" in server.of(second)[-1]["run"]["facets"]["errorMessage"]["message"]
    assert "has answered an event of query copy with status 500" in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        *("marquez:5000", "ftp://marquez", "http://[marquez", "http://marquez:port"),
        *("http://me:hunter2@marquez:5000", "http://:hunter2@marquez:5000"),
    ],
)
def test_a_wrong_address_is_told_at_once(url: str) -> None:
    """Without a login that it may have."""
    with pytest.raises(ConfigurationError, match="not an address such as http://host:5000") as caught:
        OpenLineageListener(url, "tests")
    assert "hunter2" not in str(caught.value)

"""What a source reports while clusters come and go, with real brokers and the real server, without Spark."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from dynamic_kafka.observe.settings import MetricsSettings
from dynamic_kafka.source.driver.observed import ObservedEnumerator
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.engine import MetadataFile, Query
from tests.histories import records, write
from tests.spark.tables import FOR_EVER, Topic

pytestmark = pytest.mark.broker


class Observed(Query):
    """A query that reports."""

    @property
    def enumerator(self) -> ObservedEnumerator:
        """As in Spark's reader process."""
        if self._enumerator is None:
            self._enumerator = ObservedEnumerator(self.settings, MetricsSettings("127.0.0.1", 0))
        assert isinstance(self._enumerator, ObservedEnumerator)
        return self._enumerator

    def status(self) -> Any:
        """What the server shows of it."""
        import urllib.request

        address: Any = wait_until(lambda: self.enumerator._reporter.address, 10, "the server")
        with urllib.request.urlopen(f"{address.url}status.json?partitions=all") as answer:
            queries = json.loads(answer.read())["queries"]
        return next((q for q in queries if q["sources"][0]["run"] == self.enumerator._run), None)

    def source(self, holds: Any) -> Any:
        """Its source in the status, as soon as something holds for it."""

        def found() -> Any:
            query = self.status()
            return query["sources"][0] if query and query["sources"][0]["clusters"] and holds(query) else None

        return wait_until(found, 20, "the status")


def clusters(query: Any) -> dict[str, Any]:
    """The clusters of the status by name."""
    return {c["cluster"]: c for c in query["sources"][0]["clusters"]}


def test_lag_goes_on_while_spark_runs_a_long_batch(cluster_a: KafkaBroker, topic: Topic) -> None:
    """Nobody calls the source then, and the records that arrive are seen all the same."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [("k", "1"), ("k", "2")])
    query = Observed({"properties.bootstrap.servers": cluster_a.bootstrap_servers, "topic": name})
    start = query.enumerator.latest_offset(query.document, limited=True)  # planned, and not finished
    before = query.source(lambda q: q["sources"][0]["pending_records"] == 2)
    assert before["streams"] == [name]
    began = time.monotonic()
    produce(cluster_a.bootstrap_servers, name, [("k", "3")])
    after = query.source(lambda q: q["sources"][0]["pending_records"] == 3)
    waited_s = time.monotonic() - began
    assert after["lag_s"] >= before["lag_s"] + min(waited_s, 1) - 1
    assert (after["batches"], after["calls"]["latest_offset"]["count"]) == (1, 1)
    query.log.append(json.dumps(dict(start)))
    query.step()
    query.enumerator.latest_offset(query.document, limited=True)
    done = query.source(lambda q: q["sources"][0]["pending_records"] == 0)
    ((partition,),) = (t["partitions"] for t in done["clusters"][0]["topics"])
    assert (partition["current"], partition["end"], partition["lag_s"]) == (3, 3, 0.0)
    query.close()
    wait_until(lambda: query._enumerator is None, 1, "the end")


@pytest.mark.slow
def test_a_cluster_that_is_gone_is_told_with_its_reason(
    cluster_a: KafkaBroker, mortal: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """Unreachable, answering again, removed and kept, each with an event."""
    name = topic(cluster_a, mortal)
    metadata = MetadataFile(tmp_path / "streams.yaml")
    at = {"a": cluster_a.bootstrap_servers, "m": mortal.bootstrap_servers}
    both = {c: {"topics": [name], "bootstrapServers": servers} for c, servers in at.items()}
    metadata.write(s=both)
    query = Observed(metadata.options("s", **{"cluster-failure-mode": "isolate"}))
    query.step()
    query.source(lambda q: all(c["state"] == "reading" for c in clusters(q).values()) and len(clusters(q)) == 2)
    mortal.kill()
    query.run_until(lambda: query.status()["state"] == "degraded")
    seen = query.status()
    worst = seen["sources"][0]["clusters"][0]
    assert (worst["cluster"], worst["state"]) == ("m", "unreachable")
    assert worst["reason"].startswith("Cluster 'm'")
    assert worst["reason"] in seen["reason"]
    mortal.start()
    query.run_until(lambda: query.status()["state"] == "running")
    metadata.write(s={"a": both["a"]})
    query.run_until(lambda: clusters(query.status())["m"]["state"] == "retained")
    texts = [event["text"] for event in query.status()["events"]]
    assert any("answers again, after" in text for text in texts)
    assert any(text.startswith("metadata: ") and "'m'" in text for text in texts)
    query.close()


def test_what_is_left_of_a_history_is_told(cluster_a: KafkaBroker, topic: Topic, tmp_path: Path) -> None:
    """After each finished batch, until Kafka is read; then nothing is left."""
    name = topic(cluster_a, config=FOR_EVER)
    rows = records(name, range(8))
    last_ms = rows[-1]["timestamp"] // 1000
    produce(cluster_a.bootstrap_servers, name, [(row["key"], row["value"]) for row in rows], timestamp_ms=last_ms)
    for first in (0, 4):
        write(tmp_path / f"{first}.parquet", rows[first : first + 4])
    limit = {"history.path": str(tmp_path), "maxOffsetsPerTrigger": "6"}
    query = Observed({"properties.bootstrap.servers": cluster_a.bootstrap_servers, "topic": name, **limit})
    told = []
    for _ in range(3):
        end = query.enumerator.latest_offset(query.document, limited=True)
        left = query.enumerator._report(True)["history_left"]
        told.append((left["rows_left"], left["files_left"], left["bytes_left"] > 0))
        if end is query.document:
            break
        query.log.append(json.dumps(dict(end)))
    query.close()
    assert told == [(8, 2, True), (2, 1, True), (0, 0, False)]

"""A batch that was logged and can never be read: what the task says, and how the query goes on with its checkpoint."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dynamic_kafka.errors import ClusterUnavailableError, DataLossError
from dynamic_kafka.testing import KafkaBroker, produce
from tests.engine import MetadataFile, Query, part

pytestmark = pytest.mark.broker

Topic = Callable[..., str]


def log_a_batch(query: Query) -> None:
    """Spark writes the offsets down, and dies before it reads the batch."""
    query.log.append(json.dumps(query.enumerator.latest_offset(query.document, limited=True)))
    query.close()


def repeat(query: Query, **options: str) -> None:
    """Start the query again: it repeats the batch first."""
    query.options |= options
    query.restart(forget_last_batch=True)


def test_a_topic_recreated_under_a_logged_batch(
    cluster_a: KafkaBroker, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """Fewer partitions, and a log that ends within the range: an error within seconds, and not one row of the new topic."""
    name = topic(cluster_a, partitions=2)
    for partition in range(2):
        produce(cluster_a.bootstrap_servers, name, [(None, b"old")] * 50, partition=partition)
    options = {"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": name}
    query = Query({**options, "fetchOffset.retryIntervalMs": "200"})
    log_a_batch(query)
    cluster_a.delete_topic(name)
    cluster_a.create_topic(name, 1)
    produce(cluster_a.bootstrap_servers, name, [(None, b"new")] * 20)

    started = time.monotonic()
    with pytest.raises(DataLossError, match=r"offsets \[0, 50\): the topic was recreated.*skip-offsets=kafka/"):
        repeat(query)
    assert time.monotonic() - started < 20

    repeat(query, failOnDataLoss="false")
    assert query.rows == []
    assert "50 offsets are given up, because failOnDataLoss=false" in caplog.text
    query.run_until_rows(20)
    query.run_until_idle()
    assert query.values() == ["new"] * 20
    query.close()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["skip-offsets", "failOnDataLoss"])
def test_a_cluster_that_is_gone_under_a_logged_batch(
    cluster_a: KafkaBroker, mortal: KafkaBroker, topic: Topic, tmp_path: Path, way: str
) -> None:
    """The metadata does not name it any more: the error names the ways on, and each one works with this checkpoint."""
    file = MetadataFile(tmp_path / "streams.yaml")
    name = topic(cluster_a, mortal)
    for broker in (cluster_a, mortal):
        produce(broker.bootstrap_servers, name, [(None, b"v")] * 10)
    parts = {key: part(broker, name) for key, broker in (("a", cluster_a), ("b", mortal))}
    file.write(s=parts)
    query = Query(file.options(**{"properties.default.api.timeout.ms": "2000"}))
    log_a_batch(query)
    mortal.kill()
    file.write(s={"a": parts["a"]})

    with pytest.raises(ClusterUnavailableError, match="the metadata does not name this cluster any more") as caught:
        repeat(query)
    found = re.search(r"start the query once with skip-offsets=(\S+) or failOnDataLoss=false", str(caught.value))
    assert found is not None
    query.rows.clear()

    repeat(query, **{way: found[1] if way == "skip-offsets" else "false"})
    query.run_until_idle()
    assert query.positions() == [("a", name, 0, i) for i in range(10)]
    if way == "skip-offsets":
        query.restart()
        query.run_until_idle()
        assert "has no effect: the query has no such range to repeat" in str(query.events())
    query.close()

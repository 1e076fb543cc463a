"""`dynamic-kafka lag` on checkpoints of queries on brokers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dynamic_kafka.cli.lag import command as lag
from dynamic_kafka.cli.main import main
from dynamic_kafka.testing import KafkaBroker, produce
from tests.brokers import SECURED_USERS
from tests.engine import Query, write_checkpoint

pytestmark = pytest.mark.broker

Topic = Callable[..., str]
Lag = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def query() -> Iterator[Callable[[dict[str, str]], Query]]:
    """Makes queries without Spark, which are closed at the end."""
    made: list[Query] = []

    def make(options: dict[str, str]) -> Query:
        made.append(Query(options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def lags(capsys: pytest.CaptureFixture[str]) -> Lag:
    """Runs the command: its exit code, and its JSON document."""

    def call(*arguments: str) -> tuple[int, dict[str, Any]]:
        code = main(["lag", *arguments, "--output", "json"])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return code, found

    return call


def test_lag_and_age_of_each_partition(
    cluster_a: KafkaBroker, topic: Topic, query: Callable[..., Query], lags: Lag, tmp_path: Path
) -> None:
    """From the position to the end, and by the timestamp of the next record; an unfinished batch is unread."""
    name = topic(cluster_a, partitions=3)
    minute_ago_ms = int(time.time() * 1000) - 60_000
    produce(cluster_a.bootstrap_servers, name, [(None, b"1")] * 4, partition=0)
    reading = query({"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": name})
    reading.run_until_rows(4)
    produce(cluster_a.bootstrap_servers, name, [(None, b"2")] * 5, partition=1, timestamp_ms=minute_ago_ms)
    produce(cluster_a.bootstrap_servers, name, [(None, b"3")] * 2, partition=0)

    place = write_checkpoint(tmp_path / "a", reading.log)
    code, found = lags(place, "--by", "partition")
    assert code == 0
    rows = [(r["partition"], r["position"], r["end"], r["lag"]) for r in found["rows"]]
    assert rows == [(1, 0, 5, 5), (0, 4, 6, 2), (2, 0, 0, 0)]
    assert 60 <= found["rows"][0]["age_s"] < 90
    assert 0 <= found["rows"][1]["age_s"] < 30
    assert found["rows"][2]["age_s"] == 0
    assert (found["lag"], found["unknown_partitions"], found["unreachable"]) == (7, 0, {})
    assert lags(place, "--max-lag", "7", "--max-seconds", "300")[0] == 0
    assert lags(place, "--max-lag", "6")[0] == 1
    assert lags(place, "--max-seconds", "30")[0] == 1

    place = write_checkpoint(tmp_path / "b", reading.log, unfinished=True)
    _, found = lags(place, "--by", "cluster")
    assert found["lag"] == 11
    assert "is not finished" in found["notes"][0]


def test_one_dead_cluster_does_not_hide_the_other(
    cluster_a: KafkaBroker, mortal: KafkaBroker, topic: Topic, query: Callable[..., Query], lags: Lag, tmp_path: Path
) -> None:
    """It is unknown and comes first; and at its address another cluster may answer."""
    name = topic(cluster_a, mortal)
    streams = tmp_path / "streams.yaml"
    clusters = {"alive": cluster_a.bootstrap_servers, "dead": mortal.bootstrap_servers}
    parts = [f"{{clusterId: {c}, bootstrapServers: '{at}', topics: [{name}]}}" for c, at in clusters.items()]
    streams.write_text(f"- {{streamId: s, clusterMetadataList: [{', '.join(parts)}]}}")
    options = {"metadata-service": "file", "metadata-service.path": str(streams), "stream-ids": "s"}
    for broker in (cluster_a, mortal):
        produce(broker.bootstrap_servers, name, [(None, b"1")])
    reading = query(options)
    reading.run_until_rows(2)
    produce(cluster_a.bootstrap_servers, name, [(None, b"2")] * 3)
    place = write_checkpoint(tmp_path / "a", reading.log)
    mortal.kill()
    code, found = lags(place, "--timeout", "1")
    assert code == 1
    assert [(r["cluster"], r["lag"]) for r in found["rows"]] == [("dead", None), ("alive", 3)]
    assert (found["lag"], found["known_lag"]) == (None, 3)
    assert "does not answer" in found["unreachable"]["dead"]

    streams.write_text(streams.read_text().replace(mortal.bootstrap_servers, cluster_a.bootstrap_servers))
    given = [word for pair in options.items() for word in ("-o", "=".join(pair))]
    code, found = lags(place, *given)
    assert code == 1
    assert found["unreachable"]["dead"].startswith("Another cluster answers: its cluster.id is ")


def test_topics_that_are_gone_or_new(
    cluster_a: KafkaBroker, topic: Topic, query: Callable[..., Query], lags: Lag, tmp_path: Path
) -> None:
    """A topic that was deleted, or made again, has no lag that could be known."""
    gone, again = topic(cluster_a), topic(cluster_a)
    for name in (gone, again):
        produce(cluster_a.bootstrap_servers, name, [(None, b"1")])
    reading = query({"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": f"{gone},{again}"})
    reading.run_until_rows(2)
    place = write_checkpoint(tmp_path, reading.log)
    reading.close()
    for name in (gone, again):
        cluster_a.delete_topic(name)
    cluster_a.create_topic(again, 1)
    code, found = lags(place)
    assert code == 1
    notes = {r["topic"]: (r["lag"], r["note"]) for r in found["rows"]}
    assert notes[gone] == (None, "the topic does not exist")
    assert notes[again] == (None, "the topic was deleted and made again")


def test_a_password_that_the_checkpoint_does_not_have(
    secured: KafkaBroker, topic: Topic, query: Callable[..., Query], lags: Lag, tmp_path: Path
) -> None:
    """It is given as a property; without it the cluster is unknown."""
    name = topic(secured)
    password = SECURED_USERS["admin"]
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "admin"}
    properties = {"bootstrap.servers": secured.bootstrap_servers, **login, "sasl.password": password}
    produce(secured.bootstrap_servers, name, [(None, b"1")], properties={**login, "sasl.password": password})
    reading = query({"subscribe": name, **{f"kafka.{key}": value for key, value in properties.items()}})
    reading.run_until_rows(1)
    place = write_checkpoint(tmp_path, reading.log)
    assert password not in Path(place, "offsets", "0").read_text()
    code, found = lags(place, "--timeout", "2")
    assert (code, found["rows"][0]["lag"]) == (1, None)
    code, found = lags(place, "--property", f"sasl.password={password}")
    assert (code, found["rows"][0]["lag"]) == (0, 0)


def test_the_trend_of_two_looks(
    cluster_a: KafkaBroker,
    topic: Topic,
    query: Callable[..., Query],
    lags: Lag,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second one sees what was written in between."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, b"1")])
    reading = query({"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": name})
    reading.run_until_rows(1)
    place = write_checkpoint(tmp_path, reading.log)
    monkeypatch.setattr(lag, "sleep", lambda _: produce(cluster_a.bootstrap_servers, name, [(None, b"2")] * 50))
    _, found = lags(place, "--trend", "1")
    (row,) = found["rows"]
    assert row["lag"] == 50
    assert row["lag_per_s"] > 0
    assert row["clear_s"] is None

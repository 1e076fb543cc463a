"""What the driver plans: from options, a metadata service in memory and a cluster made of dicts, to tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest

from dynamic_kafka.errors import ClusterUnavailableError
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.kafka.cluster import TopicInfo
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.source import monitor
from dynamic_kafka.source.configure import SourceObjects, configure_source
from dynamic_kafka.source.enumerator import SourceEnumerator
from dynamic_kafka.source.offsets import MARKER
from dynamic_kafka.source.planning import ReadTask

Logs = dict[str, list[tuple[int, int]]]


class Connection:
    """A `ClusterConnection` to a cluster of `logs`: topic to (start, end) of each partition."""

    clusters: Mapping[str, Logs] = {}
    dead: Collection[str] = ()
    authentication_failed = False

    def __init__(self, cluster_id: str, *_: Any, **__: Any) -> None:
        self.cluster_id = cluster_id

    @property
    def logs(self) -> Logs:
        """Its topics, if it answers."""
        if self.cluster_id in self.dead:
            raise ClusterUnavailableError(f"Cluster '{self.cluster_id}' does not answer", cluster_id=self.cluster_id)
        return self.clusters[self.cluster_id]

    def kafka_id(self) -> str:
        """Its cluster.id."""
        return f"id of {self.cluster_id}"

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """Those that exist."""
        return {name: TopicInfo(f"{name:x<11}", (1,) * len(logs)) for name, logs in self.logs.items() if name in names}

    def available_ends(self, tps: Collection[KafkaTopicPartition], _: Any) -> dict[KafkaTopicPartition, int]:
        """All ends."""
        return self.end_offsets(tps)

    def end_offsets(self, tps: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """All ends."""
        return {tp: self.logs[tp.topic][tp.partition][1] for tp in tps}

    def beginning_offsets(self, tps: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """All starts."""
        return {tp: self.logs[tp.topic][tp.partition][0] for tp in tps}

    def committed_offsets(self, _: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The group committed nothing."""
        return {}

    def offsets_for_times(self, times_ms: Mapping[KafkaTopicPartition, int]) -> dict[KafkaTopicPartition, int | None]:
        """No record is late enough."""
        return dict.fromkeys(times_ms)

    def poll_idle(self) -> bool:
        """Nothing to do."""
        return True

    def is_outdated(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Nothing to do."""


@pytest.fixture(autouse=True)
def clusters(monkeypatch: pytest.MonkeyPatch) -> dict[str, Logs]:
    """The clusters: `kafka` has the topic `t` with two partitions."""
    monkeypatch.setattr(monitor, "ClusterConnection", Connection)
    found: dict[str, Logs] = {"kafka": {"t": [(0, 100), (0, 10)]}}
    monkeypatch.setattr(Connection, "clusters", found)
    return found


Enumerate = Callable[..., SourceEnumerator]


@pytest.fixture
def enumerator() -> Iterator[Enumerate]:
    """Make enumerators of `t` from its earliest offset on, and close them."""
    made = []

    def make(objects: SourceObjects | None = None, **options: str) -> SourceEnumerator:
        given = {} if objects else {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
        if "assign" in options:
            del given["subscribe"]
        settings = configure_source(given | options, objects, default_starting=KafkaOffsetsInitializer.earliest())
        made.append(SourceEnumerator(settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


def batch(query: SourceEnumerator, start: Mapping[str, Any] = MARKER) -> dict[str, Any]:
    """The next document, as Spark's checkpoint keeps it."""
    return dict(json.loads(json.dumps(query.latest_offset(start, limited=True))))


def ranges(tasks: list[ReadTask]) -> list[tuple[str, int, int, int]]:
    """The ranges of all tasks."""
    return [(r.topic, r.partition, r.start, r.end) for task in tasks for r in task.ranges]


def events(query: SourceEnumerator) -> list[str]:
    """What was told."""
    return [event["text"] for event in query.report()["events"]]


# --- offsets that the user gives up ---


def test_a_range_is_given_up_in_the_repeated_batch_only(enumerator: Enumerate) -> None:
    """The option is spent by the batch that the query repeats when it starts, and it leaves a line."""
    end = batch(enumerator())

    query = enumerator(**{"skip-offsets": "kafka/t/0:40-100;kafka/t/1:0-10"})
    assert ranges(query.tasks(MARKER, end)) == [("t", 0, 0, 40)]
    assert events(query) == [
        "skip-offsets=kafka/t/0:40-100: these 60 offsets are given up, as the option says",
        "skip-offsets=kafka/t/1:0-10: these 10 offsets are given up, as the option says",
    ]
    assert batch(query, end) == end
    assert len(events(query)) == 2
    assert ranges(query.tasks(MARKER, end)) == [("t", 0, 0, 100), ("t", 1, 0, 10)]


def test_offsets_that_are_not_repeated_are_not_given_up(enumerator: Enumerate) -> None:
    """A value that was left in the options has no effect, and that is said once."""
    query = enumerator(**{"skip-offsets": "kafka/t/0:0-100;kafka/t/1:0-5"})
    end = batch(query)
    assert ranges(query.tasks(MARKER, end)) == [("t", 0, 0, 100), ("t", 1, 0, 10)]
    batch(query, end)
    told = "skip-offsets=kafka/t/0:0-100;kafka/t/1:0-5 has no effect: the query has no such range to repeat. Take the"
    assert [text.startswith(told) for text in events(query)] == [True]


def test_a_batch_that_is_given_up_whole_has_no_task(enumerator: Enumerate) -> None:
    """Nothing is asked for it: the cluster and the metadata service may be gone."""
    end = batch(enumerator())
    query = enumerator(**{"skip-offsets": "kafka/t/0:0-100;kafka/t/1:0-10"})
    assert query.tasks(MARKER, end) == []


# --- what a task knows about its clusters ---


class Service(InMemoryMetadataService):
    """A metadata service that knows which clusters are switched off."""

    inactive: Collection[str] = ()

    def is_cluster_active(self, cluster_id: str) -> bool:
        """Whether it is not switched off."""
        return cluster_id not in self.inactive


def service(*names: str, inactive: Collection[str] = ()) -> SourceObjects:
    """The stream `s` with the topic `t` on some clusters."""
    metadata = {name: ClusterMetadata(frozenset({"t"}), {"bootstrap.servers": f"{name}:1"}) for name in names}
    found = Service([KafkaStream("s", metadata)])
    found.inactive = inactive
    return SourceObjects(metadata_service=found)


def test_a_task_knows_which_clusters_are_not_wanted_any_more(enumerator: Enumerate, clusters: dict[str, Logs]) -> None:
    """From an answer of the metadata service to the process that repeats the batch, and never without one."""
    clusters |= {name: {"t": [(0, 10)]} for name in ("a", "b")}
    end = batch(enumerator(service("a", "b"), **{"stream-ids": "s"}))

    def known(objects: SourceObjects) -> dict[str, tuple[str, str, bool]]:
        tasks = enumerator(objects, **{"stream-ids": "s"}).tasks(MARKER, end)
        return {
            name: (access.kafka_id, access.removed, access.from_checkpoint)
            for task in tasks
            for name, access in task.clusters.items()
        }

    wanted = {name: (f"id of {name}", "", False) for name in "ab"}
    assert known(service("a", "b")) == wanted
    gone = "the metadata does not name this cluster any more"
    assert known(service("a")) == wanted | {"b": ("id of b", gone, True)}
    off = "the metadata service calls this cluster inactive"
    assert known(service("a", "b", inactive={"b"})) == wanted | {"b": ("id of b", off, False)}

"""Drives the source as Spark does, without Spark: real documents, and real brokers and reads or stand-ins for them.

Each step does what one micro-batch does, with the offsets going through JSON text as they do in Spark's checkpoint. A
restart throws the enumerator away and keeps the texts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.rows import COLUMNS, arrow_schema
from dynamic_kafka.source.configure import SourceObjects, configure_source
from dynamic_kafka.source.document.offsets import MARKER
from dynamic_kafka.source.driver.enumerator import SourceEnumerator
from dynamic_kafka.source.executor.reader import read
from dynamic_kafka.source.rules.planning import ReadTask
from dynamic_kafka.testing import KafkaBroker

Row = dict[str, Any]
SCHEMA = arrow_schema(COLUMNS)


class Query:
    """A streaming query without Spark.

    Args:
        options: As for `format("dynamic-kafka")`; earliest is the default start here.
        objects: What a builder would add.
    """

    def __init__(self, options: Mapping[str, str], objects: SourceObjects | None = None) -> None:
        self.options = dict(options)
        self.objects = objects
        self.log: list[str] = []
        self.rows: list[Row] = []
        self._enumerator: SourceEnumerator | None = None

    @property
    def settings(self) -> Any:
        """The checked settings."""
        return configure_source(self.options, self.objects)

    @property
    def enumerator(self) -> SourceEnumerator:
        """The live enumerator; made when first asked for."""
        if self._enumerator is None:
            self._enumerator = SourceEnumerator(self.settings)
        return self._enumerator

    @property
    def document(self) -> dict[str, Any]:
        """The last logged offset."""
        return dict(json.loads(self.log[-1])) if self.log else MARKER

    def step(self, *, limited: bool = True) -> int:
        """One round of Spark's loop; how many rows it read. A batch without change costs nothing and returns 0."""
        start = self.document
        end = json.loads(json.dumps(self.enumerator.latest_offset(start, limited=limited)))
        if json.dumps(end) == json.dumps(start):
            return 0
        self.log.append(json.dumps(end))
        return self._run(start, end)

    def _run(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> int:
        found = read_all(self.enumerator.tasks(start, end), self.settings)
        self.rows += found
        return len(found)

    def run_until(self, condition: Callable[[], object], timeout_s: float = 30.0) -> None:
        """Step until the condition holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if not self.step():
                time.sleep(0.002)
            if time.monotonic() > deadline:
                raise AssertionError(f"not reached within {timeout_s} s; {len(self.rows)} rows; {self.log[-1:]}")

    def run_for(self, seconds: float) -> None:
        """Step for some time."""
        deadline = time.monotonic() + seconds
        self.run_until(lambda: time.monotonic() >= deadline, seconds + 20)

    def run_until_rows(self, count: int, timeout_s: float = 30.0) -> list[Row]:
        """Step until there are as many rows; more would be an error of the test that looks at them."""
        self.run_until(lambda: len(self.rows) >= count, timeout_s)
        return self.rows

    def run_until_idle(self, quiet_s: float = 0.6) -> list[Row]:
        """Step until nothing has come for a while: for tests that look at what must not come."""
        since = time.monotonic()
        while time.monotonic() - since < quiet_s:
            before = len(self.log)
            self.step()
            if len(self.log) > before:
                since = time.monotonic()
        return self.rows

    def available_now(self) -> int:
        """One run with Trigger.AvailableNow; how many rows it read."""
        self.restart()
        self.enumerator.prepare_available_now()
        before = len(self.rows)
        while True:
            count = len(self.log)
            self.step()
            if len(self.log) == count:
                return len(self.rows) - before

    def restart(self, *, forget_last_batch: bool = False) -> None:
        """A new process; with `forget_last_batch` the last batch was logged but never finished, and is replayed."""
        self.close()
        if forget_last_batch:
            end = json.loads(self.log[-1])
            start = json.loads(self.log[-2]) if len(self.log) > 1 else MARKER
            self._run(start, end)

    def close(self) -> None:
        """End the enumerator's threads."""
        if self._enumerator is not None:
            self._enumerator.close()
            self._enumerator = None

    def values(self) -> list[str]:
        """The values read so far, sorted."""
        return sorted(row["value"].decode() for row in self.rows)

    def positions(self) -> list[tuple[str, str, int, int]]:
        """(cluster, topic, partition, offset) of all rows, sorted."""
        return sorted((r["cluster"], r["topic"], r["partition"], r["offset"]) for r in self.rows)

    def assert_once(self) -> None:
        """No row was read twice."""
        positions = self.positions()
        assert len(positions) == len(set(positions))

    def events(self) -> list[str]:
        """What the source told about, in order."""
        return [event["text"] for event in self.enumerator.report()["events"]]


def write_checkpoint(folder: Path, documents: Sequence[str], *, unfinished: bool = False) -> str:
    """Write a query's log of offsets as Spark does, and return where; with `unfinished` the last batch has not ended."""
    finished = ["{}"] * (len(documents) - unfinished)
    for name, texts in (("offsets", [f"{{}}\n{document}" for document in documents]), ("commits", finished)):
        (folder / name).mkdir(exist_ok=True, parents=True)
        for number, text in enumerate(texts):
            (folder / name / str(number)).write_text(f"v1\n{text}")
    return str(folder)


class StandIn:
    """Stands in for `ClusterConnection`: nothing was deleted, committed or replaced, and no record has a time.

    Tests say by inheriting which topics there are, where they end, and what a round trip to the cluster takes.
    """

    authentication_failed = False

    def __init__(self, cluster_id: str, properties: Mapping[str, str], **_: object) -> None:
        self.cluster_id, self.properties = cluster_id, properties

    def _trip(self) -> None:
        """Ask the cluster."""

    def poll_idle(self) -> bool:
        """Nothing to poll."""
        return True

    def is_outdated(self) -> bool:
        """No secret is ever replaced."""
        return False

    def close(self) -> None:
        """Nothing to close."""

    def commit(self, _: Mapping[KafkaTopicPartition, int]) -> None:
        """Nobody commits."""

    def kafka_id(self) -> str:
        """Kafka's cluster.id."""
        self._trip()
        return f"id of {self.cluster_id}"

    def available_ends(self, tps: Collection[KafkaTopicPartition], _: Any) -> dict[KafkaTopicPartition, int]:
        """The ends."""
        raise NotImplementedError

    def end_offsets(self, tps: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The ends."""
        return self.available_ends(tps, {})

    def beginning_offsets(self, tps: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """Nothing was deleted."""
        self._trip()
        return dict.fromkeys(tps, 0)

    def committed_offsets(self, _: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """No group has committed."""
        self._trip()
        return {}

    def offsets_for_times(self, times_ms: Mapping[KafkaTopicPartition, int]) -> dict[KafkaTopicPartition, int | None]:
        """No record is late enough."""
        self._trip()
        return dict.fromkeys(times_ms)


def read_all(tasks: list[ReadTask], settings: Any) -> list[Row]:
    """All rows of some tasks."""
    return [row for task in tasks for batch in read(task, SCHEMA, settings) for row in batch.to_pylist()]


def read_batch(options: Mapping[str, str], objects: SourceObjects | None = None) -> list[Row]:
    """A batch read without Spark."""
    query = Query(options, objects)
    return read_all(query.enumerator.batch_tasks(), query.settings)


def part(broker: KafkaBroker, *topics: str, **more: Any) -> dict[str, Any]:
    """A cluster's entry in a metadata document."""
    return {"bootstrapServers": broker.bootstrap_servers, "topics": [*topics], **more}


class MetadataFile:
    """A metadata document on disk.

    Args:
        path: Where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **streams: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace it: stream id to cluster id to the cluster's fields."""
        document = [
            {
                "streamId": stream,
                "clusterMetadataList": [{"clusterId": name, **fields} for name, fields in clusters.items()],
            }
            for stream, clusters in streams.items()
        ]
        new = self.path.with_suffix(".new")
        new.write_text(yaml.safe_dump(document))
        new.replace(self.path)

    def options(self, stream: str = "s", **more: str) -> dict[str, str]:
        """Options of a query that follows it closely."""
        return {
            "metadata-service": "file",
            "metadata-service.path": str(self.path),
            "stream-ids": stream,
            "stream-metadata-discovery-interval-ms": "200",
            "partition.discovery.interval.ms": "200",
            **more,
        }

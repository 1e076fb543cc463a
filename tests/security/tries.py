"""What a user does with a cluster: reading, and writing with each guarantee; as Spark does it, without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.sink import committer, producers, transactional_producers
from dynamic_kafka.sink.committer import claim_batch, committer_for
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.producers import PooledProducers
from dynamic_kafka.sink.protocol import Batch
from dynamic_kafka.sink.settings import Destination, SinkSettings, WriteTask
from dynamic_kafka.sink.transactional_producers import TransactionalProducers
from dynamic_kafka.sink.writer import flush, write
from tests.engine import Query, read_all

__all__ = ["read_stream", "read_values", "sink", "with_prefix", "write_value"]


def read_values(topic: str, given: Mapping[str, str]) -> list[str]:
    """What a batch read finds."""
    query = Query({"subscribe": topic, **with_prefix(given)})
    try:
        rows = read_all(query.enumerator.batch_tasks(), query.settings)
    finally:
        query.close()
    return sorted(row["value"].decode() for row in rows)


def read_stream(topic: str, given: Mapping[str, str]) -> None:
    """One micro-batch of a stream."""
    query = Query({"subscribe": topic, **with_prefix(given)})
    try:
        query.step()
    finally:
        query.close()


def with_prefix(given: Mapping[str, str]) -> dict[str, str]:
    """Properties as options."""
    return {f"kafka.{key}": value for key, value in given.items()}


def write_value(topic: str, given: Mapping[str, str], value: str, settings: SinkSettings) -> None:
    """Write a row as a query does with the settings' guarantee. No client is kept for another test."""
    try:
        _write(topic, given, value, settings)
    finally:
        for pool in (producers._pool, transactional_producers._ready, committer._committers):
            pool.close()


def _write(topic: str, given: Mapping[str, str], value: str, settings: SinkSettings) -> None:
    destinations = {"east": Destination(given, topic)}
    rows = pa.RecordBatch.from_pydict({"value": [value.encode()]})
    if settings.guarantee != "exactly-once":
        with PooledProducers(WriteTask(destinations, settings)) as pooled:
            flush(write(iter([rows]), WriteTask(destinations, settings), pooled, task_number=0))
        return
    claim, log = claim_batch(settings, destinations, {}, Identity("app", 0))
    task = WriteTask(destinations, settings, claim.chain, claim.generation, log)
    with TransactionalProducers(task) as transactional:
        flush(write(iter([rows]), task, transactional, task_number=0))
        prepared = transactional.prepare()
    with committer_for(settings, destinations, log) as driver:
        driver.commit(claim, Batch(Identity("app", 0), 1, prepared))


def sink(guarantee: Any = "at-least-once") -> SinkSettings:
    """The settings of a sink with a prefix of its own."""
    name = f"matrix-{uuid.uuid4().hex}"
    wishes: dict[str, Any] = {"prefix": name, "log_topic": f"{name}-log"} if guarantee == "exactly-once" else {}
    return SinkSettings(service=InMemoryMetadataService, stream="s", guarantee=guarantee, **wishes)

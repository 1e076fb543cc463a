"""Beside both rivals, the JVM connector and Flink: (a) a large topic, (l) Avro, (p) the first batch, (q) several clusters.

Flink reads with its DynamicKafkaSource in two slots, only the values, into a sink that discards them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from benchmarks.drivers import JVM, OURS, Child, Driver, alternate, both
from benchmarks.flink import FLINK, Flink
from benchmarks.processes import Cost, measured
from benchmarks.records import AVRO_SCHEMA, VALUE_BYTES, fill, fill_avro
from benchmarks.report import Result, compare, compare_costs
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from tests.schema_registry import SchemaRegistry

from dynamic_kafka.testing import KafkaBroker

__all__ = ["READY", "Measure", "Target", "all_three", "avro", "cluster_counts", "compared", "first_batch", "shapes"]

READY = "ready batches"
_KILOBYTE = 1_000
_CLUSTERS = (1, 2, 8)
# Flink gives a topic's partitions to its slots in turn, so a cluster with one partition would keep one slot idle.
_PARTITIONS = 16
_WARM_UPS = 2

Tell = Callable[[str], None]
Measure = Callable[[], float]
Target = tuple[float | None, Literal["at least", "at most"]]


@contextmanager
def all_three() -> Iterator[tuple[Driver, Driver, Flink]]:
    """Start our driver, the JVM connector's and Flink."""
    with both() as (ours, jvm), Flink() as flink:
        flink.wait_until_ready()
        yield ours, jvm, flink


def compared(
    case: str,
    name: str,
    measures: Mapping[str, tuple[Child, Measure]],
    targets: Mapping[str, Target],
    *,
    records: int,
    count: int,
    tell: Tell,
) -> Iterator[Result]:
    """Measure all contenders by turns, with their costs, and compare ours with each of the others.

    Args:
        case: The letter of the case.
        name: The name of the measurement.
        measures: Each contender's process and measurement. Ours is the first.
        targets: The target for each rival.
        records: The number of records.
        count: The number of rounds that count. Two rounds before do not.
        tell: A function that shows progress.
    """

    def say(text: str) -> None:
        tell(f"{name}: {text}")

    costs = {who: partial(measured, child.pid, measure) for who, (child, measure) in measures.items()}
    say("warming up")
    alternate(costs, _WARM_UPS, say)
    found: dict[str, list[Cost]] = alternate(costs, count, say)
    ours = next(iter(measures))
    for rival, (target, better) in targets.items():
        yield compare_costs(
            case, name, found[ours], found[rival], records=records, target=target, better=better, rival=rival
        )


def shapes(records: int, count: int, tell: Tell) -> Iterator[Result]:
    """Measure case (a): a topic with 8 partitions, short and long records, all columns and `value` only, to noop.

    A data source that only hands over ready-made batches shows what Spark itself takes.
    """
    targets: dict[str, Target] = {"JVM": (2.5, "at least"), FLINK: (1.0, "at least"), READY: (1.4, "at most")}
    with KafkaBroker(heap="1g") as broker, all_three() as (ours, jvm, flink), Driver(OURS, label=READY) as ready:
        ready.wait_until_ready()
        for size, n in ((VALUE_BYTES, records), (_KILOBYTE, records // 4)):
            topic = f"shape-{size}"
            broker.create_topic(topic, 8)
            tell(f"writing records of {size} B")
            fill(broker.bootstrap_servers, topic, partitions=8, records=n, value_bytes=size)
            options = _options(broker, topic)
            for columns, value_only in (("all columns", False), ("value only", True)):

                def batch(driver: Driver, options: dict[str, str] = options, value_only: bool = value_only) -> float:  # noqa: FBT001
                    return float(driver("batch", options=options, aggregate=False, value_only=value_only)["seconds"])

                clusters = {"cluster-0": broker.bootstrap_servers}
                handed = partial(ready, "ready_batches", records=n, value_bytes=size, value_only=value_only)
                measures: dict[str, tuple[Child, Measure]] = {
                    "ours": (ours, partial(batch, ours)),
                    "JVM": (jvm, partial(batch, jvm)),
                    FLINK: (flink, partial(flink.read, clusters, topic, records=n)),
                    READY: (ready, handed),
                }
                name = f"{n / 1e6:g} M x {size} B, {columns}, batch to noop"
                yield from compared("a", name, measures, targets, records=n, count=count, tell=tell)


def avro(records: int, count: int, tell: Tell) -> Iterator[Result]:
    """Measure case (l): Avro messages with a registry to five columns, to noop; in Flink to `blackhole`."""
    columns = "`id` BIGINT, `user` STRING, `session` STRING, `amount` INT, `x` STRING"
    text = json.dumps(AVRO_SCHEMA)
    with KafkaBroker(heap="1g") as broker, SchemaRegistry() as registry, all_three() as (ours, jvm, flink):
        broker.create_topic("avro", 8)
        with SchemaRegistryClient({"url": registry.url}) as client:
            schema_id = client.register_schema("avro-value", Schema(text, "AVRO"))
        tell("writing the records")
        fill_avro(broker.bootstrap_servers, "avro", partitions=8, records=records, schema_id=schema_id)
        options = _options(broker, "avro")
        table = {"format": "avro-confluent", "avro-confluent.url": registry.url}
        of_flink = {"topic": "avro", "properties.bootstrap.servers": broker.bootstrap_servers, **table}
        flink.create_tables(columns, of_flink, records=records)

        def measure(driver: Driver) -> float:
            found = driver("decode", options=options, columns=columns, table=table, avro_schema=text)
            return float(found["seconds"])

        measures: dict[str, tuple[Child, Measure]] = {
            "ours": (ours, partial(measure, ours)),
            "JVM": (jvm, partial(measure, jvm)),
            FLINK: (flink, flink.decode),
        }
        targets: dict[str, Target] = {"JVM": (3.0, "at least"), FLINK: (1.5, "at least")}
        name = "Avro with a registry to columns, SQL API"
        yield from compared("l", name, measures, targets, records=records, count=count, tell=tell)


def first_batch(count: int, tell: Tell) -> Iterator[Result]:
    """Measure case (p): a session's first query, from `load()` until its first batch is done.

    Each measurement has a driver of its own, whose session exists but has not run anything. A second session in the same
    JVM would find Spark's and the connector's classes loaded and compiled.
    """
    with KafkaBroker(heap="1g") as broker:
        broker.create_topic("first", 8)
        fill(broker.bootstrap_servers, "first", partitions=8, records=8_000)
        options = _options(broker, "first")

        def measure(connector: str) -> float:
            with Driver(connector) as driver:
                driver.wait_until_ready()
                return float(driver("first_batch", options=options))

        measures = {"ours": partial(measure, OURS), "JVM": partial(measure, JVM)}
        alternate(measures, 1, tell)  # fills the system's cache of files
        found = alternate(measures, count, tell)
    name = "first batch of a fresh session"
    yield compare("p", name, found["ours"], found["JVM"], unit="s", target=1.0, better="at most")


def cluster_counts(records: int, count: int, tell: Tell) -> Iterator[Result]:
    """Measure case (q): the same records on 1, 2 and 8 clusters. The JVM connector reads a union of DataFrames."""
    with all_three() as (ours, jvm, flink):
        for n in _CLUSTERS:
            with ExitStack() as stack:
                brokers = {f"cluster-{i}": stack.enter_context(KafkaBroker(heap="512m")) for i in range(n)}
                tell(f"writing the records to {n} clusters")
                for broker in brokers.values():
                    broker.create_topic("spread", _PARTITIONS // n)
                    fill(broker.bootstrap_servers, "spread", partitions=_PARTITIONS // n, records=records // n)
                streams = Path(stack.enter_context(TemporaryDirectory())) / "streams.json"
                servers = {cluster: broker.bootstrap_servers for cluster, broker in brokers.items()}
                streams.write_text(json.dumps([_stream(servers)]))
                service = {
                    "metadata-service": "file",
                    "metadata-service.path": str(streams),
                    "stream-ids": "spread",
                    "startingOffsets": "earliest",
                }
                of_each = [_options(broker, "spread") for broker in brokers.values()]
                measures: dict[str, tuple[Child, Measure]] = {
                    "ours": (ours, partial(ours, "union", sources=[service])),
                    "JVM": (jvm, partial(jvm, "union", sources=of_each)),
                    FLINK: (flink, partial(flink.read, servers, "spread", records=records)),
                }
                targets: dict[str, Target] = {"JVM": (None, "at least"), FLINK: (None, "at least")}
                name = f"{records / 1e6:g} M x {VALUE_BYTES} B on {n} cluster{'s' if n > 1 else ''}, batch to noop"
                yield from compared("q", name, measures, targets, records=records, count=count, tell=tell)


def _options(broker: KafkaBroker, topic: str) -> dict[str, str]:
    """Return the options with which both Spark connectors read a topic."""
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}


def _stream(servers: Mapping[str, str]) -> dict[str, object]:
    clusters = [{"clusterId": c, "bootstrapServers": address, "topics": ["spread"]} for c, address in servers.items()]
    return {"streamId": "spread", "clusterMetadataList": clusters}

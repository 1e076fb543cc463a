"""(s) What a query asks for: few columns of wide messages, counts, and the last records of a topic."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.drivers import Child, Driver
from benchmarks.flink import FLINK
from benchmarks.records import fill, fill_wide, wide_columns, wide_schema
from benchmarks.report import Result
from benchmarks.rivals import Measure, Target, all_three, compared
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from tests.schema_registry import SchemaRegistry

from dynamic_kafka.testing import KafkaBroker

__all__ = ["selection"]

_PARTITIONS = 8
_FIELDS = 20
_TIMES = 10  # so many more records has the topic whose end is read

Tell = Callable[[str], None]


def selection(records: int, count: int, tell: Tell) -> Iterator[Result]:
    """Measure case (s): JSON of 20 and 100 fields and Avro of 20; a condition on two of them keeps 1 %."""
    with KafkaBroker(heap="1g") as broker, SchemaRegistry() as registry, all_three() as (ours, jvm, flink):
        drivers = (ours, jvm)
        for form, fields in (("JSON", 20), ("JSON", 100), ("Avro", 20)):
            topic, n, columns = f"{form}-{fields}", records * _FIELDS // fields, wide_columns(fields)
            broker.create_topic(topic, _PARTITIONS)
            tell(f"writing records of {fields} fields as {form}")
            options = _options(broker, topic)
            table, schema_id = {"format": "json"}, None
            given: dict[str, Any] = {}
            if form == "Avro":
                text = json.dumps(wide_schema(fields))
                with SchemaRegistryClient({"url": registry.url}) as client:
                    schema_id = client.register_schema(f"{topic}-value", Schema(text, "AVRO"))
                table = {"format": "avro-confluent", "avro-confluent.url": registry.url}
                given = {"table": table, "avro_schema": text}
            servers = broker.bootstrap_servers
            fill_wide(servers, topic, partitions=_PARTITIONS, records=n, fields=fields, schema_id=schema_id)
            flink.create_tables(columns, {"topic": topic, "properties.bootstrap.servers": servers, **table}, records=n)
            select = partial(_select, options=options, columns=columns, **given)
            measures: dict[str, tuple[Child, Measure]] = {
                "ours": (ours, partial(select, ours, by="sql")),
                "JVM": (jvm, partial(select, jvm, by="sql")),
                FLINK: (flink, flink.select),
            }
            targets: dict[str, Target] = {"JVM": (4.0, "at least"), FLINK: (4.0, "at least")}
            name = f"2 of {fields} columns of {form}"
            yield from compared("s", f"{name}, sql", measures, targets, records=n, count=count, tell=tell)
            measured = (partial(select, ours, by="value.format"), partial(select, jvm, by="value.format"))
            yield from _beside(
                drivers, f"{name}, value.format", measured, target=4.0, records=n, count=count, tell=tell
            )
        options = _options(broker, f"JSON-{_FIELDS}")
        counts = (partial(ours, "count", options=options), partial(jvm, "count", options=options))
        yield from _beside(drivers, "COUNT(*)", counts, target=5.0, records=records, count=count, tell=tell)
        yield from _latest(broker, drivers, records * _TIMES, count, tell)


def _latest(
    broker: KafkaBroker, drivers: tuple[Driver, Driver], records: int, count: int, tell: Tell
) -> Iterator[Result]:
    """Measure what it takes to find the last 1 % and the last 0.1 % of a topic by their times."""
    ours, jvm = drivers
    broker.create_topic("long", _PARTITIONS)
    tell(f"writing {records} records")
    parts = {"all": records - records // 100, "1 %": records // 100 - records // 1000, "0.1 %": records // 1000}
    since_ms = {}
    for name, part in parts.items():
        since_ms[name] = int(time.time() * 1000)
        fill(broker.bootstrap_servers, "long", partitions=_PARTITIONS, records=part)
    options = _options(broker, "long")
    for share, target in (("1 %", 30.0), ("0.1 %", None)):
        since = {"options": options, "since_ms": since_ms[share]}
        by_where, by_jvm, by_mode = (
            partial(_count_since, ours, **since, by="where"),
            partial(_count_since, jvm, **since, by="where"),
            partial(_count_since, ours, **since, by="start"),
        )
        name = f"the last {share}, WHERE timestamp"
        yield from _beside(drivers, name, (by_where, by_jvm), target=target, records=records, count=count, tell=tell)
        starts = {"ours": (ours, by_where), "startup mode": (ours, by_mode)}
        targets: dict[str, Target] = {"startup mode": (1 / 1.3, "at least")}
        name = f"the last {share}, WHERE or startup mode"
        yield from compared("s", name, starts, targets, records=records, count=count, tell=tell)


def _count_since(driver: Driver, **arguments: object) -> float:
    return float(driver("count_since", **arguments))


def _select(driver: Driver, **arguments: object) -> float:
    return float(driver("select", **arguments))


def _options(broker: KafkaBroker, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }


def _beside(
    drivers: tuple[Driver, Driver],
    name: str,
    measures: tuple[Measure, Measure],
    *,
    target: float | None,
    records: int,
    count: int,
    tell: Tell,
) -> Iterator[Result]:
    targets: dict[str, Target] = {"JVM": (target, "at least")}
    children = dict(zip(("ours", "JVM"), zip(drivers, measures, strict=True), strict=True))
    yield from compared("s", name, children, targets, records=records, count=count, tell=tell)

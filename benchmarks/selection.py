"""(s) What a query asks for: few columns of wide messages, counts, and the last records of a topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.drivers import Driver, both
from benchmarks.records import fill_wide, wide_columns
from benchmarks.report import Result
from benchmarks.rivals import Measure, Target, compared

from dynamic_kafka.testing import KafkaBroker

__all__ = ["selection"]

_PARTITIONS = 8
_FIELDS = (20, 100)
_LATE = 100

Tell = Callable[[str], None]


def selection(records: int, count: int, tell: Tell) -> Iterator[Result]:
    """Measure case (s): JSON of 20 and 100 fields, of which two are used by a condition that keeps 1 %."""
    with KafkaBroker(heap="1g") as broker, both() as drivers:
        ours, jvm = drivers
        for fields in _FIELDS:
            topic, n = f"wide-{fields}", records * _FIELDS[0] // fields
            broker.create_topic(topic, _PARTITIONS)
            tell(f"writing records of {fields} fields")
            fill_wide(broker.bootstrap_servers, topic, partitions=_PARTITIONS, records=n, fields=fields)
            options = _options(broker, topic)

            def select(driver: Driver, by: str, options: dict[str, str] = options, fields: int = fields) -> float:
                return float(driver("select", options=options, columns=wide_columns(fields), by=by))

            for by in ("sql", "value.format"):
                measured = (partial(select, ours, by), partial(select, jvm, by))
                yield from _beside(
                    drivers, f"2 of {fields} columns, {by}", measured, target=4.0, records=n, count=count, tell=tell
                )
        topic, since_ms = f"wide-{_FIELDS[0]}", int(time.time() * 1000)
        options = _options(broker, topic)
        counts = (partial(ours, "count", options=options), partial(jvm, "count", options=options))
        yield from _beside(drivers, "COUNT(*)", counts, target=5.0, records=records, count=count, tell=tell)
        late = records // _LATE
        fill_wide(broker.bootstrap_servers, topic, partitions=_PARTITIONS, records=late, fields=_FIELDS[0])

        def since(driver: Driver, by: str = "where") -> float:
            return float(driver("count_since", options=options, since_ms=since_ms, by=by))

        last = (partial(since, ours), partial(since, jvm))
        name, all_ = "the last 1 %, WHERE timestamp", records + late
        yield from _beside(drivers, name, last, target=30.0, records=all_, count=count, tell=tell)
        starts = {"ours": (ours, partial(since, ours)), "startup mode": (ours, partial(since, ours, "start"))}
        name = "the last 1 %, WHERE or startup mode"
        targets: dict[str, Target] = {"startup mode": (1 / 1.3, "at least")}
        yield from compared("s", name, starts, targets, records=all_, count=count, tell=tell)


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

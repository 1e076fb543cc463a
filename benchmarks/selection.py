"""(s) What a query asks for: few columns of wide messages, and counts."""

from __future__ import annotations

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
        options = _options(broker, f"wide-{_FIELDS[0]}")
        counts = (partial(ours, "count", options=options), partial(jvm, "count", options=options))
        yield from _beside(drivers, "COUNT(*)", counts, target=5.0, records=records, count=count, tell=tell)


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

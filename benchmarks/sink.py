"""The sink: (f) throughput compared with the JVM connector, (g) the cost of exactly-once above at-least-once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median, quantiles

from benchmarks.drivers import OURS, Driver, both, pairs
from benchmarks.report import Result, compare, limit

from dynamic_kafka.testing import KafkaBroker

__all__ = ["exactly_once_against", "exactly_once_cost", "sink_throughput"]

_VALUE_BYTES = 120
_EXACTLY_ONCE = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "benchmark"}

Tell = Callable[[str], None]


def sink_throughput(rows: int, count: int, against: str | None, tell: Tell) -> Iterator[Result]:
    """Measure case (f): the same rows through both sinks, lz4, 8 partitions, acknowledged by the broker."""
    with KafkaBroker(heap="1g") as broker, both(against) as drivers:
        options = _options(broker, "throughput", partitions=8)
        guarantees: list[tuple[str, dict[str, str], float]]
        guarantees = [("write, at-least-once", {}, 2.0 if against is None else 1.0)]
        if against is None:  # the JVM sink only has at-least-once
            guarantees.append(("write, our exactly-once beside at-least-once", _EXACTLY_ONCE, 1.5))
        for name, more, target in guarantees:

            def measure(driver: Driver, more: dict[str, str] = more) -> float:
                its = options | more if driver.label == OURS else options
                return float(driver("write", options=its, rows=rows, value_bytes=_VALUE_BYTES)["seconds"])

            for driver in drivers:
                tell(f"{name}: warming up: {driver.label}")
                measure(driver)
            ours, theirs = pairs(drivers, count, measure, tell)
            yield compare("f", name, ours, theirs, unit="s", target=target, better="at least")


def exactly_once_cost(rows: int, count: int, batches: int, tell: Tell) -> Iterator[Result]:
    """Measure case (g): our exactly-once compared with our at-least-once, for large batches and for small ones."""
    with KafkaBroker(heap="1g") as broker, Driver(OURS) as driver:
        driver.wait_until_ready()
        options = _options(broker, "exactly-once", partitions=8)
        modes = {"at-least-once": options, "exactly-once": options | _EXACTLY_ONCE}

        def measure(mode: str) -> float:
            tell(f"{rows} rows, {mode}")
            return float(driver("write", options=modes[mode], rows=rows, value_bytes=_VALUE_BYTES)["seconds"])

        for mode in modes:
            measure(mode)
        found: dict[str, list[float]] = {mode: [] for mode in modes}
        for i in range(count):
            for mode in modes if i % 2 == 0 else reversed(modes):
                found[mode].append(measure(mode))
        ratios = [a / b for a, b in zip(found["at-least-once"], found["exactly-once"], strict=True)]
        yield Result(
            "g",
            f"exactly-once, {rows} rows a batch, of at-least-once's throughput",
            f"{median(found['exactly-once']):.3g} s",
            f"{median(found['at-least-once']):.3g} s (ours, at-least-once)",
            median(ratios),
            ratios,
            0.85,
            "at least",
            {"seconds": found},
        )
        small: dict[str, list[float]] = {mode: [] for mode in modes}
        for i in range(2):
            for mode in modes if i % 2 == 0 else reversed(modes):
                tell(f"micro-batches, {mode}")
                run = partial(driver, "write_micro_batches", rows_per_second=100, batches=batches, warm_up=20)
                small[mode] += run(options=modes[mode])
        base = median(small["at-least-once"])
        above = [ms - base for ms in small["exactly-once"]]
        data = {"addBatch_ms": small}
        for name, value, target in (("p50", median(above), 75.0), ("p95", quantiles(above, n=20)[18], 200.0)):
            yield limit(
                "g",
                f"exactly-once micro-batch above at-least-once, {name}",
                f"{value:.0f} ms",
                value,
                [value],
                target=target,
                data=data,
            )


def exactly_once_against(rows: int, count: int, batches: int, against: str, tell: Tell) -> Iterator[Result]:
    """Measure case (g) beside another commit: exactly-once batches, large and small."""
    with KafkaBroker(heap="1g") as broker, both(against) as drivers:
        options = _options(broker, "exactly-once", partitions=8) | _EXACTLY_ONCE
        of = {d.label: options | {"sink.transactional-id-prefix": f"benchmark-{i}"} for i, d in enumerate(drivers)}

        def large(driver: Driver) -> float:
            return float(driver("write", options=of[driver.label], rows=rows, value_bytes=_VALUE_BYTES)["seconds"])

        for driver in drivers:
            large(driver)
        ours, theirs = pairs(drivers, count, large, tell)
        yield compare("g", f"exactly-once, {rows} rows a batch", ours, theirs, unit="s", target=1.0, better="at least")
        p95: dict[str, list[float]] = {driver.label: [] for driver in drivers}

        def small(driver: Driver) -> float:
            run = partial(driver, "write_micro_batches", rows_per_second=100, batches=batches, warm_up=20)
            found = run(options=of[driver.label])
            p95[driver.label].append(quantiles(found, n=20)[18])
            return float(median(found))

        ours, theirs = pairs(drivers, 4, small, tell)
        name = "exactly-once micro-batch"
        yield compare("g", f"{name}, p50", ours, theirs, unit="ms", target=1.0, better="at most")
        ours, theirs = (p95[driver.label] for driver in drivers)
        yield compare("g", f"{name}, p95", ours, theirs, unit="ms", target=1.0, better="at most")


def _options(broker: KafkaBroker, topic: str, *, partitions: int) -> dict[str, str]:
    broker.create_topic(topic, partitions)
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, "kafka.compression.type": "lz4"}

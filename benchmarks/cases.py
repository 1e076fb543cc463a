"""Side by side with the JVM connector: (a) throughput, (b) many quiet partitions, (c) latency."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import quantiles

from benchmarks.drivers import Driver, both, pairs
from benchmarks.records import fill, steady
from benchmarks.report import Result, compare

from dynamic_kafka.testing import KafkaBroker

__all__ = ["FULL", "QUICK", "Sizes", "latency", "many_partitions", "throughput"]

_RATE = 200
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Sizes:
    """The sizes of a run.

    Args:
        records: The number of records of the throughput case.
        partitions: The number of partitions of the case of many partitions, and of records in each of them.
        warm_up_s: The seconds of each latency block that do not count.
        block_s: The seconds of each latency block that count.
        clusters: The numbers of clusters to measure.
        split_over: The number of partitions that the clusters share.
        on_brokers: The numbers of partitions to read from brokers.
        simulated: The numbers of partitions that are only planned.
        rounds: The number of micro-batches of each of these sizes.
    """

    records: int
    partitions: tuple[int, int]
    warm_up_s: float
    block_s: float
    clusters: tuple[int, ...]
    split_over: int
    on_brokers: tuple[int, ...]
    simulated: tuple[int, ...]
    rounds: int


FULL = Sizes(
    records=4_000_000,
    partitions=(400, 50),
    warm_up_s=10,
    block_s=30,
    clusters=(1, 2, 4, 8),
    split_over=64,
    on_brokers=(100, 300, 1_000),
    simulated=(100, 1_000, 3_000, 10_000),
    rounds=15,
)
QUICK = Sizes(
    records=100_000,
    partitions=(20, 5),
    warm_up_s=3,
    block_s=5,
    clusters=(1, 2),
    split_over=8,
    on_brokers=(10, 20),
    simulated=(100, 300, 1_000),
    rounds=3,
)


def throughput(sizes: Sizes, count: int, against: str | None, tell: Tell) -> Iterator[Result]:
    """Measure case (a): read one large topic completely, beside the JVM connector."""
    with KafkaBroker(heap="1g") as broker, both(against) as drivers:
        tell("writing the records")
        options = _filled(broker, "throughput", partitions=8, records=sizes.records)
        first: list[tuple[str, str, bool, dict[str, str]]]
        first = [("batch to noop", "batch", False, {})] if against else []  # `rivals.shapes` has it, if not
        for name, function, aggregate, more in (
            *first,
            ("batch, count and sum", "batch", True, {}),
            ("AvailableNow to noop", "available_now", False, {}),
            ("AvailableNow, count and sum", "available_now", True, {}),
        ):

            def measure(
                driver: Driver,
                function: str = function,
                aggregate: bool = aggregate,  # noqa: FBT001
                more: dict[str, str] = more,
            ) -> float:
                found = driver(function, options=options | more, aggregate=aggregate)
                return _seconds(found, sizes.records)

            tell(f"{name}: warming up")
            for driver in drivers:
                measure(driver)
            ours, theirs = pairs(drivers, count, measure, partial(_tell, tell, name))
            yield compare("a", name, ours, theirs, unit="s", target=1.0, better="at least")


def many_partitions(sizes: Sizes, count: int, tell: Tell) -> Iterator[Result]:
    """Measure case (b): many partitions with few records each. The JVM connector has a task and a consumer for each.

    Each measurement follows the same measurement that does not count, because Spark ends Python workers that are idle for
    one minute, and the other contender takes several minutes.
    """
    partitions, each = sizes.partitions
    with KafkaBroker(heap="1g") as broker, both() as drivers:
        options = _filled(broker, "many", partitions=partitions, records=partitions * each)

        def batch(driver: Driver) -> float:
            driver("batch", options=options, aggregate=True)
            return _seconds(driver("batch", options=options, aggregate=True), partitions * each)

        def micro_batch(driver: Driver) -> float:
            found = driver(
                "micro_batches",
                options=options | {"startingOffsets": "latest"},
                targets=[(broker.bootstrap_servers, "many", partitions)],
                rounds=2,
                trigger=None,
            )
            return float(found[1]["seconds"])

        shape = f"{partitions} partitions"
        for name, measure in ((f"{shape} x {each}, batch", batch), (f"{shape} x 1, micro-batch", micro_batch)):
            ours, theirs = pairs(drivers, count, measure, partial(_tell, tell, name))
            yield compare("b", name, ours, theirs, unit="s", target=100.0, better="at least")


def latency(sizes: Sizes, count: int, against: str | None, tell: Tell) -> Iterator[Result]:
    """Measure case (c): the time from a record's creation until the sink has it, at an even rate, default trigger."""
    partitions = 4
    p95: dict[str, list[float]] = {}

    def measure(driver: Driver) -> float:
        found = driver("latencies", options=options, warm_up_s=sizes.warm_up_s, seconds=sizes.block_s)
        if abs(len(found) / (sizes.block_s * _RATE) - 1) > 0.05:
            raise RuntimeError(
                f"{driver.label} saw {len(found)} records in {sizes.block_s} s, expected about {sizes.block_s * _RATE}"
            )
        steps = quantiles(found, n=20)
        p95.setdefault(driver.label, []).append(steps[18])
        return float(steps[9])

    with KafkaBroker(heap="1g") as broker, both(against) as drivers:
        broker.create_topic("latency", partitions)
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": "latency",
            "startingOffsets": "latest",
        }
        with steady(broker.bootstrap_servers, "latency", partitions=partitions, rate=_RATE):
            ours, theirs = pairs(drivers, count, measure, tell)
    shape, target = f"{_RATE} records/s", 0.9 if against is None else 1.05
    yield compare("c", f"latency p50, {shape}", ours, theirs, unit="ms", target=target, better="at most")
    ours, theirs = (p95[driver.label] for driver in drivers)
    yield compare("c", f"latency p95, {shape}", ours, theirs, unit="ms", target=target, better="at most")


def _tell(tell: Tell, name: str, text: str) -> None:
    tell(f"{name}: {text}")


def _filled(broker: KafkaBroker, topic: str, *, partitions: int, records: int) -> dict[str, str]:
    """Create and fill a topic, and return the options with which both connectors read it."""
    broker.create_topic(topic, partitions)
    fill(broker.bootstrap_servers, topic, partitions=partitions, records=records)
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }


def _seconds(found: dict[str, float | None], records: int) -> float:
    rows, seconds = found["rows"], found["seconds"]
    if rows not in (None, records):
        raise RuntimeError(f"{rows} rows were read, but the topic has {records} records")
    assert seconds is not None
    return seconds

"""Ours alone: (d) the cost of a micro-batch with more clusters and partitions, (e) memory over minutes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import linear_regression, median
from tempfile import TemporaryDirectory

from benchmarks.cases import Sizes, Tell
from benchmarks.drivers import OURS, Driver
from benchmarks.processes import descendants, resident_mib
from benchmarks.records import steady
from benchmarks.report import Result, limit
from benchmarks.simulation import micro_batch

from dynamic_kafka.testing import KafkaBroker

__all__ = ["growth", "memory"]

_NO_WORSE_THAN_LINEAR = 1.1  # 1.0, and 0.1 for the error of measurement
_PLANNED_WITHIN_MS = 100
_REPEATS = 20
_SOAK_RATE = 2_000
_SAMPLE_S = 1.0
_FLAT = 1.02  # growth over the second half of the run


def growth(sizes: Sizes, tell: Tell) -> Iterator[Result]:
    """Measure case (d): the cost of a micro-batch as the stream grows."""
    yield from _over_clusters(sizes, tell)
    yield from _over_partitions(sizes, tell)
    for name, per_topic in (("one topic", None), ("one-partition topics", 1)):
        times = []
        for n in sizes.simulated:
            tell(f"planning {n} partitions, {name}")
            step = micro_batch(n, n if per_topic is None else per_topic)
            times.append([_timed_ms(step) for _ in range(_REPEATS)])
        yield _linear(f"planning {name}", sizes.simulated, [min(t) for t in times])
        shown = f"{median(times[-1]):.1f} ms"
        what = f"planning {sizes.simulated[-1]} partitions of {name} (ms)"
        yield limit("d", what, shown, median(times[-1]), times[-1], target=_PLANNED_WITHIN_MS)


def _over_clusters(sizes: Sizes, tell: Tell) -> Iterator[Result]:
    batch_ms, offset_ms = [], []
    with Driver(OURS) as driver, TemporaryDirectory() as folder:
        for n in sizes.clusters:
            tell(f"{n} clusters")
            with ExitStack() as stack:
                brokers = [stack.enter_context(KafkaBroker()) for _ in range(n)]
                batch, offset = _micro_batches(driver, brokers, sizes.split_over // n, sizes.rounds, Path(folder))
                batch_ms.append(batch)
                offset_ms.append(offset)
    yield _linear(f"micro-batch with {sizes.split_over} partitions, by clusters", sizes.clusters, batch_ms)
    yield _linear(f"latestOffset with {sizes.split_over} partitions, by clusters", sizes.clusters, offset_ms)


def _over_partitions(sizes: Sizes, tell: Tell) -> Iterator[Result]:
    costs = []
    with Driver(OURS) as driver, TemporaryDirectory() as folder:
        for n in sizes.on_brokers:
            tell(f"{n} partitions")
            with KafkaBroker(heap="512m") as broker:
                costs.append(_micro_batches(driver, [broker], n, sizes.rounds, Path(folder))[0])
    yield _linear("micro-batch with one record in each partition", sizes.on_brokers, costs)


def _micro_batches(
    driver: Driver, brokers: Sequence[KafkaBroker], partitions: int, rounds: int, folder: Path
) -> tuple[float, float]:
    """Return the cost of a micro-batch (ms), in total and for its offsets, with one record in each partition."""
    for broker in brokers:
        broker.create_topic("scaling", partitions)
    clusters = [
        {"clusterId": f"cluster-{i}", "bootstrapServers": broker.bootstrap_servers, "topics": ["scaling"]}
        for i, broker in enumerate(brokers)
    ]
    streams = folder / f"streams-{len(brokers)}-{partitions}.json"
    streams.write_text(json.dumps([{"streamId": "scaling", "clusterMetadataList": clusters}]))
    found = driver(
        "micro_batches",
        options={"metadata-service": "file", "metadata-service.path": str(streams), "stream-ids": "scaling"},
        targets=[(broker.bootstrap_servers, "scaling", partitions) for broker in brokers],
        rounds=rounds,
        trigger="1 second",
    )
    warm = found[len(found) // 3 :]
    return median(f["batch_ms"] for f in warm), median(f["latest_offset_ms"] for f in warm)


def _linear(name: str, sizes: Sequence[int], costs: Sequence[float]) -> Result:
    """Return the worst step from one size to the next: the growth of the cost divided by the growth of the size."""
    steps = [(b / a) / (m / n) for a, b, n, m in zip(costs, costs[1:], sizes, sizes[1:], strict=False)]
    shown = ", ".join(f"{n}: {cost:.3g}" for n, cost in zip(sizes, costs, strict=True)) + " ms"
    data = {"sizes": list(sizes), "costs_ms": list(costs)}
    return limit("d", f"growth: {name}", shown, max(steps), steps, target=_NO_WORSE_THAN_LINEAR, data=data)


def _timed_ms(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return (time.perf_counter() - began) * 1000


# --- memory -----------------------------------------------------------------------------------------------------


def memory(minutes: float, tell: Tell) -> Iterator[Result]:
    """Measure case (e): the resident memory of Spark's reader process and of its largest worker while a stream runs."""
    partitions = 4
    with KafkaBroker(heap="1g") as broker, Driver(OURS) as driver:
        broker.create_topic("soak", partitions)
        with steady(broker.bootstrap_servers, "soak", partitions=partitions, rate=_SOAK_RATE):
            options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "soak"}
            driver("start", options=options)
            samples = _watch(driver, minutes * 60, tell)
            batches = driver("progress")["batch"]
            driver("stop")
    for role, series in samples.items():
        second_half = [(at, mib) for at, mib in series if at > series[-1][0] / 2]
        slope, first = linear_regression(*zip(*second_half, strict=True))
        begin, end = (first + slope * at for at in (second_half[0][0], second_half[-1][0]))
        shown = f"{series[0][1]:.0f} MiB at first, {begin:.1f} half-way, {end:.1f} at the end"
        name = f"memory of the {role}, {minutes:g} min, {batches} batches"
        yield limit("e", name, shown, end / begin, [end / begin], target=_FLAT, data={"seconds_and_mib": series})


def _watch(driver: Driver, seconds: float, tell: Tell) -> dict[str, list[tuple[float, float]]]:
    """Return the resident memory (MiB) of the two processes over time."""
    began = time.monotonic()
    readers: list[tuple[float, float]] = []
    workers: dict[int, list[tuple[float, float]]] = {}
    while (at := time.monotonic() - began) < seconds:
        for pid, command in descendants(driver.pid):
            mib = resident_mib(pid)
            if mib and "python_streaming_source_runner" in command:
                readers.append((at, mib))
            elif mib and "pyspark.daemon" in command:
                workers.setdefault(pid, []).append((at, mib))
        if int(at) % 5 == 0:
            rate = driver("progress")["rows_per_second"]
            tell(f"{at:.0f} of {seconds:.0f} s, {rate:.0f} rows/s, reader {readers[-1][1]:.0f} MiB")
        time.sleep(_SAMPLE_S)
    longest = [series for series in workers.values() if series[-1][0] > seconds - 5]
    return {"reader": readers, "worker": max(longest, key=lambda series: series[-1][1])}

"""Case (k): reading without Spark, by the native kernel and by Python.

`python -m benchmarks.reading read ...` is the process that reads. It prints the seconds and the CPU seconds of each read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.records import VALUE_BYTES, fill
from benchmarks.report import Result, compare
from scripts.spark42 import ROOT

from dynamic_kafka.initializer import KafkaOffsetsInitializer
from dynamic_kafka.rows import COLUMNS, arrow_schema
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.planning import ClusterAccess, Range, ReadTask
from dynamic_kafka.source.reader import read
from dynamic_kafka.testing import KafkaBroker

__all__ = ["reading"]

_PARTITIONS = 8
_ALL = ",".join(name for name in COLUMNS if name not in ("headers", "leader_epoch"))  # the defaults


def reading(records: int, count: int, tell: Callable[[str], None]) -> Iterator[Result]:
    """Measure case (k): one task reads a topic of 120-byte records completely, on one broker."""
    with KafkaBroker(heap="1g") as broker:
        broker.create_topic("reading", _PARTITIONS)
        tell("writing the records")
        fill(broker.bootstrap_servers, "reading", partitions=_PARTITIONS, records=records)
        for name, columns in (("all columns", _ALL), ("value only", "value")):
            found: dict[str, list[tuple[float, float]]] = {"native": [], "python": []}
            for i in range(count):
                for implementation in ("native", "python") if i % 2 == 0 else ("python", "native"):
                    tell(f"{name}, {implementation}")
                    found[implementation].append(_measured(broker.bootstrap_servers, implementation, columns, records))
            for what, part in (("time", 0), ("CPU", 1)):
                ours, theirs = ([run[part] for run in found[which]] for which in ("native", "python"))
                title = f"{records / 1e6:g} M x {VALUE_BYTES} B, {name}: {what} of the kernel and of Python"
                yield compare("k", title, ours, theirs, unit="s", target=1.5, better="at least")


def _measured(servers: str, implementation: str, columns: str, records: int) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.reading", "read", servers, implementation, columns, str(records)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), os.environ.get("PYTHONPATH", "")))}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    seconds, cpu_seconds = map(float, done.stdout.split())
    return seconds, cpu_seconds


def _read(servers: str, implementation: str, columns: str, records: int) -> None:
    options = {"kafka.bootstrap.servers": servers, "subscribe": "reading", "reader-implementation": implementation}
    settings = configure_source(options, default_starting=KafkaOffsetsInitializer.earliest())
    schema, access = arrow_schema(columns.split(",")), ClusterAccess({"bootstrap.servers": servers})

    def task(each: int) -> ReadTask:
        return ReadTask([Range("c", "reading", "", p, 0, each) for p in range(_PARTITIONS)], {"c": access})

    assert sum(batch.num_rows for batch in read(task(1000), schema, settings)) == 1000 * _PARTITIONS  # connects
    began, cpu_began = time.perf_counter(), time.process_time()
    rows = sum(batch.num_rows for batch in read(task(records // _PARTITIONS), schema, settings))
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    assert rows == records // _PARTITIONS * _PARTITIONS
    print(seconds, cpu_seconds)


if __name__ == "__main__":
    _, what, to, by, names, number = sys.argv
    {"read": _read}[what](to, by, names, int(number))

"""All benchmarks: `python benchmarks/run.py [--only a,c] [--quick]`. README.md in this folder explains them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.cases import FULL, QUICK, latency, many_partitions, throughput  # noqa: E402
from benchmarks.drivers import RIVAL  # noqa: E402
from benchmarks.flink import FLINK_POM  # noqa: E402
from benchmarks.formats import avro_decoding, encoding, json_decoding  # noqa: E402
from benchmarks.nexmark import nexmark  # noqa: E402
from benchmarks.protobuf import protobuf_decoding  # noqa: E402
from benchmarks.report import Result, save, show  # noqa: E402
from benchmarks.rivals import avro, cluster_counts, first_batch, shapes  # noqa: E402
from benchmarks.scaling import growth, memory  # noqa: E402
from benchmarks.selection import selection  # noqa: E402
from benchmarks.sink import exactly_once_against, exactly_once_cost, sink_throughput  # noqa: E402
from rich.console import Console  # noqa: E402
from scripts import spark_versions  # noqa: E402

Case = Callable[[Callable[[str], None]], Iterator[Result]]


def main() -> int:
    """Run the chosen cases. Return 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the cases to run, such as a,c (default: all)")
    parser.add_argument(
        "--against", metavar="COMMIT", help="measure a, c, f and g beside our own code at this commit; saves nothing"
    )
    parser.add_argument(
        "--quick", action="store_true", help="use tiny sizes: tests the harness, the figures mean nothing"
    )
    parser.add_argument("--pairs", type=int, default=5, help="pairs of measurements for each line of case a")
    parser.add_argument(
        "--partition-pairs",
        type=int,
        default=1,
        help="the same for case b; the JVM connector needs four minutes for each",
    )
    parser.add_argument("--latency-pairs", type=int, default=3, help="the same for case c, 40 s each")
    parser.add_argument("--soak-minutes", type=float, default=10, help="the minutes that case e runs")
    arguments = parser.parse_args()
    quick, against = arguments.quick, arguments.against
    sizes, count = (QUICK, 2) if quick else (FULL, arguments.pairs)
    cases: dict[str, Case] = {
        "a": partial(throughput, sizes, count, against),
        "b": partial(many_partitions, sizes, arguments.partition_pairs),
        "c": partial(latency, sizes, 2 if quick else arguments.latency_pairs, against),
        "d": partial(growth, sizes),
        "e": partial(memory, 0.5 if quick else arguments.soak_minutes),
        "f": partial(sink_throughput, 100_000 if quick else 2_000_000, count, against),
        "h": partial(json_decoding, 100_000 if quick else 2_000_000, count),
        "i": partial(avro_decoding, count),
        "o": partial(encoding, count),
        "g": partial(exactly_once_cost, 50_000 if quick else 1_000_000, count, 10 if quick else 60),
        "l": partial(avro, 100_000 if quick else 2_000_000, count),
        "m": partial(protobuf_decoding, 20_000 if quick else 200_000, count),
        "n": partial(nexmark, 20_000 if quick else 1_000_000, count),
        "p": partial(first_batch, count),
        "s": partial(selection, 50_000 if quick else 2_000_000, count),
        "q": partial(cluster_counts, sizes.records, count),
    }
    if against is None:
        cases["a"] = _both(partial(shapes, sizes.records, count), cases["a"])
    else:
        rows, batches = (50_000, 10) if quick else (1_000_000, 60)
        cases = {letter: cases[letter] for letter in "acf"} | {
            "g": partial(exactly_once_against, rows, count, batches, against)
        }
    chosen = arguments.only.split(",") if arguments.only else sorted(cases)
    if unknown := set(chosen) - set(cases):
        parser.error(f"unknown case: {', '.join(sorted(unknown))}; the cases are {', '.join(sorted(cases))}")

    spark_versions.python()  # prepare both now, not during a measurement
    spark_versions.jars(RIVAL)
    if against is None:
        spark_versions.jars(FLINK_POM)
    # The table is wide, and a pipe does not limit the width.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    began = time.monotonic()
    results: list[Result] = []
    for letter in chosen:

        def tell(text: str, letter: str = letter) -> None:
            console.print(f"[dim]{time.monotonic() - began:6.0f} s[/dim] ({letter}) {text}", highlight=False)

        for result in cases[letter](tell):
            results.append(result)
            tell(f"{result.name}: {result.value:.3g}")
    if against is None:
        show(results, console)
        save(results, quick=quick)
    else:
        show([replace(r, rival=against) for r in results], console)
    return 0 if quick or all(result.passed for result in results) else 1


def _both(first: Case, second: Case) -> Case:
    def case(tell: Callable[[str], None]) -> Iterator[Result]:
        yield from first(tell)
        yield from second(tell)

    return case


if __name__ == "__main__":
    sys.exit(main())

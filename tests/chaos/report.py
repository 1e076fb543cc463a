"""The results of campaigns: kept as JSON beside this file, and written as docs/explanations/reliability.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.declared import RECOVERY_S, Fault

__all__ = ["REPORT", "RESULTS", "Result", "add", "load", "render", "write"]

RESULTS = Path(__file__).with_name("results.json")
REPORT = Path(__file__).parents[2] / "docs" / "explanations" / "reliability.md"

_HEAD = f"""# Reliability

`make chaos` causes faults while a query runs, and counts the rows that are lost or there twice. Numbered rows are
written to topics on three Kafka clusters all the time. One streaming query reads these topics with `dynamic-kafka`, and
writes each row exactly once to a cluster that is chosen at random. A reader with `read_committed` counts the rows that
are published. Meanwhile the faults happen one after the other. A seed decides their order.

* Clusters: `a` has three brokers of Kafka 4.1 (and the commit log), `b` has one of 4.1 with a password, `c` has one
  of 3.9 with TLS. All clients connect through a proxy. It can make a link slow, narrow, cut, stuck or half-open.
* Spark: a standalone cluster of two workers, each with a temporary directory of its own, as two machines have.
* A fault has *recovered* when all rows written before its end are published, and those written until then follow
  within ten seconds; if they do not, when they are published, too. The target is {RECOVERY_S:.0f} s.
* A fault that did not go as expected is caused again after the mend. The table has its last results.
* What to do after an accident is in [Accidents](../guides/accidents.md).
* Some faults make it hard to know whether a copy or an archive is whole. There the words of the query count, too: rows that
  are lost or twice where it has promised `exact` are a broken promise. So is a transaction that is open after `stop()`.
* Rows that a fault itself destroys (a deleted topic, retention) do not count as lost in the table. The query has to report
  them, and the campaign compares the number.
* If the query stops with an error, the campaign does what the documentation says about this error, and starts it again.
* A fault with a wrong clock changes the time of Spark's Python processes. Brokers have the right time.

```sh
make chaos ARGS="--minutes 30"                # some faults; prints the seed
make chaos ARGS="--minutes 5 --seed 7"        # the same faults again
make chaos ARGS="--only broker-killed"        # one fault
make chaos ARGS="--list"                      # all faults
```

"""


@dataclass(frozen=True)
class Result:
    """What came of a fault once.

    Args:
        name: Of the fault.
        verdict: `ok`, what is wrong, or `skipped: ` and why.
        rows: The number of rows written so far in its campaign.
        lost: Rows that are missing, although nothing destroyed them.
        twice: Rows that are there more than once.
        destroyed: Rows that the fault destroyed.
        recovery_s: The seconds until it had recovered; None if it did not.
        errors: The first line of each error that the query stopped with.
        reports: What the source reported.
        small: Whether it was in the small world (`--small`).
    """

    name: str
    verdict: str
    rows: int = 0
    lost: int = 0
    twice: int = 0
    destroyed: int = 0
    recovery_s: float | None = None
    errors: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    small: bool = False

    @property
    def was_run(self) -> bool:
        """Whether the fault was caused."""
        return not self.verdict.startswith("skipped")


@dataclass
class Results:
    """All results so far.

    Args:
        seconds: How long all campaigns took together.
        rows: How many rows they wrote.
        results: In the order of the runs.
    """

    seconds: float = 0.0
    rows: int = 0
    results: list[Result] = field(default_factory=list)


def load(path: Path) -> Results:
    """The results in a file; none if there is no file."""
    if not path.exists():
        return Results()
    found: dict[str, Any] = json.loads(path.read_text())
    results = [
        Result(**{**one, "errors": tuple(one["errors"]), "reports": tuple(one["reports"])}) for one in found["results"]
    ]
    return Results(found["seconds"], found["rows"], results)


def add(so_far: Results, new: Sequence[Result], seconds: float) -> Results:
    """The results with those of one more campaign."""
    ran = [result for result in new if result.was_run]
    rows = max((result.rows for result in ran), default=0)
    return Results(so_far.seconds + seconds, so_far.rows + rows, [*so_far.results, *ran])


def render(results: Results, faults: Mapping[str, Fault]) -> str:
    """The text of docs/explanations/reliability.md."""
    by_name: dict[str, list[Result]] = {}
    for result in results.results:
        by_name.setdefault(result.name, []).append(result)
    lines = [
        "| fault | what happens | expected | seen | runs | rows lost | rows twice | seconds to recover |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_row(fault, by_name.get(fault.name, [])) for fault in faults.values()]
    known = [result for result in results.results if result.name in faults]
    return _HEAD + _totals(results, known, faults, by_name) + "\n".join(lines) + "\n"


def _totals(
    results: Results, known: Sequence[Result], faults: Mapping[str, Fault], by_name: Mapping[str, Sequence[Result]]
) -> str:
    good = sum(result.verdict == "ok" for result in known)
    times = [result.recovery_s for result in known if result.recovery_s is not None]
    small = sum(result.small for result in known)
    return (
        f"**In all: {len(known)} faults in {results.seconds / 60:.0f} minutes, {results.rows:,} rows. "
        f"{good} went as expected. "
        f"{sum(r.lost for r in known)} rows lost, {sum(r.twice for r in known)} rows twice. "
        f"Slowest recovery: {_seconds(max(times, default=None))}.** "
        f"{sum(name in by_name for name in faults)} of the {len(faults)} faults below were tried. "
        f"{small} of the {len(known)} runs used a small set-up: `b`, `c` and a local Spark (`--small`).\n\n"
    )


def _row(fault: Fault, runs: Sequence[Result]) -> str:
    times = [result.recovery_s for result in runs if result.recovery_s is not None]
    span = (
        ""
        if not times
        else _seconds(min(times))
        if len(times) == 1
        else f"{_seconds(min(times))} to {_seconds(max(times))}"
    )
    cells = (
        f"`{fault.name}`",
        fault.what,
        fault.outcome.words,
        "; ".join(_words(runs)) or "not tried yet",
        str(len(runs)),
        str(sum(result.lost for result in runs)),
        str(sum(result.twice for result in runs)),
        span,
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _words(runs: Iterable[Result]) -> list[str]:
    counts: dict[str, int] = {}
    for result in runs:
        name = result.errors[0].partition(":")[0] if result.errors else ""
        if "- ~" in name:  # Spark shows its plan
            name = "an error of the scan that it planned"
        stopped = f", stops with {name}" if name else ""
        words = ("as expected" if result.verdict == "ok" else f"**{result.verdict}**") + stopped
        counts[words] = counts.get(words, 0) + 1
    return [words if times == 1 else f"{words} ({times} times)" for words, times in counts.items()]


def _seconds(value: float | None) -> str:
    return "none" if value is None else f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"


def write(results: Results, faults: Mapping[str, Fault], path: Path, report: Path) -> None:
    """Write both files."""
    as_json = {"seconds": round(results.seconds), "rows": results.rows, "results": [asdict(r) for r in results.results]}
    path.write_text(json.dumps(as_json, indent=1) + "\n")
    report.write_text(render(results, faults))

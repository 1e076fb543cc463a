"""Results: the measured values and their targets, as a table and as JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

__all__ = ["RESULTS", "Result", "compare", "limit", "save", "show"]

RESULTS = Path(__file__).with_name("results") / "latest.json"


@dataclass(frozen=True)
class Result:
    """One line of the table.

    Args:
        case: The letter of the case.
        name: The name of the measurement.
        ours: Our figure as text, with its unit.
        theirs: The JVM connector's figure, or "" if it was not measured.
        value: The value to compare with the target: a median, or the worst of `values`.
        values: All values, one for each pair, step or repetition.
        target: The target.
        better: If the value must be at least or at most the target.
        data: The measured data, for plots.
    """

    case: str
    name: str
    ours: str
    theirs: str
    value: float
    values: Sequence[float]
    target: float
    better: Literal["at least", "at most"]
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Return whether the target is met."""
        return self.value >= self.target if self.better == "at least" else self.value <= self.target


def compare(
    case: str,
    name: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    unit: str,
    target: float,
    better: Literal["at least", "at most"],
) -> Result:
    """Compare pairs: how many times faster we are (`at least`), or our time divided by the JVM's (`at most`)."""
    ratios = [b / a if better == "at least" else a / b for a, b in zip(ours, theirs, strict=True)]
    figures = f"{median(ours):.3g} {unit}", f"{median(theirs):.3g} {unit}"
    data = {"ours": list(ours), "theirs": list(theirs), "unit": unit}
    return Result(case, name, *figures, median(ratios), ratios, target, better, data)


def limit(
    case: str,
    name: str,
    ours: str,
    value: float,
    values: Sequence[float],
    *,
    target: float,
    data: dict[str, Any] | None = None,
) -> Result:
    """Return a result of ours alone. The value must not be above the target. It was chosen from `values`."""
    return Result(case, name, ours, "", value, values, target, "at most", data or {})


def show(results: Iterable[Result], console: Console, rival: str) -> None:
    """Print the table; `rival` is the heading of the other contender's figures."""
    table = Table(title=f"Benchmarks: dynamic-kafka and {rival}, same machine, same run")
    for heading in ("case", "measured", "ours", rival, "target", "value", "min..max", ""):
        table.add_column(heading, justify="left" if heading in ("case", "measured", "") else "right")
    for r in results:
        sign = "≥" if r.better == "at least" else "≤"
        spread = f"{min(r.values):.3g}..{max(r.values):.3g}" if len(r.values) > 1 else ""
        verdict = "[green]pass[/green]" if r.passed else "[red]FAIL[/red]"
        table.add_row(r.case, r.name, r.ours, r.theirs, f"{sign} {r.target:g}", f"{r.value:.3g}", spread, verdict)
    console.print(table)


def save(results: Iterable[Result], *, quick: bool) -> None:
    """Write `results/latest.json`. A quick run writes `quick.json`, because its figures mean nothing.

    Cases that were not run keep their results. Each result has the time of its measurement.
    """
    path = RESULTS.with_name("quick.json") if quick else RESULTS
    at = datetime.now(UTC).isoformat(timespec="seconds")
    found = [asdict(r) | {"passed": r.passed, "at": at} for r in results]
    cases = {r["case"] for r in found}
    before = json.loads(path.read_text())["results"] if path.is_file() else []
    merged = sorted([r for r in before if r["case"] not in cases] + found, key=lambda r: str(r["case"]))
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"python": platform.python_version(), "results": merged}, indent=1) + "\n")

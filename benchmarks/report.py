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

from benchmarks.processes import Cost
from rich.console import Console
from rich.table import Table

__all__ = ["RESULTS", "Result", "compare", "compare_costs", "limit", "save", "show"]

RESULTS = Path(__file__).with_name("results") / "latest.json"


@dataclass(frozen=True)
class Result:
    """One line of the table.

    Args:
        case: The letter of the case.
        name: The name of the measurement.
        ours: Our figure as text, with its unit.
        theirs: The rival's figure, or "" if none was measured.
        value: The value to compare with the target: a median, or the worst of `values`.
        values: All values, one for each pair, step or repetition.
        target: The target, or None if there is none.
        better: If the value must be at least or at most the target.
        data: The measured data, for plots.
        rival: Whose figure `theirs` is.
    """

    case: str
    name: str
    ours: str
    theirs: str
    value: float
    values: Sequence[float]
    target: float | None
    better: Literal["at least", "at most"]
    data: dict[str, Any] = field(default_factory=dict)
    rival: str = "JVM"

    @property
    def passed(self) -> bool:
        """Return whether the target is met, or there is none."""
        if self.target is None:
            return True
        return self.value >= self.target if self.better == "at least" else self.value <= self.target


def compare(
    case: str,
    name: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    unit: str,
    target: float | None,
    better: Literal["at least", "at most"],
    rival: str = "JVM",
) -> Result:
    """Compare pairs: how many times faster we are (`at least`), or our time divided by the rival's (`at most`)."""
    ratios = [b / a if better == "at least" else a / b for a, b in zip(ours, theirs, strict=True)]
    figures = f"{median(ours):.3g} {unit}", f"{median(theirs):.3g} {unit}"
    data = {"ours": list(ours), "theirs": list(theirs), "unit": unit}
    return Result(case, name, *figures, median(ratios), ratios, target, better, data, rival)


def compare_costs(
    case: str,
    name: str,
    ours: Sequence[Cost],
    theirs: Sequence[Cost],
    *,
    records: int,
    target: float | None,
    better: Literal["at least", "at most"],
    rival: str,
) -> Result:
    """Compare the times of pairs, and keep what they cost, which `show` prints in a table of its own."""
    times = [cost.seconds for cost in ours], [cost.seconds for cost in theirs]
    found = compare(case, name, *times, unit="s", target=target, better=better, rival=rival)
    for side, costs in (("ours", ours), ("theirs", theirs)):
        cpu = [cost.cpu_seconds / records * 1e6 for cost in costs]
        found.data[f"{side}_cost"] = {"cpu_s_per_million": cpu, "peak_mib": [cost.peak_mib for cost in costs]}
    return found


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


def show(results: Sequence[Result], console: Console) -> None:
    """Print the table, and a second one with the cost of each contender."""
    table = Table(title="Benchmarks: dynamic-kafka and its rivals, same machine, same run")
    for heading in ("case", "measured", "ours", "rival", "its figure", "target", "value", "min..max", ""):
        table.add_column(heading, justify="left" if heading in ("case", "measured", "rival", "") else "right")
    for r in results:
        sign = "≥" if r.better == "at least" else "≤"
        target = "" if r.target is None else f"{sign} {r.target:g}"
        spread = f"{min(r.values):.3g}..{max(r.values):.3g}" if len(r.values) > 1 else ""
        verdict = "" if r.target is None else "[green]pass[/green]" if r.passed else "[red]FAIL[/red]"
        rival = r.rival if r.theirs else ""
        table.add_row(r.case, r.name, r.ours, rival, r.theirs, target, f"{r.value:.3g}", spread, verdict)
    console.print(table)
    _show_costs([r for r in results if "ours_cost" in r.data], console)


def _show_costs(results: Sequence[Result], console: Console) -> None:
    if not results:
        return
    # Contender to its figures, for each measurement.
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for r in results:
        line = lines.setdefault((r.case, r.name), {"ours": _cost(r.data["ours_cost"])})
        line[r.rival] = _cost(r.data["theirs_cost"])
    contenders = list(dict.fromkeys(name for line in lines.values() for name in line))
    table = Table(
        title="Cost: CPU seconds per million records (median), and resident memory at its peak (all processes)"
    )
    for heading in ("case", "measured", *contenders):
        table.add_column(heading, justify="left" if heading in ("case", "measured") else "right")
    for (case, name), line in lines.items():
        table.add_row(case, name, *(line.get(contender, "") for contender in contenders))
    console.print(table)


def _cost(cost: dict[str, list[float]]) -> str:
    return f"{median(cost['cpu_s_per_million']):.2f} s, {max(cost['peak_mib']):,.0f} MiB"


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

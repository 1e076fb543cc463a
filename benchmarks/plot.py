"""Draw `docs/img/bench-*.svg` from `results/latest.json`: run `python benchmarks/plot.py`. Needs matplotlib."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

_HERE = Path(__file__).resolve().parent
_IMAGES = _HERE.parent / "docs" / "img"
_COLOURS = {"dynamic-kafka": "#1f77b4", "JVM connector": "#c7c7c7", "Flink": "#e6a3c5", "ready batches": "#e0d9a8"}
_TITLES = {
    "a": ("throughput", "Reading one large topic (s, less is better)"),
    "b": ("partitions", "Many quiet partitions (s, less is better)"),
    "c": ("latency", "Latency at 200 records/s (ms, less is better)"),
    "f": ("write", "Writing, at-least-once (s, less is better)"),
    "h": ("json", "JSON to columns (s, less is better)"),
    "q": ("clusters", "Reading 1, 2 and 8 clusters (s, less is better)"),
}


def main() -> int:
    """Draw all results that exist. Return 1 if there are none."""
    found = _HERE / "results" / "latest.json"
    if not found.is_file():
        print(f"{found} does not exist. Run the benchmarks first.", file=sys.stderr)
        return 1
    results = json.loads(found.read_text())["results"]
    mpl.rcParams.update({"svg.hashsalt": "bench", "svg.fonttype": "none", "font.size": 9})
    _IMAGES.mkdir(parents=True, exist_ok=True)
    for case, (name, title) in _TITLES.items():
        compared = [r for r in results if r["case"] == case]
        if compared:
            _save(_bars(compared, title), name)
    grown = [r for r in results if r["case"] == "d" and "sizes" in r["data"]]
    if grown:
        _save(_growth(grown), "growth")
    soaked = [r for r in results if r["case"] == "e"]
    if soaked:
        _save(_memory(soaked), "memory")
    return 0


def _save(figure: Any, name: str) -> None:
    # Without a date, so that the same results draw the same file.
    figure.savefig(_IMAGES / f"bench-{name}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def _bars(results: list[dict[str, Any]], title: str) -> Any:
    # Measurement to contender to values. Ours are the same beside each rival.
    lines: dict[str, dict[str, list[float]]] = {}
    for r in results:
        lines.setdefault(r["name"], {"dynamic-kafka": r["data"]["ours"]})[_label(r)] = r["data"]["theirs"]
    contenders = [name for name in _COLOURS if any(name in line for line in lines.values())]
    figure, axes = plt.subplots(figsize=(6, 0.6 + 0.3 * len(contenders) * len(lines)))
    width = 0.76 / len(contenders)
    for i, name in enumerate(contenders):
        rows, values = [], []
        for row, line in enumerate(lines.values()):
            if name in line:
                rows.append(row + (i - (len(contenders) - 1) / 2) * width)
                values.append(line[name])
        medians = [median(v) for v in values]
        below = [m - min(v) for m, v in zip(medians, values, strict=True)]
        above = [max(v) - m for m, v in zip(medians, values, strict=True)]
        bars = axes.barh(
            rows, medians, width, xerr=[below, above], color=_COLOURS[name], label=name, error_kw={"lw": 0.8}
        )
        axes.bar_label(bars, fmt="%.3g", padding=4)
    axes.set_yticks(range(len(lines)), list(lines))
    axes.invert_yaxis()
    axes.set_title(title)
    _legend_below(axes, columns=len(contenders))
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _label(result: dict[str, Any]) -> str:
    rival = str(result.get("rival", "JVM"))
    return "JVM connector" if rival == "JVM" else rival


def _growth(results: list[dict[str, Any]]) -> Any:
    figure, both = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True)
    for axes, unit in zip(both, ("clusters", "partitions"), strict=True):
        for r in results:
            title = r["name"].removeprefix("growth: ")
            if title.endswith("by clusters") == (unit == "clusters"):
                label = title.removesuffix(", by clusters")
                axes.loglog(r["data"]["sizes"], r["data"]["costs_ms"], marker="o", ms=3, label=label)
        axes.set_xlabel(unit)
        _legend_below(axes, columns=1)
        axes.spines[["top", "right"]].set_visible(False)
    # Few sizes are measured, so the axis names each of them.
    sizes = sorted({n for r in results if r["name"].endswith("by clusters") for n in r["data"]["sizes"]})
    both[0].set_xticks(sizes, [str(n) for n in sizes])
    both[0].minorticks_off()
    both[0].set_ylabel("ms")
    figure.suptitle("Cost of a micro-batch as the stream grows (ms, less is better)")
    return figure


def _memory(results: list[dict[str, Any]]) -> Any:
    figure, axes = plt.subplots(figsize=(6, 2.6))
    for r in results:
        seconds, mib = zip(*r["data"]["seconds_and_mib"], strict=True)
        axes.plot([s / 60 for s in seconds], mib, label=r["name"].partition(",")[0].removeprefix("memory of the "))
    axes.set_ylim(bottom=0)
    axes.set_title("Resident memory of Spark's Python processes (MiB)")
    axes.set_xlabel("minutes")
    _legend_below(axes, columns=2)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _legend_below(axes: Any, *, columns: int) -> None:
    # Below the axes, where no bar and no line can be under it.
    space = 0.45 if axes.get_xlabel() else 0.3
    height = axes.figure.get_size_inches()[1] * axes.get_position().height
    axes.legend(frameon=False, fontsize=8, ncols=columns, loc="upper center", bbox_to_anchor=(0.5, -space / height))


if __name__ == "__main__":
    sys.exit(main())

"""Draws `docs/img/bench-*.svg` from `results/latest.json`: `python benchmarks/plot.py`; needs matplotlib."""

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
_OURS, _JVM = "#1f77b4", "#c7c7c7"
_TITLES = {
    "a": ("throughput", "Reading one large topic (s, less is better)"),
    "b": ("partitions", "Many quiet partitions (s, less is better)"),
    "c": ("latency", "Latency at 200 records/s (ms, less is better)"),
    "f": ("write", "Writing, at-least-once (s, less is better)"),
    "h": ("json", "JSON to columns (s, less is better)"),
}


def main() -> int:
    """Draw all that is in the results; 1 if there are none."""
    found = _HERE / "results" / "latest.json"
    if not found.is_file():
        print(f"{found} does not exist; run the benchmarks first", file=sys.stderr)
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
    # Without a date: the same results draw the same file.
    figure.savefig(_IMAGES / f"bench-{name}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def _bars(results: list[dict[str, Any]], title: str) -> Any:
    figure, axes = plt.subplots(figsize=(6, 0.6 + 0.6 * len(results)))
    for side, colour, label, shift in (("ours", _OURS, "dynamic-kafka", -0.2), ("theirs", _JVM, "JVM connector", 0.2)):
        medians = [median(r["data"][side]) for r in results]
        below = [m - min(r["data"][side]) for m, r in zip(medians, results, strict=True)]
        above = [max(r["data"][side]) - m for m, r in zip(medians, results, strict=True)]
        rows = [i + shift for i in range(len(results))]
        bars = axes.barh(rows, medians, 0.38, xerr=[below, above], color=colour, label=label, error_kw={"lw": 0.8})
        axes.bar_label(bars, fmt="%.3g", padding=4)
    axes.set_yticks(range(len(results)), [r["name"] for r in results])
    axes.invert_yaxis()
    axes.set_title(title)
    axes.legend(frameon=False)
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _growth(results: list[dict[str, Any]]) -> Any:
    figure, axes = plt.subplots(figsize=(6, 4))
    for r in results:
        axes.loglog(r["data"]["sizes"], r["data"]["costs_ms"], marker="o", ms=3, label=r["name"].partition(": ")[2])
    axes.set_xlabel("clusters or partitions")
    axes.set_ylabel("ms")
    axes.set_title("What a micro-batch costs as sizes grow")
    axes.legend(frameon=False, fontsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _memory(results: list[dict[str, Any]]) -> Any:
    figure, axes = plt.subplots(figsize=(6, 3))
    for r in results:
        seconds, mib = zip(*r["data"]["seconds_and_mib"], strict=True)
        axes.plot([s / 60 for s in seconds], mib, label=r["name"].partition(",")[0])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("minutes")
    axes.set_ylabel("resident MiB")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    sys.exit(main())

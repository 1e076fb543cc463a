"""Shows where a test run's time went, from pytest's `--junitxml`: by folder and file, and the slowest tests.

make test PYTEST_ARGS='--junitxml=times.xml' && .venv/bin/python scripts/test_times.py times.xml
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

_SLOWEST = 15
_LEAST_S = 5.0


def main(path: Path) -> None:
    """Print the tables."""
    seconds: dict[str, float] = defaultdict(float)
    count: dict[str, int] = defaultdict(int)
    tests = []
    for case in ET.parse(path).iter("testcase"):
        file = case.get("classname", "").removeprefix("tests.").replace(".", "/")
        took_s = float(case.get("time", 0))
        tests.append((took_s, f"{file}::{case.get('name')}"))
        for place in ("all", file.partition("/")[0], file):
            seconds[place] += took_s
            count[place] += 1
    print("| place | tests | seconds |\n|---|---:|---:|")
    for place in sorted(seconds, key=lambda p: ("/" in p, -seconds[p])):
        if "/" not in place or seconds[place] >= _LEAST_S:
            print(f"| {place} | {count[place]} | {seconds[place]:.0f} |")
    print(f"\nThe slowest {_SLOWEST}:\n")
    for took_s, name in sorted(tests, reverse=True)[:_SLOWEST]:
        print(f"- {took_s:.1f} s: `{name}`")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

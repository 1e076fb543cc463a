"""Ten small faults, each of which `make test` has to find: `python -m tests.mutants`.

Each one changes a line of a copy of the tree, and runs the pure tests of that part in the tier of `make test`. The table at
the end says which were caught; the command fails if one survived, and at once if a line is no longer there: then the code
has moved, and the mutant has to follow it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = "src/dynamic_kafka"
DEFAULT_TIER = "not slow and not crash and not network and not broker and not spark"
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "artifacts", "spark-warehouse", "benchmarks")


class Mutant(NamedTuple):
    """A fault: what is wrong with it, the file, the text that is there once, what takes its place, and who should see it."""

    fault: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    Mutant(
        "positions of a removed topic are forgotten too late",
        "source/rules/reconcile.py",
        "self.now_ms - retained.since_ms >= self.policy.retention_ms",
        "self.now_ms - retained.since_ms > self.policy.retention_ms",
        ("tests/unit/source/rules/test_following_rules.py", "tests/property/test_histories.py"),
    ),
    Mutant(
        "the turn begins with the one served last",
        "source/rules/admission.py",
        "bisect_right(order, last) % len(order)",
        "(bisect_right(order, last) - 1) % len(order)",
        ("tests/property/test_pure_parts.py",),
    ),
    Mutant(
        "a range may start behind the end of the batch before",
        "source/document/offsets.py",
        "if position not in (None, first) and tp not in cluster.resets:",
        "if position is not None and first < position and tp not in cluster.resets:",
        ("tests/unit/source/document/test_offset_document.py",),
    ),
    Mutant(
        "a range that is cut loses an offset",
        "source/rules/planning.py",
        "rest = rest._replace(start=rest.start + fits)",
        "rest = rest._replace(start=rest.start + fits + 1)",
        ("tests/property/test_pure_parts.py",),
    ),
    Mutant(
        "a driver of an older generation may decide",
        "sink/protocol.py",
        '(claimed.chain, claimed.generation, "owned"):\n        raise',
        '(claimed.chain, head.generation, "owned"):\n        raise',
        ("tests/model/test_protocol_model.py",),
    ),
    Mutant(
        "a task takes an id that its own generation has prepared",
        "sink/transactional_ids.py",
        "self.chain != chain or self.generation < generation",
        "self.chain != chain or self.generation <= generation",
        ("tests/unit/sink/test_transactional_ids.py",),
    ),
    Mutant(
        "a producer with acks=1 is made idempotent",
        "kafka/config/properties.py",
        'config.get("acks", "all").lower() in ("all", "-1")',
        'config.get("acks", "all").lower() in ("all", "-1", "1")',
        ("tests/unit/kafka/test_properties.py",),
    ),
    Mutant(
        "the least value of an option is refused",
        "options.py",
        "if number < at_least:",
        "if number <= at_least:",
        ("tests/unit/source/test_options.py", "tests/unit/test_declared_options.py"),
    ),
    Mutant(
        "two rules of JSON that exclude each other are both taken",
        "formats/json/format.py",
        "raise ConflictingOptionsError(",
        "ConflictingOptionsError(",
        ("tests/unit/formats/test_format_json.py",),
    ),
    Mutant(
        "an option given twice is taken",
        "sql/parser/create_table.py",
        "if key in found:",
        "if key in found and found[key] is None:",
        ("tests/unit/sql/test_sql_statements.py", "tests/unit/sql/test_sql_options.py"),
    ),
)


def check(root: Path) -> None:
    """Raise SystemExit unless each old text is in its file, once."""
    for mutant in MUTANTS:
        path = root / PACKAGE / mutant.file
        count = path.read_text().count(mutant.old) if path.exists() else 0
        if count != 1:
            sys.exit(
                f"tests/mutants.py: {mutant.file} has the text of '{mutant.fault}' {count} times, not once; change it"
            )


def run(copy: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """Run tests of the default tier in the copy; pytest's exit code, and its output."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy / "src"),
        "HYPOTHESIS_PROFILE": "dev",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", DEFAULT_TIER, *tests]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if done.returncode > 1:  # no test was found, or pytest itself failed: that catches nothing
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return done.returncode, done.stdout


def first_failure(output: str) -> str:
    """The test that saw the fault."""
    lines = [line.split(" ")[1] for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0].removeprefix("tests/") if lines else "?"


def main() -> None:
    """Try all of them, one after the other."""
    check(ROOT)
    survived = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder, "tree")
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        code, output = run(copy, tuple(sorted({test for mutant in MUTANTS for test in mutant.tests})))
        if code:
            sys.exit(f"The tests fail without any fault:\n{output[-3000:]}")
        print("| file | fault | result | by | s |\n|---|---|---|---|---:|", flush=True)
        for mutant in MUTANTS:
            path = copy / PACKAGE / mutant.file
            text = path.read_text()
            path.write_text(text.replace(mutant.old, mutant.new))
            began = time.monotonic()
            code, output = run(copy, mutant.tests)
            path.write_text(text)
            survived += code == 0
            result, by = ("caught", f"`{first_failure(output)}`") if code else ("**survived**", "")
            print(
                f"| `{mutant.file}` | {mutant.fault} | {result} | {by} | {time.monotonic() - began:.0f} |", flush=True
            )
    if survived:
        sys.exit(f"{survived} of {len(MUTANTS)} survived")


if __name__ == "__main__":
    main()

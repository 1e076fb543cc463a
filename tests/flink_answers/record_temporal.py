"""Ask Flink the temporal joins of `temporal.json` over streams, once: `python -m tests.flink_answers.record_temporal`.

The answers are in `temporal_answers.json`. It needs Maven and a JDK.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from scripts.spark_versions import jars

__all__ = ["TEMPORAL", "TEMPORAL_ANSWERS"]

_HERE = Path(__file__).parent
TEMPORAL: dict[str, Any] = json.loads((_HERE / "temporal.json").read_text())
"""The tables, and the queries over them."""
TEMPORAL_ANSWERS = _HERE / "temporal_answers.json"


def main() -> None:
    """Record all answers. The rows of an aggregation are a changelog."""
    classpath = jars(_HERE / "pom.xml").replace(",", ":")
    with tempfile.TemporaryDirectory() as classes:
        subprocess.run(["javac", "-cp", classpath, "-d", classes, str(_HERE / "Streams.java")], check=True)
        command = ["java", "--add-opens", "java.base/java.util=ALL-UNNAMED", "-Xmx1500m", "-XX:+UseSerialGC"]
        done = subprocess.run(
            [*command, "-cp", f"{classpath}:{classes}", "Streams"],
            input=json.dumps(TEMPORAL),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
    answers = dict(zip(TEMPORAL["queries"], map(json.loads, done.stdout.splitlines()), strict=True))
    lines = ",\n".join(f"{json.dumps(query)}: {json.dumps(answer)}" for query, answer in answers.items())
    TEMPORAL_ANSWERS.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()

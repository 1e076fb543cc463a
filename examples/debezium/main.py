"""PostgreSQL's tables as Delta tables: real Debezium writes a shop's changes to Kafka, and `materialize` applies them.

Run it with `python -m examples.debezium.main` in the project's folder. It needs Java 17, Maven (once), and PostgreSQL.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from examples.debezium.change_stream import STEPS, run_change_stream
from examples.debezium.follow import KEYS
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from scripts import spark_versions

from dynamic_kafka.testing import KafkaBroker

__all__ = ["Rows", "follow", "same"]

Rows: TypeAlias = "dict[str, list[dict[str, Any]]]"
"""The rows of each table, in order of their keys, as `run_change_stream` returns them."""

_DELTA = Path(__file__).with_name("pom-delta.xml")
_PREFIX = "shop"


def main() -> int:
    """Run the example. Return 0 if the Delta tables have the same rows as the database in the end."""
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console) as progress, KafkaBroker() as broker:
            task = progress.add_task("starting Spark", total=STEPS + 2)

            def step(what: str) -> None:
                progress.update(task, advance=1, description=what)

            for table in KEYS:
                broker.create_topic(f"{_PREFIX}.public.{table}", partitions=2)

            def story() -> Rows:
                rows = run_change_stream(broker, _PREFIX, with_schema=True, on_step=step)
                step("Spark applies the remaining changes")
                return rows

            found, expected = follow(broker.bootstrap_servers, _PREFIX, story, with_schema=True)
            step("done")
    except Exception as error:  # noqa: BLE001  # one line for the user
        console.print(f"The example failed: {error}", style="bold red", markup=False, highlight=False)
        return 1
    for table, rows in found.items():
        _show(console, table, rows)
    if not same(found, expected):
        console.print(
            f"The Delta tables differ from the database, which has these rows: {json.dumps(expected)}",
            style="bold red",
            markup=False,
        )
        return 1
    console.print("The Delta tables have the same rows as the database.")
    return 0


def follow(
    bootstrap_servers: str, topic_prefix: str, story: Callable[[], Rows], *, with_schema: bool
) -> tuple[Rows, Rows]:
    """Keep Delta tables up to date while `story` changes the topics.

    Args:
        bootstrap_servers: The cluster with the topics `<topic_prefix>.public.<table>`.
        topic_prefix: The first part of their names.
        story: A function that writes the changes, and returns the rows that the tables should have then.
        with_schema: If True, the messages contain their schema.

    Returns:
        The rows of the Delta tables, and the rows that `story` returned.

    Raises:
        RuntimeError: If Spark failed. The error has the end of its log.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="delta-"))
        log = stack.enter_context(tempfile.TemporaryFile("w+"))
        arguments = [
            bootstrap_servers,
            topic_prefix,
            folder,
            spark_versions.jars(_DELTA),
            *["--with-schema"] * with_schema,
        ]
        child = stack.enter_context(
            subprocess.Popen(
                [spark_versions.python(), "-m", "examples.debezium.follow", *arguments],
                cwd=spark_versions.ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        )
        stack.callback(child.kill)
        assert child.stdout is not None
        if child.stdout.readline() == "following\n":
            rows = story()
            output, _ = child.communicate()
            if child.returncode == 0:
                return json.loads(output), rows
        child.wait()
        log.seek(0)
        raise RuntimeError(f"Spark failed:\n{log.read()[-40_000:]}")


def same(found: Rows, expected: Rows) -> bool:
    """Return whether the rows are the same, independent of the zone and the digits of their times."""
    return _comparable(found) == _comparable(expected)


def _comparable(rows: Rows) -> Rows:
    def instant(row: Mapping[str, Any]) -> dict[str, Any]:
        joined = row.get("joined")
        return {**row, "joined": datetime.fromisoformat(joined)} if joined else dict(row)

    return {table: [instant(row) for row in of_table] for table, of_table in rows.items()}


def _show(console: Console, name: str, rows: list[dict[str, Any]]) -> None:
    table = Table(*rows[0], title=name)
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())

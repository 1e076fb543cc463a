"""The command: its arguments, and the statements of a file.

The statements of a file run one after the other. Its INSERTs run until all have ended, one has failed, or Ctrl-C is pressed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamic_kafka.cli.connection import add_command, read_text
from dynamic_kafka.cli.output import show_line
from dynamic_kafka.cli.sql.jobs import Job, summary, warn_of_bad_messages
from dynamic_kafka.cli.sql.results import OUTPUTS, run_statement
from dynamic_kafka.cli.sql.session import calls_to_spark, errors_of_java, start_environment
from dynamic_kafka.cli.sql.status import status_while
from dynamic_kafka.errors import ConfigurationError

if TYPE_CHECKING:
    from dynamic_kafka.sql.environment import TableEnvironment
    from dynamic_kafka.sql.parser.statements import Statement

__all__ = ["add_to"]

_LOOK_S = 0.2
_EXAMPLES = """examples:
  dynamic-kafka sql -f tables.sql
  dynamic-kafka sql --output json -e "CREATE TABLE ...; SELECT * FROM orders" | jq .id
"""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    parser = add_command(commands, "sql", "Run Flink SQL on Spark, from a file or at a prompt.", None, _EXAMPLES)
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        metavar="FILE",
        help="a script; - reads standard input (default if that is no terminal)",
    )
    parser.add_argument("-e", "--execute", metavar="SQL", help="statements, instead of a file")
    parser.add_argument(
        "--output",
        choices=OUTPUTS,
        default="table",
        help="the form of rows: a table for people (default), or one row per line as csv or json, with all rows",
    )
    spark = parser.add_mutually_exclusive_group()
    spark.add_argument("--master", help="Spark's master (default: local[*])")
    spark.add_argument(
        "--remote", metavar="URL", help="a server of Spark Connect, such as sc://host:15002 (default: SPARK_REMOTE)"
    )
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark; repeatable"
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks and logs")
    parser.set_defaults(run=run, show_warnings=True)


def run(args: argparse.Namespace) -> int:
    """Run the statements; see `add_to` for the arguments."""
    if args.file is not None and args.execute is not None:
        raise ConfigurationError("Give --file or --execute, not both")
    typed = sys.stdin is not None and sys.stdin.isatty()
    if args.file is None and args.execute is None and not typed:
        args.file = "-"  # a prompt would go on after an error, and leave INSERTs at the end of the input
    text = args.execute if args.file is None else read_text(args.file, "--file")
    if text is None and args.output != "table" and not sys.stdout.isatty():
        raise ConfigurationError("The prompt writes more than rows; give --file or --execute for csv or json in a pipe")
    from dynamic_kafka.sql.parser.parse import parse_script

    statements = [] if text is None else parse_script(text)  # before Spark starts, which takes seconds
    remote = args.remote or (None if args.master else os.environ.get("SPARK_REMOTE"))
    if args.master:
        os.environ.pop("SPARK_REMOTE", None)  # PySpark accepts one of both
    with status_while(lambda: f"connecting to {remote}" if remote else "starting Spark"):
        environment = start_environment(args.master, remote, args.conf, debug=args.debug)
    with errors_of_java():
        if text is None:
            from dynamic_kafka.cli.sql.prompt import prompt

            return prompt(environment, args.output)
        _run_all(environment, text, statements, args.output)
    return 0


def _run_all(environment: TableEnvironment, script: str, statements: Iterable[Statement], output: str) -> None:
    """Run statements one after the other, then wait for their queries; if one fails, stop the others."""
    jobs: list[Job] = []
    # Standard output has nothing but rows if a program reads it.
    say = show_line if output == "table" else lambda text: print(text, file=sys.stderr)  # noqa: T201
    try:
        for statement in statements:
            run_statement(environment, statement, script, jobs, output)
        names = ", ".join(job.name for job in jobs)
        if jobs:
            say(f"Running: {names}; Ctrl-C stops")
        try:
            _wait(jobs)
        except KeyboardInterrupt:
            say(f"Stopping: {names}")
            raise
    finally:
        for job in jobs:
            job.query.stop()
            warn_of_bad_messages(job)


def _wait(jobs: list[Job]) -> None:
    """Wait until all jobs have ended, and show what they do; raise the error of one that fails."""
    running = jobs

    def what_runs() -> str:
        return summary(running)

    with calls_to_spark() as pressed, status_while(what_runs):
        while not pressed and (running := [job for job in jobs if not job.ended()]):  # asks all of them
            time.sleep(_LOOK_S)

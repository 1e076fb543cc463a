"""One statement: it runs, and its rows are shown."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from dynamic_kafka.cli.output import show_line
from dynamic_kafka.cli.sql.jobs import Job
from dynamic_kafka.cli.sql.results import is_done, show_batch, show_stream, took
from dynamic_kafka.cli.sql.session import calls_to_spark
from dynamic_kafka.cli.sql.status import batch_progress, status_while

if TYPE_CHECKING:
    from dynamic_kafka.sql.environment import TableEnvironment
    from dynamic_kafka.sql.parser.statements import Statement

__all__ = ["run_statement"]


def run_statement(
    environment: TableEnvironment, statement: Statement, script: str, jobs: list[Job], output: str
) -> None:
    """Run a statement and show its rows; add its queries to the jobs.

    Args:
        environment: Where it runs.
        statement: The statement.
        script: The text that it is from.
        jobs: Where its queries are added.
        output: The form of rows, one of `results.OUTPUTS`.
    """
    from dynamic_kafka.sql.script_errors import errors_of

    with errors_of(statement, script):
        with calls_to_spark(), status_while(batch_progress()) as line:
            begun_s = time.monotonic()
            result = environment.execute(statement)
            jobs += [Job(query, statement, script) for query in result.queries]
            streaming = result.dataframe is not None and result.dataframe.isStreaming
            if streaming or not result.columns:
                count = None
            elif is_done(result):
                count = None
                if output == "table":
                    line.close()
                    show_line("OK")
            else:
                count = show_batch(result, output, line)
        if streaming:
            show_stream(result, output)
        elif count is not None and result.dataframe is not None and sys.stdout.isatty():
            show_line(took(count, time.monotonic() - begun_s))

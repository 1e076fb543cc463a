"""The prompt: statements one by one, their results and errors, and the jobs that run meanwhile."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from contextlib import suppress
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from dynamic_kafka.cli.output import draws, show_line, show_rows, show_stopped
from dynamic_kafka.cli.sql.completion import Known
from dynamic_kafka.cli.sql.editor import editor
from dynamic_kafka.cli.sql.jobs import Job, progress_of, summary, warn_of_bad_messages
from dynamic_kafka.cli.sql.results import run_statement
from dynamic_kafka.cli.sql.vocabulary import known_to
from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError, SqlError, suggestion
from dynamic_kafka.spark.stop_finished import java_has_ended

if TYPE_CHECKING:
    from dynamic_kafka.sql.environment import TableEnvironment

__all__ = ["prompt"]

_GREETING = "Flink SQL on Spark. End a statement with ';'. HELP; shows more. Ctrl-C stops a query. Ctrl-D leaves."
_HELP = """\
CREATE TABLE t (...) WITH (...);     a table of Kafka; Tab completes options and their values
SHOW TABLES; DESCRIBE t;             what there is
SELECT ... FROM t;                   rows: those of a stream as they arrive, until Ctrl-C
SELECT ... FROM t /*+ OPTIONS('scan.bounded.mode' = 'latest-offset') */;   what is in Kafka now, once
SET 'execution.checkpointing.dir' = '...'; INSERT INTO t SELECT ...;   starts a job
SHOW JOBS; STOP JOB 't';             the jobs of this session; leaving it stops them
EXPLAIN SELECT ...;                  Spark's plan
CLEAR; QUIT; EXIT;                   Tab completes, Ctrl-R searches the history, the right arrow takes what is suggested"""


def prompt(environment: TableEnvironment, output: str) -> int:
    """Run statements that the user types until they leave. Return 1 if a job has failed that they were not told of."""
    from dynamic_kafka.sql.parser.parse import parse_script

    jobs: list[Job] = []
    known: Known | None = None

    def what_is_known() -> Known:
        nonlocal known
        if known is None:
            known = known_to(environment, [job.name for job in jobs])
        return known

    def what_runs() -> str:
        with suppress(Exception):  # Spark may have stopped
            return summary(jobs)
        return ""

    read = editor(what_is_known, what_runs)
    show_line(_GREETING)
    while True:
        jobs, _ = _that_run(jobs)
        try:
            text = read()
        except EOFError:
            text = "QUIT"
        except KeyboardInterrupt:
            show_line("")
            continue
        jobs, has_failed = _that_run(jobs)  # the user may have thought for hours
        command = " ".join(text.rstrip("; \n").split()).upper()
        if command in ("QUIT", "EXIT"):
            for job in jobs:
                warn_of_bad_messages(job)
            return int(has_failed)
        try:
            if not _is_own(command, text, jobs):
                for statement in parse_script(text):
                    before = len(jobs)
                    run_statement(environment, statement, text, jobs, output)
                    for job in jobs[before:]:
                        show_line(f"started {job.name}")
        except KeyboardInterrupt:
            show_stopped()
        except Exception as error:
            if not isinstance(error, DynamicKafkaError) and java_has_ended():
                raise
            _show_error(error)  # the prompt goes on
        known = None


def _is_own(command: str, text: str, jobs: list[Job]) -> bool:
    """Do what a statement of the prompt itself says; return False for a statement of SQL.

    Raises:
        ConfigurationError: If it stops a job that does not run.
    """
    if command == "HELP":
        for line in _HELP.splitlines():
            show_line(line)
    elif command == "CLEAR":
        sys.stdout.write("\x1b[H\x1b[2J" if sys.stdout.isatty() else "")
    elif command == "SHOW JOBS":
        rows = [{"job": job.name, **progress_of(job.query.lastProgress)} for job in jobs]
        if rows:
            show_rows([*rows[0]], [list(row.values()) for row in rows], frozenset((1, 2, 3)))
        else:
            show_line("no jobs")
    elif match := re.fullmatch(r"\s*STOP\s+JOB\s+'([^']*)'\s*;?\s*", text, re.IGNORECASE):
        name = match[1]
        found = next((job for job in jobs if job.name == name), None)
        if found is None:
            hint = suggestion(name, [job.name for job in jobs]) or "; see SHOW JOBS"
            raise ConfigurationError(f"Job '{name}' does not run{hint}")
        found.query.stop()
        warn_of_bad_messages(found)
        jobs.remove(found)
        show_line(f"stopped {name}; the same INSERT continues it")
    else:
        return False
    return True


def _that_run(jobs: list[Job]) -> tuple[list[Job], bool]:
    """Return the jobs that still run, and whether another one has failed. Say what was wrong with those that have ended."""
    running, has_failed = [], False
    for job in jobs:
        try:
            if not job.ended():
                running.append(job)
                continue
        except DynamicKafkaError as error:
            _show_error(error)
            has_failed = True
        warn_of_bad_messages(job)
    return running, has_failed


def _show_error(error: Exception) -> None:
    """Show an error, with the line and a caret under its place if it has one."""
    colored = draws(sys.stderr) and not os.environ.get("NO_COLOR")
    red, plain = ("\x1b[31m", "\x1b[0m") if colored else ("", "")
    text = str(error).partition("\n")[0]
    if not isinstance(error, DynamicKafkaError):
        text += f" (an unexpected {type(error).__name__}; please report it)"
    shown = "".join(c if c.isprintable() else " " for c in text)
    if sys.stderr.isatty():  # which breaks lines within words
        shown = textwrap.fill(f"error: {shown}", get_terminal_size().columns, break_on_hyphens=False).removeprefix(
            "error: "
        )
    sys.stderr.write(f"{red}error:{plain} {shown}\n")
    if isinstance(error, SqlError):
        line, _, caret = error.excerpt.rpartition("\n")
        sys.stderr.write(f"{line}\n{red}{caret}{plain}\n")
    sys.stderr.flush()

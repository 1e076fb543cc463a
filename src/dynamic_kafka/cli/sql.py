"""`dynamic-kafka sql`: Flink's SQL from a file, or at a prompt with history.

The statements of a file run one after the other. Its INSERTs run until all have ended, one has failed, or Ctrl-C is pressed.
"""

from __future__ import annotations

import argparse
import atexit
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dynamic_kafka.cli.input import read_text
from dynamic_kafka.cli.output import show_line, show_table, warn
from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError, MissingDependencyError, SqlError

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from dynamic_kafka.sql.environment import TableEnvironment
    from dynamic_kafka.sql.parser.statements import Statement
    from dynamic_kafka.sql.result import TableResult

__all__ = ["add_to"]

_HISTORY = Path("~/.dynamic-kafka-history")
_SHOWN_ROWS = 1000
_GROUP = "dynamic-kafka sql"  # of the jobs that Ctrl-C cancels; a running INSERT has another one
_LOOK_S = 0.2
_CANCEL_S = 5.0


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "sql", help="run Flink SQL on Spark", description="Run Flink SQL on Spark, from a file or at a prompt."
    )
    parser.add_argument("-f", "--file", type=Path, metavar="FILE", help="a script; - reads standard input")
    parser.add_argument("-e", "--execute", metavar="SQL", help="statements, instead of a file")
    parser.add_argument("--master", default="local[*]", help="Spark's master (default: local[*])")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark; repeatable"
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks and logs")
    parser.set_defaults(run=run, show_warnings=True)


def run(args: argparse.Namespace) -> int:
    """Run the statements; see `add_to` for the arguments."""
    if args.file is not None and args.execute is not None:
        raise ConfigurationError("Give --file or --execute, not both")
    text = _text(args)
    from dynamic_kafka.sql.parser.parse import parse_script

    statements = [] if text is None else parse_script(text)  # before Spark starts, which takes seconds
    environment = _environment(args)
    if text is None:
        return _prompt(environment)
    _run_all(environment, text, statements)
    return 0


class _Job(NamedTuple):
    """A running query of an INSERT."""

    query: StreamingQuery
    statement: Statement
    script: str

    def ended(self) -> bool:
        """Return whether it has ended; raise its error if it failed."""
        from dynamic_kafka.sql.result import TableResult
        from dynamic_kafka.sql.script_errors import errors_of

        with errors_of(self.statement, self.script, f"job '{self.query.name}'"):
            return TableResult(queries=[self.query]).wait(0)


def _run_all(environment: TableEnvironment, script: str, statements: Iterable[Statement]) -> None:
    """Run statements one after the other, then wait for their queries; if one fails, stop the others."""
    jobs: list[_Job] = []
    try:
        for statement in statements:
            _run(environment, statement, script, jobs)
        names = ", ".join(str(job.query.name) for job in jobs)
        if jobs:
            show_line(f"Running: {names}; Ctrl-C stops")
        try:
            with _calls_to_spark() as pressed:
                while not pressed and [job for job in jobs if not job.ended()]:  # asks all of them
                    time.sleep(_LOOK_S)
        except KeyboardInterrupt:
            show_line(f"Stopping: {names}")
            raise
    finally:
        for job in jobs:
            job.query.stop()
            _warn_of_bad_messages(job)


def _warn_of_bad_messages(job: _Job) -> None:
    """Warn of messages that could not be read, in the batches that Spark remembers (the last 100)."""
    counts: Counter[tuple[str, str]] = Counter()
    for progress in job.query.recentProgress:
        for metric, row in progress.observedMetrics.items():
            prefix, _, table = metric.partition(": ")
            if prefix == "dynamic-kafka":
                counts.update({(table, policy): number for policy, number in row.asDict().items()})
    for (table, policy), number in counts.items():
        if number:
            what = "skipped" if policy == "skip" else "written to the dead letter topic"
            warn(f"job '{job.query.name}': {number} messages of table '{table}' could not be read and were {what}")


def _text(args: argparse.Namespace) -> str | None:
    if args.file is None:
        return None if args.execute is None else str(args.execute)
    return read_text(args.file, "--file")


def _environment(args: argparse.Namespace) -> TableEnvironment:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingDependencyError("pyspark", "spark", "to run SQL") from None
    from dynamic_kafka.sql.environment import TableEnvironment

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("dynamic-kafka sql").master(args.master)
    # Spark logs pages of Java traces for an error; its reason is shown here.
    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "INFO" if args.debug else "OFF",
        # When a foreachBatch query is stopped, Spark matches a recursive pattern against pages of Python's trace.
        "spark.driver.extraJavaOptions": "-Xss8m",
    }
    for setting in args.conf:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigurationError(f"--conf {key} has no value; give it as KEY=VALUE")
        settings[key] = value
    for key, value in settings.items():
        builder = builder.config(key, value)
    if not args.debug:
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        PySparkLogger.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(
            lambda record: "KeyboardInterrupt while sending command" not in record.getMessage()
        )
    session = builder.getOrCreate()
    if not args.debug and (server := getattr(session.sparkContext, "_accumulatorServer", None)) is not None:
        # Spark's JVM may cut this connection while it stops; the server's thread would print a traceback.
        server.handle_error = lambda *_: None
    atexit.register(session.stop)  # otherwise Spark's connections break at the end, one with a traceback
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's handler would also cancel the jobs of INSERTs
    session.sparkContext.setJobGroup(_GROUP, "dynamic-kafka sql", interruptOnCancel=True)
    return TableEnvironment(session)


# --- Ctrl-C -------------------------------------------------------------------------------------------------------------


@contextmanager
def _calls_to_spark() -> Iterator[list[int]]:
    """Let Ctrl-C cancel Spark's job, and raise KeyboardInterrupt at the end; a second Ctrl-C raises it at once.

    Raised within a call to Spark, it would break py4j's connection, which logs pages of traces. Yields the signals so far.
    """
    pressed: list[int] = []
    left = threading.Event()
    cancelling = threading.Thread(target=_cancel, args=(left,), daemon=True)

    def handle(number: int, _: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        cancelling.start()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield pressed
    except Exception:
        if not pressed:  # otherwise it is the error of the cancelled job
            raise
    finally:
        signal.signal(signal.SIGINT, before)
        left.set()
        if pressed:
            cancelling.join(_CANCEL_S)  # not while its call to Spark is running
    if pressed:
        raise KeyboardInterrupt


def _cancel(left: threading.Event) -> None:
    """Cancel jobs again and again: a statement may be about to start one."""
    from pyspark import SparkContext

    while not left.is_set():
        with suppress(Exception):  # the session may have stopped
            SparkContext.getOrCreate().cancelJobGroup(_GROUP)
        left.wait(_LOOK_S)


# --- results ------------------------------------------------------------------------------------------------------------


def _run(environment: TableEnvironment, statement: Statement, script: str, jobs: list[_Job]) -> None:
    """Run a statement and show its rows; add its queries to the jobs."""
    from dynamic_kafka.sql.script_errors import errors_of

    with errors_of(statement, script):
        with _calls_to_spark():
            result = environment.execute(statement)
            jobs += [_Job(query, statement, script) for query in result.queries]
            streaming = result.dataframe is not None and result.dataframe.isStreaming
            if not streaming and not result.queries and result.columns:
                _show(result)
        if streaming:
            _show_stream(result)


def _show(result: TableResult) -> None:
    if result.dataframe is None and result.columns == ("result",):  # a text, such as a plan
        for (text,) in result.collect():
            _show_lines(text)
        return
    most = _SHOWN_ROWS + 1
    found = list(islice(result.collect(), most)) if result.dataframe is None else result.dataframe.take(most)
    texts = [_texts(result.columns, row) for row in found[:_SHOWN_ROWS]]
    if texts:
        show_table(texts)
    else:
        show_line(f"no rows ({', '.join(result.columns)})")
    if len(found) > _SHOWN_ROWS:
        warn(f"only the first {_SHOWN_ROWS} rows are shown; add a LIMIT, or write the rows to a table")


def _show_lines(text: str) -> None:
    for line in text.splitlines():
        show_line(line)


def _show_stream(result: TableResult) -> None:
    """Show the rows of a stream as they arrive; Ctrl-C stops it."""
    show_line(" | ".join(result.columns))
    with closing(cast("Generator[Any]", result.collect())) as rows:  # stops the query
        try:
            for row in rows:
                show_line(" | ".join(_texts(result.columns, row).values()))
        except KeyboardInterrupt:
            show_line("stopped")


def _texts(columns: tuple[str, ...], row: Any) -> dict[str, str]:
    return {name: "NULL" if value is None else str(value) for name, value in zip(columns, row, strict=True)}


# --- the prompt ---------------------------------------------------------------------------------------------------------


def _prompt(environment: TableEnvironment) -> int:
    from dynamic_kafka.sql.parser.parse import parse_script

    with suppress(ImportError, OSError):
        import readline

        readline.read_history_file(_HISTORY.expanduser())
    show_line("Flink SQL on Spark. End a statement with ';'. Ctrl-C stops a query. Ctrl-D, QUIT; or EXIT; leaves.")
    jobs: list[_Job] = []
    while True:
        jobs = [job for job in jobs if not _has_ended(job)]
        try:
            text = _statement()
        except EOFError:
            break
        except KeyboardInterrupt:
            show_line("")
            continue
        if text.strip().rstrip("; ").upper() in ("QUIT", "EXIT"):
            break
        try:
            for statement in parse_script(text):
                known = len(jobs)
                _run(environment, statement, text, jobs)
                for job in jobs[known:]:
                    show_line(f"started {job.query.name}")
        except KeyboardInterrupt:
            show_line("stopped")
        except Exception as error:  # noqa: BLE001  the prompt goes on
            _warn_of(error)
    with suppress(ImportError, OSError):
        import readline

        readline.write_history_file(_HISTORY.expanduser())
    return 0


def _has_ended(job: _Job) -> bool:
    """Return whether a job has ended; show its error if it failed."""
    try:
        return job.ended()
    except DynamicKafkaError as error:
        _warn_of(error)
        return True


def _warn_of(error: Exception) -> None:
    warn(str(error).partition("\n")[0])
    if isinstance(error, SqlError):
        _show_lines(error.excerpt)
    elif not isinstance(error, DynamicKafkaError):
        show_line(f"(an unexpected {type(error).__name__}; please report it)")


def _statement() -> str:
    """Read lines up to a semicolon at the end of one, outside of strings, comments and statement sets."""
    text = input("sql> ")
    while not _is_complete(text):
        text += "\n" + input("   > ")
    return text


def _is_complete(text: str) -> bool:
    """Return whether a text ends with a semicolon, has only comments, or has an error that more text does not mend."""
    from dynamic_kafka.sql.parser.lexer import tokenize
    from dynamic_kafka.sql.parser.parse import parse_script

    try:
        *tokens, _ = tokenize(text)
        if tokens and not tokens[-1].is_word(";"):
            return False
        parse_script(text)
    except SqlError as error:
        return not error.unfinished
    return True

"""`dynamic-kafka sql`: Flink's SQL from a file, or at a prompt with history.

A file's statements run one after the other; its INSERTs run until they end, or until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dynamic_kafka.cli.output import show_line, show_table, warn
from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError, MissingDependencyError, SqlError

if TYPE_CHECKING:
    from dynamic_kafka.sql.environment import TableEnvironment
    from dynamic_kafka.sql.result import TableResult
    from dynamic_kafka.sql.statements import Statement

__all__ = ["add_to"]

_HISTORY = Path("~/.dynamic-kafka-history")
_SHOWN_ROWS = 1000


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "sql", help="run Flink SQL on Spark", description="Run Flink SQL on Spark: a file's statements, or a prompt."
    )
    parser.add_argument("-f", "--file", type=Path, metavar="FILE", help="a script; - is standard input")
    parser.add_argument("-e", "--execute", metavar="SQL", help="statements, instead of a file")
    parser.add_argument("--master", default="local[*]", help="Spark's master (default: local[*])")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark; may be given many times"
    )
    parser.add_argument("--debug", action="store_true", help="show where an error came from, and logs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the statements; see `add_to` for the arguments."""
    if args.file is not None and args.execute is not None:
        raise ConfigurationError("Give --file or --execute, not both")
    text = _text(args)
    from dynamic_kafka.sql.statements import parse_script

    statements = None if text is None else parse_script(text)  # before Spark starts, which takes seconds
    environment = _environment(args)
    if statements is None:
        return _prompt(environment)
    from pyspark.errors import PySparkException

    try:
        _run_all(environment, statements)
    except PySparkException as error:  # a wrong query, or a job that has failed: no fault of this program
        raise DynamicKafkaError(_reason(error)) from error
    return 0


def _run_all(environment: TableEnvironment, statements: Iterable[Statement]) -> None:
    """Run statements one after the other, then wait for the queries they have started."""
    results: list[TableResult] = []
    try:
        for statement in statements:
            results.append(_run(environment, statement))  # noqa: PERF401  when one fails, those before it are stopped
        running = [query for result in results for query in result.queries]
        if running:
            show_line(f"Running: {', '.join(str(query.name) for query in running)}; Ctrl-C stops")
        for result in results:
            result.wait()
    finally:
        for result in results:
            result.stop()


def _reason(error: Exception) -> str:
    """What happened, on one line: of an error of Spark the part that is ours, if there is one."""
    text = str(error)
    ours = re.search(r"\bdynamic_kafka\.errors\.\w+: (.*)", text)
    return ours[1] if ours else text.partition("\n")[0] or type(error).__name__


def _text(args: argparse.Namespace) -> str | None:
    if args.file is None:
        return None if args.execute is None else str(args.execute)
    try:
        return sys.stdin.read() if str(args.file) == "-" else args.file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--file {args.file} cannot be read: {error}") from error


def _environment(args: argparse.Namespace) -> TableEnvironment:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingDependencyError("pyspark", "spark", "to run SQL") from None
    from dynamic_kafka.sql.environment import TableEnvironment

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("dynamic-kafka sql").master(args.master)
    settings = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "INFO" if args.debug else "ERROR"}
    for setting in args.conf:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigurationError(f"--conf {key} has no value; give it as KEY=VALUE")
        settings[key] = value
    for key, value in settings.items():
        builder = builder.config(key, value)
    return TableEnvironment(builder.getOrCreate())


# --- results ------------------------------------------------------------------------------------------------------------


def _run(environment: TableEnvironment, statement: Statement) -> TableResult:
    result = environment.execute(statement)
    if not result.queries and result.columns:
        _show(result)
    return result


def _show(result: TableResult) -> None:
    rows = result.collect()
    if result.dataframe is not None and result.dataframe.isStreaming:
        with closing(cast("Generator[Any]", rows)):  # stops the query
            _show_stream(result.columns, rows)
        return
    if result.dataframe is None and result.columns == ("result",):  # a text, such as a plan
        for (text,) in rows:
            _show_lines(text)
        return
    found = list(islice(rows, _SHOWN_ROWS + 1))
    texts = [_texts(result.columns, row) for row in found[:_SHOWN_ROWS]]
    if texts:
        show_table(texts)
    else:
        show_line(f"no rows ({', '.join(result.columns)})")
    if len(found) > _SHOWN_ROWS:
        warn(f"only the first {_SHOWN_ROWS} rows are shown; add a LIMIT, or write them to a table")


def _show_lines(text: str) -> None:
    for line in text.splitlines():
        show_line(line)


def _show_stream(columns: tuple[str, ...], rows: Iterator[Any]) -> None:
    """A stream's rows as they come; Ctrl-C stops it."""
    show_line(" | ".join(columns))
    try:
        for row in rows:
            show_line(" | ".join(_texts(columns, row).values()))
    except KeyboardInterrupt:
        show_line("stopped")


def _texts(columns: tuple[str, ...], row: Any) -> dict[str, str]:
    return {name: "NULL" if value is None else str(value) for name, value in zip(columns, row, strict=True)}


# --- the prompt ---------------------------------------------------------------------------------------------------------


def _prompt(environment: TableEnvironment) -> int:
    from dynamic_kafka.sql.statements import parse_script

    with suppress(ImportError, OSError):
        import readline

        readline.read_history_file(_HISTORY.expanduser())
    show_line("Flink SQL on Spark. A statement ends with ';'. Ctrl-C stops a query, Ctrl-D ends.")
    while True:
        try:
            text = _statement()
        except EOFError:
            break
        except KeyboardInterrupt:
            show_line("")
            continue
        try:
            for statement in parse_script(text):
                for query in _run(environment, statement).queries:
                    show_line(f"started {query.name}")
        except KeyboardInterrupt:
            show_line("stopped")
        except Exception as error:  # noqa: BLE001  the prompt goes on
            warn(_reason(error))
            if isinstance(error, SqlError):
                _show_lines(error.excerpt)
            elif not isinstance(error, DynamicKafkaError):
                show_line(f"({type(error).__name__}, of Spark)")
    with suppress(ImportError, OSError):
        import readline

        readline.write_history_file(_HISTORY.expanduser())
    return 0


_OPEN_SET = re.compile(r"\s*(?:BEGIN|EXECUTE)\s+STATEMENT\s+SET\b(?!.*\bEND\s*;\s*$)", re.IGNORECASE | re.DOTALL)


def _statement() -> str:
    """Lines up to one that ends with a semicolon, or is blank; of a statement set, up to its END."""
    lines = [input("sql> ")]
    while lines[-1].strip() and (not lines[-1].rstrip().endswith(";") or _OPEN_SET.match("\n".join(lines))):
        lines.append(input("   > "))
    return "\n".join(lines)

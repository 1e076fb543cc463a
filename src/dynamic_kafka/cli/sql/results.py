"""One statement: it runs, and its rows are shown: a batch's once, a stream's as they arrive; as a table, CSV or JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dynamic_kafka.cli.output import (
    drawn,
    duration,
    padded,
    printable,
    show_line,
    show_rows,
    show_stopped,
    terminal,
    warn,
    width_of,
)
from dynamic_kafka.cli.sql.jobs import Job
from dynamic_kafka.cli.sql.session import calls_to_spark
from dynamic_kafka.cli.sql.status import StatusLine, batch_progress, status_while
from dynamic_kafka.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType
    from rich.console import Console

    from dynamic_kafka.sql.environment import TableEnvironment
    from dynamic_kafka.sql.parser.statements import Statement
    from dynamic_kafka.sql.session.result import TableResult

__all__ = ["OUTPUTS", "csv_line", "is_done", "run_statement", "show_batch", "show_stream", "took"]

OUTPUTS = ("table", "csv", "json")
"""The forms of rows: drawn for people, or one row per line for programs."""
_SHOWN_ROWS = 1000
_AROUND = 6  # lines of a live table besides its rows
_WIDEST = 40  # a column of a stream is not padded further

_Texts = tuple[str | None, ...]


class _Snapshot(NamedTuple):
    """All rows that an aggregation has now, up to what the screen takes, and whether there are more."""

    rows: list[_Texts]
    more: bool


def run_statement(
    environment: TableEnvironment, statement: Statement, script: str, jobs: list[Job], output: str
) -> None:
    """Run a statement of a script and show its rows; add its queries to the jobs."""
    from dynamic_kafka.sql.errors.script import errors_of

    with errors_of(statement, script):
        with calls_to_spark(), status_while(batch_progress()) as line:
            begun_s = time.monotonic()
            result = environment.execute(statement)
            jobs += [Job(query, statement, script) for query in result.queries]
            if output == "json" and result.dataframe is not None:
                _check_names(result.dataframe.schema)
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


def is_done(result: TableResult) -> bool:
    """Return whether a statement has nothing to show but that it has succeeded."""
    return (
        result.dataframe is None and result.columns == ("result",) and [tuple(r) for r in result.collect()] == [("OK",)]
    )


def show_batch(result: TableResult, output: str, status: StatusLine) -> int | None:
    """Show rows that are all there. The status is shown until then.

    Returns:
        The number of rows of a table; None if they are a text, such as a plan, or are for a program.
    """
    if output == "table":
        return _show_table(result, status)
    for line in _lines(result, output):
        if sys.stdout.isatty():
            status.close()
        _show_raw(line)
    return None


def show_stream(result: TableResult, output: str) -> None:
    """Show the rows of a stream as they arrive, until it ends or Ctrl-C stops it.

    On a terminal, an aggregation is one table that is drawn again with each micro-batch. Otherwise its changed rows are
    lines, as the rows of any other stream.
    """
    from dynamic_kafka.sql.session.result import follow

    stream = result.dataframe
    assert stream is not None
    waiting = StatusLine()
    console = terminal() if output == "table" else None
    live = None if console is None or console.is_dumb_terminal else console
    with ExitStack() as left:
        found = left.enter_context(
            closing(cast("Generator[Any]", follow(stream, _rows_of(output, live))))
        )  # stops the query
        left.callback(waiting.close)
        waiting.show("waiting for rows · Ctrl-C stops")
        display = _Lines(result.columns, output) if live is None else _Screen(result, left)
        try:
            for item in found:
                waiting.close()
                display.show(item)
        except KeyboardInterrupt:
            waiting.close()
            display.end()
            if output == "table":
                show_stopped()
            return
        display.end()


def csv_line(values: Iterable[str | None]) -> str:
    """Return a line of CSV: NULL is nothing between two commas, an empty text is two quotes."""
    cells = []
    for value in values:
        plain = value is not None and value != "" and not set(value) & set(',"\r\n') and value.strip() == value
        cells.append("" if value is None else value if plain else '"' + value.replace('"', '""') + '"')
    return ",".join(cells)


def _show_raw(line: str) -> None:
    """Write a line for a program, with all its characters. On a terminal, control characters are escaped."""
    if sys.stdout.isatty():
        show_line(line)
    else:
        sys.stdout.write(f"{line}\n")


# --- batches ------------------------------------------------------------------------------------------------------------


def _show_table(result: TableResult, status: StatusLine) -> int | None:
    if result.dataframe is None and result.columns == ("result",):  # a text, such as a plan
        status.close()
        for (text,) in result.collect():
            for line in text.splitlines():
                show_line(line)
        return None
    most = _SHOWN_ROWS + 1
    if result.dataframe is None:
        found = [tuple(map(_text, row)) for row in islice(result.collect(), most)]
    else:
        found = [tuple(row) for row in _as_texts(result.dataframe, "table").take(most)]
    rows = [["NULL" if value is None else value for value in row] for row in found[:_SHOWN_ROWS]]
    status.close()
    if rows:
        show_rows(result.columns, rows, _numbers(result.dataframe))
    else:
        show_line(f"no rows ({', '.join(result.columns)})")
    if len(found) > _SHOWN_ROWS:
        warn(
            f"only the first {_SHOWN_ROWS} rows are shown; add a LIMIT, write the rows to a table, or take --output csv "
            "or json, which have all"
        )
    return len(rows)


def _lines(result: TableResult, output: str) -> Iterable[str]:
    """Return all rows as lines of CSV, behind a line of names, or of JSON."""
    if result.dataframe is None:
        rows: Iterable[Sequence[Any]] = (
            [json.dumps(dict(zip(result.columns, row, strict=True)), default=str, ensure_ascii=False)]
            if output == "json"
            else [*map(_text, row)]
            for row in result.collect()
        )
    else:
        rows = _as_texts(result.dataframe, output).toLocalIterator(prefetchPartitions=True)
    if output == "csv":
        yield csv_line(result.columns)
    for row in rows:
        yield row[0] if output == "json" else csv_line(row)


def _check_names(kind: DataType) -> None:
    """Refuse a row, or a row in one of its columns, that has a name twice: readers of JSON keep one of the values.

    Raises:
        ConfigurationError: If there is one.
    """
    names: list[str] = getattr(kind, "names", [])
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigurationError(
            f"JSON cannot have two columns of the name '{twice[0]}' in a row; give one of them another name with AS, or "
            "take --output csv"
        )
    parts = [field.dataType for field in getattr(kind, "fields", ())]
    parts += [getattr(kind, part) for part in ("elementType", "keyType", "valueType") if hasattr(kind, part)]
    for part in parts:
        _check_names(part)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _as_texts(rows: DataFrame, output: str) -> DataFrame:
    """Return each column as Spark's text of it, in the time zone of the session; for JSON one column with an object.

    Python would show times in the time zone of its own process.
    """
    from pyspark.sql import functions as f

    names = [f"c{i}" for i in range(len(rows.columns))]  # the names of a query may repeat
    renamed = rows.toDF(*names)
    if output == "json":
        row = f.struct(*(f.col(new).alias(name) for new, name in zip(names, rows.columns, strict=True)))
        options = {
            "ignoreNullFields": "false",
            # Spark would cut the time to milliseconds.
            "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
            "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
        }
        return renamed.select(f.to_json(row, options))
    texts = []
    for new, field in zip(names, rows.schema.fields, strict=True):
        kind = field.dataType.simpleString()
        column = f.col(new)
        if kind == "binary":
            column = f.when(column.isNotNull(), f.concat(f.lit("x'"), f.hex(column), f.lit("'")))
        texts.append(f.to_json(column) if kind == "variant" else column.cast("string"))
    return renamed.select(*texts)


def _numbers(rows: DataFrame | None) -> frozenset[int]:
    """Return the columns with numbers, which are aligned to the right."""
    if rows is None:
        return frozenset()
    from pyspark.sql.types import NumericType

    return frozenset(i for i, field in enumerate(rows.schema.fields) if isinstance(field.dataType, NumericType))


# --- streams ------------------------------------------------------------------------------------------------------------


def _rows_of(output: str, live: Console | None) -> dict[str, Callable[[DataFrame], Iterable[Any]]]:
    """Return what is shown of a micro-batch, by output mode: its rows, or on a terminal all rows of an aggregation."""
    rows: dict[str, Callable[[DataFrame], Iterable[Any]]] = dict.fromkeys(
        ("append", "update"), lambda batch: map(tuple, _as_texts(batch, output).toLocalIterator())
    )
    if live is None:
        return rows
    most = max(1, live.height - _AROUND)
    return {"append": rows["append"], "complete": lambda batch: [_snapshot(batch, most)], "update": rows["update"]}


def _snapshot(batch: DataFrame, most: int) -> _Snapshot:
    found = [tuple(row) for row in _as_texts(batch, "table").take(most + 1)]
    return _Snapshot(found[:most], len(found) > most)


class _Lines:
    """A stream's rows as lines."""

    def __init__(self, columns: Sequence[str], output: str) -> None:
        self._output = output
        if output == "table":
            show_line(" | ".join(columns))
        elif output == "csv":
            _show_raw(csv_line(columns))
        sys.stdout.flush()

    def show(self, row: _Texts) -> None:
        """Show a row at once, also if another program reads it."""
        if self._output == "table":
            show_line(" | ".join("NULL" if value is None else value for value in row))
        else:
            _show_raw(str(row[0]) if self._output == "json" else csv_line(row))
        sys.stdout.flush()

    def end(self) -> None:
        """Show nothing more."""


class _Screen:
    """A stream on a terminal: its rows below each other, or one table that changes."""

    def __init__(self, result: TableResult, left: ExitStack) -> None:
        self._columns, self._numbers = result.columns, _numbers(result.dataframe)
        self._left = left
        self._widths: list[int] = []
        self._live: Any = None
        self._updates = 0

    def show(self, item: _Texts | _Snapshot) -> None:
        """Show a row, or all rows of now."""
        if isinstance(item, _Snapshot):
            self._draw(item)
            return
        cells = ["NULL" if value is None else printable(value) for value in item]
        if not self._widths:
            self._widths = [*map(width_of, self._columns)]
            self._grow(cells)
            show_line(self._aligned(self._columns))
            show_line("─" * (sum(self._widths) + 3 * (len(cells) - 1)))
        self._grow(cells)
        show_line(self._aligned(cells))

    def end(self) -> None:
        """Leave the last table on the screen."""
        if self._live is not None:
            self._live.stop()

    def _grow(self, cells: Sequence[str]) -> None:
        self._widths = [max(w, min(width_of(c), _WIDEST)) for w, c in zip(self._widths, cells, strict=True)]

    def _aligned(self, cells: Sequence[str]) -> str:
        fields = enumerate(zip(cells, self._widths, strict=True))
        return " │ ".join(padded(cell, width, right=i in self._numbers) for i, (cell, width) in fields).rstrip()

    def _draw(self, snapshot: _Snapshot) -> None:
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        self._updates += 1
        rows = [["NULL" if value is None else value for value in row] for row in snapshot.rows]
        count = f"the first {_rows(len(rows))}" if snapshot.more else _rows(len(rows))
        below = f"{count} · update {self._updates}, {time.strftime('%H:%M:%S')} · Ctrl-C stops"
        drawing = Group(drawn(self._columns, rows, self._numbers), Text(below, style="dim"))
        if self._live is None:
            self._live = self._left.enter_context(Live(drawing, console=terminal(), auto_refresh=False))
        self._live.update(drawing, refresh=True)


def took(count: int, seconds: float) -> str:
    """Return the number of rows and the time that they took."""
    return f"{_rows(count)}, {f'{seconds:.1f} s' if seconds < 60 else duration(int(seconds * 1000))}"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"

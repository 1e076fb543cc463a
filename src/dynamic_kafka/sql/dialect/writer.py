"""A query that is being written for Spark, the types in it, and what is known of its tables: what all rules build on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol

from pyspark.sql.types import DataType
from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.generators.spark import SparkGenerator

from dynamic_kafka.errors import SqlError
from dynamic_kafka.sql.dialect.flink import Flink
from dynamic_kafka.sql.dialect.functions.rules import called
from dynamic_kafka.sql.dialect.query import Query, place_of, query_error
from dynamic_kafka.sql.dialect.scope import Scope

__all__ = ["UNKNOWN_TYPE", "Ask", "RankKey", "Streams", "TimesOf", "Versioned", "Versions", "Writer"]

UNKNOWN_TYPE = (
    "The type of this is not known (is there such a column?), and what is done with it depends on that: CAST it"
)

Ask = Callable[[str], "DataType | None"]
"""Returns the type of the only column of a query for Spark, None if Spark refuses it."""
TimesOf = Callable[[str], Sequence[tuple[str, str]]]
"""The function `Streams.times_of`."""


class Streams(Protocol):
    """What is known about tables and views of a stream, besides types."""

    def times_of(self, query: str) -> Sequence[tuple[str, str]]:
        """Return the columns of a query for Spark, each with the time that it is; none if its rows are no stream.

        A time is `event` (with a watermark) or `processing`, and empty for any other column.
        """

    def first_rows(self, query: str, keys: Sequence[str]) -> str:
        """Return the name, for Spark, of the first row of each key that a query has as a stream. It never changes."""

    def view(self, name: str) -> exp.Query | None:
        """Return the query of a view; None for anything else, and for a view that is not one query."""

    def ordered(self, name: str) -> str | None:
        """Return the name of a table for Spark that has the column with a row's offset; None for one that is not on Kafka.

        Raises:
            ConfigurationError: If the rows of the table do not have an offset each, or if the name is not a table's.
        """


@dataclass(frozen=True)
class Versioned:
    """A table with all versions of its rows.

    Spark knows them by the name `rows`. They have `row_kind` and `arrival.ARRIVAL`, too. `time` is the column with the time
    from which on a version is valid. They are `dated` if a deletion has a time of its own there, and not the time of the row
    that is deleted.
    """

    rows: str
    columns: Sequence[str]
    key: Sequence[str]
    time: str
    dated: bool


@dataclass(frozen=True)
class RankKey:
    """The key of ranked rows that are replaced by others: for each part of the key, the result's columns that have it."""

    parts: Sequence[frozenset[str]]


class Versions(Protocol):
    """What is known about the tables of temporal joins."""

    def versioned(self, name: str, *, streaming: bool) -> Versioned:
        """Return the versions of a table's rows.

        Raises:
            ConfigurationError: If it does not have them, or the query is a stream.
        """

    def check_lookup(self, name: str) -> None:
        """Raise `ConfigurationError` unless rows can be looked up in a table, which may be one of Spark's."""

    def processing_times(self, name: str) -> Collection[str]:
        """Return the columns of a table or view, in lower case, that are processing times."""


class Writer(SparkGenerator):
    """A query of Flink that is being written for Spark. `Translator` has the rules for its parts.

    See `translate` for the arguments. `streams` is None unless the query is translated by `translate_stream`.
    """

    def __init__(
        self,
        query: Query,
        ask: Ask,
        *,
        zone: str,
        views: Mapping[int, str],
        renamed: Mapping[int, str] = MappingProxyType({}),
        streams: Streams | None = None,
        versions: Versions | None = None,
        times_of: TimesOf | None = None,
    ) -> None:
        super().__init__(dialect=Flink, comments=False, unsupported_level=ErrorLevel.IGNORE)
        self.query, self.zone, self.streams = query, zone, streams
        self._ask, self._views, self._renamed, self._versions = ask, views, renamed, versions
        self.times_of: TimesOf | None = None if times_of is None else cache(times_of)
        self.exported: set[int] = set()
        self.rank_key: RankKey | None = None
        self.scope: Scope | None = None
        self._ctes: list[str] = []
        self._texts: dict[int, tuple[exp.Expr, str]] = {}
        self._types: dict[tuple[str, str], DataType | None] = {}
        self._changed: set[int] = set()

    @property
    def changed(self) -> bool:
        """Return whether Spark gets another text than the user wrote."""
        return bool(self._changed)

    def write_as(self, node: exp.Expr, text: str) -> None:
        """Write a part that is not written yet as a text for Spark."""
        self._texts[id(node)] = node, self.as_changed(node, text)

    def as_changed(self, node: exp.Expr, text: str) -> str:
        """Return the text for a part that Spark gets another text for."""
        self._changed.add(id(node))
        return text

    def refuse(self, node: exp.Expr, problem: str) -> SqlError:
        """Return the error for a part of the query."""
        return query_error(self.query.text, place_of(node), problem)

    def sql(self, expression: Any, key: str | None = None, comment: bool = True) -> str:  # noqa: FBT001  sqlglot's
        """Return the text of a part, which is written once."""
        if key is not None or not isinstance(expression, exp.Expr):
            return super().sql(expression, key, comment)
        known = self._texts.get(id(expression))
        if known is None:
            ctes = len(self._ctes)
            if isinstance(expression, exp.Query) and expression.args.get("with_"):
                self.sql(expression.args["with_"])  # before what reads from it
            known = expression, super().sql(expression, key, comment)
            if isinstance(expression, exp.Query):
                del self._ctes[ctes:]
            self._texts[id(expression)] = known
        return known[1]

    def scoped(self, select: exp.Select, by: Sequence[exp.Expr]) -> AbstractContextManager[Scope]:
        """Be inside a SELECT: its tables are written, and the types of everything else depend on them."""
        raise NotImplementedError

    def projection(self, index: int, node: exp.Expr) -> str:
        """Return a column of a SELECT."""
        raise NotImplementedError

    # --- types ---

    def type_or_none(self, node: exp.Expr) -> DataType | None:
        """Return the type of a part, None if Spark cannot tell."""
        raise NotImplementedError

    def type_of(self, node: exp.Expr) -> DataType:
        """Return the type of a part, which Spark knows.

        Raises:
            SqlError: If Spark cannot tell.
        """
        found = self.type_or_none(node)
        if found is None:
            raise self.refuse(node, UNKNOWN_TYPE)
        return found

    def time_of(self, node: exp.Expr) -> str:
        """Return what time a part of the SELECT is, as `times_of` does; empty in a batch."""
        if self.times_of is None or self.scope is None:
            return ""
        found = self.times_of(self.asked(self.sql(node), self.scope.source()))
        return found[0][1] if found else ""

    def times_in(self, source: str) -> Sequence[tuple[str, str]]:
        """Return the columns of a table, as `times_of` does; none in a batch."""
        return () if self.times_of is None else self.times_of(self.asked("*", f"FROM {source}"))

    def type_in(self, text: str, source: str) -> DataType | None:
        """Return the type of a column of a table, as texts for Spark; None if Spark cannot tell."""
        return self._asked(text, f"FROM {source}")

    def _asked(self, text: str, source: str) -> DataType | None:
        key = text, source
        if key not in self._types:
            self._types[key] = self._ask(self.asked(text, source))
        return self._types[key]

    def asked(self, text: str, source: str) -> str:
        """Return a query for a part of a SELECT alone."""
        ctes = f"WITH {', '.join(self._ctes)} " if self._ctes else ""
        return f"{ctes}SELECT {text} {source}"

    # --- tables and calls ---

    def is_of_window(self, node: exp.Column) -> bool:
        """Return whether a column is the start, the end or the time of a window of this SELECT."""
        return self.scope is not None and self.scope.window_of(node) is not None

    def has_cumulate(self, select: exp.Select) -> bool:
        """Return whether a SELECT reads windows of CUMULATE."""
        return any(called(call) == "CUMULATE" for call in select.find_all(exp.Anonymous))

    def has_options(self, table: exp.Table) -> bool:
        """Return whether a table has options in a hint."""
        return table.this.meta.get("start", -1) in self._views

    def check_over(self, node: exp.Window) -> None:
        """Raise for an OVER of a stream that is not of a rank."""
        if self.streams is not None:
            raise self.refuse(
                node,
                "In a stream, ROW_NUMBER stands in a sub-query with `WHERE rn = 1` or `WHERE rn <= n` around it, and is the "
                "only OVER there. (A batch has others: give the tables 'scan.bounded.mode' = 'latest-offset')",
            )

    def as_written(self, node: exp.Anonymous) -> str:
        """Return a call that means the same in Spark."""
        return super().anonymous_sql(node)

    def like_without_escape(self, node: exp.Like) -> str:
        """Return a LIKE as it was written."""
        return self._like_sql(node)

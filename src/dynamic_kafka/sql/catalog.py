"""The tables and views of an environment, as temporary views of its session.

A table or view becomes a temporary view when a query first reads it. All temporary views are created again after a change
of a table, view or setting. Several environments can share a session, each
with its own tables: the environment that ran a query last owns the temporary view.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import wraps
from threading import RLock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from weakref import ReferenceType, WeakKeyDictionary, ref

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.types import StructField, StructType

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import ROW_KIND
from dynamic_kafka.formats.expressions import quoted
from dynamic_kafka.spark.datasource import activate
from dynamic_kafka.sql.config import TableConfig
from dynamic_kafka.sql.connectors.spark_table import find
from dynamic_kafka.sql.connectors.table import OtherTable
from dynamic_kafka.sql.definition import Name, qualified
from dynamic_kafka.sql.load_errors import loading
from dynamic_kafka.sql.names import (
    Databases,
    is_ours,
    key_of,
    name_in,
    place_of,
    qualified_tables,
    tables_here,
    unqualified,
)
from dynamic_kafka.sql.ordered import Arrivals
from dynamic_kafka.sql.parser.lexer import tokenize
from dynamic_kafka.sql.query_errors import in_query
from dynamic_kafka.sql.query_text import mentions
from dynamic_kafka.sql.scan import finished
from dynamic_kafka.sql.stream_errors import of_streams
from dynamic_kafka.sql.table import KafkaTable
from dynamic_kafka.sql.tables import Table, read_table, table_of
from dynamic_kafka.sql.types import cast_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.conf import RuntimeConfig
    from pyspark.sql.types import DataType

    from dynamic_kafka.sql.dialect.query import Query
    from dynamic_kafka.sql.dialect.ranks import RankKey

__all__ = ["Catalog", "View"]

_log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class View:
    """A view: its query as written, or a DataFrame. `columns` are new names for all its columns, or empty."""

    name: str
    query: str | DataFrame
    columns: tuple[str, ...] = ()
    comment: str | None = None


def _one_at_a_time(method: Callable[Concatenate[Catalog, P], R]) -> Callable[Concatenate[Catalog, P], R]:
    """Let the other threads of a catalog wait: queries make the temporary views that they read."""

    @wraps(method)
    def alone(catalog: Catalog, /, *args: P.args, **names: P.kwargs) -> R:
        with catalog.lock:
            return method(catalog, *args, **names)

    return alone


class Catalog:
    """The tables, views and settings of an environment.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.config = TableConfig(spark, self.forget)
        self.tables: dict[str, Table] = {}
        self.views: dict[str, View] = {}
        self.databases = Databases()
        self._places: dict[str, Name] = {}
        self._made: dict[str, bool] = {}  # whether it is a stream
        self._making: set[str] = set()
        self._written: set[str] = set()  # tables of Spark's catalogs
        self.ranks: dict[str, RankKey | None] = {}  # by a query's text; None if the rows end with windows
        self._arrivals = Arrivals(spark, self.tables, self.views, self._places, read=self._read, keep=self._keep)
        self.lock = _locks.setdefault(spark, RLock())  # temporary views are of the session

    @_one_at_a_time
    def query(self, text: str, *, streaming: bool | None = None, of_view: bool = False) -> DataFrame:
        """Return the rows of a query of Flink.

        Args:
            text: The query.
            streaming: Whether its tables are followed. By default, `execution.runtime-mode` decides.
            of_view: True for the query of a view: what reads the view has the condition of a rank in it.

        Raises:
            SqlError: If it cannot be parsed, or contains something without an equal in Spark.
            ConfigurationError: If a table in it cannot be read.
            pyspark.errors.AnalysisException: If Spark cannot analyze it.
        """
        from dynamic_kafka.sql.dialect.query import parse_query
        from dynamic_kafka.sql.dialect.translate import translate

        activate(self._spark)
        query = parse_query(text)
        if not of_view:
            self.ranks.pop(text, None)
        if streaming is None:
            streaming = self.follows(text)
        for name in self._written:  # Spark remembers the files of a table; a stream writes them in another session
            with suppress(AnalysisException):  # it may be gone
                self._spark.catalog.refreshTable(name)
        problems: dict[str, Exception] = {}
        for key in sorted(self._read_by(text) - self._making):
            if self._is_made(key, streaming=streaming):
                continue
            try:
                self._make(key, streaming=streaming)
            except (
                ConfigurationError,
                AnalysisException,
            ) as error:  # the name may belong to something else in the query
                problems[key] = error
        settings = self._spark.conf
        try:
            with loading():
                translated = translate(
                    query,
                    self._type_of,
                    zone=str(settings.get("spark.sql.session.timeZone")),
                    views=qualified_tables(query, self._places)
                    | {place: self._view_of(query, place, streaming=streaming) for place in query.options},
                )
                if translated != text:
                    _check_settings(settings)
                rows = self._spark.sql(translated)
            if rows.isStreaming and self._arrivals.differs(query, of_view=of_view):
                translated, rows = self._as_stream(query)
        except AnalysisException as error:
            missing = problems.get(_missing(error))
            if missing is not None:
                raise missing from None
            if (error.getCondition() or "").endswith(".STREAMING_QUERY"):
                raise of_streams([error]) from None
            raise in_query(error, text, translated) from error
        return rows

    def _as_stream(self, query: Query) -> tuple[str, DataFrame]:
        """Return the translation of such a query, and its rows."""
        from dynamic_kafka.sql.dialect.translate import translate_stream

        views = {place: self._view_of(query, place, streaming=True) for place in query.options}
        zone = str(self._spark.conf.get("spark.sql.session.timeZone"))
        assert query.tree is not None
        plain = replace(query, tree=unqualified(query.tree, self._places))
        translated, found, key = translate_stream(plain, self._type_of, self._arrivals, zone=zone, views=views)
        if found:
            self.ranks[query.text] = key
        return translated, self._spark.sql(translated)

    def _keep(self, rows: DataFrame, name: str, *, streaming: bool = True) -> None:
        """Give rows a name for queries, which is Spark's alone."""
        if name not in _owners(self._spark) and self._is_in_spark((name,)):
            raise ConfigurationError(
                f"'{name}' exists already in Spark, and this query needs the name for itself; drop it"
            )
        rows.createOrReplaceTempView(quoted(name))
        _owners(self._spark)[name] = ref(self)
        self._made[name] = streaming

    def _type_of(self, query: str) -> DataType | None:
        """Return the type of a query's only column, None if Spark refuses the query."""
        try:
            return self._spark.sql(query).schema.fields[0].dataType
        except AnalysisException:
            return None

    def follows(self, text: str) -> bool:
        """Return whether the tables of a query are followed: `streaming`, or `automatic` and one of them has no end."""
        if self.config.mode != "automatic":
            return self.config.mode == "streaming"
        return self._has_no_end(text)

    def _has_no_end(self, text: str, beneath: frozenset[str] = frozenset()) -> bool:
        """Return whether a query reads a table without an end, also through views."""
        from dynamic_kafka.sql.dialect.query import parse_query

        query = parse_query(text)
        if any(not self._with_options(query, place).bounded for place in query.options):
            return True
        read = tables_here(text, self._places) - self._only_with_options(query) - beneath
        if any(self._is_endless(key, beneath) for key in read & {*self.tables, *self.views}):
            return True
        if not read & self.tables.keys() and not query.options:
            return False  # nothing can be read in two ways
        return any(self._is_stream(key) for key in read - {*self.tables, *self.views})

    def reads_kafka(self, text: str) -> bool:
        """Return whether a query reads a table on Kafka, also through views."""
        from dynamic_kafka.sql.dialect.query import parse_query

        query = parse_query(text)
        tables = [self._with_options(query, place) for place in query.options]
        return any(isinstance(table, KafkaTable) for table in (*tables, *self._tables_of(text)))

    def _tables_of(self, text: str, beneath: frozenset[str] = frozenset()) -> Iterator[Table]:
        """Yield the tables that a query reads, also through views."""
        for key in self._read_by(text) - beneath:
            if key in self.tables:
                yield self.tables[key]
            elif isinstance(query := self.views[key].query, str):
                yield from self._tables_of(query, beneath | {key})

    def _read_by(self, text: str) -> frozenset[str]:
        """Return the tables and views of the environment that a query names."""
        return tables_here(text, self._places) & {*self.tables, *self.views}

    def _is_endless(self, key: str, beneath: frozenset[str] = frozenset()) -> bool:
        """Return whether a table or view has no end."""
        if key in self.tables:
            return not self.tables[key].bounded
        query = self.views[key].query
        return self._has_no_end(query, beneath | {key}) if isinstance(query, str) else query.isStreaming

    def _only_with_options(self, query: Query) -> set[str]:
        """Return the tables that a query reads with the options of hints only, in lower case."""
        if query.tree is None:
            return set()
        from sqlglot import exp

        hinted = Counter(_hinted(query, place)[-1].lower() for place in query.options)
        tables = (table for table in query.tree.find_all(exp.Table) if is_ours(name_in(table), self._places))
        read = Counter(table.name.lower() for table in tables)
        return {name for name, count in hinted.items() if read[name] == count}

    def _is_stream(self, name: str) -> bool:
        """Return whether a name is that of a stream in Spark, such as a temporary view of one."""
        try:
            return self._spark.table(quoted(name)).isStreaming
        except AnalysisException:
            return False

    def _with_options(self, query: Query, place: int) -> Table:
        """Return a table with the options of its hint in a query."""
        definition = self.table(_hinted(query, place)).definition
        return table_of(replace(definition, options={**definition.options, **query.options[place]}))

    def _view_of(self, query: Query, place: int, *, streaming: bool) -> str:
        """Return the name of a view of a table with the options of its hint in a query."""
        rows = self._read(self._with_options(query, place), streaming=streaming)
        options = repr(sorted(query.options[place].items()))
        view = f"{_hinted(query, place)[-1]}__{hashlib.sha256(options.encode()).hexdigest()[:12]}"
        self._keep(rows, view, streaming=streaming)
        return view

    def _read(self, table: Table, *, streaming: bool) -> DataFrame:
        if not streaming and not table.bounded:
            name = qualified(table.definition.name)
            way = (
                "'scan.bounded.mode' = 'latest-offset'" if isinstance(table, KafkaTable) else table.kind.endless(table)
            )
            raise ConfigurationError(
                f"Table {name} has no end, so a batch cannot read it. Give it one, in the table or in the query: {name} "
                f"/*+ OPTIONS({way}) */. Or SET 'execution.runtime-mode' = 'streaming'"
            )
        return read_table(self._spark, self.with_defaults(table), streaming=streaming)

    def key(self, name: Name) -> str:
        """Return the key of a table or view in `tables` and `views`, where it may not be.

        Raises:
            ConfigurationError: If its name has a catalog or database that it was not created in.
        """
        return key_of(name, self._places)

    @_one_at_a_time
    def rows(self, name: str) -> DataFrame:
        """Return the rows of a table or view.

        Raises:
            ConfigurationError: If it cannot be read.
            pyspark.errors.AnalysisException: If it does not exist.
        """
        activate(self._spark)
        key = name.lower()
        if key in {*self.tables, *self.views}:
            mode = self.config.mode
            streaming = self._is_endless(key) if mode == "automatic" else mode == "streaming"
            if not self._is_made(key, streaming=streaming):
                self._make(key, streaming=streaming)
        if key in self.views and self._made[key] and self._arrivals.has_ranks(self.views[key]):
            return self.query(f"TABLE {quoted(name)}", streaming=True)
        return self._spark.table(quoted(name))

    def target(self, name: Name, options: Mapping[str, str]) -> Table:
        """Return the table that an INSERT writes to: one of the environment, or one of Spark's catalogs.

        Raises:
            ConfigurationError: If it does not exist, or an option of the hint is wrong.
        """
        ours = is_ours(name, self._places)
        if not ours or (name[0].lower() not in {*self.tables, *self.views} and len(name) == 1):
            found = find(self._spark, name, options)
            if found is not None:
                self._written.add(found.name)
                return found
            if not ours:
                raise ConfigurationError(
                    f"Table {qualified(name)} does not exist in Spark's catalogs. Create it with spark.sql"
                )
        table = self.table(name)
        return (
            table_of(replace(table.definition, options={**table.definition.options, **options})) if options else table
        )

    def table(self, name: Name) -> Table:
        """Return a table by its name.

        Raises:
            ConfigurationError: If it does not exist.
        """
        table = self.tables.get(self.key(name))
        if table is None:
            if self.key(name) in self.views:
                raise ConfigurationError(f"{qualified(name)} is a view, not a table")
            raise ConfigurationError(f"Table {qualified(name)} does not exist; see SHOW TABLES")
        return table

    def with_defaults(self, table: Table) -> Table:
        """Return the table with the settings of the environment for the options that it does not have."""
        if not isinstance(table, KafkaTable):
            return table
        if self.config.idle_timeout is not None:
            table = replace(table, source={"scan.watermark.idle-timeout": self.config.idle_timeout, **table.source})
        tasks = self.config.parallelism
        if tasks is None:
            return table
        # Changes without a key would lose their order in several tasks.
        sink = {} if table.changelog and table.key is None else {"sink.parallelism": tasks}
        return replace(table, source={"scan.parallelism": tasks, **table.source}, sink={**sink, **table.sink})

    def schema(self, key: str) -> StructType:
        """Return the columns of a table, in any runtime mode, also of one that can only be written."""
        table = self.tables[key]
        if isinstance(table, OtherTable) and table.kind.read is None:
            fields = [StructField(c.name, cast_type(c.type)) for c in (*table.physical, *table.metadata)]
            return finished(
                self._spark.createDataFrame([], StructType(fields)), table.definition, streaming=False
            ).schema
        return read_table(self._spark, self.with_defaults(table), streaming=True).schema

    def check_new(self, name: Name, *, if_not_exists: bool) -> bool:
        """Return whether a name is free.

        Raises:
            ConfigurationError: If it is in use, unless `if_not_exists` allows that.
        """
        key, place = name[-1].lower(), self._new_place(name)
        ours = key in self.tables or key in self.views
        if ours and if_not_exists and place == self._places.get(key, ()):
            return False
        in_spark = key not in _owners(self._spark) and self._is_in_spark(name[-1:])
        if ours or in_spark:
            where = "" if ours else " in Spark's own catalog, where queries would find it"
            raise ConfigurationError(f"'{'.'.join(name)}' exists already{where}; drop it, or choose another name")
        for first in range(len(place)):  # all the names by which queries may call it
            other = (*place[first:], name[-1])
            if self._is_in_spark(other):
                raise ConfigurationError(
                    f"'{'.'.join(other)}' exists already in Spark's own catalog, and queries would find this table by that "
                    "name; drop it, or choose another name"
                )
        return True

    @_one_at_a_time
    def add(self, name: Name, added: Table | View) -> None:
        """Add a table or view under a name that is free."""
        key, place = name[-1].lower(), self._new_place(name)
        if isinstance(added, View):
            self.views[key] = added
        else:
            self.tables[key] = added
            self.forget()
        self._places[key] = place
        if place and len(name) > 1:
            _log.warning(
                "Catalogs and databases do not exist here: %s is a table of this environment, %s for short",
                qualified(name),
                quoted(name[-1]),
            )

    @_one_at_a_time
    def drop(self, key: str) -> None:
        """Remove a table or view. Its name is free then, also for one of Spark's catalogs."""
        self.forget()
        self.tables.pop(key, None)
        self.views.pop(key, None)
        self._places.pop(key, None)

    def _new_place(self, name: Name) -> Name:
        return place_of(name) if len(name) > 1 else self.databases.current

    def _is_in_spark(self, name: Name) -> bool:
        try:
            with loading():
                return self._spark.catalog.tableExists(qualified(name))
        except (ConfigurationError, PySparkException):  # such as a catalog that does not exist
            return False

    def rows_of(self, view: View, *, streaming: bool | None = None) -> DataFrame:
        """Return the rows of a view; by default as a stream if it has no end, so that its columns are known in any mode."""
        if not isinstance(view.query, str):
            return view.query.toDF(*view.columns) if view.columns else view.query
        if streaming is None:
            streaming = self.config.mode == "streaming" or self._has_no_end(view.query)
        rows = self.query(view.query, streaming=streaming, of_view=True)
        if view.columns and rows.isStreaming and self._arrivals.has_ranks(view):
            raise ConfigurationError(
                f"View '{view.name}' has names for the columns of a rank over a stream. Name them in the SELECT with AS"
            )
        return rows.toDF(*view.columns) if view.columns else rows

    def changelogs(self, query: str, beneath: frozenset[str] = frozenset()) -> list[str]:
        """Return the changelog tables and views that a query reads, also through views, if it does not use `row_kind`."""
        if mentions(query, ROW_KIND):
            return []
        found = []
        for key in sorted(self._read_by(query) - beneath):
            if key in self.tables and self.tables[key].changelog:
                found.append(self.tables[key].definition.name[-1])
            elif key in self.views:
                view = self.views[key]
                if isinstance(view.query, str):
                    found += self.changelogs(view.query, beneath | {key})
                elif ROW_KIND in view.query.columns:
                    found.append(view.name)
        return found

    @_one_at_a_time
    def forget(self) -> None:
        """Drop the temporary views, so that they are created again."""
        owners = _owners(self._spark)
        for key in self._made:
            if _owner(owners, key) is self:
                self._spark.catalog.dropTempView(key)
                del owners[key]
        self._made.clear()

    def _is_made(self, key: str, *, streaming: bool) -> bool:
        """Return whether a table or view can be read as it was made. One of files has the files that were there then."""
        table = self.tables.get(key)
        beneath = self.tables.values() if table is None else [table]
        files = any(isinstance(found, OtherTable) and found.kind.read is not None for found in beneath)
        return self._made.get(key) == streaming and not files

    def _make(self, key: str, *, streaming: bool) -> None:
        self._making.add(key)
        try:
            table = self.tables.get(key)
            rows = (
                self.rows_of(self.views[key], streaming=streaming)
                if table is None
                else self._read(table, streaming=streaming)
            )
            rows.createOrReplaceTempView(quoted(key))
        finally:
            self._making.discard(key)
        owners = _owners(self._spark)
        before = _owner(owners, key)
        if before is not None and before is not self:
            before._made.pop(key, None)
        owners[key] = ref(self)
        self._made[key] = streaming


def _hinted(query: Query, place: int) -> Name:
    """Return the name of a table with options in a hint."""
    if query.tree is not None:
        from sqlglot import exp

        for table in query.tree.find_all(exp.Table):
            if table.this.meta.get("start") == place:
                return name_in(table)
    return (tokenize(query.text, place)[0].text,)


# The catalog that owns a temporary view, for each session.
_made_by: WeakKeyDictionary[SparkSession, dict[str, ReferenceType[Catalog]]] = WeakKeyDictionary()


_locks: WeakKeyDictionary[SparkSession, Any] = WeakKeyDictionary()


def _owners(spark: SparkSession) -> dict[str, ReferenceType[Catalog]]:
    return _made_by.setdefault(spark, {})


def _owner(owners: Mapping[str, ReferenceType[Catalog]], key: str) -> Catalog | None:
    return owners[key]() if key in owners else None


def _check_settings(settings: RuntimeConfig) -> None:
    """Raise if Spark reads strings or calculates as earlier versions did: a translated query counts on today's rules."""
    for key, wanted in (("spark.sql.parser.escapedStringLiterals", "false"), ("spark.sql.ansi.enabled", "true")):
        if str(settings.get(key, wanted)).lower() != wanted:
            raise ConfigurationError(
                f"The query has constructs of Flink, which are translated for Spark with '{key}' = '{wanted}': SET it"
            )


def _missing(error: AnalysisException) -> str:
    """Return the name of the table or view that Spark did not find; empty for other errors."""
    if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return ""
    parameters: Mapping[str, str] = error.getMessageParameters() or {}
    return parameters.get("relationName", "").replace("`", "").lower()

"""Queries, and the temporary views that they read.

A table or view becomes a temporary view of the session when a query reads it. For a batch it is created again each time,
because Spark keeps the offsets and the files with which the rows of a view were planned first. For a stream it is created
again after a change of a table, view or setting. Several environments can share a session, each with its own tables: the
environment that ran a query last owns the temporary view.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from weakref import ref

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.conf import RuntimeConfig
from pyspark.sql.types import DataType, StructField, StructType

from dynamic_kafka.errors import ConfigurationError, SqlError
from dynamic_kafka.formats.expressions import quoted
from dynamic_kafka.spark.comparisons import described
from dynamic_kafka.spark.datasource import activate
from dynamic_kafka.sql.connectors.all import Table, read_table
from dynamic_kafka.sql.connectors.scan import finished
from dynamic_kafka.sql.connectors.table import OtherTable
from dynamic_kafka.sql.dialect.query import Query, name_in, parse_query
from dynamic_kafka.sql.dialect.translate import translate, translate_stream
from dynamic_kafka.sql.dialect.writer import RankKey
from dynamic_kafka.sql.errors.query import cause_of, in_query
from dynamic_kafka.sql.errors.script import loading
from dynamic_kafka.sql.errors.stream import of_streams
from dynamic_kafka.sql.queries.catalog import Catalog, View, hinted, lock_of, one_at_a_time, owner, owners
from dynamic_kafka.sql.queries.known import KnownTables
from dynamic_kafka.sql.queries.names import is_ours, qualified_tables, unqualified
from dynamic_kafka.sql.queries.pushed_conditions import conditions_of
from dynamic_kafka.sql.queries.used_columns import used_names, with_columns
from dynamic_kafka.sql.queries.wanted_rows import wanted_rows
from dynamic_kafka.sql.session.connect import is_connect
from dynamic_kafka.sql.tables.definition import MetadataColumn, PhysicalColumn, qualified
from dynamic_kafka.sql.tables.table import KafkaTable
from dynamic_kafka.sql.tables.types import cast_type

__all__ = ["Queries"]


class Queries:
    """The queries of an environment, over its tables and views.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._made: dict[str, bool] = {}  # whether it is a stream
        self._made_in: tuple[str, str] | None = None  # the session's settings that Spark puts into what is made
        self._making: set[str] = set()
        self._refusal: AnalysisException | None = None
        self.lock = lock_of(spark)
        self.catalog = Catalog(spark, self.forget)
        self.ranks: dict[str, RankKey | None] = {}  # by a query's text; None if the rows end with windows
        self.conditions: dict[str, str] = {}  # those that the sources of the last query's tables take, by view
        self._known = KnownTables(spark, self.catalog, read=self._read, keep=self._keep)

    @one_at_a_time
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
        self._begin()
        query = parse_query(text)
        if not of_view:
            self.ranks.pop(text, None)
        if streaming is None:
            streaming = self.catalog.follows(text)
        # Spark remembers the files of a table; a stream writes them in another session.
        for name in [*self.catalog.written]:
            with suppress(AnalysisException):  # it may be gone
                self._spark.catalog.refreshTable(name)
        self._hide_others({name.name.lower() for name in query.tables})
        problems: dict[str, Exception] = {}
        for key in sorted(self.catalog.read_by(text) - self._making):
            if self._is_made(key, streaming=streaming):
                continue
            self._check_free(key)
            try:
                self._make(key, streaming=streaming)
            except (
                ConfigurationError,
                AnalysisException,
            ) as error:  # the name may belong to something else in the query
                problems[key] = error
        translated = text
        try:
            with loading():
                write = partial(
                    translate,
                    query,
                    self._type_of,
                    zone=self._zone(),
                    views=qualified_tables(query, self.catalog.places)
                    | {place: self._view_of(query, place, streaming=streaming) for place in query.options},
                    versions=self._known,
                    times_of=self._known.times_of if streaming else None,
                )
                translated = write()
                if translated != text:
                    _check_settings(self._spark.conf)
                rows = self._spark.sql(translated)
                rows = self._narrowed(query, translated, rows, write, streaming=streaming)
            if rows.isStreaming and self._known.differs(query, of_view=of_view):
                translated, rows = self._as_stream(query)
        except AnalysisException as error:
            missing = problems.get(_missing(error))
            if missing is not None:
                raise missing from None
            if (error.getCondition() or "").endswith(".STREAMING_QUERY"):
                raise of_streams([error]) from None
            raise in_query(error, text, translated) from error
        except SqlError as error:
            known = {*self.catalog.tables, *self.catalog.views}
            raise cause_of(error, query, self._refusal, problems=problems, known=known, spark=self._spark) from None
        return rows

    def _begin(self) -> None:
        activate(self._spark)
        settings = self._zone(), str(self._spark.conf.get("spark.sql.streaming.multipleWatermarkPolicy", "min"))
        if settings != self._made_in:
            self.forget()
            self._made_in = settings

    def _narrowed(
        self, query: Query, translated: str, rows: DataFrame, write: Callable[..., str], *, streaming: bool
    ) -> DataFrame:
        """Return the rows of a query, from tables with only what it uses.

        Spark's Python data sources do not learn which columns a query needs, and share between queries what they learn of
        conditions. So such tables get names that are this query's alone, and Spark analyzes the query a second time, with
        these in the places of the tables' names. Whatever else reads a table, such as a function, reads the whole one. What
        is wrong in the query was said by then, with all columns known.
        """
        self.conditions.clear()
        # Spark puts the values of settings into the place of ${...}, and they are not known here. With Connect it analyzes a
        # query again when it runs, and would not find these names.
        if "${" in query.text or is_connect(self._spark):
            return rows
        columns = used_names(query, translated)
        narrow: dict[str, DataFrame] = {}
        names: dict[int, str] = {}
        for view, (table, places) in self._tables_of(query).items():
            if not isinstance(table, KafkaTable) or self._made.get(view) != streaming or -1 in places:
                continue
            used, name = table, f"__{view}_used"
            if columns is not None:
                used = replace(table, definition=with_columns(table.definition, columns, streaming=streaming))
            if not streaming and not table.changelog and (wanted := self._wanted(query, places, table)):
                narrow[name] = self._read(replace(used, wanted=wanted), streaming=False)
                self.conditions[view] = described(wanted)
            elif used != table:
                narrow[name] = self._read(used, streaming=streaming)
            else:
                continue
            names.update(dict.fromkeys(places, name))
        if not narrow:
            return rows
        try:
            for name, table_rows in narrow.items():
                table_rows.createOrReplaceTempView(quoted(name))
            return self._spark.sql(write(renamed=names))
        finally:
            for name in narrow:
                self._spark.catalog.dropTempView(name)

    def _wanted(self, query: Query, places: Sequence[int], table: KafkaTable) -> str:
        """Return which rows a batch query wants of a table, given by the places of its name."""
        # With this setting, two names may differ in case alone, and the tree's names are compared without it.
        if str(self._spark.conf.get("spark.sql.caseSensitive")).lower() == "true":
            return ""
        if len(places) != 1:
            return ""
        columns = {column.name.lower() for column in table.definition.columns}
        return wanted_rows(
            self._spark,
            table,
            conditions_of(query, places[0], columns),
            lambda text: translate(parse_query(text), self._type_of, zone=self._zone(), views={}),
        )

    def _tables_of(self, query: Query) -> dict[str, tuple[Table, list[int]]]:
        """Return the tables that a query reads and the places of their names, by the view that Spark knows each by."""
        found: dict[str, tuple[Table, list[int]]] = {}
        for name in query.tables:
            place: int = name.this.meta.get("start", -1)
            if place in query.options:
                table = self.catalog.with_options(query, place)
                found.setdefault(_hinted_view(query, place), (table, []))[1].append(place)
            elif name.name.lower() in self.catalog.tables and is_ours(name_in(name), self.catalog.places):
                key = name.name.lower()
                found.setdefault(key, (self.catalog.tables[key], []))[1].append(place)
        return found

    def _as_stream(self, query: Query) -> tuple[str, DataFrame]:
        """Return the translation of such a query, and its rows."""
        views = {place: self._view_of(query, place, streaming=True) for place in query.options}
        assert query.tree is not None
        plain = replace(query, tree=unqualified(query.tree, self.catalog.places))
        translated, found, key = translate_stream(
            plain, self._type_of, self._known, zone=self._zone(), views=views, versions=self._known
        )
        if found:
            self.ranks[query.text] = key
        return translated, self._spark.sql(translated)

    @one_at_a_time
    def rows(self, name: str) -> DataFrame:
        """Return the rows of a table or view.

        Raises:
            ConfigurationError: If it cannot be read.
            pyspark.errors.AnalysisException: If it does not exist.
        """
        self._begin()
        key = name.lower()
        self._hide_others({key})
        if key in {*self.catalog.tables, *self.catalog.views}:
            mode = self.catalog.config.mode
            streaming = self.catalog.is_endless(key) if mode == "automatic" else mode == "streaming"
            if not self._is_made(key, streaming=streaming):
                self._check_free(key)
                self._make(key, streaming=streaming)
        if key in self.catalog.views and self._made[key] and self._known.has_ranks(self.catalog.views[key]):
            return self.query(f"TABLE {quoted(name)}", streaming=True)
        return self._spark.table(quoted(name))

    def rows_of(self, view: View, *, streaming: bool | None = None) -> DataFrame:
        """Return the rows of a view; by default as a stream if it has no end, so that its columns are known in any mode."""
        if not isinstance(view.query, str):
            return view.query.toDF(*view.columns) if view.columns else view.query
        if streaming is None:
            streaming = self.catalog.config.mode == "streaming" or self.catalog.has_no_end(view.query)
        rows = self.query(view.query, streaming=streaming, of_view=True)
        if view.columns and rows.isStreaming and self._known.has_ranks(view):
            raise ConfigurationError(
                f"View '{view.name}' has names for the columns of a rank over a stream. Name them in the SELECT with AS"
            )
        return rows.toDF(*view.columns) if view.columns else rows

    def schema(self, key: str) -> StructType:
        """Return the columns of a table, in any runtime mode, also of one that can only be written."""
        table = self.catalog.tables[key]
        if isinstance(table, OtherTable) and table.kind.read is None:
            listed: list[PhysicalColumn | MetadataColumn] = [*table.definition.physical, *table.definition.metadata]
            fields = [StructField(c.name, cast_type(c.type)) for c in listed]
            return finished(
                self._spark.createDataFrame([], StructType(fields)), table.definition, streaming=False
            ).schema
        return read_table(self._spark, self.catalog.with_defaults(table), streaming=True).schema

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
        if streaming:
            _keep_exchanges(self._spark.conf)
        return read_table(self._spark, self.catalog.with_defaults(table), streaming=streaming)

    def _view_of(self, query: Query, place: int, *, streaming: bool) -> str:
        """Return the name of a view of a table with the options of its hint in a query."""
        rows = self._read(self.catalog.with_options(query, place), streaming=streaming)
        view = _hinted_view(query, place)
        self._keep(rows, view, streaming=streaming)
        return view

    def _keep(self, rows: DataFrame, name: str, *, streaming: bool = True) -> None:
        """Give rows a name for queries, which is Spark's alone."""
        self._check_free(name)
        rows.createOrReplaceTempView(quoted(name))
        owners(self._spark)[name] = ref(self)
        self._made[name] = streaming

    def _check_free(self, name: str) -> None:
        if name not in owners(self._spark) and self.catalog.is_in_spark((name,)):
            raise ConfigurationError(
                f"'{name}' exists already in Spark, and this query needs the name for itself; drop it"
            )

    def _zone(self) -> str:
        return str(self._spark.conf.get("spark.sql.session.timeZone"))

    def _type_of(self, query: str) -> DataType | None:
        """Return the type of a query's only column, None if Spark refuses the query."""
        try:
            return self._spark.sql(query).schema.fields[0].dataType
        except AnalysisException as error:
            self._refusal = error
            return None

    @one_at_a_time
    def forget(self) -> None:
        """Drop the temporary views, so that they are created again."""
        known = owners(self._spark)
        for key in self._made:
            if owner(known, key) is self:
                self._spark.catalog.dropTempView(key)
                del known[key]
        self._made.clear()

    def _hide_others(self, names: Iterable[str]) -> None:
        """Drop the temporary views of other environments with these names, if this one has no such table or view.

        Otherwise a query would read tables that do not exist here, with the offsets of another time.
        """
        known = owners(self._spark)
        for key in {*names}.intersection(known) - {*self.catalog.tables, *self.catalog.views}:
            if (other := owner(known, key)) is not self:
                self._spark.catalog.dropTempView(key)
                del known[key]
                if other is not None:
                    other._made.pop(key, None)

    def _is_made(self, key: str, *, streaming: bool) -> bool:
        """Return whether a stream can read a table or view as it was made. One of files keeps the files that there were."""
        if not streaming:
            return False
        table = self.catalog.tables.get(key)
        beneath = self.catalog.tables.values() if table is None else [table]
        files = any(isinstance(found, OtherTable) and found.kind.read is not None for found in beneath)
        return self._made.get(key) is True and not files

    def _make(self, key: str, *, streaming: bool) -> None:
        self._making.add(key)
        try:
            table = self.catalog.tables.get(key)
            rows = (
                self.rows_of(self.catalog.views[key], streaming=streaming)
                if table is None
                else self._read(table, streaming=streaming)
            )
            rows.createOrReplaceTempView(quoted(key))
        finally:
            self._making.discard(key)
        known = owners(self._spark)
        before = owner(known, key)
        if before is not None and before is not self:
            before._made.pop(key, None)
        known[key] = ref(self)
        self._made[key] = streaming


def _hinted_view(query: Query, place: int) -> str:
    """Return the name of the view of a table with the options of its hint in a query."""
    options = repr(sorted(query.options[place].items()))
    return f"{hinted(query, place)[-1]}__{hashlib.sha256(options.encode()).hexdigest()[:12]}"


def _check_settings(settings: RuntimeConfig) -> None:
    """Raise if Spark reads strings or calculates as earlier versions did: a translated query counts on today's rules."""
    for key, wanted in (("spark.sql.parser.escapedStringLiterals", "false"), ("spark.sql.ansi.enabled", "true")):
        if str(settings.get(key, wanted)).lower() != wanted:
            raise ConfigurationError(
                f"The query has constructs of Flink, which are translated for Spark with '{key}' = '{wanted}': SET it"
            )


def _keep_exchanges(settings: RuntimeConfig) -> None:
    """Have each part of a query calculated where it stands, also if a stream has the same part twice.

    Spark would calculate it once, and does not see the watermark below the place where it reuses the rows (its
    `WatermarkPropagator` ends at a `ReusedExchangeExec`). The state above that place would never come out.
    """
    settings.set("spark.sql.exchange.reuse", "false")


def _missing(error: AnalysisException) -> str:
    """Return the name of the table or view that Spark did not find; empty for other errors."""
    if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return ""
    parameters: Mapping[str, str] = error.getMessageParameters() or {}
    return parameters.get("relationName", "").replace("`", "").lower()

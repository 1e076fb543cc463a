"""`TableEnvironment`: Flink's statements, run on Spark (PyFlink: TableEnvironment).

A table or view becomes a temporary view of the session when a query first has its name in it, so queries go to Spark as
they were written. Views are made anew after a change of what they depend on.
"""

from __future__ import annotations

import fnmatch
import io
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

import dynamic_kafka
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql import statements as s
from dynamic_kafka.sql.config import TableConfig
from dynamic_kafka.sql.definition import ComputedColumn, MetadataColumn, TableDefinition, qualified
from dynamic_kafka.sql.jobs import insert, job_name
from dynamic_kafka.sql.like import merge
from dynamic_kafka.sql.reading import read
from dynamic_kafka.sql.result import TableResult
from dynamic_kafka.sql.table import KafkaTable, table_of
from dynamic_kafka.sql.types import flink_type
from dynamic_kafka.sql.writing import to_sink_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from dynamic_kafka.sql.tokens import Name

__all__ = ["StatementSet", "TableEnvironment"]

_log = logging.getLogger(__name__)
_DEFAULTS = ("default_catalog", "default_database")
_DONE = TableResult(("result",), (("OK",),))


@dataclass(frozen=True)
class _View:
    """A view: its query as it was written, or a DataFrame."""

    name: str
    query: str | DataFrame
    columns: tuple[str, ...] = ()


class TableEnvironment:
    """Flink's Kafka SQL on a Spark session.

    Args:
        spark: The session; `format("dynamic-kafka")` is registered with it.

    Example:
        >>> env = TableEnvironment(spark)  # doctest: +SKIP
        >>> env.execute_sql("CREATE TABLE orders (id BIGINT) WITH ('connector' = 'kafka', ...)")  # doctest: +SKIP
        >>> env.sql_query("SELECT count(*) FROM orders")  # doctest: +SKIP
    """

    def __init__(self, spark: SparkSession) -> None:
        dynamic_kafka.register(spark)
        self._spark = spark
        self._config = TableConfig(spark, self._forget)
        self._tables: dict[str, KafkaTable] = {}
        self._views: dict[str, _View] = {}
        self._made: set[str] = set()
        self._running: dict[str, StreamingQuery] = {}

    # --- PyFlink's methods ---

    def get_config(self) -> TableConfig:
        """The settings; `set` and `get`."""
        return self._config

    def execute_sql(self, statement: str) -> TableResult:
        """Run one statement.

        Args:
            statement: CREATE TABLE, CREATE VIEW, DROP, SHOW, DESCRIBE, INSERT INTO, EXPLAIN, SET, RESET, a statement set, or
                a query. A `;` after it may be there or not.

        Returns:
            Its rows; for an INSERT the query that has started.

        Raises:
            SqlError: If it cannot be parsed, with line, column and the line.
            ConfigurationError: If an option or a column is wrong.
            pyspark.errors.AnalysisException: If Spark does not understand a query.
        """
        return self.execute(s.parse_statement(statement))

    def execute(self, statement: s.Statement) -> TableResult:
        """Run a parsed statement; see `execute_sql`."""
        match statement:
            case s.CreateTable(definition=definition):
                return self._create_table(definition if statement.like is None else self._like(statement))
            case s.CreateView():
                return self._create_view(statement)
            case s.DropTable(name=name, if_exists=if_exists):
                return self._drop(self._tables, name, "table", if_exists=if_exists)
            case s.DropView(name=name, if_exists=if_exists):
                return self._drop(self._views, name, "view", if_exists=if_exists)
            case s.ShowTables(pattern=pattern, negated=negated):
                return _names("table name", self.list_tables(), pattern, negated=negated)
            case s.ShowViews(pattern=pattern, negated=negated):
                return _names("view name", self.list_views(), pattern, negated=negated)
            case s.ShowCreateTable(name=name):
                return TableResult(("result",), ((self._table(name).definition.ddl(),),))
            case s.ShowCreateView(name=name):
                return self._show_view(name)
            case s.Describe(name=name):
                return self._describe(name)
            case s.InsertInto():
                return TableResult(queries=self._insert([statement]))
            case s.StatementSet(inserts=inserts):
                return TableResult(queries=self._insert(inserts))
            case s.Set(key=None):
                return TableResult(("key", "value"), self._config.items())
            case s.Set(key=str(key), value=str(value)):
                self._config.set(key, value)
                return _DONE
            case s.Reset(key=key):
                self._config.reset(key)
                return _DONE
            case s.Explain(statement=explained):
                return TableResult(("result",), [(text,) for text in self._explain(explained)])
            case s.Query(text=text):
                return TableResult(dataframe=self.sql_query(text))
            case _:
                raise AssertionError(statement)

    def sql_query(self, query: str) -> DataFrame:
        """The rows of a query, which Spark parses: a stream, unless `execution.runtime-mode` is `batch`.

        Raises:
            ConfigurationError: If a table in it cannot be read.
            pyspark.errors.AnalysisException: If Spark does not understand it.
        """
        problems: dict[str, ConfigurationError] = {}
        for key in self._named_in(query):
            try:
                self._make_view(key)
            except ConfigurationError as error:  # it may be a column's name, and the table not meant
                problems[key] = error
        try:
            return self._spark.sql(query)
        except AnalysisException as error:
            missing = problems.get(_missing(error))
            if missing is None:
                raise
            raise missing from None

    def _named_in(self, query: str) -> list[str]:
        """Tables and views whose names are in a query, and that are no temporary views yet."""
        words = set(re.findall(r"\w+", query.lower()))
        known = [*self._tables, *self._views]
        return [key for key in known if key not in self._made and (key in words or f"`{key}`" in query.lower())]

    def from_path(self, path: str) -> DataFrame:
        """A table's or view's rows."""
        name = _only(tuple(path.replace("`", "").split(".")))
        return self.sql_query(f"TABLE `{name}`")

    def create_temporary_view(self, path: str, view: DataFrame) -> None:
        """Give a DataFrame a name for queries."""
        self._check_new(path, if_not_exists=False)
        self._views[path.lower()] = _View(path, view)

    def create_statement_set(self) -> StatementSet:
        """INSERTs that start together."""
        return StatementSet(self)

    def list_tables(self) -> list[str]:
        """Names of all tables and views, sorted."""
        return sorted([*(t.definition.name[-1] for t in self._tables.values()), *self.list_views()])

    def list_views(self) -> list[str]:
        """Names of all views, sorted."""
        return sorted(view.name for view in self._views.values())

    # --- tables and views ---

    def _create_table(self, definition: TableDefinition) -> TableResult:
        name = _only(definition.name)
        table = self._checked(definition)
        if self._check_new(name, if_not_exists=definition.if_not_exists):
            self._tables[name.lower()] = table
            self._forget()
        return _DONE

    def _checked(self, definition: TableDefinition) -> KafkaTable:
        """The table; where it does not say itself how many tasks read and write it, the setting does."""
        tasks = self._config.parallelism
        defaults = {} if tasks is None else {"scan.parallelism": tasks, "sink.parallelism": tasks}
        table = table_of(replace(definition, options={**defaults, **definition.options}))
        return replace(table, definition=definition)

    def _like(self, statement: s.CreateTable) -> TableDefinition:
        assert statement.like is not None
        return merge(statement.definition, statement.like, self._table(statement.like.table).definition)

    def _create_view(self, statement: s.CreateView) -> TableResult:
        name = _only(statement.name)
        if self._check_new(name, if_not_exists=statement.if_not_exists):
            view = _View(name, statement.query, statement.columns)
            self._of_view(view)  # a wrong query is an error now
            self._views[name.lower()] = view
        return _DONE

    def _check_new(self, name: str, *, if_not_exists: bool) -> bool:
        """Whether the name is free."""
        ours = {**self._tables, **self._views}
        if name.lower() not in ours and not self._spark.catalog.tableExists(name):
            return True
        if if_not_exists:
            return False
        whose = "" if name.lower() in ours else " in Spark's own catalog, where queries would find it"
        raise ConfigurationError(f"'{name}' exists already{whose}; drop it, or take another name")

    def _drop(
        self, where: dict[str, KafkaTable] | dict[str, _View], name: Name, kind: str, *, if_exists: bool
    ) -> TableResult:
        key = _only(name).lower()
        if key not in where:
            if if_exists:
                return _DONE
            raise ConfigurationError(f"There is no {kind} {qualified(name)}; see SHOW {kind.upper()}S")
        self._forget()
        del where[key]
        return _DONE

    def _table(self, name: Name) -> KafkaTable:
        table = self._tables.get(_only(name).lower())
        if table is None:
            what = "a view, not a table" if _only(name).lower() in self._views else "not there; see SHOW TABLES"
            raise ConfigurationError(f"Table {qualified(name)} is {what}")
        return table

    def _make_view(self, key: str) -> None:
        table = self._tables.get(key)
        rows = (
            self._of_view(self._views[key])
            if table is None
            else read(self._spark, table, streaming=self._config.streaming)
        )
        rows.createOrReplaceTempView(f"`{key}`")
        self._made.add(key)

    def _of_view(self, view: _View) -> DataFrame:
        rows = self.sql_query(view.query) if isinstance(view.query, str) else view.query
        return rows.toDF(*view.columns) if view.columns else rows

    def _forget(self) -> None:
        """Have all views made anew."""
        for key in self._made:
            self._spark.catalog.dropTempView(key)
        self._made.clear()

    def _describe(self, name: Name) -> TableResult:
        columns = ("name", "type", "null", "key", "extras", "watermark", "comment")
        key = _only(name).lower()
        if key in self._views:
            fields = self._of_view(self._views[key]).schema.fields
            return TableResult(columns[:3], [(f.name, str(flink_type(f.dataType)), f.nullable) for f in fields])
        definition = self._table(name).definition
        computed = {f.name: f.dataType for f in self.from_path(key).schema.fields} if _has_computed(definition) else {}
        rows = []
        for c in definition.columns:
            data_type = flink_type(computed[c.name]) if isinstance(c, ComputedColumn) else c.type
            extras = None
            if isinstance(c, ComputedColumn):
                extras = f"AS {c.expression}"
            elif isinstance(c, MetadataColumn):
                extras = f"METADATA FROM '{c.key}'" + (" VIRTUAL" if c.virtual else "")
            watermark = definition.watermark
            rows.append(
                (
                    c.name,
                    str(replace(data_type, nullable=True)),
                    data_type.nullable,
                    f"PRI({', '.join(definition.primary_key)})" if c.name in definition.primary_key else None,
                    extras,
                    watermark.expression if watermark is not None and watermark.column == c.name else None,
                    c.comment,
                )
            )
        return TableResult(columns, rows)

    def _show_view(self, name: Name) -> TableResult:
        view = self._views.get(_only(name).lower())
        if view is None or not isinstance(view.query, str):
            raise ConfigurationError(f"View {qualified(name)} is not there, or is a DataFrame; see SHOW VIEWS")
        return TableResult(("result",), ((f"CREATE TEMPORARY VIEW {qualified(name)} AS\n{view.query}",),))

    # --- jobs ---

    def _insert(self, inserts: Sequence[s.InsertInto]) -> list[StreamingQuery]:
        prepared = [self._prepared(statement) for statement in inserts]  # all are checked before the first one starts
        started = []
        self._running = {name: query for name, query in self._running.items() if query.isActive}
        for table, rows in prepared:
            name = job_name(table, self._config, self._running)
            running = insert(rows, table, self._config, name)
            if running is not None:
                self._running[name] = running
                started.append(running)
        return started

    def _prepared(self, statement: s.InsertInto) -> tuple[KafkaTable, DataFrame]:
        """The table with the options of the statement's hint, and the rows as its sink takes them."""
        table = self._table(statement.table)
        if statement.options:
            options = {**table.definition.options, **statement.options}
            table = self._checked(replace(table.definition, options=options))
        return table, to_sink_rows(self.sql_query(statement.query), table, statement.columns)

    def _explain(self, statement: s.Statement) -> list[str]:
        queries = statement.inserts if isinstance(statement, s.StatementSet) else (statement,)
        plans = []
        for query in queries:
            rows = self._prepared(query)[1] if isinstance(query, s.InsertInto) else self.sql_query(query.text)
            with redirect_stdout(io.StringIO()) as plan:  # Spark only prints it
                rows.select("*").explain()  # of what spark.sql() gives for a stream, Spark cannot tell that it is one
            plans.append(plan.getvalue())
        return plans


class StatementSet:
    """INSERTs that start together (PyFlink: StatementSet).

    Args:
        environment: Where their tables are.
    """

    def __init__(self, environment: TableEnvironment) -> None:
        self._environment = environment
        self._inserts: list[s.InsertInto] = []

    def add_insert_sql(self, statement: str) -> StatementSet:
        """Add an INSERT INTO.

        Raises:
            SqlError: If it cannot be parsed.
            ConfigurationError: If it is something else.
        """
        parsed = s.parse_statement(statement)
        if not isinstance(parsed, s.InsertInto):
            raise ConfigurationError("A statement set takes INSERT INTO statements only; run others with execute_sql")
        self._inserts.append(parsed)
        return self

    def execute(self) -> TableResult:
        """Start all that were added; the set is empty afterwards."""
        inserts, self._inserts = self._inserts, []
        return TableResult(queries=self._environment._insert(inserts))


def _only(name: Name) -> str:
    """A table's own name; Flink's default catalog and database may stand before it."""
    if len(name) > 1 and tuple(part.lower() for part in name[:-1]) not in (_DEFAULTS, _DEFAULTS[1:]):
        raise ConfigurationError(
            f"Table {qualified(name)} names a catalog or database, and there are none: queries go to Spark as they are, and "
            "find tables by one name"
        )
    return name[-1]


def _missing(error: AnalysisException) -> str:
    """The name of the table or view that Spark does not find; empty if it is something else."""
    if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return ""
    parameters: Mapping[str, str] = error.getMessageParameters() or {}
    return parameters.get("relationName", "").replace("`", "").lower()


def _has_computed(definition: TableDefinition) -> bool:
    return any(isinstance(column, ComputedColumn) for column in definition.columns)


def _names(header: str, names: Sequence[str], pattern: str | None, *, negated: bool) -> TableResult:
    if pattern is not None:
        glob = re.sub(r"[\[\]*?]", lambda found: f"[{found[0]}]", pattern).replace("%", "*").replace("_", "?")
        names = [name for name in names if fnmatch.fnmatchcase(name, glob) != negated]
    return TableResult((header,), [(name,) for name in names])

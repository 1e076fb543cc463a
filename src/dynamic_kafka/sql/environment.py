"""Flink's statements, run on Spark (PyFlink: TableEnvironment)."""

from __future__ import annotations

import fnmatch
import io
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import dynamic_kafka
from dynamic_kafka.errors import ConfigurationError, SqlError
from dynamic_kafka.formats import ROW_KIND
from dynamic_kafka.formats.expressions import quoted
from dynamic_kafka.native import kernel
from dynamic_kafka.sql.connectors.all import Table, table_of
from dynamic_kafka.sql.connectors.scan import check_expressions
from dynamic_kafka.sql.connectors.sink_rows import to_sink_rows, to_table_rows
from dynamic_kafka.sql.dialect.query import parse_query
from dynamic_kafka.sql.errors.script import in_text
from dynamic_kafka.sql.insert import Jobs
from dynamic_kafka.sql.parser import statements as s
from dynamic_kafka.sql.parser.create_table import AsQuery
from dynamic_kafka.sql.parser.errors import without_secrets
from dynamic_kafka.sql.parser.like import merge
from dynamic_kafka.sql.parser.parse import parse_statement
from dynamic_kafka.sql.queries.catalog import View
from dynamic_kafka.sql.queries.changes import rows_for
from dynamic_kafka.sql.queries.known import check_key
from dynamic_kafka.sql.queries.queries import Queries
from dynamic_kafka.sql.queries.text import filters_groups, is_projection, selects_all
from dynamic_kafka.sql.session.config import TableConfig
from dynamic_kafka.sql.session.result import TableResult
from dynamic_kafka.sql.tables.definition import (
    ComputedColumn,
    MetadataColumn,
    Name,
    PhysicalColumn,
    TableDefinition,
    qualified,
)
from dynamic_kafka.sql.tables.derived import definition_as, with_registry_columns
from dynamic_kafka.sql.tables.table import KafkaTable
from dynamic_kafka.sql.tables.types import flink_type, string_literal

__all__ = ["StatementSet", "TableEnvironment"]

_log = logging.getLogger(__name__)
_DONE = TableResult(("result",), (("OK",),))


class TableEnvironment:
    """Flink's Kafka SQL on a Spark session.

    Args:
        spark: The session; `format("dynamic-kafka")` is registered with it.

    Raises:
        DynamicKafkaError: If the native kernel cannot be used on this machine.

    Examples:
        >>> env = TableEnvironment(spark)  # doctest: +SKIP
        >>> env.execute_sql("CREATE TABLE orders (id BIGINT) WITH ('connector' = 'kafka', ...)")  # doctest: +SKIP
        >>> env.sql_query("SELECT count(*) FROM orders")  # doctest: +SKIP
    """

    def __init__(self, spark: SparkSession) -> None:
        kernel()
        dynamic_kafka.register(spark)
        self._spark = spark
        self._queries = Queries(spark)
        self._catalog = self._queries.catalog
        self._config = self._catalog.config
        self._jobs = Jobs()

    # --- PyFlink's methods ---

    def get_config(self) -> TableConfig:
        """Return the settings, with `set` and `get`."""
        return self._config

    def execute_sql(self, statement: str) -> TableResult:
        """Run one statement.

        Args:
            statement: CREATE TABLE, CREATE VIEW, DROP, SHOW, DESCRIBE, INSERT INTO, EXPLAIN, SET, RESET, a statement set, or
                a query. The `;` after it is optional.

        Returns:
            Its rows; for an INSERT its running query.

        Raises:
            SqlError: If it cannot be parsed; the error shows the line and the place.
            ConfigurationError: If an option or a column is wrong.
            pyspark.errors.AnalysisException: If Spark cannot parse or analyze a query.
        """
        try:
            return self.execute(parse_statement(statement))
        except SqlError as error:
            moved = in_text(error, statement)
            if moved is error:
                raise
            raise moved from error

    def execute(self, statement: s.Statement) -> TableResult:
        """Run a parsed statement; see `execute_sql`."""
        match statement:
            case s.AddJar():
                _log.warning("ADD JAR has no effect: Kafka's connectors need none here, and functions are Python's")
                return _DONE
            case s.CreateTable(as_query=AsQuery() as query):
                return self._create_table_as(statement, query)
            case s.CreateTable(definition=definition):
                if (like := statement.like) is not None:
                    definition = merge(definition, like, self._catalog.table(like.table).definition)
                return self._create_table(definition)
            case s.CreateView():
                return self._create_view(statement)
            case s.CreateDatabase(name=name, if_not_exists=if_not_exists):
                self._catalog.databases.create(name, if_not_exists=if_not_exists)
                return _DONE
            case s.Use(name=name, catalog=catalog):
                self._catalog.databases.use(name, catalog=catalog)
                return _DONE
            case s.Drop():
                return self._drop(statement)
            case s.Show():
                return self._show(statement)
            case s.ShowCreate(kind=kind, name=name):
                text = self._catalog.table(name).definition.ddl() if kind == "table" else self._view_ddl(name)
                return TableResult(("result",), ((text,),))
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
        """Return the rows of a query: a stream or a batch, as `execution.runtime-mode` says.

        Raises:
            SqlError: If it cannot be parsed, or contains something without an equal in Spark.
            ConfigurationError: If a table in it cannot be read, or if it would count changes as rows.
            pyspark.errors.AnalysisException: If Spark cannot analyze it.
        """
        self._check_changes(query)
        return self._queries.query(query)

    def from_path(self, path: str) -> DataFrame:
        """Return the rows of a table or view."""
        return self._queries.rows(self._catalog.key(tuple(path.replace("`", "").split("."))))

    def from_registry(self, path: str, options: Mapping[str, str]) -> DataFrame:
        """Create a table with the columns that the schema registry has, and return its rows.

        Args:
            path: The table's name.
            options: The table's options, as in WITH. The value's format has a registry, such as `avro-confluent`.

        Raises:
            ConfigurationError: If an option is wrong, or the name is in use.
            RegistryError: If the registry does not answer, or does not have the subject (`<topic>-value` by default).

        Examples:
            >>> env.from_registry("orders", {"connector": "kafka", "topic": "orders", ...})  # doctest: +SKIP
        """
        self._create_table(TableDefinition((path.replace("`", ""),), (), options=dict(options)))
        return self.from_path(path)

    def create_temporary_view(self, path: str, view: DataFrame) -> None:
        """Give a DataFrame a name for queries."""
        self._catalog.check_new((path,), if_not_exists=False)
        self._catalog.add((path,), View(path, view))

    def create_statement_set(self) -> StatementSet:
        """Return an empty set of INSERTs that start together."""
        return StatementSet(self)

    def list_tables(self) -> list[str]:
        """Return the names of all tables and views, sorted."""
        return sorted([*(t.definition.name[-1] for t in self._catalog.tables.values()), *self.list_views()])

    def list_views(self) -> list[str]:
        """Return the names of all views, sorted."""
        return sorted(view.name for view in self._catalog.views.values())

    def _check_changes(self, query: str) -> None:
        """Raise if a query calculates with the changes of a changelog as if each was a row, or cannot be parsed."""
        parse_query(query)
        changelogs = [] if is_projection(query) or selects_all(query) else self._catalog.changelogs(query)
        if changelogs:
            raise ConfigurationError(
                f"The query reads the changes of {', '.join(changelogs)}, and each change, even a deletion, would count as "
                "a row. Materialize the changes first (dynamic_kafka.changelog.materialize) and query the result, or use "
                "`row_kind` in the query"
            )

    # --- tables and views ---

    def _create_table(self, definition: TableDefinition) -> TableResult:
        table = table_of(with_registry_columns(definition))
        check_expressions(self._spark, table)
        if self._catalog.check_new(definition.name, if_not_exists=definition.if_not_exists):
            self._catalog.add(definition.name, table)
        return _DONE

    def _create_table_as(self, statement: s.CreateTable, given: AsQuery) -> TableResult:
        definition = statement.definition
        if not self._catalog.check_new(definition.name, if_not_exists=definition.if_not_exists):
            return _DONE
        fields = [field for field in self._queries.query(given.query).schema.fields if field.name != ROW_KIND]
        columns = [PhysicalColumn(f.name, flink_type(f.dataType, nullable=f.nullable)) for f in fields]
        self._create_table(definition_as(definition, given.columns, columns))
        names = tuple(column.name for column in columns)
        insert = s.InsertInto(statement.text, statement.line, definition.name, names, given.query, {})
        try:
            return TableResult(queries=self._insert([insert]))
        except BaseException:  # a later run creates the table again
            self._catalog.drop(self._catalog.key(definition.name))
            raise

    def _create_view(self, statement: s.CreateView) -> TableResult:
        if self._catalog.check_new(statement.name, if_not_exists=statement.if_not_exists):
            view = View(statement.name[-1], statement.query, statement.columns, statement.comment)
            self._check_changes(statement.query)
            self._queries.rows_of(view)  # an error in the query is raised now
            self._catalog.add(statement.name, view)
        return _DONE

    def _drop(self, statement: s.Drop) -> TableResult:
        where = self._catalog.tables if statement.kind == "table" else self._catalog.views
        key = self._catalog.key(statement.name)
        if key in where:
            self._catalog.drop(key)
        elif not statement.if_exists:
            what, name = statement.kind, qualified(statement.name)
            raise ConfigurationError(f"{what.capitalize()} {name} does not exist; see SHOW {what.upper()}S")
        return _DONE

    def _show(self, statement: s.Show) -> TableResult:
        names = self.list_tables() if statement.kind == "table" else self.list_views()
        if statement.pattern is not None:
            glob = re.sub(r"[\[\]*?]", lambda found: f"[{found[0]}]", statement.pattern)
            glob = glob.replace("%", "*").replace("_", "?")
            names = [name for name in names if fnmatch.fnmatchcase(name, glob) != statement.negated]
        return TableResult((f"{statement.kind} name",), [(name,) for name in names])

    def _describe(self, name: Name) -> TableResult:
        columns = ("name", "type", "null", "key", "extras", "watermark", "comment")
        key = self._catalog.key(name)
        if key in self._catalog.views:
            fields = self._queries.rows_of(self._catalog.views[key]).schema.fields
            return TableResult(columns[:3], [(f.name, str(flink_type(f.dataType)), f.nullable) for f in fields])
        definition = self._catalog.table(name).definition
        rows = []
        for c in definition.columns:
            extras = None
            if isinstance(c, ComputedColumn):
                data_type = flink_type(self._queries.schema(key)[c.name].dataType)
                extras = f"AS {c.expression}"
            else:
                data_type = c.type
            if isinstance(c, MetadataColumn):
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

    def _view_ddl(self, name: Name) -> str:
        view = self._catalog.views.get(self._catalog.key(name))
        if view is None:
            raise ConfigurationError(f"View {qualified(name)} does not exist; see SHOW VIEWS")
        if not isinstance(view.query, str):
            raise ConfigurationError(f"View {qualified(name)} is a DataFrame, so it does not have SQL text to show")
        columns = f" ({', '.join(map(quoted, view.columns))})" if view.columns else ""
        comment = f" COMMENT {string_literal(view.comment)}" if view.comment is not None else ""
        return f"CREATE TEMPORARY VIEW {qualified(name)}{columns}{comment} AS\n{without_secrets(view.query)}"

    # --- jobs ---

    def _insert(self, inserts: Sequence[s.InsertInto]) -> list[StreamingQuery]:
        prepared = [self._prepared(statement) for statement in inserts]  # check all before the first one starts
        started: list[StreamingQuery] = []
        written: list[str] = []
        try:
            for statement, (table, rows) in zip(inserts, prepared, strict=True):
                final = statement.query in self._queries.ranks and self._queries.ranks[statement.query] is None
                could_be_stream = not rows.isStreaming and self._catalog.reads_kafka(statement.query)
                running = self._jobs.insert(
                    rows, table, self._config, statement.query, final=final, could_be_stream=could_be_stream
                )
                if running is None:
                    written.append(table.name)
                else:
                    started.append(running)
        except BaseException:
            if written:
                _log.warning("Written before this error, and written again by a second run: %s", ", ".join(written))
            for query in started:  # the caller does not get a handle to it
                query.stop()
            raise
        return started

    def _prepared(self, statement: s.InsertInto) -> tuple[Table, DataFrame]:
        """Return the table with the options of the statement's hint, and the rows for its sink."""
        table = self._catalog.with_defaults(self._catalog.target(statement.table, statement.options))
        rows = rows_for(table, statement.query, statement.columns, self._catalog, self._queries.query)
        if table.upsert and rows.isStreaming and filters_groups(statement.query):
            _log.warning(
                "Groups that no longer satisfy HAVING are not deleted from table %s: Spark's update mode does not emit them",
                table.name,
            )
        if rows.isStreaming and statement.query in self._queries.ranks:
            check_key(table, statement.columns, rows.columns, self._queries.ranks[statement.query])
        if isinstance(table, KafkaTable):
            return table, to_sink_rows(rows, table, statement.columns)
        return table, to_table_rows(rows, table, statement.columns)

    def _explain(self, statement: s.Statement) -> list[str]:
        queries = statement.inserts if isinstance(statement, s.StatementSet) else (statement,)
        plans = []
        for query in queries:
            rows = self._prepared(query)[1] if isinstance(query, s.InsertInto) else self._queries.query(query.text)
            with redirect_stdout(io.StringIO()) as plan:  # Spark only prints it
                rows.select("*").explain()  # without select, Spark does not see that it is a stream
            taken = (
                f"The source of {table} leaves out rows, and offsets where it can: {conditions}\n"
                for table, conditions in self._queries.conditions.items()
            )
            plans.append(plan.getvalue() + "".join(taken))
        return plans


class StatementSet:
    """INSERTs that start together (PyFlink: StatementSet)."""

    def __init__(self, environment: TableEnvironment) -> None:
        self._environment = environment
        self._inserts: list[s.InsertInto] = []

    def add_insert_sql(self, statement: str) -> StatementSet:
        """Add an INSERT INTO.

        Raises:
            SqlError: If it cannot be parsed.
            ConfigurationError: If it is another statement.
        """
        parsed = parse_statement(statement)
        if not isinstance(parsed, s.InsertInto):
            raise ConfigurationError("A statement set accepts only INSERT INTO; run other statements with execute_sql")
        self._inserts.append(parsed)
        return self

    def execute(self) -> TableResult:
        """Start all added INSERTs; the set is empty afterwards."""
        inserts, self._inserts = self._inserts, []
        return TableResult(queries=self._environment._insert(inserts))

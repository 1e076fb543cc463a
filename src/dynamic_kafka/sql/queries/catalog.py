"""The tables and views of an environment: their definitions and names, what queries read of them, and the views of Spark."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast
from weakref import ReferenceType, WeakKeyDictionary

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import ROW_KIND
from dynamic_kafka.formats.expressions import quoted
from dynamic_kafka.sql.connectors.all import Table, table_of
from dynamic_kafka.sql.connectors.spark_table import find
from dynamic_kafka.sql.dialect.query import Query, name_in, parse_query
from dynamic_kafka.sql.errors.script import loading
from dynamic_kafka.sql.parser.lexer import tokenize
from dynamic_kafka.sql.queries.names import Databases, is_ours, key_of, tables_here
from dynamic_kafka.sql.queries.text import uses_row_kind, versioned_tables
from dynamic_kafka.sql.session.config import TableConfig
from dynamic_kafka.sql.tables.definition import Name, database_of, qualified
from dynamic_kafka.sql.tables.table import KafkaTable

__all__ = ["Catalog", "View", "hinted", "lock_of", "one_at_a_time", "owner", "owners"]

_log = logging.getLogger(__name__)
M = TypeVar("M", bound=Callable[..., Any])

_made_by: WeakKeyDictionary[SparkSession, dict[str, ReferenceType[Any]]] = WeakKeyDictionary()
_locks: WeakKeyDictionary[SparkSession, Any] = WeakKeyDictionary()


def lock_of(spark: SparkSession) -> Any:
    """Return the lock of a session: a query makes the temporary views that it reads, and they belong to the session."""
    return _locks.setdefault(spark, RLock())


def one_at_a_time(method: M) -> M:
    """Let other threads wait that make temporary views of the same session, which the object has the `lock` of."""

    @wraps(method)
    def alone(this: Any, /, *args: Any, **names: Any) -> Any:
        with this.lock:
            return method(this, *args, **names)

    return cast("M", alone)


def owners(spark: SparkSession) -> dict[str, ReferenceType[Any]]:
    """Return who made the temporary views of a session, by their names."""
    return _made_by.setdefault(spark, {})


def owner(known: Mapping[str, ReferenceType[Any]], key: str) -> Any:
    """Return who made a temporary view, None if nobody did or is gone."""
    return known[key]() if key in known else None


@dataclass(frozen=True)
class View:
    """A view: its query as written, or a DataFrame. `columns` are new names for all its columns, or empty."""

    name: str
    query: str | DataFrame
    columns: tuple[str, ...] = ()
    comment: str | None = None


class Catalog:
    """The tables, views and settings of an environment. `changed` is called after each change."""

    def __init__(self, spark: SparkSession, changed: Callable[[], None]) -> None:
        self._spark, self._changed = spark, changed
        self.config = TableConfig(spark, changed)
        self.tables: dict[str, Table] = {}
        self.views: dict[str, View] = {}
        self.databases = Databases()
        self.places: dict[str, Name] = {}
        self.written: set[str] = set()  # tables of Spark's catalogs
        self.lock = lock_of(spark)

    def key(self, name: Name) -> str:
        """Return the key of a table or view in `tables` and `views`, where it may not be; see `key_of`."""
        return key_of(name, self.places)

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

    def target(self, name: Name, options: Mapping[str, str]) -> Table:
        """Return the table that an INSERT writes to: one of the environment, or one of Spark's catalogs.

        Raises:
            ConfigurationError: If it does not exist, or an option of the hint is wrong.
        """
        ours = is_ours(name, self.places)
        if not ours or (name[0].lower() not in {*self.tables, *self.views} and len(name) == 1):
            found = find(self._spark, name, options)
            if found is not None:
                self.written.add(found.name)
                return found
            if not ours:
                raise ConfigurationError(
                    f"Table {qualified(name)} does not exist in Spark's catalogs. Create it with spark.sql"
                )
        return _with(self.table(name), options)

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

    def check_new(self, name: Name, *, if_not_exists: bool) -> bool:
        """Return whether a name is free.

        Raises:
            ConfigurationError: If it is in use, unless `if_not_exists` allows that.
        """
        key, place = name[-1].lower(), self._new_place(name)
        ours = key in self.tables or key in self.views
        if ours and if_not_exists and place == self.places.get(key, ()):
            return False
        in_spark = key not in owners(self._spark) and self.is_in_spark(name[-1:])
        if ours or in_spark:
            where = "" if ours else " in Spark's own catalog, where queries would find it"
            raise ConfigurationError(f"'{'.'.join(name)}' exists already{where}; drop it, or choose another name")
        for first in range(len(place)):  # all the names by which queries may call it
            other = (*place[first:], name[-1])
            if self.is_in_spark(other):
                raise ConfigurationError(
                    f"'{'.'.join(other)}' exists already in Spark's own catalog, and queries would find this table by that "
                    "name; drop it, or choose another name"
                )
        return True

    @one_at_a_time
    def add(self, name: Name, added: Table | View) -> None:
        """Add a table or view under a name that is free."""
        key, place = name[-1].lower(), self._new_place(name)
        if isinstance(added, View):
            self.views[key] = added
        else:
            self.tables[key] = added
            self._changed()
        self.places[key] = place
        if place and len(name) > 1:
            _log.warning(
                "Catalogs and databases do not exist here: %s is a table of this environment, %s for short",
                qualified(name),
                quoted(name[-1]),
            )

    @one_at_a_time
    def drop(self, key: str) -> None:
        """Remove a table or view. Its name is free then, also for one of Spark's catalogs."""
        self._changed()
        self.tables.pop(key, None)
        self.views.pop(key, None)
        self.places.pop(key, None)

    def _new_place(self, name: Name) -> Name:
        return database_of(name) if len(name) > 1 else self.databases.current

    def is_in_spark(self, name: Name) -> bool:
        """Return whether Spark has a table or temporary view of this name."""
        try:
            with loading():
                return self._spark.catalog.tableExists(qualified(name))
        except (ConfigurationError, PySparkException):  # such as a catalog that does not exist
            return False

    def follows(self, text: str) -> bool:
        """Return whether the tables of a query are followed: `streaming`, or `automatic` and one of them has no end."""
        if self.config.mode != "automatic":
            return self.config.mode == "streaming"
        return self.has_no_end(text)

    def has_no_end(self, text: str, beneath: frozenset[str] = frozenset()) -> bool:
        """Return whether a query reads a table without an end, also through views."""
        query = parse_query(text)
        if any(not self.with_options(query, place).bounded for place in query.options):
            return True
        read = tables_here(text, self.places) - self._only_with_options(query) - beneath
        if any(self.is_endless(key, beneath) for key in read & {*self.tables, *self.views}):
            return True
        if not read & self.tables.keys() and not query.options:
            return False  # nothing can be read in two ways
        return any(self._is_stream(key) for key in read - {*self.tables, *self.views})

    def is_endless(self, key: str, beneath: frozenset[str] = frozenset()) -> bool:
        """Return whether a table or view has no end."""
        if key in self.tables:
            return not self.tables[key].bounded
        query = self.views[key].query
        return self.has_no_end(query, beneath | {key}) if isinstance(query, str) else query.isStreaming

    def _is_stream(self, name: str) -> bool:
        """Return whether a name is that of a stream in Spark, such as a temporary view of one."""
        try:
            return self._spark.table(quoted(name)).isStreaming
        except AnalysisException:
            return False

    def reads_kafka(self, text: str) -> bool:
        """Return whether a query reads a table on Kafka, also through views."""
        query = parse_query(text)
        tables = [self.with_options(query, place) for place in query.options]
        return any(isinstance(table, KafkaTable) for table in (*tables, *self.tables_of(text)))

    def texts_of(self, text: str, beneath: frozenset[str] = frozenset()) -> Iterator[str]:
        """Yield a query and those of the views that it reads."""
        yield text
        for key in (self.read_by(text) & self.views.keys()) - beneath:
            if isinstance(query := self.views[key].query, str):
                yield from self.texts_of(query, beneath | {key})

    def tables_of(self, text: str) -> Iterator[Table]:
        """Yield the tables that a query reads, also through views."""
        for part in self.texts_of(text):
            for key in self.read_by(part) & self.tables.keys():
                yield self.tables[key]

    def read_by(self, text: str) -> frozenset[str]:
        """Return the tables and views of the environment that a query names."""
        return tables_here(text, self.places) & {*self.tables, *self.views}

    def changelogs(self, query: str, beneath: frozenset[str] = frozenset()) -> list[str]:
        """Return the changelog tables and views that a query reads, also through views, if it does not use `row_kind`."""
        if uses_row_kind(query):
            return []
        found = []
        for key in sorted(self.read_by(query) - versioned_tables(query) - beneath):
            if key in self.tables and self.tables[key].changelog:
                found.append(self.tables[key].definition.name[-1])
            elif key in self.views:
                view = self.views[key]
                if isinstance(view.query, str):
                    found += self.changelogs(view.query, beneath | {key})
                elif ROW_KIND in view.query.columns:
                    found.append(view.name)
        return found

    def with_options(self, query: Query, place: int) -> Table:
        """Return a table with the options of its hint in a query."""
        return _with(self.table(hinted(query, place)), query.options[place])

    def _only_with_options(self, query: Query) -> set[str]:
        """Return the tables that a query reads with the options of hints only, in lower case."""
        given = Counter(hinted(query, place)[-1].lower() for place in query.options)
        read = Counter(table.name.lower() for table in query.tables if is_ours(name_in(table), self.places))
        return {name for name, count in given.items() if read[name] == count}


def _with(table: Table, options: Mapping[str, str]) -> Table:
    definition = table.definition
    return table_of(replace(definition, options={**definition.options, **options})) if options else table


def hinted(query: Query, place: int) -> Name:
    """Return the name of a table with options in a hint."""
    for table in query.tables:
        if table.this.meta.get("start") == place:
            return name_in(table)
    return (tokenize(query.text, place)[0].text,)

"""Names of tables and views. There is one environment, and a script may say of which catalog and database it is.

A table is known by the last part of its name. The parts before it are kept, so that a query may name the table as the
script that created it does, and nobody else's table is taken for it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from sqlglot import exp

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.dialect.query import Query, name_in, parse_query
from dynamic_kafka.sql.tables.definition import DEFAULT_DATABASE, Name, database_of, qualified

__all__ = ["Databases", "is_ours", "key_of", "qualified_tables", "tables_here", "unqualified"]

_log = logging.getLogger(__name__)


class Databases:
    """The databases that a script creates and uses. They hold nothing: they are only parts of names."""

    def __init__(self) -> None:
        self._created: set[str] = set()
        self.current: Name = ()

    def create(self, name: Name, *, if_not_exists: bool) -> None:
        """Create a database.

        Raises:
            ConfigurationError: If it exists already, or is in another catalog than Flink's default one.
        """
        database = self._of_default_catalog(name)
        if database in (*self._created, DEFAULT_DATABASE[1]) and not if_not_exists:
            raise ConfigurationError(f"Database {qualified(name)} exists already. Write CREATE DATABASE IF NOT EXISTS")
        self._created.add(database)
        _log.warning(
            "Databases are only names here: tables of %s are in one environment with all others", qualified(name)
        )

    def use(self, name: Name, *, catalog: bool) -> None:
        """Let new tables without a database in their names be of this one.

        Raises:
            ConfigurationError: If it was not created here, or is a catalog other than Flink's default one.
        """
        database = self._of_default_catalog((*name, DEFAULT_DATABASE[1]) if catalog else name)
        if database not in (*self._created, DEFAULT_DATABASE[1]):
            raise ConfigurationError(
                f"Database {qualified(name)} was not created here. CREATE DATABASE it, or run USE in Spark for one of "
                "Spark's"
            )
        self.current = () if database == DEFAULT_DATABASE[1] else (database,)

    @staticmethod
    def _of_default_catalog(name: Name) -> str:
        if len(name) > 2 or (len(name) == 2 and name[0].lower() != DEFAULT_DATABASE[0]):
            raise ConfigurationError(
                f"Catalog {qualified(name[:-1])} does not exist here: all tables are in one environment. For a catalog "
                "of Spark (spark.sql.catalog.<name>), run the statement in Spark, and use its tables' names in queries"
            )
        return name[-1].lower()


def key_of(name: Name, places: Mapping[str, Name]) -> str:
    """Return the key of a table or view, which may not exist. `places` has the catalog and database of those that have one.

    Raises:
        ConfigurationError: If the name has a catalog or database that its table was not created in.
    """
    if not is_ours(name, places):
        raise ConfigurationError(
            f"Table {qualified(name)} was not created here. Catalogs and databases do not exist: a table is known by the "
            "last part of its name, and by the catalog and database that its CREATE TABLE names"
        )
    return name[-1].lower()


def is_ours(name: Name, places: Mapping[str, Name]) -> bool:
    """Return whether a name, if it is one of a table or view at all, is of one in the environment."""
    place = database_of(name)
    return not place or places.get(name[-1].lower(), ())[-len(place) :] == place


def qualified_tables(query: Query, places: Mapping[str, Name]) -> dict[int, str]:
    """Return the tables and views that a query names with their catalog or database: their keys by the place of the name."""
    found = {}
    for table in query.tables:
        place, start = database_of(name_in(table)), table.this.meta.get("start")
        key = table.name.lower()
        if place and start is not None and places.get(key, ())[-len(place) :] == place:
            found[start] = key
    return found


def tables_here(text: str, places: Mapping[str, Name]) -> frozenset[str]:
    """Return the names in a query, in lower case, that are tables and views of the environment if it has such.

    Parts of the query's WITH, and tables of Spark's catalogs, are not among them. In syntax that only Spark knows, any word
    may be a name.

    Raises:
        SqlError: If the query cannot be parsed.
    """
    query = parse_query(text)
    if query.tree is None:
        return frozenset(name.lower() for name in re.findall(r"`([^`]+)`|(\w+)", text) for name in name if name)
    return frozenset(table.name.lower() for table in query.tables if is_ours(name_in(table), places))


def unqualified(tree: exp.Query, places: Mapping[str, Name]) -> exp.Query:
    """Return a query in which tables and views of the environment have one name. Other qualified names stay."""
    found = tree.copy()
    for table in found.find_all(exp.Table):
        name = name_in(table)
        if len(name) > 1 and is_ours(name, places):
            table.set("catalog", None)
            table.set("db", None)
    return found

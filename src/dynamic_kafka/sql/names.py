"""Names of tables and views. There is one environment, and a script may say of which catalog and database it is.

A table is known by the last part of its name. The parts before it are kept, so that a query may name the table as the
script that created it does, and nobody else's table is taken for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.definition import Name, qualified

if TYPE_CHECKING:
    from dynamic_kafka.sql.dialect.query import Query

__all__ = ["Databases", "is_ours", "key_of", "place_of", "qualified_tables"]

_log = logging.getLogger(__name__)

_DEFAULTS = ("default_catalog", "default_database")


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
        if database in (*self._created, _DEFAULTS[1]) and not if_not_exists:
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
        database = self._of_default_catalog((*name, _DEFAULTS[1]) if catalog else name)
        if database not in (*self._created, _DEFAULTS[1]):
            raise ConfigurationError(
                f"Database {qualified(name)} was not created here. CREATE DATABASE it, or run USE in Spark for one of "
                "Spark's"
            )
        self.current = () if database == _DEFAULTS[1] else (database,)

    @staticmethod
    def _of_default_catalog(name: Name) -> str:
        if len(name) > 2 or (len(name) == 2 and name[0].lower() != _DEFAULTS[0]):
            raise ConfigurationError(
                f"Catalog {qualified(name[:-1])} does not exist here: all tables are in one environment. For a catalog "
                "of Spark (spark.sql.catalog.<name>), run the statement in Spark, and use its tables' names in queries"
            )
        return name[-1].lower()


def place_of(name: Name) -> Name:
    """Return the catalog and database of a name, in lower case; empty for Flink's default ones."""
    place = tuple(part.lower() for part in name[:-1])
    if place[:1] == _DEFAULTS[:1] and len(place) == 2:
        place = place[1:]
    return () if place == _DEFAULTS[1:] else place


def key_of(name: Name, places: Mapping[str, Name]) -> str:
    """Return the key of a table or view, which may not exist.

    Args:
        name: Its name, with or without its catalog and database.
        places: The catalog and database of those that were created with one, by key.

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
    place = place_of(name)
    return not place or places.get(name[-1].lower(), ())[-len(place) :] == place


def qualified_tables(query: Query, places: Mapping[str, Name]) -> dict[int, str]:
    """Return the tables and views that a query names with their catalog or database: their keys by the place of the name."""
    if query.tree is None:
        return {}
    from sqlglot import exp

    found = {}
    for table in query.tree.find_all(exp.Table):
        parts = [table.args[part].name for part in ("catalog", "db") if table.args.get(part)]
        place, start = place_of((*parts, table.name)), table.this.meta.get("start")
        key = table.name.lower()
        if place and start is not None and places.get(key, ())[-len(place) :] == place:
            found[start] = key
    return found

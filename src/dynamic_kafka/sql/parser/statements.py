"""The statements, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dynamic_kafka.sql.parser.create_table import AsQuery
from dynamic_kafka.sql.parser.like import Like
from dynamic_kafka.sql.tables.definition import Name, TableDefinition

__all__ = [
    "AddJar",
    "CreateDatabase",
    "CreateTable",
    "CreateView",
    "Describe",
    "Drop",
    "Explain",
    "InsertInto",
    "Kind",
    "Query",
    "Reset",
    "Set",
    "Show",
    "ShowCreate",
    "Statement",
    "StatementSet",
    "Use",
]

Kind = Literal["table", "view"]
"""What a DROP or SHOW is about."""


@dataclass(frozen=True)
class Statement:
    """One statement.

    `text` is as written, without the `;`; `repr` leaves it out because it may hold secrets. `line` is its first one in the
    script, counted from 1.
    """

    text: str = field(repr=False)
    line: int


@dataclass(frozen=True)
class AddJar(Statement):
    """ADD JAR, which has no effect: there are no JAR files here. What one is for is refused where it is used."""


@dataclass(frozen=True)
class CreateTable(Statement):
    """CREATE [TEMPORARY] TABLE.

    A table with `like` is complete only after `like.merge` with the other one, and a table with a query, CREATE TABLE ...
    AS, only with the columns of the query.
    """

    definition: TableDefinition
    like: Like | None = None
    as_query: AsQuery | None = None


@dataclass(frozen=True)
class CreateView(Statement):
    """CREATE [TEMPORARY] VIEW; `columns` are the names of all its columns, or empty if the query names them."""

    name: Name
    columns: tuple[str, ...]
    query: str = field(repr=False)
    comment: str | None
    if_not_exists: bool


@dataclass(frozen=True)
class CreateDatabase(Statement):
    """CREATE DATABASE [IF NOT EXISTS]; its comment and properties are not kept."""

    name: Name
    if_not_exists: bool


@dataclass(frozen=True)
class Use(Statement):
    """USE CATALOG, with a catalog's name, or USE with a database's."""

    catalog: bool
    name: Name


@dataclass(frozen=True)
class Drop(Statement):
    """DROP [TEMPORARY] TABLE or VIEW [IF EXISTS]."""

    kind: Kind
    name: Name
    if_exists: bool


@dataclass(frozen=True)
class Show(Statement):
    """SHOW TABLES or VIEWS [[NOT] LIKE 'pattern']; the pattern is SQL's, with `%` and `_`."""

    kind: Kind
    pattern: str | None
    negated: bool


@dataclass(frozen=True)
class ShowCreate(Statement):
    """SHOW CREATE TABLE or VIEW."""

    kind: Kind
    name: Name


@dataclass(frozen=True)
class Describe(Statement):
    """DESCRIBE or DESC, of a table or a view."""

    name: Name


@dataclass(frozen=True)
class InsertInto(Statement):
    """INSERT INTO table SELECT.

    `columns` are those that the query has values for, in its order; None for all. `query` is as written. `options` are the
    table's for this statement only, from a hint `/*+ OPTIONS('key' = 'value') */` after its name.
    """

    table: Name
    columns: tuple[str, ...] | None
    query: str = field(repr=False)
    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class StatementSet(Statement):
    """EXECUTE STATEMENT SET BEGIN ... END, or BEGIN STATEMENT SET; ... END: inserts that start together."""

    inserts: tuple[InsertInto, ...]


@dataclass(frozen=True)
class Set(Statement):
    """SET 'key' = 'value'; without a key, it lists all settings."""

    key: str | None
    value: str | None = field(repr=False)


@dataclass(frozen=True)
class Reset(Statement):
    """RESET 'key'; without a key, it resets all settings."""

    key: str | None


@dataclass(frozen=True)
class Query(Statement):
    """SELECT, WITH, VALUES and the like, in `text`."""


@dataclass(frozen=True)
class Explain(Statement):
    """EXPLAIN, with the statement to explain; details such as `CHANGELOG_MODE` are accepted, and make no difference."""

    statement: Query | InsertInto | StatementSet

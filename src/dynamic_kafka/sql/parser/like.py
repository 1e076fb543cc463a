"""CREATE TABLE ... LIKE: a table that takes over parts of another one.

The rules are those of Flink (SqlTableLike, MergeTableLikeUtil): columns of the other table come first. A part that both
tables have is an error, unless the statement excludes or overwrites it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.parser.lexer import Cursor
from dynamic_kafka.sql.tables.definition import (
    Column,
    ComputedColumn,
    MetadataColumn,
    Name,
    PhysicalColumn,
    TableDefinition,
    completed,
    qualified,
)

__all__ = ["Like", "merge", "read_like"]

_FEATURE_OF = {ComputedColumn: "GENERATED", MetadataColumn: "METADATA"}  # physical columns are always taken over
_FEATURES = ("CONSTRAINTS", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS")
# Tables here do not have it. Flink's DDL may name it, which has no effect.
_IGNORED = ("DISTRIBUTION",)
_NOT_OVERWRITTEN = ("ALL", "CONSTRAINTS", "PARTITIONS", *_IGNORED)


@dataclass(frozen=True)
class Like:
    """A LIKE clause: the other table, and INCLUDING, EXCLUDING or OVERWRITING for each of `_FEATURES`."""

    table: Name
    strategies: Mapping[str, str]


def read_like(cursor: Cursor) -> Like:
    """Parse a LIKE clause after this word: a name, and `(INCLUDING ... EXCLUDING ... OVERWRITING ...)`.

    Raises:
        SqlError: If it is something else, or Flink does not accept it.
    """
    table = cursor.qualified_name("a table's name")
    given: dict[str, str] = {}
    if cursor.take("("):
        while not cursor.take(")"):
            start = cursor.token
            strategy = cursor.take_one_of("INCLUDING", "EXCLUDING", "OVERWRITING")
            feature = strategy and cursor.take_one_of("ALL", *_FEATURES, *_IGNORED)
            if strategy is None:
                raise cursor.unexpected("INCLUDING, EXCLUDING, OVERWRITING or ')'")
            if feature is None:
                raise cursor.unexpected(f"one of {', '.join(('ALL', *_FEATURES))}")
            if feature in given:
                raise cursor.error(f"{feature} is given twice", start)
            if strategy == "OVERWRITING" and feature in _NOT_OVERWRITTEN:
                raise cursor.error(f"{feature} cannot be overwritten; write INCLUDING or EXCLUDING", start)
            given[feature] = strategy
    defaults: dict[str, str] = dict.fromkeys(_FEATURES, "INCLUDING")
    defaults["OPTIONS"] = "OVERWRITING"
    if "ALL" in given:
        defaults = dict.fromkeys(_FEATURES, given["ALL"])
    return Like(table, {feature: given.get(feature, defaults[feature]) for feature in _FEATURES})


def merge(table: TableDefinition, like: Like, other: TableDefinition) -> TableDefinition:
    """Return the table with the parts of another one that it takes over by LIKE.

    Raises:
        ConfigurationError: If both tables have a part that may not be overwritten, or if the result is not a valid table.
    """
    columns: dict[str, Column] = {
        c.name: c for c in other.columns if like.strategies.get(_FEATURE_OF.get(type(c), "")) != "EXCLUDING"
    }
    for column in table.columns:
        known = columns.get(column.name)
        if known is not None and (type(known) is not type(column) or isinstance(column, PhysicalColumn)):
            there = f"{qualified(like.table)} has a column `{column.name}` too"
            raise ConfigurationError(f"Table {qualified(table.name)}: {there}. Give it another name")
        if known is not None:
            _overwrite(table, like, _FEATURE_OF[type(column)], f"the column `{column.name}`")
        columns[column.name] = column

    options = {} if like.strategies["OPTIONS"] == "EXCLUDING" else dict(other.options)
    for key, value in table.options.items():
        if key in options:
            _overwrite(table, like, "OPTIONS", f"the option '{key}'")
        options[key] = value

    primary_key = () if like.strategies["CONSTRAINTS"] == "EXCLUDING" else other.primary_key
    if primary_key and table.primary_key:
        _overwrite(table, like, "CONSTRAINTS", "a primary key")
    partitioned_by = () if like.strategies["PARTITIONS"] == "EXCLUDING" else other.partitioned_by
    if partitioned_by and table.partitioned_by:
        _overwrite(table, like, "PARTITIONS", "partitions")
    watermark = None if like.strategies["WATERMARKS"] == "EXCLUDING" else other.watermark
    if watermark and table.watermark:
        _overwrite(table, like, "WATERMARKS", "a watermark")
    return completed(
        table,
        columns=tuple(columns.values()),
        primary_key=table.primary_key or primary_key,
        watermark=table.watermark or watermark,
        options=options,
        partitioned_by=table.partitioned_by or partitioned_by,
    )


def _overwrite(table: TableDefinition, like: Like, feature: str, what: str) -> None:
    """Raise ConfigurationError for a part that both tables have, unless LIKE overwrites it."""
    if like.strategies[feature] != "OVERWRITING":
        remedy = f"EXCLUDING {feature}" + ("" if feature in _NOT_OVERWRITTEN else f" or OVERWRITING {feature}")
        raise ConfigurationError(
            f"Table {qualified(table.name)}: {qualified(like.table)} has {what} already. Write LIKE ... ({remedy})"
        )

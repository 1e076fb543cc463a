"""A table's definition: its columns, key, watermark and options, and the DDL for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats.expressions import quoted
from dynamic_kafka.kafka.config.secrets import redact
from dynamic_kafka.sql.tables.types import UNITS_US, FlinkType, string_literal

__all__ = [
    "DEFAULT_DATABASE",
    "Column",
    "ComputedColumn",
    "MetadataColumn",
    "Name",
    "PhysicalColumn",
    "TableDefinition",
    "Watermark",
    "check_columns",
    "completed",
    "database_of",
    "fault",
    "qualified",
    "with_key_not_null",
]

Name = tuple[str, ...]
"""A table's name in its parts: `("orders",)`, or with its catalog and database in front."""

DEFAULT_DATABASE: Name = ("default_catalog", "default_database")
"""Flink's names of the catalog and database where all tables are."""

_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ")
_ANY_TIME = " or ".join(_TIMES)


@dataclass(frozen=True)
class PhysicalColumn:
    """A column of the message's key or value."""

    name: str
    type: FlinkType
    comment: str | None = None


@dataclass(frozen=True)
class MetadataColumn:
    """A column with metadata of the connector or of the format.

    `type` is the one that the metadata is cast to. `key` is the metadata's own name, such as `timestamp` or
    `value.source.table`; without FROM, the column's name. A virtual column is only read, and is not a column of an INSERT.
    """

    name: str
    type: FlinkType
    key: str
    virtual: bool = False
    comment: str | None = None


@dataclass(frozen=True)
class ComputedColumn:
    """A column computed from the others when the table is read; `expression` is SQL as the user wrote it."""

    name: str
    expression: str
    comment: str | None = None


Column = PhysicalColumn | MetadataColumn | ComputedColumn


@dataclass(frozen=True)
class Watermark:
    """The lateness allowed for rows.

    `expression` is as the user wrote it. The delay is an argument of Spark's `withWatermark`, such as `5 SECOND` or
    `1 DAY 2 HOUR`.
    """

    column: str
    expression: str
    delay: str

    @property
    def delay_ms(self) -> float:
        """Return the delay in milliseconds."""
        parts = self.delay.split()
        return sum(float(n) * UNITS_US[unit] / 1000 for n, unit in zip(parts[::2], parts[1::2], strict=True))


@dataclass(frozen=True)
class TableDefinition:
    """The content of a CREATE TABLE statement.

    Args:
        name: The name in its parts, as it was written.
        columns: All columns in order.
        primary_key: The columns of the primary key in its order; their types are NOT NULL.
        watermark: The watermark, if there is one.
        options: The options in WITH, with secrets; `repr` does not show them, and `ddl` masks the secrets.
        comment: The table's description.
        temporary: True for CREATE TEMPORARY TABLE.
        if_not_exists: True to keep a table of this name that exists already.
        partitioned_by: The columns of PARTITIONED BY.
    """

    name: Name
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    watermark: Watermark | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    comment: str | None = None
    temporary: bool = False
    if_not_exists: bool = False
    partitioned_by: tuple[str, ...] = ()

    @property
    def physical(self) -> tuple[PhysicalColumn, ...]:
        """Return the physical columns."""
        return tuple(c for c in self.columns if isinstance(c, PhysicalColumn))

    @property
    def metadata(self) -> tuple[MetadataColumn, ...]:
        """Return the metadata columns."""
        return tuple(c for c in self.columns if isinstance(c, MetadataColumn))

    @property
    def written(self) -> tuple[PhysicalColumn | MetadataColumn, ...]:
        """Return the columns that an INSERT has values for: all but computed and VIRTUAL ones."""
        stored = (c for c in self.columns if not isinstance(c, ComputedColumn))
        return tuple(c for c in stored if isinstance(c, PhysicalColumn) or not c.virtual)

    def ddl(self) -> str:
        """Return the CREATE TABLE statement in the layout of Flink's SHOW CREATE TABLE, with `***` for secrets."""
        parts = [_column(column) for column in self.columns]
        if self.watermark is not None:
            parts.append(f"WATERMARK FOR {quoted(self.watermark.column)} AS {self.watermark.expression}")
        if self.primary_key:
            parts.append(f"PRIMARY KEY ({', '.join(map(quoted, self.primary_key))}) NOT ENFORCED")
        head = "CREATE TEMPORARY TABLE" if self.temporary else "CREATE TABLE"
        head += " IF NOT EXISTS" if self.if_not_exists else ""
        text = f"{head} {qualified(self.name)} (\n{_lines(parts)})"
        text += f"\nCOMMENT {string_literal(self.comment)}" if self.comment is not None else ""
        if self.partitioned_by:
            text += f"\nPARTITIONED BY ({', '.join(map(quoted, self.partitioned_by))})"
        if self.options:
            options = [f"{string_literal(k)} = {string_literal(v)}" for k, v in redact(self.options).items()]
            text += f"\nWITH (\n{_lines(options)})"
        return text


def with_key_not_null(table: TableDefinition) -> TableDefinition:
    """Return the table with NOT NULL for the columns of its primary key, as in Flink."""
    columns = (
        replace(c, type=replace(c.type, nullable=False))
        if c.name in table.primary_key and isinstance(c, PhysicalColumn)
        else c
        for c in table.columns
    )
    return replace(table, columns=tuple(columns))


def fault(table: TableDefinition) -> tuple[Literal["PRIMARY KEY", "WATERMARK"], str, str] | None:
    """Return the clause, the column and the problem if the key or the watermark is wrong; None if both are right."""
    by_name = {column.name: column for column in table.columns}
    for name in table.primary_key:
        if not isinstance(by_name.get(name), PhysicalColumn):
            why = "is not a physical column; it has to be one" if name in by_name else "does not exist"
            return "PRIMARY KEY", name, f"PRIMARY KEY refers to column `{name}`, which {why}"
    if table.watermark is not None:
        name = table.watermark.column
        column = by_name.get(name)
        if column is None:
            return "WATERMARK", name, f"WATERMARK refers to column `{name}`, which does not exist"
        # The type of a computed column is known to Spark only.
        if not isinstance(column, ComputedColumn) and column.type.name not in _TIMES:
            problem = f"WATERMARK refers to column `{name}` of type {column.type}; it has to be {_ANY_TIME}"
            return "WATERMARK", name, problem
    return None


def completed(table: TableDefinition, **parts: Any) -> TableDefinition:
    """Return a table with other parts, in which the columns of the key are NOT NULL.

    Raises:
        ConfigurationError: If its key or its watermark is wrong then.
    """
    found = with_key_not_null(replace(table, **parts))
    if wrong := fault(found):
        raise ConfigurationError(f"Table {qualified(table.name)}: {wrong[2]}")
    return found


def check_columns(table: TableDefinition) -> None:
    """Raise unless a table has a physical column, and each column has its own name for Spark.

    Raises:
        ConfigurationError: With the column.
    """
    lower = [column.name.lower() for column in table.columns]
    for column in table.columns:
        if lower.count(column.name.lower()) > 1:
            raise ConfigurationError(
                f"Table {qualified(table.name)} has two columns '{column.name}' (Spark does not distinguish upper and lower "
                "case). Give each its own name"
            )
    if not table.physical:
        raise ConfigurationError(
            f"Table {qualified(table.name)} does not have a physical column; add at least one, which has stored values"
        )


def qualified(name: Name) -> str:
    """Return a table's name as in SQL, each part in backticks."""
    return ".".join(map(quoted, name))


def database_of(name: Name) -> Name:
    """Return the catalog and database of a name, in lower case; empty for Flink's default ones."""
    place = tuple(part.lower() for part in name[:-1])
    if place[:1] == DEFAULT_DATABASE[:1] and len(place) == 2:
        place = place[1:]
    return () if place == DEFAULT_DATABASE[1:] else place


def _lines(parts: list[str]) -> str:
    return "".join(f"  {part},\n" for part in parts).removesuffix(",\n") + "\n"


def _column(column: Column) -> str:
    match column:
        case PhysicalColumn(name, type_):
            text = f"{quoted(name)} {type_}"
        case MetadataColumn(name, type_, key, virtual):
            text = f"{quoted(name)} {type_} METADATA"
            text += f" FROM {string_literal(key)}" if key != name else ""
            text += " VIRTUAL" if virtual else ""
        case ComputedColumn(name, expression):
            text = f"{quoted(name)} AS {expression}"
    return text if column.comment is None else f"{text} COMMENT {string_literal(column.comment)}"

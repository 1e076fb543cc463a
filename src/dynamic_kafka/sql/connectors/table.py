"""A table that is not on Kafka, and the rules for its options and columns; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dynamic_kafka.errors import ConfigurationError, UnknownOptionError
from dynamic_kafka.options import Option, option_names
from dynamic_kafka.sink.configure import SINK_OPTIONS
from dynamic_kafka.source.configure import SOURCE_OPTIONS
from dynamic_kafka.sql.tables.definition import (
    TableDefinition,
    check_columns,
    qualified,
)
from dynamic_kafka.sql.tables.options import CONNECTOR

__all__ = ["READ_PARALLELISM", "WRITE_PARALLELISM", "Connector", "OtherTable", "other_table"]

READ_PARALLELISM, WRITE_PARALLELISM = (
    replace(
        next(option for option in of_kafka if option.key == key),
        shown_default="",
        doc=f"The number of tasks that {do}.",
    )
    for of_kafka, key, do in ((SOURCE_OPTIONS, "scan.parallelism", "read"), (SINK_OPTIONS, "sink.parallelism", "write"))
)


@dataclass(frozen=True)
class Connector:
    """A kind of tables that are not on Kafka.

    Args:
        options: Its options, besides `connector`.
        required: Those of its options that each table needs.
        read: Returns a table's rows, with its physical and metadata columns; None if it can only be written. They are a
            stream if the table has no end.
        write: Writes rows at once; None if it can only be read. The rows have the physical columns, and `row_kind` as the
            last one if `takes_changes`.
        start: Starts writing the rows of a stream. It gets the writer with the query's name, checkpoint and trigger.
        check: Raises `ConfigurationError` if the table is wrong.
        endless: Returns what would give a table without an end one; None if it has one.
        prefixes: The beginnings of options that cannot be listed one by one.
        metadata: The keys of its metadata columns.
        takes_changes: Whether each of its tables takes the changes of a changelog, also without a key.
        keeps_nothing: Whether a stream may be written to it without a checkpoint of its own.
        encode: Returns the rows as they are written.
        place: Returns the folder that only one stream may write to; empty if several may.
        check_start: Raises `ConfigurationError` if a stream with this checkpoint would not write all of its rows.
    """

    options: tuple[Option[Any], ...] = ()
    read: Callable[[SparkSession, OtherTable], DataFrame] | None = None
    write: Callable[[DataFrame, OtherTable], None] | None = None
    start: Callable[[DataStreamWriter, OtherTable, DataFrame], Any] | None = None
    check: Callable[[OtherTable], None] = lambda _: None
    endless: Callable[[OtherTable], str | None] = lambda _: None
    prefixes: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    takes_changes: bool = False
    keeps_nothing: bool = False
    required: tuple[Option[Any], ...] = ()
    encode: Callable[[DataFrame, OtherTable], DataFrame] = lambda rows, _: rows
    place: Callable[[OtherTable], str] = lambda _: ""
    check_start: Callable[[SparkSession, OtherTable, str | None], None] = lambda *_: None


@dataclass(frozen=True)
class OtherTable:
    """A table that is not on Kafka, with its options checked.

    `options` are parsed, by key, and `rest` are those that cannot be listed one by one, as texts. `key_columns` identify a
    row, if rows with the same key replace each other.
    """

    definition: TableDefinition
    kind: Connector
    options: Mapping[str, Any] = field(repr=False)
    rest: Mapping[str, str] = field(default_factory=dict, repr=False)
    key_columns: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return its name as in SQL."""
        return qualified(self.definition.name)

    @property
    def bounded(self) -> bool:
        """Return whether it has an end."""
        return self.kind.endless(self) is None

    @property
    def changelog(self) -> bool:
        """Return whether its rows are changes when it is read: never."""
        return False

    @property
    def upsert(self) -> bool:
        """Return whether a row replaces the row with its key."""
        return bool(self.key_columns)

    @property
    def takes_changes(self) -> bool:
        """Return whether rows that are written may have a `row_kind`."""
        return self.upsert or self.kind.takes_changes

    def can_only(self, what: str) -> ConfigurationError:
        """Return the error for reading a table that can only `be written to`, or the other way round."""
        connector = self.definition.options["connector"]
        return ConfigurationError(f"Table {self.name} has 'connector' = '{connector}', which can only {what}")


def other_table(definition: TableDefinition, kind: Connector, key: tuple[str, ...] = ()) -> OtherTable:
    """Check a table's definition, and return the table; `key` are the columns that identify a row.

    Raises:
        ConfigurationError: If an option or a column is wrong.
    """
    known = option_names(kind.options)
    options, rest = {}, {}
    for name, text in definition.options.items():
        if name in known:
            options[known[name].key] = known[name].parse(text, name)
        elif name.startswith(kind.prefixes):
            rest[name] = text
        elif name == CONNECTOR.key:
            options[name] = text
        else:
            raise UnknownOptionError(name, [*known, CONNECTOR.key])
    for column in definition.metadata:
        nobody_reads_it = column.virtual and kind.read is None  # a table LIKE one of Kafka
        if column.key not in kind.metadata and not nobody_reads_it:
            has = f"has the metadata {', '.join(kind.metadata)}" if kind.metadata else "has no metadata"
            raise ConfigurationError(
                f"Column '{column.name}' is METADATA FROM '{column.key}', but the connector '{options.get('connector')}' "
                f"{has}. Leave the column out (LIKE ... EXCLUDING METADATA)"
            )
    check_columns(definition)
    _check_partitions(definition, kind.options)
    table = OtherTable(definition, kind, options, rest, key)
    for option in kind.required:
        if option.key not in options:
            raise ConfigurationError(f"Option '{option.key}' is missing; table {table.name} needs it")
    kind.check(table)
    return table


def _check_partitions(definition: TableDefinition, options: Sequence[Option[Any]]) -> None:
    """Raise unless the partition columns are physical ones, of a connector that has a path."""
    if not definition.partitioned_by:
        return
    if "path" not in {option.key for option in options}:
        raise ConfigurationError(
            f"PARTITIONED BY of table {qualified(definition.name)} is for 'connector' = 'filesystem'. Leave it out"
        )
    physical = [column.name for column in definition.physical]
    for name in definition.partitioned_by:
        if name not in physical:
            raise ConfigurationError(
                f"PARTITIONED BY of table {qualified(definition.name)} names the column '{name}', but its physical columns "
                f"are {', '.join(physical)}"
            )
    if len(definition.partitioned_by) == len(physical):
        raise ConfigurationError(
            f"All columns of table {qualified(definition.name)} are in PARTITIONED BY, so its files would be empty. Leave "
            "one out"
        )

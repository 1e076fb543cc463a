"""A table with its options checked: all rules of the SQL connectors, without I/O.

Rules (Flink's "Apache Kafka SQL Connector" documentation, KafkaConnectorOptionsUtil and
UpsertKafkaDynamicTableFactory):

1. The key format has the columns of `key.fields`, in that order, without `key.fields-prefix`; for `upsert-kafka` those of
   the PRIMARY KEY. The value format has all physical columns, or with EXCEPT_KEY those that are not in the key.
2. A PRIMARY KEY is for changelogs: for `upsert-kafka`, and for `kafka` with a changelog format. The formats of
   `upsert-kafka`, and all key formats, are formats of rows.
3. The options of the source and the sink are checked by them when the table is created. Those about the start and the
   end of reading that the modes do not use are left out first (`without_unused`).
4. The default subject in a schema registry is the topic's name with `-key` or `-value`, if there is one topic.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import eq

from pyspark.sql.types import DataType, StructField, StructType

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError
from dynamic_kafka.formats import ROW_KIND, Format, FormatOptions, format_named
from dynamic_kafka.formats.options import DEAD_LETTER_TOPIC, ON_ERROR, check_unknown, format_options
from dynamic_kafka.sink.configure import configure_sink
from dynamic_kafka.sink.settings import SinkSettings
from dynamic_kafka.source.configure import SUBSCRIPTIONS, configure_source
from dynamic_kafka.spark.dead_letters import DeadLetters, letters_of
from dynamic_kafka.sql.tables.definition import TableDefinition, check_columns, qualified
from dynamic_kafka.sql.tables.metadata_columns import METADATA_KEYS, metadata_types
from dynamic_kafka.sql.tables.options import (
    CONNECTOR,
    KEY_FIELDS,
    KEY_FIELDS_PREFIX,
    TABLE_KEYS,
    UPSERT_BUFFER,
    VALUE_FIELDS_INCLUDE,
    TableOptions,
    split_options,
    value_format_option,
    with_subject,
    without_properties,
    without_unused,
)
from dynamic_kafka.sql.tables.types import alike, flink_type, spark_type, time_precision

__all__ = ["Encoding", "KafkaTable", "table_of", "with_start"]

_log = logging.getLogger(__name__)

_GROUP = "properties.group.id"


@dataclass(frozen=True)
class Encoding:
    """The columns and the format of the key or the value of messages.

    `name` is `key` or `value`, and `prefix` is the beginning of the names of the format's options. `columns` are the
    table's, in order. `schema` has the same ones as the format's fields, with names without a prefix.
    """

    name: str
    prefix: str
    format: Format
    options: FormatOptions
    columns: tuple[str, ...]
    schema: StructType


@dataclass(frozen=True)
class KafkaTable:
    """A table with its options checked.

    Args:
        definition: The definition by the user.
        connector: One of `options.CONNECTORS`.
        key: The encoding of keys; None if the table does not have a key.
        value: The encoding of values.
        source: The options for the source.
        sink: The options for the sink.
        on_error: The policy for messages that cannot be read.
        letters: The topic for them, for the policy `dead-letter`.
        bounded: Whether it has an end.
        wanted: Which rows a query wants of it, as `wanted_rows`; empty for all.
    """

    definition: TableDefinition
    connector: str
    key: Encoding | None
    value: Encoding
    source: Mapping[str, str] = field(repr=False)
    sink: Mapping[str, str] = field(repr=False)
    on_error: str = "fail"
    letters: DeadLetters | None = None
    bounded: bool = False
    wanted: str = ""

    @cached_property
    def sink_settings(self) -> SinkSettings:
        """Return the settings of the sink. Raise ConfigurationError for a table of several streams: it is only read."""
        return configure_sink(self.sink)

    @property
    def upsert(self) -> bool:
        """Return whether a message replaces the row of its key."""
        return self.connector == "upsert-kafka"

    @property
    def changelog(self) -> bool:
        """Return whether its rows are changes, with their kind in a column `row_kind`."""
        return self.upsert or self.value.format.changelog

    @property
    def takes_changes(self) -> bool:
        """Return whether rows that are written may have a `row_kind`."""
        return self.changelog

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Return the columns that identify a row."""
        return self.definition.primary_key

    @property
    def name(self) -> str:
        """Return its name as in SQL."""
        return qualified(self.definition.name)


def table_of(definition: TableDefinition) -> KafkaTable:
    """Check a table's definition, and return the table.

    Raises:
        ConfigurationError: If it is wrong, with the option or column, its value and the expected ones.
    """
    options = split_options(without_properties(definition.options, qualified(definition.name)))
    connector: str = CONNECTOR.of(options.sql)
    physical = {c.name: spark_type(c.type) for c in definition.physical}
    if definition.partitioned_by:
        raise ConfigurationError(
            "PARTITIONED BY does not go with Kafka tables, which have no partition columns: see 'sink.partitioner'"
        )
    check_columns(definition)
    key, value = _encodings(definition, options, physical)
    if connector == "upsert-kafka":
        _check_upsert(definition, options, key, value)
    elif definition.primary_key and not value.format.changelog:
        raise ConfigurationError(
            f"The table has a PRIMARY KEY, but the format '{value.format.name}' only appends rows. Leave the key out, use a "
            "changelog format such as debezium-json, or 'connector' = 'upsert-kafka'"
        )
    _check_metadata(definition, value.format)
    is_changelog = connector == "upsert-kafka" or value.format.changelog
    if is_changelog and any(c.name.lower() == ROW_KIND for c in definition.columns):
        raise ConfigurationError(
            f"Column '{ROW_KIND}' has the name of the column with the kind of a row's change. Give it another name"
        )
    source, sink = dict(options.source), dict(options.sink)
    if connector == "upsert-kafka" and "history.path" not in source:
        source["scan.startup.mode"] = "earliest-offset"
    for column in definition.metadata:
        wanted = METADATA_KEYS.get(column.key)
        if wanted is not None and wanted.option is not None:
            source[wanted.option] = "true"
    source = without_unused(source, qualified(definition.name))
    _check_subscription(definition, connector, source)
    # A table of several streams can only be read; `sink.parallelism` can be a default of all tables.
    if connector != "dynamic-kafka" or any(name.startswith("sink.") for name in sink.keys() - {"sink.parallelism"}):
        _check_sink(sink, key)
    return KafkaTable(
        definition=definition,
        connector=connector,
        key=key,
        value=value,
        source=source,
        sink=sink,
        on_error=ON_ERROR.of(options.sql),
        letters=letters_of(ON_ERROR.of(options.sql), DEAD_LETTER_TOPIC.of(options.sql), sink, options.dead_letter),
        bounded=_is_bounded(source),
    )


def _check_subscription(definition: TableDefinition, connector: str, source: Mapping[str, str]) -> None:
    """Raise unless a table says what it reads, by the options of its connector."""
    if not SUBSCRIPTIONS & {name.lower() for name in source}:
        options = "'stream-ids' or 'stream-pattern'" if connector == "dynamic-kafka" else "'topic' or 'topic-pattern'"
        raise ConfigurationError(
            f"What table {qualified(definition.name)} reads is missing: with 'connector' = '{connector}', give {options}"
        )


# --- key and value ------------------------------------------------------------------------------------------------------


def _encodings(
    definition: TableDefinition, options: TableOptions, physical: Mapping[str, DataType]
) -> tuple[Encoding | None, Encoding]:
    sql = options.sql
    value_option = value_format_option(sql)
    if "format" in sql and sql.get("value.format", sql["format"]) != sql["format"]:
        _log.warning(
            "Table %s: 'value.format' = '%s' has no effect beside 'format' = '%s', as in Flink",
            qualified(definition.name),
            sql["value.format"],
            sql["format"],
        )
    if value_option not in sql:
        raise ConfigurationError("Option 'format' (or 'value.format') is missing; it names the format of values")
    value_prefix = "" if value_option == "format" else "value."
    value_format = format_named(sql[value_option], value_option)
    formats = [(value_prefix, value_format)]
    key_format = None
    if "key.format" in sql:
        key_format = format_named(sql["key.format"], "key.format")
        formats.append(("key.", key_format))
        if key_format.changelog:
            raise ConfigurationError(
                f"Option 'key.format' has the value '{key_format.name}', a changelog format; a key needs a format of rows, "
                "such as json"
            )
    value_options, used = format_options(value_format, value_prefix, options.rest)
    key_options, used_by_key = format_options(key_format, "key.", options.rest) if key_format else ({}, set())
    check_unknown(options.rest.keys() - used - used_by_key, formats, TABLE_KEYS)

    key_columns = _key_columns(definition, options, physical)
    prefix: str = KEY_FIELDS_PREFIX.of(sql)
    value_columns = tuple(physical)
    if VALUE_FIELDS_INCLUDE.of(sql) == "except-key":
        value_columns = tuple(name for name in physical if name not in key_columns)
    elif prefix:
        raise ConfigurationError(
            "Option 'key.fields-prefix' needs 'value.fields-include' = 'EXCEPT_KEY': with ALL, the value would have "
            "columns with the prefix"
        )
    for name in key_columns:
        if not name.startswith(prefix):
            raise ConfigurationError(
                f"Column '{name}' of 'key.fields' does not begin with 'key.fields-prefix' = '{prefix}'"
            )
    types = {c.name: c.type for c in definition.physical}

    def encoding(start: str, used: Format, given: FormatOptions, columns: Sequence[str]) -> Encoding:
        name, cut = ("key", len(prefix)) if start == "key." else ("value", 0)
        # Some formats write a NOT NULL field differently: Avro without a union, as in Flink.
        fields = [
            StructField(column[cut:], physical[column], types[column].nullable, time_precision(types[column]))
            for column in columns
        ]
        given = with_subject(used, given, options.source, name)
        used.check(StructType(fields), given)
        return Encoding(name, start, used, given, tuple(columns), StructType(fields))

    key = encoding("key.", key_format, key_options, key_columns) if key_format else None
    return key, encoding(value_prefix, value_format, value_options, value_columns)


def _key_columns(
    definition: TableDefinition, options: TableOptions, physical: Mapping[str, DataType]
) -> tuple[str, ...]:
    sql = options.sql
    if sql["connector"] == "upsert-kafka":
        return tuple(definition.primary_key)
    fields: tuple[str, ...] = KEY_FIELDS.of(sql)
    if fields and "key.format" not in sql:
        raise ConfigurationError("Option 'key.fields' needs 'key.format', which names the format of keys")
    if "key.format" in sql and not fields:
        raise ConfigurationError(
            "Option 'key.format' needs 'key.fields', which names the key's columns, separated by ';'"
        )
    for name in fields:
        if name not in physical:
            raise ConfigurationError(
                f"Option 'key.fields' names the column '{name}', but the table's physical columns are {', '.join(physical)}"
            )
    if len(set(fields)) < len(fields):
        raise ConfigurationError(f"Option 'key.fields' names a column twice: {';'.join(fields)}")
    return fields


# --- columns ------------------------------------------------------------------------------------------------------------


def _check_metadata(definition: TableDefinition, value: Format) -> None:
    known = metadata_types(value)
    for column in definition.metadata:
        if column.key not in known:
            raise ConfigurationError(
                f"Column '{column.name}' is METADATA FROM '{column.key}', which does not exist. The keys are "
                f"{', '.join(known)}"
            )
        given, wanted = known[column.key], spark_type(column.type)
        if (_is_nested(given) or _is_nested(wanted)) and not alike(given, wanted, eq):
            raise ConfigurationError(
                f"Column '{column.name}' is {column.type}, but the metadata '{column.key}' is {flink_type(given)}"
            )


def _is_nested(data_type: DataType) -> bool:
    return data_type.typeName() in ("array", "map", "struct", "binary")


# --- rules of connectors ------------------------------------------------------------------------------------------------


def _check_upsert(definition: TableDefinition, options: TableOptions, key: Encoding | None, value: Encoding) -> None:
    if not definition.primary_key:
        raise ConfigurationError(
            "'connector' = 'upsert-kafka' needs a PRIMARY KEY (...) NOT ENFORCED: its columns are the key of messages"
        )
    if key is None:
        raise ConfigurationError(
            "Option 'key.format' is missing; 'upsert-kafka' keeps the PRIMARY KEY in the message key"
        )
    if value.format.changelog:
        raise ConfigurationError(
            f"Option 'value.format' has the value '{value.format.name}', a changelog format; 'upsert-kafka' needs a "
            "format of rows, such as json: keys and null values make the changelog"
        )
    buffer = [bool(option.of(options.sql)) for option in UPSERT_BUFFER]
    if any(buffer) and not all(buffer):
        raise ConflictingOptionsError([option.key for option in UPSERT_BUFFER], "set both above 0, or neither")


def with_start(source: Mapping[str, str]) -> dict[str, str]:
    """Return the source's options, with Flink's default start if they do not have one: the group's offsets."""
    given = "scan.startup.mode" in source or any(name.lower().startswith("starting") for name in source)
    given = given or "history.path" in source  # the history says where Kafka goes on
    return dict(source) if given else {"scan.startup.mode": "group-offsets", **source}


def _is_bounded(source: Mapping[str, str]) -> bool:
    """Let the source check its options, and return whether it stops. A table that is only written to needs no group."""
    named = _GROUP in source or "kafka.group.id" in source
    options = with_start(source) | ({} if named else {_GROUP: "unknown"})
    return configure_source(options).stopping is not None


def _check_sink(sink: Mapping[str, str], key: Encoding | None) -> None:
    if key is not None and sink.get("sink.partitioner") == "round-robin":
        raise ConflictingOptionsError(
            ["sink.partitioner", "key.fields"], "round-robin does not use keys; use default or fixed"
        )
    configure_sink(sink)

"""From a table's definition to what reads and writes it; every rule of the SQL connectors is checked here, without I/O.

Rules (the seed on Kafka SQL; Flink's KafkaConnectorOptionsUtil and UpsertKafkaDynamicTableFactory):

1. The key format has the columns of `key.fields`, in that order, without `key.fields-prefix`; for `upsert-kafka` those of
   the PRIMARY KEY. The value format has all physical columns, or with EXCEPT_KEY all others.
2. A PRIMARY KEY is for changelogs: for `upsert-kafka`, and for `kafka` with a changelog format. Formats of `upsert-kafka`,
   and all key formats, are of rows.
3. What the source and the sink say about their own options, they say when the table is made.
4. A schema registry's subject is the topic's name with `-key` or `-value`, if there is one topic and no other subject.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError
from dynamic_kafka.formats import ROW_KIND, Format, FormatOptions, format_named
from dynamic_kafka.formats.options import ON_ERROR, check_unknown, format_options
from dynamic_kafka.initializer import KafkaOffsetsInitializer
from dynamic_kafka.sink.configure import configure_sink
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.sql.dead_letters import DeadLetters
from dynamic_kafka.sql.definition import MetadataColumn, PhysicalColumn, TableDefinition
from dynamic_kafka.sql.metadata_columns import METADATA_KEYS, metadata_types
from dynamic_kafka.sql.options import (
    CONNECTOR,
    DEAD_LETTER_TOPIC,
    KEY_FIELDS,
    KEY_FIELDS_PREFIX,
    TABLE_KEYS,
    UPSERT_BUFFER,
    VALUE_FIELDS_INCLUDE,
    TableOptions,
    split_options,
)
from dynamic_kafka.sql.types import flink_type, spark_type, time_precision

__all__ = ["Encoding", "KafkaTable", "only_topic", "table_of", "with_start"]

_GROUP = "properties.group.id"


@dataclass(frozen=True)
class Encoding:
    """How the key or the value of messages is made of columns.

    Args:
        name: `key` or `value`.
        format: Its format.
        options: The format's options.
        columns: The table's columns, in order.
        schema: The same as the format's fields, which have names without a prefix.
    """

    name: str
    format: Format
    options: FormatOptions
    columns: tuple[str, ...]
    schema: StructType


@dataclass(frozen=True)
class KafkaTable:
    """A table whose options were checked.

    Args:
        definition: What the user wrote.
        connector: One of `options.CONNECTORS`.
        key: How keys are encoded; None if the table has none.
        value: How values are encoded.
        source: Options for the source.
        sink: Options for the sink.
        on_error: What a message that cannot be read does.
        letters: Where it is set aside, if it is.
    """

    definition: TableDefinition
    connector: str
    key: Encoding | None
    value: Encoding
    source: Mapping[str, str] = field(repr=False)
    sink: Mapping[str, str] = field(repr=False)
    on_error: str = "fail"
    letters: DeadLetters | None = None

    @property
    def upsert(self) -> bool:
        """Whether a message replaces the row of its key."""
        return self.connector == "upsert-kafka"

    @property
    def changelog(self) -> bool:
        """Whether its rows say how they change it, in a column `row_kind`."""
        return self.upsert or self.value.format.changelog

    @property
    def metadata(self) -> tuple[MetadataColumn, ...]:
        """Its metadata columns."""
        return tuple(c for c in self.definition.columns if isinstance(c, MetadataColumn))


def table_of(definition: TableDefinition) -> KafkaTable:
    """Check a table's definition.

    Args:
        definition: What the user wrote.

    Raises:
        ConfigurationError: Naming the option or column, its value and what would be right.
    """
    options = split_options(definition.options)
    connector: str = CONNECTOR.of(options.sql)
    physical = {c.name: spark_type(c.type) for c in definition.columns if isinstance(c, PhysicalColumn)}
    _check_columns(definition)
    key, value = _encodings(definition, options, physical)
    if connector == "upsert-kafka":
        _check_upsert(definition, options, key, value)
    elif definition.primary_key and not value.format.changelog:
        raise ConfigurationError(
            f"The table has a PRIMARY KEY, but the format '{value.format.name}' only appends rows; leave the key out, use a "
            "changelog format such as debezium-json, or 'connector' = 'upsert-kafka'"
        )
    _check_metadata(definition, value.format)
    if (connector == "upsert-kafka" or value.format.changelog) and ROW_KIND in {
        c.name.lower() for c in definition.columns
    }:
        raise ConfigurationError(
            f"Column '{ROW_KIND}' has the name of the column that says how a row changes; give it another one"
        )
    source, sink = dict(options.source), dict(options.sink)
    if connector == "upsert-kafka":
        source["scan.startup.mode"] = "earliest-offset"
    for column in (c for c in definition.columns if isinstance(c, MetadataColumn)):
        wanted = METADATA_KEYS.get(column.key)
        if wanted is not None and wanted.option is not None:
            source[wanted.option] = "true"
    _check_source(source)
    # A stream that is only read may be one of several; how many tasks write can be a default of all tables.
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
        letters=_letters(options),
    )


# --- key and value ------------------------------------------------------------------------------------------------------


def _encodings(
    definition: TableDefinition, options: TableOptions, physical: Mapping[str, DataType]
) -> tuple[Encoding | None, Encoding]:
    sql = options.sql
    if "format" in sql and "value.format" in sql:
        raise ConflictingOptionsError(["format", "value.format"], "they are one option; give one of them")
    value_option = "format" if "format" in sql else "value.format"
    if value_option not in sql:
        raise ConfigurationError("Option 'format' (or 'value.format') is missing; it says how values are encoded")
    value_prefix = "" if value_option == "format" else "value."
    value_format = format_named(sql[value_option], value_option)
    formats = [(value_prefix, value_format)]
    key_format = None
    if "key.format" in sql:
        key_format = format_named(sql["key.format"], "key.format")
        formats.append(("key.", key_format))
        if key_format.changelog:
            raise ConfigurationError(
                f"Option 'key.format' has the value '{key_format.name}', a changelog format; a key needs one of rows, such "
                "as json"
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
            "Option 'key.fields-prefix' needs 'value.fields-include' = 'EXCEPT_KEY': with ALL, the value would have the "
            "columns with the prefix"
        )
    for name in key_columns:
        if not name.startswith(prefix):
            raise ConfigurationError(
                f"Column '{name}' of 'key.fields' does not begin with 'key.fields-prefix' = '{prefix}'"
            )
    topic = only_topic(options.source)
    types = {c.name: c.type for c in definition.columns if isinstance(c, PhysicalColumn)}

    def encoding(name: str, used: Format, given: FormatOptions, columns: Sequence[str], cut: int) -> Encoding:
        # Some formats write what is NOT NULL in another way: Avro without a union, as Flink does.
        fields = [
            StructField(column[cut:], physical[column], types[column].nullable, time_precision(types[column]))
            for column in columns
        ]
        if used.registry is not None and used.registry not in given and topic is not None:
            given = {**given, used.registry: f"{topic}-{name}"}
        used.check(StructType(fields), given)
        return Encoding(name, used, given, tuple(columns), StructType(fields))

    key = encoding("key", key_format, key_options, key_columns, len(prefix)) if key_format else None
    return key, encoding("value", value_format, value_options, value_columns, 0)


def _key_columns(
    definition: TableDefinition, options: TableOptions, physical: Mapping[str, DataType]
) -> tuple[str, ...]:
    sql = options.sql
    if sql["connector"] == "upsert-kafka":
        return tuple(definition.primary_key)
    fields: tuple[str, ...] = KEY_FIELDS.of(sql)
    if fields and "key.format" not in sql:
        raise ConfigurationError("Option 'key.fields' needs 'key.format', which says how the key is encoded")
    if "key.format" in sql and not fields:
        raise ConfigurationError(
            "Option 'key.format' needs 'key.fields', which names the key's columns, separated by ';'"
        )
    for name in fields:
        if name not in physical:
            raise ConfigurationError(
                f"Option 'key.fields' names the column '{name}'; the table's physical columns are {', '.join(physical)}"
            )
    if len(set(fields)) < len(fields):
        raise ConfigurationError(f"Option 'key.fields' names a column twice: {';'.join(fields)}")
    return fields


def only_topic(options: Mapping[str, str]) -> str | None:
    """The topic that the option `topic` names; None if it names several, or is not given.

    Args:
        options: Those of a source or of a sink.
    """
    topics = [name for part in options.get("topic", "").replace(",", ";").split(";") if (name := part.strip())]
    return topics[0] if len(topics) == 1 else None


# --- columns ------------------------------------------------------------------------------------------------------------


def _check_columns(definition: TableDefinition) -> None:
    names = [column.name for column in definition.columns]
    lower = [name.lower() for name in names]
    for name in names:
        if lower.count(name.lower()) > 1:
            raise ConfigurationError(
                f"Column '{name}' is there {lower.count(name.lower())} times (Spark takes upper and lower case for the "
                "same); give each its own name"
            )
    if not any(isinstance(column, PhysicalColumn) for column in definition.columns):
        raise ConfigurationError("The table has no physical column; name at least one that is in the messages")


def _check_metadata(definition: TableDefinition, value: Format) -> None:
    known = metadata_types(value)
    for column in definition.columns:
        if not isinstance(column, MetadataColumn):
            continue
        if column.key not in known:
            raise ConfigurationError(
                f"Column '{column.name}' is METADATA FROM '{column.key}', which does not exist; there are "
                f"{', '.join(known)}"
            )
        given, wanted = known[column.key], spark_type(column.type)
        if (_is_nested(given) or _is_nested(wanted)) and not _is_alike(given, wanted):
            raise ConfigurationError(
                f"Column '{column.name}' is {column.type}, but the metadata '{column.key}' is {flink_type(given)}"
            )


def _is_alike(given: DataType, wanted: DataType) -> bool:
    """Whether two types differ only in what may be null, and in the names of fields."""
    if given.typeName() != wanted.typeName():
        return False
    match given, wanted:
        case ArrayType(), ArrayType():
            return _is_alike(given.elementType, wanted.elementType)
        case MapType(), MapType():
            return _is_alike(given.keyType, wanted.keyType) and _is_alike(given.valueType, wanted.valueType)
        case StructType(), StructType():
            return len(given) == len(wanted) and all(
                _is_alike(a.dataType, b.dataType) for a, b in zip(given, wanted, strict=True)
            )
        case _:
            return given == wanted


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
            f"Option 'value.format' has the value '{value.format.name}', a changelog format; 'upsert-kafka' needs one of "
            "rows, such as json: it makes a changelog by itself"
        )
    if only_topic(options.source) is None:
        raise ConfigurationError("Option 'topic' has to name one topic; 'upsert-kafka' reads and writes exactly one")
    buffer = [bool(option.of(options.sql)) for option in UPSERT_BUFFER]
    if any(buffer) and not all(buffer):
        raise ConflictingOptionsError([option.key for option in UPSERT_BUFFER], "set both above 0, or neither")


def with_start(source: Mapping[str, str]) -> dict[str, str]:
    """The source's options, with Flink's default start if they have none: the group's offsets."""
    given = "scan.startup.mode" in source or any(name.lower().startswith("starting") for name in source)
    return dict(source) if given else {"scan.startup.mode": "group-offsets", **source}


def _check_source(source: Mapping[str, str]) -> None:
    """What the source says of its options; a table that is only written to needs no group."""
    named = _GROUP in source or "kafka.group.id" in source
    options = with_start(source) | ({} if named else {_GROUP: "unknown"})
    configure_source(options, default_starting=KafkaOffsetsInitializer.earliest())


def _check_sink(sink: Mapping[str, str], key: Encoding | None) -> None:
    if key is not None and sink.get("sink.partitioner") == "round-robin":
        raise ConflictingOptionsError(
            ["sink.partitioner", "key.fields"], "round-robin does not look at keys; use default or fixed"
        )
    configure_sink(sink)


def _letters(options: TableOptions) -> DeadLetters | None:
    topic = DEAD_LETTER_TOPIC.of(options.sql)
    if ON_ERROR.of(options.sql) != "dead-letter":
        if topic is not None:
            raise ConfigurationError("Option 'format.dead-letter.topic' needs 'format.on-error' = 'dead-letter'")
        return None
    if topic is None:
        raise ConfigurationError(
            "Option 'format.dead-letter.topic' is missing; 'format.on-error' = 'dead-letter' needs it"
        )
    given = {
        name.partition(".")[2]: text
        for name, text in options.sink.items()
        if name.startswith(("properties.", "kafka."))
    }
    properties = {**given, **options.dead_letter}
    if "bootstrap.servers" not in properties:
        raise ConfigurationError(
            "Option 'format.dead-letter.properties.bootstrap.servers' is missing; it says which cluster has the topic for "
            "dead letters"
        )
    return DeadLetters(topic, properties)

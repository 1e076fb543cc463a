"""Tables without columns: the schema registry of the value's format has them.

The columns are asked for once, when the table is created. With Avro and JSON Schema, the table keeps the schema's text as
an option of the format. So it writes that schema, and SHOW CREATE TABLE shows all of it. Messages with later versions of an
Avro schema are read as this one, and the fields that they add are logged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import FORMATS, format_named
from dynamic_kafka.formats.options import format_options, only_topic
from dynamic_kafka.sql.definition import PhysicalColumn, TableDefinition, fault, with_key_not_null
from dynamic_kafka.sql.options import CONNECTOR, CONNECTORS, split_options
from dynamic_kafka.sql.types import FlinkType, flink_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

__all__ = ["with_columns"]


def with_columns(definition: TableDefinition) -> TableDefinition:
    """Return a table with physical columns: its own, or for one on Kafka those of the registry before its other columns.

    Raises:
        ConfigurationError: If there are none, or the key or the watermark names a column that is not among them.
        RegistryError: If the registry does not answer, or does not have the subject.
    """
    if any(isinstance(column, PhysicalColumn) for column in definition.columns):
        return definition
    if definition.options.get(CONNECTOR.key, "").strip().lower() not in CONNECTORS:
        return definition
    options = split_options(definition.options)
    option = "format" if "format" in options.sql else "value.format"
    used = format_named(options.sql[option], option) if option in options.sql else None
    if used is None or used.columns is None:
        with_registry = ", ".join(name for name in FORMATS if name.endswith("-confluent"))
        raise ConfigurationError(
            "The table does not have a physical column; add at least one that is in the messages. Only a format with a "
            f"schema registry knows the columns: {with_registry}"
        )
    prefix = "" if option == "format" else "value."
    given, _ = format_options(used, prefix, options.rest)
    topic = only_topic(options.source)
    if used.registry is not None and used.registry not in given and topic is not None:
        given = {**given, used.registry: f"{topic}-value"}
    schema, added = used.columns(given)
    found = replace(
        definition,
        columns=(*(PhysicalColumn(f.name, _flink_type(f)) for f in schema.fields), *definition.columns),
        options={**definition.options, **{f"{prefix}{name}": text for name, text in added.items()}},
    )
    if (wrong := fault(found)) is not None:
        raise ConfigurationError(f"{wrong[2]}. The columns of the registry are {', '.join(schema.names)}")
    return with_key_not_null(found)


def _flink_type(field: StructField) -> FlinkType:
    found = flink_type(field.dataType, nullable=field.nullable)
    digits: Any = field.metadata.get("precision")
    return replace(found, parameters=(digits,)) if digits is not None and found.name.startswith("TIMESTAMP") else found

"""Formats: the bytes of messages to columns and back, under Flink's names, with one package or module for each family.

SQL tables (`sql`) and DataFrames (`functions`) call them, always through `format_named`.
"""

from __future__ import annotations

import importlib

from dynamic_kafka.errors import ConfigurationError, suggestion
from dynamic_kafka.formats.format import (
    DELETE,
    DELETES,
    ERROR,
    INSERT,
    METADATA,
    ROW_KIND,
    ROW_KINDS,
    ROWS,
    UPDATE_AFTER,
    Decode,
    Format,
    FormatOptions,
)

__all__ = [
    "DELETE",
    "DELETES",
    "ERROR",
    "FORMATS",
    "INSERT",
    "METADATA",
    "ROWS",
    "ROW_KIND",
    "ROW_KINDS",
    "UPDATE_AFTER",
    "Decode",
    "Format",
    "FormatOptions",
    "format_named",
]

FORMATS = {
    "raw": "raw:RAW",
    "json": "json.format:JSON",
    "json-schema-confluent": "json.confluent:JSON_SCHEMA_CONFLUENT",
    "csv": "csv.format:CSV",
    "avro": "avro.format:AVRO",
    "avro-confluent": "avro.confluent:AVRO_CONFLUENT",
    "avro-glue": "avro.glue:AVRO_GLUE",
    "protobuf": "protobuf.format:PROTOBUF",
    "protobuf-confluent": "protobuf.confluent:PROTOBUF_CONFLUENT",
    "debezium-json": "changelog.format:DEBEZIUM_JSON",
    "debezium-avro-confluent": "changelog.avro:DEBEZIUM_AVRO_CONFLUENT",
    "debezium-protobuf-confluent": "changelog.protobuf:DEBEZIUM_PROTOBUF_CONFLUENT",
    "canal-json": "changelog.format:CANAL_JSON",
    "maxwell-json": "changelog.format:MAXWELL_JSON",
    "ogg-json": "changelog.format:OGG_JSON",
}
"""The place of each format, as `module:NAME` in this package. A module is imported when its format is used."""
_IN_CONFLUENTS_CLOUD = {
    "avro-registry": "avro-confluent",
    "json-registry": "json-schema-confluent",
    "proto-registry": "protobuf-confluent",
}
"""The formats of Confluent's cloud, and for each the format to write here, with the URL of the schema registry."""


def format_named(name: str, option: str = "format") -> Format:
    """Return the format with a name.

    Args:
        name: Flink's name, such as `json`.
        option: The option with the name, for errors.

    Raises:
        ConfigurationError: If the format does not exist.
    """
    place = FORMATS.get(name)
    if name in _IN_CONFLUENTS_CLOUD:
        ours = _IN_CONFLUENTS_CLOUD[name]
        raise ConfigurationError(
            f"Option '{option}' has the value '{name}', a format of Confluent's cloud. Write '{ours}', and give the schema "
            f"registry by '{ours}.url'"
        )
    if place is None:
        raise ConfigurationError(
            f"Option '{option}' has the value '{name}'; expected one of {', '.join(FORMATS)}{suggestion(name, FORMATS)}"
        )
    module, _, attribute = place.partition(":")
    found: Format = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    return found

"""Formats: bytes to columns and back, under Flink's names.

The same formats serve SQL tables and DataFrames (`dynamic_kafka.functions`).
"""

from __future__ import annotations

import difflib
import importlib

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats.format import ERROR, METADATA, ROW_KIND, ROWS, Format, FormatOptions

__all__ = ["ERROR", "FORMATS", "METADATA", "ROWS", "ROW_KIND", "Format", "FormatOptions", "format_named"]

FORMATS = {
    "raw": "raw:RAW",
    "json": "json.format:JSON",
    "csv": "csv.format:CSV",
    "avro": "avro.format:AVRO",
    "avro-confluent": "avro.confluent:AVRO_CONFLUENT",
    "protobuf": "protobuf.format:PROTOBUF",
    "protobuf-confluent": "protobuf.confluent:PROTOBUF_CONFLUENT",
    "debezium-json": "changelog.format:DEBEZIUM_JSON",
    "canal-json": "changelog.format:CANAL_JSON",
    "maxwell-json": "changelog.format:MAXWELL_JSON",
    "ogg-json": "changelog.format:OGG_JSON",
}
"""Where each format is, as `module:NAME` of this package; imported when it is used."""


def format_named(name: str, option: str = "format") -> Format:
    """The format of a name.

    Args:
        name: Flink's name, such as `json`.
        option: The option that gave it, for errors.

    Raises:
        ConfigurationError: If there is no such format.
    """
    place = FORMATS.get(name)
    if place is None:
        near = difflib.get_close_matches(name, FORMATS, 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise ConfigurationError(
            f"Option '{option}' has the value '{name}'; expected one of {', '.join(FORMATS)}{hint}"
        )
    module, _, attribute = place.partition(":")
    found: Format = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    return found

"""The messages of Debezium, Canal, Maxwell and Oracle GoldenGate about changed rows: the envelopes of `changelog.format`.

This module is only a table of the envelopes; `format` interprets it for reading and for writing.

Source: Flink 2.1's `*JsonDecodingFormat.ReadableMetadata` and the constants of its `*JsonDeserializationSchema`s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from dynamic_kafka.errors import ConfigurationError

__all__ = ["CANAL", "DEBEZIUM", "DEBEZIUM_RECORD", "MAXWELL", "OGG", "Envelope", "no_envelope"]


@dataclass(frozen=True)
class Metadata:
    """A metadata column of a format.

    A time that cannot be parsed is null, not an error: the query may not use it (Flink reads only metadata that is used).

    Args:
        type: The column's type.
        field: The field of the envelope that contains it.
        field_type: The type with which that field is read.
        key: The key of the field's map, if the metadata is one of its values.
        form: How the value is written: as it is, as the text of a count since 1970, or as the text of a time in UTC.
    """

    type: DataType
    field: str
    field_type: DataType
    key: str | None = None
    form: Literal["value", "seconds", "milliseconds", "utc"] = "value"


_TEXT, _TEXTS = StringType(), ArrayType(StringType())
_PROPERTIES, _NUMBERS = MapType(StringType(), StringType()), MapType(StringType(), IntegerType())


def _of_source(key: str) -> Metadata:
    return Metadata(_TEXT, "source", _PROPERTIES, key)


_DEBEZIUM_METADATA = {
    "schema": Metadata(_TEXT, "schema", _TEXT),
    "ingestion-timestamp": Metadata(TimestampType(), "ts_ms", _TEXT, form="milliseconds"),
    "source.timestamp": Metadata(TimestampType(), "source", _PROPERTIES, "ts_ms", "milliseconds"),
    "source.database": _of_source("db"),
    "source.schema": _of_source("schema"),
    "source.table": _of_source("table"),
    "source.properties": Metadata(_PROPERTIES, "source", _PROPERTIES),
}
# In Avro and Protobuf, `source` is a record, whose fields differ between databases.
_SOURCE = StructType().add("ts_ms", LongType()).add("db", _TEXT).add("schema", _TEXT).add("table", _TEXT)
_DEBEZIUM_RECORD_METADATA = {
    "ingestion-timestamp": Metadata(TimestampType(), "ts_ms", LongType(), form="milliseconds"),
    "source.timestamp": Metadata(TimestampType(), "source", _SOURCE, "ts_ms", "milliseconds"),
    "source.database": Metadata(_TEXT, "source", _SOURCE, "db"),
    "source.schema": Metadata(_TEXT, "source", _SOURCE, "schema"),
    "source.table": Metadata(_TEXT, "source", _SOURCE, "table"),
}
_CANAL_METADATA = {
    "database": Metadata(_TEXT, "database", _TEXT),
    "table": Metadata(_TEXT, "table", _TEXT),
    "sql-type": Metadata(_NUMBERS, "sqlType", _NUMBERS),
    "pk-names": Metadata(_TEXTS, "pkNames", _TEXTS),
    "ingestion-timestamp": Metadata(TimestampType(), "ts", _TEXT, form="milliseconds"),
    "event-timestamp": Metadata(TimestampType(), "es", _TEXT, form="milliseconds"),
}
_MAXWELL_METADATA = {
    "database": Metadata(_TEXT, "database", _TEXT),
    "table": Metadata(_TEXT, "table", _TEXT),
    "primary-key-columns": Metadata(_TEXTS, "primary_key_columns", _TEXTS),
    "ingestion-timestamp": Metadata(TimestampType(), "ts", _TEXT, form="seconds"),
}
_OGG_METADATA = {
    "table": Metadata(_TEXT, "table", _TEXT),
    "primary-keys": Metadata(_TEXTS, "primary_keys", _TEXTS),
    "ingestion-timestamp": Metadata(TimestampType(), "current_ts", _TEXT, form="utc"),
    "event-timestamp": Metadata(TimestampType(), "op_ts", _TEXT, form="utc"),
}


@dataclass(frozen=True)
class Envelope:
    """The form of a tool's messages about changes.

    Args:
        tool: The tool's name, for errors.
        kind: The field that says what happened.
        inserts: Its values for a new row; the first of them is written.
        update: Its value for an update.
        delete: Its value for a deletion.
        metadata: The metadata that can be read from a message, by name.
        images: The fields with rows: before and after the change.
        partial: True if the row before an update has only the fields that changed.
        batched: True if these fields are arrays of several rows.
        skipped: Values of `kind` in messages that are not about rows and are skipped.
        hints: Advice for messages that cannot become rows, by the value of `kind`.
        whole_rows: Advice for messages without the row before the change.
    """

    tool: str
    kind: str
    inserts: tuple[str, ...]
    update: str
    delete: str
    metadata: Mapping[str, Metadata]
    images: tuple[str, str] = ("before", "after")
    partial: bool = False
    batched: bool = False
    skipped: tuple[str, ...] = ()
    hints: Mapping[str, str] = field(default_factory=dict)
    whole_rows: str = ""

    def schema(self, row: DataType) -> StructType:
        """Return the schema of a message about rows of the type `row`."""
        found = StructType()
        for image in self.images:
            found.add(image, ArrayType(row) if self.batched else row)
        found.add(self.kind, StringType())
        for name, field_type in {m.field: m.field_type for m in self.metadata.values()}.items():
            found.add(name, field_type)
        return found

    def written(self, row: DataType) -> StructType:
        """Return the schema of a message that is written about rows of the type `row`."""
        found = StructType()
        for image in self.images[1:] if self.partial else self.images:
            found.add(image, ArrayType(row) if self.batched else row)
        return found.add(self.kind, StringType())


DEBEZIUM = Envelope(
    "Debezium",
    "op",
    ("c", "r"),
    "u",
    "d",
    _DEBEZIUM_METADATA,
    hints={
        "t": "TRUNCATE cannot become rows; exclude it with the connector's skipped.operations=t",
        "m": "logical messages have a topic of their own; do not read that topic",
    },
    whole_rows="set the REPLICA IDENTITY of a PostgreSQL table to FULL",
)
DEBEZIUM_RECORD = replace(DEBEZIUM, metadata=_DEBEZIUM_RECORD_METADATA)
"""Debezium's envelope in a format with schemas."""
OGG = Envelope(
    "Ogg",
    "op_type",
    ("I",),
    "U",
    "D",
    _OGG_METADATA,
    hints={"T": "a truncation cannot become rows"},
    whole_rows="have GoldenGate extract whole rows (GETUPDATEBEFORES, and supplemental logging of all columns)",
)
CANAL = Envelope(
    "Canal",
    "type",
    ("INSERT",),
    "UPDATE",
    "DELETE",
    _CANAL_METADATA,
    images=("old", "data"),
    partial=True,
    batched=True,
    skipped=("CREATE",),
)
MAXWELL = Envelope(
    "Maxwell", "type", ("insert",), "update", "delete", _MAXWELL_METADATA, images=("old", "data"), partial=True
)


def no_envelope(subject: str) -> ConfigurationError:
    """Return the error for a subject of a schema registry with a schema that is not the one of Debezium's changes."""
    return ConfigurationError(
        f"The schema of the subject '{subject}' is not Debezium's envelope, with the fields before, after and op"
    )

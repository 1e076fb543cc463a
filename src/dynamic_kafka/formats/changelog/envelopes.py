"""How Debezium, Canal, Maxwell and Oracle GoldenGate tell of changes: the envelopes of the formats in `changelog`.

Source: Flink 2.1's `*JsonDecodingFormat.ReadableMetadata` and the constants of its `*JsonDeserializationSchema`s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, MapType, StringType, StructType, TimestampType

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["CANAL", "DEBEZIUM", "MAXWELL", "OGG", "Envelope"]

# Spark counts microseconds in 64 bits; a time beyond them is null.
_MAX_SECONDS = (2**63 - 1) // 1_000_000


@dataclass(frozen=True)
class Metadata:
    """One of a format's metadata: its type, the envelope's field it is in, how that is read, and how to get it from there.

    A time that is none is null, and no error: it may be that nobody asked for it (Flink reads only what is asked for).
    """

    type: DataType
    field: str
    field_type: DataType
    get: Callable[[Column], Column] = lambda field: field


def _time(per_second: int) -> Callable[[Column], Column]:
    """A time from the text of a count of units since 1970; null if it is none."""
    limit = _MAX_SECONDS * per_second
    to_timestamp = F.timestamp_seconds if per_second == 1 else F.timestamp_millis

    def get(count: Column) -> Column:
        number = count.try_cast(LongType())
        return F.when(number.between(-limit, limit), to_timestamp(number))

    return get


def _utc(local: Column) -> Column:
    """A time from its text, which has no offset and is in UTC (as Flink takes it)."""
    return F.concat(local, F.lit("Z")).try_cast(TimestampType())


_TEXT, _TEXTS = StringType(), ArrayType(StringType())
_PROPERTIES, _NUMBERS = MapType(StringType(), StringType()), MapType(StringType(), IntegerType())


def _of_source(key: str) -> Metadata:
    return Metadata(_TEXT, "source", _PROPERTIES, lambda source: source[key])


_DEBEZIUM_METADATA = {
    "schema": Metadata(_TEXT, "schema", _TEXT),
    "ingestion-timestamp": Metadata(TimestampType(), "ts_ms", _TEXT, _time(1000)),
    "source.timestamp": Metadata(TimestampType(), "source", _PROPERTIES, lambda source: _time(1000)(source["ts_ms"])),
    "source.database": _of_source("db"),
    "source.schema": _of_source("schema"),
    "source.table": _of_source("table"),
    "source.properties": Metadata(_PROPERTIES, "source", _PROPERTIES),
}
_CANAL_METADATA = {
    "database": Metadata(_TEXT, "database", _TEXT),
    "table": Metadata(_TEXT, "table", _TEXT),
    "sql-type": Metadata(_NUMBERS, "sqlType", _NUMBERS),
    "pk-names": Metadata(_TEXTS, "pkNames", _TEXTS),
    "ingestion-timestamp": Metadata(TimestampType(), "ts", _TEXT, _time(1000)),
    "event-timestamp": Metadata(TimestampType(), "es", _TEXT, _time(1000)),
}
_MAXWELL_METADATA = {
    "database": Metadata(_TEXT, "database", _TEXT),
    "table": Metadata(_TEXT, "table", _TEXT),
    "primary-key-columns": Metadata(_TEXTS, "primary_key_columns", _TEXTS),
    "ingestion-timestamp": Metadata(TimestampType(), "ts", _TEXT, _time(1)),
}
_OGG_METADATA = {
    "table": Metadata(_TEXT, "table", _TEXT),
    "primary-keys": Metadata(_TEXTS, "primary_keys", _TEXTS),
    "ingestion-timestamp": Metadata(TimestampType(), "current_ts", _TEXT, _utc),
    "event-timestamp": Metadata(TimestampType(), "op_ts", _TEXT, _utc),
}


@dataclass(frozen=True)
class Envelope:
    """How a tool tells of changes.

    Args:
        tool: Its name, for errors.
        kind: The field that says what happened.
        inserts: What stands there for a new row; the first of them is written.
        update: What stands there for an update.
        delete: What stands there for a deletion.
        metadata: What else can be read from it.
        images: The fields with rows: what was, and what is.
        partial: Whether what was has only the fields that an update changed.
        batched: Whether these fields are arrays, for several rows.
        texts: Whether numbers and booleans are usually written as texts.
        skipped: What stands in `kind` of messages about no row, which are no error.
        hints: What to do about messages that no row can tell, by what stands in `kind`.
        whole_rows: What to do if rows are missing as they were.
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
    texts: bool = False
    skipped: tuple[str, ...] = ()
    hints: Mapping[str, str] = field(default_factory=dict)
    whole_rows: str = ""

    def schema(self, row: DataType) -> StructType:
        """The schema of a message about rows of the type `row`."""
        found = StructType()
        for image in self.images:
            found.add(image, ArrayType(row) if self.batched else row)
        found.add(self.kind, StringType())
        for name, field_type in {m.field: m.field_type for m in self.metadata.values()}.items():
            found.add(name, field_type)
        return found


DEBEZIUM = Envelope(
    "Debezium",
    "op",
    ("c", "r"),
    "u",
    "d",
    _DEBEZIUM_METADATA,
    hints={
        "t": "TRUNCATE is nothing that rows can tell; leave it out by the connector's skipped.operations=t",
        "m": "logical messages have a topic of their own; leave it out",
    },
    whole_rows="set the REPLICA IDENTITY of a PostgreSQL table to FULL",
)
OGG = Envelope(
    "Ogg",
    "op_type",
    ("I",),
    "U",
    "D",
    _OGG_METADATA,
    hints={"T": "truncation is nothing that rows can tell"},
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
    texts=True,
    skipped=("CREATE",),
)
MAXWELL = Envelope(
    "Maxwell", "type", ("insert",), "update", "delete", _MAXWELL_METADATA, images=("old", "data"), partial=True
)

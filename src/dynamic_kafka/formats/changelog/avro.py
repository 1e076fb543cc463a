"""The format `debezium-avro-confluent`: Debezium's changes in Avro, after the id of their schema in a schema registry.

A message is decoded as in `avro-confluent`, and becomes rows as in `debezium-json`. The reader's schema is that of Flink:
the columns as nullable records `before` and `after`, and `op`. The fields that metadata columns need are added to it.

Differences to Flink: numbers with a semantic type of Debezium are read as what they are (see `avro.connect`), where Flink
reads microseconds as milliseconds. There is no metadata `source.properties`, because the types of its fields differ between
databases.

Source: org.apache.flink.formats.avro.registry.confluent.debezium of Flink 2.3.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import schema_registry, schema_registry_settings
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.avro.columns import columns_of, only_record
from dynamic_kafka.formats.avro.confluent import batch_decoder, batch_encoder, registered_avro
from dynamic_kafka.formats.avro.encoding import plan_of as encoding_plan
from dynamic_kafka.formats.avro.format import checked
from dynamic_kafka.formats.avro.plan import UnreadableError, plan_of
from dynamic_kafka.formats.avro.schemas import AvroSchema, schema_text
from dynamic_kafka.formats.changelog import records
from dynamic_kafka.formats.changelog.envelopes import DEBEZIUM_RECORD, no_envelope
from dynamic_kafka.formats.changelog.format import message_of_rows
from dynamic_kafka.formats.format import Decode, Format, FormatOptions, Rows, Used
from dynamic_kafka.formats.schema_registry import RegisteredSchema

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

__all__ = ["DEBEZIUM_AVRO_CONFLUENT", "reader_text", "writer_text"]

_NAME = "debezium-avro-confluent"
_SCHEMA = f"{_NAME}.schema"


def _decoder(schema: StructType, options: FormatOptions, used: Used | None = None) -> Decode:
    del used  # the envelope is read as a whole
    message = DEBEZIUM_RECORD.schema(schema)
    settings = schema_registry_settings.settings(_NAME, options)
    return records.decoder(batch_decoder(settings, reader_text(schema, options), arrow_type(message)))


def _rows(rows: Column, schema: StructType, options: FormatOptions) -> Rows:
    message = DEBEZIUM_RECORD.written(schema)
    settings = schema_registry_settings.settings(_NAME, options)
    subject = schema_registry_settings.subject_of(_NAME, options)
    encoder = batch_encoder(settings, subject, writer_text(schema, options), message)
    return Rows(message_of_rows(DEBEZIUM_RECORD, rows, schema), message, encoder)


def _check(schema: StructType, options: FormatOptions) -> None:
    schema_registry_settings.settings(_NAME, options)
    option = _SCHEMA if _SCHEMA in options else None
    writer, own = checked(writer_text(schema, options), option), checked(reader_text(schema, options), option)
    try:
        plan_of(own, own, arrow_type(DEBEZIUM_RECORD.schema(schema)))
        encoding_plan(arrow_type(DEBEZIUM_RECORD.written(schema)), writer)
    except (UnreadableError, TypeError) as error:
        raise ConfigurationError(
            f"Option '{_SCHEMA}' is not Debezium's envelope of the columns, with the fields before, after and op: {error}. "
            "Change one of them"
        ) from None


def writer_text(schema: StructType, options: FormatOptions) -> str:
    """Return the schema of written messages: the given one, or the one that Flink makes from the columns."""
    given: str | None = options.get(_SCHEMA)
    if given is not None:
        return given
    return f'["null",{schema_text(DEBEZIUM_RECORD.written(schema), legacy_timestamps=True)}]'


def reader_text(schema: StructType, options: FormatOptions) -> str:
    """Return the schema as which messages are read.

    Raises:
        ValueError: If the given schema is not JSON.
    """
    whole = schema_text(DEBEZIUM_RECORD.schema(schema), legacy_timestamps=True)
    given: str | None = options.get(_SCHEMA)
    if given is None:
        return whole
    record = _record(json.loads(given))
    if record is None:
        return given  # whatever it is, it does not fit
    written = DEBEZIUM_RECORD.written(schema).names
    fields = [field for field in record["fields"] if field["name"] in written]
    added = [field for field in json.loads(whole)["fields"] if field["name"] not in written]
    return json.dumps(record | {"fields": fields + added})


def _record(schema: Any) -> Any:
    """Return the record in a schema that may be a union; None if there is none."""
    branches = schema if isinstance(schema, list) else [schema]
    records = [b for b in branches if isinstance(b, dict) and isinstance(b.get("fields"), list)]
    fine = len(records) == 1 and all(isinstance(f, dict) and "name" in f for f in records[0]["fields"])
    return records[0] if fine else None


def _columns(options: FormatOptions) -> tuple[StructType, FormatOptions]:
    """Return the columns of the field `after`. The schema is not used for writing: it has fields that are no columns."""
    return _registered(schema_registry.planned_schema(_NAME, "AVRO", options), options), {}


def _registered(found: RegisteredSchema, options: FormatOptions) -> StructType:
    schema = registered_avro(_NAME, found, options)
    record = only_record(schema, schema.root)  # Flink writes a union with null
    fields = {} if record is None else {field["name"]: field["type"] for field in record["fields"]}
    if not {"before", "after", "op"} <= fields.keys():
        raise no_envelope(options[f"{_NAME}.subject"])
    return columns_of(AvroSchema(only_record(schema, fields["after"]) or fields["after"], schema.names))


DEBEZIUM_AVRO_CONFLUENT = Format(
    _NAME,
    schema_registry_settings.options(_NAME),
    _decoder,
    _rows,
    _check,
    changelog=True,
    metadata={key: meta.type for key, meta in DEBEZIUM_RECORD.metadata.items()},
    registry=f"{_NAME}.subject",
    columns=_columns,
    registered=_registered,
)
"""Flink's format `debezium-avro-confluent`."""

"""The format `debezium-protobuf-confluent`: Debezium's changes in Protobuf, with Confluent's schema registry.

A message is what Confluent's `ProtobufConverter` makes of a change: a message with the fields `before`, `after`, `source`,
`op` and `ts_ms`. It is decoded as in `protobuf-confluent`, with the schema with which it was written, and becomes rows as in
`debezium-json`. Rows are written with a schema that is made from the columns, with the fields `before`, `after` and `op`.

Flink has no released format for such messages. This one reads and writes what the format of the same name in Flink's pull
request 24482 does, for FLINK-34440. What the converter leaves out cannot be read: Debezium's types of times, which are
plain numbers here, and nulls in plain scalars.

Source: io.confluent.connect.protobuf.ProtobufData; org.apache.flink.formats.protobuf.registry.confluent.debezium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import schema_registry, schema_registry_settings
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.changelog import records
from dynamic_kafka.formats.changelog.envelopes import DEBEZIUM_RECORD, no_envelope
from dynamic_kafka.formats.changelog.format import message_of_rows
from dynamic_kafka.formats.format import Decode, Format, FormatOptions, Rows, Used
from dynamic_kafka.formats.protobuf.columns import columns_of
from dynamic_kafka.formats.protobuf.confluent import (
    batch_decoder,
    batch_encoder,
    message_of_columns,
    message_of_text,
    registered_protobuf,
)
from dynamic_kafka.formats.protobuf.descriptors import require_protobuf
from dynamic_kafka.formats.protobuf.encoding import encoder
from dynamic_kafka.formats.schema_registry import RegisteredSchema

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

    from dynamic_kafka.formats.protobuf.descriptors import MessageType

__all__ = ["DEBEZIUM_PROTOBUF_CONFLUENT"]

_NAME = "debezium-protobuf-confluent"
_SUBJECT, _SCHEMA = f"{_NAME}.subject", f"{_NAME}.schema"
_ENVELOPE = "Envelope"


def _decoder(schema: StructType, options: FormatOptions, used: Used | None = None) -> Decode:
    del used  # the envelope is read as a whole
    message = DEBEZIUM_RECORD.schema(schema).toNullable()
    return records.decoder(batch_decoder(schema_registry_settings.settings(_NAME, options), message))


def _rows(rows: Column, schema: StructType, options: FormatOptions) -> Rows:
    message = DEBEZIUM_RECORD.written(schema)
    encode = batch_encoder(
        schema_registry_settings.settings(_NAME, options),
        schema_registry_settings.subject_of(_NAME, options),
        _written(schema, options),
        message,
        text=options.get(_SCHEMA),
    )
    return Rows(message_of_rows(DEBEZIUM_RECORD, rows, schema), message, encode)


def _written(schema: StructType, options: FormatOptions) -> MessageType:
    """Return the type of written messages."""
    given: str | None = options.get(_SCHEMA)
    if given is None:
        return message_of_columns(DEBEZIUM_RECORD.written(schema), _ENVELOPE)
    return message_of_text(_SCHEMA, given)


def _check(schema: StructType, options: FormatOptions) -> None:
    require_protobuf(_NAME)
    schema_registry_settings.settings(_NAME, options)
    arrow_type(DEBEZIUM_RECORD.schema(schema))  # raises for columns that no message can have
    if _SCHEMA not in options:
        return
    try:
        encoder(_written(schema, options), DEBEZIUM_RECORD.written(schema), "")
    except ConfigurationError as error:
        raise ConfigurationError(
            f"Option '{_SCHEMA}' is not Debezium's envelope of the columns, with the fields before, after and op: {error}"
        ) from None


def _columns(options: FormatOptions) -> tuple[StructType, FormatOptions]:
    """Return the columns of the field `after`. The schema is not used for writing: it has fields that are no columns."""
    return _registered(schema_registry.planned_schema(_NAME, "PROTOBUF", options), options), {}


def _registered(found: RegisteredSchema, options: FormatOptions) -> StructType:
    fields = registered_protobuf(_NAME, found, options).descriptor.fields_by_name
    row = fields["after"].message_type if {"before", "after", "op"} <= set(fields) else None
    if row is None:
        raise no_envelope(options[_SUBJECT])
    return columns_of(row)


DEBEZIUM_PROTOBUF_CONFLUENT = Format(
    _NAME,
    schema_registry_settings.options(_NAME),
    _decoder,
    _rows,
    _check,
    changelog=True,
    metadata={key: meta.type for key, meta in DEBEZIUM_RECORD.metadata.items()},
    registry=_SUBJECT,
    columns=_columns,
    registered=_registered,
)
"""Debezium's changes in Protobuf, with Confluent's schema registry."""

"""The format `avro-confluent`: messages in Avro's binary encoding, after the id of their schema in a schema registry.

A message is read with the schema of its id, and resolved to the columns (see `plan`). Rows are written with one schema,
which is registered under the subject when the first row is written: the schema that Flink makes from the columns, or the one
in `avro-confluent.schema`.

The id may also be in a header; see `schema_ids`.

A message is bad if it is damaged, or if its schema is unknown to the registry or not an Avro schema. If the registry does
not answer, or a schema does not fit the columns, the query fails, as in Flink: otherwise each message would be bad.
"""

from __future__ import annotations

import functools
import json
import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from dynamic_kafka import native
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import schema_registry, schema_registry_settings
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.avro.columns import columns_of, new_fields
from dynamic_kafka.formats.avro.encoding import encode
from dynamic_kafka.formats.avro.encoding import plan_of as encoding_plan
from dynamic_kafka.formats.avro.format import checked, legacy_option, parsed, text_of_columns
from dynamic_kafka.formats.avro.plan import UnreadableError, plan_of, unreadable
from dynamic_kafka.formats.avro.schemas import NAMESPACE, AvroSchema, parse_schema, to_be_cut
from dynamic_kafka.formats.format import Decode, Encode, Format, FormatOptions, Rows, Used
from dynamic_kafka.formats.kernel import native_decoder
from dynamic_kafka.formats.schema_ids import SchemaId, id_before, plans_by_id, words_without_id
from dynamic_kafka.formats.schema_registry import RegisteredSchema
from dynamic_kafka.formats.schema_registry_settings import RegistrySettings

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

__all__ = ["AVRO_CONFLUENT", "batch_decoder", "batch_encoder", "registered_avro"]

_log = logging.getLogger(__name__)

_NAME = "avro-confluent"
_SUBJECT = f"{_NAME}.subject"
_SCHEMA = f"{_NAME}.schema"
_LEGACY = legacy_option(_NAME)
_MOST_SHOWN = 20
# In a schema that is made from columns. Such a table may leave fields out on purpose.
_MADE_FROM_COLUMNS = f'"namespace":"{NAMESPACE}"'


def _decoder(schema: StructType, options: FormatOptions, used: Used | None = None) -> Decode:
    settings = schema_registry_settings.settings(_NAME, options)
    return batch_decoder(settings, _text(schema, options), arrow_type(schema), used)


def batch_decoder(settings: RegistrySettings, text: str, target: pa.StructType, used: Used | None = None) -> Decode:
    """Return what decodes messages to a struct of columns and `ERROR`, also with the values of headers with ids.

    Args:
        settings: The registry.
        text: The reader's schema.
        target: The columns.
        used: Those that are used; None for all.
    """

    def from_avro_confluent(messages: pa.Array, ids: pa.Array | None = None) -> pa.Array:
        return _kernel(settings, text, target, used, headers=ids is not None).decode(messages, ids)

    return from_avro_confluent


@functools.lru_cache(256)
def _kernel(
    settings: RegistrySettings, text: str, target: pa.StructType, used: Used | None, *, headers: bool
) -> native.Decoder:
    look_up = functools.partial(plans_by_id, plan_of=lambda schema_id: _plan(settings, schema_id, text, target))
    spec = {"format": _NAME, **words_without_id(settings.prefix, headers=headers)}
    return native_decoder(target, spec, look_up, used)


def _rows(column: Column, schema: StructType, options: FormatOptions) -> Rows:
    settings = schema_registry_settings.settings(_NAME, options)
    function = batch_encoder(
        settings, schema_registry_settings.subject_of(_NAME, options), _text(schema, options), schema
    )
    return Rows(column, schema, function)


def batch_encoder(settings: RegistrySettings, subject: str, text: str, schema: StructType) -> Encode:
    """Return the function that encodes a struct array of the columns.

    Args:
        settings: The registry.
        subject: The subject under which the schema is registered with the first row.
        text: The schema that is written.
        schema: The columns.
    """
    cut = to_be_cut(schema)

    def to_avro_confluent(rows: pa.Array) -> native.Encoded:
        header = b""
        if rows.null_count < len(rows):
            header = id_before(schema_registry.client(settings).register(subject, "AVRO", text))
        return encode(rows, parsed(text), header, cut)

    return to_avro_confluent


def _check(schema: StructType, options: FormatOptions) -> None:
    schema_registry_settings.settings(_NAME, options)
    given = checked(_text(schema, options), _SCHEMA if _SCHEMA in options else None)
    if _SCHEMA not in options:
        return
    target = arrow_type(schema)
    try:
        plan_of(given, given, target)
        encoding_plan(target, given)
    except (UnreadableError, TypeError) as error:
        raise ConfigurationError(f"Option '{_SCHEMA}' does not fit the columns: {error}. Change one of them") from None


def _text(schema: StructType, options: FormatOptions) -> str:
    given: str | None = options.get(_SCHEMA)
    return given or text_of_columns(_NAME, schema, options)


def registered_avro(name: str, found: RegisteredSchema, options: FormatOptions) -> AvroSchema:
    """Return a schema of a registry.

    Args:
        name: The format's name.
        found: The schema.
        options: The format's options.

    Raises:
        ConfigurationError: If it is not an Avro schema.
        RegistryError: If the registry does not answer, which may have to be asked for what the schema refers to.
    """
    registry = schema_registry.client(schema_registry_settings.settings(name, options))
    try:
        return parse_schema(found.text, registry.references(found))
    except ValueError as error:
        raise ConfigurationError(f"The schema of the registry cannot be used: {error}") from None


def _registered(found: RegisteredSchema, options: FormatOptions) -> StructType:
    return columns_of(registered_avro(_NAME, found, options))


def _columns(options: FormatOptions) -> tuple[StructType, FormatOptions]:
    if (given := options.get(_SCHEMA)) is not None:
        return columns_of(checked(given, _SCHEMA)), {}
    found = schema_registry.planned_schema(_NAME, "AVRO", options)
    schema = registered_avro(_NAME, found, options)
    columns = columns_of(schema)
    try:
        encoding_plan(arrow_type(columns), schema)
    except TypeError:  # a type of Debezium that is only read
        return columns, {}
    return columns, {} if found.references else {_SCHEMA: found.text}  # without others, the text is complete


@functools.lru_cache(1000)
def _writer(settings: RegistrySettings, schema_id: SchemaId) -> AvroSchema | str:
    """Return a schema of the registry, or why its messages cannot be read."""
    found = schema_registry.client(settings).schema(schema_id)
    if found.type != "AVRO":
        return f"its schema {schema_id} is not an Avro schema, but {found.type}"
    try:
        return parse_schema(found.text, schema_registry.client(settings).references(found))
    except ValueError as error:
        return f"with its schema {schema_id}, {error}"


@functools.lru_cache(1000)
def _plan(settings: RegistrySettings, schema_id: SchemaId, text: str, target: pa.StructType) -> str:
    writer = _writer(settings, schema_id)
    if isinstance(writer, str):
        return json.dumps(unreadable(writer))
    try:
        found = plan_of(writer, parsed(text), target)
    except UnreadableError as error:
        raise ConfigurationError(
            f"Schema with id {schema_id} does not fit the columns: {error}. Change the columns, or set "
            f"'{settings.prefix}.schema'"
        ) from None
    if _MADE_FROM_COLUMNS not in text and (new := new_fields(writer, parsed(text))):
        _log.warning(
            "Schema with id %s has fields that the table's schema does not have; they are not read: %s. Create the table "
            "again to read them",
            schema_id,
            ", ".join(new[:_MOST_SHOWN]),
        )
    return json.dumps(found)


AVRO_CONFLUENT = Format(
    _NAME,
    (*schema_registry_settings.options(_NAME), _LEGACY),
    _decoder,
    _rows,
    _check,
    registry=_SUBJECT,
    columns=_columns,
    registered=_registered,
)
"""Flink's format `avro-confluent`."""

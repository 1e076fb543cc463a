"""The format `json-schema-confluent`: JSON after the id of its JSON Schema in a schema registry.

The id may also be in a header; see `schema_ids`.

A message is read as in the format `json`. The schema of its id says which numbers and texts are times and decimals of Kafka
Connect (see `semantic`). Otherwise it is not needed, because the columns say what is read. An id that the registry does not
know, or that is not a JSON Schema, is an error of the message. Rows are written as in `json`, with a schema that is made
from the columns or given. It is registered when the first row is written.

Open-source Flink does not have this format. In Confluent's cloud it is called `json-registry`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType

from dynamic_kafka.errors import ConfigurationError, RegistryError
from dynamic_kafka.formats import schema_registry, schema_registry_settings
from dynamic_kafka.formats.arrow import evaluated
from dynamic_kafka.formats.expressions import has
from dynamic_kafka.formats.format import Decoder, Format, FormatOptions
from dynamic_kafka.formats.json.format import IGNORE_PARSE_ERRORS, JSON
from dynamic_kafka.formats.json.schemas import columns_of, schema_text
from dynamic_kafka.formats.json.semantic import SEMANTIC_COLUMNS, Plan, plain, plan_of_json_schema
from dynamic_kafka.formats.schema_ids import ID_BYTES, SchemaId, id_of_header, no_id
from dynamic_kafka.formats.schema_registry import RegisteredSchema
from dynamic_kafka.formats.schema_registry_settings import RegistrySettings

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["JSON_SCHEMA_CONFLUENT"]

_NAME = "json-schema-confluent"
_SUBJECT, _SCHEMA = f"{_NAME}.subject", f"{_NAME}.schema"
_TYPE = "JSON"


def _json_options(options: FormatOptions) -> FormatOptions:
    """Return the options that the format `json` has, too, under its names."""
    return {
        option.key: options[key]
        for option in JSON.options
        if (key := f"{_NAME}.{option.key.removeprefix('json.')}") in options
    }


# --- reading ------------------------------------------------------------------------------------------------------------


def _decoder(schema: StructType, options: FormatOptions) -> Decoder:
    settings = schema_registry_settings.settings(_NAME, options)
    columns = (schema if has(schema, SEMANTIC_COLUMNS) else StructType()).json()
    json_options = _json_options(options)
    rows, ignore_errors = JSON.decoder(schema, json_options).rows, IGNORE_PARSE_ERRORS.of(json_options)

    def from_bytes(messages: pa.Array, ids: pa.Array | None = None) -> pa.Array:
        found = _bodies(messages, settings, columns, ids)
        errors = {} if ignore_errors else {n: error for n, (_, error) in enumerate(found) if error is not None}
        return rows(pa.array([body for body, _ in found], pa.binary()), errors)

    return Decoder(from_bytes)


def _bodies(
    messages: pa.Array, settings: RegistrySettings, columns: str, ids: pa.Array | None = None
) -> list[tuple[bytes | None, str | None]]:
    """Return for each message its JSON, or why it cannot be read.

    Args:
        messages: Binary.
        settings: The registry.
        columns: The schema of the columns, as JSON.
        ids: The values of the headers with ids; None if they are not looked at.
    """

    def body_of(message: bytes | None, header: bytes | None) -> tuple[bytes | None, str | None]:
        if message is None:
            return None, None
        try:
            schema_id, body = (id_of_header(header), message) if header is not None else _split(message)
        except ValueError as error:
            text = str(error)
            return None, text if header is not None else no_id(text, settings.prefix, headers=ids is not None)
        if not body.strip():
            return None, "nothing follows its schema id" if header is None else "it is empty"
        found = _plan_or_fault(settings, schema_id, columns)
        if isinstance(found, str):
            return None, found
        return body if found is None else plain(body, lambda _: found), None

    headers = [None] * len(messages) if ids is None else ids.to_pylist()
    return list(map(body_of, messages.to_pylist(), headers))


def _split(message: bytes) -> tuple[int, bytes]:
    """Split a message into the schema's id and the JSON after it. Raise ValueError with the reason if it has no id."""
    if len(message) < ID_BYTES:
        raise ValueError("it is too short for the magic byte and a schema id")
    if message[0] != 0:
        raise ValueError("it does not begin with the magic byte 0 of a schema registry's serializer")
    return int.from_bytes(message[1:ID_BYTES], "big"), message[ID_BYTES:]


def _plan_or_fault(settings: RegistrySettings, schema_id: SchemaId, columns: str) -> Plan | str:
    """Return what is converted in messages of a schema, or why they cannot be read."""
    try:
        return _plan(settings, schema_id, columns)
    except RegistryError as error:
        if not error.not_found:
            raise
        return str(error)  # probably a damaged message


@functools.lru_cache(1000)
def _plan(settings: RegistrySettings, schema_id: SchemaId, columns: str) -> Plan | str:
    found = schema_registry.client(settings).schema(schema_id)
    if found.type != _TYPE:
        return f"its schema {schema_id} is not a JSON Schema, but {found.type}"
    try:
        parsed = json.loads(found.text)
    except (ValueError, RecursionError):
        return f"its schema {schema_id} is not JSON, or is nested too deeply"
    try:
        return plan_of_json_schema(parsed, StructType.fromJson(json.loads(columns)))
    except ConfigurationError as error:
        return f"its schema {schema_id} cannot be used: {error}"


# --- writing ------------------------------------------------------------------------------------------------------------


def _encode(rows: Column, schema: StructType, options: FormatOptions) -> Column:
    settings, text = schema_registry_settings.settings(_NAME, options), _text(schema, options)
    subject = schema_registry_settings.subject_of(_NAME, options)
    if plan_of_json_schema(json.loads(text), schema) is not None:
        raise ConfigurationError(
            f"Option '{_SCHEMA}': rows cannot be written with it, because its times and decimals of Kafka Connect are only "
            "read. Remove it to write texts and numbers, with a schema that is made from the columns"
        )

    def with_header(messages: pa.Array) -> pa.Array:
        if messages.null_count == len(messages):
            return messages
        schema_id = schema_registry.client(settings).register(subject, _TYPE, text)
        header = b"\x00" + schema_id.to_bytes(4, "big")
        return pa.array([None if m is None else header + m for m in messages.to_pylist()], pa.binary())

    return evaluated(with_header, BinaryType(), JSON.encode(rows, schema, _json_options(options)))


def _text(schema: StructType, options: FormatOptions) -> str:
    given: str | None = options.get(_SCHEMA)
    return given or schema_text(schema)


def _check(schema: StructType, options: FormatOptions) -> None:
    schema_registry_settings.settings(_NAME, options)
    JSON.check(schema, _json_options(options))
    if _SCHEMA in options:
        try:
            valid = isinstance(json.loads(options[_SCHEMA]), Mapping)
        except ValueError:
            valid = False
        if not valid:
            raise ConfigurationError(f"Option '{_SCHEMA}' is not a JSON Schema, which is a JSON object")


def _columns(options: FormatOptions) -> tuple[StructType, FormatOptions]:
    if _SCHEMA in options:
        return columns_of(options[_SCHEMA]), {}
    found = schema_registry.planned_schema(_NAME, _TYPE, options)
    columns = _registered(found, options)
    only_read = plan_of_json_schema(json.loads(found.text), columns) is not None
    return columns, {} if found.references or only_read else {_SCHEMA: found.text}


def _registered(found: RegisteredSchema, _: FormatOptions) -> StructType:
    return columns_of(found.text)


JSON_SCHEMA_CONFLUENT = Format(
    _NAME,
    (
        *schema_registry_settings.options(_NAME),
        *(replace(option, key=f"{_NAME}.{option.key.removeprefix('json.')}", aliases=()) for option in JSON.options),
    ),
    _decoder,
    _encode,
    _check,
    registry=_SUBJECT,
    columns=_columns,
    registered=_registered,
)
"""Confluent's JSON with a JSON Schema."""

"""The format `json-schema-confluent`: JSON after the id of its JSON Schema in a schema registry.

The id may also be in a header; see `schema_ids`.

A message is read as in the format `json`. The schema of its id says which numbers and texts are times and decimals of Kafka
Connect (see `schema_of_connect`). Otherwise it is not needed, because the columns say what is read. An id that the registry
does not know, or that is not a JSON Schema, is an error of the message. Rows are written as in `json`, with a schema that is
made from the columns or given. It is registered when the first row is written.

Open-source Flink does not have this format. In Confluent's cloud it is called `json-registry`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from dynamic_kafka import native
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import schema_registry, schema_registry_settings
from dynamic_kafka.formats.arrow import arrow_type, as_numbers
from dynamic_kafka.formats.expressions import nullable
from dynamic_kafka.formats.format import Decode, Format, FormatOptions, Rows, Used
from dynamic_kafka.formats.json.format import JSON, json_options, options_named, read_spec, rows_of_json
from dynamic_kafka.formats.json.schemas import columns_of, schema_of_connect, schema_text
from dynamic_kafka.formats.kernel import native_decoder
from dynamic_kafka.formats.schema_ids import SchemaId, id_before, plans_by_id, words_without_id
from dynamic_kafka.formats.schema_registry import RegisteredSchema
from dynamic_kafka.formats.schema_registry_settings import RegistrySettings

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["JSON_SCHEMA_CONFLUENT"]

_NAME = "json-schema-confluent"
_SUBJECT, _SCHEMA = f"{_NAME}.subject", f"{_NAME}.schema"
_TYPE = "JSON"


# --- reading ------------------------------------------------------------------------------------------------------------


def _decoder(schema: StructType, options: FormatOptions, used: Used | None = None) -> Decode:
    settings, columns = schema_registry_settings.settings(_NAME, options), nullable(as_numbers(schema)).json()
    spec = json.dumps({**read_spec(json_options(_NAME, options)), "format": _NAME})

    def from_json(messages: pa.Array, ids: pa.Array | None = None) -> pa.Array:
        return _kernel(settings, columns, spec, used, headers=ids is not None).decode(messages, ids)

    return from_json


@functools.lru_cache(256)
def _kernel(settings: RegistrySettings, columns: str, spec: str, used: Used | None, *, headers: bool) -> native.Decoder:
    type_ = arrow_type(StructType.fromJson(json.loads(columns)))
    words = words_without_id(settings.prefix, headers=headers)
    look_up = functools.partial(plans_by_id, plan_of=lambda schema_id: _plan(settings, schema_id, columns))
    return native_decoder(type_, {**json.loads(spec), **words}, look_up, used)


@functools.lru_cache(1000)
def _plan(settings: RegistrySettings, schema_id: SchemaId, columns: str) -> str:
    found = schema_registry.client(settings).schema(schema_id)
    if found.type != _TYPE:
        return json.dumps({"missing": f"its schema {schema_id} is not a JSON Schema, but {found.type}"})
    try:
        parsed = json.loads(found.text)
    except (ValueError, RecursionError):
        return json.dumps({"missing": f"its schema {schema_id} is not JSON, or is nested too deeply"})
    try:
        return json.dumps(schema_of_connect(parsed, StructType.fromJson(json.loads(columns))))
    except ConfigurationError as error:
        return json.dumps({"missing": f"its schema {schema_id} cannot be used: {error}"})


# --- writing ------------------------------------------------------------------------------------------------------------


def _rows(rows: Column, schema: StructType, options: FormatOptions) -> Rows:
    settings, text = schema_registry_settings.settings(_NAME, options), _text(schema, options)
    subject = schema_registry_settings.subject_of(_NAME, options)
    if schema_of_connect(json.loads(text), schema) is not None:
        raise ConfigurationError(
            f"Option '{_SCHEMA}': rows cannot be written with it, because its times and decimals of Kafka Connect are only "
            "read. Remove it to write texts and numbers, with a schema that is made from the columns"
        )

    def header() -> bytes:
        return id_before(schema_registry.client(settings).register(subject, _TYPE, text))

    return rows_of_json(rows, schema, json_options(_NAME, options), header)


def _text(schema: StructType, options: FormatOptions) -> str:
    given: str | None = options.get(_SCHEMA)
    return given or schema_text(schema)


def _check(schema: StructType, options: FormatOptions) -> None:
    schema_registry_settings.settings(_NAME, options)
    JSON.check(schema, json_options(_NAME, options))
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
    only_read = schema_of_connect(json.loads(found.text), columns) is not None
    return columns, {} if found.references or only_read else {_SCHEMA: found.text}


def _registered(found: RegisteredSchema, _: FormatOptions) -> StructType:
    return columns_of(found.text)


JSON_SCHEMA_CONFLUENT = Format(
    _NAME,
    (*schema_registry_settings.options(_NAME), *options_named(_NAME, JSON.options)),
    _decoder,
    _rows,
    _check,
    registry=_SUBJECT,
    columns=_columns,
    registered=_registered,
)
"""Confluent's JSON with a JSON Schema."""

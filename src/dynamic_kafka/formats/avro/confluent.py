"""The format `avro-confluent`: messages in Avro's binary encoding, after the id of their schema in a schema registry.

A message is read with the schema of its id, and resolved to the columns (see `decoding`). Rows are written with one schema,
which is registered under the subject when the first row is written: the schema that Flink makes from the columns, or the one
in `avro-confluent.schema`.

A message is bad if it is damaged, or if its schema is unknown to the registry or not an Avro schema. If the registry does
not answer, or a schema does not fit the columns, the query fails, as in Flink: otherwise each message would be bad.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, TimeType

from dynamic_kafka.errors import ConfigurationError, RegistryError
from dynamic_kafka.formats import schema_registry, schema_registry_settings
from dynamic_kafka.formats.arrow import arrow_type, decoded, evaluated
from dynamic_kafka.formats.avro.decoding import decode, reader, unreadable
from dynamic_kafka.formats.avro.encoding import encode, native_spec
from dynamic_kafka.formats.avro.format import legacy_option, parsed
from dynamic_kafka.formats.avro.native import resolved
from dynamic_kafka.formats.avro.schemas import AvroSchema, parse_schema, schema_text, to_be_cut
from dynamic_kafka.formats.avro.values import Cursor, Indices, Read, UnreadableError
from dynamic_kafka.formats.expressions import has
from dynamic_kafka.formats.format import Decoder, Format, FormatOptions
from dynamic_kafka.formats.schema_registry_settings import RegistrySettings

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

__all__ = ["AVRO_CONFLUENT"]

_NAME = "avro-confluent"
_SUBJECT = f"{_NAME}.subject"
_SCHEMA = f"{_NAME}.schema"
_LEGACY = legacy_option(_NAME)
_MOST_IDS = 100  # that are looked up at once for the kernel: damaged messages may contain any number of ids
_HEADER_BYTES = 5  # a magic byte, 0, and the id, highest byte first


def _decode(column: Column, schema: StructType, options: FormatOptions) -> Column:
    return decoded(_decoder(schema, options).rows, schema, column)


def _decoder(schema: StructType, options: FormatOptions) -> Decoder:
    settings, text, target = (
        schema_registry_settings.settings(_NAME, options),
        _text(schema, options),
        arrow_type(schema),
    )

    def from_avro_confluent(messages: pa.Array) -> pa.Array:
        return _decode_batch(messages, settings, text, target)

    def schemas(ids: Collection[int]) -> Mapping[int, str | None]:
        return _resolved_schemas(ids, settings, text, target)

    return Decoder(from_avro_confluent, schemas)


def _native(schema: StructType, options: FormatOptions) -> Mapping[str, Any] | None:
    del options
    return None if has(schema, (TimeType,)) else {"format": _NAME}  # Spark reads Arrow's times as TIME(6) only


def _encode(column: Column, schema: StructType, options: FormatOptions) -> Column:
    settings, text = schema_registry_settings.settings(_NAME, options), _text(schema, options)
    subject = options.get(_SUBJECT)
    if subject is None:
        raise ConfigurationError(f"Option '{_SUBJECT}' is missing; rows cannot be written without it")

    cut = to_be_cut(schema)
    native = native_spec(schema, parsed(text), cut)

    def to_avro_confluent(rows: pa.Array) -> pa.Array:
        return _encode_batch(rows, settings, subject, text, cut=cut, native=native)

    return evaluated(to_avro_confluent, BinaryType(), column)


def _check(schema: StructType, options: FormatOptions) -> None:
    schema_registry_settings.settings(_NAME, options)
    text = _text(schema, options)
    try:
        given = parsed(text)
    except ValueError as error:
        where = f"Option '{_SCHEMA}' is not" if _SCHEMA in options else "The columns cannot become"
        raise ConfigurationError(f"{where} a valid Avro schema: {error}") from None
    if _SCHEMA not in options:
        return
    target = arrow_type(schema)
    try:
        reader(given, given, target)
        encode(pa.array([], target), given)
    except (UnreadableError, TypeError) as error:
        raise ConfigurationError(f"Option '{_SCHEMA}' does not fit the columns: {error}. Change one of them") from None


def _text(schema: StructType, options: FormatOptions) -> str:
    given: str | None = options.get(_SCHEMA)
    return given or schema_text(schema, legacy_timestamps=_LEGACY.of(options))


def _decode_batch(messages: pa.Array, settings: RegistrySettings, text: str, target: pa.StructType) -> pa.StructArray:
    def groups(cursor: Cursor) -> Iterable[tuple[Indices, Read]]:
        short = cursor.end - cursor.position < _HEADER_BYTES
        foreign = ~short & (cursor.byte(0) != 0)
        cursor.fail(short, "it is too short for the magic byte and a schema id")
        cursor.fail(foreign, "it does not begin with the magic byte 0 of a schema registry's serializer")
        left = np.flatnonzero(~short & ~foreign)
        high, mid, low, lowest = (cursor.byte(place).astype(np.int64)[left] for place in range(1, _HEADER_BYTES))
        ids = (high << 24) | (mid << 16) | (low << 8) | lowest
        cursor.position[left] += _HEADER_BYTES
        for schema_id in np.unique(ids).tolist():
            yield left[ids == schema_id], _reader_or_fault(settings, schema_id, text, target)

    return decode(messages, target, groups)


def _encode_batch(
    rows: pa.StructArray,
    settings: RegistrySettings,
    subject: str,
    text: str,
    *,
    cut: Collection[str] = frozenset(),
    native: str | None = None,
) -> pa.Array:
    header = b""
    if rows.null_count < len(rows):
        schema_id = schema_registry.client(settings).register(subject, "AVRO", text)
        header = b"\x00" + schema_id.to_bytes(4, "big")
    return encode(rows, parsed(text), header, cut, native)


def _reader_or_fault(settings: RegistrySettings, schema_id: int, text: str, target: pa.StructType) -> Read:
    try:
        return _reader(settings, schema_id, text, target)
    except RegistryError as error:
        if not error.not_found:
            raise
        # Probably a damaged message. The registry is asked again for the next one.
        return unreadable(str(error), target)


def _resolved_schemas(
    ids: Collection[int], settings: RegistrySettings, text: str, target: pa.StructType
) -> dict[int, str | None]:
    """Return schemas for the native kernel, by id; without those that the registry does not know, and not too many at once.

    Errors of the registry and of schemas that do not fit the columns are those of `_decode_batch`.
    """
    found = {}
    for schema_id in islice(ids, _MOST_IDS):
        try:
            found[schema_id] = _resolved(settings, schema_id, text, target)
        except RegistryError as error:
            if not error.not_found:
                raise
    return found


@functools.lru_cache(1000)
def _resolved(settings: RegistrySettings, schema_id: int, text: str, target: pa.StructType) -> str | None:
    _reader(settings, schema_id, text, target)  # raises if the schema does not fit
    writer = _writer(settings, schema_id)
    found = None if isinstance(writer, str) else resolved(writer, parsed(text), target)
    return None if found is None else json.dumps(found)


@functools.lru_cache(1000)
def _writer(settings: RegistrySettings, schema_id: int) -> AvroSchema | str:
    """Return a schema of the registry, or why its messages cannot be read."""
    found = schema_registry.client(settings).schema(schema_id)
    if found.type != "AVRO":
        return f"its schema {schema_id} is not an Avro schema, but {found.type}"
    try:
        return parse_schema(found.text, schema_registry.client(settings).references(found))
    except ValueError as error:
        return f"with its schema {schema_id}, {error}"


@functools.lru_cache(1000)
def _reader(settings: RegistrySettings, schema_id: int, text: str, target: pa.StructType) -> Read:
    writer = _writer(settings, schema_id)
    if isinstance(writer, str):
        return unreadable(writer, target)
    try:
        return reader(writer, parsed(text), target)
    except UnreadableError as error:
        raise ConfigurationError(
            f"Schema with id {schema_id} does not fit the columns: {error}. Change the columns, or set '{_SCHEMA}'"
        ) from None


AVRO_CONFLUENT = Format(
    _NAME,
    (*schema_registry_settings.options(_NAME), _LEGACY),
    _decode,
    _encode,
    _check,
    registry=_SUBJECT,
    native=_native,
    decoder=_decoder,
)
"""Flink's format `avro-confluent`."""

"""The format `protobuf-confluent`: Protobuf with Confluent's schema registry.

A message is a byte 0, its schema's id, the indexes that say which of the schema's messages it is, and the Protobuf message.

Reading, a message is read with the schema it was written with: columns find its fields by name, and one that the schema
does not have is null. If a message is given (`message-class-name` or `schema`), all are read as that one, so that fields
find each other by number, as Protobuf does it, and the registry is not asked.

Writing, the schema is that of the given message, or one made of the columns. Workers register it when they write first.

Flink has no such format; its options are those of `avro-confluent` and of `protobuf`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, InvalidOptionError, RegistryError
from dynamic_kafka.formats import registry
from dynamic_kafka.formats.arrow import arrow_type, decoded, evaluated
from dynamic_kafka.formats.format import Format, FormatOptions
from dynamic_kafka.formats.protobuf.decoding import Decoder, Missing, decoder, with_errors
from dynamic_kafka.formats.protobuf.descriptors import (
    MessageType,
    is_well_known,
    message_of_options,
    message_of_set,
    require_protobuf,
)
from dynamic_kafka.formats.protobuf.encoding import encoder
from dynamic_kafka.formats.protobuf.format import protobuf_options
from dynamic_kafka.formats.protobuf.schemas import message_at, message_path, parse_schema, schema_text
from dynamic_kafka.formats.protobuf.types import file_of_columns
from dynamic_kafka.formats.protobuf.wire import header_of, header_size, message_indexes, schema_id
from dynamic_kafka.options import Option, non_blank

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

__all__ = ["PROTOBUF_CONFLUENT"]

_NAME = "protobuf-confluent"
_SUBJECT, _SCHEMA = f"{_NAME}.subject", f"{_NAME}.schema"
_CLASS, _MESSAGE = f"{_NAME}.message-class-name", f"{_NAME}.message-name"
_TYPE = "PROTOBUF"

_PROTOBUF = protobuf_options(_NAME)
_OPTIONS = (
    *registry.options(_NAME),
    *_PROTOBUF,
    Option(
        _MESSAGE,
        non_blank("a message's full name"),
        shown_default="the first message of `schema`; `Row`",
        doc="Reading: the message that is expected; any other is an error. Writing: a message of `schema`, or the name of "
        "the message that is made from the columns.",
    ),
)


class _Reading(NamedTuple):
    """How messages are read; hashable and picklable."""

    settings: registry.RegistrySettings
    columns: StructType
    missing: Missing
    ignore_errors: bool
    given: MessageType | None
    expected: str | None


def _given_message(options: FormatOptions) -> MessageType | None:
    """The message that the options give, not only its name."""
    require_protobuf(_NAME)
    found = message_of_options(_NAME, options)
    if found is None:
        return _message_of_text(options[_SCHEMA], options.get(_MESSAGE)) if _SCHEMA in options else None
    if other := next((option for option in (_SCHEMA, _MESSAGE) if option in options), None):
        raise ConflictingOptionsError([_CLASS, other], "each of them says what the message is; give one of them")
    return found


@functools.lru_cache(maxsize=32)
def _message_of_text(schema: str, name: str | None) -> MessageType:
    try:
        files = parse_schema(schema, {})
        return message_of_set(_MESSAGE, name or message_at(files.file[-1], [0]), files)
    except InvalidOptionError:
        raise
    except ConfigurationError as error:
        raise ConfigurationError(f"Option '{_SCHEMA}' cannot be used: {error}") from None


def _reading(schema: StructType, options: FormatOptions) -> _Reading:
    """How the options say that messages are to be read; checked as far as it can be without the registry."""
    given = _given_message(options)
    reading = _Reading(
        registry.settings(_NAME, options),
        schema,
        Missing(_PROTOBUF.read_default_values.of(options), columns=given is None),
        _PROTOBUF.ignore_parse_errors.of(options),
        given,
        None if given is not None else options.get(_MESSAGE),
    )
    if given is not None:
        _decoder(reading, given)
    return reading


def _check(schema: StructType, options: FormatOptions) -> None:
    _reading(schema, options)


def _decode(column: Column, schema: StructType, options: FormatOptions) -> Column:
    reading = _reading(schema, options)

    def from_protobuf_confluent(messages: pa.Array) -> pa.Array:
        return _decode_batch(messages.to_pylist(), reading)

    return decoded(from_protobuf_confluent, schema.toNullable(), column)


def _decode_batch(messages: Sequence[bytes | None], reading: _Reading) -> pa.StructArray:
    if reading.given is None:
        registry.client(reading.settings)  # what is wrong with the settings is no message's fault, and raises here
    places: dict[bytes, list[int]] = {}  # by header
    errors: dict[int, str] = {}
    for place, message in enumerate(messages):
        if message is not None:
            try:
                header = message[: header_size(message)]
            except IndexError:
                errors[place] = (
                    "It does not begin as messages with a schema registry do: a byte 0, an id, message indexes"
                )
            else:
                places.setdefault(header, []).append(place)
    parts: list[pa.StructArray] = []
    order: list[int] = []
    for header, chosen in places.items():
        try:
            type_ = _message(reading, header)
        except ConfigurationError as error:
            errors |= dict.fromkeys(chosen, f"Schema with id {schema_id(header)}: {error}")
            continue
        decode = _fitting_decoder(reading, type_, header)
        size = len(header)
        parts.append(decode([message[size:] for place in chosen if (message := messages[place]) is not None]))
        order += chosen
    if len(order) == len(messages) and len(parts) == 1:
        return parts[0]
    parts.append(_failed(list(errors.values()), reading))
    order += errors
    at: list[int | None] = [None] * len(messages)
    for index, place in enumerate(order):
        at[place] = index
    return pa.concat_arrays(parts).take(pa.array(at, pa.int64()))


def _failed(errors: Sequence[str], reading: _Reading) -> pa.StructArray:
    rows = pa.nulls(len(errors), arrow_type(reading.columns.toNullable()))
    return with_errors(rows, errors, [False] * len(errors), ignore_errors=reading.ignore_errors)


def _message(reading: _Reading, header: bytes) -> MessageType:
    """The message that comes after a header; raises ConfigurationError if it cannot be read as that."""
    if reading.given is not None:
        return reading.given
    message = _registered_message(reading.settings, header)
    if reading.expected not in {None, message.name}:
        raise ConfigurationError(f"It is a message {message.name}; '{_MESSAGE}' expects {reading.expected}")
    return message


@functools.lru_cache(maxsize=1024)
def _decoder(reading: _Reading, message: MessageType) -> Decoder:
    return decoder(message, reading.columns, reading.missing, ignore_errors=reading.ignore_errors)


def _fitting_decoder(reading: _Reading, message: MessageType, header: bytes) -> Decoder:
    """Raises ConfigurationError for a column of another type than its field: no message is at fault then."""
    try:
        return _decoder(reading, message)
    except ConfigurationError as error:
        raise ConfigurationError(f"Schema with id {schema_id(header)} does not fit the columns: {error}") from None


@functools.lru_cache(maxsize=1024)
def _registered_message(settings: registry.RegistrySettings, header: bytes) -> MessageType:
    files = _files(settings, schema_id(header))
    if isinstance(files, str):
        raise ConfigurationError(files)
    return message_of_set(_MESSAGE, message_at(files.file[-1], message_indexes(header)), files)


@functools.lru_cache(maxsize=1024)
def _files(settings: registry.RegistrySettings, number: int) -> FileDescriptorSet | str:
    """A schema's files, or why it has none that could be used: kept as well, for a schema of an id never changes."""
    client = registry.client(settings)
    try:
        schema = client.schema(number)
    except RegistryError as error:
        if error.not_found:  # the message may be damaged: its own fault
            raise ConfigurationError(str(error)) from None
        raise
    if schema.type != _TYPE:
        return f"It is of type {schema.type}, not {_TYPE}; read it with that format"
    references = client.references(schema)
    try:
        return parse_schema(schema.text, references)
    except ConfigurationError as error:
        return str(error)


class _Written(NamedTuple):
    """What is written; hashable and picklable.

    Args:
        message: The messages' type.
        path: The message's indexes in its file.
        files: Name, text and imports of each file to register, after those it imports; the last one is the message's own.
    """

    message: MessageType
    path: tuple[int, ...]
    files: tuple[tuple[str, str, tuple[str, ...]], ...]


def _encode(column: Column, schema: StructType, options: FormatOptions) -> Column:
    from pyspark.sql.types import BinaryType

    settings = registry.settings(_NAME, options)
    subject: str | None = options.get(_SUBJECT)
    if subject is None:
        raise ConfigurationError(f"Option '{_SUBJECT}' is missing; rows cannot be written without it")
    written = _written(schema, options)
    literal: str = _PROTOBUF.null_literal.of(options)
    encoder(written.message, schema, literal)  # whether it can be made

    def to_protobuf_confluent(rows: pa.Array) -> pa.Array:
        payloads = encoder(written.message, schema, literal)(rows)
        header = _header(settings, subject, written) if rows.null_count < len(rows) else b""
        return pa.array([None if payload is None else header + payload for payload in payloads], pa.binary())

    return evaluated(to_protobuf_confluent, BinaryType(), column)


def _written(schema: StructType, options: FormatOptions) -> _Written:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    message = _given_message(options)
    if message is None:
        name = options.get(_MESSAGE, "Row")
        message = message_of_set(_MESSAGE, name, FileDescriptorSet(file=[file_of_columns(schema, name)]))
    needed = FileDescriptorSet.FromString(message.files).file
    path = tuple(message_path(needed[-1], message.name))
    if _SCHEMA in options:  # then it imports only what is well-known
        return _Written(message, path, (("", options[_SCHEMA], ()),))
    files = [
        (file.name, schema_text(file), tuple(name for name in file.dependency if not is_well_known(name)))
        for file in needed
        if not is_well_known(file.name)
    ]
    return _Written(message, path, tuple(files))


@functools.lru_cache(maxsize=1024)
def _header(settings: registry.RegistrySettings, subject: str, written: _Written) -> bytes:
    client = registry.client(settings)
    versions: dict[str, int] = {}  # of imports, whose subjects are their names, as with Confluent's clients
    *imports, (_, file_text, imported) = written.files
    for name, import_text, needed in imports:
        references = [(other, other, versions[other]) for other in needed]
        client.register(name, _TYPE, import_text, references)
        versions[name] = client.version(name, _TYPE, import_text, references)
    registered = client.register(subject, _TYPE, file_text, [(name, name, versions[name]) for name in imported])
    return header_of(registered, written.path)


PROTOBUF_CONFLUENT = Format(_NAME, _OPTIONS, _decode, _encode, _check, registry=_SUBJECT)
"""Protobuf with Confluent's schema registry."""

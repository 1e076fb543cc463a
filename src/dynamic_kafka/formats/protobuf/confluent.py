"""The format `protobuf-confluent`: Protobuf with Confluent's schema registry.

A message in Kafka is a prefix (a byte 0, the schema's id, and the indexes that select a message type of the schema) and the
Protobuf message. What is in the prefix may also be in a header of the record, with a GUID; see `schema_ids`.

Reading: a message is read with the schema with which it was written. Columns are matched to fields by name, and a column
that the schema does not have is null. If a message type is given (`message-class-name` or `schema`), all messages are read
as that type: fields are matched by number, as Protobuf does it, and the registry is not asked.

Writing: the schema is that of the given message type, or is made from the columns. A worker registers it when it writes its
first row.

Flink does not have this format. Its options are those of `avro-confluent` and of `protobuf`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from dynamic_kafka import native
from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, InvalidOptionError, RegistryError
from dynamic_kafka.formats import schema_registry, schema_registry_settings
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.format import Decode, Encode, Format, FormatOptions, Rows, Used
from dynamic_kafka.formats.kernel import native_decoder
from dynamic_kafka.formats.protobuf.columns import columns_of
from dynamic_kafka.formats.protobuf.descriptors import (
    MessageType,
    is_well_known,
    message_of_options,
    message_of_set,
    require_protobuf,
    sent_message,
    sent_options,
)
from dynamic_kafka.formats.protobuf.encoding import encoder
from dynamic_kafka.formats.protobuf.format import protobuf_options
from dynamic_kafka.formats.protobuf.message_header import header_of, message_indexes
from dynamic_kafka.formats.protobuf.plan import Missing, plan_of
from dynamic_kafka.formats.protobuf.schemas import message_at, message_path, parse_schema, schema_text
from dynamic_kafka.formats.protobuf.types import file_of_columns
from dynamic_kafka.formats.schema_ids import SchemaId, id_of, no_id
from dynamic_kafka.formats.schema_registry import RegisteredSchema
from dynamic_kafka.formats.schema_registry_settings import RegistrySettings
from dynamic_kafka.options import Option, non_blank

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

__all__ = [
    "PROTOBUF_CONFLUENT",
    "batch_decoder",
    "batch_encoder",
    "message_of_columns",
    "message_of_text",
    "registered_message",
    "registered_protobuf",
]

_NAME = "protobuf-confluent"
_SUBJECT, _SCHEMA = f"{_NAME}.subject", f"{_NAME}.schema"
_CLASS, _MESSAGE = f"{_NAME}.message-class-name", f"{_NAME}.message-name"
_TYPE = "PROTOBUF"

_PROTOBUF = protobuf_options(_NAME)
_OPTIONS = (
    *schema_registry_settings.options(_NAME),
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
    """The settings for reading; hashable and picklable."""

    settings: RegistrySettings
    columns: StructType
    missing: Missing
    ignore_errors: bool
    given: MessageType | None
    expected: str | None


def _given_message(options: FormatOptions) -> MessageType | None:
    """Return the message type of the options; None if they give at most its name."""
    require_protobuf(_NAME)
    if (sent := sent_message(_NAME, options)) is not None:
        return sent
    found = message_of_options(_NAME, options)
    if found is None:
        return message_of_text(_SCHEMA, options[_SCHEMA], options.get(_MESSAGE)) if _SCHEMA in options else None
    if other := next((option for option in (_SCHEMA, _MESSAGE) if option in options), None):
        raise ConflictingOptionsError([_CLASS, other], "each of them defines the message; set only one of them")
    return found


@functools.lru_cache(maxsize=32)
def message_of_text(option: str, schema: str, name: str | None = None) -> MessageType:
    """Return a message of a schema.

    Args:
        option: The option with the schema, for errors.
        schema: A .proto file's text.
        name: The message's full name; None for the first one.

    Raises:
        ConfigurationError: If protoc cannot compile the text, or it does not have the message.
    """
    try:
        files = parse_schema(schema, {})
        return message_of_set(_MESSAGE, name or message_at(files.file[-1], [0]), files)
    except InvalidOptionError:
        raise
    except ConfigurationError as error:
        raise ConfigurationError(f"Option '{option}' cannot be used: {error}") from None


def message_of_columns(schema: StructType, name: str) -> MessageType:
    """Return the message that is made from columns, with this full name.

    Raises:
        ConfigurationError: If a column cannot be a field.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    return message_of_set(_MESSAGE, name, FileDescriptorSet(file=[file_of_columns(schema, name)]))


def _reading(schema: StructType, options: FormatOptions) -> _Reading:
    """Return the settings for reading, checked as far as possible without the registry."""
    given = _given_message(options)
    reading = _Reading(
        schema_registry_settings.settings(_NAME, options),
        schema,
        Missing(_PROTOBUF.read_default_values.of(options), columns=given is None),
        _PROTOBUF.ignore_parse_errors.of(options),
        given,
        None if given is not None else options.get(_MESSAGE),
    )
    if given is not None:
        _plan(reading, given)  # raises if the columns do not fit
    return reading


def _check(schema: StructType, options: FormatOptions) -> None:
    _reading(schema, options)


def _decoder(schema: StructType, options: FormatOptions, used: Used | None = None) -> Decode:
    return _decoder_of_rows(_reading(schema, options), used)


def batch_decoder(settings: RegistrySettings, schema: StructType) -> Decode:
    """Return what decodes messages, each with the schema of its id, to a struct of columns and `ERROR`.

    It also takes the values of headers with ids.

    Args:
        settings: The registry.
        schema: The columns.
    """
    missing = Missing(defaults=False, columns=True)
    return _decoder_of_rows(_Reading(settings, schema, missing, ignore_errors=False, given=None, expected=None))


def _decoder_of_rows(reading: _Reading, used: Used | None = None) -> Decode:
    def from_protobuf_confluent(messages: pa.Array, ids: pa.Array | None = None) -> pa.Array:
        return _kernel(reading, used, headers=ids is not None).decode(messages, ids)

    return from_protobuf_confluent


@functools.lru_cache(maxsize=256)
def _kernel(reading: _Reading, used: Used | None, *, headers: bool) -> native.Decoder:
    foreign = "It does not begin with the header of a schema registry: a byte 0, an id, message indexes"
    spec = {
        "format": _NAME,
        "ignore_parse_errors": reading.ignore_errors,
        "foreign": no_id(foreign, reading.settings.prefix, headers=headers),
        "plan": None if reading.given is None else _plan(reading, reading.given),
    }
    look_up = None if reading.given is not None else functools.partial(_schemas, reading=reading)
    columns = arrow_type(reading.columns.toNullable())
    return native_decoder(columns, spec, look_up, used)


def _portable(options: FormatOptions) -> FormatOptions:
    given = _given_message(options)
    return options if given is None else {**options, **sent_options(_NAME, given)}


def _schemas(ids: Collection[native.SchemaId], reading: _Reading) -> dict[native.SchemaId, str]:
    """Return plans for the native kernel, by id and message indexes.

    An id that the registry does not know is probably that of a damaged message, and an error of its messages alone.
    """
    schema_registry.client(reading.settings)  # raises for wrong settings, which are not an error of a message
    found = {}
    for given in ids:
        header = given if isinstance(given, bytes) else header_of(given, [0])
        try:
            message = _message(reading, header)
        except ConfigurationError as error:
            found[given] = json.dumps({"missing": f"Schema with id {id_of(header)}: {error}"})
            continue
        found[given] = _fitting_plan(reading, message, header)
    return found


def _message(reading: _Reading, header: bytes) -> MessageType:
    """Return the message type for a header; raise ConfigurationError if the schema or the type cannot be used."""
    message = registered_message(reading.settings, header)
    if reading.expected not in {None, message.name}:
        raise ConfigurationError(
            f"The message has the type {message.name}, but option '{_MESSAGE}' is {reading.expected}"
        )
    return message


@functools.lru_cache(maxsize=1024)
def _plan(reading: _Reading, message: MessageType) -> Mapping[str, Any]:
    return plan_of(message, reading.columns, reading.missing)


def _fitting_plan(reading: _Reading, message: MessageType, header: bytes) -> str:
    """Return the plan; raise ConfigurationError for a column of another type than its field, which fails the query."""
    try:
        return json.dumps(_plan(reading, message))
    except ConfigurationError as error:
        raise ConfigurationError(f"Schema with id {id_of(header)} does not fit the columns: {error}") from None


@functools.lru_cache(maxsize=1024)
def registered_message(settings: RegistrySettings, header: bytes) -> MessageType:
    """Return the message type that a header names in a registry.

    Raises:
        ConfigurationError: If the registry does not know it, or it cannot be used.
        RegistryError: If the registry does not answer.
    """
    files = _files(settings, id_of(header))
    if isinstance(files, str):
        raise ConfigurationError(files)
    return message_of_set(_MESSAGE, message_at(files.file[-1], message_indexes(header)), files)


@functools.lru_cache(maxsize=1024)
def _files(settings: RegistrySettings, number: SchemaId) -> FileDescriptorSet | str:
    """Return a schema's files, or why they cannot be used. Both are cached, because the schema of an id never changes."""
    client = schema_registry.client(settings)
    try:
        schema = client.schema(number)
    except RegistryError as error:
        if error.not_found:  # probably a damaged message: an error of that message only
            raise ConfigurationError(str(error)) from None
        raise
    if schema.type != _TYPE:
        return f"It is of type {schema.type}, not {_TYPE}. Read it with a format for that type"
    references = client.references(schema)
    try:
        return parse_schema(schema.text, references)
    except ConfigurationError as error:
        return str(error)


class _Written(NamedTuple):
    """The settings for writing; hashable and picklable.

    Args:
        message: The message type.
        path: The message indexes of the type in its file.
        files: Name, text and imports of each file to register, after the files that it imports. The last one is the file of
            the message type.
    """

    message: MessageType
    path: tuple[int, ...]
    files: tuple[tuple[str, str, tuple[str, ...]], ...]


def _rows(column: Column, schema: StructType, options: FormatOptions) -> Rows:
    settings = schema_registry_settings.settings(_NAME, options)
    subject = schema_registry_settings.subject_of(_NAME, options)
    message = _given_message(options) or message_of_columns(schema, options.get(_MESSAGE, "Row"))
    literal: str = _PROTOBUF.null_literal.of(options)
    function = batch_encoder(settings, subject, message, schema, text=options.get(_SCHEMA), null_literal=literal)
    return Rows(column, schema, function)


def batch_encoder(
    settings: RegistrySettings,
    subject: str,
    message: MessageType,
    schema: StructType,
    *,
    text: str | None = None,
    null_literal: str = "",
) -> Encode:
    """Return the function that encodes a struct array of the columns.

    Args:
        settings: The registry.
        subject: The subject under which the schema is registered with the first row.
        message: The type of the messages.
        schema: The columns.
        text: The schema with that type, if it is given as a text; None for the descriptors' own.
        null_literal: The text for a null in an array or a map.

    Raises:
        ConfigurationError: If the columns do not fit the message.
    """
    written = _written(message, text)
    encode = encoder(message, schema, null_literal)

    def to_protobuf_confluent(rows: pa.Array) -> native.Encoded:
        return encode(rows, _header(settings, subject, written) if rows.null_count < len(rows) else b"")

    return to_protobuf_confluent


def _written(message: MessageType, text: str | None) -> _Written:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    needed = FileDescriptorSet.FromString(message.files).file
    path = tuple(message_path(needed[-1], message.name))
    if text is not None:  # such a schema imports only well-known files
        return _Written(message, path, (("", text, ()),))
    files = [
        (file.name, schema_text(file), tuple(name for name in file.dependency if not is_well_known(name)))
        for file in needed
        if not is_well_known(file.name)
    ]
    return _Written(message, path, tuple(files))


@functools.lru_cache(maxsize=1024)
def _header(settings: RegistrySettings, subject: str, written: _Written) -> bytes:
    client = schema_registry.client(settings)
    versions: dict[str, int] = {}  # of imports; as in Confluent's clients, their subjects are their names
    *imports, (_, file_text, imported) = written.files
    for name, import_text, needed in imports:
        references = [(other, other, versions[other]) for other in needed]
        client.register(name, _TYPE, import_text, references)
        versions[name] = client.version(name, _TYPE, import_text, references)
    registered = client.register(subject, _TYPE, file_text, [(name, name, versions[name]) for name in imported])
    return header_of(registered, written.path)


def _columns(options: FormatOptions) -> tuple[StructType, FormatOptions]:
    """Return the columns of the message type; that of the registry's schema if none is given."""
    if (message := _given_message(options)) is not None:
        return columns_of(message.descriptor), {}
    return _registered(schema_registry.planned_schema(_NAME, _TYPE, options), options), {}


def _registered(found: RegisteredSchema, options: FormatOptions) -> StructType:
    return columns_of(registered_protobuf(_NAME, found, options, options.get(_MESSAGE)).descriptor)


def registered_protobuf(
    format_name: str, found: RegisteredSchema, options: FormatOptions, name: str | None = None
) -> MessageType:
    """Return a message of a schema of a registry.

    Args:
        format_name: The format's name.
        found: The schema.
        options: The format's options.
        name: The message's full name; None for the first one.

    Raises:
        ConfigurationError: If it is not a Protobuf schema with that message.
        RegistryError: If the registry does not answer, which may have to be asked for what the schema refers to.
    """
    registry = schema_registry.client(schema_registry_settings.settings(format_name, options))
    files = parse_schema(found.text, registry.references(found))
    return message_of_set(_MESSAGE, name or message_at(files.file[-1], [0]), files)


PROTOBUF_CONFLUENT = Format(
    _NAME,
    _OPTIONS,
    _decoder,
    _rows,
    _check,
    registry=_SUBJECT,
    columns=_columns,
    registered=_registered,
    portable=_portable,
)
"""Protobuf with Confluent's schema registry."""

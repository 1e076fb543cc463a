"""Keys and values of messages for people: as text, as JSON, or decoded by the schema of a registry, without Spark."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError, MissingDependencyError
from dynamic_kafka.formats import schema_registry, schema_registry_settings
from dynamic_kafka.formats.schema_ids import ID_BYTES, SchemaId, id_of
from dynamic_kafka.formats.schema_registry_settings import RegistrySettings

__all__ = ["FORMATS", "Decoded", "decoder_of", "text_of", "text_of_bytes", "text_or_hex"]

FORMATS = ("auto", "raw", "hex", "json", "avro-confluent", "protobuf-confluent")
"""The formats: `auto` is decoded by the registry if it knows the message's schema, else text, or hex if it is none."""

Decoded = Callable[[bytes], Any]


def decoder_of(name: str, registry: str | None, properties: Mapping[str, str], plain: Decoded) -> Decoded:
    """Return the function that decodes bytes to what JSON can show; it raises ValueError for bytes that do not fit.

    The registry's options are without the format's name before them, such as `basic-auth.user-info`. `plain` decodes what
    has no schema: `text_or_hex` for people, `text_of_bytes` for programs.

    Raises:
        ConfigurationError: If a format that needs a registry has none, or an option is wrong.
    """
    known: Mapping[str, Decoded] = {"raw": plain, "hex": _hex, "json": json.loads}
    if name in known:
        return known[name]
    if registry is None:
        if name == "auto":
            return plain
        raise ConfigurationError(f"The format {name} needs --registry with the URL of the schema registry")
    prefix = "avro-confluent" if name == "auto" else name
    given = {f"{prefix}.url": registry} | {f"{prefix}.{key}": value for key, value in properties.items()}
    settings = schema_registry_settings.settings(prefix, given)
    kind = {"avro-confluent": "AVRO", "protobuf-confluent": "PROTOBUF"}.get(name)

    def decode(data: bytes) -> Any:
        framed = len(data) > ID_BYTES and data[0] == 0
        if kind is None and not framed:
            return plain(data)
        if not framed:
            raise ValueError("it does not begin with the id of a schema")
        return _by_schema(settings, data, kind, plain)

    return decode


def text_of(found: Any) -> str:
    """Return what a decoder has returned in one line."""
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=_plain)


def text_of_bytes(data: bytes) -> str:
    """Return the text that bytes are; raise ValueError if they are none."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no UTF-8 ({error.reason} at byte {error.start})") from None


def text_or_hex(data: bytes) -> str:
    """Return the text that bytes are, or hexadecimal digits if they are none, or have control characters."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _hex(data)
    return text if all(c.isprintable() or c in "\t\r\n" for c in text) else _hex(data)


def _hex(data: bytes) -> str:
    return f"0x{data.hex()}"


def _plain(value: object) -> str:
    """Return what JSON does not know, such as a date or bytes, as text."""
    return text_or_hex(value) if isinstance(value, bytes) else str(value)


def _by_schema(settings: RegistrySettings, data: bytes, kind: str | None, plain: Decoded) -> Any:
    number = id_of(data)
    try:
        schema = schema_registry.client(settings).schema(number)
    except DynamicKafkaError as error:
        if kind is None and getattr(error, "not_found", False):
            return plain(data)  # a message that only looks as if it had one
        raise
    if kind is not None and schema.type != kind:
        raise ValueError(f"its schema {number} is of type {schema.type}")
    if schema.type == "AVRO":
        return _avro(settings, number, data[ID_BYTES:])
    if schema.type == "PROTOBUF":
        return _protobuf(settings, data)
    return json.loads(data[ID_BYTES:])


@lru_cache(maxsize=256)
def _avro_schema(settings: RegistrySettings, number: SchemaId) -> Any:
    from dynamic_kafka.formats.avro.schemas import parse_schema

    client = schema_registry.client(settings)
    schema = client.schema(number)
    return parse_schema(schema.text, client.references(schema)).root


def _avro(settings: RegistrySettings, number: SchemaId, data: bytes) -> Any:
    schema = _avro_schema(settings, number)
    import fastavro

    try:
        return json.loads(json.dumps(fastavro.schemaless_reader(io.BytesIO(data), schema, None), default=_plain))
    except Exception as error:  # noqa: BLE001  whatever fastavro raises for damaged bytes
        raise ValueError(f"it does not fit its schema {number} ({type(error).__name__})") from None


def _protobuf(settings: RegistrySettings, data: bytes) -> Any:
    try:
        from dynamic_kafka.formats.protobuf.confluent import registered_message
        from dynamic_kafka.formats.protobuf.message_header import header_size
    except ImportError as error:
        raise MissingDependencyError("pyspark", "spark", "for the format protobuf-confluent") from error
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    try:
        size = header_size(data)
    except IndexError:
        raise ValueError("it does not begin with the id of a schema and the indexes of a message") from None
    try:
        message = GetMessageClass(registered_message(settings, data[:size]).descriptor)()
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    try:
        message.ParseFromString(data[size:])
    except DecodeError:
        raise ValueError("it does not fit its schema") from None
    return json_format.MessageToDict(message, preserving_proto_field_name=True)

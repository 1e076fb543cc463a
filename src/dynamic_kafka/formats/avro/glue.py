"""The format `avro-glue`: Avro behind the header of AWS Glue's schema registry, for reading.

A message begins with 18 bytes: 3, a byte for the compression (0 for none, 5 for zlib), and the UUID of a schema version.
Glue is asked for the version's schema with boto3, which finds the login as all of AWS's tools do. A message is bad if it is
damaged, or if Glue does not know its version. If Glue does not answer, or a schema does not fit the columns, the query
fails.

The name and the options are those of Flink's AWS connectors. Writing is not supported.
"""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from dynamic_kafka import native
from dynamic_kafka.errors import ConfigurationError, MissingDependencyError, RegistryError
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.avro.format import checked, legacy_option, parsed, text_of_columns
from dynamic_kafka.formats.avro.plan import UnreadableError, plan_of, unreadable
from dynamic_kafka.formats.avro.schemas import AvroSchema, parse_schema
from dynamic_kafka.formats.format import Decode, Format, FormatOptions, Rows, Used
from dynamic_kafka.formats.kernel import native_decoder
from dynamic_kafka.formats.schema_ids import SchemaId, plans_by_id
from dynamic_kafka.formats.schema_registry_settings import without_logins
from dynamic_kafka.options import Option, non_blank

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

__all__ = ["AVRO_GLUE"]

_NAME = "avro-glue"
_REGION = Option(
    f"{_NAME}.aws.region",
    non_blank("a region such as eu-west-1"),
    shown_default="that of the AWS settings",
    doc="The AWS region of the registry.",
)
_ENDPOINT = Option(
    f"{_NAME}.aws.endpoint",
    non_blank("a URL"),
    shown_default="that of the region",
    doc="The URL of AWS Glue's API, such as that of a VPC endpoint.",
)
_UNUSED = tuple(
    Option(
        f"{_NAME}.{name}",
        non_blank(),
        doc="Accepted for compatibility with Flink, without effect: a message has the id of its schema's version.",
    )
    for name in ("registry.name", "schema.name")
)
_LEGACY = legacy_option(_NAME)
_VERSION, _PLAIN, _ZLIB = 3, 0, 5
_HEADER_BYTES = 18
_GUID = b"\1"  # before a UUID, as the kernel has it of headers
_LARGEST_BYTES = 256 * 1024 * 1024  # of messages that were compressed: damaged bytes could ask for any memory


class _Glue(NamedTuple):
    """Where the registry is; hashable and picklable."""

    region: str | None
    endpoint: str | None


def _decoder(schema: StructType, options: FormatOptions, used: Used | None = None) -> Decode:
    glue = _Glue(_REGION.of(options), _ENDPOINT.of(options))
    text, target = text_of_columns(_NAME, schema, options), arrow_type(schema)

    def from_avro_glue(messages: pa.Array) -> pa.Array:
        bodies, headers, faults = _separated(messages)
        return _kernel(glue, text, target, used).decode(bodies, headers, faults)

    return from_avro_glue


def _rows(column: Column, schema: StructType, options: FormatOptions) -> Rows:
    del column, schema, options
    raise ConfigurationError(f"The format '{_NAME}' only reads; write rows with avro-confluent or another format")


def _check(schema: StructType, options: FormatOptions) -> None:
    checked(text_of_columns(_NAME, schema, options))


def _separated(messages: pa.Array) -> tuple[pa.Array, pa.Array, Mapping[int, str]]:
    """Return the Avro of messages, their ids as values of headers, and by row the reasons why some cannot be read.

    Raises:
        OverflowError: If several messages have more than `_LARGEST_BYTES`.
    """
    bodies: list[bytes | None] = []
    versions: list[bytes | None] = []
    faults: dict[int, str] = {}
    size = 0
    for row, message in enumerate(messages.to_pylist()):
        body = version = None
        if message is not None:
            try:
                body, version = _body(message), message[2:_HEADER_BYTES]
            except ValueError as error:
                faults[row] = str(error)
        size += len(body or b"")
        if size > _LARGEST_BYTES and row:
            raise OverflowError(f"the messages have more than {_LARGEST_BYTES // 2**20} MiB when they are decompressed")
        bodies.append(body)
        versions.append(version)
    headers = pa.array([None if version is None else _GUID + version for version in versions], pa.binary())
    return pa.array(bodies, pa.binary()), headers, faults


@functools.lru_cache(256)
def _kernel(glue: _Glue, text: str, target: pa.StructType, used: Used | None) -> native.Decoder:
    look_up = functools.partial(plans_by_id, plan_of=lambda version: _plan(glue, version, text, target))
    return native_decoder(target, {"format": "avro-confluent"}, look_up, used)


def _body(message: bytes) -> bytes:
    """Return the Avro of a message; raise ValueError with the reason if it has no such header."""
    if len(message) < _HEADER_BYTES:
        raise ValueError("it is too short for the header of AWS Glue")
    if message[0] != _VERSION or message[1] not in (_PLAIN, _ZLIB):
        raise ValueError("it does not begin with the header of AWS Glue: a byte 3, and 0 or 5 for the compression")
    body = message[_HEADER_BYTES:]
    if message[1] == _PLAIN:
        return body
    inflate = zlib.decompressobj()
    try:
        found = inflate.decompress(body, _LARGEST_BYTES)
    except zlib.error as error:
        raise ValueError(f"it cannot be decompressed ({error})") from None
    if not inflate.eof or inflate.unused_data:
        raise ValueError(f"it is not one zlib stream of at most {_LARGEST_BYTES} bytes")
    return found


@functools.lru_cache(1000)
def _plan(glue: _Glue, version: SchemaId, text: str, target: pa.StructType) -> str:
    writer = _writer(glue, version)
    if isinstance(writer, str):
        return json.dumps(unreadable(writer))
    try:
        return json.dumps(plan_of(writer, parsed(text), target))
    except UnreadableError as error:
        raise ConfigurationError(
            f"Schema version {version} does not fit the columns: {error}. Change the columns"
        ) from None


@functools.lru_cache(1000)
def _writer(glue: _Glue, version: SchemaId) -> AvroSchema | str:
    """Return the schema of a version, or why its messages cannot be read."""
    found = _schema_version(glue, version)
    if found["DataFormat"] != "AVRO":
        return f"its schema version {version} is not an Avro schema, but {found['DataFormat']}"
    try:
        return parse_schema(found["SchemaDefinition"])
    except ValueError as error:
        return f"with its schema version {version}, {error}"


def _schema_version(glue: _Glue, version: SchemaId) -> dict[str, Any]:
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise MissingDependencyError("boto3", "aws", f"for the format {_NAME}") from None

    asked = f"AWS Glue, asked for the schema version {version},"
    try:
        found: dict[str, Any] = _client(glue).get_schema_version(SchemaVersionId=str(version))
    except ClientError as error:
        code = error.response["Error"]["Code"]
        unknown = code == "EntityNotFoundException"
        hint = (
            f"the message was written with another registry or is damaged; check '{_REGION.key}'"
            if unknown
            else "check the login and its right glue:GetSchemaVersion"
        )
        status = error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
        raise RegistryError(
            f"{asked} answered {code}; {hint}",
            retriable=status >= 500 or code == "ThrottlingException",
            not_found=unknown,
        ) from None
    except BotoCoreError as error:
        raise RegistryError(
            f"{asked} did not answer ({type(error).__name__}: {without_logins(str(error))}); check '{_REGION.key}', "
            f"'{_ENDPOINT.key}' and the AWS login, on the driver and every executor",
            retriable=True,
        ) from None
    return found


@functools.lru_cache(16)
def _client(glue: _Glue) -> Any:
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        return boto3.client("glue", region_name=glue.region, endpoint_url=glue.endpoint)
    except (BotoCoreError, ValueError) as error:
        said = without_logins(str(error))
        raise ConfigurationError(
            f"Format {_NAME}: AWS's client refused this: {said}; set '{_REGION.key}', or '{_ENDPOINT.key}'"
        ) from None


AVRO_GLUE = Format(_NAME, (_REGION, _ENDPOINT, *_UNUSED, _LEGACY), _decoder, _rows, _check)
"""The format of Flink's AWS connectors for Avro with Glue's schema registry."""

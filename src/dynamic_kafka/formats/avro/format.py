"""The format `avro`: messages in Avro's encoding, with the schema that Flink makes from the columns (see `schemas`).

Differences to Flink: bytes behind the record are an error, where Flink ignores them. Invalid UTF-8, and a decimal or a small
number that does not fit its column, are errors, where Flink reads something else.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dynamic_kafka import native
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats.arrow import Encoded, arrow_type, bisect_errors, encoded, encoded_or_error
from dynamic_kafka.formats.avro.encoding import encode
from dynamic_kafka.formats.avro.plan import plan_of
from dynamic_kafka.formats.avro.schemas import AvroSchema, parse_schema, schema_text, to_be_cut
from dynamic_kafka.formats.format import Decoder, Format, FormatOptions
from dynamic_kafka.options import Option, boolean, choice, non_blank

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

__all__ = ["AVRO", "decoder", "legacy_option", "parsed"]

_NAME = "avro"
_ENCODING = Option(
    f"{_NAME}.encoding", choice("binary", "json"), "binary", doc="The encoding of Avro: `binary`, or Avro's JSON."
)


@functools.lru_cache(256)
def parsed(text: str) -> AvroSchema:
    """Parse a schema, once for each text in a process."""
    return parse_schema(text)


def legacy_option(name: str) -> Option[bool]:
    """Return the option for how timestamps are written, of a format's name."""
    return Option(
        f"{name}.timestamp_mapping.legacy",
        boolean,
        "true",
        doc="If true, `TIMESTAMP` is written as `timestamp-millis`, as in Flink before 1.19. If false, `TIMESTAMP` is "
        "`local-timestamp-*` and `TIMESTAMP_LTZ` is `timestamp-*`.",
    )


_LEGACY = legacy_option(_NAME)


def decoder(schema: StructType, options: FormatOptions) -> Callable[[pa.Array], pa.Array]:
    """Return the function that decodes a batch of messages to a struct of the columns and `ERROR`."""
    text, target, as_json = _text(schema, options), arrow_type(schema), _ENCODING.of(options) == "json"

    def from_avro(messages: pa.Array) -> pa.Array:
        binary, faults = _binary_of_json(messages, text) if as_json else (messages, {})
        return _kernel(text, target).decode(binary, errors=faults)

    return from_avro


@functools.lru_cache(256)
def _kernel(text: str, target: pa.StructType) -> native.Decoder:
    return native.Decoder(target, _spec(text, target))


def _spec(text: str, target: pa.StructType) -> Mapping[str, Any]:
    return {"format": _NAME, "plan": plan_of(parsed(text), parsed(text), target)}


def _encode(column: Column, schema: StructType, options: FormatOptions, call: Encoded = encoded) -> Column:
    text, as_json, cut = _text(schema, options), _ENCODING.of(options) == "json", to_be_cut(schema)

    def to_avro(rows: pa.Array) -> pa.Array:
        return _encode_batch(rows, text, cut, as_json=as_json)

    return call(to_avro, column, schema)


def _check(schema: StructType, options: FormatOptions) -> None:
    try:
        parsed(_text(schema, options))
    except ValueError as error:
        raise ConfigurationError(f"The columns cannot become a valid Avro schema: {error}") from None


def _native(schema: StructType, options: FormatOptions) -> Mapping[str, Any] | None:
    if _ENCODING.of(options) == "json":
        return None
    return _spec(_text(schema, options), arrow_type(schema))


def _text(schema: StructType, options: FormatOptions) -> str:
    return schema_text(schema, legacy_timestamps=_LEGACY.of(options))


def _encode_batch(rows: pa.StructArray, text: str, cut: Collection[str], *, as_json: bool) -> pa.Array:
    messages = encode(rows, parsed(text), b"", cut)
    return _json_of_binary(messages, text) if as_json else messages


# --- Avro's JSON encoding: a batch is converted to the binary encoding, and decoded from there ---


@functools.lru_cache(256)
def _plain(text: str) -> Any:
    """Return a schema without logical types: with them, the library would make Python's dates of numbers."""
    without = json.loads(text, object_hook=lambda part: {k: v for k, v in part.items() if k != "logicalType"})
    return parse_schema(json.dumps(without)).root


def _binary_of_json(messages: pa.Array, text: str) -> tuple[pa.Array, dict[int, str]]:
    """Convert messages to the binary encoding; return them, and by row the reasons why some cannot be converted."""
    given = [(row, message) for row, message in enumerate(messages.to_pylist()) if message is not None]
    binary: list[bytes | None] = [None] * len(messages)
    faults: dict[int, str] = {}
    for (row, _), found in zip(given, _from_json([message for _, message in given], _plain(text)), strict=True):
        binary[row] = found if isinstance(found, bytes) else b""
        if not isinstance(found, bytes):
            faults[row] = found
    return pa.array(binary, pa.binary()), faults


def _from_json(messages: Sequence[bytes], schema: Any) -> list[bytes | str]:
    """Return each message in the binary encoding, or the reason why it cannot be converted."""
    import fastavro

    def convert(begin: int, end: int) -> list[bytes | str]:
        # The library reads one message from each line. In JSON a line break is a blank, or an error.
        lines = io.StringIO("\n".join(message.decode().replace("\n", " ") for message in messages[begin:end]))
        found: list[bytes | str] = []
        for value in fastavro.json_reader(lines, schema):
            encoded = io.BytesIO()
            fastavro.schemaless_writer(encoded, schema, value)
            found.append(encoded.getvalue())
        if len(found) != end - begin:
            raise ValueError("a message is missing")
        return found

    def blame(place: int, error: Exception) -> list[bytes | str]:
        if not messages[place].strip():
            return ["it is empty"]
        return [f"it is not in Avro's JSON encoding ({type(error).__name__}: {error})"]

    # Any error: the library checks little, and fails with whatever follows from that.
    return list(chain.from_iterable(bisect_errors(len(messages), convert, blame, Exception)))


def _json_of_binary(messages: pa.Array, text: str) -> pa.Array:
    import fastavro

    schema = _plain(text)
    values = [fastavro.schemaless_reader(io.BytesIO(m), schema, None) for m in messages.drop_null().to_pylist()]
    lines = io.StringIO()
    fastavro.json_writer(lines, schema, values)
    texts = iter(lines.getvalue().split("\n"))
    return pa.array([next(texts).encode() if valid else None for valid in messages.is_valid().to_pylist()], pa.binary())


AVRO = Format(
    _NAME,
    (
        _ENCODING,
        _LEGACY,
        Option(f"{_NAME}.codec", non_blank(), doc="Accepted for compatibility with Flink, without effect on messages."),
        Option(
            f"{_NAME}.open.fastread", boolean, "false", doc="Accepted for compatibility with Flink, without effect."
        ),
    ),
    lambda schema, options: Decoder(decoder(schema, options)),
    _encode,
    _check,
    native=_native,
    encode_or_error=functools.partial(_encode, call=encoded_or_error),
)
"""Flink's format `avro`."""

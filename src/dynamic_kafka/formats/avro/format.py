"""The format `avro`: messages in Avro's encoding, with the schema that Flink makes from the columns (see `schemas`).

Differences to Flink: bytes behind the record are an error, where Flink ignores them. Invalid UTF-8, and a decimal or a small
number that does not fit its column, are errors, where Flink reads something else.
"""

from __future__ import annotations

import functools
import io
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dynamic_kafka import native
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import kernel
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.avro.encoding import encode
from dynamic_kafka.formats.avro.plan import plan_of
from dynamic_kafka.formats.avro.schemas import AvroSchema, parse_schema, schema_text, to_be_cut
from dynamic_kafka.formats.format import Decode, Format, FormatOptions, Rows, Used
from dynamic_kafka.options import Option, boolean, choice, non_blank

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

__all__ = ["AVRO", "checked", "legacy_option", "parsed", "text_of_columns"]

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


def text_of_columns(name: str, schema: StructType, options: FormatOptions) -> str:
    """Return the schema that is made from columns, for a format with the option `legacy_option`."""
    return schema_text(schema, legacy_timestamps=legacy_option(name).of(options))


def checked(text: str, option: str | None = None) -> AvroSchema:
    """Parse a schema.

    Args:
        text: The schema.
        option: The option with the schema; None if it is made from columns.

    Raises:
        ConfigurationError: If it is not valid.
    """
    try:
        return parsed(text)
    except ValueError as error:
        where = "The columns cannot become" if option is None else f"Option '{option}' is not"
        raise ConfigurationError(f"{where} a valid Avro schema: {error}") from None


def _decoder(schema: StructType, options: FormatOptions, used: Used | None = None) -> Decode:
    text = text_of_columns(_NAME, schema, options)
    plan = plan_of(parsed(text), parsed(text), arrow_type(schema))
    rows = kernel.decoder(schema, {"format": _NAME, "plan": plan}, used)
    if _ENCODING.of(options) != "json":
        return rows

    def from_avro(messages: pa.Array) -> pa.Array:
        return rows(*_binary_of_json(messages, text))

    return from_avro


def _rows(column: Column, schema: StructType, options: FormatOptions) -> Rows:
    text, as_json, cut = text_of_columns(_NAME, schema, options), _ENCODING.of(options) == "json", to_be_cut(schema)

    def to_avro(rows: pa.Array) -> native.Encoded:
        found = encode(rows, parsed(text), b"", cut)
        return _json_of_binary(found, text) if as_json else found

    return Rows(column, schema, to_avro)


def _check(schema: StructType, options: FormatOptions) -> None:
    checked(text_of_columns(_NAME, schema, options))


# --- Avro's JSON encoding: a batch is converted to the binary encoding, and decoded from there ---


@functools.lru_cache(256)
def _plain(text: str) -> Any:
    """Return a schema without logical types: with them, the library would make Python's dates of numbers."""
    without = json.loads(text, object_hook=lambda part: {k: v for k, v in part.items() if k != "logicalType"})
    return parse_schema(json.dumps(without)).root


@functools.cache
def _json_coders() -> tuple[Any, Any]:
    """Return the library's decoder and encoder, with the rules of Avro's own for what is in its place.

    The library takes values of other types for booleans, numbers and arrays, and writes numbers that JSON does not have.
    """
    from fastavro.io import json_decoder, json_encoder

    decoding: Any = json_decoder.AvroJSONDecoder
    encoding: Any = json_encoder.AvroJSONEncoder

    class Decoder(decoding):  # type: ignore[misc]
        def read_value(self, symbol: Any) -> Any:
            return _typed(super().read_value(symbol), type(symbol).__name__)

        def read_array_start(self) -> None:
            super().read_array_start()
            if not isinstance(self._current, list):
                raise TypeError("an array is expected")

    class Encoder(encoding):  # type: ignore[misc]
        def write_value(self, value: Any) -> None:
            if isinstance(value, float) and not math.isfinite(value):
                value = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            super().write_value(value)

    return Decoder, Encoder


def _typed(value: Any, kind: str) -> Any:
    """Return a value of Avro's JSON as one of its type.

    Raises:
        TypeError: If it is of another type.
    """
    is_number = type(value) in (int, float)
    match kind:
        case "Boolean" if type(value) is bool:
            return value
        case "Int" | "Long" if is_number and (type(value) is int or value.is_integer()):
            return int(value)
        case "Float" | "Double" if is_number or value in ("NaN", "Infinity", "-Infinity"):
            return float(value)
        case "Boolean" | "Int" | "Long" | "Float" | "Double":
            raise TypeError(f"a value of the type {kind.lower()} is expected")
    return value


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
    """Return each message in the binary encoding, or the reason why it cannot be converted.

    If the library fails, both halves are converted for themselves: bad messages are few.
    """
    try:
        return _converted(messages, schema)
    except Exception as error:  # noqa: BLE001  any: the library checks little, and fails with whatever follows from that
        if len(messages) == 1:
            if not messages[0].strip():
                return ["it is empty"]
            return [f"it is not in Avro's JSON encoding ({type(error).__name__}: {error})"]
    middle = len(messages) // 2
    return [*_from_json(messages[:middle], schema), *_from_json(messages[middle:], schema)]


def _converted(messages: Sequence[bytes], schema: Any) -> list[bytes | str]:
    import fastavro

    # The library reads one message from each line. In JSON a line break is a blank, or an error.
    lines = io.StringIO("\n".join(message.decode().replace("\n", " ") for message in messages))
    found: list[bytes | str] = []
    for value in fastavro.json_reader(lines, schema, decoder=_json_coders()[0]):
        encoded = io.BytesIO()
        fastavro.schemaless_writer(encoded, schema, value)
        found.append(encoded.getvalue())
    if len(found) != len(messages):
        raise ValueError("a message is missing")
    return found


def _json_of_binary(binary: native.Encoded, text: str) -> native.Encoded:
    import fastavro

    schema, errors = _plain(text), list(binary.errors)
    values: list[Any] = []
    for place, message in enumerate(binary.messages.to_pylist()):
        value = None
        if message is not None:
            try:
                value = fastavro.schemaless_reader(io.BytesIO(message), schema, None)
            except UnicodeDecodeError:
                errors.append((place, "", "has a text that is not UTF-8"))
        values.append(value)
    lines = io.StringIO()
    fastavro.json_writer(lines, schema, [value for value in values if value is not None], encoder=_json_coders()[1])
    texts = iter(lines.getvalue().split("\n"))
    messages = [None if value is None else next(texts).encode() for value in values]
    return native.Encoded(pa.array(messages, pa.binary()), errors)


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
    _decoder,
    _rows,
    _check,
)
"""Flink's format `avro`."""

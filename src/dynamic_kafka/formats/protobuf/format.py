"""The format `protobuf`: Flink's flink-protobuf.

Java's classes cannot be loaded: the message type is given as a class that protoc made for Python, or by its full name in a
descriptor file. Google's library reads descriptors, and the native kernel messages, by a plan (see `plan`).

Differences to Flink:

* An `optional` scalar of proto3 that is not in the message is null without `read-default-values`; Flink reads its default.
* A number that an enum of proto3 does not have is read unchanged into a column of numbers; Flink fails.
* More types of columns match a field (see `types`). `google.protobuf.Timestamp` may also be a timestamp.
* Text of proto2 that is not UTF-8 is an error of its message; Java inserts replacement characters.
* The entries of a map are always written in the same order.

Source: org.apache.flink.formats.protobuf of Flink 2.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats.format import Decode, Format, FormatOptions, Rows, Used
from dynamic_kafka.formats.kernel import decoder
from dynamic_kafka.formats.protobuf.descriptors import (
    MessageType,
    message_of_options,
    require_protobuf,
    sent_message,
    sent_options,
)
from dynamic_kafka.formats.protobuf.encoding import encoder
from dynamic_kafka.formats.protobuf.plan import Missing, plan_of
from dynamic_kafka.native import Encoded
from dynamic_kafka.options import Option, boolean, non_blank, text

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

__all__ = ["PROTOBUF", "ProtobufOptions", "protobuf_options"]

_NAME = "protobuf"


class ProtobufOptions(NamedTuple):
    """The options of a format with Protobuf messages."""

    message_class: Option[str]
    descriptor_file: Option[str]
    ignore_parse_errors: Option[bool]
    read_default_values: Option[bool]
    null_literal: Option[str]


def protobuf_options(prefix: str) -> ProtobufOptions:
    """Return the options of a format with Protobuf messages."""
    return ProtobufOptions(
        Option(
            f"{prefix}.message-class-name",
            non_blank("package.module_pb2:Message or a message's full name"),
            doc="The message: a class made by `protoc --python_out`, as `package.module_pb2:Message`, or, with "
            f"`{prefix}.descriptor-file`, the message's full name in its .proto file.",
        ),
        Option(
            f"{prefix}.descriptor-file",
            non_blank("a path"),
            doc="A file made by `protoc --descriptor_set_out --include_imports`. It is read where the query is started.",
        ),
        Option(
            f"{prefix}.ignore-parse-errors",
            boolean,
            "false",
            doc="If true, messages that cannot be decoded are skipped; otherwise they are errors.",
        ),
        Option(
            f"{prefix}.read-default-values",
            boolean,
            "false",
            doc="If true, fields that are not in the message are read as their default; otherwise as null. Plain scalars of "
            "proto3 are always read as their default.",
        ),
        Option(
            f"{prefix}.write-null-string-literal",
            text(),
            "",
            shown_default="empty",
            doc="The text that is written for a null in an array or a map of strings.",
        ),
    )


_OPTIONS = protobuf_options(_NAME)


def _message(options: FormatOptions) -> MessageType:
    require_protobuf(_NAME)
    message = sent_message(_NAME, options) or message_of_options(_NAME, options)
    if message is None:
        raise ConfigurationError(
            f"Option '{_NAME}.message-class-name' is missing; set it to package.module_pb2:Message, or to a message's full "
            f"name with '{_NAME}.descriptor-file'"
        )
    return message


def _check(schema: StructType, options: FormatOptions) -> None:
    plan_of(_message(options), schema, Missing(defaults=False))


def _portable(options: FormatOptions) -> FormatOptions:
    return {**options, **sent_options(_NAME, _message(options))}


def _decoder(schema: StructType, options: FormatOptions, used: Used | None = None) -> Decode:
    spec = {
        "format": _NAME,
        "ignore_parse_errors": _OPTIONS.ignore_parse_errors.of(options),
        "plan": plan_of(_message(options), schema, Missing(_OPTIONS.read_default_values.of(options))),
    }
    return decoder(schema, spec, used)


def _rows(column: Column, schema: StructType, options: FormatOptions) -> Rows:
    message = _message(options)
    encode = encoder(message, schema, _OPTIONS.null_literal.of(options))

    def to_protobuf(rows: pa.Array) -> Encoded:
        return encode(rows, b"")

    return Rows(column, schema, to_protobuf)


PROTOBUF = Format(
    _NAME,
    _OPTIONS,
    _decoder,
    _rows,
    _check,
    portable=_portable,
)
"""Flink's format `protobuf`."""

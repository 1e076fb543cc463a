"""The interface of a format: messages to rows, over Arrow arrays in Spark's workers, and rows to messages.

A decoder does not raise for a bad message. It puts the reason into the field `ERROR`, and `format.on-error` decides what
happens: `spark.messages` applies it to the messages of a topic, and `functions.from_kafka` to those of a column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.options import Option

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

    from dynamic_kafka.formats.schema_registry import RegisteredSchema
    from dynamic_kafka.native import Encoded

__all__ = [
    "COORDINATES",
    "DELETE",
    "DELETES",
    "ERROR",
    "INSERT",
    "METADATA",
    "ON_ERROR_ADVICE",
    "ROWS",
    "ROW_KIND",
    "ROW_KINDS",
    "UPDATE_AFTER",
    "UPDATE_BEFORE",
    "Decode",
    "Encode",
    "Format",
    "FormatOptions",
    "MakeDecoder",
    "Rows",
    "Used",
    "count_part",
    "explained",
    "parts_left",
    "reason",
]

ERROR = "__error"
"""The field of a decoded struct with the reason why the message could not be decoded; null if it could."""
ROWS = "rows"
"""The field of a changelog format's decoded struct with an array of `struct<row_kind: string, row: struct<...>>`."""
METADATA = "metadata"
"""The field of a changelog format's decoded struct with a struct of the format's metadata."""
ROW_KIND = "row_kind"
"""The column with the kind of a changelog's row: `+I`, `-U`, `+U` or `-D`, as Flink prints them."""
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = "+I", "-U", "+U", "-D"
ROW_KINDS = (UPDATE_BEFORE, DELETE, INSERT, UPDATE_AFTER)
"""All kinds of changes, in their order within one message."""
DELETES = (UPDATE_BEFORE, DELETE)
"""The kinds of changes that remove a row."""

COORDINATES = ("cluster", "topic", "partition", "offset")
"""Columns of the source that say where a message comes from."""

ON_ERROR_ADVICE = "Set 'format.on-error' to 'skip' or 'dead-letter' to continue without such messages"

_MOST_PARTS = 10_000
_SHOWN_BYTES = 48

FormatOptions = Mapping[str, Any]
"""Values by the option's whole name, such as `json.ignore-parse-errors`; options that were not given are missing."""


def parts_left() -> Iterator[int]:
    """Return what `count_part` counts with, for one schema."""
    return iter(range(_MOST_PARTS))


def count_part(left: Iterator[int]) -> None:
    """Count a part of a schema that becomes columns. Names stand for whole schemas, so a short text may have any number.

    Raises:
        ConfigurationError: If there are more than 10,000.
    """
    if next(left, None) is None:
        raise ConfigurationError(
            f"The schema has more than {_MOST_PARTS:,} parts, because names in it stand for whole schemas, so it cannot "
            "become columns. Write the columns by hand"
        )


def explained(rows: pa.StructArray, messages: pa.Array, subject: str, format_name: str) -> pa.StructArray:
    """Return decoded messages with a whole sentence in `ERROR`.

    Args:
        rows: What the format's decoder returns.
        messages: The messages, binary.
        subject: What cannot be read, as a sentence begins with it.
        format_name: The name of the format.
    """
    import pyarrow as pa

    errors = rows.field(ERROR)
    if errors.null_count == len(errors):
        return rows
    texts = [
        None if error is None else reason(subject, format_name, error, messages[i].as_py() or b"")
        for i, error in enumerate(errors.to_pylist())
    ]
    fields = [pa.array(texts, pa.string()) if field.name == ERROR else rows.field(field.name) for field in rows.type]
    return pa.StructArray.from_arrays(fields, fields=[*rows.type], mask=rows.is_null())


def reason(subject: str, format_name: str, error: str, message: bytes) -> str:
    """Return the sentence that says why a message cannot be read, and how it begins."""
    beginning = message[:_SHOWN_BYTES]
    shown = f"0x{beginning.hex().upper()}"
    with suppress(UnicodeDecodeError):
        message.decode()
        # The last character may be cut. Control characters are escaped, quotes need no escape here.
        shown = json.dumps(beginning.decode(errors="replace"), ensure_ascii=False).replace('\\"', '"')
    return f"{subject} cannot be read as {format_name}: {error}; it begins with {shown}"


Decode = Callable[..., "pa.Array"]
"""Takes a binary array and returns a struct array of the columns and `ERROR`; of a changelog format
`struct<rows, metadata, __error>`. It is null for a null message (`raw` has a row for it), and for one that is skipped
because of the format's options. A second array has the values of the headers with the ids of schemas (`schema_ids`), for
formats with the option `schema-id-location`. It raises `OverflowError` if a column would have more than 2 GiB."""


class Used(NamedTuple):
    """The parts of messages that a query uses. A decoder checks the other columns, and need not build them.

    Attributes:
        columns: The names of the columns.
        metadata: The names of the metadata of a changelog format.
    """

    columns: frozenset[str]
    metadata: frozenset[str] = frozenset()


class MakeDecoder(Protocol):
    """Makes a decoder of a format's messages, in the process that uses it."""

    def __call__(self, schema: StructType, options: FormatOptions, used: Used | None = None) -> Decode:
        """Return a decoder of messages with the columns of a schema. `used` is None if all of them are."""


Encode = Callable[["pa.Array"], "Encoded"]
"""Encodes an array of rows."""


class Rows(NamedTuple):
    """Rows that become messages.

    Attributes:
        column: The rows as the encoder takes them.
        type: The type of the column.
        encode: Encodes an array of them.
        spec: How the kernel encodes them by itself, so that the sink's tasks can do it (JSON, `native/encode/src/spec.rs`).
            None if it takes more than the kernel.
    """

    column: Column
    type: DataType
    encode: Encode
    spec: str | None = None


def _nothing_to_check(schema: StructType, options: FormatOptions) -> None:
    """Accept any schema and options."""


def _as_given(options: FormatOptions) -> FormatOptions:
    """Return the options, which name no file."""
    return options


@dataclass(frozen=True)
class Format:
    """A format by its name in `format`, `key.format` and `value.format`.

    Args:
        name: Flink's name.
        options: Its options. Each key begins with the name.
        decoder: Makes a decoder of messages.
        rows: Takes a struct column of the schema's fields (with a last field `row_kind` for a changelog format), the schema
            and options. Returns the rows with their encoder, or the messages if Spark's expressions make them.
        own_check: Raises `ConfigurationError` if the format does not support the schema or the options.
        changelog: True if a message describes how a row changed, not only the row.
        metadata: The types of the format's metadata by name, without `value.`.
        registry: The option for the subject in a schema registry, if the format has one.
        columns: Asks the registry for the subject's schema. Returns its columns, and options to add to the given ones, so
            that the format reads and writes that schema. None if the format has no registry.
        registered: Returns the columns of a schema in the registry. None if the format has no registry.
        portable: Returns the options for another machine: with the contents of the files that they name.
    """

    name: str
    options: tuple[Option[Any], ...]
    decoder: MakeDecoder
    rows: Callable[[Column, StructType, FormatOptions], Rows | Column]
    own_check: Callable[[StructType, FormatOptions], None] = _nothing_to_check
    changelog: bool = False
    metadata: Mapping[str, DataType] = field(default_factory=dict)
    registry: str | None = None
    columns: Callable[[FormatOptions], tuple[StructType, FormatOptions]] | None = None
    registered: Callable[[RegisteredSchema, FormatOptions], StructType] | None = None
    portable: Callable[[FormatOptions], FormatOptions] = _as_given

    def check(self, schema: StructType, options: FormatOptions) -> None:
        """Check that the format supports the columns and the options.

        Raises:
            ConfigurationError: If it does not, or if a column has the reserved name `ERROR`.
        """
        if ERROR in schema.names:
            raise ConfigurationError(f"A column cannot have the name '{ERROR}', which is reserved. Rename it")
        self.own_check(schema, options)

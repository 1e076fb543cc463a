"""What a format is: bytes to columns and back, as Spark expressions.

A format's functions take and give `Column`s, so that Spark evaluates them where it evaluates everything else: as its own
native expressions (JSON, CSV), or over Arrow batches (Avro, Protobuf). None of them raises for a message that does not fit:
it tells what is wrong in the field `ERROR`, and `on_error` decides what then happens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dynamic_kafka.options import Option

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

__all__ = ["ERROR", "METADATA", "ROWS", "ROW_KIND", "Format", "FormatOptions"]

ERROR = "__error"
"""Field of what is decoded: null if the message could be decoded, else why it could not."""
ROWS = "rows"
"""Field of what a changelog format decodes: an array of `struct<row_kind: string, row: struct<...>>`."""
METADATA = "metadata"
"""Field of what a changelog format decodes: a struct of the format's metadata."""
ROW_KIND = "row_kind"
"""Column that says what a row of a changelog means: `+I`, `-U`, `+U` or `-D`, as Flink prints them."""

FormatOptions = Mapping[str, Any]
"""Values by the option's whole name, such as `json.ignore-parse-errors`; those that were not given are missing."""


def _nothing_to_check(schema: StructType, options: FormatOptions) -> None:
    """Any schema and options go."""


@dataclass(frozen=True)
class Format:
    """A format by its name in `format`, `key.format` and `value.format`.

    Args:
        name: Flink's name.
        options: Its options; each key begins with the name.
        decode: Takes a binary column, a schema and options. Gives a struct of the schema's fields and `ERROR`; a changelog
            format gives `struct<rows, metadata, __error>`. The struct is null where there is no row to be had: for a null
            message (unless the format says otherwise), and for one that the format's options say to leave out.
        encode: Takes a struct column of the schema's fields (with a last field `row_kind` for a changelog format), the
            schema and options. Gives a binary column; null means a null message.
        check: Raises `ConfigurationError` if schema and options do not go with the format.
        changelog: Whether a message says how a row changes, not only what it is.
        metadata: Types of the format's metadata by name, without `value.`.
        registry: The option for the subject in a schema registry, if there is one.
    """

    name: str
    options: tuple[Option[Any], ...]
    decode: Callable[[Column, StructType, FormatOptions], Column]
    encode: Callable[[Column, StructType, FormatOptions], Column]
    check: Callable[[StructType, FormatOptions], None] = _nothing_to_check
    changelog: bool = False
    metadata: Mapping[str, DataType] = field(default_factory=dict)
    registry: str | None = None

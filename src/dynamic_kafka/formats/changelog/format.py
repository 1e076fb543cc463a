"""The changelog formats `debezium-json`, `canal-json`, `maxwell-json` and `ogg-json`.

Each of them puts rows into an envelope that says what happened to them. A message is decoded as in Flink: it is read as JSON
of the envelope's schema, by the rules of the format `json`. Then each row gets its row kind. An update is written in one of
two ways:

* Debezium and Oracle GoldenGate write the whole row `before` and `after` the change. A message without `before` is an error:
  the database is not configured to keep it.
* Canal and Maxwell write the new row as `data`, and in `old` only the fields that changed. A field that is not in `old` did
  not change; a field that is null there was null. Canal writes several rows into a message. (If `old` has a field for one
  row, Flink treats the field as changed in all rows of the message; here each row is treated separately.)

Only insertions and deletions are written, as in Flink: an update becomes a deletion of the old row and an insertion of the
new one.

Source: org.apache.flink.formats.json.{debezium,canal,maxwell,ogg} of Flink 2.1.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from dynamic_kafka.errors import InvalidOptionError
from dynamic_kafka.formats.arrow import as_numbers
from dynamic_kafka.formats.changelog.envelopes import CANAL, DEBEZIUM, MAXWELL, OGG, Envelope
from dynamic_kafka.formats.format import (
    DELETES,
    INSERT,
    ROW_KIND,
    UPDATE_AFTER,
    Decode,
    Format,
    FormatOptions,
    Rows,
    Used,
)
from dynamic_kafka.formats.json.format import IGNORE_PARSE_ERRORS, JSON, json_options, options_named, rows_of_json
from dynamic_kafka.formats.kernel import decoder
from dynamic_kafka.options import Option, boolean, non_blank

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

__all__ = ["CANAL_JSON", "DEBEZIUM_JSON", "MAXWELL_JSON", "OGG_JSON", "message_of_rows"]

_SCHEMA_INCLUDE = Option(
    "debezium-json.schema-include",
    boolean,
    "false",
    doc="If true, each message contains its schema (`value.converter.schemas.enable` of Kafka Connect). For reading only.",
)
_SHARED_OPTIONS = (
    "ignore-parse-errors",
    "timestamp-format.standard",
    "map-null-key.mode",
    "map-null-key.literal",
    "encode.decimal-as-plain-number",
    "encode.ignore-null-fields",
)


# --- reading ---


def _decoder(
    name: str, envelope: Envelope, schema: StructType, options: FormatOptions, used: Used | None = None
) -> Decode:
    wanted = {} if used is None else {"wanted": sorted(used.metadata)}
    rows = decoder(as_numbers(schema), {**_spec(name, envelope, options), **wanted}, used)
    patterns = {f: _regex(text) for f, text in _included(name, options).items() if not _is_word(text)}

    def from_json(messages: pa.Array) -> pa.Array:
        if patterns:
            messages = _with_matches(messages, patterns)
        return rows(messages)

    return from_json


def _with_matches(messages: pa.Array, patterns: Mapping[str, re.Pattern[str]]) -> pa.Array:
    """Return messages, with null for those that have another text in one of the fields than its pattern matches."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = _fields(tuple(patterns))(messages)
    for field, pattern in patterns.items():
        texts = pc.struct_field(rows, field)
        others = [text for text in texts.unique().to_pylist() if text is not None and not pattern.fullmatch(text)]
        messages = pc.if_else(pc.is_in(texts, pa.array(others, pa.string())), pa.scalar(None, pa.binary()), messages)
    return messages


@lru_cache
def _fields(names: tuple[str, ...]) -> Decode:
    """Return what decodes fields of messages as texts; null for a field or a message that cannot be read."""
    return JSON.decoder(StructType([StructField(n, StringType()) for n in names]), {IGNORE_PARSE_ERRORS.key: True})


def _included(name: str, options: FormatOptions) -> dict[str, str]:
    """Return the regular expressions for the fields `database` and `table`; other messages are skipped."""
    return {f: options[option] for f in ("database", "table") if (option := f"{name}.{f}.include") in options}


def _regex(text: str) -> re.Pattern[str]:
    """Return a regular expression of Java's syntax, as far as Python's is the same.

    Raises:
        ValueError: If it is not.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # of what Java knows within brackets, and Python takes as it is
        try:
            return re.compile(text, re.ASCII)
        except (re.error, FutureWarning) as error:
            raise ValueError(str(error)) from None


_REGEX = non_blank("a regular expression that Java and Python read in the same way, such as shop_.*", _regex)


def _is_word(pattern: str) -> bool:
    """Return whether a regular expression is the name itself. The kernel knows no others."""
    return re.fullmatch(r"\w+", pattern, re.ASCII) is not None


def _spec(name: str, envelope: Envelope, options: FormatOptions) -> Mapping[str, Any]:
    with_schema, advice = _SCHEMA_INCLUDE.of(options), ""
    if name == "debezium-json":
        have = "do not contain their schema" if with_schema else "contain their schema"
        advice = f"; if the messages {have}, set '{name}.schema-include' to '{str(not with_schema).lower()}'"
    metadata = [
        {**vars(meta), "name": key, "type": meta.type.jsonValue(), "field_type": meta.field_type.jsonValue()}
        for key, meta in envelope.metadata.items()
    ]
    return {
        **vars(envelope),
        "format": "changelog",
        "advice": advice,
        "payload": with_schema,
        "include": {f: text if _is_word(text) else None for f, text in _included(name, options).items()},
        "ignore_parse_errors": IGNORE_PARSE_ERRORS.of(json_options(name, options)),
        "metadata": metadata,
    }


# --- writing ---


def _rows(name: str, envelope: Envelope, rows: Column, schema: StructType, options: FormatOptions) -> Rows:
    if _SCHEMA_INCLUDE.of(options):
        raise InvalidOptionError(
            _SCHEMA_INCLUDE.key,
            "true",
            "false for a table that is written, because messages are written without schema",
        )
    message = message_of_rows(envelope, rows, schema)
    return rows_of_json(message, envelope.written(schema), json_options(name, options))


def message_of_rows(envelope: Envelope, rows: Column, schema: StructType) -> Column:
    """Return a struct of the type `envelope.written`; null for a null row.

    Args:
        envelope: The tool's envelope.
        rows: A struct of the columns and `row_kind`.
        schema: The columns.
    """
    row_kind = rows[ROW_KIND]
    row = F.struct(*(rows[field].alias(field) for field in schema.names))
    inserts, deletes = row_kind.isin(INSERT, UPDATE_AFTER), row_kind.isin(*DELETES)
    refusal = F.concat(
        F.lit(f"The column '{ROW_KIND}' of a row must be one of +I, -U, +U, -D, not '"),
        F.coalesce(row_kind, F.lit("null")),
        F.lit("'"),
    )
    word = F.when(inserts, envelope.inserts[0]).when(deletes, envelope.delete).otherwise(F.raise_error(refusal))
    if envelope.partial:
        images = [F.array(row) if envelope.batched else row]
    else:
        images = [F.when(deletes, row), F.when(inserts, row)]
    fields = zip(envelope.written(schema).names, [*images, word], strict=True)
    return F.when(rows.isNotNull(), F.struct(*(column.alias(name) for name, column in fields)))


# --- the formats ---


def _format(name: str, envelope: Envelope, *own_options: Option[Any]) -> Format:
    shared = [option for option in JSON.options if option.key.removeprefix("json.") in _SHARED_OPTIONS]
    return Format(
        name=name,
        options=(*options_named(name, shared), *own_options),
        decoder=partial(_decoder, name, envelope),
        rows=partial(_rows, name, envelope),
        own_check=lambda schema, options: JSON.check(schema, json_options(name, options)),
        changelog=True,
        metadata={key: meta.type for key, meta in envelope.metadata.items()},
    )


DEBEZIUM_JSON = _format(
    "debezium-json",
    DEBEZIUM,
    _SCHEMA_INCLUDE,
)
"""Debezium's changes of any database."""

CANAL_JSON = _format(
    "canal-json",
    CANAL,
    Option(
        "canal-json.database.include",
        _REGEX,
        doc="A regular expression. Only changes of databases with a name that matches as a whole are read.",
    ),
    Option(
        "canal-json.table.include",
        _REGEX,
        doc="A regular expression. Only changes of tables with a name that matches as a whole are read.",
    ),
)
"""Canal's changes of MySQL."""

MAXWELL_JSON = _format("maxwell-json", MAXWELL)
"""Maxwell's changes of MySQL."""

OGG_JSON = _format("ogg-json", OGG)
"""Oracle GoldenGate's changes."""

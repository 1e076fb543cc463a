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
from collections.abc import Mapping
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BinaryType, DataType, DecimalType, MapType, StringType, StructType, TimeType

from dynamic_kafka.errors import InvalidOptionError
from dynamic_kafka.formats.changelog.envelopes import CANAL, DEBEZIUM, MAXWELL, OGG, Envelope
from dynamic_kafka.formats.expressions import has, let
from dynamic_kafka.formats.format import (
    DELETE,
    DELETES,
    ERROR,
    INSERT,
    METADATA,
    ROW_KIND,
    ROWS,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    Format,
    FormatOptions,
)
from dynamic_kafka.formats.json.format import IGNORE_PARSE_ERRORS, JSON
from dynamic_kafka.formats.json.lenient import PARSER, converted, lost, relaxed
from dynamic_kafka.formats.json.semantic import SEMANTIC_COLUMNS, SEMANTIC_PREFIXES, Plan, plain, plan_of_connect
from dynamic_kafka.options import Option, boolean, non_blank

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["CANAL_JSON", "DEBEZIUM_JSON", "MAXWELL_JSON", "OGG_JSON", "changes", "message_of_rows"]

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


def _decode(name: str, envelope: Envelope, value: Column, schema: StructType, options: FormatOptions) -> Column:
    with_schema = _SCHEMA_INCLUDE.of(options)
    ignore_errors = IGNORE_PARSE_ERRORS.of(_json_options(name, options))
    message_schema = envelope.schema(relaxed(schema) if envelope.texts else schema)
    if with_schema:
        payload_schema = StructType([field for field in message_schema if field.name != "schema"])
        message_schema = StructType().add("payload", payload_schema).add("schema", StringType())

    text = _with_plain_values(value, envelope, schema) if with_schema and has(schema, SEMANTIC_COLUMNS) else value
    message = JSON.decode(text, message_schema, _json_options(name, options))
    if envelope.texts:
        message = let(message, lambda texts: _converted(envelope, schema, texts, ignore_errors=ignore_errors))
    include = {
        field: options[option] for field in ("database", "table") if (option := f"{name}.{field}.include") in options
    }
    advice = ""
    if name == "debezium-json":
        have = "do not contain their schema" if with_schema else "contain their schema"
        advice = f"; if the messages {have}, set '{name}.schema-include' to '{str(not with_schema).lower()}'"
    return changes(
        envelope,
        value,
        message,
        schema,
        with_schema=with_schema,
        include=include,
        ignore_errors=ignore_errors,
        advice=advice,
    )


def _with_plain_values(value: Column, envelope: Envelope, schema: StructType) -> Column:
    """Convert the numbers and texts of which a message's own schema says that they are times or decimals."""
    import pyarrow as pa

    from dynamic_kafka.formats.arrow import evaluated

    images = StructType()
    for image in envelope.images:
        images.add(image, schema)

    def plan(message: Any) -> Plan:
        found = plan_of_connect(message.get("schema"), images) if isinstance(message, dict) else None
        return None if found is None else {"fields": {"payload": found}}

    def with_plain_values(messages: pa.Array) -> pa.Array:
        def converted(message: bytes | None) -> bytes | None:
            named = message is not None and any(prefix in message for prefix in SEMANTIC_PREFIXES)
            return plain(message, plan) if message is not None and named else message

        return pa.array(map(converted, messages.to_pylist()), pa.binary())

    return evaluated(with_plain_values, BinaryType(), value)


def changes(
    envelope: Envelope,
    value: Column,
    message: Column,
    schema: StructType,
    *,
    with_schema: bool = False,
    include: Mapping[str, str] = MappingProxyType({}),
    ignore_errors: bool = False,
    advice: str = "",
) -> Column:
    """Return what `Format.decode` of a changelog format returns.

    Args:
        envelope: The tool's envelope.
        value: The messages, binary.
        message: The decoded messages: a struct of the envelope's schema and `ERROR`.
        schema: The columns.
        with_schema: True if the envelope is the field `payload`, beside a field `schema`.
        include: Regular expressions for the fields `database` and `table`; other messages are skipped.
        ignore_errors: True if messages that cannot become rows are skipped.
        advice: What a user can do if messages have no kind.
    """

    def read(both: Column) -> Column:
        value, message = both["value"], both["message"]
        payload = message["payload"] if with_schema else message
        kind = payload[envelope.kind]
        included = {field: payload[field].rlike(rf"\A(?:{pattern})\z") for field, pattern in include.items()}
        no_kind = f'It does not have the field "{envelope.kind}" of {envelope.tool}\'s messages about rows{advice}'
        error = F.coalesce(
            message[ERROR],
            *(F.when(matches.isNull(), f'It does not have the field "{field}"') for field, matches in included.items()),
            F.when(kind.isNull(), F.lit(no_kind)),
            _wrong_kind(envelope, kind),
            _wrong_rows(envelope, kind, *_images(envelope, payload)),
        )
        leave_out = [
            message[ERROR].isNull() & kind.isin(*envelope.skipped),
            *(~matches for matches in included.values()),
        ]
        if ignore_errors:
            leave_out.append(error.isNotNull())
        metadata = [
            meta.get((message if meta.field == "schema" else payload)[meta.field]).alias(key)
            for key, meta in envelope.metadata.items()
        ]
        rows = F.when(error.isNull(), _rows(envelope, payload, value, schema))
        found = F.struct(rows.alias(ROWS), F.struct(*metadata).alias(METADATA), error.alias(ERROR))
        return F.when(reduce(or_, leave_out), None).when(message.isNotNull(), found)

    both = F.struct(value.alias("value"), message.alias("message"))
    return F.when(F.length(value) > 0, let(both, read))  # a null or empty message is a tombstone: no row


def _converted(envelope: Envelope, schema: StructType, message: Column, *, ignore_errors: bool) -> Column:
    """Convert the texts of numbers and booleans in a message's rows to the types of the table.

    The format `json` has the same result, but only after it has first read the message as real numbers without success.
    """
    type_ = ArrayType(schema) if envelope.batched else schema
    found = message
    for image in envelope.images:
        found = found.withField(image, converted(type_, message[image]))

    def with_error(both: Column) -> Column:
        texts, found = both["texts"], both["found"]
        misfits = (
            F.when(
                lost(type_, texts[image], found[image]), f'Its "{image}" contains a value that does not fit its column'
            )
            for image in envelope.images
        )
        return found.withField(ERROR, F.coalesce(found[ERROR], *misfits))

    return found if ignore_errors else let(F.struct(message.alias("texts"), found.alias("found")), with_error)


def _images(envelope: Envelope, payload: Column) -> tuple[Column, Column]:
    """Return the rows before and after the change; arrays if `old` has only the fields that changed."""
    old, new = (payload[image] for image in envelope.images)
    if envelope.partial and not envelope.batched:
        return F.when(old.isNotNull(), F.array(old)), F.when(new.isNotNull(), F.array(new))
    return old, new


def _wrong_kind(envelope: Envelope, kind: Column) -> Column:
    known = (*envelope.inserts, envelope.update, envelope.delete, *envelope.skipped)
    advice = F.lit(f", which is not about a row; exclude such messages in {envelope.tool} or with 'format.on-error'")
    for word, hint in envelope.hints.items():
        advice = F.when(kind == word, f": {hint}").otherwise(advice)
    return F.when(~kind.isin(*known), F.concat(F.lit(f'Unknown "{envelope.kind}" value "'), kind, F.lit('"'), advice))


def _wrong_rows(envelope: Envelope, kind: Column, old: Column, new: Column) -> Column:
    old_name, new_name = envelope.images
    inserts, updates, deletes = kind.isin(*envelope.inserts), kind == envelope.update, kind == envelope.delete
    no_new = F.lit(f'Its "{new_name}" is null' + (", or one of its rows is" if envelope.batched else ""))
    if envelope.partial:
        rowless = new.isNull() | F.exists(new, lambda row: row.isNull())
        unmatched = old.isNull() | (F.size(old) < F.size(new)) | F.exists(old, lambda row: row.isNull())
        no_old = F.lit(f'Update event: "{old_name}" has fewer rows than "{new_name}"')
        return F.when((inserts | updates | deletes) & rowless, no_new).when(updates & unmatched, no_old)
    return (
        F.when(
            updates & old.isNull(), F.lit(f'The "{old_name}" field of UPDATE message is null; {envelope.whole_rows}')
        )
        .when(deletes & old.isNull(), F.lit(f'The "{old_name}" field of DELETE message is null; {envelope.whole_rows}'))
        .when((inserts | updates) & new.isNull(), no_new)
    )


def _rows(envelope: Envelope, payload: Column, value: Column, schema: StructType) -> Column:
    """Return the rows of a message without errors."""
    kind = payload[envelope.kind]
    old, new = _images(envelope, payload)
    if not envelope.partial:
        inserted, deleted = F.array(_row(INSERT, new)), F.array(_row(DELETE, old))
        updated = F.array(_row(UPDATE_BEFORE, old), _row(UPDATE_AFTER, new))
    else:
        inserted, deleted = (F.transform(new, partial(_row, row_kind)) for row_kind in (INSERT, DELETE))
        updated = let(_changed_fields(envelope, value), partial(_updated, schema, old, new))
    return F.when(kind.isin(*envelope.inserts), inserted).when(kind == envelope.update, updated).otherwise(deleted)


def _row(row_kind: str, row: Column) -> Column:
    return F.struct(F.lit(row_kind).alias(ROW_KIND), row.alias("row"))


def _changed_fields(envelope: Envelope, value: Column) -> Column:
    """Return for each row of an update a map with the fields that changed as keys.

    In the decoded row, a missing field and a field with null are the same. So updates are parsed twice; the second time the
    parser skips everything but `old`.
    """
    keys: DataType = MapType(StringType(), StringType())
    schema = StructType().add("old", ArrayType(keys) if envelope.batched else keys)
    old = F.from_json(value.cast(StringType()), schema, PARSER)["old"]
    return old if envelope.batched else F.array(old)


def _updated(schema: StructType, old: Column, new: Column, changed: Column) -> Column:
    def pair(row: Column, index: Column) -> Column:
        was, named = F.get(old, index), F.get(changed, index)
        before = F.struct(
            *(
                F.when(F.map_contains_key(named, name), was[name]).otherwise(row[name]).alias(name)
                for name in schema.names
            )
        )
        return F.array(_row(UPDATE_BEFORE, before), _row(UPDATE_AFTER, row))

    return F.flatten(F.transform(new, pair))


# --- writing ---


def _encode(name: str, envelope: Envelope, rows: Column, schema: StructType, options: FormatOptions) -> Column:
    if _SCHEMA_INCLUDE.of(options):
        raise InvalidOptionError(
            _SCHEMA_INCLUDE.key,
            "true",
            "false for a table that is written, because messages are written without schema",
        )
    return JSON.encode(message_of_rows(envelope, rows, schema), envelope.written(schema), _json_options(name, options))


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


# --- in the native kernel ---


def _native(name: str, envelope: Envelope, schema: StructType, options: FormatOptions) -> Mapping[str, Any] | None:
    include = {
        field: options[option] for field in ("database", "table") if (option := f"{name}.{field}.include") in options
    }
    # The kernel knows no regular expressions, but such a name is one of itself.
    # The kernel reads base64 that consists of digits as a number.
    if _SCHEMA_INCLUDE.of(options) and has(schema, (DecimalType,)):
        return None
    if has(schema, (TimeType,)) or not all(re.fullmatch(r"\w+", text, re.ASCII) for text in include.values()):
        return None
    return {
        "format": "changelog",
        "images": envelope.images,
        "kind": envelope.kind,
        "inserts": envelope.inserts,
        "update": envelope.update,
        "delete": envelope.delete,
        "partial": envelope.partial,
        "batched": envelope.batched,
        "texts": envelope.texts,
        "payload": _SCHEMA_INCLUDE.of(options),
        "include": include,
        "metadata": [
            {
                "name": key,
                "type": meta.type.jsonValue(),
                "field": meta.field,
                "field_type": meta.field_type.jsonValue(),
                "key": meta.key,
                "form": meta.form,
            }
            for key, meta in envelope.metadata.items()
        ],
    }


# --- the formats ---


def _json_options(name: str, options: FormatOptions) -> FormatOptions:
    """Return the options that the format `json` has, too, under its names."""
    return {f"json.{key}": options[f"{name}.{key}"] for key in _SHARED_OPTIONS if f"{name}.{key}" in options}


def _format(name: str, envelope: Envelope, *own_options: Option[Any]) -> Format:
    shared = [option for option in JSON.options if option.key.removeprefix("json.") in _SHARED_OPTIONS]
    return Format(
        name=name,
        options=(
            *(replace(option, key=f"{name}.{option.key.removeprefix('json.')}", aliases=()) for option in shared),
            *own_options,
        ),
        decode=partial(_decode, name, envelope),
        encode=partial(_encode, name, envelope),
        check=lambda schema, options: JSON.check(schema, _json_options(name, options)),
        changelog=True,
        metadata={key: meta.type for key, meta in envelope.metadata.items()},
        native=partial(_native, name, envelope),
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
        non_blank("a regular expression"),
        doc="A regular expression in Java's syntax. Only changes of databases with a name that matches as a whole are read.",
    ),
    Option(
        "canal-json.table.include",
        non_blank("a regular expression"),
        doc="A regular expression in Java's syntax. Only changes of tables with a name that matches as a whole are read.",
    ),
)
"""Canal's changes of MySQL."""

MAXWELL_JSON = _format("maxwell-json", MAXWELL)
"""Maxwell's changes of MySQL."""

OGG_JSON = _format("ogg-json", OGG)
"""Oracle GoldenGate's changes."""

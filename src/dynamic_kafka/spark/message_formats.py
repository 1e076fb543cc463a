"""The options `key.format` and `value.format` of `format("dynamic-kafka")`: the columns `key` and `value` are decoded.

Rules:

1. The schema of the query gives the types of the two columns: a struct of the wanted fields; for `raw` the type of the
   message itself; for a changelog format an array of the message's rows. Without a schema, that of the subject in the
   format's registry does.
2. Messages are decoded in the task that reads them. So `format.on-error` holds for each message that is read, whichever
   columns a query selects, and whichever conditions it has.
3. A message without bytes is null. One that the format skips (`json.ignore-parse-errors`) is no row, as in Flink.
4. A dead letter of a bad key needs the bytes of the value, so then the kernel does not decode values while it fetches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError, RecordError, RegistryError
from dynamic_kafka.formats import ERROR, METADATA, ROW_KIND, ROWS, Format, FormatOptions, format_named
from dynamic_kafka.formats.arrow import arrow_type, decoded_type
from dynamic_kafka.formats.expressions import changes_type, decoded_struct, nullable, parts
from dynamic_kafka.formats.on_error import COORDINATES, ON_ERROR_ADVICE, reason_text
from dynamic_kafka.formats.options import (
    DEAD_LETTER_PROPERTIES,
    DEAD_LETTER_TOPIC,
    KEY_FORMAT,
    ON_ERROR,
    VALUE_FORMAT,
    check_unknown,
    format_options,
    only_topic,
)
from dynamic_kafka.formats.schema_ids import header_values, in_headers
from dynamic_kafka.native import can_decode
from dynamic_kafka.options import option_names
from dynamic_kafka.spark.columns import COLUMN_TYPES, DECODING, VALUE_ROW
from dynamic_kafka.spark.dead_letters import DeadLetters, letters_of, send

__all__ = ["MESSAGE_OPTIONS", "MessageFormats", "Messages", "message_formats", "value_field"]

MESSAGE_OPTIONS = (VALUE_FORMAT, KEY_FORMAT, ON_ERROR, DEAD_LETTER_TOPIC)
"""The options that decode messages, besides those of the formats."""

_CHANGE = "STRUCT<row_kind: STRING, row: STRUCT<...>, metadata: STRUCT<...>>"


@dataclass(frozen=True)
class _Encoding:
    """The format of one column, by its name, with its parsed options."""

    form: str
    options: FormatOptions = field(repr=False)


@dataclass(frozen=True)
class MessageFormats:
    """The options of a query, checked.

    Args:
        encodings: The formats of the columns `key` and `value`, of those that have one.
        on_error: The policy for messages that cannot be read.
        letters: The topic for them, for the policy `dead-letter`.
        registered: The columns that a registry has named, by the column.
    """

    encodings: Mapping[str, _Encoding]
    on_error: str
    letters: DeadLetters | None
    registered: Mapping[str, StructType] = field(default_factory=dict)

    def with_registered(self) -> MessageFormats:
        """Return the formats with the columns of their registries, which are asked.

        Raises:
            ConfigurationError: If a format has no registry.
            RegistryError: If the registry does not answer, or does not have the subject.
        """
        encodings, registered = {}, {}
        for name, encoding in self.encodings.items():
            form = format_named(encoding.form)
            if form.columns is None:
                raise ConfigurationError(
                    f"Option '{name}.format' has the value '{form.name}', which has no schema registry: give the type of "
                    f"the column '{name}', as in .schema('{name} {_example(form)}, offset BIGINT')"
                )
            with _named(name, form):
                columns, added = form.columns(encoding.options)
            registered[name] = nullable(columns)  # as Spark has them
            encodings[name] = _Encoding(form.name, {**encoding.options, **added})
        return MessageFormats(encodings, self.on_error, self.letters, registered)

    def types(self) -> Mapping[str, DataType]:
        """Return the types of the columns that registries have named."""
        return {name: _column_type(format_named(self.encodings[name].form), s) for name, s in self.registered.items()}

    def messages(self, schema: StructType) -> Messages:
        """Return how the columns of a query are made.

        Raises:
            ConfigurationError: If a column has a type that its format cannot read.
        """
        made = []
        for name, encoding in self.encodings.items():
            if name not in schema.names:
                raise ConfigurationError(
                    f"Option '{name}.format' needs the column '{name}' in the schema, which has {', '.join(schema.names)}: "
                    "add the column, or leave out the option"
                )
            form, type_ = format_named(encoding.form), schema[name].dataType
            columns = self.registered.get(name) or _columns(name, form, type_)
            with _named(name, form):
                form.check(columns, encoding.options)
            value_row = None
            if name == "value" and not ("key" in self.encodings and self.on_error == "dead-letter"):
                wanted = _metadata(type_).names if form.changelog else ()
                value_row = value_field(form, columns, encoding.options, wanted=wanted)
            made.append(_Part(name, form.name, encoding.options, columns, type_, value_row))
        return Messages(tuple(schema.names), tuple(made), self.on_error, self.letters)


def message_formats(options: Mapping[str, str]) -> tuple[MessageFormats, dict[str, str]]:
    """Return the formats of a query, and the options without theirs.

    Args:
        options: The options of the query, at least one of which is of `DECODING`.

    Raises:
        ConfigurationError: If an option is wrong.
    """
    ours = {name.lower(): value for name, value in options.items() if name.lower().startswith(DECODING)}
    others = {name: value for name, value in options.items() if name.lower() not in ours}
    names = {"value": VALUE_FORMAT, "key": KEY_FORMAT}
    forms = {name: format_named(o.parse(ours.pop(o.key)), o.key) for name, o in names.items() if o.key in ours}
    if not forms:
        raise ConfigurationError(f"Option '{min(ours)}' needs 'value.format' or 'key.format', which decode messages")
    policy = ON_ERROR.parse(ours.pop(ON_ERROR.key, "fail"))
    topic = ours.pop(DEAD_LETTER_TOPIC.key, None)
    own = {
        name.removeprefix(DEAD_LETTER_PROPERTIES): ours.pop(name)
        for name in [*ours]
        if name.startswith(DEAD_LETTER_PROPERTIES)
    }
    encodings = {}
    for name, form in forms.items():
        if name == "key" and form.changelog:
            raise InvalidOptionError("key.format", form.name, "another one: a key needs a format of rows, such as json")
        given, used = format_options(form, f"{name}.", ours)
        for option in used:
            del ours[option]
        if form.registry is not None and form.registry not in given and (of_topic := only_topic(others)) is not None:
            given = {**given, form.registry: f"{of_topic}-{name}"}
        encodings[name] = _Encoding(form.name, given)
    prefixed = [(f"{name}.", form) for name, form in forms.items()]
    known = {prefix + option for prefix, form in prefixed for option in option_names(form.options)}
    ours |= {name: text for name, text in others.items() if known & {f"key.{name.lower()}", f"value.{name.lower()}"}}
    check_unknown(ours, prefixed, [option.key for option in MESSAGE_OPTIONS])
    return MessageFormats(encodings, policy, letters_of(policy, topic, others, own)), others


def value_field(
    form: Format,
    schema: StructType,
    options: FormatOptions,
    *,
    used: Collection[str] | None = None,
    wanted: Collection[str] = (),
) -> StructField | None:
    """Return the source's column with values that the native kernel decodes while it fetches; None if it cannot.

    Each value has a row there, none, or an error.

    Args:
        form: The format.
        schema: The columns of values.
        options: The format's options.
        used: The columns that are built; all by default. All are checked, so a value can be an error by an unused one, too.
        wanted: The metadata of a changelog format that are read.
    """
    found = form.native(schema, options)
    if found is None:
        return None
    spec = {**found, "wanted": list(wanted)}
    options = {**options, **spec.pop("decoder", {})}
    if "schema" in spec:
        schema = StructType.fromJson(spec.pop("schema"))
    if not can_decode(pa.schema(arrow_type(schema)), json.dumps(spec)):
        return None
    text = json.dumps({**spec, "schema": schema.jsonValue()})
    shown = StructType([column for column in schema.fields if used is None or column.name in used])
    row = nullable(decoded_struct(form, shown)) if form.changelog else decoded_type(shown)
    # Options hold references to secrets, which are looked up where values are decoded. Plans show no column's metadata.
    metadata = {"spec": text, "format": form.name, "options": json.dumps(dict(options))}
    return StructField(VALUE_ROW, row, metadata=metadata)


@contextmanager
def _named(name: str, form: Format) -> Iterator[None]:
    """Let errors of a format name its options as they are given, after `key.` or `value.`."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(_with_prefix(str(error), name, form.name)) from None
    except RegistryError as error:
        text = _with_prefix(str(error), name, form.name)
        raise RegistryError(text, retriable=error.retriable, not_found=error.not_found) from error


def _with_prefix(text: str, name: str, form: str) -> str:
    return text.replace(f"'{form}.", f"'{name}.{form}.")


# --- types ---


def _example(form: Format) -> str:
    if form.changelog:
        return "ARRAY<STRUCT<row_kind: STRING, row: STRUCT<id: BIGINT>>>"
    return "STRING" if form.name == "raw" else "STRUCT<id: BIGINT, name: STRING>"


def _columns(name: str, form: Format, type_: DataType) -> StructType:
    """Return the columns of the messages in a column of a type."""
    if form.name == "raw":
        return StructType([StructField(name, type_)])
    rows = type_
    if form.changelog:
        change = type_.elementType if isinstance(type_, ArrayType) else None
        named = change.names if isinstance(change, StructType) else []
        if named not in ([ROW_KIND, "row"], [ROW_KIND, "row", METADATA]):
            raise _wrong_type(name, form, type_, f"an ARRAY of {_CHANGE}, in which metadata may be left out")
        assert isinstance(change, StructType)
        rows = change["row"].dataType
        known = form.metadata
        if any(known.get(f.name) != f.dataType for f in _metadata(type_).fields):
            types = ", ".join(f"`{key}`: {found.simpleString()}" for key, found in known.items())
            raise _wrong_type(name, form, type_, f"metadata of {types}")
    if not isinstance(rows, StructType):
        raise _wrong_type(name, form, type_, "a STRUCT of the message's fields")
    for part in parts(rows):
        if isinstance(part, StructType) and len(set(part.names)) < len(part.names):
            raise _wrong_type(name, form, type_, "each field once")
    if rows != nullable(rows):
        raise _wrong_type(name, form, type_, "no field with NOT NULL, because messages may lack it")
    return rows


def _wrong_type(name: str, form: Format, type_: DataType, expected: str) -> ConfigurationError:
    return ConfigurationError(
        f"Column '{name}' has the type {type_.simpleString()} in the schema; '{name}.format' = '{form.name}' expected "
        f"{expected}"
    )


def _metadata(type_: DataType) -> StructType:
    """Return the metadata that a changelog's column has."""
    assert isinstance(type_, ArrayType)
    assert isinstance(type_.elementType, StructType)
    found = type_.elementType[METADATA].dataType if METADATA in type_.elementType.names else StructType()
    return found if isinstance(found, StructType) else StructType([StructField("?", found)])


def _column_type(form: Format, columns: StructType) -> DataType:
    """Return the type of a column with messages of these columns."""
    if not form.changelog:
        return nullable(columns)
    changes = changes_type(nullable(columns), form.metadata)
    rows: Any = changes[ROWS].dataType
    return ArrayType(StructType([*rows.elementType, changes[METADATA]]))


# --- the executor's side ---


@dataclass(frozen=True)
class _Part:
    """A column whose messages are decoded.

    Args:
        name: `key` or `value`.
        form: The name of its format.
        options: The format's options.
        columns: The columns of its messages.
        type: The column's type.
        value_row: The column with values that the kernel decodes while it fetches; None if `decoder` does it afterwards.
    """

    name: str
    form: str
    options: FormatOptions = field(repr=False)
    columns: StructType
    type: DataType
    value_row: StructField | None

    def decoder(self) -> Callable[[pa.RecordBatch], pa.Array]:
        """Return what takes messages, and returns what the format's decoder makes of them."""
        if self.value_row is not None:
            return lambda batch: batch[VALUE_ROW]
        decoder = format_named(self.form).decoder(self.columns, self.options)
        if not in_headers(self.form, self.options):
            return lambda batch: decoder.rows(batch[self.name])
        return lambda batch: decoder.rows(batch[self.name], header_values(batch["headers"], self.name))


@dataclass(frozen=True)
class Messages:
    """Makes the columns of a query from those that are fetched.

    Args:
        columns: The columns of the query, in order.
        parts: The decoded ones.
        on_error: The policy for messages that cannot be read.
        letters: The topic for them, for the policy `dead-letter`.
    """

    columns: tuple[str, ...]
    parts: tuple[_Part, ...]
    on_error: str
    letters: DeadLetters | None

    def fetched(self, schema: StructType) -> StructType:
        """Return the source's columns that are needed for a query's schema."""
        names = {*self.columns, *COORDINATES, *(part.name for part in self.parts)}
        names |= {"key"} if self.letters is not None else set()
        names |= {"headers"} if any(in_headers(part.form, part.options) for part in self.parts) else set()
        decoded = {part.name for part in self.parts}
        given = [column for column in schema.fields if column.name not in decoded]
        missing = [StructField(n, t) for n, t in COLUMN_TYPES.items() if n in names - {c.name for c in given}]
        return StructType([*given, *missing, *(p.value_row for p in self.parts if p.value_row is not None)])

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches with the columns of the query.

        Raises:
            RecordError: If a message cannot be read, with the policy `fail`.
        """
        decoders = [part.decoder() for part in self.parts]
        for batch in batches:
            found = [decoder(batch) for decoder in decoders]
            keep = self._readable(batch, found)
            if keep is not None:
                batch, found = batch.filter(keep), [rows.filter(keep) for rows in found]  # noqa: PLW2901
            if len(batch):
                made = {p.name: _column(p, rows) for p, rows in zip(self.parts, found, strict=True)}
                arrays = [made[name] if name in made else batch[name] for name in self.columns]
                yield pa.RecordBatch.from_arrays(arrays, list(self.columns))

    def _readable(self, batch: pa.RecordBatch, found: list[pa.Array]) -> pa.Array | None:
        """Return which messages become rows; None if all do. The policy has been applied to the others."""
        keep: pa.Array | None = None
        whys: list[str | None] | None = None
        for part, rows in zip(self.parts, found, strict=True):
            errors = rows.field(ERROR)
            if errors.null_count < len(errors):
                import pyarrow.compute as pc  # takes 40 ms, and most tasks do not need it

                whys = whys or [None] * len(batch)
                for i in pc.indices_nonzero(errors.is_valid()).to_pylist():
                    error = _with_prefix(errors[i].as_py(), part.name, part.form)
                    message = batch[part.name][i].as_py() or b""
                    whys[i] = whys[i] or reason_text(f"the {part.name}", part.form, error, message)
            if part.name == "value" and rows.null_count:
                import pyarrow.compute as pc

                skipped = pc.and_(rows.is_null(), batch["value"].is_valid())
                keep = pc.invert(skipped)
        if whys is None:
            return keep
        import pyarrow.compute as pc

        why = pa.array(whys, pa.string())
        self._refuse(batch, why)
        return why.is_null() if keep is None else pc.and_(keep, why.is_null())

    def _refuse(self, batch: pa.RecordBatch, why: pa.Array) -> None:
        if self.on_error == "fail":
            import pyarrow.compute as pc

            first = pc.indices_nonzero(why.is_valid())[0].as_py()
            cluster, topic, partition, offset = (batch[name][first].as_py() for name in COORDINATES)
            text = f"{why[first].as_py()}. {ON_ERROR_ADVICE}"
            raise RecordError(text, cluster_id=cluster, topic=topic, partition=partition, offset=offset)
        if self.letters is not None:
            send(self.letters, [why, *(batch[name] for name in ("key", "value", *COORDINATES))])


def _column(part: _Part, rows: pa.Array) -> pa.Array:
    """Return a column of a query."""
    type_: Any = arrow_type(part.type)
    if format_named(part.form).changelog:
        return _changes(rows, type_)
    if part.form == "raw":
        return rows.field(part.name)
    return _struct(rows, type_)


def _struct(rows: pa.Array, type_: pa.StructType) -> pa.Array:
    """Return the fields of structs that a type has."""
    fields = [rows.field(field.name) for field in type_]
    return pa.StructArray.from_arrays(fields, fields=[*type_], mask=rows.is_null())


def _changes(rows: pa.Array, type_: pa.ListType) -> pa.Array:
    """Return the changes of messages, each with the message's metadata if the type has them."""
    import pyarrow.compute as pc

    changes, change = pc.struct_field(rows, ROWS), type_.value_type
    parents, flat = pc.list_parent_indices(changes), changes.flatten()
    fields = [flat.field(name) for name in (ROW_KIND, "row")]
    if METADATA in change.names:
        of_message = pc.struct_field(rows, METADATA)
        fields.append(_struct(of_message, change.field(METADATA).type).take(parents))
    lengths = pc.fill_null(pc.list_value_length(changes), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(
        offsets, pa.StructArray.from_arrays(fields, fields=[*change]), type=type_, mask=changes.is_null()
    )

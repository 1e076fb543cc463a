"""The options `key.format` and `value.format` of `format("dynamic-kafka")`: the columns `key` and `value` are decoded.

Rules:

1. The schema of the query gives the types of the two columns: a struct of the wanted fields; for `raw` the type of the
   message itself; for a changelog format an array of the message's rows. Without a schema, that of the subject in the
   format's registry does.
2. A message without bytes is null. How messages are decoded and what becomes of a bad one is in `messages`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import ArrayType, DataType, StructField, StructType, YearMonthIntervalType

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError, RegistryError
from dynamic_kafka.formats import METADATA, ROW_KIND, ROWS, Format, FormatOptions, format_named
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.evolution import with_version
from dynamic_kafka.formats.expressions import changes_type, has, nullable, parts
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
from dynamic_kafka.options import option_names
from dynamic_kafka.spark.columns import DECODING
from dynamic_kafka.spark.dead_letters import DeadLetters, letters_of
from dynamic_kafka.spark.messages import Messages, Part, with_prefix

__all__ = ["MESSAGE_OPTIONS", "MessageFormats", "message_formats"]

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
                arrow_type(type_)
            made.append(Part(name, form.name, f"{name}.", form.portable(encoding.options), columns, type_))
        return Messages(tuple(schema.names), tuple(made), self.on_error, self.letters)


def message_formats(options: Mapping[str, str]) -> tuple[MessageFormats, dict[str, str]]:
    """Return the formats of a query, and the options without theirs.

    Args:
        options: The options of the query, at least one of which is of `DECODING`.

    Raises:
        ConfigurationError: If an option is wrong.
        RegistryError: If a registry is asked for a version, and does not answer, or does not have the subject.
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
        with _named(name, form):
            given = with_version(form, given)
        encodings[name] = _Encoding(form.name, given)
    prefixed = [(f"{name}.", form) for name, form in forms.items()]
    known = {prefix + option for prefix, form in prefixed for option in option_names(form.options)}
    ours |= {name: text for name, text in others.items() if known & {f"key.{name.lower()}", f"value.{name.lower()}"}}
    check_unknown(ours, prefixed, [option.key for option in MESSAGE_OPTIONS])
    return MessageFormats(encodings, policy, letters_of(policy, topic, others, own)), others


@contextmanager
def _named(name: str, form: Format) -> Iterator[None]:
    """Let errors of a format name its options as they are given, after `key.` or `value.`."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(with_prefix(str(error), f"{name}.", form.name)) from None
    except RegistryError as error:
        text = with_prefix(str(error), f"{name}.", form.name)
        raise RegistryError(text, retriable=error.retriable, not_found=error.not_found) from error


# --- types ---


def _example(form: Format) -> str:
    if form.changelog:
        return "ARRAY<STRUCT<row_kind: STRING, row: STRUCT<id: BIGINT>>>"
    return "STRING" if form.name == "raw" else "STRUCT<id: BIGINT, name: STRING>"


def _columns(name: str, form: Format, type_: DataType) -> StructType:
    """Return the columns of the messages in a column of a type."""
    if form.name == "raw":
        return StructType([StructField(name, type_)])
    if has(type_, (YearMonthIntervalType,)):
        raise _wrong_type(name, form, type_, "no interval of months, which Spark does not take from Python; read INT")
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

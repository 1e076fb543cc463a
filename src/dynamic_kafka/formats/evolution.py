"""Newer schemas of a subject, for the option `schema-evolution`: which of their fields a query does not know.

Rules:

1. A query is planned with one version of the subject (the option `schema-version`): the version that its columns are of, or
   the latest one when it was loaded. So a field that a user has left out of the columns is not new.
2. A schema is newer if the subject has it with a later version. An earlier version, or a schema that the subject does not
   have, such as one of another record, is not compared: a new start would not read more of it.
3. A field is new if the columns of the newer version have it, at any depth, and those of the planned version do not. So a
   renamed field is a new one.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.types import ArrayType, MapType, StructType

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError, RegistryError
from dynamic_kafka.formats import format_named, schema_registry
from dynamic_kafka.formats.format import Format, FormatOptions
from dynamic_kafka.formats.schema_ids import SchemaId, beginnings, id_of
from dynamic_kafka.formats.schema_registry_settings import FAIL, evolution_option, settings, subject_of, version_option

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

    from dynamic_kafka import native

__all__ = ["Newer", "first_newer", "must_fail", "reason_of", "refuse_evolution", "with_version"]

_MOST_SHOWN = 20


class Newer(NamedTuple):
    """A newer schema with new fields.

    Attributes:
        schema_id: Its id.
        subject: The subject.
        version: Its version in the subject.
        planned: The version with which the query was planned.
        fields: The paths of the new fields; none if columns cannot be made of the schema.
        problem: Why columns cannot be made of it; "" if they can.
    """

    schema_id: SchemaId
    subject: str
    version: int
    planned: int
    fields: tuple[str, ...]
    problem: str = ""


def must_fail(form: Format, options: FormatOptions) -> bool:
    """Return whether a query has to end at a newer schema with new fields."""
    return bool(evolution_option(form.name).of(options) == FAIL)


def with_version(form: Format, options: FormatOptions) -> FormatOptions:
    """Return the options of a query that is planned now: with the version of the subject, if the query `must_fail`.

    Raises:
        ConfigurationError: If there is no subject, or columns cannot be made of its schema.
        RegistryError: If the registry does not answer, or does not have the subject.
    """
    key = version_option(form.name).key
    if not must_fail(form, options) or key in options:
        return options
    registry, subject = schema_registry.client(settings(form.name, options)), subject_of(form.name, options)
    found = {**options, key: registry.latest(subject)}
    _columns(form, found)
    return found


def refuse_evolution(form: Format, options: FormatOptions) -> None:
    """Refuse `fail` where the place of a message is not known.

    Raises:
        InvalidOptionError: If the options have it.
    """
    if must_fail(form, options):
        raise InvalidOptionError(
            evolution_option(form.name).key, FAIL, "ignore here; read a SQL table, or use value.format, to fail"
        )


def first_newer(name: str, options: FormatOptions) -> Callable[..., tuple[int, Newer] | None]:
    """Return what finds the first message of a newer schema with new fields: its place, and the schema; None without one.

    It takes a binary array and, if the format looks at them, the values of the headers with ids. It raises `RegistryError`
    if the registry has to be asked and does not answer.

    Args:
        name: The format's name.
        options: Its options, `with_version`.
    """
    newer = _newer_of(name, options)

    def first(messages: pa.Array, headers: pa.Array | None = None) -> tuple[int, Newer] | None:
        ids = beginnings(messages, headers)
        for beginning in ids.unique().to_pylist():
            if beginning is not None and (found := newer(beginning)) is not None:
                return ids.index(beginning).as_py(), found
        return None

    return first


def reason_of(newer: Newer, part: str, name: str) -> str:
    """Return the clause that says what is new in a message, and what to do.

    Args:
        newer: The message's schema.
        part: `key` or `value`.
        name: The format's name.
    """
    fields = ", ".join(newer.fields[:_MOST_SHOWN])
    new = f"has the new fields {fields}" if fields else f"cannot become columns ({newer.problem})"
    return (
        f"the {part} has the schema with id {newer.schema_id}, version {newer.version} of the subject '{newer.subject}', "
        f"which {new}; the query was planned with version {newer.planned}. Load the stream or create the table again, and "
        "start the query: it goes on with this message and its new fields. Columns that you wrote get new fields only from "
        f"you. Set '{evolution_option(name).key}' to 'ignore' to go on without them"
    )


def _newer_of(name: str, options: FormatOptions) -> Callable[[native.SchemaId], Newer | None]:
    """Return what takes the id of a schema, and returns the schema if it is newer and has new fields."""
    text = json.dumps(options)

    def newer(given: native.SchemaId) -> Newer | None:
        try:
            return _newer(name, text, id_of(given))
        except RegistryError as error:
            if error.not_found:
                return None  # an error of its messages
            raise

    return newer


@functools.lru_cache(1000)
def _newer(name: str, text: str, schema_id: SchemaId) -> Newer | None:
    """Return a schema if it is newer and has new fields. What a registry has as an id or a version never changes."""
    form, options = format_named(name), json.loads(text)
    registry, subject = schema_registry.client(settings(name, options)), subject_of(name, options)
    found, planned = registry.schema(schema_id), version_option(name).of(options)
    try:
        version = registry.version(subject, found.type, found.text, found.references)
    except RegistryError as error:
        if error.not_found:
            return None
        raise
    if version <= planned:
        return None
    assert form.registered is not None
    try:
        columns = form.registered(found, options)
    except ConfigurationError as error:
        return Newer(schema_id, subject, version, planned, (), str(error))
    known = set(_paths(_columns(form, options)))
    fields = tuple(path for path in _paths(columns) if path not in known)
    return Newer(schema_id, subject, version, planned, fields) if fields else None


def _columns(form: Format, options: FormatOptions) -> StructType:
    """Return the columns of the version with which a query is planned."""
    assert form.registered is not None
    registry, subject = schema_registry.client(settings(form.name, options)), subject_of(form.name, options)
    return form.registered(registry.at_version(subject, version_option(form.name).of(options)), options)


def _paths(type_: DataType, path: str = "") -> Iterator[str]:
    """Yield the paths of all fields in a type."""
    match type_:
        case StructType():
            for field in type_.fields:
                shown = f"{path}.{field.name}".lstrip(".")
                yield shown
                yield from _paths(field.dataType, shown)
        case ArrayType(elementType=inner) | MapType(valueType=inner):
            yield from _paths(inner, path)
        case _:
            pass

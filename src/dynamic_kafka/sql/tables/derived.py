"""Tables with columns from elsewhere: from the query of CREATE TABLE ... AS, or from a schema registry.

For AS, the rules are those of Flink (MergeTableAsUtil): the statement's own columns come first, then those of the query that
it does not have. A column of both has the statement's type. A list of names alone gives the order of the query's columns.

A registry is asked once, when the table is created. With Avro and JSON Schema, the table keeps the schema's text as an
option of the format. So it writes that schema, and SHOW CREATE TABLE shows all of it. Messages with later versions of an
Avro schema are read as this one, and the fields that they add are logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.types import StructField

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import FORMATS, format_named
from dynamic_kafka.formats.evolution import with_version
from dynamic_kafka.formats.options import format_options
from dynamic_kafka.sql.tables.definition import (
    PhysicalColumn,
    TableDefinition,
    completed,
    fault,
    qualified,
    with_key_not_null,
)
from dynamic_kafka.sql.tables.options import CONNECTOR, CONNECTORS, split_options, value_format_option, with_subject
from dynamic_kafka.sql.tables.types import FlinkType, flink_type, spark_type

__all__ = ["definition_as", "with_registry_columns"]


def definition_as(
    definition: TableDefinition, names: Sequence[str], query: Sequence[PhysicalColumn]
) -> TableDefinition:
    """Return the table with the columns of a query: all of them in the order of `names`, or else of the query.

    Raises:
        ConfigurationError: If a column cannot get its value from the query, or if the result is not a valid table.
    """
    table = f"Table {qualified(definition.name)}"
    found = {column.name: column for column in query}
    if len(found) < len(query):
        raise ConfigurationError(f"{table}: the query has two columns of one name. Give each its own name with AS")
    if names and set(names) != set(found):
        raise ConfigurationError(
            f"{table} lists the columns {', '.join(names)}, but the query has {', '.join(found)}. List the same names"
        )
    for own_column in definition.columns:
        if own_column not in definition.written and own_column.name in found:
            raise ConfigurationError(
                f"{table}: column `{own_column.name}` cannot be written, but the query has a column of this name. Give "
                "one of them another name"
            )
    for column in query:
        try:
            spark_type(column.type)
        except KeyError:
            raise ConfigurationError(
                f"{table}: column `{column.name}` of the query is {column.type}, which a table cannot have. CAST it"
            ) from None
    own = {column.name for column in definition.columns}
    others = [found[name] for name in names or found if name not in own]
    return completed(definition, columns=(*definition.columns, *others))


def with_registry_columns(definition: TableDefinition) -> TableDefinition:
    """Return a table with physical columns: its own, or for one on Kafka those of the registry before its other columns.

    Raises:
        ConfigurationError: If there are none, or the key or the watermark names a column that is not among them.
        RegistryError: If the registry does not answer, or does not have the subject.
    """
    if definition.physical or definition.options.get(CONNECTOR.key, "").strip().lower() not in CONNECTORS:
        return definition
    options = split_options(definition.options)
    option = value_format_option(options.sql)
    used = format_named(options.sql[option], option) if option in options.sql else None
    if used is None or used.columns is None:
        with_registry = ", ".join(name for name in FORMATS if name.endswith("-confluent"))
        raise ConfigurationError(
            "The table does not have a physical column; add at least one that is in the messages. Only a format with a "
            f"schema registry knows the columns: {with_registry}"
        )
    prefix = "" if option == "format" else "value."
    given, _ = format_options(used, prefix, options.rest)
    given = with_subject(used, given, options.source, "value")
    planned = with_version(used, given)
    schema, added = used.columns(planned)
    added = {**{name: str(planned[name]) for name in planned.keys() - given.keys()}, **added}
    found = replace(
        definition,
        columns=(*(PhysicalColumn(f.name, _flink_type(f)) for f in schema.fields), *definition.columns),
        options={**definition.options, **{f"{prefix}{name}": text for name, text in added.items()}},
    )
    if (wrong := fault(found)) is not None:
        raise ConfigurationError(f"{wrong[2]}. The columns of the registry are {', '.join(schema.names)}")
    return with_key_not_null(found)


def _flink_type(field: StructField) -> FlinkType:
    found = flink_type(field.dataType, nullable=field.nullable)
    digits: Any = field.metadata.get("precision")
    return replace(found, parameters=(digits,)) if digits is not None and found.name.startswith("TIMESTAMP") else found

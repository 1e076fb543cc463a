"""CREATE TABLE ... AS: a table with the columns of a query. Pure.

The rules are those of Flink (MergeTableAsUtil): the statement's own columns come first, then those of the query that it does
not have. A column of both has the statement's type. A list of names alone gives the order of the query's columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.definition import (
    ComputedColumn,
    MetadataColumn,
    PhysicalColumn,
    TableDefinition,
    fault,
    qualified,
    with_key_not_null,
)
from dynamic_kafka.sql.types import spark_type

__all__ = ["definition_as"]


def definition_as(
    definition: TableDefinition, names: Sequence[str], query: Sequence[PhysicalColumn]
) -> TableDefinition:
    """Return the table with the columns of a query.

    Args:
        definition: The parts that CREATE TABLE has itself.
        names: The names of all the query's columns in the order of the table; or empty, for the query's order.
        query: The columns of the query.

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
        computed = isinstance(own_column, ComputedColumn) or (
            isinstance(own_column, MetadataColumn) and own_column.virtual
        )
        if computed and own_column.name in found:
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
    result = with_key_not_null(replace(definition, columns=(*definition.columns, *others)))
    if wrong := fault(result):
        *_, problem = wrong
        raise ConfigurationError(f"{table}: {problem}")
    return result

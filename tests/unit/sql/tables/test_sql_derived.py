"""CREATE TABLE ... AS: the columns of a table that is made of a query."""

from __future__ import annotations

import pytest

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.parser.parse import parse_statement
from dynamic_kafka.sql.parser.statements import CreateTable
from dynamic_kafka.sql.tables.definition import PhysicalColumn, TableDefinition
from dynamic_kafka.sql.tables.derived import definition_as
from dynamic_kafka.sql.tables.types import FlinkType

QUERY = (PhysicalColumn("id", FlinkType("INT")), PhysicalColumn("name", FlinkType("STRING", nullable=False)))


def columns_of(parts: str) -> list[str]:
    """The columns of CREATE TABLE with these parts AS a query with `id` and `name`."""
    statement = parse_statement(f"CREATE TABLE t {parts} AS SELECT id, name FROM u")
    assert isinstance(statement, CreateTable)
    assert statement.as_query is not None
    made = definition_as(statement.definition, statement.as_query.columns, QUERY)
    return [f"{c.name} {c.type}" if isinstance(c, PhysicalColumn) else c.name for c in made.columns]


@pytest.mark.parametrize(
    ("parts", "columns"),
    [
        ("", ["id INT", "name STRING NOT NULL"]),
        ("(name, id)", ["name STRING NOT NULL", "id INT"]),
        ("(at TIMESTAMP(3), id BIGINT)", ["at TIMESTAMP(3)", "id BIGINT", "name STRING NOT NULL"]),
        ("(up AS UPPER(name))", ["up", "id INT", "name STRING NOT NULL"]),
        ("(PRIMARY KEY (id) NOT ENFORCED)", ["id INT NOT NULL", "name STRING NOT NULL"]),
        ("(topic STRING METADATA)", ["topic", "id INT", "name STRING NOT NULL"]),
    ],
)
def test_columns(parts: str, columns: list[str]) -> None:
    """The statement's own come first, and have its types, as in Flink."""
    assert columns_of(parts) == columns


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ("(id)", "lists the columns id, but the query has id, name"),
        ("(id, nr)", "lists the columns id, nr"),
        ("(name AS 'x')", "column `name` cannot be written"),
        ("(name STRING METADATA FROM 'topic' VIRTUAL)", "column `name` cannot be written"),
        ("(PRIMARY KEY (nr) NOT ENFORCED)", "PRIMARY KEY refers to column `nr`, which does not exist"),
        ("(WATERMARK FOR name AS name)", "it has to be TIMESTAMP"),
    ],
)
def test_what_does_not_fit(parts: str, problem: str) -> None:
    """With the column."""
    with pytest.raises(ConfigurationError, match="Table `t`") as caught:
        columns_of(parts)
    assert problem in str(caught.value)


def test_columns_of_one_name() -> None:
    """Two columns of a query could not be told apart."""
    with pytest.raises(ConfigurationError, match="two columns of one name"):
        definition_as(TableDefinition(("t",), ()), (), (QUERY[0], QUERY[0]))


def test_a_column_without_a_type() -> None:
    """`SELECT NULL AS x` does not say which type the column has."""
    with pytest.raises(ConfigurationError, match="column `x` of the query is NULL"):
        definition_as(TableDefinition(("t",), ()), (), (PhysicalColumn("x", FlinkType("NULL")),))

"""CREATE TABLE: its columns, constraints, watermark and options, and the query of CREATE TABLE ... AS.

The rules and their order are those of Flink's grammar (flink-sql-parser: parserImpls.ftl) and validation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dynamic_kafka.errors import SqlError
from dynamic_kafka.sql.parser.lexer import STRING, Cursor, Token, tokenize
from dynamic_kafka.sql.parser.like import Like, read_like
from dynamic_kafka.sql.parser.types import read_interval_units, read_type
from dynamic_kafka.sql.tables.definition import (
    Column,
    ComputedColumn,
    MetadataColumn,
    PhysicalColumn,
    TableDefinition,
    Watermark,
    fault,
    with_key_not_null,
)
from dynamic_kafka.sql.tables.types import interval_units

__all__ = ["QUERY", "AsQuery", "read_create_table", "read_hint", "read_options", "read_query"]

_CLOSING = {"(": ")", "[": "]"}
_NOT_ENFORCED = "keys are not checked, so write PRIMARY KEY (...) NOT ENFORCED, as in Flink"
_WATERMARK_FORMS = "Spark's watermarks are `column` or `column - INTERVAL '5' SECOND`"
_UNSUPPORTED_CLAUSES = {
    "DISTRIBUTED": "DISTRIBUTED is not supported because Kafka tables have no buckets; see 'key.fields'",
}
QUERY = ("SELECT", "WITH", "VALUES", "TABLE", "(")
"""What a query begins with."""


@dataclass(frozen=True)
class AsQuery:
    """What is behind AS in CREATE TABLE ... AS: a query, and the names of all its columns if the statement lists them."""

    query: str = field(repr=False)
    columns: tuple[str, ...]


@dataclass
class _Table:
    """The parts read so far, with their tokens for errors that are found only at the end."""

    columns: list[Column] = field(default_factory=list)
    column_names: set[str] = field(default_factory=set)
    primary_key: dict[str, Token] | None = None
    watermark: Watermark | None = None
    watermark_token: Token | None = None
    names: list[str] = field(default_factory=list)
    without_type: SqlError | None = None


def read_create_table(cursor: Cursor, *, temporary: bool) -> tuple[TableDefinition, Like | None, AsQuery | None]:
    """Parse a CREATE TABLE after these words, up to the end of the statement.

    Returns:
        The table, and the LIKE clause or the query behind AS if there is one. The key and the watermark of a table with
        one of them may name columns of the other table or of the query; `like.merge` and `definition_as` check them.

    Raises:
        SqlError: If Flink does not accept the statement, or a part of it is not supported here.
    """
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.qualified_name("the table's name")
    table = _Table()
    start = cursor.token
    if cursor.at("("):
        cursor.listed(lambda: _read_part(cursor, table))
    comment = cursor.string("the comment") if cursor.take("COMMENT") else None
    _refuse_clauses(cursor)
    partitioned_by = tuple(cursor.column_names()) if cursor.take("PARTITIONED", "BY") else ()
    options = read_options(cursor) if cursor.take("WITH") else {}
    _refuse_clauses(cursor)
    query = _read_as(cursor, table) if cursor.take("AS") else None
    if query is None and table.without_type is not None:
        raise table.without_type
    like = read_like(cursor) if cursor.take("LIKE") else None
    cursor.expect_end()
    parts = tuple(table.columns), tuple(table.primary_key or ()), table.watermark, options
    definition = TableDefinition(name, *parts, comment, temporary, if_not_exists, partitioned_by)
    if like is None and query is None and not _has_columns_in_registry(definition):
        if not table.columns:
            raise cursor.error("A table needs at least one column", start)
        if found := fault(definition):
            clause, column, problem = found
            at = (table.primary_key or {})[column] if clause == "PRIMARY KEY" else table.watermark_token
            raise cursor.error(problem, at)
    return with_key_not_null(definition), like, query


def read_query(cursor: Cursor) -> str:
    """Take a query up to the end of the statement, and return it as written; raise SqlError for anything else."""
    if not any(map(cursor.at, QUERY)):
        raise cursor.unexpected("a query, such as SELECT")
    return cursor.take_rest()


def _read_as(cursor: Cursor, table: _Table) -> AsQuery:
    query = read_query(cursor)
    if table.without_type is not None and (table.columns or table.primary_key or table.watermark):
        raise table.without_type  # names alone say the order of all columns
    return AsQuery(query, tuple(table.names))


def _has_columns_in_registry(table: TableDefinition) -> bool:
    """Return whether a table without physical columns has a format whose schema registry knows them."""
    format_ = table.options.get("format", table.options.get("value.format", ""))
    return format_.endswith("-confluent") and not table.physical


def read_options(cursor: Cursor) -> dict[str, str]:
    """Parse `('key' = 'value', ...)`. Of an option that is given twice, the last value counts, as in Flink.

    Raises:
        SqlError: If there is something else.
    """
    found: dict[str, str] = {}

    def one() -> None:
        key = cursor.string("an option's name")
        cursor.expect("=")
        found[key] = cursor.string("the option's value")

    if cursor.take("(", ")"):
        return found
    cursor.listed(one)
    return found


def read_hint(source: str, token: Token) -> tuple[dict[str, str], Cursor]:
    """Return the options of a table in a hint, and the rest of the hint.

    Raises:
        SqlError: If it is another hint.
    """
    inside = Cursor(source, tokenize(source, token.start + len("/*+"), token.end - len("*/")))
    inside.expect("OPTIONS", hint="the only hint for a table is OPTIONS('key' = 'value')")
    return read_options(inside), inside


def _refuse_clauses(cursor: Cursor) -> None:
    for word, problem in _UNSUPPORTED_CLAUSES.items():
        if cursor.at(word):
            raise cursor.error(problem)


# --- columns --------------------------------------------------------------------------------------------------------


def _read_part(cursor: Cursor, table: _Table) -> None:
    if any(map(cursor.at, ("CONSTRAINT", "PRIMARY", "UNIQUE"))):
        token = _read_constraint_start(cursor)
        _set_primary_key(cursor, table, cursor.column_names(), token)
        _read_not_enforced(cursor)
    elif cursor.at("WATERMARK"):
        if table.watermark is not None:
            raise cursor.error("A table has only one WATERMARK")
        cursor.next()
        cursor.expect("FOR", hint="put a column of that name in `backticks`")
        table.watermark_token = cursor.token
        table.watermark = _read_watermark(cursor)
    else:
        token = cursor.token
        name = cursor.name("a column's name")
        if name in table.column_names:
            raise cursor.error(f"The table has two columns {cursor.shown(token)}", token)
        table.column_names.add(name)
        if cursor.at(",") or cursor.at(")"):  # a name alone, as before AS
            table.without_type = table.without_type or cursor.unexpected("a type")
            table.names.append(name)
        else:
            table.columns.append(_read_column(cursor, table, name, token))


def _read_column(cursor: Cursor, table: _Table, name: str, token: Token) -> Column:
    if cursor.take("AS"):
        expression = _read_expression(cursor)
        return ComputedColumn(name, expression, _read_comment(cursor))
    type_ = read_type(cursor)
    if cursor.take("METADATA"):
        key = cursor.string("the metadata's name") if cursor.take("FROM") else name
        return MetadataColumn(name, type_, key, cursor.take("VIRTUAL"), _read_comment(cursor))
    if any(map(cursor.at, ("CONSTRAINT", "PRIMARY", "UNIQUE"))):
        start = _read_constraint_start(cursor)
        _read_not_enforced(cursor)
        _set_primary_key(cursor, table, {name: token}, start)
    return PhysicalColumn(name, type_, _read_comment(cursor))


def _read_comment(cursor: Cursor) -> str | None:
    return cursor.string("the comment") if cursor.take("COMMENT") else None


def _read_expression(cursor: Cursor) -> str:
    """Parse an expression, up to the comma, parenthesis or comment after it, and return it as written."""
    start = end = cursor.token
    open_: list[str] = []
    while cursor.token.kind != "end":
        if not open_ and (cursor.at(",") or cursor.at(")") or cursor.at("COMMENT", STRING)):
            break
        end = cursor.next()
        if end.kind == "symbol" and end.text in _CLOSING:
            open_.append(_CLOSING[end.text])
        elif end.kind == "symbol" and end.text in _CLOSING.values() and (not open_ or open_.pop() != end.text):
            raise cursor.error(f"'{end.text}' does not close anything here", end)
    if open_:
        raise cursor.unexpected(f"'{open_[-1]}'")
    if cursor.token is start:
        raise cursor.unexpected("an expression")
    return cursor.source[start.start : end.end]


# --- primary key ----------------------------------------------------------------------------------------------------


def _read_constraint_start(cursor: Cursor) -> Token:
    start = cursor.token
    if cursor.take("CONSTRAINT"):
        cursor.name("the constraint's name")
    if cursor.at("UNIQUE"):
        raise cursor.error("UNIQUE constraints are not supported, as in Flink. The only constraint is PRIMARY KEY")
    cursor.expect("PRIMARY", "KEY")
    return start


def _read_not_enforced(cursor: Cursor) -> None:
    if not cursor.take("NOT", "ENFORCED"):
        raise cursor.unexpected("'NOT ENFORCED'", _NOT_ENFORCED)


def _set_primary_key(cursor: Cursor, table: _Table, columns: dict[str, Token], start: Token) -> None:
    if table.primary_key is not None:
        raise cursor.error("A table has only one PRIMARY KEY", start)
    table.primary_key = columns


# --- watermark ------------------------------------------------------------------------------------------------------


def _read_watermark(cursor: Cursor) -> Watermark:
    column = cursor.name("a column's name")
    if cursor.at("."):
        raise cursor.error("Spark does not support watermarks on fields of a row. Add a column `name AS row.field`")
    cursor.expect("AS")
    start = cursor.token
    delay = _read_delay(cursor, column)
    if not cursor.at(",") and not cursor.at(")"):
        raise cursor.unexpected("',' or ')'", _WATERMARK_FORMS)
    return Watermark(column, cursor.text_since(start), delay)


def _read_delay(cursor: Cursor, column: str) -> str:
    """Parse `column [- INTERVAL ...]`, also in parentheses, and return the interval as Spark writes it."""
    depth = 0
    while cursor.take("("):
        depth += 1
    if cursor.at("SOURCE_WATERMARK", "("):
        raise cursor.error(
            "SOURCE_WATERMARK() is not supported because Kafka has no watermarks of its own; " + _WATERMARK_FORMS
        )
    token = cursor.token
    if token.kind not in ("word", "name") or token.text != column:
        raise cursor.unexpected(f"the column `{column}`", _WATERMARK_FORMS)
    cursor.name("the column")
    while depth and cursor.take(")"):
        depth -= 1
    delay = "0 SECOND"
    if cursor.take("-"):
        if not cursor.take("INTERVAL"):
            raise cursor.unexpected("'INTERVAL'", _WATERMARK_FORMS)
        delay = _read_interval(cursor)
    while depth:
        cursor.expect(")", hint=_WATERMARK_FORMS)
        depth -= 1
    return delay


_NUMBER = r"(\d{1,7})"
_FORMS = {
    "WEEK": ("", _NUMBER),
    "DAY": ("", _NUMBER),
    "HOUR": (" ", _NUMBER),
    "MINUTE": (":", _NUMBER),
    "SECOND": (":", r"(\d{1,7}(?:\.\d{1,9})?)"),
}
"""For each unit of an interval, the separator in front of its number (except for the first one), and the number."""


def _read_interval(cursor: Cursor) -> str:
    """Parse an interval such as `'1:30' MINUTE TO SECOND`, and return it as `1 MINUTE 30 SECOND`."""
    if cursor.at("-"):
        raise cursor.error("A watermark's delay cannot be negative")
    cursor.take("+")
    value = cursor.token
    text = cursor.string("the interval's value")
    unit = cursor.token
    units = ("WEEK",) if cursor.take_one_of("WEEK", "WEEKS") else interval_units(read_interval_units(cursor))
    if units[0] in ("YEAR", "MONTH"):
        raise cursor.error("Months and years have no fixed length; write the delay in days", unit)
    separators, numbers = zip(*(_FORMS[unit] for unit in units), strict=True)
    separators = ("", *separators[1:])
    match = re.fullmatch("".join(s + n for s, n in zip(separators, numbers, strict=True)), text.strip(), re.ASCII)
    if match is None:
        example = "".join(f"{s}1" for s in separators)
        raise cursor.error(
            f"This is not an interval of {' TO '.join(dict.fromkeys((units[0], units[-1])))}. The form is '{example}'",
            value,
        )
    parts = [f"{number} {unit}" for number, unit in zip(match.groups(), units, strict=True) if float(number)]
    return " ".join(parts) or "0 SECOND"

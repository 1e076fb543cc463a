"""Scripts into statements.

The text is split at `;` by tokens, so a `;` in a string, a name or a comment does not end a statement. The parts for Spark
(queries, view queries, computed columns) stay as they were written, with their comments and hints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynamic_kafka.errors import nearest
from dynamic_kafka.sql.parser.create_table import QUERY, read_create_table, read_hint, read_options, read_query
from dynamic_kafka.sql.parser.errors import line_number, sql_error
from dynamic_kafka.sql.parser.lexer import Cursor, Token, split, tokenize
from dynamic_kafka.sql.parser.statements import (
    AddJar,
    CreateDatabase,
    CreateTable,
    CreateView,
    Describe,
    Drop,
    Explain,
    InsertInto,
    Kind,
    Query,
    Reset,
    Set,
    Show,
    ShowCreate,
    Statement,
    StatementSet,
    Use,
)
from dynamic_kafka.sql.parser.unsupported import refuse_unsupported

__all__ = ["parse_script", "parse_statement"]


def parse_script(text: str) -> list[Statement]:
    """Return all statements of a script, in order.

    Raises:
        SqlError: For the first error, with its line and column in the script.
    """
    cursors = (Cursor(text, tokens) for tokens in split(tokenize(text)))
    return [_statement(cursor, cursors) for cursor in cursors]


def parse_statement(text: str) -> Statement:
    """Return the only statement of a text; the `;` after it is optional.

    Raises:
        SqlError: If it cannot be parsed, or if the text does not contain exactly one statement.
    """
    cursors = (Cursor(text, tokens) for tokens in split(tokenize(text)))
    first = next(cursors, None)
    if first is None:
        raise sql_error(text, len(text), "Expected a statement, found none")
    statement = _statement(first, cursors)
    second = next(cursors, None)
    if second is not None:
        raise second.error("Expected one statement, found another one after it. Run them one by one, or as a script")
    return statement


_STATEMENTS = ("CREATE", "DROP", "SHOW", "DESCRIBE", "DESC", "SET", "RESET", "USE", "EXPLAIN", "ADD")
_DETAILS = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")
_Place = tuple[str, int]
"""A statement's text and line."""


def _statement(cursor: Cursor, following: Iterator[Cursor]) -> Statement:
    """Return the statement at the cursor; a statement set takes the following ones up to its END."""
    start, place = cursor.token, (cursor.rest(), cursor.line)
    refuse_unsupported(cursor)
    job = _job(cursor, following)
    if job is not None:
        return job
    match cursor.take_one_of(*_STATEMENTS):
        case "ADD":
            cursor.expect("JAR")
            if not cursor.take_rest():  # old scripts do not quote it
                raise cursor.unexpected("the JAR file")
            statement: Statement = AddJar(*place)
        case "CREATE":
            statement = _create(cursor, place)
        case "DROP":
            cursor.take("TEMPORARY")
            kind, if_exists = _kind(cursor), cursor.take("IF", "EXISTS")
            statement = Drop(*place, kind, cursor.qualified_name(f"the {kind}'s name"), if_exists)
        case "SHOW":
            statement = _show(cursor, place)
        case "DESCRIBE" | "DESC":
            cursor.take("EXTENDED")
            statement = Describe(*place, cursor.qualified_name("a table's name"))
        case "USE":
            catalog = cursor.take("CATALOG")
            statement = Use(
                *place, catalog, cursor.qualified_name(f"the {'catalog' if catalog else 'database'}'s name")
            )
        case "SET":
            statement = _set(cursor, place)
        case "RESET":
            statement = Reset(*place, None if cursor.token.kind == "end" else _key(cursor))
        case "EXPLAIN":
            return _explain(cursor, following, start)
        case _:
            known = (*_STATEMENTS, *(word for word in QUERY if word.isalpha()), "INSERT", "EXECUTE", "BEGIN")
            near = nearest(cursor.token.text, known, cutoff=0.7) if cursor.token.kind == "word" else None
            hint = "" if near is None else f"did you mean {near}?"
            raise cursor.unexpected("a statement, such as SELECT, INSERT INTO or CREATE TABLE", hint)
    cursor.expect_end()
    return statement


def _job(cursor: Cursor, following: Iterator[Cursor]) -> Query | InsertInto | StatementSet | None:
    """Return a query, an insert or a statement set, which can be explained; None for any other statement."""
    start, place = cursor.token, (cursor.rest(), cursor.line)
    if cursor.take("BEGIN", "STATEMENT", "SET"):
        cursor.expect_end()
        return _statement_set(cursor, following, start)
    cursor.take("EXECUTE")
    if cursor.take("STATEMENT", "SET"):
        cursor.expect("BEGIN")
        return _statement_set(cursor, following, start)
    if cursor.at("INSERT"):
        return _insert(cursor, place)
    if any(map(cursor.at, QUERY)):
        cursor.take_rest()
        return Query(*place)
    if start is not cursor.token:
        raise cursor.unexpected("STATEMENT SET, INSERT INTO or a query")
    return None


def _create(cursor: Cursor, place: _Place) -> Statement:
    if cursor.take("DATABASE"):
        return _create_database(cursor, place)
    temporary = cursor.take("TEMPORARY")
    if _kind(cursor) == "table":
        definition, like, query = read_create_table(cursor, temporary=temporary)
        return CreateTable(*place, definition, like, query)
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.qualified_name("the view's name")
    columns = tuple(cursor.column_names()) if cursor.at("(") else ()
    comment = cursor.string("the comment") if cursor.take("COMMENT") else None
    cursor.expect("AS")
    return CreateView(*place, name, columns, read_query(cursor), comment, if_not_exists)


def _create_database(cursor: Cursor, place: _Place) -> CreateDatabase:
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.qualified_name("the database's name")
    if cursor.take("COMMENT"):
        cursor.string("the comment")
    if cursor.take("WITH"):
        read_options(cursor)
    return CreateDatabase(*place, name, if_not_exists)


def _kind(cursor: Cursor) -> Kind:
    if cursor.take("TABLE"):
        return "table"
    if cursor.take("VIEW"):
        return "view"
    raise cursor.unexpected("TABLE or VIEW")


def _show(cursor: Cursor, place: _Place) -> Show | ShowCreate:
    if cursor.take("CREATE"):
        kind = _kind(cursor)
        return ShowCreate(*place, kind, cursor.qualified_name(f"the {kind}'s name"))
    what = cursor.take_one_of("TABLES", "VIEWS")
    if what is None:
        raise cursor.unexpected("TABLES, VIEWS or CREATE TABLE")
    negated = cursor.take("NOT")
    if negated:
        cursor.expect("LIKE")
    pattern = cursor.string("a pattern") if negated or cursor.take("LIKE") else None
    return Show(*place, "table" if what == "TABLES" else "view", pattern, negated)


def _set(cursor: Cursor, place: _Place) -> Set:
    if cursor.token.kind == "end":
        return Set(*place, None, None)
    key = _key(cursor)
    cursor.expect("=")
    return Set(*place, key, cursor.string("the value") if cursor.token.kind == "string" else _bare_value(cursor))


def _key(cursor: Cursor) -> str:
    """Skip a key, in quotes or, as before Flink 1.14, without them."""
    if cursor.token.kind == "string":
        return cursor.string("the key")
    start = cursor.token
    while cursor.token.kind in ("word", "number") or cursor.at(".") or cursor.at("-"):
        cursor.next()
    if cursor.token is start or re.search(r"\s", cursor.text_since(start)):
        raise cursor.unexpected("the key, such as 'pipeline.name'")
    return cursor.text_since(start)


def _bare_value(cursor: Cursor) -> str:
    """Skip a value without quotes, which is the rest of the line."""
    start = cursor.token
    if start.kind == "end":
        raise cursor.unexpected("the value")
    text = cursor.take_rest()
    # Two slashes begin a comment, and what follows them, even the `;`, would be lost.
    line = cursor.source[start.start :].partition("\n")[0]
    if text != line[: len(text)] or re.match(r"//|/\*", line[len(text) :]):
        raise cursor.error("Put this value in 'single quotes', and a ';' after it", start)
    return text


def _explain(cursor: Cursor, following: Iterator[Cursor], start: Token) -> Explain:
    line = line_number(cursor.source, start.start)
    if not cursor.take("PLAN", "FOR"):
        while cursor.take_one_of(*_DETAILS) and cursor.take(","):
            pass
    of_job = cursor.token.start
    job = _job(cursor, following)
    if job is None:
        raise cursor.unexpected("STATEMENT SET, INSERT INTO or a query")
    text = cursor.source[start.start : of_job] + job.text  # a statement set goes on after the first `;`
    return Explain(text, line, job)


def _insert(cursor: Cursor, place: _Place) -> InsertInto:
    cursor.expect("INSERT")
    if cursor.at("OVERWRITE"):
        raise cursor.error(
            "INSERT OVERWRITE is not supported because records in Kafka cannot be replaced; write INSERT INTO. In Python, "
            "env.sql_query('SELECT ...').write.insertInto('lake.db.t', overwrite=True) replaces the rows of a Spark table, "
            "and .write.mode('overwrite').parquet('/path') those of a folder"
        )
    cursor.expect("INTO")
    table = cursor.qualified_name("the table's name")
    options = _hint(cursor) if cursor.token.kind == "hint" else {}
    if cursor.at("PARTITION"):
        raise cursor.error(
            "PARTITION is not supported: select the values of partition columns with the others, such as INSERT INTO t "
            "(id, dt) SELECT id, '2024-01-01' FROM s. Kafka tables have no partition columns; see 'sink.partitioner'"
        )
    is_query = any(cursor.at("(", word) for word in QUERY)
    columns = tuple(cursor.column_names()) if cursor.at("(") and not is_query else None
    return InsertInto(*place, table, columns, read_query(cursor), options)


def _hint(cursor: Cursor) -> dict[str, str]:
    options, inside = read_hint(cursor.source, cursor.next())
    if inside.token.kind != "end":
        raise inside.unexpected("the end of the hint")
    return options


def _statement_set(cursor: Cursor, following: Iterator[Cursor], start: Token) -> StatementSet:
    inserts: list[InsertInto] = []
    line = line_number(cursor.source, start.start)
    while not cursor.take("END"):
        if cursor.token.kind == "end":
            end, cursor = cursor, next(following, cursor)
            if end is cursor:
                problem = "The statement set is not closed. Add END;"
                raise sql_error(cursor.source, cursor.token.start, problem, unfinished=True)
        elif cursor.at("INSERT"):
            inserts.append(_insert(cursor, (cursor.rest(), cursor.line)))
        else:
            raise cursor.unexpected("INSERT INTO or END")
    cursor.expect_end()
    if not inserts:
        raise cursor.error("The statement set is empty. Add at least one INSERT INTO", start)
    return StatementSet(cursor.text_since(start), line, tuple(inserts))

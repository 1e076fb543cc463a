"""Errors of a script's statements, with their place in it and on one line, and of tables that Spark cannot load."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark import __version__
from pyspark.errors import AnalysisException, PySparkException

from dynamic_kafka import errors
from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError, SqlError
from dynamic_kafka.sql.parser import statements as nodes
from dynamic_kafka.sql.parser.create_table import AsQuery
from dynamic_kafka.sql.parser.errors import sql_error
from dynamic_kafka.sql.parser.lexer import tokenize

__all__ = ["errors_of", "in_text", "java_message", "loading", "named_place", "own_errors", "place_in", "reason_of"]

# The second before Spark 4.2, without a name.
_MISSING = re.compile(r"\[(?:CANNOT_LOAD_CATALOG|DATA_SOURCE_NOT_FOUND)\b|^Cannot find catalog plugin class")
_DOES_NOT_FIT = re.compile(
    r"\bjava\.lang\.(?:IncompatibleClassChange|NoClassDefFound|NoSuchMethod|NoSuchField|AbstractMethod|Verify|"
    r"UnsupportedClassVersion)Error\b"
)
_NO_CATALOG = re.compile(r"\[REQUIRES_SINGLE_PART_NAMESPACE\].* (?P<name>(?P<catalog>`(?:[^`]|``)*`)\.`.*`)")


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise our own error of planning a batch as such, without the page of Spark and of its Python process about it.

    Raises:
        ConfigurationError: If it was one.
        DynamicKafkaError: If it was any other one of this package.
    """
    try:
        yield
    except PySparkException as error:
        condition = error.getCondition() or ""
        found = re.search(r"\bdynamic_kafka\.errors\.(\w+): ", str(error)) if "DATA_SOURCE_ERROR" in condition else None
        if found is None:
            raise
        kind = getattr(errors, found[1], DynamicKafkaError)
        raise (ConfigurationError if issubclass(kind, ConfigurationError) else DynamicKafkaError)(
            reason_of(error)
        ) from None


@contextmanager
def errors_of(statement: nodes.Statement, script: str, what: str | None = None) -> Iterator[None]:
    """Add the place in the script to the errors of a statement, or of `what` in it, such as one of its jobs.

    Raises:
        SqlError: If Spark reports the place of the error in a query.
        ConfigurationError: If the statement is wrong otherwise.
        DynamicKafkaError: For other errors of Spark and of this package.
    """
    try:
        yield
    except SqlError as error:
        moved = in_text(error, script, _line_start(script, statement.line))
        if moved is error:
            raise
        raise moved from error
    except Exception as error:
        if not isinstance(error, (DynamicKafkaError, PySparkException)) and not java_message(error):
            raise
        offset = _offset(error, statement, script) if isinstance(error, AnalysisException) else None
        if offset is not None:
            raise sql_error(script, offset, re.sub(r"\s*SQLSTATE: .*", "", reason_of(error))) from error
        if isinstance(error, ConfigurationError) and what is None:
            offset = named_place(str(error), statement.text)
            start = script.find(statement.text, _line_start(script, statement.line))
            if offset is not None and start >= 0:
                raise sql_error(script, start + offset, reason_of(error)) from error
        kind = ConfigurationError if isinstance(error, (AnalysisException, ConfigurationError)) else DynamicKafkaError
        raise kind(f"Line {statement.line}, {what or _beginning(statement)}: {reason_of(error)}") from error


@contextmanager
def loading() -> Iterator[None]:
    """Turn Spark's error for a catalog or a format that it cannot load into one that says what to do.

    Raises:
        ConfigurationError: If the session has no such catalog, or a JAR is missing or is for another release of Spark.
    """
    try:
        yield
    except Exception as error:
        problem = _loading_problem(error)
        if problem is None:
            raise
        raise ConfigurationError(problem) from error


def _loading_problem(error: Exception) -> str | None:
    text = java_message(error) or (str(error) if isinstance(error, PySparkException) else "")
    if _DOES_NOT_FIT.search(text):
        reason = text.partition("\n")[0].partition(" (")[0]
        return (
            f"A JAR of this session is for another release of Spark than {__version__}: {reason}. Start Spark with one for "
            "this release (spark.jars.packages)"
        )
    if _MISSING.search(text):
        reason = reason_of(error).rstrip(".")
        return f"{reason}. Start Spark with its JAR, one for Spark {__version__} (spark.jars.packages)"
    if unknown := _NO_CATALOG.search(text):
        setting = f"spark.sql.catalog.{unknown['catalog'][1:-1]}"
        return (
            f"Table {unknown['name']} does not exist: the session has no catalog {unknown['catalog']}. Set '{setting}' and "
            "its options, or CREATE TABLE under this name"
        )
    return None


def named_place(message: str, statement: str) -> int | None:
    """Return the place in a statement of what an error names first: a 'string' of it, or a `name`. None if it is missing."""
    first = re.search(r"'([^']*)'|`([^`]*)`", message)
    if first is None:
        return None
    kinds, text = (("string",), first[1]) if first[1] is not None else (("word", "name"), first[2])
    with suppress(SqlError):
        for token in tokenize(statement):
            if token.kind in kinds and token.text == text:
                return token.start
    return None


def in_text(error: SqlError, text: str, start: int = 0) -> SqlError:
    """Return the error with its place in a text that contains the query from `start` on; as it is if the text does not."""
    found = -1 if error.query is None else text.find(error.query, start)
    return error if found < 0 else sql_error(text, found + error.offset, error.problem)


def reason_of(error: Exception) -> str:
    """Return the reason of an error on one line: of a Spark error the part of this package or of Python, if there is one."""
    text = java_message(error) or str(error).strip()
    if ours := re.search(r"\bdynamic_kafka\.errors\.\w+: (.*)", text):
        return ours[1]
    if python := re.findall(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", text, re.MULTILINE):
        return str(python[-1])
    first = text.partition("\n")[0].rstrip(";")
    # raise_error() puts the name of a condition in front of our text.
    first = re.sub(r"^(?:\[STREAM_FAILED\].*? terminated with exception: )?(?:\[USER_RAISED_EXCEPTION\] )?", "", first)
    return re.sub(r"(?:\s*SQLSTATE: \w+)+$", "", first) or type(error).__name__


def java_message(error: Exception) -> str:
    """Return Java's own words for an error that PySpark has no class for; empty for any other one."""
    of_java: Any = getattr(error, "java_exception", None)  # of Py4J, which a client of Spark Connect may not have
    return "" if of_java is None else re.sub(r"^org\.apache\.spark\.\w+: ", "", str(of_java.toString()))


def _beginning(statement: nodes.Statement) -> str:
    """Return the beginning of a statement, up to the first sign; the rest may contain a secret."""
    words = re.match(r"[\w\s`.]*", statement.text)
    text = " ".join(words[0].split()) if words else ""
    return f"'{text if len(text) <= 40 else text[:40] + '…'}'"


def _offset(error: PySparkException, statement: nodes.Statement, script: str) -> int | None:
    """Return the place in the script that Spark reports; None if there is none, or it is in another text, such as a view."""
    start = _line_start(script, statement.line)
    for query in _queries(statement):
        found = place_in(query, error)
        if found is not None:
            return script.index(query, start) + found
    return None


def place_in(query: str, error: PySparkException) -> int | None:
    """Return the place in a query that Spark reports, None if there is none or it is in another text, such as a view."""
    for context in error.getQueryContext():
        if context.contextType().name == "SQL":
            first = context.startIndex()
            if query[first : context.stopIndex() + 1] == context.fragment():
                return first
    place = re.search(r"\(line (\d+), pos (\d+)\)", str(error))
    # After it, Spark shows the text, with a line of signs under the error.
    number, lines = (int(place[1]), query.split("\n")) if place else (1, [])
    if place is None or number > len(lines) or lines[number - 1] not in str(error).split("\n"):
        return None
    return _line_start(query, number) + int(place[2])


def _line_start(text: str, number: int) -> int:
    return sum(len(line) + 1 for line in text.split("\n")[: number - 1])


def _queries(statement: nodes.Statement) -> list[str]:
    """Return the parts of a statement that Spark parses."""
    match statement:
        case nodes.StatementSet(inserts=inserts):
            return [insert.query for insert in inserts]
        case nodes.Explain(statement=explained):
            return _queries(explained)
        case nodes.InsertInto(query=query) | nodes.CreateView(query=query) | nodes.Query(text=query):
            return [query]
        case nodes.CreateTable(as_query=AsQuery(query=query)):
            return [query]
    return []

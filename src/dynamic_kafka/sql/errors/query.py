"""Errors of queries that Spark gets in other words than the user wrote, and constructs that Spark's streams do not have."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from sqlglot import exp

from dynamic_kafka.errors import SqlError
from dynamic_kafka.formats.expressions import quoted
from dynamic_kafka.sql.dialect.query import Query, place_of, query_error
from dynamic_kafka.sql.dialect.ranks import rank_windows
from dynamic_kafka.sql.dialect.writer import UNKNOWN_TYPE
from dynamic_kafka.sql.errors.script import place_in, reason_of

__all__ = ["cause_of", "in_query", "refuse_for_streams", "unknown_function"]

_TOKEN = re.compile(r"\w+|'(?:[^'\\]|\\.|'')*'|[^\w\s]", re.DOTALL)


def in_query(error: AnalysisException, text: str, translated: str) -> Exception:
    """Return an error of Spark for a translated query, with its place in the text that the user wrote."""
    function = unknown_function(error)
    place = place_in(translated, error)
    if place is None or (text == translated and function is None and not isinstance(error, ParseException)):
        return error
    return query_error(text, original_place(text, translated, place), function or reason_of(error))


def unknown_function(error: AnalysisException) -> str | None:
    """Return what to do about a function that Spark does not have; None for any other error."""
    if error.getCondition() != "UNRESOLVED_ROUTINE":
        return None
    name = (error.getMessageParameters() or {}).get("routineName", "")
    return (
        f"There is no function {name} here. If it is one of your own, write it in Python and register it with "
        "spark.udf.register: CREATE FUNCTION and Java's functions are not supported"
    )


def cause_of(
    error: SqlError,
    query: Query,
    refusal: AnalysisException | None,
    *,
    problems: Mapping[str, Exception],
    known: Collection[str],
    spark: SparkSession,
) -> Exception:
    """Return why the type of a part of a query is not known, if that is what an error says; else the error.

    `refusal` is the last error of Spark when it was asked for a type. `problems` are those of tables and views that cannot
    be read, by their keys, and `known` the keys of all.
    """
    if error.problem != UNKNOWN_TYPE or query.tree is None:
        return error
    for table in query.tables:
        name = table.name.lower()
        if table.db:
            continue
        if name in problems:
            return problems[name]
        if name not in known and not spark.catalog.tableExists(quoted(table.name)):
            return query_error(
                query.text, place_of(table), f"Table {quoted(table.name)} does not exist; see SHOW TABLES"
            )
    if refusal is None:
        return error
    problem = unknown_function(refusal)
    if (refusal.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        column = (refusal.getMessageParameters() or {}).get("objectName", "such a column")
        problem = UNKNOWN_TYPE.replace("such a column", f"a column {column}")
    return error if problem is None else query_error(query.text, error.offset, problem)


def original_place(text: str, translated: str, place: int) -> int:
    """Return the place in a query of what is at a place of its translation, or before that."""
    ours, theirs = list(_TOKEN.finditer(text)), list(_TOKEN.finditer(translated))
    words = [token[0].lower() for token in ours], [token[0].lower() for token in theirs]
    index = 0
    for first, other, size in difflib.SequenceMatcher(None, *words, autojunk=False).get_matching_blocks():
        for i in range(size):
            if theirs[other + i].start() <= place:
                index = first + i
    if theirs and place not in {token.start() for token in theirs if token[0] in ",("} and ours[index][0] in ",(":
        index = min(index + 1, len(ours) - 1)  # what is behind a comma is meant, not the comma
    return ours[index].start()


def refuse_for_streams(query: Query) -> None:
    """Raise for what Flink calculates over streams and Spark does not.

    Raises:
        SqlError: If the query contains OVER, but for ranks (`dialect.ranks`).
    """
    if query.tree is None:
        return
    known = rank_windows(query.tree)
    for window in query.tree.find_all(exp.Window):
        if window.arg_key == "windows" or any(window is found for found in known):
            continue
        raise query_error(
            query.text,
            place_of(window),
            "Spark has no OVER in streams, but for ROW_NUMBER with `WHERE rn <= n` around it. Group by a window of time "
            "instead, or use transformWithState. (A batch has it: give the tables 'scan.bounded.mode' = 'latest-offset')",
        )

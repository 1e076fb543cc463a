"""Errors of queries that Spark gets in other words than the user wrote, and constructs that Spark's streams do not have."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from dynamic_kafka.sql.script_errors import place_in, reason_of

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException

    from dynamic_kafka.sql.dialect.query import Query

__all__ = ["in_query", "refuse_for_streams"]

_TOKEN = re.compile(r"\w+|'(?:[^'\\]|\\.|'')*'|[^\w\s]", re.DOTALL)


def in_query(error: AnalysisException, text: str, translated: str) -> Exception:
    """Return an error of Spark with its place in the text that the user wrote.

    Args:
        error: The error.
        text: The query as the user wrote it.
        translated: The query that Spark got.
    """
    place = None if text == translated else place_in(translated, error)
    if place is None:
        return error
    from dynamic_kafka.sql.dialect.query import query_error

    return query_error(text, original_place(text, translated, place), reason_of(error))


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
    from sqlglot import exp

    from dynamic_kafka.sql.dialect.query import place_of, query_error
    from dynamic_kafka.sql.dialect.ranks import rank_windows

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

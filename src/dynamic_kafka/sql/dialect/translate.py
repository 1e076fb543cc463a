"""Writing a query of Flink as one of Spark: each construct that means something else is said the way that means the same.

A query without such a construct goes to Spark as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dynamic_kafka.sql.dialect.arrival import Streams, inline_ranks
from dynamic_kafka.sql.dialect.query import Query, parse_query, query_error
from dynamic_kafka.sql.dialect.ranks import RankKey
from dynamic_kafka.sql.dialect.scope import TimesOf
from dynamic_kafka.sql.dialect.temporal import Versions
from dynamic_kafka.sql.dialect.translator import Ask, Translator

__all__ = ["translate", "translate_expression", "translate_stream"]

_SELECT = "SELECT "


def translate(
    query: Query,
    ask: Ask,
    *,
    zone: str,
    views: Mapping[int, str],
    versions: Versions | None = None,
    times_of: TimesOf | None = None,
) -> str:
    """Return a query as Spark's SQL. One with OVER cannot be a stream: see `translate_stream`.

    `views` are the names that Spark knows tables with options in a hint by, by the place of the table's name.
    `times_of` is that of `arrival.Streams` if its tables are followed, otherwise None.

    Returns:
        The text as written if nothing in it means something else in Spark.

    Raises:
        SqlError: If Spark has no equal for a construct.
    """
    if query.tree is None:
        return query.plain
    translator = Translator(query, ask, zone=zone, views=views, versions=versions, times_of=times_of)
    text = translator.sql(query.tree.copy())
    if not translator.changed and query.tree.find(exp.Fetch) is None:  # FETCH NEXT becomes LIMIT
        return query.plain
    if translator.unsupported_messages:
        raise query_error(query.text, 0, f"This query cannot be translated: {translator.unsupported_messages[0]}")
    return text


def translate_stream(
    query: Query,
    ask: Ask,
    streams: Streams,
    *,
    zone: str,
    views: Mapping[int, str],
    versions: Versions | None = None,
) -> tuple[str, bool, RankKey | None]:
    """Return a query over a stream as Spark's SQL, whether it has ranks, and the key of its rows if ranked rows change.

    Raises:
        SqlError: If Spark has no equal for a construct.
    """
    assert query.tree is not None
    translator = Translator(
        query, ask, zone=zone, views=views, streams=streams, versions=versions, times_of=streams.times_of
    )
    tree = inline_ranks(query.tree.copy(), streams)
    has_ranks = tree.find(exp.Window) is not None
    return translator.sql(tree), has_ranks, translator.rank_key


def translate_expression(text: str, ask: Ask, *, zone: str) -> str:
    """Return an expression of Flink, such as a computed column's, as one of Spark. `ask` knows types of the same columns.

    Raises:
        SqlError: If it cannot be parsed, or Spark has no equal for a part of it. Places count a SELECT before it.
    """
    query = parse_query(f"{_SELECT}{text}")
    if query.tree is None or len(query.tree.selects) != 1:
        return text
    translator = Translator(query, lambda asked: ask(asked.removeprefix(_SELECT).strip()), zone=zone, views={})
    translated = translator.sql(query.tree.selects[0].copy())
    return translated if translator.changed else text

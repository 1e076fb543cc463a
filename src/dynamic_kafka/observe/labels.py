"""The labels of queries, as of all series: each belongs to one query as long as the server runs. Pure.

A query is known by Spark's id. Before its first batch it has none, and is known by the random name of its run:

1. A query with an id has its first label for ever, unless a report has a better one (the name in Spark): then it keeps that.
2. A query without an id has the label that it asks for, if no other query was ever given that. It goes to its id.
3. A query without an id asks for a label of another one: it may be that one, started again, or may not. So it has a label
   of its own until its id is known, which no other run ever gets: `orders (run 3f9a2c41)`.
4. A query with an id asks for a label of another one: it gets the next number, `orders (2)`.
"""

from __future__ import annotations

from dynamic_kafka.observe.parts import QueryParts, SourcePart

__all__ = ["Labels"]

_LONGEST = 100


class Labels:
    """The labels that were given."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}  # label -> whose it is
        self._given: dict[tuple[str, str], str] = {}  # whose, and what it asked for -> label

    def of(self, query: QueryParts) -> str:
        """Return the label of a query."""
        wanted = query.first("label") or query.first("name") or query.first("default_label")
        wanted = wanted if len(wanted) <= _LONGEST else f"{wanted[: _LONGEST - 3]}..."
        first = query.parts[0]
        run = first.run if isinstance(first, SourcePart) else f"sink {first.default_label} {first.name}"
        query_id = query.first("query_id")
        if not query_id:
            if self._owners.setdefault(wanted, run) == run:
                return wanted
            return f"{wanted} (run {run[:8]})"
        if (known := self._given.get((query_id, wanted))) is not None:
            return known
        if self._owners.get(wanted) == run:  # it was given to this run before its id was known
            self._owners[wanted] = query_id
        label, number = wanted, 1
        while self._owners.setdefault(label, query_id) != query_id:
            number += 1
            label = f"{wanted} ({number})"
        self._given[query_id, wanted] = label
        return label

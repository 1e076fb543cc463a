"""Rules of functions on arrays, maps and rows."""

from __future__ import annotations

from collections.abc import Mapping

from dynamic_kafka.sql.dialect.functions.rules import Call, Refused, Rule

__all__ = ["REFUSED", "RULES", "SAME"]

SAME = frozenset(
    (
        *("ARRAY_DISTINCT", "ARRAY_POSITION", "ARRAY_UNION", "ARRAY_MAX", "ARRAY_MIN", "ARRAY_JOIN", "ARRAY_APPEND"),
        *("ARRAY_PREPEND", "ARRAY_INTERSECT", "MAP_KEYS", "MAP_VALUES", "MAP_ENTRIES", "MAP_FROM_ARRAYS"),
    )
)


def _row(call: Call) -> str:
    fields = ", ".join(f"'f{i}', {call.sql(i)}" for i in range(len(call.arguments)))
    return f"named_struct({fields})"


def _sort(call: Call) -> str:
    if len(call.arguments) > 1:
        raise call.refuse("ARRAY_SORT with more than the array is written otherwise in Spark: sort_array(a, false)", 1)
    return f"sort_array({call.sql(0)})"


RULES: Mapping[str, Rule] = {
    "CARDINALITY": Rule("CASE WHEN {0} IS NOT NULL THEN size({0}) END", "Of NULL, Spark may return -1."),
    "ARRAY_CONTAINS": Rule(
        "CASE WHEN {0} IS NULL THEN NULL WHEN {1} IS NULL THEN exists({0}, e -> e IS NULL) "
        "ELSE coalesce(array_contains({0}, {1}), false) END",
        "Spark returns NULL if there is a NULL among the elements.",
    ),
    "ARRAY_REMOVE": Rule(
        "CASE WHEN {1} IS NULL THEN filter({0}, e -> e IS NOT NULL) ELSE array_remove({0}, {1}) END",
        "Of NULL, Spark returns NULL.",
    ),
    "ARRAY_REVERSE": Rule("reverse({0})", "Only the name differs."),
    "ARRAY_CONCAT": Rule(
        lambda call: f"concat({', '.join(call.sql(i) for i in range(len(call.arguments)))})",
        "Only the name differs.",
        "`concat`",
    ),
    "ARRAY_SORT": Rule(_sort, "", "`sort_array`", (1, 2, 3)),
    "ROW": Rule(_row, "Spark does not have it.", "`named_struct('f0', a, ...)`"),
}
REFUSED: Mapping[str, Refused] = {
    "ELEMENT": Refused("Write a[1]"),
    "ARRAY_SLICE": Refused("Spark counts a length and not an end: slice(a, start, length)"),
    "ARRAY_EXCEPT": Refused("Flink keeps repeated elements, Spark does not: filter(a, x -> NOT array_contains(b, x))"),
    "MAP_UNION": Refused("With a key in both maps, Flink takes the last and Spark fails: map_concat(a, b)"),
}

"""Rules of functions on arrays, maps and rows, and on JSON texts.

Of JSON, Spark's variants tell a text from a number, which get_json_object does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

from dynamic_kafka.sql.dialect.functions.rules import Call, Refused, Rule, called

__all__ = ["REFUSED", "RULES", "SAME", "number_in_json"]

SAME = frozenset(
    (
        *("ARRAY_DISTINCT", "ARRAY_POSITION", "ARRAY_UNION", "ARRAY_MAX", "ARRAY_MIN", "ARRAY_JOIN", "ARRAY_APPEND"),
        *("ARRAY_PREPEND", "ARRAY_INTERSECT", "MAP_KEYS", "MAP_VALUES", "MAP_ENTRIES", "MAP_FROM_ARRAYS"),
    )
)
_PATH = re.compile(r"(?:(?:lax|strict)\s+)?(\$(?:\.[A-Za-z_]\w*|\[\d+\]|\['[^'\]]*'\])*)")
_RETURNING = {
    "STRING": "STRING",
    "VARCHAR": "STRING",
    "BOOLEAN": "BOOLEAN",
    "INT": "INT",
    "INTEGER": "INT",
    "DOUBLE": "DOUBLE",
}
_CLAUSES = re.compile(r"(?:RETURNING\s+(\w+))?\s*(?:NULL\s+ON\s+EMPTY)?\s*(?:NULL\s+ON\s+ERROR)?", re.IGNORECASE)


def _path(call: Call) -> str:
    text = call.text(1)
    match = _PATH.fullmatch(text.strip()) if text is not None else None
    if match is None:
        raise call.refuse(
            f"The path of {call.name} has to be a literal with fields and indexes, such as '$.a.b[0]'",
            1,
        )
    return match[1].replace("\\", "\\\\").replace("'", "\\'")


def _clauses(call: Call) -> str:
    return call.arguments[2].name.strip() if len(call.arguments) > 2 else ""


def _value(call: Call) -> str:
    path = _path(call)
    clauses = _CLAUSES.fullmatch(_clauses(call))
    wanted = (clauses[1] or "STRING").upper() if clauses else ""
    if wanted not in _RETURNING:
        raise call.refuse(
            "JSON_VALUE is known with RETURNING STRING, BOOLEAN, INT or DOUBLE and with NULL ON EMPTY and NULL ON ERROR. "
            "COALESCE(JSON_VALUE(...), d) has d for every NULL, also where Flink's DEFAULT has NULL",
        )
    found = _found(call, path)
    kind = f"schema_of_variant({found})"
    if _RETURNING[wanted] != "STRING":
        return f"CASE WHEN NOT {kind} RLIKE '^(OBJECT|ARRAY)' THEN try_variant_get({found}, '$', '{_RETURNING[wanted]}') END"
    return (
        f"CASE WHEN {kind} IN ('STRING', 'BOOLEAN', 'BIGINT') "
        f"THEN try_variant_get({found}, '$', 'string') "
        f"WHEN {kind} = 'DOUBLE' OR {kind} RLIKE '^DECIMAL' THEN raise_error("
        "'JSON_VALUE of a number with a fraction as a text is not the same in Spark: write RETURNING DOUBLE') END"
    )


def number_in_json(cast: Call, target: str) -> tuple[str, str] | None:
    """Return the value of a CAST of JSON_VALUE for a number with a fraction, and the condition for that.

    Flink cuts a fraction off for INT, and fails for a number with an exponent. The other target is DOUBLE.

    JSON_VALUE of such a number is a text in Flink that Spark cannot write. Its number is known all the same.

    Returns:
        None if it is a CAST of something else.
    """
    node = cast.arguments[0].unnest()
    if not isinstance(node, exp.Anonymous) or called(node) != "JSON_VALUE":
        return None
    call = Call(cast.translator, node, "JSON_VALUE")
    clauses = _CLAUSES.fullmatch(_clauses(call))
    if clauses is None or (clauses[1] or "STRING").upper() not in ("STRING", "VARCHAR"):
        return None
    found = _found(call, _path(call))
    kind = f"schema_of_variant({found})"
    number = f"try_variant_get({found}, '$', 'double')"
    if target == "DOUBLE":
        return number, f"({kind} = 'DOUBLE' OR {kind} RLIKE '^DECIMAL')"
    small = f"({number} <> 0 AND abs({number}) < 0.000001)"  # Flink writes it with an exponent
    odd = "raise_error('JSON_VALUE: a number with an exponent is no INT')"
    return f"CASE WHEN {small} THEN {odd} ELSE {cast.name}({number} AS INT) END", f"{kind} RLIKE '^DECIMAL'"


def _exists(call: Call) -> str:
    path = _path(call)
    if _clauses(call):
        raise call.refuse("JSON_EXISTS is known without ON ERROR")
    kind = f"schema_of_variant({_found(call, path)})"
    return f"CASE WHEN {call.sql(0)} IS NOT NULL THEN coalesce({kind} <> 'VOID', false) END"


def _found(call: Call, path: str) -> str:
    """Return what is at a path. Spark does not parse a document with a key twice, of which Flink takes the last."""
    value = call.sql(0)
    twice = f"try_parse_json({value}) IS NULL AND get_json_object({value}, '$') IS NOT NULL"
    doubled = f"raise_error('{call.name}: a key is there twice')"
    document = f"CASE WHEN {twice} THEN {doubled} ELSE try_parse_json({value}) END"
    return f"try_variant_get({document}, '{path}', 'variant')"


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
    "JSON_VALUE": Rule(
        _value,
        "Spark does not have it.",
        "`try_variant_get(try_parse_json(x), '$.a', 'string')` of a text, number or boolean",
        (2, 3),
    ),
    "JSON_EXISTS": Rule(_exists, "Spark does not have it.", "`try_variant_get(...) IS NOT NULL`", (2, 3)),
}
_QUERY = "Flink writes the part anew: use get_json_object(x, '$.a') of Spark, which returns it as it is in the text"
REFUSED: Mapping[str, Refused] = {
    "ELEMENT": Refused("Write a[1]"),
    "ARRAY_SLICE": Refused("Spark counts a length and not an end: slice(a, start, length)"),
    "ARRAY_EXCEPT": Refused("Flink keeps repeated elements, Spark does not: filter(a, x -> NOT array_contains(b, x))"),
    "MAP_UNION": Refused("With a key in both maps, Flink takes the last and Spark fails: map_concat(a, b)"),
    "JSON_QUERY": Refused(_QUERY),
    "JSON_OBJECT": Refused("Use to_json(named_struct('key', value, ...))"),
    "JSON_ARRAY": Refused("Use to_json(array(...))"),
    "JSON_STRING": Refused("Use to_json"),
    "JSON": Refused("Use to_json"),
    "JSON_QUOTE": Refused("Use to_json"),
    "JSON_UNQUOTE": Refused("Use from_json"),
}

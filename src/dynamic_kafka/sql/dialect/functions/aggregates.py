"""Rules of aggregations. What follows one, its FILTER and OVER, is `over`, and belongs to each part that it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from dynamic_kafka.sql.dialect.functions.rules import Call, Refused, Rule
from dynamic_kafka.sql.tables.types import is_decimal, is_whole, kind_of, name_of

__all__ = ["REFUSED", "RULES", "SAME", "distinct"]

SAME = frozenset(
    ("COUNT", "MIN", "MAX", "ROW_NUMBER", "RANK", "DENSE_RANK", "LAG", "LEAD", "NTILE", "CUME_DIST", "PERCENT_RANK")
)


def _sum(call: Call) -> str | None:
    found = _argument_type(call)
    if is_whole(found) and kind_of(found) != "LongType":
        return f"CAST(sum({call.sql(0)}){call.over} AS {name_of(found)})"
    if kind_of(found) == "FloatType":
        return f"CAST(sum({call.sql(0)}){call.over} AS FLOAT)"
    if is_decimal(found):
        return f"CAST(sum({call.sql(0)}){call.over} AS DECIMAL(38,{found.scale}))"
    return None


def _average(call: Call) -> str | None:
    found = _argument_type(call)
    value = call.sql(0)
    if is_whole(found):
        quotient = f"(sum({value}){call.over} DIV count({value}){call.over})"
        return quotient if kind_of(found) == "LongType" else f"CAST({quotient} AS {name_of(found)})"
    if kind_of(found) == "FloatType":
        return f"CAST(avg({value}){call.over} AS FLOAT)"
    if is_decimal(found):
        scale = max(found.scale, 6)
        return (
            f"CAST(CAST(sum({value}){call.over} AS DECIMAL(38,{found.scale})) / "
            f"CAST(count({value}){call.over} AS DECIMAL(19,0)) AS DECIMAL(38,{scale}))"
        )
    return None


def _spread(call: Call) -> str | None:
    found = _argument_type(call)
    if is_whole(found) or is_decimal(found):
        raise call.refuse(
            f"{call.name} of whole numbers and DECIMAL is calculated in their type by Flink: CAST(x AS DOUBLE)", 0
        )
    return None


def _listagg(call: Call) -> str:
    first = call.arguments[0]
    # sqlglot takes the separator behind DISTINCT for a second distinct value.
    has_separator = len(call.arguments) == 2 or (isinstance(first, exp.Distinct) and len(first.expressions) == 2)
    arguments = ", ".join(call.sql(i) for i in range(len(call.arguments)))
    return f"listagg({arguments}){call.over}" if has_separator else f"listagg({arguments}, ','){call.over}"


def distinct(call: Call) -> str:
    """Return an aggregation with DISTINCT for a stream, where Spark has none but `collect_set`.

    Raises:
        SqlError: If it is not COUNT.
    """
    if call.name != "COUNT":
        raise call.refuse(
            f"Spark's streams have no {call.name}(DISTINCT x): calculate with the array that collect_set(x) returns"
        )
    values = [call.translator.sql(part) for part in call.arguments[0].expressions]
    value = values[0]
    if len(values) > 1:
        value = (
            f"CASE WHEN {' AND '.join(f'({part}) IS NOT NULL' for part in values)} THEN struct({', '.join(values)}) END"
        )
    return f"CAST(size(collect_set({value}){call.over}) AS BIGINT)"


def _argument_type(call: Call) -> Any:
    argument = call.arguments[0]
    if isinstance(argument, exp.Distinct):
        argument = argument.expressions[0]
    return call.translator.type_of(argument)


_BY_ARRIVAL = "{} depends on the order in which rows arrive, which Spark does not keep: use {}(x, ts)"
RULES: Mapping[str, Rule] = {
    "SUM": Rule(
        _sum,
        "Flink keeps the type: SUM of INT is INT. Too large a sum is an error here; Flink wraps it around.",
        "`CAST(sum(x) AS INT)`",
        (1,),
    ),
    "AVG": Rule(
        _average,
        "Of whole numbers, Flink returns a whole number, and of DECIMAL more digits.",
        "`sum(x) DIV count(x)`",
        (1,),
    ),
    **dict.fromkeys(
        ("STDDEV_POP", "STDDEV_SAMP", "STDDEV", "VAR_POP", "VAR_SAMP", "VARIANCE"),
        Rule(_spread, "Only of DOUBLE and FLOAT.", "the same", (1,)),
    ),
    "LISTAGG": Rule(_listagg, "Flink separates by a comma, Spark by nothing.", "`listagg(x, ',')`", (1, 2)),
}
REFUSED: Mapping[str, Refused] = {
    "COLLECT": Refused("Spark has no multisets: use collect_list(x) for an array"),
    "ARRAY_AGG": Refused("Flink keeps NULLs and Spark does not: use collect_list(x) for an array without them"),
    "FIRST_VALUE": Refused(_BY_ARRIVAL.format("FIRST_VALUE", "min_by")),
    "LAST_VALUE": Refused(_BY_ARRIVAL.format("LAST_VALUE", "max_by")),
    "JSON_OBJECTAGG": Refused("Use to_json(map_from_entries(collect_list(struct(k, v))))"),
    "JSON_ARRAYAGG": Refused("Use to_json(collect_list(x))"),
}

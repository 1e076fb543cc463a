"""Rules of functions on numbers, and what a division is."""

from __future__ import annotations

from collections.abc import Mapping

from dynamic_kafka.sql.dialect.functions.rules import Call, Refused, Rule, is_with_point
from dynamic_kafka.sql.dialect.functions.times import truncate
from dynamic_kafka.sql.tables.types import decimal_of, is_fraction, is_whole, name_of

__all__ = ["REFUSED", "RULES", "SAME"]

SAME = frozenset(
    (
        *("ABS", "EXP", "SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN", "ATAN2", "SINH", "COSH", "TANH", "COT", "DEGREES"),
        *("RADIANS", "PI", "E", "UUID", "BIN", "HEX", "UNHEX", "MOD", "SQRT", "POWER", "ROUND", "IF", "COALESCE"),
        *("IFNULL", "GROUPING", "GROUPING_ID"),
    )
)


def _logarithm(function: str) -> str:
    return (
        f"CASE WHEN {{0}} > 0 THEN {function}({{0}}) WHEN {{0}} = 0 THEN CAST('-Infinity' AS DOUBLE) "
        "WHEN {0} IS NOT NULL THEN CAST('NaN' AS DOUBLE) END"
    )


def _log(call: Call) -> str:
    if len(call.arguments) == 1:
        return _logarithm("ln").format(call.sql(0))
    base, value = call.sql(0), call.sql(1)
    return f"(({_logarithm('ln').format(value)}) / ({_logarithm('ln').format(base)}))"


def _round_to(call: Call, function: str) -> str | None:
    """CEIL and FLOOR keep the type of their argument in Flink; Spark returns a BIGINT for a DOUBLE."""
    if len(call.arguments) == 2:
        return truncate(call, up=function == "ceil")
    found = call.type(0)
    if is_fraction(found):
        return f"CAST({function}({call.sql(0)}) AS {name_of(found)})"
    if is_whole(found):
        return call.sql(0)
    return f"{function}({call.sql(0)})"


def _sign(call: Call) -> str | None:
    found = call.type(0)
    return None if is_fraction(found) else f"CAST(sign({call.sql(0)}) AS {name_of(found)})"


def _truncate(call: Call) -> str:
    found = call.type(0)
    digits = call.sql(1) if len(call.arguments) == 2 else "0"
    if is_fraction(found):
        raise call.refuse(
            "Spark cannot TRUNCATE a DOUBLE. TRUNCATE a DECIMAL: TRUNCATE(CAST(x AS DECIMAL(20, 6)), 2)",
            0,
        )
    if is_whole(found):
        found = decimal_of(found)
    value = call.sql(0)
    return f"CASE WHEN {value} >= 0 THEN floor({value}, {digits}) ELSE ceil({value}, {digits}) END"


def _rand(call: Call) -> str | None:
    if call.arguments:
        raise call.refuse(f"{call.name} with a seed gives other numbers in Spark: leave the seed out")
    return None


def _nullif(call: Call) -> str | None:
    if not is_with_point(call.arguments[1]) or name_of(call.type(0)) != "FLOAT":
        return None
    return f"nullif({call.sql(0)}, CAST({call.sql(1)} AS FLOAT))"


def _of_all(function: str) -> Rule:
    def write(call: Call) -> str:
        values = [call.sql(i) for i in range(len(call.arguments))]
        missing = " OR ".join(f"({value}) IS NULL" for value in values)
        return f"CASE WHEN {missing} THEN NULL ELSE {function}({', '.join(values)}) END"

    return Rule(
        write,
        "With a NULL among the values, Flink returns NULL. Spark leaves it out.",
        f"`{function}` with a test for NULL",
    )


RULES: Mapping[str, Rule] = {
    "LN": Rule(
        _logarithm("ln"), "Of 0, Flink returns -Infinity, of less NaN. Spark returns NULL.", "`ln`, with these cases"
    ),
    "LOG2": Rule(_logarithm("log2"), "As LN.", "`log2`, with these cases"),
    "LOG10": Rule(_logarithm("log10"), "As LN.", "`log10`, with these cases"),
    "LOG": Rule(_log, "As LN.", "`ln(x) / ln(base)`, with these cases", (1, 2)),
    "CEIL": Rule(
        lambda call: _round_to(call, "ceil"),
        "For a DOUBLE, Flink returns a DOUBLE and Spark a BIGINT.",
        "`CAST(ceil(x) AS DOUBLE)`",
        (1, 2),
    ),
    "FLOOR": Rule(lambda call: _round_to(call, "floor"), "As CEIL.", "`CAST(floor(x) AS DOUBLE)`", (1, 2)),
    "SIGN": Rule(_sign, "Flink keeps the type. Spark returns a DOUBLE.", "`CAST(sign(x) AS INT)`", (1,)),
    "TRUNCATE": Rule(_truncate, "Spark does not have it.", "`floor(x, n)` or `ceil(x, n)`", (1, 2)),
    "RAND": Rule(_rand, "Only without a seed.", "`rand()`", (0, 1)),
    "RAND_INTEGER": Rule({1: "CAST(floor(rand() * {0}) AS INT)"}, "Spark does not have it."),
    "NULLIF": Rule(_nullif, "Flink compares a FLOAT with 0.1 as a FLOAT, Spark as a DOUBLE.", "`nullif`", (2,)),
    "GREATEST": _of_all("greatest"),
    "LEAST": _of_all("least"),
}
REFUSED: Mapping[str, Refused] = {
    "TYPEOF": Refused("Spark has other names for types: use typeof of Spark in spark.sql"),
    "GROUP_ID": Refused("Spark has GROUPING_ID only"),
    "CONVERT": Refused("Write CAST"),
}

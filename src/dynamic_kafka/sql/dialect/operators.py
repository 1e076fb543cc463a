"""Rules of operators: what a division, an element or a comparison is depends on the types of its parts."""

from __future__ import annotations

import re

from pyspark.sql.types import DataType
from sqlglot import exp

from dynamic_kafka.sql.dialect.functions.rules import called, is_with_point, literal_of
from dynamic_kafka.sql.dialect.windows import length_us, offsets_us
from dynamic_kafka.sql.dialect.writer import Writer
from dynamic_kafka.sql.tables.types import decimal_of, is_decimal, is_fraction, is_whole, kind_of, name_of, wider

__all__ = [
    "chosen",
    "comparison",
    "division",
    "element",
    "like",
    "listed",
    "product",
    "similar",
    "total",
    "type_in_function",
]

_DAY_US = 86_400_000_000
_OVER_ARRAYS = ("TRANSFORM", "FILTER", "EXISTS", "FORALL")
"""Spark's functions of an array and a function of its elements."""
_SIMILAR = re.compile(r"(?:[\w %|()+*?,:/@-]|\[\^?(?:[A-Za-z0-9](?:-[A-Za-z0-9])?|,)+\])+")
"""The patterns of SIMILAR TO that are the same as regular expressions, but for `%` and `_`."""


def division(t: Writer, node: exp.Div) -> str:
    """Return a division: of whole numbers a whole number, of DECIMAL one with Flink's digits."""
    left, right = t.sql(node.this), t.sql(node.expression)
    one, other = t.type_of(node.this), t.type_of(node.expression)
    if is_whole(one) and is_whole(other):
        quotient = f"({left} DIV {right})"
        result = wider(one, other)
        return t.as_changed(
            node, quotient if kind_of(result) == "LongType" else f"CAST({quotient} AS {name_of(result)})"
        )
    if is_fraction(one) or is_fraction(other):
        if "DoubleType" in (kind_of(one), kind_of(other)) or is_decimal(one) or is_decimal(other):
            return f"{left} / {right}"
        return t.as_changed(node, f"CAST({left} / {right} AS FLOAT)")
    if is_decimal(one) or is_decimal(other):
        texts = [
            _decimal(t, part, text, found)
            for part, text, found in ((node.this, left, one), (node.expression, right, other))
        ]
        text = " / ".join(texts)
        return text if texts == [left, right] else t.as_changed(node, f"({text})")
    return f"{left} / {right}"


def _decimal(t: Writer, node: exp.Expr, text: str, found: DataType) -> str:
    """Return a part of a calculation with DECIMAL with the digits that Flink counts."""
    if is_whole(found):
        return f"CAST({text} AS {name_of(decimal_of(found))})"
    while isinstance(node, (exp.Paren, exp.Neg)):
        node = node.this
    results = _results(node)
    if any(is_whole(kind) and kind_of(kind) == "LongType" for kind in map(t.type_or_none, results) if kind is not None):
        raise t.refuse(
            node,
            "A BIGINT beside a DECIMAL has other digits in Flink than in Spark: CAST(x AS DECIMAL(19, 0)) the BIGINT first",
        )
    literal = re.fullmatch(r"(\d*)\.(\d+)", node.name) if isinstance(node, exp.Literal) else None
    if literal:  # Flink counts the zero in front of the point
        return f"CAST({text} AS DECIMAL({len(literal[1]) + len(literal[2])},{len(literal[2])}))"
    return text


def _results(node: exp.Expr) -> list[exp.Expr]:
    """Return the values of which a part is one, if it chooses between some."""
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        return [*(branch.args["true"] for branch in node.args.get("ifs") or ()), *([default] if default else [])]
    match called(node):
        case "COALESCE" | "IFNULL" | "GREATEST" | "LEAST":
            return list(node.expressions)
        case "IF":
            return list(node.expressions[1:])
    return []


def product(t: Writer, node: exp.Binary, sign: str) -> str:
    """Return a calculation. Beside a DECIMAL, Flink counts the digits of a whole number's type, Spark others."""
    parts = (node.this, node.expression)
    if any(isinstance(part, exp.Literal) and part.is_string for part in parts):
        return t.binary(node, sign)
    kinds = [t.type_or_none(part) for part in parts]
    one, other = kinds
    if one is None or other is None or not (is_decimal(one) or is_decimal(other)):
        return t.binary(node, sign)
    if not all(is_decimal(kind) or is_whole(kind) for kind in (one, other)):
        return t.binary(node, sign)
    texts = [_decimal(t, part, t.sql(part), kind) for part, kind in zip(parts, (one, other), strict=True)]
    if texts == [t.sql(part) for part in parts]:
        return t.binary(node, sign)
    return t.as_changed(node, f"{texts[0]} {sign} {texts[1]}")


def element(t: Writer, node: exp.Bracket) -> str:
    """Return an element: Flink counts from 1, Spark from 0."""
    base = node.this
    if (
        isinstance(base, exp.Column)
        and not base.table
        and base.name.upper() == "MAP"
        and not base.this.args.get("quoted")
    ):
        return t.as_changed(node, f"map({t.expressions(node, flat=True)})")
    if len(node.expressions) != 1:
        raise t.refuse(node, "Expected one index or key in [ ]")
    index = node.expressions[0]
    found = t.type_of(base)
    if kind_of(found) == "ArrayType":
        number = index.this if isinstance(index, exp.Neg) else index
        if isinstance(number, exp.Literal) and (number is not index or number.name.strip("0") == ""):
            raise t.refuse(index, "The elements of an array have numbers from 1 on")
        return t.as_changed(node, f"get({t.sql(base)}, {t.sql(index)} - 1)")
    if kind_of(found) == "StructType":
        names: list[str] = getattr(found, "names")  # noqa: B009  Spark's types are not imported here
        if isinstance(index, exp.Literal) and index.is_string:
            if index.name not in names:
                raise t.refuse(index, f"The row has no such field, but {', '.join(names)}")
            return t.as_changed(node, f"({t.sql(base)}).`{index.name.replace('`', '``')}`")
        if not (isinstance(index, exp.Literal) and index.name.isdigit() and 0 < int(index.name) <= len(names)):
            raise t.refuse(index, "A field of a row has a name, or a number from 1 on")
        return t.as_changed(node, f"({t.sql(base)}).`{names[int(index.name) - 1]}`")
    return f"{t.sql(base)}[{t.sql(index)}]"


def like(t: Writer, node: exp.Like) -> str:
    """Return a LIKE: a backslash in a pattern is itself in Flink, and an escape in Spark."""
    text = t.like_without_escape(node)
    pattern = literal_of(node.expression)
    if pattern == "":
        raise t.refuse(
            node.expression, "Flink takes every text for one that is LIKE an empty pattern. Compare with = ''"
        )
    known = pattern is not None and "\\" not in pattern
    if known or isinstance(node.parent, exp.Escape) or isinstance(node.expression, (exp.Any, exp.All, exp.Tuple)):
        return text
    return t.as_changed(node, f"{text} ESCAPE '\x01'")


def similar(t: Writer, node: exp.SimilarTo) -> str:
    """Return a SIMILAR TO as a regular expression for the whole text. Only a pattern of common signs is known."""
    pattern = literal_of(node.expression)
    if pattern is None or _SIMILAR.fullmatch(pattern) is None or isinstance(node.parent, exp.Escape):
        raise t.refuse(
            node,
            "SIMILAR TO is known with a pattern of letters, digits and % _ | ( ) [ ] * + ? only: use REGEXP(text, pattern)",
        )
    signs = {"%": "(?s:.*)", "_": "."}
    regex = re.sub(r"\[.*?\]|[%_]", lambda found: signs.get(found[0], found[0]), pattern)
    return t.as_changed(node, f"rlike({t.sql(node.this)}, '\\\\A(?:{regex})\\\\z')")


def comparison(t: Writer, node: exp.Binary, sign: str) -> str:
    """Return an `=` or `<>`: with a number such as 0.1, Flink compares a FLOAT as a FLOAT, Spark as a DOUBLE.

    For `<`, `>` and BETWEEN, Flink compares as a DOUBLE, too.
    """
    parts = [node.this, node.expression]
    texts = [t.sql(part) for part in parts]
    for i, part in enumerate(parts):
        if is_with_point(part) and _is_float(t, parts[1 - i]):
            texts[i] = t.as_changed(node, f"CAST({texts[i]} AS FLOAT)")
    return f" {sign} ".join(texts)


def listed(t: Writer, node: exp.In) -> str:
    """Return an IN: Flink compares a FLOAT with a number such as 0.1 as a FLOAT."""
    if any(map(is_with_point, node.expressions)) and _is_float(t, node.this):
        values = [f"CAST({t.sql(e)} AS FLOAT)" if is_with_point(e) else t.sql(e) for e in node.expressions]
        return t.as_changed(node, f"{t.sql(node.this)} IN ({', '.join(values)})")
    return t.in_sql(node)


def chosen(t: Writer, node: exp.Case) -> str:
    """Return a CASE: with a FLOAT to compare, a number such as 0.1 is a FLOAT, too."""
    branches = node.args.get("ifs") or []
    if node.this is not None and any(is_with_point(branch.this) for branch in branches) and _is_float(t, node.this):
        raise t.refuse(
            node, "Flink compares this FLOAT as a FLOAT, Spark as a DOUBLE: write CASE WHEN x = 0.1 THEN ..."
        )
    return t.case_sql(node)


def _is_float(t: Writer, node: exp.Expr) -> bool:
    found = t.type_or_none(node)
    return found is not None and kind_of(found) == "FloatType"


def total(t: Writer, node: exp.Binary, sign: str) -> str:
    """Return a sum or a difference, unless it adds hours to a DATE: that stays a DATE in Flink."""
    for date, interval in ((node.this, node.expression), (node.expression, node.this)):
        if isinstance(interval, exp.Interval) and re.search(r"HOUR|MINUTE|SECOND", t.sql(interval).upper()):
            found = t.type_or_none(date)
            if found is not None and kind_of(found) == "DateType":
                raise t.refuse(
                    node, "A DATE plus hours is a DATE in Flink, and a time in Spark: CAST(d AS TIMESTAMP(3)) first"
                )
    parts = [part for part in (node.this, node.expression) if isinstance(part, exp.Interval)]
    days = [part for part in parts if re.search(r"DAY|HOUR|MINUTE|SECOND", t.sql(part).upper())]
    if days and len(offsets_us(t.zone)) != 1:
        other = node.expression if days[0] is node.this else node.this
        found = t.type_or_none(other)
        if found is not None and kind_of(found) == "TimestampType":  # a day has 24 hours in Flink, 23 to 25 in Spark
            length = length_us(t, days[0], negative=True)
            if abs(length) < _DAY_US:
                return t.binary(node, sign)
            return t.as_changed(node, f"timestamp_micros(unix_micros({t.sql(other)}) {sign} {length})")
    if parts:
        return t.binary(node, sign)
    return product(t, node, sign)


def type_in_function(t: Writer, node: exp.Identifier) -> DataType | None:
    """Return the type of a name in a function such as `transform(a, x -> x / 2)`, None if it is not known."""
    function = node.find_ancestor(exp.Lambda)
    while function is not None:
        names = [name.name.lower() for name in function.expressions]
        call = function.parent
        if node.name.lower() in names:
            if call is None or called(call) not in _OVER_ARRAYS:
                return None
            array = t.type_or_none(call.expressions[0])
            return getattr(array, "elementType", None) if names.index(node.name.lower()) == 0 else None
        function = function.find_ancestor(exp.Lambda)
    return None

"""Calls of functions: by a rule, refused, or as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from dynamic_kafka.sql.dialect.casts import cast
from dynamic_kafka.sql.dialect.functions.aggregates import distinct
from dynamic_kafka.sql.dialect.functions.registry import AGGREGATES, REFUSED, RULES
from dynamic_kafka.sql.dialect.functions.rules import Call, Rule, called
from dynamic_kafka.sql.dialect.windows import GROUP_WINDOWS, group_window
from dynamic_kafka.sql.dialect.writer import Writer

__all__ = ["call_sql", "over"]

_CALL = "call"


def over(t: Writer, node: exp.Filter | exp.Window) -> str:
    """Return an aggregation with FILTER and OVER, which belong to each part that it is made of."""
    if isinstance(node, exp.Window) and node.arg_key != "windows":
        t.check_over(node)
    suffix, inner = "", node
    while isinstance(inner, (exp.Filter, exp.Window)):
        if inner.args.get("first") is not None or isinstance(
            inner.this, (exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)
        ):
            return _as_generated(t, node)
        inner = inner.this
    if not isinstance(inner, exp.Anonymous) or node.arg_key == "windows":
        return _as_generated(t, node)
    current: exp.Expr = node
    while isinstance(current, (exp.Filter, exp.Window)):
        part = current.this
        current.set("this", exp.Var(this=_CALL))  # what is behind the call, without the call
        suffix = _as_generated(t, current).removeprefix(_CALL) + suffix
        current.set("this", part)
        current = part
    return call_sql(t, inner, suffix)


def _as_generated(t: Writer, node: exp.Filter | exp.Window) -> str:
    return t.filter_sql(node) if isinstance(node, exp.Filter) else t.window_sql(node)


def call_sql(t: Writer, node: exp.Anonymous, suffix: str) -> str:
    """Return a call, with the FILTER and the OVER after it."""
    name = called(node)
    call = Call(t, node, name, suffix)
    if name in ("CAST", "TRY_CAST"):
        return cast(call)
    if node.find_ancestor(exp.Pivot):  # Flink has none
        return t.as_written(node)
    if name in GROUP_WINDOWS and node.expressions:
        return _group_window(t, node)
    if name in REFUSED and not (suffix and name in ("FIRST_VALUE", "LAST_VALUE") and " OVER " in suffix):
        raise call.refuse(f"{name} is not the same in Spark. {REFUSED[name].way}")
    if t.streams is not None and any(isinstance(argument, exp.Distinct) for argument in node.expressions):
        return t.as_changed(node, distinct(call))
    if name in ("FIRST_VALUE", "LAST_VALUE"):  # Flink leaves NULLs out
        if len(node.expressions) != 1:
            raise call.refuse(f"{name} is known with 1 argument, not with {len(node.expressions)}")
        return t.as_changed(node, f"{name.lower()}({call.sql(0)}, true){suffix}")
    rule = RULES.get(name)
    if rule is not None:
        text = _by_rule(rule, call)
        if text is not None:
            return t.as_changed(node, text if name in AGGREGATES else f"{text}{suffix}")
    return f"{t.as_written(node)}{suffix}"


def _by_rule(rule: Rule, call: Call) -> str | None:
    spark: Any = rule.spark
    number = len(call.arguments)
    if callable(spark):
        if rule.numbers and number not in rule.numbers:
            known = f"{' or '.join(map(str, rule.numbers))} argument{'' if rule.numbers == (1,) else 's'}"
            raise call.refuse(f"{call.name} is known with {known}, not with {number}")
        try:
            found: str | None = spark(call)
        except IndexError:
            raise call.refuse(f"{call.name} needs more arguments") from None
        return found
    if isinstance(spark, Mapping):
        if number not in spark:
            raise call.refuse(f"{call.name} is known with {' or '.join(map(str, spark))} arguments, not with {number}")
        spark = spark[number]
    wanted = max((int(found) for found in re.findall(r"(?<!\{)\{(\d)\}", spark)), default=-1) + 1
    if number != wanted:
        raise call.refuse(f"{call.name} is known with {wanted} arguments, not with {number}")
    text: str = spark.format(*(call.sql(i) for i in range(number)))
    return text


def _group_window(t: Writer, node: exp.Anonymous) -> str:
    window = group_window(t, node)
    suffix = GROUP_WINDOWS[called(node)][1]
    if suffix == "_PROCTIME":
        raise t.refuse(node, f"{node.this} is not known: use current_timestamp()")
    return t.as_changed(node, window.bound(window.sql(), suffix) if suffix else window.sql())

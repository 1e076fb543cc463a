"""Flink's own answers (`tests/flink_answers`) beside ours: the same value, or a refusal, never another value."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dynamic_kafka.errors import SqlError
from dynamic_kafka.sql import TableEnvironment
from tests.flink_answers.cases import EXPRESSIONS, QUERIES, ROWS, ZONES
from tests.flink_answers.record import ANSWERS

pytestmark = pytest.mark.spark

_TOGETHER = 16
FLINKS_MISTAKES = {
    **dict.fromkeys(("a[4]", "a[9]", "a[n]", "m['a']", "m['nothing']"), "-1 for an element that is not there"),
    **dict.fromkeys(
        ("EXTRACT(HOUR FROM TO_TIMESTAMP_LTZ(ms, 3))", "HOUR(TO_TIMESTAMP_LTZ(ms, 3))"), "less than 0 before 1970"
    ),
}
"""Values of Flink that are wrong, and that ours are not compared with."""
SAME_AT_LEAST = {"numbers": 237, "texts": 209, "times": 151, "arrays": 51, "json": 34, "queries": 66}
"""How many have Flink's value; the others are refused, or fail. More is better."""
GROUPS = [(zone, group) for zone in ZONES for group in EXPRESSIONS if zone == ZONES[0] or group == "times"]


@cache
def answers() -> Any:
    """What Flink answered."""
    return json.loads(ANSWERS.read_text())


@pytest.fixture
def batch(env: TableEnvironment) -> Iterator[TableEnvironment]:
    """An environment in batch mode."""
    env.get_config().set("execution.runtime-mode", "batch")
    yield env
    env.get_config().reset()


def rows(env: TableEnvironment, sql: str) -> list[list[Any]]:
    """The rows of a query."""
    return [list(row) for row in env.sql_query(sql).collect()]


def columns(env: TableEnvironment, listed: list[str], source: str) -> dict[str, Any]:
    """The values of each expression, or its error. Several are calculated together; if that fails, each half is."""
    if not listed:
        return {}
    try:
        selected = ", ".join(f"{expression} AS c{i}" for i, expression in enumerate(listed))
        found = sorted(rows(env, f"SELECT id, {selected} FROM {source}"), key=lambda row: int(row[0]))
    except (SqlError, PySparkException) as error:
        if len(listed) == 1:
            return {listed[0]: error}
        half = len(listed) // 2
        return columns(env, listed[:half], source) | columns(env, listed[half:], source)
    return {expression: [row[i] for row in found] for i, expression in enumerate(listed, 1)}


def same(flink: Any, ours: Any, precision: float = 1e-9) -> bool:
    """Whether a value of Flink, as text, is one of ours."""
    match ours:
        case None:
            return flink is None
        case _ if flink is None:
            return False
        case bool():
            return bool(flink == str(ours).lower())
        case float():
            value = float(flink.replace("Infinity", "inf"))
            return math.isclose(value, ours, rel_tol=precision) or (math.isnan(value) and math.isnan(ours))
        case Decimal():
            return bool(flink == format(ours, "f"))
        case int() | str():
            return bool(flink == str(ours))
        case bytes() | bytearray():
            return bool(flink == ours.hex())
        case dt.datetime():
            if flink.endswith("Z"):
                return dt.datetime.fromisoformat(flink) == ours.astimezone(dt.UTC)
            return dt.datetime.fromisoformat(flink) == ours
        case dt.date():
            return bool(flink == ours.isoformat())
        case dict():
            pairs = {json.dumps(key): value for key, value in flink}
            return len(pairs) == len(ours) and all(
                same(pairs.get(json.dumps(str(key))), value) for key, value in ours.items()
            )
        case list() | tuple():
            return len(flink) == len(ours) and all(map(same, flink, ours))
        case _:
            raise AssertionError(type(ours))


def same_rows(flink: list[list[Any]], ours: list[list[Any]], *, ordered: bool) -> bool:
    """Whether the rows are the same, in any order unless there is an ORDER BY."""
    if len(flink) != len(ours):
        return False
    if ordered:
        return all(map(same, flink, ours))
    left = list(flink)
    for row in ours:
        found = next((i for i, other in enumerate(left) if same(other, row)), None)
        if found is None:
            return False
        del left[found]
    return True


@pytest.mark.slow
@pytest.mark.parametrize(("zone", "group"), GROUPS)
def test_expressions(batch: TableEnvironment, zone: str, group: str) -> None:
    """Several hundred of them, each over a few rows."""
    batch.get_config().set("table.local-time-zone", zone)
    known = answers()[zone]["expressions"][group]
    asked = [e for e in EXPRESSIONS[group] if "error" not in known[e] and e not in FLINKS_MISTAKES]
    found: dict[str, Any] = {}
    for first in range(0, len(asked), _TOGETHER):
        found |= columns(batch, asked[first : first + _TOGETHER], ROWS[group])
    different, outcomes = [], Counter[str]()
    for expression in asked:
        flink = known[expression]
        ours = found[expression]
        if isinstance(ours, SqlError):
            outcomes["refused"] += 1
            print("REFUSED", expression, "|", ours.problem)
        elif isinstance(ours, Exception):
            outcomes["fails"] += 1
            print("FAILS  ", expression, "|", str(ours).splitlines()[0][:150])
        elif all(
            same(a, b, 1e-6 if flink["type"].startswith("FLOAT") else 1e-9)
            for a, b in zip(flink["values"], ours, strict=True)
        ):
            outcomes["same"] += 1
        else:
            different.append((expression, flink["type"], flink["values"], ours))
    print(zone, group, dict(outcomes))
    assert different == [], "\n".join(map(str, different))
    assert outcomes["same"] >= SAME_AT_LEAST[group]


def test_queries(batch: TableEnvironment, spark: SparkSession) -> None:
    """Aggregations, joins, windows, orders, set operations."""
    different, outcomes = [], Counter[str]()
    for sql, text in QUERIES.items():
        flink = answers()[ZONES[0]]["queries"][sql]
        if "error" in flink:
            print("FLINK  ", sql[:300], "|", flink["error"][:100])
            continue
        try:
            ours = rows(batch, text)
        except SqlError as error:
            outcomes["refused"] += 1
            print("REFUSED", sql, "|", error.problem)
            continue
        except PySparkException as error:
            outcomes["fails"] += 1
            print("FAILS  ", sql, "|", str(error)[:300])
            continue
        if same_rows(flink["rows"], ours, ordered="ORDER BY" in sql.rpartition(")")[2]):
            outcomes["same"] += 1
        else:
            different.append((sql, flink["rows"], ours))
    print(dict(outcomes))
    assert different == [], "\n".join(map(str, different))
    assert outcomes["same"] >= SAME_AT_LEAST["queries"]

"""Temporal joins as Spark's SQL, without Spark: types come from two tables."""

from __future__ import annotations

import re

import pytest
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dynamic_kafka.errors import ConfigurationError, SqlError
from dynamic_kafka.sql.dialect.query import parse_query
from dynamic_kafka.sql.dialect.translate import translate
from dynamic_kafka.sql.dialect.writer import Versioned
from dynamic_kafka.sql.queries.text import versioned_tables

TYPES: dict[str, dict[str, DataType]] = {
    "o": {"id": LongType(), "k": StringType(), "n": IntegerType(), "ts": TimestampType(), "pt": TimestampType()},
    "r": {"k": StringType(), "v": LongType(), "region": StringType(), "at": TimestampType()},
}


def ask(sql: str) -> DataType | None:
    """The type of a column, or of the row of a table."""
    row = re.match(r"SELECT struct\(`(\w+)`\.\*\) FROM", sql)
    if row:
        return StructType([StructField(name, type_) for name, type_ in TYPES["o"].items()])
    if sql == "SELECT `at` FROM `rates__versions`":
        return TYPES["r"]["at"]
    column = re.match(r"SELECT (\w)\.(\w+) FROM", sql)
    return TYPES[column[1]].get(column[2]) if column else None


class Tables:
    """`rates` has versions, Spark has `names`, and `orders` has a processing time."""

    def versioned(self, name: str, *, streaming: bool) -> Versioned:
        """Return those of `rates`."""
        assert not streaming
        if name != "rates":
            raise ConfigurationError(f"{name} has no versions")
        return Versioned("rates__versions", ("k", "v", "region", "at"), ("k",), "at", dated=True)

    def check_lookup(self, name: str) -> None:
        """Raise for `rates`."""
        if name == "rates":
            raise ConfigurationError("looks rows up")

    def processing_times(self, name: str) -> list[str]:
        """`pt` of `orders`."""
        return ["pt"] if name == "orders" else []


def spark(sql: str) -> str:
    """The query for Spark."""
    return translate(parse_query(sql), ask, zone="UTC", views={}, versions=Tables())


def test_times_without_a_zone_do_not_depend_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two wall times are compared as they are. A wall time and an instant are not compared."""
    monkeypatch.setitem(TYPES["o"], "ts", TimestampNTZType())
    with pytest.raises(SqlError, match="different types: CAST this one"):
        spark(JOIN.format("", "o.k = r.k"))
    monkeypatch.setitem(TYPES["r"], "at", TimestampNTZType())
    found = spark(JOIN.format("", "o.k = r.k"))
    for time in ("o.ts", "`at`"):
        assert f"unix_millis(timestamp_micros((({time}) - TIMESTAMP_NTZ '1970-01-01 00:00:00') DIV " in found
    assert "AS TIMESTAMP)" not in found


JOIN = "SELECT o.id, r.v FROM orders AS o {} JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON {}"


def test_rows_and_versions_are_put_into_one_order() -> None:
    """For each key: the last version before a row is its version. Those of the same time count in the order of arrival."""
    found = spark(JOIN.format("LEFT", "o.k = r.k"))
    assert "PARTITION BY __key0 ORDER BY __at, __side, __arrival" in found
    of_each = r"CASE WHEN spark_partition_id\(\) >= 0 THEN coalesce\(.*raise_error\(.*\) IS NOT NULL END"
    assert re.search(rf"FROM orders AS o WHERE {of_each} UNION ALL SELECT `k` AS __key0", found)
    assert re.search(rf"`k` IS NOT NULL AND {of_each}\)\) WHERE __left IS NOT NULL", found)
    assert "CASE WHEN NOT __version.gone THEN __version.row END" in found
    assert "__right IS NOT NULL" not in found
    assert found.endswith("__temporal0.__right.`at` AS `at`) AS `r`")
    assert "WHERE __right IS NOT NULL" in spark(JOIN.format("", "o.k = r.k"))


def test_other_conditions_are_asked_of_the_version_that_is_found() -> None:
    """A row whose version does not satisfy them has none, as in Flink."""
    found = spark(JOIN.format("LEFT", "r.k = o.k AND r.region = 'eu' AND o.n > 1"))
    assert "CASE WHEN (r.region = 'eu') AND (o.n > 1) THEN __right END" in found


def test_all_columns_are_those_of_the_tables() -> None:
    """And not those of the row that they are parts of."""
    found = spark(JOIN.format("", "o.k = r.k").replace("o.id, r.v", "*"))
    assert found.startswith("SELECT `o`.*, `r`.* FROM (SELECT")


@pytest.mark.parametrize(
    "left",
    [
        "orders AS o JOIN names FOR SYSTEM_TIME AS OF o.pt",
        "orders AS o JOIN names FOR SYSTEM_TIME AS OF PROCTIME()",
        "(SELECT *, PROCTIME() AS p FROM t) AS o JOIN names FOR SYSTEM_TIME AS OF o.p",
        "(SELECT k, o.pt AS p FROM orders AS o) AS o JOIN names FOR SYSTEM_TIME AS OF o.p",
        "(SELECT o.* FROM orders AS o) AS o JOIN names FOR SYSTEM_TIME AS OF pt",
    ],
)
def test_a_lookup_is_a_join(left: str) -> None:
    """With the table as it is at the moment."""
    found = spark(f"SELECT n.name FROM {left} AS n ON o.k = n.k")
    assert found.endswith("AS o JOIN names AS n ON o.k = n.k")


@pytest.mark.parametrize(
    ("sql", "place", "problem"),
    [
        (JOIN.format("RIGHT", "o.k = r.k"), "rates", "a JOIN or a LEFT JOIN"),
        (JOIN.format("", "o.n = r.v"), "o.n = r.v", "the PRIMARY KEY of the table alone"),
        (JOIN.format("", "o.k = r.k AND o.k = r.region"), "o.k = r.region", "Write the comparison in WHERE"),
        (JOIN.format("", "o.n = r.k"), "o.n = r.k", "different types"),
        (JOIN.format("", "o.n > 1"), "rates", "has to contain the PRIMARY KEY of the table: k"),
        (JOIN.format("", "o.k = r.k").replace("o.ts", "o.pt"), "rates", "looks rows up"),
        (JOIN.format("", "o.k = r.k").replace("rates", "names"), "names", "no versions"),
        (JOIN.format("", "o.k = r.k").replace("orders AS o", "(SELECT * FROM t)"), "* FROM t", "needs a name"),
        (JOIN.format("", "o.k = r.k").replace("rates FOR", "rates /*+ OPTIONS('a' = 'b') */ FOR"), "rates", "OPTIONS"),
    ],
)
def test_what_cannot_be_calculated_is_refused(sql: str, place: str, problem: str) -> None:
    """At its place."""
    query = parse_query(sql)
    with pytest.raises(SqlError, match=problem) as raised:
        translate(query, ask, zone="UTC", views=dict.fromkeys(query.options, "v"), versions=Tables())
    assert raised.value.offset == sql.index(place)


def test_a_table_that_is_only_versions_is_not_read_as_changes() -> None:
    """One that is also read otherwise is."""
    assert versioned_tables(JOIN.format("", "o.k = r.k")) == {"rates"}
    assert versioned_tables(JOIN.format("", "o.k = r.k") + " UNION ALL SELECT k, v FROM rates") == frozenset()

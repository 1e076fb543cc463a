"""The format `csv` in Spark, held against recorded answers of Flink's.

What is read of hundreds of other lines is in `tests/unit/formats/test_formats_against_flink.py`.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from dynamic_kafka.formats import format_named
from tests.spark.texts import (
    ALL,
    ALL_NULL,
    ALL_VALUES,
    NO_LINE,
    NO_ROW,
    OTHER_SESSIONS,
    TEXTS,
    Message,
    Read,
    Written,
    checked,
    decode,
    decoded,
    encode,
    examples,
    misfit,
    possible,
    read,
    session,
    written,
)

pytestmark = pytest.mark.spark

CSV = format_named("csv")

THREE = "s STRING, i INT, b BOOLEAN"
NOT_THREE = "! It does not have 3 fields, one for each column of the table"

READ_CSV: list[Read] = [
    (
        THREE,
        {},
        {
            None: NO_ROW,
            "a,1,true": "{a, 1, true}",
            '"a""b\0c",1,x': '{a"b\0c, 1, false}',
            "a,1": NOT_THREE,
            "": NO_LINE,
            "a,x,true": misfit("i"),
        },
    ),
    (
        "n TINYINT, m SMALLINT, l BIGINT, f FLOAT, d DOUBLE, e DECIMAL(10,2)",
        {},
        {"1,2,3,4.5,5.5,6.555": "{1, 2, 3, 4.5, 5.5, 6.56}", "128,2,3,x,5,y": misfit("n, f, e")},
    ),
    (
        "d DATE, t TIMESTAMP_NTZ, l TIMESTAMP, u TIME(3)",
        {},
        {
            "2020-1-2,2020-01-02 03:04:05.123,2020-01-02 03:04:05Z,03:04:05.12": (
                "{2020-01-02, 2020-01-02 03:04:05.123, 2020-01-02 03:04:05, 03:04:05.12}"
            ),
            "x,2020-01-02T03:04:05,2020-01-02 03:04:05,3:4:5": misfit("d, t, l, u"),
        },
    ),
    (
        "a ARRAY<INT>, r STRUCT<x: INT, y: STRING>, x BINARY",
        {},
        {"1;2; 3,1;a,YWJj": "{[1, 2, 3], {1, a}, abc}", "1;;3,1,###": misfit("a, r, x")},
    ),
    (
        "a ARRAY<STRING>, r STRUCT<x: INT, y: STRING>",
        {"null-literal": "n/a", "array-element-delimiter": "|", "ignore-parse-errors": "true"},
        {"a||n/a,1|n/a": "{[a, , null], {1, null}}", "a; b ,q": "{[a; b ], {null, null}}"},
    ),
]
READ_CSV = possible(READ_CSV)


@pytest.fixture(scope="module", name="all_read")
def _all_read(spark: SparkSession) -> list[dict[Message, str | None]]:
    """What all cases are read as."""
    return read(spark, CSV, READ_CSV)


@pytest.mark.parametrize("n", range(len(READ_CSV)), ids=[f"{ddl} {options}" for ddl, options, _ in READ_CSV])
def test_csv_is_read_as_flink_does(all_read: list[dict[Message, str | None]], n: int) -> None:
    """Columns of all types, and what is said of lines that are no rows."""
    assert all_read[n] == READ_CSV[n][2]


def test_where_csv_is_read_otherwise_than_by_flink(spark: SparkSession) -> None:
    """The table in docs/guides/from-flink.md."""
    cases: dict[Message, str | None] = {
        "a,1,2020-01-02\nb,2,2020-01-02": NO_LINE,  # Flink: the first line
        "a,12345,2020-01-02": misfit("e"),  # Flink: null
        "a, 1,2020-01-02": "{a, 1.0, 2020-01-02}",  # Flink: an error
        "a,1,2020-02-30": misfit("d"),  # Flink: the first of March
    }
    assert dict(zip(cases, decoded(spark, CSV, "s STRING, e DECIMAL(4,1), d DATE", list(cases)), strict=True)) == cases


def test_a_line_of_very_many_fields(spark: SparkSession) -> None:
    """It is an error like any other."""
    assert decoded(spark, CSV, THREE, ["," * 30_000, "a,1,true", '"' + "," * 30_000]) == [
        NOT_THREE,
        "{a, 1, true}",
        NO_LINE,
    ]
    text = "x" * 30_000
    assert decoded(spark, CSV, THREE, [f"{text},1,true"]) == [f"{{{text}, 1, true}}"]


WRITTEN_CSV: list[Written] = [
    (
        ALL,
        {},
        {
            ALL_VALUES: (
                b'a,1,true,1.5,0.1,12.5000,YWJj,2020-01-02,"2020-01-02 03:04:05.12","2020-01-02 03:04:05Z",03:04:05'
            ),
            ALL_NULL: b",,,,,,,,,,",
            "NULL": None,
        },
    ),
    (ALL, {"null-literal": "n/a"}, {ALL_NULL: b",".join([b"n/a"] * 11)}),
    (
        "s STRING, z INT",
        {},
        {
            "'s','a b','z',1": b'"a b",1',
            "'s','a\"b','z',NULL": b'"a""b",',
            "'s','','z',1": b",1",
            f"'s','{'a' * 24}','z',1": b"a" * 24 + b",1",
            f"'s','{'a' * 25}','z',1": b'"' + b"a" * 25 + b'",1',
            f"'s','{'😀' * 12}','z',1": "😀".encode() * 12 + b",1",
            f"'s','{'😀' * 12}a','z',1": b'"' + "😀".encode() * 12 + b'a",1',
            r"'s','\\','z',1": b'"\\",1',
            r"'s','\u0000','z',1": b'"\0",1',
            "'s','#','z',1": b'"#",1',
            "'s','a-b;é','z',1": "a-b;é,1".encode(),
        },
    ),
    (
        "s STRING, z INT",
        {"escape-character": "\\"},
        {r"""'s','a\\b"c','z',1""": b'"a\\\\b""c",1', r"'s','\\','z',1": b'"\\\\",1', "'s','a\"b','z',1": b'"a""b",1'},
    ),
    (
        "s STRING, z INT",
        {"quote-character": "'", "field-delimiter": "|"},
        {"'s','it\\'s','z',1": b"'it''s'|1", "'s','a','z',1": b"'a'|1", "'s','}','z',1": b"}|1"},
    ),
    (
        "s STRING, z INT",
        {"disable-quote-character": "true", "escape-character": "\\"},
        {r"'s','a,\\b','z',1": b"a,\\b,1"},
    ),
    ("s STRING, z INT", {"field-delimiter": r"\t", "null-literal": "n/a"}, {"'s','a\tb','z',NULL": b'"a\tb"\tn/a'}),
    ("e DECIMAL(20,9)", {}, {"'e',100": b"100.000000000", "'e',0.0000001": b"0.000000100"}),
    (
        "e DECIMAL(20,9)",
        {"write-bigdecimal-in-scientific-notation": "true"},
        {"'e',100": b"1E+2", "'e',12.5": b"12.5", "'e',0": b"0", "'e',0.0000001": b"1E-7"},
    ),
    (
        "a ARRAY<STRING>, r STRUCT<x: INT, y: STRING, e: DECIMAL(5,2)>, d ARRAY<DOUBLE>",
        {},
        {
            "'a',array('a',NULL,'b'),'r',named_struct('x',1,'y','a b','e',100),'d',array(1e10D,double('NaN'))": (
                b'a;;b,"1;a b;100.00",1.0E10;NaN'
            ),
            "'a',array(),'r',NULL,'d',NULL": b",,",
            "'a',array('aaaaaaaaaaaaaaaa','bbbbbbbbbbbbbbbbbbb'),'r',NULL,'d',NULL": (
                b'"aaaaaaaaaaaaaaaa;bbbbbbbbbbbbbbbbbbb",,'
            ),
        },
    ),
    (
        "a ARRAY<STRING>, x BINARY",
        {"null-literal": "n/a", "array-element-delimiter": "|"},
        {
            "'a',array('a',NULL),'x',X''": b"a|n/a,",
            f"'a',NULL,'x',X'{'616263' * 30}'": b'n/a,"' + b"YWJj" * 30 + b'"',
        },
    ),
]
WRITTEN_CSV = possible(WRITTEN_CSV)


@pytest.fixture(scope="module", name="all_written")
def _all_written(spark: SparkSession) -> list[dict[str, bytes | None]]:
    """What all cases are written as."""
    return written(spark, CSV, WRITTEN_CSV)


@pytest.mark.parametrize("n", range(len(WRITTEN_CSV)), ids=[f"{ddl} {options}" for ddl, options, _ in WRITTEN_CSV])
def test_csv_is_written_byte_by_byte_as_by_flink(all_written: list[dict[str, bytes | None]], n: int) -> None:
    """All types, nulls, and quotes where Jackson puts them."""
    assert all_written[n] == WRITTEN_CSV[n][2]


@pytest.mark.slow
@pytest.mark.parametrize("conf", OTHER_SESSIONS)
def test_csv_is_the_same_in_every_session(spark: SparkSession, conf: dict[str, str]) -> None:
    """Time zone, ANSI mode, and Spark's settings do not count."""
    shown = [case for case in READ_CSV if "TIMESTAMP" not in case[0]]  # those are shown in the session's time zone
    with session(spark, **conf):
        assert read(spark, CSV, shown) == [expected for *_, expected in shown]
        assert written(spark, CSV, WRITTEN_CSV) == [expected for *_, expected in WRITTEN_CSV]


DIALECTS: list[dict[str, str]] = [
    {},
    {"field-delimiter": ";", "array-element-delimiter": ","},
    {"field-delimiter": r"\t", "quote-character": "'"},
    {"escape-character": "\\"},
]


@pytest.mark.slow
def test_what_is_written_as_csv_is_read(spark: SparkSession) -> None:
    """Any text; null by a literal that no other value has."""
    null = "\N{EMPTY SET}"
    texts = TEXTS.filter(lambda text: text != null)
    rows = examples(
        st.tuples(texts, st.none() | st.integers(-(2**31), 2**31 - 1), texts, st.lists(st.integers(0, 9))), each=3
    )
    checks = [checked(CSV, "s STRING, i INT, t STRING, a ARRAY<INT>", {**d, "null-literal": null}) for d in DIALECTS]
    df = spark.createDataFrame([(row,) for row in rows], StructType([StructField("row", checks[0][0])])).coalesce(1)
    back = [decode(CSV, encode(CSV, F.col("row"), *check), *check) for check in checks]
    for row, *found in df.select("row", *back).collect():
        assert [tuple(one) for one in found] == [(*row, None)] * len(DIALECTS)

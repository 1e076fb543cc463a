"""The format `json` in Spark, held against recorded answers of Flink's.

What is read of hundreds of other messages is in `tests/unit/formats/test_formats_against_flink.py`.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal

import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from dynamic_kafka.formats import ERROR, format_named
from tests.spark.texts import (
    ALL,
    ALL_NULL,
    ALL_VALUES,
    NO_OBJECT,
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
    encoded,
    examples,
    frame,
    misfit,
    possible,
    read,
    session,
    written,
)

pytestmark = pytest.mark.spark

JSON = format_named("json")

READ_JSON: list[Read] = [
    (
        "a INT",
        {},
        {
            None: NO_ROW,
            "": NO_ROW,
            '{"a":1}': "{1}",
            '{"a":"x"}': misfit("a"),
            " null": NO_OBJECT,
            '{"a":1': NO_OBJECT,
        },
    ),
    (
        "b BOOLEAN, n TINYINT, m SMALLINT, l BIGINT, d DOUBLE, f FLOAT, e DECIMAL(10,2), s STRING, x BINARY, y DATE",
        {},
        {
            '{"b":true,"n":-128,"m":"7","l":1,"d":1.5,"f":" 2 ","e":1.235,"s":"ä\\u00e4\\t","x":"YWJj","y":"2020-01-02"}': (
                "{true, -128, 7, 1, 1.5, 2.0, 1.24, ää\t, abc, 2020-01-02}"
            ),
            '{"n":1,"m":40000,"l":1e19}': misfit("m, l"),
        },
    ),
    (  # values inside of other columns
        "s STRING, n STRUCT<s:STRING,d:DATE>, a ARRAY<STRUCT<d:DATE,x:BINARY>>, t ARRAY<TINYINT>, m MAP<STRING, TIMESTAMP>",
        {},
        {
            '{"s":"x","n":{"d":"31.12.2020"}}': misfit("n.d"),
            '{"n":{"s":"y","d":18262}}': misfit("n.d"),
            '{"n":{},"a":[{"d":"2020-01-01"},{"d":"no"}]}': misfit("a.d"),
            '{"a":[{"x":"###"}]}': misfit("a.x"),
            '{"a":[{"x":{}}]}': misfit("a.x"),
            '{"t":[1,200]}': misfit("t"),
            '{"t":[1,null],"m":{"k":null}}': "{null, null, null, [1, null], {k -> null}}",
            '{"m":{"k":1577934245000}}': misfit("m"),
            b'{"s":"a\xff"}': "! It is not UTF-8",
        },
    ),
    (
        "t TIMESTAMP_NTZ, l TIMESTAMP, u TIME(3)",
        {},
        {
            '{"t":"2020-01-02 03:04:05.123456789"}': "{2020-01-02 03:04:05.123456, null, null}",
            '{"l":"2020-01-02 03:04:05.12Z","u":"03:04:05.123"}': "{null, 2020-01-02 03:04:05.12, 03:04:05.123}",
            '{"l":1577934245000,"u":1}': misfit("l, u"),
        },
    ),
    (
        "i INTERVAL DAY TO SECOND, y INTERVAL YEAR TO MONTH",
        {},
        {
            '{"i":1500,"y":-14}': "{INTERVAL '0 00:00:01.5' DAY TO SECOND, INTERVAL '-1-2' YEAR TO MONTH}",
            '{"i":"1500","y":"14"}': "{INTERVAL '0 00:00:01.5' DAY TO SECOND, INTERVAL '1-2' YEAR TO MONTH}",
            '{"y":99999999999}': misfit("y"),
            '{"i":"x"}': misfit("i"),
        },
    ),
    (
        "a STRUCT<b: STRUCT<c: INT, d: ARRAY<STRUCT<e: INT>>>>, m MAP<STRING, STRUCT<f: INT>>",
        {"fail-on-missing-field": "true"},
        {
            '{"a":{"b":{"c":1,"d":[{"e":1}]}},"m":{"k":{"f":1}}}': "{{{1, [{1}]}}, {k -> {1}}}",
            '{"a":{"b":{"c":null,"d":null}},"m":{}}': "{{{null, null}}, {}}",
            '{"a":{"b":null},"m":null}': "{{null}, null}",
            '{"a":null,"m":{"k":null}}': "{null, {k -> null}}",
            '{"m":{}}': "! It lacks the field 'a'",
            '{"a":{},"m":{}}': "! It lacks the field 'a.b'",
            '{"a":{"b":{"c":1,"d":[{"e":1},{}]}},"m":{}}': "! It lacks the field 'a.b.d.e'",
            '{"a":null,"m":{"k":{"g":1}}}': "! It lacks the field 'm.f'",
            '{"a":1,"m":{}}': misfit("a"),
            "": NO_ROW,
        },
    ),
]
READ_JSON = possible(READ_JSON)


@pytest.fixture(scope="module", name="all_read")
def _all_read(spark: SparkSession) -> list[dict[Message, str | None]]:
    """What all cases are read as."""
    return read(spark, JSON, READ_JSON)


@pytest.mark.parametrize("n", range(len(READ_JSON)), ids=[ddl for ddl, _, _ in READ_JSON])
def test_json_is_read_as_flink_does(all_read: list[dict[Message, str | None]], n: int) -> None:
    """Columns of all types, and what is said of messages that are no rows."""
    assert all_read[n] == READ_JSON[n][2]


@pytest.mark.slow
@pytest.mark.parametrize("conf", OTHER_SESSIONS)
def test_json_is_read_in_the_same_way_in_every_session(spark: SparkSession, conf: dict[str, str]) -> None:
    """Time zone, ANSI mode, and Spark's settings for JSON do not count."""
    shown = [case for case in READ_JSON if "TIMESTAMP" not in case[0]]  # those are shown in the session's time zone
    with session(spark, **conf):
        assert read(spark, JSON, shown) == [expected for *_, expected in shown]
        instant = decode(JSON, F.col("value"), *checked(JSON, "l TIMESTAMP", {}))["l"]
        (row,) = frame(spark, ['{"l":"2020-11-01 05:30:00.000001Z"}']).select(F.unix_micros(instant)).collect()
        assert row[0] == 1604208600000001


def test_where_json_is_read_otherwise_than_by_flink(spark: SparkSession) -> None:
    """The table in docs/guides/from-flink.md."""
    cases: dict[Message, str | None] = {
        '[{"a":1}]': NO_OBJECT,  # Flink: a row for each element
        '{"a":1,"a":2}': "{2, null, null}",  # Flink: the first one, if nothing else is missing
        '{"d":12345}': misfit("d"),  # Flink: null
        '{"t":"2020-01-02T03:04:05"}': "{null, null, 2020-01-02 03:04:05}",  # Flink: with the other standard only
    }
    found = decoded(spark, JSON, "a INT, d DECIMAL(4,1), t TIMESTAMP_NTZ", list(cases))
    assert dict(zip(cases, found, strict=True)) == cases


def test_one_field_is_enough_to_find_a_broken_message(spark: SparkSession) -> None:
    """Although the others are not asked for."""
    schema, values = checked(JSON, "a INT, b STRING, c DATE", {})
    result = frame(spark, ['{"b":"x","c":"no"}', '{"b":"x"}']).select(
        decode(JSON, F.col("value"), schema, values).alias("d")
    )
    assert [r[0] is None for r in result.select(F.col("d")[ERROR]).collect()] == [False, True]
    assert [r[0] for r in result.where(F.col("d")[ERROR].isNull()).select("d.b").collect()] == ["x"]


# --- json: writing ---

MIXED = "m MAP<STRING,DECIMAL(4,2)>, i INT, a ARRAY<DECIMAL(4,2)>, r STRUCT<q: DECIMAL(4,2), z: INT>"
MIXED_VALUES = "'m',map('a\"',1.5,'b',NULL), 'i',NULL, 'a',array(1.10,NULL), 'r',named_struct('q',10,'z',NULL)"

WRITTEN_JSON: list[Written] = [
    (
        ALL,
        {},
        {
            ALL_VALUES: (
                b'{"s":"a","i":1,"b":true,"d":1.5,"f":0.1,"e":12.5,"x":"YWJj","dt":"2020-01-02",'
                b'"t":"2020-01-02 03:04:05.12","l":"2020-01-02 03:04:05Z","tm":"03:04:05"}'
            ),
            ALL_NULL: (
                b'{"s":null,"i":null,"b":null,"d":null,"f":null,"e":null,"x":null,"dt":null,"t":null,"l":null,"tm":null}'
            ),
            "NULL": None,
        },
    ),
    (
        ALL,
        {"encode.ignore-null-fields": "true"},
        {ALL_NULL: b"{}", ALL_NULL.replace("'i', NULL", "'i', 1"): b'{"i":1}'},
    ),
    (
        "t TIMESTAMP_NTZ, l TIMESTAMP",
        {"timestamp-format.standard": "ISO-8601"},
        {
            "'t',TIMESTAMP_NTZ'2020-01-02 03:04:05.1', 'l',TIMESTAMP'2020-01-02 03:04:05Z'": (
                b'{"t":"2020-01-02T03:04:05.1","l":"2020-01-02T03:04:05Z"}'
            )
        },
    ),
    (
        "t TIMESTAMP_NTZ, d DATE",
        {},
        {
            "'t',TIMESTAMP_NTZ'0001-01-01 00:00:00','d',DATE'0001-01-01'": b'{"t":"0001-01-01 00:00:00","d":"0001-01-01"}',
            "'t',TIMESTAMP_NTZ'-0001-01-01 00:00:00','d',DATE'-0001-01-01'": (
                b'{"t":"-0001-01-01 00:00:00","d":"-0001-01-01"}'
            ),
            "'t',TIMESTAMP_NTZ'+12020-01-01 00:00:00','d',DATE'+12020-01-01'": (
                b'{"t":"+12020-01-01 00:00:00","d":"+12020-01-01"}'
            ),
        },
    ),
    (
        "e DECIMAL(20,9)",
        {},
        {
            "'e',100": b'{"e":1E+2}',
            "'e',-1200": b'{"e":-1.2E+3}',
            "'e',0": b'{"e":0}',
            "'e',0.000000027": b'{"e":2.7E-8}',
            "'e',0.000001": b'{"e":0.000001}',
            "'e',99999999999": b'{"e":99999999999}',
        },
    ),
    (
        "e DECIMAL(20,9)",
        {"encode.decimal-as-plain-number": "true"},
        {"'e',100": b'{"e":100.000000000}', "'e',-0.000000027": b'{"e":-0.000000027}', "'e',NULL": b'{"e":null}'},
    ),
    (
        "d DOUBLE, f FLOAT",
        {},
        {
            "'d',1e10D,'f',1e10F": b'{"d":1.0E10,"f":1.0E10}',
            "'d',double('NaN'),'f',float('-Infinity')": b'{"d":"NaN","f":"-Infinity"}',
            "'d',-0.0D,'f',3.4e38F": b'{"d":-0.0,"f":3.4E38}',
        },
    ),
    (
        "s STRING",
        {},
        {
            r"""'s', '\u0000\u001f\u007f\u2028/é😀"\\<>&\'\t\n\u0080'""": (
                b'{"s":"\\u0000\\u001F\x7f\xe2\x80\xa8/\xc3\xa9\\uD83D\\uDE00\\"\\\\<>&\'\\t\\n\xc2\x80"}'
            )
        },
    ),
    (
        MIXED,
        {},
        {
            MIXED_VALUES: b'{"m":{"a\\"":1.5,"b":null},"i":null,"a":[1.1,null],"r":{"q":1E+1,"z":null}}',
            "'m',map(), 'i',1, 'a',array(), 'r',NULL": b'{"m":{},"i":1,"a":[],"r":null}',
        },
    ),
    (
        MIXED,
        {"encode.ignore-null-fields": "true"},
        {
            MIXED_VALUES: b'{"m":{"a\\"":1.5,"b":null},"a":[1.1,null],"r":{"q":1E+1}}',
            "'m',NULL, 'i',NULL, 'a',NULL, 'r',named_struct('q',NULL,'z',NULL)": b'{"r":{}}',
        },
    ),
    (
        "i INTERVAL DAY TO SECOND, y INTERVAL YEAR TO MONTH, a ARRAY<TIMESTAMP_NTZ>",
        {},
        {
            "'i',INTERVAL '1.5' SECOND,'y',INTERVAL '-1-2' YEAR TO MONTH,'a',array(TIMESTAMP_NTZ'2020-01-01 00:00:00')": (
                b'{"i":1500,"y":-14,"a":["2020-01-01 00:00:00"]}'
            )
        },
    ),
]
WRITTEN_JSON = possible(WRITTEN_JSON)


@pytest.fixture(scope="module", name="all_written")
def _all_written(spark: SparkSession) -> list[dict[str, bytes | None]]:
    """What all cases are written as."""
    return written(spark, JSON, WRITTEN_JSON)


@pytest.mark.parametrize("n", range(len(WRITTEN_JSON)), ids=[f"{ddl} {options}" for ddl, options, _ in WRITTEN_JSON])
def test_json_is_written_byte_by_byte_as_by_flink(all_written: list[dict[str, bytes | None]], n: int) -> None:
    """All types, nulls, numbers with exponents, characters that are escaped."""
    assert all_written[n] == WRITTEN_JSON[n][2]


@pytest.mark.slow
@pytest.mark.parametrize("conf", OTHER_SESSIONS)
def test_json_is_written_in_the_same_way_in_every_session(spark: SparkSession, conf: dict[str, str]) -> None:
    """Time zone, ANSI mode, and Spark's settings for JSON do not count; an hour that is there twice is told apart."""
    hours: Written = (  # New York turns its clocks back
        "l TIMESTAMP",
        {},
        {
            "'l', timestamp_seconds(1604208600)": b'{"l":"2020-11-01 05:30:00Z"}',
            "'l', timestamp_seconds(1604212200)": b'{"l":"2020-11-01 06:30:00Z"}',
        },
    )
    cases = [*WRITTEN_JSON, hours]
    with session(spark, **conf):
        assert written(spark, JSON, cases) == [expected for *_, expected in cases]


_micros = st.integers(-62135596800_000000, 253402300799_999999)
_instants = _micros.map(lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us))
_amounts = st.decimals(-(10**10), 10**10, places=8)
_rows = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**63), 2**63 - 1),
        "n": st.integers(-128, 127),
        "d": st.floats(),
        "e": _amounts,
        "s": TEXTS,
        "x": st.binary(max_size=20),
        "b": st.booleans(),
        "y": st.dates(date(1, 1, 1)),
        "t": _instants.map(lambda t: t.replace(tzinfo=None)),
        "a": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=3),
        "m": st.dictionaries(TEXTS, st.none() | _amounts, max_size=3),
        "r": st.none() | st.fixed_dictionaries({"q": _amounts, "z": st.none() | TEXTS}),
    }
)
ROW = (
    "i BIGINT, n TINYINT, d DOUBLE, e DECIMAL(20,8), s STRING, x BINARY, b BOOLEAN, y DATE, t TIMESTAMP_NTZ, a ARRAY<INT>, "
    "m MAP<STRING,DECIMAL(20,8)>, r STRUCT<q: DECIMAL(20,8), z: STRING>"
)


WRITING: list[dict[str, str]] = [
    {},
    {"timestamp-format.standard": "ISO-8601", "encode.ignore-null-fields": "true"},
    {"encode.decimal-as-plain-number": "true"},
]


@pytest.mark.slow
def test_what_is_written_as_json_is_read(spark: SparkSession) -> None:
    """Any row, with any of its values null."""
    nulls = _rows.flatmap(lambda row: st.sets(st.sampled_from(list(row))).map(lambda n: row | dict.fromkeys(n)))
    checks = [checked(JSON, ROW, options) for options in WRITING]
    columns = StructType([StructField("row", checks[0][0])])
    df = spark.createDataFrame([(row,) for row in examples(nulls, each=2)], columns).coalesce(1)
    back = [decode(JSON, encode(JSON, F.col("row"), *check), *check) for check in checks]
    for row, *found in df.select("row", *back).collect():
        for one in found:
            again = one.asDict(recursive=True)
            assert again.pop(ERROR) is None
            assert repr(again) == repr(row.asDict(recursive=True))


def test_decimals_have_the_text_that_java_gives_them(spark: SparkSession) -> None:
    """`BigDecimal.stripTrailingZeros().toString()`, which is what Python does by the same rule, and `toPlainString()`."""
    numbers = examples(st.decimals(-(10**19), 10**19, places=18), each=5)
    numbers += [Decimal(1).scaleb(e) for e in range(-18, 19)]
    numbers += [Decimal("-1234567890123456789.123456789012345678")]  # more digits than Spark's abs keeps
    n, all_digits = F.struct("n"), Context(prec=50)
    df = spark.createDataFrame([(n,) for n in numbers], "n DECIMAL(38,18)").coalesce(1)
    schema, plain = checked(JSON, "n DECIMAL(38,18)", {"encode.decimal-as-plain-number": "true"})
    found = df.select("n", encode(JSON, n, schema, {}).alias("short"), encode(JSON, n, schema, plain).alias("plain"))
    for row in found.collect():
        assert bytes(row["short"]).decode() == f'{{"n":{row["n"].normalize(all_digits) if row["n"] else 0}}}'
        assert bytes(row["plain"]).decode() == f'{{"n":{row["n"]:f}}}'
    assert encoded(spark, JSON, "n DECIMAL(38,38)", ["'n',CAST('-3E-38' AS DECIMAL(38,38))"]) == [b'{"n":-3E-38}']

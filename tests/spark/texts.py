"""What the tests of the formats `raw`, `json` and `csv` share.

What they expect was recorded from Flink 2.3's own classes, given the same messages, rows and options. Where ours is
different on purpose, a test says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from dynamic_kafka.formats import ERROR, Format, arrow
from dynamic_kafka.formats.expressions import decoded_struct, nullable
from dynamic_kafka.options import parse_options
from dynamic_kafka.spark_versions import TimeType
from tests.versions import SINCE, SPARK

T = TypeVar("T")
Message = str | bytes | None
Options = Mapping[str, str]
Read = tuple[str, Options, Mapping[Message, str | None]]
"""Columns, options, and for each message its row as text, or its error behind `! `, or None if there is none."""
Written = tuple[str, Options, Mapping[str, bytes | None]]
"""Columns, options, and for each row, given as what stands in `named_struct`, its message."""

NO_ROW = None
NO_OBJECT = "! It is not a JSON object"
NO_LINE = "! It is empty, is not one line of UTF-8, or has quotes that do not match"


def misfit(columns: str) -> str:
    """What is said of fields that do not fit their columns."""
    return f"! It does not fit the columns: {columns}"


def examples(strategy: st.SearchStrategy[T], *, each: int = 1) -> list[T]:
    """As many examples of a strategy as Hypothesis's profile says, for one job; `each` times as many if they are small."""
    found: list[T] = []

    @settings(database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.lists(strategy, min_size=each, max_size=each))
    def collect(some: list[T]) -> None:
        found.extend(some)

    collect()
    return found


@st.composite
def damaged(draw: st.DrawFn, message: bytes) -> bytes:
    """A message with some bytes overwritten, cut out or put in, also far more than a few."""
    result = bytearray(message)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(result)))
        junk = st.sampled_from([b'"', b",", b"\n", b"\\", b"1e999", b"-", b"null", b"{", b"]"])
        result[at : at + draw(st.sampled_from([0, 1, 2, 3, 50, 10_000]))] = draw(st.binary(max_size=4) | junk)
    return bytes(result)


def possible(cases: list[T]) -> list[T]:
    """The cases without a column of TIME, if this version of Spark lacks it."""
    return [case for case in cases if SINCE["TIME"] <= SPARK or "TIME(" not in str(case)]


def struct(ddl: str) -> StructType:
    """Columns in Spark's DDL."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def checked(found: Format, ddl: str, options: Options) -> tuple[StructType, dict[str, Any]]:
    """The schema and the parsed options, as a table would hand them over."""
    schema = struct(ddl)
    values = parse_options({f"{found.name}.{k}": v for k, v in options.items()}, found.options).values
    found.check(schema, values)
    return schema, dict(values)


def frame(spark: SparkSession, messages: Iterable[Message], **more: Iterable[int]) -> DataFrame:
    """The messages, numbered; made of Arrow, so that Spark needs no job for expressions of its own."""
    values = [m.encode() if isinstance(m, str) else m for m in messages]
    numbers = {name: pa.array(column, pa.int32()) for name, column in {"i": range(len(values)), **more}.items()}
    return spark.createDataFrame(pa.table({**numbers, "value": pa.array(values, pa.binary())}))


def decode(form: Format, column: Column, schema: StructType, options: Mapping[str, Any]) -> Column:
    """What a format's decoder makes of the messages of a column: rows, with the reason where there is none."""
    return arrow.decoded(form.decoder(schema, options), decoded_struct(form, nullable(schema)), column)


def encode(form: Format, column: Column, schema: StructType, options: Mapping[str, Any]) -> Column:
    """The messages that a format makes of the rows of a column; with a name, because Spark cannot make one of so much."""
    return arrow.encoded(form.rows(column, schema, options)).alias("messages")


def read(spark: SparkSession, found: Format, cases: Sequence[Read]) -> list[dict[Message, str | None]]:
    """What the messages of all cases are decoded to, as in `Read`: one query for all of them."""
    messages = [message for *_, expected in cases for message in expected]
    numbers = [n for n, (*_, expected) in enumerate(cases) for _ in expected]
    decoders, texts = [], []
    for n, (ddl, options, _) in enumerate(cases):
        schema, values = checked(found, ddl, options)
        row = F.col(f"d{n}")
        decoders.append(F.when(F.col("n") == n, decode(found, F.col("value"), schema, values)).alias(f"d{n}"))
        columns = F.struct(*(row[f.name].alias(f.name) for f in schema.fields)).cast("string")
        texts.append(F.when(row.isNotNull(), F.coalesce(F.concat(F.lit("! "), row[ERROR]), columns)))
    result = frame(spark, messages, n=numbers).select("i", *decoders).select("i", F.coalesce(*texts, F.lit(None)))
    answers = iter([text for _, text in sorted(result.collect())])
    return [dict(zip(expected, answers, strict=False)) for *_, expected in cases]


def decoded(
    spark: SparkSession, found: Format, ddl: str, messages: list[Message], options: Options | None = None
) -> list[str | None]:
    """Each message's row as text, or its error behind `! `, or None if there is none."""
    (answers,) = read(spark, found, [(ddl, options or {}, dict.fromkeys(messages))])
    return list(answers.values())


def struct_of(schema: StructType, row: str) -> Column:
    """What stands in `named_struct`, with the types of a schema; but a TIME as it is, since Spark has no cast to it."""
    value = F.expr(f"named_struct({row})")
    fields = ((value[f.name], f) for f in schema.fields)
    return F.struct(*((c if isinstance(f.dataType, TimeType) else c.cast(f.dataType)).alias(f.name) for c, f in fields))


def written(spark: SparkSession, found: Format, cases: Sequence[Written]) -> list[dict[str, bytes | None]]:
    """The messages that the rows of all cases are encoded to, as in `Written`: one query for all of them."""
    numbers = [(n, i) for n, (*_, expected) in enumerate(cases) for i in range(len(expected))]
    rows, messages = [], []
    for n, (ddl, options, expected) in enumerate(cases):
        schema, values = checked(found, ddl, options)
        given = F.array(*(F.lit(None) if row == "NULL" else struct_of(schema, row) for row in expected))
        rows.append(F.when(F.col("n") == n, given[F.col("at")]).alias(f"r{n}"))
        messages.append(F.when(F.col("n") == n, encode(found, F.col(f"r{n}"), schema, values)))
    columns = {"n": [n for n, _ in numbers], "at": [i for _, i in numbers]}
    with session(spark, timeType_enabled="true"):  # for columns of this type, which our formats do not need
        result = frame(spark, [None] * len(numbers), **columns).select("i", "n", *rows)
        encoded_rows = sorted(result.select("i", F.coalesce(*messages, F.lit(None))).collect())
    answers = iter([None if message is None else bytes(message) for _, message in encoded_rows])
    return [dict(zip(expected, answers, strict=False)) for *_, expected in cases]


def encoded(
    spark: SparkSession, found: Format, ddl: str, rows: list[str], options: Options | None = None
) -> list[bytes | None]:
    """Each row, given as what stands in `named_struct`, as a message."""
    (answers,) = written(spark, found, [(ddl, options or {}, dict.fromkeys(rows))])
    return list(answers.values())


@contextmanager
def session(spark: SparkSession, **conf: str) -> Iterator[None]:
    """Another configuration for a while; `_` for `.` in the names behind `spark.sql.`."""
    names = {f"spark.sql.{name.replace('_', '.')}": value for name, value in conf.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


OTHER_SESSIONS: list[dict[str, str]] = [
    {"session_timeZone": "America/New_York", "ansi_enabled": "false", "json_enablePartialResults": "false"},
    {  # this one compiles its expressions, too
        "codegen_wholeStage": "true",
        "codegen_factoryMode": "FALLBACK",
        "optimizer_excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
        "session_timeZone": "Asia/Kolkata",
        "jsonGenerator_ignoreNullFields": "false",
        "chunkBase64String_enabled": "true",
    },
]

ALL = "s STRING, i INT, b BOOLEAN, d DOUBLE, f FLOAT, e DECIMAL(20,4), x BINARY, dt DATE, "
ALL += "t TIMESTAMP_NTZ, l TIMESTAMP, tm TIME(3)"
ALL_VALUES = (
    "'s','a', 'i',1, 'b',true, 'd',1.5D, 'f',0.1F, 'e',12.5, 'x',X'616263', 'dt',DATE'2020-01-02', "
    "'t',TIMESTAMP_NTZ'2020-01-02 03:04:05.120', 'l',TIMESTAMP'2020-01-02 03:04:05Z', 'tm',TIME'03:04:05'"
)
ALL_NULL = ", ".join(f"'{name.split()[0]}', NULL" for name in ALL.split(", "))

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
"""Any text."""

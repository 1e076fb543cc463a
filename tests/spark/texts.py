"""What the tests of the formats `raw`, `json` and `csv` share.

What they expect was recorded from Flink 2.3's own classes, given the same messages, rows and options. Where ours is
different on purpose, a test says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType, TimeType

from dynamic_kafka.formats import ERROR, Format
from dynamic_kafka.options import parse_options

SLOWLY = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
Message = str | bytes | None

NO_ROW = None
NO_OBJECT = "! It is not a JSON object"
NO_LINE = "! It is empty, or not one line of UTF-8, or has quotes that do not match"


def misfit(columns: str) -> str:
    """What is said of fields that do not fit their columns."""
    return f"! It does not fit the columns: {columns}"


def checked(found: Format, ddl: str, options: Mapping[str, str]) -> tuple[StructType, dict[str, Any]]:
    """The schema and the parsed options, as a table would hand them over."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    values = parse_options({f"{found.name}.{k}": v for k, v in options.items()}, found.options).values
    found.check(schema, values)
    return schema, dict(values)


def frame(spark: SparkSession, messages: list[Message]) -> DataFrame:
    """The messages, numbered."""
    rows = [(i, m.encode() if isinstance(m, str) else m) for i, m in enumerate(messages)]
    return spark.createDataFrame(rows, "i INT, value BINARY").coalesce(1)


def decoded(
    spark: SparkSession, found: Format, ddl: str, messages: list[Message], options: Mapping[str, str] | None = None
) -> list[str | None]:
    """Each message's row as text, or its error behind `! `, or None if there is none."""
    schema, values = checked(found, ddl, options or {})
    row = found.decode(F.col("value"), schema, values)
    text = F.concat(F.lit("! "), F.col("d")[ERROR])
    columns = F.struct(*(F.col("d")[f.name].alias(f.name) for f in schema.fields)).cast("string")
    result = frame(spark, messages).select("i", row.alias("d"))
    result = result.select("i", F.when(F.col("d").isNotNull(), F.coalesce(text, columns)).alias("r"))
    return [r["r"] for r in result.orderBy("i").collect()]


def struct_of(schema: StructType, row: str) -> Column:
    """What stands in `named_struct`, with the types of a schema; but a TIME as it is, since Spark has no cast to it."""
    nulls = ", ".join(f"'{name}', NULL" for name in schema.names)
    value = F.expr(f"named_struct({nulls if row == 'NULL' else row})")
    fields = ((value[f.name], f) for f in schema.fields)
    return F.struct(*((c if isinstance(f.dataType, TimeType) else c.cast(f.dataType)).alias(f.name) for c, f in fields))


def encoded(
    spark: SparkSession, found: Format, ddl: str, rows: list[str], options: Mapping[str, str] | None = None
) -> list[bytes | None]:
    """Each row, given as what stands in `named_struct`, as a message."""
    schema, values = checked(found, ddl, options or {})
    columns = [F.when(F.col("id") == int(row == "NULL"), struct_of(schema, row)) for row in rows]
    (result,) = spark.range(1).select(*(found.encode(c, schema, values) for c in columns)).collect()
    return [None if m is None else bytes(m) for m in result]


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
    {
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

"""The native decoder of CSV against Spark's expressions, for random lines in common, odd and damaged forms."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.formats import format_named
from tests.native import DECODED, LEFT, decode, differences
from tests.spark.json_messages import columns, damaged, simple
from tests.spark.test_formats_csv import READ_CSV
from tests.spark.texts import Message, Options, checked, frame

pytestmark = pytest.mark.spark

CSV = format_named("csv")
SCHEMAS = [
    "id BIGINT, user STRING, amount INT, paid BOOLEAN",
    "a TINYINT, b SMALLINT, c DECIMAL(10,2), d DECIMAL(38,18), e FLOAT, f DOUBLE, x BINARY",
    "s STRING",
    "d DATE, t TIMESTAMP_NTZ, l TIMESTAMP, s STRING",
]
OPTIONS: list[dict[str, str]] = [
    {},
    {"ignore-parse-errors": "true", "null-literal": "n/a"},
    {"field-delimiter": "\t", "quote-character": "'"},
    {"field-delimiter": ";", "disable-quote-character": "true"},
]
COUNT = 3000
SEED = 1
_ODD = [
    "",
    " ",
    " 1",
    "1 ",
    "+1",
    "01",
    "-0",
    "1.0",
    "1e3",
    ".5",
    "1.",
    "NaN",
    "Infinity",
    "n/a",
    "null",
    "TRUE",
    " true ",
]
_ODD += [
    "2020-1-2",
    "2020-01-02T03:04:05",
    "2020-01-02 03:04:05",
    "12d",
    "0x1",
    "YQ",
    "YR==",
    '"',
    '""',
    "'",
    "a\nb",
    "\0",
]
_TEXTS = [
    "a",
    "é€😀",
    "two words",
    "#a",
    "a;b",
    "a\tb",
    "it's",
    'say "x"',
    "\\n",
    "\u2028",
    "x" * 300,
    "\ufeff",
    "\x7f",
    "\x1f",
]


@pytest.mark.slow
def test_what_flink_has_answered_is_decoded_in_the_same_way(spark: SparkSession) -> None:
    """The lines of `test_formats_csv`, for which Spark's answers are compared with Flink's."""
    compared = 0
    for ddl, options, expected in READ_CSV:
        if CSV.native(*checked(CSV, ddl, options)) is not None:
            _compare(spark, ddl, options, list(expected))
            compared += 1
    assert compared >= 5


@pytest.mark.slow
@pytest.mark.parametrize("ddl", SCHEMAS)
def test_csv_is_decoded_as_by_spark(spark: SparkSession, ddl: str) -> None:
    """Whatever the line is; and most whole lines are decoded."""
    for options in OPTIONS:
        random = Random(f"{ddl} {options} {SEED}")
        given: list[Message] = [_line(ddl, options, random) for _ in range(COUNT)]
        outcomes = _compare(spark, ddl, options, [*given, None, b""])
        assert outcomes.count(DECODED) > COUNT / 10
        assert outcomes.count(LEFT) > COUNT / 100


def _compare(spark: SparkSession, ddl: str, options: Options, given: list[Message]) -> list[int]:
    values = pa.array([m.encode() if isinstance(m, str) else m for m in given], pa.binary())
    schema, parsed = checked(CSV, ddl, options)
    decoder = CSV.decode(F.col("value"), schema, parsed).alias("d")
    answers = frame(spark, given).select("i", decoder).toArrow().sort_by("i").combine_chunks()
    spec: dict[str, Any] = {**(CSV.native(schema, parsed) or {}), "schema": json.loads(schema.json())}
    decoded, outcomes = decode(spec, values)
    assert differences(answers["d"].combine_chunks(), decoded, outcomes, values) == []
    return [int(outcome) for outcome in outcomes.to_pylist()]


def _line(ddl: str, options: dict[str, str], random: Random) -> bytes:
    odd = random.choice([0.0, 0.0, 0.0, 0.0, 0.02, 0.2])
    quote = "" if "disable-quote-character" in options else options.get("quote-character", '"')
    fields = [_field(type_, quote, options, random, odd) for _, type_ in columns(ddl)]
    if random.random() < odd:
        fields = random.choice([[*fields, ""], [*fields, "x"], fields[1:], [*fields, *fields]])
    line = options.get("field-delimiter", ",").join(fields) + random.choice(["", "", "", "\n", "\r\n"])
    return damaged(line, random)


def _field(type_: str, quote: str, options: dict[str, str], random: Random, odd: float) -> str:
    if random.random() < odd:
        return random.choice(_ODD)
    if random.random() < 0.05:
        return options.get("null-literal", "")
    text = random.choice(_TEXTS) if type_ == "STRING" else simple(type_, random).strip('"')
    if type_.startswith("TIMESTAMP"):
        text = text.replace("T", " ")
    special = (quote or "\n") in text or options.get("field-delimiter", ",") in text
    if quote and random.random() < (0.97 if special else 0.2):
        return quote + text.replace(quote, quote * 2) + quote
    return text

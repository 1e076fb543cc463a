"""Flink's types out of DDL, as Spark's types and back."""

from __future__ import annotations

import pytest
from pyspark.sql import types as spark

from dynamic_kafka.errors import SqlError
from dynamic_kafka.sql.parser.lexer import Cursor, tokenize
from dynamic_kafka.sql.parser.types import read_type
from dynamic_kafka.sql.tables.types import FlinkType, flink_type, spark_type


def parse(text: str) -> FlinkType:
    """The type that a text consists of."""
    cursor = Cursor(text, tokenize(text))
    found = read_type(cursor)
    cursor.expect_end()
    return found


@pytest.mark.parametrize(
    ("text", "canonical", "expected"),
    [
        ("boolean", "BOOLEAN", spark.BooleanType()),
        ("TINYINT", "TINYINT", spark.ByteType()),
        ("SMALLINT", "SMALLINT", spark.ShortType()),
        ("INT", "INT", spark.IntegerType()),
        ("INTEGER", "INT", spark.IntegerType()),
        ("BIGINT", "BIGINT", spark.LongType()),
        ("FLOAT", "FLOAT", spark.FloatType()),
        ("DOUBLE", "DOUBLE", spark.DoubleType()),
        ("DOUBLE PRECISION", "DOUBLE", spark.DoubleType()),
        ("DECIMAL", "DECIMAL(10, 0)", spark.DecimalType(10, 0)),
        ("DEC(5)", "DECIMAL(5, 0)", spark.DecimalType(5, 0)),
        ("NUMERIC(38,38)", "DECIMAL(38, 38)", spark.DecimalType(38, 38)),
        ("CHAR", "CHAR(1)", spark.StringType()),
        ("CHARACTER VARYING(7)", "VARCHAR(7)", spark.StringType()),
        ("VARCHAR(2147483647)", "STRING", spark.StringType()),
        ("VARCHAR", "STRING", spark.StringType()),
        ("VARCHAR(2147483647) CHARACTER SET `UTF-16LE` NOT NULL", "STRING NOT NULL", spark.StringType()),
        ("CHAR(36) CHARACTER SET utf8", "CHAR(36)", spark.StringType()),
        ("VARBINARY", "BYTES", spark.BinaryType()),
        ("STRING", "STRING", spark.StringType()),
        ("BINARY(3)", "BINARY(3)", spark.BinaryType()),
        ("BINARY VARYING(3)", "VARBINARY(3)", spark.BinaryType()),
        ("VARBINARY(2147483647)", "BYTES", spark.BinaryType()),
        ("BYTES", "BYTES", spark.BinaryType()),
        ("DATE", "DATE", spark.DateType()),
        ("TIME", "TIME(0)", spark.TimeType(0)),
        ("TIME(3) WITHOUT TIME ZONE", "TIME(3)", spark.TimeType(3)),
        ("TIMESTAMP", "TIMESTAMP(6)", spark.TimestampNTZType()),
        ("TIMESTAMP(3) WITHOUT TIME ZONE", "TIMESTAMP(3)", spark.TimestampNTZType()),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ(3)", spark.TimestampType()),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(3)", spark.TimestampType()),
        ("TIMESTAMP_LTZ", "TIMESTAMP_LTZ(6)", spark.TimestampType()),
        ("VARIANT", "VARIANT", spark.VariantType()),
        ("INTERVAL YEAR", "INTERVAL YEAR", spark.YearMonthIntervalType(0, 0)),
        ("INTERVAL YEAR(4) TO MONTH", "INTERVAL YEAR(4) TO MONTH", spark.YearMonthIntervalType(0, 1)),
        ("INTERVAL MONTH", "INTERVAL MONTH", spark.YearMonthIntervalType(1, 1)),
        ("INTERVAL DAY(2) TO SECOND(3)", "INTERVAL DAY(2) TO SECOND(3)", spark.DayTimeIntervalType(0, 3)),
        ("INTERVAL HOURS TO MINUTES", "INTERVAL HOUR TO MINUTE", spark.DayTimeIntervalType(1, 2)),
        ("INTERVAL SECOND(2, 3)", "INTERVAL SECOND(2, 3)", spark.DayTimeIntervalType(3, 3)),
        ("ARRAY<INT>", "ARRAY<INT>", spark.ArrayType(spark.IntegerType())),
        ("ARRAY<INT NOT NULL>", "ARRAY<INT NOT NULL>", spark.ArrayType(spark.IntegerType(), containsNull=False)),
        ("INT NOT NULL ARRAY", "ARRAY<INT NOT NULL>", spark.ArrayType(spark.IntegerType(), containsNull=False)),
        (
            "MULTISET<STRING NOT NULL>",
            "MULTISET<STRING NOT NULL>",
            spark.MapType(spark.StringType(), spark.IntegerType(), valueContainsNull=False),
        ),
        ("STRING MULTISET", "MULTISET<STRING>", spark.MapType(spark.StringType(), spark.IntegerType(), False)),
        (
            "MAP<STRING NOT NULL, BYTES NULL>",
            "MAP<STRING NOT NULL, BYTES>",
            spark.MapType(spark.StringType(), spark.BinaryType()),
        ),
        ("ROW<>", "ROW<>", spark.StructType([])),
        ("ROW()", "ROW<>", spark.StructType([])),
    ],
)
def test_every_type(text: str, canonical: str, expected: spark.DataType) -> None:
    """Flink's spellings, their meaning in Spark, and Flink's own spelling, which means the same again."""
    found = parse(text)
    assert spark_type(found) == expected
    assert str(found) == canonical
    assert parse(canonical) == found


def test_rows_hold_fields_with_nullability_and_comments() -> None:
    """In angle brackets or parentheses; comments with Flink's spelling or with COMMENT."""
    text = (
        "ROW<a INT NOT NULL COMMENT 'it''s', `b c` ARRAY<MAP<STRING NOT NULL, ROW(x TIMESTAMP(3) 'when')>> > NOT NULL"
    )
    found = parse(text)
    assert spark_type(found) == spark.StructType(
        [
            spark.StructField("a", spark.IntegerType(), False, {"comment": "it's"}),
            spark.StructField(
                "b c",
                spark.ArrayType(
                    spark.MapType(
                        spark.StringType(),
                        spark.StructType([spark.StructField("x", spark.TimestampNTZType(), True, {"comment": "when"})]),
                    )
                ),
            ),
        ]
    )
    assert str(found) == (
        "ROW<`a` INT NOT NULL 'it''s', `b c` ARRAY<MAP<STRING NOT NULL, ROW<`x` TIMESTAMP(3) 'when'>>>> NOT NULL"
    )
    assert parse(str(found)) == found


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("", 1, "Expected a type, found the end of the statement"),
        ("'INT'", 1, "Expected a type, found a string"),
        ("STRNG", 1, "did you mean 'STRING'?"),
        ("my_type", 1, "not a type of Flink"),
        ("`INT`", 1, "user-defined types are not supported"),
        ("RAW('c', 's')", 1, "use BYTES"),
        ("STRUCTURED<'c', a INT>", 1, "write ROW<...>"),
        ("TIMESTAMP(3) WITH TIME ZONE", 14, "use TIMESTAMP_LTZ"),
        ("TIMESTAMP(10)", 11, "from 0 to 9"),
        ("DECIMAL(39)", 9, "from 1 to 38"),
        ("DECIMAL(5, 6)", 12, "from 0 to 5"),
        ("DECIMAL(-1)", 9, "found '-'"),
        ("CHAR(0)", 6, "from 1 to"),
        (f"CHAR({'9' * 5000})", 6, "a length"),
        ("INT(3)", 4, "found '('"),
        ("ARRAY", 6, "write ARRAY<...>"),
        ("ARRAY<INT", 10, "Expected '>'"),
        ("MAP<INT>", 8, "MAP<key type, value type>"),
        ("ROW INT", 5, "ROW<name type, ...>"),
        ("ROW<INT>", 8, "Expected a type, found '>'"),
        ("ROW<a INT, a INT>", 12, "two fields 'a'"),
        ("ROW<a INT b INT>", 11, "Expected ',' or '>'"),
        ("ROW(a INT>", 10, "Expected ',' or ')'"),
        ("INTERVAL WEEK", 10, "a unit of time"),
        ("INTERVAL MONTH TO DAY", 16, "the end of the statement"),
        ("INTERVAL SECOND TO DAY", 17, "the end of the statement"),
        ("INTERVAL DAY TO MONTH", 17, "a unit of time"),
        ("ARRAY<" * 500 + "INT" + ">" * 500, 126, "nested deeper"),
        ("INT" + " ARRAY" * 500, 131, "nested deeper"),
    ],
)
def test_wrong_types_are_errors_with_a_position(text: str, column: int, what: str) -> None:
    """Where the fault is, and what would be right."""
    with pytest.raises(SqlError) as caught:
        parse(text)
    assert what in str(caught.value)
    assert caught.value.column == column


@pytest.mark.parametrize(
    ("data_type", "text"),
    [
        (spark.TimestampType(), "TIMESTAMP_LTZ(6)"),
        (spark.TimestampNTZType(), "TIMESTAMP(6)"),
        (spark.TimeType(3), "TIME(3)"),
        (spark.CharType(3), "CHAR(3)"),
        (spark.VarcharType(3), "VARCHAR(3)"),
        (spark.StringType(), "STRING"),
        (spark.BinaryType(), "BYTES"),
        (spark.LongType(), "BIGINT"),
        (spark.DecimalType(5, 2), "DECIMAL(5, 2)"),
        (spark.DayTimeIntervalType(0, 3), "INTERVAL DAY TO SECOND"),
        (spark.YearMonthIntervalType(0, 0), "INTERVAL YEAR"),
        (spark.VariantType(), "VARIANT"),
        (spark.NullType(), "NULL"),
        (spark.CalendarIntervalType(), "INTERVAL"),
        (spark.ArrayType(spark.ByteType(), containsNull=False), "ARRAY<TINYINT NOT NULL>"),
        (spark.MapType(spark.StringType(), spark.DateType()), "MAP<STRING NOT NULL, DATE>"),
        (
            spark.StructType([spark.StructField("a", spark.IntegerType(), False, {"comment": "c"})]),
            "ROW<`a` INT NOT NULL 'c'>",
        ),
    ],
)
def test_sparks_types_as_text(data_type: spark.DataType, text: str) -> None:
    """For the columns of views; what Flink has not keeps Spark's name."""
    assert str(flink_type(data_type)) == text
    assert flink_type(data_type).nullable
    assert str(flink_type(data_type, nullable=False)) == f"{text} NOT NULL"

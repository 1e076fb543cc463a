"""Tables that are not on Kafka: their options and columns, and what `datagen` calculates. Without Spark."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pyspark
import pytest
from pyspark.errors import PySparkException

from dynamic_kafka.changelog import merge_statement
from dynamic_kafka.errors import ConfigurationError, InvalidOptionError
from dynamic_kafka.sql.connectors import filesystem
from dynamic_kafka.sql.connectors.all import table_of
from dynamic_kafka.sql.connectors.datagen import expressions, row_count
from dynamic_kafka.sql.connectors.table import OtherTable
from dynamic_kafka.sql.errors.script import loading
from dynamic_kafka.sql.parser.parse import parse_statement
from dynamic_kafka.sql.parser.statements import CreateTable
from dynamic_kafka.sql.tables.definition import TableDefinition


def definition(columns: str, options: str, clauses: str = "") -> TableDefinition:
    """The definition of a CREATE TABLE."""
    statement = parse_statement(f"CREATE TABLE t ({columns}) {clauses} WITH ({options})")
    assert isinstance(statement, CreateTable)
    return statement.definition


def table(columns: str, connector: str, options: str = "", clauses: str = "") -> OtherTable:
    """A table that is not on Kafka."""
    found = table_of(definition(columns, f"'connector' = '{connector}'{', ' if options else ''}{options}", clauses))
    assert isinstance(found, OtherTable)
    return found


@pytest.mark.parametrize(
    ("connector", "columns", "options", "clauses", "refusal"),
    [
        ("kafkaa", "a INT", "", "", "'kafkaa'; expected one of kafka, .*filesystem"),
        ("print", "a INT", "'print-identifer' = 'x'", "", "print-identifer.*did you mean 'print-identifier'"),
        ("print", "a INT METADATA FROM 'offset', b INT", "", "", "the connector 'print' has no metadata"),
        ("print", "a INT, b INT", "", "PARTITIONED BY (a)", "is for 'connector' = 'filesystem'"),
        ("blackhole", "a INT, A STRING", "", "", "two columns 'a'"),
        ("datagen", "a INT", "'fields.b.kind' = 'random'", "", "'fields.b.kind' does not fit a column"),
        ("datagen", "a INT", "'fields.a.kind' = 'sequence'", "", "'fields.a.start' is missing"),
        ("datagen", "a INT", "'fields.a.min' = 'x'", "", "'fields.a.min' has the value 'x'; expected a number"),
        ("datagen", "a INT", "'fields.a.min' = '5', 'fields.a.max' = '4'", "", "expected a number from 5 on"),
        ("datagen", "a MAP<INT, INT>", "", "", "'a' is MAP<INT, INT>, of which 'datagen' makes no random values"),
        ("datagen", "a DATE", "'fields.a.kind' = 'sequence', 'fields.a.start' = '1', 'fields.a.end' = '2'", "", "DATE"),
        ("filesystem", "a INT", "'format' = 'csv'", "", "'path' is missing"),
        ("filesystem", "a INT", "'path' = '/x', 'format' = 'avro'", "", "'avro'; a 'filesystem' table has one of json"),
        ("filesystem", "a INT", "'path' = '/x', 'format' = 'csv', 'csv.x' = '1'", "", r"csv\.x"),
        ("filesystem", "a INT", "'path' = '/x', 'format' = 'csv'", "PARTITIONED BY (b)", "names the column 'b'"),
        ("filesystem", "a INT", "'path' = '/x', 'format' = 'csv'", "PARTITIONED BY (a)", "files would be empty"),
        ("jdbc", "a INT", "'url' = 'jdbc:x:y'", "", "'table-name' is missing"),
        (
            "jdbc",
            "a INT",
            "'url' = 'jdbc:x:y?ssl=1&password=p', 'table-name' = 't'",
            "",
            "has 'password', which everybody",
        ),
        (
            "jdbc",
            "a INT",
            "'url' = 'jdbc:x', 'table-name' = 't', 'scan.partition.num' = '2'",
            "",
            "belong together. Add scan.partition.c",
        ),
        ("delta", "a INT", "", "", "'table-path' is missing"),
        ("iceberg", "a INT", "", "", "'catalog-name' is missing"),
        (
            "delta",
            "a INT",
            "'table-path' = '/x', 'sequence.field' = 'b'",
            "",
            "names the column 'b', but table `t` has a",
        ),
    ],
)
def test_a_wrong_table_is_refused(connector: str, columns: str, options: str, clauses: str, refusal: str) -> None:
    """The error names the option or the column."""
    with pytest.raises(ConfigurationError, match=refusal):
        table(columns, connector, options, clauses)


def test_kafka_tables_have_no_partition_columns() -> None:
    """The error says what there is instead."""
    options = (
        "'connector' = 'kafka', 'topic' = 't', 'format' = 'json', 'properties.bootstrap.servers' = 'localhost:9092'"
    )
    with pytest.raises(ConfigurationError, match=r"which have no partition columns: see 'sink\.partitioner'"):
        table_of(definition("a INT", options, "PARTITIONED BY (a)"))


def test_which_tables_have_an_end() -> None:
    """As in Flink: `datagen` with a number of rows or a sequence, files unless the folder is watched."""
    sequence = "'fields.a.kind' = 'sequence', 'fields.a.start' = '5', 'fields.a.end' = '9'"
    assert row_count(table("a INT", "datagen")) is None
    assert row_count(table("a INT", "datagen", "'number-of-rows' = '7'")) == 7
    assert row_count(table("a INT, b INT", "datagen", f"'number-of-rows' = '7', {sequence}")) == 5
    assert not table("a INT", "datagen", "'rows-per-second' = '7'").bounded
    assert table("a INT", "filesystem", "'path' = '/x', 'format' = 'json'").bounded
    assert not table(
        "a INT", "filesystem", "'path' = '/x', 'format' = 'json', 'source.monitor-interval' = '1s'"
    ).bounded


@pytest.mark.parametrize(
    ("type_", "options", "expression"),
    [
        ("INT", {"min": "1", "max": "6"}, "(1L + pmod(xxhash64(rand()), 6L))"),
        ("INT", {"kind": "sequence", "start": "-3", "end": "5"}, "value + -3L"),
        ("DOUBLE", {"min": "0", "max": "1.5"}, "CAST(0.0D + rand() * (1.5D - 0.0D) AS DOUBLE)"),
        (
            "DECIMAL(4, 2)",
            {"max": "9.99"},
            "CAST(CAST((0L + pmod(xxhash64(rand()), 1000L)) AS STRING) || 'E-2' AS DECIMAL(4, 2))",
        ),
        ("STRING", {"length": "40"}, "left(md5(CAST(rand() AS STRING)) || md5(CAST(rand() AS STRING)), 40)"),
        ("VARCHAR(3)", {}, "left(md5(CAST(rand() AS STRING)), 3)"),
        ("VARBINARY(3)", {}, "unhex(left(md5(CAST(rand() AS STRING)), 6))"),
        ("BOOLEAN", {"null-rate": "0.25"}, "CASE WHEN rand() >= 0.25D THEN rand() < 0.5D END"),
        ("DATE", {}, "current_date()"),
        ("ROW<b BOOLEAN>", {}, "named_struct('b', CAST(rand() < 0.5D AS boolean))"),
        ("ARRAY<DATE>", {"length": "2"}, "array(CAST(current_date() AS date), CAST(current_date() AS date))"),
    ],
)
def test_what_datagen_calculates(type_: str, options: dict[str, str], expression: str) -> None:
    """An expression on a column that counts, of a function of Spark for each kind of type."""
    given = ", ".join(f"'fields.a.{name}' = '{text}'" for name, text in options.items())
    assert [*expressions(table(f"a {type_}", "datagen", given))] == [expression]


def test_metadata_of_a_table_that_nobody_reads_is_left_out() -> None:
    """A table LIKE one of Kafka has its virtual columns."""
    assert [c.name for c in table("a INT, o BIGINT METADATA FROM 'offset' VIRTUAL", "print").definition.physical] == [
        "a"
    ]


def test_a_merge() -> None:
    """A key that is gone is deleted, one that is there is replaced, one that is not is inserted. Newer rows stay."""
    text = merge_statement("lake.db.t", ["id", "a b"], ["id"])
    assert re.sub(r" (WHEN|USING)", r"\n\1", text).split("\n") == [
        "MERGE INTO lake.db.t AS target",
        "USING {changes} AS changes ON target.`id` <=> changes.`id`",
        "WHEN MATCHED AND changes.__gone THEN DELETE",
        "WHEN MATCHED AND NOT changes.__gone THEN UPDATE SET target.`id` = changes.`id`, target.`a b` = changes.`a b`",
        "WHEN NOT MATCHED AND NOT changes.__gone THEN INSERT (`id`, `a b`) VALUES (changes.`id`, changes.`a b`)",
    ]
    newer = " AND (target.`a b` IS NULL OR changes.`a b` >= target.`a b`) THEN "
    ordered = merge_statement("lake.db.t", ["id", "a b"], ["id"], "a b")
    assert ordered == text.replace("__gone THEN DELETE", f"__gone{newer}DELETE").replace(
        " THEN UPDATE", f"{newer}UPDATE"
    )


def test_a_jar_for_another_release_of_spark() -> None:
    """As Iceberg's for Spark 4.1 on a later one: the error says which class does not fit, and what to do."""
    words = (
        "java.lang.IncompatibleClassChangeError: class org.Table can not implement org.View (it is in a loader)\n at x"
    )
    with pytest.raises(ConfigurationError) as caught, loading():
        raise PySparkException(words)
    assert str(caught.value) == (
        f"A JAR of this session is for another release of Spark than {pyspark.__version__}: "
        "java.lang.IncompatibleClassChangeError: class org.Table can not implement org.View. Start Spark with one for this "
        "release (spark.jars.packages)"
    )


@pytest.mark.parametrize(
    ("written", "planned", "committed", "refused"),
    [
        (None, None, None, False),
        ([], None, None, False),
        ([], [0], [], False),
        ([0, 1], None, None, True),
        ([9, 10], [0], [], True),
        ([0, 1], [0, 1, 2, 3], [0, 1, 2], True),
        ([4, 5, 6], [4, 5, 6], [4, 5, 6], False),
        ([4, 5, 6], [4, 5, 6], [4, 5], False),
        ([4, 5], [4, 5, 6], [4, 5], False),
    ],
)
def test_a_folder_has_the_files_of_one_query(
    monkeypatch: pytest.MonkeyPatch,
    written: list[int] | None,
    planned: list[int] | None,
    committed: list[int] | None,
    *,
    refused: bool,
) -> None:
    """Another query's micro-batches would be left out. A query that was stopped at any moment goes on."""
    logs = {"/x/_spark_metadata": written, "/c/offsets": planned, "/c/commits": committed}
    monkeypatch.setattr(filesystem, "numbers_in", lambda _, log: logs[log])
    monkeypatch.setattr(filesystem, "exists", lambda *_: False)
    files, spark = table("a INT", "filesystem", "'path' = '/x', 'format' = 'json'"), None
    with pytest.raises(ConfigurationError, match="another checkpoint") if refused else nullcontext():
        files.kind.check_start(spark, files, "/c")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "meant"), [("kafkaa", "kafka"), ("upsert_kafka", "upsert-kafka"), ("dategen", "datagen")]
)
def test_a_mistyped_connector_has_a_suggestion(given: str, meant: str) -> None:
    """Beside the list of all connectors."""
    with pytest.raises(InvalidOptionError, match=rf"expected one of kafka, .*; did you mean '{meant}'\?"):
        table("a INT", given)

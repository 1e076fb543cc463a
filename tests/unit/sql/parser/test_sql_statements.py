"""Statements and tables out of SQL text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dynamic_kafka.errors import ConfigurationError, SqlError
from dynamic_kafka.sql.parser import like
from dynamic_kafka.sql.parser.like import Like
from dynamic_kafka.sql.parser.parse import parse_script, parse_statement
from dynamic_kafka.sql.parser.statements import (
    AddJar,
    CreateDatabase,
    CreateTable,
    CreateView,
    Describe,
    Drop,
    Explain,
    InsertInto,
    Query,
    Reset,
    Set,
    Show,
    ShowCreate,
    Statement,
    StatementSet,
    Use,
)
from dynamic_kafka.sql.tables.definition import (
    ComputedColumn,
    MetadataColumn,
    PhysicalColumn,
    TableDefinition,
    Watermark,
)
from dynamic_kafka.sql.tables.types import FlinkType

DOCUMENTED = (Path(__file__).parents[3] / "fixtures" / "flink_tables.sql").read_text()

BIGINT, STRING = FlinkType("BIGINT"), FlinkType("STRING")
LTZ = FlinkType("TIMESTAMP_LTZ", (3,))


def table(text: str) -> TableDefinition:
    """The table that a CREATE TABLE makes."""
    statement = parse_statement(text)
    assert isinstance(statement, CreateTable)
    return statement.definition


def fault(text: str) -> SqlError:
    """The error that a script has."""
    with pytest.raises(SqlError) as caught:
        parse_script(text)
    return caught.value


# --- CREATE TABLE ---------------------------------------------------------------------------------------------------


def test_every_table_of_flinks_documentation_is_understood() -> None:
    """Those of `kafka`, `dynamic-kafka` and `upsert-kafka`; and printed, they mean the same."""
    statements = parse_script(DOCUMENTED)
    tables = [s.definition for s in statements if isinstance(s, CreateTable)]
    assert len(tables) == 13
    assert {t.options["connector"] for t in tables} == {"kafka", "dynamic-kafka", "upsert-kafka"}
    for definition in tables:
        visible = replace(
            definition, options={k: v for k, v in definition.options.items() if "sasl" not in k and "ssl" not in k}
        )
        assert table(visible.ddl()) == visible


def test_a_table_with_everything() -> None:
    """Each kind of column, the key, the watermark, comments and options."""
    definition = table(
        """
        create temporary table if not exists cat.`my db`.orders ( -- a comment
            id BIGINT COMMENT 'the id',
            `timestamp` TIMESTAMP_LTZ(3) NOT NULL METADATA COMMENT 'when',
            origin STRING METADATA FROM 'value.source.table' VIRTUAL,
            key STRING,
            total AS price * (quantity + 1) /* with tax */ - f(a, b) COMMENT 'it''s much',
            price DECIMAL(10, 2),
            quantity INT,
            WATERMARK FOR `timestamp` AS `timestamp` - INTERVAL '5' SECOND,
            CONSTRAINT pk PRIMARY KEY (key, id) NOT ENFORCED
        ) COMMENT 'all orders' WITH ('connector' = 'kafka', 'topic' = 'it''s; here')
        """
    )
    assert definition == TableDefinition(
        ("cat", "my db", "orders"),
        (
            PhysicalColumn("id", replace(BIGINT, nullable=False), "the id"),
            MetadataColumn("timestamp", replace(LTZ, nullable=False), "timestamp", comment="when"),
            MetadataColumn("origin", STRING, "value.source.table", virtual=True),
            PhysicalColumn("key", replace(STRING, nullable=False)),
            ComputedColumn("total", "price * (quantity + 1) /* with tax */ - f(a, b)", "it's much"),
            PhysicalColumn("price", FlinkType("DECIMAL", (10, 2))),
            PhysicalColumn("quantity", FlinkType("INT")),
        ),
        ("key", "id"),
        Watermark("timestamp", "`timestamp` - INTERVAL '5' SECOND", "5 SECOND"),
        {"connector": "kafka", "topic": "it's; here"},
        "all orders",
        temporary=True,
        if_not_exists=True,
    )
    assert definition.ddl() == (
        "CREATE TEMPORARY TABLE IF NOT EXISTS `cat`.`my db`.`orders` (\n"
        "  `id` BIGINT NOT NULL COMMENT 'the id',\n"
        "  `timestamp` TIMESTAMP_LTZ(3) NOT NULL METADATA COMMENT 'when',\n"
        "  `origin` STRING METADATA FROM 'value.source.table' VIRTUAL,\n"
        "  `key` STRING NOT NULL,\n"
        "  `total` AS price * (quantity + 1) /* with tax */ - f(a, b) COMMENT 'it''s much',\n"
        "  `price` DECIMAL(10, 2),\n"
        "  `quantity` INT,\n"
        "  WATERMARK FOR `timestamp` AS `timestamp` - INTERVAL '5' SECOND,\n"
        "  PRIMARY KEY (`key`, `id`) NOT ENFORCED\n"
        ")\n"
        "COMMENT 'all orders'\n"
        "WITH (\n"
        "  'connector' = 'kafka',\n"
        "  'topic' = 'it''s; here'\n"
        ")"
    )
    assert table(definition.ddl()) == definition


def test_secrets_are_masked_in_printed_ddl() -> None:
    """References to secrets stay, as they are none."""
    definition = table(
        "CREATE TABLE t (a INT) WITH ('properties.sasl.password' = 'hunter2', 'properties.ssl.key.password' = '${env:P}')"
    )
    assert definition.options["properties.sasl.password"] == "hunter2"
    assert "'properties.sasl.password' = '***'" in definition.ddl()
    assert "'properties.ssl.key.password' = '${env:P}'" in definition.ddl()


@pytest.mark.parametrize(
    "name", ["timestamp", "partition", "offset", "value", "key", "comment", "metadata", "data", "year"]
)
def test_words_of_sql_are_names_too(name: str) -> None:
    """In backticks, and also without them where they can mean nothing else."""
    for written in (name, f"`{name}`"):
        definition = table(f"CREATE TABLE {written} ({written} STRING, x AS {written} || 'a')")
        assert definition.name == (name,)
        assert definition.columns == (PhysicalColumn(name, STRING), ComputedColumn("x", f"{written} || 'a'"))


def test_expressions_keep_their_text() -> None:
    """Commas and parentheses in parentheses, brackets and strings end nothing, nor does a column called comment."""
    expressions = [
        "PROCTIME()",
        "f(a, g(b), ')')",
        "a[1, 2]",
        "CAST(a AS ROW<x INT, y INT>)",
        "comment || 'x'",
        "comment",
        "CASE WHEN a THEN 'b, c' END",
        "a -- note\n + b",
        "m['k']",
    ]
    definition = table(f"CREATE TABLE t ({', '.join(f'c{i} AS {e}' for i, e in enumerate(expressions))})")
    assert [c.expression for c in definition.columns if isinstance(c, ComputedColumn)] == expressions
    assert table(definition.ddl()) == definition


@pytest.mark.parametrize(
    ("expression", "delay"),
    [
        ("ts", "0 SECOND"),
        ("`ts`", "0 SECOND"),
        ("(ts)", "0 SECOND"),
        ("ts - INTERVAL '5' SECOND", "5 SECOND"),
        ("(ts - INTERVAL '5' SECOND)", "5 SECOND"),
        ("(ts) - INTERVAL '5' SECOND", "5 SECOND"),
        ("ts - interval '5' seconds", "5 SECOND"),
        ("ts - INTERVAL '5.25' SECOND(3)", "5.25 SECOND"),
        ("ts - INTERVAL '5' SECOND(2, 3)", "5 SECOND"),
        ("ts - INTERVAL '0.001' SECOND", "0.001 SECOND"),
        ("ts - INTERVAL +'5' MINUTE", "5 MINUTE"),
        ("ts - INTERVAL '1' HOUR", "1 HOUR"),
        ("ts - INTERVAL '100' DAY(3)", "100 DAY"),
        ("ts - INTERVAL '2' WEEK", "2 WEEK"),
        ("ts - INTERVAL '0' SECOND", "0 SECOND"),
        ("ts - INTERVAL '1 2' DAY TO HOUR", "1 DAY 2 HOUR"),
        ("ts - INTERVAL '1 02:03' DAY TO MINUTE", "1 DAY 02 HOUR 03 MINUTE"),
        ("ts - INTERVAL '1 00:00:04.5' DAY(2) TO SECOND(1)", "1 DAY 04.5 SECOND"),
        ("ts - INTERVAL '1:30' HOUR TO MINUTE", "1 HOUR 30 MINUTE"),
        ("ts - INTERVAL '1:30:00' HOUR TO SECOND", "1 HOUR 30 MINUTE"),
        ("ts - INTERVAL '1:30' MINUTE TO SECOND", "1 MINUTE 30 SECOND"),
    ],
)
def test_watermarks_that_spark_can_do(expression: str, delay: str) -> None:
    """The column itself, or less an interval in any of Flink's spellings."""
    definition = table(f"CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS {expression})")
    assert definition.watermark == Watermark("ts", expression, delay)
    assert table(definition.ddl()) == definition


@pytest.mark.parametrize(
    ("expression", "at", "what"),
    [
        ("SOURCE_WATERMARK()", "SOURCE", "Kafka has no watermarks of its own"),
        ("other - INTERVAL '5' SECOND", "other", "Expected the column `ts`"),
        ("ts + INTERVAL '5' SECOND", "+", "Spark's watermarks are"),
        ("ts - 5", "5)", "Expected 'INTERVAL'"),
        ("ts - INTERVAL '5' SECOND - INTERVAL '5' SECOND", "- INTERVAL '5' SECOND)", "Spark's watermarks are"),
        ("TO_TIMESTAMP(ts)", "TO_", "Expected the column `ts`"),
        ("(ts", "", "Expected ',' or ')'"),
        ("ts - INTERVAL 5 SECOND", "5 SECOND", "in 'single quotes'"),
        ("ts - INTERVAL '5'", ")", "a unit of time"),
        ("ts - INTERVAL -'5' SECOND", "-'5'", "cannot be negative"),
        ("ts - INTERVAL '-5' SECOND", "'-5'", "The form is '1'"),
        ("ts - INTERVAL '1' MONTH", "MONTH", "no fixed length"),
        ("ts - INTERVAL '1-2' YEAR TO MONTH", "YEAR", "no fixed length"),
        ("ts - INTERVAL '1' DAY TO SECOND", "'1'", "not an interval of DAY TO SECOND. The form is '1 1:1:1'"),
        ("ts - INTERVAL '1:1' SECOND", "'1:1'", "not an interval of SECOND. The form is '1'"),
        ("", ")", "Expected the column `ts`"),
    ],
)
def test_watermarks_that_spark_cannot_do_are_errors(expression: str, at: str, what: str) -> None:
    """Shown where they stop to be one."""
    error = fault(f"CREATE TABLE t (ts TIMESTAMP(3),\nWATERMARK FOR ts AS {expression})")
    assert what in str(error)
    line, caret = error.excerpt.split("\n")
    assert error.line == 2
    assert len(caret) - 1 == line.rindex(at)


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ("a INT, a STRING", "two columns 'a'"),
        ("a INT, WATERMARK FOR a AS a", "of type INT"),
        ("a INT, WATERMARK FOR b AS b", "WATERMARK refers to column `b`, which does not exist"),
        ("a TIMESTAMP(3), WATERMARK FOR a AS a, WATERMARK FOR a AS a", "only one WATERMARK"),
        ("a ROW<b TIMESTAMP(3)>, WATERMARK FOR a.b AS a.b", "fields of a row"),
        ("watermark STRING", "put a column of that name in `backticks`"),
        ("a INT PRIMARY KEY", "NOT ENFORCED"),
        ("a INT PRIMARY KEY ENFORCED", "keys are not checked"),
        ("a INT, PRIMARY KEY (a)", "NOT ENFORCED"),
        ("a INT, PRIMARY KEY (a) ENFORCED", "keys are not checked"),
        ("a INT PRIMARY KEY NOT ENFORCED, PRIMARY KEY (a) NOT ENFORCED", "only one PRIMARY KEY"),
        ("a INT, PRIMARY KEY (b) NOT ENFORCED", "PRIMARY KEY refers to column `b`, which does not exist"),
        ("a INT, PRIMARY KEY (a, a) NOT ENFORCED", "twice"),
        ("a INT, PRIMARY KEY () NOT ENFORCED", "a column's name"),
        ("a AS 1, PRIMARY KEY (a) NOT ENFORCED", "not a physical column"),
        ("a INT METADATA, PRIMARY KEY (a) NOT ENFORCED", "not a physical column"),
        ("a INT, UNIQUE (a) NOT ENFORCED", "UNIQUE"),
        ("a INT UNIQUE", "UNIQUE"),
        ("a INT METADATA FROM x", "in 'single quotes'"),
        ("a INT VIRTUAL", "Expected ',' or ')'"),
        ("a INT DEFAULT 1", "Expected ',' or ')'"),
        ("a AS", "Expected an expression"),
        ("a AS f(1", "found the end"),
        ("a AS f(1]", "does not close anything"),
        ("a AS 1 + COMMENT 'x' || 'y'", "Expected ',' or ')'"),
        ("a INT,", "a column's name"),
        ("a INT COMMENT x", "in 'single quotes'"),
        ("a", "Expected a type"),
        ('"a" INT', "double quotes"),
        ("a-b INT", "Expected a type, found '-'"),
        ("a§ INT", "special characters in `backticks`"),
        ("`` INT", "a column's name"),
        ("`a INT,\nb` INT", "a backtick missing"),
        ("1a INT", "a column's name"),
    ],
)
def test_wrong_columns_are_errors(parts: str, what: str) -> None:
    """As in Flink, and on the line where they stand."""
    error = fault(f"CREATE TABLE t (\n{parts}\n)")
    assert what in str(error)
    assert error.line in (2, 3)


@pytest.mark.parametrize(
    ("clauses", "column", "what"),
    [
        ("PARTITIONED BY a", 16, "Expected '('"),
        ("DISTRIBUTED BY HASH(a) INTO 3 BUCKETS", 1, "no buckets"),
        ("AS 1", 4, "Expected a query"),
        ("WITH ('a' = 'b',)", 17, "an option's name"),
        ("WITH ('a', 'b')", 10, "Expected '='"),
        ("WITH ('a' = b)", 13, "in 'single quotes'"),
        ("WITH ('a' = 'b'", 16, "Expected ',' or ')'"),
        ("WITH (a = 'b')", 7, "in 'single quotes'"),
        ("WITH (...)", 7, "an option's name"),
        ("WITH 'a' = 'b'", 6, "Expected '('"),
        ("WITH ('a' = 'b') x", 18, "the end of the statement"),
        ("COMMENT x", 9, "in 'single quotes'"),
    ],
)
def test_wrong_clauses_are_errors(clauses: str, column: int, what: str) -> None:
    """With what to do instead."""
    error = fault(f"CREATE TABLE t (a INT)\n{clauses}")
    assert what in str(error)
    assert (error.line, error.column) == (2, column)


def test_a_table_needs_columns() -> None:
    """As there is nothing that they could be taken from."""
    assert "at least one column" in str(fault("CREATE TABLE t WITH ('a' = 'b')"))
    assert "at least one column" in str(fault("CREATE TABLE t (PRIMARY KEY (a) NOT ENFORCED)"))
    assert "three parts" in str(fault("CREATE TABLE a.b.c.d (a INT)"))


def test_options_may_be_empty() -> None:
    """It is the connector that misses them."""
    assert table("CREATE TABLE t (a INT) WITH ()").options == {}
    assert table("CREATE TABLE t (a INT)").options == {}


# --- LIKE -----------------------------------------------------------------------------------------------------------

BASE = table(
    """
    CREATE TABLE base (
        a BIGINT, b AS a + 1, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
        WATERMARK FOR ts AS ts - INTERVAL '1' SECOND, PRIMARY KEY (a) NOT ENFORCED
    ) COMMENT 'base' WITH ('connector' = 'kafka', 'topic' = 'x')
    """
)


def merged(text: str) -> TableDefinition:
    """The table that a CREATE TABLE ... LIKE base makes."""
    statement = parse_statement(text)
    assert isinstance(statement, CreateTable)
    assert statement.like is not None
    assert statement.like.table == ("base",)
    return like.merge(statement.definition, statement.like, BASE)


AS_QUERY = "SELECT id, name FROM other"


@pytest.mark.parametrize(
    ("parts", "columns", "names"),
    [
        ("", [], ()),
        ("(name, id)", [], ("name", "id")),
        ("(n AS UPPER(name), PRIMARY KEY (id) NOT ENFORCED)", ["n"], ()),
        ("(id BIGINT NOT NULL, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)", ["id", "ts"], ()),
    ],
)
def test_tables_of_a_query(parts: str, columns: list[str], names: tuple[str, ...]) -> None:
    """CREATE TABLE ... AS may have columns of its own, or names that say the order of the query's columns."""
    found = parse_statement(f"CREATE TABLE IF NOT EXISTS t {parts} COMMENT 'c' WITH ('a' = 'b') AS {AS_QUERY};")
    assert isinstance(found, CreateTable)
    assert found.as_query is not None
    assert [column.name for column in found.definition.columns] == columns
    assert (found.as_query.query, found.as_query.columns) == (AS_QUERY, names)
    assert found.definition.options == {"a": "b"}


@pytest.mark.parametrize("parts", ["(id, name)", "(id, name STRING)", "(id INT, name)"])
def test_columns_need_types_without_a_query(parts: str) -> None:
    """And beside columns with types."""
    assert "Expected a type" in str(fault(f"CREATE TABLE t {parts}"))
    if "STRING" in parts or "INT" in parts:
        assert "Expected a type" in str(fault(f"CREATE TABLE t {parts} AS {AS_QUERY}"))


def test_partitions_are_read_and_printed() -> None:
    """Whether they make sense is a question of the connector."""
    found = parse_statement("CREATE TABLE t (a INT, b DATE) PARTITIONED BY (b, `a`) WITH ('x' = 'y')")
    assert isinstance(found, CreateTable)
    assert found.definition.partitioned_by == ("b", "a")
    assert "PARTITIONED BY (`b`, `a`)" in found.definition.ddl()


def test_the_last_value_of_an_option_counts() -> None:
    """As in Flink, where pasted scripts have options twice."""
    statement = parse_statement("CREATE TABLE t (a INT) WITH ('a' = 'old', 'b' = 'c', 'a' = 'new')")
    assert isinstance(statement, CreateTable)
    assert statement.definition.options == {"a": "new", "b": "c"}


def test_like_takes_over_everything() -> None:
    """The other table's columns first; options overwrite; a comment is the table's own."""
    assert merged("CREATE TABLE t (c INT) WITH ('topic' = 'y') LIKE base") == TableDefinition(
        ("t",),
        (*BASE.columns, PhysicalColumn("c", FlinkType("INT"))),
        ("a",),
        BASE.watermark,
        {"connector": "kafka", "topic": "y"},
    )


def test_like_leaves_out_what_is_excluded() -> None:
    """All but the physical columns; and a single feature may be included again."""
    assert merged("CREATE TABLE t LIKE base (EXCLUDING ALL)") == TableDefinition(
        ("t",), (PhysicalColumn("a", replace(BIGINT, nullable=False)),)
    )
    assert merged("CREATE TABLE t LIKE base (EXCLUDING ALL INCLUDING OPTIONS)").options == BASE.options
    assert merged("CREATE TABLE t LIKE base (EXCLUDING CONSTRAINTS)").primary_key == ()
    assert merged("CREATE TABLE t LIKE base (EXCLUDING PARTITIONS)").columns == BASE.columns


def test_like_overwrites_in_place() -> None:
    """Columns keep their place; a watermark and a key may name the other table's columns."""
    found = merged(
        "CREATE TABLE t (b AS a + 2, ts TIMESTAMP_LTZ(3) METADATA VIRTUAL, WATERMARK FOR ts AS ts) LIKE base "
        "(OVERWRITING GENERATED OVERWRITING METADATA OVERWRITING WATERMARKS)"
    )
    assert [c.name for c in found.columns] == ["a", "b", "ts"]
    assert found.columns[1] == ComputedColumn("b", "a + 2")
    assert found.columns[2] == MetadataColumn("ts", LTZ, "ts", virtual=True)
    assert found.watermark == Watermark("ts", "ts", "0 SECOND")
    keyed = merged("CREATE TABLE t (k INT, PRIMARY KEY (k, a) NOT ENFORCED) LIKE base (EXCLUDING CONSTRAINTS)")
    assert keyed.primary_key == ("k", "a")
    assert keyed.columns[-1] == PhysicalColumn("k", FlinkType("INT", nullable=False))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("CREATE TABLE t (a INT) LIKE base", "column `a` too"),
        ("CREATE TABLE t (b INT) LIKE base", "column `b` too"),
        ("CREATE TABLE t (b AS 1) LIKE base", "EXCLUDING GENERATED or OVERWRITING GENERATED"),
        ("CREATE TABLE t (ts TIMESTAMP(3) METADATA) LIKE base", "EXCLUDING METADATA or OVERWRITING METADATA"),
        ("CREATE TABLE t (WATERMARK FOR ts AS ts) LIKE base", "EXCLUDING WATERMARKS or OVERWRITING WATERMARKS"),
        ("CREATE TABLE t (PRIMARY KEY (a) NOT ENFORCED) LIKE base", r"(EXCLUDING CONSTRAINTS)"),
        ("CREATE TABLE t WITH ('topic' = 'y') LIKE base (INCLUDING OPTIONS)", "option 'topic' already"),
        ("CREATE TABLE t LIKE base (EXCLUDING METADATA)", "WATERMARK refers to column `ts`"),
        (
            "CREATE TABLE t (PRIMARY KEY (x) NOT ENFORCED) LIKE base (EXCLUDING CONSTRAINTS)",
            "PRIMARY KEY refers to column `x`",
        ),
    ],
)
def test_like_refuses_contradictions(text: str, what: str) -> None:
    """And says how to solve them."""
    with pytest.raises(ConfigurationError) as caught:
        merged(text)
    assert what in str(caught.value)


def test_like_is_read_as_flink_does() -> None:
    """ALL is the default of the others; each is said once, and not all can be overwritten."""
    statement = parse_statement("CREATE TABLE t LIKE a.b.c (EXCLUDING ALL OVERWRITING OPTIONS)")
    assert isinstance(statement, CreateTable)
    excluded = dict.fromkeys(("CONSTRAINTS", "GENERATED", "METADATA", "PARTITIONS", "WATERMARKS"), "EXCLUDING")
    assert statement.like == Like(("a", "b", "c"), {**excluded, "OPTIONS": "OVERWRITING"})
    assert "twice" in str(fault("CREATE TABLE t LIKE a (INCLUDING ALL EXCLUDING ALL)"))
    assert "cannot be overwritten" in str(fault("CREATE TABLE t LIKE a (OVERWRITING CONSTRAINTS)"))
    assert "one of ALL" in str(fault("CREATE TABLE t LIKE a (INCLUDING x)"))
    assert "INCLUDING, EXCLUDING" in str(fault("CREATE TABLE t LIKE a (x)"))
    assert "the end of the statement" in str(fault("CREATE TABLE t LIKE a WITH ('a' = 'b')"))


# --- other statements -----------------------------------------------------------------------------------------------

QUERY = "SELECT a, `b` FROM t /*+ OPTIONS('x'='y') */ WHERE c = ';' -- and\n  OR d"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE VIEW v AS " + QUERY, CreateView("", 1, ("v",), (), QUERY, None, False)),
        (
            "CREATE TEMPORARY VIEW IF NOT EXISTS a.v (x, `y z`) COMMENT 'c' AS (SELECT 1, 2)",
            CreateView("", 1, ("a", "v"), ("x", "y z"), "(SELECT 1, 2)", "c", True),
        ),
        ("DROP TABLE t", Drop("", 1, "table", ("t",), if_exists=False)),
        ("DROP TEMPORARY TABLE IF EXISTS a.t", Drop("", 1, "table", ("a", "t"), if_exists=True)),
        ("DROP VIEW v", Drop("", 1, "view", ("v",), if_exists=False)),
        ("DROP TEMPORARY VIEW IF EXISTS v", Drop("", 1, "view", ("v",), if_exists=True)),
        ("SHOW TABLES", Show("", 1, "table", None, negated=False)),
        ("SHOW TABLES LIKE 'a%'", Show("", 1, "table", "a%", negated=False)),
        ("SHOW VIEWS NOT LIKE 'a%'", Show("", 1, "view", "a%", negated=True)),
        ("SHOW CREATE TABLE t", ShowCreate("", 1, "table", ("t",))),
        ("SHOW CREATE VIEW v", ShowCreate("", 1, "view", ("v",))),
        ("DESCRIBE t", Describe("", 1, ("t",))),
        ("DESC EXTENDED a.t", Describe("", 1, ("a", "t"))),
        ("SET", Set("", 1, None, None)),
        ("SET 'a' = 'b'", Set("", 1, "a", "b")),
        ("USE CATALOG c", Use("", 1, catalog=True, name=("c",))),
        ("USE c.d", Use("", 1, catalog=False, name=("c", "d"))),
        ("CREATE DATABASE d", CreateDatabase("", 1, ("d",), if_not_exists=False)),
        (
            "CREATE DATABASE IF NOT EXISTS c.d COMMENT 'x' WITH ('a' = 'b')",
            CreateDatabase("", 1, ("c", "d"), if_not_exists=True),
        ),
        ("SET a.b-c.d=10 s", Set("", 1, "a.b-c.d", "10 s")),
        ("SET table.local-time-zone = Asia/Shanghai", Set("", 1, "table.local-time-zone", "Asia/Shanghai")),
        ("set 'a.b' = true", Set("", 1, "a.b", "true")),
        ("SET a = 'b'", Set("", 1, "a", "b")),
        ("RESET a.b-c", Reset("", 1, "a.b-c")),
        ("RESET", Reset("", 1, None)),
        ("RESET 'a'", Reset("", 1, "a")),
        (QUERY, Query("", 1)),
        ("WITH x AS (SELECT 1) SELECT * FROM x", Query("", 1)),
        ("VALUES (1), (2)", Query("", 1)),
        ("(SELECT 1) UNION ALL (SELECT 2)", Query("", 1)),
        ("EXECUTE SELECT 1", Query("", 1)),
        ("INSERT INTO t " + QUERY, InsertInto("", 1, ("t",), None, QUERY, {})),
        (
            "EXECUTE INSERT INTO a.t (x, `y`) VALUES (1, 2)",
            InsertInto("", 1, ("a", "t"), ("x", "y"), "VALUES (1, 2)", {}),
        ),
        ("INSERT INTO t (SELECT 1)", InsertInto("", 1, ("t",), None, "(SELECT 1)", {})),
        ("INSERT INTO t ((SELECT 1))", InsertInto("", 1, ("t",), None, "((SELECT 1))", {})),
        (
            "INSERT INTO t /*+ OPTIONS('a'='b', 'c'='d') */ (x) SELECT 1",
            InsertInto("", 1, ("t",), ("x",), "SELECT 1", {"a": "b", "c": "d"}),
        ),
    ],
)
def test_every_statement(text: str, expected: Statement) -> None:
    """In any case of its keywords, with its text and its line."""
    assert parse_statement(text) == replace(expected, text=text)
    assert parse_script(f"\n {text} -- done\n ; ") == [replace(expected, text=text, line=2)]


def test_queries_keep_a_hint_at_their_end() -> None:
    """But no comment."""
    text = "SELECT * FROM t /*+ OPTIONS('a'='b') */"
    assert parse_statement(f"{text} -- all\n;").text == text


@pytest.mark.parametrize(
    "text",
    [
        "EXECUTE STATEMENT SET BEGIN\nINSERT INTO a SELECT 1;\nINSERT INTO b SELECT CASE WHEN x THEN 1 END;\nEND",
        "BEGIN STATEMENT SET;\nINSERT INTO a SELECT 1;\nINSERT INTO b SELECT CASE WHEN x THEN 1 END;\nEND",
        "STATEMENT SET BEGIN\nINSERT INTO a SELECT 1;\nINSERT INTO b SELECT CASE WHEN x THEN 1 END; END",
    ],
)
def test_statement_sets(text: str) -> None:
    """Both of Flink's spellings, over several `;`."""
    first, found, last = parse_script(f"SELECT 0;\n{text};\nSELECT 2")
    assert isinstance(found, StatementSet)
    assert (found.text, found.line) == (text, 2)
    assert [(i.text, i.query, i.line) for i in found.inserts] == [
        ("INSERT INTO a SELECT 1", "SELECT 1", 3),
        ("INSERT INTO b SELECT CASE WHEN x THEN 1 END", "SELECT CASE WHEN x THEN 1 END", 4),
    ]
    assert (first.text, last.text) == ("SELECT 0", "SELECT 2")
    assert parse_statement(text) == replace(
        found, line=1, inserts=tuple(replace(i, line=i.line - 1) for i in found.inserts)
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("EXPLAIN SELECT 1", Query),
        ("EXPLAIN PLAN FOR INSERT INTO t SELECT 1", InsertInto),
        ("EXPLAIN ESTIMATED_COST, changelog_mode SELECT 1", Query),
        ("EXPLAIN STATEMENT SET BEGIN INSERT INTO t SELECT 1; END", StatementSet),
    ],
)
def test_explain(text: str, kind: type[Statement]) -> None:
    """Of a query, an insert or a statement set."""
    found = parse_statement(text)
    assert isinstance(found, Explain)
    assert isinstance(found.statement, kind)
    assert found.text == text
    assert text.endswith(found.statement.text)


@pytest.mark.parametrize("jar", ["'/lib/flink-sql-connector-kafka.jar'", "/lib/kafka.jar"])
def test_add_jar_is_accepted(jar: str) -> None:
    """Scripts begin with it, and it changes nothing: what a JAR is for is refused where it is used."""
    add, query = parse_script(f"ADD JAR {jar};\nSELECT 1;")
    assert isinstance(add, AddJar)
    assert isinstance(query, Query)
    assert "Expected the JAR file" in str(fault("ADD JAR"))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("CREATE CATALOG c WITH ('type' = 'jdbc')", "Catalogs are not supported"),
        ("DROP DATABASE d", "Catalogs are not supported"),
        ("SHOW TABLES FROM d", "Catalogs are not supported"),
        ("CREATE FUNCTION f AS 'x.Y'", "spark.udf.register"),
        ("CREATE TEMPORARY SYSTEM FUNCTION f AS 'x.Y'", "spark.udf.register"),
        ("SHOW USER FUNCTIONS", "spark.udf.register"),
        ("REMOVE JAR 'x.jar'", "pip"),
        ("LOAD MODULE hive", "Modules are not supported"),
        ("STOP JOB 'x'", "query.stop()"),
        ("ALTER TABLE t RENAME TO u", "DROP it"),
        ("CREATE OR REPLACE TABLE t (a INT)", "DROP it"),
        ("DELETE FROM t", "upsert-kafka"),
        ("COMPILE PLAN 'x' FOR INSERT INTO t SELECT 1", "plans"),
        ("SHOW COLUMNS FROM t", "DESCRIBE"),
        ("ANALYZE TABLE t COMPUTE STATISTICS", "no statistics"),
        ("INSERT OVERWRITE t SELECT 1", "write INSERT INTO"),
        ("INSERT OVERWRITE t PARTITION (a = 1) SELECT 1", "overwrite=True"),
        ("INSERT INTO t PARTITION (a = 1) SELECT 1", "select the values of partition columns with the others"),
        ("EXECUTE STATEMENT SET BEGIN INSERT OVERWRITE t SELECT 1; END", "write INSERT INTO"),
    ],
)
def test_what_is_not_supported_says_what_to_do(text: str, what: str) -> None:
    """With its place."""
    error = fault(f"SELECT 1;\n{text}")
    assert what in str(error)
    assert error.line == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("FOO", "Expected a statement"),
        ("CRAETE TABLE t (a INT)", "did you mean CREATE?"),
        ("SELCT 1", "did you mean SELECT?"),
        ("INSRET INTO t SELECT 1", "did you mean INSERT?"),
        ("'SELECT 1'", "Expected a statement"),
        ("CREATE INDEX i", "Expected TABLE or VIEW"),
        ("CREATE VIEW v AS 1", "Expected a query"),
        ("CREATE VIEW v (a, a) AS SELECT 1, 2", "'a' is listed twice"),
        ("CREATE VIEW v SELECT 1", "Expected 'AS'"),
        ("DROP t", "Expected TABLE or VIEW"),
        ("DROP TABLE t CASCADE", "the end of the statement"),
        ("SHOW", "Expected TABLES, VIEWS"),
        ("SHOW CREATE t", "Expected TABLE or VIEW"),
        ("SHOW TABLES LIKE t", "in 'single quotes'"),
        ("SHOW TABLES NOT 'a'", "Expected 'LIKE'"),
        ("SET a b = c", "Expected the key, such as 'pipeline.name'"),
        ("SET = b", "Expected the key, such as 'pipeline.name'"),
        ("SET a =", "Expected the value"),
        ("SET a = file:///tmp/x;", "Put this value in 'single quotes'"),
        ("SET a = b\nCREATE TABLE t (a INT);", "and a ';' after it"),
        ("SET 'a'", "Expected '='"),
        ("SET 'a' = 'b' 'c'", "the end of the statement"),
        ("RESET a b", "Expected the key"),
        ("INSERT t SELECT 1", "Expected 'INTO'"),
        ("INSERT INTO t", "Expected a query"),
        ("INSERT INTO t (a)", "Expected a query, such as SELECT, found the end"),
        ("INSERT INTO t (a, a) SELECT 1", "twice"),
        ("INSERT INTO t (1) SELECT 1", "a column's name"),
        ("INSERT INTO t /*+ BROADCAST(a) */ SELECT 1", "the only hint for a table is OPTIONS('key' = 'value')"),
        ("INSERT INTO t /*+ OPTIONS('a'='b'), x */ SELECT 1", "the end of the hint"),
        ("EXPLAIN DROP TABLE t", "INSERT INTO or a query"),
        ("EXPLAIN EXPLAIN SELECT 1", "INSERT INTO or a query"),
        ("EXECUTE DROP TABLE t", "INSERT INTO or a query"),
        ("BEGIN STATEMENT SET", "Add END;"),
        ("BEGIN STATEMENT SET; END", "empty"),
        ("BEGIN STATEMENT SET; SELECT 1; END", "Expected INSERT INTO or END"),
        ("BEGIN STATEMENT SET; INSERT INTO t SELECT 1", "Add END;"),
        ("EXECUTE STATEMENT SET INSERT INTO t SELECT 1", "Expected 'BEGIN'"),
        ("BEGIN STATEMENT SET; INSERT INTO t SELECT 1; END x", "the end of the statement"),
        ("END", "Expected a statement"),
    ],
)
def test_wrong_statements_are_errors(text: str, what: str) -> None:
    """With what was expected."""
    assert what in str(fault(text))


def test_one_statement_is_one_statement() -> None:
    """No more, and no less."""
    assert parse_statement(" SELECT 1 ;; ").text == "SELECT 1"
    with pytest.raises(SqlError, match="Line 2, column 2: Expected one statement, found another"):
        parse_statement("SELECT 1;\n SELECT 2")
    with pytest.raises(SqlError, match="Expected a statement, found none"):
        parse_statement(" -- nothing")

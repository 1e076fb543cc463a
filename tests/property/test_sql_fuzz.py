"""Any text is a script or has a fault at a place; and a table printed is the same table when read again."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dynamic_kafka.errors import SqlError
from dynamic_kafka.sql.parser.parse import parse_script, parse_statement
from dynamic_kafka.sql.parser.statements import CreateTable, Statement
from dynamic_kafka.sql.tables.definition import (
    Column,
    ComputedColumn,
    MetadataColumn,
    PhysicalColumn,
    TableDefinition,
    Watermark,
    with_key_not_null,
)
from dynamic_kafka.sql.tables.types import FlinkType, RowField, flink_type, spark_type

DOCUMENTED = (Path(__file__).parents[1] / "fixtures" / "flink_tables.sql").read_text()
EVERYTHING = """
CREATE TEMPORARY TABLE IF NOT EXISTS c.d.`t` (
  id BIGINT PRIMARY KEY NOT ENFORCED COMMENT 'id',
  r ROW<a INT NOT NULL COMMENT 'x', b ARRAY<MAP<STRING NOT NULL, BYTES>>, c DECIMAL(10, 2) MULTISET> NOT NULL,
  ts TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL COMMENT 'c', total AS f(a, b[1]) COMMENT 'it''s',
  WATERMARK FOR ts AS ts - INTERVAL '1 02:03:04.5' DAY TO SECOND
) COMMENT 'x' WITH ('a' = 'b', 'c.password' = 'd') LIKE base (EXCLUDING ALL OVERWRITING OPTIONS);
EXECUTE STATEMENT SET BEGIN INSERT INTO a /*+ OPTIONS('a'='b') */ (x, y) SELECT 1, 2; INSERT INTO b VALUES (1); END;
EXPLAIN CHANGELOG_MODE SELECT * FROM t /*+ OPTIONS('a'='b') */; CREATE VIEW v (a) AS SELECT 1; DROP VIEW IF EXISTS v;
SET 'a' = 'b'; RESET; SHOW TABLES LIKE 'a%'; SHOW CREATE TABLE t; DESC EXTENDED t; BEGIN STATEMENT SET; END
"""
SIGNS = r"""
( ) < > [ ] { } , ; . = - + * : / ? @ # $ \ ' " ` % & | ! ~ ^ -- // /* */ /*+ {# #} {{ }} {% %} '' `` <> => :: || ->
1 1.5 .5 1e5 0x1F 9999999999999 é 'a' 'it''s' 'x.password' 'p' `a` "d" N'a' x'ab' U&'a' a b ts 99 '5' 'a'='b'
"""
WORDS = """
USE CATALOG PARTITIONED DISTRIBUTED BY CONSTRAINT UNIQUE ENFORCED RAW STRUCTURED LOCAL ZONE WITHOUT YEAR MONTH UPSERT
OVERWRITE PARTITION REPLACE ALTER ADD JAR CALL SOURCE_WATERMARK DOUBLE PRECISION VARYING GENERATED
"""
BLANKS = ["\n", "\r", "\r\n", "\t", "\x00", "\u2028", "\u202e"]
VOCABULARY = [*SIGNS.split(), *WORDS.split(), *BLANKS, *sorted(set(re.split(r"[\s(),]+", EVERYTHING)))]

soups = st.lists(st.sampled_from(VOCABULARY), max_size=40).flatmap(
    lambda words: st.sampled_from([" ", "", "\n"]).map(lambda between: between.join(words))
)


@st.composite
def mutants(draw: st.DrawFn) -> str:
    """Documented statements with parts taken out, doubled, moved or overwritten."""
    text = draw(st.sampled_from([*DOCUMENTED.split(";\n"), *EVERYTHING.split(";\n"), EVERYTHING]))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        piece = draw(st.sampled_from(["", text[start:end] * 2]) | st.sampled_from(VOCABULARY) | st.text(max_size=3))
        text = text[:start] + piece + text[end:]
    return text


def parse_or_fault(text: str) -> list[Statement] | SqlError:
    """The script, or its fault, which is at a place in the text and fits on two lines below the message."""
    try:
        return parse_script(text)
    except SqlError as error:
        found = error
    lines = text.split("\n")
    assert 1 <= found.line <= len(lines)
    assert 1 <= found.column <= len(lines[found.line - 1]) + 1
    assert str(found).startswith(f"Line {found.line}, column {found.column}: ")
    assert str(found).splitlines()[1:] == found.excerpt.splitlines() or found.excerpt.startswith("\n")
    assert str(found).count("\n") == 2
    return found


@settings(max_examples=3 * settings().max_examples)
@given(soups | mutants() | st.text(max_size=60))
@example("`" * 3)
@example("CREATE TABLE t (a " + "ROW<a " * 2000)
@example("CREATE TABLE t (a AS " + "(" * 5000)
@example("CREATE TABLE t (ts TIMESTAMP, WATERMARK FOR ts AS " + "(" * 5000)
@example("EXPLAIN " * 3000 + "EXECUTE " * 3000)
def test_any_text_is_a_script_or_has_a_fault_at_a_place(text: str) -> None:
    """No other error comes out; what is understood keeps its text, prints, and means something to Spark."""
    found = parse_or_fault(text)
    if isinstance(found, SqlError):
        return
    lines = text.split("\n")
    for statement in found:
        assert "\n".join(lines[statement.line - 1 :]).lstrip(" \t;").find(statement.text.split("\n")[0]) >= 0
        assert parse_statement(statement.text) is not None
        if isinstance(statement, CreateTable):
            definition = statement.definition
            for column in definition.columns:
                if not isinstance(column, ComputedColumn):
                    spark_type(column.type)
            if statement.like is None:
                again = parse_statement(definition.ddl())
                assert isinstance(again, CreateTable)
                assert again.definition == replace(definition, options=again.definition.options)
                assert again.definition.options.keys() == definition.options.keys()


@settings(max_examples=2 * settings().max_examples)
@given(
    st.text("'\",;)(=\\ -/*", max_size=5),
    st.text("'\",;)( \\-/*", max_size=5),
    st.sampled_from(
        ["'{}'", '"{}"', "{}", "'m required password=\"{}\";'", "'m required username='u' password='{}';'"]
    ),
    st.sampled_from(["", " x", ", 'a' = b", " 'a' = 'b'", ",\n 'a' == 'b'"]),
    st.sampled_from(["CREATE TABLE t (a INT) WITH ({})", "SET {}", "SELECT 1 FROM t /*+ OPTIONS({}) */; '"]),
)
def test_a_secret_is_never_shown(before: str, after: str, quoting: str, fault: str, statement: str) -> None:
    """Whatever quotes and signs it has around it, and whatever is wrong behind it."""
    option = f"'properties.sasl.jaas.config' = {quoting.format(before + 'hunter2' + after)}{fault}"
    found = parse_or_fault(statement.format(option))
    assert "hunter2" not in (str(found) if isinstance(found, SqlError) else repr(found))


# --- printed and read again -----------------------------------------------------------------------------------------

names = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n"), min_size=1, max_size=6
) | st.sampled_from(["a", "A", "timestamp", "`", "PRIMARY", "it's", "a.b", "--", "/*"])
texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)
comments = st.none() | texts
nullability = st.booleans()


def _types(inner: st.SearchStrategy[FlinkType]) -> st.SearchStrategy[FlinkType]:
    rows = st.lists(st.builds(RowField, names, inner, comments), max_size=3, unique_by=lambda f: f.name).map(tuple)
    return st.one_of(
        st.builds(
            FlinkType, st.sampled_from(["ARRAY", "MULTISET"]), st.just(()), st.tuples(inner), st.just(()), nullability
        ),
        st.builds(FlinkType, st.just("MAP"), st.just(()), st.tuples(inner, inner), st.just(()), nullability),
        st.builds(FlinkType, st.just("ROW"), st.just(()), st.just(()), rows, nullability),
    )


def _plain(name: str, *parameters: int) -> st.SearchStrategy[FlinkType]:
    return st.builds(FlinkType, st.just(name), st.just(parameters), st.just(()), st.just(()), nullability)


types = st.recursive(
    st.one_of(
        *map(_plain, ["BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "STRING", "BYTES"]),
        *map(_plain, ["VARIANT", "INTERVAL YEAR(4) TO MONTH", "INTERVAL DAY TO SECOND(3)", "INTERVAL SECOND(2, 3)"]),
        *(_plain(name, 3) for name in ("CHAR", "VARCHAR", "BINARY", "VARBINARY", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")),
        _plain("DECIMAL", 10, 2),
    ),
    _types,
    max_leaves=5,
)
expressions = st.sampled_from(
    ["a + 1", "PROCTIME()", "f(a, ')')", "`x y`[1]", "CAST(a AS ROW<x INT, y INT>)", "a -- b\n+ c"]
)
columns: st.SearchStrategy[Column] = st.one_of(
    st.builds(PhysicalColumn, names, types, comments),
    st.builds(MetadataColumn, names, types, texts, st.booleans(), comments),
    st.builds(ComputedColumn, names, expressions, comments),
)


@st.composite
def definitions(draw: st.DrawFn) -> TableDefinition:
    """Tables with any columns, names and texts."""
    found = draw(st.lists(columns, min_size=1, max_size=5, unique_by=lambda c: c.name))
    physical = [c.name for c in found if isinstance(c, PhysicalColumn)]
    key = draw(st.lists(st.sampled_from(physical), unique=True)) if physical else []
    timed = next((c.name for c in found if isinstance(c, ComputedColumn)), None)
    quoted = "`" + (timed or "").replace("`", "``") + "`"
    watermark = Watermark(timed, f"{quoted} - INTERVAL '5' SECOND", "5 SECOND") if timed else None
    return with_key_not_null(
        TableDefinition(
            tuple(draw(st.lists(names, min_size=1, max_size=3))),
            tuple(found),
            tuple(key),
            watermark,
            {
                f"opt.{k}": v
                for k, v in draw(st.dictionaries(st.text("ab'\n`;", max_size=3), st.text("ab'\n`;"))).items()
            },
            draw(comments),
            temporary=draw(st.booleans()),
            if_not_exists=draw(st.booleans()),
        )
    )


@given(definitions())
def test_a_printed_table_is_the_same_table(definition: TableDefinition) -> None:
    """With any name, type, comment and option."""
    statement = parse_statement(definition.ddl())
    assert isinstance(statement, CreateTable)
    assert statement.definition == definition
    assert statement.definition.ddl() == definition.ddl()


@given(types)
def test_a_type_of_spark_has_a_type_of_flink_that_means_it(type_: FlinkType) -> None:
    """There and back, what Spark has of a type stays."""
    assert spark_type(_parsed(str(flink_type(spark_type(type_))))) == spark_type(type_)


def _parsed(text: str) -> FlinkType:
    statement = parse_statement(f"CREATE TABLE t (a {text})")
    assert isinstance(statement, CreateTable)
    (column,) = statement.definition.columns
    assert isinstance(column, PhysicalColumn)
    return column.type

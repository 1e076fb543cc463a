"""What the prompt of `dynamic-kafka sql` suggests: the text before the cursor in, candidates out."""

from __future__ import annotations

import pytest

from dynamic_kafka.cli.sql.completion import Known, candidates
from dynamic_kafka.cli.sql.vocabulary import table_options

KNOWN = Known(
    tables={"orders": ["id", "customer", "amount", "ts"], "Users": ["id", "name"]},
    options=table_options,
    settings={"execution.runtime-mode": ("streaming", "batch"), "pipeline.name": ()},
    functions=["COALESCE", "COUNT", "CURRENT_DATE"],
    jobs=["orders-copy"],
)
WITH = "CREATE TABLE t (id INT) WITH ("
KAFKA = f"{WITH}'connector' = 'kafka', "


def shown(text: str, after: str = "") -> list[str]:
    """What a menu shows behind a text."""
    return [candidate.shown for candidate in candidates(text, KNOWN, after)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["SELECT", "INSERT INTO", "CREATE TABLE"]),
        ("SHOW TABLES; ", ["SELECT", "INSERT INTO", "CREATE TABLE"]),
        ("-- a remark\n", ["SELECT"]),
        ("SHOW ", ["TABLES", "VIEWS", "CREATE TABLE", "CREATE VIEW", "JOBS"]),
        ("SHOW CREATE TABLE ", ["orders", "Users"]),
        ("DROP ", ["TABLE", "VIEW"]),
        ("DROP TABLE IF EXISTS ", ["orders", "Users"]),
        ("describe u", ["Users"]),
        ("INSERT ", ["INTO"]),
        ("insert into o", ["orders"]),
        ("STOP ", ["JOB"]),
        ("STOP JOB ", ["'orders-copy'"]),
        ("STOP JOB 'o", ["orders-copy"]),
        ("SET ", ["'execution.runtime-mode' = '"]),
        ("SET 'exe", ["execution.runtime-mode"]),
        ("SET 'execution.runtime-mode' = '", ["streaming", "batch"]),
        ("RESET 'pipe", ["pipeline.name"]),
        ("SELECT ", ["id", "customer", "amount", "ts", "name"]),
        ("SELECT * FROM ", ["orders", "Users"]),
        ("SELECT * FROM orders JOIN ", ["orders", "Users"]),
        ("SELECT * FROM TABLE(TUMBLE(TABLE ", ["orders", "Users"]),
        ("SELECT * FROM orders WHERE cu", ["customer"]),
        ("SELECT name FROM users AS u WHERE u.", ["id", "name"]),
        ("SELECT o.am", []),
        ("SELECT orders.am", ["amount"]),
        ("SELECT u.n FROM `orders` o, Users u WHERE o.c", ["customer"]),
        ("SELECT COU", ["COUNT("]),
        ("SELECT cou", ["count("]),
        ("SELECT id F", ["FROM", "FULL JOIN", "FALSE"]),
        ("SELECT id FROM orders gro", ["group by"]),
        ("SELECT 'a text", []),
        ("SELECT 1 -- a remark", []),
        ("SELECT 1 // a remark", []),
        ("SELECT 1 /* a remark", []),
        (r"SELECT U&'\zz' ", []),
        ("SELECT id FROM t WHERE id > 1", []),
        ("SELECT * FROM TABLE(CUM", ["CUMULATE(TABLE"]),
        ("SELECT current_d", ["current_date"]),
        ("SELECT * FROM orders FO", ["FOR SYSTEM_TIME AS OF"]),
        ("CREATE TABLE t (id ", ["STRING", "BIGINT"]),
        ("CREATE TABLE t (id BI", ["BIGINT"]),
        ("CREATE TABLE t (id BIGINT met", ["metadata from", "metadata virtual"]),
        ("CREATE TABLE t (id BIGINT, PRI", ["PRIMARY KEY ("]),
        ("CREATE TABLE t (id BIGINT) W", ["WITH ("]),
    ],
)
def test_what_comes_next(text: str, expected: list[str]) -> None:
    """The likely words first, in the case that the user writes in."""
    assert shown(text)[: len(expected)] == expected
    if not expected:
        assert shown(text) == []


@pytest.mark.parametrize("text", ["SELECT * FROM ord", "SELECT * FROM `ord", "SELECT * FROM t, ord"])
def test_a_name_that_is_no_word_is_in_backticks(text: str) -> None:
    """Those that the user has typed count, and those within the name are doubled."""
    found = candidates(text, Known(tables={"order `items`": []}))[0]
    assert text[: found.start] + found.text == text.rpartition("ord")[0].rstrip("`") + "`order ``items```"


def test_columns_are_those_of_the_tables_in_the_query() -> None:
    """Also of a table that is named behind the cursor; a statement behind it does not count."""
    assert shown("SELECT ", " FROM users") == ["id", "name"]
    assert shown("SELECT u.", " FROM users u; SELECT 1 FROM orders u") == ["id", "name"]
    assert shown("SELECT a FROM orders; SELECT ", " FROM users") == ["id", "name"]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (WITH, "'connector' = '"),
        (f"{WITH}'", "connector"),
        (f"{WITH}'connector' = '", "kafka"),
        (f"{WITH}'connector' = 'up", "upsert-kafka"),
        (f"{KAFKA}'scan.startup.m", "scan.startup.mode"),
        (f"{KAFKA}'scan.startup.mode' = 'ear", "earliest-offset"),
        (f"{KAFKA}'format' = 'js", "json"),
        (f"{KAFKA}'format' = 'json', 'json.ig", "json.ignore-parse-errors"),
        (f"{KAFKA}'format' = 'json', 'json.ignore-parse-errors' = '", "true"),
        (f"{KAFKA}'key.format' = 'csv', 'key.csv.n", "key.csv.null-literal"),
        (f"{KAFKA}'properties.sasl.j", "properties.sasl.jaas.config"),
        ("SELECT * FROM orders /*+ OPTIONS('scan.bounded.m", "scan.bounded.mode"),
    ],
)
def test_options_of_a_table_and_their_values(text: str, first: str) -> None:
    """Those of its formats among them."""
    assert shown(text)[0] == first


def test_options_that_do_not_fit_are_left_out() -> None:
    """Those of another connector or of DataFrames, and those that the table has."""
    assert "stream-ids" in shown(f"{WITH}'")
    kafka = shown(f"{KAFKA}'topic' = 'a', '")
    assert not {"stream-ids", "connector", "topic", "includeHeaders", "json.ignore-parse-errors"} & {*kafka}
    assert {"topic-pattern", "scan.bounded.mode", "sink.parallelism"} <= {*kafka}
    streams = shown(f"{WITH}'connector' = 'dynamic-kafka', '")
    assert "stream-ids" in streams
    assert "topic-pattern" not in streams
    assert "print-identifier" in shown(f"{WITH}'connector' = 'print', '")
    assert "topic" not in shown(f"{WITH}'connector' = 'print', '")


def test_what_a_candidate_takes_the_place_of() -> None:
    """The word that is being typed, or the inside of the string; an option brings its signs with it."""
    text = f"{KAFKA}'form"
    found = candidates(text, KNOWN)[0]
    assert text[: found.start] + found.text == f"{KAFKA}'format' = '"
    text = f"{KAFKA}'format' = 'js"
    found = candidates(text, KNOWN)[0]
    assert text[: found.start] + found.text == f"{KAFKA}'format' = 'json'"
    text = "SELECT cust"
    found = candidates(text, KNOWN)[0]
    assert text[: found.start] + found.text == "SELECT customer"


def test_any_beginning_of_a_statement_has_an_answer() -> None:
    """Also one that is cut within a string, a name or a comment."""
    query = "SELECT o.`id`, /* two */ COUNT(*) FROM `orders` AS o WHERE x[1] <> 'a;b'"
    text = f"{KAFKA}'topic' = 'it''s'); -- one;\n{query}; SET 'a' = 'b';"
    for end in range(len(text) + 1):
        for candidate in candidates(text[:end], KNOWN, text[end:]):
            assert 0 <= candidate.start <= end

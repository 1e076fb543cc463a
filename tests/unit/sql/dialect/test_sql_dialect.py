"""Queries of Flink as Spark's, without Spark: types come from a table of columns."""

from __future__ import annotations

import re

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dynamic_kafka.errors import SqlError
from dynamic_kafka.sql.dialect.functions.registry import REFUSED, RULES, SAME
from dynamic_kafka.sql.dialect.query import parse_query
from dynamic_kafka.sql.dialect.translate import translate, translate_expression
from dynamic_kafka.sql.errors.query import original_place
from dynamic_kafka.sql.errors.script import in_text

COLUMNS: dict[str, DataType] = {
    "i": IntegerType(),
    "l": LongType(),
    "d": DecimalType(10, 2),
    "x": DoubleType(),
    "f": FloatType(),
    "s": StringType(),
    "b": BooleanType(),
    "a": ArrayType(IntegerType()),
    "m": MapType(StringType(), IntegerType()),
    "ts": TimestampType(),
    "u": TimestampNTZType(),
    "day": DateType(),
}

TUMBLE = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY))"


def ask(sql: str) -> DataType | None:
    """The type of a column or of a whole number."""
    column = re.match(r"SELECT (?:\w\.)?(\w+) FROM", sql)
    if column and column[1] in COLUMNS:
        return COLUMNS[column[1]]
    if re.match(r"SELECT (coalesce\()?CAST\(NULL AS .*DECIMAL|SELECT (COALESCE\(|CASE WHEN b THEN )d", sql):
        return DecimalType(12, 2)
    if re.match(r"SELECT \d+\.\d+ ", sql):
        return DecimalType(2, 2)
    return IntegerType() if re.match(r"SELECT \d+ ", sql) else None


def spark(sql: str, zone: str = "UTC") -> str:
    """The query for Spark."""
    query = parse_query(sql)
    return translate(query, ask, zone=zone, views=dict.fromkeys(query.options, "t_with_options"))


def stream(sql: str, zone: str = "UTC") -> str:
    """The query of streams, in which `ts` and `u` are event times. Spark is asked for the time of each column once."""
    known: set[str] = set()

    def times_of(asked: str) -> list[tuple[str, str]]:
        assert asked not in known
        known.add(asked)
        one = re.match(r"SELECT (?:[os]\.)?(\w+) FROM", asked)
        return [(name, "event" if name in ("ts", "u") else "") for name in ([one[1]] if one else COLUMNS)]

    return translate(parse_query(sql), ask, zone=zone, views={}, times_of=times_of)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT  i,l FROM t -- a comment\nWHERE i > 1",
        "SELECT /*+ BROADCAST(u) */ * FROM t JOIN u USING (i)",
        "SELECT collect_list(i), transform(a, e -> e + 1) FROM t LATERAL VIEW explode(a) v AS w GROUP BY s",
        "SELECT date_trunc('DAY', ts), s RLIKE 'x+', i DIV 2 FROM t",
        "SELECT COALESCE(s, 'x'), UPPER(s), COUNT(DISTINCT i) FROM t GROUP BY ALL",
        "FROM t |> WHERE i > 1",
        "SELECT * FROM t PIVOT (SUM(x) FOR s IN ('a', 'b'))",
        "SELECT f > 0.1, f BETWEEN 0.1 AND 0.2, i + 1, x * 2 FROM t",
        "SELECT overlaps FROM t",
        "SELECT 1L, i::bigint FROM t",
        "SELECT window(ts, '1 minute').start, count(*) FROM t GROUP BY window(ts, '1 minute')",
    ],
)
def test_a_query_that_means_the_same_is_not_touched(sql: str) -> None:
    """Character by character, with its comments, also if only Spark knows its clauses."""
    assert spark(sql) == sql


@pytest.mark.parametrize("between", [", t b", " CROSS JOIN t b"])
def test_tables_joined_by_where_have_an_inner_join(between: str) -> None:
    """Spark's streams refuse a CROSS JOIN, and an inner join without a condition means the same."""
    where = " WHERE a.i = b.i"
    assert spark(f"SELECT a.i FROM t a{between}{where}") == f"SELECT a.i FROM t AS a INNER JOIN t AS b{where}"
    assert "INNER JOIN (SELECT i FROM t) AS b" in spark(f"SELECT a.i FROM t a{between[:-3]}(SELECT i FROM t) b{where}")


@pytest.mark.parametrize(
    "join", ["RIGHT JOIN t c ON b.i = c.i", "FULL JOIN t c ON b.i = c.i", "NATURAL JOIN t c", "JOIN t c USING (i)"]
)
def test_joins_that_a_comma_changes_are_refused(join: str) -> None:
    """Flink joins the table after the comma first, and Spark the one before it."""
    for tables in (
        "t a, t b",
        "t a, t b LEFT JOIN t d ON b.i = d.i",
        "t a JOIN t d ON a.i = d.i, t b",
        "t d, t a, t b",
    ):
        with pytest.raises(SqlError, match=r"are not known after a comma.*write these joins first"):
            spark(f"SELECT a.l FROM {tables} {join}")
    spark(f"SELECT a.l FROM t b {join}, t a")
    spark(f"SELECT a.l FROM t a CROSS JOIN t b {join}")
    spark(f"SELECT a.l FROM t a, (SELECT * FROM t b {join}) d")
    assert spark("SELECT a.l FROM t a, t b LEFT JOIN t c ON b.i = c.i").endswith(
        "INNER JOIN t AS b LEFT JOIN t AS c ON b.i = c.i"
    )


@pytest.mark.parametrize(
    ("flink", "expected"),
    [
        ("i / 2", "CAST((i DIV 2) AS INT)"),
        ("l / i", "(l DIV i)"),
        ("d / i", "(d / CAST(i AS DECIMAL(10,0)))"),
        ("d / 0.05", "(d / CAST(0.05 AS DECIMAL(3,2)))"),
        ("a[1]", "get(a, 1 - 1)"),
        ("ARRAY[1, i]", "array(1, i)"),
        ("MAP['k', i]", "map('k', i)"),
        (r"REGEXP(s, '\d')", r"rlike(s, '\\d')"),
        ("AVG(i)", "CAST((sum(i) DIV count(i)) AS INT)"),
        ("AVG(i) FILTER (WHERE i > 1)", "CAST((sum(i) FILTER(WHERE i > 1) DIV count(i) FILTER(WHERE i > 1)) AS INT)"),
        (
            "SUM(i) OVER (PARTITION BY s ORDER BY ts)",
            "CAST(sum(i) OVER (PARTITION BY s ORDER BY ts) AS INT)",
        ),
        ("SUM(i) OVER w", "CAST(sum(i) OVER w AS INT)"),
        ("LISTAGG(s)", "listagg(s, ',')"),
        ("LISTAGG(DISTINCT s)", "listagg(DISTINCT s, ',')"),
        ("LISTAGG(DISTINCT s, '|')", "listagg(DISTINCT s, '|')"),
        ("CAST(b AS STRING)", "upper(CAST(b AS STRING))"),
        ("CAST(s AS VARCHAR(3))", "left(CAST(s AS STRING), 3)"),
        ("TO_TIMESTAMP_LTZ(l, 3)", "timestamp_millis(l)"),
        ("s NOT LIKE 'a\\%'", "NOT s LIKE 'a\\\\%' ESCAPE '\x01'"),
        ("s SIMILAR TO '4[0-9]_|x%'", r"rlike(s, '\\A(?:4[0-9].|x(?s:.*))\\z')"),
        ("s NOT SIMILAR TO '[2,3]+'", r"NOT rlike(s, '\\A(?:[2,3]+)\\z')"),
        ("f = 0.1", "f = CAST(0.1 AS FLOAT)"),
        ("f IN (0.1, 2)", "f IN (CAST(0.1 AS FLOAT), 2)"),
        ("NULLIF(f, -0.1)", "nullif(f, CAST((-0.1) AS FLOAT))"),
        ("CAST(i AS VARCHAR)", "CAST(i AS STRING)"),
        ("CAST(s AS VARBINARY(3))", "left(CAST(s AS BINARY), 3)"),
        ("d / (1 + d)", "d / (CAST(1 AS DECIMAL(10,0)) + d)"),
        ("d * l", "d * CAST(l AS DECIMAL(19,0))"),
        ("i % d", "CAST(i AS DECIMAL(10,0)) % d"),
        ("1 - d", "CAST(1 AS DECIMAL(10,0)) - d"),
        ("LAST_VALUE(i) OVER (ORDER BY ts)", "last_value(i, true) OVER (ORDER BY ts)"),
        ("RAND_INTEGER(5 + 5)", "CAST(floor(rand() * (5 + 5)) AS INT)"),
        ("CAST(a AS ARRAY<ROW<orderId BIGINT>>)", "CAST(a AS ARRAY<STRUCT<`orderId`:BIGINT>>)"),
        ("transform(a, v -> v / 2)", "transform(a, v -> CAST((v DIV 2) AS INT))"),
        ("transform(a, v -> CAST(v AS INT) / 2)", "transform(a, v -> CAST((CAST(v AS INT) DIV 2) AS INT))"),
        ("AVG(x + i / 2)", None),
        ("TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP_NTZ '2024-01-01 00:00:00'"),
        ("TRIM(LEADING 'x' FROM s)", "trim(LEADING 'x' FROM s)"),
        ("POSITION('x' IN s)", "locate('x', s)"),
    ],
)
def test_an_expression_is_said_in_sparks_words(flink: str, expected: str | None) -> None:
    """And the column keeps a name."""
    found = spark(f"SELECT {flink} FROM t") if expected else spark("SELECT x + i / 2 FROM t")
    if expected is None:
        assert found == "SELECT x + CAST((i DIV 2) AS INT) AS `EXPR$0` FROM t"
    else:
        assert found.replace("s NOT LIKE", "NOT s LIKE") == f"SELECT {expected} AS `EXPR$0` FROM t"


@pytest.mark.parametrize(
    ("sql", "place", "problem"),
    [
        (
            "SELECT * FROM o JOIN c FOR SYSTEM_TIME AS OF o.ts ON o.i = c.i",
            "o.ts ON",
            "FOR SYSTEM_TIME AS OF. is not known here",
        ),
        (
            "SELECT * FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01 00:00:00'",
            "FOR SYSTEM_TIME",
            "in a join only",
        ),
        ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A))", "MATCH_RECOGNIZE", "no MATCH_RECOGNIZE"),
        (
            "SELECT * FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' HOUR, INTERVAL '3' HOUR))",
            "CUMULATE",
            "a multiple of its step",
        ),
        (
            "SELECT * FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '1' HOUR))",
            "CUMULATE",
            "more than 300 steps",
        ),
        ("SELECT i, COLLECT(s) FROM t", "COLLECT", "multisets"),
        ("SELECT FIRST_VALUE(s) FROM t", "FIRST_VALUE", "min_by"),
        ("SELECT DATE_FORMAT(ts, 'YYYY') FROM t", "'YYYY'", "letters Y"),
        ("SELECT i, CAST(ts AS STRING) FROM t", "ts AS", "DATE_FORMAT"),
        ("SELECT s SIMILAR TO 'a.b' FROM t", "s SIMILAR", "use REGEXP"),
        ("SELECT unknown / 2 FROM t", "unknown", "CAST it"),
        ("SELECT CAST(unknown AS STRING) AS unknown FROM t", "unknown", "CAST it"),
        (
            f"SELECT window_start FROM {TUMBLE} GROUP BY window_start, window_end, CUBE(s)",
            "window_start, window_end",
            "CUBE and ROLLUP over windows",
        ),
        ("SELECT day + INTERVAL '1' HOUR FROM t", "day", "stays a DATE|is a DATE"),
        ("SELECT SUBSTRING(s) FROM t", "SUBSTRING", "with 2 or 3 arguments, not with 1"),
        ("SELECT i / 2 FROM t WHERE (i = 1", "1", "cannot be parsed"),
        ("SELECT TUMBLE_START(ts, INTERVAL '1' MONTH) FROM t", "'1'", "interval of seconds"),
    ],
)
def test_what_spark_does_not_have_is_refused_at_its_place(sql: str, place: str, problem: str) -> None:
    """With the way to say it in Spark."""
    with pytest.raises(SqlError, match=problem) as found:
        spark(sql)
    assert abs(found.value.offset - sql.index(place)) <= (len(sql) if problem == "cannot be parsed" else 0)


@pytest.mark.parametrize(
    ("flink", "expected"),
    [
        ("l  * i", "l  * i"),
        ("TO_TIMESTAMP_LTZ(l, 3)", "timestamp_millis(l)"),
        ("PROCTIME()", "current_timestamp()"),
        ("FROM_UNIXTIME(l / 1000)", "date_format(timestamp_seconds((l DIV 1000)), 'yyyy-MM-dd HH:mm:ss')"),
        ("CAST(s AS BYTES)", "CAST(s AS BINARY)"),
    ],
)
def test_a_computed_column_is_translated_too(flink: str, expected: str) -> None:
    """The idioms of event time above all."""
    assert translate_expression(flink, lambda text: ask(f"SELECT {text} FROM t"), zone="UTC") == expected


def test_windows() -> None:
    """As tables and in GROUP BY; each query has them once."""
    tumble = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
    assert spark(f"SELECT window_start, COUNT(*) AS n FROM {tumble} GROUP BY window_start, window_end, s") == (
        "SELECT CAST(`__windowed`.__window.start AS TIMESTAMP_NTZ) AS `window_start`, COUNT(*) AS n FROM (SELECT *, "
        "window(ts, '60000000 microseconds') AS __window FROM t) AS `__windowed` GROUP BY `__windowed`.__window, s"
    )
    assert spark("SELECT COUNT(*) FROM t GROUP BY HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)") == (
        "SELECT COUNT(*) FROM t GROUP BY window(ts, '300000000 microseconds', '60000000 microseconds')"
    )
    assert "GROUP BY s, session_window(ts, '60000000 microseconds')" in spark(
        "SELECT COUNT(*) FROM t GROUP BY s, SESSION(ts, INTERVAL '1' MINUTE)"
    )
    session = "TABLE(SESSION(TABLE t PARTITION BY s, DESCRIPTOR(ts), INTERVAL '5' MINUTES))"
    assert "GROUP BY session_window(ts, '300000000 microseconds'), s" in spark(
        f"SELECT window_end, s, COUNT(*) FROM {session} GROUP BY window_start, window_end, s"
    )
    with pytest.raises(SqlError, match="PARTITION BY and GROUP BY have to be the same"):
        spark(f"SELECT window_end, COUNT(*) FROM {session} GROUP BY window_start, window_end")


@pytest.mark.parametrize(
    ("zone", "size", "offset_h"),
    [
        ("UTC", "'1' DAY", 0),
        ("Asia/Shanghai", "'1' DAY", 16),
        ("+02:00", "'1' DAY", 22),
        ("Asia/Shanghai", "'1' HOUR", 0),
    ],
)
def test_windows_begin_with_the_wall_clock(zone: str, size: str, offset_h: int) -> None:
    """As in Flink; Spark's begin with UTC's."""
    found = spark(f"SELECT COUNT(*) FROM t GROUP BY TUMBLE(ts, INTERVAL {size})", zone)
    offset = re.search(r"'(\d+) microseconds'\)", found) if found.count("microseconds") == 3 else None
    assert (int(offset[1]) // 3_600_000_000 if offset else 0) == offset_h


def test_windows_of_days_where_clocks_change() -> None:
    """Batches have them by the wall clock. In streams they are refused, and windows of minutes and hours are not."""
    zone = "America/Los_Angeles"
    days = "SELECT TUMBLE_ROWTIME(ts, INTERVAL '1' DAY) AS last FROM t GROUP BY TUMBLE(ts, INTERVAL '1' DAY)"
    window = "window(CAST(ts AS TIMESTAMP_NTZ), '86400000000 microseconds')"
    assert spark(days, zone) == (
        f"SELECT CAST(({window}.end - INTERVAL '0.001' SECOND) AS TIMESTAMP) AS last FROM t GROUP BY {window}"
    )
    with pytest.raises(SqlError, match=zone):
        stream(days, zone)
    assert "NTZ" not in stream(days.replace("DAY", "HOUR"), zone)


@pytest.mark.parametrize(
    "expression",
    [
        "DATE_FORMAT(u, 'HH:mm')",
        *(f"FLOOR(u TO {unit})" for unit in ("SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "QUARTER", "YEAR")),
        "TO_TIMESTAMP(s, 'dd.MM.yyyy HH:mm')",
        "TO_DATE(s, 'dd.MM.yyyy')",
        "CONVERT_TZ(s, 'UTC', 'Europe/Berlin')",
        *(f"TIMESTAMPDIFF({unit}, u, u)" for unit in ("SECOND", "DAY", "MONTH", "YEAR")),
        *(f"TIMESTAMPADD({unit}, 1, u)" for unit in ("SECOND", "DAY", "MONTH")),
        "EXTRACT(HOUR FROM u)",
        "u + INTERVAL '1' DAY",
    ],
)
def test_what_is_done_with_a_wall_time_is_the_same_in_each_zone(expression: str) -> None:
    """None of Spark's functions that read it in the session's time zone is used, and none of its guards."""
    found = spark(f"SELECT {expression} AS x FROM t", "Europe/Berlin")
    assert found == spark(f"SELECT {expression} AS x FROM t", "UTC")
    assert not re.search(r"date_format|date_trunc|CAST\(u AS TIMESTAMP\)", found)


def test_options_in_a_hint_are_those_of_a_view() -> None:
    """Under the table's own name, or its alias."""
    hint = "/*+ OPTIONS('scan.startup.mode' = 'earliest-offset') */"
    query = parse_query(f"SELECT * FROM t {hint} WHERE i > 1")
    assert list(query.options.values()) == [{"scan.startup.mode": "earliest-offset"}]
    assert spark(f"SELECT t.i FROM t {hint}") == "SELECT t.i FROM `t_with_options` AS `t`"
    assert spark(f"SELECT o.i FROM t {hint} AS o") == "SELECT o.i FROM `t_with_options` AS o"


def test_values_are_a_query() -> None:
    """Also with calls and operators in them, which are translated."""
    assert spark("VALUES (1, 'a'), (2, 'b')") == "VALUES (1, 'a'), (2, 'b')"
    assert spark("VALUES (7 / 2, 'a')") == (
        "SELECT * FROM (SELECT /*+ COALESCE(1) */ * FROM (SELECT CAST((7 DIV 2) AS INT) AS col1, 'a' AS col2))"
    )


def test_fetch_next_is_limit() -> None:
    """And Spark wants it before the OFFSET."""
    assert spark("SELECT i FROM t OFFSET 1 ROWS FETCH NEXT 2 ROWS ONLY") == "SELECT i FROM t LIMIT 2 OFFSET 1"


def test_flinks_names_of_the_only_catalog_and_database_are_left_out() -> None:
    """Spark has no such place; others are Spark's own."""
    assert spark("SELECT i FROM default_catalog.`default_database`.t AS o") == "SELECT i FROM t AS o"
    assert spark("SELECT i FROM default_database.t") == "SELECT i FROM t"
    assert spark("SELECT i FROM other.t") == "SELECT i FROM other.t"


def test_what_only_spark_knows_is_not_taken_if_a_word_of_it_means_something_else() -> None:
    """A clause that nobody here understands may hold anything."""
    with pytest.raises(SqlError, match="cannot be parsed"):
        parse_query("SELECT * FROM t ?? NOT KNOWN AVG(i) ??")


def test_an_error_is_shown_in_the_text_around_the_query() -> None:
    """A statement, or a script."""
    query = "SELECT COLLECT(s)\nFROM t"
    with pytest.raises(SqlError) as found:
        spark(query)
    moved = in_text(found.value, f"-- first\nINSERT INTO u\n{query};")
    assert (moved.line, moved.column) == (3, 8)
    assert moved.excerpt == "SELECT COLLECT(s)\n       ^"


def test_a_place_in_the_translation_is_one_in_the_query() -> None:
    """Where Spark finds a fault."""
    query = "SELECT a[1], i / 2 FROM t WHERE missing = 1"
    translated = "SELECT get(a, 1 - 1) AS `EXPR$0`, CAST((i DIV 2) AS INT) AS `EXPR$1` FROM t WHERE missing = 1"
    assert original_place(query, translated, translated.index("missing")) == query.index("missing")
    assert original_place("SELECT 1, x::INT", "SELECT 1, CAST(y)", 10) == 10  # behind the comma


def test_each_function_has_one_verdict() -> None:
    """The same, another text, or an error."""
    assert not RULES.keys() & REFUSED.keys()
    assert not SAME & (RULES.keys() | REFUSED.keys())


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT split(s, ',', 2) FROM t", "SPLIT is known with 2 arguments, not with 3"),
        ("SELECT regexp_replace(s, 'a', '$', 5) FROM t", "known with 3 arguments"),
        ("SELECT sum(i, 2) FROM t", "SUM is known with 1 argument,"),
        ("SELECT avg(i, 3) FROM t", "AVG is known with 1 argument,"),
        ("SELECT to_timestamp(s, 'yyyy', 'x') FROM t", "known with 1 or 2 arguments"),
        ("SELECT TRIM('ab', s) FROM t", "BTRIM"),
        ("SELECT a[0] FROM t", "from 1 on"),
        ("SELECT a[-1] FROM t", "from 1 on"),
        ("SELECT TIMESTAMP_LTZ '2024-01-01 00:00:00' FROM t", "TIMESTAMPLTZ is not known"),
        ('SELECT "i" FROM t', 'does not have "double quotes"'),
        ("SELECT i FROM t WHERE \"s\" = 'x'", 'does not have "double quotes"'),
        ("SELECT CASE f WHEN 0.1 THEN 1 END FROM t", "as a FLOAT"),
        ("SELECT d / COALESCE(d, l) FROM t", "BIGINT beside a DECIMAL"),
        ("SELECT d / CASE WHEN b THEN d ELSE l END FROM t", "BIGINT beside a DECIMAL"),
        ("SELECT LAST_VALUE(i, 2) OVER (ORDER BY ts) FROM t", "known with 1 argument"),
        ("SELECT CAST(ts AS STRING) FROM t", "as many digits"),
        ("SELECT i FROM t, LATERAL TABLE(f(s)) AS v(a)", "LATERAL f(x) AS t(a)"),
        ("SELECT (u, u) OVERLAPS (u, u) FROM t", "OVERLAPS"),
        (
            "SELECT i FROM TABLE(SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY)) GROUP BY window_start, window_end, i",
            "PARTITION BY and GROUP BY",
        ),
    ],
)
def test_no_argument_and_no_meaning_is_dropped_in_silence(sql: str, problem: str) -> None:
    """What would be another number, text or row is refused by its name."""
    with pytest.raises(SqlError, match=re.escape(problem)):
        spark(sql)


@pytest.mark.parametrize(
    ("flink", "expected"),
    [
        ("SELECT i FROM t // of Flink", "SELECT i FROM t"),
        ("SELECT /*+ STATE_TTL('t' = '1d') */ i FROM t", "SELECT i FROM t"),
        ("SELECT /*+ LOOKUP('table'='t', 'retry-predicate'='x') */ i FROM t", "SELECT i FROM t"),
        ("SELECT u + INTERVAL '180' DAY(3) FROM t", "SELECT u + INTERVAL '180' DAY FROM t"),
        (
            "SELECT u + INTERVAL '1 02:03:04.5' DAY(3) TO SECOND(1) FROM t",
            "SELECT u + INTERVAL '1 02:03:04.5' DAY TO SECOND FROM t",
        ),
        ("SELECT 'http://x' FROM t -- http://y", "SELECT 'http://x' FROM t"),
    ],
)
def test_what_only_flink_reads_is_left_out(flink: str, expected: str) -> None:
    """Its `//` comments, its hints about state, and digits of intervals."""
    assert " ".join(spark(flink).split("-- ")[0].split()) == expected


def test_each_rule_stands_beside_an_operator() -> None:
    """An argument that is a sum stays together, and so does what the rule writes."""
    for name, rule in RULES.items():
        if not isinstance(rule.spark, str) or "{0}" not in rule.spark:
            continue
        number = len(set(re.findall(r"(?<!\{)\{(\d)\}", rule.spark)))
        text = spark(f"SELECT {name}({', '.join(['i + 1'] * number)}) FROM t")
        assert text.count("i + 1") == text.count("(i + 1)") + text.count("(i + 1,") + text.count(" i + 1)"), name
        assert re.match(r"SELECT (CASE .* END|\w+\(.*\)) AS `EXPR\$0` FROM t$", text), text
    logarithm = spark("SELECT LOG(i + 1, x) FROM t")
    assert re.match(r"SELECT \(\(CASE .* END\) / \(CASE .*\(i \+ 1\).* END\)\) AS", logarithm)


def test_windows_of_windows_have_their_event_time() -> None:
    """In a stream, Spark knows it by the windows, not by their last moment."""
    window = "(ts, INTERVAL '1' MINUTE)"
    inner = f"SELECT TUMBLE_ROWTIME{window} AS r, SUM(l) AS l FROM t GROUP BY TUMBLE{window}"
    outer = f"TABLE(TUMBLE(({inner}), DESCRIPTOR(r), INTERVAL '1' HOUR))"
    text = stream(f"SELECT window_start, SUM(l) FROM {outer} GROUP BY window_start, window_end")
    assert "AS r, SUM(l) AS l, window(ts, '60000000 microseconds') AS __window FROM t" in text
    assert "SELECT * EXCEPT (__window), window(__window, '3600000000 microseconds') AS __window FROM (SELECT" in text


def extracted(pattern: str, group: int) -> str:
    """The query that extracts a group."""
    return f"SELECT REGEXP_EXTRACT(s, '{pattern}', {group}) FROM t"


@pytest.mark.parametrize(
    ("pattern", "group"),
    [(r"(&|^)id=([^&]*)", 2), (r"(a|b)c", 1), (r"(?<n>a)(b)", 2), (r"[(|](a)\|", 1), (r"(?:a|b)(c){2}", 1)],
)
def test_a_group_of_a_pattern_that_takes_part_in_each_match_is_extracted(pattern: str, group: int) -> None:
    """Alternatives elsewhere do not matter."""
    assert f", {group}) END" in spark(extracted(pattern, group))


@pytest.mark.parametrize(
    ("pattern", "group"),
    [
        (r"(a)|b", 1),
        (r"(a(b)|c)", 2),
        (r"(a(b))*", 2),
        (r"(?:a|(b))", 1),
        (r"(?!(a))b", 1),
        (r"(a){0,2}", 1),
        (r"(a)", 2),
    ],
)
def test_a_group_that_may_take_no_part_is_refused(pattern: str, group: int) -> None:
    """It is NULL in Flink then, and an empty text in Spark."""
    with pytest.raises(SqlError, match="may take no part"):
        spark(extracted(pattern, group))


def test_the_windows_of_cumulate_are_those_of_hop_that_end_in_the_period() -> None:
    """They begin with the period; Spark's event time is that of HOP."""
    cumulate = "TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY))"
    text = spark(f"SELECT window_start, COUNT(*) FROM {cumulate} GROUP BY window_start, window_end", "Asia/Kolkata")
    assert "window(ts, '86400000000 microseconds', '86400000000 microseconds', '66600000000 microseconds')" in text
    assert "window(ts, '86400000000 microseconds', '3600000000 microseconds', '1800000000 microseconds')" in text
    assert "WHERE __window.end <= __period.end" in text
    assert text.endswith("GROUP BY `__windowed`.__window, `__windowed`.__begin")
    assert text.startswith("SELECT `__windowed`.__begin AS `window_start`")


@pytest.mark.parametrize("time", ["TABLE(TUMBLE(TABLE t, DESCRIPTOR({}), INTERVAL '1' DAY))", "t"])
def test_windows_over_a_time_without_a_zone_are_not_shifted(time: str) -> None:
    """Only those of TIMESTAMP_LTZ begin with the wall clock of the session's time zone."""

    def query(column: str) -> str:
        by = "window_start, window_end" if "TABLE" in time else f"TUMBLE({column}, INTERVAL '1' DAY)"
        return spark(f"SELECT COUNT(*) FROM {time.format(column)} GROUP BY {by}", "Asia/Shanghai")

    assert "window(u, '86400000000 microseconds')" in query("u")
    assert "window(ts, '86400000000 microseconds', '86400000000 microseconds', '57600000000 microseconds')" in query(
        "ts"
    )


def test_a_time_with_known_digits_becomes_a_text() -> None:
    """With all of them, as in Flink; UNIX_TIMESTAMP reads no fraction."""
    assert "23, '0')" in spark("SELECT CAST(CAST(u AS TIMESTAMP(3)) AS STRING) FROM t")
    assert "left(CAST(" in spark("SELECT CAST(CAST(u AS TIMESTAMP(0)) AS STRING) FROM t")
    assert "left(CAST(ts AS STRING), 19)" in spark("SELECT UNIX_TIMESTAMP(CAST(ts AS STRING)) FROM t")


def test_a_number_in_json_may_be_cast() -> None:
    """One with a fraction, too, for which JSON_VALUE alone has no text."""
    for target in ("DOUBLE", "INT"):
        assert "'double'" in spark(f"SELECT CAST(JSON_VALUE(s, '$.price') AS {target}) FROM t")


def test_a_field_of_a_row_by_its_name() -> None:
    """In brackets, as by its number."""
    row = StructType([StructField("city", StringType()), StructField("zip", IntegerType())])

    def of_row(text: str) -> DataType | None:
        return row if text == "r" else ask(f"SELECT {text} FROM t")

    assert translate_expression("r['city']", of_row, zone="UTC") == "(r).`city`"
    assert translate_expression("r[2]", of_row, zone="UTC") == "(r).`zip`"
    with pytest.raises(SqlError, match="no such field, but city, zip"):
        translate_expression("r['town']", of_row, zone="UTC")


def test_rows_of_values_with_calls_are_selects() -> None:
    """Spark's VALUES has no calls of functions such as those that TO_TIMESTAMP becomes."""
    assert spark("SELECT * FROM (VALUES (1, LN(2.5)), (2, 'x')) AS t(a, b)").startswith(
        "SELECT * FROM (SELECT /*+ COALESCE(1) */ * FROM (SELECT 1 AS col1, CASE"
    )
    text = spark("VALUES (1, ARRAY[2]), (3, ARRAY[4])")
    assert text == (
        "SELECT * FROM (SELECT /*+ COALESCE(1) */ * FROM "
        "(SELECT 1 AS col1, array(2) AS col2 UNION ALL SELECT 3 AS col1, array(4) AS col2))"
    )
    assert spark(r"VALUES (1, '\d')") == r"SELECT * FROM VALUES (1, '\\d')"


def test_characters_by_their_numbers() -> None:
    """Spark gets the characters."""
    assert spark(r"SELECT SPLIT(s, U&'\007C') FROM t") == spark("SELECT SPLIT(s, '|') FROM t")


def test_windows_of_a_sub_query_are_grouped_again() -> None:
    """By the columns with their bounds, under any name: Spark knows their time only by the windows themselves."""
    hop = "TABLE(HOP(TABLE t, DESCRIPTOR(u), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
    counts = (
        f"SELECT i, COUNT(*) AS n, window_start AS a, window_end AS b FROM {hop} GROUP BY i, window_start, window_end"
    )
    text = spark(f"SELECT MAX(c.n) AS m, c.a, b FROM ({counts}) AS c GROUP BY c.a, c.b")
    assert text.startswith(
        "SELECT MAX(c.n) AS m, CAST(__window.start AS TIMESTAMP_NTZ) AS `a`, CAST(__window.end AS TIMESTAMP_NTZ) AS `b` FROM"
    )
    assert text.endswith("`__windowed`.__window) AS c GROUP BY __window")
    assert "`__windowed`.__window AS __window FROM" in text
    assert " __window" not in spark(f"SELECT MAX(c.n) AS m, i FROM ({counts}) AS c GROUP BY c.i").partition("AS c")[2]
    session = counts.replace(hop, "t").replace("window_start AS a, window_end AS b", "SESSION_START(u, x) AS a, 1 AS b")
    session = session.replace("window_start, window_end", "SESSION(u, x)").replace("x)", "INTERVAL '5' MINUTE)")
    with pytest.raises(SqlError, match="GROUP BY the end of a session, too"):
        spark(f"SELECT MAX(c.n) AS m, c.a FROM ({session}) AS c GROUP BY c.a")


@pytest.mark.parametrize(
    ("side", "kept", "limits"),
    [
        ("LEFT", ["o"], ["s.u <= `o`"]),
        ("RIGHT", ["s"], ["o.u <= `s`"]),
        ("FULL", ["o", "s"], ["s.u <= `o`", "o.u <= `s`"]),
    ],
)
def test_spark_sees_the_limit_in_time_of_an_outer_join(side: str, kept: list[str], limits: list[str]) -> None:
    """It looks for one that is not hidden in its own casts. No column of it is seen in a `*`."""
    hour = "INTERVAL '1' HOUR"
    text = stream(f"SELECT *, s.* FROM t o {side} JOIN t s ON o.i = s.i AND s.u BETWEEN o.u AND o.u + {hour}")
    assert text.startswith(f"SELECT * EXCEPT ({', '.join(f'`{name}`.__forever' for name in kept)}), ")
    assert ("s.* FROM" in text) == ("s" not in kept)
    assert ("`s`.* EXCEPT (__forever) FROM" in text) == ("s" in kept)
    assert all(f"AND {limit}.__forever" in text for limit in limits)
    assert text.count("__forever FROM t AS") == text.count("<= `") == len(kept)
    of_three = stream(
        f"SELECT o.i FROM t AS p JOIN t o ON p.i = o.i {side} JOIN t s ON s.u BETWEEN o.u AND o.u + {hour}"
    )
    assert of_three.count("<= `") == len(kept)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("s.ts <= o.until", "s.ts <= least(o.until, o.until)"),
        ("s.ts BETWEEN o.ts AND o.until", "s.ts BETWEEN o.ts AND least(o.until, o.until)"),
        ("o.until > s.ts - INTERVAL '1' HOUR", "least(o.until, o.until) > s.ts - INTERVAL '1' HOUR"),
        ("s.ts <= o.m['x']", "s.ts <= least(o.m['x'], o.m['x'])"),
        ("s.ts <= o.ts + INTERVAL '4' HOUR", "s.ts <= o.ts + INTERVAL '4' HOUR"),
        (
            "s.until <= o.until AND s.ts > TIMESTAMP '2024-01-01 00:00:00'",
            "s.until <= o.until AND s.ts > TIMESTAMP_NTZ",
        ),
    ],
)
def test_only_event_times_are_limits_of_event_times(condition: str, expected: str) -> None:
    """Of a stream, Spark would delete rows by any other column that is compared with an event time."""
    query = f"SELECT o.i FROM t o JOIN t s ON o.i = s.i WHERE {condition}"
    assert expected in stream(query)
    assert "least" not in spark(query)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("o.i > 3", "least(o.i, o.i) > 3"),
        ("NOT o.i + 1 <= 3", "NOT least(o.i, o.i) + 1 <= 3"),
        ("o.ts > TIMESTAMP '1970-01-01 00:00:01'", "least(o.ts, o.ts) > TIMESTAMP_NTZ"),
    ],
)
def test_a_condition_of_an_outer_join_on_one_side_is_no_limit(condition: str, expected: str) -> None:
    """Spark would keep rows of a stream by it for ever, and never return those without a partner. In WHERE, it filters."""
    hour = "INTERVAL '1' HOUR"
    query = f"SELECT o.i FROM t o {{}} JOIN t s ON s.ts BETWEEN o.ts AND o.ts + {hour} AND {condition}"
    for side in ("LEFT", "RIGHT", "FULL"):
        assert expected in stream(query.format(side))
        assert "s.ts BETWEEN o.ts AND o.ts + " in stream(query.format(side))
        assert "least" not in spark(query.format(side))
    assert "least" not in stream(f"SELECT o.i FROM t o WHERE {condition}")


PLAIN = "(SELECT * EXCEPT (`ts`, `u`), least(`ts`, `ts`) AS `ts`, least(`u`, `u`) AS `u` FROM t AS {0}) AS `{0}`"


@pytest.mark.parametrize(
    "condition",
    [
        "o.i = s.i",
        "o.i = s.i AND s.ts >= o.ts",
        "o.i = s.i AND s.ts BETWEEN o.ts AND o.until",
        "o.i = s.i AND (s.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR OR o.b)",
        "o.i = s.i AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '1' MONTH",
    ],
)
def test_a_join_without_limits_in_time_takes_late_rows(condition: str) -> None:
    """As a regular join of Flink: Spark would drop late rows, and give its rows to windows as if they were in order."""
    for query in (f"t o JOIN t s ON {condition}", f"t o, t s WHERE {condition}"):
        text = stream(f"SELECT o.i FROM {query}")
        assert PLAIN.format("o") in text
        assert PLAIN.format("s") in text
    text = stream(f"SELECT *, o.i AS j FROM t o JOIN t s ON {condition}")
    assert text.count("`f` AS `f`, `s` AS `s`, `b` AS `b`, `a` AS `a`, `m` AS `m`, least(`ts`, `ts`) AS `ts`, ") == 2
    assert "least(`" not in spark(f"SELECT o.i FROM t o JOIN t s ON {condition}")


@pytest.mark.parametrize(
    "condition",
    [
        "o.i = s.i AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR",
        "o.i = s.i AND s.ts >= o.ts - INTERVAL '1' HOUR AND o.ts + INTERVAL '5' MINUTE > s.ts AND o.x < s.x",
        "o.i = s.i AND o.ts = s.ts",
    ],
)
def test_an_interval_join_keeps_its_event_times(condition: str) -> None:
    """A join after it has them, too; one table that is joined without a limit has none."""
    text = stream(f"SELECT o.i FROM t o JOIN t s ON {condition} JOIN t p ON p.i = s.i")
    assert "FROM t AS o JOIN t AS s ON" in text
    assert PLAIN.format("p") in text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT ts, COUNT(*) FROM t GROUP BY ts", PLAIN.replace("t AS {0}", "t").format("t")),
        ("SELECT DISTINCT ts FROM t o", PLAIN.format("o")),
        ("SELECT ts FROM t UNION SELECT u FROM t", " FROM (SELECT u FROM t) AS __part(__c0, "),
        ("SELECT i, COUNT(*) FROM t GROUP BY i", "SELECT i, COUNT(*) FROM t GROUP BY i"),
        ("SELECT ts FROM t UNION ALL SELECT u FROM t", "SELECT ts FROM t UNION ALL SELECT u FROM t"),
    ],
)
def test_an_aggregation_by_an_event_time_takes_late_rows(query: str, expected: str) -> None:
    """As in Flink, where only windows of time drop them."""
    assert expected in stream(query)


def test_a_union_has_an_event_time_if_all_of_its_parts_have_it() -> None:
    """Otherwise, Spark would drop rows of one part by the watermark of another."""

    def times_of(asked: str) -> list[tuple[str, str]]:
        return [("i", ""), ("ts", "event" if "FROM t" in asked else "")] if "FROM v" not in asked else []

    def union(other: str) -> str:
        query = parse_query(f"SELECT i, ts FROM t UNION ALL SELECT i, ts FROM {other}")
        return translate(query, ask, zone="UTC", views={}, times_of=times_of)

    part = "SELECT __c0 AS `i`, {} AS `ts` FROM (SELECT i, ts FROM {}) AS __part(__c0, __c1)"
    assert union("x") == f"{part.format('least(__c1, __c1)', 't')} UNION ALL {part.format('__c1', 'x')}"
    assert "least" not in union("t")


HOURS = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
SAME_WINDOW = "l.i = r.i AND l.window_start = r.window_start AND r.window_end = l.window_end"


@pytest.mark.parametrize(
    "side",
    [
        HOURS,
        f"(SELECT * FROM {HOURS})",
        f"(SELECT i, window_start, window_end FROM {HOURS})",
        f"(SELECT x.i, x.window_start, x.e AS window_end FROM (SELECT *, window_end AS e FROM {HOURS}) x)",
        f"(SELECT i, COUNT(*) AS n, window_start, window_end FROM {HOURS} GROUP BY i, window_start, window_end)",
        """(SELECT i, TUMBLE_START(ts, INTERVAL '1' HOUR) AS window_start, TUMBLE_END(ts, INTERVAL '1' HOUR) AS window_end
        FROM t GROUP BY i, TUMBLE(ts, INTERVAL '1' HOUR))""",
        f"""(SELECT MAX(n) AS i, s AS window_start, e AS window_end FROM (SELECT i, COUNT(*) AS n, window_start AS s,
        window_end AS e FROM {HOURS} GROUP BY i, window_start, window_end) GROUP BY s, e)""",
    ],
)
def test_a_join_of_windows_compares_the_windows_themselves(side: str) -> None:
    """Spark deletes the rows of past windows then, and a `*` does not show the windows."""
    for kind in ("", "LEFT "):
        text = stream(f"SELECT l.i FROM {side} l {kind}JOIN {HOURS} r ON {SAME_WINDOW}")
        assert text.endswith(") AND `l`.__window = `r`.__window")
        assert text.count("least(`ts`, `ts`) AS `ts`") == 2
    text = stream(f"SELECT *, l.i AS j FROM {side} l JOIN {HOURS} r ON {SAME_WINDOW}")
    assert text.startswith("SELECT * EXCEPT (`l`.__window, `r`.__window), ")
    assert stream(f"SELECT R.* FROM {side} l JOIN {HOURS} r ON {SAME_WINDOW}").startswith(
        "SELECT `R`.* EXCEPT (__window)"
    )
    assert "= `r`.__window" not in spark(f"SELECT l.i FROM {side} l JOIN {HOURS} r ON {SAME_WINDOW}")
    assert "= `r`.__window" not in stream(f"SELECT l.i FROM {side} l JOIN {HOURS} r ON {SAME_WINDOW}", "Europe/Berlin")


@pytest.mark.parametrize(
    ("side", "condition"),
    [
        (HOURS.replace("TUMBLE(", "CUMULATE(").replace("'1' HOUR", "'1' HOUR, INTERVAL '2' HOUR"), SAME_WINDOW),
        (HOURS, "l.window_start = r.window_start"),
        (HOURS, "l.window_start = r.window_start AND l.window_end = r.window_start"),
        (HOURS, "l.window_start = r.window_start OR l.window_end = r.window_end"),
        ("(SELECT i, ts AS window_start, u AS window_end FROM t)", SAME_WINDOW),
        ("(SELECT window_start, window_end, i FROM t GROUP BY window_start, window_end, i)", SAME_WINDOW),
        (f"(SELECT DISTINCT window_start, window_end, i FROM {HOURS})", SAME_WINDOW),
        (HOURS, f"{SAME_WINDOW} JOIN t c ON c.i = l.i"),
    ],
)
def test_other_joins_have_no_windows(side: str, condition: str) -> None:
    """Of CUMULATE, of one bound, of columns with these names, and of three tables."""
    assert "= `r`.__window" not in stream(f"SELECT l.i FROM {side} l JOIN {HOURS} r ON {condition}")


def test_the_parts_of_a_union_read_the_tables_of_its_with() -> None:
    """The event times of the parts are looked at, not those of the whole, which has the WITH."""
    query = "WITH c AS (SELECT ts, i FROM t) SELECT ts, i FROM c UNION{} SELECT ts, i FROM c"
    assert stream(query.format(" ALL")) == query.format(" ALL")
    text = stream(query.format(""))
    assert text.startswith("WITH c AS (SELECT ts, i FROM t) SELECT ")
    assert text.count("FROM (SELECT ts, i FROM c) AS __part(") == 2


def test_grouping_sets_over_windows_of_a_stream_are_an_error() -> None:
    """Spark would not know the windows: it would keep them for ever, and count late rows."""
    query = f"SELECT window_end, i, COUNT(*) FROM {TUMBLE} GROUP BY GROUPING SETS ((window_end, i), (window_end))"
    with pytest.raises(SqlError, match="GROUPING SETS, CUBE and ROLLUP over windows are not known"):
        stream(query)
    assert spark(query).endswith("GROUP BY GROUPING SETS ((window_end, i), (window_end))")
    assert "GROUPING SETS" in stream("SELECT i, l FROM t GROUP BY GROUPING SETS ((i, l), (i))")


@pytest.mark.parametrize(
    ("query", "again"),
    [
        ("t o FULL JOIN t s ON o.i = s.i AND s.u BETWEEN o.u AND o.u + INTERVAL '1' HOUR", "o.i = s.i"),
        ("t o JOIN t s ON NULLIF(o.x, 1) = NULLIF(s.x, 1)", "NULLIF(o.x, 1) = NULLIF(s.x, 1)"),
        ("t o, t s WHERE o.i + 1 = s.i", "o.i + 1 = s.i"),
    ],
)
def test_null_is_not_equal_to_null_in_a_join_of_streams(query: str, again: str) -> None:
    """Where Spark does not leave out such rows before the join, it finds NULL equal to NULL."""
    assert stream(f"SELECT o.i FROM {query}").endswith(f" AND least({again}, {again})")
    assert "least(o.i = s.i" not in stream("SELECT o.i FROM t o JOIN t s ON o.i = s.i")


@pytest.mark.parametrize(
    ("side", "known"), [("LEFT", ["o.ts"]), ("RIGHT", ["s.ts"]), ("FULL", ["o.ts", "s.ts"]), ("INNER", [])]
)
def test_an_outer_join_returns_the_rows_without_a_time(side: str, known: list[str]) -> None:
    """Spark would wait for the time of their partners, which have none."""
    query = f"SELECT o.i FROM t o {side} JOIN t s ON o.i = s.i AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR"
    assert re.findall(r"NOT (\S+) IS NULL", stream(query)) == known
    assert "IS NULL" not in spark(query)


def test_other_joins_stay_as_they_are() -> None:
    """Inner ones, those by a TIMESTAMP_LTZ, those without an interval, and those without a limit in time that Spark sees."""
    for join in (
        "JOIN t s ON s.u <= o.u + INTERVAL '4' HOUR",
        "LEFT JOIN t s ON s.ts <= o.ts + INTERVAL '4' HOUR",
        "LEFT JOIN t s ON s.u <= o.u",
        "LEFT JOIN t s ON s.u >= o.u + INTERVAL '4' HOUR",
        "LEFT JOIN t s ON s.u BETWEEN o.u AND o.until + INTERVAL '4' HOUR",
        "LEFT JOIN t s ON s.u BETWEEN o.u AND o.u + INTERVAL '1' MONTH",
        "LEFT JOIN t s ON s.u + INTERVAL '4' HOUR < GREATEST(o.u, o.until)",
        "RIGHT JOIN t s ON s.u <= o.u + INTERVAL '4' HOUR",
        "FULL JOIN t s ON s.u <= o.u + INTERVAL '4' HOUR",
    ):
        assert "__forever" not in stream(f"SELECT o.i / 2 FROM t o {join}")

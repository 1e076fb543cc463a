"""How SQL text falls into tokens and statements, and how errors show the place without its secrets."""

from __future__ import annotations

import pytest
from tests.unit.sql.parser.test_sql_statements import fault

from dynamic_kafka.errors import SqlError
from dynamic_kafka.sql.parser.errors import sql_error
from dynamic_kafka.sql.parser.lexer import tokenize
from dynamic_kafka.sql.parser.parse import parse_script, parse_statement


def kinds(text: str) -> list[tuple[str, str]]:
    """Kind and text of each token but the last one."""
    return [(token.kind, token.text) for token in tokenize(text)[:-1]]


def said(text: str) -> str:
    """The error that a script has; "" if it has none."""
    try:
        parse_script(text)
    except SqlError as error:
        return str(error)
    return ""


def test_strings_have_no_escape_but_the_doubled_quote() -> None:
    """A backslash is a character like any other, as in Flink."""
    assert kinds(r"'it''s' '\' 'a\nb'") == [("string", "it's"), ("string", "\\"), ("string", r"a\nb")]


def test_characters_by_their_numbers() -> None:
    r"""`U&'\0001'`, with a backslash or what UESCAPE names. Scripts separate the columns of CSV by such characters."""
    assert kinds(r"U&'\0001' u&'a\00E9\\''b' U&'!0041!!' UESCAPE '!' U&'\D83D\DE00'") == [
        ("string", "\x01"),
        ("string", "aé\\'b"),
        ("string", "A!"),
        ("string", "😀"),
    ]
    assert "four hexadecimal digits" in str(fault(r"SELECT U&'\1'"))


def test_patterns_of_rows_are_refused_by_their_name() -> None:
    """Also if a sign in them is no sign of SQL, such as that of a repetition."""
    error = fault("SELECT * FROM t\nMATCH_RECOGNIZE (PATTERN (A{2}))")
    assert (error.line, error.column) == (2, 1)
    assert "Spark has no MATCH_RECOGNIZE" in str(error)


def test_names_stand_in_backticks() -> None:
    """With the doubled backtick as the only escape."""
    assert kinds("`a``b` `select;` $x a$b") == [
        ("name", "a`b"),
        ("name", "select;"),
        ("word", "$x"),
        ("word", "a$b"),
    ]


def test_no_word_is_special_to_the_tokenizer() -> None:
    """Keywords of several words and commands stay words, and operators single characters."""
    assert kinds("PRIMARY KEY SHOW TABLES ROW<>") == [
        *[("word", word) for word in ("PRIMARY", "KEY", "SHOW", "TABLES", "ROW")],
        ("symbol", "<"),
        ("symbol", ">"),
    ]


def test_comments_of_all_kinds_are_passed_over_and_do_not_nest() -> None:
    """`--`, `//` and `/* */`; the first `*/` ends a comment."""
    assert kinds("a -- ; '\n b // ` \n c /* /* \n */ d") == [("word", word) for word in "abcd"]


def test_hints_are_tokens() -> None:
    """What stands in a comment that starts with a plus sign has a meaning."""
    assert kinds("t /*+ OPTIONS('a'='b') */") == [("word", "t"), ("hint", " OPTIONS('a'='b') ")]


def test_tokens_know_their_place() -> None:
    """From the first character to after the last one, quotes included; the last token is the end."""
    source = "SELECT  'x''y' , `é`"
    tokens = tokenize(source)
    assert [source[t.start : t.end] for t in tokens] == ["SELECT", "'x''y'", ",", "`é`", ""]


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("SELECT 'abc", 8, "string is not closed"),
        ("SELECT `abc", 8, "name is not closed"),
        ('SELECT "abc', 8, "quote is not closed"),
        ("SELECT a /* b", 10, "comment is not closed"),
        ("SELECT a /*+ b", 10, "comment is not closed"),
        ("SELECT {# b #}", 8, "not understood"),
    ],
)
def test_what_is_not_closed_is_shown_where_it_opens(text: str, column: int, what: str) -> None:
    """Not at the end of the text."""
    error = fault(f"\n{text}")
    assert (error.line, error.column) == (2, column)
    assert what in str(error)


def test_statements_are_split_by_tokens() -> None:
    """A `;` in a string, a name or a comment ends no statement; empty statements are none."""
    script = "SELECT ';' ; -- a;\n;SELECT `;` /* ; */ , \";\"\n;"
    assert [(s.text, s.line) for s in parse_script(script)] == [
        ("SELECT ';'", 1),
        ('SELECT `;` /* ; */ , ";"', 2),
    ]
    assert parse_script(" -- nothing\n;") == []


def test_errors_show_the_line_and_the_place() -> None:
    """The first line stands alone: line, column, what is wrong, what to do; then the line itself and a caret."""
    error = fault("CREATE TABLE t (\n  a BIGNT,\n  b INT\n)")
    assert str(error) == "Line 2, column 5: 'BIGNT' is not a type of Flink; did you mean 'BIGINT'?\n  a BIGNT,\n    ^"
    assert (error.line, error.column, error.excerpt) == (2, 5, "  a BIGNT,\n    ^")


def test_positions_count_over_the_whole_script() -> None:
    """With any kind of line end, tabs and characters beyond ASCII."""
    error = fault("SELECT 'é\n' ;\r\n\tSELECT 1; DROP\tINDEX x")
    assert (error.line, error.column) == (3, 17)
    assert error.excerpt == " SELECT 1; DROP INDEX x\n" + " " * 16 + "^"


def test_long_lines_are_cut_around_the_place() -> None:
    """So that the caret can be seen."""
    error = fault(f"CREATE TABLE t ({', '.join(f'column_{i} INT' for i in range(99))}, x INTT, y INT)")
    line, caret = error.excerpt.split("\n")
    assert len(line) <= 120
    assert line[len(caret) - 1 :].startswith("INTT")


# --- secrets --------------------------------------------------------------------------------------------------------

JAAS = "'properties.sasl.jaas.config' = "


@pytest.mark.parametrize(
    "options",
    [
        f"{JAAS}'Module required password=\"hunter2\";' 'a' = 'b'",
        f"{JAAS}'Module required password=\"hunter2\";', 'a' = b",
        f"{JAAS}'Module required password='hunter2';', 'a' = 'b'",
        f"{JAAS}'Module required username='u' password='hunter2';'",
        f"{JAAS}'Module required\n username='u'\n password='hunter2';'",
        f'{JAAS}\'Module required password="hunter2";',
        f"{JAAS}hunter2",
        f'{JAAS}"hunter2"',
        f"{JAAS}=> 'hunter2' x",
        "'properties.sasl.password' 'hunter2'",
        "'properties.sasl.password' = /* at work */ 'hunter2' x",
        "'properties.ssl.key.password': 'hunter2'",
        "properties.sasl.password = 'hunter2'",
        '"properties.sasl.password" = "hunter2"',
        "'properties.sasl.password' = 'a'hunter2', 'b' = 'c'",
        "'properties.sasl.password' = 'a,'hunter2', 'b' = 'c'",
        "'properties.sasl.password' = 'a')hunter2', 'b' = 'c'",
        "'properties.sasl.password' = 'hun'ter2 hunter2",
        "'value.avro-confluent.basic-auth.user-info' = 'u:hunter2' x",
        "'url' = 'https://u:hunter2@host' x",
        "'properties.ssl.x' = '-----BEGIN PRIVATE KEY-----\nhunter2' x",
        "'my.client-secret' = 'hunter2' x",
        "'properties.sasl.password' = N'hunter2'",
        "'sasl.jass.config' = 'Module required password=\"hunter2\";' x",
    ],
)
def test_errors_show_no_secret(options: str) -> None:
    """Not even if a quote in it ends it too early, so that its tokens look like anything but a secret."""
    error = fault(f"CREATE TABLE t (a INT) WITH ({options}\n, ' = 1)")
    assert "hunter2" not in str(error)
    for text in (f"CREATE TABLE t (a INT) WITH (\n{options}\n)", f"SELECT 1 /*+ OPTIONS({options}) */ '"):
        with pytest.raises(SqlError) as caught:
            parse_script(text)
        assert "hunter2" not in str(caught.value)
    assert "hunter2" not in said(f"SET {options}")  # it takes values without quotes, so some of these are right


def test_what_is_no_secret_stays_visible_next_to_one() -> None:
    """Only the value is hidden, as long as it is certain where it ends, and the caret still points to the fault."""
    error = fault("CREATE TABLE t (a INT) WITH ('x.password' = 'p', 'topic' = 't' 'format' = 'json')")
    line, caret = error.excerpt.split("\n")
    assert line == "CREATE TABLE t (a INT) WITH ('x.password' = ***, 'topic' = 't' 'format' = 'json')"
    assert line[len(caret) - 1 :].startswith("'format'")


def test_columns_with_telling_names_stay_visible() -> None:
    """A column called `token` hides nothing."""
    error = fault("CREATE TABLE t (token STRING, password INTT)")
    assert error.excerpt.startswith("CREATE TABLE t (token STRING, password INTT)")


def test_a_place_within_a_secret_is_shown_as_the_secret() -> None:
    """The caret stands under the first star."""
    source = "'x.password' = 'abc\ndef'"
    assert sql_error(source, 18, "wrong").excerpt == "'x.password' = ***\n               ^"
    assert sql_error(source, 22, "wrong").excerpt == "***\n^"


def test_repr_shows_no_secret() -> None:
    """Neither the statement's text nor the values of options are in it."""
    for text in (
        "CREATE TABLE t (a INT) WITH ('x.password' = 'hunter2')",
        "SET 'x.password' = 'hunter2'",
        "INSERT INTO t /*+ OPTIONS('x.password' = 'hunter2') */ SELECT 1",
        "EXPLAIN SELECT * FROM t /*+ OPTIONS('x.password' = 'hunter2') */",
        "CREATE VIEW v AS SELECT * FROM t /*+ OPTIONS('x.password' = 'hunter2') */",
    ):
        statement = parse_statement(text)
        assert statement.text == text
        assert "hunter2" not in repr(statement)


def test_looking_for_secrets_is_quick() -> None:
    """Many comments, quotes and blanks where a value is expected do not make it slow."""
    for text in ("/**/ " * 2000, "'' " * 2000, " \n" * 2000, "'x.password' = " * 1000):
        assert fault(f"SET 'x.password' {text} x '").column


@pytest.mark.parametrize("quote", "\u2018\u2019\u201c\u201d\u201e\u00ab\u00b4\u2032\uff02")
def test_a_typographic_quote_is_called_one(quote: str) -> None:
    """Such as documents and chats make of a plain one. Inside a string it is a character like any other."""
    assert "This is a typographic quote" in fault(f"SET {quote}execution.runtime-mode{quote} = 'batch'").problem
    assert "single quotes" in fault(f"SELECT {quote}x{quote} FROM t").problem
    assert tokenize(f"'{quote}'")[0].text == quote

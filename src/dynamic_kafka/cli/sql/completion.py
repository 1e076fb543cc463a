"""What may come next in a statement: keywords, tables, columns, functions, options and their values. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from dynamic_kafka.formats.expressions import quoted
from dynamic_kafka.sql.parser.lexer import Token, scan

__all__ = ["Candidate", "Known", "candidates"]

Values = Mapping[str, Sequence[str]]
"""Names of options or settings, each with the values that are known for it."""


@dataclass(frozen=True)
class Known:
    """What a text can name. `options` returns those of a table, given the ones that it has already."""

    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    options: Callable[[Mapping[str, str]], Values] = lambda _: {}
    settings: Values = field(default_factory=dict)
    functions: Sequence[str] = ()
    jobs: Sequence[str] = ()


class Candidate(NamedTuple):
    """What the user may mean: its text takes the place of the text from `start` on, and a menu shows `shown`."""

    text: str
    start: int
    shown: str


_STATEMENTS = (
    *("SELECT", "INSERT INTO", "CREATE TABLE", "CREATE TEMPORARY VIEW", "CREATE VIEW", "DROP TABLE", "DROP VIEW"),
    *("SHOW TABLES", "SHOW VIEWS", "SHOW CREATE TABLE", "SHOW CREATE VIEW", "SHOW JOBS", "STOP JOB", "DESCRIBE"),
    *("EXPLAIN", "SET", "RESET", "EXECUTE STATEMENT SET BEGIN", "WITH", "VALUES", "HELP", "QUIT"),
)
_AFTER: Mapping[str, Sequence[str]] = {
    "SHOW": ("TABLES", "VIEWS", "CREATE TABLE", "CREATE VIEW", "JOBS"),
    "CREATE": ("TABLE", "TEMPORARY VIEW", "TEMPORARY TABLE", "VIEW"),
    "TEMPORARY": ("TABLE", "VIEW"),
    "DROP": ("TABLE", "VIEW", "TEMPORARY VIEW"),
    "INSERT": ("INTO",),
    "STOP": ("JOB",),
    "EXPLAIN": ("SELECT", "INSERT INTO"),
    "EXECUTE": ("STATEMENT SET BEGIN",),
    "BEGIN": ("INSERT INTO", "STATEMENT SET;"),
    "GROUP": ("BY",),
    "ORDER": ("BY",),
    "PRIMARY": ("KEY (",),
    "WATERMARK": ("FOR",),
}
_BEFORE_TABLE = {"FROM", "JOIN", "INTO", "DESCRIBE", "DESC", "TABLE", "VIEW", "LIKE"}
_BEFORE_COLUMN = {
    *("SELECT", "WHERE", "ON", "BY", "AND", "OR", "HAVING", "DISTINCT", "DESCRIPTOR", "WHEN", "THEN", "ELSE"),
}
_BEFORE_COLUMN |= {",", "(", "=", "<", ">", "+", "-", "*", "/", "%"}
_QUERY = (
    *("SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN"),
    *("RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "ON", "AS", "AND", "OR", "NOT", "IN", "IS NULL", "IS NOT NULL", "LIKE"),
    *("BETWEEN", "EXISTS", "CASE", "WHEN", "THEN", "ELSE", "END", "UNION ALL", "DESC", "ASC", "INTERVAL", "CAST("),
    *("EXTRACT(", "TUMBLE(TABLE", "HOP(TABLE", "CUMULATE(TABLE", "SESSION(TABLE", "DESCRIPTOR(", "SECOND", "MINUTE"),
    *("HOUR", "DAY", "TRUE", "FALSE", "NULL", "TIMESTAMP", "DATE", "UNNEST(", "TABLE(", "FOR SYSTEM_TIME AS OF"),
)
_WITHOUT_PARENTHESES = ("CURRENT_DATE", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP")
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TYPES = (
    *("STRING", "BIGINT", "INT", "DOUBLE", "FLOAT", "BOOLEAN", "DECIMAL(", "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", "DATE"),
    *("BYTES", "SMALLINT", "TINYINT", "VARCHAR(", "CHAR(", "ARRAY<", "MAP<", "ROW<"),
)
_OF_COLUMN = ("METADATA FROM", "METADATA VIRTUAL", "VIRTUAL", "NOT NULL", "AS", "COMMENT", "NOT ENFORCED")
_OF_TABLE = ("WATERMARK FOR", "PRIMARY KEY (")
_OF_STATEMENT = ("WITH (", "LIKE", "COMMENT", "SELECT", "VALUES", "IF NOT EXISTS", "IF EXISTS", "AS", "END;")


def candidates(text: str, known: Known, after: str = "") -> list[Candidate]:
    """Return what may be meant at the end of a text, likely ones first.

    The last statement before the cursor counts. What is `after` it may name a query's tables.
    """
    extended = text + "_"  # so the word that is typed has a character at least
    tokens, place = scan(extended, 0, len(extended))
    if extended.startswith("/*+", place):
        in_hint, place = scan(extended, place + len("/*+"), len(extended))
        tokens += in_hint
    tokens = _last_statement(tokens)
    if place < len(extended):
        values, wrap = _in_string(tokens, known) if text[place] == "'" else ((), "")
        if text[place] == "`":
            values = [quoted(name)[1:-1] for name in [*_columns(tokens, known, after), *known.tables]]
            wrap = "`"
        return _matching(values, text[place + 1 :], place=place + 1, wrap=wrap)
    if not tokens or tokens[-1].end <= len(text) or tokens[-1].kind != "word":  # in a comment or a number
        return []
    typed = tokens.pop().text[:-1]
    words = _words(tokens, known, typed, after)
    return _matching(words, typed, place=len(text) - len(typed))


# --- the text -----------------------------------------------------------------------------------------------------------


def _last_statement(tokens: list[Token]) -> list[Token]:
    ends = [i for i, token in enumerate(tokens) if token.word == ";"]
    return tokens[ends[-1] + 1 :] if ends else tokens


def _opening(tokens: Sequence[Token]) -> int | None:
    """Return the index of the parenthesis that is open at the end; None if there is none."""
    depth = 0
    for i in range(len(tokens) - 1, -1, -1):
        depth += (tokens[i].word == ")") - (tokens[i].word == "(")
        if depth < 0:
            return i
    return None


def _in_options(tokens: Sequence[Token]) -> int | None:
    """Return the index of the parenthesis of WITH or OPTIONS that is open at the end; None if there is none."""
    opening = _opening(tokens)
    return opening if opening and tokens[opening - 1].word in ("WITH", "OPTIONS") else None


# --- strings ------------------------------------------------------------------------------------------------------------


def _in_string(before: Sequence[Token], known: Known) -> tuple[Iterable[str], str]:
    """Return what is known of what a string behind these tokens may be, and what follows it."""
    last = before[-1].word if before else ""
    if last in ("SET", "RESET") and len(before) == 1:
        return known.settings, "' = '" if last == "SET" else "'"
    if len(before) == 3 and before[0].word == "SET" and last == "=":
        return known.settings.get(before[1].text, ()), "'"
    if [token.word for token in before] == ["STOP", "JOB"]:
        return known.jobs, "'"
    opening = _in_options(before)
    if opening is None:
        return (), ""
    given = _given(before[opening + 1 :])
    options = known.options(given)
    if last == "=":
        return options.get(before[-2].text, ()), "'"
    return [name for name in options if name not in given], "' = '"


def _given(tokens: Sequence[Token]) -> dict[str, str]:
    """Return the options that are complete."""
    triples = zip(tokens, tokens[1:], tokens[2:], strict=False)
    return {
        key.text: value.text for key, sign, value in triples if key.kind == value.kind == "string" and sign.word == "="
    }


# --- words --------------------------------------------------------------------------------------------------------------


def _words(tokens: Sequence[Token], known: Known, typed: str, after: str) -> Iterable[str]:
    """Return what a word behind these tokens may be, in order."""
    if not tokens:
        return _STATEMENTS
    first, last = tokens[0].word, tokens[-1].word
    if (opening := _in_options(tokens)) is not None:
        given = _given(tokens[opening + 1 :])
        if last not in ("(", ",") or typed:
            return ()
        return [f"'{name}' = '" for name in known.options(given) if name not in given]
    if last in ("SET", "RESET") and len(tokens) == 1:
        return [f"'{key}'" + (" = '" if last == "SET" else "") for key in known.settings]
    if [token.word for token in tokens] == ["STOP", "JOB"]:
        return [f"'{name}'" for name in known.jobs]
    if last in _AFTER and (len(tokens) == 1 or first not in ("SHOW", "DROP", "STOP") or last == "TEMPORARY"):
        return _AFTER[last]
    if last in _BEFORE_TABLE or (last == "EXISTS" and first == "DROP"):
        return map(_named, known.tables)
    if first in ("DROP", "DESCRIBE", "DESC", "SHOW", "STOP", "SET", "RESET"):
        return ("IF EXISTS",) if first == "DROP" else ()
    if first == "CREATE" and "VIEW" not in [token.word for token in tokens[:3]]:
        return _words_of_table(tokens, last, typed)
    if last == ".":
        return map(_named, _columns(tokens, known, after, only=tokens[-2].text if len(tokens) > 1 else ""))
    columns = [*map(_named, _columns(tokens, known, after))]
    if not typed:
        return columns if last in _BEFORE_COLUMN else ()
    return [
        *columns,
        *map(_named, known.tables),
        *_cased(typed, [*_QUERY, *map(_called, known.functions), *_OF_STATEMENT]),
    ]


def _words_of_table(tokens: Sequence[Token], last: str, typed: str) -> Iterable[str]:
    opening = _opening(tokens)
    if opening is None:
        return _cased(typed, _OF_STATEMENT) if typed or last == ")" else ()
    if last in ("(", ","):
        return _cased(typed, _OF_TABLE) if typed else ()  # the name of a column
    if tokens[-2].word in ("(", ","):
        return _cased(typed, (*_TYPES, "METADATA FROM", "AS"))
    return _cased(typed, (*_OF_COLUMN, *_TYPES)) if typed else _OF_COLUMN


def _columns(tokens: Sequence[Token], known: Known, after: str, only: str = "") -> list[str]:
    """Return the columns of a query's tables, or of `only` one or its alias; if it names none yet, those of all tables."""
    behind, _ = scan(after, 0, len(after))
    tables = {name.lower(): columns for name, columns in known.tables.items()}
    read: dict[str, Sequence[str]] = {}
    all_tokens = [*tokens, *takewhile(lambda token: token.word != ";", behind)]
    for i, token in enumerate(all_tokens[1:], 1):
        columns = tables.get(token.text.lower()) if token.kind in ("word", "name") else None
        if columns is None or all_tokens[i - 1].word not in {*_BEFORE_TABLE, ",", "."} - {"VIEW", "LIKE"}:
            continue
        read[token.text.lower()] = columns
        following = [t for t in all_tokens[i + 1 : i + 3] if t.word != "AS"]
        if following and following[0].kind in ("word", "name"):
            read[following[0].text.lower()] = columns
    if only:
        return list(read.get(only.lower(), tables.get(only.lower(), ())))
    return list(dict.fromkeys(name for columns in (read or tables).values() for name in columns))


def _called(function: str) -> str:
    return function if function in _WITHOUT_PARENTHESES else f"{function}("


def _named(name: str) -> str:
    """Return the name of a table or column as a statement has it."""
    return name if _PLAIN.fullmatch(name) else quoted(name)


def _cased(typed: str, words: Iterable[str]) -> list[str]:
    """Return keywords in the case that the user writes them in."""
    return [word.lower() if typed and typed == typed.lower() else word for word in words]


def _matching(words: Iterable[str], typed: str, *, place: int, wrap: str = "") -> list[Candidate]:
    """Return the words that begin with what was typed, in any case, each once."""
    lower = typed.lower()
    return [
        Candidate(f"{word}{wrap}", place, word)
        for word in dict.fromkeys(words)
        if word.lower().lstrip("`").startswith(lower) and (word.lower() != lower or wrap)
    ]

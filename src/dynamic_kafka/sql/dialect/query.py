"""Parsing a query, and the errors at its places.

Our own lexer reads the text first, because it knows Flink's strings and comments. Comments become blanks of the same length,
so each place in what sqlglot parses is the same place in the user's text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

from sqlglot import exp
from sqlglot.errors import SqlglotError

from dynamic_kafka.errors import SqlError
from dynamic_kafka.formats.expressions import quoted
from dynamic_kafka.sql.dialect.flink import WINDOW_TABLES, Flink
from dynamic_kafka.sql.dialect.functions.registry import REFUSED, RULES
from dynamic_kafka.sql.dialect.functions.rules import called
from dynamic_kafka.sql.parser.create_table import read_hint
from dynamic_kafka.sql.parser.errors import sql_error
from dynamic_kafka.sql.parser.lexer import DOUBLE_QUOTES, MATCH_RECOGNIZE, Token, tokenize
from dynamic_kafka.sql.tables.definition import Name
from dynamic_kafka.sql.tables.types import DAY_UNITS, YEAR_UNITS

__all__ = [
    "Query",
    "column_finder",
    "columns_of",
    "conditions",
    "is_as_long_at_any_time",
    "is_proctime",
    "is_temporal",
    "name_in",
    "parse_query",
    "part_of_with",
    "parts_of",
    "place_of",
    "query_error",
    "relations",
    "temporal_joins",
    "with_names",
]

T = TypeVar("T")

_CONSTRUCTS: Sequence[tuple[tuple[str, ...], str]] = (
    (("MATCH_RECOGNIZE", "("), MATCH_RECOGNIZE),
    (("BETWEEN", "SYMMETRIC"), "Spark has no BETWEEN SYMMETRIC: write x BETWEEN least(a, b) AND greatest(a, b)"),
    (
        ("LATERAL", "TABLE", "("),
        "Spark has no LATERAL TABLE(f(x)) AS t(a): register a table function with Spark, and write LATERAL f(x) AS t(a)",
    ),
    ((")", "OVERLAPS", "("), "Spark has no OVERLAPS: compare the ends of the two periods"),
    (("IS", "JSON"), "Spark has no IS JSON: use try_parse_json(x) IS NOT NULL"),
    (("IS", "NOT", "JSON"), "Spark has no IS NOT JSON: use try_parse_json(x) IS NULL"),
)
"""Constructs of Flink that are refused by their words."""
_FLINKS_HINT = re.compile(r"/\*\+\s*(?:(?:STATE_TTL|LOOKUP)\s*\([^()]*\)\s*,?\s*)+\*/", re.IGNORECASE)
"""Hints about how Flink keeps its state and looks rows up."""
_OPERATORS = frozenset(("CAST", "TRY_CAST", "LIKE", "AVG", *WINDOW_TABLES, *RULES, *REFUSED))
"""Words whose meaning differs from Spark's, or may."""


@dataclass(frozen=True)
class Query:
    """A query of Flink.

    Args:
        text: The text as written.
        tree: The parsed query. None for Spark's own syntax that sqlglot does not know, in which nothing means something else
            in Flink: Spark gets it as it is.
        options: The options of tables from hints, by the place of the table's name.
        plain: The text as Spark may get it: as written, or without what only Flink reads, such as `//` comments.
    """

    text: str
    tree: exp.Query | None
    options: Mapping[int, Mapping[str, str]]
    plain: str

    @cached_property
    def tables(self) -> Sequence[exp.Table]:
        """Return the names of tables and views in the query, without those that mean parts of its WITH."""
        found = () if self.tree is None else self.tree.find_all(exp.Table)
        return [table for table in found if isinstance(table.this, exp.Identifier) and part_of_with(table) is None]


@lru_cache(maxsize=64)  # several functions ask about the same query, and none of them changes the tree
def parse_query(text: str) -> Query:
    """Return a parsed query.

    Raises:
        SqlError: If it cannot be parsed, or contains a construct that Spark does not have.
    """
    tokens = tokenize(text)
    for words, problem in _CONSTRUCTS:
        for first in range(len(tokens) - len(words)):
            if all(map(Token.is_word, tokens[first : first + len(words)], words)):
                word = first + (words[0] == ")")
                raise query_error(text, tokens[word].start, problem)
    plain, options, foreign = _without_comments(text, tokens)
    for_spark = plain if foreign else text
    try:
        tree = _parse(plain)
    except SqlglotError as error:
        if _is_plain_spark(text, tokens):
            return Query(text, None, options, for_spark)
        raise query_error(text, *_problem(error, text)) from None
    _check_times(text, tokens, tree)
    if isinstance(tree, exp.Values):  # which sqlglot knows as a table only
        tree = exp.select("*").from_(tree)
    if not isinstance(tree, exp.Query):
        if _is_plain_spark(text, tokens):
            return Query(text, None, options, for_spark)
        raise query_error(text, 0, "This is not a query, such as SELECT")
    return Query(text, tree, options, for_spark)


def with_names(query: Query, names: Mapping[int, str]) -> str:
    """Return the text of a query with other names for tables, by the places of their names. They keep theirs as an alias."""
    text, end = "", 0
    known = {table.this.meta.get("start"): table for table in query.tables}
    for place in sorted(names):
        table = known[place]
        alias = "" if table.args.get("alias") else f" AS {quoted(table.name)}"
        begin = min(part.meta["start"] for part in table.parts)  # with the database before it
        text += f"{query.plain[end:begin]}{quoted(names[place])}{alias}"
        end = table.this.meta["end"] + 1
    return text + query.plain[end:]


def _check_times(text: str, tokens: Sequence[Token], tree: exp.Expr | None) -> None:
    """Raise if FOR SYSTEM_TIME AS OF is not part of a temporal join."""
    words = ("FOR", "SYSTEM_TIME", "AS", "OF")
    starts = [
        tokens[i].start
        for i in range(len(tokens) - len(words))
        if all(map(Token.is_word, tokens[i : i + len(words)], words))
    ]
    if starts and (tree is None or len(temporal_joins(tree)) < len(starts)):
        raise query_error(
            text,
            starts[0],
            "FOR SYSTEM_TIME AS OF is known in a join only, with a time of the other table: JOIN rates FOR SYSTEM_TIME AS "
            "OF o.ts AS r ON o.currency = r.currency. Spark reads old versions of its own tables: t TIMESTAMP AS OF '...'",
        )


def query_error(text: str, place: int, problem: str) -> SqlError:
    """Return the error at a place in a query. It keeps the query, so that a script can show its own line."""
    error = sql_error(text, place, problem)
    error.query, error.offset, error.problem = text, place, problem
    return error


def is_temporal(join: exp.Join) -> bool:
    """Return whether a join is temporal. Spark's own `TIMESTAMP AS OF` has a literal."""
    version = join.this.args.get("version") if isinstance(join.this, exp.Table) else None
    time = version.expression if isinstance(version, exp.Version) else None
    return time is not None and (isinstance(time, exp.Column) or is_proctime(time))


def temporal_joins(tree: exp.Expr) -> list[exp.Join]:
    """Return the temporal joins of a query."""
    return [join for join in tree.find_all(exp.Join) if is_temporal(join)]


def is_proctime(node: exp.Expr) -> bool:
    """Return whether an expression is PROCTIME()."""
    return called(node) == "PROCTIME"


def is_as_long_at_any_time(interval: exp.Interval) -> bool:
    """Return whether an interval has only units of DAY to SECOND."""
    words = re.findall(r"[A-Z]+", interval.unit.sql().upper()) if interval.unit is not None else ["?"]
    return {*DAY_UNITS, "TO"}.issuperset(words)


def place_of(node: exp.Expr) -> int:
    """Return the first place that is known of a part of a query."""
    places = [found.meta["start"] for found in node.walk() if "start" in found.meta]
    if not places and node.parent is not None:
        return place_of(node.parent)
    return min(places, default=0)


def parts_of(node: exp.Expr) -> set[str]:
    """Return which parts a node of the tree has, such as `where` of a SELECT."""
    return {part for part, value in node.args.items() if value}


def conditions(condition: exp.Expr | None) -> list[exp.Expr]:
    """Return the parts of a condition that all have to be true."""
    condition = condition.unnest() if condition is not None else None
    if isinstance(condition, exp.And):
        return [*conditions(condition.this), *conditions(condition.expression)]
    return [] if condition is None else [condition]


def relations(select: exp.Select) -> list[exp.Expr]:
    """Return the tables and sub-queries of a FROM, in order."""
    first = [select.args["from_"].this] if select.args.get("from_") else []
    return [*first, *(join.this for join in select.args.get("joins") or [])]


def column_finder(select: exp.Select, known: Callable[[exp.Expr], Mapping[str, T]]) -> Callable[[exp.Expr], T | None]:
    """Return a function that says what is known of a column in a SELECT, None for anything else.

    `known` returns what is known of the columns of one of its tables, by their names in lower case.
    """
    tables = [(relation.alias_or_name.lower(), known(relation)) for relation in relations(select)]

    def found(column: exp.Expr) -> T | None:
        if not isinstance(column, exp.Column):
            return None
        name, table = column.name.lower(), column.table.lower()
        return next((columns[name] for of, columns in tables if table in ("", of) and name in columns), None)

    return found


def columns_of(
    select: exp.Select,
    known: Callable[[exp.Expr], Mapping[str, T]],
    value: Callable[[exp.Expr], T | None] | None = None,
) -> list[tuple[str, T | None]]:
    """Return the columns of a SELECT in order: their names in lower case, and what is known of each.

    Args:
        select: The SELECT.
        known: As of `column_finder`. A `*` has all of these columns.
        value: Returns what is known of a part of the SELECT. By default, it is known of parts that are a column alone.
    """
    value = value or column_finder(select, known)
    columns: list[tuple[str, T | None]] = []
    for part in select.expressions:
        if not part.is_star:
            columns.append((part.alias_or_name.lower(), value(part.unalias())))
            continue
        star, table = (part.this, part.table.lower()) if isinstance(part, exp.Column) else (part, "")
        without = {column.name.lower() for column in star.args.get("except_") or ()}
        for relation in relations(select):
            if table in ("", relation.alias_or_name.lower()):
                columns += [(name, found) for name, found in known(relation).items() if name not in without]
    return columns


def name_in(table: exp.Table) -> Name:
    """Return the name of a table as a query has it."""
    return (*(table.args[part].name for part in ("catalog", "db") if table.args.get(part)), table.name)


def part_of_with(table: exp.Table) -> exp.CTE | None:
    """Return the part of a WITH that a table's name means."""
    if not isinstance(table.this, exp.Identifier) or table.args.get("db"):
        return None
    inside: exp.Expr = table
    parent = table.parent
    while parent is not None:
        with_ = parent.args.get("with_")
        if isinstance(with_, exp.With):
            before = with_.expressions
            if isinstance(inside, exp.With):  # only the parts before this one, and a recursive one itself
                own = table.find_ancestor(exp.CTE)
                while own is not None and own.parent is not with_:
                    own = own.find_ancestor(exp.CTE)
                place = next((i for i, cte in enumerate(before) if cte is own), 0)
                before = before[: place + bool(with_.args.get("recursive"))]
            for cte in before:
                if cte.alias.lower() == table.name.lower():
                    return cte  # type: ignore[no-any-return]
        inside, parent = parent, parent.parent
    return None


def _parse(text: str) -> exp.Expr | None:
    dialect = Flink()
    statements = dialect.parser().parse(dialect.tokenize(text), text)
    if len(statements) != 1:
        raise SqlglotError("Expected one query")
    return statements[0]


def _without_comments(text: str, tokens: Sequence[Token]) -> tuple[str, dict[int, Mapping[str, str]], bool]:
    """Return the text with blanks for comments, the options of its tables, and whether Spark could not read the text.

    Hints behind SELECT stay, but for those that Spark does not have.
    """
    foreign = False
    digits = _digits_of_intervals(tokens)
    options: dict[int, Mapping[str, str]] = {}
    parts, position = [], 0
    before: Token | None = None
    for i, token in enumerate(tokens):
        between = text[position : token.start]
        foreign |= "//" in between
        parts.append(re.sub(r"[^\r\n]", " ", between))
        of_token = text[token.start : token.end]
        if i in digits:
            foreign, of_token = True, " " * len(of_token)
        elif token.kind == "string" and not of_token.startswith("'"):  # U&'\0001'
            foreign, of_token = True, ("'" + token.text.replace("'", "''") + "'").ljust(len(of_token))
        elif token.kind == "hint" and _FLINKS_HINT.fullmatch(of_token):
            foreign, of_token = True, re.sub(r"[^\r\n]", " ", of_token)
        elif token.kind == "hint" and (before is None or not before.is_word("SELECT")):
            given, _ = read_hint(text, token)
            if before is None or before.kind not in ("word", "name"):
                raise query_error(text, token.start, "A hint with OPTIONS stands behind the name of a table")
            options[before.start] = given
            of_token = re.sub(r"[^\r\n]", " ", of_token)
        elif token.kind == "name" and of_token.startswith('"'):
            raise query_error(text, token.start, DOUBLE_QUOTES)
        parts.append(of_token)
        position, before = token.end, token
    return "".join(parts), options, foreign


def _digits_of_intervals(tokens: Sequence[Token]) -> frozenset[int]:
    """Return the indexes of the tokens of digits such as `(3)` in `INTERVAL '180' DAY(3)`, which do not change a length."""
    found: set[int] = set()
    for first in range(len(tokens) - 3):
        if not (tokens[first].is_word("INTERVAL") and tokens[first + 1].kind == "string"):
            continue
        i = first + 2
        while i < len(tokens) and tokens[i].text.upper() in (*YEAR_UNITS, *DAY_UNITS, "TO", "("):
            if tokens[i].is_word("("):
                end = next((j for j in range(i, len(tokens)) if tokens[j].is_word(")")), i)
                found.update(range(i, end + 1))
                i = end
            i += 1
    return frozenset(found)


def _problem(error: SqlglotError, text: str) -> tuple[int, str]:
    """Return the place of an error of sqlglot, and what it is."""
    found = getattr(error, "errors", None)
    if not found:
        return 0, f"This query cannot be parsed: {str(error).splitlines()[0]}"
    line, column = found[0].get("line") or 1, found[0].get("col") or 1
    start = sum(len(part) + 1 for part in text.split("\n")[: line - 1])
    highlighted = found[0].get("highlight") or ""
    place = start + max(column - max(len(highlighted), 1), 0)  # sqlglot's column is the end of its token
    return min(place, len(text)), f"This query cannot be parsed: {found[0].get('description')}"


def _is_plain_spark(text: str, tokens: Sequence[Token]) -> bool:
    """Return whether nothing in a text means something else in Flink than in Spark."""
    for token, following in itertools.pairwise(tokens):
        if (token.kind == "symbol" and token.text in "/[") or token.is_word("SYSTEM_TIME"):
            return False
        if token.kind == "string" and "\\" in text[token.start : token.end]:
            return False
        if (
            token.kind == "word"
            and token.text.upper() in _OPERATORS
            and (following.is_word("(") or token.is_word("LIKE"))
        ):
            return False
    return True

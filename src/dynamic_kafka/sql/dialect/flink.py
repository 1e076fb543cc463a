"""Flink's dialect of SQL for sqlglot, which has none: how a query is parsed.

Every function is kept as it was written (`exp.Anonymous`), so that its meaning is decided by our rules alone and not by what
sqlglot believes of a function with this name. Functions with a syntax of their own, such as `TRIM(BOTH 'x' FROM s)`, become
plain calls with the parts as arguments, and keywords as `exp.Var`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.generators.spark import SparkGenerator
from sqlglot.tokenizer_core import TokenType

__all__ = ["WINDOW_TABLES", "Flink"]

WINDOW_TABLES = ("TUMBLE", "HOP", "SESSION", "CUMULATE")


_NO_KEYWORDS = ("SESSION", "{%", "{{", "{{+", "{{-")


class _Tokenizer(tokens.Tokenizer):
    QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'", '"']
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`"]
    STRING_ESCAPES: ClassVar[list[str]] = ["'"]
    HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("X'", "'"), ("x'", "'")]
    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        **{word: kind for word, kind in tokens.Tokenizer.KEYWORDS.items() if word not in _NO_KEYWORDS},
        "RLIKE": TokenType.RLIKE,
        "REGEXP": TokenType.RLIKE,
        "DIV": TokenType.DIV,
    }
    NUMERIC_LITERALS: ClassVar[dict[str, str]] = {  # Spark's; Flink has none
        "L": "BIGINT",
        "S": "SMALLINT",
        "Y": "TINYINT",
        "D": "DOUBLE",
        "F": "FLOAT",
    }


class _Parser(parser.Parser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parser.Parser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("ANY", "CASE")
    }
    VALUES_FOLLOWED_BY_PAREN = False
    SUPPORTS_TABLE_QUERY = True
    NO_PAREN_IF_COMMANDS = False

    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CAST": lambda self: self.read_cast("CAST"),
        "TRY_CAST": lambda self: self.read_cast("TRY_CAST"),
        "EXTRACT": lambda self: self.read_extract(),
        "TRIM": lambda self: self.read_trim(),
        "SUBSTRING": lambda self: self.read_parts("SUBSTRING", "FROM", "FOR"),
        "POSITION": lambda self: self.read_parts("POSITION", "IN", "FROM"),
        "OVERLAY": lambda self: self.read_parts("OVERLAY", "PLACING", "FROM", "FOR"),
        "CEIL": lambda self: self.read_rounding("CEIL"),
        "CEILING": lambda self: self.read_rounding("CEIL"),
        "FLOOR": lambda self: self.read_rounding("FLOOR"),
        **{
            name: (lambda self, name=name: self.read_json(name))
            for name in ("JSON_VALUE", "JSON_QUERY", "JSON_EXISTS", "JSON_OBJECT", "JSON_ARRAY")
        },
        **{
            name: (lambda self, name=name: self.read_raw(name))
            for name in ("JSON_OBJECTAGG", "JSON_ARRAYAGG", "CONVERT")
        },
    }

    # --- functions with a syntax of their own; the parser stands behind their opening parenthesis ---

    def call(self, name: str, *arguments: exp.Expr | None) -> exp.Anonymous:
        """Return a call, without the arguments that are None."""
        found = exp.Anonymous(this=name, expressions=[a for a in arguments if a is not None])
        return self.expression(found)

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        token = self._curr
        found = super()._parse_function_call(*args, **kwargs)
        inner: Any = found
        while isinstance(inner, (exp.Window, exp.Filter)):
            inner = inner.this
        if isinstance(inner, exp.Anonymous) and "start" not in inner.meta:
            inner.update_positions(token)
        return found

    def build_cast(self, strict: bool, **parts: Any) -> exp.Expr:  # noqa: ARG002, FBT001  sqlglot's
        """Return `x::type` and `1L`, which are Spark's, as a CAST."""
        return self.call("CAST", parts["this"], exp.Var(this=parts["to"].sql(dialect=Flink)))

    def read_cast(self, name: str) -> exp.Anonymous:
        """Read `x AS type`. The type stays text: our own parser knows Flink's types better."""
        value = self._parse_disjunction()
        if not self._match(TokenType.ALIAS):
            self.raise_error("Expected AS and a type")
        return self.call(name, value, self.raw())

    def read_extract(self) -> exp.Anonymous:
        """Read `unit FROM x`."""
        unit = self._curr.text
        self._advance()
        if not self._match(TokenType.FROM):
            self.raise_error("Expected FROM")
        return self.call("EXTRACT", exp.Var(this=unit.upper()), self._parse_disjunction())

    def read_trim(self) -> exp.Anonymous:
        """Read `[BOTH | LEADING | TRAILING] [characters] [FROM] x`."""
        kind = None
        if self._match_texts(("BOTH", "LEADING", "TRAILING")):
            kind = self._prev.text.upper()
        first = None if self._match(TokenType.FROM, advance=False) else self._parse_bitwise()
        if self._match(TokenType.FROM):
            return self.call("TRIM", exp.Var(this=kind or "BOTH"), first, self._parse_bitwise())
        if self._match(TokenType.COMMA):
            return self.call("TRIM", first, self._parse_bitwise())
        return self.call("TRIM", exp.Var(this=kind or "BOTH"), first)

    def read_parts(self, name: str, *keywords: str) -> exp.Anonymous:
        """Read parts between keywords, such as `x FROM 1 FOR 2`, or between commas."""
        parts = [self._parse_bitwise()]
        if self._match(TokenType.COMMA):
            parts += self._parse_csv(self._parse_bitwise)
        else:
            for keyword in keywords:
                if self._match_text_seq(keyword):
                    parts.append(self._parse_bitwise())
        return self.call(name, *parts)

    def read_rounding(self, name: str) -> exp.Anonymous:
        """Read `x`, `x TO unit` or `x, scale`."""
        value = self._parse_disjunction()
        if self._match_text_seq("TO"):
            unit = self._curr.text
            self._advance()
            return self.call(name, value, exp.Var(this=unit.upper()))
        return self.call(name, value, *(self._parse_csv(self._parse_bitwise) if self._match(TokenType.COMMA) else ()))

    def read_json(self, name: str) -> exp.Anonymous:
        """Read the document and the path, and keep what follows them as text."""
        if name in ("JSON_OBJECT", "JSON_ARRAY"):
            return self.read_raw(name)
        value = self._parse_bitwise()
        self._match(TokenType.COMMA)
        return self.call(name, value, self._parse_bitwise(), self.raw())

    def read_raw(self, name: str) -> exp.Anonymous:
        """Keep all arguments as text."""
        return self.call(name, self.raw())

    def raw(self) -> exp.Var:
        """Take everything up to the parenthesis that closes the call, and return its text."""
        first, depth = self._curr, 0
        while self._curr and (depth or self._curr.token_type != TokenType.R_PAREN):
            kind = self._curr.token_type
            depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
            self._advance()
        last = self._prev
        text = self.sql[first.start : last.end + 1] if first and last.end >= first.start else ""
        return exp.Var(this=text)

    # --- window table functions ---

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        found = self._window_table(kwargs.get("alias_tokens"))
        if found is None:
            return super()._parse_table(*args, **kwargs)
        if kwargs.get("joins"):
            for join in self._parse_joins():
                found.append("joins", join)
        return found

    def _window_table(self, alias_tokens: Any) -> exp.Table | None:
        """Read `TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))`, also with `LATERAL`; None for other tables."""
        index = self._index
        wrapped = self._match_text_seq("TABLE", "(")
        token = self._curr
        known = bool(token) and token.text.upper() in WINDOW_TABLES and self._next.token_type == TokenType.L_PAREN
        if not known:
            self._retreat(index)
            return None
        self._advance(2)
        call = exp.Anonymous(this=token.text.upper(), expressions=self._parse_csv(self._window_argument))
        call.update_positions(token)
        self._match_r_paren()
        if wrapped:
            self._match_r_paren()
        table = self.expression(exp.Table(this=call))
        alias = self._parse_table_alias(alias_tokens=alias_tokens or self.TABLE_ALIAS_TOKENS)
        if alias:
            table.set("alias", alias)
        return table

    def _window_argument(self) -> exp.Expr | None:
        name = None
        if self._next.token_type == TokenType.FARROW:
            name = self._curr.text.upper()
            self._advance(2)
        value: exp.Expr | None
        if self._match_text_seq("TABLE"):
            value = (
                super()._parse_table() if self._match(TokenType.L_PAREN, advance=False) else self._parse_table_parts()
            )
            keys = self._session_keys()
            if keys:
                value = exp.Anonymous(this="PARTITIONED", expressions=[value, *keys])
        elif self._match(TokenType.L_PAREN, advance=False):
            value = super()._parse_table()
        else:
            value = self._parse_disjunction()
        return value if name is None else exp.Kwarg(this=exp.Var(this=name), expression=value)

    def _session_keys(self) -> list[exp.Expr]:
        """Read `PARTITION BY a, b`, up to the next argument, which is DESCRIPTOR or has a name."""
        keys: list[exp.Expr] = []
        if self._match(TokenType.PARTITION_BY):
            keys += filter(None, [self._parse_column()])
            while (
                self._next.text.upper() != "DESCRIPTOR" and self._tokens[self._index + 2].token_type != TokenType.FARROW
            ):
                if not self._match(TokenType.COMMA):
                    break
                keys += filter(None, [self._parse_column()])
        return keys


class _Generator(SparkGenerator):
    EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[set[type[exp.Expr]]] = set()


class Flink(Dialect):
    """Flink's SQL. What is written with it is Spark's SQL, but for the functions, which `translate` decides on."""

    INDEX_OFFSET = 0
    ALIAS_POST_TABLESAMPLE = True
    NORMALIZE_FUNCTIONS: bool | str = False
    SUPPORTS_USER_DEFINED_TYPES = False

    Tokenizer = _Tokenizer
    Parser = _Parser
    Generator = _Generator

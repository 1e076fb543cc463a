"""Tokens of Flink's SQL, and a cursor to read them with.

The rules are those of Calcite's grammar with Flink's default settings (Lex.JAVA): the only escape is the doubled quote,
but in U&'...', and a double quote has no meaning. It opens a token all the same, so that a `;` after it does not end a
statement.

No keyword is special to the lexer, and every sign is a token of its own: `PRIMARY KEY` may have a comment in the middle,
`ARRAY<ROW<>>` closes two types.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

from dynamic_kafka.errors import SqlError
from dynamic_kafka.sql.parser.errors import is_hidden, line_number, sql_error
from dynamic_kafka.sql.tables.definition import Name

__all__ = ["DOUBLE_QUOTES", "MATCH_RECOGNIZE", "STRING", "Cursor", "Token", "scan", "split", "tokenize"]

MATCH_RECOGNIZE = "Spark has no MATCH_RECOGNIZE. Write the pattern with applyInPandasWithState or transformWithState"
"""Said for the whole of it: its patterns have signs that nothing else in SQL has."""

STRING = "'...'"
"""Stands for any string where a cursor is asked for keywords."""

Kind = Literal["word", "name", "string", "number", "symbol", "hint", "end"]

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\r\n]*|//[^\r\n]*|/\*(?!\+).*?\*/)
      | (?P<unicode>[Uu]&'(?:[^']|'')*+'(?:\s+(?i:UESCAPE)\s+'[^']')?)
      | (?P<word>(?!\d)[\w$]+)
      | (?P<number>\d[\w.]*)
      | (?P<string>'(?:[^']|'')*+')
      | (?P<name>`(?:[^`]|``)*+`|"(?:[^"]|"")*+")
      | (?P<hint>/\*\+.*?\*/)
      | (?P<symbol>(?!/\*)[-+*/%=<>!~^|&?:;.,()\[\]@])""",
    re.VERBOSE | re.DOTALL,
)
_UNICODE = re.compile(r"[Uu]&'((?:[^']|'')*+)'(?:\s+(?i:UESCAPE)\s+'(.)')?", re.DOTALL)
_UNCLOSED = {
    "'": "This string is not closed. Write a quote inside a string twice; a backslash does not escape it",
    "`": "This name is not closed. Write a backtick inside a name twice",
    '"': "This quote is not closed. Put strings in 'single quotes' and names in `backticks`",
    "/": "This comment is not closed",
}
_TYPOGRAPHIC = re.compile("[\u2018-\u201f\u2032-\u2037\u00ab\u00bb\u2039\u203a\u00b4\uff02\uff07]")
_NOT_A_QUOTE = (
    "This is a typographic quote, such as documents and chats make of a plain one. Put strings in 'single quotes' and names "
    "in `backticks`"
)
_NOT_ESCAPED = "In U&'...', behind each \\ (or the character of UESCAPE) stand four hexadecimal digits, or it again"
DOUBLE_QUOTES = "Flink does not have \"double quotes\". Put strings in 'single quotes' and names in `backticks`"
_NOT_UNDERSTOOD = "This character is not understood here. Put a name with special characters in `backticks`"


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a string and so on.

    `name` is a name in backticks or double quotes, and `hint` the inside of a comment that starts with a plus sign. Of them
    and of strings, `text` is the inside, without doubled quotes; else it is the word as written. `start` and `end` are
    indices into the source, and `end` is after the last character.
    """

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """Return the keyword in upper case, or the symbol; empty for any other token."""
        return self.text.upper() if self.kind in ("word", "symbol") else ""

    def is_word(self, word: str) -> bool:
        """Return whether it is this keyword (given in upper case) or symbol."""
        return self.kind == "string" if word == STRING else self.word == word


def tokenize(source: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Return the tokens of the source, or of a part of it, without blanks and comments, and a last one of kind `end`.

    Raises:
        SqlError: If a string, name or comment is not closed, or for a character that SQL does not have.
    """
    end = len(source) if end is None else end
    tokens, place = scan(source, start, end)
    if place == end:
        return [*tokens, Token("end", "", end, end)]
    if source[place] in _UNCLOSED:
        # What opens in a hint has to close in it: text behind the whole source does not help.
        raise sql_error(source, place, _UNCLOSED[source[place]], unfinished=end == len(source))
    if source[place] in "Uu":
        raise sql_error(source, place, _NOT_ESCAPED)
    for token in tokens:
        if token.is_word("MATCH_RECOGNIZE"):
            raise sql_error(source, token.start, MATCH_RECOGNIZE)
    raise sql_error(source, place, _NOT_A_QUOTE if _TYPOGRAPHIC.match(source, place) else _NOT_UNDERSTOOD)


def scan(source: str, start: int, end: int) -> tuple[list[Token], int]:
    """Return the tokens up to the first place that cannot be read, and that place; the end if all can be read."""
    tokens: list[Token] = []
    position = start
    while position < end and (match := _TOKEN.match(source, position, end)):
        kind, text = cast("Kind | Literal['skip', 'unicode']", match.lastgroup), match.group()
        if kind == "unicode":
            kind, characters = "string", _characters(text)
            if characters is None:
                break
            text = characters
        elif kind in ("string", "name"):
            text = text[1:-1].replace(text[0] * 2, text[0])
        elif kind == "hint":
            text = text[len("/*+") : -len("*/")]
        if kind != "skip":
            tokens.append(Token(kind, text, position, match.end()))
        position = match.end()
    return tokens, position


def _characters(text: str) -> str | None:
    r"""Return the characters of `U&'\0001'`; None if `\` or the one behind UESCAPE is not before four digits or itself."""
    parts = _UNICODE.fullmatch(text)
    assert parts is not None
    inside, escape = parts[1].replace("''", "'"), re.escape(parts[2] or "\\")
    if not re.fullmatch(rf"(?:[^{escape}]|{escape}[0-9A-Fa-f]{{4}}|{escape}{escape})*+", inside, re.DOTALL):
        return None
    found = re.sub(
        rf"{escape}(?:([0-9A-Fa-f]{{4}})|{escape})", lambda m: chr(int(m[1], 16)) if m[1] else m[0][0], inside
    )
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # two numbers may be one character


def split(tokens: list[Token]) -> list[list[Token]]:
    """Return the tokens of each statement, with an `end` after its last one; empty statements are left out."""
    statements: list[list[Token]] = []
    current: list[Token] = []
    for token in tokens:
        if token.kind == "end" or token.is_word(";"):
            if current:
                end = current[-1].end
                statements.append([*current, Token("end", "", end, end)])
            current = []
        else:
            current.append(token)
    return statements


class Cursor:
    """The tokens of one statement, read from left to right; the last one is of kind `end`."""

    def __init__(self, source: str, tokens: list[Token]) -> None:
        self.source = source
        self._tokens = tokens
        self._index = 0

    @property
    def token(self) -> Token:
        """Return the next token."""
        return self._tokens[self._index]

    @property
    def line(self) -> int:
        """Return the line of the next token."""
        return line_number(self.source, self.token.start)

    def rest(self) -> str:
        """Return the text from the next token to the last one, as written."""
        if self.token.kind == "end":
            return ""
        return self.source[self.token.start : self._tokens[-2].end]

    def take_rest(self) -> str:
        """Take everything up to the end of the statement, and return it as written."""
        text = self.rest()
        self._index = len(self._tokens) - 1
        return text

    def text_since(self, start: Token) -> str:
        """Return the text from a token to the last one that was taken, as written."""
        return self.source[start.start : self._tokens[self._index - 1].end]

    def at(self, *words: str) -> bool:
        """Return whether the next tokens are these keywords or symbols."""
        ahead = self._tokens[self._index : self._index + len(words)]
        return len(ahead) == len(words) and all(map(Token.is_word, ahead, words))

    def take(self, *words: str) -> bool:
        """Take these keywords or symbols if they are next, and return whether they were."""
        if not self.at(*words):
            return False
        self._index += len(words)
        return True

    def take_one_of(self, *words: str) -> str | None:
        """Take the next token if it is one of these keywords, and return it."""
        return next((word for word in words if self.take(word)), None)

    def next(self) -> Token:
        """Take the next token and return it; the cursor stays at the end."""
        token = self.token
        if token.kind != "end":
            self._index += 1
        return token

    def expect(self, *words: str, hint: str = "") -> None:
        """Take these keywords (in upper case) or symbols. The hint is the advice for the error.

        Raises:
            SqlError: If the next tokens are different ones.
        """
        for word in words:
            if not self.take(word):
                raise self.unexpected(f"'{word}'", hint)

    def expect_end(self) -> None:
        """Raise SqlError unless the statement ends here."""
        if self.token.kind != "end":
            raise self.unexpected("the end of the statement", "statements are separated by ';'")

    def name(self, what: str) -> str:
        """Take a name, which is a word or anything in backticks. `what` describes it in errors: `a column's name`."""
        token = self.token
        if token.kind == "name" and self.source[token.start] == '"':
            raise self.error(DOUBLE_QUOTES)
        if token.kind == "name" and ("\n" in token.text or "\r" in token.text):
            raise self.error("This name does not end on its line. Is a backtick missing?")
        if token.kind not in ("word", "name") or not token.text:
            raise self.unexpected(what)
        return self.next().text

    def qualified_name(self, what: str) -> Name:
        """Take a name of one to three parts with dots between them."""
        start = self.token
        parts = [self.name(what)]
        while self.take("."):
            parts.append(self.name(what))
        if len(parts) > 3:
            raise self.error("A name has at most three parts, `catalog`.`database`.`table`", start)
        return tuple(parts)

    def column_names(self) -> dict[str, Token]:
        """Take names of columns in parentheses. Return the token of each, in order. A repeated name is an error."""
        found: dict[str, Token] = {}

        def one() -> None:
            token = self.token
            name = self.name("a column's name")
            if name in found:
                raise self.error(f"{self.shown(token)} is listed twice", token)
            found[name] = token

        self.listed(one)
        return found

    def listed(self, read: Callable[[], None]) -> None:
        """Take a list in parentheses that is not empty; `read` takes each of its items."""
        self.expect("(")
        read()
        while not self.take(")"):
            if not self.take(","):
                raise self.unexpected("',' or ')'")
            read()

    def string(self, what: str) -> str:
        """Take a string in single quotes. `what` describes it in errors: `the comment`."""
        if self.token.kind != "string":
            raise self.unexpected(f"{what} in 'single quotes'")
        return self.next().text

    def number(self, what: str, least: int, most: int) -> int:
        """Take a whole number within limits. `what` describes it in errors: `a length`."""
        text = self.token.text
        if self.token.kind != "number" or re.fullmatch(r"\d{1,10}", text, re.ASCII) is None:
            raise self.unexpected(f"{what}, a whole number from {least} to {most}")
        if not least <= int(text) <= most:
            raise self.error(f"{what[:1].upper()}{what[1:]} is a whole number from {least} to {most}")
        self.next()
        return int(text)

    def found(self) -> str:
        """Describe the next token for an error."""
        token = self.token
        if token.kind == "end":
            return "the end of the statement"
        return f"a {token.kind}" if token.kind in ("string", "hint") else self.shown(token)

    def shown(self, token: Token) -> str:
        """Return the text of a token in quotes, or `<hidden>` if it may be a secret."""
        if is_hidden(self.source, token.start, token.end):
            return "<hidden>"
        return f"'{token.text if len(token.text) <= 40 else token.text[:40] + '…'}'"

    def unexpected(self, expected: str, hint: str = "") -> SqlError:
        """Return the error for a next token that is not the expected one."""
        return self.error(f"Expected {expected}, found {self.found()}{hint and f'; {hint}'}")

    def error(self, problem: str, token: Token | None = None) -> SqlError:
        """Return an error at a token, by default the next one. `problem` says what is wrong and what to do."""
        return sql_error(self.source, (token or self.token).start, problem)

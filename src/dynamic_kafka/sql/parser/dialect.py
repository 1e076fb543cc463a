"""How Flink's SQL falls into words: a dialect for sqlglot, of which only the tokenizer is used.

sqlglot's parser is left out on purpose. It takes `TIMESTAMP` and `TIMESTAMP_LTZ` for one type in every dialect of Hive's
family, knows neither METADATA nor ROW<...>, accepts statements that Flink refuses, and forgets where things stood; so
`create_table` and `statements` read the tokens themselves.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ClassVar

from dynamic_kafka.errors import MissingDependencyError

if TYPE_CHECKING:
    from sqlglot.dialects.dialect import Dialect

__all__ = ["flink"]


@functools.cache
def flink() -> Dialect:
    """The dialect: Flink's words, as the grammar of Calcite has them with Flink's default settings (Lex.JAVA).

    Raises:
        MissingDependencyError: If sqlglot is not installed.
    """
    try:
        from sqlglot import tokens
        from sqlglot.dialects.dialect import Dialect
    except ImportError as error:
        raise MissingDependencyError("sqlglot", "sql", "to read Flink's SQL") from error

    class Flink(Dialect):
        class Tokenizer(tokens.Tokenizer):
            # No escape but the doubled quote.
            QUOTES: ClassVar = ["'"]
            # A double quote means nothing in Flink. As a quote it keeps a `;` in it from ending a statement.
            IDENTIFIERS: ClassVar = ["`", '"']
            COMMENTS: ClassVar = ["--", "//", ("/*", "*/")]
            NESTED_COMMENTS = False
            VAR_SINGLE_TOKENS: ClassVar = {"$"}
            # No words of several parts (`PRIMARY KEY` would not be found with a comment in it), no operators
            # (`ARRAY<ROW<>>`), and none that take the rest of the statement for a string.
            KEYWORDS: ClassVar = {}
            COMMANDS: ClassVar = set()

    return Flink()

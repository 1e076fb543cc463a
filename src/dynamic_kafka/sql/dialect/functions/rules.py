"""What a rule is: how one of Flink's functions is said in Spark, or why it is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql.types import DataType
from sqlglot import exp

from dynamic_kafka.errors import SqlError

__all__ = ["Call", "Refused", "Rule", "Writing", "called", "is_with_point", "literal_of"]


class Writing(Protocol):
    """The methods of `Translator` that the rules of functions call."""

    def sql(self, expression: Any, key: str | None = None, comment: bool = True) -> str:  # noqa: FBT001  sqlglot's
        """Return the text of a part, which is written once."""

    def type_of(self, node: exp.Expr) -> DataType:
        """Return the type of a part, which Spark knows."""

    def as_changed(self, node: exp.Expr, text: str) -> str:
        """Return the text for a part that Spark gets another text for."""

    def is_of_window(self, node: exp.Column) -> bool:
        """Return whether a column is the start, the end or the time of a window of this SELECT."""

    def refuse(self, node: exp.Expr, problem: str) -> SqlError:
        """Return the error for a part of the query."""


@dataclass(frozen=True)
class Call:
    """A call of a function in a query.

    `translator` writes the query, and knows the types of its parts. The name is in upper case. `over` is what follows an
    aggregation: its FILTER and OVER, as text for Spark; empty otherwise.
    """

    translator: Writing
    node: exp.Anonymous
    name: str
    over: str = ""

    @property
    def arguments(self) -> Sequence[exp.Expr]:
        """Return the arguments, as they were parsed."""
        found: Sequence[exp.Expr] = self.node.expressions
        return found

    def sql(self, index: int) -> str:
        """Return an argument's text for Spark, in parentheses if an operator beside it could take a part of it."""
        argument = self.arguments[index]
        text: str = self.translator.sql(argument)
        if isinstance(argument, (exp.Binary, exp.Not, exp.Neg, exp.BitwiseNot, exp.Between, exp.In)) and not isinstance(
            argument, (exp.Dot, exp.Kwarg, exp.Div)
        ):
            return f"({text})"
        return f"({text})" if isinstance(argument, exp.Div) and not text.startswith(("(", "CAST(")) else text

    def type(self, index: int) -> DataType:
        """Return an argument's type in Spark.

        Raises:
            SqlError: If it cannot be found out.
        """
        return self.translator.type_of(self.arguments[index])

    def text(self, index: int) -> str | None:
        """Return the text of an argument that is a string literal; None for any other, or if there is none."""
        return literal_of(self.arguments[index]) if index < len(self.arguments) else None

    def refuse(self, problem: str, index: int | None = None) -> Exception:
        """Return the error for this call, or for one of its arguments. `problem` says what is wrong and what to do."""
        return self.translator.refuse(self.node if index is None else self.arguments[index], problem)


@dataclass(frozen=True)
class Rule:
    """How a function of Flink is said in Spark.

    Args:
        spark: The text for Spark, with `{0}` for the first argument; by number of arguments if it depends on that; or what
            returns it, or None for a call that means the same in Spark.
        why: What would be different without the rule, for the documents.
        form: How Spark says it, for the documents, if `spark` does not show it.
        numbers: How many arguments the function may have, if `spark` is what returns a text; empty for any number.
    """

    spark: str | Mapping[int, str] | Callable[[Call], str | None]
    why: str
    form: str = ""
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Refused:
    """A function of Flink that has no equal in Spark. `way` says what to write instead."""

    way: str


def called(node: exp.Expr | None) -> str:
    """Return the name of the function that a part of a query calls, in upper case; empty for anything else."""
    return node.this.upper() if isinstance(node, exp.Anonymous) and isinstance(node.this, str) else ""


def is_with_point(node: exp.Expr) -> bool:
    """Return whether a part is a number such as 0.1 or -0.1."""
    number = node.this if isinstance(node, exp.Neg) else node
    return isinstance(number, exp.Literal) and not number.is_string and not number.name.isdigit()


def literal_of(node: exp.Expr) -> str | None:
    """Return the text of a string literal, None for anything else."""
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None

"""Writing a query of Flink as one of Spark: each construct that means something else is said the way that means the same.

What a division or a `[1]` means depends on the types of its parts. Spark is asked for them, with the tables of the same
SELECT, while the query is written from the inside out. A query without such a construct goes to Spark as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.generators.spark import SparkGenerator

from dynamic_kafka.errors import SqlError
from dynamic_kafka.sql.dialect.calls import call_sql, over
from dynamic_kafka.sql.dialect.casts import target_of, typed_literal
from dynamic_kafka.sql.dialect.flink import Flink
from dynamic_kafka.sql.dialect.kinds import name_of
from dynamic_kafka.sql.dialect.operators import (
    chosen,
    comparison,
    division,
    element,
    like,
    listed,
    product,
    total,
    type_in_function,
)
from dynamic_kafka.sql.dialect.query import Query, parse_query, place_of, query_error
from dynamic_kafka.sql.dialect.registry import REFUSED
from dynamic_kafka.sql.dialect.relations import elements, windowed
from dynamic_kafka.sql.dialect.windows import BOUNDS, WINDOW, Window, bound

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["Ask", "Translator", "translate", "translate_expression"]

Ask = Callable[[str], "DataType | None"]
"""Returns the type of the only column of a query for Spark, None if Spark refuses it."""
_SELECT = "SELECT "
_DEFAULTS = ("default_catalog", "default_database")
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Mod)


@dataclass
class Scope:
    """A SELECT that is being written: its tables, and its windows by the table's alias."""

    select: exp.Select
    outer: Scope | None
    tables: list[str] = field(default_factory=list)
    complete: str = ""
    windows: dict[str, Window] = field(default_factory=dict)

    def source(self) -> str:
        """Return the FROM with the tables that are known by now."""
        return self.complete or (f"FROM {', '.join(self.tables)}" if self.tables else "")


def translate(query: Query, ask: Ask, *, zone: str, views: Mapping[int, str]) -> str:
    """Return a query as Spark's SQL.

    Args:
        query: The parsed query.
        ask: Asks Spark for a type.
        zone: The time zone of the session.
        views: The names that Spark knows tables with options in a hint by, by the place of the table's name.

    Returns:
        The text as written if nothing in it means something else in Spark.

    Raises:
        SqlError: If Spark has no equal for a construct.
    """
    if query.tree is None:
        return query.plain
    translator = Translator(query, ask, zone=zone, views=views)
    text = translator.sql(query.tree.copy())
    if not translator.changed and query.tree.find(exp.Fetch) is None:  # FETCH NEXT becomes LIMIT
        return query.plain
    if translator.unsupported_messages:
        raise query_error(query.text, 0, f"This query cannot be translated: {translator.unsupported_messages[0]}")
    return text


def translate_expression(text: str, ask: Ask, *, zone: str) -> str:
    """Return an expression of Flink, such as a computed column's, as one of Spark.

    Args:
        text: The expression.
        ask: Asks Spark for the type of an expression over the same columns.
        zone: The time zone of the session.

    Raises:
        SqlError: If it cannot be parsed, or Spark has no equal for a part of it. Places count a SELECT before it.
    """
    query = parse_query(f"{_SELECT}{text}")
    if query.tree is None or len(query.tree.selects) != 1:
        return text
    translator = Translator(query, lambda asked: ask(asked.removeprefix(_SELECT).strip()), zone=zone, views={})
    translated = translator.sql(query.tree.selects[0].copy())
    return translated if translator.changed else text


class Translator(SparkGenerator):
    """Writes a query for Spark; see `translate` for its arguments."""

    EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[set[type[exp.Expr]]] = set()
    TRANSFORMS: ClassVar[dict[type[exp.Expr], Callable[..., str]]] = {
        **{
            kind: write
            for kind, write in SparkGenerator.TRANSFORMS.items()
            if kind not in (exp.Select, exp.Array, exp.Table, exp.Unnest, exp.TryCast, exp.If, exp.AtTimeZone)
        },
        exp.Div: division,
        exp.Bracket: element,
        exp.Array: lambda self, e: self.as_changed(e, f"array({self.expressions(e, flat=True)})"),
        exp.Like: like,
        **{
            kind: lambda self, e, sign=sign: comparison(self, e, sign)
            for kind, sign in (
                (exp.EQ, "="),
                (exp.NEQ, "<>"),
            )
        },
        exp.Add: lambda self, e: total(self, e, "+"),
        exp.Sub: lambda self, e: total(self, e, "-"),
        exp.Mul: lambda self, e: product(self, e, "*"),
        exp.Mod: lambda self, e: product(self, e, "%"),
        exp.In: listed,
        exp.Case: chosen,
        exp.Cast: typed_literal,
        exp.Filter: over,
        exp.Window: over,
        exp.AtTimeZone: lambda self, e: self.not_known(e, "AT TIME ZONE is not known: use CONVERT_TZ"),
    }

    def __init__(self, query: Query, ask: Ask, *, zone: str, views: Mapping[int, str]) -> None:
        super().__init__(dialect=Flink, comments=False, unsupported_level=ErrorLevel.IGNORE)
        self.query, self.zone = query, zone
        self._ask, self._views = ask, views
        self.scope: Scope | None = None
        self._ctes: list[str] = []
        self._texts: dict[int, tuple[exp.Expr, str]] = {}
        self._types: dict[tuple[str, str], DataType | None] = {}
        self._changed: set[int] = set()

    @property
    def changed(self) -> bool:
        """Return whether Spark gets another text than the user wrote."""
        return bool(self._changed)

    def as_changed(self, node: exp.Expr, text: str) -> str:
        """Return the text for a part that Spark gets another text for."""
        self._changed.add(id(node))
        return text

    def refuse(self, node: exp.Expr, problem: str) -> SqlError:
        """Return the error for a part of the query."""
        return query_error(self.query.text, place_of(node), problem)

    def not_known(self, node: exp.Expr, problem: str) -> str:
        """Raise the error for a part of the query."""
        raise self.refuse(node, problem)

    def sql(self, expression: Any, key: str | None = None, comment: bool = True) -> str:  # noqa: FBT001  sqlglot's
        """Return the text of a part, which is written once."""
        if key is not None or not isinstance(expression, exp.Expr):
            return super().sql(expression, key, comment)
        known = self._texts.get(id(expression))
        if known is None:
            ctes = len(self._ctes)
            if isinstance(expression, exp.Query) and expression.args.get("with_"):
                self.sql(expression.args["with_"])  # before what reads from it
            known = expression, super().sql(expression, key, comment)
            if isinstance(expression, exp.Query):
                del self._ctes[ctes:]
            self._texts[id(expression)] = known
        return known[1]

    # --- types ---

    def type_of(self, node: exp.Expr) -> DataType:
        """Return the type of a part, which Spark knows.

        Raises:
            SqlError: If Spark cannot tell.
        """
        found = self.type_or_none(node)
        if found is None:
            raise self.refuse(node, "The type of this is not known, and what is done with it depends on that: CAST it")
        return found

    def type_or_none(self, node: exp.Expr) -> DataType | None:
        """Return the type of a part, None if Spark cannot tell."""
        if isinstance(node, (exp.Paren, exp.Neg)):
            return self.type_or_none(node.this)
        if isinstance(node, exp.Literal) and node.is_string:
            from pyspark.sql.types import StringType

            return StringType()
        if isinstance(node, exp.Identifier):
            return type_in_function(self, node)
        text = self.sql(node)
        if isinstance(node, exp.Anonymous) and str(node.this).upper() in ("CAST", "TRY_CAST"):
            target = target_of(node)
            if target is not None:
                return target
        scope = self.scope
        if scope is None:
            return self._asked(text, "")
        while scope is not None:
            found = self._asked(text, scope.source())
            if found is not None:
                return found
            scope = scope.outer
        if isinstance(node, exp.Column) and not node.table and self.scope is not None:
            for projection in self.scope.select.expressions:  # ORDER BY and HAVING may use a name of the SELECT
                if isinstance(projection, exp.Alias) and projection.alias.lower() == node.name.lower():
                    return self.type_or_none(projection.this)
        return self._of_parts(node)

    def type_in(self, text: str, source: str) -> DataType | None:
        """Return the type of a column of a table, as texts for Spark; None if Spark cannot tell."""
        return self._asked(text, f"FROM {source}")

    def _of_parts(self, node: exp.Expr) -> DataType | None:
        """Return the type of a part that Spark cannot look at alone, such as `sum(a) + b`."""
        if isinstance(node, (*_ARITHMETIC, exp.Div)):
            one, other = self.type_or_none(node.this), self.type_or_none(node.expression)
            if one is None or other is None:
                return None
            return self._asked(f"CAST(NULL AS {name_of(one)}) * CAST(NULL AS {name_of(other)})", "")
        if isinstance(node, exp.Case):
            results = [branch.args["true"] for branch in node.args.get("ifs") or ()]
            types = [self.type_or_none(result) for result in (*results, *filter(None, [node.args.get("default")]))]
            if None not in types:
                casts = ", ".join(f"CAST(NULL AS {name_of(found)})" for found in types if found is not None)
                return self._asked(f"coalesce({casts})", "")
        return None

    def _asked(self, text: str, source: str) -> DataType | None:
        key = text, source
        if key not in self._types:
            ctes = f"WITH {', '.join(self._ctes)} " if self._ctes else ""
            self._types[key] = self._ask(f"{ctes}SELECT {text} {source}")
        return self._types[key]

    # --- queries ---

    def cte_sql(self, expression: exp.CTE) -> str:
        """Return a part of WITH, which the following ones may read."""
        text = super().cte_sql(expression)
        self._ctes.append(text)
        return text

    def select_sql(self, expression: exp.Select) -> str:
        """Return a SELECT. Its tables are written first: the types of everything else depend on them."""
        scope = self.scope = Scope(expression, self.scope)
        try:
            of_from = expression.args.get("from_")
            joins = expression.args.get("joins") or []
            if of_from is not None:
                scope.tables.append(self.sql(of_from.this))
            for join in joins:
                scope.tables.append(self._joined(join.this))
            if of_from is not None:
                scope.complete = f"FROM {scope.tables[0]}{''.join(map(self.sql, joins))}"
                scope.complete += "".join(map(self.sql, expression.args.get("laterals") or []))
            return super().select_sql(expression)
        finally:
            self.scope = scope.outer

    def expressions(  # type: ignore[override]
        self, expression: Any = None, key: str | None = None, sqls: Any = None, **options: Any
    ) -> str:
        """Return a list of parts; in a SELECT, a column that is written otherwise keeps its name."""
        if isinstance(expression, exp.Select) and key is None and sqls is None:
            sqls = [self._projection(i, part) for i, part in enumerate(expression.expressions)]
            return super().expressions(sqls=sqls, **options)
        return super().expressions(expression, key, sqls, **options)

    def _projection(self, index: int, node: exp.Expr) -> str:
        text = self.sql(node)
        if isinstance(node, (exp.Alias, exp.Star)) or not any(id(part) in self._changed for part in node.walk()):
            return text
        name = node.name if isinstance(node, exp.Column) else f"EXPR${index}"
        return f"{text} AS `{name}`"

    def group_sql(self, expression: exp.Group) -> str:
        """Return a GROUP BY, in which the start and the end of a window are one column."""
        scope = self.scope
        if scope is None or not scope.windows:
            return super().group_sql(expression)
        if any(expression.args.get(kind) for kind in ("cube", "rollup", "grouping_sets")):
            raise self.refuse(
                expression, "GROUPING SETS, CUBE and ROLLUP over windows are not known: write a query for each"
            )
        parts: list[str] = []
        for node in expression.expressions:
            window = self._window_of(node)
            text = self.sql(node) if window is None else window
            if text not in parts:
                parts.append(text)
        return f" GROUP BY {', '.join(parts)}"

    def column_sql(self, expression: exp.Column) -> str:
        """Return a column; those of a window are parts of Spark's."""
        window = self._window_of(expression)
        if window is not None:
            return self.as_changed(expression, bound(window, BOUNDS[expression.name.lower()]))
        if not expression.table and not expression.this.args.get("quoted"):
            if expression.name.upper() == "LOCALTIMESTAMP":
                return self.as_changed(expression, "localtimestamp()")
            if expression.name.upper() in ("CURRENT_TIME", "LOCALTIME"):
                raise self.refuse(expression, f"{expression.name.upper()}: {REFUSED[expression.name.upper()].way}")
        return super().column_sql(expression)

    def is_of_window(self, node: exp.Column) -> bool:
        """Return whether a column is the start, the end or the time of a window of this SELECT."""
        return self._window_of(node) is not None

    def _window_of(self, node: exp.Expr) -> str | None:
        """Return the window that a column is the start, the end or the time of."""
        if self.scope is None or not isinstance(node, exp.Column) or node.name.lower() not in BOUNDS:
            return None
        windows = self.scope.windows
        alias = node.table or (next(iter(windows)) if len(windows) == 1 else "")
        if alias not in windows:
            return None
        window = windows[alias]
        return window.sql() if window.kind == "SESSION" else f"`{alias}`.{WINDOW}"

    # --- tables ---

    def table_sql(self, expression: exp.Table, sep: str = " AS ") -> str:
        """Return a table: a window table function, or one with options in a hint under its own name."""
        call = expression.this
        if isinstance(call, exp.Anonymous) and str(call.this).upper() in ("TUMBLE", "HOP", "SESSION"):
            return self.as_changed(expression, windowed(self, expression, call))
        view = self._views.get(call.meta.get("start", -1)) if isinstance(call, exp.Identifier) else None
        if view is not None:
            alias = self.sql(expression, "alias") or f"`{expression.name}`"
            return self.as_changed(expression, f"`{view}` AS {alias}")
        place = tuple(expression.args[part].name.lower() for part in ("catalog", "db") if expression.args.get(part))
        if place in (_DEFAULTS, _DEFAULTS[1:]):  # Flink's names of the place where all tables are
            self._changed.add(id(expression))
            expression.set("catalog", None)
            expression.set("db", None)
        return super().table_sql(expression, sep)

    def _joined(self, node: exp.Expr) -> str:
        return self._unnested(node) if isinstance(node, exp.Unnest) else self.sql(node)

    def join_sql(self, expression: exp.Join, join_op: str | None = None) -> str:
        """Return a join; UNNEST is a LATERAL join with the elements."""
        if isinstance(expression.this, exp.Unnest):
            outer = (expression.side or "").upper() == "LEFT"
            on = expression.args.get("on")
            if on is not None and on != exp.true():
                raise self.refuse(
                    expression, "A join with UNNEST has the condition ON TRUE. Write the condition in WHERE"
                )
            return (
                f" {'LEFT' if outer else 'CROSS'} JOIN {self._unnested(expression.this)}{' ON TRUE' if outer else ''}"
            )
        return super().join_sql(expression, join_op)

    def unnest_sql(self, expression: exp.Unnest) -> str:
        """Return the elements of an array as a table."""
        return self._unnested(expression)

    def _unnested(self, node: exp.Unnest) -> str:
        known = self._texts.get(id(node))
        if known is None:
            known = node, elements(self, node)
            self._texts[id(node)] = known
        return known[1]

    def literal_sql(self, expression: exp.Literal) -> str:
        """Return a literal: a backslash is a character like any other in Flink."""
        if not expression.is_string:
            return super().literal_sql(expression)
        text = str(expression.this)
        written = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return self.as_changed(expression, written) if "\\" in text else written

    # --- functions ---

    def anonymous_sql(self, expression: exp.Anonymous) -> str:
        """Return a call of a function."""
        return call_sql(self, expression, "")

    def as_written(self, node: exp.Anonymous) -> str:
        """Return a call that means the same in Spark."""
        return super().anonymous_sql(node)

    def like_without_escape(self, node: exp.Like) -> str:
        """Return a LIKE as it was written."""
        return self._like_sql(node)

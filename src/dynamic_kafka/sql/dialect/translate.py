"""Writing a query of Flink as one of Spark: each construct that means something else is said the way that means the same.

A query without such a construct goes to Spark as it was written.

What a division or a `[1]` means depends on the types of its parts. Spark is asked for them, with the tables of the same
SELECT, while the query is written from the inside out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, ClassVar

from pyspark.sql.types import DataType, StringType
from sqlglot import exp
from sqlglot.generators.spark import SparkGenerator

from dynamic_kafka.formats.expressions import quoted
from dynamic_kafka.sql.dialect.arrival import inline_ranks
from dynamic_kafka.sql.dialect.calls import call_sql, over
from dynamic_kafka.sql.dialect.casts import target_of, typed_literal
from dynamic_kafka.sql.dialect.event_times import compared, every_column, limit_joins, share_windows, united
from dynamic_kafka.sql.dialect.flink import WINDOW_TABLES
from dynamic_kafka.sql.dialect.functions.registry import REFUSED
from dynamic_kafka.sql.dialect.functions.rules import called
from dynamic_kafka.sql.dialect.operators import (
    chosen,
    comparison,
    division,
    element,
    like,
    listed,
    product,
    similar,
    total,
    type_in_function,
)
from dynamic_kafka.sql.dialect.query import Query, is_temporal, name_in, parse_query, query_error, with_names
from dynamic_kafka.sql.dialect.ranks import rank_of, ranked
from dynamic_kafka.sql.dialect.relations import (
    check_commas,
    elements,
    export_window,
    exported_window,
    is_comma,
    joined,
    windowed,
)
from dynamic_kafka.sql.dialect.scope import BOUNDS, WINDOW, Scope
from dynamic_kafka.sql.dialect.temporal import join_versions
from dynamic_kafka.sql.dialect.writer import Ask, RankKey, Streams, TimesOf, Versions, Writer
from dynamic_kafka.sql.tables.definition import database_of
from dynamic_kafka.sql.tables.types import name_of

__all__ = ["Translator", "translate", "translate_expression", "translate_stream"]

_SELECT = "SELECT "
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Mod)


def translate(
    query: Query,
    ask: Ask,
    *,
    zone: str,
    views: Mapping[int, str],
    renamed: Mapping[int, str] = MappingProxyType({}),
    versions: Versions | None = None,
    times_of: TimesOf | None = None,
) -> str:
    """Return a query as Spark's SQL. One with OVER cannot be a stream: see `translate_stream`.

    `views` are the names that Spark knows tables with options in a hint by, by the place of the table's name. `renamed` are
    those of views that stand for other tables of this query. `times_of` is that of `Streams` if its tables are
    followed, otherwise None.

    Returns:
        The text as written, but for names that are `renamed`, if nothing in it means something else in Spark.

    Raises:
        SqlError: If Spark has no equal for a construct.
    """
    if query.tree is None:
        return query.plain
    translator = Translator(query, ask, zone=zone, views=views, renamed=renamed, versions=versions, times_of=times_of)
    text = translator.sql(query.tree.copy())
    if not translator.changed and query.tree.find(exp.Fetch) is None:  # FETCH NEXT becomes LIMIT
        return with_names(query, renamed)
    if translator.unsupported_messages:
        raise query_error(query.text, 0, f"This query cannot be translated: {translator.unsupported_messages[0]}")
    return text


def translate_stream(
    query: Query,
    ask: Ask,
    streams: Streams,
    *,
    zone: str,
    views: Mapping[int, str],
    versions: Versions | None = None,
) -> tuple[str, bool, RankKey | None]:
    """Return a query over a stream as Spark's SQL, whether it has ranks, and the key of its rows if ranked rows change.

    Raises:
        SqlError: If Spark has no equal for a construct.
    """
    assert query.tree is not None
    translator = Translator(
        query, ask, zone=zone, views=views, streams=streams, versions=versions, times_of=streams.times_of
    )
    tree = inline_ranks(query.tree.copy(), streams)
    has_ranks = tree.find(exp.Window) is not None
    return translator.sql(tree), has_ranks, translator.rank_key


def translate_expression(text: str, ask: Ask, *, zone: str) -> str:
    """Return an expression of Flink, such as a computed column's, as one of Spark. `ask` knows types of the same columns.

    Raises:
        SqlError: If it cannot be parsed, or Spark has no equal for a part of it. Places count a SELECT before it.
    """
    query = parse_query(f"{_SELECT}{text}")
    if query.tree is None or len(query.tree.selects) != 1:
        return text
    translator = Translator(query, lambda asked: ask(asked.removeprefix(_SELECT).strip()), zone=zone, views={})
    translated = translator.sql(query.tree.selects[0].copy())
    return translated if translator.changed else text


class Translator(Writer):
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
        exp.SimilarTo: similar,
        exp.EQ: lambda self, e: comparison(self, e, "="),
        exp.NEQ: lambda self, e: comparison(self, e, "<>"),
        exp.LT: lambda self, e: compared(self, e, self.lt_sql),
        exp.LTE: lambda self, e: compared(self, e, self.lte_sql),
        exp.GT: lambda self, e: compared(self, e, self.gt_sql),
        exp.GTE: lambda self, e: compared(self, e, self.gte_sql),
        exp.Between: lambda self, e: compared(self, e, self.between_sql),
        exp.Add: lambda self, e: total(self, e, "+"),
        exp.Sub: lambda self, e: total(self, e, "-"),
        exp.Mul: lambda self, e: product(self, e, "*"),
        exp.Mod: lambda self, e: product(self, e, "%"),
        exp.In: listed,
        exp.Case: chosen,
        exp.Cast: typed_literal,
        exp.Filter: over,
        exp.Window: over,
        exp.Unnest: elements,
        exp.AtTimeZone: lambda self, e: self.not_known(e, "AT TIME ZONE is not known: use CONVERT_TZ"),
    }

    def not_known(self, node: exp.Expr, problem: str) -> str:
        """Raise the error for a part of the query."""
        raise self.refuse(node, problem)

    # --- types ---

    def type_or_none(self, node: exp.Expr) -> DataType | None:
        """Return the type of a part, None if Spark cannot tell."""
        if isinstance(node, (exp.Paren, exp.Neg)):
            return self.type_or_none(node.this)
        if isinstance(node, exp.Literal) and node.is_string:
            return StringType()
        if isinstance(node, exp.Identifier):
            return type_in_function(self, node)
        text = self.sql(node)
        if isinstance(node, exp.Anonymous) and called(node) in ("CAST", "TRY_CAST"):
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
                named = isinstance(projection, exp.Alias) and projection.alias.lower() == node.name.lower()
                if named and not any(part is node for part in projection.walk()):
                    return self.type_or_none(projection.this)
        return self._of_parts(node)

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

    # --- queries ---

    def cte_sql(self, expression: exp.CTE) -> str:
        """Return a part of WITH, which the following ones may read."""
        text = super().cte_sql(expression)
        self._ctes.append(text)
        return text

    def select_sql(self, expression: exp.Select) -> str:
        """Return a SELECT. Its tables are written first: the types of everything else depend on them."""
        rank = rank_of(expression) if self.streams is not None else None
        if rank is not None and self.streams is not None:
            self.write_as(expression.args["from_"].this, ranked(self, expression, rank, self.streams))
        group = expression.args.get("group")
        with self.scoped(expression, group.expressions if group is not None else ()):
            return super().select_sql(expression)

    def set_operations(self, expression: exp.SetOperation) -> str:
        """Return a UNION or the like."""
        united(self, expression)
        return super().set_operations(expression)

    @contextmanager
    def scoped(self, select: exp.Select, by: Sequence[exp.Expr]) -> Iterator[Scope]:
        """Be inside a SELECT: its tables are written, and the types of everything else depend on them."""
        scope = self.scope = Scope(select, self.scope, by, inherited=export_window(self, select, by))
        try:
            if self.times_of is not None:
                share_windows(self, scope)
            of_from = select.args.get("from_")
            if of_from is not None:
                scope.tables.append(self.sql(of_from.this))
            check_commas(self, scope.joins)
            for index, join in enumerate(scope.joins):
                if is_temporal(join):
                    join_versions(self, scope, index, self._versions)
                else:
                    scope.tables.append(self.sql(join.this))
            if self.times_of is not None:
                limit_joins(self, scope)
            if of_from is not None:
                scope.complete = f"FROM {scope.tables[0]}{''.join(map(self.sql, scope.joins))}"
                scope.complete += "".join(map(self.sql, select.args.get("laterals") or []))
            yield scope
        finally:
            self.scope = scope.outer

    def expressions(  # type: ignore[override]
        self, expression: Any = None, key: str | None = None, sqls: Any = None, **options: Any
    ) -> str:
        """Return a list of parts; in a SELECT, a column that is written otherwise keeps its name."""
        if isinstance(expression, exp.Select) and key is None and sqls is None:
            sqls = [self.projection(i, part) for i, part in enumerate(expression.expressions)]
            if id(expression) in self.exported:
                sqls.append(f"{exported_window(self)} AS {WINDOW}")
            return super().expressions(sqls=sqls, **options)
        return super().expressions(expression, key, sqls, **options)

    def projection(self, index: int, node: exp.Expr) -> str:
        """Return a column of a SELECT."""
        if self.scope is not None and (listed := every_column(self, node, self.scope)) is not None:
            return self.as_changed(node, listed)
        if isinstance(node, exp.Star) and self.scope is not None and self.scope.in_rows:
            return self.as_changed(node, ", ".join(f"`{table}`.*" for table in self.scope.names()))
        text = self.sql(node)
        if isinstance(node, (exp.Alias, exp.Star)) or not any(id(part) in self._changed for part in node.walk()):
            return text
        name = node.name if isinstance(node, exp.Column) else f"EXPR${index}"
        return f"{text} AS `{name}`"

    def group_sql(self, expression: exp.Group) -> str:
        """Return a GROUP BY, in which the start and the end of a window are one column."""
        scope = self.scope
        sets = [*expression.find_all(exp.Cube, exp.Rollup, exp.GroupingSets)]
        windowed_sets = any(column.name.lower() in BOUNDS for part in sets for column in part.find_all(exp.Column))
        of_windows = scope is not None and (scope.windows or scope.inherited)
        if scope is None or not (of_windows or (windowed_sets and self.times_of is not None)):
            return super().group_sql(expression)
        if sets:
            raise self.refuse(
                expression, "GROUPING SETS, CUBE and ROLLUP over windows are not known: write a query for each"
            )
        names = {node.name.lower() for node in expression.expressions if isinstance(node, exp.Column)}
        cumulate = any(window.kind == "CUMULATE" for window in scope.windows.values())
        if cumulate and "window_start" in names and not names & {"window_end", "window_time"}:
            raise self.refuse(expression, "Windows of CUMULATE have their start in common: GROUP BY window_end, too")
        parts: list[str] = []
        for node in expression.expressions:
            found = scope.keys_of(node)
            keys = [self.sql(node)] if found is None else found
            parts += [key for key in keys if key not in parts]
        return f" GROUP BY {', '.join(parts)}"

    def column_sql(self, expression: exp.Column) -> str:
        """Return a column; those of a window are parts of Spark's."""
        found = None if self.scope is None else self.scope.window_of(expression)
        if self.scope is not None and found is not None:
            return self.as_changed(expression, found[0].bound(found[1], self.scope.suffix_of(expression.name)))
        if not expression.table and not expression.this.args.get("quoted"):
            if expression.name.upper() == "LOCALTIMESTAMP":
                return self.as_changed(expression, "localtimestamp()")
            if expression.name.upper() in ("CURRENT_TIME", "LOCALTIME"):
                raise self.refuse(expression, f"{expression.name.upper()}: {REFUSED[expression.name.upper()].way}")
        return super().column_sql(expression)

    # --- tables ---

    def table_sql(self, expression: exp.Table, sep: str = " AS ") -> str:
        """Return a table: a window table function, or one with options in a hint under its own name."""
        call = expression.this
        if isinstance(call, exp.Anonymous) and called(call) in WINDOW_TABLES:
            return self.as_changed(expression, windowed(self, expression, call))
        place = call.meta.get("start", -1) if isinstance(call, exp.Identifier) else -1
        if (view := self._renamed.get(place) or self._views.get(place)) is not None:
            alias = self.sql(expression, "alias") or quoted(expression.name)
            text = f"{quoted(view)} AS {alias}"
            return self.as_changed(expression, text) if place in self._views else text
        name = name_in(expression)
        if len(name) > 1 and not database_of(name):
            self._changed.add(id(expression))
            expression.set("catalog", None)
            expression.set("db", None)
        return super().table_sql(expression, sep)

    def join_sql(self, expression: exp.Join, join_op: str | None = None) -> str:
        """Return a join; UNNEST is a LATERAL join with the elements.

        A comma and CROSS JOIN are written as an inner join without a condition, which means the same. Only then do Spark's
        streams join by the condition of WHERE.
        """
        if isinstance(expression.this, exp.Unnest):
            return joined(self, expression)
        is_cross = expression.kind == "CROSS" or is_comma(expression)
        if is_cross and isinstance(expression.this, exp.Table | exp.Subquery):
            expression.set("kind", "INNER")
            return self.as_changed(expression, super().join_sql(expression, join_op))
        return super().join_sql(expression, join_op)

    def literal_sql(self, expression: exp.Literal) -> str:
        """Return a literal: a backslash is a character like any other in Flink."""
        if not expression.is_string:
            return super().literal_sql(expression)
        text = str(expression.this)
        written = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return self.as_changed(expression, written) if "\\" in text else written

    def values_sql(self, expression: exp.Values, values_as_table: bool = True) -> str:  # noqa: FBT001  sqlglot's
        """Return rows of VALUES. Spark's have no calls of functions such as TO_TIMESTAMP becomes: such rows are SELECTs."""
        text = super().values_sql(expression, values_as_table)
        changed = (part for part in expression.walk() if id(part) in self._changed)
        if all(isinstance(part, exp.Literal) for part in changed):
            return text
        rows = (row.expressions if isinstance(row, exp.Tuple) else [row] for row in expression.expressions)
        selects = (", ".join(f"{self.sql(value)} AS col{i}" for i, value in enumerate(row, 1)) for row in rows)
        union, alias = " UNION ALL ".join(f"SELECT {select}" for select in selects), self.sql(expression, "alias")
        # In one partition, they are written in their order, in which the last row of a key counts.
        return f"(SELECT /*+ COALESCE(1) */ * FROM ({union})){alias and f' AS {alias}'}"

    # --- functions ---

    def anonymous_sql(self, expression: exp.Anonymous) -> str:
        """Return a call of a function."""
        return call_sql(self, expression, "")

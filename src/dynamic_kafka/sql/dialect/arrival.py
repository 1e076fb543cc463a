"""The order in which rows arrive, for ranks of a stream: the queries that a rank reads get a column with it.

Flink takes rows with the same time or value in the order in which they arrive: those of one partition of Kafka in the order
of their offsets, and those of several partitions in any order. So the offset decides between such rows.
"""

from __future__ import annotations

from sqlglot import exp

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.dialect.flink import WINDOW_TABLES
from dynamic_kafka.sql.dialect.functions.registry import AGGREGATES
from dynamic_kafka.sql.dialect.functions.rules import called
from dynamic_kafka.sql.dialect.query import part_of_with, parts_of
from dynamic_kafka.sql.dialect.writer import Streams, Writer

__all__ = [
    "ARRIVAL",
    "PLAIN",
    "differs_in_streams",
    "has_over",
    "inline_ranks",
    "is_aggregated",
    "with_arrival",
]

ARRIVAL = "__arrival"
"""The column with a row's offset."""
PLAIN = frozenset(("expressions", "from_", "where", "hint"))
"""The parts of a SELECT that gives at most one row for each row that it reads."""


def inline_ranks(tree: exp.Query, streams: Streams) -> exp.Query:
    """Return a query in which views, and parts of its WITH, are sub-queries if they contain ROW_NUMBER."""
    found = True
    while found:
        found = False
        for table in list(tree.find_all(exp.Table)):
            query = _query_of(table, streams)
            if query is not None and has_over(query, streams):
                _put(query, table)
                found = True
    for cte in list(tree.find_all(exp.CTE)):
        if cte.this.find(exp.Window) is not None and not any(part_of_with(t) is cte for t in tree.find_all(exp.Table)):
            with_ = cte.parent
            cte.pop()
            if isinstance(with_, exp.With) and not with_.expressions:
                with_.pop()
    return tree


def has_over(query: exp.Query, streams: Streams, beneath: frozenset[str] = frozenset()) -> bool:
    """Return whether a query contains OVER, also through views."""
    if query.find(exp.Window) is not None:
        return True
    read = (table for table in query.find_all(exp.Table) if not table.args.get("db") and part_of_with(table) is None)
    for name in {table.name.lower() for table in read} - beneath:
        view = streams.view(name)
        if view is not None and has_over(view, streams, beneath | {name}):
            return True
    return False


def differs_in_streams(tree: exp.Query) -> bool:
    """Return whether a query contains OVER, or an aggregation with DISTINCT."""
    return tree.find(exp.Window) is not None or any(
        isinstance(argument, exp.Distinct) for call in tree.find_all(exp.Anonymous) for argument in call.expressions
    )


def with_arrival(t: Writer, select: exp.Select, streams: Streams) -> bool:
    """Give a SELECT's rows the column with their offset. Return False if they do not arrive in an order, as after a join.

    Raises:
        SqlError: If they do, and it is not known here.
    """
    joins = select.args.get("joins") or []
    if any(not isinstance(join.this, exp.Unnest) for join in joins):
        return False
    if joins:
        raise t.refuse(select, f"The order of rows of UNNEST is not known in a stream. {_WAY}")
    return _arrive(t, select.args["from_"].this, streams)


_WAY = "Write all rows to an 'upsert-kafka' table with this key, or `materialize` them"


def _arrive(t: Writer, node: exp.Expr, streams: Streams) -> bool:
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous):
        call = node.this
        if called(call) not in WINDOW_TABLES or not call.expressions:
            return False
        data = call.expressions[0]
        data = data.expression if isinstance(data, exp.Kwarg) else data
        return _arrive(t, data.expressions[0] if isinstance(data, exp.Anonymous) else data, streams)
    if isinstance(node, exp.Table):
        query = _query_of(node, streams)
        if query is not None:
            if is_aggregated(query):
                return False
            return _arrive(t, _put(query, node), streams)
        if part_of_with(node) is not None:
            raise t.refuse(node, f"Name the columns of {node.name} in its SELECT with AS, not in WITH. {_WAY}")
        if node.args.get("db"):
            return False
        if t.has_options(node):
            raise t.refuse(
                node, f"A rank of a stream over a table with OPTIONS is not known: CREATE TABLE ... LIKE. {_WAY}"
            )
        ordered = streams.ordered(node.name)
        if ordered is None:
            return False
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name, quoted=True))
        place = node.this.meta.get("start")
        node.set("this", exp.to_identifier(ordered, quoted=True))
        node.set("db", None)
        node.set("catalog", None)
        node.set("alias", alias)
        if place is not None:
            node.this.meta["start"] = place
        return True
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select):
        query = node.this
        if is_aggregated(query) or query.args.get("joins"):
            return False
        alias = node.args.get("alias")
        if parts_of(query) - PLAIN or (alias and alias.args.get("columns")):
            raise t.refuse(query, f"The order of these rows is not known in a stream. {_WAY}")
        if not _arrive(t, query.args["from_"].this, streams):
            return False
        if not query.is_star:
            query.append("expressions", exp.column(ARRIVAL))
        return True
    raise t.refuse(node, f"The order of these rows is not known in a stream. {_WAY}")


def is_aggregated(query: exp.Expr) -> bool:
    """Return whether a query is a SELECT that calculates over several of its rows."""
    if not isinstance(query, exp.Select):
        return False
    calls = (called(call) for part in query.expressions for call in part.find_all(exp.Anonymous))
    return bool(parts_of(query) & {"group", "distinct"}) or any(name in AGGREGATES for name in calls)


def _query_of(table: exp.Table, streams: Streams) -> exp.Query | None:
    if not isinstance(table.this, exp.Identifier) or table.args.get("db"):
        return None
    cte = part_of_with(table)
    if cte is None:
        return streams.view(table.name)
    columns = cte.args["alias"].args.get("columns")
    return cte.this if isinstance(cte.this, exp.Query) and not columns else None


def _put(query: exp.Query, table: exp.Table) -> exp.Subquery:
    """Put a query in place of the table that it is the rows of.

    Raises:
        ConfigurationError: If a table that it reads would be a part of a WITH there.
    """
    alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))
    place = table.this.meta.get("start")
    own = list(query.find_all(exp.CTE))
    before = [(part, part_of_with(part)) for part in query.find_all(exp.Table)]
    copied = query.copy()
    for part in copied.walk():
        part.meta.pop("start", None)  # it is a place in another text
    found = exp.Subquery(this=copied, alias=alias.copy())
    if place is not None:
        found.meta["start"] = place
    table.replace(found)
    for (part, cte), moved in zip(before, copied.find_all(exp.Table), strict=True):
        if not any(cte is known for known in own) and part_of_with(moved) is not cte:
            raise ConfigurationError(
                f"`{table.name}` reads `{part.name}`, and where the query reads `{table.name}`, its WITH has another "
                f"`{part.name}`. Give that part of WITH another name"
            )
    return found

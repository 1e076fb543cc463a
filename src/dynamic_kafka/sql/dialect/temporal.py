"""Temporal joins (`FOR SYSTEM_TIME AS OF`): a row meets the version of a table that was valid at the row's time.

With an event time, the rows and all versions of the table are put into one order for each key, and each row takes the last
version before it. With the processing time, it is a lookup: the join with the table as it is at the moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.types import DataType
from sqlglot import exp

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.dialect.arrival import ARRIVAL
from dynamic_kafka.sql.dialect.query import column_finder, columns_of, conditions, is_proctime, name_in, part_of_with
from dynamic_kafka.sql.dialect.scope import Scope
from dynamic_kafka.sql.dialect.writer import Versioned, Versions, Writer
from dynamic_kafka.sql.tables.definition import database_of
from dynamic_kafka.sql.tables.types import is_whole, kind_of, read_as_utc

__all__ = ["join_versions", "processing_times"]


def join_versions(t: Writer, scope: Scope, index: int, versions: Versions | None) -> None:
    """Write a temporal join of a SELECT, given by its index. The tables and joins before it are written.

    Raises:
        SqlError: If it cannot be calculated.
    """
    join: exp.Join = scope.select.args["joins"][index]
    table: exp.Table = join.this
    time = table.args["version"].expression
    if versions is None:
        raise t.refuse(time, "A temporal join (FOR SYSTEM_TIME AS OF) is not known here")
    if (join.side or "").upper() not in ("", "LEFT") or (join.kind or "").upper() not in ("", "INNER", "OUTER"):
        raise t.refuse(table, "A temporal join (FOR SYSTEM_TIME AS OF) is a JOIN or a LEFT JOIN, in Flink, too")
    if join.args.get("on") is None:
        raise t.refuse(table, "A temporal join (FOR SYSTEM_TIME AS OF) needs a condition with ON")
    if t.has_options(table) or not isinstance(table.this, exp.Identifier) or part_of_with(table) is not None:
        raise t.refuse(
            table,
            "The table of a temporal join (FOR SYSTEM_TIME AS OF) is a table by its name, without OPTIONS: "
            "CREATE TABLE ... LIKE one with them",
        )
    try:
        if _is_processing_time(time, scope.select, versions):
            versions.check_lookup(_full_name(table))
            table.set("version", None)
            scope.tables.append(t.as_changed(join, t.sql(table)))
            return
        found = versions.versioned(_full_name(table), streaming=t.times_of is not None)
    except ConfigurationError as error:
        raise t.refuse(table, str(error)) from None
    table.set("version", None)
    _as_of(t, scope, index, time, found)


def _as_of(t: Writer, scope: Scope, index: int, time: exp.Expr, right: Versioned) -> None:
    """Replace the tables of a SELECT up to a join by the rows with their versions."""
    joins: list[exp.Join] = scope.select.args["joins"]
    relation, join = scope.select.args["from_"].this, joins[index]
    if scope.windows:
        raise t.refuse(time, "Write the window as a sub-query, and the temporal join around it")
    before = [_name_of(t, node) for node in (relation, *(found.this for found in joins[:index]))]
    name = join.this.alias_or_name
    source = scope.tables[0] + "".join(map(t.sql, joins[:index]))
    scope.tables.append(t.sql(join.this))
    keys, rest = _condition(t, join, right, source)
    written, kind = f"`{right.time}`", t.type_of(time)
    if t.type_in(written, f"`{right.rows}`") != kind:
        raise t.refuse(time, f"This time and the one of a version ({right.time}) have different types: CAST this one")
    at = _millis(t.sql(time), kind, "The time of a row in a temporal join is NULL")
    of_rows = ", ".join(f"{value} AS __key{i}" for i, value in enumerate(keys))
    of_versions = ", ".join(f"`{column}` AS __key{i}" for i, column in enumerate(right.key))
    listed = ", ".join(f"__key{i}" for i in range(len(keys)))
    left = ", ".join(f"struct(`{table}`.*) AS `{table}`" for table in before)
    of_tables = {table: _columns(t, scope.select, table, source) for table in before}
    columns = ", ".join(f"`{column}`" for column in right.columns)
    of_version = _millis(
        written if right.dated else f"CASE WHEN row_kind <> '-D' THEN {written} END",
        kind,
        f"The time ({right.time}) of a version or a deletion is not known. A deletion has one if the column is METADATA, "
        "such as METADATA FROM 'timestamp'",
    )
    with_key = " AND ".join(f"`{column}` IS NOT NULL" for column in right.key)
    place = f"__temporal{index}"
    rows = (
        f"SELECT __left, CASE WHEN NOT __version.gone THEN __version.row END AS __right FROM (SELECT __left, "
        f"last(__version, true) OVER (PARTITION BY {listed} ORDER BY __at, __side, __arrival "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS __version FROM ("
        f"SELECT {of_rows}, {at} AS __at, 1 AS __side, 0L AS __arrival, struct({left}) AS __left, NULL AS __version "
        f"FROM {source} WHERE {_each(at)} UNION ALL "
        f"SELECT {of_versions}, {of_version}, 0, {ARRIVAL}, NULL, struct(row_kind = '-D' AS gone, struct({columns}) AS row) "
        f"FROM `{right.rows}` WHERE row_kind <> '-U' AND {with_key} AND {_each(of_version)})) WHERE __left IS NOT NULL"
    )

    def with_columns(text: str) -> str:
        found = f"({text}) AS {place}"
        for table, names in (*of_tables.items(), (name, right.columns)):
            row = "__right" if table == name else f"__left.`{table}`"
            values = ", ".join(f"{place}.{row}.`{column}` AS `{column}`" for column in names)
            found += f" CROSS JOIN LATERAL (SELECT {values}) AS `{table}`"
        return found

    inner = (join.side or "").upper() != "LEFT"
    if rest:
        condition = " AND ".join(f"({t.sql(part)})" for part in rest)
        rows = f"SELECT __left, CASE WHEN {condition} THEN __right END AS __right FROM {with_columns(rows)}"
    if inner:
        rows = f"SELECT * FROM ({rows}) WHERE __right IS NOT NULL"
    text = with_columns(rows)
    for node, written in [(relation, text), *((found, "") for found in joins[: index + 1])]:
        t.write_as(node, written)
    scope.tables[:] = [text]
    scope.in_rows = [*before, name]


def _columns(t: Writer, select: exp.Select, table: str, source: str) -> Sequence[str]:
    """Return the columns of a table in a FROM."""
    found = t.type_in(f"struct(`{table}`.*)", source)
    if found is None or kind_of(found) != "StructType":
        raise t.refuse(select, f"The columns of {table} are not known, and a temporal join needs their names")
    names: Sequence[str] = found.fieldNames()  # type: ignore[attr-defined]
    return names


def _condition(t: Writer, join: exp.Join, right: Versioned, source: str) -> tuple[list[str], list[exp.Expr]]:
    """Return what the columns of the PRIMARY KEY are equal to, in their order, and the other conditions."""
    name = join.this.alias_or_name
    columns = {column.lower() for column in right.columns}

    def of_version(node: exp.Expr) -> bool:
        return isinstance(node, exp.Column) and (
            node.table.lower() == name.lower()
            if node.table
            else node.name.lower() in columns and t.type_in(node.name, source) is None
        )

    keys: dict[str, str] = {}
    rest: list[exp.Expr] = []
    primary = {column.lower(): column for column in right.key}
    for part in conditions(join.args["on"]):
        sides = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
        found = next(((a, b) for a, b in (sides, sides[::-1]) if of_version(a)), None) if sides else None
        if found is None or any(map(of_version, found[1].find_all(exp.Column))) or not found[1].find(exp.Column):
            rest.append(part)
        elif found[0].name.lower() not in primary or primary[found[0].name.lower()] in keys:
            raise t.refuse(
                part,
                "The condition of a temporal join compares a row with the PRIMARY KEY of the table alone: Flink keeps "
                "versions for each value of other columns, too. Write the comparison in WHERE",
            )
        else:
            one, other = t.type_of(found[1]), t.type_of(found[0])
            if one != other and not (is_whole(one) and is_whole(other)):
                raise t.refuse(part, "The two sides of this comparison have different types: CAST one of them")
            keys[primary[found[0].name.lower()]] = t.sql(found[1])
    if len(keys) < len(primary):
        missing = ", ".join(column for column in right.key if column not in keys)
        raise t.refuse(join, f"The condition of a temporal join has to contain the PRIMARY KEY of the table: {missing}")
    return [keys[column] for column in right.key], rest


def _millis(time: str, kind: DataType, problem: str) -> str:
    """Return a time as milliseconds, as Flink compares times. One that is NULL ends the query."""
    text = problem.replace("'", "\\'")
    instant = read_as_utc(f"({time})") if kind_of(kind) == "TimestampNTZType" else f"CAST({time} AS TIMESTAMP)"
    return f"coalesce(unix_millis({instant}), CAST(raise_error('{text}') AS BIGINT))"


def _each(time: str) -> str:
    """Return a condition that asks for the time of each row, also if a query needs no version, such as COUNT(*).

    Spark does not move a condition of the query below one that depends on the partition.
    """
    return f"CASE WHEN spark_partition_id() >= 0 THEN {time} IS NOT NULL END"


def _full_name(table: exp.Table) -> str:
    """Return a table's name as in the query, without Flink's names of the place where all tables are."""
    name = name_in(table)
    return ".".join(name if database_of(name) else name[-1:])


def _name_of(t: Writer, node: exp.Expr) -> str:
    name = node.alias_or_name
    if not name:
        raise t.refuse(node, "A sub-query before a temporal join needs a name: (SELECT ...) AS o")
    return name


def _is_processing_time(node: exp.Expr, select: exp.Select, versions: Versions) -> bool:
    """Return whether an expression of a SELECT is a processing time."""
    return is_proctime(node) or bool(column_finder(select, lambda relation: _times_in(relation, versions))(node))


def processing_times(query: exp.Select, versions: Versions) -> Mapping[str, bool]:
    """Return the columns of a query, in lower case, that are processing times."""
    columns = columns_of(
        query,
        lambda relation: _times_in(relation, versions),
        lambda value: _is_processing_time(value, query, versions),
    )
    return {name: True for name, is_time in columns if is_time}


def _times_in(relation: exp.Expr, versions: Versions) -> Mapping[str, bool]:
    if isinstance(relation, exp.Table):
        cte = part_of_with(relation)
        if cte is None:
            by_name = isinstance(relation.this, exp.Identifier)
            return dict.fromkeys(versions.processing_times(relation.name) if by_name else (), True)
        relation = cte
    query = relation.this if isinstance(relation, (exp.Subquery, exp.CTE)) else None
    return processing_times(query, versions) if isinstance(query, exp.Select) else {}

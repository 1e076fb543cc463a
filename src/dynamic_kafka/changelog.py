"""Materialize a changelog as a table: rows with `row_kind` are merged by key, batch by batch.

Rules:

1. The last change of a key in a batch, in the order of the source, is applied. The messages of a key are in one partition,
   so the order is that of their offsets. In an update, `+U` comes after `-U`.
2. If the last change of a key is `-U` or `-D`, its row is deleted. So an update that changes the key deletes the row of the
   old key.
3. A batch that Spark repeats has no further effect, because only the last state of each key is merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import DELETES, ROW_KIND, ROW_KINDS, UPDATE_AFTER
from dynamic_kafka.formats.expressions import named, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = [
    "Target",
    "changes_by_key",
    "delta",
    "last_changes",
    "materialize",
    "merge_changes",
    "merge_into",
    "merge_statement",
]

_GONE = "__gone"

Target: TypeAlias = "Callable[[DataFrame, DataFrame, int], None]"
"""The target of a changelog: a function that applies a batch. Its arguments are

* whole rows, one for each key, to insert or to replace the row with that key;
* the keys of the rows to delete, none of which is among the former;
* the batch's number. After a failure, the same number comes again with the same changes.
"""


def materialize(
    changes: DataFrame, keys: Sequence[str], into: Target, *, order: Sequence[str] = ("offset",)
) -> DataStreamWriter:
    """Keep a table up to date from a stream of changes.

    Args:
        changes: A stream with `row_kind`, such as a table with the format `debezium-json` or the connector `upsert-kafka`.
        keys: The columns that identify a row.
        into: The target: `delta(...)`, or a function of your own.
        order: The columns by which the changes of a key are ordered. They are not in the table.

    Returns:
        A writer. Set its `checkpointLocation`, then call `start()`.

    Raises:
        ConfigurationError: If a column is missing, or `changes` is not a stream.

    Examples:
        >>> orders = env.from_path("orders")  # with `offset` BIGINT METADATA VIRTUAL  # doctest: +SKIP
        >>> materialize(orders, ["id"], delta("/tables/orders")).option(  # doctest: +SKIP
        ...     "checkpointLocation", "/checkpoints/orders"
        ... ).start()
    """
    _check(changes, keys, order)
    if not changes.isStreaming:
        raise ConfigurationError("The changes are not a stream. For a batch, call `last_changes` and write its result")

    def apply(batch: DataFrame, batch_id: int) -> None:
        # The target reads both parts, perhaps more than once. The source is read once.
        last = last_changes(batch, keys, order=order).persist()
        try:
            gone = F.col(ROW_KIND).isin(*DELETES)
            into(last.where(~gone).drop(ROW_KIND), last.where(gone).select(*map(named, keys)), batch_id)
        finally:
            last.unpersist()

    return changes.writeStream.foreachBatch(apply)


def last_changes(batch: DataFrame, keys: Sequence[str], *, order: Sequence[str] = ("offset",)) -> DataFrame:
    """Return the last change of each key.

    Args:
        batch: Rows with `row_kind`.
        keys: The columns that identify a row.
        order: The columns by which the changes of a key are ordered.

    Returns:
        One row for each key, with the columns of `batch` except those of `order`.

    Raises:
        ConfigurationError: If a column is missing.
    """
    _check(batch, keys, order)
    columns = [name for name in batch.columns if name not in order]
    kinds = F.array(*map(F.lit, ROW_KINDS))
    later = F.struct(*map(named, order), F.array_position(kinds, F.col(ROW_KIND)))
    last = F.max_by(F.struct(*map(named, columns)), later).alias("__last")
    return batch.groupBy(*map(named, keys)).agg(last).select("__last.*")


def delta(table: str) -> Target:
    """Return a target that merges into an existing Delta table.

    It needs a session with Delta's extension and catalog.

    Args:
        table: The table's name, or its path, which contains a `/`.
    """
    return merge_into(f"delta.{quoted(table)}" if "/" in table else table)


def merge_into(table: str) -> Target:
    """Return a target that merges into an existing table by SQL, such as one of Delta or Iceberg.

    It needs a session with the extension and the catalog of that table.

    Args:
        table: The table's name as in SQL, such as `lake.db.customers`, or a path as in ``delta.`/tables/customers` ``.
    """

    def merge(upserts: DataFrame, deletes: DataFrame, batch_id: int) -> None:
        del batch_id  # merging a batch twice has the same result as merging it once
        merge_changes(_both(upserts, deletes), table, deletes.columns, None)

    return merge


def _both(upserts: DataFrame, deletes: DataFrame) -> DataFrame:
    """Return rows to insert and keys to delete as one DataFrame, with the column `__gone`."""
    return upserts.withColumn(_GONE, F.lit(False)).unionByName(
        deletes.withColumn(_GONE, F.lit(True)), allowMissingColumns=True
    )


def merge_changes(changes: DataFrame, table: str, keys: Sequence[str], order: str | None) -> None:
    """Merge rows from `changes_by_key` into a table by SQL.

    Args:
        changes: The rows.
        table: The table's name as in SQL.
        keys: The columns that identify a row.
        order: The column that says which row of a key is the newest one. Rows of the table that are newer stay.
    """
    statement = merge_statement(table, [name for name in changes.columns if name != _GONE], keys, order)
    changes.sparkSession.sql(statement, changes=changes)


def merge_statement(table: str, columns: Sequence[str], keys: Sequence[str], order: str | None = None) -> str:
    """Return the MERGE of `{changes}`, which has the columns and `__gone`: true for a key whose row is deleted."""
    same = " AND ".join(f"target.{quoted(key)} <=> changes.{quoted(key)}" for key in keys)  # a key may have a NULL
    others = ", ".join(f"target.{quoted(name)} = changes.{quoted(name)}" for name in columns)
    names, values = ", ".join(map(quoted, columns)), ", ".join(f"changes.{quoted(name)}" for name in columns)
    newer = ""
    if order is not None:
        newer = f" AND (target.{quoted(order)} IS NULL OR changes.{quoted(order)} >= target.{quoted(order)})"
    return (
        f"MERGE INTO {table} AS target USING {{changes}} AS changes ON {same} "  # noqa: S608  names are quoted
        f"WHEN MATCHED AND changes.{_GONE}{newer} THEN DELETE "
        f"WHEN MATCHED AND NOT changes.{_GONE}{newer} THEN UPDATE SET {others} "
        f"WHEN NOT MATCHED AND NOT changes.{_GONE} THEN INSERT ({names}) VALUES ({values})"
    )


def changes_by_key(batch: DataFrame, keys: Sequence[str], order: str | None) -> DataFrame:
    """Return the last row of each key, with the column `__gone`: whether the row of this key is deleted.

    Args:
        batch: Rows, with `row_kind` if they are changes.
        keys: The columns that identify a row.
        order: The column that says which row of a key is the last one. None if a batch has one row of each key.

    The query fails if nothing says which row is the last: without `order` if a key has several rows, with it if different
    rows of a key have the largest value, or if a deletion has NULL.
    """
    rows = batch if ROW_KIND in batch.columns else batch.withColumn(ROW_KIND, F.lit(UPDATE_AFTER))
    row = F.struct(*map(named, rows.columns))
    gone = F.col(ROW_KIND).isin(*DELETES)
    if order is None:
        found = F.when(F.count(F.lit(1)) == 1, F.first(row)).otherwise(
            _unknown("several rows", keys, "Name a column that does: 'sequence.field'")
        )
    else:
        later = F.struct(named(order), F.array_position(F.array(*map(F.lit, ROW_KINDS)), F.col(ROW_KIND)))
        content = F.xxhash64(F.to_json(row))  # equal rows, such as a message that was sent twice, are one
        most, least = (F.max(F.struct(later, of.alias("of")))["of"] for of in (content, F.bitwise_not(content)))
        several = _unknown(f"several rows with the same '{order}'", keys, "Take a 'sequence.field' that differs")
        missing = _unknown(f"a deletion without '{order}'", keys, "Take a 'sequence.field' that deletions have, too")
        found = (
            F.when(F.bool_or(gone & named(order).isNull()), missing)
            .when(most == F.bitwise_not(least), F.max_by(row, later))
            .otherwise(several)
        )
    last = rows.groupBy(*map(named, keys)).agg(found.alias("__last")).select("__last.*")
    return last.withColumn(_GONE, gone).drop(ROW_KIND)


def _unknown(what: str, keys: Sequence[str], way: str) -> Column:
    values = F.concat_ws(", ", *(named(key).cast("string") for key in keys))
    return F.raise_error(
        F.concat(
            F.lit(f"A batch has {what} for the key ({', '.join(keys)}) = ("),
            values,
            F.lit(f"), and nothing says which row is the last one. {way}"),
        )
    )


def _check(changes: DataFrame, keys: Sequence[str], order: Sequence[str]) -> None:
    if not keys:
        raise ConfigurationError("No key is given. Name the columns that identify a row")
    for name in (*keys, *order, ROW_KIND):
        if name not in changes.columns:
            hint = ""
            if name in order:
                hint = f". Declare it in the table (`{name}` BIGINT METADATA VIRTUAL), or set other columns as `order`"
            raise ConfigurationError(f"Column '{name}' is missing; the changes have {', '.join(changes.columns)}{hint}")

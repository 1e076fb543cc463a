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
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError
from dynamic_kafka.formats import DELETES, ROW_KIND, ROW_KINDS
from dynamic_kafka.formats.expressions import named, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Target", "delta", "last_changes", "materialize"]

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

    Example:
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

    It needs delta-spark, and a session with Delta's extension.

    Args:
        table: The table's name, or its path, which contains a `/`.

    Raises:
        MissingDependencyError: If delta-spark is not installed.
    """
    try:
        from delta.tables import DeltaTable
    except ImportError:
        raise MissingDependencyError("delta-spark", "delta", "to keep a Delta table") from None

    def merge(upserts: DataFrame, deletes: DataFrame, batch_id: int) -> None:
        del batch_id  # merging a batch twice has the same result as merging it once
        spark = upserts.sparkSession
        target: Any = DeltaTable.forPath(spark, table) if "/" in table else DeltaTable.forName(spark, table)
        keys = deletes.columns
        changes = upserts.withColumn("__gone", F.lit(False)).unionByName(
            deletes.withColumn("__gone", F.lit(True)), allowMissingColumns=True
        )
        same = F.lit(True)
        for key in keys:
            same = same & F.col(f"target.{quoted(key)}").eqNullSafe(F.col(f"changes.{quoted(key)}"))
        row = {quoted(name): F.col(f"changes.{quoted(name)}") for name in upserts.columns}
        (
            target.alias("target")
            .merge(changes.alias("changes"), same)
            .whenMatchedDelete("changes.__gone")
            .whenMatchedUpdate(set=row)
            .whenNotMatchedInsert("NOT changes.__gone", values=row)
            .execute()
        )

    return merge


def _check(changes: DataFrame, keys: Sequence[str], order: Sequence[str]) -> None:
    if not keys:
        raise ConfigurationError("No key is given. Name the columns that identify a row")
    for name in (*keys, *order, ROW_KIND):
        if name not in changes.columns:
            hint = ""
            if name in order:
                hint = f". Declare it in the table (`{name}` BIGINT METADATA VIRTUAL), or set other columns as `order`"
            raise ConfigurationError(f"Column '{name}' is missing; the changes have {', '.join(changes.columns)}{hint}")

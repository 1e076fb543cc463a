"""A table kept up to date from a changelog: rows with `row_kind`, merged by key, batch by batch.

Rules:

1. Of all changes of a key in a batch, the last one in the source's order counts. A key's messages are in one partition, so
   their offsets say the order; of the two rows of an update, `+U` is the later one.
2. A key whose last change is `-U` or `-D` goes. So an update that changes the key removes the old one.
3. A batch that Spark repeats changes nothing a second time: what is merged is the last state of each key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError
from dynamic_kafka.formats import ROW_KIND
from dynamic_kafka.formats.expressions import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Target", "delta", "last_changes", "materialize"]

_KINDS = ("-U", "-D", "+I", "+U")  # in the order in which they may follow each other in one message
_DELETES = ("-U", "-D")


Target: TypeAlias = "Callable[[DataFrame, DataFrame, int], None]"
"""Where a table is kept: a function that applies a batch. It is given

* whole rows, one for each key: to be inserted, or to replace the row with that key;
* keys whose rows go; none of them is among the former;
* the batch's number. It may come again after a failure, with the same changes.
"""


def materialize(
    changes: DataFrame, keys: Sequence[str], into: Target, *, order: Sequence[str] = ("offset",)
) -> DataStreamWriter:
    """Keep a table up to date from a stream of changes.

    Args:
        changes: A stream with `row_kind`, such as a table with the format `debezium-json` or the connector `upsert-kafka`.
        keys: The columns that tell rows apart.
        into: Where the table is kept: `delta(...)`, or a function of your own.
        order: Columns that say which of two changes of a key is the later one. They are not in the table.

    Returns:
        A writer: give it a `checkpointLocation`, then `start()`.

    Raises:
        ConfigurationError: If a column is missing, or `changes` is no stream.

    Example:
        >>> orders = env.from_path("orders")  # with `offset` BIGINT METADATA VIRTUAL  # doctest: +SKIP
        >>> materialize(orders, ["id"], delta("/tables/orders")).option(  # doctest: +SKIP
        ...     "checkpointLocation", "/checkpoints/orders"
        ... ).start()
    """
    _check(changes, keys, order)
    if not changes.isStreaming:
        raise ConfigurationError("The changes are no stream; apply `last_changes` of a batch by yourself")

    def apply(batch: DataFrame, batch_id: int) -> None:
        # Both parts are read by the target, and maybe more than once: the source is read once.
        last = last_changes(batch, keys, order=order).persist()
        try:
            gone = F.col(ROW_KIND).isin(*_DELETES)
            into(last.where(~gone).drop(ROW_KIND), last.where(gone).select(*map(_column, keys)), batch_id)
        finally:
            last.unpersist()

    return changes.writeStream.foreachBatch(apply)


def last_changes(batch: DataFrame, keys: Sequence[str], *, order: Sequence[str] = ("offset",)) -> DataFrame:
    """The last change of each key.

    Args:
        batch: Rows with `row_kind`.
        keys: The columns that tell rows apart.
        order: Columns that say which of two changes of a key is the later one.

    Returns:
        One row for each key: `batch`'s columns without those of `order`.

    Raises:
        ConfigurationError: If a column is missing.
    """
    _check(batch, keys, order)
    columns = [name for name in batch.columns if name not in order]
    kinds = F.array(*map(F.lit, _KINDS))
    later = F.struct(*map(_column, order), F.array_position(kinds, F.col(ROW_KIND)))
    last = F.max_by(F.struct(*map(_column, columns)), later).alias("__last")
    return batch.groupBy(*map(_column, keys)).agg(last).select("__last.*")


def delta(table: str) -> Target:
    """A Delta table, by path or by name; it has to be there. Needs delta-spark and a session that has its extension.

    Args:
        table: A path if it has a `/` in it, else a name.

    Raises:
        MissingDependencyError: If delta-spark is not installed.
    """
    try:
        from delta.tables import DeltaTable
    except ImportError:
        raise MissingDependencyError("delta-spark", "delta", "to keep a Delta table") from None

    def merge(upserts: DataFrame, deletes: DataFrame, batch_id: int) -> None:
        del batch_id  # merging a batch twice is merging it once
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


def _column(name: str) -> Column:
    return F.col(quoted(name))  # a name may have a dot in it


def _check(changes: DataFrame, keys: Sequence[str], order: Sequence[str]) -> None:
    if not keys:
        raise ConfigurationError("No key is given; name the columns that tell rows apart")
    for name in (*keys, *order, ROW_KIND):
        if name not in changes.columns:
            hint = ""
            if name in order:
                hint = f"; declare it in the table (`{name}` BIGINT METADATA VIRTUAL), or say what gives the order"
            raise ConfigurationError(f"Column '{name}' is missing; the changes have {', '.join(changes.columns)}{hint}")

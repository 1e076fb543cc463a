"""Messages that a format cannot read: fail, skip and count, or set aside in a topic (`format.on-error`).

Rules:

1. A message is decoded once. `once` keeps Spark from evaluating the decoding a second time in the filter that follows.
2. The check is a filter: it holds for every row that is read, whatever columns a query takes.
3. A message that is set aside is acknowledged before its batch ends, at least once: a task that is repeated sets it aside
   again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.formats import ERROR
from dynamic_kafka.sql.table import DeadLetters

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COORDINATES", "Part", "drop_poison", "once", "reason"]

COORDINATES = ("cluster", "topic", "partition", "offset")
"""Columns of the source that say where a message was."""

_SHOWN_BYTES = 48


@dataclass(frozen=True)
class Part:
    """A part of messages that is decoded.

    Args:
        name: `key` or `value`: the column with its bytes.
        format: The name of its format, for errors.
        decoded: The column with what was decoded of it.
    """

    name: str
    format: str
    decoded: str


def once(column: Column) -> Column:
    """The same column, which Spark evaluates where it stands.

    The optimizer copies a deterministic expression into each filter above it; it leaves alone what names the partition.
    """
    return F.when(F.spark_partition_id() >= 0, column)


def reason(part: Part) -> Column:
    """Why a message cannot be read, and how it begins."""
    beginning = F.substring(F.col(part.name), 1, _SHOWN_BYTES)
    return F.concat(
        F.lit(f"the {part.name} cannot be read as {part.format}: "),
        F.col(f"{part.decoded}.{ERROR}"),
        F.lit("; it begins with "),
        F.when(F.is_valid_utf8(F.col(part.name).cast("string")), _in_quotes(beginning)).otherwise(
            F.concat(F.lit("0x"), F.hex(beginning))
        ),
    )


def _in_quotes(beginning: Column) -> Column:
    """The beginning of a text, whose last character may be cut."""
    return F.btrim(F.to_json(F.array(F.make_valid_utf8(beginning.cast("string")))), F.lit("[]"))


def drop_poison(
    messages: DataFrame, parts: Sequence[Part], policy: str, name: str, letters: DeadLetters | None = None
) -> DataFrame:
    """The messages whose parts could all be decoded.

    Args:
        messages: With the columns of `COORDINATES`, `key` and `value` as the parts need them, and the decoded ones. For
            dead letters with both `key` and `value`.
        parts: What was decoded, by `once`.
        policy: `fail`, `skip` or `dead-letter`.
        name: Of the table; messages that are left out are counted in the query's observed metric `dynamic-kafka: <name>`.
        letters: Where they are set aside, for `dead-letter`.
    """
    why = F.coalesce(*(F.when(F.col(f"{p.decoded}.{ERROR}").isNotNull(), reason(p)) for p in parts))
    broken = F.lit(False)
    for part in parts:
        broken = broken | F.col(f"{part.decoded}.{ERROR}").isNotNull()
    if policy == "fail":
        return messages.where(F.when(~broken, True).otherwise(F.raise_error(_failure(why)).cast("boolean")))
    counted = messages.observe(f"dynamic-kafka: {name}", F.count_if(broken).alias(policy.replace("-", "_")))
    if policy == "skip":
        return counted.where(~broken)
    assert letters is not None
    columns = [why, *(F.when(broken, F.col(column)) for column in ("key", "value", *COORDINATES))]
    return counted.where(~broken & _set_aside(letters)(*columns))


def _failure(why: Column) -> Column:
    place = [F.lit("Cluster '"), F.col("cluster"), F.lit("', topic '"), F.col("topic"), F.lit("', partition ")]
    place += [F.col("partition").cast("string"), F.lit(", offset "), F.col("offset").cast("string"), F.lit(": ")]
    return F.concat(*place, why, F.lit("; 'format.on-error' = 'skip' or 'dead-letter' goes on without it"))


def _set_aside(letters: DeadLetters) -> Callable[..., Column]:
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    def set_aside(*columns: pa.Array) -> pa.Array:
        """Sends the messages with an error; true for all."""
        from dynamic_kafka.sql.dead_letters import send

        send(letters, columns)
        return pa.repeat(pa.scalar(True), len(columns[0]))

    set_aside.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    make: Callable[..., Any] = arrow_udf
    udf: Any = make(set_aside, returnType="boolean")
    return udf.asNondeterministic()  # type: ignore[no-any-return]

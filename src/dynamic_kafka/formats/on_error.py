"""The policy for messages that a format cannot read: `format.on-error` (fail, skip or dead-letter).

A format never raises for a bad message. It puts the reason into the field `ERROR` of the decoded struct, and the policy
is applied here, for tables (`apply_error_policy`) and for single columns (`row_or_error`).

Rules for tables:

1. A message is decoded once. `once` keeps Spark from evaluating the decoding again in the filter of the policy.
2. The policy is a filter on the decoded messages, before any other: it holds for each message that is read, whichever
   columns a query selects, and whichever conditions it has.
3. A message that cannot be read has only NULLs, so a condition of the query that Spark evaluates first would drop it.
   `once` keeps the filter where it is: Spark neither moves a condition below a filter that depends on the partition, nor
   joins the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.formats.expressions import once
from dynamic_kafka.formats.format import ERROR

__all__ = ["COORDINATES", "ON_ERROR_ADVICE", "Part", "apply_error_policy", "reason", "reason_text", "row_or_error"]

COORDINATES = ("cluster", "topic", "partition", "offset")
"""Columns of the source that say where a message comes from."""

ON_ERROR_ADVICE = "Set 'format.on-error' to 'skip' or 'dead-letter' to continue without such messages"

_SHOWN_BYTES = 48


@dataclass(frozen=True)
class Part:
    """A decoded part of a message.

    Args:
        name: `key` or `value`: the column with its bytes.
        format: The name of its format, for errors.
        error: The reason why the part cannot be read; null if it can. The decoding is computed by `expressions.once`.
    """

    name: str
    format: str
    error: Column


def apply_error_policy(
    messages: DataFrame,
    parts: Sequence[Part],
    policy: str,
    table: str,
    dead_letter: Callable[..., Column] | None = None,
    *,
    column: Callable[[str], Column] = F.col,
) -> DataFrame:
    """Return the messages of which all parts could be decoded.

    Args:
        messages: Messages with the columns of `COORDINATES`, those of the parts, and the decoded ones, which may be found
            by `column`. Dead letters need both `key` and `value`.
        parts: The decoded parts.
        policy: `fail`, `skip` or `dead-letter`.
        table: The table's name. Bad messages are counted in the query's observed metric `dynamic-kafka: <table>`.
        dead_letter: For `dead-letter`: takes the columns reason, key, value and `COORDINATES`, all null for a good
            message, and returns a boolean column: true for a good message, false for one that is in the dead-letter topic.
        column: Returns a column of a bad message by its name.
    """
    broken = reduce(or_, (part.error.isNotNull() for part in parts))
    why = F.coalesce(
        *(F.when(p.error.isNotNull(), reason(f"the {p.name}", p.format, p.error, column(p.name))) for p in parts)
    )
    if policy == "fail":
        return messages.where(
            once(F.when(~broken, True).otherwise(F.raise_error(_located(why, column)).cast("boolean")))
        )
    counted = messages.observe(f"dynamic-kafka: {table}", F.count_if(broken).alias(policy.replace("-", "_")))
    if policy == "skip":
        return counted.where(once(~broken))
    assert dead_letter is not None
    # Not `~broken & ...`: Spark would evaluate that part before the function, which would not get the bad messages.
    letters = [why, *(F.when(broken, column(name)) for name in ("key", "value", *COORDINATES))]
    return counted.where(once(dead_letter(*letters)))


def row_or_error(row: Column, decoded: Column, message: Column, format_name: str, *, skip: bool) -> Column:
    """Return a column's row if its message could be decoded.

    Args:
        row: The row that is made of the decoded struct.
        decoded: The decoded struct, with `ERROR`; null if there is no row.
        message: The message.
        format_name: The format, for the error.
        skip: True for null instead of an error.
    """
    fine = F.when(decoded.isNull() | decoded[ERROR].isNull(), row)
    return fine if skip else fine.otherwise(F.raise_error(reason("A message", format_name, decoded[ERROR], message)))


def reason(subject: str, format_name: str, error: Column, message: Column) -> Column:
    """Return the text that says why a message cannot be read, and how it begins."""
    beginning = F.substring(message, 1, _SHOWN_BYTES)
    # The last character may be cut. `to_json` escapes control characters; quotes need no escape here.
    text = F.btrim(F.to_json(F.array(F.make_valid_utf8(beginning.cast("string")))), F.lit("[]"))
    quoted = F.replace(text, F.lit('\\"'), F.lit('"'))
    shown = F.when(F.is_valid_utf8(message.cast("string")), quoted).otherwise(F.concat(F.lit("0x"), F.hex(beginning)))
    return F.concat(F.lit(f"{subject} cannot be read as {format_name}: "), error, F.lit("; it begins with "), shown)


def reason_text(subject: str, format_name: str, error: str, message: bytes) -> str:
    """Return the same as `reason`, where messages are read."""
    beginning = message[:_SHOWN_BYTES]
    shown = f"0x{beginning.hex().upper()}"
    with suppress(UnicodeDecodeError):
        message.decode()
        # The last character may be cut. Control characters are escaped, quotes need no escape here.
        shown = json.dumps(beginning.decode(errors="replace"), ensure_ascii=False).replace('\\"', '"')
    return f"{subject} cannot be read as {format_name}: {error}; it begins with {shown}"


def _located(why: Column, column: Callable[[str], Column]) -> Column:
    place = [F.lit("Cluster '"), column("cluster"), F.lit("', topic '"), column("topic"), F.lit("', partition ")]
    place += [column("partition").cast("string"), F.lit(", offset "), column("offset").cast("string"), F.lit(": ")]
    return F.concat(*place, why, F.lit(f". {ON_ERROR_ADVICE}"))

"""Flink's rows beside ours, and the differences that are known."""

from __future__ import annotations

import atexit
import json
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime, time
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa

from dynamic_kafka.formats import ROW_KIND, ROWS
from dynamic_kafka.sql.parser.parse import parse_statement
from dynamic_kafka.sql.parser.statements import CreateTable
from dynamic_kafka.sql.tables.table import Encoding, table_of
from dynamic_kafka.sql.tables.types import string_literal
from tests.flink_answers.messages import Case
from tests.flink_answers.protobuf_messages import descriptors
from tests.flink_answers.record_formats import FORMAT_ANSWERS

__all__ = ["DIFFERENCES", "answers", "difference", "known", "same", "table"]

DIFFERENCES: dict[str, dict[str, int]] = {
    "trailing bytes, invalid UTF-8 and values out of range are read as something": {
        "bytes are read as STRING": 1,
        "BOOLEAN": 1,
        "TINYINT and SMALLINT": 2,
        "arrays": 1,
        "damaged": 3,
        "integers that are too long": 1,
        "avro": 1,
        "avro, its JSON": 1,
    },
    "numbers with more bytes than they need, a decimal without bytes, and in Avro's JSON a missing field": {
        "integers that are too long": 1,
        "a decimal without bytes": 1,
        "avro, its JSON": 1,
    },
    "`TIMESTAMP(6)` and `TIMESTAMP_LTZ` with the legacy mapping are refused": {
        "TIMESTAMP(6), legacy": 1,
        "TIMESTAMP_LTZ(3), legacy": 1,
        "avro-confluent, not legacy": 1,
    },
    "numbers of microseconds are read and written as milliseconds": {
        "TIMESTAMP(3), legacy, of micros": 2,
        "TIMESTAMP(6), not legacy": 2,
        "TIMESTAMP_LTZ(6), not legacy": 2,
        "TIMESTAMP_LTZ, not legacy": 2,
    },
    "A `DECIMAL` that does not fit its column becomes NULL": {
        "a decimal that does not fit": 2,
        "csv: numbers": 1,
        "json: numbers": 1,
        "json: numbers, as a tree": 1,
    },
    "enums and fixed of the writer": {
        "a decimal in fixed": 2,
        "enum as STRING": 1,
        "fixed as BYTES": 1,
        "fixed as BYTES, given": 1,
    },
    "a decimal has the scale of the column": {"a decimal of another scale": 2},
    "a field of a type that does not fit its column is an error of messages that contain it": {
        "a type within a row that does not fit": 1
    },
    "`json`: timestamps are read only in the configured standard": {
        "json: times": 2,
        "json: times, as a tree": 2,
        "json: times in ISO": 1,
    },
    "`json`: each object of an array is a row": {"json: objects": 3, "json: objects, as a tree": 3},
    "`json`: of a field that is there twice, the first value counts": {"json: objects": 1},
    "its other parser reads `null` and blanks as no row": {
        "json: objects, as a tree": 2,
        "json: texts, as a tree": 4,
        "json: nested, as a tree": 1,
    },
    "`csv`: of several lines, the first one is the row": {
        "csv": 1,
        "csv: one text": 2,
        "csv: escapes": 1,
        "csv: nested, delimiter": 1,
        "csv: numbers": 1,
        "csv: times": 1,
    },
    "an unset proto3 `optional` field, and the unset members of a `oneof`": {
        "protobuf: NOT NULL": 1,
        "protobuf: optional of proto3": 3,
        "protobuf: oneof": 8,
    },
    "`protobuf`: types have to be the same": {
        "protobuf: uint32 as BIGINT": 1,
        "protobuf: int32 as BIGINT": 1,
        "protobuf: int32 as SMALLINT": 1,
        "protobuf: enum as BIGINT": 1,
    },
    "an enum's number without a name is an error in a column of numbers": {
        "protobuf: enum as INT": 1,
        "protobuf: enum as INT, defaults": 1,
    },
    "a message in a `oneof` that is replaced, and comes again": {"protobuf: oneof": 1, "protobuf: oneof, defaults": 1},
    "Google's well-known types are rows of their fields": {"protobuf: a Timestamp as TIMESTAMP": 1},
    "invalid UTF-8 of proto2 is read with other characters": {"protobuf: proto2": 1, "protobuf: proto2, defaults": 1},
}
"""What is in docs/guides/from-flink.md: a text of it, and for each case how many messages are read otherwise."""


@cache
def answers() -> Any:
    """What Flink answered, by case and message."""
    return json.loads(FORMAT_ANSWERS.read_text())


@cache
def descriptor_file() -> Path:
    """A file with the message types of Protobuf."""
    with NamedTemporaryFile(suffix=".desc", delete=False) as file:
        file.write(descriptors().SerializeToString())
    path = Path(file.name)
    atexit.register(path.unlink)
    return path


def table(case: Case, registry: str) -> Encoding:
    """The columns, the format and its options, as a table has them."""
    given = {"connector": "kafka", "topic": "t", "properties.bootstrap.servers": "b:1", **case.table_options(registry)}
    if case.format == "protobuf":
        given["protobuf.descriptor-file"] = str(descriptor_file())
    options = ", ".join(f"{string_literal(key)} = {string_literal(value)}" for key, value in given.items())
    statement = parse_statement(f"CREATE TABLE t ({case.columns}) WITH ({options})")
    assert isinstance(statement, CreateTable)
    return table_of(statement.definition).value


def same(flink: Any, ours: Any, type_: pa.DataType) -> bool:
    """Whether a value of Flink, as text, is ours."""
    types = pa.types
    if flink is None or ours is None:
        return flink is None and ours is None
    if types.is_struct(type_):
        return all(same(value, ours[f.name], f.type) for value, f in zip(flink, type_, strict=True))
    if types.is_list(type_):
        return len(flink) == len(ours) and all(same(a, b, type_.value_type) for a, b in zip(flink, ours, strict=True))
    if types.is_map(type_):
        left = list(ours.items() if isinstance(ours, dict) else ours)
        for key, value in flink:
            pair = next(
                (p for p in left if same(key, p[0], type_.key_type) and same(value, p[1], type_.item_type)), None
            )
            if pair is None:
                return False
            left.remove(pair)
        return not left
    if types.is_floating(type_):
        number = np.float32 if types.is_float32(type_) else np.float64
        return bool(number(flink.replace("Infinity", "inf")).tobytes() == number(ours).tobytes())
    if types.is_boolean(type_):
        return bool(flink == str(ours).lower())
    if types.is_binary(type_):
        return bool(flink == ours.hex())
    if types.is_timestamp(type_):
        return bool(datetime.fromisoformat(flink) == (ours if type_.tz is None else ours.astimezone(UTC)))
    if types.is_decimal(type_):
        return bool(flink == format(ours, "f"))
    if types.is_time(type_):
        return bool(time.fromisoformat(flink) == ours)
    if types.is_date(type_):
        return bool(flink == ours.isoformat())
    return bool(flink == str(ours))


def difference(flink: Any, found: Any, type_: pa.DataType, *, changelog: bool = False) -> str:
    """What is different, or nothing."""
    if isinstance(flink, dict):
        return "" if isinstance(found, Exception) else "we have a row"
    if isinstance(found, Exception):
        return "we have an error"
    if changelog:
        return "" if _same_changes(flink, [] if found is None else found[ROWS], type_) else "other changes"
    if found is None or not flink:
        return "" if found is None and not flink else "a row is missing"
    if len(flink) != 1:
        return "several rows"
    ((_, *values),) = flink
    return "" if same(values, found, type_) else "another row"


def _same_changes(flink: list[Any], ours: list[Any], type_: pa.DataType) -> bool:
    return len(flink) == len(ours) and all(
        kind == change[ROW_KIND] and same(values, change["row"], type_)
        for (kind, *values), change in zip(flink, ours, strict=True)
    )


def known(names: Collection[str]) -> dict[str, int]:
    """How many messages of some cases are read otherwise."""
    found = Counter[str]()
    for cases in DIFFERENCES.values():
        found.update({name: count for name, count in cases.items() if name in names})
    return dict(found)

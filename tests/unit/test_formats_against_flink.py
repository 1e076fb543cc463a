"""What Flink's formats read from messages (`tests/flink_answers`) beside ours: the same rows, or a known difference."""

from __future__ import annotations

import atexit
import json
import pprint
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, time
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.flink_answers.avro_messages import SCHEMAS
from tests.flink_answers.messages import Case, serving
from tests.flink_answers.protobuf_messages import descriptors
from tests.flink_answers.record_formats import CASES, FORMAT_ANSWERS
from tests.native import DECODED, decode, differences

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import ERROR
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.sql.parser.parse import parse_statement
from dynamic_kafka.sql.parser.statements import CreateTable
from dynamic_kafka.sql.table import Encoding, table_of
from dynamic_kafka.sql.types import string_literal

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
    "A `DECIMAL` that does not fit its column becomes NULL": {"a decimal that does not fit": 2},
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
    "of a map's key that is there twice, the last value counts": {"a map with a key twice": 1},
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
"""What is in docs/migrating-from-flink.md: a text of that page, and for each case how many messages are read otherwise."""
HEADER = 5
"""The bytes before a message of `avro-confluent`: 0 and the id of its schema."""
DOCS = Path(__file__).parents[2] / "docs" / "migrating-from-flink.md"


@cache
def answers() -> Any:
    """What Flink answered, by case and message."""
    return json.loads(FORMAT_ANSWERS.read_text())


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The schema registry of the messages."""
    with serving(SCHEMAS) as url:
        yield url


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


def ours(case: Case, registry: str) -> tuple[pa.DataType, list[Any]]:
    """The type of rows, and for each message its row, None if there is none, or the error."""
    try:
        found = table(case, registry)
        assert found.format.decoder is not None
        decode = found.format.decoder(found.schema, found.options).rows
    except ConfigurationError as error:
        return pa.null(), [error] * len(case.messages)
    rows: list[Any] = []
    for message in case.messages:  # one by one: a schema that does not fit fails the batch
        try:
            (row,) = decode(pa.array([message], pa.binary())).to_pylist()
        except ConfigurationError as error:
            rows.append(error)
            continue
        reason = None if row is None else row.pop(ERROR)
        rows.append(row if reason is None else ConfigurationError(reason))
    return arrow_type(found.schema), rows


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
        left = list(ours)
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
        return bool(datetime.fromisoformat(flink) == ours)
    if types.is_decimal(type_):
        return bool(flink == format(ours, "f"))
    if types.is_time(type_):
        return bool(time.fromisoformat(flink) == ours)
    if types.is_date(type_):
        return bool(flink == ours.isoformat())
    return bool(flink == str(ours))


def difference(flink: Any, found: Any, type_: pa.DataType) -> str:
    """What is different, or nothing."""
    if isinstance(flink, dict):
        return "" if isinstance(found, Exception) else "we have a row"
    if isinstance(found, Exception):
        return "we have an error"
    if found is None or not flink:
        return "" if found is None and not flink else "a row is missing"
    ((_, *values),) = flink
    return "" if same(values, found, type_) else "another row"


def compared(case: Case, name: str, registry: str) -> dict[str, Any]:
    """The messages of a case that are read otherwise."""
    flink = answers()[name]
    type_, rows = ours(case, registry)
    found = {}
    for message, row in zip(case.messages, rows, strict=True):
        answer = flink if "error" in flink else flink[case.key(message)]
        text = difference(answer, row, type_)
        if text:
            found[case.key(message)] = (text, answer, row)
    return found


def test_messages_are_read_as_by_flink(registry: str) -> None:
    """Several hundred messages, apart from the known differences."""
    found = {name: different for name in CASES if (different := compared(CASES[name], name, registry))}
    known = Counter[str]()
    for cases in DIFFERENCES.values():
        known.update(cases)
    assert {name: len(different) for name, different in found.items()} == known, pprint.pformat(found)


def test_the_differences_are_documented() -> None:
    """Each of them is in the page for users of Flink."""
    page = DOCS.read_text()
    assert [text for text in DIFFERENCES if text not in page] == []


def test_all_cases_are_recorded() -> None:
    """With the messages that they have now."""
    for name, case in CASES.items():
        recorded = answers()[name]
        assert "error" in recorded or [*recorded] == [case.key(message) for message in case.messages], name
    assert answers().keys() == CASES.keys()


@pytest.mark.slow
def test_the_kernel_reads_the_same(registry: str) -> None:
    """The rows that Python reads, or none."""
    decoded = 0
    for name, case in CASES.items():
        try:
            found = table(case, registry)
        except ConfigurationError:
            continue
        decoded += sum(native_rows(found, name, case.messages))
    assert decoded > 400


def native_rows(found: Encoding, name: str, messages: Sequence[bytes]) -> Iterator[int]:
    """How many messages the kernel has decoded, for each schema, after a comparison."""
    spec = found.format.native(found.schema, found.options)
    assert found.format.decoder is not None
    decoder = found.format.decoder(found.schema, found.options)
    if spec is None:
        return
    for head, group in groupby(messages, lambda m: m[:HEADER] if decoder.schemas is not None else b""):
        with_schema: dict[str, Any] = {"schema": found.schema.jsonValue()}
        bodies = list(group)
        if decoder.schemas is not None:
            schema_id = int.from_bytes(head[1:], "big")
            try:
                writer = decoder.schemas([schema_id]).get(schema_id) if len(head) == HEADER and head[0] == 0 else None
            except ConfigurationError:
                continue
            if writer is None:
                continue
            with_schema |= {"format": "avro", "writer": json.loads(writer)}
        truth = decoder.rows(pa.array(bodies, pa.binary()))
        without_header = pa.array([message[len(head) :] for message in bodies], pa.binary())
        rows, outcomes = decode({**spec, **with_schema}, without_header)
        assert differences(truth, rows, outcomes, without_header) == [], name
        yield outcomes.to_pylist().count(DECODED)

"""Damaged specs for the kernel: each is refused with an error, or works. None panics."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructType,
)

from dynamic_kafka import native
from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.formats import format_named
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.avro.encoding import plan_of
from dynamic_kafka.formats.avro.format import text_of_columns
from dynamic_kafka.formats.avro.schemas import parse_schema
from dynamic_kafka.formats.format import Rows

SPECS = sorted((Path(__file__).parents[3] / "native" / "fuzz" / "specs").glob("*.json"))
MESSAGES = pa.array([b"", b"{}", b'{"id": 1, "c0": true}', b"a,b,c", bytes(20), bytes(range(256)), None], pa.binary())
COLUMNS = (
    StructType()
    .add("id", LongType())
    .add("s", StringType())
    .add("d", DoubleType())
    .add("b", BooleanType())
    .add("a", ArrayType(LongType()))
    .add("x", DecimalType(10, 2))
    .add("y", DateType())
)
ROWS = [None, {}, {"id": 1, "s": "x", "d": 1.5, "b": True, "a": [1, None]}]
numbers = st.sampled_from([0, -1, 1, 2**16, 2**31, 2**32, 2**63, 2**64, -(2**63), 0.5, 1e308])
junk = (
    st.none()
    | st.booleans()
    | numbers
    | st.text(max_size=3)
    | st.sampled_from(["string", "struct", [], {}, [[]], {"": ""}])
)


@cache
def decoding(path: Path) -> tuple[pa.StructType, dict[str, Any]]:
    """The columns and the spec of a decoder."""
    spec = json.loads(path.read_text())
    schema = {"type": "struct", **spec.pop("schema")}
    for field in schema["fields"]:
        field.update(nullable=True, metadata={})
    return arrow_type(StructType.fromJson(schema)), spec


def encoding(name: str) -> dict[str, Any]:
    """The spec of an encoder."""
    if name == "avro":
        return {"format": name, "plan": plan_of(arrow_type(COLUMNS), parse_schema(text_of_columns(name, COLUMNS, {})))}
    rows = format_named(name).rows(None, COLUMNS, {})  # type: ignore[arg-type]  # their column is not looked at
    assert isinstance(rows, Rows)
    assert rows.spec is not None
    found: dict[str, Any] = json.loads(rows.spec)
    return found


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all parts of a value below it."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*above, key)
        yield from places(value[key], (*above, key))


def damaged(spec: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    """The spec with another value in up to three places, or without one."""
    spec = copy.deepcopy(spec)
    for _ in range(data.draw(st.integers(1, 3))):
        *above, key = data.draw(st.sampled_from(list(places(spec))))
        part: Any = spec
        for step in above:
            part = part[step]
        if data.draw(st.booleans()):
            part[key] = copy.deepcopy(data.draw(junk))
        else:
            del part[key]
        if not spec:
            break
    return spec


def refused_or(works: Callable[[], None]) -> None:
    """An error says what is wrong with a spec. A panic would be a `DynamicKafkaError`, and is a fault."""
    try:
        works()
    except DynamicKafkaError:
        raise
    except (ValueError, RuntimeError):
        pass


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_a_damaged_spec_of_a_decoder(path: Path, data: st.DataObject) -> None:
    """What a decoder makes of it are valid columns with a row for each message."""
    columns, spec = decoding(path)
    spec = damaged(spec, data)

    def works() -> None:
        rows = native.Decoder(columns, spec).decode(MESSAGES)
        rows.validate(full=True)
        assert len(rows) == len(MESSAGES)

    refused_or(works)


@pytest.mark.parametrize("name", ["json", "csv", "avro"])
@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_a_damaged_spec_of_an_encoder(name: str, data: st.DataObject) -> None:
    """What an encoder makes of it are a message or an error for each row."""
    columns = arrow_type(COLUMNS)
    text = json.dumps(damaged(encoding(name), data))

    def works() -> None:
        found = native.encoder(columns, text)(pa.array(ROWS, columns), b"")
        assert len(found.messages) == len(ROWS)

    refused_or(works)

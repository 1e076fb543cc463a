"""The native decoder of Avro against the one in Python, for random schemas of writers and readers, messages and damage."""

from __future__ import annotations

import json
import struct
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)
from tests.native import DECODED, decode, differences

from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.avro.decoding import decode as decode_in_python
from dynamic_kafka.formats.avro.decoding import reader
from dynamic_kafka.formats.avro.native import resolved
from dynamic_kafka.formats.avro.schemas import parse_schema, schema_text
from dynamic_kafka.formats.avro.values import Cursor, Indices, Read, UnreadableError


def columns(**types: DataType) -> StructType:
    """A struct of nullable fields; those with a name in capitals are not."""
    return StructType([StructField(name, type_, nullable=name.islower()) for name, type_ in types.items()])


DATE, TEXT, LONG = DateType(), StringType(), LongType()
SCHEMAS = {
    "simple": columns(ID=LONG, user=TEXT, session=TEXT, amount=DoubleType(), paid=BooleanType()),
    "numbers": columns(a=ByteType(), b=ShortType(), c=IntegerType(), d=FloatType(), e=DoubleType(), F=LONG),
    "times": columns(
        d=DATE, t=TimestampNTZType(), l=TimestampType(), u=TimeType(3), v=TimeType(0), w=TimeType(6), x=BinaryType()
    ),
    "decimals": columns(a=DecimalType(10, 2), b=DecimalType(38, 18), c=DecimalType(4, 0), s=TEXT),
    "nested": columns(
        a=ArrayType(IntegerType()),
        m=MapType(TEXT, DoubleType()),
        r=columns(x=IntegerType(), Y=TEXT, z=columns(q=DATE)),
        b=ArrayType(columns(x=LONG, y=ArrayType(TEXT, containsNull=False))),
        n=MapType(TEXT, columns(l=TimestampType(), n=DecimalType(4, 1))),
    ),
}


def check(schema: StructType, count: int, seed: int) -> int:
    """Compare `count` messages of several writers; return how many were decoded natively."""
    random = Random(f"{schema} {seed}")
    target = arrow_type(schema)
    decoded = 0
    for round_ in range(8):
        own = json.loads(schema_text(schema, legacy_timestamps=round_ % 2 == 0))
        for writer, wanted in (
            (own, own),
            (_evolved(own, random), own),
            (_evolved(own, random), _given(own, random)),
            (own, _given(own, random)),
        ):
            written, known = parse_schema(json.dumps(writer)), parse_schema(json.dumps(wanted))
            try:
                read = reader(written, known, target)
            except UnreadableError:
                continue
            native = resolved(written, known, target)
            if native is None:  # a default that is not null
                continue
            found = [_damaged(_encoded(writer, random), random) for _ in range(count)]
            messages = pa.array([*found, None, b""], pa.binary())
            with np.errstate(invalid="ignore"):  # a float that is a signaling NaN becomes a double
                truth = decode_in_python(messages, target, partial(_all, read))
            spec = {"format": "avro", "schema": json.loads(schema.json()), "writer": native}
            rows, outcomes = decode(spec, messages)
            assert rows.type == truth.type
            assert differences(truth, rows, outcomes, messages) == [], json.dumps([writer, wanted])
            decoded += outcomes.to_pylist().count(DECODED)
    return decoded


def _all(read: Read, cursor: Cursor) -> list[tuple[Indices, Read]]:
    return [(np.arange(len(cursor)), read)]


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_avro_is_decoded_as_in_python(name: str) -> None:
    """Whatever the writer's schema and the message are; and most whole messages are decoded."""
    assert check(SCHEMAS[name], 1000, seed=1) > 2000


def test_what_the_kernel_gets_of_a_schema() -> None:
    """The writer's schema with what the reader's and the columns change."""
    writer = """{"type":"record","name":"w","fields":[
        {"name":"more","type":{"type":"record","name":"p","fields":[{"name":"x","type":"string"}]}},
        {"name":"old","type":"long"}, {"name":"e","type":{"type":"enum","name":"q","symbols":["A","B"]}},
        {"name":"u","type":["null","string","p","long"]}, {"name":"again","type":"p"}]}"""
    wanted = """{"type":"record","name":"r","fields":[
        {"name":"t","aliases":["old"],"type":{"type":"long","logicalType":"timestamp-millis"}},
        {"name":"e","type":{"type":"enum","name":"q","symbols":["B"]}}, {"name":"u","type":["null","long"]},
        {"name":"n","type":["null","long"],"default":null}, {"name":"unused","type":"int"}]}"""
    p = {"type": {"type": "record", "fields": [{"type": "string"}]}}
    given = [
        p,
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "e", "type": {"type": "enum", "symbols": [None, "B"]}},
        {"name": "u", "type": ["null", "unreadable", "unreadable", "long"]},
        p,
        {"name": "n", "type": "null"},
    ]
    target = arrow_type(columns(t=TimestampType(), e=TEXT, u=LONG, n=LONG))
    found = resolved(parse_schema(writer), parse_schema(wanted), target)
    assert found == {"type": "record", "fields": given}


@pytest.mark.parametrize(
    "more",
    [
        '{"name":"m","type":{"type":"record","name":"m","fields":[{"name":"next","type":["null","m"]}]}}',
        ",".join(
            f'{{"name":"m{i}","type":{{"type":"record","name":"m{i}","fields":[{{"name":"x","type":"{kind}"}},'
            f'{{"name":"y","type":"{kind}"}}]}}}}'
            for i, kind in enumerate(["int", *(f"m{i}" for i in range(20))])
        ),
        '{"name":"m","type":' + '{"type":"array","items":' * 70 + '"int"' + "}" * 71,
    ],
    ids=["without end", "huge", "deep"],
)
def test_schemas_that_the_kernel_does_not_get(more: str) -> None:
    """A field that is not wanted contains itself, has a million parts, or is nested deeply; and a default is not null."""
    schema = '{{"type":"record","name":"w","fields":[{{"name":"i","type":"int"{}}}{}]}}'
    written, plain = parse_schema(schema.format("", "," + more)), parse_schema(schema.format("", ""))
    target = arrow_type(columns(i=IntegerType()))
    reader(written, plain, target)
    assert resolved(written, plain, target) is None
    empty = parse_schema('{"type":"record","name":"w","fields":[]}')
    assert resolved(empty, parse_schema(schema.format(',"default":1', "")), target) is None


def _given(schema: Any, random: Random) -> Any:
    """Return another reader's schema of the same columns: with aliases, defaults, enums, without nulls or logical types."""
    match schema:
        case {"type": "record"}:
            fields = []
            for field in schema["fields"]:
                given = {"name": field["name"], "type": _given(field["type"], random)}
                if isinstance(given["type"], list):
                    given["default"] = None
                if random.random() < 0.5:
                    given["aliases"] = [f"old_{field['name']}"]
                fields.append(given)
            random.shuffle(fields)
            return schema | {"fields": fields}
        case list():
            branches = [_given(branch, random) for branch in schema]
            return branches if random.random() < 0.9 else branches[-1]
        case {"type": "array"}:
            return schema | {"items": _given(schema["items"], random)}
        case {"type": "map"}:
            return schema | {"values": _given(schema["values"], random)}
        case {"logicalType": "decimal"} if random.random() < 0.2:
            return "bytes"
        case {"logicalType": logical} if random.random() < 0.2 and logical != "decimal":
            return schema["type"]
        case "string" if random.random() < 0.3:
            enum = {"type": "enum", "name": f"g{random.getrandbits(60)}", "symbols": ["A", "C"]}
            return random.choice(["bytes", enum, enum | {"default": "C"}])
        case "long" if random.random() < 0.1:
            return "int"
        case _:
            return schema


def _evolved(schema: Any, random: Random) -> Any:
    """Return another writer's schema of the same columns: other types, an other order, more or fewer fields."""
    match schema:
        case list():
            branches = [_evolved(branch, random) for branch in schema]
            if random.random() < 0.2:
                branches.append({"type": "fixed", "name": f"f{random.getrandbits(60)}", "size": 2})
            random.shuffle(branches)
            return branches if random.random() < 0.9 else next(b for b in branches if b != "null")
        case {"type": "record"}:
            old = "old_" if random.random() < 0.5 else ""
            fields = [
                {
                    "name": old + f["name"] if random.random() < 0.3 else f["name"],
                    "type": _evolved(f["type"], random),
                }
                for f in schema["fields"]
            ]
            for i in range(random.choice([0, 0, 1, 3])):
                more = random.choice(["string", "long", {"type": "array", "items": "boolean"}, ["null", "double"]])
                fields.append({"name": f"more{i}", "type": more})
            random.shuffle(fields)
            return schema | {"fields": fields[:-1] if random.random() < 0.2 else fields}
        case {"type": "array"}:
            return schema | {"items": _evolved(schema["items"], random)}
        case {"type": "map"}:
            return schema | {"values": _evolved(schema["values"], random)}
        case {"logicalType": "decimal"} if random.random() < 0.5:
            name = f"d{random.getrandbits(60)}"
            scale = schema["scale"] if random.random() < 0.9 else schema["scale"] // 2
            return schema | {"type": "fixed", "name": name, "size": random.choice([16, 17, 20]), "scale": scale}
        case {"logicalType": logical} if random.random() < 0.3:
            kind = random.choice(
                ["timestamp-millis", "timestamp-micros", "timestamp-nanos", "time-millis", "time-micros", logical]
            )
            return {"type": "int" if kind in ("time-millis", "date") else "long", "logicalType": kind}
        case "string" if random.random() < 0.2:
            name = f"e{random.getrandbits(60)}"
            return random.choice(["bytes", {"type": "enum", "name": name, "symbols": ["A", "B"]}])
        case "bytes" if random.random() < 0.3:
            return random.choice(["string", {"type": "fixed", "name": f"x{random.getrandbits(60)}", "size": 5}])
        case "long" | "float" | "double" if random.random() < 0.4:
            return random.choice(
                {"long": ["int"], "float": ["int", "long"], "double": ["int", "long", "float"]}[schema]
            )
        case _:
            return schema


def _encoded(schema: Any, random: Random) -> bytes:
    """Return a random value of a schema."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case list():
            branch = random.randrange(len(kind))
            return _long(branch) + _encoded(kind[branch], random)
        case "null":
            return b""
        case "boolean":
            return bytes([random.choice([0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 2])])
        case "int":
            return _long(_whole(schema, random, 31))
        case "long":
            return _long(_whole(schema, random, 63))
        case "float":
            return struct.pack("<f", random.choice([random.gauss(0, 1e6), 0.0, -0.0, float("nan"), float("inf")]))
        case "double":
            return struct.pack("<d", random.choice([random.gauss(0, 1e6), 0.0, -0.0, float("nan"), 1e300]))
        case "bytes" | "string" | "fixed":
            data = random.choice(["", "a", "Grüße", "x" * 70, "😀"]).encode()
            if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
                digits = random.randrange(schema["precision"] + 2)
                size = schema.get("size", random.choice([17, 18]))
                data = (random.getrandbits(4 * digits) % 10**digits * random.choice([1, -1])).to_bytes(
                    18, "big", signed=True
                )[-size:]
                if kind == "bytes" and random.random() < 0.9:
                    data = data.lstrip(b"\0") if data[0] == 0 and data.lstrip(b"\0")[:1] < b"\x80" else data[-16:]
            if random.random() < 0.02:
                data = random.randbytes(len(data))
            return data.ljust(schema["size"], b"\0")[: schema["size"]] if kind == "fixed" else _long(len(data)) + data
        case "enum":
            return _long(random.choice([0, 1, 1, 1, 2]) if random.random() < 0.1 else random.choice([0, 1]))
        case "array":
            return _blocks([_encoded(schema["items"], random) for _ in range(random.choice([0, 1, 2, 5]))], random)
        case "map":
            keys = [random.choice(["a", "b", "ä", "key"]) for _ in range(random.choice([0, 1, 2]))]
            texts = (key.encode() for key in (keys if random.random() < 0.1 else dict.fromkeys(keys)))
            return _blocks([_long(len(k)) + k + _encoded(schema["values"], random) for k in texts], random)
        case "record":
            return b"".join(_encoded(field["type"], random) for field in schema["fields"])
        case _:
            return _encoded(kind, random)


def _whole(schema: Any, random: Random, bits: int) -> int:
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical and logical.startswith("time-"):
        return random.choice(
            [
                random.randrange(86_400_000),
                random.randrange(86_400) * 1000,
                random.randrange(86_400) * 10**6,
                86_400_000_000,
            ]
        )
    if logical == "date":
        return random.randrange(-700_000, 2_900_000)
    number = random.getrandbits(random.randint(1, bits))
    if logical and random.random() < 0.9:
        number >>= 15
    return random.choice([number, -number, -number - 1])


def _blocks(items: list[bytes], random: Random) -> bytes:
    parts = []
    while items:
        count = random.randint(1, len(items))
        block, items = b"".join(items[:count]), items[count:]
        parts.append(_long(count) + block if random.random() < 0.7 else _long(-count) + _long(len(block)) + block)
    return b"".join(parts) + b"\0"


def _long(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    value &= 2**64 - 1
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def _damaged(message: bytes, random: Random) -> bytes:
    if random.random() < 0.85:
        return message
    damaged = bytearray(message)
    for _ in range(random.randint(1, 3)):
        at = random.randint(0, len(damaged))
        damaged[at : at + random.randint(0, 2)] = random.randbytes(random.randint(0, 2))
    return bytes(damaged)

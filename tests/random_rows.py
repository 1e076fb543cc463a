"""Random rows as Arrow columns, with common, odd and extreme values."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from dynamic_kafka.formats.arrow import arrow_type

__all__ = ["random_rows"]

_TEXTS = [
    "",
    "a",
    "user-0001234",
    "x" * 40,
    'a"b\\c/d',
    "\0\1\x1f \x7f\b\t\n\f\r",
    "Grüße",
    "日本\u2028",
    "😀b😀",
    "\U0010ffff",
    "null",
]
_BROKEN = [
    b"\x80",
    b"a\xc3",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    b"\xed\xa0",
    b"\xf0\x9f\x98(",
    b"\xf4\x90\x80\x80",
    b"\xc0\x80",
    b"\xff\xfe",
]
_DAY_US = 86_400_000_000
_NULLS = 0.1


def random_rows(schema: StructType, count: int, seed: int) -> pa.StructArray:
    """Return rows of a schema. Texts are bytes, because those of Spark need not be valid UTF-8."""
    random = Random(f"{schema.simpleString()} {seed}")
    values = [_value(schema, random) if random.random() > _NULLS / 10 else None for _ in range(count)]
    return pa.array(values, _bytes_for_texts(arrow_type(schema)))


def _bytes_for_texts(type_: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_string(type_):
        return pa.binary()
    if types.is_struct(type_):
        return pa.struct([field.with_type(_bytes_for_texts(field.type)) for field in type_])
    if types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_bytes_for_texts(type_.value_type)))
    if types.is_map(type_):
        return pa.map_(_bytes_for_texts(type_.key_type), type_.item_field.with_type(_bytes_for_texts(type_.item_type)))
    return type_


def _value(type_: DataType, random: Random) -> Any:
    of: Any = type_  # its attributes depend on its name
    match type_.typeName():
        case "struct":
            return {
                f.name: None if f.nullable and random.random() < _NULLS else _value(f.dataType, random)
                for f in of.fields
            }
        case "array":
            return [_or_null(of.elementType, of.containsNull, random) for _ in range(random.choice([0, 1, 2, 5]))]
        case "map":
            keys = {_value(of.keyType, random): None for _ in range(random.choice([0, 1, 2, 5]))}
            return [(key, _or_null(of.valueType, of.valueContainsNull, random)) for key in keys]
        case "boolean":
            return random.random() < 0.5
        case "byte" | "short" | "integer" | "long" as name:
            return _whole({"byte": 8, "short": 16, "integer": 32, "long": 64}[name], random)
        case "float" | "double" as name:
            found = random.choice([random.gauss(0, 1e6), 0.0, -0.0, float("inf"), 1.0, random.random()])
            return pa.scalar(found, pa.float32()).as_py() if name == "float" else found
        case "decimal":
            digits = random.randrange(of.precision + 1)
            number = random.randrange(10**digits) * 10 ** random.choice([0, 0, 1, of.precision - digits])
            number = min(number, 10**of.precision - 1) * random.choice([1, -1])
            return Decimal((number < 0, tuple(map(int, str(abs(number)))), -of.scale))
        case "string":
            return _text(random)
        case "binary":
            return random.randbytes(random.choice([0, 1, 2, 3, 4, 10, 100]))
        case "date":
            return random.choice([random.randrange(-1000, 30_000), random.randrange(-800_000, 4_000_000)])
        case "time":
            return random.randrange(_DAY_US) // 10 ** (6 - of.precision) * 10 ** (6 - of.precision) * 1000
        case "timestamp" | "timestamp_ntz":
            us = random.choice([random.randrange(2**51), random.randrange(-(2**58), 2**58), random.randrange(10**6)])
            return us // (unit := random.choice([1, 1000, 10**6, _DAY_US])) * unit
        case name:
            raise AssertionError(name)


def _or_null(type_: DataType, nullable: bool, random: Random) -> Any:  # noqa: FBT001
    return None if nullable and random.random() < _NULLS else _value(type_, random)


def _whole(bits: int, random: Random) -> int:
    most = 2 ** (bits - 1)
    found: int = random.choice([0, 1, -1, most - 1, -most, random.randrange(-most, most), random.randrange(-100, 100)])
    return found


def _text(random: Random) -> bytes:
    if random.random() < 0.9:
        return random.choice(_TEXTS).encode()
    if random.random() < 0.5:
        return b"".join(random.choices([*_BROKEN, b"a", "é".encode(), "😀".encode()], k=3))
    return random.randbytes(random.randrange(8))

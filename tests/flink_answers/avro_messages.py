"""Messages in Avro: of writers whose schema is not the table's, of all types, and damaged ones."""

from __future__ import annotations

import io
import json
import struct
from random import Random
from typing import Any

import fastavro

from tests.flink_answers.messages import REGISTRY, Case

__all__ = ["AVRO", "SCHEMAS"]

SCHEMAS: list[str] = []
"""The schemas of the registry; the first has the id 1."""


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    """Return a record, of fields or of pairs of a name and a type."""
    parts = [f if isinstance(f, dict) else {"name": f[0], "type": f[1]} for f in fields]
    return {"type": "record", "name": "w", "fields": parts, **more}


def logical(of: str, name: str, **more: Any) -> dict[str, Any]:
    """Return a logical type."""
    return {"type": of, "logicalType": name, **more}


def schema_id(schema: Any) -> int:
    """Return the id of a schema, which is registered."""
    text = json.dumps(schema)
    if text not in SCHEMAS:
        SCHEMAS.append(text)
    return SCHEMAS.index(text) + 1


def written(schema: Any, value: Any) -> bytes:
    """Return a value in Avro's encoding. Values of logical types are given as numbers and bytes."""
    without = json.loads(
        json.dumps(schema), object_hook=lambda part: {k: v for k, v in part.items() if k != "logicalType"}
    )
    encoded = io.BytesIO()
    fastavro.schemaless_writer(encoded, fastavro.parse_schema(without), value)
    return encoded.getvalue()


def header(schema: Any) -> bytes:
    """Return what stands before a message of a schema."""
    return b"\0" + struct.pack(">i", schema_id(schema))


def confluent(columns: str, *messages: tuple[Any, Any], **options: str) -> Case:
    """Return a case of `avro-confluent`: pairs of a writer's schema and a value, or bytes behind the header."""
    found = [header(s) + (value if isinstance(value, bytes) else written(s, value)) for s, value in messages]
    return Case(columns, {"": "avro-confluent", "url": REGISTRY, **options}, tuple(dict.fromkeys(found)))


def each(schema: Any, *values: Any) -> list[tuple[Any, Any]]:
    """Return pairs of a schema and each value."""
    return [(schema, value) for value in values]


def of(type_: Any, *values: Any) -> list[tuple[Any, Any]]:
    """Return pairs of a record with one field `a`, and each value of it."""
    return [(record(("a", type_)), {"a": value}) for value in values]


NEW = {"timestamp_mapping.legacy": "false"}
INTS, LONGS = (0, -1, 2**31 - 1, -(2**31)), (0, 2**53 + 1, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.5, 0.1, 3.4028234663852886e38, float("inf"), float("-inf"), float("nan"))
FRUIT = {"type": "enum", "name": "fruit", "symbols": ["APPLE", "PEAR"]}
MORE_FRUIT = {"type": "enum", "name": "fruit", "symbols": ["PLUM", "PEAR", "APPLE"]}
FIXED = {"type": "fixed", "name": "four", "size": 4}
POINT = record(("x", "int"), ("y", "string"), name="point")
MILLIS, MICROS = logical("long", "timestamp-millis"), logical("long", "timestamp-micros")
LOCAL_MILLIS, LOCAL_MICROS = logical("long", "local-timestamp-millis"), logical("long", "local-timestamp-micros")
SOME_TIMES = (0, 1_700_000_000_123, -1)
GIVEN = json.dumps(record(("a", ["null", "string"]), {"name": "b", "type": "long", "default": 7, "aliases": ["old_b"]}))


def decimal(precision: int, scale: int, of: Any = "bytes") -> dict[str, Any]:
    """Return the schema of a decimal number."""
    return {
        "type": of,
        **({} if of == "bytes" else FIXED),
        "logicalType": "decimal",
        "precision": precision,
        "scale": scale,
    }


AVRO: dict[str, Case] = {
    "int is promoted to BIGINT": confluent("a BIGINT", *of("int", *INTS)),
    "int is promoted to FLOAT": confluent("a FLOAT", *of("int", *INTS, 16777217)),
    "int is promoted to DOUBLE": confluent("a DOUBLE", *of("int", *INTS)),
    "long is promoted to FLOAT": confluent("a FLOAT", *of("long", *LONGS)),
    "long is promoted to DOUBLE": confluent("a DOUBLE", *of("long", *LONGS)),
    "float is promoted to DOUBLE": confluent("a DOUBLE", *of("float", *FLOATS)),
    "FLOAT": confluent("a FLOAT", *of("float", *FLOATS)),
    "DOUBLE": confluent("a DOUBLE", *of("double", *FLOATS, 5e-324)),
    "string is read as BYTES": confluent("a BYTES", *of("string", "", "a", "ü€😀")),
    "bytes are read as STRING": confluent("a STRING", *of("bytes", b"", b"a", "ü€😀".encode(), b"\xff")),
    "long is not INT": confluent("a INT", *of("long", 1)),
    "double is not FLOAT": confluent("a FLOAT", *of("double", 1.5)),
    "int is not STRING": confluent("a STRING", *of("int", 1)),
    "string is not INT": confluent("a INT", *of("string", "1")),
    "boolean is not INT": confluent("a INT", *of("boolean", True)),
    "BOOLEAN": confluent("a BOOLEAN", *of("boolean", True, False), (record(("a", "boolean")), b"\x02")),
    "TINYINT and SMALLINT": confluent(
        "a TINYINT, b SMALLINT",
        *each(record(("a", "int"), ("b", "int")), {"a": -128, "b": 32767}, {"a": 128, "b": 0}, {"a": 0, "b": -32769}),
    ),
    "a writer without null": confluent(
        "a BIGINT, b STRING", (record(("a", "long"), ("b", "string")), {"a": 1, "b": "x"})
    ),
    "null of the writer in a column that is NOT NULL": confluent("a BIGINT NOT NULL", *of(["null", "long"], 1, None)),
    "null first or last": confluent("a BIGINT", *of(["null", "long"], 1, None), *of(["long", "null"], 1, None)),
    "null only": confluent("a BIGINT", *of("null", None)),
    "null only, NOT NULL": confluent("a BIGINT NOT NULL", *of("null", None)),
    "a union with a type that does not fit": confluent("a STRING", *of(["null", "int", "string"], 1, "x", None)),
    "a union of int and long": confluent("a BIGINT", *of(["int", "long"], 1, 2**40)),
    "a union of numbers": confluent(
        "a DOUBLE",
        *(
            (record(("a", ["null", "int", "long", "float", "double"])), bytes.fromhex(h))
            for h in ("00", "0202", "0402", "060000c03f", "08000000000000f83f")
        ),
    ),
    "a union of bytes and string": confluent("a STRING", *of(["bytes", "string"], b"b", "s")),
    "a union with a single branch": confluent("a BIGINT", *of(["long"], 1)),
    "a union of records": confluent(
        "a ROW<x INT, y STRING>", *of(["null", POINT, record(("x", "int"), name="other")], None, {"x": 1, "y": "p"})
    ),
    "a type within a row that does not fit": confluent(
        "a ROW<x STRING>", *of(["null", record(("x", "int"), name="point")], None, {"x": 1})
    ),
    "no such branch": confluent(
        "a BIGINT", *((record(("a", ["null", "long"])), m) for m in (b"\x04\x02", b"\x01\x02"))
    ),
    "a field that is not written": confluent("a BIGINT, b STRING", (record(("a", "long")), {"a": 1})),
    "a field that is not written, NOT NULL": confluent(
        "a BIGINT, b STRING NOT NULL", (record(("a", "long")), {"a": 1})
    ),
    "fields that are not read": confluent(
        "z BIGINT",
        (
            record(
                ("a", ["null", POINT, "string"]),
                ("b", {"type": "array", "items": "point"}),
                ("c", FRUIT),
                ("d", FIXED),
                ("e", {"type": "map", "values": ["null", "double"]}),
                ("f", MILLIS),
                ("z", "int"),
                ("g", "boolean"),
            ),
            {
                "a": {"x": 1, "y": "p"},
                "b": [{"x": 1, "y": "q"}] * 2,
                "c": "PEAR",
                "d": b"1234",
                "e": {"k": 1.5, "l": None},
                "f": 5,
                "z": 42,
                "g": True,
            },
        ),
    ),
    "fields in another order": confluent(
        "a BIGINT, b STRING, c BOOLEAN",
        (record(("c", "boolean"), ("b", "string"), ("a", "long")), {"a": 1, "b": "x", "c": True}),
    ),
    "names with other capitals": confluent(
        "Id BIGINT, name STRING", (record(("id", "long"), ("NAME", "string")), {"id": 1, "NAME": "x"})
    ),
    "a writer that is no record": confluent("a BIGINT", ("long", 1)),
    "a writer that is a union of null and a record": confluent(
        "a BIGINT", *each(["null", record(("a", "long"))], {"a": 1}, None)
    ),
    "a record without fields": confluent("a BIGINT", (record(), {})),
    "TIMESTAMP(3), legacy": confluent(
        "a TIMESTAMP(3)", *(pair for t in (MILLIS, LOCAL_MILLIS, "long") for pair in of(t, *SOME_TIMES))
    ),
    "TIMESTAMP(3), legacy, of micros": confluent(
        "a TIMESTAMP(3)", *of(MICROS, 1_700_000_000_123), *of(LOCAL_MICROS, 1_700_000_000_123)
    ),
    "TIMESTAMP(6), legacy": confluent("a TIMESTAMP(6)", *of(MILLIS, 1)),
    "TIMESTAMP_LTZ(3), legacy": confluent("a TIMESTAMP_LTZ(3)", *of(MILLIS, 1)),
    **{
        f"{type_}, not legacy": Case(
            f"a {type_}", {"": "avro", **NEW}, tuple(b"\2" + written("long", time) for time in SOME_TIMES)
        )
        for type_ in ("TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)", "TIMESTAMP_LTZ")
    },
    "avro-confluent, not legacy": confluent("a TIMESTAMP_LTZ(3)", *of(MILLIS, 1), **NEW),
    "timestamps as BIGINT": confluent("a BIGINT", *of(MILLIS, 1), *of(MICROS, 2), *of(LOCAL_MICROS, 3)),
    "DATE": confluent("a DATE", *of(logical("int", "date"), 0, 19000, -1, -719162), *of("int", 19000)),
    "TIME": confluent("a TIME(3)", *of(logical("int", "time-millis"), 0, 1, 86_399_999), *of("int", 1000)),
    "TIME of micros": confluent("a TIME(3)", *of(logical("long", "time-micros"), 1_000_000)),
    "DECIMAL(10, 2)": confluent(
        "a DECIMAL(10, 2)",
        *of(
            decimal(10, 2),
            b"\x00",
            b"\xff",
            b"\x7f\xff",
            b"\x02\x54\x0b\xe3\xff",
            b"\xfd\xab\xf4\x1c\x01",
            b"\0\0\0\0\0\0\1",
        ),
        *of("bytes", b"\x01"),
    ),
    "a decimal that does not fit": confluent(
        "a DECIMAL(4, 2)", *of(decimal(4, 2), b"\x27\x0f", b"\x27\x10", b"\x7f\xff\xff\xff")
    ),
    "a decimal without bytes": confluent("a DECIMAL(4, 2)", *of(decimal(4, 2), b"")),
    "a decimal of another scale": confluent(
        "a DECIMAL(10, 2)", *of(decimal(10, 4), b"\x30\x39"), *of(decimal(10, 1), b"\x30\x39")
    ),
    "a decimal of another precision": confluent(
        "a DECIMAL(10, 2)", *of(decimal(20, 2), b"\x30\x39"), *of(decimal(5, 2), b"\x30\x39")
    ),
    "a decimal in fixed": confluent(
        "a DECIMAL(9, 2)", *of(decimal(9, 2, "fixed"), b"\0\0\x30\x39", b"\xff\xff\xff\xff")
    ),
    "a decimal in fixed, given": confluent(
        "a DECIMAL(9, 2) NOT NULL",
        *of(decimal(9, 2, "fixed"), b"\0\0\x30\x39", b"\xff\xff\xff\xff"),
        schema=json.dumps(record(("a", decimal(9, 2, "fixed")))),
    ),
    "DECIMAL(38, 18)": confluent("a DECIMAL(38, 18)", *of(decimal(38, 18), (10**38 - 1).to_bytes(16, "big"), b"\x01")),
    "enum as STRING": confluent("a STRING", *of(FRUIT, "APPLE")),
    "enum as STRING, given": confluent(
        "a STRING NOT NULL", *of(FRUIT, "APPLE", "PEAR"), schema=json.dumps(record(("a", FRUIT)))
    ),
    "enum with other symbols, given": confluent(
        "a STRING NOT NULL", *of(MORE_FRUIT, "APPLE", "PEAR", "PLUM"), schema=json.dumps(record(("a", FRUIT)))
    ),
    "enum with a default, given": confluent(
        "a STRING NOT NULL",
        *of(MORE_FRUIT, "APPLE", "PLUM"),
        schema=json.dumps(record(("a", {**FRUIT, "default": "PEAR"}))),
    ),
    "fixed as BYTES": confluent("a BYTES", *of(FIXED, b"1234")),
    "fixed as BYTES, given": confluent(
        "a BYTES NOT NULL", *of(FIXED, b"1234"), schema=json.dumps(record(("a", FIXED)))
    ),
    "defaults and aliases, given": confluent(
        "a STRING, b BIGINT NOT NULL",
        (record(("a", "string")), {"a": "x"}),
        (record(("a", "string"), ("old_b", "int")), {"a": "x", "old_b": 5}),
        schema=GIVEN,
    ),
    "arrays": confluent(
        "a ARRAY<BIGINT>, b ARRAY<ARRAY<STRING NOT NULL>>",
        *each(
            record(
                ("a", {"type": "array", "items": "int"}),
                ("b", {"type": "array", "items": {"type": "array", "items": "string"}}),
            ),
            {"a": [], "b": []},
            {"a": [1, 2, 3], "b": [["x", "y"], [], ["z"]]},
            bytes.fromhex("0202040406000000"),
            bytes.fromhex("0302020302040000"),
        ),
        *each(
            record(
                ("a", {"type": "array", "items": ["long", "null"]}),
                ("b", ["null", {"type": "array", "items": ["null", {"type": "array", "items": "string"}]}]),
            ),
            {"a": [1, None], "b": None},
            {"a": [], "b": [None, ["x"]]},
        ),
    ),
    "maps": confluent(
        "a MAP<STRING, BIGINT>, b MAP<STRING NOT NULL, ARRAY<DOUBLE>>",
        *each(
            record(
                ("a", {"type": "map", "values": ["null", "int"]}),
                ("b", {"type": "map", "values": {"type": "array", "items": "float"}}),
            ),
            {"a": {}, "b": {}},
            {"a": {"": 1, "ü": None}, "b": {"k": [1.5, 2.5], "l": []}},
        ),
    ),
    "a map with a key twice": confluent(
        "a MAP<STRING, INT>", (record(("a", {"type": "map", "values": "int"})), bytes.fromhex("04 026b 02 026b 04 00"))
    ),
    "a map with keys that are not strings": confluent(
        "a MAP<INT, INT>", *of({"type": "map", "values": "int"}, {"k": 1})
    ),
    "a MULTISET": confluent("a MULTISET<STRING>", *of({"type": "map", "values": "int"}, {"k": 2})),
    "rows": confluent(
        "a ROW<x BIGINT, y STRING, z BOOLEAN>, b ARRAY<ROW<x INT NOT NULL>>, c ROW<d ROW<e DECIMAL(4, 1)>> NOT NULL",
        *each(
            record(
                ("a", ["null", POINT]),
                ("b", {"type": "array", "items": "point"}),
                ("c", record(("d", record(("e", decimal(4, 1)), name="e")), name="d")),
            ),
            {"a": {"x": 1, "y": "p"}, "b": [{"x": 2, "y": "q"}], "c": {"d": {"e": b"\x7b"}}},
            {"a": None, "b": [], "c": {"d": {"e": b"\xff"}}},
        ),
    ),
    "damaged": confluent(
        "a BIGINT, s STRING, l ARRAY<BIGINT>",
        *each(
            record(("a", "long"), ("s", "string"), ("l", {"type": "array", "items": "long"})),
            *(
                bytes.fromhex(hexadecimal)
                for hexadecimal in (
                    "",
                    "02",
                    "0202",
                    "020278",
                    "02027802",
                    "0202780202",
                    "020278020200",
                    "02027800ff",
                    "0201",
                    "02ff",
                    "020478",
                    "ffffffffffffffffffff0100",
                    "ffffffffffffffffff01000000",
                    "ffffffffffffffffff7f0000",
                    "8080808080808080808000 00 00",
                    "820000 00",
                    "0202ff00",
                    "020278ffffffffffffffffff0100",
                    "02027801010200",
                    "02027801040200",
                    "0202780310020400",
                    "fe ffffffff",
                    "02 feffffff0f 78 00",
                )
            ),
        ),
    ),
    "integers that are too long": confluent(
        "a INT",
        *(
            (record(("a", "int")), bytes.fromhex(h))
            for h in ("feffffff0f", "ffffffff0f", "feffffff1f", "ffffffffff01", "8000", "80808080808000")
        ),
    ),
}

_OTHER_HEADERS = tuple(
    bytes.fromhex(text) for text in ("", "00", "00000000", "0000000001", "000000ffff00", "0100000001000200")
)
AVRO["other headers"] = Case("a BIGINT", {"": "avro-confluent", "url": REGISTRY}, _OTHER_HEADERS)

_PLAIN = record(
    ("a", ["null", "long"]), ("s", ["null", "string"]), ("t", ["null", MILLIS]), ("d", ["null", decimal(6, 2)])
)
_ROW = {"a": 5, "s": "x", "t": 1_700_000_000_123, "d": b"\x30\x39"}
_WHOLE = written(_PLAIN, _ROW)
AVRO["avro"] = Case(
    "a BIGINT, s STRING, t TIMESTAMP(3), d DECIMAL(6, 2)",
    {"": "avro"},
    (
        _WHOLE,
        written(_PLAIN, dict.fromkeys(_ROW)),
        _WHOLE[:-1],
        _WHOLE + b"\0",
        b"",
        *(_WHOLE[:i] for i in range(1, 9)),
    ),
)
AVRO["avro, its JSON"] = Case(
    "a BIGINT, s STRING, f FLOAT, l ARRAY<INT>",
    {"": "avro", "encoding": "json"},
    tuple(
        text.encode()
        for text in (
            '{"a":{"long":5},"s":{"string":"x"},"f":{"float":1.5},"l":{"array":[{"int":1},null]}}',
            '{"a":null,"s":null,"f":null,"l":null}',
            ' {"s":null,"a":null,\n"l":null,"f":null} ',
            '{"a":5,"s":null,"f":null,"l":null}',
            '{"a":null,"s":null,"f":null}',
            '{"a":null,"s":null,"f":null,"l":null,"z":1}',
            '{"a":{"int":5},"s":null,"f":null,"l":null}',
            '{"a":{"long":9223372036854775807},"s":{"string":"ü"},"f":{"float":2},"l":{"array":[]}}',
            '{"a":{"long":9223372036854775808},"s":null,"f":null,"l":null}',
            '{"a":null,"s":null,"f":null,"l":null}{"a":null,"s":null,"f":null,"l":null}',
            "[]",
            "",
            "x",
        )
    ),
)


# --- random tables, and random writers for each of them ---

_LEAVES: list[tuple[str, Any, list[Any]]] = [
    ("BOOLEAN", "boolean", [True, False]),
    ("INT", "int", [*INTS]),
    ("BIGINT", "long", [*LONGS]),
    ("BIGINT", "int", [*INTS]),
    ("FLOAT", "float", [*FLOATS]),
    ("DOUBLE", "double", [*FLOATS]),
    ("DOUBLE", "long", [*LONGS]),
    ("DOUBLE", "float", [*FLOATS]),
    ("STRING", "string", ["", "a", "ü€😀"]),
    ("BYTES", "bytes", [b"", b"\x00\xff"]),
    ("DATE", logical("int", "date"), [0, 19000, -1]),
    ("TIMESTAMP(3)", MILLIS, [*SOME_TIMES]),
    ("DECIMAL(10, 2)", decimal(10, 2), [b"\x00", b"\xff", b"\x30\x39"]),
    ("STRING", "int", [1]),
    ("INT", "long", [1]),
    ("BIGINT", "string", ["1"]),
]


def _random_type(random: Random, depth: int, path: str) -> tuple[str, Any, Any]:
    """Return a column's type, a writer's, and a function that makes values."""
    kind = random.choice(["leaf", "leaf", "leaf", "array", "map", "row"] if depth else ["leaf"])
    if kind == "leaf":
        # The last three do not fit, so they are rare.
        ddl, type_, values = random.choice(_LEAVES if random.random() < 0.1 else _LEAVES[:-3])
        return (*_nullable(random, ddl, type_, lambda: random.choice(values)),)
    if kind == "row":
        ddl, type_, make = _random_row(random, depth - 1, path)
        return (*_nullable(random, f"ROW<{ddl}>", type_, make),)
    ddl, type_, make = _random_type(random, depth - 1, f"{path}e")
    if kind == "array":
        return (
            *_nullable(
                random,
                f"ARRAY<{ddl}>",
                {"type": "array", "items": type_},
                lambda: [make() for _ in range(random.randrange(3))],
            ),
        )
    return (
        *_nullable(
            random,
            f"MAP<STRING NOT NULL, {ddl}>",
            {"type": "map", "values": type_},
            lambda: {key: make() for key in random.sample("klm", random.randrange(3))},
        ),
    )


def _nullable(random: Random, ddl: str, type_: Any, make: Any) -> tuple[str, Any, Any]:
    """Add NOT NULL to the column, or null to the writer's type, or both, or another type."""
    if random.random() < 0.15:
        ddl += " NOT NULL"
    chance = random.random()
    if chance < 0.25:
        return ddl, ["null", type_], lambda: make() if random.random() < 0.7 else None
    if chance < 0.35:
        return ddl, [type_, "null"], lambda: make() if random.random() < 0.7 else None
    if chance < 0.4 and type_ != "boolean":
        return ddl, ["null", "boolean", type_], lambda: random.choice([make(), make(), None, True])
    return ddl, type_, make


def _random_row(random: Random, depth: int, path: str) -> tuple[str, Any, Any]:
    found = {
        name: _random_type(random, depth, f"{path}{name}") for name in random.sample("abcdef", random.randrange(1, 4))
    }
    columns = [f"{name} {ddl}" for name, (ddl, *_) in found.items() if random.random() < 0.9]
    if not columns or random.random() < 0.2:
        columns.append("z INT")
    random.shuffle(columns)
    schema = record(*((name, type_) for name, (_, type_, _) in found.items()), name=f"r{path}")
    return ", ".join(columns), schema, lambda: {name: make() for name, (*_, make) in found.items()}


def _random_case(seed: int) -> Case:
    random = Random(seed)
    columns, schema, make = _random_row(random, 2, "")
    return confluent(columns, *(pair for _ in range(5) for pair in [(schema, make())]))


AVRO |= {f"random {seed}": _random_case(seed) for seed in range(50)}

"""Messages of the changelog formats for the test of their native decoder: common, odd and damaged ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random

from tests.spark.json_messages import anything, blank, columns, damaged, object_of, text_of

__all__ = ["FORMATS", "SCHEMAS", "messages"]

SCHEMAS = [
    "id BIGINT, user STRING, amount INT, paid BOOLEAN",
    "a TINYINT, b SMALLINT, c DECIMAL(10,2), e FLOAT, f DOUBLE, g BOOLEAN, d DATE",
    "a ARRAY<INT>, m MAP<STRING, DOUBLE>, r STRUCT<x: INT, y: STRING, z: STRUCT<q: DATE>>, l TIMESTAMP, t TIMESTAMP_NTZ",
]
"""Columns, in Spark's DDL."""
FORMATS = ["debezium-json", "debezium-json with schema", "canal-json", "maxwell-json", "ogg-json"]

Value = Callable[[Random, float], str]


def messages(form: str, ddl: str, count: int, seed: int) -> list[bytes]:
    """Return `count` messages of one of `FORMATS` for a schema of `SCHEMAS`: about six of ten are well-formed."""
    random = Random(f"{form} {ddl} {seed}")
    return [_message(form, ddl, random) for _ in range(count)]


def _message(form: str, ddl: str, random: Random) -> bytes:
    odd = random.choice([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.02, 0.2])
    tool = form.partition(" ")[0]
    parts = [*_rows(tool, ddl, random, odd), *_metadata(tool, random, odd)]
    parts += [(text_of(random), anything(random, odd, 2)) for _ in range(random.choice([0, 0, 1]))]
    if random.random() < odd:
        parts.append(random.choice(parts))
    if random.random() < 0.3:
        random.shuffle(parts)
    found = _joined([(name if name.startswith('"') else json.dumps(name), value) for name, value in parts], random)
    if form.endswith("schema"):
        schema = _maybe(anything(random, odd, 3) if random.random() < 0.5 else _SCHEMA, random, odd)
        found = _joined([('"schema"', schema), ('"payload"', _maybe(found, random, odd / 4))], random)
    return damaged(found, random)


_SCHEMA = json.dumps({"type": "struct", "fields": [{"type": "int64", "optional": False, "field": "id"}], "version": 1})


def _joined(parts: list[tuple[str, str]], random: Random) -> str:
    fields = (f"{name}:{blank(random)}{value}" for name, value in parts)
    return "{" + f"{blank(random)},{blank(random)}".join(fields) + "}"


def _maybe(value: str, random: Random, odd: float) -> str:
    """The value, or something else."""
    return random.choice(["null", anything(random, odd, 2)]) if random.random() < odd else value


def _rows(tool: str, ddl: str, random: Random, odd: float) -> list[tuple[str, str]]:
    def row() -> str:
        return _maybe(object_of(columns(ddl), random, odd, texts=tool == "canal-json"), random, odd / 2)

    def some(count: int) -> str:
        return "[" + ",".join(row() for _ in range(count)) + "]"

    kinds, names = {
        "debezium-json": ("crud", ("before", "after", "op")),
        "ogg-json": ("IIUD", ("before", "after", "op_type")),
        "canal-json": (("INSERT", "INSERT", "UPDATE", "DELETE"), ("old", "data", "type")),
        "maxwell-json": (("insert", "insert", "update", "delete"), ("old", "data", "type")),
    }[tool]
    index = random.randrange(4)
    is_update, is_delete = index == 2, index == 3
    count = random.choice([0, 1, 1, 1, 2, 3])

    def one() -> str:
        return some(count) if tool == "canal-json" else row()

    if tool in ("canal-json", "maxwell-json"):
        old = re.sub(r'"\w+":[^,{}\[\]]*,', "", one(), count=random.randint(0, 9)) if is_update else "null"
        new = one()
    else:
        old, new = (one() if is_update or is_delete else "null"), ("null" if is_delete else one())
    if random.random() < odd:
        old, new = new, old
    kind = json.dumps(random.choice(["CREATE", "x", "t", "m", kinds[index]]) if random.random() < odd else kinds[index])
    parts = zip(names, (old, new, _maybe(kind, random, odd)), strict=True)
    return [(name, value) for name, value in parts if value != "null" or random.random() < 0.8]


def _time(random: Random) -> str:
    whole = str(
        random.choice([random.randint(0, 2 * 10**12), random.randint(-(10**18), 10**18), 9_223_372_036_854_775])
    )
    return random.choice([whole, whole, f'"{whole}"'])


def _metadata(tool: str, random: Random, odd: float) -> list[tuple[str, str]]:
    def local(random: Random, odd: float) -> str:
        day = f"20{random.randint(10, 40)}-0{random.randint(1, 9)}-{random.randint(10, 29)}"
        return f'"{day}{random.choice(" T")}15:40:0{random.randint(0, 9)}{random.choice(["", ".5", ".123456"])}"'

    def time(random: Random, odd: float) -> str:
        return _time(random)

    def word(random: Random, odd: float) -> str:
        return random.choice(['"inventory"', '"inventory"', '"shop"', text_of(random)])

    def names(random: Random, odd: float) -> str:
        return random.choice(["[]", '["id"]', '["id", "name"]'])

    def numbers(random: Random, odd: float) -> str:
        return random.choice(["{}", '{"id":4}', '{"id":4,"name":-12, "x": null}'])

    def source(random: Random, odd: float) -> str:
        pairs = [
            ('"db"', word(random, odd)),
            ('"ts_ms"', _time(random)),
            ('"table"', '"t"'),
            ('"seq"', '"[\\"1\\",2]"'),
        ]
        pairs += [(text_of(random), anything(random, odd, 2)) for _ in range(random.choice([0, 0, 1, 3]))]
        return _joined(random.sample(pairs, random.randint(0, len(pairs))), random)

    fields: dict[str, Value] = {
        "debezium-json": {"source": source, "ts_ms": time, "transaction": lambda r, o: anything(r, o, 1)},
        "canal-json": {"database": word, "table": word, "sqlType": numbers, "pkNames": names, "ts": time, "es": time},
        "maxwell-json": {"database": word, "table": word, "primary_key_columns": names, "ts": time, "xid": time},
        "ogg-json": {"table": word, "primary_keys": names, "current_ts": local, "op_ts": local},
    }[tool]
    return [(n, _maybe(make(random, odd), random, odd)) for n, make in fields.items() if random.random() < 0.85]

"""JSON messages for the test of the native decoder: values of all types in common and in odd forms, some of them damaged."""

from __future__ import annotations

import base64
import json
from random import Random

__all__ = ["SCHEMAS", "anything", "blank", "columns", "damaged", "messages", "object_of", "simple", "text_of"]

SCHEMAS = [
    "id BIGINT, user STRING, session STRING, amount INT, x STRING",
    "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f DOUBLE, g BOOLEAN",
    "a DECIMAL(10,2), b DECIMAL(38,0), c DECIMAL(38,18), d DECIMAL(5,5), s STRING, x BINARY",
    "d DATE, t TIMESTAMP_NTZ, l TIMESTAMP, u TIME(3), v TIME(0), w TIME(6)",
    "a ARRAY<INT>, m MAP<STRING, DOUBLE>, r STRUCT<x: INT, y: STRING, z: STRUCT<q: DATE>>, s STRING",
    "a ARRAY<STRUCT<x: BIGINT, y: ARRAY<STRING>>>, z ARRAY<ARRAY<TINYINT>>, t ARRAY<TIME(3)>, f ARRAY<FLOAT>",
    "m MAP<STRING, STRUCT<l: TIMESTAMP, b: BINARY, n: DECIMAL(4,1)>>, k MAP<STRING, MAP<STRING, BOOLEAN>>",
]
"""Columns, in Spark's DDL."""

_NAMES = list("abcdefgklmnqrstuvwxyz")
_ODD = [
    *(
        '""',
        '"x"',
        '"null"',
        '"1"',
        '" 1"',
        '"1.5"',
        '"-2"',
        '"true"',
        '"NaN"',
        "NaN",
        "Infinity",
        "-",
        "+1",
        ".5",
        "1.",
    ),
    *(
        "01",
        "-01",
        "1e",
        "1e+",
        "0x1",
        "1_000",
        "00",
        "-0",
        "-0.0",
        "0e0",
        "1E5",
        "1e-5",
        "1e400",
        "-1e400",
        "1e-400",
        "nul",
    ),
    *(
        "null",
        "nullx",
        "truex",
        "True",
        "tru",
        "{}",
        "[]",
        "[1",
        '{"a"',
        "'a'",
        "/**/1",
        "1 2",
        '"a" "b"',
        "[1,]",
        '{"x":1,}',
    ),
    *(
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"\\ud83d\\ude00"',
        '"\\u0000"',
        '"\\q"',
        '"\\u12"',
        '"\\u00E9"',
        '"a\tb"',
        '"\\/"',
    ),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "127",
        "128",
        "-129",
    ),
    *(
        "32767",
        "32768",
        "2147483647",
        "2147483648",
        "-2147483649",
        "99999999999999999999",
        "1" * 38,
        "9" * 39,
        "1" * 120,
    ),
    *("16777217", "16777217.0", "0.1", "3.4028236e38", "1.17549435e-38", "4.9e-324", "2.2250738585072011e-308"),
    *("1.00000017881393432617187499", "1.00000017881393421514957253748434595763683319091796875001"),
    *('"2020-02-30"', '"2020-1-2"', '"2020-01-02T"', '"2020-01-02 03:04"', '"2020-01-02 24:00:00"', '"0000-01-01"'),
    *('"+2020-01-01"', '"10000-01-01 00:00:00Z"', '"2020-01-02 03:04:05+01:00"', '"2020-01-02 03:04:05 Z"', '"03:04"'),
    *('"2020-01-02 03:04:05."', '"2020-01-02 03:04:05.1234567891"', '"2020-01-02 03:04:60"', '"3:04:05"', '"24:00:00"'),
    *('"YW"', '"YWI"', '"YWJj\\n"', '"YW Jj"', '"YQ==="', '"YR=="', '"===="', '"YWJj="', '"YQ=="YQ=="', '"-_-_"'),
]
_PIECES = [
    b'"',
    b",",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b"\\",
    b" ",
    b"\n",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"1e99",
    b"null",
    b"\xc3",
]


def messages(ddl: str, count: int, seed: int) -> list[bytes]:
    """Return `count` messages for a schema of `SCHEMAS`: about six of ten are well-formed, the others odd or damaged."""
    random = Random(f"{ddl} {seed}")
    fields = columns(ddl)
    return [_message(fields, random) for _ in range(count)]


def _message(fields: list[tuple[str, str]], random: Random) -> bytes:
    odd = random.choice([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.02, 0.2])
    text = object_of(fields, random, odd)
    return damaged(text, random)


def damaged(text: str, random: Random) -> bytes:
    """Return a text as a message, sometimes damaged."""
    if random.random() < 0.03:
        text = random.choice([" ", "\n\t", "\ufeff", "x", "[", "\r\n"]) + text
    if random.random() < 0.03:
        text += random.choice([" ", "\n", "x", "{}", "\0", ",", "]"])
    message = text.encode("utf-8", "surrogatepass")
    if random.random() < 0.12:
        damaged = bytearray(message)
        for _ in range(random.randint(1, 3)):
            at = random.randint(0, len(damaged))
            damaged[at : at + random.randint(0, 2)] = random.choice([random.choice(_PIECES), random.randbytes(1), b""])
        message = bytes(damaged)
    return message


def columns(ddl: str) -> list[tuple[str, str]]:
    """Return the names and the types of a list of columns, which are separated by commas outside of brackets."""
    found, depth, begin = [], 0, 0
    for at, character in enumerate(ddl + ","):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            name, _, type_ = ddl[begin:at].strip().replace(": ", " ").replace(":", " ").partition(" ")
            found.append((name, type_.strip()))
            begin = at + 1
    return found


def object_of(fields: list[tuple[str, str]], random: Random, odd: float, *, texts: bool = False) -> str:
    """Return an object with these fields; with `texts`, most numbers and booleans are in quotes."""
    parts = []
    for name, type_ in fields:
        if random.random() < 0.06:
            continue
        parts.append((json.dumps(name), _value(type_, random, odd, texts=texts)))
        if random.random() < odd / 4:
            parts.append((json.dumps(name), _value(type_, random, odd, texts=texts)))
    not_wanted = range(random.choice([0, 0, 0, 1, 3]))
    parts += [(text_of(random), anything(random, odd, 3)) for _ in not_wanted]
    if random.random() < 0.02:
        parts.append(('"__error"', random.choice(['"x"', "1", "null"])))
    if random.random() < 0.3:
        random.shuffle(parts)
    return _joined("{", [f"{n}{blank(random)}:{blank(random)}{v}" for n, v in parts], "}", random)


def _joined(begin: str, parts: list[str], end: str, random: Random) -> str:
    return begin + blank(random) + f"{blank(random)},{blank(random)}".join(parts) + blank(random) + end


def blank(random: Random) -> str:
    """Return blanks, mostly none."""
    return random.choice(["", "", "", "", "", "", " ", "\n  "])


def _value(type_: str, random: Random, odd: float, *, texts: bool = False) -> str:
    if random.random() < odd:
        return random.choice(_ODD) if random.random() < 0.8 else anything(random, odd, 3)
    if random.random() < 0.07:
        return "null"
    name, _, inside = type_.partition("<")
    inside = inside[:-1]
    match name:
        case "ARRAY":
            count = random.choice([0, 1, 2, 3, 7])
            return _joined("[", [_value(inside, random, odd, texts=texts) for _ in range(count)], "]", random)
        case "MAP":
            pairs = {
                text_of(random): _value(inside.partition(",")[2].strip(), random, odd, texts=texts)
                for _ in range(random.choice([0, 1, 2, 3, 17]))
            }
            if random.random() < odd:
                return _joined("{", [f"{k}:{v}" for k, v in [*pairs.items()] * 2], "}", random)
            return _joined("{", [f"{k}:{v}" for k, v in pairs.items()], "}", random)
        case "STRUCT":
            return object_of(columns(inside), random, odd, texts=texts)
        case _:
            value = simple(type_, random)
            return f'"{value}"' if texts and value[0] != '"' and random.random() < 0.9 else value


_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def simple(type_: str, random: Random) -> str:
    """Return a value of a simple type."""
    match type_.partition("(")[0]:
        case "BOOLEAN":
            return random.choice(["true", "false"])
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT" as whole:
            number = random.getrandbits(random.randint(1, _BITS[whole]))
            return str(number - (1 << (_BITS[whole] - 1)) if random.random() < 0.5 else number >> 1)
        case "FLOAT" | "DOUBLE":
            return random.choice(
                [
                    repr(random.uniform(-1e6, 1e6)),
                    str(random.randint(-(10**18), 10**18)),
                    f"{random.uniform(-10, 10):.{random.randint(0, 25)}f}",
                    f"{random.uniform(-10, 10):.{random.randint(0, 20)}e}",
                    f"{random.random()}e{random.randint(-330, 310)}",
                    f"{random.random()}E{random.randint(-48, 40)}",
                    str(random.randint(-1000, 1000)),
                ]
            )
        case "DECIMAL":
            precision, scale = map(int, type_[8:-1].split(","))
            digits, places = random.randint(0, precision - scale), random.randint(0, scale)
            digits_before = int(str(random.getrandbits(130))[: max(digits, 1)]) if precision > scale else 0
            digits_behind = f".{str(random.getrandbits(130))[:places]}" if places else ""
            decimal = f"{random.choice(['', '-'])}{digits_before}{digits_behind}"
            if random.random() < 0.9:
                return random.choice([decimal, f'"{decimal}"'])
            return random.choice([f"{decimal}e1", f"{decimal}1", f'"{decimal}0"', f'"0{decimal}"', f'"{decimal}E-1"'])
        case "STRING":
            return text_of(random)
        case "BINARY":
            return f'"{base64.b64encode(random.randbytes(random.randint(0, 40))).decode()}"'
        case "DATE":
            return f'"{_date(random)}"'
        case "TIME":
            return f'"{_time(random, int(type_[5:-1]))}"'
        case "TIMESTAMP_NTZ":
            return f'"{_date(random)}{random.choice(" T")}{_time(random)}{_rarely("Z", random)}"'
        case "TIMESTAMP":
            return f'"{_date(random)}{random.choice(" T")}{_time(random)}{_rarely("+01:00", random) or "Z"}"'
        case _:
            raise AssertionError(type_)


def _rarely(text: str, random: Random) -> str:
    return text if random.random() < 0.04 else ""


def _date(random: Random) -> str:
    year = random.choice([random.randint(1, 9999), random.randint(1900, 2100), 1, 9999, 1582, 2000])
    day = random.choice([1, 28, random.randint(1, 28)]) if random.random() < 0.9 else random.randint(29, 31)
    return f"{year:04}-{random.randint(1, 12):02}-{day:02}"


def _time(random: Random, digits: int = 9) -> str:
    count = random.randint(0, digits) if random.random() < 0.95 else digits + 1
    fraction = f".{random.getrandbits(40):013}"[: count + 1] if count else ""
    return f"{random.randint(0, 23):02}:{random.randint(0, 59):02}:{random.randint(0, 59):02}{fraction}"


def text_of(random: Random) -> str:
    """Return a text in quotes."""
    length = random.choice([0, 1, 3, 7, 8, 9, 16, 17, 40, 300])
    kind = random.random()
    if kind < 0.6:
        text = "".join(random.choices("abcdefghij KLM-_.:/", k=length))
    elif kind < 0.8:
        text = "".join(random.choices('"\\/\b\f\n\r\t\0\x1f\x7fäß€😀\u2028\ufeff\ufffe', k=min(length, 20)))
    else:
        text = "".join(random.choices(_NAMES, k=1))
    return json.dumps(text, ensure_ascii=random.random() < 0.5)


def anything(random: Random, odd: float, depth: int) -> str:
    """Return any JSON value."""
    kind = random.random()
    if depth and kind < 0.15:
        return _joined("[", [anything(random, odd, depth - 1) for _ in range(random.randint(0, 3))], "]", random)
    if depth and kind < 0.3:
        pairs = [f"{text_of(random)}:{anything(random, odd, depth - 1)}" for _ in range(random.randint(0, 3))]
        return _joined("{", pairs, "}", random)
    if random.random() < odd:
        return random.choice(_ODD)
    if kind < 0.301:
        return "[" * 100 + "]" * 100
    if kind < 0.6:
        return text_of(random)
    return simple(random.choice(["BOOLEAN", "DOUBLE", "BIGINT", "DATE"]), random)

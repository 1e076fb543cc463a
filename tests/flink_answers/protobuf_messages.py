"""Messages in Protobuf: of both syntaxes, with and without values, and damaged ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass

from dynamic_kafka.formats.protobuf.descriptors import message_of_set
from tests.flink_answers.messages import Case

__all__ = ["PROTOBUF", "PROTO_FILES", "descriptors"]

PROTO_FILES = tuple(Path(__file__).with_name(name) for name in ("messages.proto", "messages2.proto"))


@cache
def descriptors() -> FileDescriptorSet:
    """Return the files, compiled."""
    import tempfile

    from grpc_tools import protoc

    include = Path(protoc.__file__).with_name("_proto")
    with tempfile.NamedTemporaryFile() as made:
        given = ["-I", str(include), "-I", str(PROTO_FILES[0].parent), *(path.name for path in PROTO_FILES)]
        assert protoc.main(["protoc", "--include_imports", f"--descriptor_set_out={made.name}", *given]) == 0
        return FileDescriptorSet.FromString(made.read())


def written(name: str, text: str) -> bytes:
    """Return a message, given in Protobuf's text format, in its encoding."""
    class_ = GetMessageClass(message_of_set("test", f"answers.{name}", descriptors()).descriptor)
    return text_format.Parse(text, class_()).SerializeToString(deterministic=True)


def case(name: str, columns: str, *messages: str | bytes, **options: str) -> Case:
    """Return messages of a type, as text or as bytes."""
    found = [written(name, m) if isinstance(m, str) else m for m in messages]
    given = {"": "protobuf", "message-class-name": f"answers.{name}"} | {
        k.replace("_", "-"): v for k, v in options.items()
    }
    return Case(columns, given, tuple(dict.fromkeys(found)))


def both(title: str, name: str, columns: str, *messages: str | bytes) -> dict[str, Case]:
    """Return a case without and with default values."""
    return {
        title: case(name, columns, *messages),
        f"{title}, defaults": case(name, columns, *messages, read_default_values="true"),
    }


def tag(number: int, wire: int) -> bytes:
    """Return the beginning of a field with a number below 16 or 2048."""
    key = number << 3 | wire
    return bytes([key]) if key < 128 else bytes([key & 127 | 128, key >> 7])


def field(number: int, content: bytes) -> bytes:
    """Return a field of bytes."""
    return tag(number, 2) + bytes([len(content)]) + content


SCALARS = (
    "uid BIGINT, name STRING, n INT, content BYTES, price DOUBLE, ratio FLOAT, flag BOOLEAN, small INT, `large` BIGINT, "
    "f32 INT, f64 BIGINT, s32 INT, s64 BIGINT, sf32 INT, sf64 BIGINT, camelCase BIGINT"
)
INNER = "ROW<v1 BIGINT, v2 INT, v3 STRING>"
_CASES: dict[str, Case] = {
    **both(
        "scalars of proto3",
        "Three",
        SCALARS,
        "",
        'uid: 1 name: "ü€😀" n: -1 content: "\\000\\377" price: 0.1 ratio: 0.1 flag: true small: 1 large: 2 f32: 3 f64: 4 '
        "s32: -5 s64: -6 sf32: -7 sf64: -8 camelCase: 9",
        "uid: -9223372036854775808 n: -2147483648 price: nan ratio: -inf s32: -2147483648 s64: -9223372036854775808",
        "uid: 9223372036854775807 n: 2147483647 price: -0.0 ratio: 3.4028235e38 s32: 2147483647 s64: 9223372036854775807",
        "small: 4294967295 large: 18446744073709551615 f32: 4294967295 f64: 18446744073709551615",
        "small: 2147483648 large: 9223372036854775808 f32: 2147483648 f64: 9223372036854775808",
    ),
    "uint32 as BIGINT": case("Three", "small BIGINT, f32 BIGINT", "small: 4294967295 f32: 1"),
    "uint32 as STRING": case("Three", "small STRING", "small: 1"),
    "int64 as INT": case("Three", "uid INT", "uid: 1"),
    "int32 as BIGINT": case("Three", "n BIGINT", "n: -1"),
    "int32 as SMALLINT": case("Three", "n SMALLINT", "n: 1", "n: 40000"),
    "float as DOUBLE": case("Three", "ratio DOUBLE", "ratio: 0.1"),
    "string as BYTES": case("Three", "name BYTES", 'name: "a"'),
    "bytes as STRING": case("Three", "content STRING", 'content: "a"'),
    "a column that is no field": case("Three", "nothing INT", "n: 1"),
    "a name with other capitals": case("Three", "camelcase BIGINT", "camelCase: 1"),
    "NOT NULL": case("Three", "n INT NOT NULL, maybe INT NOT NULL", "", "n: 1 maybe: 2"),
    **both(
        "optional of proto3",
        "Three",
        "maybe INT, maybe_text STRING, maybe_fruit STRING",
        "",
        "maybe: 0",
        'maybe_text: "" maybe: 5',
    ),
    **both("enum as STRING", "Three", "fruit STRING", "", "fruit: PEAR", "fruit: PLUM", tag(14, 0) + b"\x05"),
    **both("enum as INT", "Three", "fruit INT", "", "fruit: PEAR", "fruit: PLUM", tag(14, 0) + b"\x05"),
    "enum as BIGINT": case("Three", "fruit BIGINT", "fruit: PEAR"),
    "enums": case(
        "Three",
        "fruits ARRAY<STRING>, basket MAP<STRING, STRING>",
        'fruits: [PEAR, APPLE] basket { key: "a" value: PLUM }',
        tag(28, 2) + b"\x02\x01\x05",
    ),
    "enums as INT": case(
        "Three", "fruits ARRAY<INT>, basket MAP<STRING, INT>", 'fruits: [PEAR, PLUM] basket { key: "a" value: PEAR }'
    ),
    **both(
        "messages",
        "Three",
        f"`inner` {INNER}, `outer` ROW<`inner` {INNER}, inners ARRAY<{INNER}>, deep ROW<x INT>>",
        "",
        "inner {}",
        'inner { v1: 1 v3: "x" }',
        "outer {}",
        "outer { inner {} inners {} inners { v2: 3 } deep {} }",
    ),
    "a part of a message": case(
        "Three",
        "`inner` ROW<v3 STRING>, `outer` ROW<deep ROW<x INT>>",
        'inner { v1: 1 v3: "x" } outer { deep { x: 4 } }',
    ),
    **both(
        "repeated",
        "Three",
        f"numbers ARRAY<INT>, tags ARRAY<STRING>, inners ARRAY<{INNER}>, smalls ARRAY<INT>",
        "",
        'numbers: [0, -1, 5] tags: ["", "a"] inners {} inners { v1: 1 } smalls: 4294967295',
        tag(18, 0) + b"\x01" + tag(18, 2) + b"\x02\x02\x03" + tag(18, 0) + b"\x04",
    ),
    **both(
        "maps",
        "Three",
        f"counts MAP<STRING, INT>, by_id MAP<BIGINT, {INNER}>, labels MAP<STRING, STRING>, yes MAP<BOOLEAN, DOUBLE>",
        "",
        'counts { key: "a" value: 1 } counts { key: "" value: 0 } by_id { key: -1 value { v1: 5 } } '
        'by_id { key: 2 value {} } labels { key: "k" value: "" } yes { key: true value: 1.5 }',
        field(21, b"\x0a\x01k\x10\x01") + field(21, b"\x0a\x01k\x10\x02"),
        field(21, b"\x0a\x01k"),
        field(21, b"\x10\x02"),
        field(21, b""),
        field(22, b"\x08\x01"),
    ),
    **both(
        "oneof",
        "Three",
        f"`left` INT, `right` STRING, middle {INNER}",
        "",
        "left: 0",
        "left: 1",
        'right: ""',
        'right: "x"',
        "middle {}",
        tag(24, 0) + b"\x01" + field(25, b"x"),
        field(25, b"x") + tag(24, 0) + b"\x01",
        field(26, b"\x08\x01") + tag(24, 0) + b"\x01" + field(26, b"\x10\x02"),
    ),
    "well-known": case(
        "Three",
        "ts ROW<seconds BIGINT, nanos INT>, wrapped ROW<`value` BIGINT>",
        "",
        "ts { seconds: 5 nanos: 6 } wrapped {}",
        "wrapped { value: 7 }",
    ),
    "a Timestamp as TIMESTAMP": case("Three", "ts TIMESTAMP(3)", "ts { seconds: 5 }"),
    "on the wire": case(
        "Three",
        f"n INT, name STRING, `inner` {INNER}",
        tag(3, 0) + b"\x01" + tag(3, 0) + b"\x02",
        field(17, b"\x08\x01\x10\x02") + field(17, b"\x10\x03"),
        field(17, b"\x08\x01") + field(17, b""),
        tag(3, 2) + b"\x01\x05",
        tag(3, 5) + b"\x01\x00\x00\x00",
        tag(3, 0) + b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        tag(3, 0) + b"\xff\xff\xff\xff\x0f",
        tag(3, 0) + b"\x80\x80\x80\x80\x10",
        tag(3, 0) + b"\x81\x80\x80\x80\x80\x80\x80\x80\x80\x00",
        tag(3, 0) + b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00",
        tag(3, 0),
        field(2, b"abc")[:-1],
        field(2, b"\xff"),
        field(2, b"a\xc3"),
        field(100, b"unknown") + tag(3, 0) + b"\x05",
        tag(100, 3) + tag(3, 0) + b"\x01" + tag(100, 4),
        tag(100, 3) + tag(3, 0) + b"\x01",
        tag(3, 4),
        b"\x00\x01",
        b"\x07",
        b"\x1e\x01",
        field(17, b"\x08"),
        b"\xff",
        tag(3, 0) + b"\x05" + b"\x00",
    ),
    "damaged, ignored": case(
        "Three", "n INT, name STRING", "n: 1", tag(3, 0), field(2, b"\xff"), b"\xff", "", ignore_parse_errors="true"
    ),
    **both(
        "proto2",
        "Two",
        "uid BIGINT, name STRING, n INT, flag BOOLEAN, price DOUBLE, content BYTES, color STRING, plain STRING, "
        "`large` BIGINT, numbers ARRAY<INT>, part ROW<x INT, y STRING>, colors ARRAY<STRING>, counts MAP<STRING, INT>, "
        "`left` INT, `right` STRING",
        "",
        'uid: 0 name: "" n: 0 flag: false price: 0 content: "" color: RED plain: RED large: 0 part {} left: 0',
        'numbers: [1, 2] colors: [GREEN, RED] counts { key: "a" value: 1 } part { x: 1 y: "z" } right: "r"',
        tag(7, 0) + b"\x05",
        tag(8, 0) + b"\x05",
        tag(11, 0) + b"\x05" + tag(11, 0) + b"\x01",
        field(9, b"\x01\x02"),
        field(2, b"\xff"),
        field(12, b"\x0a\x01k"),
    ),
    "proto2 enum as INT": case(
        "Two", "color INT, plain INT", "", "color: RED plain: GREEN", tag(7, 0) + b"\x05", read_default_values="true"
    ),
    "required": case("Strict", "must INT, may STRING", "must: 0", "must: 5 may: 'x'", field(2, b"x"), b""),
    "the two options together": case(
        "Three", "n INT, maybe INT", "", tag(3, 0), ignore_parse_errors="true", read_default_values="true"
    ),
}
PROTOBUF = {f"protobuf: {title}": found for title, found in _CASES.items()}

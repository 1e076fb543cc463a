"""Random Protobuf types and messages for the test of the native decoder: of all syntaxes, in odd and damaged forms too."""

from __future__ import annotations

import struct
from random import Random

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
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
)

from dynamic_kafka.formats.protobuf.descriptors import add_well_known
from dynamic_kafka.formats.protobuf.types import entry_of, enum_of, is_map, type_name
from dynamic_kafka.formats.protobuf.types import message_of as inner_of

__all__ = ["columns_of", "file_of", "message_of"]

_F = FieldDescriptorProto
_SCALARS = [
    *("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64"),
    *("bool", "float", "double", "string", "string", "bytes"),
]
_KEYS = ["int32", "int64", "uint32", "uint64", "sint32", "sfixed64", "bool", "string", "string"]
_NUMBERS = [*range(1, 30), 127, 128, 255, 256, 257, 2047, 2048, 18999, 2**29 - 1]
_TIMESTAMP = ".google.protobuf.Timestamp"
_WHOLE: list[DataType] = [IntegerType(), LongType(), LongType(), ShortType(), ByteType()]
_UNSIGNED: list[DataType] = [IntegerType(), LongType()]
_LONG: list[DataType] = [LongType()]
_COLUMNS: dict[str, list[DataType]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), _WHOLE),
    **dict.fromkeys(("uint32", "fixed32"), _UNSIGNED),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint64", "fixed64"), _LONG),
    "bool": [BooleanType()],
    "float": [FloatType()],
    "double": [DoubleType()],
    "string": [StringType()],
    "bytes": [BinaryType()],
    "enum": [StringType(), StringType(), *_WHOLE],
}


# --- message types ---


def file_of(random: Random) -> FileDescriptorSet:
    """Return a file with three random messages `test.M0`, `test.M1` and `test.M2`, and what it imports."""
    file = FileDescriptorProto(name="test.proto", package="test", dependency=["google/protobuf/timestamp.proto"])
    syntax = random.choice(["proto2", "proto3", "proto3", "editions"])
    file.syntax = syntax
    if syntax == "editions":
        file.edition = Edition.EDITION_2023
        features = file.options.features
        features.field_presence = random.choice([FeatureSet.EXPLICIT, FeatureSet.IMPLICIT])
        features.enum_type = random.choice([FeatureSet.OPEN, FeatureSet.CLOSED])
        features.repeated_field_encoding = random.choice([FeatureSet.PACKED, FeatureSet.EXPANDED])
        features.utf8_validation = random.choice([FeatureSet.VERIFY, FeatureSet.NONE])
        if features.enum_type == FeatureSet.CLOSED:  # such an enum cannot be a field without presence
            features.field_presence = FeatureSet.EXPLICIT
    enum = file.enum_type.add(name="E")
    numbers = [0, 1, 2, 7, -1, 100000]
    first = random.choice([0, 5]) if syntax == "proto2" else 0
    enum.value.add(name="FIRST", number=first)
    for number in numbers[: random.randint(1, len(numbers))]:
        if number != first:
            enum.value.add(name=f"N{number}".replace("-", "_"), number=number)
    if random.random() < 0.3:
        enum.options.allow_alias = True
        enum.value.add(name="ALIAS", number=first)
    for index in range(3):
        _add_message(file, file.message_type.add(name=f"M{index}"), syntax, random)
    files = FileDescriptorSet()
    add_well_known(files, file.dependency)
    files.file.append(file)
    return files


def _add_message(file: FileDescriptorProto, message: DescriptorProto, syntax: str, random: Random) -> None:
    numbers = random.sample(_NUMBERS, random.randint(1, 10))
    if random.random() < 0.5:
        numbers.sort()
    oneofs = random.choice([0, 0, 1, 2])
    for index in range(oneofs):
        message.oneof_decl.add(name=f"o{index}")
    synthetic: list[FieldDescriptorProto] = []
    for number in numbers:
        field = message.field.add(name=f"f{number}", number=number, label=_F.LABEL_OPTIONAL)
        _set_type(field, random)
        kind = random.random()
        if kind < 0.2:
            field.label = _F.LABEL_REPEATED
            if syntax != "editions" and field.type not in (_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE):
                field.options.packed = random.random() < 0.7
        elif kind < 0.35:
            _make_map(message, field, random)
        elif kind < 0.5 and oneofs:
            field.oneof_index = random.randrange(oneofs)
        elif syntax == "proto3" and kind < 0.65 and field.type != _F.TYPE_MESSAGE:
            field.proto3_optional = True
            synthetic.append(field)
        elif syntax == "proto2" and kind < 0.55 and not ".test.M" <= field.type_name <= f".test.{message.name}":
            field.label = _F.LABEL_REQUIRED
        elif syntax == "proto2" and kind < 0.65:
            _set_default(field, random)
        elif syntax == "proto2" and kind < 0.68:
            group = message.nested_type.add(name=f"G{number}")
            group.field.add(name="x", number=1, label=_F.LABEL_OPTIONAL, type=_F.TYPE_INT32)
            field.name, field.type = f"g{number}", _F.TYPE_GROUP
            field.type_name = f".test.{message.name}.G{number}"
    used = {field.oneof_index for field in message.field if field.HasField("oneof_index")}
    kept = sorted(used)
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index = kept.index(field.oneof_index)
    names = [message.oneof_decl[index].name for index in kept]
    del message.oneof_decl[:]
    for name in names:
        message.oneof_decl.add(name=name)
    for field in synthetic:
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")
    if syntax == "proto2" and random.random() < 0.1:
        message.extension_range.add(start=3000, end=4000)
        file.extension.add(
            name=f"x{message.name}", number=3500, label=_F.LABEL_OPTIONAL, type=_F.TYPE_STRING, extendee=message.name
        )


def _set_type(field: FieldDescriptorProto, random: Random) -> None:
    kind = random.random()
    if kind < 0.65:
        field.type = _F.Type.Value(f"TYPE_{random.choice(_SCALARS).upper()}")
    elif kind < 0.75:
        field.type, field.type_name = _F.TYPE_ENUM, ".test.E"
    elif kind < 0.85:
        field.type, field.type_name = _F.TYPE_MESSAGE, _TIMESTAMP
    else:
        field.type, field.type_name = _F.TYPE_MESSAGE, f".test.M{random.randrange(3)}"


def _make_map(message: DescriptorProto, field: FieldDescriptorProto, random: Random) -> None:
    entry = message.nested_type.add(name=f"{field.name.capitalize()}Entry")
    entry.options.map_entry = True
    key = _F.Type.Value(f"TYPE_{random.choice(_KEYS).upper()}")
    entry.field.add(name="key", number=1, label=_F.LABEL_OPTIONAL, type=key)
    value = entry.field.add(name="value", number=2, label=_F.LABEL_OPTIONAL, type=field.type)
    if field.type_name:
        value.type_name = field.type_name
    field.label, field.type = _F.LABEL_REPEATED, _F.TYPE_MESSAGE
    field.type_name = f".test.{message.name}.{entry.name}"


def _set_default(field: FieldDescriptorProto, random: Random) -> None:
    match field.type:
        case _F.TYPE_STRING:
            field.default_value = random.choice(["", "x", "Grüße" * 10])
        case _F.TYPE_BYTES:
            field.default_value = random.choice(["", "\\001\\377"])
        case _F.TYPE_BOOL:
            field.default_value = random.choice(["true", "false"])
        case _F.TYPE_ENUM:
            field.default_value = "FIRST"
        case _F.TYPE_FLOAT | _F.TYPE_DOUBLE:
            field.default_value = random.choice(["-0.0", "1.5", "inf", "nan"])
        case _F.TYPE_MESSAGE:
            pass
        case _:
            field.default_value = random.choice(["0", "1", "127", "70000"])


# --- columns ---


def columns_of(descriptor: Descriptor, random: Random, levels: int = 3) -> StructType:
    """Return random columns that fit a message, in any order; most of its fields."""
    fields = []
    for field in descriptor.fields:
        if random.random() < 0.8:
            type_ = _column(field, random, levels)
            if type_ is not None:
                fields.append(StructField(field.name, type_))
    if random.random() < 0.5:
        random.shuffle(fields)
    return StructType(fields)


def _column(field: FieldDescriptor, random: Random, levels: int) -> DataType | None:
    if is_map(field):
        key, value = (_value_column(part, random, levels) for part in entry_of(field))
        return None if key is None or value is None else MapType(key, value)
    found = _value_column(field, random, levels)
    return ArrayType(found) if field.is_repeated and found is not None else found


def _value_column(field: FieldDescriptor, random: Random, levels: int) -> DataType | None:
    if field.message_type is None:
        return random.choice(_COLUMNS[type_name(field)])
    if field.message_type.name == "Timestamp" and random.random() < 0.8:
        return random.choice([TimestampType(), TimestampNTZType()])
    return columns_of(inner_of(field), random, levels - 1) if levels else None


# --- messages ---


def message_of(descriptor: Descriptor, random: Random) -> bytes:
    """Return a random message: six of ten are as a serializer writes them, the others odd or damaged."""
    odd = random.choice([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.02, 0.1, 0.1, 0.3])
    message = _message(descriptor, random, odd, 4)
    if random.random() < 0.1:
        damaged = bytearray(message)
        for _ in range(random.randint(1, 3)):
            at = random.randint(0, len(damaged))
            damaged[at : at + random.randint(0, 2)] = random.randbytes(random.randint(0, 2))
        message = bytes(damaged)
    return message


def _message(descriptor: Descriptor, random: Random, odd: float, levels: int) -> bytes:
    parts: list[bytes] = []
    oneofs: set[str] = set()
    for field in descriptor.fields:
        if random.random() < (0.1 if field.is_required else 0.3) * (1.0 if odd or not field.is_required else 0.0):
            continue
        if field.message_type is not None and not levels and not field.is_required:
            continue
        oneof = field.containing_oneof
        if oneof is not None and oneof.full_name in oneofs and random.random() >= odd:
            continue
        if oneof is not None:
            oneofs.add(oneof.full_name)
        if field.is_repeated:
            parts += _elements(field, random, odd, levels)
        else:
            for _ in range(2 if random.random() < odd else 1):
                parts.append(_value(field, random, odd, levels))
    if random.random() < 0.1:
        number = random.choice([*_NUMBERS, 3500])
        parts.insert(random.randint(0, len(parts)), _unknown(number, random, odd))
    if random.random() < odd:
        random.shuffle(parts)
    return b"".join(parts)


def _elements(field: FieldDescriptor, random: Random, odd: float, levels: int) -> list[bytes]:
    count = random.choice([0, 1, 2, 3])
    if is_map(field):
        return [
            _tagged(field.number, 2, _sized(_entry(field, random, odd, levels), random, odd), random, odd)
            for _ in range(count)
        ]
    packable = type_name(field) not in ("string", "bytes") and field.message_type is None
    if packable and random.random() < (0.5 if odd else 1.0 if field.is_packed else 0.0):
        packed = b"".join(_bare(field, random, odd, levels)[1] for _ in range(count))
        cut = packed[: random.randint(0, len(packed))] if random.random() < odd else packed
        return [_tagged(field.number, 2, _sized(cut, random, odd), random, odd)] * random.choice([1, 1, 1, 2])
    return [_value(field, random, odd, levels) for _ in range(count)]


def _entry(field: FieldDescriptor, random: Random, odd: float, levels: int) -> bytes:
    parts = [_value(part, random, odd, levels) for part in entry_of(field) if random.random() >= odd]
    if random.random() < odd / 2:
        parts.append(_unknown(random.randint(1, 5), random, odd))
    if random.random() < odd:
        random.shuffle(parts)
        parts += parts[:1]
    return b"".join(parts)


def _value(field: FieldDescriptor, random: Random, odd: float, levels: int) -> bytes:
    if field.type == field.TYPE_GROUP:
        inner = _message(inner_of(field), random, odd, levels - 1) if levels else b""
        return _tagged(field.number, 3, inner, random, odd) + _tagged(field.number, 4, b"", random, odd)
    if random.random() < odd / 4:
        return _unknown(field.number, random, odd)
    return _tagged(field.number, *_bare(field, random, odd, levels), random, odd)


def _bare(field: FieldDescriptor, random: Random, odd: float, levels: int) -> tuple[int, bytes]:
    """Return the wire type and the value."""
    if field.message_type is not None:
        if field.message_type.name == "Timestamp":
            return 2, _sized(_timestamp(random, odd), random, odd)
        return 2, _sized(_message(inner_of(field), random, odd, max(levels - 1, 0)), random, odd)
    name = type_name(field)
    match name:
        case "string" | "bytes":
            data = random.choice(["", "a", "Grüße", "x" * 70, "😀", "abc" * 60]).encode()
            if random.random() < odd:
                data = random.choice([random.randbytes(len(data)), b"\xed\xa0\x80", b"\xc0\x80", data + b"\xc3"])
            if name == "bytes":
                data += random.randbytes(random.choice([0, 3]))
            return 2, _sized(data, random, odd)
        case "float":
            if random.random() < odd:
                return 5, random.randbytes(4) if random.random() < 0.5 else struct.pack("<I", 0x7F800001)
            return 5, struct.pack("<f", random.choice([random.gauss(0, 1e6), 0.0, -0.0, float("nan"), float("inf")]))
        case "double":
            if random.random() < odd:
                return 1, random.randbytes(8) if random.random() < 0.5 else struct.pack("<Q", 0xFFF0000000000001)
            return 1, struct.pack("<d", random.choice([random.gauss(0, 1e6), 0.0, -0.0, float("nan"), 1e300]))
        case "fixed32" | "sfixed32":
            return 5, _whole(random, 32).to_bytes(8, "little", signed=True)[:4]
        case "fixed64" | "sfixed64":
            return 1, _whole(random, 64).to_bytes(9, "little", signed=True)[:8]
        case "bool":
            return 0, _varint(random.choice([0, 1]) if random.random() >= odd else random.getrandbits(64), random, odd)
        case "enum":
            numbers = [value.number for value in enum_of(field).values]
            number = random.choice(numbers) if random.random() >= odd else random.choice([3, -7, 2**31, 2**32])
            return 0, _varint(number, random, odd)
        case "sint32" | "sint64":
            bits = 64 if name == "sint64" or random.random() < odd / 2 else 32
            number = _whole(random, bits)
            return 0, _varint((number << 1) ^ (number >> (bits - 1)), random, odd)
        case _:
            bits = 64 if name.endswith("64") or random.random() < odd / 2 else 32
            number = _whole(random, bits)
            return 0, _varint(number % 2**bits if name.startswith("u") else number, random, odd)


def _whole(random: Random, bits: int) -> int:
    """Return a signed number; many are small."""
    number = random.getrandbits(random.randint(1, bits - 1))
    return random.choice([number, number, -number - 1])


def _timestamp(random: Random, odd: float) -> bytes:
    seconds = random.choice([random.randrange(-62_135_596_800, 253_402_300_800), random.randrange(2**31), 0])
    nanos = random.choice([random.randrange(10**9), 0])
    if random.random() < odd:
        seconds = random.choice([-62_135_596_801, 253_402_300_800, 2**62, -(2**62), seconds])
        nanos = random.choice([-1, -1001, 2**31 - 1, -(2**31), 2**40])
    parts = [b"\x08" + _varint(seconds, random, odd), b"\x10" + _varint(nanos, random, odd)]
    parts = [part for part in parts if random.random() >= 0.1]
    if random.random() < odd:
        parts += [_unknown(random.randint(1, 4), random, odd), *parts[:1]]
    return b"".join(parts)


def _unknown(number: int, random: Random, odd: float) -> bytes:
    """Return any field with a number."""
    wire_type = random.choice([0, 1, 2, 2, 5] if random.random() >= odd else [0, 1, 2, 3, 4, 5, 6, 7])
    match wire_type:
        case 0:
            value = _varint(random.getrandbits(random.randint(1, 64)), random, odd)
        case 1:
            value = random.randbytes(8)
        case 2:
            data = random.choice([b"", b"abc", b"\x08\x01", b"\x0a\x00", random.randbytes(5)])
            value = _sized(data, random, odd)
        case 5:
            value = random.randbytes(4)
        case 3:
            value = b"\x08\x01" + _tagged(number, 4, b"", random, odd)
        case _:
            value = b""
    return _tagged(number, wire_type, value, random, odd)


def _tagged(number: int, wire_type: int, value: bytes, random: Random, odd: float) -> bytes:
    return _varint(number << 3 | wire_type, random, odd / 8) + value


def _sized(data: bytes, random: Random, odd: float) -> bytes:
    return _varint(len(data), random, odd / 8) + data


def _varint(number: int, random: Random, odd: float) -> bytes:
    encoded = _plain_varint(number)
    if random.random() < odd / 2 and len(encoded) < 10:  # longer than needed
        more = random.randint(1, 11 - len(encoded))
        encoded = encoded[:-1] + bytes([encoded[-1] | 0x80]) + b"\x80" * (more - 1) + b"\0"
    return encoded


def _plain_varint(number: int) -> bytes:
    number &= 2**64 - 1
    groups: list[int] = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])

"""The native kernel, without which nothing is read or written. The only module that imports `dynamic_kafka._kernel`."""

from __future__ import annotations

import importlib
import json
import logging
import platform
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamic_kafka.errors import DynamicKafkaError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Decoder",
    "Encode",
    "Encoded",
    "LookUp",
    "SchemaId",
    "encoder",
    "kernel",
]

_log = logging.getLogger(__name__)


class Encoded(NamedTuple):
    """The messages of rows.

    Attributes:
        messages: A message for each row, binary; null for a row that is null or has none.
        errors: The places of the rows that cannot be encoded, each with its column and the reason.
    """

    messages: pa.BinaryArray
    errors: Sequence[tuple[int, str, str]]


Encode = Callable[["pa.StructArray", bytes], Encoded]
"""Takes rows, and the bytes with which each message begins."""

SchemaId = int | bytes
"""The id of a schema: a number before messages, or the beginning of a header."""
LookUp = Callable[[Collection[SchemaId]], Mapping[SchemaId, str]]
"""Takes ids of schemas, and returns for each of them the spec for the kernel (`learn` in `native/decode/src/spec.rs`). It
raises what the format raises if the registry cannot be asked."""

_MODULE = "dynamic_kafka._kernel"
_INTERFACE = 15
_REINSTALL = (
    "install the wheel of pyspark-dynamic-kafka there again (pip install --force-reinstall), or build it from its source, "
    "which needs cargo (make install)"
)


@cache
def kernel() -> Any:
    """Return the kernel's module with librdkafka loaded. It is loaded once in a process.

    Raises:
        DynamicKafkaError: If it cannot be used on this machine.
    """
    try:
        module = importlib.import_module(_MODULE)
    except ImportError as error:
        raise _unusable(f"{_MODULE} cannot be loaded ({error})", _REINSTALL) from error
    if module.INTERFACE != _INTERFACE:
        raise _unusable(f"its interface is {module.INTERFACE}, and {_INTERFACE} is needed", _REINSTALL)
    from confluent_kafka import libversion

    # A leftover file of another version may be beside the right one.
    version, problems = libversion()[0], []
    for path in dict.fromkeys(_candidates()):
        try:
            module.load_librdkafka(path, version)
        except RuntimeError as error:
            problems.append(f"{path}: {error}")
        else:
            _log.debug("The native kernel %s uses librdkafka %s of %s", module.__version__, version, path)
            return module
    what = f"cannot be used ({'; '.join(problems)})" if problems else "was not found"
    raise _unusable(f"librdkafka {version} of confluent-kafka {what}", "install confluent-kafka from its wheel there")


def _unusable(problem: str, remedy: str) -> DynamicKafkaError:
    host = platform.node() or "this machine"
    return DynamicKafkaError(
        f"The native kernel of pyspark-dynamic-kafka cannot be used on {host}: {problem}; {remedy}"
    )


class Decoder:
    """Decodes arrays of messages. It is made in the process that uses it.

    Args:
        columns: The columns.
        spec: The spec for the kernel (`native/decode/src/spec.rs`).
        look_up: Looks up schemas, if messages have ids of them.
        used: The names of the columns to build. All others are only checked. None for all columns.

    Raises:
        DynamicKafkaError: If the kernel cannot be used.
    """

    def __init__(
        self,
        columns: pa.StructType,
        spec: Mapping[str, Any],
        look_up: LookUp | None = None,
        used: Collection[str] | None = None,
    ) -> None:
        import pyarrow as pa

        fields = [field if used is None or field.name in used else _unused(field) for field in columns]
        self._decoder = kernel().Decoder(pa.schema(fields), json.dumps(spec))
        self._look_up = look_up

    def decode(
        self, messages: pa.Array, headers: pa.Array | None = None, errors: Mapping[int, str] | None = None
    ) -> pa.StructArray:
        """Return a struct of the used columns and `ERROR` for each message; null for a message that is null or skipped.

        Args:
            messages: Binary.
            headers: The values of headers with ids of schemas; null for a message with the id before it. None if they are
                not looked at.
            errors: Why messages cannot be read, by their places, if that is known already.

        Raises:
            OverflowError: If a column would have more than 2 GiB.
        """
        import pyarrow as pa

        if self._look_up is not None and (unknown := self._decoder.unknown_schemas(messages, headers)):
            self._decoder.learn(list(self._look_up(unknown).items()))
        return pa.record_batch(self._decoder.decode(messages, headers, sorted((errors or {}).items()))).column(0)


def _unused(field: pa.Field) -> pa.Field:
    """Return a field that a decoder checks and does not build."""
    return field.with_metadata({**(field.metadata or {}), "unused": ""})


@lru_cache(256)
def encoder(columns: pa.StructType, spec: str) -> Encode:
    """Return what encodes rows as a spec says, which is JSON (`native/encode/src/spec.rs`).

    Raises:
        DynamicKafkaError: If the kernel cannot be used.
        ValueError: If it has no encoder for the spec and the columns.
    """
    import pyarrow as pa

    made = kernel().Encoder(pa.schema(columns), spec)

    def encode(rows: pa.StructArray, prefix: bytes) -> Encoded:
        whole = pa.concat_arrays([rows, rows.slice(0, 0)]) if _is_slice(rows) else rows
        messages, errors = made.encode(whole.cast(_without_texts(columns)), prefix)
        return Encoded(pa.record_batch(messages).column(0), errors)

    return encode


def _is_slice(array: pa.Array) -> bool:
    """Return whether an array or a part of it begins within its buffers.

    A cast of such a row with rows in it gives Arrow's C interface a length that its parts do not have (pyarrow 26).
    """
    import pyarrow as pa

    parts: list[pa.Array] = []
    if pa.types.is_struct(array.type):
        parts = [array.field(i) for i in range(array.type.num_fields)]
    elif pa.types.is_map(array.type):
        parts = [array.keys, array.items]
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        parts = [array.values]
    return array.offset > 0 or any(map(_is_slice, parts))


def _without_texts(type_: pa.DataType) -> pa.DataType:
    """Return a type with bytes in place of texts, without Arrow's types of large columns, and with nullable parts.

    Texts of Spark need not be valid UTF-8, and Rust accepts only those that are. The parts of a row that is null are null,
    also those that cannot be null in any other row, and Arrow does not cast such parts to their own type.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_string(type_) or types.is_large_string(type_) or types.is_large_binary(type_):
        return pa.binary()
    if types.is_struct(type_):
        return pa.struct([pa.field(field.name, _without_texts(field.type)) for field in type_])
    if types.is_list(type_) or types.is_large_list(type_):
        return pa.list_(pa.field(type_.value_field.name, _without_texts(type_.value_type)))
    if types.is_map(type_):
        return pa.map_(_without_texts(type_.key_type), _without_texts(type_.item_type))
    return type_


def _candidates() -> Iterator[str]:
    """Yield the files that may be the librdkafka that confluent-kafka has loaded, the likely ones first."""
    import confluent_kafka

    package = Path(confluent_kafka.__file__).parent
    for folder in (package.with_name("confluent_kafka.libs"), package / ".dylibs"):  # of wheels: Linux, macOS
        yield from sorted(map(str, folder.glob("librdkafka*")))
    maps = Path("/proc/self/maps")  # Linux: what is loaded, if confluent-kafka was built here
    if maps.exists():
        files = {line.split(maxsplit=5)[-1].rstrip() for line in maps.read_text().splitlines()}
        yield from sorted(file for file in files if Path(file).name.startswith("librdkafka"))

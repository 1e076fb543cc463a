"""The native kernel, without which nothing is read or written. The only module that imports `dynamic_kafka._kernel`."""

from __future__ import annotations

import importlib
import logging
import platform
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamic_kafka.errors import DynamicKafkaError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Encode", "can_decode", "encode_all", "encoder", "kernel"]

_log = logging.getLogger(__name__)

Encode = Callable[["pa.StructArray", bytes], tuple["pa.BinaryArray", list[int]]]
"""Takes rows, and the bytes with which each message begins. Returns a message for each row, null for a row that is null, and
the places of the rows that the kernel is not certain about; their messages are null, too."""

_MODULE = "dynamic_kafka._kernel"
_INTERFACE = 8
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


def can_decode(spec: str) -> bool:
    """Return whether the native kernel decodes messages as a spec says (`native/decode/src/spec.rs`)."""
    return bool(kernel().can_decode(spec))


def encode_all(spec: str, rows: pa.StructArray, prefix: bytes = b"") -> pa.BinaryArray | None:
    """Return a message for each row; None if there is no native encoder, or if it is not certain about one of the rows."""
    encode = encoder(spec)
    if encode is None:
        return None
    messages, left = encode(rows, prefix)
    return None if left else messages


@lru_cache(256)
def encoder(spec: str) -> Encode | None:
    """Return the native encoder of rows as a spec says (`native/encode/src/spec.rs`); None if the kernel has none."""
    try:
        made = kernel().Encoder(spec)
    except ValueError:
        return None

    def encode(rows: pa.StructArray, prefix: bytes) -> tuple[pa.BinaryArray, list[int]]:
        import pyarrow as pa

        messages, left = made.encode(rows.cast(_without_texts(rows.type)), prefix)
        return pa.record_batch(messages).column(0), left

    return encode


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

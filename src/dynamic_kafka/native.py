"""The native kernel: whether it is installed and fits. The only module that imports `dynamic_kafka_native`.

The kernel is a distribution of its own (`pyspark-dynamic-kafka-native`, extra `native`). Everything works without it.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dynamic_kafka.errors import DynamicKafkaError, MissingDependencyError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Encode",
    "Implementation",
    "Kernel",
    "can_decode",
    "encode_all",
    "encoder",
    "implementation",
    "kernel",
]

_log = logging.getLogger(__name__)

Implementation = Literal["auto", "native", "python"]
"""What reads or writes: `auto` is the native kernel where it can be used."""
Encode = Callable[["pa.StructArray", bytes], tuple["pa.BinaryArray", list[int]]]
"""Takes rows, and the bytes with which each message begins. Returns a message for each row, null for a row that is null, and
the places of the rows that the kernel is not certain about; their messages are null, too."""

_INTERFACE = 8
_REPAIR = "install the version of pyspark-dynamic-kafka-native that belongs to this pyspark-dynamic-kafka"


class Kernel(NamedTuple):
    """The kernel, or why there is none.

    Attributes:
        module: The module; None if it is not installed or cannot be used.
        problem: Why it cannot be used, as a clause; "" if it can, or is not installed.
    """

    module: Any
    problem: str = ""


@cache
def kernel() -> Kernel:
    """Return the kernel with librdkafka loaded. Looked for once in a process."""
    try:
        module = importlib.import_module("dynamic_kafka_native")
    except ModuleNotFoundError:
        return Kernel(None)
    except ImportError as error:
        return _unusable(f"it cannot be loaded ({error}); {_REPAIR}")
    if module.INTERFACE != _INTERFACE:
        return _unusable(f"its interface is {module.INTERFACE}, and {_INTERFACE} is needed; {_REPAIR}")
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
            return Kernel(module)
    problem = f"librdkafka {version} of confluent-kafka " + (
        f"cannot be used ({'; '.join(problems)})" if problems else "was not found"
    )
    return _unusable(f"{problem}; install confluent-kafka from its wheel")


def _unusable(problem: str) -> Kernel:
    _log.warning("The native kernel is installed but cannot be used: %s", problem)
    return Kernel(None, problem)


def implementation(wanted: Implementation, option: str = "reader-implementation") -> Literal["native", "python"]:
    """Return what reads or writes in this process, the native kernel or Python.

    Args:
        wanted: The user's wish.
        option: The name of the option with the wish, for errors.

    Raises:
        MissingDependencyError: If the native kernel is wanted and not installed.
        DynamicKafkaError: If it is wanted and cannot be used.
    """
    if wanted == "python":
        return "python"
    found = kernel()
    if found.module is not None:
        return "native"
    if wanted == "native":
        if found.problem:
            raise DynamicKafkaError(f"Option '{option}' is native, but the kernel cannot be used: {found.problem}")
        raise MissingDependencyError("pyspark-dynamic-kafka-native", "native", f"for {option}=native")
    return "python"


def can_decode(spec: str) -> bool:
    """Return whether the native kernel is there and decodes messages as a spec says (`native/decode/src/spec.rs`)."""
    module = kernel().module
    return module is not None and bool(module.can_decode(spec))


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
    module = kernel().module
    if module is None:
        return None
    try:
        made = module.Encoder(spec)
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

"""The native kernel: whether it is installed and fits. The only module that imports `dynamic_kafka_native`.

The kernel is a distribution of its own (`pyspark-dynamic-kafka-native`, extra `native`). Everything works without it.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dynamic_kafka.errors import DynamicKafkaError, MissingDependencyError

__all__ = ["Implementation", "Kernel", "can_decode", "find_librdkafka", "implementation", "kernel"]

_log = logging.getLogger(__name__)

Implementation = Literal["auto", "native", "python"]
"""What reads: `auto` is the native kernel where it can be used."""

_INTERFACE = 3
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
    path = find_librdkafka()
    if path is None:
        return _unusable("the librdkafka of confluent-kafka was not found; install confluent-kafka from its wheel")
    try:
        version = module.load_librdkafka(path)
    except RuntimeError as error:
        return _unusable(f"librdkafka cannot be used ({error}); install confluent-kafka from its wheel")
    _log.debug("The native kernel %s uses librdkafka %s of %s", module.__version__, version, path)
    return Kernel(module)


def _unusable(problem: str) -> Kernel:
    _log.warning("The native kernel is installed but cannot be used: %s", problem)
    return Kernel(None, problem)


def implementation(wanted: Implementation) -> Literal["native", "python"]:
    """Return what reads in this process, the native kernel or Python.

    Args:
        wanted: The option `reader-implementation`.

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
            raise DynamicKafkaError(
                f"Option 'reader-implementation' is native, but the kernel cannot be used: {found.problem}"
            )
        raise MissingDependencyError("pyspark-dynamic-kafka-native", "native", "for reader-implementation=native")
    return "python"


def can_decode(spec: str) -> bool:
    """Return whether the native kernel is there and decodes messages as a spec says (`native/decode/src/spec.rs`)."""
    module = kernel().module
    return module is not None and bool(module.can_decode(spec))


def find_librdkafka() -> str | None:
    """Return the file of the librdkafka that confluent-kafka has loaded; None if it is part of confluent-kafka itself."""
    return next(_candidates(), None)


def _candidates() -> Iterator[str]:
    import confluent_kafka

    package = Path(confluent_kafka.__file__).parent
    for folder in (package.with_name("confluent_kafka.libs"), package / ".dylibs"):  # of wheels: Linux, macOS
        yield from sorted(map(str, folder.glob("librdkafka*")))
    maps = Path("/proc/self/maps")  # Linux: what is loaded, if confluent-kafka was built here
    if maps.exists():
        files = {line.split(maxsplit=5)[-1].rstrip() for line in maps.read_text().splitlines()}
        yield from sorted(file for file in files if Path(file).name.startswith("librdkafka"))

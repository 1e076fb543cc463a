"""The native kernel is used only if it fits; without it Python reads."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import libversion

from dynamic_kafka import native
from dynamic_kafka.errors import DynamicKafkaError, MissingDependencyError
from dynamic_kafka.native import implementation, kernel

Install = Callable[[Any], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that installs a module in place of the kernel; None installs none."""

    def installed(module: Any) -> None:
        monkeypatch.setitem(sys.modules, "dynamic_kafka_native", module)
        kernel.cache_clear()

    yield installed
    kernel.cache_clear()


def refuse(_path: str, _version: str) -> None:
    """A librdkafka that is too old."""
    raise RuntimeError("librdkafka has no function rd_kafka_x")


def test_confluent_kafkas_librdkafka_is_found() -> None:
    """The very file, not another one of the system."""
    path = next(native._candidates())
    assert "confluent_kafka" in path
    assert Path(path).is_file()


def test_the_first_librdkafka_of_confluent_kafkas_version_is_used(
    install: Install, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A leftover file of another version is not; if no file can be used, the log has the reason for each of them."""
    monkeypatch.setattr(native, "_candidates", lambda: iter(["/old", "/broken", "/old", "/right", "/never"]))
    asked: list[str] = []

    def load(path: str, version: str) -> None:
        asked.append(path)
        assert version == libversion()[0]
        if path != usable:
            raise RuntimeError(f"no {path[1:]} one")

    usable = "/right"
    module = SimpleNamespace(INTERFACE=native._INTERFACE, load_librdkafka=load, __version__="0.1.0")
    install(module)
    assert kernel() == (module, "")
    assert asked == ["/old", "/broken", "/right"]
    usable = ""
    kernel.cache_clear()
    assert kernel().module is None
    assert f"librdkafka {libversion()[0]} of confluent-kafka cannot be used (/old: no old one; /broken: " in caplog.text
    monkeypatch.setattr(native, "_candidates", lambda: iter([]))
    kernel.cache_clear()
    assert "confluent-kafka was not found; install confluent-kafka from its wheel" in kernel().problem


@pytest.mark.parametrize(
    ("path", "version", "problem"),
    [
        ("/no/such/file", None, "cannot open shared object file"),
        (None, "1.0.0", r"its version is [\d.]+, and confluent-kafka has 1\.0\.0"),
    ],
)
def test_the_kernel_says_why_a_librdkafka_cannot_be_used(path: str | None, version: str | None, problem: str) -> None:
    """In a process that has loaded none yet: the reason of the system, or the version."""
    if kernel().module is None:
        pytest.skip("the native kernel is not installed")
    arguments = (path or next(native._candidates()), version or libversion()[0])
    code = f"import dynamic_kafka_native as kernel; kernel.load_librdkafka(*{arguments!r})"
    failed = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False)
    assert re.search(f"RuntimeError: .*{problem}", failed.stderr)


def test_without_the_kernel_python_reads(install: Install) -> None:
    """Unless it is asked for."""
    install(None)
    assert implementation("auto") == implementation("python") == "python"
    with pytest.raises(MissingDependencyError, match=r"pip install 'pyspark-dynamic-kafka\[native\]'"):
        implementation("native")


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (SimpleNamespace(INTERFACE=0), f"its interface is 0, and {native._INTERFACE} is needed; install the version"),
        (SimpleNamespace(INTERFACE=native._INTERFACE, load_librdkafka=refuse), r"no function rd_kafka_x\); install"),
    ],
    ids=["another version", "an old librdkafka"],
)
def test_a_kernel_that_does_not_fit_is_not_used(
    install: Install, caplog: pytest.LogCaptureFixture, module: Any, problem: str
) -> None:
    """The log says why, once; so does the error if it is asked for."""
    install(module)
    assert implementation("auto") == "python"
    assert implementation("auto") == "python"
    assert len(caplog.records) == 1
    with pytest.raises(DynamicKafkaError, match=problem):
        implementation("native")
    assert implementation("python") == "python"


def test_a_kernel_that_fits_is_used(install: Install) -> None:
    """It gets the path and the version of confluent-kafka's librdkafka."""
    given: list[tuple[str, str]] = []
    load = lambda *arguments: given.append(arguments)  # noqa: E731
    install(SimpleNamespace(INTERFACE=native._INTERFACE, load_librdkafka=load, __version__="0.1.0"))
    assert implementation("auto") == implementation("native") == "native"
    assert given == [(next(native._candidates()), libversion()[0])]

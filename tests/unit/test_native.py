"""The native kernel is used only if it fits; without it Python reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dynamic_kafka import native
from dynamic_kafka.errors import DynamicKafkaError, MissingDependencyError
from dynamic_kafka.native import find_librdkafka, implementation, kernel

Install = Callable[[Any], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that installs a module in place of the kernel; None installs none."""

    def installed(module: Any) -> None:
        monkeypatch.setitem(sys.modules, "dynamic_kafka_native", module)
        kernel.cache_clear()

    yield installed
    kernel.cache_clear()


def refuse(_path: str) -> str:
    """A librdkafka that is too old."""
    raise RuntimeError("librdkafka has no function rd_kafka_x")


def test_confluent_kafkas_librdkafka_is_found() -> None:
    """The very file, not another one of the system."""
    path = find_librdkafka()
    assert path is not None
    assert "confluent_kafka" in path
    assert Path(path).is_file()


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
    """It gets the path of librdkafka."""
    paths: list[str] = []

    def load(path: str) -> str:
        paths.append(path)
        return "2.16.0"

    install(SimpleNamespace(INTERFACE=native._INTERFACE, load_librdkafka=load, __version__="0.1.0"))
    assert implementation("auto") == implementation("native") == "native"
    assert paths == [find_librdkafka()]

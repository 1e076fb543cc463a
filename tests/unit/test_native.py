"""The native kernel is used only if it fits; without it nothing is read or written, and each way in says why."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import libversion

from dynamic_kafka import (
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    SimpleStringSchema,
    native,
)
from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.native import kernel
from dynamic_kafka.spark.datasource import DynamicKafkaDataSource
from dynamic_kafka.sql import TableEnvironment

Install = Callable[[Any], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that installs a module in place of the kernel; None installs none."""

    def installed(module: Any) -> None:
        monkeypatch.setitem(sys.modules, native._MODULE, module)
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
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leftover file of another version is not; if no file can be used, the error has the reason for each of them."""
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
    assert kernel() is module
    assert asked == ["/old", "/broken", "/right"]
    usable = ""
    kernel.cache_clear()
    said = re.escape(f"librdkafka {libversion()[0]} of confluent-kafka cannot be used (/old: no old one; /broken: ")
    with pytest.raises(DynamicKafkaError, match=said):
        kernel()
    monkeypatch.setattr(native, "_candidates", lambda: iter([]))
    kernel.cache_clear()
    with pytest.raises(
        DynamicKafkaError, match="confluent-kafka was not found; install confluent-kafka from its wheel"
    ):
        kernel()


@pytest.mark.parametrize(
    ("path", "version", "problem"),
    [
        ("/no/such/file", None, "cannot open shared object file"),
        (None, "1.0.0", r"its version is [\d.]+, and confluent-kafka has 1\.0\.0"),
    ],
)
def test_the_kernel_says_why_a_librdkafka_cannot_be_used(path: str | None, version: str | None, problem: str) -> None:
    """In a process that has loaded none yet: the reason of the system, or the version."""
    arguments = (path or next(native._candidates()), version or libversion()[0])
    code = f"import dynamic_kafka._kernel as kernel; kernel.load_librdkafka(*{arguments!r})"
    failed = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False)
    assert re.search(f"RuntimeError: .*{problem}", failed.stderr)


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (
            None,
            r"dynamic_kafka\._kernel cannot be loaded \(.*; install the wheel .* there again .*cargo",
        ),
        (SimpleNamespace(INTERFACE=0), f"its interface is 0, and {native._INTERFACE} is needed; install the wheel"),
        (SimpleNamespace(INTERFACE=native._INTERFACE, load_librdkafka=refuse), r"no function rd_kafka_x\); install"),
    ],
    ids=["none", "another version", "an old librdkafka"],
)
def test_a_kernel_that_cannot_be_used_is_an_error_of_each_way_in(
    install: Install, monkeypatch: pytest.MonkeyPatch, module: Any, problem: str
) -> None:
    """One sentence says what is missing, on which machine, and what to do."""
    monkeypatch.setattr("platform.node", lambda: "worker-7")
    install(module)
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    source = KafkaSource.builder().set_bootstrap_servers("b:1").set_topics("t")
    serializer = KafkaRecordSerializationSchema.builder().set_topic("t")
    serializer.set_value_serialization_schema(SimpleStringSchema())
    sink = KafkaSink.builder().set_bootstrap_servers("b:1").set_record_serializer(serializer.build())
    spark: Any = None
    ways: list[Callable[[], object]] = [
        kernel,
        lambda: DynamicKafkaDataSource(options),
        source.build,
        sink.build,
        lambda: TableEnvironment(spark),
    ]
    for way in ways:
        with pytest.raises(DynamicKafkaError, match=rf"^The native kernel .* on worker-7: .*{problem}") as caught:
            way()
        assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


def test_the_module_that_spark_imports_needs_no_kernel() -> None:
    """Every Spark session of the machine imports it, also those that never use the format."""
    code = "import sys; sys.modules['dynamic_kafka._kernel'] = None; import pyspark_dynamic_kafka"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_kernel_that_fits_is_used(install: Install) -> None:
    """It gets the path and the version of confluent-kafka's librdkafka, once in a process."""
    given: list[tuple[str, str]] = []
    load = lambda *arguments: given.append(arguments)  # noqa: E731
    module = SimpleNamespace(INTERFACE=native._INTERFACE, load_librdkafka=load, __version__="0.1.0")
    install(module)
    assert kernel() is kernel() is module
    assert given == [(next(native._candidates()), libversion()[0])]

"""A task of another version of the package is refused."""

from __future__ import annotations

import pickle
import re
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructType

from dynamic_kafka import __version__
from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.spark import identity
from dynamic_kafka.spark.datasource import DynamicKafkaDataSource

SERVERS = {"kafka.bootstrap.servers": "b:1"}
VALUE = StructType().add("value", BinaryType())


def planned() -> dict[str, Any]:
    """Readers and writers as Spark gets them."""
    source = DynamicKafkaDataSource({**SERVERS, "subscribe": "t"})
    sink = DynamicKafkaDataSource({**SERVERS, "topic": "t"})
    return {
        "reader": source.reader(VALUE),
        "stream reader": source.streamReader(VALUE),
        "writer": sink.writer(VALUE, overwrite=False),
        "stream writer": sink.streamWriter(VALUE, overwrite=False),
    }


@pytest.mark.parametrize("name", ["reader", "stream reader", "writer", "stream writer"])
def test_only_the_version_that_has_planned_a_task_runs_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The error names both versions."""
    text = pickle.dumps([planned()[name]])
    assert pickle.loads(text)
    monkeypatch.setattr(identity, "kernel", lambda: SimpleNamespace(__version__="2.0.0"))
    with pytest.raises(
        DynamicKafkaError, match=rf"driver has version {re.escape(__version__)} .* has 2\.0\.0\. Install the same"
    ):
        pickle.loads(text)

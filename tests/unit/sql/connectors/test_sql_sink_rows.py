"""Who encodes the rows of an INSERT: Spark, or the native kernel in the sink's tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from tests.unit.sql.tables.test_sql_options import table

from dynamic_kafka.sql.connectors import sink_rows
from dynamic_kafka.sql.connectors.sink_rows import _spec

OPTIONS = {
    "connector": "kafka",
    "topic": "t",
    "properties.bootstrap.servers": "h:9092",
    "key.format": "json",
    "key.fields": "id",
    "value.format": "json",
}


def session(**conf: str) -> Any:
    """A Spark session with a setting."""
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name: conf.get(name.rpartition(".")[2])))


@pytest.mark.parametrize(
    ("options", "encoded"),
    [
        ({}, {"key", "value"}),
        ({"sink.parallelism": "2"}, {"value"}),
        ({"value.format": "avro"}, {"key"}),
        ({"value.format": "csv"}, {"key", "value"}),
    ],
)
def test_the_kernel_encodes_what_it_is_allowed_to(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], encoded: set[str]
) -> None:
    """Not where Spark needs the bytes."""
    encoder = Mock()
    monkeypatch.setattr(sink_rows, "encoder", encoder)
    made = table(OPTIONS | options, "id BIGINT, name STRING")
    assert made.key is not None
    specs = {e.name: _spec(made, e) for e in (made.key, made.value)}
    assert {name for name, spec in specs.items() if spec is not None} == encoded
    assert [[field.name for field in call.args[0]] for call in encoder.call_args_list] == [
        {"key": ["id"], "value": ["id", "name"]}[name] for name in ("key", "value") if name in encoded
    ]

"""Kafka properties that have no effect in Flink either, and what SQL does with them."""

from __future__ import annotations

import pytest

from dynamic_kafka.errors import UnknownOptionError
from dynamic_kafka.sql.client_properties import without_effect
from dynamic_kafka.sql.parser.parse import parse_statement
from dynamic_kafka.sql.parser.statements import CreateTable
from dynamic_kafka.sql.table import KafkaTable, table_of

TABLE = (
    "CREATE TABLE t (a INT) WITH ('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'localhost:9092', "
    "'scan.startup.mode' = 'earliest-offset', 'format' = 'json', '{}' = '{}')"
)


def table_with(name: str, value: str) -> KafkaTable:
    """The table of a script that has this option."""
    statement = parse_statement(TABLE.format(name, value))
    assert isinstance(statement, CreateTable)
    return table_of(statement.definition)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("properties.key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer", "format"),
        ("kafka.value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer", "format"),
        ("properties.enable.auto.commit", "true", "micro-batch"),
        ("properties.flink.partition-discovery.interval-millis", "1000", "scan.topic-partition-discovery.interval"),
        ("properties.cleanup.policy", "compact", "setting of topics"),
    ],
)
def test_a_table_leaves_them_out_with_a_warning(
    name: str, value: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning names the option and the reason. The table's own text still has it."""
    table = table_with(name, value)
    assert name not in table.source.keys() | table.sink.keys()
    assert f"Table `t`: option '{name}' has no effect" in caplog.text
    assert why in caplog.text
    assert table.definition.options[name] == value


def test_everything_else_stays(caplog: pytest.LogCaptureFixture) -> None:
    """Properties that have an effect, and options that only look like such properties."""
    given = {"properties.group.id": "g", "properties.retry.backoff.ms": "5", "cleanup.policy": "compact"}
    assert without_effect(given, "`t`") == given
    assert not caplog.messages


def test_a_typing_error_is_still_an_error() -> None:
    """With the name that was meant."""
    with pytest.raises(UnknownOptionError, match=r"group\.id"):
        table_with("properties.grup.id", "g")

"""Options that have no effect in Flink either, and what SQL does with them."""

from __future__ import annotations

import pytest

from dynamic_kafka.errors import UnknownOptionError
from dynamic_kafka.sql.parser.parse import parse_statement
from dynamic_kafka.sql.parser.statements import CreateTable
from dynamic_kafka.sql.tables.options import without_properties, without_unused
from dynamic_kafka.sql.tables.table import KafkaTable, table_of

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
    assert without_properties(given, "`t`") == given
    assert not caplog.messages


def test_a_typing_error_is_still_an_error() -> None:
    """With the name that was meant."""
    with pytest.raises(UnknownOptionError, match=r"group\.id"):
        table_with("properties.grup.id", "g")


RESET = "properties.auto.offset.reset"
TIME, OFFSETS = "scan.startup.timestamp-millis", "scan.startup.specific-offsets"
UNTIL = "scan.bounded.timestamp-millis"


@pytest.mark.parametrize(
    ("given", "unused"),
    [
        ({"scan.startup.mode": "earliest-offset", RESET: "latest"}, RESET),
        ({"scan.startup.mode": "Latest-Offset", RESET: "earliest"}, RESET),
        ({"scan.startup.mode": "timestamp", TIME: "1", RESET: "earliest"}, RESET),
        ({"scan.startup.mode": "earliest-offset", "kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset"),
        ({"scan.startup.mode": "earliest-offset", TIME: "1"}, TIME),
        ({"scan.startup.mode": "timestamp", TIME: "1", OFFSETS: "partition:0,offset:1"}, OFFSETS),
        ({TIME: "1"}, TIME),
        ({UNTIL: "1"}, UNTIL),
        ({"scan.bounded.mode": "latest-offset", UNTIL: "1"}, UNTIL),
    ],
)
def test_what_the_mode_does_not_use_is_left_out(
    given: dict[str, str], unused: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As Flink does, and a warning names the option and the mode that would use it."""
    assert without_unused(given, "`t`") == {name: text for name, text in given.items() if name != unused}
    assert f"Table `t`: option '{unused}' has no effect" in caplog.text


@pytest.mark.parametrize(
    "given",
    [
        {RESET: "earliest"},
        {"scan.startup.mode": "group-offsets", RESET: "earliest"},
        {"scan.startup.mode": "timestamp", TIME: "1", "scan.bounded.mode": "timestamp", UNTIL: "2"},
        {"scan.startup.mode": "specific-offsets", OFFSETS: "partition:0,offset:1"},
        {"scan.startup.mode": "earliest", RESET: "latest"},
        {"startingOffsets": "earliest", RESET: "latest"},
    ],
)
def test_what_the_source_reads_or_refuses_stays(given: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """Also beside an unknown mode and beside Spark's options, of which the source says what is wrong."""
    assert without_unused(given, "`t`") == given
    assert not caplog.messages

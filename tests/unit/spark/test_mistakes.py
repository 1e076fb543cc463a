"""The mistakes that users of Spark's and Flink's connectors make most often, and what is said about each."""

from __future__ import annotations

import logging
import re

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.spark import datasource
from dynamic_kafka.spark.datasource import DynamicKafkaDataSource

SERVERS = {"kafka.bootstrap.servers": "broker:9092"}
READ = {**SERVERS, "subscribe": "orders"}
WRITE = {**SERVERS, "topic": "orders"}
ROWS = StructType([StructField("value", BinaryType())])

READING = {
    "a checkpoint on the reader": (
        READ | {"checkpointLocation": "/c"},
        "'subscribe' and 'checkpointLocation' are in con",
    ),
    "a checkpoint, with Flink's topic": (WRITE | {"checkpointLocation": "/c"}, "'checkpointLocation' is for writing"),
    "a guarantee on the reader": (
        READ | {"sink.delivery-guarantee": "none"},
        "the second for writing; leave out the one",
    ),
    "a group without a prefix": (READ | {"group.id": "g"}, "write 'kafka.group.id', or 'properties.group.id'"),
    "servers without a prefix": ({"bootstrap.servers": "b:1", "subscribe": "o"}, "write 'kafka.bootstrap.servers'"),
    "another tool's name of servers": ({"brokers": "b:1", "subscribe": "o"}, "write 'kafka.bootstrap.servers'"),
    "a misspelt property": (
        SERVERS | {"subscribe": "o", "kafka.isolation.levl": "x"},
        "did you mean 'isolation.level'",
    ),
    "servers as a URL": (READ | {"kafka.bootstrap.servers": "http://b:9092"}, "expected host:port"),
    "servers as Python's list": (READ | {"kafka.bootstrap.servers": "['b:9092']"}, "with ',' between several"),
    "servers with a semicolon": (READ | {"kafka.bootstrap.servers": "b:1;c:1"}, "with ',' between several"),
    "a time-out that is none": (READ | {"kafkaConsumer.pollTimeoutMs": "x"}, "a number with a unit such as '30 s'"),
    "the time-out's nearest property": (
        READ | {"kafka.consumer.pollTimeoutMs": "1"},
        "write 'kafkaConsumer.pollTimeou",
    ),
    "a trigger as an option": (READ | {"trigger": "10 seconds"}, "call .trigger(...) of writeStream"),
    "JSON with single quotes": (
        READ | {"startingOffsets": "{'o': {'0': 1}}"},
        "Expecting property name enclosed in doub",
    ),
    "JSON without offsets": (READ | {"startingOffsets": '{"orders": [0]}'}, "topic 'orders': expected a word or"),
    "the start in Kafka's old words": (
        READ | {"startingOffsets": "smallest"},
        "expected earliest, latest, committed, or",
    ),
    "the start in Spark's words for Flink": (
        READ | {"scan.startup.mode": "earliest"},
        "one of earliest-offset, latest-of",
    ),
    "a date": (READ | {"startingTimestamp": "2024-01-01"}, "expected milliseconds since 1970"),
    "partitions as a list": (SERVERS | {"assign": "orders-0,orders-1"}, 'expected JSON such as {"topic": [0, 1]}'),
    "a pattern of a shell": (SERVERS | {"subscribePattern": "*.orders"}, "a regular expression, such as orders-.*"),
    "a pattern as a topic": (
        SERVERS | {"subscribe": "orders.*"},
        "a regular expression is for topic-pattern (subscribePat",
    ),
    "topics as JSON": (SERVERS | {"subscribe": '["orders"]'}, "expected topic names separated by ';' or ','"),
    "a topic as a property": (SERVERS | {"kafka.subscribe": "orders"}, "write it without 'kafka.' or 'properties.'"),
    "a format": (READ | {"format.on-error": "skip"}, "'format.on-error' needs 'value.format' or 'key.format'"),
    "a format of another name": (READ | {"format": "json"}, "the option that decodes values is 'value.format'"),
    "an option of files": (READ | {"inferSchema": "true"}, "it is an option of Spark's readers of files"),
    "a registry": (READ | {"schema.registry.url": "http://r"}, "give 'value.format' and 'value.avro-confluent.url'"),
    "a JAR": (READ | {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10"}, "needs no JAR; leave it out"),
    "a setting of the session": (
        READ | {"spark.sql.shuffle.partitions": "2"},
        "give it to SparkSession.builder.config",
    ),
    "a protocol with a hyphen": (
        READ | {"kafka.security.protocol": "sasl-ssl"},
        "one of plaintext, ssl, sasl_plaintext",
    ),
    "an isolation in short": (READ | {"kafka.isolation.level": "committed"}, "one of read_uncommitted, read_committed"),
}
WRITING = {
    "where to read from": (SERVERS | {"subscribe": "orders"}, "the topic to write to is the option 'topic'"),
    "both": (WRITE | {"subscribe": "orders"}, "'subscribe' is for reading, and this query writes"),
    "where to start": (
        WRITE | {"startingOffsets": "earliest"},
        "'startingOffsets' is for reading, and this query writes",
    ),
    "headers": (WRITE | {"includeHeaders": "true"}, "'includeHeaders' is for reading"),
    "acks without a prefix": (WRITE | {"acks": "all"}, "write 'kafka.acks', or 'properties.acks' as in Flink"),
    "a trigger": (WRITE | {"processingTime": "10 seconds"}, "call .trigger(...) of writeStream"),
    "a format": (WRITE | {"value.format": "json"}, "encode the rows with dynamic_kafka.functions.to_kafka"),
}


@pytest.mark.parametrize(("options", "said"), READING.values(), ids=READING)
def test_a_mistake_in_reading_is_named(options: dict[str, str], said: str) -> None:
    """The error is about the option that is wrong, and says what to write in its place."""
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        DynamicKafkaDataSource(options).streamReader(ROWS)


@pytest.mark.parametrize(("options", "said"), WRITING.values(), ids=WRITING)
def test_a_mistake_in_writing_is_named(options: dict[str, str], said: str) -> None:
    """The same for a query that writes."""
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        DynamicKafkaDataSource(options).streamWriter(ROWS, overwrite=False)


def test_what_may_be_meant_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A pattern that looks like one of a shell may be right, and a batch ignores limits as in Spark."""
    with caplog.at_level(logging.WARNING):
        DynamicKafkaDataSource({**SERVERS, "subscribePattern": "orders-*", "maxOffsetsPerTrigger": "5"}).reader(ROWS)
    assert "write 'orders-.*'" in caplog.text
    assert "maxOffsetsPerTrigger and the other limits have no effect" in caplog.text
    caplog.clear()
    DynamicKafkaDataSource({**SERVERS, "subscribePattern": "orders-.*"}).reader(ROWS)
    assert caplog.text == ""


def test_names_are_right_in_any_case() -> None:
    """Spark passes them on in lower case."""
    shouted = {name.upper(): value for name, value in (READ | {"startingOffsets": "EARLIEST"}).items()}
    assert DynamicKafkaDataSource(shouted).schema().names[:2] == ["key", "value"]


@pytest.mark.parametrize("options", [{"maxOffsetsPerTrigger": "5"}, {"minOffsetsPerTrigger": "5"}, {}])
@pytest.mark.parametrize("tells", [True, False])
def test_limits_are_warned_of_where_spark_does_not_tell_the_trigger(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, options: dict[str, str], *, tells: bool
) -> None:
    """Spark 4.0 and 4.1 end a query with AvailableNow after one batch, so limits leave records unread."""
    monkeypatch.setattr(datasource, "has_admission_control", lambda: tells)
    with caplog.at_level(logging.WARNING):
        DynamicKafkaDataSource(READ | options).streamReader(ROWS)
    assert ("with Trigger.AvailableNow and Trigger.Once the query ends after one batch" in caplog.text) == (
        bool(options) and not tells
    )

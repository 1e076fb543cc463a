"""Rules of the SQL connectors that are checked when a table is made, with samples of the source's and the sink's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.unit.sql.tables.test_sql_options import COLUMNS, KAFKA, KEY, KEYED, SERVERS, STREAM, UPSERT, table, without

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats.schema_registry_settings import settings
from dynamic_kafka.initializer import KafkaOffsetsInitializer
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.sql.connectors.sink_rows import check_writable

EARLIEST = KafkaOffsetsInitializer.earliest()

# Options, columns, and what the error has to say.
WRONG: dict[str, tuple[Mapping[str, str], str, str]] = {
    "no connector": (without(KAFKA, "connector"), COLUMNS, "'connector' is missing"),
    "unknown connector": (KAFKA | {"connector": "kafka-0.11"}, COLUMNS, "one of kafka, dynamic-kafka, upsert-kafka"),
    "no format": (without(KAFKA, "format"), COLUMNS, "'format' (or 'value.format') is missing"),
    "an option of value.format beside format": (
        KAFKA | {"value.format": "json", "value.json.ignore-parse-errors": "true"},
        COLUMNS,
        "Unknown option 'value.json.ignore-parse-errors'",
    ),
    "unknown format": (KAFKA | {"format": "jsn"}, COLUMNS, "did you mean 'json'?"),
    "unknown option": (KAFKA | {"topics": "x"}, COLUMNS, "Unknown option 'topics'; did you mean 'topic'?"),
    "option of another format": (KAFKA | {"csv.null-literal": "x"}, COLUMNS, "Unknown option 'csv.null-literal'"),
    "no prefix with value.format": (
        KEYED | {"json.ignore-parse-errors": "true"},
        COLUMNS,
        "did you mean 'value.json.ignore-parse-errors'?",
    ),
    "wrong value of a format's option": (
        KAFKA | {"json.ignore-parse-errors": "yes"},
        COLUMNS,
        "'json.ignore-parse-errors' has the value 'yes'; expected true or false",
    ),
    "no topic": (
        without(KAFKA, "topic"),
        COLUMNS,
        "What table `t` reads is missing: with 'connector' = 'kafka', give 'topic' or 'topic-pattern'",
    ),
    "topic and pattern": (KAFKA | {"topic-pattern": "o.*"}, COLUMNS, "'topic' and 'topic-pattern'"),
    "key.fields without key.format": (KAFKA | {"key.fields": "id"}, COLUMNS, "'key.fields' needs 'key.format'"),
    "key.format without key.fields": (without(KEYED, "key.fields"), COLUMNS, "'key.format' needs 'key.fields'"),
    "unknown key field": (
        KEYED | {"key.fields": "id;nr"},
        COLUMNS,
        "'nr', but the table's physical columns are id, name",
    ),
    "metadata as key field": (
        KEYED | {"key.fields": "at"},
        f"{COLUMNS}, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'",
        "'at', but the table's physical columns are",
    ),
    "key field twice": (KEYED | {"key.fields": "id;id"}, COLUMNS, "twice"),
    "changelog as key format": (KEYED | {"key.format": "debezium-json"}, COLUMNS, "a changelog format; a key needs"),
    "prefix with ALL": (KEYED | {"key.fields-prefix": "i"}, COLUMNS, "'value.fields-include' = 'EXCEPT_KEY'"),
    "value.fields-include": (KEYED | {"value.fields-include": "SOME"}, COLUMNS, "ALL or EXCEPT_KEY"),
    "startup mode": (KAFKA | {"scan.startup.mode": "earliest"}, COLUMNS, "one of earliest-offset"),
    "round-robin with a key": (KEYED | {"sink.partitioner": "round-robin"}, COLUMNS, "round-robin does not use keys"),
    "primary key without a changelog": (KAFKA, KEY, "only appends rows"),
    "unknown metadata": (KAFKA, f"{COLUMNS}, x INT METADATA FROM 'lag'", "METADATA FROM 'lag', which does not exist"),
    "metadata of another format": (KAFKA, f"{COLUMNS}, x STRING METADATA FROM 'value.source.table'", "does not exist"),
    "metadata of another type": (KAFKA, f"{COLUMNS}, x STRING METADATA FROM 'headers'", "is STRING, but the metadata"),
    "watermark on a number": (KAFKA, f"{COLUMNS}, WATERMARK FOR id AS id", "it has to be TIMESTAMP or TIMESTAMP_LTZ"),
    "dead letters without a topic": (
        KAFKA | {"format.on-error": "dead-letter"},
        COLUMNS,
        "'format.dead-letter.topic' is missing",
    ),
    "a topic for letters that stay": (KAFKA | {"format.dead-letter.topic": "x"}, COLUMNS, "'format.on-error'"),
    "streams with kafka": (KAFKA | {"stream-ids": "x"}, COLUMNS, "'connector' = 'dynamic-kafka'"),
    "topics with dynamic-kafka": (STREAM | {"topic": "x"}, COLUMNS, "'stream-ids' or 'stream-pattern'"),
    "streams by both": (STREAM | {"stream-pattern": "x"}, COLUMNS, "'stream-ids' and 'stream-pattern'"),
    "no stream": (without(STREAM, "stream-ids"), COLUMNS, "stream-ids"),
    "no service": (without(STREAM, "metadata-service", "metadata-service.cluster-id"), COLUMNS, "'metadata-service'"),
    "specific offsets of streams": (
        STREAM | {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "partition:0,offset:1"},
        COLUMNS,
        "does not go with 'connector' = 'dynamic-kafka'",
    ),
    "upsert without a primary key": (UPSERT, COLUMNS, "needs a PRIMARY KEY"),
    "upsert without a key format": (
        without(UPSERT, "key.format"),
        KEY,
        "'key.format' is missing",
    ),
    "upsert with key.fields": (
        UPSERT | {"key.fields": "id"},
        KEY,
        "'key.fields' does not go with 'connector' = 'upsert-kafka'",
    ),
    "upsert with a start": (UPSERT | {"scan.startup.mode": "latest-offset"}, KEY, "read from the earliest offset on"),
    "upsert with a partitioner": (
        UPSERT | {"sink.partitioner": "fixed"},
        KEY,
        "'sink.partitioner' does not go with 'connector' = 'upsert-kafka'",
    ),
    "upsert of a changelog": (
        UPSERT | {"value.format": "debezium-json"},
        KEY,
        "a changelog format; 'upsert-kafka' needs a format of rows",
    ),
    "upsert with half a buffer": (UPSERT | {"sink.buffer-flush.max-rows": "10"}, KEY, "set both above 0, or neither"),
    "a buffer without upsert": (
        KAFKA | {"sink.buffer-flush.max-rows": "10"},
        COLUMNS,
        "goes with 'connector' = 'upsert-kafka' only",
    ),
    "a guarantee": (KAFKA | {"sink.delivery-guarantee": "twice"}, COLUMNS, "one of none, at-least-once, exactly-once"),
    "a format of Confluent's cloud": (
        KAFKA | {"format": "json-registry"},
        COLUMNS,
        "Write 'json-schema-confluent', and give the schema registry by 'json-schema-confluent.url'",
    ),
    "an interceptor": (
        KAFKA | {"properties.interceptor.classes": "org.example.Counter"},
        COLUMNS,
        "'properties.interceptor.classes' is not supported",
    ),
    "an option of the DataFrame's": (KAFKA | {"includeHeaders": "true"}, COLUMNS, "Unknown option 'includeHeaders'"),
    "key.fields with upper case": (KEYED | {"key.fields": "ID"}, COLUMNS, "names the column 'ID'"),
    "a computed column as key": (KEYED | {"key.fields": "c"}, f"{COLUMNS}, c AS id * 2", "names the column 'c'"),
    "one field without the prefix": (
        KEYED | {"value.fields-include": "EXCEPT_KEY", "key.fields-prefix": "k_", "key.fields": "k_id;id"},
        "k_id BIGINT, id BIGINT, name STRING",
        "Column 'id' of 'key.fields' does not begin with 'key.fields-prefix' = 'k_'",
    ),
    "a key of a computed column": (KAFKA, f"{COLUMNS}, c AS id, PRIMARY KEY (c) NOT ENFORCED", "`c`"),
    "a single cluster without servers": (without(STREAM, *SERVERS), COLUMNS, "bootstrap.servers"),
    "a pattern of topics with streams": (STREAM | {"topic-pattern": "a"}, COLUMNS, "'stream-ids' or 'stream-pattern'"),
    "a stop at offsets of streams": (
        STREAM | {"scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": "partition:0,offset:1"},
        COLUMNS,
        "'scan.bounded.specific-offsets' does not go with 'connector' = 'dynamic-kafka'",
    ),
    "an enumerator's mode": (
        STREAM | {"stream-enumerator-mode": "local"},
        COLUMNS,
        "'stream-enumerator-mode' has the value 'local'; expected per-cluster or global",
    ),
    "an enumerator's mode with kafka": (
        KAFKA | {"stream-enumerator-mode": "global"},
        COLUMNS,
        "does not go with 'connector' = 'kafka'",
    ),
    "streams with a key of rows": (STREAM, KEY, "only appends rows"),
    "a service with kafka": (KAFKA | {"metadata-service": "single-cluster"}, COLUMNS, "'connector' = 'dynamic-kafka'"),
    "upsert without a value format": (without(UPSERT, "value.format"), KEY, "'format' (or 'value.format') is missing"),
    "upsert from a time": (UPSERT | {"scan.startup.timestamp-millis": "1"}, KEY, "from the earliest offset on"),
    "half a buffer": (UPSERT | {"sink.buffer-flush.interval": "1 s"}, KEY, "set both above 0, or neither"),
    "a negative buffer": (
        UPSERT | {"sink.buffer-flush.max-rows": "-1", "sink.buffer-flush.interval": "1 s"},
        KEY,
        "'sink.buffer-flush.max-rows' has the value '-1'",
    ),
}


@pytest.mark.parametrize(("options", "columns", "expected"), WRONG.values(), ids=WRONG.keys())
def test_what_is_refused(options: Mapping[str, str], columns: str, expected: str) -> None:
    """The error comes when the table is made, and names the option."""
    with pytest.raises(ConfigurationError) as caught:
        table(options, columns)
    assert expected in str(caught.value).splitlines()[0]


def test_a_table_without_a_start_can_be_made() -> None:
    """It may only be written to; reading it asks for a group."""
    assert "scan.startup.mode" not in table(without(KAFKA, "scan.startup.mode")).source


def test_upsert_tables_may_have_several_topics() -> None:
    """A list or a pattern, as in Flink since its connector 5; rows to write then name their topic."""
    for topics in ({"topic": "a;b"}, {"topic-pattern": "orders-.*"}):
        several = table(without(UPSERT, "topic") | topics, f"{KEY}, topic STRING NOT NULL METADATA")
        assert configure_source(several.source).starting == EARLIEST
        assert [column.name for column in check_writable(several)] == ["id", "name", "amount", "topic"]
        with pytest.raises(ConfigurationError, match="has several topics, so each row needs the name of its topic"):
            check_writable(table(without(UPSERT, "topic") | topics, KEY))


def test_format_goes_before_value_format(caplog: pytest.LogCaptureFixture) -> None:
    """As in Flink; a warning says so if they differ."""
    assert table(KAFKA | {"value.format": "json"}).value.format.name == "json"
    assert not caplog.messages
    assert table(KAFKA | {"value.format": "csv"}).value.format.name == "json"
    assert "'value.format' = 'csv' has no effect beside 'format' = 'json'" in caplog.text


def test_value_has_all_columns_by_default() -> None:
    """Seed: `value.fields-include` is ALL; the key has its fields in the order of `key.fields`."""
    found = table(KEYED | {"key.fields": "amount; id"})
    assert found.key is not None
    assert found.key.schema.names == ["amount", "id"]
    assert found.value.schema.names == ["id", "name", "amount"]


def test_overlapping_fields() -> None:
    """Seed: the prefix is in the table's names, and in none of the formats'."""
    found = table(
        KEYED | {"key.fields": "k_version;k_user", "key.fields-prefix": "k_", "value.fields-include": "EXCEPT_KEY"},
        "k_version INT, k_user BIGINT, version INT, behavior STRING",
    )
    assert found.key is not None
    assert found.key.schema.simpleString() == "struct<version:int,user:bigint>"
    assert found.key.columns == ("k_version", "k_user")
    assert found.value.schema.simpleString() == "struct<version:int,behavior:string>"


def test_options_of_key_and_value_formats() -> None:
    """Seed: prefixed with `key` or `value`, plus the format's name."""
    found = table(KEYED | {"key.json.ignore-parse-errors": "true", "value.json.fail-on-missing-field": "false"})
    assert found.key is not None
    assert found.key.options == {"json.ignore-parse-errors": True}
    assert found.value.options == {"json.fail-on-missing-field": False}


def test_the_key_of_an_upsert_table_is_its_primary_key() -> None:
    """In the order of the key."""
    found = table(UPSERT, f"{COLUMNS}, PRIMARY KEY (name, id) NOT ENFORCED")
    assert found.key is not None
    assert found.key.columns == ("name", "id")
    assert found.source["scan.startup.mode"] == "earliest-offset"


def test_the_subject_of_a_single_topic() -> None:
    """Flink: `<topic>-key` and `<topic>-value`, unless the user names another."""
    options = KEYED | {
        "key.format": "avro-confluent",
        "value.format": "avro-confluent",
        "key.avro-confluent.url": "http://registry:8081",
        "value.avro-confluent.url": "http://registry:8081",
    }
    found = table(options)
    assert found.key is not None
    assert found.key.options["avro-confluent.subject"] == "orders-key"
    assert found.value.options["avro-confluent.subject"] == "orders-value"
    named = table(options | {"value.avro-confluent.subject": "mine"})
    assert named.value.options["avro-confluent.subject"] == "mine"


def test_a_property_of_a_registry_may_be_an_option_of_its_own() -> None:
    """Its value may have a comma then; one that does not exist is an error."""
    options = KAFKA | {"format": "avro-confluent", "avro-confluent.url": "http://registry:8081"}
    found = table(options | {"avro-confluent.properties.bearer.auth.scope": "a,b"})
    assert settings("avro-confluent", found.value.options).properties == (("bearer.auth.scope", "a,b"),)
    with pytest.raises(ConfigurationError, match=r"Property 'avro-confluent\.properties\.max\.retry' is not known"):
        table(options | {"avro-confluent.properties.max.retry": "1"})


def test_dead_letters_go_to_the_cluster_of_the_table_by_default() -> None:
    """Properties of their own come on top; neither shows in a repr."""
    options = KAFKA | {
        "format.on-error": "dead-letter",
        "format.dead-letter.topic": "broken",
        "properties.ssl.key.password": "hidden",
    }
    letters = table(options).letters
    assert letters is not None
    assert letters.properties["bootstrap.servers"] == "localhost:9092"
    other = table(options | {"format.dead-letter.properties.bootstrap.servers": "elsewhere:9092"}).letters
    assert other is not None
    assert other.properties["bootstrap.servers"] == "elsewhere:9092"
    assert "hidden" not in repr(table(options))


def test_metadata_asks_the_source_for_its_column() -> None:
    """Headers and leader epochs are only read if a column wants them."""
    found = table(KAFKA, f"{COLUMNS}, h MAP<STRING, BYTES> METADATA FROM 'headers', e INT METADATA FROM 'leader-epoch'")
    assert found.source["includeHeaders"] == found.source["includeLeaderEpoch"] == "true"
    assert "includeHeaders" not in table(KAFKA).source

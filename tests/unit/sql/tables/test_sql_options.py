"""Options of SQL tables: what the source, the sink and the formats get of them, and what SQL reads itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.sink import test_sink_options as sink_options
from tests.unit.source import test_options as source_options

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.initializer import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from dynamic_kafka.kafka.config.properties import to_librdkafka
from dynamic_kafka.sink.configure import configure_sink
from dynamic_kafka.sink.settings import SinkSettings
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.settings import SourceSettings
from dynamic_kafka.sql.connectors.sink_rows import check_writable
from dynamic_kafka.sql.parser.parse import parse_script, parse_statement
from dynamic_kafka.sql.parser.statements import CreateTable
from dynamic_kafka.sql.tables.definition import TableDefinition
from dynamic_kafka.sql.tables.options import split_options
from dynamic_kafka.sql.tables.table import KafkaTable, table_of, with_start

DOCUMENTED = (Path(__file__).parents[3] / "fixtures" / "flink_tables.sql").read_text()

COLUMNS = "id BIGINT, name STRING, amount INT"
KEY = "id BIGINT, name STRING, amount INT, PRIMARY KEY (id) NOT ENFORCED"
SERVERS = {"properties.bootstrap.servers": "localhost:9092"}
KAFKA = {"connector": "kafka", "topic": "orders", **SERVERS, "scan.startup.mode": "earliest-offset", "format": "json"}
KEYED = {name: text for name, text in KAFKA.items() if name != "format"} | {
    "value.format": "json",
    "key.format": "json",
    "key.fields": "id",
}
UPSERT = {"connector": "upsert-kafka", "topic": "orders", **SERVERS, "key.format": "json", "value.format": "json"}
STREAM = {
    "connector": "dynamic-kafka",
    "stream-ids": "orders",
    "metadata-service": "single-cluster",
    "metadata-service.cluster-id": "east",
    **SERVERS,
    "scan.startup.mode": "earliest-offset",
    "format": "json",
}
GROUP = {"properties.group.id": "g"}


def definition(options: Mapping[str, str], columns: str = COLUMNS) -> TableDefinition:
    """What CREATE TABLE says."""
    inside = ", ".join(f"'{name}' = '{text}'" for name, text in options.items())
    statement = parse_statement(f"CREATE TABLE t ({columns}) WITH ({inside})")
    assert isinstance(statement, CreateTable)
    return statement.definition


def table(options: Mapping[str, str], columns: str = COLUMNS) -> KafkaTable:
    """The checked table."""
    return table_of(definition(options, columns))


def without(options: Mapping[str, str], *names: str) -> dict[str, str]:
    """The options but for some."""
    return {name: text for name, text in options.items() if name not in names}


def source(made: KafkaTable) -> SourceSettings:
    """What its source is asked to do."""
    return configure_source(with_start(made.source))


def sink(made: KafkaTable) -> SinkSettings:
    """What its sink is asked to do."""
    return configure_sink(made.sink)


def properties(made: KafkaTable) -> Mapping[str, str]:
    """The properties of its only cluster."""
    (stream,) = source(made).service().get_all_streams()
    (cluster,) = stream.clusters.values()
    return cluster.properties


# --- each option --------------------------------------------------------------------------------------------------------

Given = Mapping[str, str]

# Options that SQL has, or reads itself, with an example and what the example becomes.
OPTIONS: list[tuple[str, Given, Callable[[KafkaTable], object], object]] = [
    ("connector", KAFKA, lambda t: t.connector, "kafka"),
    ("connector", STREAM, lambda t: t.connector, "dynamic-kafka"),
    (
        "topic-pattern",
        without(KAFKA, "topic") | {"topic-pattern": "test-topic-[0-9]"},
        lambda t: [p.pattern for p in (source(t).pattern, sink(t).pattern) if p is not None],
        ["test-topic-[0-9]"] * 2,
    ),
    (
        "properties.*",
        KAFKA | {"properties.allow.auto.create.topics": "false", "properties.fetch.min.bytes": "7"},
        lambda t: (properties(t)["allow.auto.create.topics"], properties(t)["fetch.min.bytes"]),
        ("false", "7"),
    ),
    (
        "properties.auto.offset.reset",
        without(KAFKA, "scan.startup.mode") | GROUP | {"properties.auto.offset.reset": "latest"},
        lambda t: source(t).starting,
        KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.LATEST),
    ),
    ("format", KAFKA, lambda t: t.value.format.name, "json"),
    ("key.format", KEYED | {"key.format": "raw"}, lambda t: t.key and t.key.format.name, "raw"),
    ("value.format", KEYED | {"value.format": "debezium-json"}, lambda t: t.value.format.name, "debezium-json"),
    (
        "scan.startup.mode",
        without(KAFKA, "scan.startup.mode") | GROUP,
        lambda t: source(t).starting,
        KafkaOffsetsInitializer.committed_offsets(),
    ),
    ("stream-enumerator-mode", STREAM | {"stream-enumerator-mode": "PER_CLUSTER"}, lambda t: len(t.source), 5),
    ("metadata-service.cluster-id", STREAM, lambda t: source(t).service().is_cluster_active("east"), True),
]


@pytest.mark.parametrize(("option", "options", "look", "expected"), OPTIONS, ids=[f"{o[0]}={o[3]}" for o in OPTIONS])
def test_an_option(option: str, options: Given, look: Callable[[KafkaTable], object], expected: object) -> None:
    """It reaches the source, the sink or the format; without it, the documented default does."""
    assert look(table(options)) == expected


def test_each_option_of_the_source_and_the_sink_reaches_it() -> None:
    """As it was written; but for those that only a DataFrame has. Its values are tested with the source and the sink."""
    of_dataframes = {"includeHeaders", "includeLeaderEpoch", "checkpointLocation", "sink.name"}
    of_dataframes |= {"txnAppId", "txnVersion", "__txnConsecutive"}
    for consumer, values in (("source", source_options.RIGHT), ("sink", sink_options.RIGHT)):
        for name, (text, _) in values.items():
            connector = "dynamic-kafka" if name.startswith(("stream-id", "stream-p", "metadata-service")) else "kafka"
            found = split_options({"connector": connector, name: text})
            assert getattr(found, consumer) == ({} if name in of_dataframes else {name: text}), name


def test_values_of_enumerations_are_read_as_java_reads_them() -> None:
    """In any case, with `_` or `-`."""
    options = {"scan.startup.mode": "EARLIEST_OFFSET", "scan.bounded.mode": "Latest-Offset"}
    made = table(KEYED | options | {"value.fields-include": "except_key", "sink.delivery-guarantee": "NONE"})
    assert source(made).starting == KafkaOffsetsInitializer.earliest()
    assert source(made).stopping == KafkaOffsetsInitializer.latest()
    assert made.value.columns == ("name", "amount")
    assert sink(made).guarantee == "none"


# --- the documentation's tables -----------------------------------------------------------------------------------------

TABLES = [s.definition for s in parse_script(DOCUMENTED) if isinstance(s, CreateTable)]


@pytest.mark.parametrize("documented", TABLES, ids=lambda d: d.options["connector"])
def test_the_tables_of_the_documentation(documented: TableDefinition) -> None:
    """With a format where they have `...`; what is secret in them is not shown."""
    options = documented.options
    if not {"format", "value.format"} & options.keys():
        options = {**options, "format": "json"}
    made = table_of(replace(documented, options=options))
    shown = made.definition.ddl() + repr(made)
    for secret in ("test1234", 'password="password"', 'password=\\"password\\"'):
        assert secret not in shown
    if made.connector != "dynamic-kafka":  # that of the documentation is of two streams, and only read
        check_writable(made)


def test_passwords_of_the_documentation() -> None:
    r"""A login module in SQL has plain quotes; with the documentation's `\"` it means the same."""
    plain = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="a\\"b";'
    security = {"properties.security.protocol": "SASL_PLAINTEXT", "properties.sasl.mechanism": "PLAIN"}
    for password, text in (('a"b', plain), ("ab", plain.replace('\\"', "").replace('"', '\\"'))):
        found = to_librdkafka(
            properties(table(KAFKA | security | {"properties.sasl.jaas.config": text})), role="producer"
        )
        assert (found["sasl.username"], found["sasl.password"]) == ("alice", password)
        assert (found["security.protocol"].upper(), found["sasl.mechanism"]) == ("SASL_PLAINTEXT", "PLAIN")


def test_a_wrong_login_module_is_not_shown() -> None:
    """The error says where it is wrong, and nothing of it."""
    with pytest.raises(ConfigurationError, match=r"'sasl\.jaas\.config', character") as caught:
        table(KAFKA | {"properties.sasl.jaas.config": 'a.PlainLoginModule required password="hidden'})
    assert "hidden" not in str(caught.value)


# --- offsets of partitions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "42",
        "offset:42,partition:0",
        "partition:0,offset:42 ;partition:1,offset:3",
        "partition:0, offset:42",
        "partition:0;offset:42",
        "partition:0,offset:42;;partition:1,offset:1",
    ],
)
def test_specific_offsets_have_one_grammar(text: str) -> None:
    """Flink's: two parts in that order, no blanks; the error shows the text."""
    with pytest.raises(ConfigurationError, match=r"'scan\.bounded\.specific-offsets' has the value") as caught:
        table(KAFKA | {"scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": text})
    assert repr(text) in str(caught.value)


# --- what is accepted ---------------------------------------------------------------------------------------------------


def test_a_table_of_a_key_only() -> None:
    """EXCEPT_KEY with all columns in the key leaves an empty value."""
    made = table(KEYED | {"value.fields-include": "EXCEPT_KEY"}, "id BIGINT")
    assert made.value.columns == ()


@pytest.mark.parametrize("buffer", [("0", "0"), ("100", "1 s")])
def test_the_buffer_of_upsert_tables(buffer: tuple[str, str]) -> None:
    """Both on or both off; it reaches neither source nor sink."""
    names = ("sink.buffer-flush.max-rows", "sink.buffer-flush.interval")
    made = table(UPSERT | dict(zip(names, buffer, strict=True)), KEY)
    assert not {*names} & {*made.source, *made.sink}


def test_all_changelog_formats_may_have_a_primary_key() -> None:
    """They say what becomes of a row; the key is not enforced."""
    for name in ("debezium-json", "canal-json", "maxwell-json", "ogg-json"):
        made = table(KAFKA | {"format": name}, KEY)
        assert (made.changelog, made.upsert) == (True, False)


def test_streams_that_are_only_read_may_be_many() -> None:
    """Also if all tables are to be written by so many tasks; a table to write to has to name one stream."""
    read = without(STREAM, "stream-ids") | {"stream-pattern": "^orders"}
    assert table(read | {"sink.parallelism": "2"}).connector == "dynamic-kafka"
    assert table(STREAM | {"stream-ids": "a;b", "sink.parallelism": "2"}).connector == "dynamic-kafka"
    with pytest.raises(ConfigurationError, match="'stream-ids'"):
        table(read | {"sink.delivery-guarantee": "none"})
    for several in (read, STREAM | {"stream-ids": "a;b"}):
        with pytest.raises(ConfigurationError, match="'stream-ids'"):
            check_writable(table(several))


# --- which columns are written ------------------------------------------------------------------------------------------

TIME = "ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'"
MAP, LIST = (
    "h MAP<STRING, BYTES> METADATA FROM 'headers'",
    "l ARRAY<ROW<key STRING, value BYTES>> METADATA FROM 'header-list'",
)
TOPIC, CLUSTER = "topic STRING NOT NULL METADATA", "kafka_cluster STRING NOT NULL METADATA"


@pytest.mark.parametrize(
    ("options", "columns", "written"),
    [
        (KAFKA, "id INT, twice AS id * 2, p INT METADATA FROM 'partition' VIRTUAL", ["id"]),
        (KAFKA, f"{TIME}, id INT, {MAP}", ["ts", "id", "h"]),
        (KAFKA, f"id INT, {MAP}, {LIST} VIRTUAL", ["id", "h"]),
        (KAFKA, f"id INT, {MAP} VIRTUAL, {LIST}", ["id", "l"]),
        (KAFKA, f"id INT, {TOPIC} VIRTUAL", ["id"]),
        (KAFKA | {"topic": "a;b"}, f"id INT, {TOPIC}", ["id", "topic"]),
        (without(KAFKA, "topic") | {"topic-pattern": "a|b"}, f"id INT, {TOPIC}", ["id", "topic"]),
        (STREAM, f"id INT, {CLUSTER}, {TOPIC}", ["id", "kafka_cluster", "topic"]),
        (STREAM, "id INT", ["id"]),
    ],
)
def test_the_columns_of_an_insert(options: Given, columns: str, written: list[str]) -> None:
    """Physical ones, and metadata that is not VIRTUAL; `topic` if there are several, `kafka_cluster` for streams."""
    assert [column.name for column in check_writable(table(options, columns))] == written


@pytest.mark.parametrize(
    ("options", "columns", "expected"),
    [
        *(
            (KAFKA, f"id INT, c {kind} METADATA FROM '{key}'", f"METADATA FROM '{key}', which cannot be written")
            for key, kind in {
                "partition": "INT",
                "offset": "BIGINT",
                "leader-epoch": "INT",
                "timestamp-type": "STRING",
                "topic": "STRING",
                "kafka_cluster": "STRING",
            }.items()
        ),
        (
            KAFKA | {"format": "debezium-json"},
            "id INT, c STRING METADATA FROM 'value.source.table'",
            "'value.source.table', which cannot be written",
        ),
        (KAFKA, f"id INT, {MAP}, {LIST}", "one of several that write the messages' headers"),
        (KAFKA | {"topic": "a;b"}, "id INT", "has several topics"),
        (KAFKA | {"topic": "a;b"}, f"id INT, {TOPIC} VIRTUAL", "has several topics"),
        (without(KAFKA, "topic") | {"topic-pattern": "a"}, "id INT", "has several topics"),
    ],
)
def test_columns_that_cannot_be_written(options: Given, columns: str, expected: str) -> None:
    """The table can be read all the same; the error comes with the INSERT."""
    with pytest.raises(ConfigurationError) as caught:
        check_writable(table(options, columns))
    assert expected in str(caught.value)

"""Every option in Flink's documentation of its SQL connector for Kafka: what it becomes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.initializer import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from dynamic_kafka.kafka.config.properties import to_librdkafka
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.sink.configure import configure_sink
from dynamic_kafka.sink.partitioners import FixedPartitioner, RoundRobinPartitioner
from dynamic_kafka.sink.settings import SinkSettings
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.settings import SourceSettings
from dynamic_kafka.sql.connectors.sink_rows import check_writable
from dynamic_kafka.sql.parser.parse import parse_script, parse_statement
from dynamic_kafka.sql.parser.statements import CreateTable
from dynamic_kafka.sql.tables.definition import TableDefinition
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
AT_OFFSETS = KafkaOffsetsInitializer.offsets({("orders", 0): 42, ("orders", 1): 300})
EXACTLY = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "p"}

# The documentation's options in its order, with an example and what the example becomes.
OPTIONS: list[tuple[str, Given, Callable[[KafkaTable], object], object]] = [
    ("connector", KAFKA, lambda t: t.connector, "kafka"),
    ("topic", KAFKA | {"topic": "topic-1;topic-2"}, lambda t: sink(t).topics, ("topic-1", "topic-2")),
    ("topic", KAFKA | {"topic": "topic-1"}, lambda t: sink(t).topic, "topic-1"),
    (
        "topic-pattern",
        without(KAFKA, "topic") | {"topic-pattern": "test-topic-[0-9]"},
        lambda t: [p.pattern for p in (source(t).pattern, sink(t).pattern) if p is not None],
        ["test-topic-[0-9]"] * 2,
    ),
    ("properties.bootstrap.servers", KAFKA, lambda t: properties(t)["bootstrap.servers"], "localhost:9092"),
    ("properties.group.id", KAFKA | GROUP, lambda t: source(t).group_id, "g"),
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
    ("key.fields", KEYED | {"key.fields": "name; id"}, lambda t: t.key and t.key.columns, ("name", "id")),
    (
        "key.fields-prefix",
        KEYED | {"key.fields-prefix": "i", "value.fields-include": "EXCEPT_KEY"},
        lambda t: t.key and (t.key.columns, t.key.schema.names),
        (("id",), ["d"]),
    ),
    ("value.format", KEYED | {"value.format": "debezium-json"}, lambda t: t.value.format.name, "debezium-json"),
    ("value.fields-include", KEYED, lambda t: t.value.columns, ("id", "name", "amount")),
    (
        "value.fields-include",
        KEYED | {"value.fields-include": "EXCEPT_KEY"},
        lambda t: t.value.columns,
        ("name", "amount"),
    ),
    ("scan.startup.mode", KAFKA, lambda t: source(t).starting, KafkaOffsetsInitializer.earliest()),
    (
        "scan.startup.mode",
        KAFKA | {"scan.startup.mode": "latest-offset"},
        lambda t: source(t).starting,
        KafkaOffsetsInitializer.latest(),
    ),
    (
        "scan.startup.mode",
        KAFKA | GROUP | {"scan.startup.mode": "group-offsets"},
        lambda t: source(t).starting,
        KafkaOffsetsInitializer.committed_offsets(),
    ),
    (
        "scan.startup.mode",
        without(KAFKA, "scan.startup.mode") | GROUP,
        lambda t: source(t).starting,
        KafkaOffsetsInitializer.committed_offsets(),
    ),
    (
        "scan.startup.specific-offsets",
        KAFKA
        | {
            "scan.startup.mode": "specific-offsets",
            "scan.startup.specific-offsets": "partition:0,offset:42;partition:1,offset:300",
        },
        lambda t: source(t).starting,
        AT_OFFSETS,
    ),
    (
        "scan.startup.timestamp-millis",
        KAFKA | {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "1600000000000"},
        lambda t: source(t).starting,
        KafkaOffsetsInitializer.timestamp(1_600_000_000_000),
    ),
    ("scan.bounded.mode", KAFKA, lambda t: source(t).stopping, None),
    ("scan.bounded.mode", KAFKA | {"scan.bounded.mode": "unbounded"}, lambda t: source(t).stopping, None),
    (
        "scan.bounded.mode",
        KAFKA | {"scan.bounded.mode": "latest-offset"},
        lambda t: source(t).stopping,
        KafkaOffsetsInitializer.latest(),
    ),
    (
        "scan.bounded.mode",
        KAFKA | GROUP | {"scan.bounded.mode": "group-offsets"},
        lambda t: source(t).stopping,
        KafkaOffsetsInitializer.committed_offsets(),
    ),
    (
        "scan.bounded.specific-offsets",
        KAFKA
        | {
            "scan.bounded.mode": "specific-offsets",
            "scan.bounded.specific-offsets": "partition:0,offset:42;partition:1,offset:300",
        },
        lambda t: source(t).stopping,
        AT_OFFSETS,
    ),
    (
        "scan.bounded.timestamp-millis",
        KAFKA | {"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": "1600000000000"},
        lambda t: source(t).stopping,
        KafkaOffsetsInitializer.timestamp(1_600_000_000_000),
    ),
    ("scan.topic-partition-discovery.interval", KAFKA, lambda t: source(t).discovery_interval_ms, 300_000),
    (
        "scan.topic-partition-discovery.interval",
        KAFKA | {"scan.topic-partition-discovery.interval": "10 s"},
        lambda t: source(t).discovery_interval_ms,
        10_000,
    ),
    (
        "scan.topic-partition-discovery.interval",
        KAFKA | {"scan.topic-partition-discovery.interval": "0"},
        lambda t: source(t).discovery_interval_ms,
        0,
    ),
    ("scan.parallelism", KAFKA | {"scan.parallelism": "3"}, lambda t: source(t).packing.max_tasks, 3),
    ("sink.partitioner", KAFKA, lambda t: sink(t).partitioner, None),
    ("sink.partitioner", KAFKA | {"sink.partitioner": "default"}, lambda t: sink(t).partitioner, None),
    ("sink.partitioner", KAFKA | {"sink.partitioner": "fixed"}, lambda t: type(sink(t).partitioner), FixedPartitioner),
    (
        "sink.partitioner",
        KAFKA | {"sink.partitioner": "round-robin"},
        lambda t: type(sink(t).partitioner),
        RoundRobinPartitioner,
    ),
    (
        "sink.partitioner",
        KAFKA | {"sink.partitioner": "dynamic_kafka.sink.partitioners:FixedPartitioner"},
        lambda t: type(sink(t).partitioner),
        FixedPartitioner,
    ),
    ("sink.semantic", KAFKA | {"sink.semantic": "none"}, lambda t: sink(t).guarantee, "none"),
    (
        "sink.semantic",
        KAFKA | {"sink.semantic": "exactly-once", "sink.transactional-id-prefix": "p"},
        lambda t: sink(t).guarantee,
        "exactly-once",
    ),
    ("sink.delivery-guarantee", KAFKA, lambda t: sink(t).guarantee, "at-least-once"),
    ("sink.delivery-guarantee", KAFKA | {"sink.delivery-guarantee": "none"}, lambda t: sink(t).guarantee, "none"),
    ("sink.delivery-guarantee", KAFKA | EXACTLY, lambda t: sink(t).guarantee, "exactly-once"),
    ("sink.transactional-id-prefix", KAFKA | EXACTLY, lambda t: sink(t).prefix, "p"),
    (
        "sink.transaction-naming-strategy",
        KAFKA | EXACTLY | {"sink.transaction-naming-strategy": "INCREMENTING"},
        lambda t: sink(t).prefix,
        "p",
    ),
    ("sink.parallelism", KAFKA | {"sink.parallelism": "3"}, lambda t: t.sink["sink.parallelism"], "3"),
]

# Those of `dynamic-kafka`, likewise.
OPTIONS += [
    ("connector", STREAM, lambda t: t.connector, "dynamic-kafka"),
    (
        "stream-ids",
        STREAM | {"stream-ids": "a; b"},
        lambda t: repr(source(t).subscriber),
        "StreamSetSubscriber(['a', 'b'])",
    ),
    (
        "stream-pattern",
        without(STREAM, "stream-ids") | {"stream-pattern": "^a"},
        lambda t: repr(source(t).subscriber),
        "StreamPatternSubscriber('^a')",
    ),
    (
        "metadata-service",
        without(STREAM, "metadata-service.cluster-id")
        | {"metadata-service": "dynamic_kafka.metadata.services:InMemoryMetadataService"},
        lambda t: type(source(t).service()),
        InMemoryMetadataService,
    ),
    ("metadata-service.cluster-id", STREAM, lambda t: source(t).service().is_cluster_active("east"), True),
    ("stream-enumerator-mode", STREAM | {"stream-enumerator-mode": "PER_CLUSTER"}, lambda t: len(t.source), 5),
    ("stream-metadata-discovery-interval-ms", STREAM, lambda t: source(t).metadata_interval_ms, -1),
    (
        "stream-metadata-discovery-interval-ms",
        STREAM | {"stream-metadata-discovery-interval-ms": "500"},
        lambda t: source(t).metadata_interval_ms,
        500,
    ),
    ("stream-metadata-discovery-failure-threshold", STREAM, lambda t: source(t).metadata_failure_threshold, 1),
    (
        "stream-metadata-discovery-failure-threshold",
        STREAM | {"stream-metadata-discovery-failure-threshold": "5"},
        lambda t: source(t).metadata_failure_threshold,
        5,
    ),
    (
        "stream-metadata-removed-cluster-retention-ms",
        STREAM | {"stream-metadata-removed-cluster-retention-ms": "60000"},
        lambda t: source(t).retention_ms,
        60_000,
    ),
]


@pytest.mark.parametrize(("option", "options", "look", "expected"), OPTIONS, ids=[f"{o[0]}={o[3]}" for o in OPTIONS])
def test_an_option(option: str, options: Given, look: Callable[[KafkaTable], object], expected: object) -> None:
    """It reaches the source, the sink or the format; without it, the documented default does."""
    assert look(table(options)) == expected


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


# --- what is refused ----------------------------------------------------------------------------------------------------

PREFIXED = KEYED | {"value.fields-include": "EXCEPT_KEY", "key.fields-prefix": "k_"}
MILLIS = "timestamp-millis"

# Options, columns and what the error has to say; what tests/unit/sql/tables/test_sql_table.py has is not here again.
REFUSED: dict[str, tuple[Given, str, str]] = {
    "an empty topic": (KAFKA | {"topic": ""}, COLUMNS, "'topic'"),
    "an empty name in the list": (KAFKA | {"topic": "a;;b"}, COLUMNS, "'topic' has the value 'a;;b'"),
    "no regular expression": (without(KAFKA, "topic") | {"topic-pattern": "["}, COLUMNS, "'topic-pattern'"),
    "an unknown property": (KAFKA | {"properties.fetch.min.byte": "1"}, COLUMNS, "did you mean 'fetch.min.bytes'"),
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
    "an unknown reset": (
        KAFKA | GROUP | {"scan.startup.mode": "group-offsets", "properties.auto.offset.reset": "smallest"},
        COLUMNS,
        "expected earliest, latest or none",
    ),
    "a negative start time": (
        KAFKA | {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "-1"},
        COLUMNS,
        "'scan.startup.timestamp-millis' has the value '-1'",
    ),
    "bounded specific without offsets": (
        KAFKA | {"scan.bounded.mode": "specific-offsets"},
        COLUMNS,
        "'scan.bounded.specific-offsets' is missing",
    ),
    "bounded specific with a pattern": (
        without(KAFKA, "topic")
        | {
            "topic-pattern": "a|b",
            "scan.bounded.mode": "specific-offsets",
            "scan.bounded.specific-offsets": "partition:0,offset:1",
        },
        COLUMNS,
        "exactly one 'topic'",
    ),
    "a discovery interval": (KAFKA | {"scan.topic-partition-discovery.interval": "soon"}, COLUMNS, "'30 s' or '5 min'"),
    "no reader": (KAFKA | {"scan.parallelism": "0"}, COLUMNS, "'scan.parallelism' has the value '0'"),
    "no writer": (KAFKA | {"sink.parallelism": "0"}, COLUMNS, "'sink.parallelism' has the value '0'"),
    "a partitioner that is not there": (
        KAFKA | {"sink.partitioner": "nowhere.at:All"},
        COLUMNS,
        "'sink.partitioner' ('nowhere.at:All') could not be imported or created",
    ),
    "a partitioner that is none": (KAFKA | {"sink.partitioner": "pathlib:Path"}, COLUMNS, "is not a partitioner"),
    "a guarantee": (
        KAFKA | {"sink.delivery-guarantee": "at-most-once"},
        COLUMNS,
        "one of none, at-least-once, exactly-",
    ),
    "both names of the guarantee": (
        KAFKA | {"sink.semantic": "none", "sink.delivery-guarantee": "at-least-once"},
        COLUMNS,
        "one option with two values",
    ),
    "an endless prefix": (
        KAFKA | {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "x" * 64_000},
        COLUMNS,
        "'sink.transactional-id-prefix' has the value",
    ),
    "a naming strategy": (
        KAFKA | {"sink.transaction-naming-strategy": "random"},
        COLUMNS,
        "expected incrementing or pooling",
    ),
    "an option of the DataFrame's": (KAFKA | {"includeHeaders": "true"}, COLUMNS, "Unknown option 'includeHeaders'"),
    "key.fields with upper case": (KEYED | {"key.fields": "ID"}, COLUMNS, "names the column 'ID'"),
    "a computed column as key": (KEYED | {"key.fields": "c"}, f"{COLUMNS}, c AS id * 2", "names the column 'c'"),
    "one field without the prefix": (
        PREFIXED | {"key.fields": "k_id;id"},
        "k_id BIGINT, id BIGINT, name STRING",
        "Column 'id' of 'key.fields' does not begin with",
    ),
    "a key of a computed column": (KAFKA, f"{COLUMNS}, c AS id, PRIMARY KEY (c) NOT ENFORCED", "`c`"),
    # dynamic-kafka
    "no stream in the list": (STREAM | {"stream-ids": ";"}, COLUMNS, "'stream-ids' has the value ';'"),
    "no regular expression for streams": (
        without(STREAM, "stream-ids") | {"stream-pattern": "("},
        COLUMNS,
        "'stream-pattern' has the value '('",
    ),
    "an unknown service": (STREAM | {"metadata-service": "zookeeper"}, COLUMNS, "'metadata-service' has the value"),
    "a service of Java": (
        without(STREAM, "metadata-service.cluster-id") | {"metadata-service": "com.acme.MyMetadataService"},
        COLUMNS,
        "com.acme.MyMetadataService",
    ),
    "a single cluster without a name": (
        without(STREAM, "metadata-service.cluster-id"),
        COLUMNS,
        "'metadata-service.cluster-id' is missing",
    ),
    "a single cluster without servers": (
        without(STREAM, *SERVERS),
        COLUMNS,
        "bootstrap.servers",
    ),
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
    "an interval of streams": (
        STREAM | {"stream-metadata-discovery-interval-ms": "often"},
        COLUMNS,
        "'stream-metadata-discovery-interval-ms' has the value 'often'",
    ),
    "a threshold of streams": (
        STREAM | {"stream-metadata-discovery-failure-threshold": "-1"},
        COLUMNS,
        "'stream-metadata-discovery-failure-threshold' has the value '-1'",
    ),
    "streams with a key of rows": (STREAM, KEY, "only appends rows"),
    "a service with kafka": (KAFKA | {"metadata-service": "single-cluster"}, COLUMNS, "'connector' = 'dynamic-kafka'"),
    # upsert-kafka
    "upsert without a value format": (without(UPSERT, "value.format"), KEY, "'format' (or 'value.format') is missing"),
    "upsert of a changelog's keys": (UPSERT | {"key.format": "debezium-json"}, KEY, "a key needs a format of rows"),
    "upsert from a time": (UPSERT | {"scan.startup.timestamp-millis": "1"}, KEY, "from the earliest offset on"),
    "upsert exactly once without a prefix": (
        UPSERT | {"sink.delivery-guarantee": "exactly-once"},
        KEY,
        "'sink.transactional-id-prefix' is missing",
    ),
    "half a buffer": (UPSERT | {"sink.buffer-flush.interval": "1 s"}, KEY, "set both above 0, or neither"),
    "a negative buffer": (
        UPSERT | {"sink.buffer-flush.max-rows": "-1", "sink.buffer-flush.interval": "1 s"},
        KEY,
        "'sink.buffer-flush.max-rows' has the value '-1'",
    ),
    "upsert with a prefix and ALL": (UPSERT | {"key.fields-prefix": "i"}, KEY, "'value.fields-include' = 'EXCEPT_KEY'"),
}


@pytest.mark.parametrize(("options", "columns", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(options: Given, columns: str, expected: str) -> None:
    """When the table is made, naming the option."""
    with pytest.raises(ConfigurationError) as caught:
        table(options, columns)
    assert expected in str(caught.value).splitlines()[0]


@pytest.mark.parametrize("prefix", ["scan.startup", "scan.bounded"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "42",
        "partition:0",
        "offset:42,partition:0",
        "partition:0,offset:42,",
        "partition:0,offset:42 ;partition:1,offset:3",
        "partition:0,offset:-42",
        "partition:0;offset:42",
        "partition:zero,offset:42",
        "partition:0,offset:42;;partition:1,offset:1",
    ],
)
def test_specific_offsets_have_one_grammar(prefix: str, text: str) -> None:
    """Flink's: two parts in that order, no blanks; the error shows the text."""
    with pytest.raises(ConfigurationError, match=f"'{prefix}.specific-offsets' has the value") as caught:
        table(KAFKA | {f"{prefix}.mode": "specific-offsets", f"{prefix}.specific-offsets": text})
    assert repr(text) in str(caught.value)


def test_specific_offsets_may_end_in_a_semicolon() -> None:
    """As in Flink, which splits as Java does."""
    options = {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "partition:0,offset:7;"}
    assert source(table(KAFKA | options)).starting == KafkaOffsetsInitializer.offsets({("orders", 0): 7})


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

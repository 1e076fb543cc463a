"""The options of the SQL connector `kafka`, as Flink's documentation has them, against real brokers.

Where reading starts and ends is tried out in all its modes on the source's engine with the table's options, and once more
with some of them through Spark, whose part is the same for all.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError, OffsetResolutionError
from dynamic_kafka.kafka.transactions.client import TransactionClient
from dynamic_kafka.sink.transactional_ids import belongs_to
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.driver.enumerator import SourceEnumerator
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.sql.parser.parse import parse_script, parse_statement
from dynamic_kafka.sql.parser.statements import CreateTable
from dynamic_kafka.sql.tables.table import table_of, with_start
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.engine import Query, read_batch
from tests.spark.tables import (
    DOCUMENTED,
    FOR_EVER,
    MURMUR2,
    Topic,
    as_batches,
    commit,
    create,
    ddl,
    on,
    records,
    rows,
    union,
    without,
    write,
)

pytestmark = [pytest.mark.broker, pytest.mark.spark]

Options = dict[str, str]


def source(options: Options, columns: str = "id INT") -> dict[str, str]:
    """What a table asks of the source."""
    statement = parse_statement(ddl("t", columns, options))
    assert isinstance(statement, CreateTable)
    return with_start(table_of(statement.definition).source)


# --- the documentation's tables -----------------------------------------------------------------------------------------

BUY = "1L, 10L, 'buy'"
AT = "timestamp_millis(1600000000123)"

# For each table: what is inserted, key and value of the record, and the row that is read.
WRITTEN = [
    (f"{BUY}, {AT}", None, b"1,10,buy", '{"user_id":1,"item_id":10,"behavior":"buy","ts":"2020-09-13T12:26:40.123Z"}'),
    (
        f"{AT}, {BUY}",
        None,
        b"1,10,buy",
        '{"event_time":"2020-09-13T12:26:40.123Z","partition":0,"offset":0,"user_id":1,"item_id":10,"behavior":"buy"}',
    ),
    (
        f"{AT}, {BUY}",
        None,
        b'{"user_id":1,"item_id":10,"behavior":"buy"}',
        '{"ts":"2020-09-13T12:26:40.123Z","user_id":1,"item_id":10,"behavior":"buy"}',
    ),
    (
        f"{AT}, {BUY}",
        b'{"user_id":1,"item_id":10}',
        b'{"user_id":1,"item_id":10,"behavior":"buy"}',
        '{"ts":"2020-09-13T12:26:40.123Z","user_id":1,"item_id":10,"behavior":"buy"}',
    ),
    (
        "7, 1L, 10L, 8, 'buy'",
        b'{"version":7,"user_id":1,"item_id":10}',
        b'{"version":8,"behavior":"buy"}',
        '{"k_version":7,"k_user_id":1,"k_item_id":10,"version":8,"behavior":"buy"}',
    ),
]


def test_the_tables_of_the_documentation(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Written and read; those with a changelog and with security have tests of their own below."""
    made = [s for s in parse_script(DOCUMENTED) if isinstance(s, CreateTable)][:6]
    made = [s for s in made if s.definition.options.get("value.format") != "debezium-json"]
    for i, (statement, (inserted, key, value, _)) in enumerate(zip(made, WRITTEN, strict=True)):
        name = topic(cluster_a, config=FOR_EVER)
        options = {"scan.startup.mode": "earliest-offset", **statement.definition.options, "topic": name}
        options["properties.bootstrap.servers"] = cluster_a.bootstrap_servers
        definition = replace(statement.definition, name=(f"t{i}",), options=options)
        env.execute(replace(statement, definition=definition))
        write(env, f"INSERT INTO t{i} VALUES ({inserted})")
        assert [(got.key, got.value) for got in records(cluster_a, name)] == [(key, value)]
    found = rows(
        env, " UNION ALL ".join(f"SELECT {i} AS n, to_json(struct(*)) AS row FROM t{i}" for i in range(len(made)))
    )
    assert [row for _, row in found] == [row for *_, row in WRITTEN]


# --- where reading starts and ends --------------------------------------------------------------------------------------

TIME = 1_600_000_000_000
GROUP = {"properties.group.id": "g"}
ALL = [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


def start(mode: str, **companions: str) -> dict[str, str]:
    """A startup mode with its companion."""
    return {"scan.startup.mode": mode} | {f"scan.startup.{k.replace('_', '-')}": v for k, v in companions.items()}


def stop(mode: str, **companions: str) -> dict[str, str]:
    """A bounded mode with its companion."""
    return {"scan.bounded.mode": mode} | {f"scan.bounded.{k.replace('_', '-')}": v for k, v in companions.items()}


def reset(to: str) -> dict[str, str]:
    """A group that has committed nothing, and where it begins."""
    return {"properties.group.id": "new", "properties.auto.offset.reset": to}


# Two partitions have the ids 0 to 4 and 10 to 14, a second apart; the group `g` has committed the offsets 2 and 4.
STARTS: dict[str, tuple[Options, list[int]]] = {
    "earliest": (start("earliest-offset"), ALL),
    "of_group": (start("group-offsets") | GROUP, [2, 3, 4, 14]),
    "by_default": (GROUP, [2, 3, 4, 14]),
    "reset_earliest": (reset("earliest"), ALL),
    "reset_latest": (start("group-offsets") | reset("latest"), []),
    "at_time": (start("timestamp", timestamp_millis=str(TIME + 2000)), [2, 3, 4, 12, 13, 14]),
    "after_all": (start("timestamp", timestamp_millis=str(TIME + 99_000)), []),
    "at_offsets": (start("specific-offsets", specific_offsets="partition:0,offset:3;partition:1,offset:5"), [3, 4]),
    "unnamed": (start("specific-offsets", specific_offsets="partition:0,offset:3"), [3, 4, 10, 11, 12, 13, 14]),
    "unnamed_committed": (start("specific-offsets", specific_offsets="partition:0,offset:3") | GROUP, [3, 4, 14]),
}
STOPS: dict[str, tuple[Options, list[int]]] = {
    "latest": (stop("latest-offset"), ALL),
    "of_group": (stop("group-offsets") | GROUP, [0, 1, 10, 11, 12, 13]),
    "at_time": (stop("timestamp", timestamp_millis=str(TIME + 2000)), [0, 1, 10, 11]),
    "before_all": (stop("timestamp", timestamp_millis=str(TIME)), []),
    "after_all": (stop("timestamp", timestamp_millis=str(TIME + 99_000)), ALL),
    "at_offsets": (stop("specific-offsets", specific_offsets="partition:0,offset:2;partition:1,offset:1"), [0, 1, 10]),
    "unnamed": (stop("specific-offsets", specific_offsets="partition:0,offset:2"), [0, 1]),
    "from_to": (
        start("timestamp", timestamp_millis=str(TIME + 1000)) | stop("timestamp", timestamp_millis=str(TIME + 3000)),
        [1, 2, 11, 12],
    ),
    "behind_the_start": (
        start("specific-offsets", specific_offsets="partition:0,offset:4;partition:1,offset:4")
        | stop("specific-offsets", specific_offsets="partition:0,offset:2;partition:1,offset:5"),
        [14],
    ),
}


@pytest.fixture
def numbers(cluster_a: KafkaBroker, topic: Topic) -> dict[str, str]:
    """Options of a table without a start, on the topic that the tables above are about."""
    name = topic(cluster_a, partitions=2, config=FOR_EVER)
    for i in range(5):
        for partition in (0, 1):
            record = (None, json.dumps({"id": 10 * partition + i}))
            produce(cluster_a.bootstrap_servers, name, [record], partition=partition, timestamp_ms=TIME + 1000 * i)
    commit(cluster_a, "g", name, 2, 4)
    return without(on(cluster_a, name), "scan.startup.mode")


def add(numbers: Options, *ids: int) -> None:
    """Write more of them to the first partition."""
    new = [(None, json.dumps({"id": i})) for i in ids]
    produce(numbers["properties.bootstrap.servers"], numbers["topic"], new, partition=0)


def ids(found: list[dict[str, Any]]) -> list[int]:
    """The ids in the values, sorted."""
    return sorted(json.loads(row["value"])["id"] for row in found)


@pytest.mark.parametrize(("options", "expected"), STARTS.values(), ids=STARTS.keys())
def test_where_reading_starts(numbers: dict[str, str], options: Options, expected: list[int]) -> None:
    """Each mode with its companions, in batch mode and as a stream, to which a new record comes, too."""
    asked = source(numbers | options)
    assert ids(read_batch(asked)) == expected
    stream = Query(asked)
    try:
        stream.run_until_rows(len(expected))
        stream.step()  # without any row, the first step is what finds the start
        add(numbers, 99)
        assert ids(stream.run_until_rows(len(expected) + 1)) == [*expected, 99]
    finally:
        stream.close()


def test_a_stream_that_starts_at_the_end(numbers: dict[str, str]) -> None:
    """Only what comes later is read."""
    stream = Query(source(numbers | start("latest-offset")))
    try:
        stream.step()
        add(numbers, 99)
        assert ids(stream.run_until_rows(1)) == [99]
    finally:
        stream.close()


@pytest.mark.parametrize(("options", "expected"), STOPS.values(), ids=STOPS.keys())
def test_where_reading_ends(numbers: dict[str, str], options: Options, expected: list[int]) -> None:
    """Each mode with its companions, in batch mode and as a stream, which does not read what comes later."""
    asked = source(numbers | start("earliest-offset") | options)
    assert ids(read_batch(asked)) == expected
    stream = Query(asked)
    try:
        stream.step()
        add(numbers, 99)
        stream.run_until(lambda: bool(stream.document.get("done")))
        assert ids(stream.rows) == expected
    finally:
        stream.close()


def test_a_group_without_offsets(numbers: dict[str, str]) -> None:
    """Without a reset, it can neither start nor stop; the error names the group's partition."""
    for options in (
        start("group-offsets") | {"properties.group.id": "new"},
        reset("none"),
        start("earliest-offset") | stop("group-offsets") | {"properties.group.id": "new"},
    ):
        with pytest.raises(OffsetResolutionError, match=rf"no committed offset for {numbers['topic']}-0"):
            read_batch(source(numbers | options))


def by_name(found: list[tuple[Any, ...]], names: Any) -> dict[str, list[int]]:
    """The ids of each table, sorted."""
    of: dict[str, list[int]] = {name: [] for name in names}
    for name, number in found:
        of[name].append(number)
    return {name: sorted(numbers) for name, numbers in of.items()}


def test_batch_queries_with_modes(env: TableEnvironment, numbers: dict[str, str]) -> None:
    """Through Spark: the group's offsets, a time, and offsets; what is missing is an error."""
    tables = {name: STARTS[name] for name in ("by_default", "at_time")} | {"unnamed": STOPS["unnamed"]}
    for name, (options, _) in tables.items():
        create(env, name, "id INT", numbers | ({} if name == "by_default" else start("earliest-offset")) | options)
    found = by_name(rows(env, union(list(tables), "id")), tables)
    assert found == {name: expected for name, (_, expected) in tables.items()}
    create(env, "new", "id INT", numbers | start("group-offsets") | {"properties.group.id": "new"})
    with pytest.raises(DynamicKafkaError, match="has no committed offset"):
        rows(env, "SELECT * FROM new")


@pytest.mark.slow
def test_streams_with_modes(env: TableEnvironment, numbers: dict[str, str]) -> None:
    """Through Spark: streams that end by themselves, as one query."""
    tables = {name: STOPS[name] for name in ("latest", "of_group", "from_to")}
    for name, (options, _) in tables.items():
        create(env, name, "id INT", numbers | start("earliest-offset") | options)
    found = [tuple(row) for row in env.execute_sql(union(list(tables), "id")).collect()]
    assert by_name(found, tables) == {name: expected for name, (_, expected) in tables.items()}


def test_a_batch_query_cannot_start_at_the_end(env: TableEnvironment, numbers: dict[str, str]) -> None:
    """It would read nothing, whatever comes."""
    create(env, "t", "id INT", numbers | start("latest-offset"))
    with pytest.raises(ConfigurationError, match=r"'scan\.startup\.mode' has the value 'latest-offset'"):
        rows(env, "SELECT * FROM t")


# --- topics and partitions ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_topics_and_partitions_that_come_later(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """A pattern is for whole names; what is found later is read from its beginning."""
    name = topic()
    for suffix in ("-1", "-10"):
        cluster_a.create_topic(name + suffix)
        produce(cluster_a.bootstrap_servers, name + suffix, [(None, '{"id": 1}')])
    options = without(on(cluster_a, name), "topic") | {
        "topic-pattern": f"{name}-[0-9]",
        "scan.topic-partition-discovery.interval": "200 ms",
    }
    create(env, "t", "topic STRING METADATA, p INT METADATA FROM 'partition' VIRTUAL, id INT", options)
    found = env.execute_sql("SELECT * FROM t").collect()
    assert tuple(next(found)) == (f"{name}-1", 0, 1)
    admin = AdminClient({"bootstrap.servers": cluster_a.bootstrap_servers})
    admin.create_partitions([NewPartitions(f"{name}-1", 2)])[f"{name}-1"].result(15)
    wait_until(
        lambda: len(admin.list_topics(timeout=5).topics[f"{name}-1"].partitions) == 2, 15, "the second partition"
    )
    produce(cluster_a.bootstrap_servers, f"{name}-1", [(None, '{"id": 2}')], partition=1)
    assert tuple(next(found)) == (f"{name}-1", 1, 2)
    cluster_a.create_topic(f"{name}-2")
    produce(cluster_a.bootstrap_servers, f"{name}-2", [(None, '{"id": 3}')])
    assert tuple(next(found)) == (f"{name}-2", 0, 3)
    found.close()  # type: ignore[attr-defined]  # a stream's rows are a generator


@pytest.mark.slow
def test_topics_of_a_sink(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Of a list, or matching a pattern as a whole, each row names its topic; else it is an error. A list is one table."""
    one, two = topic(cluster_a), topic(cluster_a)
    columns = "id INT, topic STRING METADATA"
    create(env, "listed", columns, on(cluster_a, f"{one}; {two}"))
    create(env, "matching", columns, without(on(cluster_a, one), "topic") | {"topic-pattern": f"({one}|{two})"})
    write(env, f"INSERT INTO listed VALUES (1, '{one}'), (2, '{two}')")
    write(env, f"INSERT INTO matching (topic, id) VALUES ('{one}', 3), ('{two}', 4)")
    found = [(got.topic, got.value) for got in records(cluster_a, one, two)]
    assert sorted(found) == sorted([(one, b'{"id":1}'), (two, b'{"id":2}'), (one, b'{"id":3}'), (two, b'{"id":4}')])
    for table, named, expected in (
        ("listed", "CAST(NULL AS STRING)", "A row's column 'topic' is null or missing"),
        ("matching", "CAST(NULL AS STRING)", "A row's column 'topic' is null or missing"),
        ("listed", "'other'", f"A row's column 'topic' names 'other'; the option 'topic' allows {one}, {two}"),
        (
            "matching",
            f"'{one}x'",
            f"A row's column 'topic' names '{one}x', which does not match the option 'topic-pattern'",
        ),
    ):
        with pytest.raises(PySparkException) as caught:
            write(env, f"INSERT INTO {table} SELECT 5, {named}")
        assert expected in str(caught.value)
    assert len(records(cluster_a, one, two)) == 4
    assert rows(env, "SELECT id FROM listed") == [(1,), (2,), (3,), (4,)]


def test_the_number_of_tasks(cluster_a: KafkaBroker, topic: Topic) -> None:
    """`scan.parallelism`: no more, and as many as soon as there is enough for each."""
    name = topic(cluster_a, partitions=4)
    produce(cluster_a.bootstrap_servers, name, [(str(i), "{}") for i in range(4000)])

    def tasks(options: Options) -> int:
        asked = source(on(cluster_a, name) | options)
        return len(SourceEnumerator(configure_source(asked)).batch_tasks())

    assert [tasks({"scan.parallelism": str(n)}) for n in (1, 2, 3)] == [1, 2, 3]
    assert tasks({}) == 1


# --- how rows are written -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_partitioners(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """Java's murmur2 for keys; one partition for each task; one after the other; and a class of one's own."""
    keyed, fixed, turns, own = (topic(cluster_a, partitions=n) for n in (11, 4, 3, 4))
    layout = {"key.fields": "k", "value.fields-include": "EXCEPT_KEY"}
    create(env, "keyed", "k STRING, v INT", on(cluster_a, keyed, key="raw", value="json") | layout)
    write(env, "INSERT INTO keyed VALUES " + ", ".join(f"('{key}', 1)" for key in MURMUR2))
    expected = {(key.encode(), (number & 0x7FFFFFFF) % 11) for key, number in MURMUR2.items()}
    assert {(got.key, got.partition) for got in records(cluster_a, keyed)} == expected

    tasks = {"sink.partitioner": "fixed", "sink.parallelism": "2"}
    create(env, "fixed", "id BIGINT", on(cluster_a, fixed) | tasks)
    write(env, "INSERT INTO fixed SELECT id FROM range(0, 40, 1, 3)")
    assert {got.partition for got in records(cluster_a, fixed)} == {0, 1}

    env.execute_sql("SET 'parallelism.default' = '1'")
    create(env, "turns", "id BIGINT", on(cluster_a, turns))
    write(env, "INSERT INTO turns /*+ OPTIONS('sink.partitioner' = 'round-robin') */ SELECT id FROM range(7)")
    env.execute_sql("RESET 'parallelism.default'")
    assert [got.partition for got in records(cluster_a, turns)] == [0, 0, 0, 1, 1, 2, 2]

    module = tmp_path / "sql_partitioners.py"
    module.write_text(
        "class Last:\n"
        "    def open(self, parallel_instance_id, parallel_instances):\n"
        "        pass\n"
        "    def partition(self, key, value, topic, partitions):\n"
        "        return partitions[-1]\n"
    )
    spark.sparkContext.addPyFile(str(module))
    create(env, "own", "id BIGINT", on(cluster_a, own) | {"sink.partitioner": "sql_partitioners:Last"})
    write(env, "INSERT INTO own SELECT id FROM range(7)")
    assert {got.partition for got in records(cluster_a, own)} == {3}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"sink.delivery-guarantee": "none"},
        {"sink.delivery-guarantee": "at-least-once"},
        {"sink.delivery-guarantee": "exactly-once"},
        {"sink.semantic": "exactly-once"},
    ],
)
def test_guarantees(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, options: dict[str, str]) -> None:
    """All rows are there; with `exactly-once`, by transactions whose ids begin with the prefix."""
    name = topic(cluster_a, partitions=2)
    create(env, "t", "id BIGINT", on(cluster_a, name) | options | {"sink.transactional-id-prefix": name})
    write(env, "INSERT INTO t SELECT id FROM range(100)")
    expected = sorted(f'{{"id":{i}}}'.encode() for i in range(100))
    assert wait_until(lambda: sorted(got.value or b"" for got in records(cluster_a, name)) == expected, 20, "all rows")
    client = TransactionClient("c", cluster_a.client_properties(), timeout_ms=20_000)
    try:
        assert any(belongs_to(name, found) for found in client.list_all()) == ("exactly-once" in options.values())
    finally:
        client.close()


@pytest.mark.slow
def test_headers_and_timestamps_that_are_written(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """A map keeps null values, a list order and duplicates, but no row without a key; no time is the time of writing."""
    name = topic(cluster_a, config=FOR_EVER)
    time = "ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'"
    headers = "h MAP<STRING, BYTES> METADATA FROM 'headers'"
    listed = "l ARRAY<ROW<key STRING, value BYTES>> METADATA FROM 'header-list'"
    create(env, "mapped", f"id INT, {time}, {headers}, {listed} VIRTUAL", on(cluster_a, name))
    create(env, "listed", f"id INT, {headers} VIRTUAL, {listed}", on(cluster_a, name))
    before = datetime.now(UTC)
    write(env, "INSERT INTO mapped SELECT 1, timestamp_millis(1600000000123), map('a', X'01', 'b', NULL)")
    write(env, "INSERT INTO mapped SELECT 2, NULL, NULL")
    pairs = "named_struct('key', 'a', 'value', X'01'), NULL, named_struct('key', NULL, 'value', X'02')"
    pairs += ", named_struct('key', 'b', 'value', NULL), named_struct('key', 'a', 'value', X'03')"
    write(env, f"INSERT INTO listed SELECT 3, array({pairs})")
    write(env, "INSERT INTO listed SELECT 4, array()")
    one, two, three, four = records(cluster_a, name)
    assert (one.timestamp, one.headers) == (1_600_000_000_123, [("a", b"\x01"), ("b", None)])
    assert before.timestamp() * 1000 - 1 <= two.timestamp <= datetime.now(UTC).timestamp() * 1000
    assert (two.headers, four.headers) == (None, None)
    assert three.headers == [("a", b"\x01"), ("b", None), ("a", b"\x03")]
    found = rows(env, "SELECT id, h, transform(l, x -> x.key), transform(l, x -> x.value) FROM listed")
    assert found == [
        (1, {"a": b"\x01", "b": None}, ["a", "b"], [b"\x01", None]),
        (2, {}, [], []),
        (3, {"a": b"\x03", "b": None}, ["a", "b", "a"], [b"\x01", None, b"\x03"]),
        (4, {}, [], []),
    ]


# --- keys, values and tombstones ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_in_keys_and_values(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """With ALL the value counts; with EXCEPT_KEY the key. A tombstone is no row; a message without a key is one."""
    name = topic(cluster_a)
    messages = [
        (b'{"id": 1}', '{"id": 7, "v": "a"}'),
        (b'{"id": 2}', None),
        (None, '{"id": 8, "v": "b"}'),
        (b"{", '{"id": 9, "v": "c"}'),
    ]
    produce(cluster_a.bootstrap_servers, name, messages)
    keyed = on(cluster_a, name, key="json", value="json") | {"key.fields": "id", "key.json.ignore-parse-errors": "true"}
    columns = "id INT, v STRING, `offset` BIGINT METADATA VIRTUAL"
    create(env, "plain", "id INT, v STRING", on(cluster_a, name))
    create(env, "all_fields", columns, keyed)
    create(env, "except_key", columns, keyed | {"value.fields-include": "EXCEPT_KEY"})
    queries = [
        f"SELECT '{t}', id, v, {at} FROM {t}"
        for t, at in (("plain", -1), ("all_fields", "`offset`"), ("except_key", "`offset`"))
    ]
    assert rows(env, " UNION ALL ".join(queries)) == [
        ("all_fields", 7, "a", 0),
        ("all_fields", 8, "b", 2),
        ("all_fields", 9, "c", 3),
        ("except_key", 1, "a", 0),
        ("except_key", None, "b", 2),
        ("except_key", None, "c", 3),
        ("plain", 7, "a", -1),
        ("plain", 8, "b", -1),
        ("plain", 9, "c", -1),
    ]
    create(env, "strict", columns, without(keyed, "key.json.ignore-parse-errors"))
    with pytest.raises(PySparkException, match="partition 0, offset 3: the key cannot be read as json"):
        rows(env, "SELECT v FROM strict")


@pytest.mark.slow
def test_a_value_without_any_column(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """EXCEPT_KEY and all columns in the key, as in Flink."""
    name = topic(cluster_a)
    layout = {"key.fields": "b;a", "value.fields-include": "EXCEPT_KEY"}
    create(env, "t", "a INT, b STRING", on(cluster_a, name, key="json", value="json") | layout)
    write(env, "INSERT INTO t VALUES (1, 'x')")
    assert [(got.key, got.value) for got in records(cluster_a, name)] == [(b'{"b":"x","a":1}', b"{}")]
    assert rows(env, "SELECT * FROM t") == [(1, "x")]


# --- properties and security --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_properties_reach_the_clients(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """What the source reads of a transaction that was given up; that the sink makes no topic."""
    name = topic(cluster_a)
    for end in ("commit", "abort"):
        produce(cluster_a.bootstrap_servers, name, [(None, f'{{"end": "{end}"}}')], transactional=end)
    create(env, "committed", "end STRING", on(cluster_a, name) | {"properties.isolation.level": "read_committed"})
    create(env, "by_default", "end STRING", on(cluster_a, name))
    expected = [("by_default", "abort"), ("by_default", "commit"), ("committed", "commit")]
    assert rows(env, union(["committed", "by_default"], "`end`")) == expected
    nowhere = "OPTIONS('topic' = 'nowhere', 'properties.allow.auto.create.topics' = 'false')"
    with pytest.raises(PySparkException, match="nowhere"):
        write(env, f"INSERT INTO committed /*+ {nowhere} */ SELECT 'x'")


@pytest.mark.slow
def test_the_documentations_security(
    env: TableEnvironment, topic: Topic, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    r"""SASL by `properties.*`, with the documentation's `\"`, read and written; the password is nowhere."""
    with KafkaBroker(sasl_plain={"alice": "wonder-land"}) as broker:
        name = topic(broker)

        def security(password: str) -> dict[str, str]:
            login = rf"PlainLoginModule required username=\"alice\" password=\"{password}\";"
            return on(broker, name) | {
                "properties.security.protocol": "SASL_PLAINTEXT",
                "properties.sasl.mechanism": "PLAIN",
                "properties.sasl.jaas.config": f"org.apache.kafka.common.security.plain.{login}",
            }

        caplog.set_level("DEBUG", "dynamic_kafka")
        create(env, "t", "id INT", security("wonder-land"))
        write(env, "INSERT INTO t VALUES (1)")
        assert rows(env, "SELECT * FROM t") == [(1,)]
        ((shown,),) = rows(env, "SHOW CREATE TABLE t")
    for text in (shown, caplog.text, *capfd.readouterr()):
        assert "wonder-land" not in text


# --- changelogs ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_metadata_of_debezium(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """The documentation's table, with all that the format knows; `value.` keeps it apart from Kafka's."""
    name = topic(cluster_a, config=FOR_EVER)
    event = {
        "before": None,
        "after": {"user_id": 1, "item_id": 2, "behavior": "buy"},
        "source": {"ts_ms": TIME, "db": "shop", "schema": "public", "table": "actions", "version": "3.0.8.Final"},
        "op": "c",
        "ts_ms": TIME + 1000,
    }
    produce(cluster_a.bootstrap_servers, name, [(None, json.dumps(event))], timestamp_ms=TIME + 5000)
    columns = """`event_time` TIMESTAMP_LTZ(3) METADATA FROM 'value.source.timestamp' VIRTUAL,  -- from Debezium format
      `origin_table` STRING METADATA FROM 'value.source.table' VIRTUAL, -- from Debezium format
      `partition_id` BIGINT METADATA FROM 'partition' VIRTUAL,  -- from Kafka connector
      `offset` BIGINT METADATA VIRTUAL,  -- from Kafka connector
      `user_id` BIGINT, `item_id` BIGINT, `behavior` STRING,
      db STRING METADATA FROM 'value.source.database' VIRTUAL, s STRING METADATA FROM 'value.source.schema' VIRTUAL,
      p MAP<STRING, STRING> METADATA FROM 'value.source.properties' VIRTUAL,
      at BIGINT METADATA FROM 'value.ingestion-timestamp' VIRTUAL, ts BIGINT METADATA FROM 'timestamp' VIRTUAL,
      json STRING METADATA FROM 'value.schema' VIRTUAL, PRIMARY KEY (user_id) NOT ENFORCED"""
    create(env, "t", columns, on(cluster_a, name, value="debezium-json"))
    ((event_time, table, partition, offset, *rest),) = rows(env, "SELECT * FROM t")
    assert event_time.timestamp() == TIME / 1000
    assert (table, partition, offset) == ("actions", 0, 0)
    user, item, behavior, database, schema, properties, at, ts, json_schema, kind = rest
    assert (user, item, behavior, database, schema, json_schema, kind) == (1, 2, "buy", "shop", "public", None, "+I")
    assert properties["version"] == "3.0.8.Final"
    assert (at, ts) == (TIME // 1000 + 1, TIME // 1000 + 5)


# --- statements and settings --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_settings_of_jobs(
    env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """The name, the checkpoint's folder, the time between batches; the time-out of idle partitions is accepted."""
    name = topic(cluster_a)
    create(env, "s", "id INT", on(cluster_a, name) | {"scan.startup.mode": "latest-offset"})
    create(env, "t", "id INT", on(cluster_a, name))
    for setting in (
        "'table.exec.source.idle-timeout' = '30 s'",
        "'execution.checkpointing.interval' = '2 min'",
        "'pipeline.name' = 'nightly copy'",
    ):
        env.execute_sql(f"SET {setting}")
    first, second = (env.execute_sql("INSERT INTO t SELECT id FROM s").queries[0] for _ in range(2))
    assert [query.name for query in (first, second)] == ["nightly copy", "nightly copy-2"]
    assert first._jsq.streamingQuery().trigger().toString() == "ProcessingTimeTrigger(120000)"
    assert (tmp_path / "checkpoints" / "nightly_copy-d7580694" / "metadata").exists()
    env.execute_sql("RESET 'pipeline.name'")
    env.execute_sql("RESET 'execution.checkpointing.interval'")
    (third,) = env.execute_sql("INSERT INTO t SELECT id FROM s").queries
    assert third.name == "t"
    assert third._jsq.streamingQuery().trigger().toString() == "ProcessingTimeTrigger(0)"


@pytest.mark.slow
def test_tables_from_tables(env: TableEnvironment, spark: SparkSession, cluster_a: KafkaBroker, topic: Topic) -> None:
    """LIKE with options of its own, a hint, IF NOT EXISTS; from_path and a view of a DataFrame; plans."""
    one, two = topic(cluster_a), topic(cluster_a)
    create(env, "base", "id INT, v STRING", on(cluster_a, one))
    env.execute_sql(f"CREATE TABLE other (o BIGINT METADATA FROM 'offset' VIRTUAL) WITH ('topic' = '{two}') LIKE base")
    env.execute_sql(
        "CREATE TABLE IF NOT EXISTS base (x INT) WITH ('connector' = 'kafka', 'topic' = 'x', 'format' = 'json', "
        f"'properties.bootstrap.servers' = '{cluster_a.bootstrap_servers}')"
    )
    with pytest.raises(ConfigurationError, match="'base' exists already"):
        create(env, "base", "x INT", on(cluster_a, one))
    env.create_temporary_view("given", spark.createDataFrame([(1, "a"), (2, "b")], "id INT, v STRING"))
    write(env, "INSERT INTO base SELECT * FROM given")
    write(
        env,
        f"INSERT INTO base /*+ OPTIONS('topic' = '{two}', 'json.encode.ignore-null-fields' = 'true') */ (id) VALUES (3)",
    )
    assert [got.value for got in records(cluster_a, two)] == [b'{"id":3}']
    with as_batches(env):
        assert sorted(map(tuple, env.from_path("base").collect())) == [(1, "a"), (2, "b")]
        assert list(map(tuple, env.from_path("default_catalog.default_database.`other`").collect())) == [(3, None, 0)]
    assert env.from_path("given").columns == ["id", "v"]
    for statement in ("SELECT v FROM base", "INSERT INTO other SELECT * FROM base"):
        ((plan,),) = map(tuple, env.execute_sql(f"EXPLAIN {statement}").collect())
        assert "Physical Plan" in plan
    assert len(records(cluster_a, one)) == 2

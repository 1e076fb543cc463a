"""The SQL connectors `dynamic-kafka` and `upsert-kafka` against real brokers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from pyspark.errors import PySparkException

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.sql.parser.parse import parse_script
from dynamic_kafka.sql.parser.statements import CreateTable
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.engine import MetadataFile, part
from tests.spark.tables import (
    DOCUMENTED,
    FOR_EVER,
    Topic,
    commit,
    create,
    on,
    records,
    rows,
    union,
    without,
    write,
)

pytestmark = [pytest.mark.broker, pytest.mark.spark]


# --- dynamic-kafka ------------------------------------------------------------------------------------------------------


def streams(file: MetadataFile, **more: str) -> dict[str, str]:
    """Options of a table on the document's streams."""
    common = without(file.options(), "stream-ids") | {"connector": "dynamic-kafka", "format": "json"}
    return common | {"scan.startup.mode": "earliest-offset"} | {k.replace("_", "-"): text for k, text in more.items()}


def documented(name: str, connector: str, options: Mapping[str, str]) -> CreateTable:
    """The documentation's first table of a connector, with some options of its own."""
    found = (s for s in parse_script(DOCUMENTED) if isinstance(s, CreateTable))
    statement = next(s for s in found if s.definition.options["connector"] == connector)
    definition = statement.definition
    return replace(statement, definition=replace(definition, name=(name,), options={**definition.options, **options}))


def ids(*numbers: int) -> list[tuple[None, str]]:
    """Records with these ids."""
    return [(None, json.dumps({"id": i})) for i in numbers]


def test_streams_on_two_clusters(
    env: TableEnvironment, cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """By ids and by a pattern that is found anywhere in the id; `kafka_cluster` says which cluster a row is from."""
    one, two = topic(cluster_a, cluster_b), topic(cluster_b)
    produce(cluster_a.bootstrap_servers, one, ids(1))
    produce(cluster_b.bootstrap_servers, one, ids(2))
    produce(cluster_b.bootstrap_servers, two, ids(3, 4))
    of_one = {"east": part(cluster_a, one), "west": part(cluster_b, one)}
    file.write(orders=of_one, returns={"west": part(cluster_b, two)})
    columns = "id INT, kafka_cluster STRING NOT NULL METADATA VIRTUAL, topic STRING METADATA VIRTUAL"
    create(env, "one", columns, streams(file, stream_ids="orders"))
    create(env, "both", columns, streams(file, stream_ids="orders; returns"))
    create(env, "matching", columns, streams(file, stream_pattern="turn"))
    create(env, "bounded", columns, streams(file, stream_pattern="^o") | {"scan.bounded.mode": "latest-offset"})
    of_orders, of_returns = [(1, "east", one), (2, "west", one)], [(3, "west", two), (4, "west", two)]
    expected = {"one": of_orders, "both": of_orders + of_returns, "matching": of_returns}
    found = rows(env, union(list(expected), "id, kafka_cluster, topic"))
    assert found == sorted(((name, *row) for name, of in expected.items() for row in of), key=str)
    assert sorted(map(tuple, env.execute_sql("SELECT * FROM bounded").collect())) == of_orders


@pytest.mark.slow
def test_a_job_follows_its_stream(
    env: TableEnvironment, cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """A cluster that comes while an INSERT runs is read, too; another table is written to."""
    name, sink = topic(cluster_a, cluster_b), topic(cluster_a)
    file.write(s={"east": part(cluster_a, name)})
    create(env, "s", "id INT, kafka_cluster STRING METADATA VIRTUAL", streams(file, stream_ids="s"))
    create(env, "t", "id INT, cluster STRING", on(cluster_a, sink))
    produce(cluster_a.bootstrap_servers, name, ids(1))
    produce(cluster_b.bootstrap_servers, name, ids(2))
    env.execute_sql("INSERT INTO t SELECT * FROM s")
    wait_until(lambda: len(records(cluster_a, sink)) == 1, 60, "the first cluster's row")
    file.write(s={"east": part(cluster_a, name), "west": part(cluster_b, name)})
    wait_until(lambda: len(records(cluster_a, sink)) == 2, 60, "the second cluster's row")
    assert [got.value for got in records(cluster_a, sink)] == [
        b'{"id":1,"cluster":"east"}',
        b'{"id":2,"cluster":"west"}',
    ]


def test_rows_go_to_the_cluster_they_name(
    env: TableEnvironment, cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, file: MetadataFile
) -> None:
    """And to the topic, where a stream has several; what is read can be written again."""
    one, two = topic(cluster_a, cluster_b), topic(cluster_b)
    file.write(
        narrow={"east": part(cluster_a, one), "west": part(cluster_b, one)},
        wide={"west": part(cluster_b, one, two)},
    )
    columns = "id INT, kafka_cluster STRING METADATA"
    exactly = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": one}
    create(env, "narrow", columns, streams(file, stream_ids="narrow") | exactly)
    create(env, "wide", "id INT, topic STRING METADATA", streams(file, stream_ids="wide"))
    write(env, "INSERT INTO narrow VALUES (1, 'east'), (2, 'west'), (3, 'west')")
    write(env, f"INSERT INTO wide VALUES (4, '{one}'), (5, '{two}')")
    assert [got.value for got in records(cluster_a, one)] == [b'{"id":1}']
    assert [got.value for got in records(cluster_b, one, two)] == [b'{"id":2}', b'{"id":3}', b'{"id":4}', b'{"id":5}']
    assert rows(env, "SELECT * FROM narrow") == [(1, "east"), (2, "west"), (3, "west"), (4, "west")]
    for statement, expected in (
        ("INSERT INTO narrow VALUES (6, NULL)", "A row's column 'cluster' is null or missing"),
        ("INSERT INTO narrow (id) VALUES (6)", "A row's column 'cluster' is null or missing"),
        ("INSERT INTO narrow VALUES (6, 'north')", "names 'north'; the stream's clusters are east, west"),
        ("INSERT INTO wide VALUES (6, NULL)", "A row's column 'topic' is null or missing"),
        ("INSERT INTO wide VALUES (6, 'other')", "names 'other'; the stream has"),
    ):
        with pytest.raises(PySparkException) as caught:
            write(env, statement)
        assert expected in str(caught.value)
    create(env, "both", columns, streams(file, stream_ids="narrow;wide"))
    with pytest.raises(ConfigurationError, match="'stream-ids'"):
        write(env, "INSERT INTO both VALUES (6, 'west')")


@pytest.mark.slow
def test_streams_of_a_single_cluster(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """The documentation's table: streams are topics; with the group's offsets, and up to a time."""
    one, two = topic(cluster_a, config=FOR_EVER), topic(cluster_a, config=FOR_EVER)
    for i, name in enumerate((one, two)):
        produce(cluster_a.bootstrap_servers, name, [(None, f"{i},10,buy")], timestamp_ms=1_600_000_000_000)
        produce(cluster_a.bootstrap_servers, name, [(None, f"{i},20,pv")], timestamp_ms=1_600_000_001_000)
        commit(cluster_a, "streams", name, 1 + i)
    options = {"stream-ids": f"{one};{two}", "properties.bootstrap.servers": cluster_a.bootstrap_servers}
    committed = {"scan.startup.mode": "group-offsets", "properties.group.id": "streams"}
    timed = {"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": "1600000001000"}
    tables = {"earliest": options, "committed": options | committed, "timed": options | timed}
    for name, given in tables.items():
        env.execute(documented(name, "dynamic-kafka", given))
    assert rows(env, union(list(tables), "user_id, item_id, kafka_cluster")) == [
        ("committed", 0, 20, "cluster-0"),
        ("earliest", 0, 10, "cluster-0"),
        ("earliest", 0, 20, "cluster-0"),
        ("earliest", 1, 10, "cluster-0"),
        ("earliest", 1, 20, "cluster-0"),
        ("timed", 0, 10, "cluster-0"),
        ("timed", 1, 10, "cluster-0"),
    ]


# --- upsert-kafka -------------------------------------------------------------------------------------------------------


def upsert(broker: KafkaBroker, topic: str, **more: str) -> dict[str, str]:
    """Options of an upsert table."""
    options = on(broker, topic, key="json", value="json") | {"connector": "upsert-kafka"} | more
    return without(options, "scan.startup.mode")


@pytest.mark.slow
def test_where_an_upsert_table_ends(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Read from the earliest offset, in all bounded modes, in batch mode and as a stream; no key is no row."""
    name = topic(cluster_a, config=FOR_EVER)
    messages = [
        (b'{"k":1}', b'{"k":1,"v":"a"}'),
        (b'{"k":1}', None),
        (None, b'{"k":5}'),
        (b'{"k":2}', b'{"k":9,"v":"b"}'),
    ]
    for i, message in enumerate(messages):
        produce(cluster_a.bootstrap_servers, name, [message], timestamp_ms=1_600_000_000_000 + i)
    commit(cluster_a, "upserts", name, 1)
    changes = [(1, "a", "+U"), (1, None, "-D"), (2, "b", "+U")]  # the key counts, not its copy in the value
    modes: dict[str, tuple[dict[str, str], int]] = {
        "unbounded": ({}, 3),
        "latest": ({"scan.bounded.mode": "latest-offset"}, 3),
        "of_group": ({"scan.bounded.mode": "group-offsets", "properties.group.id": "upserts"}, 1),
        "timed": ({"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": "1600000000002"}, 2),
        "specific": (
            {"scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": "partition:0,offset:3"},
            2,
        ),
    }
    for mode, (options, _) in modes.items():
        create(env, mode, "k INT, v STRING, PRIMARY KEY (k) NOT ENFORCED", upsert(cluster_a, name, **options))
    expected = sorted(((mode, *change) for mode, (_, n) in modes.items() for change in changes[:n]), key=str)
    assert rows(env, union(list(modes), "k, v, row_kind")) == expected
    ended = ["latest", "timed"]
    found = sorted(map(tuple, env.execute_sql(union(ended, "k, v, row_kind")).collect()), key=str)
    assert found == [row for row in expected if row[0] in ended]


@pytest.mark.slow
def test_an_exactly_once_upsert_job(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """An aggregation over a restart: each change once, the key's columns not in the value; the buffer is accepted."""
    source, sink = topic(cluster_a), topic(cluster_a)
    create(env, "s", "region STRING, kind INT", on(cluster_a, source))
    options = upsert(
        cluster_a,
        sink,
        **{
            "value.fields-include": "EXCEPT_KEY",
            "sink.buffer-flush.max-rows": "100",
            "sink.buffer-flush.interval": "1 s",
            "sink.delivery-guarantee": "exactly-once",
            "sink.transactional-id-prefix": sink,
        },
    )
    columns = "n BIGINT, region STRING, kind INT, PRIMARY KEY (kind, region) NOT ENFORCED"
    create(env, "counts", columns, options)
    for words, total in ((["a", "b", "a"], 2), (["b"], 3)):
        produce(cluster_a.bootstrap_servers, source, [(None, json.dumps({"region": w, "kind": 1})) for w in words])
        result = env.execute_sql("INSERT INTO counts SELECT count(*), region, kind FROM s GROUP BY region, kind")
        wait_until(lambda total=total: len(records(cluster_a, sink)) >= total, 120, f"{total} records")  # type: ignore[misc]
        result.stop()
    found = {(got.key, got.value) for got in records(cluster_a, sink)}
    a, b = b'{"kind":1,"region":"a"}', b'{"kind":1,"region":"b"}'
    assert found == {(a, b'{"n":2}'), (b, b'{"n":1}'), (b, b'{"n":2}')}
    assert len(records(cluster_a, sink)) == 3
    assert ("+U", 2, "b", 1) in rows(env, "SELECT row_kind, n, region, kind FROM counts")


@pytest.mark.slow
def test_changes_of_a_key_stay_in_order(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Also if more tasks write than the query has; `-U` and `-D` are tombstones."""
    name = topic(cluster_a, partitions=3)
    columns = "k BIGINT, v BIGINT, PRIMARY KEY (k) NOT ENFORCED"
    create(env, "t", columns, upsert(cluster_a, name, **{"sink.parallelism": "4"}))
    changes = "IF(id >= 950, IF(id % 2 = 0, '-D', '-U'), '+U') AS row_kind"
    write(env, f"INSERT INTO t SELECT id % 10, id, {changes} FROM range(0, 1000, 1, 1)")
    got_by_key: dict[bytes, list[bytes | None]] = {}
    for got in records(cluster_a, name):
        assert got.key is not None
        got_by_key.setdefault(got.key, []).append(got.value)
    for k in range(10):
        expected = [None if i >= 950 else f'{{"k":{k},"v":{i}}}'.encode() for i in range(k, 1000, 10)]
        assert got_by_key[f'{{"k":{k}}}'.encode()] == expected


@pytest.mark.slow
def test_the_upsert_tables_of_the_documentation(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Page views to page views per region, in Avro; their statement as it is, in batch mode."""
    views, regions = topic(cluster_a), topic(cluster_a)
    servers = {"properties.bootstrap.servers": cluster_a.bootstrap_servers}
    env.execute(documented("pageviews_per_region", "upsert-kafka", servers | {"topic": regions}))
    create(
        env,
        "pageviews",
        "user_id BIGINT, page_id BIGINT, viewtime TIMESTAMP, user_region STRING, "
        "WATERMARK FOR viewtime AS viewtime - INTERVAL '2' SECOND",
        on(cluster_a, views),
    )
    write(
        env,
        "INSERT INTO pageviews SELECT u, p, now(), r FROM VALUES "
        "(1, 10, 'EU'), (1, 11, 'EU'), (2, 10, 'EU'), (3, 10, 'US') AS v(u, p, r)",
    )
    insert = next(s.text for s in parse_script(DOCUMENTED) if not isinstance(s, CreateTable))
    write(env, insert)
    assert rows(env, "SELECT * FROM pageviews_per_region") == [("EU", 3, 2, "+U"), ("US", 1, 1, "+U")]

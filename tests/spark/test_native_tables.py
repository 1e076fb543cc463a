"""Tables whose values the native kernel decodes where they are read, which are not of one format: CSV, and upsert-kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dynamic_kafka.formats.protobuf.schemas import parse_schema
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import Topic, as_batches, create, on, rows, without

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_a_csv_table_is_decoded_where_it_is_read(env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic) -> None:
    """Its rows and errors."""
    values = [b'1;"a;b";2020-01-02', b"2;c;2020-1-2", b"3;null;", None, b"4;d", b"x;y;z"]
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(b"k", value) for value in values], partition=0)
    columns = "id INT, s STRING, d DATE, o BIGINT METADATA FROM 'offset'"
    options = on(cluster_a, name, format="csv") | {"csv.field-delimiter": ";", "csv.null-literal": "null"}
    options |= {"csv.ignore-parse-errors": "false"}
    create(env, "lenient", columns, options | {"format.on-error": "skip"})
    create(env, "strict", columns, options)
    found = rows(env, "SELECT id, s, CAST(d AS STRING), o FROM lenient")
    assert found == [(1, "a;b", "2020-01-02", 0), (2, "c", "2020-01-02", 1)]
    with pytest.raises(PySparkException, match="offset 2: the value cannot be read as csv"):
        rows(env, "SELECT id FROM strict")


def test_the_policy_of_times_does_not_count(
    spark: SparkSession, env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Spark's setting for times in texts is for its own functions."""
    name, setting = topic(cluster_a), "spark.sql.legacy.timeParserPolicy"
    produce(cluster_a.bootstrap_servers, name, [(b"k", b'{"id":1,"t":"2020-01-02 03:04:05"}')], partition=0)
    create(env, "times", "id INT, t TIMESTAMP", on(cluster_a, name, format="json"))
    before = spark.conf.get(setting)
    try:
        for policy in ("EXCEPTION", "CORRECTED", "LEGACY"):
            spark.conf.set(setting, policy)
            with as_batches(env):
                query = env.sql_query("SELECT id, DATE_FORMAT(t, 'yyyy-MM-dd') FROM times")
            assert [tuple(row) for row in query.collect()] == [(1, "2020-01-02")]
    finally:
        spark.conf.set(setting, str(before))


PROTOBUF = 'syntax = "proto3"; message Value { string v = 1; }'
UPSERTS: dict[str, tuple[list[bytes | None], list[tuple[int, str | None, str]]]] = {
    "json": (
        [b'{"v":"a"}', b'{"v":1}', None, b"", b'{"v":null}'],
        [(0, "a", "+U"), (1, "1", "+U"), (2, None, "-D"), (4, None, "+U")],
    ),
    "avro": (  # the second text has its length in two bytes, the fourth message is cut off
        [b"\x02\x02a", b"\x02\x82\x00a", None, b"", b"\x00"],
        [(0, "a", "+U"), (1, "a", "+U"), (2, None, "-D"), (4, None, "+U")],
    ),
    "protobuf": (  # the second message has the field twice, the fourth is one of defaults, the last is damaged
        [b"\x0a\x01a", b"\x0a\x01a\x0a\x01b", None, b"", b"\x0f"],
        [(0, "a", "+U"), (1, "b", "+U"), (2, None, "-D"), (3, "", "+U")],
    ),
}


@pytest.mark.parametrize("form", UPSERTS)
def test_an_upsert_table_is_decoded_where_it_is_read(
    env: TableEnvironment,
    cluster_a: KafkaBroker,
    topic: Topic,
    tmp_path: Path,
    form: str,
) -> None:
    """A value that was decoded has no bytes any more; only a value that never had any deletes its key's row."""
    values, expected = UPSERTS[form]
    messages = [(b'{"id":%d}' % i, value) for i, value in enumerate(values)]
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [*messages, (None, values[0])], partition=0)
    options = without(on(cluster_a, name, key="json", value=form), "scan.startup.mode")
    options |= {"connector": "upsert-kafka", "value.fields-include": "EXCEPT_KEY", "format.on-error": "skip"}
    if form == "protobuf":
        descriptor = tmp_path / "value.desc"
        descriptor.write_bytes(parse_schema(PROTOBUF, {}).SerializeToString())
        options |= {f"value.{form}.message-class-name": "Value", f"value.{form}.descriptor-file": str(descriptor)}
    create(env, "t", "id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED", options)
    assert rows(env, "SELECT id, v, row_kind FROM t") == expected

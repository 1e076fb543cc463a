"""Tables of SQL tests: their DDL, the rows of a query, and what is on a topic for a consumer that is not ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame

from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.sql.tables.table import table_of
from dynamic_kafka.testing import KafkaBroker
from tests.brokers import to_the_end

Topic = Callable[..., str]
"""The fixture `topic`."""

FIXTURES = Path(__file__).parents[1] / "fixtures"
DEBEZIUM = FIXTURES / "debezium"
"""What a real Debezium wrote, recorded by `examples/debezium`."""
DOCUMENTED = (FIXTURES / "flink_tables.sql").read_text(encoding="utf-8")
"""The tables of Flink's documentation."""

MURMUR2 = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}
"""org.apache.kafka.common.utils.UtilsTest.testMurmur2"""

FOR_EVER = {"retention.ms": "-1"}
"""A topic's configuration, for records of long ago: without it they are deleted at once."""


def on(broker: KafkaBroker, topic: str, **formats: str) -> dict[str, str]:
    """Options of a table on a topic, read from the earliest offset; JSON, unless `format` or `value` says otherwise."""
    options = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": broker.bootstrap_servers,
        "scan.startup.mode": "earliest-offset",
    }
    if "key" in formats or "value" in formats:
        return options | {f"{part}.format": name for part, name in {"value": "json", **formats}.items()}
    return options | {"format": "json", **formats}


def without(options: Mapping[str, str], *names: str) -> dict[str, str]:
    """The options but for some."""
    return {name: text for name, text in options.items() if name not in names}


def ddl(name: str, columns: str, options: Mapping[str, str]) -> str:
    """A CREATE TABLE."""
    inside = ", ".join(f"'{key}' = '{text}'" for key, text in options.items())
    return f"CREATE TABLE {name} ({columns}) WITH ({inside})"


def create(env: TableEnvironment, name: str, columns: str, options: Mapping[str, str]) -> None:
    """Make a table."""
    env.execute_sql(ddl(name, columns, options))


def create_json(env: TableEnvironment, name: str, columns: str, broker: KafkaBroker, topic: str, **more: str) -> None:
    """A JSON table on a topic, read from the earliest offset; `more` are options, with `_` for `.` and `__` for `-`."""
    options = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": broker.bootstrap_servers,
        "scan.startup.mode": "earliest-offset",
        "format": "json",
    }
    options |= {key.replace("__", "-").replace("_", "."): text for key, text in more.items()}
    if "value.format" in options:
        del options["format"]
    if options["connector"] == "upsert-kafka":
        del options["scan.startup.mode"]
    create(env, name, columns, options)


@contextmanager
def as_batches(env: TableEnvironment) -> Iterator[None]:
    """Tables that have no end get one, the records that are there now, and queries are batches."""
    tables, mode = env._catalog.tables, env.get_config().mode
    before = dict(tables)
    tables |= {
        key: table_of(
            replace(table.definition, options={**table.definition.options, "scan.bounded.mode": "latest-offset"})
        )
        for key, table in before.items()
        if not table.bounded
    }
    env.get_config().set("execution.runtime-mode", "batch")
    try:
        yield
    finally:
        tables |= before
        env.get_config().set("execution.runtime-mode", mode)


def rows(env: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    """What a query gives in batch mode, sorted; tables without an end are read up to the records that are there now."""
    with as_batches(env):
        return sorted((tuple(row) for row in env.execute_sql(query).collect()), key=str)


def write(env: TableEnvironment, statement: str) -> None:
    """Run an INSERT in batch mode."""
    rows(env, statement)


def first_rows(env: TableEnvironment, query: str, count: int) -> list[tuple[Any, ...]]:
    """The first rows of a stream, sorted; then it is stopped."""
    found = env.execute_sql(query).collect()
    try:
        return sorted((tuple(row) for row in islice(found, count)), key=str)
    finally:
        found.close()  # type: ignore[attr-defined]  # a stream's rows are a generator


def union(names: Sequence[str], columns: str) -> str:
    """One query of many tables, so that Spark starts one job; each row begins with its table's name."""
    return " UNION ALL ".join(f"SELECT '{name}' AS name, {columns} FROM {name}" for name in names)


class Got(NamedTuple):
    """A record as a consumer has it."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes | None]] | None


def records(broker: KafkaBroker, *topics: str) -> list[Got]:
    """What `read_committed` shows up to the end, by topic, partition and offset."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    parts = [TopicPartition(t, p, 0) for t in topics for p in admin.list_topics(t, timeout=20).topics[t].partitions]
    found: list[Got] = []
    for message in to_the_end(broker.bootstrap_servers, parts):
        topic, partition = message.topic(), message.partition()
        assert topic is not None
        assert partition is not None
        headers = cast("list[tuple[str, bytes | None]] | None", message.headers())
        found.append(Got(topic, partition, message.key(), message.value(), message.timestamp()[1], headers))
    return sorted(found, key=lambda got: got[:2])


def commit(broker: KafkaBroker, group: str, topic: str, *offsets: int) -> None:
    """Commit a group's offsets of a topic's first partitions, as a consumer would."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "log_level": 3})
    try:
        consumer.commit(offsets=[TopicPartition(topic, p, o) for p, o in enumerate(offsets)], asynchronous=False)
    finally:
        consumer.close()


def handed_over(df: DataFrame) -> int:
    """The number of rows that Spark gets of the source for a query."""
    df.collect()
    leaves = df._jdf.queryExecution().executedPlan().collectLeaves()
    (scan,) = [leaves.apply(i) for i in range(leaves.size())]
    return int(scan.metrics().get("numOutputRows").get().value())

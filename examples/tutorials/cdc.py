"""The changes of a database's table, as Debezium writes them to Kafka, become a table that is always up to date."""

import json
import sqlite3
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession

from dynamic_kafka.changelog import materialize
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce

TOPIC = "shop.public.customers"
Row = dict[str, object] | None


# --8<-- [start:change]
def change(servers: str, before: Row, after: Row) -> None:
    """Write what Debezium writes for an INSERT (no `before`), an UPDATE or a DELETE (no `after`)."""
    operation = "c" if before is None else "d" if after is None else "u"
    key = json.dumps({"id": (after or before or {})["id"]})
    messages: list[tuple[str, str | None]] = [(key, json.dumps({"before": before, "after": after, "op": operation}))]
    if after is None:
        messages.append((key, None))  # a tombstone, so that compaction forgets the key
    produce(servers, TOPIC, messages)
    # --8<-- [end:change]


# --8<-- [start:target]
def into_sqlite(upserts: DataFrame, deletes: DataFrame, _: int) -> None:
    """Apply a batch in one transaction: all of it, or nothing. A batch that Spark repeats has the same result."""
    with closing(sqlite3.connect("shop.db")) as database, database:
        database.executemany("DELETE FROM customers WHERE id = ?", deletes.collect())
        database.executemany("REPLACE INTO customers VALUES (?, ?, ?)", upserts.select("id", "name", "city").collect())
        # --8<-- [end:target]


# --8<-- [start:show]
def show() -> None:
    """Print the table."""
    with closing(sqlite3.connect("shop.db")) as database:
        for row in database.execute("SELECT id, name, city FROM customers ORDER BY id"):
            print(*row)
        print("--")
        # --8<-- [end:show]


with KafkaBroker() as broker:
    servers = broker.bootstrap_servers
    broker.create_topic(TOPIC, partitions=2)
    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    with closing(sqlite3.connect("shop.db")) as shop, shop:
        shop.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT)")

    # --8<-- [start:table]
    env = TableEnvironment(spark)
    env.execute_sql(f"""
        CREATE TABLE changes (
          id BIGINT, name STRING, city STRING,
          `offset` BIGINT METADATA VIRTUAL
        ) WITH (
          'connector' = 'kafka', 'topic' = '{TOPIC}', 'properties.bootstrap.servers' = '{servers}',
          'scan.startup.mode' = 'earliest-offset', 'format' = 'debezium-json'
        )""")
    # --8<-- [end:table]

    # --8<-- [start:follow]
    def follow() -> None:
        """Apply the changes that are there, and end. Without the trigger, the query goes on for ever."""
        writer = materialize(env.from_path("changes"), ["id"], into_sqlite).option("checkpointLocation", "checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()
        # --8<-- [end:follow]

    # --8<-- [start:first]
    ada: Row = {"id": 1, "name": "Ada", "city": "Oslo"}
    ben: Row = {"id": 2, "name": "Ben", "city": "Bern"}
    change(servers, None, ada)
    change(servers, None, ben)
    follow()
    show()
    # --8<-- [end:first]

    # --8<-- [start:second]
    change(servers, ada, {"id": 1, "name": "Ada", "city": "Rome"})
    change(servers, ben, None)
    change(servers, None, {"id": 3, "name": "Eve", "city": "Bonn"})
    follow()
    show()
    # --8<-- [end:second]

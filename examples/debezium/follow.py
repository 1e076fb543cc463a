"""Keep Delta tables up to date from the shop's change stream, as a Spark job of your own would do it.

`main.py` runs it in `.venv-spark42`, because Delta has a release for Spark 4.2. When its standard input ends, it applies the
remaining changes and prints each table's rows as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dynamic_kafka.changelog import delta, materialize
from dynamic_kafka.sql import TableEnvironment

__all__ = ["COLUMNS", "KEYS", "create_table"]

COLUMNS = {
    "customers": "id INT, name STRING, email STRING, balance DECIMAL(10, 2), vip BOOLEAN, joined TIMESTAMP_LTZ(6), "
    "city STRING",
    "orders": "region STRING, number BIGINT, customer INT, amount DOUBLE, note STRING",
}
"""The columns of each table, in Flink's SQL."""

KEYS = {"customers": ["id"], "orders": ["region", "number"]}
"""The key columns of each table."""


def create_table(
    environment: TableEnvironment,
    table: str,
    bootstrap_servers: str,
    topic: str,
    *,
    with_schema: bool,
    options: str = "",
) -> None:
    """Declare one of the shop's tables as a stream of changes."""
    environment.execute_sql(
        f"""
        CREATE TABLE {table} (
          {COLUMNS[table]},
          `offset` BIGINT METADATA VIRTUAL,
          PRIMARY KEY ({", ".join(KEYS[table])}) NOT ENFORCED
        ) WITH (
          'connector' = 'kafka',
          'topic' = '{topic}',
          'properties.bootstrap.servers' = '{bootstrap_servers}',
          'scan.startup.mode' = 'earliest-offset',
          'format' = 'debezium-json',
          'debezium-json.schema-include' = '{str(with_schema).lower()}',
          'debezium-json.timestamp-format.standard' = 'ISO-8601'{options}
        )"""
    )


def main() -> None:
    """Follow until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap_servers", "topic_prefix", "folder", "jars"):
        parser.add_argument(name)
    parser.add_argument("--with-schema", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", arguments.jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    environment = TableEnvironment(spark)

    def writer(table: str) -> DataStreamWriter:
        changes = environment.from_path(table)
        return materialize(changes, KEYS[table], delta(f"{folder}/{table}")).option(
            "checkpointLocation", f"{folder}/checkpoints/{table}"
        )

    for table in KEYS:
        topic = f"{arguments.topic_prefix}.public.{table}"
        create_table(environment, table, arguments.bootstrap_servers, topic, with_schema=arguments.with_schema)
        columns = environment.from_path(table).drop("row_kind", "offset").schema
        spark.createDataFrame([], columns).write.format("delta").save(f"{folder}/{table}")
    queries = [writer(table).start() for table in KEYS]
    print("following", flush=True)
    sys.stdin.read()
    for query in queries:
        query.stop()
    # Started again where they stopped, the queries process all changes up to now, and end.
    for query in [writer(table).trigger(availableNow=True).start() for table in KEYS]:
        query.awaitTermination()
    rows = {
        table: [row.asDict() for row in spark.read.format("delta").load(f"{folder}/{table}").orderBy(*keys).collect()]
        for table, keys in KEYS.items()
    }
    print(json.dumps(rows, default=_text), flush=True)


def _text(value: Any) -> str:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)


if __name__ == "__main__":
    main()

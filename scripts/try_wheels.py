"""Read and write with what is installed: README's program, then two clusters, a stream, exactly-once, SQL.

`scripts/try-wheels` runs it.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import tempfile
from importlib.metadata import metadata
from pathlib import Path

from pyspark.sql import SparkSession

import dynamic_kafka
from dynamic_kafka.native import kernel
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce

ROWS = 1_000


def run_readme() -> None:
    """Run the first program of README, which is the description of what is installed, and look for its last row."""
    program = re.findall(r"^```python\n(.*?)^```", str(metadata("pyspark-dynamic-kafka")), re.DOTALL | re.MULTILINE)[0]
    shown = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "flight 3 from jfk" in shown, shown


def main() -> None:
    """Fail if a row is missing, or if the kernel cannot be used."""
    run_readme()
    version = kernel().__version__
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    dynamic_kafka.register(spark)
    with KafkaBroker() as one, KafkaBroker() as two, tempfile.TemporaryDirectory() as folder:
        for broker, first in ((one, 0), (two, ROWS)):
            broker.create_topic("orders", partitions=2)
            produce(
                broker.bootstrap_servers,
                "orders",
                [(str(i), f'{{"number": {i}, "name": "n{i}"}}') for i in range(first, first + ROWS)],
            )
        one.create_topic("copy", partitions=2)
        streams = Path(folder, "streams.yaml")
        streams.write_text(
            "- streamId: orders\n  clusterMetadataList:\n"
            + "".join(
                f"    - {{clusterId: {name}, bootstrapServers: '{broker.bootstrap_servers}', topics: [orders]}}\n"
                for name, broker in (("one", one), ("two", two))
            )
        )
        query = (
            spark.readStream.format("dynamic-kafka")
            .options(**{"metadata-service": "file", "metadata-service.path": str(streams), "stream-ids": "orders"})
            .option("startingOffsets", "earliest")
            .load()
            .select("key", "value")
            .writeStream.format("dynamic-kafka")
            .option("kafka.bootstrap.servers", one.bootstrap_servers)
            .option("topic", "copy")
            .option("sink.delivery-guarantee", "exactly-once")
            .option("sink.transactional-id-prefix", "copy")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        env = TableEnvironment(spark)
        env.execute_sql(
            "CREATE TABLE copied (number BIGINT, name STRING) WITH ('connector' = 'kafka', 'topic' = 'copy', "
            f"'properties.bootstrap.servers' = '{one.bootstrap_servers}', 'scan.startup.mode' = 'earliest-offset', "
            "'scan.bounded.mode' = 'latest-offset', "
            "'properties.isolation.level' = 'read_committed', 'format' = 'json')"
        )
        rows = env.sql_query("SELECT * FROM copied").collect()
        assert sorted(row["number"] for row in rows) == list(range(2 * ROWS)), len(rows)
        assert all(row["name"] == f"n{row['number']}" for row in rows)
    spark.stop()
    print(
        f"Python {platform.python_version()}: {len(rows)} rows read and written exactly once, with the kernel {version}"
    )


if __name__ == "__main__":
    main()

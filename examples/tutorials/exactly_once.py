"""A query is killed while it copies payments, and each payment is in the target once."""

import os
import signal
import subprocess
import sys
import time

from pyspark.sql import SparkSession

from dynamic_kafka import read_arrow
from dynamic_kafka.testing import KafkaBroker, produce

PAYMENTS = 6_000


# --8<-- [start:query]
def copy_payments(servers: str) -> None:
    """Copy the topic `payments` to the topic `ledger`, in batches of 1,000, until somebody ends this process."""
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    payments = (
        spark.readStream.format("dynamic-kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "payments")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "1000")
        .load()
    )
    (
        payments.select("key", "value")
        .writeStream.format("dynamic-kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "ledger")
        .option("sink.delivery-guarantee", "exactly-once")
        .option("sink.transactional-id-prefix", "ledger")
        .option("checkpointLocation", "checkpoint")
        .start()
        .awaitTermination()
    )
    # --8<-- [end:query]


# --8<-- [start:count]
def committed(servers: str) -> list[str]:
    """Return the payments in the topic `ledger`, as a reader with `read_committed` sees them."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": "ledger", "kafka.isolation.level": "read_committed"}
    return [bytes(value).decode() for value in read_arrow(options, ["value"]).read_all()["value"].to_pylist()]
    # --8<-- [end:count]


# --8<-- [start:run]
def run_until(rows: int, servers: str) -> None:
    """Run the query in a process of its own until that many payments are published, then kill it."""
    command = [sys.executable, __file__, servers]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    while len(committed(servers)) < rows:
        assert process.poll() is None, "the query has ended"
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)  # Spark's driver, its JVM and its Python workers
    process.wait()
    # --8<-- [end:run]


# --8<-- [start:main]
def main() -> None:
    """Kill the query midway, run it again, and count."""
    with KafkaBroker() as broker:
        servers = broker.bootstrap_servers
        broker.create_topic("payments", partitions=4)
        broker.create_topic("ledger", partitions=4)
        produce(servers, "payments", [(f"{n}", f"payment {n}") for n in range(PAYMENTS)])
        for rows in 2_000, PAYMENTS:
            run_until(rows, servers)
            print(f"Killed when the ledger had {rows:,} payments or more")
        payments = committed(servers)
        print(f"In the ledger: {len(payments):,} payments, {len(set(payments)):,} different ones")
        # --8<-- [end:main]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        copy_payments(sys.argv[1])
    else:
        main()

"""A shop to look at: orders on two Kafka clusters, and one query with a metrics port, which copies them to invoices."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import yaml
from confluent_kafka import KafkaError, Message, Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that everybody uses
from pyspark.sql.streaming.query import StreamingQuery

import dynamic_kafka
from dynamic_kafka.testing import KafkaBroker

__all__ = ["QUERY", "Shop", "free_port"]

QUERY = "billing"
_TOPIC, _INVOICES = "orders", "invoices"
_PARTITIONS = 8
_TICK_S = 0.05
_JVM_END_S = 15
_FLUSH_S = 30


def free_port() -> int:
    """Return a port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Shop:
    """The clusters `eu` and `us`, a writer of orders, a Spark session, and the query.

    Args:
        scratch: A folder for all files.
        orders_per_s: The orders that are written to each cluster in a second.
    """

    def __init__(self, scratch: Path, orders_per_s: float = 200) -> None:
        self.scratch = scratch
        self.metadata_file = scratch / "streams.yaml"
        self.brokers = {name: KafkaBroker() for name in ("eu", "us")}
        self.port = free_port()
        self.orders_per_s = {(name, p): orders_per_s / _PARTITIONS for name in self.brokers for p in range(_PARTITIONS)}
        """The orders that are written in a second, by cluster and partition. It may be changed at any time."""
        self.written = 0
        self._closing = threading.Event()
        self._writer = threading.Thread(target=self._write, name="orders", daemon=True)
        self._spark: SparkSession | None = None
        self.query: StreamingQuery | None = None

    def __enter__(self) -> Self:
        try:
            for broker in self.brokers.values():
                broker.start().create_topic(_TOPIC, _PARTITIONS)
            self.brokers["eu"].create_topic(_INVOICES, 2)
            self._spark = _session(self.scratch)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stop_writing(self) -> None:
        """Write no more orders, and wait until those that were written are acknowledged."""
        self._closing.set()
        if self._writer.is_alive():
            self._writer.join()

    def close(self) -> None:
        """Stop all."""
        self._closing.set()
        if self._spark is not None:
            jvm = self._spark.sparkContext._gateway.proc  # type: ignore[union-attr]
            for query in self._spark.streams.active:
                query.stop()
            self._spark.stop()
            jvm.stdin.close()
            jvm.wait(_JVM_END_S)
        for broker in self.brokers.values():
            broker.close()

    @property
    def url(self) -> str:
        """The address of the status page."""
        return f"http://127.0.0.1:{self.port}/"

    def describe(self, topics: dict[str, list[str]] | None = None) -> None:
        """Write the metadata document.

        Args:
            topics: For each cluster, its topics; None is as it should be.
        """
        described = [
            {"clusterId": name, "bootstrapServers": self.brokers[name].bootstrap_servers, "topics": of_cluster}
            for name, of_cluster in (topics or {name: [_TOPIC] for name in self.brokers}).items()
        ]
        new = self.metadata_file.with_suffix(".new")
        new.write_text(yaml.safe_dump([{"streamId": _TOPIC, "clusterMetadataList": described}], sort_keys=False))
        new.replace(self.metadata_file)

    def start(self, **options: str) -> None:
        """Start to write orders, and the query.

        Args:
            options: More options of the source.
        """
        assert self._spark is not None
        self.describe()
        self._writer.start()
        orders = (
            self._spark.readStream.format("dynamic-kafka")
            .option("metadata-service", "file")
            .option("metadata-service.path", str(self.metadata_file))
            .option("stream-ids", _TOPIC)
            .option("stream-metadata-discovery-interval-ms", "2 s")
            .option("stream-metadata-discovery-failure-threshold", "100")
            .option("partition.discovery.interval.ms", "5 s")
            .option("cluster-failure-mode", "isolate")
            .option("startingOffsets", "earliest")
            .option("metrics.port", self.port)
            .option("metrics.query", QUERY)
            .options(**options)
            .load()
        )
        invoices = orders.select("key", F.concat(F.lit("invoice of "), F.col("value").cast("string")).alias("value"))
        self.query = (
            invoices.writeStream.format("dynamic-kafka")
            .option("kafka.bootstrap.servers", self.brokers["eu"].bootstrap_servers)
            .option("topic", _INVOICES)
            .option("sink.delivery-guarantee", "exactly-once")
            .option("sink.transactional-id-prefix", QUERY)
            .option("metrics.port", self.port)
            .option("metrics.query", QUERY)
            .option("checkpointLocation", str(self.scratch / "checkpoint"))
            .queryName(QUERY)
            .trigger(processingTime="1 second")
            .start()
        )

    def status(self) -> dict[str, Any] | None:
        """Return what the page is drawn from, for the query; None while there is nothing."""
        try:
            with urllib.request.urlopen(f"{self.url}status.json", timeout=5) as answer:
                queries = json.load(answer)["queries"]
        except OSError:
            return None
        return next((query for query in queries if query["query"] == QUERY), None)

    def wait(self, condition: Callable[[dict[str, Any]], object], timeout_s: float, what: str) -> dict[str, Any]:
        """Wait until the status fulfils a condition, and return it."""
        deadline = time.monotonic() + timeout_s
        while True:
            status = self.status()
            if status is not None and condition(status):
                return status
            if self.query is not None and (error := self.query.exception()) is not None:
                raise RuntimeError(f"The query has ended: {error}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"After {timeout_s:g} s still waiting until {what}. The state: {status}")
            time.sleep(0.5)

    def _write(self) -> None:
        """Write what is due, until the end. A cluster that is down gets its orders later."""
        quiet = {"log_level": 0, "message.timeout.ms": 600_000, "linger.ms": 20, "reconnect.backoff.max.ms": 500}
        servers = {name: broker.bootstrap_servers for name, broker in self.brokers.items()}
        producers = {name: Producer({"bootstrap.servers": servers[name], **quiet}) for name in servers}
        due = dict.fromkeys(self.orders_per_s, 0.0)

        def delivered(error: KafkaError | None, _: Message) -> None:
            self.written += error is None

        before, number = time.monotonic(), 0
        while not self._closing.wait(_TICK_S):
            passed, before = time.monotonic() - before, time.monotonic()
            for (name, partition), rate in self.orders_per_s.items():
                due[name, partition] += passed * rate
                for _ in range(int(due[name, partition])):
                    number += 1
                    value = json.dumps({"order": number, "amount": number % 97})
                    key = f"customer-{partition}-{number % 50}"
                    producers[name].produce(_TOPIC, key=key, value=value, partition=partition, on_delivery=delivered)
                due[name, partition] %= 1
            for producer in producers.values():
                producer.poll(0)
        for name, producer in producers.items():
            if self.brokers[name].is_running:
                producer.flush(_FLUSH_S)


def _session(scratch: Path) -> SparkSession:
    """Return a quiet local session with its files in `scratch`."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("monitoring")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(scratch / "spark"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    dynamic_kafka.register(spark)
    return spark

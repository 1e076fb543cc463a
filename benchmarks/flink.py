"""Flink as a contender: one JVM with a cluster of two slots, which stays up (`flink/Contender.java`)."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from typing import Literal, Self

from benchmarks.drivers import Child
from scripts.spark_versions import ROOT, jars

__all__ = ["FLINK", "FLINK_POM", "Flink"]

FLINK = "Flink"
FLINK_POM = ROOT / "benchmarks" / "flink" / "pom.xml"
_SOURCE = FLINK_POM.with_name("Contender.java")
# Flink's own setting for Java 17, and the heap of the Spark drivers.
_JVM = ("--add-opens", "java.base/java.util=ALL-UNNAMED", "-Xmx2g")


class Flink(Child):
    """Flink in a child process. Its times are those of the job itself, without its submission.

    Args:
        mode: The `execution.runtime-mode` of its SQL.

    Example:
        >>> with Flink() as flink:  # doctest: +SKIP
        ...     flink.read({"cluster-0": "localhost:9092"}, "orders", records=1000)
        0.2
    """

    def __init__(self, mode: Literal["batch", "streaming"] = "batch") -> None:
        self._classes = tempfile.TemporaryDirectory(prefix="benchmark-flink-")
        classpath = jars(FLINK_POM).replace(",", ":")
        subprocess.run(["javac", "-cp", classpath, "-d", self._classes.name, str(_SOURCE)], check=True)
        super().__init__(FLINK, ["java", *_JVM, "-cp", f"{classpath}:{self._classes.name}", "Contender", mode])

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._classes.cleanup()

    def __enter__(self) -> Self:
        return self

    def read(self, clusters: Mapping[str, str], topic: str, *, records: int) -> float:
        """Read a topic with the DynamicKafkaSource, only the values, and return the seconds it takes.

        Args:
            clusters: Cluster id to bootstrap servers. Each cluster has the topic.
            topic: The topic.
            records: The number of records on all clusters.

        Raises:
            RuntimeError: If Flink reads another number of records.
        """
        found = self("read", clusters=clusters, topic=topic)
        if found["rows"] != records:
            raise RuntimeError(f"Flink read {found['rows']} records, but there are {records}")
        return float(found["seconds"])

    def create_tables(self, columns: str, options: Mapping[str, str], *, records: int) -> None:
        """Create a bounded Kafka table `messages`, and `nothing`, a `blackhole` with the same columns.

        Args:
            columns: The columns in Flink's DDL.
            options: The options of the Kafka table, without those that make it read all once.
            records: The number of records of its topic.

        Raises:
            RuntimeError: If Flink reads another number of records.
        """
        bounds = {"connector": "kafka", "scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset"}
        for name, properties in (("messages", {**bounds, **options}), ("nothing", {"connector": "blackhole"})):
            self("execute", sql=f"DROP TABLE IF EXISTS {name}")
            listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
            self("execute", sql=f"CREATE TABLE {name} ({columns}) WITH ({listed})")
        rows = self("count", sql="SELECT COUNT(*) FROM messages")["rows"]
        if rows != records:
            raise RuntimeError(f"Flink's table has {rows} rows, but there are {records} records")

    def select(self) -> float:
        """Sum the amounts of the paid orders in `messages`, and return the seconds it takes."""
        self("execute", sql="CREATE TABLE IF NOT EXISTS totals (s DOUBLE, n BIGINT) WITH ('connector' = 'blackhole')")
        query = "SELECT SUM(amount), COUNT(*) FROM messages WHERE status = 'paid'"
        return float(self("insert", sql=f"INSERT INTO totals {query}")["seconds"])

    def decode(self) -> float:
        """Write all rows of `messages` to `nothing`, and return the seconds it takes."""
        return float(self("insert", sql="INSERT INTO nothing SELECT * FROM messages")["seconds"])

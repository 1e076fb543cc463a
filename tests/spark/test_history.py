"""A history in Parquet, then Kafka, in Spark: a query with state goes on across the switch."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import FOR_EVER, Topic, as_batches, create, first_rows, handed_over, on, rows, without
from tests.versions import needs

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@needs("AvailableNow")
def test_a_count_goes_on_across_the_switch_and_a_restart(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path, checkpoint: str
) -> None:
    """Spark itself writes the history; the query is stopped in it, and counts each record once."""
    name = topic(cluster_a, partitions=2)
    keys = [f"k{i % 5}" for i in range(300)]
    produce(cluster_a.bootstrap_servers, name, [(key, b"v") for key in keys[:200]])
    options = {"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": name}
    history = str(tmp_path / "h")
    records = spark.read.format("dynamic-kafka").options(**options).load()
    records.where("offset < 60").repartition(3).write.partitionBy("partition").parquet(history)
    produce(cluster_a.bootstrap_servers, name, [(key, b"v") for key in keys[200:]])

    stream = (
        spark.readStream.format("dynamic-kafka")
        .options(**options, **{"history.path": history, "maxOffsetsPerTrigger": "50"})
        .load()
        .groupBy(F.col("key").cast("string").alias("key"))
        .count()
    )
    counted: dict[str, int] = {}

    def run(*, fails_at: int | None = None) -> None:
        def take(batch: DataFrame, batch_id: int) -> None:
            if batch_id == fails_at:
                raise InterruptedError
            counted.update({row["key"]: row["count"] for row in batch.collect()})

        query = (
            stream.writeStream.outputMode("update")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .foreachBatch(take)
            .start()
        )
        if fails_at is None:
            query.awaitTermination()
        else:
            with pytest.raises(StreamingQueryException, match="InterruptedError"):
                query.awaitTermination()

    run(fails_at=1)  # in the history: it is repeated
    run()
    assert counted == dict(Counter(keys))


@pytest.mark.slow
def test_no_row_of_a_folder_of_sparks_own_sink_is_late(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path, checkpoint: str
) -> None:
    """Its files have random names. In the order of these, the watermark would run ahead of half of them."""
    name = topic(cluster_a, config=FOR_EVER)
    began_ms = 1_700_000_000_000
    options = {"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": name}
    source = spark.readStream.format("dynamic-kafka").options(**options, startingOffsets="earliest")
    for hour in range(6):
        for i in range(20):
            produce(cluster_a.bootstrap_servers, name, [(None, "v")], timestamp_ms=began_ms + 3_600_000 * hour + i)
    written = source.option("maxOffsetsPerTrigger", 20).load().writeStream.format("parquet").trigger(availableNow=True)
    written.option("checkpointLocation", f"{checkpoint}-sink").start(str(tmp_path / "h")).awaitTermination()

    history = spark.readStream.format("dynamic-kafka").options(**options, **{"history.path": str(tmp_path / "h")})
    counted = (
        history.option("maxOffsetsPerTrigger", 20)
        .load()
        .withWatermark("timestamp", "30 minutes")
        .groupBy(F.window("timestamp", "1 hour"))
        .count()
    )
    sink = counted.writeStream.outputMode("update").format("memory").queryName("counts_of_hours")
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    latest = spark.table("counts_of_hours").groupBy("window").agg(F.max("count").alias("n"))
    assert [row["n"] for row in latest.collect()] == [20] * 6
    progress = json.loads(query.recentProgress[-1].json)["sources"][0]["latestOffset"]
    assert "not exact" not in json.dumps(progress).lower()


def test_a_table_reads_its_own_columns_and_then_messages(
    spark: SparkSession, env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """Files have the columns of the table, or Kafka's records; the former switch at a time, the latter exactly."""
    name = topic(cluster_a, config=FOR_EVER)
    began_ms = 1_700_000_000_000
    for i in range(6):
        message = json.dumps({"id": i, "name": f"n{i}", "parts": [i]})
        produce(cluster_a.bootstrap_servers, name, [(None, message)], timestamp_ms=began_ms + i)
    options = without(on(cluster_a, name), "scan.startup.mode")
    raw = {"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": name}
    spark.read.format("dynamic-kafka").options(**raw).load().where("offset < 2").write.parquet(str(tmp_path / "raw"))
    columns = "id BIGINT NOT NULL, name STRING, parts ARRAY<INT>, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'"
    create(env, "of_records", columns, options | {"history.path": str(tmp_path / "raw")})

    times = F.timestamp_millis(F.lit(began_ms) + F.col("id"))
    decoded = spark.range(5).select("id", F.format_string("h%d", "id").alias("name"), times.alias("at"))
    decoded.withColumn("parts", F.array(F.col("id").cast("int"))).write.parquet(str(tmp_path / "own"))
    switch = {"history.switch": "timestamp", "history.switch.timestamp-millis": str(began_ms + 3)}
    own = options | {"history.path": str(tmp_path / "own"), "history.time-column": "at", **switch}
    create(env, "of_columns", f"{columns}, twice AS id * 2", own)

    at = [datetime.fromtimestamp((began_ms + i) / 1000, UTC).replace(tzinfo=None) for i in range(6)]
    query = "SELECT id, name, parts, at FROM"
    assert first_rows(env, f"{query} of_records", 6) == [(i, f"n{i}", [i], at[i]) for i in range(6)]
    expected = [(i, f"{'h' if i < 3 else 'n'}{i}", [i], at[i]) for i in range(6)]
    assert sorted(first_rows(env, f"{query} of_columns", 6)) == expected
    assert rows(env, "SELECT id, twice FROM of_columns WHERE name = 'h2' OR id = 5") == [(2, 4), (5, 10)]
    assert rows(env, "SELECT id, name FROM of_columns WHERE id IN (1, 4, 9)") == [(1, "h1"), (4, "n4")]
    with as_batches(env):
        df = env.sql_query("SELECT id FROM of_columns WHERE id >= 2 AND at < TO_TIMESTAMP_LTZ(1700000000005, 3)")
        assert (sorted(row["id"] for row in df.collect()), handed_over(df)) == ([2, 3, 4], 3)

"""A history in Parquet, then Kafka, in Spark: a query with state goes on across the switch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import Topic

pytestmark = [pytest.mark.broker, pytest.mark.spark]


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

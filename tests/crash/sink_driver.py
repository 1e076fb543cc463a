"""A Spark driver of its own, to be killed: from a topic into streams on several clusters, exactly once.

`drivers.Driver` runs it. The job is `{"kind": "stream", "source": {...}, "sinks": [{...}], "clusters": ["a", "b"],
"checkpoint": "...", "control": "..."}`; there are also `tasks` (2), `available_now` (false) and `restarts` (0). The plan
is never deterministic: chance spreads the rows over clusters and tasks, and each value says who wrote it:
`<value> <batch> <run> <task> <attempt>`. The kinds:

* `stream`: a streaming query into the one sink;
* `foreach`: a streaming query, each batch of which is written to all sinks by `foreachBatch`;
* `batch`: one batch write of all that is in the topic. The driver ends when it is done, or has failed.

Prints `ready` once a query runs. When `<control>/restart` appears, with any text, the query is stopped and started at
once, and `stopping <text>` and `restarted <text>` printed. A query that fails is started again as often as `restarts` says;
then the driver ends with code 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from tests.crash.drivers import session_and_job


def _signed(df: DataFrame) -> DataFrame:
    def sign(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")
        run = context.getLocalProperty("spark.jobGroup.id")
        signature = f" {batch} {run} {context.partitionId()} {context.taskAttemptId()}"
        for rows in batches:
            values = [f"{value}{signature}" for value in rows.column("value").to_pylist()]
            yield rows.set_column(rows.schema.get_field_index("value"), "value", pa.array(values, pa.string()))

    return df.mapInArrow(sign, df.schema)


def _spread(rows: DataFrame, job: dict[str, Any]) -> DataFrame:
    names = f.array(*(f.lit(name) for name in job["clusters"]))
    by_chance = f.get(names, f.floor(f.rand() * len(job["clusters"])).cast("int"))
    rows = rows.select(f.col("value").cast("string").alias("value"), by_chance.alias("cluster"))
    return _signed(rows.withColumn("wide", f.rand()).repartition(job.get("tasks", 2), "wide").drop("wide"))


def _start(spark: SparkSession, job: dict[str, Any]) -> StreamingQuery:
    rows = _spread(spark.readStream.format("dynamic-kafka").options(**job["source"]).load(), job)

    def save(batch: DataFrame, batch_id: int) -> None:
        for sink in job["sinks"]:
            _write(batch, {**sink, "txnAppId": "crash", "txnVersion": str(batch_id)})

    if job["kind"] == "foreach":
        writer = rows.writeStream.foreachBatch(save)
    else:
        (sink,) = job["sinks"]
        writer = rows.writeStream.format("dynamic-kafka").options(**sink)
    writer = writer.option("checkpointLocation", job["checkpoint"])
    return (writer.trigger(availableNow=True) if job.get("available_now") else writer).start()


def _write(rows: DataFrame, sink: dict[str, str]) -> None:
    rows.write.format("dynamic-kafka").mode("append").options(**sink).save()


def main() -> None:
    """Run the job until it is killed, or done."""
    spark, job = session_and_job(
        {
            "spark.master": "local[2,4]",  # a task may fail three times
            "spark.sql.streaming.minBatchesToRetain": "5",
        }
    )
    restart = Path(job["control"], "restart")
    if job["kind"] == "batch":
        (sink,) = job["sinks"]
        _write(_spread(spark.read.format("dynamic-kafka").options(**job["source"]).load(), job), sink)
        spark.stop()
        return
    restarts = job.get("restarts", 0)
    query = _start(spark, job)
    print("ready", flush=True)
    while True:
        try:
            if query.awaitTermination(1):
                break
        except StreamingQueryException as error:
            print("failed", error, flush=True)
            if not restarts:
                sys.exit(1)
            restarts -= 1
            query = _start(spark, job)
            continue
        if restart.exists():
            text = restart.read_text()
            restart.unlink()
            print("stopping", text, flush=True)
            query.stop()
            query = _start(spark, job)
            print("restarted", text, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

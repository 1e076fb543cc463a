"""A Spark driver of its own, to be killed: one streaming query into a sink that records each batch idempotently.

`drivers.Driver` runs it. The job is `{"options": {...}, "checkpoint": "...", "sink": "..."}`.
Prints `ready` once the query runs, and ends by itself when `<sink>/stop` holds a number and as many rows were recorded.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tests.crash.drivers import session_and_job


def recorded(sink: Path) -> list[list[Any]]:
    """[cluster, topic, partition, offset, place] of all rows in finished batches."""
    return [row for file in sink.glob("*.json") for row in json.loads(file.read_text())]


def main() -> None:
    """Run the job until it is killed or told to stop."""
    spark, job = session_and_job({"spark.master": "local[2]"})
    sink = Path(job["sink"])

    def record(batch: DataFrame, batch_id: int) -> None:
        def place(batches: Any) -> Any:
            for b in batches:  # the working directory tells executors of a standalone cluster apart
                yield b.append_column("place", pa.array([os.getcwd()] * b.num_rows))  # noqa: PTH109

        columns = ["cluster", "topic", "partition", "offset"]
        placed = batch.select(*columns).mapInArrow(
            place, "cluster string, topic string, partition int, offset long, place string"
        )
        rows = [list(row) for row in placed.collect()]
        new = sink / f"{batch_id}.new"
        new.write_text(json.dumps(rows))
        new.replace(sink / f"{batch_id}.json")

    df = spark.readStream.format("dynamic-kafka").options(**job["options"]).load()
    query = df.writeStream.foreachBatch(record).option("checkpointLocation", job["checkpoint"]).start()
    print("ready", flush=True)
    stop = sink / "stop"
    while query.isActive:
        query.awaitTermination(1)
        if stop.exists() and len(recorded(sink)) >= int(stop.read_text()):
            query.stop()
    if query.exception() is not None:
        print("failed", query.exception(), flush=True)
        sys.exit(1)
    spark.stop()


if __name__ == "__main__":
    main()

"""A Spark driver of its own, to be killed: one streaming query into an archive.

`drivers.Driver` runs it. The job is `{"options": {...}, "checkpoint": "...", "archive": "...", "stop": "..."}`.
Prints `ready` once the query runs, and ends by itself when the file `stop` is there and nothing is left to read.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dynamic_kafka import archive
from tests.crash.drivers import session_and_job


def main() -> None:
    """Run the job until it is killed or told to stop."""
    spark, job = session_and_job({"spark.master": "local[2]"})
    stream = spark.readStream.format("dynamic-kafka").options(**job["options"]).load()
    last = Path(job["stop"]).exists()
    writer = archive.write(stream, job["archive"], checkpoint=job["checkpoint"])
    query = (writer.trigger(availableNow=True) if last else writer).start()
    print("ready", flush=True)
    query.awaitTermination()
    if query.exception() is not None:
        print("failed", query.exception(), flush=True)
        sys.exit(1)
    spark.stop()


if __name__ == "__main__":
    main()

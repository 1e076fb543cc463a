"""The campaign's Spark driver: `query.Query` runs it, and gives it a JSON object a line on standard input.

* `{"do": "start", "run": 1, "source": {...}, "sink": {...}, "clusters": ["a"], "tasks": 2, "checkpoint": "..."}`
  starts the query.
* `{"do": "stop"}` stops it.
* `{"do": "end"}` ends the driver.

It prints lines that begin with `@` and hold a JSON object: `{"started": run}`, `{"stopped": run}`, `{"failed": run,
"error": text}`, `{"told": text}` for what the source reports, and `{"promised": {place: word}}` for the guarantees of the
positions that move to another cluster, and of the switch from a history.
"""

from __future__ import annotations

import json
import queue
import re
import sys
import threading
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from tests.crash.drivers import session_and_job

_LOOK_S = 0.2


def say(**what: Any) -> None:
    """Print a line for `query.Query`."""
    print("@" + json.dumps(what), flush=True)


def start(spark: SparkSession, job: dict[str, Any]) -> StreamingQuery:
    """Start the query: each row goes to a cluster and a task by chance, so no plan is deterministic."""
    rows = spark.readStream.format("dynamic-kafka").options(**job["source"]).load()
    names = f.array(*(f.lit(name) for name in job["clusters"]))
    cluster = f.get(names, f.floor(f.rand() * len(job["clusters"])).cast("int"))
    rows = rows.select("key", "value", "headers", cluster.alias("cluster")).withColumn("wide", f.rand())
    rows = rows.repartition(job["tasks"], "wide").drop("wide")
    writer = rows.writeStream.format("dynamic-kafka").options(**job["sink"])
    return writer.option("checkpointLocation", job["checkpoint"]).trigger(processingTime="300 milliseconds").start()


def tell_news(query: StreamingQuery, told: set[str]) -> None:
    """Print what the source reported and was not printed yet."""
    progress = query.lastProgress
    if progress is None:
        return
    for source in progress["sources"]:
        report = source.get("latestOffset")
        report = (json.loads(report) if isinstance(report, str) else report) or {}
        for event in report.get("events", ()):
            if event["text"] not in told:
                told.add(event["text"])
                say(told=event["text"])
        promised = {
            f"{name} {move['topic']} {move['partition']}": move["guarantee"]
            for name, cluster in report.get("clusters", {}).items()
            for move in cluster.get("continues", ())
        }
        if promise := (report.get("history") or {}).get("promise", ""):
            said = re.sub("not exact", "", promise, flags=re.IGNORECASE)
            promised["history"] = "exact" if re.search(r"\bexact\b", said, re.IGNORECASE) else promise
        if promised and (text := json.dumps(promised)) not in told:
            told.add(text)
            say(promised=promised)


def main() -> None:
    """Obey until standard input ends."""
    spark, first = session_and_job({"spark.master": "local[2,4]", "spark.sql.streaming.minBatchesToRetain": "10"})
    commands: queue.Queue[dict[str, Any]] = queue.Queue()
    commands.put(first)

    def listen() -> None:
        for line in sys.stdin:
            commands.put(json.loads(line))
        commands.put({"do": "end"})

    threading.Thread(target=listen, daemon=True).start()
    query: StreamingQuery | None = None
    run = 0
    told: set[str] = set()
    while True:
        try:
            command = commands.get(timeout=_LOOK_S)
        except queue.Empty:
            command = {"do": "look"}
        try:
            if command["do"] == "start":
                run = command["run"]
                query = start(spark, command)
                say(started=run)
            elif command["do"] == "stop" and query is not None:
                query.stop()
                query = None
                say(stopped=run)
            elif command["do"] == "end":
                break
            if query is not None:
                tell_news(query, told)
                if not query.isActive:
                    error, query = query.exception(), None
                    say(failed=run, error=str(error))
        except Exception as error:  # noqa: BLE001  whatever it is, it is what a user sees
            query = None
            say(failed=run, error=f"{type(error).__name__}: {error}")
    spark.stop()


if __name__ == "__main__":
    main()

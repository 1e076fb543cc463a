"""A driver program full of secrets: it reads, writes, fails, and shows all that a user may print. Run by a test.

It runs in a folder of its own, into which everything that it leaves behind goes: `test_secrets_left_behind` searches it.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import dynamic_kafka
from dynamic_kafka.cli.main import main
from dynamic_kafka.sql import TableEnvironment


def run(job: dict[str, Any]) -> None:
    """Do all of it; what is done is named in the output, for the test to see that it was done."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)  # at debug level Py4J logs all that is sent to the JVM
    logging.getLogger("dynamic_kafka").setLevel(logging.DEBUG)
    spark = _session()
    for part in (_streams, _sql, _failures, _tools):
        part(spark, job)
        print(f"--- {part.__name__} done", flush=True)
    spark.stop()


def _session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("secrets")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (Path.cwd() / "events").as_uri(),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.maxPlanStringLength": str(2**28),
        "spark.sql.debug.maxToStringFields": "1000",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("INFO")
    dynamic_kafka.register(spark)
    return spark


def _streams(spark: SparkSession, job: dict[str, Any]) -> None:
    """One stream over two clusters with logins, written exactly once, twice: the second run goes on from the checkpoint."""
    for options in job["sources"]:
        for _ in range(2):
            copied = spark.readStream.format("dynamic-kafka").options(**options).load()
            _show(copied)
            query = (
                copied.select("key", "value")
                .writeStream.format("dynamic-kafka")
                .options(**job["sink"])
                .option("checkpointLocation", f"checkpoints/{options['stream-ids']}-{options['metadata-service']}")
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            query.explain(extended=True)
            progress = [p.json for p in query.recentProgress]
            print(query.lastProgress, progress, query.status)
            for address in set(re.findall(r"http://127\.0\.0\.1:\d+", "".join(progress))):
                for path in ("metrics", "status.json?partitions=all", ""):
                    with urllib.request.urlopen(f"{address}/{path}", timeout=10) as answer:
                        print(answer.read().decode())
            assert query.exception() is None
    batch = spark.read.format("dynamic-kafka").options(**job["sources"][0]).load()
    _show(batch)
    print(batch.count())


def _sql(spark: SparkSession, job: dict[str, Any]) -> None:
    """A table with logins to the cluster and the registry."""
    environment = TableEnvironment(spark)
    environment.get_config().set("execution.checkpointing.dir", "checkpoints/sql")
    for statement in job["statements"]:
        result = environment.execute_sql(statement)
        with suppress(AttributeError):
            print(list(result.collect()))
    print(environment)
    with suppress(AttributeError):
        _show(environment.sql_query(job["query"]))


def _failures(spark: SparkSession, job: dict[str, Any]) -> None:
    """What goes wrong says so, without the secret in it."""

    def read(options: dict[str, str]) -> Callable[[], object]:
        return lambda: spark.read.format("dynamic-kafka").options(**options).load().collect()

    def stream(options: dict[str, str]) -> Callable[[], object]:
        def run() -> None:
            query = spark.readStream.format("dynamic-kafka").options(**options).load().writeStream.format("noop")
            query.trigger(availableNow=True).start().awaitTermination()

        return run

    def write(options: dict[str, str]) -> Callable[[], object]:
        rows = spark.createDataFrame([(b"x",)], "value binary")
        return lambda: rows.write.format("dynamic-kafka").options(**options).mode("append").save()

    makers = {"read": read, "stream": stream, "write": write}
    for kind, options in job["failures"]:
        _fails(makers[kind](options))
    for statement in job["wrong statements"]:
        _fails(partial(TableEnvironment(spark).execute_sql, statement))


def _fails(action: Callable[[], object]) -> None:
    try:
        action()
    except Exception as error:  # noqa: BLE001  whatever it is: its text is what is looked at
        traceback.print_exc()
        print(repr(error), str(error))
    else:
        raise AssertionError("this should have failed")


def _tools(spark: SparkSession, job: dict[str, Any]) -> None:
    """The command line, with and without --debug."""
    del spark
    for arguments in job["commands"]:
        with suppress(SystemExit):
            print(arguments[:2], main(arguments))


def _show(frame: DataFrame) -> None:
    frame.explain(extended=True)
    frame.explain(mode="formatted")
    print(frame, repr(frame), frame.schema.json())
    if (plan := getattr(frame, "_jdf", None)) is not None:
        print(plan.queryExecution().toString())


if __name__ == "__main__":
    run(json.loads(Path(sys.argv[1]).read_text()))

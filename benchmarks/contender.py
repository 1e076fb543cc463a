"""One Spark driver with one connector. It runs the requested measurements, one at a time.

Started as `python -m benchmarks.contender FORMAT JARS`. Each line on standard input is a JSON list [function, arguments],
and each line on standard output is its JSON result. Both connectors get the same options, named as in Spark's own connector.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cached_property, reduce
from typing import Any

from benchmarks.ready import ReadyBatches
from benchmarks.records import produce_one_each
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import col, count, expr, from_json, length, lit, rpad
from pyspark.sql.functions import sum as total
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dynamic_kafka.sql.environment import TableEnvironment

_POLL_S = 0.005
_DEADLINE_S = 900.0
_VALUE_ONLY = "value BINARY"

Options = Mapping[str, str]
Result = dict[str, Any]


class Contender:
    """The measurements. The public methods are the functions that can be requested.

    Args:
        connector: The name for `format(...)`.
        jars: The jars of Spark's own connector. Both drivers load them.
    """

    def __init__(self, connector: str, jars: str) -> None:
        self._format = connector
        self._scratch = tempfile.TemporaryDirectory(prefix="benchmark-")
        self._checkpoints = 0
        self._running: StreamingQuery | None = None
        settings = {
            "spark.jars": jars,
            "spark.driver.memory": "2g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"{self._scratch.name}/warehouse",
            "spark.log.level": "ERROR",
        }
        builder = SparkSession.builder.master("local[2]").appName(f"benchmark {connector}")
        for key, value in settings.items():
            builder = builder.config(key, value)
        self._spark = builder.getOrCreate()

    @cached_property
    def _environment(self) -> TableEnvironment:
        environment = TableEnvironment(self._spark)
        environment.get_config().set("execution.runtime-mode", "batch")
        return environment

    def batch(self, options: Options, *, aggregate: bool, value_only: bool = False) -> Result:
        """Read a topic to its end in a batch query, and return the seconds it takes.

        For `value` only, Spark's connector gets a `select`, ours a schema with this column.
        """
        began = time.perf_counter()
        reader = self._spark.read.format(self._format).options(**options)
        if value_only:
            df = reader.load().select("value") if self._format == "kafka" else reader.schema(_VALUE_ONLY).load()
        else:
            df = reader.load()
        rows = None
        if aggregate:
            rows = _aggregated(df).collect()[0][0]
        else:
            df.write.format("noop").mode("overwrite").save()
        return {"seconds": time.perf_counter() - began, "rows": rows}

    def union(self, sources: list[Options]) -> float:
        """Read all sources to their ends in one batch query, and return the seconds it takes."""
        began = time.perf_counter()
        frames = [self._spark.read.format(self._format).options(**options).load() for options in sources]
        reduce(DataFrame.union, frames).write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    def ready_batches(self, *, records: int, value_bytes: int, value_only: bool) -> float:
        """Read ready-made batches from memory, and return the seconds it takes."""
        self._spark.dataSource.register(ReadyBatches)
        began = time.perf_counter()
        reader = self._spark.read.format(ReadyBatches.name()).options(
            **{"records": records, "value-bytes": value_bytes}
        )
        df = reader.schema(_VALUE_ONLY).load() if value_only else reader.load()
        df.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    def first_batch(self, options: Options) -> float:
        """Start a stream, and return the seconds from `load()` until its first batch is done."""
        began = time.perf_counter()
        query = self._start(self._stream(options).writeStream)
        while not any(p["numInputRows"] for p in query.recentProgress):
            _check(query, began)
            time.sleep(_POLL_S)
        seconds = time.perf_counter() - began
        query.stop()
        return seconds

    def available_now(self, options: Options, *, aggregate: bool) -> Result:
        """Read a topic to its end in a streaming query that then ends, and return the seconds it takes."""
        began = time.perf_counter()
        df = self._stream(options)
        writer = _aggregated(df).writeStream.outputMode("complete") if aggregate else df.writeStream
        query = self._start(writer.trigger(availableNow=True))
        query.awaitTermination()
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "rows": sum(p["numInputRows"] for p in query.recentProgress)}

    def micro_batches(
        self, options: Options, *, targets: list[tuple[str, str, int]], rounds: int, trigger: str | None
    ) -> list[Result]:
        """Start a stream. In each round, write a record to each partition and wait until all are processed.

        Args:
            options: What to read, from the latest offsets.
            targets: (bootstrap servers, topic, partitions) to write to.
            rounds: The number of rounds.
            trigger: The processing-time trigger in whole seconds. None is the default trigger.

        Returns:
            For each round, the seconds from the first written record to the end of the batch that processed the last one,
            and the times that Spark reports for its batches: the total, and the part for the offsets (ms).
        """
        producers = [(Producer({"bootstrap.servers": servers}), topic, n) for servers, topic, n in targets]
        writer = self._stream(options).writeStream
        query = self._start(writer if trigger is None else writer.trigger(processingTime=trigger))
        query.processAllAvailable()  # from now on it reads all new records
        produce_one_each([(producer, topic, 1) for producer, topic, _ in producers])
        began = time.perf_counter()
        while sum(p["numInputRows"] for p in query.recentProgress) < len(producers):
            _check(query, began)  # the stream is running: each contender has run a task
            time.sleep(_POLL_S)
        results, seen = [], query.recentProgress[-1]["batchId"]
        for _ in range(rounds):
            if trigger is not None:
                time.sleep(1.05 - time.time() % 1)  # such triggers fire at full seconds, so one batch takes all records
            began = time.perf_counter()
            missing, batches = produce_one_each(producers), []
            while missing > 0:
                _check(query, began)
                for progress in query.recentProgress:
                    if progress["batchId"] > seen and progress["numInputRows"]:
                        seen = progress["batchId"]
                        missing -= progress["numInputRows"]
                        batches.append(progress["durationMs"])
                time.sleep(_POLL_S)
            result: Result = {"seconds": time.perf_counter() - began, "batches": len(batches)}
            result["batch_ms"] = sum(d["triggerExecution"] for d in batches)
            result["latest_offset_ms"] = sum(d["latestOffset"] for d in batches)
            results.append(result)
        query.stop()
        return results

    def latencies(self, options: Options, *, warm_up_s: float, seconds: float) -> list[float]:
        """Run a stream, and return for each record the time from its creation until the sink has it (ms)."""
        found: list[tuple[float, float]] = [(0.0, 0.0)]

        def note(batch: DataFrame, _: int) -> None:
            created = batch.select("timestamp").toArrow().column(0).cast("int64").to_pylist()
            now_ms = time.time() * 1000
            found.extend((us / 1000, now_ms - us / 1000) for us in created)

        query = self._start(self._stream(options).writeStream.foreachBatch(note), sink=None)
        _await_started(query)
        # By creation and not by arrival, so that a late record is not left out.
        begin_ms = (time.time() + warm_up_s) * 1000
        end_ms, began = begin_ms + seconds * 1000, time.perf_counter()
        while found[-1][0] < end_ms:
            _check(query, began)
            time.sleep(0.1)
        query.stop()
        return [latency_ms for created_ms, latency_ms in found if begin_ms <= created_ms < end_ms]

    def decode(
        self, options: Options, *, columns: str, table: Options | None = None, avro_schema: str | None = None
    ) -> Result:
        """Read a topic's messages to its end in a batch query, as columns, and return the seconds it takes.

        Spark's connector uses `from_json` or `from_avro`, ours a table of the SQL API.

        Args:
            options: The options of Spark's connector.
            columns: The columns in Spark's DDL, which is also valid in Flink's DDL here.
            table: More options of the table; its format is `json`, unless they say otherwise.
            avro_schema: The schema of Avro messages, which begin with the id that a registry gave it. None is JSON.
        """
        if self._format == "kafka":
            began = time.perf_counter()
            messages = self._spark.read.format(self._format).options(**options).load()
            if avro_schema is None:
                row = from_json(col("value").cast("string"), columns)
            else:
                row = from_avro(expr("substring(value, 6)"), avro_schema)
            rows = messages.select(row.alias("row")).select("row.*")
        else:
            began = time.perf_counter()
            self._create_table("decoded", columns, options, {"format": "json", **(table or {})})
            rows = self._environment.from_path("decoded")
        rows.write.format("noop").mode("overwrite").save()
        return {"seconds": time.perf_counter() - began, "rows": None}

    def select(
        self, options: Options, *, columns: str, by: str, table: Options | None = None, avro_schema: str | None = None
    ) -> float:
        """Sum the amounts of the paid orders among messages, and return the seconds it takes.

        Args:
            options: The options of Spark's connector.
            columns: All columns, in Spark's and in Flink's DDL. Spark reads only the used ones with `from_json`.
            by: For ours: `sql` for a table of all columns, `value.format` for a DataFrame of the used ones.
            table: As in `decode`.
            avro_schema: As in `decode`.
        """
        began = time.perf_counter()
        formats = {"format": "json", **(table or {})}
        if self._format != "kafka" and by == "sql":
            self._create_table("selected", columns, options, formats)
            query = "SELECT SUM(amount) AS s, COUNT(*) AS n FROM selected WHERE status = 'paid'"
            self._environment.sql_query(query).collect()
            return time.perf_counter() - began
        reader = self._spark.read.format(self._format).options(**options)
        if self._format == "kafka":
            value = from_json(col("value").cast("string"), columns)
            if avro_schema is not None:
                value = from_avro(expr("substring(value, 6)"), avro_schema)
            messages = reader.load().select(value.alias("value"))
        else:
            used = "value STRUCT<status: STRING, amount: DOUBLE>"
            messages = reader.options(**{f"value.{key}": text for key, text in formats.items()}).schema(used).load()
        messages.where("value.status = 'paid'").selectExpr("SUM(value.amount)", "COUNT(*)").collect()
        return time.perf_counter() - began

    def insert(self, before: list[str], insert: str) -> float:
        """Run an INSERT as a stream with an end, after other statements, and return the seconds it takes."""
        environment = TableEnvironment(self._spark)
        environment.get_config().set("execution.runtime-mode", "streaming")
        for statement in before:
            environment.execute_sql(statement)
        began = time.perf_counter()
        environment.execute_sql(insert).wait()
        seconds = time.perf_counter() - began
        environment.get_config().reset()
        return seconds

    def count(self, options: Options) -> float:
        """Count the messages, and return the seconds it takes."""
        began = time.perf_counter()
        reader = self._spark.read.format(self._format).options(**options)
        messages = reader.load() if self._format == "kafka" else reader.schema("partition INT").load()
        messages.count()
        return time.perf_counter() - began

    def count_since(self, options: Options, *, since_ms: int, by: str) -> float:
        """Count the messages since a time, and return the seconds it takes.

        Args:
            options: The options of Spark's connector.
            since_ms: The time.
            by: For ours: `where` for a condition of the query, `start` for the startup mode of its table.
        """
        began = time.perf_counter()
        if self._format == "kafka":
            messages = self._spark.read.format(self._format).options(**options).load()
            messages.where(f"timestamp >= timestamp_millis({since_ms})").count()
            return time.perf_counter() - began
        start = {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": str(since_ms)}
        columns = "id BIGINT, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'"
        self._create_table("since", columns, options, {"format": "json", **(start if by == "start" else {})})
        where = f"WHERE ts >= TO_TIMESTAMP_LTZ({since_ms}, 3)" if by == "where" else ""
        self._environment.sql_query(f"SELECT COUNT(*) AS n FROM since {where}").collect()
        return time.perf_counter() - began

    def write(self, options: Options, *, rows: int, value_bytes: int) -> Result:
        """Write rows in a batch, generated in two tasks, and return the seconds it takes."""
        df = self._spark.range(0, rows, 1, 2).select(rpad(col("id").cast("string"), value_bytes, "x").alias("value"))
        began = time.perf_counter()
        df.write.format(self._format).options(**options).mode("append").save()
        return {"seconds": time.perf_counter() - began}

    def write_micro_batches(self, options: Options, *, rows_per_second: int, batches: int, warm_up: int) -> list[float]:
        """Write a stream of few rows, and return the time of each micro-batch (ms, `addBatch`) after the warm-up batches."""
        df = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", str(rows_per_second)).load()
        query = self._start(df.select(col("value").cast("string")).writeStream.options(**options), sink=self._format)
        found: dict[int, float] = {}
        began = time.perf_counter()
        while len(found) < warm_up + batches:
            _check(query, began)
            found |= {p["batchId"]: p["durationMs"]["addBatch"] for p in query.recentProgress if p["numInputRows"]}
            time.sleep(0.2)
        query.stop()
        return [found[batch] for batch in sorted(found)][warm_up : warm_up + batches]

    def start(self, options: Options) -> None:
        """Start a stream that runs until `stop`."""
        self._running = self._start(self._stream(options).writeStream)
        _await_started(self._running)

    def progress(self) -> Result:
        """Return the progress of the running stream."""
        assert self._running is not None
        _check(self._running, time.perf_counter())
        last = self._running.lastProgress
        assert last is not None
        return {"batch": last["batchId"], "rows_per_second": last["processedRowsPerSecond"]}

    def stop(self) -> None:
        """Stop the running stream."""
        assert self._running is not None
        self._running.stop()

    def close(self) -> None:
        """End the session."""
        self._spark.stop()
        self._scratch.cleanup()

    def _create_table(self, name: str, columns: str, options: Options, more: Options) -> None:
        more = {"scan.startup.mode": "earliest-offset", **more}
        self._environment.execute_sql(f"DROP TABLE IF EXISTS {name}")
        self._environment.execute_sql(
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'kafka', "
            + "".join(f"'{option}' = '{text}', " for option, text in more.items())
            + f"'topic' = '{options['subscribe']}', "
            "'scan.bounded.mode' = 'latest-offset', "
            f"'properties.bootstrap.servers' = '{options['kafka.bootstrap.servers']}')"
        )

    def _stream(self, options: Options) -> DataFrame:
        return self._spark.readStream.format(self._format).options(**options).load()

    def _start(self, writer: DataStreamWriter, sink: str | None = "noop") -> StreamingQuery:
        self._checkpoints += 1
        writer = writer.option("checkpointLocation", f"{self._scratch.name}/checkpoint-{self._checkpoints}")
        return (writer.format(sink) if sink else writer).start()


def _aggregated(df: DataFrame) -> DataFrame:
    return df.agg(count(lit(1)), total(length("value")))


def _await_started(query: StreamingQuery) -> None:
    """Wait until the stream has finished a trigger."""
    began = time.perf_counter()
    while query.lastProgress is None:
        _check(query, began)
        time.sleep(_POLL_S)


def _check(query: StreamingQuery, since: float) -> None:
    error = query.exception()
    if error is not None:
        raise error
    if time.perf_counter() - since > _DEADLINE_S:
        raise TimeoutError(f"The stream did not process the expected records within {_DEADLINE_S:.0f} s")


def _serve() -> None:
    # Spark and its children may write to standard output, so the answers get their own file descriptor.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    contender = Contender(*sys.argv[1:])
    answers.write("ready\n")
    for line in sys.stdin:
        name, arguments = json.loads(line)
        function: Callable[..., Any] = getattr(contender, name)
        answers.write(json.dumps(function(**arguments)) + "\n")
    contender.close()


if __name__ == "__main__":
    _serve()

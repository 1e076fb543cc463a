"""A year of flights by one query: the first half from Parquet files, the rest from Kafka, and the same numbers as pandas.

* The first half of the flights of 2013 is written to three clusters, one for each airport, and archived by day.
* Kafka deletes what is archived, so that only the files have it. The second half is written.
* A query reads the archive, and goes on with Kafka behind it. It is stopped in the archive, and started again.

At the end, every carrier's count and mean delay are compared with the values that pandas computes from the file, and every
flight must have been read exactly once. Run it with `python examples/flights/history.py`; it takes about a minute.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pandas as pd
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from clusters import Clusters
from delays import Delays, read_flights, source_report, spark_session, start_query
from departures import AIRPORTS, load_departures
from dynamic_kafka import archive
from verdict import judge

_PER_BATCH = 8  # the history takes about so many batches
_LIMIT_S = 120


def main() -> int:
    """Run the example. Return 0 only if every flight was counted exactly once, half of them from files."""
    parser = argparse.ArgumentParser(description="Read half a year of flights from Parquet, and the rest from Kafka.")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N flights of the year")
    departures = load_departures(parser.parse_args().limit)
    # Here no topic moves: each airport has a cluster of its own.
    departures = departures.assign(cluster=departures["origin"].str.lower())
    console = Console()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flights-history-")))
        clusters = stack.enter_context(closing(Clusters(AIRPORTS, scratch / "streams.yaml")))
        console.print("Starting three Kafka brokers and Spark")
        with ThreadPoolExecutor() as pool:
            list(pool.map(clusters.create, AIRPORTS, map("flights-{}".format, AIRPORTS)))
        clusters.describe({name: [f"flights-{name}"] for name in AIRPORTS})
        spark = stack.enter_context(spark_session(scratch))
        half = len(departures) // 2

        written = _write(clusters, departures[:half])
        archived = str(scratch / "archive")
        writer = archive.write(
            read_flights(spark, clusters.metadata_file, startingOffsets="earliest"),
            archived,
            checkpoint=str(scratch / "archiving"),
        )
        writer.trigger(availableNow=True).start().awaitTermination()
        archive.compact(archived)
        _delete(clusters)
        console.print(
            f"{half:,} flights are in {len(archive.files(archived))} files, one for each day, and Kafka has deleted them"
        )
        written += _write(clusters, departures[half:])

        per_trigger = str(max(half // _PER_BATCH, 1))
        records = read_flights(
            spark, clusters.metadata_file, maxOffsetsPerTrigger=per_trigger, **{"history.path": archived}
        )
        delays = Delays()
        query = start_query(records, scratch / "checkpoint", delays)
        _wait(query, delays, 1)  # of a flight
        query.stop()
        stopped_at = delays.by_cluster().total()
        console.print(f"The query was stopped after {stopped_at:,} flights, and is started again")
        query = start_query(records, scratch / "checkpoint", delays)
        _wait(query, delays, len(departures))
        query.processAllAvailable()  # a record that is read twice would arrive now
        history = (source_report(query) or {})["history"]
        query.stop()
    console.print(history["promise"])
    verdict = judge(departures, written, delays)
    console.print(*verdict.tables(), sep="\n")
    console.print(
        f"{history['read']:,} flights from Parquet, {len(departures) - history['read']:,} from Kafka, "
        f"{verdict.lost:,} lost, {verdict.twice:,} twice"
    )
    return 0 if verdict.ok and history["read"] == half and stopped_at < half else 1


def _write(clusters: Clusters, flights: pd.DataFrame) -> Counter[str]:
    """Write flights to their clusters, each with its day as the record's time, and return how many each one has taken."""
    written: Counter[str] = Counter()
    for name, of in flights.groupby("cluster"):
        producer = Producer({"bootstrap.servers": clusters.bootstrap_servers(str(name)), "enable.idempotence": True,
                             "queue.buffering.max.messages": 1_000_000, "linger.ms": 20, "log_level": 0})  # fmt: skip
        values = of.drop(columns=["cluster", "topic"]).to_json(orient="records", lines=True).splitlines()
        for carrier, month, day, value in zip(of["carrier"], of["month"], of["day"], values, strict=True):
            time_ms = int(dt.datetime(2013, month, day, 12, tzinfo=dt.UTC).timestamp() * 1000)
            producer.produce(f"flights-{name}", value, carrier, timestamp=time_ms)
        if producer.flush(_LIMIT_S):
            raise TimeoutError(f"The cluster {name} has not taken all flights")
        written[str(name)] = len(values)
    return written


def _delete(clusters: Clusters) -> None:
    """Delete all records that are in Kafka now."""
    for name in AIRPORTS:
        admin = AdminClient({"bootstrap.servers": clusters.bootstrap_servers(name)})
        partitions = admin.list_topics(f"flights-{name}", timeout=_LIMIT_S).topics[f"flights-{name}"].partitions
        ends = [TopicPartition(f"flights-{name}", partition, OFFSET_END) for partition in partitions]
        for deleted in admin.delete_records(ends).values():
            deleted.result(_LIMIT_S)


def _wait(query: StreamingQuery, delays: Delays, flights: int) -> None:
    """Wait until the query has read so many flights."""
    deadline = time.monotonic() + _LIMIT_S
    while delays.by_cluster().total() < flights:
        if not query.isActive:
            raise RuntimeError(f"The query ended: {query.exception()}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{delays.by_cluster().total():,} of {flights:,} flights were read in {_LIMIT_S} s")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())

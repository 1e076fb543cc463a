"""The story of a move: a cluster dies and its mirror takes over, and later the first one comes back.

`make migrate` runs it in about a minute and a half. One query reads all the time. It is only killed twice, once in the
middle of a move. In the end the rows are counted against what the producer has written.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from examples.migration.copier import PARTITIONS, Copier, ends
from rich.console import Console

from dynamic_kafka.source.document.checkpoint import read_checkpoint
from dynamic_kafka.testing import KafkaBroker

_TOPIC = "orders"
_PER_S = 300
_LIMIT_S = 170.0


class Ledger:
    """The producer: numbered orders at a constant rate, to the cluster that it is told. It knows all of them."""

    def __init__(self) -> None:
        self.written = 0
        self._producer: Producer | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    def write_to(self, address: str | None) -> None:
        """Write to a cluster from now on, or to none. What was begun is finished first."""
        with self._lock:
            self._producer = None if address is None else Producer({"bootstrap.servers": address, "log_level": 0})

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._producer is not None:
                    for number in range(self.written, self.written + _PER_S // 10):
                        # Some orders look the same, one after the other: only their number of times is known.
                        value = f"order-{number - number % 3 if number % 30 < 9 else number}"
                        self._producer.produce(_TOPIC, value, key="k", partition=number // 3 % PARTITIONS)
                    self._producer.flush()
                    self.written += _PER_S // 10
            time.sleep(0.1)

    def counts(self) -> Counter[str]:
        """Return how often each order was written."""
        return Counter(f"order-{n - n % 3 if n % 30 < 9 else n}" for n in range(self.written))


class Query:
    """The query in its own process."""

    def __init__(self, scratch: Path) -> None:
        self.out = scratch / "out"
        self.document = scratch / "streams.yaml"
        self._log = (scratch / "query.log").open("ab")
        self._checkpoint = scratch / "checkpoint"
        self._arguments = [str(self.document), str(self._checkpoint), str(self.out)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again."""
        command = [sys.executable, "-m", "examples.migration.query", *self._arguments]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        self._process = subprocess.Popen(
            command, env=environment, stdout=self._log, stderr=self._log, start_new_session=True
        )

    def kill(self) -> None:
        """Kill it with all that belongs to it."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, 9)
            self._process.wait(10)

    def says(self, **clusters: dict[str, Any]) -> None:
        """Change the metadata."""
        entries = [{"clusterId": name, **entry} for name, entry in clusters.items()]
        new = self.document.with_suffix(".new")
        new.write_text(yaml.safe_dump([{"streamId": "orders", "clusterMetadataList": entries}]))
        new.replace(self.document)

    def rows(self) -> Counter[tuple[str, str]]:
        """Return how often each order was read from each cluster."""
        found: Counter[tuple[str, str]] = Counter()
        for batch in sorted(self.out.glob("batch=*")):
            if (batch / "_SUCCESS").exists():
                for part in batch.glob("part-*.parquet"):
                    table = pq.ParquetFile(part).read(columns=["value", "cluster"])
                    found.update(zip(table["value"].to_pylist(), table["cluster"].to_pylist(), strict=True))
        return found

    def read(self, cluster: str | None = None) -> int:
        """Return the number of rows, of one cluster or of all."""
        return sum(count for (_, of), count in self.rows().items() if cluster in (None, of))

    def has_compared(self, cluster: str) -> bool:
        """Return whether the checkpoint knows all records before its positions on a cluster."""
        checkpoint = read_checkpoint(str(self._checkpoint))
        batch = checkpoint.batch(checkpoint.last)
        state = batch.document(batch.source(None)).clusters[cluster]
        return all(tp in state.anchors and state.anchors[tp].until == end for tp, (_, end) in state.ranges.items())

    def is_running(self) -> bool:
        """Return whether the process is there."""
        return self._process is not None and self._process.poll() is None


def main() -> int:
    """Tell the story. Return 0 if no order is lost, and none was read twice."""
    console = Console(highlight=False)
    began = time.monotonic()

    def say(text: str, style: str = "") -> None:
        console.print(f"{time.monotonic() - began:4.0f} s  {text}", style=style, markup=False, soft_wrap=True)

    with tempfile.TemporaryDirectory(prefix="migration-demo-") as scratch:
        try:
            return _tell(say, Path(scratch))
        except Exception as error:  # noqa: BLE001  one line for the user, and what the query said last
            traceback.print_exc()
            log = Path(scratch, "query.log")
            say(f"The demo failed: {error}", "bold red")
            console.print(log.read_text()[-3000:] if log.exists() else "", markup=False)
            return 1


def _tell(say: Callable[..., None], scratch: Path) -> int:
    say("Starting two Kafka clusters, 'east' and 'west', and Spark")
    query, ledger = Query(scratch), Ledger()
    with KafkaBroker() as east, KafkaBroker() as west:
        try:
            return _story(say, query, ledger, east, west)
        finally:
            query.kill()


def _story(say: Callable[..., None], query: Query, ledger: Ledger, east: KafkaBroker, west: KafkaBroker) -> int:
    def wait(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not condition():
            if time.monotonic() > deadline or not query.is_running():
                raise TimeoutError(f"{what} did not happen; {query.read()} of {ledger.written} orders were read")
            time.sleep(0.2)

    def entry(broker: KafkaBroker, **more: Any) -> dict[str, Any]:
        return {"bootstrapServers": broker.bootstrap_servers, "topics": [_TOPIC], **more}

    east.create_topic(_TOPIC, PARTITIONS)
    west.create_topic(_TOPIC, PARTITIONS)
    older = Producer({"bootstrap.servers": west.bootstrap_servers})
    for number in range(100):
        older.produce(_TOPIC, f"older-{number}", partition=number % PARTITIONS)
    older.flush()
    admin = AdminClient({"bootstrap.servers": west.bootstrap_servers})
    deleted = admin.delete_records(
        [TopicPartition(_TOPIC, p, end) for p, end in ends(west.bootstrap_servers, _TOPIC).items()]
    )
    for done in deleted.values():
        done.result(30)  # what follows has other offsets
    forth = Copier(east.bootstrap_servers, west.bootstrap_servers, _TOPIC, {})
    to_west = entry(west, continues={"cluster": "east", "by": "records"})
    to_east = entry(east, continues={"cluster": "west", "by": "records"})
    query.says(east=entry(east), west=to_west)
    ledger.write_to(east.bootstrap_servers)
    query.start()
    wait(lambda: query.read() > 10 * _PER_S, "reading")
    say(f"{query.read():,} orders read from 'east'. 'west' is its mirror, with other offsets, and stands by")

    ledger.write_to(None)
    wait(lambda: forth.copied == ledger.written == query.read("east"), "the copy")
    wait(lambda: query.has_compared("east"), "the comparison of the copy")
    back_from = ends(west.bootstrap_servers, _TOPIC)
    forth.stop()
    east.kill()
    say("'east' is dead. Producers go to 'west', and the metadata names only 'west' now", "yellow")
    ledger.write_to(west.bootstrap_servers)
    query.says(west=to_west)
    wait(lambda: query.read("west") > 5 * _PER_S, "the move to 'west'")
    say(f"The query has moved: {query.read('west'):,} orders read from 'west'", "green")

    query.kill()
    say("The driver is killed, and started again", "yellow")
    query.start()
    read = query.read()
    wait(lambda: query.read() > read + 3 * _PER_S, "going on")

    east.start()
    back = Copier(west.bootstrap_servers, east.bootstrap_servers, _TOPIC, back_from)
    say("'east' is back, with its old records. What it has missed is copied to it")
    query.says(west=entry(west), east=to_east)
    time.sleep(5)
    ledger.write_to(None)
    query.says(east=to_east)
    time.sleep(0.7)
    query.kill()
    say("The metadata names only 'east'. The driver is killed in the middle of the move, and started again", "yellow")
    query.start()
    missed = sum(ends(west.bootstrap_servers, _TOPIC).values()) - sum(back_from.values())
    wait(lambda: back.copied == missed, "the copy")
    ledger.write_to(east.bootstrap_servers)
    before = query.read("east")
    wait(lambda: query.read("east") > before + 3 * _PER_S, "the move back")
    ledger.write_to(None)
    wait(lambda: query.read() >= ledger.written, "the end")
    time.sleep(2)
    back.stop()

    rows: Counter[str] = Counter()
    for (value, _), count in query.rows().items():
        rows[value] += count
    lost, twice = ledger.counts() - rows, rows - ledger.counts()
    say(f"The query has moved back: {query.read('east') - before:,} orders read from 'east' since", "green")
    say(
        f"{ledger.written:,} orders written, {rows.total():,} rows: {lost.total()} lost, {twice.total()} twice",
        "bold green" if not (lost or twice) else "bold red",
    )
    return 1 if lost or twice else 0


if __name__ == "__main__":
    sys.exit(main())

"""What crash tests of the sink share: clusters, rows, drivers, traps, and the check at the end."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Self

from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.brokers import committed, open_transactions, repeating, transactions
from tests.crash.drivers import DRIVER_S, Driver, environment
from tests.engine import MetadataFile
from tests.versions import RUNS_TO_THE_END

TASK_POINTS = ("task-slot-taken", "task-before-flush", "task-after-flush", "task-prepared")
"""In a worker; a task that dies there is tried again."""

_TRANSACTION_TIMEOUT_MS = 600_000
_PARTITIONS = 2


class World:
    """A topic of numbered rows, and a job that writes each to one of some clusters. Drivers end with the block.

    Args:
        brokers: By cluster; the first one has the rows, and the commit log.
        folder: For the checkpoint, the traps, the drivers' logs.
        name: Of the topics, and of the query.
        timeout_ms: `transaction.timeout.ms`; long enough by default that no test sees it.
        largest_bytes: `max.message.bytes` of the topics written to.
        sinks: The names of sinks that a query writes each batch to by `foreachBatch`; none is a sink of its own.
        drivers: How many the test starts one after the other: from the second on, each is begun with the one before.

    Attributes:
        topics: The topics written to, one for each sink.
        traps: The folder of traps.
        environment: Of a process whose Python workers are to have the traps.
    """

    def __init__(
        self,
        brokers: Mapping[str, KafkaBroker],
        folder: Path,
        name: str,
        *,
        timeout_ms: int = _TRANSACTION_TIMEOUT_MS,
        largest_bytes: int = 1_000_000,
        sinks: Sequence[str] = (),
        drivers: int = 1,
    ) -> None:
        self.brokers = brokers
        self.prefix = name
        self.rows = 0
        self._folder = folder
        self._numbers = itertools.count(1)
        self._drivers: list[Driver] = []
        self._spare: Driver | None = None
        self._spares = drivers
        self._lock = threading.Lock()
        self.traps = folder / "traps"
        self.environment = environment(Path(__file__).with_name("traps"), SINK_TRAPS=str(self.traps))
        self._control = folder / "control"
        self._checkpoint = folder / "checkpoint"
        for path in (self.traps, self._control):
            path.mkdir()
        self._from = f"{name}-in"
        self.topics = tuple(f"{name}-{sink}" for sink in sinks or ("out",))
        self._source = next(iter(brokers.values()))
        self._source.create_topic(self._from, 3)
        for broker in brokers.values():
            for topic in self.topics:
                broker.create_topic(topic, _PARTITIONS, {"max.message.bytes": str(largest_bytes)})
        file = MetadataFile(folder / "streams.yaml")
        servers = {cluster: broker.bootstrap_servers for cluster, broker in brokers.items()}
        file.write(
            **{t: {c: {"bootstrapServers": at, "topics": [t]} for c, at in servers.items()} for t in self.topics}
        )
        common = {
            "metadata-service": "file",
            "metadata-service.path": str(file.path),
            "sink.delivery-guarantee": "exactly-once",
            "sink.transactional-id-prefix": self.prefix,
            "properties.transaction.timeout.ms": str(timeout_ms),
        }
        self._kind = "foreach" if sinks else "stream"
        self._sinks = [{**common, "stream-ids": topic} for topic in self.topics]
        for sink, options in zip(sinks, self._sinks, strict=False):
            options["sink.name"] = sink

    def __enter__(self) -> Self:
        self._prepare_driver()
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self._drivers:
            driver.kill()

    # --- rows and drivers ---

    def add(self, rows: int, padding: int = 0) -> None:
        """Produce rows; `padding` makes their numbers longer by so many bytes."""
        with self._lock:
            numbers = range(self.rows, self.rows + rows)
            records = [(None, f"{n:0{padding}d}") for n in numbers]
            # Brokers are killed: without idempotence, what is repeated would be there twice.
            produce(self._source.bootstrap_servers, self._from, records, properties={"enable.idempotence": "true"})
            self.rows += rows

    def feeding(self) -> AbstractContextManager[None]:
        """Some rows every now and then, until the block ends."""
        return repeating(lambda: self.add(40))

    def start(
        self, *, tasks: int = 2, last: bool = False, restarts: int = 0, conf: Mapping[str, str] | None = None
    ) -> Driver:
        """Start a driver on the checkpoint.

        Args:
            tasks: How many tasks write a batch.
            last: Whether it writes what is there, and ends.
            restarts: How often it starts a failed query again.
            conf: More of Spark's configuration.
        """
        limit = {} if last else {"maxOffsetsPerTrigger": "400"}
        more = {"tasks": tasks, "available_now": last, "restarts": restarts}
        return self._run(self._kind, self._sinks, limit, conf, **more)

    def start_batch_write(self, version: int | None = None) -> Driver:
        """Start a driver that writes all rows by one batch write, and ends.

        Args:
            version: Of the write, whose identity it is then a part of; None gives it no identity.
        """
        identity = {} if version is None else {"txnAppId": "crash", "txnVersion": str(version)}
        return self._run("batch", [{**sink, **identity} for sink in self._sinks], {}, None)

    def _run(
        self,
        kind: str,
        sinks: Sequence[Mapping[str, str]],
        limit: Mapping[str, str],
        conf: Mapping[str, str] | None,
        **more: Any,
    ) -> Driver:
        job = {
            "kind": kind,
            "source": {
                "kafka.bootstrap.servers": self._source.bootstrap_servers,
                "subscribe": self._from,
                "startingOffsets": "earliest",
                **limit,
            },
            "sinks": sinks,
            "clusters": list(self.brokers),
            "checkpoint": str(self._checkpoint),
            "control": str(self._control),
            **more,
        }
        driver = self._spare if self._spare is not None and not conf else self._new_driver(conf or {})
        driver.run(job)
        self._spare = None
        self._prepare_driver()
        return driver

    def _prepare_driver(self) -> None:
        if self._spares > 0:
            self._spares -= 1
            self._spare = self._new_driver({})

    def _new_driver(self, conf: Mapping[str, str]) -> Driver:
        log = self._folder / f"driver-{next(self._numbers)}.log"
        self._drivers.append(Driver("tests.crash.sink_driver", log, self.environment, conf))
        return self._drivers[-1]

    def restart_query(self, driver: Driver) -> str:
        """Have the driver stop the query and start it at once; returns what it prints when it has begun to start it."""
        text = f"{next(self._numbers)}."
        new = self._folder / "restart"
        new.write_text(text)
        new.rename(self._control / "restart")
        driver.wait_for(f"stopping {text}")
        return f"restarted {text}"

    def batches(self) -> int:
        """How many batches Spark has in its commit log, counted from 0 on."""
        found = [int(p.name) for p in (self._checkpoint / "commits").glob("[0-9]*") if p.name.isdigit()]
        return max(found, default=-1) + 1

    def wait_for_batches(self, more: int, driver: Driver) -> None:
        """Wait until Spark has committed some more batches."""
        until = self.batches() + more
        wait_until(lambda: self.batches() >= until or not driver.is_running, DRIVER_S, f"batch {until}")
        assert driver.is_running, driver.output[-5000:]

    # --- traps ---

    def arm(self, point: str, mode: Literal["hold", "kill"] = "hold") -> None:
        """Set a trap; see `traps`."""
        new = self.traps / "new"
        new.write_text(mode)
        new.rename(self.traps / point)

    def wait_hit(self, point: str, driver: Driver, timeout_s: float = DRIVER_S) -> int:
        """Wait until a process is in the trap; its id."""
        hit = self.traps / f"{point}.hit"
        wait_until(lambda: hit.exists() or not driver.is_running, timeout_s, f"a process at '{point}'")
        assert hit.exists(), driver.output[-5000:]
        return int(hit.read_text())

    def release(self, point: str) -> None:
        """Let the process in the trap go on."""
        (self.traps / f"{point}.hit").unlink()

    def disarm(self) -> None:
        """Remove all traps."""
        for path in self.traps.iterdir():
            path.unlink()

    # --- the check ---

    def published(self) -> dict[tuple[str, str], list[str]]:
        """What readers see: the values by topic and cluster."""
        return {(t, c): committed(broker, t, _PARTITIONS) for t in self.topics for c, broker in self.brokers.items()}

    def times_published(self, topic: str) -> Counter[int]:
        """How often readers see each row of a topic, on all clusters together; 0 for those that they do not see."""
        values = [value for (where, _), some in self.published().items() if where == topic for value in some]
        counts = Counter(dict.fromkeys(range(self.rows), 0))
        counts.update(_number(value) for value in values)
        return counts

    def open(self) -> dict[str, list[str]]:
        """The query's open transactions by cluster."""
        return {cluster: open_transactions(broker, self.prefix) for cluster, broker in self.brokers.items()}

    def write_all(self) -> None:
        """Write what is there, with as many drivers as this version of Spark needs."""
        for _ in range(RUNS_TO_THE_END):
            last = self.start(last=True)
            assert last.wait() == 0, last.output[-5000:]

    def finish(self, driver: Driver | None = None, *, most_ids: int = 16) -> None:
        """Let a driver write the rest, then check everything.

        Args:
            driver: One that runs; it is killed when all is written. None starts a last one.
            most_ids: How many transactional ids there may be on a cluster.

        Raises:
            AssertionError: If a row is missing or there twice, if a batch is of two attempts, if a transaction stays open,
                or if there are too many transactional ids.
        """
        self.disarm()
        self.add(10)  # a batch at least, which aborts what was left open
        if driver is None:
            self.write_all()
        else:
            rows = self.rows * len(self.topics)
            wait_until(lambda: sum(map(len, self.published().values())) >= rows, DRIVER_S, "all rows")
            driver.kill()
        self.check(most_ids=most_ids)

    def check(self, *, most_ids: int = 16) -> None:
        """What `finish` says, without a driver."""
        wait_until(lambda: not any(self.open().values()), 10, f"the end of transactions: {self.open()}")
        published = self.published()
        for topic in self.topics:
            self._check_rows([value for (where, _), some in published.items() if where == topic for value in some])
        ids = {cluster: [*transactions(broker, self.prefix)] for cluster, broker in self.brokers.items()}
        assert all(len(names) <= most_ids for names in ids.values()), ids

    def _check_rows(self, values: list[str]) -> None:
        counts = Counter(map(_number, values))
        twice = sorted(number for number, count in counts.items() if count > 1)
        missing = sorted(set(range(self.rows)) - counts.keys())
        assert not twice, f"{len(twice)} rows are there twice: {twice[:20]}"
        assert not missing, f"{len(missing)} rows are missing: {missing[:20]}"
        assert len(counts) == self.rows
        runs: dict[str, set[str]] = {}
        attempts: dict[tuple[str, str], set[str]] = {}
        for _, batch, run, task, attempt in map(str.split, values):
            runs.setdefault(batch, set()).add(run)
            attempts.setdefault((batch, task), set()).add(attempt)
        assert all(len(some) == 1 for some in runs.values()), "a batch of two runs of the query"
        assert all(len(some) == 1 for some in attempts.values()), "a batch with two attempts of a task"


def _number(value: str) -> int:
    return int(value.partition(" ")[0][-9:])

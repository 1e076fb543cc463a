"""The world of a campaign: Kafka clusters behind proxies, a metadata file, rows, Spark, and one query between streams."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from dynamic_kafka.testing import wait_until
from tests.brokers import open_transactions
from tests.chaos.clusters import Cluster, make_clusters, unmount
from tests.chaos.declared import first_line
from tests.chaos.ledger import Balance, Ledger
from tests.chaos.query import Query
from tests.chaos.rows import Auditor, Feeder
from tests.crash.drivers import environment
from tests.crash.standalone import StandaloneCluster
from tests.engine import MetadataFile

__all__ = ["Entry", "World"]

_SETTLE_S = 180.0
_PARTITIONS = 2
_LARGE = {"max.message.bytes": "12000000"}
_SPARK = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.deploy.maxExecutorRetries": "-1",  # executors are killed often
    "spark.task.maxFailures": "4",
    "spark.ui.showConsoleProgress": "false",  # it would be in the middle of the lines of the log
}


@dataclass(frozen=True)
class Entry:
    """A cluster's entry in the metadata.

    Args:
        cluster: Where its brokers are.
        topic: The one topic.
        servers: The text of `bootstrapServers`; empty for the cluster's own.
        properties: More properties than the cluster's own.
        continues: The name and the topic of the cluster whose positions move to this one, by the same records.
    """

    cluster: Cluster
    topic: str
    servers: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    continues: tuple[str, str] | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """As the document has them."""
        found = {
            "bootstrapServers": self.servers or self.cluster.servers,
            "topics": [self.topic],
            "properties": {**self.cluster.properties, **dict(self.properties)},
        }
        if self.continues is not None:
            cluster, topic = self.continues
            found["continues"] = {"cluster": cluster, "by": "records", "topics": {topic: self.topic}}
        return found


class World:
    """Everything that faults happen to; everything ends with the `with` block.

    Args:
        folder: For data, logs, checkpoints.
        small: Two clusters of one broker and a local Spark, instead of three clusters and two Spark workers.
        say: Tells what happens.

    Attributes:
        clusters: By name.
        ledger: The books.
        feeder: Writes rows.
        auditor: Reads what is published.
        query: The query.
        spark: Spark's standalone cluster, if there is one.
        inputs: The entries of the stream that is read, by the cluster's name in the metadata.
        outputs: Those of the stream that is written.
        source: Options of the source, besides the metadata; change them for the starts to come.
        sink: Options of the sink.
        tasks: How many tasks write a batch.
        checkpoint: The checkpoint's folder.
        broken: The promises that the query has broken during a fault, each in a few words.
    """

    def __init__(self, folder: Path, *, small: bool, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.say = say
        self.small = small
        self.clusters: dict[str, Cluster] = {}
        self.ledger = Ledger()
        self.spark: StandaloneCluster | None = None
        self.inputs: dict[str, Entry] = {}
        self.outputs: dict[str, Entry] = {}
        self.source: dict[str, str] = {}
        self.sink: dict[str, str] = {}
        self.tasks = 2
        self.checkpoint = folder
        self.broken: list[str] = []
        self.metadata = MetadataFile(folder / "streams.yaml")
        self._era = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        try:
            self._enter()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _enter(self) -> None:
        variables = environment(Path(__file__).with_name("site"), CHAOS_CLOCK=str(self.folder / "clock"))
        conf = dict(_SPARK)
        if not self.small:
            self.spark = StandaloneCluster(self.folder, variables, ("127.0.0.1", "127.0.0.2")).__enter__()
            conf["spark.master"] = self.spark.address
        self.query = Query(self.folder, variables, conf)
        _ = self.query.driver  # Spark starts while the brokers do
        self.clusters = make_clusters(self.folder, "bc" if self.small else "abc")
        addresses = {name: cluster.bootstrap_servers for name, cluster in self.clusters.items()}
        self.feeder = Feeder(self.ledger, self._lock, addresses)
        self.auditor = Auditor(self.ledger, self._lock, addresses)
        self.renew()
        self.feeder.start()
        self.auditor.start()
        self.wait_for_rows()

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "query"):
            self.query.kill()
        if hasattr(self, "feeder"):
            self.feeder.close()
            self.auditor.close()
        if self.spark is not None:
            self.spark.__exit__()
        for cluster in self.clusters.values():
            cluster.close()
        unmount(self.folder / "b")

    @property
    def a(self) -> Cluster:
        """The cluster of three brokers."""
        return self.clusters["a"]

    @property
    def b(self) -> Cluster:
        """The cluster with a password."""
        return self.clusters["b"]

    @property
    def c(self) -> Cluster:
        """The cluster of an older line, with TLS."""
        return self.clusters["c"]

    @property
    def abilities(self) -> frozenset[str]:
        """What faults may need, and this world has."""
        found = set() if self.small else {"three-brokers", "workers"}
        if (self.folder / "b").is_mount():
            found.add("mount")
        return frozenset(found)

    @property
    def first(self) -> str:
        """The cluster of the commit log."""
        return next(iter(self.clusters))

    # --- topics and metadata ---

    def renew(self, before_start: Callable[[], None] = lambda: None) -> None:
        """Begin with new topics, a new checkpoint and a new commit log.

        Args:
            before_start: Called before the query is started, with the new topics.
        """
        if self._era:
            self.query.kill()
        self._era += 1
        rows, copy = f"rows-{self._era}", f"copy-{self._era}"
        for cluster in self.clusters.values():
            cluster.restore()
            cluster.start()
            for topic in (rows, copy):
                cluster.create_topic(topic, _PARTITIONS, _LARGE)
        with self.feeder.quiet(*self.clusters):  # what is on the way belongs to the old topics
            with self._lock:
                self.ledger.forget_pending()
            self.feeder.targets = dict.fromkeys(self.clusters, rows)
        self.inputs = {name: Entry(cluster, rows) for name, cluster in self.clusters.items()}
        self.outputs = {name: Entry(cluster, copy) for name, cluster in self.clusters.items()}
        self.write_metadata()
        self.auditor.topic = copy
        self.auditor.renew()
        self.checkpoint = self.folder / f"checkpoint-{self._era}"
        self.tasks = 2
        common = {
            "metadata-service": "file",
            "metadata-service.path": str(self.metadata.path),
            "metadata-service.allowed-references": f"file:{self.folder}/*;file:/does/not/exist",  # a fault names it
        }
        self.source = {
            **common,
            "stream-ids": "rows",
            "stream-metadata-discovery-interval-ms": "1000",
            "stream-metadata-discovery-failure-threshold": "60",
            "partition.discovery.interval.ms": "2000",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "3000",
            "drain-on-removal": "true",
            "drain-quiet-ms": "3000",
            "includeHeaders": "true",
            "properties.isolation.level": "read_committed",
        }
        self.sink = {
            **common,
            "stream-ids": "copy",
            "sink.delivery-guarantee": "exactly-once",
            "sink.transactional-id-prefix": f"chaos-{self._era}",
            "sink.commit-log.cluster": self.first,
            "properties.transaction.timeout.ms": "300000",
            "properties.max.request.size": "12000000",
        }
        before_start()
        self.start()

    @property
    def log_topic(self) -> str:
        """The topic of the commit log, on the first cluster."""
        return f"__dynamic-kafka-commits-{self.sink['sink.transactional-id-prefix']}"

    def open_transactions(self) -> list[str]:
        """The sink's transactions that are open now, on all clusters."""
        prefix = self.sink["sink.transactional-id-prefix"]
        return [name for cluster in self.clusters.values() for name in open_transactions(cluster, prefix)]

    def write_metadata(self) -> None:
        """Write the document, as `inputs` and `outputs` are now."""
        self.metadata.write(
            rows={name: entry.fields for name, entry in self.inputs.items()},
            copy={name: entry.fields for name, entry in self.outputs.items()},
        )

    @contextmanager
    def reading(self, inputs: dict[str, Entry]) -> Iterator[None]:
        """Have these entries of the stream that is read, in the block."""
        before, self.inputs = self.inputs, inputs
        self.write_metadata()
        try:
            yield
        finally:
            self.inputs = before
            self.write_metadata()

    def entry(self, name: str, **changes: Any) -> AbstractContextManager[None]:
        """Have another entry of the stream that is read, in the block."""
        return self.reading({**self.inputs, name: replace(self.inputs[name], **changes)})

    # --- the query ---

    def start(self, more: Mapping[str, str] | None = None) -> None:
        """Start the query, with more options of source or sink (`sink.`) for this one start."""
        found = dict(more or {})
        sink = {name: value for name, value in found.items() if name.startswith("sink.")}
        source = {name: value for name, value in found.items() if name not in sink}
        self.query.start(
            {
                "source": {**self.source, **source},
                "sink": {**self.sink, **sink},
                "clusters": list(self.outputs),
                "tasks": self.tasks,
                "checkpoint": str(self.checkpoint),
            }
        )

    def restart(self) -> None:
        """Stop the query in order, and start it, for example with other options."""
        self.query.stop()
        self.start()

    def backup(self, name: str) -> Path:
        """The folder of a copy of the checkpoint."""
        return self.folder / f"{name}-{self._era}"

    def copy_checkpoint(self, name: str) -> Path:
        """Copy the checkpoint, as a backup does; call it while the query does not run."""
        copy = self.backup(name)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.checkpoint, copy)
        return copy

    def reports(self) -> list[str]:
        """What the source has reported so far: its events, and its warnings in the logs of drivers and workers."""
        logs = [*self.folder.glob("driver-*.log"), *self.folder.glob("work*/*/*/stderr")]
        lines = [line for log in logs for line in log.read_text(errors="replace").splitlines() if "given up" in line]
        return list(dict.fromkeys([*self.query.told(), *(line for line in lines if not line.startswith("@"))]))

    # --- the books ---

    def is_settled(self, before: int) -> bool:
        """Whether all rows with lower numbers are published, but for those that were destroyed."""
        with self._lock:
            return not self.feeder.on_the_way(before) and not self.ledger.missing(before)

    def wait_published(self, before: int, timeout_s: float) -> None:
        """Wait until all rows with lower numbers are published, or the query has ended.

        Raises:
            TimeoutError: If neither comes in time.
        """
        wait_until(lambda: self.is_settled(before) or not self.query.is_running, timeout_s, "all rows")

    def is_settled_between(self, first: int, before: int) -> bool:
        """Whether all rows with these numbers are published, whatever became of the rows before them."""
        with self._lock:
            return not any(number >= first for number in self.ledger.missing(before))

    def pending(self, before: int) -> int:
        """How many rows with lower numbers have yet to come."""
        with self._lock:
            return len(self.ledger.missing(before))

    def balance(self, before: int) -> Balance:
        """What does not add up; see `Ledger.balance`."""
        with self._lock:
            return self.ledger.balance(before)

    def destroy(self, cluster: str, topic: str) -> int:
        """Enter into the books that all rows in a topic are destroyed; see `Ledger.destroy`."""
        with self._lock:
            return self.ledger.destroy(lambda place: (place.cluster, place.topic) == (cluster, topic))

    def wait_for_rows(self) -> None:
        """Wait until rows are published in a new world, and start the query again if it fails."""
        mark = self.feeder.next

        def come() -> bool:
            if failure := self.query.failure():
                self.say(f"the first start failed: {first_line(failure)}")
                self.start()
            return self.ledger.goes_on(mark)

        wait_until(come, _SETTLE_S, "the first rows")

    def settle(self) -> None:
        """Wait until all rows of now are published."""
        mark = self.feeder.next
        wait_until(lambda: self.is_settled(mark) or self._has_failed(), _SETTLE_S, "all rows")

    def _has_failed(self) -> bool:
        return not self.query.is_running

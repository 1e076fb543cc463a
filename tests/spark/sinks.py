"""What tests of the sink share: options, sources of rows, queries, and what is on the brokers afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from dynamic_kafka.kafka.transactions.client import TransactionState
from dynamic_kafka.sink.configure import commit_log_topic
from dynamic_kafka.sink.log.chain import Record
from dynamic_kafka.sink.log.records import decode
from dynamic_kafka.testing import KafkaBroker
from tests.brokers import transactions
from tests.spark.tables import records


def values(broker: KafkaBroker, topic: str) -> list[str]:
    """The values, sorted."""
    return sorted((got.value or b"").decode() for got in records(broker, topic))


def to(broker: KafkaBroker, topic: str | None = None, guarantee: str | None = None, **more: str) -> dict[str, str]:
    """Options; `__` stands for a dot and `_` for a dash in the names of the sink's own ones."""
    found = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    found |= {} if topic is None else {"topic": topic}
    found |= {} if guarantee is None else {"sink.delivery-guarantee": guarantee}
    return found | {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}


def once(broker: KafkaBroker, topic: str | None, prefix: str, **more: str) -> dict[str, str]:
    """Options for exactly-once."""
    return to(broker, topic, "exactly-once", sink__transactional_id_prefix=prefix, **more)


def write(rows: DataFrame, options: Mapping[str, str]) -> None:
    """A batch write."""
    rows.write.format("dynamic-kafka").mode("append").options(**options).save()


class Files:
    """A streaming source: each file is a micro-batch of its own.

    Args:
        path: An empty folder.
    """

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self._spark, self._path = spark, path
        self.count = 0

    def add(self, *rows: Mapping[str, str] | str) -> None:
        """The next file; a text stands for a row's value."""
        self.count += 1
        self.replace(*rows)

    def replace(self, *rows: Mapping[str, str] | str) -> None:
        """Other rows in the last file, as if it were the first time that it is read."""
        texts = [json.dumps({"value": row} if isinstance(row, str) else row) for row in rows]
        new = self._path / f".{self.count}"  # Spark leaves such names alone
        new.write_text("\n".join(texts))
        new.rename(self._path / f"{self.count:05}.json")

    def rows(self, schema: str = "value string") -> DataFrame:
        """What it streams."""
        return self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self._path))


def run(rows: DataFrame, options: Mapping[str, str], checkpoint: str, mode: str = "append") -> None:
    """Write what is there now."""
    writer = rows.writeStream.format("dynamic-kafka").outputMode(mode).options(**options)
    finish(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())


def finish(query: StreamingQuery) -> None:
    """Wait for the end of a query that ends by itself."""
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


@contextmanager
def running(rows: DataFrame, options: Mapping[str, str], checkpoint: str) -> Iterator[StreamingQuery]:
    """A query that goes on until the block ends."""
    writer = rows.writeStream.format("dynamic-kafka").options(**options).option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        yield query
    finally:
        query.stop()


def replay_last_batch(checkpoint: str) -> None:
    """Make Spark forget that the last batch was committed."""
    commits = Path(checkpoint, "commits")
    last = max((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


def fault(call: Callable[[], object]) -> str:
    """The first line of our error, as the user finds it in Spark's."""
    with pytest.raises(PySparkException) as caught:
        call()
    found = re.search(r"^dynamic_kafka\.errors\.\w+: (.*)$", str(caught.value), re.MULTILINE)
    assert found is not None, str(caught.value)
    return found[1]


def is_settled(broker: KafkaBroker, prefix: str) -> bool:
    """Whether no transaction of a prefix is open."""
    over = {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT, TransactionState.EMPTY}
    return set(transactions(broker, prefix).values()) <= over


def log(broker: KafkaBroker, prefix: str) -> list[Record]:
    """The records of a commit log."""
    found = [decode(got.value) for got in records(broker, commit_log_topic(prefix))]
    return [record for record in found if isinstance(record, Record)]

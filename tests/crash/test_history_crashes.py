"""Drivers killed at random moments before, at and after the switch from a history to Kafka: each row is in the sink once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynamic_kafka.testing import KafkaBroker, produce
from tests.crash.drivers import NewDriver, crashes
from tests.crash.test_crashes import batches_in, finish, wait_for_batches
from tests.engine import read_batch
from tests.histories import write

pytestmark = [pytest.mark.crash, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(3600)]

CRASHES = crashes(5)


def test_drivers_killed_across_the_switch_lose_and_repeat_nothing(
    cluster_a: KafkaBroker,
    topic: Callable[..., str],
    tmp_path: Path,
    job: dict[str, Any],
    driver: NewDriver,
    chance: random.Random,
) -> None:
    """Half of the records are in files. Each driver is killed after a few batches, at a random moment."""
    name = topic(cluster_a, partitions=3)
    batches = 3 * CRASHES + 6
    rows_of_batch = 20
    for partition in range(3):
        values = [(None, b"v")] * (batches * rows_of_batch // 3)
        produce(cluster_a.bootstrap_servers, name, values, partition=partition)
    options = {"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": name}
    rows = read_batch(options)
    kept = [
        {k: v for k, v in row.items() if k not in ("headers", "leader_epoch")}
        for row in rows
        if row["offset"] < batches * rows_of_batch // 6
    ]
    for n in range(4):
        write(tmp_path / "h" / f"{n}.parquet", kept[n::4], row_group_size=33)
    sink = Path(job["sink"])
    job["options"] = {**options, "history.path": str(tmp_path / "h"), "maxOffsetsPerTrigger": str(rows_of_batch)}
    expected = {(row["cluster"], row["topic"], row["partition"], row["offset"]) for row in rows}
    waiting = driver()
    for _ in range(CRASHES):
        running, waiting = waiting.run(job), driver()
        wait_for_batches(sink, batches_in(sink) + chance.randrange(4))
        threading.Event().wait(chance.random() / 2)  # the random point
        running.kill()
    finish(job, expected, waiting)

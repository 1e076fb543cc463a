"""An archive whose driver is killed, again and again, while the archive is compacted and verified."""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from dynamic_kafka import archive
from dynamic_kafka.history.archive.log import read_archive
from dynamic_kafka.testing import KafkaBroker, wait_until
from tests.crash.drivers import DRIVER_S, NewDriver, crashes
from tests.crash.test_crashes import held, steady_producers
from tests.engine import MetadataFile, part
from tests.versions import RUNS_TO_THE_END

pytestmark = [pytest.mark.crash, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1800)]


def test_a_killed_archive_has_each_record_once(
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    topic: Callable[..., str],
    tmp_path: Path,
    driver: NewDriver,
    chance: random.Random,
) -> None:
    """The driver is killed at random points of its batches, and each time files are compacted at random, too."""
    brokers = {"a": cluster_a, "b": cluster_b}
    name = topic(*brokers.values(), partitions=3)
    file = MetadataFile(tmp_path / "streams.yaml")
    file.write(s={c: part(b, name) for c, b in brokers.items()})
    path = str(tmp_path / "archive")
    job: dict[str, Any] = {
        "options": file.options(startingOffsets="earliest", maxOffsetsPerTrigger="60"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "archive": path,
        "stop": str(tmp_path / "stop"),
    }
    tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)

    def batches() -> int:
        state = read_archive(path)
        return 0 if state is None else sum(state.batches.values())

    module = "tests.crash.archive_driver"
    waiting = driver(module)
    with steady_producers(brokers, name):
        for _ in range(crashes(4)):
            running, waiting = waiting.run(job), driver(module)
            before = batches()
            wait_until(lambda before=before: batches() > before, DRIVER_S, "a batch")  # type: ignore[misc]
            time.sleep(chance.random())  # at any point of a batch
            if chance.random() < 0.5:
                archive.compact(path, before=tomorrow)
            running.kill()
            if chance.random() < 0.5:
                archive.compact(path, before=tomorrow)
            assert archive.verify(path).problems == ()
    Path(job["stop"]).touch()
    job["options"].pop("maxOffsetsPerTrigger")
    for last in (waiting, *(driver(module) for _ in range(RUNS_TO_THE_END - 1))):
        assert last.run(job).wait(DRIVER_S) == 0, last.output[-3000:]
    expected = set.union(*(held(broker, cluster, name) for cluster, broker in brokers.items()))
    found = archive.verify(path)
    assert found.problems == ()
    assert all(not report.unread and not report.without_record for report in found.partitions)
    columns = ["cluster", "topic", "partition", "offset"]
    rows = [tuple(row.values()) for row in ds.dataset(archive.files(path)).to_table(columns).to_pylist()]
    assert len(rows) == len(set(rows))
    assert set(rows) == expected

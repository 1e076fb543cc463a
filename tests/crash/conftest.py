"""What crash tests share: two clusters, and drivers that end with the test."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dynamic_kafka.testing import KafkaBroker
from tests.crash.drivers import Driver, NewDriver, environment


@pytest.fixture
def brokers(cluster_a: KafkaBroker, cluster_b: KafkaBroker) -> dict[str, KafkaBroker]:
    """Two clusters that are shared: not to be killed."""
    return {"a": cluster_a, "b": cluster_b}


@pytest.fixture
def chance() -> random.Random:
    """Chance of another seed in each run, which is printed."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    """A job for `tests.crash.driver`; the options are the test's."""
    sink = tmp_path / "sink"
    sink.mkdir()
    return {"checkpoint": str(tmp_path / "checkpoint"), "sink": str(sink), "options": {}}


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[NewDriver]:
    """Starts drivers of a module, which wait for their jobs; those that run after the test are killed."""
    started: list[Driver] = []

    def start(module: str = "tests.crash.driver", conf: Mapping[str, str] | None = None) -> Driver:
        started.append(Driver(module, tmp_path / f"driver-{len(started)}.log", environment(), conf))
        return started[-1]

    yield start
    for one in started:
        one.kill()

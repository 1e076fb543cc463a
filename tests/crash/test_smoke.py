"""The crash test of `make test-slow`: a streaming query is killed between the commits of two clusters, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_kafka.testing import KafkaBroker
from tests.crash.sink_world import World

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.spark]


def test_a_query_killed_while_it_publishes_goes_on_exactly_once(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, tmp_path: Path
) -> None:
    """One cluster has its part of the batch, the other one does not; the next driver publishes the rest, nothing twice."""
    with World({"a": cluster_a, "b": cluster_b}, tmp_path, "smoke", drivers=2) as world:
        world.add(400)
        world.arm("end-2")
        driver = world.start()
        world.wait_hit("end-2", driver)
        assert sorted(map(bool, world.published().values())) == [False, True]
        driver.kill()
        world.finish()

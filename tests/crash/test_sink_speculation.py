"""Speculation: two attempts of one task write the same rows, and one of them is published."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_kafka.testing import KafkaBroker, wait_until
from tests.crash.sink_world import World
from tests.crash.standalone import StandaloneCluster

pytestmark = [pytest.mark.crash, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(400)]

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",  # one of two tasks is done
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
}


def test_a_second_attempt_while_the_first_one_hangs(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, tmp_path: Path
) -> None:
    """The first one has written its rows, or has prepared them; nobody lets it go on, so it is the second one that counts.

    Its own transaction is ended with the batch: it does not keep readers waiting.
    """
    hosts = ("127.0.0.1", "127.0.0.2")
    with (
        World({"a": cluster_a, "b": cluster_b}, tmp_path, "speculation", drivers=0) as world,
        StandaloneCluster(tmp_path, world.environment, hosts) as spark,
    ):
        driver = world.start(conf={**SPECULATION, "spark.master": spark.address})
        for point in ("task-before-flush", "task-prepared"):
            world.arm(point)
            world.add(300)
            world.wait_hit(point, driver)
            world.wait_for_batches(1, driver)
            wait_until(lambda: not any(world.open().values()), 10, "the end of the first attempt's transaction")
        world.finish(driver)

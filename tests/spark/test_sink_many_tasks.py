"""What a batch of many tasks costs in producers, threads, open files and transactional ids."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from dynamic_kafka.kafka.transactions.client import TransactionClient
from dynamic_kafka.sink.transactional_ids import belongs_to
from dynamic_kafka.testing import KafkaBroker
from tests.spark.sinks import values
from tests.spark.tables import Topic

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

_TASKS = 120
_SCRIPT = """
    import resource, sys
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    from pyspark.sql import SparkSession
    import dynamic_kafka

    servers, topic, tasks = sys.argv[1], sys.argv[2], int(sys.argv[3])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.getOrCreate()
    dynamic_kafka.register(spark)
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "sink.delivery-guarantee": "exactly-once"}
    options["sink.transactional-id-prefix"] = topic
    for count in (tasks, 20):
        rows = spark.range(count, numPartitions=count)
        rows = rows.selectExpr("cast(id as string) AS value")
        rows.write.format("dynamic-kafka").mode("append").options(**options).save()
"""


def test_120_tasks_in_two_workers_with_1024_files(cluster_a: KafkaBroker, topic: Topic, tmp_path: Path) -> None:
    """Producers follow the tasks that run at once; ids follow the tasks of a batch, and the next batch uses them again."""
    name, mark = topic(cluster_a), uuid.uuid4().hex
    command = [sys.executable, "-c", textwrap.dedent(_SCRIPT), cluster_a.bootstrap_servers, name, str(_TASKS)]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "MANY_TASKS": mark}
    began = time.monotonic()
    files, threads = 0, 0
    with (tmp_path / "output").open("wb") as output:
        driver = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        while driver.poll() is None:
            for worker in _workers(mark):
                with suppress(OSError):  # it has ended
                    files = max(files, len(list((worker / "fd").iterdir())))
                    threads = max(threads, len(list((worker / "task").iterdir())))
            time.sleep(0.1)
    assert driver.returncode == 0, (tmp_path / "output").read_text()[-3000:]
    print(f"{_TASKS + 20} tasks in {time.monotonic() - began:.1f} s: {files} files, {threads} threads")
    assert values(cluster_a, name) == sorted(str(i) for i in [*range(_TASKS), *range(20)])
    assert 0 < files < 100
    assert 0 < threads < 60
    client = TransactionClient("kafka", cluster_a.client_properties(), timeout_ms=20_000)
    try:
        ids = [found for found in client.list_all() if belongs_to(name, found)]
    finally:
        client.close()
    assert len(ids) <= _TASKS + 4


def _workers(mark: str) -> list[Path]:
    """The Python workers of the driver with this mark in its environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"pyspark.daemon" in (process / "cmdline").read_bytes() and mark in (process / "environ").read_text():
                found.append(process)
    return found

"""SQL in a session of Spark Connect. It is another process, because a process has sessions of one kind only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynamic_kafka.testing import KafkaBroker

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_sql_in_a_session_of_spark_connect(cluster_a: KafkaBroker, tmp_path: Path) -> None:
    """Batches, streams that are collected, INSERTs, also exactly once into upsert-kafka, errors, and the command line."""
    for name in ("words", "counts", "copies"):
        cluster_a.create_topic(name)
    with (tmp_path / "output.log").open("wb") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.spark.connect_driver", cluster_a.bootstrap_servers, str(tmp_path)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            timeout=240,
            check=False,
        )
    assert ended.returncode == 0, (tmp_path / "output.log").read_text(errors="replace")[-6000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert "no_such_column" in found.pop("error")
    assert found == {
        "described": ["word"],
        "batch": ["a", "a", "b"],
        "stream": ["A", "A", "B"],
        "ending": ["a", "a", "b"],
        "copies": ["a", "a", "b"],
        "counts": [["a", 2, "+U"], ["b", 1, "+U"]],
        "explained": True,
        "live": [["a", 2], ["b", 1]],
        "exit code": 0,
        "csv": ["a", "a", "b", "word"],
    }

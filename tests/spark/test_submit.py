"""`spark-submit` to a standalone cluster whose workers have no package, by the lines of docs/guides/platforms.md."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from dynamic_kafka import read_arrow
from dynamic_kafka.testing import KafkaBroker, produce
from tests.crash.standalone import StandaloneCluster

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.broker]

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__path__[0])


@pytest.fixture
def clusters() -> Iterator[dict[str, KafkaBroker]]:
    """Clusters of its own, because the job names its topics."""
    with KafkaBroker() as a, KafkaBroker() as b:
        yield {"a": a, "b": b}


def test_a_job_runs_on_workers_that_get_the_package_with_it(tmp_path: Path, clusters: dict[str, KafkaBroker]) -> None:
    """A stream of two clusters is copied exactly once. The workers' Python has nothing installed."""
    page = (ROOT / "docs" / "guides" / "platforms.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path / "dist")]
    subprocess.run([*build, "--config-settings=build-args=--compatibility pypi", str(ROOT)], check=True)
    shutil.copy(ROOT / "examples" / "platforms" / "orders.py", tmp_path)
    streams = []
    for name, broker in clusters.items():
        broker.create_topic("orders", 2)
        produce(broker.bootstrap_servers, "orders", [(str(i), f"{name}{i}") for i in range(500)])
        streams.append({"clusterId": name, "bootstrapServers": broker.bootstrap_servers, "topics": ["orders"]})
    clusters["a"].create_topic("copies", 2)
    (tmp_path / "streams.json").write_text(json.dumps([{"streamId": "orders", "clusterMetadataList": streams}]))
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "python3").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    (commands / "pip").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip "$@"\n')
    (commands / "pip").chmod(0o755)
    path = os.pathsep.join(
        [str(commands), *(p for p in os.environ["PATH"].split(os.pathsep) if Path(sys.prefix) not in Path(p).parents)]
    )
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "PYTHON", "SPARK_", "VIRTUAL_ENV"))}
    bare |= {"PATH": path, "SPARK_HOME": str(SPARK_HOME)}
    missing = subprocess.run(["python3", "-c", "import dynamic_kafka"], env=bare, stderr=subprocess.PIPE, check=False)
    assert b"No module named 'dynamic_kafka'" in missing.stderr
    with StandaloneCluster(tmp_path, bare) as spark:
        given = {
            "MASTER": spark.address,
            "STREAMS": "streams.json",
            "SERVERS": clusters["a"].bootstrap_servers,
            "CHECKPOINT": str(tmp_path / "checkpoint"),
            "PATH": f"{path}{os.pathsep}{SPARK_HOME / 'bin'}",
        }
        done = subprocess.run(
            ["sh", "-ec", lines], cwd=tmp_path, env=bare | given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
    options = {
        "kafka.bootstrap.servers": clusters["a"].bootstrap_servers,
        "subscribe": "copies",
        "kafka.isolation.level": "read_committed",
    }
    copies = [value.decode() for value in read_arrow(options, ["value"]).read_all()["value"].to_pylist()]
    assert sorted(copies) == sorted(f"{name}{i}" for name in "ab" for i in range(500))

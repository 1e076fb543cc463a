"""A Spark standalone cluster on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from dynamic_kafka.testing import wait_until


@contextmanager
def standalone_cluster(
    folder: Path, environment: Mapping[str, str], hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")
) -> Iterator[str]:
    """A master, and workers with one core each; yields its address.

    Args:
        folder: For logs and working directories.
        environment: Of its processes.
        hosts: An address of each worker. Spark speculates only on another host than that of the first attempt.
    """
    import pyspark

    spark_class = str(Path(pyspark.__path__[0]) / "bin" / "spark-class")
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [spark_class, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment, "SPARK_NO_DAEMONIZE": "1"},
                start_new_session=True,
            )
        processes.append(process)
        return log

    def found(log: Path, pattern: str) -> str:
        wait_until(lambda: re.search(pattern, log.read_text()), 60, f"{pattern} in {log.name}")
        return str(re.findall(pattern, log.read_text())[0])

    try:
        package = "org.apache.spark.deploy"
        log = start("master", f"{package}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        address = found(log, r"Starting Spark master at (spark://\S+)")
        workers = []
        for i, host in enumerate(hosts, 1):
            work = str(folder / f"work{i}")
            arguments = ("--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0", "-d", work)
            workers.append(start(f"worker{i}", f"{package}.worker.Worker", *arguments, address))
        for worker in workers:
            found(worker, "(Successfully registered with master)")
        yield address
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

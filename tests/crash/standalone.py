"""A Spark standalone cluster on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from dynamic_kafka.testing import wait_until

_PACKAGE = "org.apache.spark.deploy"


class StandaloneCluster:
    """A master, and workers with one core each; a temporary directory each, as machines of their own have.

    Args:
        folder: For logs and working directories.
        environment: Of its processes.
        hosts: An address of each worker. Spark speculates only on another host than that of the first attempt.
        master: The address of the master.
        within: The beginning of the workers' commands, such as `ip netns exec NAME`.

    Attributes:
        address: For `spark.master`.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1"),
        *,
        master: str = "127.0.0.1",
        within: Sequence[str] = (),
    ) -> None:
        self._master, self._within = master, within
        self.address = ""
        self._folder, self._environment, self._hosts = folder, environment, hosts
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            ports = ("--port", "0", "--webui-port", "0")
            log = self._start("master", f"{_PACKAGE}.master.Master", "--host", self._master, *ports)
            self.address = _found(log, r"Starting Spark master at (spark://\S+)")
            logs = [self._start_worker(i) for i in range(len(self._hosts))]
            for worker in logs:
                _found(worker, "(Successfully registered with master)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._processes):
            self._kill(name)

    def worker_pid(self, number: int) -> int:
        """The process id of a worker; executors are its children."""
        return self._processes[f"worker{number}"].pid

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors, as if the machine lost its power."""
        self._kill(f"worker{number}")

    def start_worker(self, number: int) -> None:
        """Start a worker again."""
        _found(self._start_worker(number), "(Successfully registered with master)")

    def _start_worker(self, number: int) -> Path:
        temporary = self._folder / f"tmp{number}"
        temporary.mkdir(exist_ok=True)
        arguments = ["--host", self._hosts[number], "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        arguments += ["-d", str(self._folder / f"work{number}"), self.address]
        worker = f"{_PACKAGE}.worker.Worker"
        return self._start(f"worker{number}", worker, *arguments, within=self._within, TMPDIR=str(temporary))

    def _start(self, name: str, *arguments: str, within: Sequence[str] = (), **variables: str) -> Path:
        import pyspark

        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            self._processes[name] = subprocess.Popen(
                [*within, str(Path(pyspark.__path__[0]) / "bin" / "spark-class"), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**self._environment, **variables, "SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_MEMORY": "256m"},
                start_new_session=True,
            )
        return log

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _found(log: Path, pattern: str) -> str:
    wait_until(lambda: re.search(pattern, log.read_text()), 60, f"{pattern} in {log.name}")
    return str(re.findall(pattern, log.read_text())[0])

"""Driver processes of the crash tests: the process as a test sees it, and how its program starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from dynamic_kafka.testing import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_S = 200.0
"""How long a driver may take for anything, on a machine that does much else."""


def crashes(number: int) -> int:
    """How often a test kills its driver: so often, or as the variable `CRASHES` says."""
    return int(os.environ.get("CRASHES", number))


def environment(*paths: Path, **variables: str) -> dict[str, str]:
    """The environment of drivers, and of the clusters they run on.

    Args:
        paths: Where Python looks for modules before it looks into this project.
        variables: More variables.
    """
    path = [*paths, Path(__file__).parents[2], os.environ.get("PYTHONPATH", "")]
    python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    return {**os.environ, **python, "PYTHONPATH": os.pathsep.join(map(str, path)), **variables}


class Driver:
    """A driver process with everything it started: one session.

    It starts Spark at once, and then waits for its job: a driver that is started while another one still runs is quick.

    Args:
        module: What runs in it: `tests.crash.driver` or `tests.crash.sink_driver`.
        log: A file for what it prints.
        environment: Of its processes.
        conf: Of Spark.
    """

    def __init__(
        self, module: str, log: Path, environment: Mapping[str, str], conf: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        self._is_gone = False
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(dict(conf or {}))],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def send(self, command: Mapping[str, Any]) -> None:
        """Give it a job, or a command if it obeys more than one."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def run(self, job: Mapping[str, Any]) -> Self:
        """Give it its only job."""
        self.send(job)
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self

    @property
    def output(self) -> str:
        """What it has printed."""
        return self._log.read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        """Whether the driver itself is there."""
        return self._process.poll() is None

    def processes(self) -> list[int]:
        """Ids of all its processes: Python's workers have left its group, not its session."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):
                    _, _, fields = (folder / "stat").read_text().rpartition(")")
                    state, _, _, session = fields.split()[:4]
                    if int(session) == self._process.pid and state != "Z":
                        found.append(int(folder.name))
        return found

    def signal(self, number: signal.Signals) -> None:
        """A signal to all its processes."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self, what: Literal["all", "driver"] = "all") -> None:
        """SIGKILL.

        Args:
            what: All its processes at once; or driver and JVM only, whose workers find out by themselves.
        """
        if self._is_gone:
            return  # its id may be another process's now
        if what == "driver":
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            with suppress(TimeoutError):
                wait_until(lambda: not self.processes(), 10, "the end of orphaned workers")

        def gone() -> bool:
            self.signal(signal.SIGKILL)
            self._process.poll()
            return not self.processes()

        wait_until(gone, 20, "the end of a killed driver")
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._is_gone = True

    def wait(self, timeout_s: float = DRIVER_S) -> int:
        """Its exit code; its other processes are gone, too."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            print(self.output[-5000:])
            raise
        finally:
            self.kill()
        return code

    def wait_for(self, text: str, timeout_s: float = DRIVER_S) -> None:
        """Wait until it has printed something."""
        wait_until(lambda: text in self.output or not self.is_running, timeout_s, f"'{text}'")
        assert text in self.output, self.output[-5000:]


NewDriver = Callable[..., Driver]


def session_and_job(conf: Mapping[str, str]) -> tuple[SparkSession, dict[str, Any]]:
    """Start Spark, in a driver process, then wait for the job on standard input; the process ends if there is none.

    Args:
        conf: Of Spark; what the arguments of the process say comes on top.
    """
    from pyspark.sql import SparkSession

    import dynamic_kafka

    builder = SparkSession.builder.appName("crash")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # starts faster
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "2",
        **conf,
        **json.loads(sys.argv[1]),
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    dynamic_kafka.register(spark)
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return spark, json.loads(line)

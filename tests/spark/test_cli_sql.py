"""`dynamic-kafka sql` as a program: how its queries end, and that what it then says are lines and no pages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.spark.tables import Topic, ddl, on, records
from tests.terminal import Terminal

pytestmark = [pytest.mark.broker, pytest.mark.spark]

SECONDS = 120
JVM = "-Xss8m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""The program's own option, and a compiler that is quick, not thorough."""


class Program:
    """The program, running a script.

    Args:
        folder: Where the script and what the program says are kept.
        script: The statements.
    """

    def __init__(self, folder: Path, script: str) -> None:
        (folder / "job.sql").write_text(script)
        self._out, self._err = folder / "out", folder / "err"
        command = [sys.executable, "-m", "dynamic_kafka", "sql", "--master", "local[2]", "-f", str(folder / "job.sql")]
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [*command, "--conf", "spark.ui.enabled=false", "--conf", f"spark.driver.extraJavaOptions={JVM}"],
                stdout=out,
                stderr=err,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    def shows(self, text: str) -> None:
        """Wait for a text on its standard output."""
        wait_until(lambda: text in self._out.read_text() or self.process.poll() is not None, SECONDS, text)
        assert text in self._out.read_text(), self._err.read_text()

    def press_ctrl_c(self) -> None:
        """As a terminal does it: for all of its processes."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> tuple[int, str, list[str]]:
        """Wait for its exit code and what it wrote to its outputs, the second without how Spark starts."""
        code = self.process.wait(SECONDS)
        lines = self._err.read_text().splitlines()
        after = next((i for i, line in enumerate(lines) if line.startswith("Setting Spark log level")), -1) + 1
        return code, self._out.read_text(), lines[after:]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Program]]:
    """Starts the program with a script."""
    started: list[Program] = []

    def with_script(script: str) -> Program:
        started.append(Program(tmp_path, script))
        return started[-1]

    yield with_script
    for program in started:
        program.process.kill()
        program.process.wait()


@pytest.mark.slow
def test_an_insert_that_fails_ends_the_program(
    start: Callable[[str], Program], cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """While another one could run on; the error says which statement it was, and which message."""
    good, bad, target = topic(cluster_a), topic(cluster_a), topic(cluster_a)
    produce(cluster_a.bootstrap_servers, bad, [(None, "no JSON")])
    lines = [
        "SET 'table.exec.mini-batch.enabled' = 'true'",
        f"SET 'execution.checkpointing.dir' = '{tmp_path}'",
        *(ddl(name, "id INT", on(cluster_a, on_)) for name, on_ in (("g", good), ("b", bad), ("t", target))),
        "INSERT INTO t SELECT * FROM g",
        "INSERT INTO t SELECT * FROM b",
    ]
    code, out, (warning, error) = start(";\n".join(lines)).end()
    assert code == 1
    assert out.splitlines()[5:] == ["Running: t, t-2; Ctrl-C stops"]
    assert warning.startswith("dynamic-kafka: warning: SET 'table.exec.mini-batch.enabled' is ignored")
    place = f"Line 7, job 't-2': Cluster 'kafka', topic '{bad}', partition 0, offset 0: "
    assert error.startswith(f"dynamic-kafka: error: {place}")


@pytest.mark.slow
def test_ctrl_c_ends_queries(
    start: Callable[[str], Program], cluster_a: KafkaBroker, topic: Topic, tmp_path: Path
) -> None:
    """A stream that is shown, then INSERTs that run, each in a line."""
    source, target = topic(cluster_a), topic(cluster_a)
    produce(cluster_a.bootstrap_servers, source, [(None, '{"id": 41}')])
    program = start(
        f"SET 'execution.checkpointing.dir' = '{tmp_path}';"
        f"{ddl('s', 'id INT', on(cluster_a, source))};{ddl('t', 'id INT', on(cluster_a, target))};"
        "SELECT id + 1 AS id FROM s; INSERT INTO t SELECT * FROM s"
    )
    program.shows("42")
    program.press_ctrl_c()
    program.shows("Running: t; Ctrl-C stops")
    wait_until(lambda: len(records(cluster_a, target)) == 1, SECONDS, "the row")
    program.press_ctrl_c()
    code, out, err = program.end()
    assert code == 130
    assert out.splitlines()[3:] == ["id", "42", "stopped", "Running: t; Ctrl-C stops", "Stopping: t"]
    assert err == []


@pytest.mark.slow
def test_ctrl_c_cancels_a_job(start: Callable[[str], Program]) -> None:
    """Of a query that takes long."""
    program = start("SELECT 'begun'; SELECT sum(hash(a.id, b.id)) FROM range(10000000) a, range(10000000) b")
    program.shows("begun")
    program.press_ctrl_c()
    code, _, err = program.end()
    assert (code, err) == (130, [])


@pytest.mark.slow
def test_java_is_killed(start: Callable[[str], Program], cluster_a: KafkaBroker, topic: Topic, tmp_path: Path) -> None:
    """As by a system without memory: one line says so."""
    source, target = topic(cluster_a), topic(cluster_a)
    program = start(
        f"SET 'execution.checkpointing.dir' = '{tmp_path}';"
        f"{ddl('s', 'id INT', on(cluster_a, source))};{ddl('t', 'id INT', on(cluster_a, target))};"
        "INSERT INTO t SELECT * FROM s"
    )
    program.shows("Running: t; Ctrl-C stops")
    subprocess.run(["pkill", "-KILL", "-P", str(program.process.pid), "java"], check=True)
    code, _, err = program.end()
    assert (code, len(err)) == (1, 1), err
    assert err[0].startswith("dynamic-kafka: error: Spark's Java process has ended: it was killed, or out of memory")


@pytest.mark.slow
def test_a_terminal(tmp_path: Path) -> None:
    """Rows of Spark, an error that shows its place, the history, and Ctrl-D; in a JVM that is made to start quickly."""
    quick = f"spark.driver.extraJavaOptions={JVM}"
    settings = ["--conf", "spark.ui.enabled=false", "--conf", "spark.sql.codegen.wholeStage=false", "--conf", quick]
    command = [sys.executable, "-m", "dynamic_kafka", "sql", "--master", "local[1]", *settings]
    with Terminal(command, tmp_path) as terminal:
        terminal.shows("sql> ")
        terminal.types("SELECT 41 + 1 AS answer;\n")
        terminal.shows("42")
        terminal.types("SELEC 1;\n")
        terminal.shows("^")
        terminal.shows("sql> ")  # a terminal keeps a Ctrl-D that is typed before the prompt as an empty character
        terminal.types("\x04")
        assert terminal.process.wait(60) == 0
    assert "Line 1, column 1: Expected a statement" in terminal.shown
    assert "SELECT 41 + 1 AS answer;" in (tmp_path / ".dynamic-kafka-history").read_text()

"""`dynamic-kafka sql`: files, statements and the prompt; what they show, and how they end. Only the last needs Spark."""

from __future__ import annotations

import builtins
import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from dynamic_kafka.cli import sql
from dynamic_kafka.cli.main import main
from dynamic_kafka.sql.environment import TableEnvironment
from dynamic_kafka.sql.nodes import InsertInto, Query, Statement
from dynamic_kafka.sql.result import TableResult
from dynamic_kafka.testing import wait_until

TABLE = """CREATE TABLE orders (id INT) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'localhost:9092', 'format' = 'json',
  'properties.ssl.key.password' = 'hidden');
"""

Run = Callable[..., tuple[int, str, str]]


class Job:
    """A streaming query that ends, or fails, or goes on until Ctrl-C."""

    def __init__(self, name: str, end: BaseException | None = None) -> None:
        self.name, self._end = name, end
        self.stopped = False

    def awaitTermination(self) -> None:  # noqa: N802  # Spark's name
        """See StreamingQuery."""
        if self._end is not None:
            raise self._end

    def stop(self) -> None:
        """See StreamingQuery."""
        self.stopped = True


class Stream(TableResult):
    """The rows of a stream."""

    def __init__(self, rows: Callable[[], Iterator[Any]]) -> None:
        dataframe: Any = SimpleNamespace(columns=["id", "name"], isStreaming=True)
        super().__init__(dataframe=dataframe)
        self.collect = rows  # type: ignore[method-assign]


class Environment(TableEnvironment):
    """A table environment without Spark: it knows tables; what queries and INSERTs give is in `answers`."""

    def __init__(self) -> None:
        session: Any = SimpleNamespace(
            dataSource=SimpleNamespace(register=lambda _: None),
            catalog=SimpleNamespace(tableExists=lambda _: False, dropTempView=lambda _: None),
        )
        super().__init__(session)
        self.answers: list[TableResult | Exception] = []
        self.asked: list[str] = []

    def execute(self, statement: Statement) -> TableResult:
        """See TableEnvironment."""
        if not isinstance(statement, InsertInto | Query):
            return super().execute(statement)
        self.asked.append(statement.text)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Environment:
    """What the command line works with."""
    monkeypatch.setattr("dynamic_kafka.register", lambda _: None)
    made = Environment()
    monkeypatch.setattr(sql, "_environment", lambda _: made)
    return made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `dynamic-kafka sql`: its exit code, and what it wrote to the two outputs."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code: Any
        try:
            code = main(["sql", *arguments])
        except SystemExit as ended:  # argparse's way
            code = ended.code
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's start is an error."""
    monkeypatch.setattr(sql, "_environment", lambda _: pytest.fail("Spark was started"))


# --- files and statements -----------------------------------------------------------------------------------------------


def test_statements_of_a_file(environment: Environment, run: Run, tmp_path: Path) -> None:
    """One after the other; texts as lines, rows as a table, no secret."""
    script = tmp_path / "job.sql"
    script.write_text(TABLE + "SHOW TABLES; DESCRIBE orders;\nSHOW CREATE TABLE orders -- without an end")
    code, out, err = run("-f", str(script))
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "OK",
        "table name",
        "orders",
        "name  type  null  key   extras  watermark  comment",
        "id    INT   True  NULL  NULL    NULL       NULL",
        "CREATE TABLE `orders` (",
        "  `id` INT",
        ")",
        "WITH (",
        "  'connector' = 'kafka',",
        "  'topic' = 'orders',",
        "  'properties.bootstrap.servers' = 'localhost:9092',",
        "  'format' = 'json',",
        "  'properties.ssl.key.password' = '***'",
        ")",
    ]


def test_statements_as_an_argument_and_from_standard_input(
    environment: Environment, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--execute`, and `--file -`."""
    assert run("--execute", TABLE) == (0, "OK\n", "")
    monkeypatch.setattr(sys, "stdin", io.StringIO("SHOW TABLES;"))
    assert run("--file", "-") == (0, "table name\norders\n", "")


@pytest.mark.usefixtures("no_spark")
def test_a_fault_in_the_text_shows_its_line(run: Run, tmp_path: Path) -> None:
    """Before Spark is started and the first statement is run; secrets in that line are hidden."""
    script = tmp_path / "job.sql"
    script.write_text("SHOW TABLES;\nCREATE TABLE t (\n  id BIGINTT\n) WITH ('connector' = 'kafka');")
    code, out, err = run("-f", str(script))
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "dynamic-kafka: error: Line 3, column 6: 'BIGINTT' is no type of Flink's; did you mean BIGINT?",
        "  id BIGINTT",
        "     ^",
    ]
    code, _, err = run("-e", "CREATE TABLE t (id INT) WITH ('properties.ssl.key.password' = 'hidden' 'x' = 'y')")
    assert code == 2
    assert "hidden" not in err
    assert "^" in err.splitlines()[-1]


@pytest.mark.usefixtures("no_spark")
def test_wrong_usage(run: Run, tmp_path: Path) -> None:
    """One line, exit code 2."""
    (tmp_path / "latin.sql").write_bytes(b"SELECT '\xe4'")
    for arguments, expected in (
        (("-f", "x.sql", "-e", "SELECT 1"), "Give --file or --execute, not both"),
        (("-f", str(tmp_path / "none.sql")), "none.sql cannot be read"),
        (("-f", str(tmp_path)), "cannot be read"),
        (("-f", str(tmp_path / "latin.sql")), "latin.sql cannot be read"),
        (("--fiel", "x.sql"), "unknown options --fiel"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert expected in err.splitlines()[-1]


def test_a_wrong_option_is_named(environment: Environment, run: Run) -> None:
    """Exit code 2, and one line without the statement."""
    code, out, err = run("-e", TABLE.replace("'topic'", "'topics'"))
    assert (code, out) == (2, "")
    assert err == "dynamic-kafka: error: Unknown option 'topics'; did you mean 'topic'?\n"


def test_a_setting_of_spark_without_a_value(run: Run) -> None:
    """It is named before Spark starts."""
    code, _, err = run("-e", "SELECT 1", "--conf", "spark.executor.memory")
    assert (code, err) == (2, "dynamic-kafka: error: --conf spark.executor.memory has no value; give it as KEY=VALUE\n")


def test_rows_are_shown(environment: Environment, run: Run) -> None:
    """As a table, NULL as such, control characters escaped; not more than a terminal takes."""
    many = [(i,) for i in range(1001)]
    environment.answers = [
        TableResult(("id", "name"), [(1, "a\x1b[2J"), (22, None)]),
        TableResult(("id", "name")),
        TableResult(("id",), many),
    ]
    code, out, err = run("-e", "SELECT 1; SELECT 2; SELECT 3")
    assert code == 0
    lines = out.splitlines()
    assert lines[:4] == ["id  name", "1   a\\x1b[2J", "22  NULL", "no rows (id, name)"]
    assert len(lines) == 4 + 1 + 1000
    assert "only the first 1000 rows are shown" in err


def test_a_stream_is_shown_until_ctrl_c(environment: Environment, run: Run) -> None:
    """Its query is stopped, and the next statement runs."""
    closed = []

    def rows() -> Iterator[Any]:
        try:
            yield (1, None)
            raise KeyboardInterrupt
        finally:
            closed.append(True)

    environment.answers = [Stream(rows), TableResult(("n",), [(1,)])]
    assert run("-e", "SELECT * FROM s; SELECT 1") == (0, "id | name\n1 | NULL\nstopped\nn\n1\n", "")
    assert closed == [True]


def test_inserts_run_until_they_end(environment: Environment, run: Run) -> None:
    """All statements first, then they are waited for, and stopped."""
    jobs: list[Any] = [Job("a"), Job("b")]
    environment.answers = [TableResult(queries=[jobs[0]]), TableResult(queries=[jobs[1]])]
    code, out, _ = run("-e", "INSERT INTO a SELECT 1; INSERT INTO b SELECT 2")
    assert (code, out) == (0, "Running: a, b; Ctrl-C stops\n")
    assert environment.asked == ["INSERT INTO a SELECT 1", "INSERT INTO b SELECT 2"]
    assert all(job.stopped for job in jobs)


def test_ctrl_c_stops_inserts(environment: Environment, run: Run) -> None:
    """As a shell has it: 130."""
    jobs: list[Any] = [Job("a", KeyboardInterrupt()), Job("b")]
    environment.answers = [TableResult(queries=jobs)]
    assert run("-e", "INSERT INTO a SELECT 1")[0] == 130
    assert all(job.stopped for job in jobs)


def test_errors_of_spark(environment: Environment, run: Run) -> None:
    """Exit code 1 and one line: of a failed job ours, if there is one; jobs that were started before are stopped."""
    job: Any = Job("a")
    environment.answers = [TableResult(queries=[job]), AnalysisException("[NOT_FOUND] There is no `x`.\nat line 1")]
    code, _, err = run("-e", "INSERT INTO a SELECT 1; SELECT x")
    assert (code, err) == (1, "dynamic-kafka: error: [NOT_FOUND] There is no `x`.\n")
    assert job.stopped
    failure = (
        "[STREAM_FAILED] Query terminated\nTraceback:\ndynamic_kafka.errors.DataLossError: Records are gone\n at x"
    )
    failing: Any = Job("a", StreamingQueryException(failure))
    environment.answers = [TableResult(queries=[failing])]
    code, _, err = run("-e", "INSERT INTO a SELECT 1")
    assert (code, err) == (1, "dynamic-kafka: error: Records are gone\n")


# --- the prompt ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def prompt(
    environment: Environment, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., list[str]]:
    """Types lines at the prompt, or raises at it; what is shown after the greeting, by both outputs."""
    monkeypatch.setattr(sql, "_HISTORY", tmp_path / "history")

    def typed(*lines: str | type[BaseException]) -> list[str]:
        given = iter([*lines, EOFError])

        def read(_: str) -> str:
            line = next(given)
            if isinstance(line, str):
                return line
            raise line

        monkeypatch.setattr(builtins, "input", read)
        code, out, err = run()
        assert code == 0
        greeting, *shown = out.splitlines()
        assert "Ctrl-D" in greeting
        return [*shown, *err.splitlines()]

    return typed


def test_statements_at_the_prompt(prompt: Callable[..., list[str]]) -> None:
    """They end with a semicolon or a blank line, also many on a line; Ctrl-C forgets what was typed."""
    assert prompt("", "SHOW", "  TABLES;") == ["no rows (table name)"]
    assert prompt(*TABLE.splitlines(), "SHOW TABLES; SHOW VIEWS", "") == [
        "OK",
        "table name",
        "orders",
        "no rows (view name)",
    ]
    assert prompt("SHOW", KeyboardInterrupt, "SHOW VIEWS;") == ["", "no rows (view name)"]


def test_the_prompt_goes_on_after_errors(environment: Environment, prompt: Callable[..., list[str]]) -> None:
    """A fault is shown with its line; of an error of Spark, the first one."""
    environment.answers = [AnalysisException("[NOT_FOUND] There is no `x`.\nmore"), TableResult(("n",), [(1,)])]
    assert prompt("SHOW", "TABLEZ;", "DROP TABLE t;", "SELECT x;", "SELECT 1;") == [
        "TABLEZ;",
        "^",
        "(AnalysisException, of Spark)",
        "n",
        "1",
        "dynamic-kafka: warning: Line 2, column 1: Expected TABLES, VIEWS or CREATE TABLE, found 'TABLEZ'",
        "dynamic-kafka: warning: There is no table `t`; see SHOW TABLES",
        "dynamic-kafka: warning: [NOT_FOUND] There is no `x`.",
    ]


def test_jobs_at_the_prompt(environment: Environment, prompt: Callable[..., list[str]]) -> None:
    """They run on while the prompt does; a statement set ends with its END."""
    job: Any = Job("orders", KeyboardInterrupt())
    environment.answers = [TableResult(queries=[job])]
    assert prompt("INSERT INTO orders SELECT 1;") == ["started orders"]
    assert not job.stopped
    found = prompt("EXECUTE STATEMENT SET BEGIN", "INSERT INTO a SELECT 1;", "INSERT INTO b SELECT 2;", "END;")
    assert found == ["dynamic-kafka: warning: Table `a` is not there; see SHOW TABLES"]


@pytest.mark.spark
def test_a_terminal(tmp_path: Path) -> None:
    """With Spark: rows, an error that shows its place, the history, and Ctrl-D."""
    terminal, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dynamic_kafka", "sql", "--master", "local[1]", "--conf", "spark.ui.enabled=false"],
        stdin=other,
        stdout=other,
        stderr=other,
        env={**os.environ, "HOME": str(tmp_path), "TERM": "dumb", "COLUMNS": "120"},
        start_new_session=True,
    )
    os.close(other)
    shown = ""

    def shows(text: str) -> bool:
        nonlocal shown
        if text not in shown:
            shown += os.read(terminal, 4096).decode(errors="replace")
        return text in shown

    try:
        wait_until(lambda: shows("sql> "), 120, "the prompt")
        os.write(terminal, b"SELECT 41 + 1 AS answer;\n")
        wait_until(lambda: shows("42"), 120, "the answer")
        os.write(terminal, b"SELEC 1;\n")
        wait_until(lambda: shows("^"), 60, "the error's place")
        os.write(terminal, b"\x04")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert "Line 1, column 1: Expected a statement" in shown
    assert "SELECT 41 + 1 AS answer;" in (tmp_path / ".dynamic-kafka-history").read_text()

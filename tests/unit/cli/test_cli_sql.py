"""`dynamic-kafka sql`: files, statements and the prompt; what they show, and how they end. Without Spark."""

from __future__ import annotations

import builtins
import io
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.errors import AnalysisException, ParseException, StreamingQueryException
from pyspark.sql import Row
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructType
from tests.commands import Run, runner
from tests.terminal import Terminal

from dynamic_kafka.cli.sql import command, editor, results, session, status
from dynamic_kafka.cli.sql import jobs as job_lines
from dynamic_kafka.errors import ConfigurationError, InvalidOptionError
from dynamic_kafka.sql.environment import TableEnvironment
from dynamic_kafka.sql.parser.statements import InsertInto, Query, Statement
from dynamic_kafka.sql.session.config import TableConfig
from dynamic_kafka.sql.session.result import TableResult

TABLE = """CREATE TABLE orders (id INT) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'localhost:9092', 'format' = 'json',
  'properties.ssl.key.password' = 'hidden');
"""


class Job:
    """A streaming query; by default one that has ended by itself.

    Args:
        name: Its name.
        runs: Whether it runs until it is stopped.
        failure: What ended it.
        look: What happens when somebody looks whether it runs.
    """

    def __init__(
        self, name: str, *, runs: bool = False, failure: Exception | None = None, look: Callable[[], object] = list
    ) -> None:
        self.name, self._runs, self._failure, self._look = name, runs, failure, look
        self.stopped = False
        self.progress: dict[str, Any] | None = None

    @property
    def isActive(self) -> bool:  # noqa: N802  # Spark's name
        """See StreamingQuery."""
        self._look()
        return self._runs and not self.stopped

    def awaitTermination(self) -> None:  # noqa: N802  # Spark's name
        """See StreamingQuery; nobody waits for one that runs."""
        assert not self.isActive
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """See StreamingQuery."""
        self.stopped = True

    def exception(self) -> Exception | None:
        """See StreamingQuery."""
        return None if self.isActive else self._failure

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """See StreamingQuery: that of the test; there was no batch by default."""
        return self.progress

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802  # Spark's name
        """See StreamingQuery: a batch with two messages that could not be read, if this job skips them."""
        metrics = {"dynamic-kafka: orders": Row(skip=2), "dynamic-kafka: fine": Row(skip=0), "else": Row(skip=1)}
        return [SimpleNamespace(observedMetrics=metrics if self.name == "skipping" else {})]


def press_ctrl_c() -> None:
    """As a terminal does it."""
    os.kill(os.getpid(), signal.SIGINT)


class Stream(TableResult):
    """The rows of a stream."""

    def __init__(self, rows: Callable[[], Iterator[Any]]) -> None:
        dataframe: Any = SimpleNamespace(columns=["id", "name"], schema=StructType(), isStreaming=True, rows=rows)
        super().__init__(dataframe=dataframe)


class Conf:
    """Settings of a session."""

    def __init__(self, **values: str) -> None:
        self.values = values

    def get(self, key: str, default: str | None) -> str | None:
        """See RuntimeConfig."""
        return self.values.get(key, default)

    def set(self, key: str, value: str) -> None:
        """See RuntimeConfig."""
        self.values[key] = value

    def unset(self, key: str) -> None:
        """See RuntimeConfig."""
        del self.values[key]


class Session:
    """A session of Spark with settings, and without any table."""

    def __init__(self, **settings: str) -> None:
        self.conf = Conf(**settings)
        self.dataSource = SimpleNamespace(register=lambda _: None)
        self.catalog = SimpleNamespace(tableExists=lambda _: False, dropTempView=lambda _: None)


class Environment(TableEnvironment):
    """A table environment without Spark: it knows tables; what queries and INSERTs give is in `answers`."""

    def __init__(self) -> None:
        session: Any = Session()
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
    monkeypatch.setattr(command, "start_environment", lambda *_, **__: made)
    monkeypatch.setattr(session, "_cancel", lambda *_: None)
    monkeypatch.setattr(results, "_as_texts", lambda rows, _: rows)
    monkeypatch.setattr(results, "_numbers", lambda _: frozenset())
    monkeypatch.setattr("dynamic_kafka.sql.session.result.follow", lambda stream, _: stream.rows())
    return made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `dynamic-kafka sql`: its exit code, and what it wrote to the two outputs."""
    return runner(capsys, "sql")


@pytest.fixture
def prompt(
    environment: Environment, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., list[str]]:
    """Types lines at the prompt, calls there, or raises; what is shown after the greeting, by both outputs."""
    monkeypatch.setattr(editor, "HISTORY", tmp_path / "history")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)

    def typed(*lines: str | Callable[[], str] | type[BaseException], expected: int = 0) -> list[str]:
        given = iter([*lines, EOFError])

        def read(_: str) -> str:
            line = next(given)
            if isinstance(line, str):
                return line
            if isinstance(line, type):
                raise line
            return line()

        monkeypatch.setattr(builtins, "input", read)
        code, out, err = run()
        assert code == expected
        greeting, *shown = out.splitlines()
        assert "Ctrl-D" in greeting
        return [*shown, *err.splitlines()]

    return typed


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's start is an error."""
    monkeypatch.setattr(command, "start_environment", lambda *_, **__: pytest.fail("Spark was started"))


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
    """`--execute`, and `--file -`; the same without both if standard input is no terminal."""
    assert run("--execute", TABLE) == (0, "OK\n", "")
    for arguments in (("--file", "-"), ()):
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(b"SHOW VIEWS; SHOW TABLES"))
        )  # the last one ends with the input
        assert run(*arguments) == (0, "no rows (view name)\ntable name\norders\n", "")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"SHOW TABLEZ; SHOW TABLES;")))
    code, out, _ = run()
    assert (code, out) == (2, "")


@pytest.mark.usefixtures("no_spark")
def test_there_is_no_prompt_without_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed standard input is an error, as is an output for programs that the prompt's words would be in."""
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input cannot be read (it is closed)" in run()[2]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    code, out, err = run("--output", "csv")
    assert (code, out) == (2, "")
    assert "give --file or --execute" in err


@pytest.mark.usefixtures("no_spark")
def test_a_fault_in_the_text_shows_its_line(run: Run, tmp_path: Path) -> None:
    """Before Spark is started and the first statement is run; secrets in that line are hidden."""
    script = tmp_path / "job.sql"
    script.write_text("SHOW TABLES;\nCREATE TABLE t (\n  id BIGINTT\n) WITH ('connector' = 'kafka');")
    code, out, err = run("-f", str(script))
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "dynamic-kafka: error: Line 3, column 6: 'BIGINTT' is not a type of Flink; did you mean 'BIGINT'?",
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
        (("-f", str(tmp_path / "none.sql")), "none.sql' cannot be read"),
        (("-f", str(tmp_path)), "cannot be read"),
        (("-f", str(tmp_path / "latin.sql")), "latin.sql' cannot be read"),
        (("--fiel", "x.sql"), "unknown options --fiel"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert expected in err.splitlines()[-1]


def test_a_wrong_option_is_named(environment: Environment, run: Run) -> None:
    """Exit code 2, and one line with the statement's place."""
    code, out, err = run("-e", TABLE.replace("'topic'", "'topics'"))
    assert (code, out) == (2, "")
    assert (
        err.splitlines()[0] == "dynamic-kafka: error: Line 2, column 26: Unknown option 'topics'; did you mean 'topic'?"
    )


def test_a_setting_of_spark_without_a_value(run: Run) -> None:
    """It is named before Spark starts."""
    code, _, err = run("-e", "SELECT 1", "--conf", "spark.executor.memory")
    assert (code, err) == (2, "dynamic-kafka: error: --conf spark.executor.memory has no value; give it as KEY=VALUE\n")


def test_a_java_that_does_not_start(tmp_path: Path) -> None:
    """It has said why, and the last line names what did not start."""
    done = subprocess.run(
        [sys.executable, "-m", "dynamic_kafka", "sql", "-e", "SELECT 1"],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "dynamic-kafka: error: Spark's Java process did not start. Its output is above. "
        "Run 'dynamic-kafka doctor' to check Java"
    )
    assert f"{tmp_path}/bin/java" in done.stderr


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
            yield ("1", None)
            raise KeyboardInterrupt
        finally:
            closed.append(True)

    environment.answers = [Stream(rows), TableResult(("n",), [(1,)])]
    assert run("-e", "SELECT * FROM s; SELECT 1") == (0, "id | name\n1 | NULL\nstopped\nn\n1\n", "")
    assert closed == [True]


@pytest.mark.parametrize("count", [1000, 1001])
def test_not_more_of_a_query_is_fetched_than_is_shown(environment: Environment, run: Run, count: int) -> None:
    """And one row more, to know whether there are more."""
    asked = []

    def take(number: int) -> list[tuple[str]]:
        asked.append(number)
        return [(str(i),) for i in range(count)][:number]

    rows: Any = SimpleNamespace(columns=["id"], isStreaming=False, take=take)
    environment.answers = [TableResult(dataframe=rows)]
    code, out, err = run("-e", "SELECT 1")
    assert (code, asked, len(out.splitlines())) == (0, [1001], 1001)
    assert ("only the first 1000 rows are shown" in err) == (count > 1000)


def test_inserts_run_until_they_end(environment: Environment, run: Run) -> None:
    """All statements first, then they are waited for, and stopped."""
    jobs: list[Any] = [Job("a"), Job("b")]
    environment.answers = [TableResult(queries=[jobs[0]]), TableResult(queries=[jobs[1]])]
    code, out, _ = run("-e", "INSERT INTO a SELECT 1; INSERT INTO b SELECT 2")
    assert (code, out) == (0, "Running: a, b; Ctrl-C stops\n")
    assert environment.asked == ["INSERT INTO a SELECT 1", "INSERT INTO b SELECT 2"]
    assert all(job.stopped for job in jobs)


def test_messages_that_could_not_be_read_are_counted(environment: Environment, run: Run) -> None:
    """At the end, for each table that has some."""
    jobs: list[Any] = [Job("skipping")]
    environment.answers = [TableResult(queries=jobs)]
    code, _, err = run("-e", "INSERT INTO t SELECT * FROM orders")
    assert code == 0
    said = "job 'skipping': 2 messages of table 'orders' could not be read and were skipped"
    assert err.splitlines() == [f"dynamic-kafka: warning: {said}"]


def test_a_failed_insert_stops_the_others(environment: Environment, run: Run) -> None:
    """Also those that were started before it; the error says which it was, and shows none of Java's pages."""
    text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [DIVIDE_BY_ZERO] Division by zero. "
        "SQLSTATE: 22012\n== SQL (line 1, position 1) ==\n\tat org.apache.spark.X"
    )
    healthy: Any = Job("a", runs=True)
    failing: Any = Job("b", failure=StreamingQueryException(text))
    environment.answers = [TableResult(queries=[healthy]), TableResult(queries=[failing])]
    code, _, err = run("-e", "INSERT INTO a SELECT 1;\n\nINSERT INTO b SELECT 2")
    assert code == 1
    assert err == "dynamic-kafka: error: Line 3, job 'b': [DIVIDE_BY_ZERO] Division by zero.\n"
    assert healthy.stopped


def test_ctrl_c_stops_inserts(environment: Environment, run: Run) -> None:
    """They are named, and the exit code is as a shell has it: 130."""
    jobs: list[Any] = [Job("a", runs=True, look=press_ctrl_c), Job("b", runs=True)]
    environment.answers = [TableResult(queries=jobs)]
    before = signal.getsignal(signal.SIGINT)
    code, out, err = run("-e", "INSERT INTO a SELECT 1")
    assert (code, out, err) == (130, "Running: a, b; Ctrl-C stops\nStopping: a, b\n", "")
    assert all(job.stopped for job in jobs)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_cancels_what_runs(
    environment: Environment, run: Run, prompt: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another thread, as the call to Spark goes on; what Spark says of the cancelled job is not shown."""
    cancelled = threading.Event()
    monkeypatch.setattr(session, "_cancel", lambda *_: cancelled.set())

    def take(_: int) -> list[Any]:
        press_ctrl_c()
        assert cancelled.wait(60)
        raise AnalysisException("Job cancelled")

    rows: Any = SimpleNamespace(columns=["id"], isStreaming=False, take=take)
    environment.answers = [TableResult(dataframe=rows), TableResult(("n",), [(1,)])]
    assert run("-e", "SELECT 1") == (130, "", "")
    environment.answers = [TableResult(dataframe=rows), TableResult(("n",), [(1,)])]
    assert prompt("SELECT 1;", "SELECT 2;") == ["stopped", "n", "1"]


def test_a_second_ctrl_c_ends_at_once(environment: Environment, run: Run) -> None:
    """If the first one does not help."""

    def take(_: int) -> list[Any]:
        press_ctrl_c()
        press_ctrl_c()
        pytest.fail("the second one did nothing")

    rows: Any = SimpleNamespace(columns=["id"], isStreaming=False, take=take)
    environment.answers = [TableResult(dataframe=rows)]
    assert run("-e", "SELECT 1") == (130, "", "")


def test_a_result_waits_for_all_of_its_queries() -> None:
    """0 is a look; a failure is raised also while another query runs."""
    running: Any = Job("a", runs=True)
    ended: Any = Job("b")
    assert TableResult().wait()
    assert TableResult(queries=[ended]).wait()
    assert TableResult(queries=[ended]).wait(0)
    assert not TableResult(queries=[running, ended]).wait(0)
    assert not TableResult(queries=[running]).wait(10)
    failed: Any = Job("c", failure=StreamingQueryException("gone"))
    for timeout_ms in (None, 0, 60_000):
        with pytest.raises(StreamingQueryException, match="gone"):
            TableResult(queries=[running, failed]).wait(timeout_ms)


def test_errors_of_spark(environment: Environment, run: Run) -> None:
    """One line: of a failed job what is ours or Python's, if there is such; jobs that were started before are stopped.

    Exit code 2 if Spark does not understand a statement, else 1.
    """
    job: Any = Job("a", runs=True)
    environment.answers = [TableResult(queries=[job]), AnalysisException("[NOT_FOUND] There is no `x`.\nat line 1")]
    code, _, err = run("-e", "INSERT INTO a SELECT 1;\nSELECT x, 'hidden'")
    assert (code, err) == (2, "dynamic-kafka: error: Line 2, 'SELECT x': [NOT_FOUND] There is no `x`.\n")
    assert job.stopped
    trace = "[STREAM_FAILED] Query terminated\nTraceback (most recent call last):\n  File x\n    boom()\n"
    raised = (
        "[STREAM_FAILED] Query terminated with exception: [USER_RAISED_EXCEPTION] x is wrong SQLSTATE: 1 SQLSTATE: 2"
    )
    for failure, expected in (
        (trace + "dynamic_kafka.errors.DataLossError: Records are gone\n at x", "Records are gone"),
        (trace + "ValueError: boom\n SQLSTATE: 39000", "ValueError: boom"),
        (raised, "x is wrong"),
    ):
        failing: Any = Job("a", failure=StreamingQueryException(failure))
        environment.answers = [TableResult(queries=[failing])]
        code, _, err = run("-e", "INSERT INTO a SELECT 1")
        assert (code, err) == (1, f"dynamic-kafka: error: Line 1, job 'a': {expected}\n")


@pytest.mark.parametrize(
    "statement",
    ["SELECT a\n  FRM b c", "INSERT INTO t SELECT a\n  FRM b c", "CREATE VIEW v AS SELECT a\n  FRM b c"],
)
def test_syntax_errors_of_spark_show_their_place(
    environment: Environment, run: Run, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """In the file, not in the part of it that Spark gets."""
    query = statement[statement.index("SELECT") :]
    message = (
        "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'c'. SQLSTATE: 42601 (line 2, pos 8)\n\n"
        f"== SQL ==\n{query}\n--------^^^\n"
    )

    def fail(_: object) -> TableResult:
        raise ParseException(message)

    monkeypatch.setattr(environment, "execute", fail)
    code, _, err = run("-e", f"-- a comment\n{statement}")
    assert code == 2
    assert err.splitlines() == [
        "dynamic-kafka: error: Line 3, column 9: [PARSE_SYNTAX_ERROR] Syntax error at or near 'c'.",
        "  FRM b c",
        "        ^",
    ]
    message = message.replace("FRM", "FRAM")  # another text, such as a view's
    code, _, err = run("-e", statement)
    assert code == 2
    assert err.startswith(f"dynamic-kafka: error: Line 1, '{statement[:6]}")
    assert err.endswith("Syntax error at or near 'c'. SQLSTATE: 42601 (line 2, pos 8)\n")


def test_warnings_are_shown(environment: Environment, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in one line, once; information is not."""
    for _ in range(2):
        assert run("-e", "SET 'table.exec.mini-batch.enabled' = 'true'") == (
            0,
            "OK\n",
            "dynamic-kafka: warning: SET 'table.exec.mini-batch.enabled' is ignored: it has no equivalent in Spark\n",
        )

    def warn(_: object) -> TableResult:
        logging.getLogger("dynamic_kafka.x").warning("First,\nthen %s", "more")
        logging.getLogger("dynamic_kafka.x").info("nothing")
        return TableResult()

    monkeypatch.setattr(environment, "execute", warn)
    assert run("-e", "SELECT 1") == (0, "", "dynamic-kafka: warning: First, then more\n")


# --- forms of rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_terminal", [False, True])
def test_an_encoding_without_a_character(
    environment: Environment, run: Run, monkeypatch: pytest.MonkeyPatch, *, on_terminal: bool
) -> None:
    """Programs get and give UTF-8, and a terminal shows an escape; no row is missing."""
    written = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(written, "isatty", lambda: on_terminal)
    monkeypatch.setattr(sys, "stdout", written)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("SELECT 'é漢'".encode()), encoding="latin-1"))
    environment.answers = [TableResult(("c",), [("é漢",), ("é",)])]
    assert run("--output", "csv")[0] == 0
    shown = "c\né\\u6f22\né\n".encode("latin-1") if on_terminal else "c\né漢\né\n".encode()
    written.buffer.seek(0)
    assert written.buffer.read() == shown
    assert environment.asked == ["SELECT 'é漢'"]


def test_rows_for_programs(environment: Environment, run: Run) -> None:
    """All of them, one per line, and nothing else on standard output."""
    rows: Any = SimpleNamespace(columns=["id", "name"], schema=StructType(), isStreaming=False)
    rows.toLocalIterator = lambda **_: iter([("1", 'a "b"'), ("2", None), ("3", ""), ("4", " x")])
    jobs: list[Any] = [Job("t")]
    script = f"{TABLE}; SHOW TABLES; SELECT 1; INSERT INTO t SELECT 1"
    environment.answers = [TableResult(dataframe=rows), TableResult(queries=jobs)]
    assert run("--output", "csv", "-e", script) == (
        0,
        'table name\norders\nid,name\n1,"a ""b"""\n2,\n3,""\n4," x"\n',
        "Running: t; Ctrl-C stops\n",
    )
    rows.toLocalIterator = lambda **_: iter([('{"id":1}',)])
    environment.answers = [TableResult(dataframe=rows), Stream(lambda: (row for row in [('{"id":2}',)]))]
    assert run("--output", "json", "-e", "SHOW TABLES; SELECT 1; SELECT * FROM s") == (
        0,
        '{"table name": "orders"}\n{"id":1}\n{"id":2}\n',
        "",
    )


TWICE = StructType().add("a", IntegerType()).add("b", IntegerType()).add("a", IntegerType())


@pytest.mark.parametrize(
    "kind",
    [TWICE, StructType().add("s", TWICE), StructType().add("m", MapType(StringType(), ArrayType(TWICE)))],
)
def test_names_of_columns_do_not_repeat_in_json(environment: Environment, run: Run, kind: StructType) -> None:
    """It would lose a value in each row, so it is refused before a row, also for rows within columns."""
    rows: Any = SimpleNamespace(columns=["a"], schema=kind, isStreaming=False)
    environment.answers = [TableResult(dataframe=rows)]
    code, out, err = run("--output", "json", "-e", "SELECT 1")
    assert (code, out) == (2, "")
    assert "JSON cannot have two columns of the name 'a' in a row; give one of them another name with AS" in err


def draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make standard output a terminal that can draw, and the first column one of numbers."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(results, "_numbers", lambda _: frozenset({0}))


def test_a_stream_on_a_terminal(environment: Environment, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows come below each other, in columns that grow with their texts."""
    draw(monkeypatch)
    environment.answers = [Stream(lambda: (row for row in [("1", "a"), ("22", None), ("333", "b\x1b[2J")]))]
    code, out, _ = run("-e", "SELECT * FROM s")
    assert (code, out.splitlines()) == (0, ["id │ name", "─────────", " 1 │ a", "22 │ NULL", "333 │ b\\x1b[2J"])


def test_an_aggregation_on_a_terminal(environment: Environment, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one table, drawn again with all rows of now; Ctrl-C leaves the last one."""
    draw(monkeypatch)

    def rows() -> Iterator[Any]:
        yield results._Snapshot([("1", "a")], more=False)
        yield results._Snapshot([("20", "a"), ("3", None)], more=True)
        raise KeyboardInterrupt

    environment.answers = [Stream(rows)]
    code, out, _ = run("-e", "SELECT * FROM s")
    assert code == 0
    first, _, second = out.rpartition("1 row · update 1, ")
    assert "1   a" in first
    last = re.sub(r"\x1b\[[0-9?]*[A-Za-z]", "", second)
    assert "20   a" in last
    assert " 3   NULL" in last
    assert "the first 2 rows · update 2, " in last
    assert out.endswith("stopped\n")


def test_names_of_columns_may_repeat(environment: Environment, run: Run) -> None:
    """Each column is shown."""
    rows: Any = SimpleNamespace(columns=["n", "n"], isStreaming=False, take=lambda _: [("1", "2")])
    environment.answers = [TableResult(dataframe=rows)]
    assert run("-e", "SELECT 1") == (0, "n  n\n1  2\n", "")


def test_what_java_says_about_itself_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """All other lines of Java's standard error are shown, such as why it does not start."""
    reading, writing = os.pipe()
    about_itself = (
        b'WARNING: Using incubator modules: x\nSetting default log level to "WARN".\nTo adjust logging level use x\n'
    )
    os.write(writing, about_itself + b"JAVA_HOME is not set\n")
    os.close(writing)
    session._pass_on(reading)
    assert capsys.readouterr().err == "JAVA_HOME is not set\n"


def test_how_far_a_batch_is() -> None:
    """By its tasks, once Spark has planned it."""
    assert status.batch_text([], 1000) == "planning · 1 s · Ctrl-C stops"
    assert status.batch_text([(3, 4), (0, 200)], 61_000) == "3 of 204 tasks · 1 min 1 s · Ctrl-C stops"


def test_what_jobs_do() -> None:
    """Their last batch and its speed, which Spark leaves out if there was nothing to read."""
    last = {"batchId": 7, "numInputRows": 12_000, "processedRowsPerSecond": 1234.5}
    assert job_lines.progress_of(last) == {"batch": "7", "rows": "12,000", "rows per second": "1,234"}
    idle = {"batchId": 8, "numInputRows": 0, "processedRowsPerSecond": float("nan")}
    assert job_lines.progress_of(idle)["rows per second"] == "0"
    connected = {"batchId": 9, "numInputRows": None, "sources": [{"numInputRows": 4}, {"numInputRows": 3}]}
    assert job_lines.progress_of(connected)["rows"] == "7"
    statement: Any = None
    jobs: list[Any] = [Job(name, runs=True) for name in "abc"]
    jobs[0].progress, jobs[2].progress = last, idle
    jobs += [Job("d"), Job("e", failure=StreamingQueryException("gone"))]
    assert job_lines.summary([job_lines.Job(job, statement, "") for job in jobs]) == (
        "a: batch 7, 1,234 rows/s · b: starting · c: batch 8, 0 rows/s · d: ended · e: failed (Enter shows why)"
    )


# --- settings -----------------------------------------------------------------------------------------------------------


def config(**values: str) -> tuple[TableConfig, dict[str, str]]:
    """A configuration on a session with these settings, and what the session has."""
    session: Any = Session(**values)
    return TableConfig(session, lambda: None), session.conf.values


ZONE, OURS = "spark.sql.session.timeZone", "table.local-time-zone"


@pytest.mark.parametrize("before", [{}, {ZONE: "Asia/Tokyo"}])
@pytest.mark.parametrize("all_of_them", [True, False])
def test_reset_gives_back_what_was_there(before: dict[str, str], *, all_of_them: bool) -> None:
    """Before the first SET; a key that was never set stays as it is."""
    made, session = config(**before)
    made.reset(OURS)
    made.reset(ZONE)
    made.reset("table.exec.mini-batch.enabled")
    assert session == before
    for zone in ("UTC", "Europe/Berlin"):
        made.set(OURS, zone)
        assert session[ZONE] == zone
    made.set("spark.x", "1").set(ZONE, "UTC")
    if all_of_them:
        made.reset()
    else:
        for key in (ZONE, "spark.x", OURS):
            made.reset(key)
    assert session == before
    assert made.items() == []


def test_unknown_and_wrong_settings() -> None:
    """They are named, by SET and RESET; nothing is set."""
    made, _ = config()
    with pytest.raises(ConfigurationError, match=r"RESET 'pipelin\.name' is unknown; did you mean 'pipeline\.name'"):
        made.reset("pipelin.name")
    with pytest.raises(ConfigurationError, match="SET 'x' is unknown; there are "):
        made.set("x", "1")
    for key, value in (
        ("table.exec.source.idle-timeout", "garbage"),
        ("table.exec.source.idle-timeout", "5 parsecs"),
        ("execution.checkpointing.interval", "-1 s"),
        ("parallelism.default", "0"),
    ):
        with pytest.raises(InvalidOptionError, match=f"'{key}' has the value '{value}'; expected"):
            made.set(key, value)
    assert made.items() == []
    made.set("table.exec.source.idle-timeout", "30 s")
    assert made.items() == [("table.exec.source.idle-timeout", "30 s")]


def test_settings_are_listed_without_secrets(environment: Environment, run: Run) -> None:
    """What is set keeps its value."""
    code, out, _ = run("-e", "SET 'spark.hadoop.fs.s3a.secret.key' = 'hunter2'; SET 'spark.x' = '1'; SET")
    assert code == 0
    assert [line.split() for line in out.splitlines()[3:]] == [
        ["spark.hadoop.fs.s3a.secret.key", "***"],
        ["spark.x", "1"],
    ]
    assert environment.get_config().get("spark.hadoop.fs.s3a.secret.key") == "hunter2"


# --- the prompt ---------------------------------------------------------------------------------------------------------


def test_statements_at_the_prompt(prompt: Callable[..., list[str]]) -> None:
    """They end with a semicolon, also many on a line; Ctrl-C forgets what was typed."""
    assert prompt("", "-- nothing", "SHOW", "  TABLES;") == ["no rows (table name)"]
    assert prompt(*TABLE.splitlines(), "SHOW TABLES; SHOW VIEWS", ";") == [
        "OK",
        "table name",
        "orders",
        "no rows (view name)",
    ]
    assert prompt("SHOW", KeyboardInterrupt, "SHOW VIEWS;") == ["", "no rows (view name)"]


@pytest.mark.parametrize(
    "lines",
    [
        ("SELECT 1; -- done",),
        ("SELECT 1", "", "-- not yet;", "", ", 2; /* done */"),
        ("SELECT ';", "', `;", "`;"),
        ("SELECT /* one;", "", "two; */ 1;"),
        ("SELECT 1; SELECT", "2;"),
        ("EXECUTE STATEMENT SET BEGIN", "", "INSERT INTO a SELECT 1; -- END;", "INSERT INTO b SELECT 2;", "END;"),
        ("EXPLAIN STATEMENT SET BEGIN INSERT INTO a SELECT 1;", "END;"),
        (";",),
        ("SELEC 1;",),
        ("SELECT \\ 1;",),
        ("DROP TABLE t `is not closed`;",),
        ("INSERT INTO t /*+ OPTIONS('a = 'b') */ SELECT 1;",),
    ],
)
def test_where_statements_end(lines: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """At a semicolon outside of strings, names, comments and statement sets; one with a fault does, too."""
    given = iter(lines)
    monkeypatch.setattr(builtins, "input", lambda _: next(given))
    assert editor._plain() == "\n".join(lines)
    assert next(given, None) is None


def test_the_prompt_goes_on_after_errors(environment: Environment, prompt: Callable[..., list[str]]) -> None:
    """A fault is shown with its line; of an error of Spark, the first one."""
    environment.answers = [
        AnalysisException("\n[NOT_FOUND] There is no `x`.\nmore"),
        KeyError("y"),
        TableResult(("n",), [(1,)]),
    ]
    assert prompt("SHOW", "TABLEZ;", "DROP TABLE t;", "SELECT x;", "SELECT y;", "SELECT 1;") == [
        "n",
        "1",
        "error: Line 2, column 1: Expected TABLES, VIEWS or CREATE TABLE, found 'TABLEZ'",
        "TABLEZ;",
        "^",
        "error: Line 1, column 12: Table `t` does not exist; see SHOW TABLES",
        "DROP TABLE t;",
        "           ^",
        "error: Line 1, 'SELECT x': [NOT_FOUND] There is no `x`.",
        "error: 'y' (an unexpected KeyError; please report it)",
    ]


@pytest.mark.usefixtures("prompt")
@pytest.mark.parametrize("arguments", [(), ("-e", "SELECT 1; SHOW TABLES")])
def test_an_end_of_java_ends_the_program(
    environment: Environment, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """One line says so, whatever the call to it says; the prompt cannot go on either."""
    with subprocess.Popen(["false"]) as java:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
    monkeypatch.setattr(builtins, "input", lambda _: "SELECT 1;")
    environment.answers = [ConnectionRefusedError(111, "Connection refused")]
    code, _, err = run(*arguments)
    assert code == 1
    assert err.startswith("dynamic-kafka: error: Spark's Java process has ended: it was killed, or out of memory")
    assert environment.asked == ["SELECT 1"]


def test_jobs_at_the_prompt(environment: Environment, prompt: Callable[..., list[str]]) -> None:
    """They run on while the prompt does, and one that fails is told of once; a statement set ends with its END."""
    running: Any = Job("orders", runs=True)
    failing: Any = Job("users", failure=StreamingQueryException("Users are gone"))
    environment.answers = [TableResult(queries=[running]), TableResult(queries=[failing])]
    assert prompt("INSERT INTO orders SELECT 1;", "INSERT INTO users SELECT 1;", "", "SHOW VIEWS;") == [
        "started orders",
        "started users",
        "no rows (view name)",
        "error: Line 1, job 'users': Users are gone",
    ]
    assert not running.stopped
    found = prompt("EXECUTE STATEMENT SET BEGIN", "INSERT INTO a SELECT 1;", "INSERT INTO b SELECT 2;", "END;")
    assert found == [
        "error: Line 2, column 13: Table `a` does not exist; see SHOW TABLES",
        "INSERT INTO a SELECT 1;",
        "            ^",
    ]


@pytest.mark.parametrize("then", ["SHOW JOBS;", "STOP JOB 'orders';", "QUIT", "SHOW VIEWS;"])
def test_a_job_that_fails_while_the_user_thinks(
    environment: Environment, prompt: Callable[..., list[str]], then: str
) -> None:
    """What was typed meanwhile does not take it for one that runs, and its error is shown, also to who leaves."""
    job: Any = Job("orders", runs=True, failure=StreamingQueryException("Orders are gone"))

    def typed() -> str:
        job.stopped = True
        return then

    environment.answers = [TableResult(queries=[job])]
    shown = prompt("INSERT INTO orders SELECT 1;", typed, expected=int(then == "QUIT"))
    assert "error: Line 1, job 'orders': Orders are gone" in shown
    assert ("no jobs" in shown) == (then == "SHOW JOBS;")
    assert ("error: Job 'orders' does not run; see SHOW JOBS" in shown) == then.startswith("STOP")


@pytest.mark.parametrize("then", [("STOP JOB 'skipping';",), ()])
def test_the_prompt_says_what_could_not_be_read(
    environment: Environment, prompt: Callable[..., list[str]], then: tuple[str, ...]
) -> None:
    """When a job is stopped, or left."""
    environment.answers = [TableResult(queries=[Job("skipping", runs=True)])]  # type: ignore[list-item]
    shown = prompt("INSERT INTO orders SELECT 1;", *then)
    assert sum("2 messages of table 'orders' could not be read and were skipped" in line for line in shown) == 1


def test_jobs_are_listed_and_stopped_at_the_prompt(environment: Environment, prompt: Callable[..., list[str]]) -> None:
    """By their names."""
    running: Any = Job("orders", runs=True)
    environment.answers = [TableResult(queries=[running])]
    assert prompt(
        "show jobs;",
        "INSERT INTO orders SELECT 1;",
        "SHOW JOBS;",
        "STOP JOB 'order';",
        "stop job 'orders';",
        "SHOW JOBS;",
    ) == [
        "no jobs",
        "started orders",
        "job     batch  rows  rows per second",
        "orders  -      -     -",
        "stopped orders; the same INSERT continues it",
        "no jobs",
        "error: Job 'order' does not run; did you mean 'orders'?",
    ]
    assert running.stopped


def test_words_of_the_prompt(prompt: Callable[..., list[str]]) -> None:
    """HELP, and QUIT, with or without a semicolon."""
    assert "SHOW JOBS" in "".join(prompt("help;", "QUIT", "SHOW TABLES;"))
    assert prompt("clear", "exit;", "SHOW TABLES;") == []


_WITHOUT_SPARK = """
import dynamic_kafka
from dynamic_kafka.cli.main import main
from tests.unit.cli.test_cli_sql import Environment, TableResult, command

dynamic_kafka.register = lambda _: None
environment = Environment()
environment.answers = [TableResult(("answer",), [(42,)])]
command.start_environment = lambda *_, **__: environment
raise SystemExit(main(["sql"]))
"""


def test_a_terminal_that_cannot_draw(tmp_path: Path) -> None:
    """Rows, an error that shows its place, the history, and Ctrl-D; tests/spark/test_cli_sql.py does it with Spark."""
    history = tmp_path / ".dynamic-kafka-history"
    history.touch(mode=0o644)
    with Terminal([sys.executable, "-c", _WITHOUT_SPARK], tmp_path) as terminal:
        terminal.shows("sql> ")
        terminal.types("SELECT 41 + 1 AS answer;\n")
        terminal.shows("42")
        terminal.types("SET 'spark.hadoop.fs.s3a.secret.key' = 'hunter2'; SELEC 1;\n")
        terminal.shows("^")
        terminal.shows("sql> ")  # a terminal keeps a Ctrl-D that is typed before the prompt as an empty character
        terminal.types("\x04")
        assert terminal.process.wait(60) == 0
    assert "Line 1, column 51: Expected a statement" in terminal.shown
    assert "SELECT 41 + 1 AS answer;\n" in history.read_text()
    assert "hunter2" not in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_a_terminal(tmp_path: Path) -> None:
    """The tabulator completes, lines without a semicolon go on, and the history is the user's alone, without secrets."""
    history = tmp_path / ".dynamic-kafka-history-sql"
    history.touch(mode=0o644)
    with Terminal([sys.executable, "-c", _WITHOUT_SPARK], tmp_path, "xterm") as terminal:
        terminal.shows("sql>")
        terminal.types("SELE\t")
        terminal.shows("SELECT")
        terminal.types(" 41 + 1\r")
        terminal.shows("   >")
        terminal.types("AS answer;\r")
        terminal.shows("42")
        terminal.shows("sql>")
        terminal.types("SET 'spark.hadoop.fs.s3a.secret.key' = 'hunter2';\r")
        terminal.shows("OK")
        terminal.shows("sql>")
        terminal.types("\x04")
        assert terminal.process.wait(60) == 0
    assert "+SELECT 41 + 1\n+AS answer;\n" in history.read_text()
    assert "hunter2" not in history.read_text()
    assert history.stat().st_mode & 0o077 == 0

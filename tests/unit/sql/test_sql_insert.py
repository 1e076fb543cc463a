"""Jobs of SQL: which of them may run beside each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException

from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError
from dynamic_kafka.sql import insert
from dynamic_kafka.sql.connectors.all import Table, table_of
from dynamic_kafka.sql.errors.script import own_errors
from dynamic_kafka.sql.insert import Jobs
from dynamic_kafka.sql.session.checkpoints import checkpoint_of
from dynamic_kafka.sql.session.result import TableResult
from dynamic_kafka.sql.tables.definition import PhysicalColumn, TableDefinition
from dynamic_kafka.sql.tables.types import FlinkType

KAFKA = {"connector": "kafka", "properties.bootstrap.servers": "h:9092", "topic": "t", "format": "json"}
COLUMNS = (PhysicalColumn("a", FlinkType("INT")),)


def table(prefix: str = "") -> Table:
    """A table; with a prefix it is written exactly once."""
    exactly = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": prefix} if prefix else {}
    return table_of(TableDefinition(("t",), COLUMNS, options=KAFKA | exactly))


def rows(*, stream: bool = True) -> Any:
    """Rows to write."""
    return SimpleNamespace(isStreaming=stream)


def test_two_jobs_never_share_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first would be fenced by the second, again and again. When it has ended, another one may take the prefix."""
    running = SimpleNamespace(isActive=True)
    monkeypatch.setattr(insert, "_start", lambda *_, **__: running)
    monkeypatch.setattr(insert, "_write", lambda *_: None)
    jobs, config = Jobs(), {"pipeline.name": "one"}
    jobs.insert(rows(), table("p"), config, "SELECT 1")  # type: ignore[arg-type]
    for stream in (True, False):
        with pytest.raises(
            ConfigurationError, match=r"running job 'one'.*prefix 'p'.*OPTIONS\('sink\.transactional-id-prefix'"
        ):
            jobs.insert(rows(stream=stream), table("p"), config, "SELECT 2")  # type: ignore[arg-type]
        jobs.insert(rows(stream=stream), table(f"other-{stream}"), {"pipeline.name": f"two-{stream}"}, "SELECT 2")  # type: ignore[arg-type]
        jobs.insert(rows(stream=stream), table(), {"pipeline.name": f"three-{stream}"}, "SELECT 2")  # type: ignore[arg-type]
    running.isActive = False
    jobs.insert(rows(), table("p"), config, "SELECT 2")  # type: ignore[arg-type]


def test_two_jobs_never_share_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's sink would leave out micro-batches of one of them."""
    running = SimpleNamespace(isActive=True)
    monkeypatch.setattr(insert, "_start", lambda *_, **__: running)
    options = {"connector": "filesystem", "path": "/x/", "format": "json"}
    one, other = (
        table_of(TableDefinition(("t",), COLUMNS, options=options | {"path": path})) for path in ("/x/", "/y")
    )
    jobs, config = Jobs(), {"pipeline.name": "one"}
    jobs.insert(rows(), one, config, "SELECT 1")  # type: ignore[arg-type]
    jobs.insert(rows(), other, config, "SELECT 2")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="running job 'one' writes to '/x'"):
        jobs.insert(rows(), one, config, "SELECT 3")  # type: ignore[arg-type]
    running.isActive = False
    jobs.insert(rows(), one, config, "SELECT 3")  # type: ignore[arg-type]


@given(st.lists(st.text(min_size=1, max_size=4), min_size=2, max_size=2, unique=True))
@example(["订单", "用户"])
@example(["a b", "a_b"])
@example(["a/b", "a\\b"])
def test_two_names_have_two_folders(names: list[str]) -> None:
    """Whatever characters they have: of two jobs with one checkpoint, Spark stops the first without a word."""
    config: Any = SimpleNamespace(get={"execution.checkpointing.dir": "/checkpoints/"}.get)
    folders = [checkpoint_of(None, config, name) for name in names]  # type: ignore[arg-type]
    assert folders[0] != folders[1]
    assert all(folder is not None and folder.isascii() and folder.count("/") == 2 for folder in folders)


def test_a_batch_never_repeats_what_a_stream_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job with a checkpoint is not a batch by default. To repeat it, or to continue it, is a setting."""
    written: list[object] = []
    monkeypatch.setattr(insert, "_write", lambda *_: written.append(1))
    monkeypatch.setattr(insert, "has_begun", lambda _, checkpoint: checkpoint == "/checkpoints/old_job-6c92ebf2")
    batch, jobs = SimpleNamespace(isStreaming=False, sparkSession=None), Jobs()

    def run(mode: str, name: str, *, could_be_stream: bool = True) -> None:
        settings = {"execution.checkpointing.dir": "/checkpoints/", "pipeline.name": name}
        config: Any = SimpleNamespace(mode=mode, get=settings.get)
        jobs.insert(batch, table(), config, "SELECT 1", could_be_stream=could_be_stream)  # type: ignore[arg-type]

    with pytest.raises(
        ConfigurationError, match=r"'/checkpoints/old_job-6c92ebf2' is the checkpoint of a stream.*'streaming'"
    ):
        run("automatic", "old job")
    assert not written
    run("batch", "old job")
    run("automatic", "new job")
    run("automatic", "old job", could_be_stream=False)
    assert len(written) == 3


class OfSpark(AnalysisException):
    """Spark's error for one that a data source in Python has raised."""

    def __init__(self, text: str, condition: str = "PYTHON_DATA_SOURCE_ERROR") -> None:
        traceback = 'Traceback (most recent call last):\n  File "source.py", line 1, in partitions\n    raise'
        super().__init__(f"[{condition}] Failed when Python data source instance:\n{traceback}\n{text}\n")
        self.condition = condition

    def getCondition(self) -> str:  # noqa: N802  Spark's
        """Return it."""
        return self.condition


@pytest.mark.parametrize("kind", ["ConfigurationError", "InvalidOptionError", "ClusterUnavailableError"])
def test_our_own_error_of_a_batch_is_raised_as_such(kind: str) -> None:
    """By its rows, printed or collected, and by an INSERT, in one line."""

    def fail(*_: Any, **__: Any) -> Any:
        raise OfSpark(f"dynamic_kafka.errors.{kind}: Topic 'x' does not exist")

    frame: Any = SimpleNamespace(isStreaming=False, columns=["a"], collect=fail, show=fail)
    written: Any = SimpleNamespace(write=SimpleNamespace(format=fail))
    for action in (
        TableResult(dataframe=frame).collect,
        TableResult(dataframe=frame).print,
        lambda: insert._write(written, table()),
    ):
        with pytest.raises(DynamicKafkaError) as raised:
            action()
        assert str(raised.value) == "Topic 'x' does not exist"
        assert isinstance(raised.value, ConfigurationError) == (kind != "ClusterUnavailableError")
        assert raised.value.__suppress_context__


@pytest.mark.parametrize(
    "error",
    [
        OfSpark("dynamic_kafka.errors.ConfigurationError: a message says so", "USER_RAISED_EXCEPTION"),
        OfSpark("ValueError: of another data source"),
    ],
)
def test_other_errors_of_a_batch_are_sparks(error: OfSpark) -> None:
    """Whatever words a message has."""
    with pytest.raises(AnalysisException), own_errors():
        raise error

"""What SQL does differently in Spark Connect, without it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from dynamic_kafka.errors import CheckpointError
from dynamic_kafka.sql.session.connect import follow_by_memory, is_connect, query_id


def test_the_id_of_a_query_is_in_its_checkpoint(tmp_path: Path) -> None:
    """Another file there, or none, is an error that says what to do."""
    with pytest.raises(CheckpointError, match=r"metadata, so its batches cannot be written exactly once"):
        query_id(str(tmp_path))
    (tmp_path / "metadata").write_text("[]")
    with pytest.raises(CheckpointError, match=r"execution\.checkpointing\.dir"):
        query_id(str(tmp_path))
    (tmp_path / "metadata").write_text('{"id":"4ae66ab4-ba2a-4f0c-9d4b-b0b3a4b5b3a1"}')
    assert query_id(str(tmp_path)) == "4ae66ab4-ba2a-4f0c-9d4b-b0b3a4b5b3a1"


def test_a_session_is_known_by_its_class() -> None:
    """Nothing is imported for that."""
    assert not is_connect(SimpleNamespace())  # type: ignore[arg-type]
    assert is_connect(type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})())


@pytest.mark.parametrize(("mode", "expected"), [("append", ["a", "b", "c", "d"]), ("complete", ["ab", "abc", "abcd"])])
def test_rows_are_followed_until_the_query_has_ended(mode: str, expected: list[str]) -> None:
    """Each row once, or all rows after each change. The last ones are there; query and view are gone in the end."""
    kept: list[str] = []
    steps = [["a", "b"], [], ["c"], ["d"], []]

    class Query:
        stopped = False
        lastProgress: Any = SimpleNamespace()  # noqa: N815  Spark's name

        @property
        def isActive(self) -> bool:  # noqa: N802  Spark's name
            kept.extend(steps.pop(0))
            return len(steps) > 1

        def stop(self) -> None:
            self.stopped = True

        def awaitTermination(self) -> None:  # noqa: N802  Spark's name
            pass

    query: Any = Query()
    spark = Mock()
    spark.table = lambda _: SimpleNamespace(all=lambda: kept, offset=lambda n: SimpleNamespace(all=lambda: kept[n:]))
    stream: Any = Mock(sparkSession=spark)
    rows_of: Any = {"append": lambda rows: rows.all(), "complete": lambda rows: ["".join(rows.all())]}
    assert [*follow_by_memory(stream, rows_of, lambda _: (mode, query))] == expected
    assert query.stopped
    spark.catalog.dropTempView.assert_called_once()

"""Nexmark's queries as streams over Kafka (`tests/nexmark`): each gives the rows that Flink gave, or is refused by name."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker
from tests.nexmark.queries import ANSWERS, QUERIES, TABLES, statements, write_events

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "from-flink.md").read_text()
SAID = dict(re.findall(r"^\| (q\d+) \| .* \| (.*? \| .*?) \| [\d. ]*\|$", PAGE, re.MULTILINE))
"""What the guide's table says of each query: here, and in Flink."""
REFUSED = {"q4": "Spark cannot calculate with the rows of an aggregation", "q6": "is there a column `rownum`"}
"""Words of the errors."""
KEYS = {"q9": [0], "q12": [0, 2], "q15": [0], "q16": [0, 1], "q17": [0, 1], "q18": [0, 1], "q19": [0, 7]}
"""The columns that say which row of a result takes the place of an earlier one."""
ALWAYS = {"q9"}
"""The queries that are not only among the slow tests."""


@pytest.fixture(scope="module")
def folder(cluster_a: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for files, after the events are written."""
    found = tmp_path_factory.mktemp("nexmark")
    write_events(cluster_a, found)
    return found


@pytest.fixture
def streams(spark: SparkSession, env: TableEnvironment) -> Iterator[TableEnvironment]:
    """An environment in streaming mode, with the function of q14."""
    spark.udf.register("count_char", lambda text, letter: text.count(letter), "BIGINT")
    env.get_config().set("execution.runtime-mode", "streaming")
    yield env
    spark.sql("DROP TEMPORARY FUNCTION count_char")


def as_flink(value: Any) -> str | None:
    """A value as the text that Flink's answers have."""
    match value:
        case datetime():
            return value.isoformat(" ", "milliseconds")
        case Decimal():
            return format(value, "f")
        case _:
            return None if value is None else str(value)


def left(name: str, rows: Iterator[Any]) -> Counter[tuple[str | None, ...]]:
    """The rows that are left of a stream's when the later ones with the same key have taken the place of earlier ones."""
    texts = [tuple(map(as_flink, row)) for row in rows]
    if name in KEYS:
        return Counter({tuple(row[i] for i in KEYS[name]): row for row in texts}.values())
    return Counter(texts)


@pytest.mark.parametrize("name", [pytest.param(q, marks=[] if q in ALWAYS else pytest.mark.slow) for q in QUERIES])
def test_query(streams: TableEnvironment, cluster_a: KafkaBroker, folder: Path, name: str) -> None:
    """Over three micro-batches, the rows are Flink's; or it is refused before it starts, as the guide's table says."""
    several = TABLES.replace("'format' = 'json'", "'format' = 'json', 'maxOffsetsPerTrigger' = '120'")
    *before, insert = statements(
        f"{several};\n{QUERIES[name]}", servers=cluster_a.bootstrap_servers, folder=str(folder)
    )
    for statement in before:
        streams.execute_sql(statement)
    here, flink = SAID[name].split(" | ")
    answers = json.loads(ANSWERS.read_text())
    assert (answers[name]["error"] is None) == (flink in ("Runs.", "Drops the last window when the stream ends."))
    if here.startswith("Refused: "):
        with pytest.raises(DynamicKafkaError, match=REFUSED[name]):
            streams.execute_sql(insert)
        return
    found = left(name, streams.execute_sql(insert.partition("\n")[2]).collect())
    wanted = Counter(map(tuple, answers[name]["rows"]))
    if name == "q12":  # whenever it runs, each bid is in one window; Flink gives none of the last windows of a stream
        assert wanted.total() == 0
        found = Counter((bidder,) for bidder, bids, *_ in found for _ in range(int(bids or 0)))
        wanted = Counter((bidder,) for _, bidder, *_ in answers["q0"]["rows"])
    assert found - wanted == wanted - found == Counter()

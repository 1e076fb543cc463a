"""A table, then Kafka: where the table's own record of offsets says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.rows import COLUMNS
from dynamic_kafka.testing import KafkaBroker, produce
from tests.engine import Query

deltalake = pytest.importorskip("deltalake")

pytestmark = pytest.mark.broker

NAMES = [name for name in COLUMNS if name not in ("headers", "leader_epoch")]


@pytest.mark.parametrize("own", [True, False], ids=["this source", "Spark's own source"])
def test_kafka_goes_on_where_the_checkpoint_of_the_table_ended(
    cluster_a: KafkaBroker,
    topic: Callable[..., str],
    tmp_path: Path,
    own: bool,  # noqa: FBT001
) -> None:
    """Also if the table has not the last rows, because its query has left them out; no row comes twice."""
    name = topic(cluster_a, partitions=2)
    options = {"kafka.bootstrap.servers": cluster_a.bootstrap_servers, "subscribe": name}
    for partition in range(2):
        produce(cluster_a.bootstrap_servers, name, [(None, f"{i}") for i in range(20)], partition=partition)
    writer = Query({**options, "startingOffsets": "earliest"})
    assert writer.step() == 40
    kept = [{column: row[column] for column in NAMES} for row in writer.rows if row["offset"] < 15]
    schema = pa.schema([(column, COLUMNS[column]) for column in NAMES])
    deltalake.write_deltalake(tmp_path / "table", pa.Table.from_pylist(kept, schema), partition_by=["partition"])
    end = json.loads(writer.log[-1]) if own else {name: {"0": 20, "1": 20}}
    writer.close()
    for folder, text in (("offsets", json.dumps(end)), ("commits", "{}")):
        file = tmp_path / "checkpoint" / folder / "0"
        file.parent.mkdir(parents=True)
        file.write_text(f"v1\n{{}}\n{text}")
    for partition in range(2):
        produce(cluster_a.bootstrap_servers, name, [(None, f"{i}") for i in range(20, 25)], partition=partition)

    of_table = {
        "history.path": str(tmp_path / "table"),
        "history.format": "delta",
        "history.switch": "checkpoint",
        "history.switch.checkpoint": str(tmp_path / "checkpoint"),
    }
    query = Query({**options, **of_table})
    assert [query.step() for _ in range(3)] == [30, 10, 0]
    expected = sorted((p, offset) for p in range(2) for offset in (*range(15), *range(20, 25)))
    assert sorted((row["partition"], row["offset"]) for row in query.rows) == expected
    assert "where its checkpoint ended, in 2 partitions" in query.enumerator.report()["history"]["promise"]
    query.close()

    (tmp_path / "checkpoint" / "offsets" / "1").write_text(f"v1\n{{}}\n{json.dumps(end)}")
    with pytest.raises(ConfigurationError, match=r"batch 1 in .* is not finished"):
        Query({**options, **of_table}).step()

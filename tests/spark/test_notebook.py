"""What a notebook shows of a running query: real IPython, real queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from IPython.core.interactiveshell import InteractiveShell
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from traitlets.config import Config

import dynamic_kafka
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.engine import MetadataFile
from tests.spark.tables import Topic
from tests.versions import needs

pytestmark = [pytest.mark.broker, pytest.mark.spark, needs("lastProgress"), pytest.mark.usefixtures("stopped")]

Show = Callable[[object], str | None]


@pytest.fixture(name="show")
def _show() -> Iterator[Show]:
    """Return the HTML of a cell with a value; None if IPython shows the value as text only."""
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    try:
        yield lambda value: cast("Any", shell).display_formatter.format(value)[0].get("text/html")
    finally:
        InteractiveShell.clear_instance()


def _shown(show: Show, query: StreamingQuery, *parts: str) -> str:
    """The HTML, once it has all of these parts."""

    def complete() -> str | None:
        assert query.exception() is None, query.exception()
        html = show(query)
        return html if html and all(part in html for part in parts) else None

    return str(wait_until(complete, 60, f"{parts} in a notebook"))


@pytest.mark.slow
def test_a_query_is_a_table_of_its_clusters(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, tmp_path: Path, show: Show
) -> None:
    """Clusters with their states and the records to read, a link to the page, an error of the metadata; each as text."""
    name = topic(cluster_a, partitions=2)
    hostile = "<img src=x onerror=alert(1)>"
    metadata = MetadataFile(tmp_path / "<u>.yaml")
    metadata.write(s={hostile: {"topics": [name], "bootstrapServers": cluster_a.bootstrap_servers}})
    dynamic_kafka.register(spark)
    patient = {"stream-metadata-discovery-failure-threshold": "10000"}
    options = metadata.options(startingOffsets="earliest", **patient, **{"metrics.port": "0"})
    rows = spark.readStream.format("dynamic-kafka").options(**options).load()
    query = rows.writeStream.format("noop").queryName('"><script>alert(2)</script>').start()
    produce(cluster_a.bootstrap_servers, name, [("k", "v")])
    row = "<td>&lt;img src=x onerror=alert(1)&gt;</td><td>reading</td><td>1</td><td>2</td><td>0</td><td></td>"
    html = _shown(show, query, ": running, batch", row, '<a href="http://')
    assert "&quot;&gt;&lt;script&gt;alert(2)" in html
    assert "<img" not in html
    assert "<script" not in html
    metadata.path.write_text("{")
    assert "<u>" not in _shown(show, query, "The metadata service fails: ", "&lt;u&gt;")
    query.stop()
    assert ": ended, batch" in str(show(query))


def test_a_query_of_another_source_stays_text(spark: SparkSession, show: Show) -> None:
    """It is Spark's own representation, before and after its first batch."""
    dynamic_kafka.register(spark)
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    assert show(query) is None
    wait_until(lambda: query.lastProgress, 30, "progress")
    assert show(query) is None


def test_the_result_of_an_insert_shows_its_queries(
    spark: SparkSession, cluster_a: KafkaBroker, topic: Topic, checkpoint: str, show: Show
) -> None:
    """The result of a statement without a query is text, and that of INSERT is the table of the query."""
    name = topic(cluster_a)
    environment = TableEnvironment(spark)
    environment.get_config().set("execution.checkpointing.dir", checkpoint)
    created = environment.execute_sql(
        f"CREATE TABLE words (word STRING) WITH ('connector' = 'kafka', 'topic' = '{name}', 'format' = 'json', "
        f"'properties.bootstrap.servers' = '{cluster_a.bootstrap_servers}', 'scan.startup.mode' = 'earliest-offset')"
    )
    assert show(created) is None
    environment.execute_sql("CREATE TABLE nowhere (word STRING) WITH ('connector' = 'blackhole')")
    result = environment.execute_sql("INSERT INTO nowhere SELECT word FROM words")
    _shown(show, result.queries[0], "<td>reading</td>")
    assert "<td>reading</td>" in str(show(result))

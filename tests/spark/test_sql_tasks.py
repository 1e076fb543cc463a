"""How many tasks a query with state has in each micro-batch."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.sql.session import result as results

pytestmark = [pytest.mark.spark]

PARTITIONS = "spark.sql.shuffle.partitions"
SESSION = f"""
from dynamic_kafka.cli.sql.session import start_environment
for settings in [], ["{PARTITIONS}=7"]:
    env = start_environment("local[3]", None, settings, debug=False)
    print(env.sql_query("VALUES (1)").sparkSession.conf.get("{PARTITIONS}"))
    env.sql_query("VALUES (1)").sparkSession.stop()
"""
STREAMS = {
    "SELECT COUNT(*) FROM numbers": True,
    "SELECT a.n FROM numbers a JOIN numbers b ON a.n = b.n": True,
    "SELECT DISTINCT n FROM numbers": True,
    "SELECT a.n FROM numbers a JOIN (VALUES (1)) b (n) ON a.n = b.n": False,
    "SELECT n + 1 AS m FROM numbers WHERE n > 5": False,
}


@pytest.mark.slow
def test_the_program_has_as_many_tasks_as_cores() -> None:
    """On one machine, unless the user sets another number with --conf."""
    done = subprocess.run([sys.executable, "-c", SESSION], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["3", "7"], done.stderr


@pytest.mark.parametrize(("query", "has_state"), STREAMS.items())
def test_a_query_with_state_and_sparks_default_is_noted(
    env: TableEnvironment, spark: SparkSession, caplog: pytest.LogCaptureFixture, query: str, *, has_state: bool
) -> None:
    """Once in a process: what to set, and to which number. Nothing is said of queries without state, or of other numbers."""
    env.execute_sql("CREATE TABLE numbers (n INT) WITH ('connector' = 'datagen')")
    stream = env.sql_query(query)
    results._say_once.cache_clear()
    results.note_tasks_of_state(stream)
    assert caplog.text == ""
    spark.conf.set(PARTITIONS, "200")
    try:
        results.note_tasks_of_state(stream)
        results.note_tasks_of_state(stream)
    finally:
        spark.conf.set(PARTITIONS, "1")
    assert caplog.text.count(f"spark.conf.set('{PARTITIONS}', '2')") == has_state

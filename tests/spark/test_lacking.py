"""What is refused because a version of Spark lacks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka import ArrowSerializer
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql import TableEnvironment
from tests.versions import SPARK

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(SPARK >= (4, 1), reason="This version of Spark lacks nothing of it"),
]

USES: dict[str, tuple[Callable[[TableEnvironment], object], str]] = {
    "a column": (lambda env: env.sql_query("SELECT i FROM times"), "The type TIME needs Spark 4.2"),
    "a row": (lambda env: env.execute_sql("INSERT INTO times SELECT 1, NULL"), "The type TIME needs Spark 4.2"),
    "a cast": (lambda env: env.sql_query("SELECT CAST('10:00:00' AS TIME)"), "The type TIME needs Spark 4.2"),
    "a function": (lambda _: ArrowSerializer(len)(F.struct(F.lit(1))), "ArrowSerializer needs Spark 4.1"),
}


@pytest.mark.parametrize("use", USES)
def test_an_error_names_the_version_before_anything_starts(env: TableEnvironment, use: str) -> None:
    """Wherever it is asked for; no broker is."""
    options = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'localhost:1', 'format' = 'json'"
    env.execute_sql(f"CREATE TABLE times (i INT, t TIME) WITH ({options}, 'scan.startup.mode' = 'earliest-offset')")
    asked, error = USES[use]
    with pytest.raises(ConfigurationError, match=f"{error} or newer, and this is Spark 4.0"):
        asked(env)

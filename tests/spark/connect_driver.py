"""A program with a session of Spark Connect, which uses SQL on a broker. Run by a test, in a process of its own."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from itertools import islice
from pathlib import Path

from pyspark.sql import SparkSession

from dynamic_kafka.cli.main import main
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.sql.session.result import follow
from tests.spark.conftest import SETTINGS


def run(servers: str, folder: Path) -> dict[str, object]:
    """Read and write with SQL in batches and streams, and return what was read."""
    builder = SparkSession.builder.remote("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    env = TableEnvironment(spark)
    env.get_config().set("execution.checkpointing.dir", str(folder / "checkpoints"))
    of_kafka = f"'properties.bootstrap.servers' = '{servers}', 'connector'"
    json_table = f"{of_kafka} = 'kafka', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json'"
    keyed = f"{of_kafka} = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json', 'topic' = 'counts'"
    exactly_once = "'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'counts'"
    ended = "/*+ OPTIONS('scan.bounded.mode' = 'latest-offset') */"
    for ddl in (
        f"CREATE TABLE words (word STRING) WITH ({json_table}, 'topic' = 'words')",
        f"CREATE TABLE counts (word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED) WITH ({keyed}, {exactly_once})",
        f"CREATE TABLE copies (word STRING) WITH ({json_table}, 'topic' = 'copies')",
        "CREATE VIEW upper_words AS SELECT upper(word) AS word FROM words",
        "CREATE TABLE shown (word STRING) WITH ('connector' = 'print')",
    ):
        env.execute_sql(ddl)
    env.execute_sql("INSERT INTO words VALUES ('a'), ('b'), ('a')")
    found: dict[str, object] = {"described": [row[0] for row in env.execute_sql("DESCRIBE upper_words").collect()]}
    batch = f"SELECT word FROM words {ended} WHERE word >= 'a' ORDER BY word"  # a condition that the source may use
    found["batch"] = [row[0] for row in env.execute_sql(batch).collect()]
    stream = env.execute_sql("SELECT word FROM upper_words").collect()
    found["stream"] = sorted(row[0] for row in islice(stream, 3))
    stream.close()  # type: ignore[attr-defined]
    env.get_config().set("execution.runtime-mode", "streaming")
    found["ending"] = sorted(row[0] for row in env.execute_sql(f"SELECT word FROM words {ended}").collect())
    env.get_config().reset("execution.runtime-mode")
    for statement in (
        "INSERT INTO copies SELECT word FROM words",
        "INSERT INTO counts SELECT word, count(*) FROM words GROUP BY word",
        "INSERT INTO shown SELECT word FROM words",
    ):
        result = env.execute_sql(statement)
        result.queries[0].processAllAvailable()
        result.stop()
    found["copies"] = sorted(row[0] for row in env.sql_query(f"SELECT word FROM copies {ended}").collect())
    found["counts"] = sorted(
        tuple(row) for row in env.sql_query(f"SELECT word, n, row_kind FROM counts {ended}").collect()
    )
    found["explained"] = "Physical Plan" in next(env.execute_sql(f"EXPLAIN SELECT * FROM words {ended}").collect())[0]
    live = "SELECT word, count(*) AS n FROM words GROUP BY word ORDER BY word"
    shown = follow(env.sql_query(live), {"append": lambda _: [], "complete": lambda rows: [rows.collect()]})
    found["live"] = next([*map(list, rows)] for rows in shown if len(rows) == 2)
    shown.close()  # type: ignore[attr-defined]
    try:
        env.sql_query("SELECT no_such_column FROM words")
    except Exception as error:  # noqa: BLE001
        found["error"] = str(error)
    with redirect_stdout(StringIO()) as output:
        ddl = (
            f"CREATE TABLE words (word STRING) WITH ({json_table}, 'topic' = 'words'); SET 'execution.runtime-mode' = "
        )
        found["exit code"] = main(
            ["sql", "--remote", "local[2]", "--output", "csv", "-e", f"{ddl}'streaming'; SELECT * FROM words {ended}"]
        )
    found["csv"] = sorted(output.getvalue().split())
    spark.stop()
    return found


if __name__ == "__main__":
    result = run(sys.argv[1], Path(sys.argv[2]))
    Path(sys.argv[2], "found.json").write_text(json.dumps(result))

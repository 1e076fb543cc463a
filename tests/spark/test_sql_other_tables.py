"""SQL tables that are not on Kafka, in Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import wait_until
from tests.spark.tables import ddl

pytestmark = [pytest.mark.spark]


def found(env: TableEnvironment, query: str) -> list[tuple[object, ...]]:
    """The rows of a query, in order."""
    return [tuple(row) for row in env.execute_sql(query).collect()]


def test_generated_rows_into_files_and_back(env: TableEnvironment, tmp_path: Path) -> None:
    """Values keep their limits; lines of JSON and CSV are Flink's, in folders for partitions; an error names its file."""
    generated = {"connector": "datagen", "number-of-rows": "50", "fields.k.min": "1", "fields.k.max": "3"}
    generated |= {"fields.id.kind": "sequence", "fields.id.start": "1", "fields.id.end": "40"}
    generated |= {"fields.d.max": "5", "fields.b.length": "2", "fields.n.null-rate": "1"}
    columns = "id BIGINT, k INT, d DECIMAL(38, 10), s VARCHAR(7), b BYTES, n DOUBLE, big BIGINT, ts TIMESTAMP(3)"
    env.execute_sql(ddl("g", f"{columns}, twice AS k * 2, r ROW<a ARRAY<INT>, f FLOAT>", generated))
    rows = env.sql_query("SELECT * FROM g").collect()
    assert [row.id for row in rows] == list(range(1, 41))
    assert {row.k for row in rows} == {1, 2, 3}
    assert {row.twice // row.k for row in rows} == {2}
    assert {(0 <= row.d <= 5, len(row.s), len(row.b), row.n, len(row.r.a)) for row in rows} == {(True, 7, 2, None, 3)}
    assert len({row.big for row in rows}) == 40
    for form in ("json", "csv", "parquet"):
        options = {"connector": "filesystem", "path": str(tmp_path / form), "format": form}
        clause = "PARTITIONED BY (k)"
        columns = "id BIGINT, k INT, d DECIMAL(10, 2), s STRING, name STRING NOT NULL METADATA FROM 'file.name' VIRTUAL"
        env.execute_sql(ddl(form, columns, options).replace(" WITH (", f" {clause} WITH ("))
        env.execute_sql(f"INSERT INTO {form} VALUES (1, 1, 1.5, 'a;\"b'), (2, CAST(NULL AS INT), 2, '')")
        expected = [(1, 1, "1.50", 'a;"b'), (2, None, "2.00", "")]
        assert found(env, f"SELECT id, k, CAST(d AS STRING), s FROM {form} ORDER BY id") == expected
        assert sorted(path.name for path in (tmp_path / form).glob("k=*")) == ["k=1", "k=__DEFAULT_PARTITION__"]
    (line,) = (path.read_text() for path in (tmp_path / "json" / "k=1").glob("*.txt"))
    assert json.loads(line) == {"id": 1, "d": 1.5, "s": 'a;"b'}
    (tmp_path / "json" / "k=1" / "bad.txt").write_text("{broken\n")
    with pytest.raises(PySparkException, match=r"File file:.*/bad\.txt: a line cannot be read as json"):
        found(env, "SELECT id FROM json")
    with pytest.raises(PySparkException, match="a line break, which ends a line of csv"):
        env.execute_sql("INSERT INTO csv VALUES (1, 1, 1, 'a' || CHR(10))")


@pytest.mark.slow
def test_streams_into_other_tables(
    env: TableEnvironment, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Rows are printed as in Flink, or dropped; files of a stream and of batches do not hide each other."""
    watched = {
        "connector": "filesystem",
        "path": str(tmp_path / "in"),
        "format": "json",
        "source.monitor-interval": "1s",
    }
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1, "s": "a"}\n{"id": 2}\n')
    env.execute_sql(ddl("watched", "id BIGINT, s STRING", watched))
    env.execute_sql(ddl("shown", "id BIGINT, s STRING", {"connector": "print", "print-identifier": "rows"}))
    env.execute_sql("CREATE TABLE counted (a INT, b AS a + 1) WITH ('connector' = 'print')")
    assert found(env, "DESCRIBE counted")[1][:2] == ("b", "INT")
    env.execute_sql("CREATE TABLE nothing WITH ('connector' = 'blackhole') LIKE shown (EXCLUDING ALL)")
    files = {"connector": "filesystem", "path": str(tmp_path / "out"), "format": "parquet"}
    env.execute_sql(ddl("files", "id BIGINT, s STRING", files))
    env.execute_sql(ddl("rates", "id INT", {"connector": "datagen", "rows-per-second": "50"}))
    with pytest.raises(ConfigurationError, match="Table `shown` has 'connector' = 'print', which can only be written"):
        env.sql_query("SELECT * FROM shown")
    with pytest.raises(ConfigurationError, match="'datagen', which can only be read"):
        env.execute_sql("INSERT INTO rates VALUES (1)")
    with pytest.raises(ConfigurationError, match=r"Table `files` accepts only new rows"):
        env.execute_sql("INSERT INTO files SELECT count(*), s FROM watched GROUP BY s")
    env.execute_sql("RESET 'execution.checkpointing.dir'")
    env.execute_sql("INSERT INTO nothing SELECT count(*), 'x' FROM rates").queries[0].processAllAvailable()
    printed = env.execute_sql("INSERT INTO shown SELECT id, s FROM watched")
    printed.queries[0].processAllAvailable()
    counted = env.execute_sql("INSERT INTO shown SELECT count(*), s FROM watched GROUP BY s")
    counted.queries[0].processAllAvailable()
    env.execute_sql("INSERT INTO shown VALUES (7, 'batch')")
    lines = {line for line in capfd.readouterr().out.splitlines() if line.startswith("rows>")}
    assert lines == {f"rows> {row}" for row in ("+I[1, a]", "+I[2, null]", "+U[1, a]", "+U[1, null]", "+I[7, batch]")}
    env.get_config().set("execution.checkpointing.dir", str(tmp_path / "checkpoints"))
    into_files = env.execute_sql("INSERT INTO files SELECT id, s FROM watched")
    into_files.queries[0].processAllAvailable()
    with pytest.raises(ConfigurationError, match="running job 'files' writes to"):
        env.execute_sql("INSERT INTO files SELECT id, 'a' FROM watched")
    late = tmp_path / "2.json"
    late.write_text('{"id": 3}\n')
    os.utime(late, (0, 0))
    late.rename(tmp_path / "in" / "2.json")  # a file of any age is new
    wait_until(lambda: found(env, "SELECT id FROM files ORDER BY id") == [(1,), (2,), (3,)], 30, "three rows")
    for query in spark.streams.active:
        query.stop()
    for others in ("INSERT INTO files SELECT id, 'b' FROM watched", "INSERT INTO files SELECT id, 'c' FROM watched"):
        with pytest.raises(ConfigurationError, match=r"another checkpoint than .*/checkpoints/files-2'"):
            env.execute_sql(others)
    (tmp_path / "in" / "3.json").write_text('{"id": 4}\n')
    (continued,) = env.execute_sql("INSERT INTO files SELECT id, s FROM watched").queries
    wait_until(lambda: found(env, "SELECT id FROM files ORDER BY id") == [(1,), (2,), (3,), (4,)], 30, "four rows")
    continued.stop()
    with pytest.raises(ConfigurationError, match=r"which a stream has written: .* would be invisible"):
        env.execute_sql("INSERT INTO files VALUES (4, 'd')")
    env.execute_sql(f"INSERT INTO files /*+ OPTIONS('path' = '{tmp_path / 'batch'}') */ VALUES (4, 'd')")
    with pytest.raises(ConfigurationError, match="has files already"):
        env.execute_sql(f"INSERT INTO files /*+ OPTIONS('path' = '{tmp_path / 'batch'}') */ SELECT * FROM watched")


@pytest.mark.slow
def test_tables_of_a_database(env: TableEnvironment, spark: SparkSession, tmp_path: Path) -> None:
    """They are read, looked up by the rows of a stream as they are at that moment, and appended to."""
    url = f"jdbc:derby:memory:{tmp_path.name}"
    jvm: Any = spark._jvm
    connection = jvm.java.sql.DriverManager.getConnection(f"{url};create=true")
    execute = connection.createStatement().execute
    execute("CREATE TABLE customers (id BIGINT, name VARCHAR(20))")
    execute("INSERT INTO customers VALUES (1, 'Ann'), (2, 'Bob')")
    execute("CREATE TABLE orders (id BIGINT, customer VARCHAR(20))")
    options = {"connector": "jdbc", "url": url, "lookup.cache": "PARTIAL"}
    key = "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
    env.execute_sql(ddl("customers", key, options | {"table-name": "customers"}))
    env.execute_sql(ddl("sink", "id BIGINT, customer STRING", options | {"table-name": "orders"}))
    watched = {"connector": "filesystem", "path": str(tmp_path / "in"), "format": "json"}
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 10, "customer": 1}\n{"id": 11, "customer": 3}\n')
    columns = "id BIGINT, customer BIGINT, at AS PROCTIME()"
    env.execute_sql(ddl("placed", columns, watched | {"source.monitor-interval": "1s"}))
    (query,) = env.execute_sql(
        "INSERT INTO sink SELECT o.id, COALESCE(c.name, '-') FROM placed AS o "
        "LEFT JOIN customers FOR SYSTEM_TIME AS OF o.at AS c ON o.customer = c.id"
    ).queries
    query.processAllAvailable()
    execute("INSERT INTO customers VALUES (3, 'Cy')")
    (tmp_path / "in" / "2.json").write_text('{"id": 12, "customer": 3}\n')
    query.processAllAvailable()
    query.stop()
    env.execute_sql("INSERT INTO sink VALUES (13, 'Di')")
    expected = [(10, "Ann"), (11, "-"), (12, "Cy"), (13, "Di")]
    assert found(env, "SELECT id, customer FROM sink ORDER BY id") == expected
    with pytest.raises(ConfigurationError, match=r"has a PRIMARY KEY, so Flink replaces rows .* materialize"):
        env.execute_sql("INSERT INTO customers VALUES (4, 'Ed')")
    env.execute_sql(ddl("wrong", "id BIGINT, age INT", options | {"table-name": "customers"}))
    with pytest.raises(ConfigurationError, match=r"has no column 'age'. Its columns are ID, NAME"):
        env.execute_sql("SELECT * FROM wrong")
    secret = {"table-name": "missing", "username": "me", "password": "s3cret"}
    env.execute_sql(ddl("missing", "id BIGINT", options | secret))
    for statement in ("SELECT * FROM missing", "INSERT INTO missing VALUES (1)"):
        with pytest.raises(ConfigurationError, match=r"missing at jdbc:derby.*, which cannot be read: .*") as error:
            env.execute_sql(statement)
        assert "s3cret" not in str(error.value)
    assert "s3cret" not in str(env.execute_sql("SHOW CREATE TABLE missing").collect())
    connection.close()


def test_tables_of_sparks_catalogs(env: TableEnvironment, spark: SparkSession, tmp_path: Path) -> None:
    """They are read and written by their names, in batches and streams, with the columns that an INSERT lists."""
    spark.sql(
        f"CREATE TABLE spark_catalog.default.lake (id BIGINT, s STRING, p INT) USING parquet PARTITIONED BY (p) "
        f"LOCATION '{tmp_path / 'lake'}'"
    )
    try:
        env.execute_sql("INSERT INTO spark_catalog.`default`.lake VALUES (1, 'a', 5)")
        env.execute_sql("INSERT INTO lake (p, id) SELECT 6, 2")
        watched = {"connector": "filesystem", "path": str(tmp_path / "in"), "format": "json"}
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "1.json").write_text('{"id": 3}\n{"id": 2}\n')
        env.execute_sql(ddl("watched", "id BIGINT", watched | {"source.monitor-interval": "1s"}))
        (query,) = env.execute_sql("INSERT INTO spark_catalog.default.lake SELECT id, 'x', 7 FROM watched").queries
        query.processAllAvailable()
        query.stop()
        joined = env.sql_query("SELECT w.id, l.s FROM watched AS w JOIN spark_catalog.default.lake AS l ON w.id = l.id")
        assert joined.isStreaming
        expected = [(1, "a", 5), (2, None, 6), (2, "x", 7), (3, "x", 7)]
        assert found(env, "SELECT * FROM spark_catalog.default.lake ORDER BY id, p") == expected
        with pytest.raises(ConfigurationError, match=r"'s' is STRING, but the query's .* is INT"):
            env.execute_sql("INSERT INTO spark_catalog.default.lake VALUES (1, 1, 1)")
        with pytest.raises(ConfigurationError, match=r"`nodb`\.`t` does not exist in Spark's catalogs"):
            env.execute_sql("INSERT INTO nodb.t VALUES (1)")
        for statement in ("INSERT INTO lake.db.t VALUES (1)", "SELECT * FROM lake.db.t"):
            with pytest.raises(ConfigurationError, match="does not exist: the session has no catalog `lake`"):
                env.execute_sql(statement)
        spark.conf.set("spark.sql.catalog.lake", "org.example.Catalog")
        env.execute_sql("CREATE TABLE d (id INT) WITH ('connector' = 'delta', 'table-path' = '/d')")
        for statement in ("INSERT INTO lake.db.t VALUES (1)", "SELECT * FROM lake.db.t", "SELECT * FROM d"):
            with pytest.raises(ConfigurationError, match=r"(?s)org\.example\.Catalog|delta.*Start Spark with its JAR"):
                env.execute_sql(statement)
        with pytest.raises(ConfigurationError, match=r"'key\.fields' names the column 'i'"):
            env.execute_sql(
                "INSERT INTO spark_catalog.default.lake /*+ OPTIONS('key.fields' = 'i') */ VALUES (1, 'a', 1)"
            )
    finally:
        spark.conf.unset("spark.sql.catalog.lake")
        spark.sql("DROP TABLE spark_catalog.default.lake")

"""Event time of tables: wall times in any time zone of the session, and the end of a stream that has one."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import Topic, create_json, records

pytestmark = [pytest.mark.broker, pytest.mark.spark]

ZONES = {
    "UTC": (2024, 1, 1),
    "Europe/Berlin": (2026, 3, 29, 10, 25),
    "Pacific/Apia": (2011, 12, 30, 12, 30),  # a day that is left out
    "America/Sao_Paulo": (2018, 2, 17, 11, 4),  # at midnight
}
"""Zones, with a year and two days on which their clocks change."""


def wall_times(seed: int) -> Iterator[datetime]:
    """Times about the changes of clocks, each with another one within 30 minutes."""
    chosen = random.Random(seed)
    for year, *days in ZONES.values():
        for month, day in zip(days[::2], days[1::2], strict=True):
            for _ in range(6):
                at = datetime(year, month, day) + timedelta(minutes=chosen.randrange(-90, 300))  # noqa: DTZ001  it has none
                yield at
                yield at + timedelta(milliseconds=chosen.randrange(1_800_000))


WALL = """ts TIMESTAMP(3), id INT, k INT, s AS DATE_FORMAT(ts, 'dd.MM.yyyy HH:mm'),
WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"""
OF_ROWS = """SELECT ts, DATE_FORMAT(ts, 'E dd HH:mm:ss.SSS'), FLOOR(ts TO HOUR), TO_TIMESTAMP(s, 'dd.MM.yyyy HH:mm'),
TO_DATE(DATE_FORMAT(ts, 'dd.MM.yyyy'), 'dd.MM.yyyy'), EXTRACT(HOUR FROM ts), ts + INTERVAL '1' DAY, CAST(ts AS DATE),
TIMESTAMPDIFF(MINUTE, TIMESTAMP '2010-01-31 02:30:00', ts), TIMESTAMPDIFF(MONTH, TIMESTAMP '2010-01-31 02:30:00', ts)
FROM t WHERE ts >= TIMESTAMP '2011-12-30 00:00:00' OR ts < TO_TIMESTAMP(s, 'dd.MM.yyyy HH:mm') + INTERVAL '1' HOUR"""
BOUNDS = "window_start, window_end, window_time"
SESSIONS = """SELECT SESSION_START(ts, INTERVAL '20' MINUTE), SESSION_END(ts, INTERVAL '20' MINUTE), k, COUNT(*), MIN(id)
FROM t GROUP BY k, SESSION(ts, INTERVAL '20' MINUTE)"""
PAIRS = """SELECT a.ts, b.ts AS bs, a.id, b.id AS bid FROM t a, t b
WHERE a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '30' MINUTE"""
TABLES = [
    "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY)",
    "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '30' MINUTE, INTERVAL '1' HOUR)",
    "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '12' HOUR, INTERVAL '1' DAY)",
]


def answers(env: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query, sorted. Spark's rows of times without a zone are the same in Python in each zone."""
    return sorted((tuple(row) for row in env.execute_sql(query).collect()), key=str)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "zones"),
    [("streaming", ["Europe/Berlin"]), ("batch", [*ZONES][1:])],
)
def test_wall_times_are_the_same_in_each_zone(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, mode: str, zones: list[str]
) -> None:
    """Rows, conditions, windows, sessions and interval joins of TIMESTAMP are those of UTC, where any clock changes."""
    source, times = topic(cluster_a), sorted(wall_times(7))
    produce(
        cluster_a.bootstrap_servers,
        source,
        [
            (None, json.dumps({"ts": at.isoformat(" ", "milliseconds"), "id": i, "k": i % 2}))
            for i, at in enumerate(times)
        ],
        partition=0,
    )
    create_json(env, "t", WALL, cluster_a, source, scan_bounded_mode="latest-offset")
    queries = [
        OF_ROWS,
        *(f"SELECT {BOUNDS}, COUNT(*), MIN(id) FROM TABLE({table}) GROUP BY {BOUNDS}" for table in TABLES),
        SESSIONS,
        PAIRS,
        PAIRS.replace("FROM t a, t b\nWHERE", "FROM t a LEFT JOIN t b\nON a.id < b.id AND"),
    ]
    settings = env.get_config().set("execution.runtime-mode", mode)
    if mode == "streaming":
        queries = [queries[0], queries[1], *queries[4:]]
    found: dict[str, list[list[tuple[Any, ...]]]] = {}
    for zone in (*(() if mode == "streaming" else ("UTC",)), *zones):
        settings.set("table.local-time-zone", zone)
        found[zone] = [answers(env, query) for query in queries]
    for zone in zones:
        if mode == "batch":
            assert found[zone] == found["UTC"]
        of_rows, by_day, *_, sessions, pairs, or_none = found[zone]
        assert sorted(row[0] for row in of_rows) == times
        assert {row[0].date(): row[3] for row in by_day} == {
            day: sum(at.date() == day for at in times) for day in {at.date() for at in times}
        }
        assert sum(row[3] for row in sessions) == len(times)
        assert all(row[0] < row[1] for row in sessions)
        assert len(pairs) == sum(
            timedelta(0) <= b - a <= timedelta(minutes=30) for k in (0, 1) for a in times[k::2] for b in times[k::2]
        )
        after = [[b for b in times[i + 2 :: 2] if b - a <= timedelta(minutes=30)] for i, a in enumerate(times)]
        assert sorted(row[0] for row in or_none) == sorted(
            a for a, found_after in zip(times, after, strict=True) for _ in found_after or "-"
        )
    if mode == "batch":
        written = topic(cluster_a)
        create_json(env, "o", "ts TIMESTAMP(3)", cluster_a, written)
        env.execute_sql("INSERT INTO o SELECT ts FROM t")
        assert sorted(str(json.loads(got.value or b"")["ts"]) for got in records(cluster_a, written)) == [
            at.isoformat(" ", "milliseconds").rstrip("0").rstrip(".") for at in times
        ]


def test_windows_of_points_in_time_follow_the_wall_clock_in_batches(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Windows of TIMESTAMP_LTZ are those of the wall time, also where a clock change leaves out an hour or repeats one."""
    source, chosen = topic(cluster_a), random.Random(3)
    times = [int(at.replace(tzinfo=UTC).timestamp() * 1000) + chosen.randrange(43_200_000) for at in wall_times(5)]
    produce(cluster_a.bootstrap_servers, source, [(None, json.dumps({"ms": ms})) for ms in times], partition=0)
    columns = "ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts"
    create_json(env, "t", columns, cluster_a, source, scan_bounded_mode="latest-offset")
    settings = env.get_config().set("execution.runtime-mode", "batch")
    hour, day = timedelta(hours=1), timedelta(days=1)
    for zone in [*ZONES][1:]:
        settings.set("table.local-time-zone", zone)
        wall = [datetime.fromtimestamp(ms / 1000, ZoneInfo(zone)).replace(tzinfo=None) for ms in times]
        days = [at.replace(hour=0, minute=0, second=0, microsecond=0) for at in wall]
        hours = [at.replace(minute=0, second=0, microsecond=0) for at in wall]
        tumbled, hopped, cumulated = (
            Counter(
                {
                    row[:2]: row[3]
                    for row in answers(env, f"SELECT {BOUNDS}, COUNT(*) FROM TABLE({t}) GROUP BY {BOUNDS}")
                }
            )
            for t in TABLES
        )
        assert tumbled == Counter((at, at + day) for at in days)
        halves = [hour / 2 * ((at.minute >= 30) + before) for at in wall for before in (0, -1)]
        starts = [at + half for at, half in zip((at for at in hours for _ in range(2)), halves, strict=True)]
        assert hopped == Counter((at, at + hour) for at in starts)
        noons = [(at, [at + day / 2] * (when.hour < 12) + [at + day]) for at, when in zip(days, wall, strict=True)]
        assert cumulated == Counter((start, end) for start, ends in noons for end in ends)
        last = "TUMBLE_ROWTIME(ts, INTERVAL '1' HOUR)"
        of_hours = f"SELECT CAST({last} AS TIMESTAMP(3)), COUNT(*) FROM t GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)"
        assert Counter(dict(answers(env, of_hours))) == Counter(at + hour - timedelta(milliseconds=1) for at in hours)


HOT = """SELECT a.k, a.n FROM ({counts}) AS a
JOIN (SELECT MAX(c.n) AS most, c.w, c.v FROM ({counts}) AS c GROUP BY c.w, c.v) AS m
ON a.w = m.w AND a.v = m.v AND a.n >= m.most"""
COUNTS = """SELECT k, COUNT(*) AS n, window_start AS w, window_end AS v
FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '4' SECOND)) GROUP BY k, window_start, window_end"""


@pytest.mark.slow
def test_a_stream_with_an_end_gives_all_it_has_and_stops(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Windows of windows and first rows, with conditions, after a restart, and in words if Spark cannot run it."""
    source, sinks = topic(cluster_a), [topic(cluster_a), topic(cluster_a)]
    rows = [{"ts": f"2026-03-29 02:00:0{i}", "k": k, "id": 10 * i + k} for i in range(6) for k in (1, 2, 1 + i % 2)]
    produce(cluster_a.bootstrap_servers, source, [(None, json.dumps(row)) for row in rows], partition=0)
    columns = "ts TIMESTAMP(3), k INT, id INT, pt AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
    create_json(env, "t", columns, cluster_a, source, scan_bounded_mode="latest-offset")
    settings = env.get_config().set("execution.runtime-mode", "batch").set("table.local-time-zone", "Europe/Berlin")
    wanted = answers(env, HOT.format(counts=COUNTS))
    settings.set("execution.runtime-mode", "streaming")
    assert answers(env, HOT.format(counts=COUNTS)) == wanted != []
    # The condition holds for the first rows only: the last row reaches the watermark all the same.
    one = "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY)) WHERE id = 1 "
    assert [row[1] for row in answers(env, f"{one} GROUP BY window_start, window_end")] == [2]
    first = "SELECT k, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {}) AS rn FROM t) WHERE rn = 1"
    create_json(env, "o", "k INT, id INT", cluster_a, sinks[0])
    for _ in range(2):  # a finished job that is started again writes nothing
        assert env.execute_sql(f"INSERT INTO o {first.format('pt')}").wait(60_000)
    assert sorted(json.loads(got.value or b"")["id"] for got in records(cluster_a, sinks[0])) == [1, 2]
    with pytest.raises(ConfigurationError, match="a later message may have an earlier time"):
        env.execute_sql(f"INSERT INTO o {first.format('ts')}")
    env.execute_sql(f"CREATE VIEW counts AS {COUNTS}")
    create_json(env, "p", "n BIGINT", cluster_a, sinks[1])
    hidden = "SELECT MAX(n) AS n FROM counts GROUP BY w, v"
    with pytest.raises(ConfigurationError, match="Spark cannot calculate with the rows of an aggregation"):
        answers(env, hidden)
    with pytest.raises(ConfigurationError, match="accepts only new rows, but the query updates earlier ones"):
        env.execute_sql(f"INSERT INTO p {hidden}")


@pytest.mark.slow
def test_the_last_row_of_a_stream_with_an_end_fails_nothing(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Nor is it seen: by computed columns that have no value for nulls, and in tables of changes."""
    source, changes = topic(cluster_a), topic(cluster_a)
    rows = [{"ts": f"2026-03-29 02:00:0{i}", "k": i} for i in range(1, 5)]
    produce(cluster_a.bootstrap_servers, source, [(None, json.dumps(row)) for row in rows], partition=0)
    events = [{"before": None, "after": row, "op": "c"} for row in rows]
    produce(cluster_a.bootstrap_servers, changes, [(None, json.dumps(event)) for event in events], partition=0)
    columns = "ts TIMESTAMP(3), k INT, share AS 12 / COALESCE(k, 0), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
    create_json(env, "t", columns, cluster_a, source, scan_bounded_mode="latest-offset")
    create_json(env, "c", columns, cluster_a, changes, scan_bounded_mode="latest-offset", format="debezium-json")
    windows = "FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND)) GROUP BY window_start, window_end"
    env.get_config().set("execution.runtime-mode", "streaming")
    assert sorted(row[0] for row in answers(env, f"SELECT SUM(share) {windows}")) == [3, 10, 12]
    assert sorted(row[0] for row in answers(env, "SELECT share FROM c")) == [3, 4, 6, 12]


SAME = """SELECT COUNT(*) AS n, window_start AS w, window_end AS v
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND)) GROUP BY window_start, window_end"""
MOST = """SELECT MAX(n) AS n, window_start AS w, window_end AS v FROM TABLE(TUMBLE((SELECT k, COUNT(*) AS n, window_time
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND)) GROUP BY k, window_start, window_end, window_time),
DESCRIPTOR(window_time), INTERVAL '2' SECOND)) GROUP BY window_start, window_end"""


@pytest.mark.slow
def test_a_stream_that_has_the_same_windows_twice_gives_them_twice(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Joined with themselves, in a UNION, and windows of windows: the rows of a batch, with any type of time."""
    source = topic(cluster_a)
    rows = [{"ts": f"2026-03-29 02:00:0{i}", "k": k} for i in range(7) for k in range(1 + i % 3)]
    produce(cluster_a.bootstrap_servers, source, [(None, json.dumps(row)) for row in rows], partition=0)
    columns = "ts TIMESTAMP(3), k INT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
    create_json(env, "t", columns, cluster_a, source, scan_bounded_mode="latest-offset")
    queries = [
        f"SELECT a.*, b.n AS m FROM ({SAME}) AS a JOIN ({SAME}) AS b ON a.w = b.w AND a.v = b.v",
        f"{SAME} UNION ALL {SAME}",
        f"SELECT a.*, b.n AS m FROM ({MOST}) AS a JOIN ({MOST}) AS b ON a.w = b.w AND a.v = b.v AND a.n >= b.n",
    ]
    batches = [answers(env, query) for query in queries]
    assert [len(found) for found in batches] == [4, 8, 4]
    env.get_config().set("execution.runtime-mode", "streaming")
    assert [answers(env, query) for query in queries] == batches


@pytest.mark.slow
def test_rows_of_a_stream_meet_partners_that_come_late(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """A limit that is no event time deletes no row of a join. What Spark cannot do with two event times has our words."""
    source = topic(cluster_a)
    rows = [{"ts": f"2026-03-29 02:{i:02}:00", "k": i % 3, "until": f"2026-03-29 02:{i + 20}:00"} for i in range(39)]
    produce(cluster_a.bootstrap_servers, source, [(None, json.dumps(row)) for row in rows], partition=0)
    columns = "ts TIMESTAMP(3), k INT, until TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
    create_json(env, "t", columns, cluster_a, source, scan_bounded_mode="latest-offset", maxOffsetsPerTrigger="10")
    pairs = "SELECT a.ts, a.k, a.until, b.ts AS bs FROM t a JOIN t b ON a.k = b.k AND b.ts >= a.ts"
    env.get_config().set("execution.runtime-mode", "batch")
    wanted = answers(env, f"SELECT ts, bs FROM ({pairs}) WHERE bs <= until")
    assert len(wanted) == sum(b <= a + 20 for a in range(39) for b in range(a, 39, 3))
    env.get_config().set("execution.runtime-mode", "streaming")
    assert answers(env, f"SELECT ts, bs FROM ({pairs}) WHERE bs <= until") == wanted
    for side, limit in [
        ("LEFT", "b.ts >= a.ts + INTERVAL '5' MINUTE"),
        ("LEFT", "b.ts <= a.until + INTERVAL '5' MINUTE"),
        ("LEFT", "b.ts <= a.ts + INTERVAL '1' MONTH"),
        ("RIGHT", "b.ts BETWEEN a.until AND a.until + INTERVAL '5' MINUTE"),
        ("FULL", "b.ts BETWEEN a.until AND a.until + INTERVAL '5' MINUTE"),
    ]:
        with pytest.raises(ConfigurationError, match="no outer join of two streams without a limit in time"):
            answers(env, f"SELECT a.ts, b.ts AS bs FROM t a {side} JOIN t b ON a.k = b.k AND {limit}")
    near = f"{pairs} AND b.ts <= a.ts + INTERVAL '5' MINUTE"
    alone = f"{near.replace('JOIN', 'FULL JOIN')} AND a.k > 0 AND b.k < 2"
    assert Counter(type(row[3]) for row in answers(env, alone)) == {datetime: 51, type(None): 26}
    third = "JOIN t c ON c.k = p.k AND c.ts BETWEEN p.bs AND p.bs + INTERVAL '5' MINUTE"
    with pytest.raises(ConfigurationError, match="one event time"):
        answers(env, f"SELECT p.ts, p.bs, c.ts AS cs FROM ({near}) p {third}")
    plain = near.replace("a.ts,", "CAST(a.ts AS TIMESTAMP(3)) AS ts,", 1)
    assert len(answers(env, f"SELECT p.ts, p.bs, c.ts AS cs FROM ({plain}) p {third}")) == sum(
        c < 39 for a in range(39) for b in (a, a + 3) for c in (b, b + 3)
    )


@pytest.mark.slow
def test_late_rows_and_nulls_count_in_streams_where_they_count_in_flink(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic
) -> None:
    """Joins without limits in time, and groups by a time, have the rows of a batch. So have NULL keys and times."""
    source, chosen = topic(cluster_a), random.Random(5)
    rows = [
        {"ts": f"2026-03-29 02:{i + chosen.randrange(30):02}:00" if i % 7 else None, "k": i % 4 or None}
        for i in range(30)
    ]
    produce(cluster_a.bootstrap_servers, source, [(None, json.dumps(row)) for row in rows], partition=0)
    columns = "ts TIMESTAMP(3), k INT, WATERMARK FOR ts AS ts - INTERVAL '{}' SECOND"
    for name, delay in [("t", 1), ("u", 3600)]:  # only the rows of t are late
        more = {"scan_bounded_mode": "latest-offset", "maxOffsetsPerTrigger": "10"}
        create_json(env, name, columns.format(delay), cluster_a, source, **more)
    near = "b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' MINUTE"
    queries = [
        "SELECT * FROM t a JOIN t b ON a.k = b.k AND b.ts >= a.ts",
        "SELECT ts, COUNT(*) FROM t GROUP BY ts",
        "SELECT ts, k FROM t UNION SELECT ts, k FROM t WHERE k = 1",
        f"SELECT a.ts, a.k, b.k AS bk, b.ts AS bs FROM u a FULL JOIN u b ON a.k = b.k AND {near}",
        f"SELECT a.ts, a.k, b.k AS bk, b.ts AS bs FROM u a JOIN u b ON NULLIF(a.k, 1) = NULLIF(b.k, 1) AND {near}",
    ]
    env.get_config().set("execution.runtime-mode", "batch")
    wanted = [answers(env, query) for query in queries]
    assert all(wanted)
    env.get_config().set("execution.runtime-mode", "streaming")
    for query, batch in zip(queries, wanted, strict=True):
        found = answers(env, query)
        if "GROUP BY" in query or "UNION" in query:  # rows that change come again, the last one has the largest count
            found = [*{row[0] if "GROUP BY" in query else row: row for row in found}.values()]
        assert found == batch, query


@pytest.mark.slow
@pytest.mark.parametrize("side", ["JOIN", "FULL JOIN"])
def test_a_join_of_windows_keeps_only_windows_that_are_not_over(
    env: TableEnvironment, cluster_a: KafkaBroker, topic: Topic, side: str, tmp_path: Path
) -> None:
    """Of rows with groups, both by the same windows: the rows of a batch, and the state of past windows is deleted."""
    source = topic(cluster_a)
    rows = [{"ts": f"2026-03-29 02:{i:02}:00", "k": i % 4, "v": i % 7} for i in range(60)]
    produce(cluster_a.bootstrap_servers, source, [(None, json.dumps(row)) for row in rows], partition=0)
    columns = "ts TIMESTAMP(3), k INT, v INT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
    create_json(env, "t", columns, cluster_a, source, scan_bounded_mode="latest-offset", maxOffsetsPerTrigger="10")
    windows = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' MINUTE))"
    bounds = "window_start, window_end"
    counts = f"(SELECT window_start AS w, window_end AS v, k, COUNT(*) AS n FROM {windows} GROUP BY {bounds}, k)"
    same = "r.w = l.window_start AND r.v = l.window_end AND l.k = r.k AND l.v > 2 AND r.n < 2"
    query = f"SELECT l.ts, l.v, r.w, r.k AS rk, r.n FROM (SELECT * FROM {windows}) l {side} {counts} r ON {same}"
    env.get_config().set("execution.runtime-mode", "batch")
    wanted = answers(env, query)
    env.get_config().set("execution.runtime-mode", "streaming")
    found: list[tuple[Any, ...]] = []
    writer = env.sql_query(query).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    running = writer.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect()))).start()
    assert running.awaitTermination(120)
    assert sorted(found, key=str) == wanted != []
    kept = [sum(state["numRowsTotal"] for state in progress["stateOperators"]) for progress in running.recentProgress]
    assert max(kept) < len(rows) / 2
    assert kept[-1] == 0

"""Event time of tables: wall times in any time zone of the session, and the end of a stream that has one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

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
TO_DATE(s, 'dd.MM.yyyy'), EXTRACT(HOUR FROM ts), TIMESTAMPDIFF(MINUTE, TIMESTAMP '2010-01-31 02:30:00', ts),
TIMESTAMPDIFF(MONTH, TIMESTAMP '2010-01-31 02:30:00', ts), ts + INTERVAL '1' DAY, CAST(ts AS DATE) FROM t
WHERE ts >= TIMESTAMP '2011-12-30 00:00:00' OR ts < TO_TIMESTAMP(s, 'dd.MM.yyyy HH:mm') + INTERVAL '1' HOUR"""
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


@pytest.mark.parametrize(
    ("mode", "zones"),
    [("streaming", ["Europe/Berlin"]), pytest.param("batch", [*ZONES][1:], marks=pytest.mark.slow)],
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
    create_json(env, "t", WALL, cluster_a, source, scan__bounded_mode="latest-offset")
    queries = [
        OF_ROWS,
        *(f"SELECT {BOUNDS}, COUNT(*), MIN(id) FROM TABLE({table}) GROUP BY {BOUNDS}" for table in TABLES),
        SESSIONS,
        PAIRS,
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
        of_rows, by_day, *_, sessions, pairs = found[zone]
        assert sorted(row[0] for row in of_rows) == times
        assert {row[0].date(): row[3] for row in by_day} == {
            day: sum(at.date() == day for at in times) for day in {at.date() for at in times}
        }
        assert sum(row[3] for row in sessions) == len(times)
        assert all(row[0] < row[1] for row in sessions)
        assert len(pairs) == sum(
            timedelta(0) <= b - a <= timedelta(minutes=30) for k in (0, 1) for a in times[k::2] for b in times[k::2]
        )
    if mode == "batch":
        written = topic(cluster_a)
        create_json(env, "o", "ts TIMESTAMP(3)", cluster_a, written)
        env.execute_sql("INSERT INTO o SELECT ts FROM t")
        assert sorted(str(json.loads(got.value or b"")["ts"]) for got in records(cluster_a, written)) == [
            at.isoformat(" ", "milliseconds").removesuffix(".000") for at in times
        ]

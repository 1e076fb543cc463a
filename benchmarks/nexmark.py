"""(n) Nexmark's queries beside Flink SQL: streams over one topic with an end, into `blackhole`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.drivers import OURS, Child, Driver
from benchmarks.flink import FLINK, Flink
from benchmarks.records import fill_nexmark
from benchmarks.report import Result
from benchmarks.rivals import Measure, Target, compared
from tests.nexmark.queries import ANSWERS, QUERIES, TABLES, statements

from dynamic_kafka.testing import KafkaBroker

__all__ = ["nexmark"]

_PARTITIONS = 8
_OTHERS = {
    "q4": "refused here",
    "q10": "writes files",
    "q12": "has other rows in Flink, which drops the last windows of PROCTIME()",
}
"""The queries that are not compared, besides those that Flink refuses."""

Tell = Callable[[str], None]


def nexmark(records: int, count: int, tell: Tell) -> Iterator[Result]:
    """Measure case (n): the queries whose statements run in both as they are and give the same rows."""
    answers = json.loads(ANSWERS.read_text())
    both = [name for name in QUERIES if name not in _OTHERS and answers[name]["error"] is None]
    with KafkaBroker(heap="1g") as broker, Driver(OURS) as ours, Flink("streaming") as flink:
        ours.wait_until_ready()
        flink.wait_until_ready()
        broker.create_topic("nexmark", _PARTITIONS)
        tell("writing the events")
        fill_nexmark(broker.bootstrap_servers, "nexmark", partitions=_PARTITIONS, records=records)

        def statements_of(text: str) -> list[str]:
            return statements(text, servers=broker.bootstrap_servers, folder="")

        for statement in statements_of(TABLES):
            flink("execute", sql=statement)
        for name in both:
            *before, insert = statements_of(QUERIES[name])
            for statement in before:
                flink("execute", sql=statement)
            measures: dict[str, tuple[Child, Measure]] = {
                "ours": (ours, partial(ours, "insert", before=[*statements_of(TABLES), *before], insert=insert)),
                FLINK: (flink, partial(_of_flink, flink, insert)),
            }
            targets: dict[str, Target] = {FLINK: (None, "at least")}
            title = f"Nexmark {name}"
            yield from compared("n", title, measures, targets, records=records, count=count, tell=tell)


def _of_flink(flink: Flink, insert: str) -> float:
    return float(flink("insert", sql=insert)["seconds"])

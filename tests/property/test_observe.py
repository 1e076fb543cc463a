"""Properties of the model of running queries: reports may be lost, doubled and overtaken, and the totals are the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.observed import BEGAN_MS, cluster, read, source, topic, worker

from dynamic_kafka.observe.model import Model
from dynamic_kafka.observe.reports import WorkerReport
from dynamic_kafka.observe.series import SERIES, samples

increments = st.lists(st.dictionaries(st.integers(0, 3), st.integers(1, 50), min_size=1), min_size=1, max_size=5)


def reports_of(name: str, steps: list[dict[int, int]]) -> list[WorkerReport]:
    """What a worker reports after each of its tasks: everything so far."""
    total: dict[int, int] = {}
    found = []
    for i, step in enumerate(steps, 1):
        total = {p: total.get(p, 0) + step.get(p, 0) for p in total | step}
        found.append(worker(read(total), reporter=name, sequence=i, tasks=i))
    return found


def total_of(model: Model) -> tuple[int, int]:
    """Records and tasks of the only source."""
    (query,) = model.status(BEGAN_MS)["queries"]
    return query["sources"][0]["records"], query["sources"][0]["tasks"]


@given(st.lists(increments, min_size=1, max_size=3), st.data())
def test_lost_doubled_and_overtaken_reports_change_no_total(
    workers: list[list[dict[int, int]]], data: st.DataObject
) -> None:
    """As long as the last report of each worker arrives. A total never falls on the way."""
    reports = [reports_of(f"worker-{i}", steps) for i, steps in enumerate(workers)]
    lost = [r for of in reports for r in of[:-1] if data.draw(st.booleans())]
    arriving = [r for of in reports for r in of if r not in lost]
    order = data.draw(st.permutations([*arriving, *(data.draw(st.lists(st.sampled_from(arriving))))]))
    model = Model(BEGAN_MS)
    model.report(source(cluster("east", topic(current=(1,) * 4, end=(1,) * 4))), BEGAN_MS)
    before = 0, 0
    for report in order:
        model.report(report, BEGAN_MS)
        now = total_of(model)
        assert now >= before
        before = now
    assert before == (
        sum(sum(step.values()) for steps in workers for step in steps),
        sum(len(steps) for steps in workers),
    )


names = st.text(min_size=1, max_size=5)
topics = st.dictionaries(
    names, st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=4), max_size=4
)


@given(st.dictionaries(names, topics, max_size=3), st.integers(1, 20), names)
def test_series_are_bounded_and_of_what_is_reported(
    found: dict[str, dict[str, list[tuple[int, int]]]], most: int, label: str
) -> None:
    """At most as many of a kind as partitions are allowed, or one for each cluster. The sum of the backlog is the same."""
    clusters = [
        cluster(c, topics=[topic(t, tuple(p for p, _ in of), tuple(e for _, e in of)) for t, of in topics_of.items()])
        for c, topics_of in found.items()
    ]
    model = Model(BEGAN_MS)
    model.report(source(*clusters, label=label, max_partitions=most), BEGAN_MS)
    made = samples(model.status(BEGAN_MS))
    labels = {series.name: len(series.all_labels) for series in SERIES}
    for name, values in made.items():
        assert all(len(key) == labels[name] and key[0] == label for key in values)
    pending = made.get("dynamic_kafka_source_pending_records", {})
    assert len(pending) <= max(most, len(found))
    assert {key[1] for key in pending} <= found.keys()
    pairs = [pair for topics_of in found.values() for of in topics_of.values() for pair in of]
    assert sum(pending.values()) == sum(max(0, end - position) for position, end in pairs)

"""Properties of the model of running queries: reports may be lost, doubled and overtaken, and the totals are the same."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from tests.observed import BEGAN_MS, cluster, metadata, read, source, topic, worker

from dynamic_kafka.cli.lag.of_query import look_of
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
    return query["sources"][0]["records"] or 0, query["sources"][0]["tasks"] or 0


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


FRESH_MS = 15_000
ages_ms = st.sampled_from([0, 1_000, FRESH_MS - 1, FRESH_MS, 60_000, 3_600_000])
cluster_states = st.sampled_from(["starting", "reading", "draining", "unreachable"])
some_clusters = st.lists(
    st.tuples(cluster_states, st.none() | ages_ms, st.lists(st.none() | st.integers(0, 20), max_size=3)),
    min_size=1,
    max_size=3,
)


@example([("reading", 0, [])], 0, "running", (False, False, 1))
@given(
    some_clusters,
    ages_ms.filter(lambda age: age < 900_000),
    st.sampled_from(["running", "failed", "finished"]),
    st.tuples(st.booleans(), st.booleans(), st.integers(1, 4)),
)
def test_nothing_is_said_to_be_well_or_0_without_a_look_of_now(
    found: list[tuple[str, int | None, list[int | None]]],
    reported_ago_ms: int,
    ended: str,
    other: tuple[bool, bool, int],
) -> None:
    """A lag, a rate or a good word is of a reader that reported and a cluster that answered within 15 seconds.

    The same in the status, in the series whatever they are cut to, and in `dynamic-kafka lag --url`.
    """
    is_gone, has_workers, most = other
    now_ms = BEGAN_MS + reported_ago_ms
    clusters = [
        cluster(
            f"c{n}",
            *([topic("t", current=(0,) * len(ends), end=tuple(ends))] if ends else []),
            state=state,
            seen_ms=None if seen is None else now_ms - seen,
            **({} if ends else {"topics": []}),
            **({"reason": "refused", "failing_since_ms": BEGAN_MS} if state == "unreachable" else {}),
        )
        for n, (state, seen, ends) in enumerate(found)
    ]
    model = Model(BEGAN_MS)
    model.report(source(*clusters, state=ended, label="q", max_partitions=most, metadata=metadata()), BEGAN_MS)
    if has_workers:
        model.report(worker(read({0: 5}, "t", "c0")), BEGAN_MS)
    if is_gone:
        model.gone("run", BEGAN_MS)
    model.tick(now_ms)
    status = model.status(now_ms, lambda _cluster, _topic: True)
    (query,) = status["queries"]
    (seen_source,) = query["sources"]
    is_live = ended == "running" and reported_ago_ms < FRESH_MS and not (is_gone and reported_ago_ms >= 5_000)
    known = {
        f"c{n}": [
            is_live and state in ("reading", "draining") and seen is not None and seen < FRESH_MS and e is not None
            for e in ends
        ]
        for n, (state, seen, ends) in enumerate(found)
    }
    by_name = {c["cluster"]: c for c in seen_source["clusters"]}
    for n, (_, _, ends) in enumerate(found):
        c = by_name[f"c{n}"]
        sums = [e for e, is_known in zip(ends, known[f"c{n}"], strict=True) if is_known and e is not None]
        assert c["pending_records"] == (sum(sums) if sums else None)
        assert (c["lag_s"] is None) == (not sums)
        assert not c["lag_known"] or all(known[f"c{n}"])
        for t in c["topics"]:
            for p, is_known in zip(t["partitions"] or (), known[f"c{n}"], strict=True):
                assert (p["pending_records"] is None, p["lag_s"] is None) == (not is_known, not is_known)
        assert c["history"]["pending_records"] == [c["pending_records"]]
        if not is_live:
            assert (c["state"], c["records_per_s"]) == ("unknown", None)
    assert (seen_source["records"] is None) == (not has_workers)  # a batch was planned, and no task has told of it
    metadata_seen = seen_source["metadata"]
    assert metadata_seen is not None
    assert metadata_seen["state"] == ("answered" if is_live else "unknown")
    if query["state"] == "running":
        assert is_live
        assert all(c["state"] != "unknown" for c in seen_source["clusters"])

    made = samples(model.status(now_ms))
    unknown = made.get("dynamic_kafka_source_lag_unknown", {})
    for name in ("pending_records", "lag_seconds"):
        for labels in made.get(f"dynamic_kafka_source_{name}", {}):
            assert any(known[labels[1]])
            assert all(known[labels[1]]) or unknown["q", labels[1]] == 1 or len(labels[3]) > 0
    if query["state"] not in ("failed", "ended", "finished"):
        assert unknown == {("q", c): int(not (of and all(of))) for c, of in known.items()}

    look = look_of(status, "q")
    partitions = {(p.cluster, p.partition): p.lag for p in look.partitions}
    for name, of in known.items():
        for n, is_known in enumerate(of):
            assert (partitions[name, n] is None) == (not is_known)


@given(
    st.lists(
        st.tuples(st.sampled_from(["start", "id", "stop", "wait"]), st.integers(0, 3), st.booleans()),
        max_size=40,
    )
)
def test_a_label_that_a_query_had_is_never_that_of_another(steps: list[tuple[str, int, bool]]) -> None:
    """Queries of one topic without names, or with the same option, start, stop and are forgotten in any order."""
    model, now_ms = Model(BEGAN_MS), BEGAN_MS
    runs: dict[int, str] = {}
    owners: dict[str, str] = {}
    for number, (step, which, named) in enumerate(steps):
        run = runs.get(which)
        if step == "start" and run is None:
            runs[which] = f"{which}-{number:06}"
            model.report(source(cluster(), reporter=runs[which], label="same" if named else ""), now_ms)
        elif step == "id" and run is not None:
            model.report(worker(run=run, reporter=f"worker {number}", query_id=f"id {which}"), now_ms)
        elif step == "stop" and run is not None:
            model.gone(runs.pop(which), now_ms)
        elif step == "wait":
            now_ms += 8 * 60_000
            for live in runs.values():
                model.report(source(cluster(), reporter=live, sequence=number + 2), now_ms)
        model.tick(now_ms)
        shown = model.status(now_ms)["queries"]
        assert len({q["query"] for q in shown}) == len(shown)
        for query in shown:
            if query["query_id"] is not None:
                assert owners.setdefault(query["query"], query["query_id"]) == query["query_id"]
            else:
                assert query["query"] not in owners

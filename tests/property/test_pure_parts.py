"""Admission, planning and the document's text, over arbitrary input."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.offsets import (
    ClusterOffsets,
    Cursor,
    Document,
    Packing,
    RetainedTopic,
    decode,
    encode,
)
from dynamic_kafka.source.rules.admission import admit
from dynamic_kafka.source.rules.planning import Range, plan

names = st.text("abcxyz019._-", min_size=1, max_size=12)
partitions = st.builds(KafkaTopicPartition, names, st.integers(0, 200))
offsets = st.integers(0, 2**63 - 1)
backlogs = st.dictionaries(
    st.sampled_from("abcd"),
    st.dictionaries(
        st.builds(KafkaTopicPartition, st.sampled_from("tuv"), st.integers(0, 3)), st.integers(1, 1000), min_size=1
    ),
)
cursors = st.builds(
    Cursor,
    st.sampled_from(["", "a", "b", "zz"]),
    st.dictionaries(st.sampled_from("abcd"), st.builds(KafkaTopicPartition, st.sampled_from("tuv"), st.integers(0, 5))),
)
limits = st.none() | st.integers(1, 50) | st.integers(1, 5000)

Backlog = dict[str, dict[KafkaTopicPartition, int]]


# --- admission ----------------------------------------------------------------------------------------------------


@given(backlogs, cursors, limits, st.dictionaries(st.sampled_from("abcd"), st.integers(1, 500)), limits)
def test_admission_keeps_limits_wastes_nothing_and_is_max_min_fair(
    backlog: Backlog, cursor: Cursor, limit: int | None, cluster_limits: dict[str, int], default: int | None
) -> None:
    """Nobody gets more than they can use or may have; nobody gets less while another one gets more."""
    admitted, _ = admit(backlog, cursor, limit=limit, cluster_limits=cluster_limits, default_cluster_limit=default)
    shares = {c: sum(admitted.get(c, {}).values()) for c in backlog}
    wanted = {}
    for c, of_splits in backlog.items():
        assert all(0 < n <= of_splits[tp] for tp, n in admitted.get(c, {}).items())
        cap = cluster_limits.get(c, default)
        wanted[c] = min(sum(of_splits.values()), math.inf if cap is None else cap)
        assert shares[c] <= wanted[c]
    assert sum(shares.values()) == min(sum(wanted.values()), math.inf if limit is None else limit)
    most = max(shares.values(), default=0)
    assert all(shares[c] >= most - 1 for c in shares if shares[c] < wanted[c])


@given(backlogs, cursors, st.integers(1, 5000))
def test_admission_gives_splits_one_each_then_shares_in_proportion(
    backlog: Backlog, cursor: Cursor, limit: int
) -> None:
    """Within a cluster nobody is left out if there is one for each, and larger backlogs get more."""
    admitted, _ = admit(backlog, cursor, limit=limit)
    for c, given_to in admitted.items():
        share, of_splits = sum(given_to.values()), backlog[c]
        if share < len(of_splits):
            assert set(given_to.values()) == {1}
            continue
        assert given_to.keys() == of_splits.keys()
        spare, rest = share - len(of_splits), sum(of_splits.values()) - len(of_splits)
        for tp, n in of_splits.items():
            assert abs(given_to[tp] - (1 + (n - 1) * (spare / rest if rest else 0))) <= 1


@given(backlogs, cursors, limits)
def test_admission_does_not_depend_on_the_order_of_its_input(
    backlog: Backlog, cursor: Cursor, limit: int | None
) -> None:
    """Equal input, equal document."""
    shuffled = {c: dict(reversed(of_splits.items())) for c, of_splits in reversed(backlog.items())}
    assert admit(backlog, cursor, limit=limit) == admit(shuffled, cursor, limit=limit)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 5), min_size=1),
    cursors,
    st.integers(1, 30),
    st.none() | st.integers(1, 4),
)
def test_nobody_starves(sizes: dict[str, int], cursor: Cursor, limit: int, of_cluster: int | None) -> None:
    """With a backlog that never ends, each split is served at least once while all others are at most once round."""
    backlog = {c: {KafkaTopicPartition("t", p): 10**6 for p in range(n)} for c, n in sizes.items()}
    enough = sum(sizes.values()) * len(sizes) + len(sizes)
    served: Counter[tuple[str, KafkaTopicPartition]] = Counter()
    for _ in range(enough):
        admitted, cursor = admit(backlog, cursor, limit=limit, default_cluster_limit=of_cluster)
        served.update((c, tp) for c, of_splits in admitted.items() for tp in of_splits)
    assert served.keys() == {(c, tp) for c, of_splits in backlog.items() for tp in of_splits}


@given(st.integers(2, 5), st.integers(1, 3))
def test_nobody_starves_on_a_cluster_that_comes_and_goes(partitions: int, other: int) -> None:
    """Its turn is remembered while it is away."""
    here = {"a": {KafkaTopicPartition("t", p): 10**6 for p in range(partitions)}}
    away = {"b": {KafkaTopicPartition("t", p): 10**6 for p in range(other)}}
    cursor, served = Cursor(), set[KafkaTopicPartition]()
    for _ in range(partitions):
        admitted, cursor = admit(here, cursor, limit=1)
        served.update(admitted["a"])
        _, cursor = admit(away, cursor, limit=1)
    assert served == here["a"].keys()


def test_admission_shares_what_small_clusters_leave() -> None:
    """Up to the backlog of each cluster, also if that is less than its part of the rest."""
    backlog = {c: {KafkaTopicPartition("t", 0): n} for c, n in {"a": 5, "b": 100, "x": 1, "y": 1}.items()}
    admitted, cursor = admit(backlog, Cursor(), limit=16)
    assert {c: sum(tps.values()) for c, tps in admitted.items()} == {"a": 5, "b": 9, "x": 1, "y": 1}
    assert cursor == Cursor()


def test_admission_gives_what_rounding_leaves_to_the_largest_backlog() -> None:
    """The parts are 1.9 and 4.1 offsets here."""
    small, large = KafkaTopicPartition("t", 0), KafkaTopicPartition("t", 1)
    assert admit({"a": {small: 3, large: 8}}, Cursor(), limit=6) == ({"a": {small: 1, large: 5}}, Cursor())


def test_admission_begins_with_the_first_partition() -> None:
    """Nobody was served before."""
    one, two = KafkaTopicPartition("t", 0), KafkaTopicPartition("t", 1)
    assert admit({"a": {one: 9, two: 9}}, Cursor(), limit=1) == ({"a": {one: 1}}, Cursor("", {"a": one}))


def test_admission_forgets_whose_turn_it_was_once_all_are_served() -> None:
    """All partitions of `a` get an offset, and those of `b` take turns. Clusters without a backlog keep theirs."""
    one, two = KafkaTopicPartition("t", 0), KafkaTopicPartition("t", 1)
    backlog = {"a": {one: 9, two: 9}, "b": {one: 9, two: 9}}
    admitted, cursor = admit(
        backlog, Cursor("a", {"a": one, "b": one, "c": two}), limit=None, cluster_limits={"a": 2, "b": 1}
    )
    assert admitted == {"a": {one: 1, two: 1}, "b": {two: 1}}
    assert cursor == Cursor("a", {"b": two, "c": two})


# --- planning -----------------------------------------------------------------------------------------------------


def document_of(sizes: list[int], packing: Packing) -> Document:
    """A document with ranges of these lengths, three to a topic and seven to a cluster."""
    document = Document(packing=packing)
    for i, n in enumerate(sizes):
        cluster = document.clusters.setdefault(f"c{i // 7:03}", ClusterOffsets(discovered=True))
        cluster.topics[f"t{i // 3:03}"] = f"id{i // 3:09}"
        cluster.ranges[KafkaTopicPartition(f"t{i // 3:03}", i % 3)] = (10 * i, 10 * i + n)
    return document


packings = st.builds(
    lambda per_task, least, most, cuts: Packing(per_task, least, most and max(least, most), cuts),
    st.integers(1, 300_000),
    st.integers(1, 20),
    st.just(0) | st.integers(1, 30),
    st.booleans(),
)
sizes_of_ranges = st.lists(
    st.just(0) | st.integers(1, 5) | st.integers(1, 2000) | st.integers(1, 3_000_000), max_size=40
)


@given(sizes_of_ranges, packings)
def test_planning_covers_every_range_once_in_order(sizes: list[int], packing: Packing) -> None:
    """Put together again, the tasks are the document's ranges; none is empty; there are not too many."""
    if sum(sizes) > 2000 * packing.records_per_task:
        packing = packing._replace(records_per_task=sum(sizes) // 2000)
    document = document_of(sizes, packing)
    tasks = plan(document)
    assert all(task and all(r.end > r.start for r in task) for task in tasks)
    joined: list[Range] = []
    for r in (r for task in tasks for r in task):
        if (
            joined
            and joined[-1]._replace(end=r.end) == r._replace(start=joined[-1].start)
            and joined[-1].end == r.start
        ):
            joined[-1] = joined[-1]._replace(end=r.end)
        else:
            joined.append(r)
    assert joined == [
        Range(c, t, cluster.topics[t], p, start, end)
        for c, cluster in document.clusters.items()
        for (t, p), (start, end) in cluster.ranges.items()
        if end > start
    ]
    ranges = sum(n > 0 for n in sizes)
    most = max(math.ceil((sum(sizes) + 200 * ranges) / packing.records_per_task), packing.min_tasks)
    assert len(tasks) <= (min(most, packing.max_tasks) if packing.max_tasks else most)
    cuts = max(len(tasks) - 1, 0) if packing.cuts else 0
    assert sum(map(len, tasks)) <= ranges + cuts, "one cut between two tasks at most, and only if it may be"
    assert plan(decode(json.loads(json.dumps(encode(document))))) == tasks


@given(sizes_of_ranges, packings)
@example([1] * 10_000, Packing())
@example([1_000_000, *[1] * 1000], Packing(1000, 1, 8, cuts=True))
def test_planning_gives_tasks_equal_work(sizes: list[int], packing: Packing) -> None:
    """No task gets more than its part and what is too little to be cut off; without cuts, halves of large ranges."""
    if sum(sizes) > 2000 * packing.records_per_task:
        packing = packing._replace(records_per_task=sum(sizes) // 2000)
    tasks = plan(document_of(sizes, packing))
    ranges = sum(n > 0 for n in sizes)
    count = max(math.ceil((sum(sizes) + 200 * ranges) / packing.records_per_task), packing.min_tasks)
    count = min(count, packing.max_tasks or count)
    part = (sum(sizes) + 200 * (ranges + count)) / count
    if not packing.cuts:
        part = max(part, packing.records_per_task)
    # What a task leaves to those after it, at most half of a range, they share.
    more = 700 if packing.cuts else max(sizes, default=0) * (1 + math.log(count)) + 700
    assert all(sum(r.end - r.start for r in task) <= part + more for task in tasks)


@pytest.mark.parametrize(
    ("sizes", "tasks"),
    [
        ([500_000] * 8, [[500_000] * 2] * 4),
        ([5_000_000, *[1] * 9], [[5_000_000], [1] * 9]),
        ([1, 5_000_000, 1], [[1], [5_000_000], [1]]),
        ([1_500_000] * 3, [[1_500_000]] * 3),
    ],
    ids=str,
)
def test_planning_keeps_a_partition_in_one_task(sizes: list[int], tasks: list[list[int]]) -> None:
    """By default: its records stay in order for whoever writes them on."""
    assert [[r.end - r.start for r in task] for task in plan(document_of(sizes, Packing()))] == tasks


@given(st.integers(1, 20), st.integers(0, 3_000_000))
def test_planning_gives_the_least_number_of_tasks_also_on_small_batches(least: int, more: int) -> None:
    """`minPartitions` holds as long as there is a record for each task, for one range as for many."""
    assert len(plan(document_of([least + more], Packing(10**9, least, cuts=True)))) == least
    assert len(plan(document_of([1 + more] * least, Packing(10**9, least, cuts=True)))) == least


@given(st.lists(st.integers(1, 5), min_size=1, max_size=500))
def test_planning_packs_many_quiet_splits_into_one_task(sizes: list[int]) -> None:
    """A task costs more than what it would read here."""
    assert len(plan(document_of(sizes, Packing()))) == 1


@given(st.integers(1_000_000, 50_000_000), st.integers(10_000, 300_000))
def test_planning_splits_one_large_range(records: int, per_task: int) -> None:
    """About as many records in a task as asked for."""
    tasks = plan(document_of([records], Packing(per_task, cuts=True)))
    assert all(r.end - r.start <= per_task for (r,) in tasks)
    assert len(tasks) <= records / per_task + 2
    assert all(before.end == after.start for (before,), (after,) in pairwise(tasks))


# --- the text -----------------------------------------------------------------------------------------------------


@st.composite
def cluster_offsets(draw: st.DrawFn) -> ClusterOffsets:
    """Any state of a cluster that the rules allow, from none to a few hundred splits."""
    topics = draw(st.dictionaries(names, st.just("") | st.text("abcABC019-_", min_size=11, max_size=11), max_size=200))
    chosen: list[KafkaTopicPartition] = []
    for topic in topics:
        numbers = draw(st.just(range(1)) | st.integers(0, 3).map(range) | st.sets(st.integers(0, 5), max_size=3))
        chosen += [KafkaTopicPartition(topic, p) for p in numbers]
    if draw(st.booleans()) and topics:
        chosen += [KafkaTopicPartition(min(topics), p) for p in range(10, draw(st.integers(10, 300)))]
    starts = draw(st.sampled_from([0, 5, 2**40, 2**62]))
    step = draw(st.sampled_from([0, 1, 255, 256, 10**9]))
    ranges = {tp: (starts + i * step, starts + i * step + draw(st.integers(0, 2**20))) for i, tp in enumerate(chosen)}
    some = st.sets(st.sampled_from(chosen), max_size=5) if chosen else st.just(set[KafkaTopicPartition]())
    return ClusterOffsets(
        draw(names),
        draw(st.dictionaries(names, names, max_size=2)),
        draw(st.sampled_from([None, "latest", {"timestamp": 5}])),
        draw(st.sampled_from([None, "latest"])),
        draw(st.booleans()),
        draw(st.none() | st.integers(1, 10**13)),
        topics,
        ranges,
        {tp: draw(offsets) for tp in draw(some)},
        draw(st.dictionaries(partitions, st.integers(0, 10**13), max_size=3)),
        set(draw(st.sets(st.sampled_from(sorted(topics)), max_size=3)) if topics else ()),
        frozenset(draw(some)),
        draw(
            st.dictionaries(
                names,
                st.builds(
                    RetainedTopic,
                    names,
                    st.integers(0, 10**13),
                    st.dictionaries(st.integers(0, 50), offsets, max_size=4),
                ),
                max_size=3,
            )
        ),
        draw(st.dictionaries(names, st.integers(0, 10**13), max_size=3)),
    )


documents = st.builds(
    Document,
    st.dictionaries(
        names, st.dictionaries(names, st.none() | st.frozensets(names, max_size=3), max_size=2), max_size=3
    ),
    st.dictionaries(names, cluster_offsets(), max_size=2),
    st.builds(Cursor, names, st.dictionaries(names, partitions, max_size=2)) | st.just(Cursor()),
    st.builds(Packing, st.integers(1, 10**9), st.integers(1, 100), st.integers(0, 100)),
    st.integers(0, 3),
)


@given(documents)
def test_a_document_survives_its_text(document: Document) -> None:
    """Written and read it is equal, and written again it is the same text."""
    text = json.dumps(encode(document))
    again = decode(json.loads(text))
    assert again == document
    assert json.dumps(encode(again)) == text

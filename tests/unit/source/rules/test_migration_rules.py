"""The rules of moving from cluster to cluster, one at a time, with all that each of them changes and says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.unit.source.rules.test_migration import RECORDS, TP, reading, view, wants

from dynamic_kafka.continuation import Continues, continues_to_json
from dynamic_kafka.source.document.evidence import Anchor, Marks, MoveRequest, Placement, RecordPrint
from dynamic_kafka.source.document.offsets import ClusterOffsets, RetainedTopic
from dynamic_kafka.source.rules.migration import Migration, add_marks, migrate, unmarked
from dynamic_kafka.source.rules.model import ClusterView, DesiredCluster, Event, Move
from dynamic_kafka.source.rules.placement import way_back

WAIT_FOR = "Cluster 'b', topic '{0}' waits to continue '{0}' of cluster 'a'"
WAITS = WAIT_FOR.format("t")
ANCHOR = Anchor("kb", "kb-t", 5, 7, 0, 2, 5, 1000, 2, -2, 5)
MARKS = (Marks(5, (RecordPrint(4, 1000, "x", ""),)),)
B, OF_X = {"b": wants("t", continues=RECORDS)}, Continues("x", "records")


def migrated(
    before: Mapping[str, ClusterOffsets],
    desired: Mapping[str, DesiredCluster],
    views: Mapping[str, ClusterView],
    *,
    quiet: Collection[tuple[str, str]] = (),
    inactive: Collection[str] = (),
    answers: Mapping[MoveRequest, Placement] | None = None,
) -> Migration:
    """What the rules find. They leave the last document as it is."""
    copy = deepcopy(dict(before))
    found = migrate(before, desired, views, quiet=quiet, inactive=inactive, answers=answers or {})
    assert before == copy
    return found


def asked(number: int, position: int, *, topic: str = "t", **more: Any) -> MoveRequest:
    """The question where a position is."""
    tp = TP(topic, number)
    known = {"kafka_id": "kb", "topic_id": f"kb-{topic}", **more}
    return MoveRequest("b", tp, "a", tp, position, "records", "", True, known.pop("marks", ()), **known)


def waits(clusters: dict[str, ClusterOffsets], *events: Event, **more: Any) -> Migration:
    """The topic is held on the one cluster, and waits on the other."""
    return Migration(clusters, {"a": {"t"}}, {"b": {"t"}}, events=list(events), **more)


info, warning = partial(Event, "info"), partial(Event, "warning")


def test_a_copy_that_stands_by_is_compared_as_far_as_it_has_partitions() -> None:
    """With what is known of it: where both logs agree, and what was read there before."""
    old = reading("ka", t=[5, 6, 7], u=[1])
    old.unresolved = {TP("u", 1): 0}
    old.marks, old.anchors = {TP("t", 0): MARKS}, {TP("t", 0): ANCHOR, TP("t", 1): ANCHOR._replace(topic_id="other")}
    new = ClusterOffsets("kb", discovered=True, retained={"t": RetainedTopic("kb-t", 1, {1: 3})})
    desired = {"a": wants("t", "u"), "b": wants("t", "u", continues=RECORDS)}
    views = {"b": view("kb", t=[9, 9], u=[9, 9])}
    found = migrated({"a": old, "b": new}, desired, views)
    requests = [asked(0, 5, marks=MARKS, anchor=ANCHOR), asked(1, 6, read_to=3), asked(0, 1, topic="u")]
    names = {"t", "u"}
    says = [info(f"{WAIT_FOR.format(t)}, which the metadata still names there: it stands by") for t in "tu"]
    expected = Migration(
        {"a": old, "b": new}, {}, {"b": names}, {"a": names}, {"b": names}, comparisons=requests, events=says
    )
    assert found == expected
    for clusters, seen in (({"a": old}, {}), ({"a": old}, {"b": view("kb", v=[9])}), ({}, views)):
        found = migrated(clusters, desired, seen)
        assert found == replace(expected, clusters=clusters, comparisons=[]), (clusters, seen)


def test_a_move_is_asked_for_as_the_metadata_says() -> None:
    """By its way, with its topic of offset syncs."""
    continues = Continues("a", "mirror-maker", offset_syncs="own")
    desired = {"a": wants("t"), "b": wants("a.t", continues=continues)}
    (request,) = migrated({"a": reading("ka", t=[5])}, desired, {"b": view("kb", **{"a.t": [9]})}).comparisons
    names = "kb", "kb-a.t"
    assert request == MoveRequest("b", TP("a.t", 0), "a", TP("t", 0), 5, "mirror-maker", "own", True, (), *names)


def test_a_topic_that_is_named_again_is_not_read() -> None:
    """Unless both were read before `continues` was said. The copy gets no partition that did not move."""
    desired = {"a": wants("t"), **B}
    text = (
        "Cluster 'a', topic 't' is named again, but cluster 'b' continues it: what is not read there already is not read. "
        "To go back, let 'a' continue 'b'"
    )
    new, part = reading("kb", t=[5]), reading("ka", t=[5, 6])
    del part.ranges[TP("t", 0)]
    for clusters, waiting in (({"b": new}, {"a": {"t"}}), ({"a": part, "b": new}, {"a": {"t"}, "b": {"t"}})):
        assert migrated(clusters, desired, {}) == Migration(clusters, waiting=waiting, events=[warning(text)])
    both = {"a": reading("ka", t=[5, 6]), "b": new}
    assert migrated(both, desired, {}) == Migration(both)


def test_what_was_made_again_or_has_positions_is_not_continued() -> None:
    """The words say how it is read."""
    old = replace(reading("ka", u=[1]), topics={"t": "ka-t", "u": "ka-u"})
    text = (
        "Cluster 'b', topic 't' does not continue 't' of cluster 'a': that was made again, and its positions are gone. It "
        "is read from the starting offsets"
    )
    assert migrated({"a": old}, B, {}) == Migration({"a": old}, events=[warning(text)])
    both = {"a": reading("ka", t=[5]), "b": reading("kb", t=[5])}
    text = "Cluster 'b', topic 't' has positions of its own: it does not continue 'a'"
    assert migrated(both, B, {}) == Migration(both, events=[warning(text)])


@pytest.mark.parametrize(
    ("stop", "draining", "quiet", "answers", "why"),
    [
        (None, True, False, True, "is read to its end first"),
        (6, True, False, True, "is read to its end first"),
        (5, False, False, True, "is read to its end first"),
        (None, True, False, False, "may still answer"),
        (5, True, False, True, None),
        (4, True, False, True, None),
        (None, False, True, True, None),
    ],
)
def test_a_topic_is_drained_before_it_moves(
    *, stop: int | None, draining: bool, quiet: bool, answers: bool, why: str | None
) -> None:
    """It is if no record came for long enough, or if it was read to its stops. Not all its partitions may be known."""
    old = reading("ka", t=[5])
    old.unresolved = {TP("t", 1): 0}
    old.stops = {TP("t", 0): stop} if stop is not None else {}
    old.draining = {"t"} if draining else set()
    views = {"a": view("ka", t=[9, 9])} if answers else {}
    found = migrated({"a": old}, B, views, quiet={("a", "t")} if quiet else ())
    says = info(f"{WAITS}, which {why}") if why else warning(f"{WAITS}: it does not answer")
    assert found == waits({"a": old}, says)


def test_a_removed_topic_is_read_again_until_it_moves() -> None:
    """Other ones that were removed stay so."""
    kept = {"t": RetainedTopic("ka-t", 1, {0: 5}), "u": RetainedTopic("ka-u", 1, {0: 1})}
    old = ClusterOffsets("ka", topics={"v": "ka-v"}, draining={"v"}, retained=kept)
    found = migrated({"a": old}, B, {"a": view("ka", t=[9])})
    again = replace(old, topics={"v": "ka-v", "t": "ka-t"}, ranges={TP("t", 0): (5, 5)}, draining={"v", "t"})
    again.retained = {"u": kept["u"]}
    assert found == waits({"a": again}, info(f"{WAITS}, which is read to its end first"), changed=True)


@pytest.mark.parametrize(
    ("new", "continues", "is_held", "text"),
    [
        (None, OF_X, True, "which the checkpoint does not know; it has a1, a2, a3, a4, a5 and 1 more"),
        (None, replace(OF_X, guarantee="unproved"), False, ""),
        (ClusterOffsets("kb"), OF_X, True, "which the checkpoint does not know; it has"),
        (ClusterOffsets("kb", discovered=True), OF_X, False, "is new, and the checkpoint"),
        (None, Continues("a1", "records", {"x": "t"}), True, "of which the checkpoint has no position"),
        (None, Continues("a1", "records"), False, ""),
        (ClusterOffsets("kb", topics={"t": "kb-t"}), OF_X, False, ""),
    ],
)
def test_a_name_that_is_not_known_may_be_wrong(
    *, new: ClusterOffsets | None, continues: Continues, is_held: bool, text: str
) -> None:
    """Then the topic waits, unless its user gave up any proof."""
    known = {f"a{n}": ClusterOffsets(f"k{n}") for n in range(1, 7)} | ({"b": new} if new is not None else {})
    found = migrated(known, {"b": wants("t", continues=continues)}, {})
    assert found.waiting == ({"b": {"t"}} if is_held else {})
    said = "".join(event.text for event in found.events)
    assert (text in said) if text else not said
    assert not is_held or said.endswith(". Correct `continues`, or take it away to read from the starting offsets")
    assert not said or "Cluster 'b', topic 't'" in said
    assert migrated({}, {"b": wants("t", continues=continues)}, {}) == Migration({})


def test_a_cluster_waits_for_one_that_waits_itself() -> None:
    """The first one is drained, also if the second is not named any more."""
    second = replace(ClusterOffsets("kb"), continues=continues_to_json(RECORDS))
    third = {"c": wants("t", continues=Continues("b", "records"))}
    text = "Cluster 'c', topic 't' waits to continue 't' of cluster 'b', which still waits itself; list 'b' in the metadata "
    says = [warning(f"{text}until it has moved")]
    for old in (reading("ka", t=[5]), ClusterOffsets("ka", retained={"t": RetainedTopic("ka-t", 1, {0: 5})})):
        clusters = {"a": old, "b": second}
        leaving = {"a": {"t"}, "b": {"t"}}
        expected = Migration(clusters, leaving, {"c": {"t"}}, events=says, kept={"b"})
        assert migrated(clusters, third, {}) == expected
    gone = {"a": ClusterOffsets("ka", topics={"u": "ka-u"}), "b": second}
    assert migrated(gone, third, {}).kept == set()
    for topic, leaving in (("t", {"b": {"t"}}), ("u", {"a": {"t"}, "b": {"t"}})):
        named = {"a": wants(topic), **B, **third}
        assert migrated({"a": reading("ka", t=[5]), "b": second}, named, {}).leaving == leaving


COPIES = {"a": view("ka", t=[5, 6]), "b": view("kb", t=[9, 9])}
PARTITIONS = (
    "{}: it has {} partitions and the other {}, so a record may be in another partition. Give it as many, or take "
    "`continues` away and set startingOffsets"
)


@pytest.mark.parametrize(
    ("views", "inactive", "text"),
    [
        ({"a": COPIES["a"]}, (), f"{WAITS}: it does not answer"),
        ({"a": COPIES["a"], "b": view("kb", u=[9])}, (), f"{WAITS}: it does not exist (yet)"),
        ({"a": COPIES["a"], "b": view("kb", t=[9, 9, 9])}, (), PARTITIONS.format(WAITS, 3, 2)),
        ({"a": view("ka", t=[5, 6, 7]), "b": COPIES["b"]}, (), PARTITIONS.format(WAITS, 2, 3)),
        ({"a": view("ka", u=[5]), "b": view("kb", t=[9])}, (), PARTITIONS.format(WAITS, 1, 2)),
        ({"b": view("kb", t=[9])}, ("a",), PARTITIONS.format(WAITS, 1, 2)),
    ],
)
def test_a_topic_moves_to_one_with_as_many_partitions(
    views: dict[str, ClusterView], inactive: Collection[str], text: str
) -> None:
    """As far as one sees: those of a cluster that is gone are those that were read."""
    old = reading("ka", t=[5, 6])
    found = migrated({"a": old}, B, views, quiet={("a", "t")}, inactive=inactive)
    assert found == waits({"a": old}, warning(text))


def test_partitions_move_together_and_one_that_has_no_position_yet_later() -> None:
    """All that belongs to a position leaves the old cluster with it. The retained positions of before are given up."""
    old = reading("ka", t=[5, 6], u=[1])
    del old.ranges[TP("t", 0)]
    old.unresolved = {TP("t", 0): 0}
    old.ranges[TP("t", 2)] = (7, 7)
    old.draining = {"t"}
    old.stops = dict.fromkeys(old.ranges, 9)
    old.marks, old.anchors = dict.fromkeys(old.ranges, MARKS), dict.fromkeys(old.ranges, ANCHOR)
    kept = {"t": RetainedTopic("x", 1, {0: 3}), "v": RetainedTopic("y", 1, {0: 3})}
    new = ClusterOffsets("kb", topics={"w": "kb-w"}, ranges={TP("w", 0): (1, 1)}, retained=kept)
    views = {"a": view("ka", t=[9, 9, 9]), "b": view("kb", t=[9, 9, 9])}
    requests = [asked(number, end, marks=MARKS, anchor=ANCHOR) for number, end in ((1, 6), (2, 7))]
    no_position = warning(f"{WAITS}: partition 0 there has no position yet")
    before = {"a": old, "b": new}
    some = {requests[0]: Placement(106, "exact", 0, "because")}
    found = migrated(before, B, views, quiet={("a", "t")}, answers=some)
    moves = [Move(requests[0], some[requests[0]], False), Move(requests[1], None, False)]
    assert found == waits(before, no_position, moves=moves)
    answers = {**some, requests[1]: Placement(107, "at-least-once", 2, "so")}
    found = migrated(before, B, views, quiet={("a", "t")}, answers=answers)
    text = f"{WAITS}, partition 2 at offset 7: offset 107 would be at-least-once, with up to 2 records again (so). To go on "
    refused = warning(f"{text}there, set `guarantee: at-least-once` in `continues`")
    left = deepcopy(old)
    left.forget([TP("t", 1)])
    target = replace(
        new,
        topics={"w": "kb-w", "t": "kb-t"},
        ranges={TP("w", 0): (1, 1), TP("t", 1): (106, 106)},
        retained={"v": kept["v"]},
        anchors={TP("t", 1): way_back(requests[0], some[requests[0]], "ka", "ka-t")},
    )
    moved = info(
        "Cluster 'b', topic 't' continues 't' of cluster 'a': partition 1 at offset 106 (was 6), exact: because"
    )
    moves = [Move(requests[0], some[requests[0]], True), Move(requests[1], answers[requests[1]], False)]
    after, resets = {"a": left, "b": target}, {"b": {TP("t", 1)}}
    assert found == waits(after, no_position, refused, moved, moves=moves, resets=resets, changed=True)
    old.unresolved = {}
    any_good = {"b": wants("t", continues=replace(RECORDS, guarantee="unproved"))}
    found = migrated({"a": old}, any_good, {**views, "b": view("kb", t=[9, 9])}, inactive={"a"}, quiet={("a", "t")})
    assert found.events[0].text == PARTITIONS.format(WAITS, 2, 3)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Placement(107, "exact", 0, "so"), "exact"),
        (Placement(107, "at-least-once", 2, "so"), "at-least-once, with up to 2 records again"),
        (Placement(107, "at-least-once", None, "so"), "at-least-once, with an unknown number of records again"),
        (Placement(107, "unproved", None, "so"), "unproved"),
    ],
)
def test_the_last_partition_takes_the_topic_with_it(answer: Placement, words: str) -> None:
    """What it promises is told, and warned of if it is less than exact. Of many partitions, some are named."""
    old = replace(reading("ka", t=[7] * 25, u=[1]), draining={"t"})
    views = {"a": view("ka", t=[7] * 25), "b": view("kb", t=[9] * 25)}
    requests = [asked(number, 7) for number in range(25)]
    desired = {"b": wants("t", continues=replace(RECORDS, guarantee="unproved"))}
    found = migrated({"a": old}, desired, views, quiet={("a", "t")}, answers=dict.fromkeys(requests, answer))
    parts = ", ".join(f"partition {n} at offset 107 (was 7), {words}: so" for n in range(20))
    text = f"Cluster 'b', topic 't' continues 't' of cluster 'a': {parts} and 5 more"
    new = ClusterOffsets(
        "kb",
        topics={"t": "kb-t"},
        ranges={TP("t", n): (107, 107) for n in range(25)},
        anchors={TP("t", n): way_back(requests[n], answer, "ka", "ka-t") for n in range(25)},
    )
    assert found == Migration(
        {"a": reading("ka", u=[1]), "b": new},
        {"a": set()},
        {"b": set()},
        moves=[Move(request, answer, True) for request in requests],
        events=[info(text) if words == "exact" else warning(text)],
        changed=True,
    )


def test_marks_are_wanted_where_they_do_not_reach_a_position() -> None:
    """Also at the first offset, and not at the start of a log."""
    state = reading("ka", t=[0, 1, 5, 5], u=[5])
    state.marks = {TP("t", 2): MARKS, TP("t", 3): (Marks(4, ()),)}
    assert unmarked(state, {"t"}) == [TP("t", 1), TP("t", 3)]
    state.ranges[TP("t", 2)] = (3, 5)
    older = Marks(3, (RecordPrint(2, 1, "y", ""),))
    assert add_marks(state, TP("t", 2), older)
    assert state.marks[TP("t", 2)] == (older, *MARKS)

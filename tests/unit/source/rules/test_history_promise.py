"""The words of a promise at the switch from a history to Kafka, and the evidence from which they are made."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.errors import OffsetResolutionError
from dynamic_kafka.history.coverage import Coverage, Node, Offsets, Part, arranged, covered, gaps_between, part_of
from dynamic_kafka.history.model import HistoryGap, Place
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document.promise import Promise, Seen, decode_promise, encode_promise, seen_in
from dynamic_kafka.source.rules.model import KafkaRow
from dynamic_kafka.source.rules.switch import check_rows, gaps_of

P0 = KafkaTopicPartition("t", 0)
HERE: Place = ("a", "t", 0)
PLACES = {HERE: ("a", P0)}


def part(*offsets: int, first_row: int = 0) -> Part:
    """The part of rows with these offsets."""
    return part_of(np.array(offsets), np.arange(first_row, first_row + len(offsets)))


def whole(start: int, end: int) -> Offsets:
    """All offsets of a range."""
    return Offsets(start, end, end - start)


# --- words --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("promise", "verdict", "words"),
    [
        (Promise("Kafka goes on", 1000), "exact", "Exact, by the offsets of all 1,000 rows"),
        (
            Promise("Kafka goes on", 7, recognized=(("x", 2), ("y", 1))),
            "exact",
            (
                "Exact, by the offsets of all 7 rows; clusters and topics were recognized by x (2 partitions), by y "
                "(1 partitions)"
            ),
        ),
        (
            Promise("Kafka goes on", 7, recognized=(("x", 2),), seen=(Seen("before", 4, 1, ("t-0: 0 to 3",)),)),
            "exact",
            (
                "Exact, by the offsets of all 7 rows; 4 offsets before the history's first ones are not in Kafka either: "
                "t-0: 0 to 3; clusters and topics were recognized by x"
            ),
        ),
        (
            Promise("Kafka goes on", 7, seen=(Seen("read from Kafka", 4, 1, ("t-0: 6 to 9",)),)),
            "exact",
            (
                "Exact, by the offsets of all 7 rows; 4 offsets that the history does not have are read from Kafka: "
                "t-0: 6 to 9"
            ),
        ),
        (Promise("Kafka goes on", only_if="it is so"), "not proved", "Not proved: exact only if it is so"),
        (
            Promise(
                "Kafka goes on",
                9,
                seen=(
                    Seen("read from Kafka", 1, 1, ("t-0: 6 to 6",)),
                    Seen("maybe twice", 3, 1, ("t-0: 1 to 3",)),
                    Seen("in no file", 1234, 1, ("t-0: 7 to 1240",)),
                ),
            ),
            "not proved",
            (
                "Not proved: 1,234 offsets are in no file, and are not read from Kafka. They are markers of transactions, "
                "compacted or filtered records, or lost: t-0: 7 to 1240; up to 3 rows may be there twice: t-0: 1 to 3; 1 "
                "offsets that the history does not have are read from Kafka: t-0: 6 to 6"
            ),
        ),
        (
            Promise("Kafka goes on", 9, seen=(Seen("without record", 2, 1, ("t-0: 6 to 9",)),)),
            "not proved",
            (
                "Not proved: 2 offsets were read by the archive and have no record. They are markers of transactions, "
                "compacted or filtered records, or were given up: t-0: 6 to 9"
            ),
        ),
        (
            Promise("Kafka goes on", 9, seen=(Seen("not compared", 0, 2, ("t-0", "t-1")),)),
            "not proved",
            (
                "Not proved: nothing shows that these topics were not made anew, because there are no topic ids, and no "
                "record with its time that both the history and Kafka have at its last offset: t-0, t-1"
            ),
        ),
        (
            Promise(
                "Kafka goes on",
                9,
                "it is so",
                seen=(
                    Seen("twice", 3, 1, ("t-0: 1 to 3",)),
                    Seen("deleted", 0, 1, ("5 records were deleted",)),
                    Seen("out of order", 0, 1, ("t-0",)),
                    Seen("never read", 60, 1, ("t-0: 100 to 159",)),
                    Seen("set by hand", 0, 1, ("a/t/0",)),
                ),
            ),
            "not exact",
            (
                "Not exact: 5 records were deleted; failOnDataLoss=false; 60 offsets were never read by the archive, and "
                "Kafka does not have them any more: t-0: 100 to 159; 3 rows are there twice: t-0: 1 to 3; rows are not in "
                "the order of their offsets: t-0; positions were set by hand: a/t/0; exact only if it is so"
            ),
        ),
    ],
)
def test_a_promise_says_what_was_seen(promise: Promise, verdict: str, words: str) -> None:
    """The worst first, with numbers and ranges; and it is called exact only if nothing speaks against it."""
    assert promise.verdict == verdict
    assert str(promise) == f"Kafka goes on. {words}"
    assert decode_promise(json.loads(json.dumps(encode_promise(promise)))) == promise


def test_of_many_ranges_five_are_said_and_twenty_kept() -> None:
    """With the number of all of them."""
    seen = Seen.of("twice", [f"t-{n}" for n in range(30)], 90)
    assert str(seen) == "90 rows are there twice: t-0, t-1, t-2, t-3, t-4 and 25 more"
    assert (seen.places, len(seen.ranges)) == (30, 20)
    assert Promise("", seen=(seen,)).as_progress()["seen"] == [
        {"what": "twice", "offsets": 90, "places": 30, "ranges": [f"t-{n}" for n in range(20)]}
    ]


def test_whatever_speaks_against_a_promise_is_a_warning() -> None:
    """What takes nothing from it is none."""
    promise = Promise("").and_seen(Seen.of("twice", ["t-0: 1 to 1"], 1)).and_seen(Seen.of("before", ["t-0: 0 to 0"], 1))
    assert promise.warnings() == ["The history: 1 rows are there twice: t-0: 1 to 1"]


def test_a_damaged_promise_is_none() -> None:
    """A kind that this version does not know would be without words."""
    value = encode_promise(Promise("x", seen=(Seen("twice", 1, 1, ()),)))
    value["seen"][0][0] = "other"
    with pytest.raises(ValueError, match="'other' in a promise"):
        decode_promise(value)


# --- offsets ------------------------------------------------------------------------------------------------------------


def test_a_part_has_the_offsets_of_its_rows() -> None:
    """As spans, with those that are there twice, their order, and the row with the largest one."""
    assert part(5, 6, 7, 9, first_row=20) == Part((whole(5, 8), whole(9, 10)), (), ordered=True, last_row=23)
    assert part(7, 5, 6, 5) == Part((whole(5, 8),), (Offsets(5, 6, 1),), ordered=False, last_row=0)
    assert part(4, 4) == Part((whole(4, 5),), (whole(4, 5),), ordered=False)
    assert part(3) == Part((whole(3, 4),))


def test_of_many_gaps_the_smallest_are_left_within_spans() -> None:
    """So a part stays small. Their number stays known."""
    offsets = [n * 10 for n in range(100)] + [5000, 9000]
    found = part(*offsets)
    assert len(found.spans) == 32
    assert found.spans[-1] == whole(9000, 9001)
    assert found.spans[-2] == whole(5000, 5001)
    assert sum(span.rows for span in found.spans) == len(offsets)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([part(0, 1), part(2, 3)], Coverage((whole(0, 4),))),
        ([part(2, 3), part(0, 1)], Coverage((whole(0, 4),), ordered=False)),
        ([part(1, 0)], Coverage((whole(0, 2),), ordered=False)),
        ([part(0, 1), part(4)], Coverage((whole(0, 2), whole(4, 5)))),
        ([part(0, 1, 2), part(1, 2, 3)], Coverage((whole(0, 4),), (whole(1, 3),), ordered=False)),
        ([part(0, 1, 2, 3), part(1, 2)], Coverage((whole(0, 4),), (whole(1, 3),), ordered=False)),
        ([part(0, 0)], Coverage((whole(0, 1),), (whole(0, 1),), ordered=False)),
        (
            [Part((Offsets(0, 9, 5),)), Part((Offsets(1, 10, 4),), ordered=True)],
            Coverage((Offsets(0, 10, 9),), (), (Offsets(1, 9, 4),), ordered=False),
        ),
        ([Part((Offsets(0, 9, 5),)), part(9)], Coverage((Offsets(0, 9, 5), whole(9, 10)))),
        ([part(2), part(0), part(4)], Coverage((whole(0, 1), whole(2, 3), whole(4, 5)), ordered=False)),
        (
            [part(5, 6, 7, 8), Part((Offsets(6, 14, 3),))],
            Coverage((Offsets(5, 14, 7),), (), (Offsets(6, 9, 3),), ordered=False),
        ),
        (
            [Part((Offsets(0, 9, 2),)), Part((Offsets(1, 9, 5),))],
            Coverage((Offsets(0, 9, 7),), (), (Offsets(1, 9, 2),), ordered=False),
        ),
        ([part(5, 6, 7), part(6, 7, 8)], Coverage((whole(5, 9),), (whole(6, 8),), ordered=False)),
    ],
)
def test_a_coverage_is_what_all_parts_have(parts: list[Part], expected: Coverage) -> None:
    """What is there, what is twice for certain or maybe, and whether it is in order."""
    assert covered(parts) == expected


def test_offsets_between_spans_are_gaps() -> None:
    """Spans that touch each other have none between."""
    assert gaps_between([whole(1, 2), whole(4, 5), Offsets(5, 9, 2)]) == [Offsets(2, 4, 2)]


def test_files_are_in_the_order_of_offsets_and_then_of_times() -> None:
    """A partition's later file waits for the one before it, whatever its times; a gap comes as soon as it can."""
    files = [Node((5,), {"p": 10}), Node((9,), {"p": 0}), Node((7,), {"q": 0}), Node((), {})]
    assert arranged(files, by_offset=True) == [3, 2, 1, 0]
    assert arranged(files, by_offset=False) == [3, 0, 2, 1]
    gap = Node((), {"q": 4}, is_gap=True)
    assert arranged([*files, gap], by_offset=True) == [3, 2, 4, 1, 0]
    assert arranged([*files, gap], by_offset=False) == [3, 0, 2, 4, 1]
    turned = [Node((1,), {"q": 9}), Node((2,), {"q": 0}), gap]
    assert arranged(turned, by_offset=False) == [0, 1, 2]
    assert arranged(turned, by_offset=True) == [1, 2, 0]
    assert arranged([Node((1,), {"p": 0}), gap], by_offset=True) == [1, 0]
    of_both = [Node((1,), {"p": 0}), Node((5,), {"q": 0}), Node((0,), {"p": 1, "q": 1})]
    assert arranged(of_both, by_offset=True) == [0, 1, 2]


@given(late=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), max_size=8), data=st.data())
def test_no_file_is_later_than_the_times_within_a_batch(late: list[list[int]], data: st.DataObject) -> None:
    """Whatever the names of the files that a sink has written batch by batch. So a watermark loses nothing."""
    files = [
        Node(
            (100 * batch + times[p],),
            {p: 10 * batch, "": 30 * batch + p} if data.draw(st.booleans()) else {p: 10 * batch},
        )
        for batch, times in enumerate(late)
        for p in range(3)
    ]
    named = data.draw(st.permutations(files))
    order = [named[number] for number in arranged(named, by_offset=True)]
    assert sorted(map(id, order)) == sorted(map(id, files))
    newest = 0
    for file in order:
        assert file.key[0] >= newest - 9
        newest = max(newest, file.key[0])


@given(files=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), max_size=12))
def test_files_of_a_partition_are_in_the_order_of_offsets(files: list[tuple[int, int]]) -> None:
    """If each file has one partition, that is always possible, whatever their times."""
    nodes = [Node((time,), {p: 10 * number}) for number, (time, p) in enumerate(files)]
    order = [nodes[number] for number in arranged(nodes, by_offset=True)]
    for p in range(4):
        starts = [node.starts[p] for node in order if p in node.starts]
        assert starts == sorted(starts)


def test_files_that_wait_for_each_other_are_in_the_order_of_times() -> None:
    """There is no order of all offsets. Each file comes once, and a gap not before the others."""
    files = [Node((2,), {"p": 0, "q": 10}), Node((1,), {"p": 10, "q": 0}), Node((), {"p": 5}, is_gap=True)]
    assert arranged(files, by_offset=True) == [1, 0, 2]
    assert arranged([*files[:2], Node((3,), {"p": 20})], by_offset=True) == [1, 0, 2]


def test_what_was_seen_of_rows_is_counted_by_place() -> None:
    """Over all places, with the name of the cluster if there is one."""
    coverage = {
        HERE: Coverage((whole(0, 9),), (whole(1, 3), Offsets(5, 9, 2)), ordered=False),
        ("", "u", 1): Coverage((whole(0, 9),), (), (Offsets(0, 9, 3),)),
    }
    assert seen_in(coverage) == [
        Seen("twice", 4, 2, ("a/t-0: 1 to 2", "a/t-0: 5 to 8")),
        Seen("maybe twice", 3, 1, ("u-1: 0 to 8",)),
        Seen("out of order", 0, 1, ("a/t-0",)),
    ]
    assert seen_in({HERE: Coverage((whole(0, 9),))}) == []


# --- gaps ---------------------------------------------------------------------------------------------------------------


def gap(start: int, end: int) -> HistoryGap:
    """A gap that is read from Kafka."""
    return HistoryGap("a", "A", "t", 0, start, end)


@pytest.mark.parametrize(
    ("begin", "gaps", "seen"),
    [
        (0, [gap(0, 5), gap(20, 30)], [Seen("read from Kafka", 15, 2, ("a/t-0: 0 to 4", "a/t-0: 20 to 29"))]),
        (
            3,
            [gap(3, 5), gap(20, 30)],
            [
                Seen("read from Kafka", 12, 2, ("a/t-0: 3 to 4", "a/t-0: 20 to 29")),
                Seen("before", 3, 1, ("a/t-0: 0 to 2",)),
            ],
        ),
        (
            24,
            [gap(24, 30)],
            [
                Seen("in no file", 4, 1, ("a/t-0: 20 to 23",)),
                Seen("read from Kafka", 6, 1, ("a/t-0: 24 to 29",)),
                Seen("before", 5, 1, ("a/t-0: 0 to 4",)),
            ],
        ),
        (99, [], [Seen("in no file", 10, 1, ("a/t-0: 20 to 29",)), Seen("before", 5, 1, ("a/t-0: 0 to 4",))]),
    ],
)
def test_what_the_history_lacks_is_read_from_kafka_if_it_is_there(
    begin: int, gaps: list[HistoryGap], seen: list[Seen]
) -> None:
    """The rest is told, and what was before the history's first record is no gap."""
    coverage = {HERE: Coverage((whole(5, 20), whole(30, 40)))}
    found = gaps_of(PLACES, coverage, None, {("a", P0): begin}, {"a": "A"})
    assert found == ({HERE: gaps} if gaps else {}, seen)


def test_an_archives_log_says_which_gaps_were_never_read() -> None:
    """Others are offsets that it has read, without a record."""
    spans = {HERE: [Offsets(0, 20, 17), whole(30, 40)]}
    gaps, seen = gaps_of(PLACES, {}, spans, {("a", P0): 25}, {"a": "A"})
    assert gaps == {HERE: [gap(25, 30)]}
    assert seen == [
        Seen("never read", 5, 1, ("a/t-0: 20 to 24",)),
        Seen("without record", 3, 1, ("a/t-0: 0 to 19",)),
        Seen("read from Kafka", 5, 1, ("a/t-0: 25 to 29",)),
    ]


def test_gaps_of_what_kafka_is_not_read_for_are_told() -> None:
    """There is nobody to ask. So are those within a span of which nobody knows where they are."""
    coverage = {HERE: Coverage((whole(0, 5), Offsets(10, 20, 8)))}
    assert gaps_of({}, coverage, None, {}, {}) == (
        {},
        [Seen("in no file", 7, 2, ("a/t-0: 5 to 9", "a/t-0: 10 to 19"))],
    )


def test_a_thousand_gaps_are_read_the_largest_ones() -> None:
    """They are in the document. Whoever has more is told of the others."""
    spans = [whole(n * 10, n * 10 + 8) for n in range(1001)] + [whole(10_009, 10_010)]
    gaps, seen = gaps_of(PLACES, {HERE: Coverage(tuple(spans))}, None, {("a", P0): 0}, {})
    assert len(gaps[HERE]) == 1000
    assert seen[0] == Seen("too many", 1, 1, ("a/t-0: 10008 to 10008",))
    assert gaps_of(PLACES, {}, {HERE: spans}, {("a", P0): 0}, {})[1][0] == seen[0]


def test_an_archives_gaps_of_what_is_not_read_from_kafka_are_not_said_to_be_gone() -> None:
    """Nobody has asked Kafka for them."""
    other: Place = ("a", "u", 0)
    spans = {HERE: [whole(0, 9)], other: [whole(0, 5), whole(10, 20)]}
    assert gaps_of(PLACES, {}, spans, {("a", P0): 0}, {})[1] == [Seen("in no file", 5, 1, ("a/u-0: 5 to 9",))]


def test_what_is_before_a_copys_first_offsets_is_of_the_other_cluster() -> None:
    """Gaps after them are read."""
    coverage = {HERE: Coverage((whole(5, 20), whole(30, 40)))}
    for copies, wanted in (({("a", "t")}, [gap(20, 30)]), ({("a", "u"), ("b", "t")}, [gap(0, 5), gap(20, 30)])):
        assert gaps_of(PLACES, coverage, None, {("a", P0): 0}, {"a": "A"}, copies=copies)[0] == {HERE: wanted}


# --- records ------------------------------------------------------------------------------------------------------------

ROW = KafkaRow(5, b"k", b"v")


def test_a_record_that_both_have_shows_that_the_topic_is_the_same() -> None:
    """By what the history has of it."""
    row = {"timestamp_ms": 5, "key": b"k", "value": b"v"}
    assert check_rows(PLACES, {HERE: row}, {HERE: ROW}) == (
        {"the last record of the history, which has the same timestamp, key, value in Kafka": 1},
        [],
    )


def test_the_same_value_without_a_time_shows_nothing() -> None:
    """A topic that was made anew may have the same values at the same offsets, or the same deletions."""
    for row, kafka in (({"value": b"v"}, ROW), ({"value": None, "key": None}, ROW._replace(key=None, value=None))):
        assert check_rows(PLACES, {HERE: row}, {HERE: kafka}) == ({}, [Seen("not compared", 0, 1, ("a/t-0",))])


@pytest.mark.parametrize(
    ("row", "differs"),
    [({"value": b"w"}, "value"), ({"key": None, "value": b"v"}, "key"), ({"timestamp_ms": 6}, "timestamp")],
)
def test_another_record_is_of_another_topic(row: dict[str, object], differs: str) -> None:
    """Whatever differs; the record itself is not shown."""
    with pytest.raises(OffsetResolutionError) as found:
        check_rows(PLACES, {HERE: row}, {HERE: ROW})
    assert str(found.value) == (
        f"Cluster 'a', topic 't', partition 0: the record at the history's last offset has another {differs} in Kafka. Was "
        "the topic made anew, is it another cluster, or was the history changed? Nothing was read. Set history.switch to "
        "timestamp or starting-offsets"
    )
    assert found.value.cluster_id == "a"


def test_a_record_of_one_partition_shows_which_topic_it_is() -> None:
    """Partitions are not made anew alone. Other topics stay unknown."""
    places = {**PLACES, ("a", "t", 1): ("a", P0._replace(partition=1)), ("a", "u", 0): ("a", P0._replace(topic="u"))}
    compared, lacking = check_rows(places, {HERE: {"timestamp_ms": 5}}, {HERE: ROW, ("a", "t", 1): ROW})
    assert compared.total() == 1
    assert lacking == [Seen("not compared", 0, 1, ("a/u-0",))]


def test_without_a_record_on_both_sides_nothing_is_shown() -> None:
    """Kafka may have deleted or compacted it, and a history may have nothing to compare."""
    for history, kafka in (({}, {HERE: ROW}), ({HERE: {"value": b"v"}}, {})):
        assert check_rows(PLACES, history, kafka) == ({}, [Seen("not compared", 0, 1, ("a/t-0",))])

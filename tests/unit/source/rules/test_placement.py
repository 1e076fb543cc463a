"""What is answered where a position is on another cluster, word by word: the place, what it promises, and why."""

from __future__ import annotations

from itertools import starmap
from typing import Any

import pytest
from tests.unit.source.rules.test_migration import Log, request

from dynamic_kafka.continuation import Way
from dynamic_kafka.source.document.evidence import (
    MARKS,
    Anchor,
    Difference,
    Marks,
    MoveRequest,
    Placement,
    Sync,
)
from dynamic_kafka.source.rules import comparison
from dynamic_kafka.source.rules.comparison import ALL, BEFORE_ALL
from dynamic_kafka.source.rules.placement import follow, place, translate, way_back

P, R = Placement, request
E, A, U = "exact", "at-least-once", "unproved"
OLD = Log(*"abcdef")
NOT_COMPARED = "; what is before that was not compared"
NOT_LOOKED_FOR = ". What only 'b' has was not looked for"
NO_MARK = "cluster 'a' does not answer, and the checkpoint has no mark of the last records that were read there"
ANOTHER = "'b' has another record or none at offset {}: it is not a copy with same offsets"
COME = "if they come, they are read again"
ONE, TWO = "the last 1 record before it is not on 'b' (yet)", "the last 2 records before it are not on 'b' (yet)"
DIFFER = "after offset {} of 'a' and 3 on 'b' they differ"
ONLY_NEW, ONLY_OLD = "on 'b' that 'a' does not have there", "of 'a' that 'b' does not have there"
BEFORE = "1 record on 'b' before the first one that was compared (offset 0): is not read"
UNKNOWN = "of the {} from 3 to {} nothing is known"
LOST = "no record was read before it, and the log on 'b' has lost what was before offset 5"
GONE = "the log starts at offset 4 on 'b': records from 2 on are gone"
LAGS = "the log ends at offset 2 on 'b', before 3: the copy lags behind"
NO_START = "the log starts at offset 3 on 'b', so no record before it can be compared"
NOT_HELD = "cluster 'a' does not hold the records before offset {} any more"
CUT_AT_6 = (
    "the log of cluster 'a' ends at offset 6, before 8: it was truncated, and the checkpoint has no mark of the last "
)
AT_3 = "the last record before it is at offset 3, with 3 records up to it the same"
PARTLY = (
    "offset {} has such a record, but only 2 of the last 4 records before the position are the same there: it may be "
)
NO = None, None
SAME: Way = "same-offsets"
TIMES = "a10 b20 c20 d30"
COPIED = "MirrorMaker has copied offset 3 to 5"
TIME = "it is the first record of time {} ms or later"


def log(text: str) -> Log:
    """A log of letters; `.` is no record, `5:abc` begins at offset 5, and `a10 b20` has times."""
    start, _, records = text.rpartition(":")
    if " " in records:
        return Log(*((one[0], int(one[1:])) for one in records.split()), start=int(start or 0))
    return Log(*(None if letter == "." else letter for letter in records), start=int(start or 0))


def same(records: int, of_new: int = 0) -> str:
    """What is said of the records that were compared."""
    number, are = ("1 record", "is") if records == 1 else (f"{records} records", "are")
    return f"{number} from offset 0 of 'a' on, {of_new} on 'b', {are} the same"


def dead(position: int, by: Way = "records", *, until: int = 0, old: Log = OLD) -> MoveRequest:
    """The question if the old cluster does not answer, with marks up to an offset."""
    marks = (Marks(until, tuple(r for r in old.prints if r.offset < until)[-MARKS:]),) if until else ()
    return request(position, by, marks=marks, readable=False)


def since_3(position: int) -> MoveRequest:
    """The question if the query came from the other cluster at offset 3."""
    return request(position)._replace(anchor=way_back(request(3), P(3, "exact", 0, ""), "", ""))


def compared_3(position: int) -> MoveRequest:
    """The question if three records were compared before the new log lost its start."""
    return request(position)._replace(anchor=follow(request(3), OLD, OLD, 9)[0])


@pytest.mark.parametrize(
    ("question", "old", "new", "there", "text"),
    [
        (R(1), "abcdef", ".abcdef", (2, E, 0), same(1)),
        (R(5), "abc..f", "abcf", (3, E, 0), same(3)),
        (R(4, "timestamp"), TIMES, TIMES, (4, E, 0), same(4)),
        (since_3(3), "abcdef", "abcdef", (3, E, 0), "nothing was read since offset 3"),
        (R(4), "abcdef", "abXcdef", (5, U, 0), f"{same(4)}; 1 record {ONLY_NEW} (offset 2): is not read"),
        (R(6), "abcdefgh", "abefgh", (4, A, 2), f"{same(4)}; 2 records {ONLY_OLD} (offsets 2 to 3)"),
        (R(6), "abcdefgh", "abdcefgh", (6, A, 0), f"{same(4)}; 2 records on 'b' in another order (offsets 2 to 3)"),
        (R(4), "abcdef", "xabcdef", (5, U, 0), f"{same(4, 1)}; {BEFORE}"),
        (R(3), "abcdef", "abcdf", (3, U, 0), f"{same(3)}; 1 record {ONLY_OLD} (offset 4), not read yet"),
        (R(4), "abc.f", "abcX", (3, A, 1), f"{same(3)}; {UNKNOWN.format('1 offset', 4)}"),
        (R(5), "abc..f", "abcXYZ", (3, A, 2), f"{same(3)}; {UNKNOWN.format('2 offsets', 5)}"),
        (R(0), "abc", "5:abc", (5, U, None), LOST),
        (R(4), "abcd", "ab", (2, U, 2), f"{TWO}; {COME}"),
        (R(5), "abcdef", "abXcd", (5, U, 1), f"{ONE}; 1 record {ONLY_NEW} (offset 2): is not read; {COME}"),
        (since_3(5), "abcdef", "abc", (None, U, None), TWO),
        (since_3(5), "abcdef", "abcXYZ", (3, U, 2), f"{DIFFER.format(3)}; {TWO}; {COME}"),
        (
            R(4, "mirror-maker"),
            "abcd",
            "xabyz",
            (3, U, 2),
            f"{same(2, 1)}; {DIFFER.format(2)}; {BEFORE}; {TWO}; {COME}",
        ),
        (
            R(4, "timestamp"),
            TIMES,
            "a10 b20 C20 D30",
            (3, U, None),
            f"{same(2)}; after offset 2 of 'a' and 2 on 'b' they differ; {TIME.format(30)}",
        ),
    ],
)
def test_what_was_compared_is_told(question: MoveRequest, old: str, new: str, there: Any, text: str) -> None:
    """The place, the promise, how many may come again and every difference; the comparison goes on from there."""
    anchor, _ = follow(question, log(old), log(new), 99)
    assert anchor is not None
    assert place(question, log(old), log(new)) == P(there[0], there[1], there[2], text, anchor, anchor.besides)


@pytest.mark.parametrize(
    ("question", "new", "there", "text"),
    [
        (R(4), "abcdaef", (1, 4, 4), "1 record on 'b' that is there before (offset 4)"),
        (R(4), "abcdaeb", (2, 4, 6), "2 records on 'b' that are there before (offsets 4 to 6)"),
        (compared_3(4), "2:c1000 d1000 q7 e1000", (1, 4, 4), "1 record may be there before (offset 4)"),
    ],
)
def test_what_may_come_again_is_told(question: MoveRequest, new: str, there: tuple[int, int, int], text: str) -> None:
    """It follows the position, so the comparison does not have it."""
    anchor, _ = follow(question, OLD, log(new), 99)
    count, first, last = there
    again = Difference("again", first, last, count)
    assert place(question, OLD, log(new)) == P(4, "at-least-once", count, f"{same(4)}; {text}", anchor, (again,))


@pytest.mark.parametrize(
    ("question", "old", "new", "there", "text"),
    [
        (R(2, SAME), "abcdef", "4:ef", NO, GONE),
        (R(3, SAME), "abcdef", "ab", NO, LAGS),
        (R(6, SAME), "abcdef", "abXdeY", NO, ANOTHER.format(2)),
        (dead(3, SAME, until=3), "", "aXc", NO, ANOTHER.format(1)),
        (dead(3, SAME, until=3), "", "2:Xdef", NO, ANOTHER.format(2)),
        (dead(3, SAME, until=3), "", "abc", (3, None), f"3 records before it are the same there{NOT_COMPARED}"),
        (dead(3, SAME, until=3), "", "2:cd", (3, None), f"1 record before it is the same there{NOT_COMPARED}"),
        (dead(3, SAME, until=3), "", "3:def", (3, None), NO_START),
        (dead(3, SAME), "", "abcdef", (3, None), NO_MARK),
        (R(3, SAME), "4:ef", "abcdef", (3, None), NOT_HELD.format(3)),
        (R(8), "abcdef", "abcdefghi", NO, f"{CUT_AT_6}records before it"),
        (R(8, SAME), "abcdef", "abcdefghi", (8, None), f"{CUT_AT_6}records before it"),
        (
            dead(4, until=4),
            "",
            "zzcdXd",
            (4, None),
            f"{PARTLY.format(3)}another one, or the copy is not complete (yet)",
        ),
        (
            dead(4, until=4),
            "",
            "zdXcdX",
            (5, None),
            f"{PARTLY.format(4)}another one, or the copy is not complete (yet)",
        ),
        (dead(3, until=3), "", "zabcabcabcd", (4, 6), f"{AT_3}, and it is there 3 times, last at offset 9"),
        (dead(4, until=3), "", "zabcd", (4, 1), f"{AT_3}; of the 1 offset after it nothing is known"),
        (dead(3, until=3), "", "xyz", NO, "none of the last 3 records before it is on 'b' (yet)"),
        (dead(4, until=4), "", "zabab", NO, TWO),
        (dead(3, until=3), "", "zab", (3, 1), f"{ONE}; {COME}"),
        (dead(3, "timestamp"), "", "abcdef", NO, NO_MARK),
        (dead(2, "timestamp", until=2, old=log("z5 a-1")), "", TIMES, NO, "the record next to it has no time"),
        (
            dead(1, "timestamp", until=1, old=log("a99 ")),
            "",
            TIMES,
            NO,
            "'b' has no record of time 99 ms or later (yet)",
        ),
        (dead(1, "timestamp", until=1, old=log("a0 ")), "", TIMES, (0, None), TIME.format(0)),
        (R(3, "timestamp"), "a10 b15 c20", "x10 y15 z20", (2, None), TIME.format(20)),
        # Times are out of order, and the copy has begun after the last record that was read: c and d would be lost.
        (dead(2, "timestamp", until=2, old=log("a10 b20")), "", "c15 d15 e30", (2, None), TIME.format(20)),
    ],
)
def test_what_was_not_compared_is_told(
    question: MoveRequest, old: str, new: str, there: tuple[int | None, int | None], text: str
) -> None:
    """Why there is no place or, with one, how it was found, which proves nothing."""
    found = place(question, log(old) if old else None, log(new))
    ends = question.by == SAME or there == NO
    assert found == P(there[0], "unproved", there[1], text if ends else f"{text}{NOT_COMPARED}")


def test_records_at_one_place_only_are_told_from_others() -> None:
    """They are no proof of what is before them, but a batch may be read by them."""
    found = place(dead(3, until=3), None, log("zabcd"))
    assert found == P(4, "unproved", None, f"{AT_3}{NOT_COMPARED}", alone=True)


@pytest.mark.parametrize(
    ("position", "syncs", "topic", "new", "found", "why"),
    [
        (5, None, "", "zzabcdef", NO, "neither '{0}' on 'b' nor '{1}' on 'a' can be read"),
        (5, None, "own", "zzabcdef", NO, "neither 'own' on 'b' nor 'own' on 'a' can be read"),
        (2, [Sync(3, 5)], "", "zzabcdef", NO, "MirrorMaker has no sync of an offset up to 2"),
        (3, [Sync(0, 2), Sync(3, 5)], "", "zzabcdef", (5, 0), COPIED),
        (4, [Sync(0, 2), Sync(3, 5)], "", "zzabcdef", (6, 0), COPIED),
        (5, [Sync(0, 2), Sync(3, 5)], "own", "zzabcdef", (6, 1), COPIED),
        (9, [Sync(0, 2), Sync(3, 5)], "", "zzabcdef", (6, 2), COPIED),
        (9, [Sync(3, 5)], "", "zzabcd", (6, 0), COPIED),
        (
            9,
            [Sync(3, 5)],
            "",
            "zzabc",
            NO,
            f"{COPIED}, and the log there has offsets 0 to 5 now: it was cut, or made again",
        ),
    ],
)
@pytest.mark.parametrize("location", ["source", "target"])
def test_syncs_of_mirror_maker_are_told(
    position: int, syncs: list[Sync] | None, topic: str, new: str, found: Any, why: str, location: str
) -> None:
    """They are on either cluster, under their usual name or another one. Without one, the words say what was looked for."""
    usual = "mm2-offset-syncs.a.internal", "mm2-offset-syncs.b.internal"
    by_topic = {topic or usual[location == "source"]: syncs} if syncs is not None else {}
    old = Log(*"xyz", start=20, syncs=by_topic if location == "source" else {})
    question = R(position, "mirror-maker", offset_syncs=topic)
    said = place(question, old, Log(*new, syncs=by_topic if location == "target" else {}))
    words = f"{NOT_HELD.format(position)}; {why.format(*usual)}"
    assert said == (
        P(None, "unproved", None, words)
        if found == NO
        else P(found[0], "at-least-once", found[1], f"{words}{NOT_LOOKED_FOR}")
    )


def test_a_sync_to_the_first_offset_of_a_log_counts_and_one_before_it_does_not() -> None:
    """The log may have been made again."""
    for start, position in ((5, 6), (6, None)):
        log = Log(*"def", start=start, syncs={"mm2-offset-syncs.a.internal": [Sync(3, 5)]})
        assert place(dead(5, "mirror-maker"), None, log).position == position


@pytest.mark.parametrize(
    ("syncs", "found"),
    [
        ([], None),
        ([(9, 19)], None),
        ([(1, 11), (5, 15), (9, 19)], (5, 15)),
        ([(1, 11), (5, 15), (2, 40)], (2, 40)),
        ([(1, 11), (9, 19), (9, 20)], (1, 11)),
        ([(1, 11), (8, 19), (9, 19)], (1, 11)),
        ([(1, 11), (8, 19), (9, 18)], None),
    ],
)
def test_syncs_are_translated_as_by_mirror_makers_library(
    syncs: list[tuple[int, int]], found: tuple[int, int] | None
) -> None:
    """The last one that is not after the position, here 7. One that goes back makes the others invalid."""
    assert translate(starmap(Sync, syncs), 7) == found


@pytest.mark.parametrize("most", [1, 2])
def test_while_records_are_being_compared_there_is_no_place(most: int) -> None:
    """The words say how far it is."""
    found = place(request(4), OLD, OLD, most)
    text = f"the records are being compared: {most} record{'s'[: most - 1]} so far, up to offset {most}"
    assert found._replace(anchor=None) == P(None, "unproved", None, text)
    assert (found.anchor, False) == follow(request(4), OLD, OLD, most)


def test_there_is_more_to_compare_until_all_was_compared_or_counted() -> None:
    """Nothing can be compared where the logs have no beginning in common."""
    assert [follow(request(4), OLD, OLD, most)[1] for most in (3, 4)] == [False, True]
    assert [follow(request(6), OLD, Log(*"ab"), most)[1] for most in (4, 5)] == [False, True]
    assert follow(request(4), OLD, Log(*"xyz"), 9) == (None, True)


def test_what_was_not_looked_at_after_the_position_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nobody knows how many records come again."""
    monkeypatch.setattr(comparison, "_MOST", 2)
    text = f"{same(2)}; what is there from offset 4 on was not looked at"
    assert place(request(2), OLD, OLD)[:4] == (2, "at-least-once", None, text)
    assert place(request(4), OLD, OLD)[:3] == (4, "exact", 0)


def test_headers_count_only_with_same_offsets() -> None:
    """Some mirrors add some."""
    new = Log(*"abcdef")
    new.prints[1] = new.prints[1]._replace(headers="added")
    assert place(request(3), OLD, new)[:2] == (3, "exact")
    for question, old in ((request(3, "same-offsets"), OLD), (dead(3, "same-offsets", until=3), None)):
        assert "another record or none at offset 1" in place(question, old, new).evidence


def test_the_way_back_begins_at_both_positions() -> None:
    """The latest time before them is known if all before the old position was compared."""
    known = follow(request(3), OLD, OLD, 9)[0]
    assert known == Anchor("", "", 3, 3, 0, 0, 3, 1000, 0, BEFORE_ALL, 3)
    for guarantee, at, newest_ms in (
        ("exact", 3, 1000),
        ("unproved", 3, 1000),
        ("exact", 4, 1000),
        ("unproved", 4, ALL),
    ):
        answer = P(7, guarantee, 0, "", known)  # type: ignore[arg-type]
        expected = Anchor("ka", "ta", 7, at, 7, at, 0, newest_ms, at, newest_ms, 7)
        assert way_back(request(at), answer, "ka", "ta") == expected
    assert way_back(request(3), P(7, "exact", 0, ""), "ka", "ta").newest_ms == ALL


def test_an_anchor_counts_up_to_the_ends_of_both_logs() -> None:
    """One after the position, or of records that the new log has lost, is of no use."""
    anchor = follow(request(3), OLD, OLD, 9)[0]
    for old, new, is_used in (
        (3, Log(("d", 2000), start=3), True),
        (3, Log(("e", 2000), start=4), False),
        (2, OLD, False),
        (3, Log(*"abc"), True),
        (3, Log(*"ab"), False),
    ):
        question = request(old, readable=False)._replace(anchor=anchor)
        assert (place(question, None, new).guarantee == "exact") == is_used, (old, new.start)


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize("copied", range(11))
def test_a_position_that_was_set_back_is_never_placed_beyond_its_copy(copied: int, *, readable: bool) -> None:
    """However far the logs were compared, counted and marked before, and whether the old cluster answers or not."""
    old, lagging = Log(*"abcdefghijkl"), Log(*"abcdefghij"[:copied], start=5)
    new = Log(*"abcdefghijkl", start=5)
    compared, _ = follow(request(10), old, lagging, 99)
    for position in range(13):
        question = dead(position, until=10, old=old)._replace(anchor=compared, readable=readable)
        found = place(question, old if readable else None, new)
        assert found.position is None or found.position <= position + 5
        assert found.overlap is None or found.overlap >= 0
        again, _ = follow(question, old, new, 99)
        assert again is None or max(again.old, again.until) <= position

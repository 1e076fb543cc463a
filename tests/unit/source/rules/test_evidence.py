"""What proves a position on another cluster, and what does not: a promise of `exact` has to hold for any copy."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.unit.source.rules.test_migration import T0
from tests.unit.source.rules.test_migration import Log as OfRecords

from dynamic_kafka.continuation import Way
from dynamic_kafka.source.document.document import ClusterOffsets
from dynamic_kafka.source.document.evidence import (
    MARKS,
    Anchor,
    Marks,
    MoveRequest,
    Placement,
    evidence_around,
)
from dynamic_kafka.source.rules import comparison, matching
from dynamic_kafka.source.rules.migration import add_marks, unmarked
from dynamic_kafka.source.rules.placement import follow, place


class Log(OfRecords):
    """A log whose records are letters of one time; a space is an offset without a record, as compaction leaves it."""

    def __init__(self, text: str, *, start: int = 0, time_ms: int = 5) -> None:
        super().__init__(*(None if letter == " " else (letter, time_ms) for letter in text), start=start)


def marks(log: OfRecords, until: int) -> tuple[Marks, ...]:
    """The marks up to an offset."""
    return (Marks(until, tuple(r for r in log.prints if r.offset < until)[-MARKS:]),)


def alive(old: OfRecords, position: int, new: OfRecords, *, known: tuple[Marks, ...] = ()) -> Placement:
    """The old cluster answers."""
    return place(MoveRequest("b", T0, "a", T0, position, "records", "", True, known), old, new)


def dead(
    known: tuple[Marks, ...], position: int, new: OfRecords, by: Way = "records", anchor: Anchor | None = None
) -> Placement:
    """It does not."""
    return place(MoveRequest("b", T0, "a", T0, position, by, "", False, known, "", "", anchor), None, new)


def compared(old: OfRecords, position: int, new: OfRecords) -> Anchor | None:
    """How far both logs were compared while the old one answered."""
    return follow(MoveRequest("b", T0, "a", T0, position, "records", "", True, ()), old, new, 10**6)[0]


@given(
    st.text("abX", min_size=1, max_size=60),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 60),
    st.booleans(),
    st.integers(0, 60),
)
@example("aXbX", 4, 2, 0, True, 0)
@example("XabcdefX", 8, 1, 0, False, 0)
@example("X" * 33 + "XY", 33, 33, 0, True, 0)
@example("XXXXXXX", 7, 6, 0, False, 0)
@example("XXaX", 3, 1, 0, True, 2)
@example("XabXaX", 5, 2, 0, True, 2)
@example("XXaXXX", 3, 1, 0, True, 3)
@example("XXXXXXaXa", 7, 9, 7, True, 5)
@example("XaXa", 2, 4, 2, True, 0)
def test_an_exact_position_is_the_true_one(
    text: str,
    position: int,
    copied: int,
    lost: int,
    readable: bool,  # noqa: FBT001
    old_start: int,
) -> None:
    """Copies that lag behind, that have lost their first records, and old logs that have lost theirs."""
    position, copied = min(position, len(text)), min(copied, len(text))
    lost, old_start = min(lost, copied), min(old_start, position)
    old, new = Log(" " * old_start + text[old_start:]), Log(text[lost:copied], start=100 + lost)
    old.start = old_start
    known = old.prints if readable else [*marks(Log(text), position)[0].records]
    before = "".join(r.content for r in known if r.offset < position)[-(32 if readable else MARKS) :]
    behind = text[position : position + 32] if readable else ""
    # Records that come again with all that is known of their neighbours cannot be told apart.
    assume(before in ("", text[:position]) or before not in text[: position - len(before)])
    assume(before or behind not in text[:position] + text[position + 1 :])
    placement = alive(old, position, new) if readable else dead(marks(Log(text), position), position, new)
    if placement.guarantee == "exact":
        assert placement.position == 100 + position


@given(
    st.text("abcX ", min_size=1, max_size=40),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 40),
    st.booleans(),
    st.integers(0, 40),
    st.integers(0, 40),
    st.sampled_from(["records", "mirror-maker"]),
)
@example("abcd", 2, 4, 0, True, 3, 0, "records")
@example("XXX", 1, 3, 1, False, 0, 1, "records")
@example("XX", 1, 2, 1, False, 0, 1, "records")
@example("XXXXXXXaa", 8, 9, 8, True, 0, 0, "records")
@example("XXXXXXXa a", 8, 10, 8, True, 0, 0, "records")
@example("XXXXXXXaba", 8, 10, 9, True, 0, 0, "records")
@example("aXXX", 3, 2, 1, True, 3, 3, "records")
@example("abXb", 2, 4, 3, True, 0, 2, "records")
@example("bXcaXa", 4, 6, 4, True, 1, 0, "records")
@example("abXcdefgaXa", 9, 11, 9, True, 2, 9, "records")
def test_nothing_is_lost_where_a_place_is_exact_or_at_least_once(
    text: str,
    position: int,
    copied: int,
    lost: int,
    readable: bool,  # noqa: FBT001
    old_start: int,
    marked: int,
    by: Way,
) -> None:
    """The old log has lost its first records, also unread ones, and the copy other ones; it has no markers, and may lag."""
    position, copied = min(position, len(text)), min(copied, len(text))
    lost, old_start, marked = min(lost, copied), min(old_start, len(text)), min(marked, position)
    old, known = Log(" " * old_start + text[old_start:]), marks(Log(text), marked)
    old.start = old_start
    copy = [number for number, letter in enumerate(text) if lost <= number < copied and letter != " "]
    new = Log("".join(text[number] for number in copy), start=100)
    of_old = evidence_around(old if readable else None, T0, position, known)
    run = "".join(record.content for record in of_old.before)
    records = text.replace(" ", "")
    # What comes again with all that is known of its neighbours cannot be told apart.
    assume(not run or sum(records.startswith(run, at) for at in range(len(records))) <= 1)
    assume(
        run
        or "".join(r.content for r in of_old.behind) not in (text[:position] + text[position + 1 :]).replace(" ", "")
    )
    placement = place(MoveRequest("b", T0, "a", T0, position, by, "", readable, known), old if readable else None, new)
    if placement.guarantee != "unproved":
        assert placement.position is not None
        read, unread = copy[placement.position - 100 :], [number for number in copy if number >= position]
        assert read == unread if placement.guarantee == "exact" else len(read) >= len(unread)


def test_a_record_with_other_neighbours_may_be_another_one() -> None:
    """The copy lags behind, or compaction has removed the record itself."""
    assert alive(Log("aXbX"), 4, Log("aX"))[:2] == (2, "unproved")
    assert alive(Log("aXbX"), 4, Log("aXbX"))[:2] == (4, "exact")
    assert dead(marks(Log("pXYX"), 2), 2, Log("  YX")).guarantee == "unproved"
    assert dead(marks(Log("XabcdefX"), 8), 8, Log("X")).guarantee == "unproved"


@given(st.integers(1, 50), st.integers(1, 50), st.booleans(), st.integers(0, 9))
def test_a_copier_that_repeats_its_tail_makes_it_at_least_once(
    size: int,
    repeated: int,
    readable: bool,  # noqa: FBT001
    more: int,
) -> None:
    """However much it repeats: reading goes on at the first place, and the repeated records are counted."""
    repeated = min(size, repeated)
    text = "".join(chr(1000 + n) for n in range(size))
    new = Log(text + text[size - repeated :] + "".join(chr(5000 + n) for n in range(more)), start=7)
    placement = alive(Log(text), size, new) if readable else dead(marks(Log(text), size), size, new)
    assert placement.guarantee != "exact"
    if readable:
        assert placement[:3] == (7 + size, "at-least-once", repeated)


@given(st.integers(6, 31), st.integers(7, 26))
def test_a_copy_with_its_first_record_needs_all_known_neighbours(copied: int, more: int) -> None:
    """A pattern that comes again, in records of one time: a copy that lags behind is not taken for a whole one."""
    run = "".join(chr(1000 + n) for n in range(copied))
    text = run + "z" * more + run
    placement = alive(Log(text), len(text), Log(run))
    assert placement.guarantee != "exact"


def test_the_place_is_looked_for_behind_a_false_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """However far away it is."""
    monkeypatch.setattr(matching, "_BEYOND", 20)
    log = Log("pX" + "z" * 100 + "qrstuX")
    assert alive(log, 108, log)[:2] == (108, "exact")


def test_a_record_of_the_future_does_not_hide_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of times leads far back then, so the end of the log is searched too; the words say what was searched."""
    monkeypatch.setattr(matching, "_MOST", 2000)
    log = Log("abcdefghij" * 700)
    log.prints = [r._replace(time_ms=r.offset, content=str(r.offset)) for r in log.prints]
    log.prints[3] = log.prints[3]._replace(time_ms=99_999)
    assert alive(log, 6500, log)[:2] == (6500, "exact")
    assert alive(log, 2900, log)[:2] == (2900, "exact")
    placement = dead(marks(log, 2900), 2900, log)
    assert placement.position is None
    assert "only offsets 0 to 2500 and 4500 to 7000" in placement.evidence


def test_marks_that_end_before_the_position_prove_nothing_about_what_is_between() -> None:
    """The other cluster may have gone its own way there."""
    text = "abcdefghijklmnop"
    new = Log(text + "?" * 100)
    assert dead(marks(Log(text), 16), 100, new, "same-offsets")[:2] == (100, "unproved")
    assert dead(marks(Log(text), 16), 100, new)[:2] == (16, "unproved")
    placement = dead(marks(Log(text), 16), 100, new, anchor=compared(Log(text), 16, Log("abc")))
    assert placement[:3] == (16, "at-least-once", 84)
    assert "16 records from offset 0 of 'a' on, 0 on 'b', are the same; of the 84 offsets from 16" in placement.evidence


def test_a_marker_of_a_transaction_before_the_position_is_known_to_be_one() -> None:
    """The marks say that no record is between, so the position is exact."""
    text = "abcdefghijklmnop"
    old, new = Log(text + " "), Log("  " + text)
    assert dead(marks(old, 17), 17, new, anchor=compared(old, 5, new))[:2] == (7, "at-least-once")
    assert dead(marks(old, 17), 17, new, anchor=compared(old, 11, new))[:2] == (18, "exact")
    assert dead((), 17, new, anchor=compared(old, 17, new))[:2] == (18, "at-least-once")
    assert alive(old, 17, new)[:2] == (18, "exact")
    assert alive(old, 17, Log("  " + text + "q"))[:2] == (18, "at-least-once")
    assert alive(old, 17, Log("  " + text + "q"), known=marks(old, 17))[:2] == (18, "exact")


def test_what_compaction_removed_before_the_position_may_be_on_the_copy() -> None:
    """Then it would be read again; a record behind it that follows at once shows that there is nothing."""
    old = Log("abc  d")
    assert alive(old, 5, Log("abcYYd"))[:2] == (3, "at-least-once")
    assert alive(old, 5, Log("abcd"))[:2] == (3, "exact")
    assert alive(old, 5, Log("abcYYd"), known=marks(Log("abcYYd"), 5))[:2] == (5, "exact")


def test_without_a_record_before_it_only_a_whole_log_is_exact() -> None:
    """Retention on the copy may have taken records that were never read."""
    new = Log("a" * 100, start=300)
    assert dead((), 0, new)[:2] == (300, "unproved")
    assert dead((), 0, Log("a"))[:2] == (0, "exact")
    assert alive(Log(""), 0, new)[:2] == (300, "unproved")
    assert alive(Log(" " * 60 + "k"), 50, Log(" " * 60 + "k"))[:2] == (0, "exact")
    assert alive(Log(" " * 60 + "k"), 50, Log("n" * 50 + " " * 10 + "k"))[:2] == (60, "unproved")


def test_without_a_time_nothing_is_found_by_time() -> None:
    """The request for the time -1 would lead to the end of the log."""
    new = Log("abcdefgh", time_ms=-1)
    placement = dead(marks(Log("ab", time_ms=-1), 2), 2, new, "timestamp")
    assert (placement.position, placement.evidence) == (None, "the record next to it has no time")
    placement = dead(marks(Log("ab", time_ms=-1), 2), 2, new)
    assert (placement.position, placement.guarantee, placement.alone) == (2, "unproved", True)
    assert alive(Log("ab", time_ms=-1), 2, new)[:2] == (2, "exact")


def test_a_log_that_was_truncated_proves_nothing() -> None:
    """Its last records are others now. What was compared before counts, with the marks after it."""
    old, new = Log("abcdefghij"), Log("abcdefghijklmnopqrst")
    placement = alive(old, 20, new)
    assert placement.position is None
    assert "ends at offset 10, before 20: it was truncated" in placement.evidence
    assert alive(old, 20, new, known=marks(new, 20))[:2] == (20, "unproved")
    request = MoveRequest("b", T0, "a", T0, 20, "records", "", True, marks(new, 20), "", "", compared(new, 17, new))
    assert place(request, old, new)[:2] == (20, "exact")


def test_marks_of_an_earlier_position_are_kept_and_told() -> None:
    """A cluster that is far away answers late; what it says stays true."""
    state = ClusterOffsets(topics={"t": "x"}, ranges={T0: (10, 20)})
    log = Log("abcdefghijklmnopqrstuvwxyz")
    (first,), (second,) = marks(log, 10), marks(log, 20)
    assert add_marks(state, T0, first)
    assert unmarked(state, ["t"]) == [T0]
    assert not add_marks(state, T0, Marks(20, ()))
    assert add_marks(state, T0, second)
    assert state.marks == {T0: (first, second)}
    assert unmarked(state, ["t"]) == []
    assert not add_marks(state, T0, first)
    state.ranges[T0] = 20, 20
    assert add_marks(state, T0, second)
    assert state.marks == {T0: (second,)}


def test_marks_of_records_that_may_be_gone_are_left_out() -> None:
    """The position went back, and the records there are others now: the newest answer counts."""
    (before,), (now,) = marks(Log("abcdefghijklmnopqrst"), 20), marks(Log("abcdefghijKLMNOPQRST"), 20)
    state = ClusterOffsets(topics={"t": "x"}, ranges={T0: (10, 15)}, marks={T0: (before,)})
    (behind,) = marks(Log("abcdefghijKLMNO"), 15)
    assert add_marks(state, T0, behind)
    assert state.marks == {T0: (behind,)}
    state = ClusterOffsets(topics={"t": "x"}, ranges={T0: (10, 20)}, marks={T0: (before,)})
    assert add_marks(state, T0, now)
    assert state.marks == {T0: (now,)}


def test_a_look_before_anything_was_read_proves_no_beginning() -> None:
    """The copy may have lost its first records by then, and what it begins with may come again."""

    def request(position: int, anchor: Anchor | None, *, readable: bool = True) -> MoveRequest:
        known = () if readable else marks(old, position)
        return MoveRequest("b", T0, "a", T0, position, "records", "", readable, known, "", "", anchor)

    old, new = Log("bab"), Log("b", start=100)
    anchor, _ = follow(request(0, None), old, new, 99)
    assert place(request(1, anchor), old, new).guarantee == "unproved"
    assert place(request(1, anchor, readable=False), None, new).guarantee == "unproved"
    old, new = Log("abcdefgh"), Log("defgh", start=100)
    anchor, _ = follow(request(0, None), old, new, 99)
    assert place(request(6, anchor), old, new)[:2] == (103, "exact")


@pytest.mark.parametrize("readable", [True, False])
def test_a_repetition_of_which_compaction_has_removed_the_first_is_one(*, readable: bool) -> None:
    """The copier has repeated its tail after the anchor, and compaction keeps only the later records."""
    old = OfRecords(("A", 1), ("B", 2), ("C", 3))
    anchor = compared(old, 3, OfRecords(("A", 1), ("B", 2), ("C", 3)))
    new = OfRecords(None, ("B", 2), None, ("A", 1), ("C", 3))
    request = MoveRequest("b", T0, "a", T0, 3, "records", "", readable, marks(old, 3), "", "", anchor)
    assert place(request, old if readable else None, new)[:3] == (3, "at-least-once", 2)


def test_a_search_that_ends_early_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unread record with an early time, and then a repeated one: the search for both begins at the early time."""
    records = [(chr(1000 + n), 100 + n) for n in range(50)]
    old, new = OfRecords(*records), OfRecords(*records, ("new", 1), records[49])
    anchor = compared(old, 50, old)
    monkeypatch.setattr(comparison, "_MOST", 30)
    assert dead(marks(old, 50), 50, new, anchor=anchor).guarantee == "at-least-once"


def test_records_that_the_old_log_has_lost_may_come_again() -> None:
    """They are not newer than the first one that is left."""
    old = OfRecords(None, None, ("U", 100))
    old.start = 2
    assert alive(old, 2, OfRecords(("U", 100), ("read", 50), ("read too", 51)))[:3] == (0, "at-least-once", 2)
    old = OfRecords(("read", -1), ("U", 5))
    assert alive(old, 1, OfRecords(("U", 5), ("read", -1)))[:3] == (0, "at-least-once", 1)  # -1 is no time


def test_a_record_that_comes_twice_in_a_row_is_counted_while_the_old_log_answers() -> None:
    """Without it, two may have been produced."""
    old, new = Log("ruv"), Log("ruuv", start=100)
    assert alive(old, 1, new)[:3] == (101, "at-least-once", 1)
    assert alive(Log("ruuv"), 1, new)[:2] == (101, "exact")
    assert alive(Log("ru"), 1, Log("ruxxx", start=100))[:2] == (101, "exact")  # producers write to the copy now

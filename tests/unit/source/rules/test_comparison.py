"""How far two logs are the same, and what differs between them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.source.rules.test_migration import request
from tests.unit.source.rules.test_placement import log

from dynamic_kafka.continuation import Way
from dynamic_kafka.source.document.evidence import Anchor, Difference, Marks
from dynamic_kafka.source.rules.comparison import BEFORE_ALL, Comparison, compare, compare_counted

D = Difference
START = Anchor("k", "t", 0, 0, 0, 0, 0, BEFORE_ALL, 0, BEFORE_ALL, 0)


def marks(text: str, until: int, count: int = 6) -> tuple[Marks, ...]:
    """The last records of a log before an offset."""
    return (Marks(until, tuple(r for r in log(text).prints if r.offset < until)[-count:]),)


def walked(position: int, old: str, new: str, anchor: Anchor | None = START, most: int = 99, **more: Any) -> Comparison:
    """What was compared from an anchor on."""
    by: Way = more.pop("by", "records")
    read_to, known = more.pop("read_to", 0), more.pop("known", ())
    question = request(position, by, marks=known)._replace(read_to=read_to, kafka_id="k", topic_id="t")
    found = compare(question, anchor, log(old), log(new), most)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("position", "old", "new", "most", "state", "reached"),
    [
        (0, "ab", "ab", 9, "complete", {}),
        (2, "a10 b5 c30", "a10 b5 c30", 9, "complete", {"old": 2, "new": 2, "records": 2, "newest_ms": 10}),
        (3, "a.b.", ".ab", 9, "complete", {"old": 3, "new": 3, "records": 2}),
        (4, "abcd", "abcd", 3, "partial", {"old": 3, "new": 3, "records": 3}),
        (4, "abcd", "ab", 9, "lags", {"old": 2, "new": 2, "records": 2, "until": 4, "ahead": 2}),
        (6, "abcdef", "a", 3, "lags", {"old": 1, "new": 1, "records": 1, "until": 4, "ahead": 3}),
        (4, "abcd", "abXY", 9, "differs", {"old": 2, "new": 2, "records": 2, "until": 4, "ahead": 2}),
        (5, "a10 b20 c90 d30 e40 f50", "a10 b20 d30 e40 f50", 9, "complete", {"old": 5, "new": 4, "newest_ms": 90}),
        (4, "a10 b20 d30 e40 f50", "a10 b20 x80 d30 e40 f50", 9, "complete", {"old": 4, "new": 5, "newest_ms": 80}),
    ],
)
def test_how_far_two_logs_are_the_same(
    position: int, old: str, new: str, most: int, state: str, reached: dict[str, Any]
) -> None:
    """What the new log lacks is counted: the old one may lose it, or not answer, before it has come."""
    found = walked(position, old, new, most=most)
    usual: dict[str, Any] = {"newest_ms": 1000, "until": reached["old"], "records": 4} if reached else {}
    expected = START._replace(**{**usual, **reached})
    assert found.anchor._replace(digest="", besides=()) == expected
    assert (found.state, found.lacks) == (state, reached.get("ahead", 0))
    assert len(found.anchor.digest) == (16 if found.lacks else 0)


@pytest.mark.parametrize(
    ("position", "old", "new", "reached", "besides"),
    [
        (5, "abcdefgh", "abXcdefgh", 6, [D("only new", 2, 2, 1)]),
        (5, "abcdefgh", "abefgh", 3, [D("only old", 2, 3, 2)]),
        (5, "abcdefgh", "ababcdefgh", 7, [D("again", 2, 3, 2)]),
        (6, "abcdefghij", "abedcfghij", 6, [D("moved", 2, 4, 3)]),
        (6, "abcdefghij", "abedfghij", 5, [D("only old", 2, 2, 1), D("moved", 2, 3, 2)]),
        (7, "abxycdefgh", "abyxzcdefgh", 8, [D("only new", 4, 4, 1), D("moved", 2, 3, 2)]),
        (6, "abxxcdefg", "abxcdefg", 5, [D("only old", 3, 3, 1)]),
        (7, "abxyxcdefg", "abxXXcdefg", 7, [D("only old", 3, 4, 2), D("only new", 3, 4, 2)]),
        (8, "abQxxRcdefg", "abxcdefg", 5, [D("only old", 2, 5, 3), D("moved", 2, 2, 1)]),
        (7, "a.b.cdefgh", "aX.Yb.cdefgh", 9, [D("only new", 1, 3, 2)]),
        (6, "abcdefgh", "abcXdXefgh", 8, [D("only new", 3, 5, 2), D("moved", 4, 4, 1)]),
        (5, "abQRcdefgh", "abSTUcdefgh", 6, [D("only old", 2, 3, 2), D("only new", 2, 4, 3)]),
        (6, "abcabcabc", "abcXabcabc", 7, [D("only new", 3, 3, 1)]),
        (4, "abcdefgh", "abcdXefgh", 4, []),
        (3, "abdefgh", "abXd", 4, [D("only new", 2, 2, 1)]),
        (3, "abcdefgh", "abdefgh", 2, [D("only old", 2, 2, 1)]),
        (6, "abXcXdefgh", "abdefgh", 3, [D("only old", 2, 4, 3)]),
    ],
)
def test_what_differs_is_found_with_its_offsets(
    position: int, old: str, new: str, reached: int, besides: list[Difference]
) -> None:
    """From the nearest place on at which three records are the same again, or as many as there are."""
    found = walked(position, old, new)
    assert (found.state, found.anchor.old, found.anchor.new) == ("complete", position, reached)
    assert found.anchor.besides == tuple(besides)


def test_a_position_within_what_differs_is_not_compared() -> None:
    """Nobody knows which of the records there belong together."""
    assert walked(3, "abXYZcdefg", "abWcdefg").state == "differs"
    assert walked(5, "abXYZcdefg", "abWcdefg").state == "complete"


def test_many_differences_are_told_as_few() -> None:
    """The last ones of a kind are one, with all their records and from the first to the last offset."""
    old = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    new = "".join(f"{letter}{'1234567890!?'[n // 3] if n % 3 == 0 else ''}" for n, letter in enumerate(old[:36]))
    each = tuple(D("only new", 4 * n + 1, 4 * n + 1, 1) for n in range(12))
    assert walked(36, old, new + old[36:]).anchor.besides == each
    lost = new + old[36] + old[38:41] + "#" + old[41:44] + "$" + old[44:]
    joined = (*each[:11], D("only new", 45, 56, 3), D("only old", 37, 37, 1))
    assert walked(46, old, lost).anchor.besides == joined


def test_from_an_anchor_on_nothing_before_it_is_read_again() -> None:
    """The numbers go on; what both logs have lost since is not needed."""
    whole = walked(6, "abcdefgh", "abXcdefgh")
    part = walked(4, "abcdefgh", "abXcdefgh")
    assert walked(6, "abcdefgh", "abXcdefgh", part.anchor) == whole
    cut = walked(6, "3:defgh", "4:defgh", part.anchor)
    assert cut == whole._replace(anchor=whole.anchor._replace(floor=7, floor_ms=1000))


COUNTED = walked(5, "abcdef", "ab").anchor


@pytest.mark.parametrize(
    ("new", "known", "state", "lacks", "reached"),
    [
        ("abcdefgh", (), "uncounted", 0, 5),
        ("abcd", (), "lags", 1, 2),
        ("abXdef", (), "differs", 0, 2),
        ("ab", marks("abcdefgh", 8, 4), "lags", 6, 2),
        ("abcdefgh", marks("abcdefgh", 8, 4), "complete", 0, 8),
        ("abcdefgh", marks("abcdefgh", 8, 3), "complete", 0, 8),
        ("abcdef", marks("abcdefgh", 8, 3), "lags", 2, 2),
        ("abcdefXh", marks("abcdefgh", 8, 3), "differs", 0, 2),
        ("abcdefgh", marks("abcdefgh", 8, 2), "uncounted", 0, 5),
        ("abcdefgh", marks("abcdefgh", 7), "uncounted", 0, 7),
        ("abcdefgh", marks("abcdefgh", 5), "uncounted", 0, 5),
        ("abcdefgh", marks("abcde..", 8), "complete", 0, 8),
        ("abcdefgh", marks("abcdefgh", 8, 1), "uncounted", 0, 5),
    ],
)
def test_what_was_counted_is_compared_without_the_old_log(
    new: str, known: tuple[Marks, ...], state: str, lacks: int, reached: int
) -> None:
    """And after it the marks, if no record is missing between them."""
    question = request(8, marks=known, readable=False)
    found = compare_counted(question, COUNTED, log(new))
    done = COUNTED._replace(old=reached, new=reached, records=reached, until=reached, ahead=0, digest="")
    if known and "." not in new and known[0].records[-1].content == "e":
        done = done._replace(new=5, records=5)
    assert found == Comparison(COUNTED if reached == 2 else done, state, lacks)  # type: ignore[arg-type]


def test_times_of_what_was_counted_are_known_later() -> None:
    """The latest one is kept, of the counted records and of the marks."""
    anchor = walked(3, "a10 b90 c20 d95 e30", "a10 ").anchor
    new = log("a10 b90 c20 d95 e30")
    assert compare_counted(request(3), anchor, new).anchor.newest_ms == 90
    known = marks("a10 b90 c20 d95 e30", 5, 3)
    assert compare_counted(request(5, marks=known), anchor, new).anchor.newest_ms == 95


@pytest.mark.parametrize(
    ("old", "new", "known", "state", "lacks", "reached"),
    [
        ("abcdefgh", "abcdefgh", (), "complete", 0, 7),
        ("ab.defgh", "abcdefgh", (), "complete", 0, 7),
        ("abcd.fgh", "abcdefgh", (), "complete", 0, 7),
        ("abcd.fgh", "abcdefgh", marks("abcdefgh", 5), "complete", 0, 7),
        ("ab.defgh", "abcXefgh", (), "differs", 0, 2),
        ("ab.defgh", "abcd", (), "lags", 1, 2),
        ("ab.....h", "abcde", (), "complete", 0, 5),
        ("abcdefgh", "abcd", (), "lags", 3, 4),
        ("abcd.fgh", "abcd", marks("abcdefgh", 5), "lags", 3, 4),
        ("ab.d....", "abcde", marks("abcdefgh", 5), "complete", 0, 5),
    ],
)
def test_what_was_counted_and_compacted_since_is_known(
    old: str, new: str, known: tuple[Marks, ...], state: str, lacks: int, reached: int
) -> None:
    """Compaction removes records on the old log that the new one still has."""
    found = walked(7, old, new, COUNTED, known=known)
    assert (found.state, found.lacks, found.anchor.old) == (state, lacks, reached)
    assert found.anchor.besides == ()


def test_with_same_offsets_offsets_and_headers_are_counted_too() -> None:
    """Of the counted records and of the marks after them."""
    old, known = log("abcdefgh"), marks("abcdefgh", 8, 3)
    for at, by in ((3, "same-offsets"), (6, "same-offsets"), (3, "records"), (6, "records")):
        anchor = walked(5, "abcdef", "ab", by=by).anchor
        new, moved = log("abcdefgh"), log("abcdefgh")
        new.prints[at] = new.prints[at]._replace(headers="h")
        moved.prints[at:] = [one._replace(offset=one.offset + 1) for one in moved.prints[at:]]
        moved.end += 1
        for other in (new, moved):
            states = {
                compare_counted(request(8, by, marks=known), anchor, other).state,  # type: ignore[arg-type]
                getattr(compare(request(8, by), anchor, old, other, 99), "state", None),  # type: ignore[arg-type]
            }
            assert states == {"differs" if by == "same-offsets" else "complete"}, (at, by)
        assert walked(7, "abcdefgh", "abcd", anchor, by=by).anchor[2:4] == (4, 4)


def test_what_is_counted_is_compared_as_a_whole() -> None:
    """The old log may lose a part of it before the next time."""
    assert walked(5, "abcdef", "abcdef", COUNTED, most=1).anchor[2:4] == (5, 5)
    assert walked(8, "abcdefghi", "abcdefghi", COUNTED, most=1).anchor[2:4] == (5, 5)
    assert walked(8, "abcdefghi", "abcdefghi", COUNTED, most=4).anchor[2:4] == (6, 6)


@pytest.mark.parametrize(
    ("old", "new", "more", "began", "besides", "floor"),
    [
        ("abcdef", "abcdef", {}, (0, 0), (), (0, BEFORE_ALL)),
        ("abcdef", "2:cdef", {}, (2, 2), (), (5, 1000)),
        ("2:cdef", "abcdef", {}, (2, 2), (D("before", 0, 1, 2),), (5, 1000)),
        ("2:cdef", "2:cdef", {}, (2, 2), (), (5, 1000)),
        ("abcdef", "x.yabcdef", {}, (0, 3), (D("before", 0, 2, 2),), (3, BEFORE_ALL)),
        ("abcdef", "axyabcdef", {}, (0, 3), (D("before", 0, 2, 3),), (3, BEFORE_ALL)),
        ("..abcdef", "abcdef", {}, (2, 0), (), (0, BEFORE_ALL)),
        ("abcdef", "xyabcdef", {"read_to": 1}, (0, 2), (D("before", 1, 1, 1),), (2, BEFORE_ALL)),
        ("abcdef", "xyabcdef", {"read_to": 2}, (0, 2), (), (2, BEFORE_ALL)),
        ("aaab", "3:ab", {}, (2, 3), (), (5, 1000)),
        ("xaxbcd", "xbcd", {}, (2, 0), (), (3, 1000)),
        ("a10 b50 c20 d30 e40", "2:c20 d30 e40", {}, (2, 2), (), (5, 50)),
        ("a0 b0 c0 d0 e0", "2:c0 d0 e0", {}, (2, 2), (), (5, 0)),
        ("abcdef", "abcdef", {"by": "same-offsets"}, (0, 0), (), (0, BEFORE_ALL)),
        ("2:cdef", "a.cdef", {"by": "same-offsets"}, (2, 2), (D("before", 0, 0, 1),), (5, 1000)),
        ("abcdef", "abcdef", {"by": "same-offsets", "read_to": 2}, (2, 2), (), (5, 1000)),
        ("abcdef", "5:f", {"by": "same-offsets"}, (5, 5), (), (5, 1000)),
    ],
)
def test_where_two_logs_begin_to_agree(
    old: str, new: str, more: dict[str, Any], began: tuple[int, int], besides: tuple[Difference, ...], floor: Any
) -> None:
    """What the new log has before that, and the latest time of what was never compared."""
    found = walked(5, old, new, None, **more)
    assert found.state == "complete"
    assert (found.anchor.cluster, found.anchor.topic_id) == ("k", "t")
    assert found.anchor[4:6] == began
    assert found.anchor.besides == besides
    assert found.anchor[8:10] == floor
    assert found.anchor.newest_ms >= floor[1]

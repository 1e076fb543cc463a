"""Where the commit log is, from what the clusters of a stream say, in the stories of log_place_stories.txt, see `told`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stories import read_stories

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, TransactionError
from dynamic_kafka.sink.log.chain import Chain, State
from dynamic_kafka.sink.log.place import Choice, Seen, Spot, check_wish, choose, unknown_log
from dynamic_kafka.sink.log.records import Pointer

TOPIC = "log"
SEEN = re.compile(
    r"(?P<name>\w)(=(?P<kafka_id>\w))?(?P<silent>\?)?(:(?P<kind>\w+))?(\((?P<places>[\w ]+)\))?(#(?P<generation>\d+))?"
)


def seen_of(text: str) -> tuple[str, Seen | None]:
    """A cluster by its name in the metadata, and what it shows; None if it does not answer.

    `z=B:log(A B)` is cluster z with the cluster.id B, else that is the name in upper case. `a` has no topic, `a:empty` one
    without records, `a:log` one with a log that was made there, `a:log(A B)` one that was on A before. `a:told(B east)` was
    told that the log is on B, called east. From `a:left(A B)` the log was moved to B, from `a:leaving(A B)` it is moved and
    that is not told there yet.
    """
    found = SEEN.fullmatch(text)
    assert found is not None, text
    name, kind = found["name"], found["kind"]
    kafka_id = found["kafka_id"] or name.upper()
    places = (found["places"] or kafka_id).split()
    if found["silent"]:
        return name, None
    if kind in (None, "empty"):
        return name, Seen(kafka_id, Chain() if kind else None)
    if kind == "told":
        return name, Seen(kafka_id, Chain(), (0, Pointer(f"{places[0]}/{TOPIC}", places[-1].lower())))
    state = State("x", int(found["generation"] or 1), batch=7, places=tuple(f"{place}/{TOPIC}" for place in places))
    pointer = (10, Pointer(f"{places[-1]}/{TOPIC}", places[-1].lower())) if kind == "left" else None
    return name, Seen(kafka_id, Chain(9, state), pointer)


def told(steps: str) -> str:
    """Where the log is, in words: `b [A B] new, from a, tell c`.

    It is on cluster b now and knows that it was on A before. It has to be made, from the log on a, and c has to be told.
    The steps are clusters, and perhaps `wish b` and `lost B`: the user's options.
    """
    clusters, *options = steps.split("; ")
    given = dict(option.split(" ", 1) for option in options)
    seen = dict(seen_of(text) for text in re.findall(r"\S+\([^)]*\)\S*|\S+", clusters))
    choice = choose(
        "p",
        {Spot(name, TOPIC): there for name, there in seen.items() if there is not None},
        {name: "timed out" for name, there in seen.items() if there is None},
        Spot(given["wish"], TOPIC) if "wish" in given else None,
        Spot(min(seen), TOPIC),
        tuple(given.get("lost", "").split()),
    )
    return words(choice)


def words(choice: Choice) -> str:
    """The choice in words."""
    places = " ".join(place.removesuffix(f"/{TOPIC}") for place in choice.places)
    source = f", from {choice.source.cluster}" if choice.source else ""
    unaware = ", tell " + " ".join(spot.cluster for spot in choice.unaware) if choice.unaware else ""
    return f"{choice.spot.cluster} [{places}]{' new' if choice.create else ''}{source}{unaware}"


@pytest.mark.parametrize(("steps", "end", "said"), read_stories(Path(__file__).with_name("log_place_stories.txt")))
def test_the_log_is_where_the_story_says(steps: str, end: str, said: list[str]) -> None:
    """Or it is not clear where it is, and the error says what to do; it is about the cluster that does not answer."""
    if end.startswith("error"):
        with pytest.raises((TransactionError, ClusterUnavailableError)) as caught:
            told(steps)
        assert [str(caught.value)] == said
        assert end.removeprefix("error").strip() == (caught.value.cluster_id or "")
        assert isinstance(caught.value, ClusterUnavailableError) == (caught.value.cluster_id is not None)
    else:
        assert told(steps) == end


def test_a_log_of_one_record_is_a_log() -> None:
    """Its head has offset 0."""
    first = Seen("B", Chain(0, State("x", 1, "owned", places=("B/log",))))
    seen = {Spot("a", TOPIC): Seen("A"), Spot("b", TOPIC): first}
    assert words(choose("p", seen, {}, None, Spot("a", TOPIC), ())) == "b [B], tell a"


def test_the_last_word_of_a_topic_counts() -> None:
    """A pointer that is later than a moved log, or a moved log that is later than a pointer."""
    chain = Chain(9, State("x", 1, batch=7, places=("A/log", "B/log")))
    later, earlier = ((offset, Pointer("C/log", "c")) for offset in (10, 3))
    assert Seen("A", chain, later).names == Pointer("C/log", "c")
    assert Seen("A", chain, earlier).names == Pointer("B/log", "")
    assert Seen("A", Chain(), earlier).names == Pointer("C/log", "c")
    assert [Seen("A", chain, pointer).has_later_pointer for pointer in (later, earlier, None)] == [True, False, False]


def test_another_topic_is_another_place() -> None:
    """A log under the default name is moved to the topic of the option, on its cluster."""
    seen = {
        Spot("b", "default"): Seen("B", Chain(9, State("x", 1, places=("B/default",)))),
        Spot("b", TOPIC): Seen("B"),
    }
    choice = choose("p", seen, {}, None, Spot("a", TOPIC), ())
    assert (choice.spot, choice.source) == (Spot("b", TOPIC), Spot("b", "default"))
    assert choice.places == ("B/default", "B/log")
    seen |= {Spot("c", name): Seen("C") for name in ("default", TOPIC)}
    assert choose("p", seen, {}, None, Spot("a", TOPIC), ()).unaware == (Spot("c", TOPIC),)
    elsewhere = {Spot("a", TOPIC): Seen("A", Chain(), (0, Pointer("B/own", "b"))), Spot("b", TOPIC): Seen("B")}
    with pytest.raises(
        TransactionError, match=r"'a', where this query does not look: set sink\.commit-log\.topic=own as"
    ):
        choose("p", elsewhere, {}, None, Spot("a", TOPIC), ())


@given(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", ":empty", ":log", ":told(B)", ":log(Z)"]), min_size=1),
    st.sampled_from(["", " d?"]),
    st.sampled_from([None, "a", "b"]),
)
def test_a_log_is_made_only_without_any_sign_of_one(kinds: dict[str, str], silent: str, wished: str | None) -> None:
    """And otherwise the one that is found is the only one."""
    wish = f"; wish {wished}" if wished in kinds else ""
    try:
        choice = told(" ".join(f"{name}{kind}" for name, kind in kinds.items()) + silent + wish)
    except (TransactionError, ClusterUnavailableError):
        return
    if " new" in choice:
        assert not silent
        assert set(kinds.values()) <= {"", ":empty"}
    else:
        (log,) = (name for name, kind in kinds.items() if ":log" in kind)
        assert choice.startswith(log) or f"from {log}" in choice


def test_words() -> None:
    """For a prefix that was used, and a wish that nobody knows."""
    assert str(unknown_log("p", "a", "p.dk-1-0", topic="log", seen=["a"])) == (
        "Prefix 'p' has been in use (cluster 'a' knows its transactional id 'p.dk-1-0'), but its commit log 'log' is not on "
        "cluster 'a'. So it is not known what was published. If it is on another cluster, add that one to the stream's "
        "metadata (it may be inactive). If it had another name, set sink.commit-log.topic as before. If it was deleted or "
        "is lost for good, set sink.lost-clusters=a for one start"
    )
    empty = str(unknown_log("p", "a", "p.dk-1-0", topic="log", seen=["b", "a"], empty=["b"]))
    assert "its commit log 'log' on cluster 'b' exists and has no records: they were deleted, or the topic was" in empty
    assert empty.endswith("set sink.lost-clusters=b for one start")
    several = str(unknown_log("p", "a", "p.dk-1-0", topic="log", seen=["b", "a"]))
    assert "its commit log 'log' is on none of the clusters that the metadata names" in several
    assert several.endswith("set sink.lost-clusters to the name of the cluster that it was on, for one start")
    with pytest.raises(ConfigurationError, match=r"'sink\.commit-log\.cluster' has the value 'x'.*one of a, b"):
        check_wish("x", ["b", "a"])
    check_wish(None, [])

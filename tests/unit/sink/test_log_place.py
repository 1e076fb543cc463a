"""Where the commit log is, from what the clusters of a stream say. Each cluster is told by its letter: its cluster.id."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, TransactionError
from dynamic_kafka.sink.chain import Chain, State
from dynamic_kafka.sink.log_place import Choice, Seen, Spot, check_wish, choose, unknown_log
from dynamic_kafka.sink.log_records import Pointer

TOPIC = "log"


def absent(kafka_id: str) -> Seen:
    """A cluster without the topic."""
    return Seen(kafka_id)


def empty(kafka_id: str) -> Seen:
    """A cluster with a topic that nobody has written to."""
    return Seen(kafka_id, Chain())


def log(kafka_id: str, *places: str, generation: int = 1) -> Seen:
    """A cluster with a log; it was made there if no places are given."""
    names = tuple(f"{name}/{TOPIC}" for name in places or (kafka_id,))
    return Seen(kafka_id, Chain(9, State("x", generation, batch=7, places=names)))


def told(kafka_id: str, place: str, name: str = "") -> Seen:
    """A cluster that was told where the log is."""
    return Seen(kafka_id, Chain(), (0, Pointer(f"{place}/{TOPIC}", name or place.lower())))


def left(kafka_id: str, *places: str, is_told: bool = True) -> Seen:
    """A cluster from which the log was moved."""
    pointer = (10, Pointer(f"{places[-1]}/{TOPIC}", places[-1].lower())) if is_told else None
    return Seen(kafka_id, log(kafka_id, *places).chain, pointer)


def found(
    silent: str = "", *, wished: str | None = None, first: str = "a", lost: tuple[str, ...] = (), **clusters: Seen
) -> Choice:
    """The choice among clusters by their names in the metadata."""
    seen = {Spot(name, TOPIC): there for name, there in clusters.items()}
    wish = None if wished is None else Spot(wished, TOPIC)
    return choose("p", seen, dict.fromkeys(silent, "timed out"), wish, Spot(first, TOPIC), lost)


def fault(
    silent: str = "",
    error: type[TransactionError | ClusterUnavailableError] = TransactionError,
    **arguments: object,
) -> str:
    """The words of the error, which is about the silent cluster if there is one."""
    with pytest.raises(error) as caught:
        found(silent, **arguments)  # type: ignore[arg-type]
    assert caught.value.cluster_id == (silent if error is ClusterUnavailableError else None)
    return str(caught.value)


def spots(*names: str) -> tuple[Spot, ...]:
    """The topic on these clusters."""
    return tuple(Spot(name, TOPIC) for name in names)


# --- found --------------------------------------------------------------------------------------------------------------


def test_a_log_stays_when_a_cluster_joins() -> None:
    """Also one with a smaller name: a log never moves by itself. The new cluster has to be told."""
    assert found(a=absent("A"), b=log("B")) == Choice(Spot("b", TOPIC), ("B/log",), unaware=spots("a"))


def test_a_log_of_one_record_is_a_log() -> None:
    """Its head has offset 0."""
    first = Seen("B", Chain(0, State("x", 1, "owned", places=("B/log",))))
    assert found(a=absent("A"), b=first) == Choice(Spot("b", TOPIC), ("B/log",), unaware=spots("a"))


def test_a_log_stays_on_a_cluster_that_was_renamed() -> None:
    """Kafka's cluster.id is its name."""
    assert found(z=log("B"), a=told("A", "B", "b")) == Choice(Spot("z", TOPIC), ("B/log",))


def test_two_names_of_one_cluster_are_one_place() -> None:
    """One log; a new one too."""
    assert found(a=log("A"), z=log("A")) == Choice(Spot("a", TOPIC), ("A/log",))
    assert found(a=absent("A"), z=absent("A")) == Choice(Spot("a", TOPIC), ("A/log",), create=True)
    assert found(a=log("A"), b=absent("B"), z=absent("B")).unaware == spots("b")


def test_the_first_log_is_made_where_the_user_wants_it_or_on_the_first_cluster() -> None:
    """Or where a topic was made by hand."""
    assert found(a=absent("A"), b=absent("B")) == Choice(Spot("a", TOPIC), ("A/log",), create=True, unaware=spots("b"))
    assert found(wished="b", a=absent("A"), b=absent("B")).spot == Spot("b", TOPIC)
    assert found(a=absent("A"), b=empty("B")).spot == Spot("b", TOPIC)
    assert found(a=empty("A"), b=empty("B")).spot == Spot("a", TOPIC)
    assert found(wished="c", a=absent("A"), b=empty("B"), c=empty("C")).spot == Spot("c", TOPIC)


# --- not clear ----------------------------------------------------------------------------------------------------------


def test_two_logs_are_an_error_that_names_both() -> None:
    """Made by two drivers with other metadata. Also where the user names one: the other one may have decisions."""
    for wished in (None, "a"):
        message = fault(wished=wished, a=log("A", generation=3), b=log("B", generation=41))
        assert message == (
            "Prefix 'p' has 2 commit logs: topic 'log' on cluster 'a' (generation 3, last decided batch 7, finished) and "
            "topic 'log' on cluster 'b' (generation 41, last decided batch 7, finished). Nothing is written, because each "
            "may know batches that the other does not. Stop all writers of this prefix, find out which log was used last, "
            "and delete the topic of the other one. If two queries share the prefix, give each a "
            "sink.transactional-id-prefix of its own"
        )


def test_a_cluster_that_is_silent_may_have_the_log() -> None:
    """Unless the log is found, or the user says where it is."""
    why = (
        "Cluster 'b' cannot be asked for the commit log of prefix 'p', {}. If the cluster is gone for good, take it out "
        "of the stream's metadata. The cause: timed out"
    )
    for others in ({"a": absent("A")}, {"a": told("A", "B")}, {}):
        assert fault("b", ClusterUnavailableError, **others) == why.format("which might be there")
    assert "Cluster 'b'" in fault("b", ClusterUnavailableError, wished="a", a=absent("A"))
    assert "Cluster 'b'" in fault("b", ClusterUnavailableError, wished="c", a=absent("A"), c=absent("C"))
    assert found("b", wished="c", a=log("A"), c=absent("C")).source == Spot("a", TOPIC)
    assert found("b", a=log("A")).spot == Spot("a", TOPIC)


def test_a_log_whose_cluster_left_the_metadata() -> None:
    """Another one would know nothing. The error says where it was, and what to do."""
    assert fault(a=told("A", "B", "east")) == (
        "The commit log of prefix 'p' is on cluster 'east' (cluster.id B), topic 'log', according to cluster 'a', which the "
        "metadata does not name any more. Add it to the metadata again (it may be inactive). Without it, nobody knows what "
        "was published. If it is lost for good, set sink.lost-clusters=B for one start: a new log begins, and the next "
        "batch of a stream is an error that says how to go on"
    )


def test_a_log_that_was_deleted() -> None:
    """Its cluster answers, but has no log any more; also if the topic was made again."""
    for there in (absent("B"), empty("B")):
        message = fault(a=told("A", "B"), b=there)
        assert (
            ", according to cluster 'a', where it does not exist any more: it was deleted. Without it, nobody"
            in message
        )


def test_a_copy_of_a_log_is_not_the_log() -> None:
    """As a mirror makes it; after its original, it may be behind."""
    assert found(a=log("A", "B"), b=log("B")).spot == Spot("b", TOPIC)
    assert "is on the cluster B, topic 'log', according to cluster 'a'" in fault(a=log("A", "B"))


def test_a_log_and_a_pointer_to_another_one() -> None:
    """Somebody began a second one where the first was not seen."""
    assert fault(a=log("A"), c=told("C", "B")) == (
        "Prefix 'p' has a commit log on cluster 'a' (topic 'log'), but cluster 'c' says that it is on cluster 'b' "
        "(cluster.id B), topic 'log'. Nothing is written, because each of them may know batches that the other does not. "
        "Add the other cluster to the stream's metadata and delete the topic of the wrong log, or set sink.lost-clusters=B "
        "if that cluster is lost for good"
    )


# --- lost for good ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["B", "east"])
def test_a_log_that_the_user_calls_lost(word: str) -> None:
    """By either name. The new log remembers it, so pointers to the lost one are old, and the word is not needed again."""
    choice = found(lost=(word,), a=told("A", "B", "east"), c=told("C", "B", "east"))
    assert choice == Choice(Spot("a", TOPIC), ("B/log", "A/log"), create=True, unaware=spots("c"))
    assert found(a=log("A", "B", "A"), c=told("C", "B", "east")) == Choice(
        Spot("a", TOPIC), ("B/log", "A/log"), unaware=spots("c")
    )


def test_a_word_for_one_cluster_is_none_for_another() -> None:
    """It names what is lost."""
    fault(lost=("X",), a=told("A", "B"))
    fault(lost=("B",), a=told("A", "B"), c=told("C", "D"))
    fault("b", ClusterUnavailableError, lost=("B",), a=told("A", "B"))
    fault(lost=("B",), a=log("A"), b=log("B"))


def test_a_lost_log_that_comes_back() -> None:
    """The new one goes on, and the old cluster is told."""
    assert found(a=log("A", "B", "A"), b=log("B")) == Choice(Spot("a", TOPIC), ("B/log", "A/log"), unaware=spots("b"))


# --- moved --------------------------------------------------------------------------------------------------------------


def test_a_log_is_moved_by_the_option_alone() -> None:
    """From one cluster to another, and back."""
    there = Choice(Spot("b", TOPIC), ("A/log", "B/log"), source=Spot("a", TOPIC), unaware=spots("a"))
    assert found(wished="b", a=log("A"), b=absent("B")) == there
    back = found(wished="a", a=left("A", "A", "B"), b=log("B", "A", "B"))
    assert (back.source, back.places) == (Spot("b", TOPIC), ("A/log", "B/log", "A/log"))
    message = fault("b", ClusterUnavailableError, wished="b", a=log("A"))
    assert message.startswith(
        "Cluster 'b' cannot be asked for the commit log of prefix 'p', which is to be there from now on. If the cluster is"
    )


def test_a_log_that_was_moved_is_found_at_its_new_place() -> None:
    """Without the option too; what others were told is old then."""
    assert found(a=left("A", "A", "B"), b=log("B", "A", "B")) == Choice(Spot("b", TOPIC), ("A/log", "B/log"))
    assert found(a=left("A", "A", "B"), b=log("B", "A", "B"), c=told("C", "A")).unaware == spots("c")


def test_a_move_that_was_interrupted_is_completed() -> None:
    """The old place has the last state, and the new one nothing yet."""
    for there in (absent("B"), empty("B"), told("B", "A")):
        choice = found(a=left("A", "A", "B", is_told=False), b=there)
        assert (choice.spot, choice.source) == (Spot("b", TOPIC), Spot("a", TOPIC))
        assert choice.places == ("A/log", "B/log")
    choice = found(a=left("A", "A", "B"), b=left("B", "A", "B", "C", is_told=False), c=absent("C"))
    assert choice == Choice(
        Spot("c", TOPIC), ("A/log", "B/log", "C/log"), source=Spot("b", TOPIC), unaware=spots("a", "b")
    )


def test_a_move_that_was_interrupted_to_a_cluster_that_is_not_there() -> None:
    """It may have been completed, so the new place has to be asked."""
    message = fault(a=left("A", "A", "B", is_told=False))
    assert "is on the cluster B, topic 'log', according to cluster 'a', which the metadata does not name any" in message


def test_the_old_place_never_replaces_a_log_that_was_deleted_at_the_new_one() -> None:
    """What it has is old."""
    assert "it was deleted" in fault(a=left("A", "A", "B"), b=absent("B"))
    assert "does not name any more" in fault(a=left("A", "A", "B"))


def test_the_last_word_of_a_topic_counts() -> None:
    """A pointer that is later than a moved log, or a moved log that is later than a pointer."""
    chain = log("A", "A", "B").chain
    later, earlier = ((offset, Pointer("C/log", "c")) for offset in (10, 3))
    assert Seen("A", chain, later).names == Pointer("C/log", "c")
    assert Seen("A", chain, earlier).names == Pointer("B/log", "")
    assert Seen("A", Chain(), earlier).names == Pointer("C/log", "c")
    assert [Seen("A", chain, pointer).has_later_pointer for pointer in (later, earlier, None)] == [True, False, False]


def test_the_users_name_of_a_cluster_with_two_names() -> None:
    """It is the one that errors show."""
    assert found(wished="z", a=log("A"), z=log("A")).spot == Spot("z", TOPIC)


def test_another_topic_is_another_place() -> None:
    """A log under the default name is moved to the topic of the option, on its cluster."""
    seen = {
        Spot("b", "default"): Seen("B", Chain(9, State("x", 1, places=("B/default",)))),
        Spot("b", TOPIC): absent("B"),
    }
    choice = choose("p", seen, {}, None, Spot("a", TOPIC), ())
    assert (choice.spot, choice.source) == (Spot("b", TOPIC), Spot("b", "default"))
    message = fault(a=Seen("A", Chain(), (0, Pointer("B/own", "b"))), b=absent("B"))
    assert (
        ", according to cluster 'a', where this query does not look: set sink.commit-log.topic=own as before."
        in message
    )
    assert choice.places == ("B/default", "B/log")
    seen |= {Spot("c", name): absent("C") for name in ("default", TOPIC)}
    assert choose("p", seen, {}, None, Spot("a", TOPIC), ()).unaware == spots("c")


# --- always -------------------------------------------------------------------------------------------------------------


KINDS: dict[str, Callable[[str], Seen]] = {
    "absent": absent,
    "empty": empty,
    "log": lambda own: log(own, own),
    "old log": log,
    "told B": lambda own: told(own, "B"),
    "copy of Z": lambda own: log(own, "Z"),
}


@given(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(sorted(KINDS)), min_size=1),
    st.sampled_from(["", "d"]),
    st.sampled_from([None, "a", "b"]),
)
def test_a_log_is_made_only_without_any_sign_of_one(kinds: dict[str, str], silent: str, wished: str | None) -> None:
    """And otherwise the one that is found is the only one."""
    clusters = {name: KINDS[kind](name.upper()) for name, kind in kinds.items()}
    first = min(kinds)
    wished = wished if wished in kinds else None
    try:
        choice = found(silent, wished=wished, first=first, lost=(), **clusters)
    except (TransactionError, ClusterUnavailableError):
        return
    logs = [name for name, kind in kinds.items() if "log" in kind]
    if choice.create:
        assert not silent
        assert set(kinds.values()) <= {"absent", "empty"}
    else:
        assert logs == [(choice.source or choice.spot).cluster]


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

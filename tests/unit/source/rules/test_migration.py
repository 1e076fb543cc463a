"""Moving to a cluster that continues another one: what proves a new position, and what the rules do with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, get_args

import pytest

from dynamic_kafka.cli.streams.checks import check_streams
from dynamic_kafka.cli.streams.next_start import TopicChange, topic_changes
from dynamic_kafka.continuation import Continues, Guarantee, Way, continues_from_json, continues_to_json
from dynamic_kafka.errors import MetadataServiceError
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.metadata.document import parse_document
from dynamic_kafka.metadata.snapshot import make_snapshot
from dynamic_kafka.source.document.evidence import (
    Marks,
    MoveRequest,
    Placement,
    RecordPrint,
    Sync,
    evidence_around,
)
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document, RetainedTopic, check_chain, decode, encode
from dynamic_kafka.source.driver.record_log import parse_sync
from dynamic_kafka.source.rules.model import ClusterView, DesiredCluster, OffsetAnswers, ReadPolicy, SourceSnapshot
from dynamic_kafka.source.rules.placement import follow, place
from dynamic_kafka.source.rules.planning import Range
from dynamic_kafka.source.rules.reconcile import Reconciled, reconcile
from dynamic_kafka.source.rules.stand_in import stand_in

TP = KafkaTopicPartition
T0 = TP("t", 0)

Record = str | tuple[str, int] | None


class Log:
    """The log of one partition: the text of each record, or text and time; None for an offset without a record."""

    def __init__(self, *records: Record, start: int = 0, syncs: Mapping[str, list[Sync]] | None = None) -> None:
        self.start = start
        self.all_syncs = syncs or {}
        self.prints = [
            RecordPrint(offset, *_time_and_text(record), "") for offset, record in enumerate(records, start) if record
        ]
        self.end = start + len(records)

    def bounds(self, tp: TP) -> tuple[int, int]:
        """The ends of the log."""
        assert tp == T0
        return self.start, self.end

    def offset_at(self, tp: TP, time_ms: int) -> int | None:
        """The first record that is not older. A broker takes a time below 0 for another question."""
        assert tp == T0
        assert time_ms >= 0
        return next((record.offset for record in self.prints if record.time_ms >= time_ms), None)

    def records(self, tp: TP, start: int, end: int) -> Iterator[RecordPrint]:
        """The records of a range."""
        assert tp == T0
        assert start >= self.start
        return (record for record in self.prints if start <= record.offset < end)

    def syncs(self, topic: str, of: TP) -> list[Sync] | None:
        """The syncs of a topic."""
        assert of == T0
        return self.all_syncs.get(topic)


def _time_and_text(record: str | tuple[str, int]) -> tuple[int, str]:
    return (1000, record) if isinstance(record, str) else (record[1], record[0])


def request(position: int, by: Way = "records", *, marks: tuple[Marks, ...] = (), **more: Any) -> MoveRequest:
    """A move from `a` to `b`."""
    return MoveRequest("b", T0, "a", T0, position, by, more.get("offset_syncs", ""), more.get("readable", True), marks)


def found(position: int, old: Log, new: Log, by: Way = "records") -> tuple[int | None, str]:
    """Where a position is, and what that promises."""
    placement = place(request(position, by), old, new)
    return placement.position, placement.guarantee


def found_dead(position: int, old: Log, new: Log, by: Way = "records", *, marked_at: int | None = None) -> Placement:
    """Where a position is if only the marks are left."""
    at = position if marked_at is None else marked_at
    marks = Marks(at, tuple(record for record in old.prints if record.offset < at)[-6:])
    return place(request(position, by, marks=(marks,), readable=False), None, new)


# --- what proves a position -------------------------------------------------------------------------------------------


def test_a_copy_that_begins_among_identical_records() -> None:
    """The records after the position show which of them is its first one."""
    old = Log("a", "x", "x", "b")
    assert found(2, old, Log("x", "b", start=70)) == (70, "exact")
    assert found(2, old, Log("x", "x", "b", start=70)) == (71, "exact")


def test_identical_records_that_nobody_has_written_are_not_unique() -> None:
    """The old log has three, the copy five: two may be repeated, or the copy may lack the first ones."""
    for placement in (place(request(2), Log(*"xxx"), Log(*"xxxxx")), found_dead(2, Log(*"xxx"), Log(*"xxxxx"))):
        assert placement.guarantee == "unproved"
        assert "it is there 5 times, last at offset 4" in placement.evidence


def test_a_record_of_another_time_is_another_record() -> None:
    """Also if key and value are the same, and also if times are not in order."""
    old = Log(("x", 10), ("x", 20), ("x", 30))
    new = Log(("x", 5), ("x", 10), ("x", 20), ("x", 30))
    assert [found(position, old, new)[0] for position in (1, 2, 3)] == [2, 3, 4]
    new = Log(*[("other", 50)] * 3000, ("x", 90), ("y", 5), ("z", 80))
    assert found(2, Log(("x", 90), ("y", 5)), new) == (3002, "unproved")


def test_what_is_behind_lost_records_is_not_what_is_behind_the_position() -> None:
    """Retention on the old cluster has taken records that were not read, and the copy has them."""
    old, new = Log(*"ghij", start=6), Log(*"abcdefghij")
    ways: tuple[Way, ...] = ("records", "timestamp", "mirror-maker", "same-offsets")
    assert [found(3, old, new, by)[1] for by in ways] == ["unproved"] * 4
    marks = (Marks(3, tuple(new.prints[:3])),)
    assert place(request(3, marks=marks), old, new)[:2] == (3, "unproved")
    compared, _ = follow(request(3), new, new, 9)
    assert place(request(3, marks=marks)._replace(anchor=compared), old, new)[:2] == (3, "exact")


def test_with_the_old_cluster_dead_the_marks_show_a_place_and_an_anchor_proves_it() -> None:
    """Without marks nothing is known."""
    old, new = Log(*"abcdef"), Log(*"zzabcdefgh")
    placement = found_dead(5, old, new)
    assert (placement.position, placement.guarantee, placement.alone) == (7, "unproved", True)
    assert "what is before that was not compared" in placement.evidence
    new = Log(None, None, *"abcdefgh")
    counted, is_all = follow(request(5), old, Log(None, None, "a"), 9)
    assert is_all
    assert counted is not None
    assert (counted.old, counted.new, counted.until, counted.ahead) == (1, 3, 5, 4)
    dead = request(5, readable=False)._replace(anchor=counted)
    assert place(dead, None, new)[:2] == (7, "exact")
    assert place(dead, None, Log(None, None, *"abXcdefgh")).guarantee == "unproved"
    assert place(dead, None, Log(None, None, *"abc"))[:3] == (3, "unproved", 2)
    assert place(request(5, readable=False), None, new).position is None
    assert place(request(0, readable=False), None, new)[:2] == (0, "exact")


def test_same_offsets_are_proved_by_the_records_around_them() -> None:
    """Also where the copy has less at the end, or at the start."""
    old = Log(*"abcdef")
    assert found(3, old, old, "same-offsets") == (3, "exact")
    assert found(3, old, Log(*"abcd"), "same-offsets") == (3, "exact")
    assert found(3, old, Log(*"bcdef", start=1), "same-offsets") == (3, "exact")
    assert found_dead(3, old, old, "same-offsets")[:2] == (3, "unproved")
    assert found_dead(5, old, old, "same-offsets", marked_at=3)[:2] == (5, "unproved")
    counted, _ = follow(request(3, "same-offsets"), old, Log(*"a"), 9)
    dead = request(3, "same-offsets", readable=False)._replace(anchor=counted)
    assert place(dead, None, old)[:2] == (3, "exact")
    assert place(dead, None, Log("a", None, "b", "c")).position is None


def test_a_sync_of_mirror_maker_is_made_exact_by_records() -> None:
    """If the old cluster answers; else it is a lower bound, as in MirrorMaker's own library."""
    old = Log(*"abcdef")
    new = Log(None, None, *"abcdef", syncs={"mm2-offset-syncs.a.internal": [Sync(0, 2), Sync(3, 5)]})
    assert found(5, old, new, "mirror-maker") == (7, "exact")
    assert found_dead(5, old, new, "mirror-maker")[:2] == (6, "at-least-once")


def test_a_sync_to_a_copy_that_was_made_again_proves_nothing() -> None:
    """Its offset is behind the end, before the start, or of another record: the copy has begun at 0 again."""
    syncs = {"mm2-offset-syncs.a.internal": [Sync(50, 50)]}
    again = {"mm2-offset-syncs.a.internal": [Sync(50, 50), Sync(60, 0)]}
    logs = [Log(syncs=syncs), Log(*"k" * 50, syncs=syncs), Log(*"k" * 9, start=51, syncs=syncs)]
    for new in (*logs, Log(*"k" * 80, syncs=again)):
        for position in (50, 51, 55):
            placement = place(request(position, "mirror-maker", readable=False), None, new)
            assert (placement.position, placement.guarantee) == (None, "unproved"), (new.bounds(T0), position)
    assert "made again" in place(request(50, "mirror-maker", readable=False), None, logs[0]).evidence


def test_a_record_of_the_offset_syncs_topic_is_parsed() -> None:
    """The bytes are those that MirrorMaker 2 writes."""
    key = b"\x00\x06orders" + (3).to_bytes(4, "big")
    value = (1234).to_bytes(8, "big") + (99).to_bytes(8, "big")
    assert parse_sync(key, value) == (TP("orders", 3), Sync(1234, 99))
    assert parse_sync(key, None) is None


def test_evidence_looks_beyond_offsets_without_records() -> None:
    """A long transaction leaves none."""
    old = Log("a", "b", *[None] * 500, "c")
    known = evidence_around(old, T0, 502, ())
    assert [record.content for record in known.before] == ["a", "b"]
    assert [record.content for record in known.behind] == ["c"]


# --- what the metadata may say ----------------------------------------------------------------------------------------


def test_a_document_says_what_a_cluster_continues() -> None:
    """In one line, and it comes back as it was."""
    text = """
    - streamId: s
      clusterMetadataList:
        - clusterId: b
          bootstrapServers: b:9092
          topics: [t2]
          continues: {cluster: a, topics: {t: t2}, by: records, guarantee: at-least-once}
    """
    (stream,) = parse_document(text, "x.yaml")
    continues = stream.clusters["b"].continues
    assert continues == Continues("a", "records", {"t": "t2"}, "at-least-once")
    assert continues_from_json(json.loads(json.dumps(continues_to_json(continues)))) == continues
    assert continues.old_topic("t2") == "t"
    assert continues.old_topic("other") is None
    assert Continues("a", "mirror-maker").old_topic("a.t") == "t"


VALID: dict[str, Any] = {"cluster": "a", "by": "records"}
KEYS = "cluster, by, topics, guarantee, offsetSyncs"
MAPPING = "`topics` has to be a mapping of names: {old: new}"
SYNCS = "`offsetSyncs` is the name of a topic, and only for `by: mirror-maker`"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("a", "expected a mapping with `cluster` and `by`"),
        ({"by": "records"}, "`cluster` is missing: the id of the cluster that is continued"),
        ({"cluster": 5, "by": "records"}, "`cluster` is missing: the id of the cluster that is continued"),
        ({"cluster": "a", "by": "magic"}, "`by` has to be one of same-offsets, mirror-maker, records, timestamp"),
        ({"cluster": "a", "by": "records", "topic": {}}, "unknown key 'topic'; did you mean 'topics'?"),
        ({"cluster": "a", "by": "records", "zzz": {}}, f"unknown key 'zzz'; the known keys are {KEYS}"),
        (VALID | {"guarantee": "no"}, "`guarantee` has to be one of exact, at-least-once, unproved"),
        (VALID | {"topics": ["t"]}, MAPPING),
        (VALID | {"topics": {"t": 5}}, MAPPING),
        (VALID | {"topics": {"t": ""}}, MAPPING),
        (
            VALID | {"topics": {"t": "u", "v": "u"}},
            "`topics` maps two topics to one; a topic can continue only one other",
        ),
        (VALID | {"offsetSyncs": "x"}, SYNCS),
        (VALID | {"by": "mirror-maker", "offsetSyncs": 5}, SYNCS),
    ],
)
def test_what_it_does_not_say_clearly_is_refused(value: Any, words: str) -> None:
    """With what was expected."""
    with pytest.raises(ValueError, match=r".") as caught:
        continues_from_json(value)
    assert str(caught.value) == words


def test_what_is_said_of_mirror_maker_comes_back_as_it_was() -> None:
    """With the topic of its offsets. Only it puts the other cluster's name before a topic's name."""
    continues = Continues("a", "mirror-maker", offset_syncs="own")
    assert continues_from_json(continues_to_json(continues)) == continues
    assert Continues("a", "records").old_topic("a.t") == "a.t"


@pytest.mark.parametrize(
    ("guarantee", "allowed"),
    [
        ("exact", ["exact"]),
        ("at-least-once", ["exact", "at-least-once"]),
        ("unproved", ["exact", "at-least-once", "unproved"]),
    ],
)
def test_a_guarantee_allows_itself_and_stronger_ones(guarantee: Guarantee, allowed: list[str]) -> None:
    """However positions are translated."""
    continues = Continues("a", "timestamp", guarantee=guarantee)
    assert [one for one in get_args(Guarantee) if continues.allows(one)] == allowed


# --- the rules --------------------------------------------------------------------------------------------------------


def view(kafka_id: str, /, **topics: list[int]) -> ClusterView:
    """A cluster with these topics and ends."""
    return ClusterView(
        kafka_id,
        {topic: f"{kafka_id}-{topic}" for topic in topics},
        {topic: len(ends) for topic, ends in topics.items()},
        {TP(topic, p): end for topic, ends in topics.items() for p, end in enumerate(ends)},
    )


def wants(*topics: str, continues: Continues | None = None) -> DesiredCluster:
    """These topics."""
    return DesiredCluster(frozenset(topics), {}, continues=continues)


class Query:
    """A query's documents, one after the other; a move is answered with the old position plus 100, unless told otherwise."""

    def __init__(self, **clusters: ClusterOffsets) -> None:
        self.document = Document(clusters=clusters)
        self.answer: Placement | None = None
        self.result: Reconciled

    def look(self, desired: Mapping[str, DesiredCluster], views: Mapping[str, ClusterView], **seen: Any) -> None:
        """Reconcile until nothing is asked any more, and take the document over, through its text."""
        answers: dict[MoveRequest, Placement] = {}
        starts = dict.fromkeys(((name, TP(t, p)) for name in views for t in "tuv" for p in range(9)), 0)
        while True:
            self.result = reconcile(
                self.document,
                SourceSnapshot({}, desired, views, fresh=True, **seen),
                ReadPolicy(KafkaOffsetsInitializer.earliest(), None, True, 10**9, False),
                OffsetAnswers(start=starts, moves=answers),
                now_ms=1,
            )
            asked = [move.request for move in self.result.moving.moves if move.placement is None]
            if not asked:
                break
            for one in asked:
                answers[one] = self.answer or Placement(one.position + 100, "exact", 0, "because")
        check_chain(self.document, self.result.document)
        text = json.dumps(encode(self.result.document))
        self.document = decode(json.loads(text))
        assert json.dumps(encode(self.document)) == text

    def positions(self, name: str) -> dict[tuple[str, int], int]:
        """The positions of a cluster."""
        cluster = self.document.clusters.get(name, ClusterOffsets())
        return {(tp.topic, tp.partition): end for tp, (_, end) in cluster.ranges.items()}

    @property
    def said(self) -> str:
        """What was said last."""
        return "\n".join(f"{event.level}: {event.text}" for event in self.result.events)


def reading(kafka_id: str, **topics: list[int]) -> ClusterOffsets:
    """A cluster that is read."""
    return ClusterOffsets(
        kafka_id,
        discovered=True,
        topics={topic: f"{kafka_id}-{topic}" for topic in topics},
        ranges={TP(topic, p): (0, end) for topic, ends in topics.items() for p, end in enumerate(ends)},
    )


RECORDS = Continues("a", "records")


def test_a_topic_is_drained_first_and_then_moves() -> None:
    """All of it in one document: what leaves the one cluster is in the other."""
    query = Query(a=reading("ka", t=[5, 7]))
    views = {"a": view("ka", t=[9, 7]), "b": view("kb", t=[200, 200])}
    query.look({"b": wants("t", continues=RECORDS)}, views)
    assert query.positions("a") == {("t", 0): 5, ("t", 1): 7}
    assert query.positions("b") == {}
    assert query.document.clusters["a"].draining == {"t"}
    assert query.document.clusters["b"].continues == {"cluster": "a", "by": "records"}
    assert "waits to continue 't' of cluster 'a', which is read to its end first" in query.said
    query.look({"b": wants("t", continues=RECORDS)}, views, quiet={("a", "t")})
    assert query.positions("b") == {("t", 0): 105, ("t", 1): 107}
    assert "a" not in query.document.clusters
    assert (
        "info: Cluster 'b', topic 't' continues 't' of cluster 'a': partition 0 at offset 105 (was 5), exact"
        in query.said
    )
    query.look({"b": wants("t", continues=RECORDS)}, {"b": view("kb", t=[200, 200, 200])})
    assert query.positions("b") == {("t", 0): 105, ("t", 1): 107, ("t", 2): 0}


def test_a_cluster_that_may_still_answer_is_waited_for_and_one_that_is_gone_is_left() -> None:
    """Then the marks are the evidence."""
    state = reading("ka", t=[5])
    state.marks = {T0: (Marks(5, (RecordPrint(4, 1, "x", ""),)),)}
    query = Query(a=state)
    desired, views = {"b": wants("t", continues=RECORDS)}, {"b": view("kb", t=[200])}
    query.look(desired, views)
    assert "may still answer" in query.said
    assert query.positions("a") == {("t", 0): 5}
    query.look(desired, views, inactive={"a"})
    assert query.positions("b") == {("t", 0): 105}
    (move,) = query.result.moving.moves
    assert (move.request.readable, move.request.marks) == (False, state.marks[T0])


def test_marks_of_a_log_that_was_cut_are_dropped() -> None:
    """The offsets get other records. Another partition keeps its marks."""
    state = reading("ka", t=[20, 20])
    state.marks = {tp: (Marks(20, (RecordPrint(19, 1, "x", ""),)),) for tp in state.ranges}
    result = reconcile(
        Document(clusters={"a": state}),
        SourceSnapshot(
            {},
            {"a": wants("t"), "b": wants("t", continues=RECORDS)},
            {"a": view("ka", t=[30, 30]), "b": view("kb", t=[9, 9])},
            fresh=True,
            regressed={("a", T0): 15},
        ),
        ReadPolicy(KafkaOffsetsInitializer.earliest(), None, False, 10**9, False),
        OffsetAnswers(),
        now_ms=1,
    )
    kept = result.document.clusters["a"]
    assert (kept.ranges[T0], list(kept.marks)) == ((15, 15), [TP("t", 1)])


def test_topics_may_be_renamed_and_removed_before() -> None:
    """Retained positions are drained and move as others do."""
    state = ClusterOffsets("ka", discovered=True, retained={"t": RetainedTopic("ka-t", 1, {0: 5})})
    query = Query(a=state)
    desired = {"b": wants("a.t", "u", continues=Continues("a", "mirror-maker"))}
    views = {"b": view("kb", **{"a.t": [9], "u": [9]})}
    query.look(desired, views)
    assert query.positions("a") == {("t", 0): 5}
    query.look(desired, {**views, "a": view("ka", t=[5])}, quiet={("a", "t")})
    assert query.positions("b") == {("a.t", 0): 105, ("u", 0): 0}


def test_fail_back_does_not_go_on_at_the_positions_of_before() -> None:
    """Neither at those that have moved, nor at retained ones."""
    state = ClusterOffsets("ka", discovered=True, retained={"t": RetainedTopic("ka-t", 1, {0: 5})})
    query = Query(a=state, b=reading("kb", t=[8]))
    back = {"a": wants("t", continues=Continues("b", "records"))}
    query.look(back, {"a": view("ka", t=[200]), "b": view("kb", t=[8])}, quiet={("b", "t")})
    assert query.positions("a") == {("t", 0): 108}
    assert "b" not in query.document.clusters


def test_retained_positions_say_what_was_read_before() -> None:
    """The new cluster has records from its time before. They are not read again, except if the topic was made again."""
    back = {"a": wants("t", continues=Continues("b", "records"))}
    views = {"a": view("ka", t=[200]), "b": view("kb", t=[0])}
    for topic_id, read_to in (("ka-t", 5), ("another", 0)):
        state = ClusterOffsets("ka", discovered=True, retained={"t": RetainedTopic(topic_id, 1, {0: 5})})
        query = Query(a=state, b=reading("kb", t=[0]))
        query.look(back, views, quiet={("b", "t")})
        (move,) = query.result.moving.moves
        assert move.request.read_to == read_to
        assert place(move.request, Log(), Log(*"abcdeUV"))[:2] == (read_to, "exact")


def test_what_was_left_behind_is_known_on_the_way_back() -> None:
    """Records that only the returned cluster has after the offset at which the query left it are told, with offsets."""
    query = Query(a=reading("ka", t=[5]))
    query.answer = Placement(5, "exact", 0, "because")
    query.look({"b": wants("t", continues=RECORDS)}, {"b": view("kb", t=[9])}, inactive={"a"})
    assert query.document.clusters["b"].anchors[T0][:4] == ("ka", "ka-t", 5, 5)
    query.document.clusters["b"].ranges[T0] = 5, 8
    query.answer = None
    back = {"a": wants("t", continues=Continues("b", "records"))}
    query.look(back, {"a": view("ka", t=[20]), "b": view("kb", t=[8])}, quiet={("b", "t")})
    (move,) = query.result.moving.moves
    assert move.request.anchor is not None
    a, b = Log(*"abcdeUVW", *"fgh"), Log(*"abcdefgh")
    placement = place(move.request, b, a)
    assert placement[:2] == (11, "unproved")
    assert "3 records on 'a' that 'b' does not have there (offsets 5 to 7): are not read" in placement.evidence
    assert place(move.request, b, Log(*"abcdefgh"))[:2] == (8, "exact")


def test_a_cluster_that_waits_itself_is_waited_for() -> None:
    """The third may not read anything before the second knows where it stands."""
    query = Query(a=reading("ka", t=[5]))
    views = {"a": view("ka", t=[9]), "b": view("kb", t=[9]), "c": view("kc", t=[9])}
    query.look({"b": wants("t", continues=RECORDS)}, views)
    third = {"c": wants("t", continues=Continues("b", "records"))}
    query.look(third, views)
    assert query.positions("a") == {("t", 0): 5}
    assert query.positions("c") == {}
    assert "which still waits itself" in query.said
    query.look({**third, "b": wants("t", continues=RECORDS)}, views, quiet={("a", "t")})
    assert query.positions("b") == {("t", 0): 105}
    query.look(third, views, quiet={("b", "t")})
    assert query.positions("c") == {("t", 0): 205}


def test_two_clusters_cannot_continue_one_topic() -> None:
    """One of them would be read from its start."""
    text = """
    - streamId: s
      clusterMetadataList:
        - {clusterId: b, bootstrapServers: "b:9092", topics: [t], continues: {cluster: a, by: records}}
        - {clusterId: c, bootstrapServers: "c:9092", topics: [t], continues: {cluster: a, by: records}}
    """
    with pytest.raises(MetadataServiceError, match="both continue topic 't' of cluster 'a'"):
        make_snapshot(parse_document(text, "x.yaml"))


# --- what the command says --------------------------------------------------------------------------------------------


def test_a_document_with_moves_is_checked() -> None:
    """Two that continue each other, topics that are not listed, a word that gives the guarantee up."""
    text = """
    - streamId: s
      clusterMetadataList:
        - {clusterId: a, bootstrapServers: "a:9092", topics: [t], continues: {cluster: b, by: records}}
        - {clusterId: b, bootstrapServers: "b:9092", topics: [t], continues: {cluster: a, by: records}}
        - {clusterId: c, bootstrapServers: "c:9092", topics: [t], continues: {cluster: e, by: records}}
        - {clusterId: e, bootstrapServers: "e:9092", topics: [t]}
        - clusterId: d
          bootstrapServers: "d:9092"
          topics: [u]
          continues: {cluster: x, by: records, topics: {t: v}, guarantee: unproved}
    """
    said = "\n".join(f"{f.result} {f.where} {f.what}" for f in check_streams(parse_document(text, "x.yaml"), None))
    assert "warning cluster 'a' it and 'b' continue each other" in said
    assert "note cluster 'c' 't' of it stands by, because 'e' is still read" in said
    assert "warning cluster 'd' it continues topics that it does not list: v" in said
    assert "warning cluster 'd' it may continue 'x' without a proof" in said


# --- a batch that was planned before the cluster died -----------------------------------------------------------------


def test_a_batch_of_a_dead_cluster_is_read_from_its_copy() -> None:
    """Both ends of each range are found by the marks; a range that was cut is read as a whole, and only once."""
    old, new = Log(*"abcdefgh"), Log(*"zzabcdefgh")
    state = reading("ka", t=[6], u=[6])
    state.marks = {T0: (Marks(3, tuple(old.prints[1:3])), Marks(6, tuple(old.prints[4:6])))}
    groups = [
        [Range("a", "t", "x", 0, 3, 5), Range("c", "t", "y", 0, 1, 2)],
        [Range("a", "t", "x", 0, 5, 6)],
        [Range("a", "u", "x", 0, 0, 1)],
    ]
    found, said = stand_in(
        groups, Document(clusters={"a": state}), "b", topics=["t"], continues=RECORDS, ask=lambda r: place(r, None, new)
    )
    assert found == [
        [Range("b", "t", "", 0, 5, 8), Range("c", "t", "y", 0, 1, 2)],
        [Range("a", "u", "x", 0, 0, 1)],
    ]
    (text,) = said
    assert "Cluster 'a' does not answer. Its part of this batch is read from cluster 'b': t/0:5-8." in text
    assert "what is between was not compared" in text


def test_a_batch_from_the_start_of_a_log_needs_a_copy_of_the_same_length() -> None:
    """No record proves the start: a copy that began later does not have the first records, and another has more."""
    old = Log(*"abcdefghijkl")
    state = reading("ka", t=[12])
    state.marks = {T0: (Marks(12, tuple(old.prints[6:])),)}
    groups = [[Range("a", "t", "x", 0, 0, 12)]]
    for new, is_read in ((old, True), (Log(*"efghijkl"), False), (Log(*"zzabcdefghijkl"), False)):
        found, said = stand_in(
            groups,
            Document(clusters={"a": state}),
            "b",
            topics=["t"],
            continues=RECORDS,
            ask=partial(place, old=None, new=new),
        )
        assert found == ([[Range("b", "t", "", 0, 0, 12)]] if is_read else groups)
        assert is_read or f"it has {8 if new.prints[0].content == 'e' else 14} offsets there and not 12" in said[0]


@pytest.mark.parametrize("copy", ["abcdXefgh", "abcdefeXgh", "abcefgh", "abcd efgh"])
def test_a_batch_needs_a_copy_with_as_many_offsets(copy: str) -> None:
    """One with a record more, or less, or with a marker between both ends is refused, with the numbers."""
    old, new = Log(*"abcdefgh"), Log(*(None if letter == " " else letter for letter in copy))
    state = reading("ka", t=[8])
    state.marks = {T0: (Marks(2, tuple(old.prints[:2])), Marks(8, tuple(old.prints[7:])))}
    groups = [[Range("a", "t", "x", 0, 2, 8)]]
    ask = partial(place, old=None, new=new)
    found, said = stand_in(groups, Document(clusters={"a": state}), "b", topics=["t"], continues=RECORDS, ask=ask)
    assert found == groups
    assert f"it has {len(copy) - 2} offsets there and not 6" in said[0]


def test_the_difference_to_a_checkpoint_says_what_moves_and_what_waits() -> None:
    """The old cluster is not called forgotten, and the new topic is not called new."""
    query = Query(a=reading("ka", t=[5]))
    before = query.document
    views = {"a": view("ka", t=[5]), "b": view("kb", t=[109])}
    query.answer = Placement(None, "unproved", None, "not there")
    query.look({"b": wants("t", continues=RECORDS)}, views, quiet={("a", "t")})
    found = topic_changes(before, query.document, views, {}, query.result.moving.moves)
    assert [(change.change, change.cluster, change.was) for change in found] == [
        ("waits", "b", "a"),
        ("draining", "a", ""),
    ]
    query.answer = None
    query.look({"b": wants("t", continues=RECORDS)}, views, quiet={("a", "t")})
    found = topic_changes(before, query.document, views, {}, query.result.moving.moves)
    assert found == [TopicChange("moved", "b", "t", 1, 4, "a")]

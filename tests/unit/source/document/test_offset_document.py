"""The offset document: the rules at the top of `offsets` that hold for the text alone."""

from __future__ import annotations

import base64
import dataclasses
import functools
import gc
import json
import re
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from dynamic_kafka.errors import CheckpointError
from dynamic_kafka.history.model import FrozenHistory, TimeLimit
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.document import columns
from dynamic_kafka.source.document.document import HistoryStage
from dynamic_kafka.source.document.evidence import Anchor, Difference, Marks, RecordPrint
from dynamic_kafka.source.document.offsets import (
    MARKER,
    ClusterOffsets,
    Cursor,
    Document,
    Packing,
    RetainedTopic,
    check_chain,
    decode,
    encode,
    is_marker,
    is_spark_kafka_offset,
    topic_id_text,
)
from dynamic_kafka.source.document.promise import Promise, Seen
from dynamic_kafka.source.rules.planning import Range, plan

TP = KafkaTopicPartition
ID = "AbCdEfGhIjK"


def text_of(document: Document) -> str:
    """The document as Spark stores it."""
    return json.dumps(encode(document))


def stored(document: Document) -> Document:
    """The document as another process reads it."""
    return decode(json.loads(text_of(document)))


def one_topic(start: int, end: int, *, topic_id: str = ID, **more: Any) -> Document:
    """A document with one range, of partition 0 of topic `t` on cluster `c`."""
    cluster = ClusterOffsets("k", discovered=True, topics={"t": topic_id}, ranges={TP("t", 0): (start, end)}, **more)
    return Document(streams={"s": {"c": None}}, clusters={"c": cluster})


def everything() -> Document:
    """A document in which every field has a value that is not its default."""
    return Document(
        streams={"s": {"c": None, "d": frozenset({"t"})}, "r": {"d": frozenset({"u", "t"})}},
        clusters={
            "d": ClusterOffsets("kd", {"b": "2", "a": "1"}, "latest", {"timestamp": 5}, since_ms=1_700_000_000_000),
            "c": ClusterOffsets(
                "kc",
                {"bootstrap.servers": "h:1", "sasl.password": "${env:PW}"},
                {"t": {"0": 5}},
                "latest",
                discovered=True,
                topics={"u": "", "t": ID},
                ranges={TP("u", 1): (7, 7), TP("t", 10): (0, 2), TP("t", 9): (3, 2**62), TP("u", 0): (1, 4)},
                stops={TP("u", 0): 9, TP("t", 9): 2**62},
                unresolved={TP("t", 3): 1_700_000_000_000},
                draining=set({"u"}),
                resets=frozenset({TP("u", 1), TP("u", 0)}),
                retained={"w": RetainedTopic(ID, 1_700_000_000_001, {1: 8, 0: 0}), "v": RetainedTopic("", 1, {})},
                unseen={"y": 1_700_000_000_002, "x": 0},
                continues={"cluster": "b", "by": "records"},
                marks={TP("u", 0): (Marks(4, (RecordPrint(2, 5, "ab", ""), RecordPrint(3, 6, "cd", "ef"))),)},
                anchors={
                    TP("u", 0): Anchor("kb", ID, 1, 8, 0, 7, 1, 5, 7, -2, 3, 2, "ab", (Difference("again", 5, 6, 2),)),
                    TP("t", 9): Anchor("kb", ID, 3, 9, 3, 9, 0, 5, 9, 5, 3),
                },
            ),
        },
        cursor=Cursor("c", {"d": TP("t", 1), "c": TP("u", 0)}),
        packing=Packing(1000, 2, 8),
        starting={"timestamp": 5},
        done=1,
        last_row=1,
        history=HistoryStage(
            FrozenHistory("/h", "parquet", "2 files", 5, (), "c", TimeLimit("t", 7)),
            Promise("Kafka goes on", 5, "if", (("ids", 2),), (Seen("twice", 3, 1, ("t-0: 1 to 3",)),)),
            (5, 5),
        ),
        frontier_ms=1_700_000_000_000,
    )


def grown(document: Document) -> Document:
    """The same document with one cluster more, which makes it large."""
    large = wide(2, 1_000).clusters["c"]
    return dataclasses.replace(document, clusters={**document.clusters, "large": large})


def shuffled(value: Any) -> Any:
    """The same value with every dict's insertion order turned round."""
    match value:
        case dict():
            return {key: shuffled(item) for key, item in reversed(value.items())}
        case Document() | ClusterOffsets() | RetainedTopic():
            fields = {f.name: shuffled(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return type(value)(**fields)
        case Cursor(cluster, tps):
            return Cursor(cluster, shuffled(tps))
        case _:
            return value


# --- rule 1 -------------------------------------------------------------------------------------------------------


def test_rule_1_the_marker_is_told_from_every_document() -> None:
    """A first start, a resume and a replay are told apart by the text alone."""
    assert is_marker(MARKER)
    assert is_marker(json.loads(json.dumps(MARKER)))
    assert not is_marker(encode(Document()))
    assert not is_marker(encode(everything()))


def test_rule_1_the_marker_is_no_document() -> None:
    """Read as a document, the marker is an error and not an empty one."""
    with pytest.raises(CheckpointError, match="not of the dynamic-kafka source"):
        decode(MARKER)


# --- rule 2 -------------------------------------------------------------------------------------------------------


def test_rule_2_each_document_carries_start_and_end_of_every_range() -> None:
    """Planning needs the end's text only: no client, no option and no earlier document. Empty ranges have no task."""
    assert plan(stored(one_topic(3, 9))) == [[Range("c", "t", ID, 0, 3, 9)]]
    assert plan(stored(one_topic(3, 3))) == []


@pytest.mark.parametrize("first", [4, 6])
def test_rule_2_a_start_that_is_not_the_end_before_it_is_an_error(first: int) -> None:
    """A range that skips or repeats offsets names cluster, topic, partition and the offsets."""
    with pytest.raises(CheckpointError, match=rf"'c', topic 't', partition 0.*offset 5 .*\[{first}, 9\)") as caught:
        check_chain(one_topic(0, 5), one_topic(first, 9))
    assert caught.value.cluster_id == "c"
    assert str(caught.value).endswith(
        "offset files of different queries were mixed or edited: restore them, or start with a new checkpoint"
    )


def retained(topic_id: str) -> Document:
    """A document that retains offset 5 of partition 0 of topic `t`."""
    return Document(clusters={"c": ClusterOffsets(retained={"t": RetainedTopic(topic_id, 1, {0: 5})})})


TWO_NAMES = Document(clusters={"b": one_topic(0, 5).clusters["c"], "c": one_topic(0, 7).clusters["c"]})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (one_topic(0, 5), one_topic(5, 9)),
        (one_topic(0, 5), one_topic(2, 9, resets=frozenset({("t", 0)}))),
        (Document(), one_topic(4, 9)),
        (Document(clusters={"c": ClusterOffsets()}), one_topic(4, 9)),
        (retained(ID), one_topic(5, 9)),
        (retained(ID), Document(clusters={"c": ClusterOffsets(topics={"t": ID}, ranges={TP("t", 1): (0, 3)})})),
        (retained("other-topic"), one_topic(0, 9)),
        (TWO_NAMES, one_topic(7, 9)),
        (TWO_NAMES, Document(clusters={"d": one_topic(5, 9).clusters["c"]})),
    ],
    ids=[
        *("where it stood", "data loss that the document has", "a new query", "a new topic", "a topic that came back"),
        *("a new partition of it", "a topic made again meanwhile", "one of two names", "a third name of a cluster"),
    ],
)
def test_rule_2_a_chain_goes_on(before: Document, after: Document) -> None:
    """Where it stood or was retained, also under another name; what has no past begins a chain, wherever it starts."""
    check_chain(before, after)


@pytest.mark.parametrize(
    ("before", "after", "at"),
    [
        (retained(ID), one_topic(0, 9), 5),
        (retained(""), one_topic(0, 9), 5),  # the brokers told no id then, so it may well be the same topic
        (TWO_NAMES, one_topic(5, 9), 7),
    ],
)
def test_rule_2_a_chain_does_not_go_on_elsewhere(before: Document, after: Document, at: int) -> None:
    """Two names may read the same topic for a while, and each goes on where it stood."""
    with pytest.raises(CheckpointError, match=f"offset {at}"):
        check_chain(before, after)


# --- rule 3 -------------------------------------------------------------------------------------------------------


def test_rule_3_equal_documents_have_equal_text() -> None:
    """No order of a dict or a set reaches the text."""
    for document in (everything(), grown(everything())):
        other = shuffled(document)
        assert other == document
        assert text_of(other) == text_of(document)


def test_rule_3_reading_and_writing_returns_the_text() -> None:
    """A document that went through the checkpoint is written as the same text."""
    for document in (Document(), one_topic(0, 0), everything(), grown(everything()), wide(200, 1), wide(1, 200)):
        assert text_of(stored(document)) == text_of(document)


def test_rule_3_the_document_is_versioned() -> None:
    """The version comes first; a newer one says which package is needed."""
    assert next(iter(encode(Document()).items())) == ("version", 1)
    with pytest.raises(
        CheckpointError, match=r"version 2, .*; upgrade pyspark-dynamic-kafka, or start with a new check"
    ):
        decode(encode(Document()) | {"version": 2})


# --- rule 4 -------------------------------------------------------------------------------------------------------


def test_rule_4_nothing_is_lost_on_the_way() -> None:
    """Every field survives, together with every other one."""
    assert stored(everything()) == everything()
    assert stored(grown(everything())) == grown(everything())


@pytest.mark.parametrize(("partitions", "layout"), [(1_998, None), (1_999, "columns")])
def test_rule_5_only_a_large_document_has_columns(partitions: int, layout: str | None) -> None:
    """With its topic it has 2,000 entries then. A person can edit smaller ones."""
    document = wide(1, partitions)
    document.streams = {}
    assert encode(document).get("layout") == layout
    assert stored(document) == document


@pytest.mark.parametrize("count", [1, 15, 16, 17, 300])
def test_rule_5_columns_of_any_length_say_the_same_in_a_large_document(count: int) -> None:
    """Small clusters beside a large one have lists or packed columns."""
    document = grown(wide(count, 2))
    state = document.clusters["c"]
    first, last = min(state.ranges), max(state.ranges)
    state.topics[first.topic] = ""
    state.stops = {first: 0, last: 2**63 - 1, TP("a topic that is not read", 3): 5}
    state.resets = frozenset({last})
    state.draining = set({last.topic})
    state.unseen = {f"u{i}": i % 2 * 1_700_000_000_000 for i in range(count)}
    state.unresolved = {TP(first.topic, 2): 0, TP("new", 1): 1_700_000_000_000}
    state.retained = {
        f"r{i}": RetainedTopic(ID if i else "", 5 + i, {p: 2**40 * p for p in range(i)}) for i in range(3)
    }
    assert stored(document) == document


def test_rule_5_streams_with_the_names_of_topics_are_not_repeated() -> None:
    """Exactly those that the cluster's topics say are left out; every other one stays."""
    document = wide(2_000, 1)
    topics = list(document.clusters["c"].topics)
    document.streams = {topic: {"c": frozenset({topic})} for topic in topics}
    assert "streams by topic" in encode(document)
    assert stored(document) == document
    document.streams |= {"t-missing": {"c": frozenset({"t-missing"})}, "empty": {}}
    document.streams[topics[0]]["d"] = frozenset({topics[0]})
    assert stored(document) == document
    document.streams[topics[1]]["c"] = frozenset({topics[0], topics[1]})
    assert "streams by topic" not in encode(document)
    assert stored(document) == document


def test_rule_5_an_unknown_layout_is_damage() -> None:
    """It is not taken for another one."""
    with pytest.raises(CheckpointError, match="layout 'rows'"):
        decode(encode(Document()) | {"layout": "rows"})


def test_rule_4_every_field_is_tested() -> None:
    """`everything` leaves no field at its default, so a field that is added is not forgotten here."""
    document = everything()
    for default, value in ((Document(), document), (ClusterOffsets(), document.clusters["c"])):
        same = {f.name for f in dataclasses.fields(default) if getattr(default, f.name) == getattr(value, f.name)}
        assert same <= {"since_ms"}, "set in cluster d"


@pytest.mark.parametrize("count", [1, 127, 128, 129, 1000])
def test_rule_4_packed_and_plain_columns_say_the_same(count: int) -> None:
    """Columns are lists that a person can read, then packed strings; both hold topics, ids and ranges."""
    document = wide(count, 1)
    document.clusters["c"].topics["t00000"] = ""
    cluster = encode(document)["clusters"]["c"]
    assert {type(cluster[key]) for key in ("topics", "ids", "partitions", "start", "count")} == {
        list if count < 128 else str
    }
    assert stored(document) == document


@pytest.mark.parametrize("gap", [0, 100, 298, 299])
@pytest.mark.parametrize(("topics", "partitions"), [(1, 1), (200, 1), (3, 1_000)], ids=["few", "packed", "large"])
def test_rule_4_a_missing_partition_is_kept_missing(topics: int, partitions: int, gap: int) -> None:
    """A partition without leader leaves a gap in the columns, and its start is kept apart."""
    document = wide(topics, partitions)
    cluster = document.clusters["c"]
    cluster.topics["gappy"] = ID
    cluster.ranges |= {TP("gappy", p): (p, 2 * p) for p in range(300) if p != gap}
    cluster.unresolved = {TP("gappy", gap): 1_700_000_000_000}
    assert stored(document) == document


@pytest.mark.parametrize("offsets", [[0], [2**63 - 1], [0, 2**63 - 1], [5, 5], [2**40, 2**40 + 255, 2**40 + 256]])
def test_rule_4_offsets_up_to_kafkas_greatest_are_kept(offsets: list[int]) -> None:
    """No offset is too large for the packed columns."""
    document = wide(1, 300)
    ranges = document.clusters["c"].ranges
    for p in range(300):
        ranges[TP("t00000", p)] = (offsets[p % len(offsets)], max(offsets))
    assert stored(document) == document


@pytest.mark.parametrize(("greatest", "width"), [(0, 1), (248, 1), (249, 2), (65_528, 2), (65_529, 3), (2**63 - 1, 8)])
def test_rule_4_the_width_of_a_packed_column_never_changes(greatest: int, width: int) -> None:
    """Spark compares texts, so the text of an offset may never change."""
    document = wide(1, 128)
    ranges = document.clusters["c"].ranges
    ranges |= {tp: (0, greatest if tp.partition == 5 else 0) for tp in ranges}
    assert encode(document)["clusters"]["c"]["count"].split(":")[:2] == ["0", str(width)]
    assert stored(document) == document


@pytest.mark.parametrize("cursor", [Cursor("c"), Cursor("", {"c": TP("t", 1)})])
def test_rule_4_each_part_of_a_cursor_is_kept(cursor: Cursor) -> None:
    """Clusters take turns only if there are several, and partitions only if there are several."""
    document = Document(cursor=cursor)
    assert stored(document) == document


def test_rule_4_topics_without_partitions_are_kept() -> None:
    """None of theirs has a leader yet."""
    document = one_topic(3, 9)
    document.clusters["c"].topics |= {"a": ID, "z": ID}
    assert stored(document) == document
    assert encode(document)["clusters"]["c"]["partitions"] == [0, 1, 0]


# --- rule 6 -------------------------------------------------------------------------------------------------------


def test_rule_6_a_topic_id_is_kept_as_its_first_characters() -> None:
    """66 bits of 128 are enough to tell two topics apart; an unknown id is empty."""
    assert topic_id_text("3rFo7zYVTzmV5Rtl9u0KjQ") == "3rFo7zYVTzm"
    assert topic_id_text(None) == ""
    assert topic_id_text("+/+/") == "-_-_", "librdkafka's letters become Kafka's"


# --- rule 7 -------------------------------------------------------------------------------------------------------


def wide(topics: int, partitions: int) -> Document:
    """A document with this many topics of this many partitions, with offsets as real ones."""
    names = [f"t{i:05}" for i in range(topics)]
    ranges: dict[TP, tuple[int, int]] = {}
    for i, topic in enumerate(names):
        for p in range(partitions):
            start = (i + 1) * (p + 7) * 7_919_113 % 10**10
            ranges[TP(topic, p)] = (start, start + (i + p) * 31 % 100_000)
    ids = {name: f"{i * 7_919_113 % 10**11:011}" for i, name in enumerate(names)}
    return Document(
        streams={"s": {"c": None}}, clusters={"c": ClusterOffsets("k", discovered=True, topics=ids, ranges=ranges)}
    )


def real_names(document: Document) -> Document:
    """The same document with topics of 22 characters."""
    cluster = document.clusters["c"]
    words = ("orders", "carts", "returns", "payments", "stock")
    names = {
        old: f"{words[i % 5]}.{('eu', 'us', 'ap')[i % 3]}.v{i:05}.".ljust(22, "x")
        for i, old in enumerate(cluster.topics)
    }
    cluster.topics = {names[t]: topic_id for t, topic_id in sorted(cluster.topics.items(), key=lambda kv: names[kv[0]])}
    cluster.ranges = dict(sorted((TP(names[t], p), r) for (t, p), r in cluster.ranges.items()))
    return document


def least_cpu_ms(function: Callable[[], object]) -> float:
    """The least of several runs, in CPU time: a busy machine makes each of them longer, not shorter.

    The collector is off: it would walk through all that the tests before this one have left in memory.
    """
    times = []
    gc.disable()
    try:
        for _ in range(30):
            begun = time.process_time()
            function()
            times.append(time.process_time() - begun)
    finally:
        gc.enable()
    return min(times) * 1000


@pytest.mark.parametrize(("topics", "partitions"), [(1, 10_000), (10_000, 1), (100, 100)])
def test_rule_7_ten_thousand_partitions_stay_small_and_fast(topics: int, partitions: int) -> None:
    """Under 300 KB, and read or written in the time of some dictionaries of as many entries (about 2 ms each).

    Three are what it takes by itself; more are for a process that is full of other tests' memory.
    """
    document = real_names(wide(topics, partitions))
    text = text_of(document)
    assert decode(json.loads(text)) == document
    assert len(text) < 300_000
    dictionary_ms = least_cpu_ms(lambda: {f"t{i}": (i, str(i)) for i in range(10_000)})
    write_ms = least_cpu_ms(lambda: json.dumps(encode(document)))
    read_ms = least_cpu_ms(lambda: decode(json.loads(text)))
    print(f"{topics} topics of {partitions} partitions: {len(text)} B, write {write_ms:.1f} ms, read {read_ms:.1f} ms")
    assert write_ms < 20 * dictionary_ms
    assert read_ms < 20 * dictionary_ms


def test_rule_7_one_leaderless_partition_does_not_make_the_document_fat() -> None:
    """A gap in one topic costs that topic only."""
    document = real_names(wide(10_000, 1))
    cluster = document.clusters["c"]
    last = max(cluster.topics)
    cluster.ranges[TP(last, 2)] = (0, 10)
    assert stored(document) == document
    assert len(text_of(document)) < 300_000


@functools.cache
def large(partitions: int, topics: int) -> ClusterOffsets:
    """The state of a cluster with so many partitions, with names, ids and offsets as real ones."""
    random = Random(topics)
    document = real_names(wide(topics, partitions // topics))
    state = document.clusters["c"]
    state.topics = {t: base64.urlsafe_b64encode(random.randbytes(9)).decode()[:11] for t in state.topics}
    starts = {tp: random.randrange(10**10) for tp in state.ranges}
    state.ranges = {tp: (start, start + random.randrange(100_000)) for tp, start in starts.items()}
    state.stops = {tp: end + random.randrange(10**6) for tp, (_, end) in state.ranges.items()}
    return state


def removed(state: ClusterOffsets, *, within_ms: int) -> ClusterOffsets:
    """A cluster of which all topics were removed, at random moments of this time."""
    random = Random(1)
    retained = {
        t: RetainedTopic(topic_id, 1_700_000_000_000 + random.randrange(within_ms), {})
        for t, topic_id in state.topics.items()
    }
    for (topic, partition), (_, end) in state.ranges.items():
        retained[topic].offsets[partition] = end
    return ClusterOffsets("k", retained=retained)


SHAPES: dict[str, Callable[[ClusterOffsets], ClusterOffsets]] = {
    "running": lambda c: dataclasses.replace(c, stops={}),
    "with stops": lambda c: c,
    "half of it with stops": lambda c: dataclasses.replace(c, stops={k: v for k, v in c.stops.items() if v % 2}),
    "removed at once": lambda c: removed(c, within_ms=1),
    "removed within a week": lambda c: removed(c, within_ms=7 * 24 * 3600 * 1000),
    "draining to stops": lambda c: dataclasses.replace(c, draining=set(c.topics)),
    "lost and read again": lambda c: dataclasses.replace(c, stops={}, resets=frozenset(c.ranges)),
    "without a leader": lambda c: ClusterOffsets(
        "k", topics=c.topics, unresolved=dict.fromkeys(c.ranges, 1_700_000_000_000)
    ),
    "only some partitions": lambda c: dataclasses.replace(
        c, ranges={TP(t, 3 * p + 1): r for (t, p), r in c.ranges.items()}, stops={}
    ),
    "not seen yet": lambda c: ClusterOffsets("k", unseen=dict.fromkeys(c.topics, 1_700_000_000_000)),
}


@pytest.mark.parametrize(
    ("shape", "partitions", "topics"),
    [
        *((shape, 10_000, topics) for shape in SHAPES for topics in (1, 100, 10_000)),
        # It is the same for more partitions, so the shapes that take most of the room stand for all.
        *(
            pytest.param(shape, 100_000, 100_000, marks=pytest.mark.slow)
            for shape in ("with stops", "removed within a week")
        ),
    ],
)
def test_rule_5_many_partitions_take_30_bytes_each(shape: str, partitions: int, topics: int) -> None:
    """Whatever their state is, also with each topic as a stream of its own."""
    state = SHAPES[shape](large(partitions, topics))
    names = {*state.topics, *state.retained, *state.unseen}
    one: dict[str, dict[str, frozenset[str] | None]] = {"s": {"c": None}}
    own: dict[str, dict[str, frozenset[str] | None]] = {t: {"c": frozenset({t})} for t in names if state.topics}
    for streams in (one, own):
        document = Document(streams=streams, clusters={"c": state})
        text = text_of(document)
        print(f"{shape}, {topics} topics: {len(text) / partitions:.1f} B each")
        assert len(text) <= 30 * partitions
    assert decode(json.loads(text)) == document


def test_rule_5_clusters_that_are_small_do_not_make_a_large_document_fat() -> None:
    """1,000 clusters with 100 partitions each have the same bound, with what each cluster itself needs."""
    clusters = {}
    for i in range(1_000):
        state = real_names(wide(10, 10)).clusters["c"]
        state.properties = {"bootstrap.servers": f"broker-{i}.example.com:9092"}
        state.stops = {tp: end + 1_000 for tp, (_, end) in state.ranges.items()}
        clusters[f"cluster-{i:04}"] = state
    document = Document(streams={"s": dict.fromkeys(clusters)}, clusters=clusters)
    assert len(text_of(document)) <= 30 * 100_000
    assert stored(document) == document


# --- rule 8 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "offset",
    [
        {"orders": {"0": 23, "1": 0}},
        {"orders": {"0": 23}, "returns": {"0": 5}},
        {"initial": {"0": 23}},
        {"version": {"0": 23}},
        {"clusters": {"0": 1}, "streams": {"0": 1}},
        {},
    ],
)
def test_rule_8_sparks_own_offsets_are_recognised(offset: dict[str, Any]) -> None:
    """Whatever their topics are named: they are never taken for a first start, nor for a document."""
    assert is_spark_kafka_offset(offset)
    assert not is_marker(offset)
    with pytest.raises(CheckpointError):
        decode(offset)


@pytest.mark.parametrize(
    "offset",
    [
        MARKER,
        encode(Document()),
        encode(everything()),
        {"orders": 5},
        {"orders": {"zero": 5}},
        {"orders": {"0": "5"}},
        {"orders": [5]},
    ],
)
def test_rule_8_other_offsets_are_not_taken_for_sparks(offset: dict[str, Any]) -> None:
    """Ours, and what no Kafka source wrote."""
    assert not is_spark_kafka_offset(offset)


# --- damaged documents --------------------------------------------------------------------------------------------


def paths_into(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside a JSON value."""
    items: list[tuple[Any, Any]]
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [*[(*path, key) for key, _ in items], *[p for key, item in items for p in paths_into(item, (*path, key))]]


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of a JSON value in which the value at the path is another one."""
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return copy


@pytest.mark.parametrize(
    "document",
    [everything(), wide(200, 1), wide(1, 200), grown(everything()), wide(1_000, 1)],
    ids=["small", "topics", "partitions", "large", "compact"],
)
@pytest.mark.parametrize(
    "damage", [None, True, -1, 1.5, "", "x", "0:0:", "1:9:AAAA", "a:b:c", [], [None], {}, {"a": 1}]
)
def test_damage_is_a_checkpoint_error_or_harmless(document: Document, damage: Any) -> None:
    """No value anywhere makes reading fail with another error than ours, or a range run backwards."""
    text = encode(document)
    for path in paths_into(text):
        try:
            read = decode(with_value(text, path, damage))
        except CheckpointError:
            continue
        for cluster in read.clusters.values():
            assert all(start <= end for start, end in cluster.ranges.values()), path


@pytest.mark.parametrize(
    ("path", "new"),
    [
        (("clusters",), None),
        (("packing",), [1, 2, 3]),
        (("packing",), [0, 1, 0, False]),
        (("packing",), [1, 0, 0, False]),
        (("packing",), [1, 1, -1, False]),
        (("clusters", "c", "id"), ...),
        (("clusters", "c", "start"), [1, 2]),
        (("clusters", "c", "count"), [1, 2, -3, 4]),
        (("clusters", "c", "start"), [1, 2, -3, 4]),
        (("clusters", "c", "ids"), [ID]),
        (("clusters", "c", "partitions"), [2]),
        (("clusters", "c", "partitions"), [11, 2, 0]),
        (("clusters", "c", "count"), [1, 2, 3, 4, 5]),
        (("clusters", "c", "topics"), "not base 64"),
        (("cursor", "splits", "c"), ["u"]),
    ],
)
def test_a_damaged_document_says_what_to_do(path: tuple[str, ...], new: Any) -> None:
    """The first line names the damage, shows the text, and says how to go on."""
    value = encode(everything())
    if new is ...:
        inner = value
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]
    else:
        value = with_value(value, path, new)
    with pytest.raises(CheckpointError, match=r"damaged \(.*restore the file in the checkpoint's 'offsets' folder"):
        decode(value)


def test_a_damaged_document_says_what_is_wrong_with_it() -> None:
    """The kind of the error, its text, and the beginning of the document."""
    beginning = r'\{"version": 1, "streams": .{80,100}\.\.\.; restore the file .* or start with a new checkpoint$'
    for path, new, error in (
        (("packing",), [0, 1, 0, False], r"ValueError: packing \[0, 1, 0, False\]"),
        (("clusters", "c", "start"), [1, 2, -3, 4], "ValueError: an offset or a count is negative"),
        (("clusters",), None, "AttributeError: .*'items'"),
    ):
        with pytest.raises(CheckpointError, match=rf"damaged \({error}\): {beginning}"):
            decode(with_value(encode(everything()), path, new))


def test_the_smallest_packing_is_no_damage() -> None:
    """One record for each task, at least one task, and no limit."""
    document = Document(packing=Packing(1, 1, 0))
    assert stored(document) == document


def test_more_offsets_than_partitions_are_damage() -> None:
    """Nobody knows which of them is the one too many."""
    value = encode(one_topic(3, 9))
    value["clusters"]["c"] |= {"start": [3, 4], "count": [6, 0]}
    with pytest.raises(CheckpointError, match="damaged"):
        decode(value)


@pytest.mark.parametrize("column", ["topics", "start"])
def test_a_stray_character_in_a_packed_column_is_damage(column: str) -> None:
    """An editor may have broken the line."""
    value = encode(wide(200, 1))
    packed = value["clusters"]["c"][column]
    value["clusters"]["c"][column] = f"{packed[:-8]}\n{packed[-8:]}"
    with pytest.raises(CheckpointError, match="damaged"):
        decode(value)


@pytest.mark.parametrize("value", [{"a": 1}, {"version": "1"}, {"version": None}, {"version": 0}, {"version": 1.5}])
def test_other_sources_documents_are_named(value: dict[str, Any]) -> None:
    """What another source wrote is shown, shortened, in the error."""
    beginning = re.escape(json.dumps(value)[:-1])
    with pytest.raises(CheckpointError, match=f'not of the dynamic-kafka source: {beginning}, "long": "x+[.]{{3}}$'):
        decode(value | {"long": "x" * 1000})


def test_an_excerpt_is_short() -> None:
    """The error stays one readable line."""
    with pytest.raises(CheckpointError) as caught:
        decode({"long": "x" * 1000})
    assert len(str(caught.value)) < 250
    with pytest.raises(CheckpointError, match=r"x{105}[.]{3}$"):
        decode({"long": "x" * 109})
    with pytest.raises(CheckpointError, match=r'x{108}"\}$'):
        decode({"long": "x" * 108})


def test_a_deflated_column_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes must not fill the memory, and a column that was cut off is an error, too."""
    packed = columns.pack_bytes(bytes(1000))
    assert columns.unpack_bytes(packed) == bytes(1000)
    cut = base64.b64encode(base64.b64decode(packed)[:-5]).decode()
    with pytest.raises(ValueError, match="cut off"):
        columns.unpack_bytes(cut)
    monkeypatch.setattr(columns, "_MOST_BYTES", 999)
    with pytest.raises(ValueError, match="more than 999 bytes"):
        columns.unpack_bytes(packed)

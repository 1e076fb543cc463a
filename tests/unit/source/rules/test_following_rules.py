"""Following the metadata: what the stories of test_following_stories cannot say of `reconcile`."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from dynamic_kafka.initializer import (
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    PartitionTimestamps,
    initializer_to_json,
)
from dynamic_kafka.source.document.offsets import (
    ClusterOffsets,
    Cursor,
    Document,
    Packing,
    RetainedTopic,
    check_chain,
)
from dynamic_kafka.source.rules.model import (
    ClusterView,
    DesiredCluster,
    OffsetAnswers,
    OffsetRequest,
    ReadPolicy,
    SourceSnapshot,
)
from dynamic_kafka.source.rules.reconcile import Reconciled, reconcile
from dynamic_kafka.source.settings import SourceSettings

TP = KafkaTopicPartition
EARLIEST = KafkaOffsetsInitializer.earliest()
LATEST = KafkaOffsetsInitializer.latest()
COMMITTED = KafkaOffsetsInitializer.committed_offsets()
DAY_MS = 24 * 3600 * 1000


def view(kafka_id: str = "k", /, **topics: list[int | None]) -> ClusterView:
    """A cluster with these topics; for each partition its end, or None without a leader. Topic ids are `id-<topic>`."""
    return ClusterView(
        kafka_id,
        {topic: f"id-{topic}" for topic in topics},
        {topic: len(ends) for topic, ends in topics.items()},
        {TP(topic, p): end for topic, ends in topics.items() for p, end in enumerate(ends) if end is not None},
    )


def wants(*topics: str, **more: object) -> DesiredCluster:
    """These topics, and no property."""
    return DesiredCluster(frozenset(topics), {}, **more)  # type: ignore[arg-type]  # only for brevity


def oracle(request: OffsetRequest, ends: Mapping[TP, int]) -> dict[TP, int]:
    """Answers that show by which initializer they came: by time, the time itself."""
    match initializer_to_json(request.initializer):
        case "latest":
            return {tp: ends[tp] for tp in request.partitions}
        case {"timestamp": time_ms}:
            return dict.fromkeys(request.partitions, time_ms)
        case {"committed": "earliest"}:
            return dict.fromkeys(request.partitions, 51)
        case word:
            return dict.fromkeys(request.partitions, {"earliest": 0, "committed": 50}.get(str(word), 60))


class Query:
    """A query's documents, one after the other; answers are given at once unless the cluster is `silent`."""

    def __init__(self, starting: KafkaOffsetsInitializer = EARLIEST, **policy: object) -> None:
        default = SourceSettings
        choices = {
            "stopping": None,
            "fail_on_data_loss": default.fail_on_data_loss,
            "retention_ms": default.retention_ms,
            "drain": default.drain,
        }
        self.policy = ReadPolicy(starting, **choices | policy)  # type: ignore[arg-type]  # only for brevity
        self.document: Document | None = None
        self.asked: list[OffsetRequest] = []
        self.said: list[str] = []
        self.now_ms = 1_000

    def look(
        self,
        desired: Mapping[str, DesiredCluster],
        views: Mapping[str, ClusterView],
        *,
        fresh: bool = True,
        silent: Collection[str] = (),
        **seen: Any,
    ) -> Reconciled:
        """One call, as the enumerator makes it: again until no question that would be answered is open.

        `seen` are fields of the snapshot: `inactive`, `quiet`, `regressed`.
        """
        answers = OffsetAnswers()
        self.asked = []
        before = copy.deepcopy(self.document)
        for _ in range(5):
            result = reconcile(
                self.document,
                SourceSnapshot({"s": {name: w.topics for name, w in desired.items()}}, desired, views, fresh, **seen),
                self.policy,
                answers,
                self.now_ms,
            )
            requests = [request for request in result.requests if request.cluster not in silent]
            if not requests:
                break
            self.asked += requests
            for request in requests:
                kind = answers.start if request.purpose == "start" else answers.stop
                found = oracle(request, views[request.cluster].ends)
                kind.update({(request.cluster, tp): offset for tp, offset in found.items()})
        else:
            pytest.fail("it asks again for what was answered")
        assert self.document == before, "the last document is what Spark has logged"
        if self.document is not None:
            check_chain(self.document, result.document)
        assert all(event.level in {"info", "warning"} and isinstance(event.text, str) for event in result.events)
        if result.changed:
            self.document = result.document
        self.said = [f"{event.level}: {event.text}" for event in result.events]
        return result

    def read(self, cluster: str, tp: TP, end: int) -> None:
        """A batch reads a split up to `end`."""
        assert self.document is not None
        ranges = self.document.clusters[cluster].ranges
        ranges[tp] = (ranges[tp][1], end)

    def positions(self, cluster: str = "c") -> dict[TP, int]:
        """Where each split stands."""
        assert self.document is not None
        return {tp: end for tp, (_, end) in self.document.clusters[cluster].ranges.items()}

    def heard(self, *parts: str) -> bool:
        """Whether one event holds all these texts."""
        return any(all(part in text for part in parts) for text in self.said)


def test_the_first_document_is_always_one() -> None:
    """Batch 0 is built even if there is nothing at all."""
    assert Query().look({}, {}).changed


def test_the_first_document_says_where_the_query_started() -> None:
    """Later starts tell a user by it that other starting offsets change nothing."""
    query = Query(LATEST)
    query.look({"c": wants("t", starting=EARLIEST)}, {"c": view(t=[100])})
    query.policy = replace(query.policy, starting=EARLIEST)
    document = query.look({"c": wants("t", starting=COMMITTED)}, {"c": view(t=[100])}).document
    assert document.starting == "latest"
    assert document.clusters["c"].starting == initializer_to_json(COMMITTED)


def test_partitions_with_one_question_are_asked_together() -> None:
    """A cluster gets one request for each initializer and purpose, not one for each partition."""
    query = Query(LATEST, stopping=LATEST)
    own = wants("t", starting=EARLIEST, stopping=EARLIEST)
    desired = {"c": wants("t", "u"), "d": wants("t"), "e": own}
    query.look(desired, {"c": view(t=[9, 9], u=[9]), "d": view("kd", t=[9, 9]), "e": view("ke", t=[9, 9])})
    all_of_t = (TP("t", 0), TP("t", 1))
    assert sorted((r.cluster, r.purpose, r.initializer == LATEST, r.partitions) for r in query.asked) == [
        ("c", "start", True, (*all_of_t, TP("u", 0))),
        ("c", "stop", True, (*all_of_t, TP("u", 0))),
        ("d", "start", True, all_of_t),
        ("d", "stop", True, all_of_t),
        ("e", "start", False, all_of_t),
        ("e", "stop", False, all_of_t),
    ]


def test_partitions_with_several_questions_are_asked_apart() -> None:
    """One waits since the first start, and one is new."""
    query = Query(LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[9, None])})
    query.look({"c": wants("t")}, {"c": view(t=[9, 9, 9])})
    assert [(r.initializer, r.partitions) for r in query.asked] == [
        (KafkaOffsetsInitializer.timestamp(1_000), (TP("t", 1),)),
        (EARLIEST, (TP("t", 2),)),
    ]


def test_only_the_assigned_partitions_are_read() -> None:
    """`assign` names partitions; others of the same topic are not read."""
    query = Query()
    query.look({"c": wants("t", partitions=frozenset({("t", 1)}))}, {"c": view(t=[5, 5, 5])})
    assert query.positions() == {("t", 1): 0}


def test_assigned_partitions_that_do_not_exist_are_named() -> None:
    """Those of a topic that is not known itself are not: they may exist."""
    query = Query()
    assigned = frozenset({TP("t", 1), TP("t", 2), TP("u", 0)})
    query.look({"c": wants("t", "u", partitions=assigned)}, {"c": view(t=[5, 5])})
    (said,) = query.said
    assert said.startswith("warning: Cluster 'c', topic 't', partition 2 does not exist yet")


@pytest.mark.parametrize(
    ("first_start", "own", "position"),
    [(True, None, 1_000), (True, EARLIEST, 0), (False, None, 0), (False, LATEST, 1_000), (False, COMMITTED, 51)],
)
def test_listed_topic_unknown_at_the_first_discovery_starts_like_its_cluster(
    first_start: bool,  # noqa: FBT001
    own: KafkaOffsetsInitializer | None,
    position: int,
) -> None:
    """A broker that has just started may not know it for a moment: `latest` is bound to the time of the discovery."""
    query = Query(LATEST)
    desired = {"c": wants("t", "u", starting=own)}
    if not first_start:
        query.look({}, {})
    query.look(desired, {"c": view(t=[100])})
    assert not query.said
    assert not query.look(desired, {"c": view(t=[100])}).changed
    query.look(desired, {"c": view(t=[100], u=[9, None])})
    assert query.positions()[TP("u", 0)] == position
    query.look(desired, {"c": view(t=[100], u=[9, 9])})
    assert query.positions()[TP("u", 1)] == position
    query.look(desired, {"c": view(t=[100], u=[9, 9, 9])})
    assert query.positions()[TP("u", 2)] == 0


def test_partition_without_leader_does_not_end_the_query_by_a_strict_start_time() -> None:
    """It may have no record at or after the time, which is an error only at the first start."""
    strict = PartitionTimestamps({}, default_ms=7, strict=True)
    query = Query(strict)
    query.look({"c": wants("t")}, {"c": view(t=[100, None])})
    assert [request.initializer for request in query.asked] == [strict]
    query.look({"c": wants("t")}, {"c": view(t=[100, 100])})
    assert [request.initializer for request in query.asked] == [replace(strict, strict=False)]


def test_partition_without_leader_is_not_asked_for_its_stop() -> None:
    """One question that cannot be answered would hold up the answers of all others."""
    query = Query(stopping=LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100, 100])})
    query.look({}, {"c": view(t=[100, 100])})
    query.look({"c": wants("t")}, {"c": view(t=[100, None])})
    assert [(request.purpose, request.partitions) for request in query.asked] == [("stop", (TP("t", 0),))]


def test_a_stream_that_vanished_is_named() -> None:
    """With a fresh answer only."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view(t=[10])})
    result = reconcile(query.document, SourceSnapshot({}, {}, {}, fresh=True), query.policy, OffsetAnswers(), 1)
    assert ("warning", "Stream 's' is no longer described by the metadata service") in result.events


def test_expiry_only_after_a_fresh_answer() -> None:
    """A service that is down proves nothing; an answer that lacks it does."""
    query = Query()
    query.look({"c": wants("t", "u")}, {"c": view(t=[100], u=[1])})
    query.look({"c": wants("t")}, {"c": view(t=[100], u=[1])})
    query.now_ms += 8 * DAY_MS
    desired, views = {"c": wants("t")}, {"c": view(t=[100], u=[1])}
    assert "u" in query.look(desired, views, fresh=False).document.clusters["c"].retained
    result = query.look(desired, views)
    assert result.document.clusters["c"].retained == {}
    assert query.said == ["info: Cluster 'c', topic 'u': its retained positions expired"]
    assert result.changed, "an idle query forgets them, too"
    assert not query.look(desired, views).changed


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("polls", [0, 1, 10])
def test_what_comes_back_after_its_retention_is_new_if_an_answer_lacked_it(busy: bool, polls: int) -> None:  # noqa: FBT001
    """It makes no difference whether there were records to read meanwhile. Without such an answer it is resumed."""
    query = Query(retention_ms=DAY_MS)
    both = {"c": wants("t"), "d": wants("u")}
    query.look(both, {"c": view(t=[100]), "d": view("kd", u=[100])})
    query.read("c", TP("t", 0), 100)
    query.look({"d": wants("u")}, {"c": view(t=[100]), "d": view("kd", u=[100])})
    query.now_ms += DAY_MS
    for _ in range(polls):
        found = query.look({"d": wants("u")}, {"d": view("kd", u=[100])})
        if busy:  # Spark logs the document with what it reads; while the query idles, it logs only one that was changed
            query.document = found.document
    query.look(both, {"c": view(t=[300]), "d": view("kd", u=[100])})
    assert query.positions() == {("t", 0): 0 if polls else 100}


def test_expiry_not_before_its_time() -> None:
    """A millisecond earlier it is still there."""
    query = Query(retention_ms=DAY_MS)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    query.look({}, {"c": view(t=[100])})
    query.now_ms += DAY_MS - 1
    assert query.look({}, {}).document.clusters["c"].retained
    query.now_ms += 1
    assert query.look({}, {}).document.clusters == {}


@pytest.mark.parametrize("retention_ms", [7 * DAY_MS, 0])
def test_renamed_physical_cluster_is_no_error_after_the_retention(retention_ms: int) -> None:
    """Nothing of the old cluster is wanted any more; an idle query may have had no batch that forgot it."""
    query = Query(LATEST)
    query.look({"c": wants("t")}, {"c": view("first", t=[100])})
    query.look({}, {"c": view("first", t=[100])})
    query.now_ms += 8 * DAY_MS if retention_ms else 0
    query.policy = replace(query.policy, retention_ms=retention_ms)
    query.look({"c": wants("t")}, {"c": view("second", t=[100])})
    assert query.positions() == {("t", 0): 0}
    assert query.document is not None
    assert query.document.clusters["c"].kafka_id == "second"


def renamed(**policy: object) -> Query:
    """A query that has read 40 of 100 offsets of topic `t` on cluster `old`, Kafka's `k`."""
    query = Query(**policy)  # type: ignore[arg-type]  # only for brevity
    query.look({"old": wants("t")}, {"old": view(t=[100])})
    query.read("old", TP("t", 0), 40)
    return query


@pytest.mark.parametrize("policy", [{}, {"retention_ms": 0}, {"drain": True}, {"retention_ms": 0, "drain": True}])
def test_a_new_name_that_answers_late_is_waited_for(policy: Mapping[str, object]) -> None:
    """The old name leaves with the same answer of the service that brings the new one: it is neither cut nor drained."""
    query = renamed(**policy)
    desired = {"new": wants("t", starting=LATEST)}
    for _ in range(3):
        query.look(desired, {"old": view(t=[100])}, quiet={("old", "t")}, inactive={"old"})
        assert query.positions("old") == {("t", 0): 40}
        (said,) = query.said
        assert said.startswith("info: Cluster 'old' is not in the metadata any more. It is removed once 'new' has")
        assert said.endswith("because that may be the same cluster under another name")
    query.look(desired, {"new": view(t=[100])})
    assert query.positions("new") == {("t", 0): 40}


def test_a_new_name_is_waited_for_only_if_it_may_be_the_same_cluster() -> None:
    """Not by a cluster that has told its identity, has no positions, or is in the metadata itself."""
    query = Query()
    views = {"a": view("ka", t=[5]), "c": view(t=[5]), "d": view(t=[5], u=[5])}
    query.look({"a": wants("t"), "c": wants("t")}, views)
    query.look({"a": wants("t"), "new": wants("t")}, views)
    assert query.heard("info", "'c' is not in the metadata any more", "once 'new' has answered")
    query.look({"a": wants("t"), "d": wants("u"), "new": wants("t")}, views)
    assert query.heard("warning", "'c', topic 't' was removed")
    query.look({"a": wants("t"), "new": wants("t")}, {"a": views["a"]})
    query.look({"d": wants("u"), "new": wants("t")}, {**views, "new": view("kn", t=[1])})
    query.look({"d": wants("u"), "newer": wants("t")}, {"d": views["d"]})
    assert not query.heard("'a' is not in the metadata any more"), "it has retained positions only"


@pytest.mark.parametrize(("one", "other"), [(1_000, 2_000), (2_000, 1_000)])
def test_of_two_retained_positions_the_newer_one_counts(one: int, other: int) -> None:
    """Two names had the topic one after the other; what was read in between must not be read again."""
    query = Query()
    query.document = Document(
        clusters={
            "c": ClusterOffsets("k", retained={"t": RetainedTopic("id-t", one, {0: one // 100})}),
            "d": ClusterOffsets("k", retained={"t": RetainedTopic("id-t", other, {0: other // 100})}),
        }
    )
    query.look({"m": wants("t")}, {"m": view(t=[100])})
    assert query.positions("m") == {("t", 0): 20}


def test_a_position_that_is_read_counts_more_than_a_retained_one() -> None:
    """The retained one is older, and is forgotten."""
    query = renamed()
    assert query.document is not None
    query.document.clusters["d"] = ClusterOffsets("k", retained={"t": RetainedTopic("id-t", 500, {0: 10})})
    query.look({"d": wants("t")}, {"d": view(t=[100])})
    assert query.positions("d") == {("t", 0): 40}
    assert query.said == [
        "info: Cluster 'd' is the cluster that was 'old' (cluster.id k): reading continues where it stopped"
    ]
    assert query.document.clusters["d"].retained == {}


def test_a_topic_that_two_names_read_keeps_one_position() -> None:
    """A checkpoint may hold two if one name did not tell its cluster.id. The other one is cut, with a warning."""
    query = Query()
    seen = view(t=[100], v=[100])
    query.look({"c": wants("t"), "d": wants("v")}, {"c": seen, "d": seen})
    assert query.document is not None
    query.document.clusters["d"].topics["t"] = "id-t"
    query.document.clusters["d"].ranges[TP("t", 0)] = (30, 30)
    query.look({"c": wants("t"), "d": wants("v")}, {"c": seen, "d": seen})
    assert query.heard("warning", "'d', topic 't' was removed; 70 records are left unread")
    assert query.positions("c")[TP("t", 0)] == 0


@pytest.mark.parametrize("first", ["a", "b"])
def test_two_names_may_change_places(first: str) -> None:
    """Until both have answered, the one that leads elsewhere waits: its offsets belong to the other one."""
    query = Query(retention_ms=0)
    desired = {name: replace(wants("t"), properties={"client.id": "before"}) for name in "ab"}
    before = {"a": view("ka", t=[100]), "b": view("kb", t=[200])}
    query.look(desired, before)
    desired = {name: replace(wants("t"), properties={"client.id": "after"}) for name in "ab"}
    query.read("a", TP("t", 0), 40)
    query.read("b", TP("t", 0), 50)
    after = {"a": before["b"], "b": before["a"]}
    result = query.look(desired, {first: after[first]})
    assert query.heard("warning", f"'{first}' leads to Kafka cluster.id", "It waits until")
    assert result.document.clusters[first].properties == {"client.id": "before"}, "those of the cluster it stands for"
    assert first not in result.views, "or its positions would be compared with the ends of another cluster"
    assert (query.positions("a"), query.positions("b")) == ({("t", 0): 40}, {("t", 0): 50})
    query.look(desired, after)
    assert (query.positions("a"), query.positions("b")) == ({("t", 0): 50}, {("t", 0): 40})
    assert query.said == [
        f"info: Cluster '{new}' is the cluster that was '{old}' (cluster.id {kafka_id}): reading continues where it stopped"
        for old, new, kafka_id in (("a", "b", "ka"), ("b", "a", "kb"))
    ]


def test_a_name_waits_also_for_a_name_that_waits() -> None:
    """Cluster a seems to be found as b, but b waits itself for c. Nobody can say yet where b's own positions belong."""
    query = Query(retention_ms=0)
    desired = {name: wants("t") for name in "abc"}
    seen = {name: view(f"k{name}", t=[100]) for name in "abc"}
    query.look(desired, seen)
    for name, end in (("a", 10), ("b", 20), ("c", 30)):
        query.read(name, TP("t", 0), end)
    query.look({**desired, "new": wants("t")}, {"a": seen["c"], "b": seen["a"]})
    assert [query.positions(name)[TP("t", 0)] for name in "abc"] == [10, 20, 30]
    assert query.heard("'a' leads to", "until 'b', 'c', 'new' has answered")
    assert query.heard("'b' leads to", "until 'c', 'new' has answered")
    assert not query.heard("is not in the metadata any more")
    query.look(desired, {"a": seen["c"], "b": seen["a"], "c": seen["b"]})
    assert [query.positions(name)[TP("t", 0)] for name in "abc"] == [30, 10, 20]


def test_an_end_that_went_backwards_is_the_new_position_if_data_loss_is_tolerated() -> None:
    """What is written from its lowest end on is read; the document says that the chain is broken."""
    query = Query(fail_on_data_loss=False)
    query.look({"c": wants("t")}, {"c": view(t=[10])})
    query.read("c", TP("t", 0), 10)
    result = query.look({"c": wants("t")}, {"c": view(t=[8])}, regressed={("c", TP("t", 0)): 6})
    assert query.positions() == {("t", 0): 6}
    assert result.document.clusters["c"].resets == {("t", 0)}
    query.look({"c": wants("t")}, {"c": view(t=[7])}, regressed={("c", TP("t", 0)): 6})
    assert query.positions() == {("t", 0): 6}


def test_stops_of_a_version_that_kept_them_for_ever_are_dropped() -> None:
    """Its documents hold stops, and no option that made them."""
    query = Query(stopping=LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    assert query.document is not None
    query.document.clusters["c"].stopping = None
    query.policy = replace(query.policy, stopping=None)
    query.look({"c": wants("t")}, {"c": view(t=[500])})
    assert query.document.clusters["c"].stops == {}


def test_turns_are_remembered_for_the_clusters_that_are_read() -> None:
    """Else those at the end of the list would starve under a small limit; packing stays as it was, too."""
    query = Query()
    desired, views = {"c": wants("t"), "d": wants("t")}, {"c": view(t=[9]), "d": view("kd", t=[9])}
    query.look(desired, views)
    assert query.document is not None
    turns = {name: TP("t", 0) for name in ("c", "gone")}
    query.document.cursor, query.document.packing = Cursor("d", turns), Packing(7, 2)
    document = query.look(desired, views).document
    assert document.cursor == Cursor("d", {"c": TP("t", 0)})
    assert document.packing == Packing(7, 2)


def test_changed_properties_ride_with_the_next_batch() -> None:
    """They are in the next document, and no reason for one."""
    query = Query()
    query.look({"c": DesiredCluster(frozenset({"t"}), {"bootstrap.servers": "old:1"})}, {"c": view(t=[5])})
    result = query.look({"c": DesiredCluster(frozenset({"t"}), {"bootstrap.servers": "new:1"})}, {"c": view(t=[5])})
    assert not result.changed
    assert result.document.clusters["c"].properties == {"bootstrap.servers": "new:1"}


def test_the_document_says_what_streams_want() -> None:
    """In short where a stream's topics are all that the document names anyway."""
    query = Query()
    document = query.look({"c": wants("t"), "d": wants("t", "missing")}, {"c": view(t=[5]), "d": view("kd", t=[5])})
    assert document.document.streams == {"s": {"c": None, "d": frozenset({"t", "missing"})}}

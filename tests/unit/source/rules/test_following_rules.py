"""Following the metadata: each change that `reconcile` decides about."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from dynamic_kafka.errors import CheckpointError, DataLossError
from dynamic_kafka.initializer import (
    KafkaOffsetResetStrategy,
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
    Reconciled,
)
from dynamic_kafka.source.rules.reconcile import reconcile
from dynamic_kafka.source.settings import SourceSettings

TP = KafkaTopicPartition
EARLIEST = KafkaOffsetsInitializer.earliest()
LATEST = KafkaOffsetsInitializer.latest()
COMMITTED = KafkaOffsetsInitializer.committed_offsets()
DAY_MS = 24 * 3600 * 1000

Oracle = Callable[[OffsetRequest, TP], int]


def view(kafka_id: str = "k", /, **topics: list[int | None]) -> ClusterView:
    """A cluster with these topics; for each partition its end, or None without a leader. Topic ids are `id-<topic>`."""
    return ClusterView(
        kafka_id,
        {topic: f"id-{topic}" for topic in topics},
        {topic: len(ends) for topic, ends in topics.items()},
        {TP(topic, p): end for topic, ends in topics.items() for p, end in enumerate(ends) if end is not None},
    )


def missing(seen: ClusterView, *topics: str, **last_ends: list[int]) -> ClusterView:
    """The same cluster, which says for certain that some topics do not exist; their last known ends."""
    ends = {TP(topic, p): end for topic, some in last_ends.items() for p, end in enumerate(some)}
    return replace(seen, missing=frozenset({*topics, *last_ends}), last_ends=ends)


def made_again(seen: ClusterView, topic: str) -> ClusterView:
    """The same cluster, with another topic under the old name."""
    return replace(seen, topics={**seen.topics, topic: "id-new"})


def wants(*topics: str, **more: object) -> DesiredCluster:
    """These topics, and no property."""
    return DesiredCluster(frozenset(topics), {}, **more)  # type: ignore[arg-type]  # only for brevity


def oracle(request: OffsetRequest, tp: TP) -> int:
    """Answers that show by which initializer they came."""
    if request.initializer == EARLIEST:
        return 0
    if request.initializer == LATEST:
        return 100
    if request.initializer == COMMITTED:
        return 50
    if request.initializer == KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST):
        return 51
    return 60  # by time


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
        inactive: Collection[str] = (),
        quiet: Collection[tuple[str, str]] = (),
        regressed: Mapping[tuple[str, TP], int] = MappingProxyType({}),
    ) -> Reconciled:
        """One call, as the enumerator makes it: again until no question that would be answered is open."""
        answers = OffsetAnswers()
        self.asked = []
        before = copy.deepcopy(self.document)
        for _ in range(5):
            result = reconcile(
                self.document,
                {"s": {name: w.topics for name, w in desired.items()}},
                desired,
                views,
                policy=self.policy,
                answers=answers,
                now_ms=self.now_ms,
                fresh=fresh,
                inactive=inactive,
                quiet=quiet,
                regressed=regressed,
            )
            requests = [request for request in result.requests if request.cluster not in silent]
            if not requests:
                break
            self.asked += requests
            for request in requests:
                kind = answers.start if request.purpose == "start" else answers.stop
                kind.update({(request.cluster, tp): oracle(request, tp) for tp in request.partitions})
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


# --- clusters of the first snapshot -------------------------------------------------------------------------------


def test_clusters_of_the_first_snapshot_start_by_their_own_initializer_else_the_global_one() -> None:
    """The cluster's own starting offsets win."""
    query = Query(LATEST)
    query.look({"c": wants("t"), "d": wants("t", starting=EARLIEST)}, {"c": view(t=[100]), "d": view("kd", t=[100])})
    assert query.positions("c") == {("t", 0): 100}
    assert query.positions("d") == {("t", 0): 0}


def test_clusters_of_the_first_snapshot_committed_is_asked_strictly() -> None:
    """At a first start a missing commit is the user's to know: the reset stays `none`."""
    query = Query(COMMITTED)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    assert [request.initializer for request in query.asked] == [COMMITTED]


def test_latest_is_frozen_by_the_first_document() -> None:
    """An idle partition keeps its position; nothing is asked again."""
    query = Query(LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    result = query.look({"c": wants("t")}, {"c": view(t=[200])})
    assert (query.asked, result.changed, query.positions()) == ([], False, {("t", 0): 100})


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
    assert {(r.initializer, r.partitions) for r in query.asked} == {
        (KafkaOffsetsInitializer.timestamp(1_000), (TP("t", 1),)),
        (EARLIEST, (TP("t", 2),)),
    }


# --- cluster found later ------------------------------------------------------------------------------------------


def test_cluster_found_later_starts_earliest() -> None:
    """With a global `latest` what was written before the discovery would be lost."""
    query = Query(LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    query.look({"c": wants("t"), "d": wants("t")}, {"c": view(t=[100]), "d": view("kd", t=[100])})
    assert query.positions("d") == {("t", 0): 0}
    assert query.positions("c") == {("t", 0): 100}


def test_cluster_found_later_starts_by_its_own_initializer() -> None:
    """Its own starting offsets hold also then."""
    query = Query()
    query.look({}, {})
    query.look({"d": wants("t", starting=LATEST)}, {"d": view(t=[100])})
    assert query.positions("d") == {("t", 0): 100}


def test_cluster_found_later_committed_without_a_commit_starts_earliest() -> None:
    """It does not kill the query: the question carries the reset."""
    query = Query()
    query.look({}, {})
    query.look({"d": wants("t", starting=COMMITTED)}, {"d": view(t=[100])})
    assert query.positions("d") == {("t", 0): 51}


def test_cluster_found_later_that_answers_late_is_still_found_later() -> None:
    """Nothing is guessed while it is silent; it starts earliest once it answers."""
    query = Query(LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    desired, views = {"c": wants("t"), "d": wants("t")}, {"c": view(t=[100]), "d": view("kd", t=[100])}
    query.look(desired, {"c": views["c"]})
    query.look(desired, views, silent={"d"})
    query.look(desired, views)
    assert query.positions("d") == {("t", 0): 0}


def test_cluster_found_later_that_is_away_binds_its_latest_to_the_discovery() -> None:
    """The records of the outage are read, as after an outage at the first start; its time is in the document."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    desired = {"c": wants("t"), "d": wants("t", starting=LATEST)}
    query.now_ms = 7_000
    assert query.look(desired, {"c": view(t=[100])}).changed
    query.now_ms = 99_000
    assert not query.look(desired, {"c": view(t=[100])}).changed
    query.look(desired, {"c": view(t=[100]), "d": view("kd", t=[100])})
    assert [request.initializer for request in query.asked] == [KafkaOffsetsInitializer.timestamp(7_000)]


@pytest.mark.parametrize(
    ("own", "position"), [(None, 0), (EARLIEST, 0), (LATEST, 60), (COMMITTED, 51)], ids=["none", "e", "l", "c"]
)
def test_cluster_found_later_partition_without_leader(own: KafkaOffsetsInitializer | None, position: int) -> None:
    """A partition that gets its leader after the discovery starts by the same rule as the others of its cluster."""
    query = Query(LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    desired = {"c": wants("t"), "d": wants("t", starting=own)}
    query.look(desired, {"c": view(t=[100]), "d": view("kd", t=[100, None])})
    assert set(query.positions("d")) == {("t", 0)}
    query.look(desired, {"c": view(t=[100]), "d": view("kd", t=[100, 100])})
    assert query.positions("d")[TP("t", 1)] == position


# --- new topic or partition ---------------------------------------------------------------------------------------


def test_new_topic_on_a_known_cluster_starts_earliest() -> None:
    """Whatever the initializers say."""
    query = Query(LATEST)
    query.look({"c": wants("t", starting=LATEST)}, {"c": view(t=[100])})
    query.look({"c": wants("t", "u", starting=LATEST)}, {"c": view(t=[100], u=[7])})
    assert query.positions() == {("t", 0): 100, ("u", 0): 0}


def test_new_partition_on_a_known_cluster_starts_earliest() -> None:
    """Also if it has no leader when it is first seen."""
    query = Query(LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    query.look({"c": wants("t")}, {"c": view(t=[100, None, 100])})
    assert query.positions() == {("t", 0): 100, ("t", 2): 0}
    query.look({"c": wants("t")}, {"c": view(t=[100, 100, 100])})
    assert query.positions() == {("t", 0): 100, ("t", 1): 0, ("t", 2): 0}


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


# --- listed topic not on the broker yet -----------------------------------------------------------------------------


def test_listed_topic_missing_is_a_warning_then_earliest() -> None:
    """The query goes on with the other topics, and reads this one from its start once it is there."""
    query = Query(LATEST)
    query.look({"c": wants("a", "t")}, {"c": missing(view(t=[100]), "a")})
    assert query.positions() == {("t", 0): 100}
    assert query.heard("warning", "'c'", "'a'", "does not exist yet")
    query.look({"c": wants("a", "t")}, {"c": view(t=[100], a=[9])})
    assert query.positions() == {("t", 0): 100, ("a", 0): 0}
    assert not query.said


def test_listed_topic_missing_is_no_reason_for_a_batch() -> None:
    """The document is returned verbatim while nothing changes."""
    query = Query()
    query.look({"c": wants("t", "u")}, {"c": missing(view(t=[100]), "u")})
    assert not query.look({"c": wants("t", "u")}, {"c": missing(view(t=[100]), "u")}).changed


@pytest.mark.parametrize(
    ("first_start", "own", "position"),
    [(True, None, 60), (True, EARLIEST, 0), (False, None, 0), (False, LATEST, 60), (False, COMMITTED, 51)],
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


def test_listed_topic_unknown_at_the_first_discovery_starts_earliest_once_it_is_known_to_be_missing() -> None:
    """Then it is a new topic, whatever the time of its records."""
    query = Query(LATEST)
    query.look({"c": wants("t", "u")}, {"c": view(t=[100])})
    assert query.look({"c": wants("t", "u")}, {"c": missing(view(t=[100]), "u")}).changed
    query.look({"c": wants("t", "u")}, {"c": view(t=[100], u=[9])})
    assert query.positions() == {("t", 0): 100, ("u", 0): 0}


def test_listed_topic_unknown_at_the_first_discovery_waits_for_its_answer() -> None:
    """As long as the cluster does not say where it starts, the time of the discovery is kept."""
    query = Query(LATEST)
    desired = {"c": wants("t", "u")}
    query.look(desired, {"c": view(t=[100])})
    query.look(desired, {"c": view(t=[100], u=[9])}, silent={"c"})
    query.now_ms = 99_000
    query.look(desired, {"c": view(t=[100], u=[9])})
    assert [request.initializer for request in query.asked] == [KafkaOffsetsInitializer.timestamp(1_000)]


def test_listed_topic_unknown_after_the_first_discovery_starts_earliest() -> None:
    """It is a new topic of a known cluster, whenever its brokers show it."""
    query = Query()
    query.look({"c": wants("t", starting=LATEST)}, {"c": view(t=[100])})
    query.look({"c": wants("t", "u", starting=LATEST)}, {"c": view(t=[100, 1])})
    query.look({"c": wants("t", "u", starting=LATEST)}, {"c": view(t=[100, 1], u=[9])})
    assert query.positions() == {("t", 0): 100, ("t", 1): 0, ("u", 0): 0}


def test_listed_topic_that_may_not_be_seen_is_a_warning() -> None:
    """It is not called missing, and is read by the starting offsets once it may be seen."""
    query = Query(LATEST)
    query.look({"c": wants("t", "u")}, {"c": replace(view(t=[100]), denied=frozenset({"u"}))})
    assert query.heard("warning", "'u' is not visible to this user")
    query.look({"c": wants("t", "u")}, {"c": view(t=[100], u=[9])})
    assert query.positions() == {("t", 0): 100, ("u", 0): 60}


# --- partition without leader ---------------------------------------------------------------------------------------


def test_partition_without_leader_waits_and_others_go_on() -> None:
    """Later `latest` means the time of the first start, so that what came in between is read."""
    query = Query(LATEST)
    desired = {"c": wants("t")}
    query.look(desired, {"c": view(t=[100, None])})
    assert query.positions() == {("t", 0): 100}
    query.now_ms = 99_000
    assert not query.look(desired, {"c": view(t=[100, None])}).changed
    query.look(desired, {"c": view(t=[100, 100])})
    assert [request.initializer for request in query.asked] == [KafkaOffsetsInitializer.timestamp(1_000)]
    assert query.positions() == {("t", 0): 100, ("t", 1): 60}
    assert query.document is not None
    assert not query.document.clusters["c"].unresolved


@pytest.mark.parametrize("starting", [EARLIEST, KafkaOffsetsInitializer.timestamp(7)])
def test_partition_without_leader_starts_by_the_initializer_if_time_does_not_change_it(
    starting: KafkaOffsetsInitializer,
) -> None:
    """Only `latest` is bound to a time."""
    query = Query(starting)
    query.look({"c": wants("t")}, {"c": view(t=[100, None])})
    query.look({"c": wants("t")}, {"c": view(t=[100, 100])})
    assert [request.initializer for request in query.asked] == [starting]


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


def test_partition_that_loses_its_leader_keeps_its_position() -> None:
    """A position that is known is never asked for again."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view(t=[100, 100])})
    assert not query.look({"c": wants("t")}, {"c": view(t=[100, None])}).changed
    assert query.positions() == {("t", 0): 0, ("t", 1): 0}


# --- unreachable at first start ---------------------------------------------------------------------------------------


def test_unreachable_at_first_start_latest_is_timestamp_t() -> None:
    """The outage's records are not lost."""
    query = Query(LATEST)
    desired = {"c": wants("t"), "d": wants("t")}
    query.look(desired, {"c": view(t=[100])})
    query.now_ms = 99_000
    query.look(desired, {"c": view(t=[100]), "d": view("kd", t=[100])})
    assert [request.initializer for request in query.asked] == [KafkaOffsetsInitializer.timestamp(1_000)]
    assert query.positions("d") == {("t", 0): 60}
    query.look(desired, {"c": view(t=[100]), "d": view("kd", t=[100], u=[5])})
    assert query.asked == []


def test_unreachable_at_first_start_a_later_topic_starts_earliest() -> None:
    """T is forgotten with the first discovery."""
    query = Query(LATEST)
    query.look({"d": wants("t")}, {})
    query.look({"d": wants("t")}, {"d": view(t=[100])})
    query.look({"d": wants("t", "u")}, {"d": view(t=[100], u=[100])})
    assert query.positions("d") == {("t", 0): 60, ("u", 0): 0}


def test_unreachable_at_first_start_other_initializers_stay() -> None:
    """Its own, else the global one: it was there from the beginning."""
    query = Query(KafkaOffsetsInitializer.timestamp(7))
    desired = {"d": wants("t"), "e": wants("t", starting=COMMITTED)}
    query.look(desired, {})
    query.look(desired, {"d": view("kd", t=[100]), "e": view("ke", t=[100])})
    assert [request.initializer for request in query.asked] == [KafkaOffsetsInitializer.timestamp(7), COMMITTED]


def test_a_first_start_that_is_only_half_answered_is_bound_to_its_time() -> None:
    """A cluster that is seen but does not say where to start also has `latest` as of T."""
    query = Query(LATEST)
    desired, views = {"c": wants("t"), "d": wants("t")}, {"c": view(t=[100]), "d": view("kd", t=[100])}
    query.look(desired, views, silent={"d"})
    query.now_ms = 99_000
    query.look(desired, views)
    assert [request.initializer for request in query.asked] == [KafkaOffsetsInitializer.timestamp(1_000)]


# --- isolate ------------------------------------------------------------------------------------------------------


def test_isolate_a_cluster_that_is_away_keeps_its_positions() -> None:
    """Nothing is asked of it, the others go on, and it is no reason for a batch."""
    query = Query()
    desired = {"c": wants("t"), "d": wants("t")}
    query.look(desired, {"c": view(t=[100]), "d": view("kd", t=[100])})
    query.read("d", TP("t", 0), 40)
    result = query.look(desired, {"c": view(t=[200])})
    assert (result.changed, query.asked) == (False, [])
    assert query.positions("d") == {("t", 0): 40}
    query.look(desired, {"c": view(t=[200]), "d": view("kd", t=[200])})
    assert query.positions("d") == {("t", 0): 40}


def test_isolate_health_is_not_in_the_document_of_a_finished_query() -> None:
    """Once all stops are reached, a cluster that comes and goes makes no batch after the other."""
    query = Query(stopping=LATEST)
    desired, views = {"c": wants("t"), "d": wants("t")}, {"c": view(t=[100]), "d": view("kd", t=[100])}
    query.look(desired, views)
    query.read("c", TP("t", 0), 100)
    query.read("d", TP("t", 0), 100)
    assert query.look(desired, views).document.done
    assert not query.look(desired, {"c": views["c"]}).changed
    assert not query.look(desired, views).changed


# --- removal ------------------------------------------------------------------------------------------------------


def test_cluster_removed_is_cut_with_the_count_of_unread_records() -> None:
    """The warning names cluster and topic, and the positions are retained."""
    query = Query()
    query.look({"c": wants("t"), "d": wants("t")}, {"c": view(t=[10]), "d": view("kd", t=[100, 50])})
    query.read("d", TP("t", 0), 70)
    query.look({"c": wants("t")}, {"c": view(t=[10]), "d": view("kd", t=[100, 50])})
    assert query.heard("warning", "'d'", "'t'", "removed", "80 records")
    assert query.document is not None
    assert query.document.clusters["d"].ranges == {}
    assert query.document.clusters["d"].retained["t"].offsets == {0: 70, 1: 0}
    assert query.document.clusters["d"].retained["t"].since_ms == query.now_ms


def test_topic_removed_is_cut_and_the_others_go_on() -> None:
    """A topic leaves like a cluster."""
    query = Query()
    query.look({"c": wants("t", "u")}, {"c": view(t=[10], u=[10])})
    query.look({"c": wants("t")}, {"c": view(t=[10], u=[10])})
    assert query.positions() == {("t", 0): 0}
    assert query.heard("warning", "'u'", "10 records")


def test_topic_removed_after_it_was_read_is_no_warning() -> None:
    """Nothing is left unread."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view(t=[10])})
    query.read("c", TP("t", 0), 10)
    query.look({}, {"c": view(t=[10])})
    assert query.said == ["info: Cluster 'c', topic 't' was removed; 0 records are left unread"]


def test_cluster_removed_while_away_leaves_an_unknown_number() -> None:
    """It may answer yet; once it counts as gone it is cut all the same, and the warning does not guess."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view(t=[10])})
    assert not query.look({}, {}).changed
    query.look({}, {}, inactive={"c"})
    assert query.heard("warning", "an unknown number of records are left unread")


@pytest.mark.parametrize(
    ("last_ends", "left"), [({}, "an unknown number of"), ({TP("t", 1): 30}, "at least 30")], ids=["unknown", "known"]
)
def test_topic_removed_while_a_partition_has_no_leader_does_not_guess(last_ends: dict[TP, int], left: str) -> None:
    """What it holds is unknown, or at least what it held."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view(t=[10, 10, 10])})
    query.read("c", TP("t", 0), 10)
    query.read("c", TP("t", 2), 10)
    query.look({}, {"c": replace(view(t=[10, None, 10]), last_ends=last_ends)})
    assert query.said == [f"warning: Cluster 'c', topic 't' was removed; {left} records are left unread"]


def test_topic_removed_before_a_partition_had_a_leader_does_not_guess() -> None:
    """Nobody knows what that partition holds, and its wait for a start ends with the topic. Other topics wait on."""
    query = Query(LATEST)
    query.look({"c": wants("t", "u")}, {"c": view(t=[None, 10], u=[None])})
    query.look({"c": wants("u")}, {"c": view(t=[10, 10], u=[None])})
    assert query.heard("warning", "topic 't' was removed; an unknown number of records are left unread")
    assert query.document is not None
    assert query.document.clusters["c"].unresolved == {("u", 0): 1_000}


def test_removed_with_retention_0_is_forgotten() -> None:
    """As in Flink: it comes back as a cluster found later."""
    query = Query(LATEST, retention_ms=0)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    query.look({}, {"c": view(t=[100])})
    assert query.document is not None
    assert query.document.clusters == {}
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    assert query.positions() == {("t", 0): 0}


def test_everything_removed_idles() -> None:
    """The query stays alive with its retained positions, and goes on when something comes."""
    query = Query()
    query.look({"c": wants("t"), "d": wants("u")}, {"c": view(t=[10]), "d": view("kd", u=[10])})
    query.look({}, {"c": view(t=[10]), "d": view("kd", u=[10])})
    assert query.document is not None
    assert {name: set(c.retained) for name, c in query.document.clusters.items()} == {"c": {"t"}, "d": {"u"}}
    assert not query.look({}, {}).changed
    query.look({"d": wants("u")}, {"d": view("kd", u=[20])})
    assert query.positions("d") == {("u", 0): 0}


def test_a_stream_that_vanished_is_named() -> None:
    """With a fresh answer only."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view(t=[10])})
    result = reconcile(query.document, {}, {}, {}, policy=query.policy, answers=OffsetAnswers(), now_ms=1, fresh=True)
    assert ("warning", "Stream 's' is no longer described by the metadata service") in result.events


# --- draining -----------------------------------------------------------------------------------------------------


def drained_query() -> Query:
    """A query with a topic that is being drained, at offset 4 of 10."""
    query = Query(drain=True)
    query.look({"c": wants("t")}, {"c": view(t=[10])})
    query.read("c", TP("t", 0), 4)
    query.look({}, {"c": view(t=[10])})
    assert query.document is not None
    assert query.document.clusters["c"].draining == {"t"}
    return query


def test_drain_until_quiet() -> None:
    """It is read on although it is not wanted, and cut without loss once the caller calls it quiet."""
    query = drained_query()
    assert not query.look({}, {"c": view(t=[10])}).changed
    query.read("c", TP("t", 0), 12)
    query.look({}, {"c": view(t=[12])}, quiet={("c", "t")})
    assert query.said == ["info: Cluster 'c', topic 't' was drained; 0 records are left unread"]
    assert query.document is not None
    assert query.document.clusters["c"].retained["t"].offsets == {0: 12}
    assert query.document.clusters["c"].draining == frozenset()


def test_drain_each_topic_by_itself() -> None:
    """One is cut when it is quiet, one is back, and one is read on."""
    query = Query(drain=True)
    query.look({"c": wants("t", "u", "v")}, {"c": view(t=[10], u=[10], v=[10])})
    query.look({}, {"c": view(t=[10], u=[10], v=[10])})
    assert query.said == [f"info: Cluster 'c', topic '{t}' was removed; draining 10 records" for t in "tuv"]
    assert query.document is not None
    assert query.document.clusters["c"].draining == {"t", "u", "v"}
    query.look({"c": wants("u")}, {})
    assert query.said == ["info: Cluster 'c', topic 'u' is back while it is draining"]
    assert query.document.clusters["c"].draining == {"t", "v"}
    query.look({"c": wants("u")}, {"c": view(t=[10], u=[10], v=[10])}, quiet={("c", "v")})
    assert set(query.positions()) == {("t", 0), ("u", 0)}
    assert query.document.clusters["c"].draining == {"t"}


def test_drain_until_inactive_with_targets_in_the_document() -> None:
    """The ends it has then become its stops; it is cut when they are reached, whatever comes after them."""
    query = drained_query()
    assert query.look({}, {"c": view(t=[10])}, inactive={"c"}).document.clusters["c"].stops == {("t", 0): 10}
    query.look({}, {"c": view(t=[10])}, inactive={"c"})
    query.read("c", TP("t", 0), 10)
    query.look({}, {"c": view(t=[15])}, inactive={"c"})
    assert query.heard("warning", "'t'", "5 records")
    assert query.document is not None
    assert query.document.clusters["c"].ranges == {}


def test_drain_waits_for_a_partition_without_leader() -> None:
    """It is not known where it ends: it gets its stop, and is read up to it, once it has a leader."""
    query = Query(drain=True)
    query.look({"c": wants("t")}, {"c": view(t=[10, 10])})
    query.read("c", TP("t", 0), 10)
    query.look({}, {"c": view(t=[10, None])}, inactive={"c"})
    assert query.document is not None
    assert query.document.clusters["c"].stops == {("t", 0): 10}
    assert query.positions() == {("t", 0): 10, ("t", 1): 0}
    query.look({}, {"c": view(t=[10, 100])}, inactive={"c"})
    assert query.document.clusters["c"].stops == {("t", 0): 10, ("t", 1): 100}
    query.read("c", TP("t", 1), 100)
    query.look({}, {"c": view(t=[10, 100])}, inactive={"c"})
    assert query.said == ["info: Cluster 'c', topic 't' was drained; 0 records are left unread"]


def test_drain_ends_with_a_topic_that_was_deleted() -> None:
    """There is nothing to read any more; the warning counts."""
    query = drained_query()
    query.look({}, {"c": missing(view(), t=[10])})
    assert query.said == ["warning: Cluster 'c', topic 't' was removed; 6 records are left unread"]


def test_drain_ends_when_the_option_is_taken_away() -> None:
    """Without drain-on-removal, what is not wanted is cut."""
    query = drained_query()
    query.policy = replace(query.policy, drain=False)
    query.look({}, {"c": view(t=[10])})
    assert query.said == ["warning: Cluster 'c', topic 't' was removed; 6 records are left unread"]


def test_drain_targets_are_written_down_when_they_are_found() -> None:
    """A restart must not see other ends."""
    query = drained_query()
    assert query.look({}, {"c": view(t=[10])}, inactive={"c"}).changed
    assert query.document is not None
    assert query.document.clusters["c"].stops == {("t", 0): 10}


def test_drain_ends_with_a_cluster_that_is_gone() -> None:
    """Inactive and out of reach: there is nothing to wait for."""
    query = drained_query()
    query.look({}, {}, inactive={"c"})
    assert query.heard("warning", "unknown number")
    assert query.document is not None
    assert query.document.clusters["c"].ranges == {}


def test_drain_waits_for_a_cluster_that_is_away() -> None:
    """Out of reach but not called inactive: it may come back."""
    query = drained_query()
    assert not query.look({}, {}).changed


def test_drain_ends_when_the_topic_is_back() -> None:
    """Reading goes on, and draining is forgotten."""
    query = drained_query()
    assert query.look({"c": wants("t")}, {"c": view(t=[10])}).changed
    assert query.document is not None
    assert query.document.clusters["c"].draining == frozenset()
    assert query.positions() == {("t", 0): 4}


def test_drain_targets_are_forgotten_when_the_topic_is_back() -> None:
    """They must not end the reading of a topic that has no stop."""
    query = drained_query()
    query.look({}, {"c": view(t=[10])}, inactive={"c"})
    query.look({"c": wants("t")}, {"c": view(t=[10])})
    assert query.document is not None
    assert query.document.clusters["c"].stops == {}


def test_drain_keeps_the_stops_of_the_user_when_the_topic_is_back() -> None:
    """They were there before it was removed, and have been frozen since."""
    query = Query(drain=True, stopping=LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    query.look({}, {"c": view(t=[100])})
    assert query.look({"c": wants("t")}, {"c": view(t=[500])}).document.clusters["c"].stops == {("t", 0): 100}
    assert query.asked == []


# --- comes back within retention ----------------------------------------------------------------------------------


def test_back_within_retention_resumes_and_the_gap_is_read_once() -> None:
    """Also with partitions that are new, which start earliest."""
    query = Query(LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    query.look({}, {"c": view(t=[100])})
    query.now_ms += 6 * DAY_MS
    query.look({"c": wants("t")}, {"c": view(t=[300, 20])})
    assert query.positions() == {("t", 0): 100, ("t", 1): 0}
    assert query.heard("info", "'t'", "continues where it stopped")
    assert query.document is not None
    assert query.document.clusters["c"].retained == {}


def test_back_within_retention_without_a_leader_keeps_the_position() -> None:
    """The position needs no answer from the cluster."""
    query = Query(LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    query.look({}, {"c": view(t=[100])})
    query.look({"c": wants("t")}, {"c": view(t=[None])})
    assert query.positions() == {("t", 0): 100}


def test_back_with_a_topic_id_that_was_unknown_continues() -> None:
    """The brokers have been upgraded meanwhile. No id is not another id."""
    query = Query(LATEST)
    seen = view(t=[100])
    query.look({"c": wants("t")}, {"c": replace(seen, topics={"t": ""})})
    query.look({}, {"c": replace(seen, topics={"t": ""})})
    query.look({"c": wants("t")}, {"c": seen})
    assert query.positions() == {("t", 0): 100}


def test_back_while_its_cluster_is_away_keeps_the_retained_position() -> None:
    """It is used once the cluster answers, however long that takes."""
    query = Query(LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    query.look({}, {"c": view(t=[100])})
    query.now_ms += 30 * DAY_MS
    query.look({"c": wants("t")}, {})
    query.look({"c": wants("t")}, {"c": view(t=[300])})
    assert query.positions() == {("t", 0): 100}


def test_back_as_a_topic_made_again_is_read_from_its_start() -> None:
    """The retained position is of another topic, so the chain begins anew."""
    query = Query(LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    query.look({}, {"c": view(t=[100])})
    query.look({"c": wants("t")}, {"c": made_again(view(t=[5]), "t")})
    assert query.positions() == {("t", 0): 0}
    assert query.heard("warning", "'t'", "came back as a new topic")


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


def test_expiry_never_of_a_topic_that_is_wanted_again() -> None:
    """It may take a while until its cluster shows it, also longer than the retention."""
    query = Query(LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    query.look({}, {"c": view(t=[100])})
    query.now_ms += 30 * DAY_MS
    assert "t" in query.look({"c": wants("t")}, {"c": view()}).document.clusters["c"].retained
    query.look({"c": wants("t")}, {"c": view(t=[300])})
    assert query.positions() == {("t", 0): 100}


def test_expiry_not_before_its_time() -> None:
    """A millisecond earlier it is still there."""
    query = Query(retention_ms=DAY_MS)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    query.look({}, {"c": view(t=[100])})
    query.now_ms += DAY_MS - 1
    assert query.look({}, {}).document.clusters["c"].retained
    query.now_ms += 1
    assert query.look({}, {}).document.clusters == {}


# --- identity -----------------------------------------------------------------------------------------------------


def test_renamed_physical_cluster_is_an_error() -> None:
    """A name that leads to another Kafka cluster: offsets of one mean nothing on another."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view("first", t=[100])})
    with pytest.raises(
        CheckpointError,
        match=r"'c' leads to Kafka cluster.id second.*read from first.*id of its own.* or correct its bootstrap servers$",
    ) as caught:
        query.look({"c": wants("t")}, {"c": view("second", t=[100])})
    assert caught.value.cluster_id == "c"


def test_renamed_physical_cluster_is_an_error_also_while_retained() -> None:
    """Retained positions are offsets of that cluster, too."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view("first", t=[100])})
    query.look({}, {"c": view("first", t=[100])})
    with pytest.raises(CheckpointError, match="'c' leads to"):
        query.look({"c": wants("t")}, {"c": view("second", t=[100])})


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


def test_renamed_physical_cluster_is_an_error_for_each_name() -> None:
    """One name whose time is over does not excuse another one."""
    query = Query(retention_ms=DAY_MS)
    query.look({"a": wants("t"), "b": wants("t")}, {"a": view("ka", t=[1]), "b": view("kb", t=[1])})
    query.look({"b": wants("t")}, {"a": view("ka", t=[1]), "b": view("kb", t=[1])})
    query.now_ms += DAY_MS
    with pytest.raises(CheckpointError, match="'b' leads to"):
        query.look({"a": wants("t"), "b": wants("t")}, {"a": view("kc", t=[1]), "b": view("kd", t=[1])})


def renamed(**policy: object) -> Query:
    """A query that has read 40 of 100 offsets of topic `t` on cluster `old`, Kafka's `k`."""
    query = Query(**policy)  # type: ignore[arg-type]  # only for brevity
    query.look({"old": wants("t")}, {"old": view(t=[100])})
    query.read("old", TP("t", 0), 40)
    return query


def test_a_cluster_under_another_name_is_read_on_where_it_stopped() -> None:
    """Its cluster.id says who it is: nothing is read twice, and nothing is cut."""
    query = renamed()
    query.look({"new": wants("t")}, {"new": view(t=[100]), "old": view(t=[100])})
    assert query.positions("new") == {("t", 0): 40}
    assert query.said == [
        "info: Cluster 'new' is the cluster that was 'old' (cluster.id k): reading continues where it stopped"
    ]
    assert query.document is not None
    assert set(query.document.clusters) == {"new"}


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


def test_a_new_name_of_another_cluster_ends_the_wait() -> None:
    """Then the old cluster was removed, and the new one is a cluster found later."""
    query = renamed()
    query.look({"new": wants("t")}, {"old": view(t=[100])})
    query.look({"new": wants("t")}, {"old": view(t=[100]), "new": view("other", t=[7])})
    assert query.heard("warning", "'old', topic 't' was removed; 60 records are left unread")
    assert query.positions("new") == {("t", 0): 0}


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


def test_a_known_cluster_that_is_back_is_no_new_name() -> None:
    """Its cluster.id is in the document, so it is not the one that was removed."""
    query = Query()
    query.look({"d": wants("t")}, {"d": view("kd", t=[5])})
    query.look({"c": wants("t")}, {"c": view(t=[5]), "d": view("kd", t=[5])})
    query.look({"d": wants("t")}, {"c": view(t=[5])})
    assert query.heard("warning", "'c', topic 't' was removed")


def test_clusters_that_were_never_reached_are_not_one_cluster() -> None:
    """Nothing is known about them, so all of them are read once they answer."""
    query = Query()
    desired = {"c": wants("t"), "d": wants("t")}
    query.look(desired, {})
    assert query.said == []
    query.look(desired, {"c": view(t=[5]), "d": view("kd", t=[5])})
    assert (query.positions("c"), query.positions("d")) == ({("t", 0): 0}, {("t", 0): 0})


def test_two_names_that_were_there_together_do_not_wait_for_each_other() -> None:
    """A cluster that is out of reach for days must not keep another one from being removed."""
    query = Query()
    query.look({"c": wants("t"), "d": wants("t")}, {"c": view(t=[5])})
    query.look({"d": wants("t")}, {"c": view(t=[5])})
    assert query.heard("'c', topic 't' was removed")


@pytest.mark.parametrize("retention_ms", [0, DAY_MS])
def test_positions_are_kept_until_every_cluster_has_told_its_identity(retention_ms: int) -> None:
    """The cluster that does not answer may turn out to be the one that was removed, however long that takes."""
    query = Query(retention_ms=retention_ms)
    query.look({"c": wants("t"), "d": wants("t")}, {"c": view(t=[100])})
    query.read("c", TP("t", 0), 40)
    query.look({"d": wants("t")}, {"c": view(t=[100])})
    query.now_ms += 9 * DAY_MS
    query.look({"d": wants("t")}, {})
    query.look({"d": wants("t")}, {"d": view(t=[100])})
    assert query.positions("d") == {("t", 0): 40}


def test_retained_positions_are_taken_over() -> None:
    """Removed, and back under another name: the gap is read, and nothing before it."""
    query = renamed()
    query.look({}, {"old": view(t=[100])})
    query.now_ms += DAY_MS
    query.look({"new": wants("t")}, {"new": view(t=[300])})
    assert query.positions("new") == {("t", 0): 40}
    assert query.heard("'new', topic 't' is back")


def test_a_draining_topic_is_taken_over() -> None:
    """It is wanted again, so it is drained no longer."""
    query = drained_query()
    query.look({"c": wants("t")}, {"c": view(t=[10])}, inactive={"c"})
    query.look({}, {"c": view(t=[10])}, inactive={"c"})
    query.look({"new": wants("t")}, {"new": view(t=[10])})
    assert query.positions("new") == {("t", 0): 4}
    assert query.document is not None
    state = query.document.clusters["new"]
    assert (state.draining, state.stops) == (set(), {})


def test_stops_and_partitions_without_a_start_are_taken_over() -> None:
    """The end that was frozen stays, and `latest` stays bound to the first start."""
    query = Query(LATEST, stopping=LATEST)
    query.look({"old": wants("t")}, {"old": view(t=[100, None])})
    query.now_ms = 99_000
    query.look({"new": wants("t")}, {"new": view(t=[500, 500])})
    assert query.document is not None
    assert query.document.clusters["new"].stops == {("t", 0): 100, ("t", 1): 100}
    assert [r.initializer for r in query.asked if r.purpose == "start"] == [KafkaOffsetsInitializer.timestamp(1_000)]
    assert {tp for r in query.asked if r.purpose == "stop" for tp in r.partitions} == {("t", 1)}


def test_a_new_topic_on_a_cluster_under_another_name_starts_earliest() -> None:
    """The cluster is known: it is not found later."""
    query = renamed()
    query.look({"new": wants("t", "u", starting=LATEST)}, {"new": view(t=[100], u=[9])})
    assert query.positions("new") == {("t", 0): 40, ("u", 0): 0}


def test_a_topic_made_again_under_another_name_is_data_loss() -> None:
    """The cluster is the same, the topic is not."""
    query = renamed()
    with pytest.raises(DataLossError, match=r"'new', topic 't'.*recreated"):
        query.look({"new": wants("t")}, {"new": made_again(view(t=[100]), "t")})


def test_a_topic_that_moves_to_another_name_of_its_cluster_goes_on() -> None:
    """Both names stay; only the topic changes its place."""
    query = Query()
    seen = view(t=[100], u=[100])
    query.look({"c": wants("t", "u"), "d": wants("v")}, {"c": seen, "d": view(v=[1])})
    query.read("c", TP("t", 0), 40)
    query.look({"c": wants("u"), "d": wants("t", "v")}, {"c": seen, "d": view(t=[100], v=[1])})
    assert query.positions("d") == {("t", 0): 40, ("v", 0): 0}
    assert query.positions("c") == {("u", 0): 0}
    assert query.heard("info", "'d' and 'c' are one Kafka cluster (k)", "of 't' continues where it stopped")


def moving(**policy: object) -> tuple[Query, ClusterView]:
    """A query of one cluster under the names `c` and `d`, with unread records; some partitions have no leader yet."""
    query = Query(**policy)  # type: ignore[arg-type]  # only for brevity
    seen = view(t=[100], u=[100, None], v=[100], w=[None], x=[None])
    query.look({"c": wants("t", "u", "w"), "d": wants("v", "x")}, {"c": seen, "d": seen})
    query.read("c", TP("u", 0), 140)
    query.read("d", TP("v", 0), 101)
    return query, seen


def test_a_topic_that_moves_takes_all_of_its_own_and_nothing_else() -> None:
    """Stops, and what waits for a leader, stay with the other topics of both names. Nothing is asked again."""
    query, seen = moving(starting=LATEST, stopping=LATEST)
    query.look({"c": wants("t", "w"), "d": wants("u", "v", "x")}, {"c": seen, "d": seen})
    assert query.asked == []
    assert query.document is not None
    c, d = query.document.clusters["c"], query.document.clusters["d"]
    assert (query.positions("c"), query.positions("d")) == ({("t", 0): 100}, {("u", 0): 140, ("v", 0): 101})
    assert (c.stops, d.stops) == ({("t", 0): 100}, {("u", 0): 100, ("v", 0): 100})
    assert (c.unresolved, d.unresolved) == ({("w", 0): 1_000}, {("u", 1): 1_000, ("x", 0): 1_000})


def test_a_topic_moves_to_the_name_that_lists_it() -> None:
    """Also if that name is away; it is known by the document."""
    query, seen = moving(starting=LATEST)
    query.look({"c": wants("t", "w"), "b": wants("v"), "d": wants("u", "x")}, {"c": seen, "b": seen})
    assert query.positions("d") == {("u", 0): 140}
    assert query.positions("b") == {("v", 0): 101}
    assert query.document is not None
    assert query.document.clusters["d"].kafka_id == "k"


def test_a_name_that_gets_a_topic_is_a_cluster_found_later_all_the_same() -> None:
    """Its own starting offsets count for its other topics."""
    query, _ = moving()
    desired = {"c": wants("t", "w"), "d": wants("v", "x"), "e": wants("u", "y", starting=LATEST)}
    query.look(desired, {"e": view(t=[100], u=[100], y=[100])})
    assert query.positions("e") == {("u", 0): 140, ("y", 0): 100}


def test_topics_move_while_others_are_drained() -> None:
    """Each name drains its own, before and after."""
    query, seen = moving(drain=True)
    query.look({"c": wants("u", "w"), "d": wants("x", "y")}, {"c": seen, "d": seen})
    assert query.document is not None
    query.look({"c": wants("w"), "d": wants("u", "x", "y")}, {"c": seen, "d": seen})
    assert (query.document.clusters["c"].draining, query.document.clusters["d"].draining) == (
        set("t"),
        set("v"),
    )
    assert not query.heard("draining"), "that was said before"


def test_a_retained_topic_moves_too() -> None:
    """Then only its new name has it."""
    query, seen = moving()
    query.look({"c": wants("t", "w"), "d": wants("v", "x")}, {"c": seen, "d": seen})
    query.look({"c": wants("t", "w"), "d": wants("u", "v", "x")}, {"c": seen, "d": seen})
    assert query.positions("d") == {("u", 0): 140, ("v", 0): 101}
    assert query.document is not None
    assert query.document.clusters["c"].retained == {}


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
    query, seen = moving()
    assert query.document is not None
    query.document.clusters["d"].topics["t"] = "id-t"
    query.document.clusters["d"].ranges[TP("t", 0)] = (30, 30)
    query.look({"c": wants("t", "u", "w"), "d": wants("v", "x")}, {"c": seen, "d": seen})
    assert query.heard("warning", "'d', topic 't' was removed; 70 records are left unread")
    assert query.positions("c")[TP("t", 0)] == 0


def test_two_names_may_become_one() -> None:
    """The one name takes over the topics of both."""
    query = Query()
    query.look({"c": wants("t"), "d": wants("u")}, {"c": view(t=[100]), "d": view(u=[100])})
    query.read("c", TP("t", 0), 40)
    query.read("d", TP("u", 0), 50)
    query.look({"m": wants("t", "u")}, {"m": view(t=[100], u=[100])})
    assert query.positions("m") == {("t", 0): 40, ("u", 0): 50}
    assert query.document is not None
    assert set(query.document.clusters) == {"m"}


def test_a_name_may_change_twice_and_back() -> None:
    """Also if the name between was never seen."""
    query = renamed()
    query.look({"b": wants("t")}, {})
    query.look({"c": wants("t")}, {})
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    assert query.positions("c") == {("t", 0): 40}
    query.read("c", TP("t", 0), 60)
    query.look({"old": wants("t")}, {})
    query.look({"old": wants("t")}, {"old": view(t=[100])})
    assert query.positions("old") == {("t", 0): 60}


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


def test_two_names_that_change_places_go_on_draining() -> None:
    """What is drained belongs to its cluster, too."""
    query = Query(drain=True)
    before = {"a": view("ka", t=[100], w=[5]), "b": view("kb", t=[200])}
    query.look({"a": wants("t", "w"), "b": wants("t")}, before)
    query.look({"a": wants("t"), "b": wants("t")}, before)
    query.look({"a": wants("t"), "b": wants("t")}, {"a": before["b"], "b": before["a"]})
    assert query.positions("b") == {("t", 0): 0, ("w", 0): 0}
    assert query.document is not None
    assert query.document.clusters["b"].draining == {"w"}
    assert not query.heard("draining")


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


def test_names_may_be_shifted() -> None:
    """a, b become b, c."""
    query = Query(retention_ms=0)
    query.look({"a": wants("t"), "b": wants("t")}, {"a": view("ka", t=[100]), "b": view("kb", t=[200])})
    query.read("a", TP("t", 0), 40)
    query.read("b", TP("t", 0), 50)
    desired = {"b": wants("t"), "c": wants("t")}
    query.look(desired, {"c": view("kb", t=[200])})
    query.look(desired, {"b": view("ka", t=[100]), "c": view("kb", t=[200])})
    assert (query.positions("b"), query.positions("c")) == ({("t", 0): 40}, {("t", 0): 50})


def test_a_name_that_leads_to_another_cluster_waits_only_for_clusters_without_an_answer() -> None:
    """With every answer there, it is an error."""
    query = Query()
    query.look({"a": wants("t"), "b": wants("t")}, {"a": view("ka", t=[1]), "b": view("kb", t=[2])})
    query.look({"a": wants("t"), "b": wants("t")}, {"a": view("kc", t=[1])})
    assert query.heard("warning", "'a' leads to", "until 'b' has answered")
    with pytest.raises(CheckpointError, match=r"'a' leads to Kafka cluster\.id kc"):
        query.look({"a": wants("t"), "b": wants("t")}, {"a": view("kc", t=[1]), "b": view("kb", t=[2])})


def test_a_name_without_positions_may_lead_to_another_cluster() -> None:
    """There is nothing that could be mixed up."""
    query = Query()
    query.look({"c": wants()}, {"c": view("first")})
    query.look({"c": wants("t")}, {"c": view("second", t=[5])})
    assert query.positions() == {("t", 0): 0}


def test_a_removed_cluster_with_an_address_that_leads_elsewhere_is_cut() -> None:
    """It is not in the metadata, so no one could correct its servers: an error would never end."""
    query = drained_query()
    query.look({}, {"c": view("another", t=[3])})
    assert query.heard("warning", "'c', topic 't'", "an unknown number of records are left unread")


def test_one_topic_under_two_names_is_read_once() -> None:
    """Under the first name, and from then on under the one that has its positions; the other takes over when it leaves."""
    query = Query()
    views = {"c": view(t=[9]), "d": view(t=[9], u=[1])}
    query.look({"c": wants("t"), "d": wants("t", "u")}, views)
    assert (query.positions("c"), query.positions("d")) == ({("t", 0): 0}, {("u", 0): 0})
    assert query.heard("warning", "'c' and 'd' are one Kafka cluster (k)", "both list 't'", "read once, as cluster 'c'")
    query.read("c", TP("t", 0), 4)
    query.look({"b": wants("t"), "c": wants("t"), "d": wants("t", "u")}, views | {"b": view(t=[9])})
    assert (query.positions("b"), query.positions("c")) == ({}, {("t", 0): 4})
    query.look({"d": wants("t", "u")}, views)
    assert query.positions("d") == {("t", 0): 4, ("u", 0): 0}


def test_one_topic_under_two_names_is_read_by_the_one_that_has_its_position() -> None:
    """Also while that one is away, and also if the position is a retained one."""
    query, seen = moving()
    query.look({"c": wants("t", "u", "w"), "d": wants("u", "v", "x")}, {"d": seen})
    assert query.positions("c")[TP("u", 0)] == 140
    query, seen = moving()
    query.look({"c": wants("t", "u", "w"), "d": wants("x")}, {"c": seen, "d": seen})
    query.look({"c": wants("t", "u", "v", "w"), "d": wants("v", "x")}, {"c": seen, "d": seen})
    assert query.positions("d") == {("v", 0): 101}
    assert query.heard("both list 'v': it is read once, as cluster 'd'")


def test_two_names_for_one_physical_cluster_are_told() -> None:
    """Also while one of them has no topic."""
    query = Query()
    views = {"a": view("another", t=[1]), "c": view(t=[1]), "d": view()}
    query.look({"a": wants("t"), "c": wants("t"), "d": wants("u")}, views)
    assert query.said == ["info: Clusters 'c', 'd' are one Kafka cluster (k)"]
    query.look({name: wants(f"t{name}") for name in "cdefghi"}, dict.fromkeys("cdefghi", view()))
    assert query.heard("info", "Clusters 'c', 'd', 'e', 'f', 'g' and 2 more are one Kafka cluster (k)")


# --- data loss ----------------------------------------------------------------------------------------------------


def test_recreated_topic_is_data_loss() -> None:
    """The error names cluster, topic, partition, offsets and both topic ids."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view(t=[10])})
    query.read("c", TP("t", 0), 4)
    with pytest.raises(DataLossError, match=r"'c', topic 't', partition 0, offsets \[4, 10\).*recreated.*id-t.*id-new"):
        query.look({"c": wants("t")}, {"c": made_again(view(t=[10]), "t")})


def test_recreated_topic_restarts_if_data_loss_is_tolerated() -> None:
    """From the earliest offset of the new topic, with a warning, and with its partitions only."""
    query = Query(LATEST, fail_on_data_loss=False)
    query.look({"c": wants("t")}, {"c": view(t=[100, 100])})
    query.look({"c": wants("t")}, {"c": made_again(view(t=[5]), "t")})
    assert query.positions() == {("t", 0): 0}
    assert query.heard("warning", "'t', partition 1", "recreated")
    assert query.document is not None
    assert query.document.clusters["c"].topics == {"t": "id-new"}


def test_recreated_topic_is_written_down_before_it_has_a_position() -> None:
    """Its first topic and its stops are gone for good; the stops are asked for again. Other topics are read on."""
    query = Query(stopping=LATEST, fail_on_data_loss=False)
    desired = {"c": wants("s", "t")}
    query.look(desired, {"c": view(s=[7], t=[100])})
    assert query.look(desired, {"c": made_again(view(s=[7], t=[None]), "t")}).changed
    assert query.document is not None
    assert query.document.clusters["c"].stops == {("s", 0): 100}
    assert query.positions() == {("s", 0): 0}
    query.look(desired, {"c": made_again(view(s=[7], t=[3]), "t")})
    assert {(r.purpose, r.partitions) for r in query.asked} == {(p, (TP("t", 0),)) for p in ("start", "stop")}


def test_recreated_topic_forgets_what_the_old_one_waited_for() -> None:
    """A partition that had no leader yet is, on the new topic, a new one."""
    query = Query(LATEST, fail_on_data_loss=False)
    query.look({"c": wants("t")}, {"c": view(t=[100, None])})
    query.look({"c": wants("t")}, {"c": made_again(view(t=[5, 5]), "t")})
    assert query.positions() == {("t", 0): 0, ("t", 1): 0}


def test_recreated_topic_that_was_removed_is_cut() -> None:
    """Nobody wants its records any longer."""
    query = Query(fail_on_data_loss=False, drain=True)
    query.look({"c": wants("t")}, {"c": view(t=[10])})
    query.look({}, {"c": view(t=[10])})
    query.look({}, {"c": made_again(view(t=[10]), "t")})
    assert query.document is not None
    assert query.document.clusters["c"].topics == {}


def test_an_unknown_topic_id_is_adopted() -> None:
    """An imported checkpoint knows none."""
    query = Query()
    query.look({"c": wants("t")}, {"c": replace(view(t=[10]), topics={"t": ""})})
    query.read("c", TP("t", 0), 4)
    query.look({"c": wants("t")}, {"c": view(t=[10])})
    assert query.positions() == {("t", 0): 4}


def test_a_broker_without_topic_ids_changes_nothing() -> None:
    """Among others that have them: no id is not another id."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view(t=[10])})
    query.look({"c": wants("t")}, {"c": replace(view(t=[10]), topics={"t": ""})})
    assert query.document is not None
    assert query.document.clusters["c"].topics == {"t": "id-t"}
    with pytest.raises(DataLossError):
        query.look({"c": wants("t")}, {"c": made_again(view(t=[1]), "t")})


def test_a_topic_that_no_view_shows_waits() -> None:
    """It may be unknown for a moment, or not be allowed any more; made again it is data loss."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view(t=[10])})
    assert not query.look({"c": wants("t")}, {"c": view()}).changed
    with pytest.raises(DataLossError):
        query.look({"c": wants("t")}, {"c": made_again(view(t=[1]), "t")})


@pytest.mark.parametrize(
    ("last_ends", "unread", "first"),
    [
        ([10, 40], "40", r"1, offsets \[0, 40\)"),
        ([10], "an unknown number of", r"1, offsets \[0, 0\)"),
        ([], "an unknown number of", r"0, offsets \[10, 10\)"),
    ],
    ids=str,
)
def test_a_deleted_topic_with_unread_records_is_data_loss(last_ends: list[int], unread: str, first: str) -> None:
    """An error that names the first such partition, or a warning with their number; then its positions are retained."""
    for fail in (True, False):
        query = Query(fail_on_data_loss=fail)
        query.look({"c": wants("t", "u")}, {"c": view(t=[10, 10], u=[1])})
        query.read("c", TP("t", 0), 10)
        gone = missing(view(u=[1]), t=last_ends)
        if fail:
            with pytest.raises(
                DataLossError, match=f"'c', topic 't', partition {first}.*was deleted; {unread} records"
            ):
                query.look({"c": wants("t", "u")}, {"c": gone})
            continue
        query.look({"c": wants("t", "u")}, {"c": gone})
        assert f"warning: Cluster 'c', topic 't' was deleted; {unread} records are left unread" in query.said
        assert query.positions() == {("u", 0): 0}
        assert not query.look({"c": wants("t", "u")}, {"c": gone}).changed


def test_a_deleted_topic_without_a_position_is_data_loss() -> None:
    """Its partition had no leader since the first start, so what it held may have been unread."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view(t=[None])})
    with pytest.raises(DataLossError, match=r"'c', topic 't', partition 0, offsets \[0, 7\)"):
        query.look({"c": wants("t")}, {"c": missing(view(), t=[7])})
    with pytest.raises(DataLossError, match=r"'c', topic 't', partition 0, offsets \[0, 0\)"):
        query.look({"c": wants("t")}, {"c": missing(view(), "t")})


@pytest.mark.parametrize(("retention_ms", "kept"), [(0, set()), (1, {"t"})])
def test_a_deleted_topic_is_retained_as_the_option_says(retention_ms: int, kept: set[str]) -> None:
    """It may be the cluster that is another one for a moment; without retention nothing is kept."""
    query = Query(retention_ms=retention_ms)
    query.look({"c": wants("t")}, {"c": view(t=[0])})
    result = query.look({"c": wants("t")}, {"c": missing(view(), t=[0])})
    assert set(result.document.clusters["c"].retained) == kept


def test_a_deleted_topic_that_was_read_is_no_data_loss() -> None:
    """Made again it is read from its start."""
    query = Query(LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    query.look({"c": wants("t")}, {"c": missing(view(), t=[100])})
    assert "info: Cluster 'c', topic 't' was deleted; 0 records are left unread" in query.said
    query.look({"c": wants("t")}, {"c": made_again(view(t=[5]), "t")})
    assert query.positions() == {("t", 0): 0}


def test_an_end_that_went_backwards_is_data_loss_once_it_is_believed() -> None:
    """A leader change may show an old end for a moment: the caller says when to believe it."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view(t=[10])})
    query.read("c", TP("t", 0), 10)
    assert not query.look({"c": wants("t")}, {"c": view(t=[6])}).changed
    with pytest.raises(DataLossError, match=r"'c'.*log was truncated: it ended at offset 6, below the position 10"):
        query.look({"c": wants("t")}, {"c": view(t=[6])}, regressed={("c", TP("t", 0)): 6})


def test_an_end_that_is_the_position_is_no_data_loss() -> None:
    """It went back, but not below what was read."""
    query = Query()
    query.look({"c": wants("t")}, {"c": view(t=[10])})
    query.read("c", TP("t", 0), 10)
    assert not query.look({"c": wants("t")}, {"c": view(t=[10])}, regressed={("c", TP("t", 0)): 10}).changed


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


# --- stops --------------------------------------------------------------------------------------------------------


def test_stops_are_resolved_once_and_reached() -> None:
    """`done` once every split stands at its stop; the cluster's own stop wins."""
    query = Query(stopping=LATEST)
    desired = {"c": wants("t"), "d": wants("t", stopping=EARLIEST)}
    views = {"c": view(t=[100]), "d": view("kd", t=[100])}
    query.look(desired, views)
    assert query.document is not None
    assert query.document.clusters["c"].stops == {("t", 0): 100}
    assert query.document.clusters["d"].stops == {("t", 0): 0}
    assert not query.document.done
    query.read("c", TP("t", 0), 100)
    assert not query.look(desired, {"d": view("kd", t=[500])}).document.done, "what is away may have more partitions"
    assert query.look(desired, {"c": view(t=[500]), "d": view("kd", t=[500])}).document.done == 1
    assert query.asked == []


def test_stops_do_not_outlive_their_option() -> None:
    """A backfill up to an end, then the same checkpoint without the end: it goes live."""
    query = Query(stopping=LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    query.read("c", TP("t", 0), 100)
    query.policy = replace(query.policy, stopping=None)
    result = query.look({"c": wants("t")}, {"c": view(t=[500])})
    assert result.changed
    assert result.document.clusters["c"].stops == {}
    assert query.heard("info", "'c'", "stopping offsets are not set any more")


def test_stops_are_made_again_when_their_option_changes() -> None:
    """The next end counts, also for a cluster with one of its own in the metadata."""
    query = Query(stopping=LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    query.look({"c": wants("t", stopping=EARLIEST)}, {})
    assert query.heard("info", "'c'", "stopping offsets have changed")
    query.look({"c": wants("t", stopping=EARLIEST)}, {"c": view(t=[500])})
    assert query.document is not None
    assert query.document.clusters["c"].stops == {("t", 0): 0}
    assert [r.initializer for r in query.asked] == [EARLIEST]


def test_stops_of_a_version_that_kept_them_for_ever_are_dropped() -> None:
    """Its documents hold stops, and no option that made them."""
    query = Query(stopping=LATEST)
    query.look({"c": wants("t")}, {"c": view(t=[100])})
    assert query.document is not None
    query.document.clusters["c"].stopping = None
    query.policy = replace(query.policy, stopping=None)
    query.look({"c": wants("t")}, {"c": view(t=[500])})
    assert query.document.clusters["c"].stops == {}


def test_stops_of_a_draining_topic_stay_without_an_option() -> None:
    """They are where draining ends."""
    query = drained_query()
    query.look({"c": wants("u")}, {"c": view(t=[10], u=[1])}, inactive={"c"})
    query.look({"c": wants("u")}, {"c": view(t=[15], u=[1])}, inactive={"c"})
    assert query.document is not None
    assert query.document.clusters["c"].stops == {("t", 0): 10}


def test_stops_of_a_draining_topic_go_with_the_option_that_made_them() -> None:
    """Without the option it is drained like any other topic."""
    query = Query(stopping=LATEST, drain=True)
    query.look({"c": wants("t", "u")}, {"c": view(t=[100], u=[1])})
    query.look({"c": wants("u")}, {"c": view(t=[100], u=[1])})
    query.policy = replace(query.policy, stopping=None)
    assert query.look({"c": wants("u")}, {"c": view(t=[100], u=[1])}).document.clusters["c"].stops == {}


def test_a_query_without_stops_is_never_done() -> None:
    """Also when it has read everything, or reads nothing."""
    query = Query()
    assert not query.look({}, {}).document.done
    assert not query.look({"c": wants("t")}, {"c": view(t=[0])}).document.done


def test_a_cluster_that_has_not_answered_is_not_done() -> None:
    """It may have more to read."""
    query = Query(stopping=EARLIEST)
    assert not query.look({"c": wants("t"), "d": wants("t")}, {"c": view(t=[5])}).document.done
    assert query.look({"c": wants("t"), "d": wants("t")}, {"c": view(t=[5]), "d": view("kd", t=[5])}).document.done


def test_a_cluster_that_does_not_show_a_topic_is_not_done() -> None:
    """Unless it is known to be missing. A query that was done stays done while a new process does not know that yet."""
    query = Query(stopping=EARLIEST)
    assert not query.look({"c": wants("t", "u")}, {"c": view(t=[5])}).document.done
    assert query.look({"c": wants("t", "u")}, {"c": missing(view(t=[5]), "u")}).document.done
    assert not query.look({"c": wants("t", "u")}, {"c": view(t=[5])}).changed


# --- whose turn it is ---------------------------------------------------------------------------------------------


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


# --- properties and streams ---------------------------------------------------------------------------------------


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

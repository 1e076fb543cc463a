"""Where Kafka goes on after a history, and when that cannot be proved: in whole sentences, because people decide by them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from dynamic_kafka.continuation import Continues
from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, DynamicKafkaError, OffsetResolutionError
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document
from dynamic_kafka.source.document.promise import Seen
from dynamic_kafka.source.rules.model import ClusterView, DesiredCluster, Event
from dynamic_kafka.source.rules.switch import (
    AfterHistory,
    Unread,
    check_answers,
    check_positions,
    copies_seen,
    next_offsets,
)
from dynamic_kafka.source.settings import SourceSettings

P0, P1 = KafkaTopicPartition("t", 0), KafkaTopicPartition("t", 1)


class Log:
    """A cluster with a beginning and an end of each partition, and one answer for all times."""

    cluster_id = "a"

    def __init__(self, logs: Mapping[KafkaTopicPartition, tuple[int, int]], at_time: int | None = None) -> None:
        self._logs, self._at_time = logs, at_time

    def beginning_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The beginnings."""
        return {tp: self._logs[tp][0] for tp in partitions}

    def end_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The ends."""
        return {tp: self._logs[tp][1] for tp in partitions}

    def committed_offsets(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """None."""
        return {}

    def offsets_for_times(self, times_ms: Mapping[KafkaTopicPartition, int]) -> dict[KafkaTopicPartition, int | None]:
        """The answer."""
        return dict.fromkeys(times_ms, self._at_time)


def desired(*topics: str, **changes: Any) -> DesiredCluster:
    """A cluster that is read."""
    return DesiredCluster(frozenset(topics or ("t",)), {}, **changes)


def view(kafka_id: str = "A", **topics: int) -> ClusterView:
    """A cluster that answers, with topics by their numbers of partitions."""
    topics = topics or {"t": 2}
    return ClusterView(kafka_id, {name: f"id-{name}" for name in topics}, topics, {})


_UNPROVED = "so it cannot be proved where Kafka goes on after the history"
_WITHOUT = "Nothing was read. Use a history that goes further, or set failOnDataLoss=false to go on without them"
_BY_TIME = AfterHistory(False, given=KafkaOffsetsInitializer.timestamp(5), is_time=True)
_LEADERLESS = Document(clusters={"a": ClusterOffsets(ranges={P1: (0, 0)}, unresolved={P0: 1})})
_UNSEEN = Document(clusters={"a": ClusterOffsets(ranges={P0: (0, 0)}, unseen={"u": 1})})


def test_kafka_goes_on_after_the_largest_offset() -> None:
    """Partitions that the history does not have start at their beginning."""
    after = AfterHistory(False, {"a": {P0: 10}})
    assert after.get_partition_offsets([P0, P1], Log({P0: (0, 20), P1: (3, 9)})) == {P0: 10, P1: 3}
    assert after.get_partition_offsets([P0], Log({P0: (10, 10)})) == {P0: 10}


def test_records_that_kafka_has_deleted_are_left_out_if_that_is_tolerated() -> None:
    """Reading starts at what is left, and their number is told."""
    tolerant = AfterHistory(True, {"a": {P0: 10}})
    assert tolerant.get_partition_offsets([P0], Log({P0: (15, 20)})) == {P0: 15}
    assert tolerant.given_up == [
        "Cluster 'a': 5 records that follow the history were deleted from Kafka: t-0: 5 (offsets 10 to 14)"
    ]


@pytest.mark.parametrize(("start", "found"), [(15, 16), (0, 0)])
def test_a_time_is_the_switch_if_no_record_after_it_can_be_missing(start: int, found: int) -> None:
    """The log has a record from before it, or is whole."""
    assert _BY_TIME.get_partition_offsets([P0], Log({P0: (start, 20)}, at_time=found)) == {P0: found}


def test_what_would_start_at_its_beginning_need_not_be_there() -> None:
    """A topic may be created later, and a cluster that is not read need not answer."""
    check_positions(_UNSEEN, {}, given=())
    check_answers({"a"}, {"a", "b"})


def test_given_offsets_are_checked_too() -> None:
    """They may be old."""
    given = KafkaOffsetsInitializer.offsets({P0: 3})
    with pytest.raises(OffsetResolutionError, match="2 records"):
        AfterHistory(False, given=given).get_partition_offsets([P0], Log({P0: (5, 9)}))


def test_clusters_are_recognized_by_their_ids() -> None:
    """Whatever they are called today."""
    archive = {"old": {"id": "A", "topics": {"t": "id-t"}}}
    found = next_offsets({("old", "t", 0): 9}, archive, {"a": desired(), "b": desired()}, {"a": view(), "b": view("B")})
    assert found.offsets == {"a": {P0: 10}}
    assert not found.events
    assert found.recognized == {"cluster.id and topic id": 1}
    assert found.places == {("old", "t", 0): ("a", P0)}
    assert not found.without_id


def test_files_without_a_cluster_are_of_the_only_one_of_the_archive() -> None:
    """Its ids are compared, too."""
    views = {"a": view()}
    said = {"c": {"id": "A", "topics": {"t": "id-t"}}}
    assert next_offsets({("", "t", 0): 9}, said, {"a": desired()}, views).recognized == {"cluster.id and topic id": 1}
    with pytest.raises(OffsetResolutionError, match=r"cluster\.id was OLD and is now A"):
        next_offsets({("", "t", 0): 9}, {"c": {"id": "OLD"}}, {"a": desired()}, views)
    with pytest.raises(OffsetResolutionError, match="was made anew"):
        next_offsets({("", "t", 0): 9}, {"c": {"id": "A", "topics": {"t": "OLD"}}}, {"a": desired()}, views)


@pytest.mark.parametrize(
    ("archive", "by"),
    [
        ({}, "their names alone, because there are no ids to compare"),
        ({"a": {"id": "", "topics": {"t": ""}}}, "their names alone, because there are no ids to compare"),
        ({"other": {"id": "B"}}, "their names alone, because there are no ids to compare"),
        ({"a": {"id": "A"}}, "cluster.id and the topics' names"),
    ],
)
def test_ids_are_named_only_if_they_were_compared(archive: Any, by: str) -> None:
    """Neither empty ids nor those of other clusters prove anything."""
    assert next_offsets({("a", "t", 0): 9}, archive, {"a": desired()}, {"a": view()}).recognized == {by: 1}


def test_rows_that_nothing_follows_are_named() -> None:
    """Of clusters, topics and partitions that the query does not read."""
    largest = {("gone", "t", 0): 1, ("a", "u", 0): 1, ("a", "t", 1): 1, ("a", "t", 0): 1}
    archive = {"gone": {"id": "G", "topics": {"t": "id"}}}
    found = next_offsets(largest, archive, {"a": desired(partitions=frozenset([P0]))}, {"a": view()})
    assert found.offsets == {"a": {P0: 2}}
    assert found.unread == {("gone", "t"): Unread("G", "id", {0: 2}), ("a", "u"): Unread("", "", {0: 2})}
    assert found.without_id == {("a", "t", 0)}
    assert len(found.events) == 3


def go_on(archive: Any, *clusters: str, views: Any = None, name: str = "a") -> None:
    """Kafka goes on behind offset 9 of a partition."""
    wanted = {cluster: desired() for cluster in clusters or ("a",)}
    next_offsets({(name, "t", 0): 9}, archive, wanted, {"a": view()} if views is None else views)


@pytest.mark.parametrize(
    ("cluster", "said", "act"),
    [
        (
            "a",
            (
                "Cluster 'a': 6 records that follow the history were deleted from Kafka: t-0: 5 (offsets 10 to 14), t-1: 1 "
                f"(offsets 2 to 2). {_WITHOUT}"
            ),
            lambda: AfterHistory(False, {"a": {P0: 10, P1: 2}}).get_partition_offsets(
                [P0, P1], Log({P0: (15, 20), P1: (3, 9)})
            ),
        ),
        (
            "a",
            (
                "Cluster 'a': records at or after the time of the switch may have been deleted from Kafka, because it has "
                f"no record from before it: t-0 begins at offset 1. {_WITHOUT}"
            ),
            lambda: _BY_TIME.get_partition_offsets([P0], Log({P0: (1, 20)}, at_time=1)),
        ),
        (
            "a",
            (
                "Cluster 'a': the history is ahead of Kafka, so it is of another log: t-0 ends at 20 and goes on at 21. Is "
                "it the right cluster, and was the topic made anew? Nothing was read"
            ),
            lambda: AfterHistory(True, {"a": {P0: 21}}).get_partition_offsets([P0], Log({P0: (0, 20)})),
        ),
        (
            "b",
            f"Cluster 'b' does not answer, {_UNPROVED}. Bring the cluster back and start the query again",
            lambda: check_answers({"c", "b", "a"}, {"a"}),
        ),
        (
            "a",
            (
                "Cluster 'a', topic 't', partition 0 has no leader now, so it cannot be proved where it goes on after the "
                "history. Wait until it can be read, and start the query again"
            ),
            lambda: check_positions(_LEADERLESS, {}, given=()),
        ),
        (
            "a",
            (
                "Cluster 'a', topic 'x', partition 3 has no leader now, so it cannot be proved where it goes on after the "
                "history. Wait until it can be read, and start the query again"
            ),
            lambda: check_positions(
                Document(clusters={"a": ClusterOffsets()}), {"a": {KafkaTopicPartition("x", 3): 1}}, given=()
            ),
        ),
        (
            "a",
            (
                "Cluster 'a' does not show topic 'u', so it cannot be proved where it goes on after the history. Create the "
                "topic, or give the user the right to see it, and start the query again"
            ),
            lambda: check_positions(_UNSEEN, {}, given=["a"]),
        ),
        (
            "a",
            (
                "Cluster 'a' is not the one that the history was made from: its cluster.id was X and is now A. Give it the "
                "address of that cluster, or set history.switch to timestamp or starting-offsets. Nothing was read"
            ),
            lambda: go_on({"a": {"id": "X"}}),
        ),
        (
            "a",
            (
                "Cluster 'a', topic 't' was made anew after the history: its topic id was other and is now id-t. Nothing "
                "was read. Set history.switch to timestamp or starting-offsets"
            ),
            lambda: go_on({"a": {"topics": {"t": "other"}}}),
        ),
        (
            "a",
            (
                "Cluster 'a': the history has records of topic 't', partition 0, which does not exist there now. Is it the "
                "right cluster, and was the topic deleted or made anew? Nothing was read"
            ),
            lambda: go_on({}, views={"a": view(t=0)}),
        ),
        (
            "a",
            (
                "Cluster 'a': the history has records of topic 't', partition 0, which does not exist there now. Is it the "
                "right cluster, and was the topic deleted or made anew? Nothing was read"
            ),
            lambda: go_on({}, views={"a": view(u=1)}),
        ),
        (
            "a",
            f"Cluster 'a' does not answer, {_UNPROVED}. Bring the cluster back and start the query again",
            lambda: go_on({}, views={}),
        ),
        (
            None,
            (
                "The history's files have no column 'cluster', and the query reads several clusters. Add the column, or set "
                "history.switch to timestamp or starting-offsets"
            ),
            lambda: go_on({}, "a", "b", name=""),
        ),
        (
            None,
            (
                "The history has rows of topic 't', partition 0 under two names of the cluster 'a', so it is not known "
                "which of them are there twice. Give them one name, or set history.switch to starting-offsets"
            ),
            lambda: next_offsets(
                {("a", "t", 0): 9, ("old", "t", 0): 8}, {"old": {"id": "A"}}, {"a": desired()}, {"a": view()}
            ),
        ),
    ],
)
def test_an_error_names_the_cluster_and_what_to_do(cluster: str | None, said: str, act: Callable[[], Any]) -> None:
    """In its text, and the cluster also as its attribute."""
    with pytest.raises(DynamicKafkaError) as found:
        act()
    assert str(found.value) == said
    assert found.value.cluster_id == cluster


def test_topics_of_one_cluster_may_have_two_names_of_it() -> None:
    """It was renamed while the history was made. A partition under both is an error: its rows may be there twice."""
    of_old = {"old": {"id": "A"}}
    largest = {("a", "t", 0): 9, ("", "u", 0): 4}
    found = next_offsets(largest, of_old, {"a": desired("t", "u")}, {"a": view(t=1, u=1)})
    assert found.offsets == {"a": {P0: 10, KafkaTopicPartition("u", 0): 5}}
    by_name, by_id = "their names alone, because there are no ids to compare", "cluster.id and the topics' names"
    assert found.recognized == {by_name: 1, by_id: 1}
    for last in (8, 9):
        with pytest.raises(ConfigurationError, match="topic 't', partition 0 under two names"):
            next_offsets({("a", "t", 0): 9, ("old", "t", 0): last}, of_old, {"a": desired()}, {"a": view()})


def test_rows_that_nothing_follows_are_a_warning() -> None:
    """By cluster, if the history names them. Where they may come later, it says how they go on."""
    rest = "which this query does not read from Kafka now. Once it does, it goes on after the history's last offsets"
    none = "which this query does not read from Kafka: after the history no more of their rows follow"
    found = next_offsets({("a", "t", 1): 1, ("a", "u", 0): 1}, {}, {"a": desired(partitions={P0})}, {"a": view()})
    assert found.events == [
        Event("warning", f"The history has rows of cluster 'a', topics u, {rest}"),
        Event("warning", f"The history has rows of cluster 'a', partitions t-1, {none}"),
    ]
    many = next_offsets({("a", f"u{n}", 0): 1 for n in range(8)}, {}, {"a": desired()}, {"a": view()})
    assert "u4" in many.events[0].text
    assert "u5" not in many.events[0].text
    found = next_offsets({("", "t", 1): 1}, {}, {"a": desired(partitions={P0})}, {"a": view()})
    assert found.events == [Event("warning", f"The history has rows of partitions t-1, {none}")]


def test_topic_ids_may_be_as_kafka_prints_them() -> None:
    """Also those of topics that are not read now, which are kept."""
    ids = {"a": {"topics": {"t": "AbC+eF/hIjKlMnOpQrStUv", "u": "AbC-eF_hIjKlMnOpQrStUv"}}}
    seen = ClusterView("A", {"t": "AbC-eF_hIjK"}, {"t": 1}, {P0: 9})
    found = next_offsets({("a", "t", 0): 4, ("a", "u", 0): 4}, ids, {"a": desired()}, {"a": seen})
    assert not found.without_id
    assert found.unread["a", "u"].topic_id == "AbC-eF_hIjK"


def test_a_copy_of_a_cluster_in_the_history_is_told() -> None:
    """By partition: whether the history has some of it, too. Other topics are no copies."""
    of = {"b": desired("t", "new", "u", continues=Continues("a", "records", {"t": "new", "w": "u"}))}
    largest = {("a", "t", 0): 9, ("b", "new", 1): 9}
    found = next_offsets(largest, {}, of, {"b": view("B", t=2, new=2, u=2)})
    assert found.copies == {("b", "new"): ("a", "t")}
    seen = copies_seen(found, [("b", KafkaTopicPartition(topic, p)) for topic in ("t", "new", "u") for p in (0, 1)])
    assert seen == [
        Seen("copied", 0, 1, ("b/new-0 continues a/t",)),
        Seen("moved", 0, 1, ("b/new-1 continues a/t",)),
    ]
    of = {"b": desired("t", "new")}
    assert next_offsets(largest, {}, of, {"b": view("B", t=2, new=2)}).copies == {}


def test_a_cluster_that_the_history_does_not_have_starts_at_its_beginning() -> None:
    """All of its partitions."""
    assert AfterHistory(False, {"other": {P0: 9}}).get_partition_offsets([P0], Log({P0: (3, 20)})) == {P0: 3}


@pytest.mark.parametrize(
    ("after", "log"),
    [
        (lambda tps: AfterHistory(False, {"a": dict.fromkeys(tps, 5)}), (0, 4)),
        (lambda tps: AfterHistory(False, {"a": dict.fromkeys(tps, 5)}), (6, 9)),
        (lambda _: _BY_TIME, (15, 20)),
    ],
)
def test_of_many_partitions_five_are_named(after: Callable[[Any], AfterHistory], log: tuple[int, int]) -> None:
    """And how many there are besides."""
    tps = [KafkaTopicPartition("t", n) for n in range(8)]
    with pytest.raises(DynamicKafkaError, match="t-4") as found:
        after(tps).get_partition_offsets(tps, Log(dict.fromkeys(tps, log), at_time=15))
    assert "t-5" not in str(found.value)


def settings(**options: str) -> SourceSettings:
    """The source's settings with a history."""
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "history.path": "/h"} | options
    return configure_source(given)


def test_what_is_not_in_the_history_starts_at_its_beginning() -> None:
    """Whatever the default start: there must be no gap."""
    assert settings().starting == KafkaOffsetsInitializer.earliest()
    by_time = settings(**{"history.switch": "timestamp", "history.switch.timestamp-millis": "7"})
    assert by_time.starting == KafkaOffsetsInitializer.timestamp(7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "'startingOffsets' and 'history.switch' are in conflict"),
        ({"history.switch": "starting-offsets"}, "no starting offsets are given"),
        ({"history.switch": "timestamp"}, "'history.switch.timestamp-millis' is missing"),
        ({"history.switch.timestamp-millis": "5"}, "needs 'history.switch' = 'timestamp'"),
        ({"history.format": "xls"}, "history.format"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, str], message: str) -> None:
    """They are errors at load."""
    with pytest.raises((ConfigurationError, ConflictingOptionsError), match=message):
        settings(**options)


def test_options_of_a_history_need_its_path() -> None:
    """Else they would be without effect."""
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "history.format": "parquet"}
    with pytest.raises(ConfigurationError, match=r"'history\.path' is missing"):
        configure_source(given)

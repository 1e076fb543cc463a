"""What is said of the switch from a history to Kafka: whole sentences, because people decide by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.source.rules.test_history_switch import P0, P1, Log, desired, view

from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document
from dynamic_kafka.source.rules.model import Event
from dynamic_kafka.source.rules.switch import AfterHistory, check_answers, check_positions, next_offsets

_UNPROVED = "so it cannot be proved where Kafka goes on after the history"
_WITHOUT = "Nothing was read. Use a history that goes further, or set failOnDataLoss=false to go on without them"
_BY_TIME = AfterHistory(False, given=KafkaOffsetsInitializer.timestamp(5), is_time=True)
_LEADERLESS = Document(clusters={"a": ClusterOffsets(ranges={P1: (0, 0)}, unresolved={P0: 1})})
_UNSEEN = Document(clusters={"a": ClusterOffsets(ranges={P0: (0, 0)}, unseen={"u": 1})})


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
                "The history names the cluster 'a' in more than one way, and the largest offsets of topic 't', partition 0 "
                "differ. Set history.switch to starting-offsets"
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


def test_one_cluster_may_have_two_names_if_they_agree() -> None:
    """It was renamed while the history was made."""
    largest = {("a", "t", 0): 9, ("old", "t", 0): 9, ("", "u", 0): 4}
    found = next_offsets(largest, {"old": {"id": "A"}}, {"a": desired("t", "u")}, {"a": view(t=1, u=1)})
    assert found.offsets == {"a": {P0: 10, KafkaTopicPartition("u", 0): 5}}
    by_name, by_id = "their names alone, because there are no ids to compare", "cluster.id and the topics' names"
    assert found.recognized == {by_name: 1, by_id: 2}


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

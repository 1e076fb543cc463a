"""Where Kafka goes on after a history, and when that cannot be proved."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from dynamic_kafka.errors import (
    ClusterUnavailableError,
    ConfigurationError,
    ConflictingOptionsError,
    OffsetResolutionError,
)
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document
from dynamic_kafka.source.rules.model import ClusterView, DesiredCluster
from dynamic_kafka.source.rules.switch import AfterHistory, Unread, check_answers, check_positions, next_offsets
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


def test_kafka_goes_on_after_the_largest_offset() -> None:
    """Partitions that the history does not have start at their beginning."""
    after = AfterHistory(False, {"a": {P0: 10}})
    assert after.get_partition_offsets([P0, P1], Log({P0: (0, 20), P1: (3, 9)})) == {P0: 10, P1: 3}
    assert after.get_partition_offsets([P0], Log({P0: (10, 10)})) == {P0: 10}


def test_records_that_kafka_has_deleted_are_counted_before_anything_is_read() -> None:
    """Each partition with its number and its offsets; tolerated, reading starts at what is left."""
    log = Log({P0: (15, 20), P1: (3, 9)})
    with pytest.raises(
        OffsetResolutionError, match=r"6 records .* deleted from Kafka: t-0: 5 \(offsets 10 to 14\), t-1: 1"
    ):
        AfterHistory(False, {"a": {P0: 10, P1: 2}}).get_partition_offsets([P0, P1], log)
    tolerant = AfterHistory(True, {"a": {P0: 10}})
    assert tolerant.get_partition_offsets([P0], log) == {P0: 15}
    assert tolerant.given_up == [
        "Cluster 'a': 5 records that follow the history were deleted from Kafka: t-0: 5 (offsets 10 to 14)"
    ]


def test_a_history_ahead_of_kafka_is_of_another_log() -> None:
    """Also if data loss is tolerated: nothing is known of where to go on."""
    with pytest.raises(OffsetResolutionError, match="t-0 ends at 20 and goes on at 21"):
        AfterHistory(True, {"a": {P0: 21}}).get_partition_offsets([P0], Log({P0: (0, 20)}))


def test_a_time_is_refused_if_retention_may_have_eaten_what_follows() -> None:
    """The first record that is left is after the time, and it is not the first one of the log."""
    by_time = AfterHistory(False, given=KafkaOffsetsInitializer.timestamp(5), is_time=True)
    with pytest.raises(OffsetResolutionError, match=r"may have been deleted .* t-0 begins at offset 15"):
        by_time.get_partition_offsets([P0], Log({P0: (15, 20)}, at_time=15))
    assert by_time.get_partition_offsets([P0], Log({P0: (15, 20)}, at_time=16)) == {P0: 16}
    assert by_time.get_partition_offsets([P0], Log({P0: (0, 20)}, at_time=0)) == {P0: 0}


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


def test_without_a_column_the_only_cluster_is_meant() -> None:
    """With more clusters nobody knows."""
    assert next_offsets({("", "t", 0): 9}, {}, {"a": desired()}, {"a": view()}).offsets == {"a": {P0: 10}}
    with pytest.raises(ConfigurationError, match="no column 'cluster'"):
        next_offsets({("", "t", 0): 9}, {}, {"a": desired(), "b": desired()}, {"a": view(), "b": view("B")})


@pytest.mark.parametrize(
    ("archive", "views", "error", "message"),
    [
        ({"a": {"id": "X"}}, {"a": view()}, OffsetResolutionError, "cluster.id was X and is now A"),
        ({"a": {"topics": {"t": "other"}}}, {"a": view()}, OffsetResolutionError, "was other and is now id-t"),
        ({}, {"a": view(t=0)}, OffsetResolutionError, "partition 0, which does not exist there now"),
        ({}, {"a": view(u=1)}, OffsetResolutionError, "'t', partition 0, which does not exist"),
        ({}, {}, ClusterUnavailableError, "does not answer"),
    ],
)
def test_what_is_not_as_in_the_history_is_an_error(
    archive: Any, views: Any, error: type[Exception], message: str
) -> None:
    """Before anything is read."""
    with pytest.raises(error, match=message):
        next_offsets({("a", "t", 0): 9}, archive, {"a": desired()}, views)


def test_rows_that_nothing_follows_are_named() -> None:
    """Of clusters, topics and partitions that the query does not read."""
    largest = {("gone", "t", 0): 1, ("a", "u", 0): 1, ("a", "t", 1): 1, ("a", "t", 0): 1}
    archive = {"gone": {"id": "G", "topics": {"t": "id"}}}
    found = next_offsets(largest, archive, {"a": desired(partitions=frozenset([P0]))}, {"a": view()})
    assert found.offsets == {"a": {P0: 2}}
    assert found.unread == {("gone", "t"): Unread("G", "id", {0: 2}), ("a", "u"): Unread("", "", {0: 2})}
    assert found.without_id == {("a", "t", 0)}
    assert len(found.events) == 3


def test_a_partition_without_a_leader_stops_the_first_start() -> None:
    """Where it goes on could not be compared with its log."""
    document = Document(clusters={"a": ClusterOffsets(ranges={P1: (0, 0)}, unresolved={P0: 1})})
    for offsets in ({"a": {P0: 10}}, {}):  # nor would anybody check later where another one begins
        with pytest.raises(ClusterUnavailableError, match="partition 0 has no leader"):
            check_positions(document, offsets, given=())


def test_a_topic_that_is_not_seen_stops_only_where_it_would_not_start_at_its_beginning() -> None:
    """Elsewhere it may be created later."""
    document = Document(clusters={"a": ClusterOffsets(ranges={P0: (0, 0)}, unseen={"u": 1})})
    check_positions(document, {}, given=())
    with pytest.raises(ClusterUnavailableError, match="does not show topic 'u'"):
        check_positions(document, {}, given=["a"])


def test_all_clusters_answer_first() -> None:
    """Also those that the history does not have."""
    check_answers({"a"}, {"a", "b"})
    with pytest.raises(ClusterUnavailableError, match="Cluster 'b' does not answer"):
        check_answers({"a", "b"}, {"a"})


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

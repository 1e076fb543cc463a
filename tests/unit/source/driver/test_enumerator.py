"""What the driver plans: from options, a metadata service in memory and a cluster made of dicts, to tasks."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.engine import StandIn
from tests.histories import records, write
from tests.unit.history.test_archive import Folder

import dynamic_kafka.source.driver.enumerator as enumerator_module
from dynamic_kafka.errors import (
    CheckpointError,
    ClusterUnavailableError,
    ConfigurationError,
    DynamicKafkaError,
    OffsetResolutionError,
)
from dynamic_kafka.files import open_files
from dynamic_kafka.history.archive import log as archive_log
from dynamic_kafka.history.archive.data import write_parts
from dynamic_kafka.history.archive.model import PartitionKey
from dynamic_kafka.history.archive.plan import batch_of, decode_plan, encode_plan
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.kafka.cluster import TopicInfo
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.rows import arrow_schema
from dynamic_kafka.source.configure import SourceObjects, configure_source
from dynamic_kafka.source.document.offsets import MARKER, ClusterOffsets, Document, decode
from dynamic_kafka.source.driver import monitor
from dynamic_kafka.source.driver.enumerator import SourceEnumerator
from dynamic_kafka.source.driver.observed import _missing
from dynamic_kafka.source.driver.view import SourceView
from dynamic_kafka.source.rules.model import KafkaRow
from dynamic_kafka.source.rules.planning import ReadTask, plan
from dynamic_kafka.spark.datasource import DynamicKafkaStreamReader
from dynamic_kafka.testing.helpers import wait_until

Logs = dict[str, list[tuple[int, int]]]


class Connection(StandIn):
    """A connection to a cluster of `logs`: topic to (start, end) of each partition."""

    clusters: Mapping[str, Logs] = {}
    denied: Collection[str] = ()
    leaderless: Collection[KafkaTopicPartition] = ()
    dead: Collection[str] = ()

    @property
    def logs(self) -> Logs:
        """Its topics, if it answers."""
        if self.cluster_id in self.dead:
            raise ClusterUnavailableError(f"Cluster '{self.cluster_id}' does not answer", cluster_id=self.cluster_id)
        return self.clusters[self.cluster_id]

    def topics(self, names: Collection[str]) -> tuple[dict[str, TopicInfo], frozenset[str]]:
        """Those that exist."""
        denied = frozenset(self.denied) & frozenset(names)
        return {
            name: TopicInfo(
                f"{name:x<11}",
                tuple(-1 if KafkaTopicPartition(name, p) in self.leaderless else 1 for p in range(len(logs))),
            )
            for name, logs in self.logs.items()
            if name in names and name not in denied
        }, denied

    def available_ends(self, tps: Collection[KafkaTopicPartition], _: Any) -> dict[KafkaTopicPartition, int]:
        """All ends."""
        return {tp: self.logs[tp.topic][tp.partition][1] for tp in tps}

    def beginning_offsets(self, tps: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """All starts."""
        return {tp: self.logs[tp.topic][tp.partition][0] for tp in tps}


def rows_at(
    _: SourceView, cluster: str, __: ClusterOffsets, asked: Mapping[KafkaTopicPartition, int]
) -> dict[KafkaTopicPartition, KafkaRow]:
    """The records that a history has, too."""
    rows = {tp: records(tp.topic, [at], partition=tp.partition, cluster=cluster)[0] for tp, at in asked.items()}
    return {tp: KafkaRow(row["timestamp"] // 1000, row["key"], row["value"]) for tp, row in rows.items()}


@pytest.fixture(autouse=True)
def clusters(monkeypatch: pytest.MonkeyPatch) -> dict[str, Logs]:
    """The clusters: `kafka` has the topic `t` with two partitions."""
    monkeypatch.setattr(monitor, "ClusterConnection", Connection)
    monkeypatch.setattr(SourceView, "rows_at", rows_at)
    found: dict[str, Logs] = {"kafka": {"t": [(0, 100), (0, 10)]}}
    monkeypatch.setattr(Connection, "clusters", found)
    return found


Enumerate = Callable[..., SourceEnumerator]


@pytest.fixture
def enumerator() -> Iterator[Enumerate]:
    """Make enumerators of `t` from its earliest offset on, and close them."""
    made = []

    def make(objects: SourceObjects | None = None, *, last_row: bool = False, **options: str) -> SourceEnumerator:
        given = {} if objects else {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
        if "assign" in options:
            given.pop("subscribe")
        settings = configure_source(given | options, objects)
        made.append(SourceEnumerator(replace(settings, last_row=last_row)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def batch(query: SourceEnumerator, start: Mapping[str, Any] = MARKER) -> dict[str, Any]:
    """The next document, as Spark's checkpoint keeps it."""
    return dict(json.loads(json.dumps(query.latest_offset(start, limited=True))))


def ranges(tasks: list[ReadTask]) -> list[tuple[str, int, int, int]]:
    """The ranges of all tasks."""
    return [(r.topic, r.partition, r.start, r.end) for task in tasks for r in task.ranges]


def test_what_is_not_read_is_no_lag_of_0(
    enumerator: Enumerate, monkeypatch: pytest.MonkeyPatch, clusters: dict[str, Logs]
) -> None:
    """Of a topic that the user may not see, or a partition without a leader at the start, nothing is known."""
    clusters["kafka"]["secret"] = [(0, 1000)]
    for name, unknown in (("denied", "secret"), ("leaderless", KafkaTopicPartition("secret", 0)), ("denied", "none")):
        with monkeypatch.context() as patch:
            patch.setattr(Connection, name, [unknown])
            query = enumerator(subscribe="t,secret")
            start = batch(query)
            while (end := batch(query, start)) != start:
                start = end
            read = query.report()["clusters"]["kafka"]
            view = query._view.monitors["kafka"].view
            assert view is not None
            known = _missing("kafka", view, decode(start).clusters["kafka"])
        assert (read["behind"], known[1]) == ((0, 0) if unknown == "none" else (None, 1)), unknown
        assert len(known[0]) == known[1], known


def events(query: SourceEnumerator) -> list[str]:
    """What was told."""
    texts = [event["text"] for event in query.report()["events"]]
    return [text for text in texts if not text.startswith("metadata: ")]


# --- offsets that the user gives up ---


def test_a_range_is_given_up_in_the_repeated_batch_only(enumerator: Enumerate) -> None:
    """The option is spent by the batch that the query repeats when it starts, and it leaves a line."""
    end = batch(enumerator())

    query = enumerator(**{"skip-offsets": "kafka/t/0:40-100;kafka/t/1:0-10"})
    assert ranges(query.tasks(MARKER, end)) == [("t", 0, 0, 40)]
    assert events(query) == [
        "skip-offsets=kafka/t/0:40-100: these 60 offsets are given up, as the option says",
        "skip-offsets=kafka/t/1:0-10: these 10 offsets are given up, as the option says",
    ]
    assert batch(query, end) == end
    assert len(events(query)) == 2
    assert ranges(query.tasks(MARKER, end)) == [("t", 0, 0, 100), ("t", 1, 0, 10)]


def test_offsets_that_are_not_repeated_are_not_given_up(enumerator: Enumerate) -> None:
    """A value that was left in the options has no effect, and that is said once."""
    query = enumerator(**{"skip-offsets": "kafka/t/0:0-100;kafka/t/1:0-5"})
    end = batch(query)
    assert ranges(query.tasks(MARKER, end)) == [("t", 0, 0, 100), ("t", 1, 0, 10)]
    batch(query, end)
    told = "skip-offsets=kafka/t/0:0-100;kafka/t/1:0-5 has no effect: the query has no such range to repeat. Take the"
    assert [text.startswith(told) for text in events(query)] == [True]


def test_a_batch_that_is_given_up_whole_has_no_task(enumerator: Enumerate) -> None:
    """Nothing is asked for it: the cluster and the metadata service may be gone."""
    end = batch(enumerator())
    query = enumerator(**{"skip-offsets": "kafka/t/0:0-100;kafka/t/1:0-10"})
    assert query.tasks(MARKER, end) == []


# --- thousands of idle partitions ---


def idle_call_s(query: SourceEnumerator, document: dict[str, Any]) -> float:
    """The least CPU time of what Spark asks in each poll, of several polls."""
    times = []
    for _ in range(20):
        began = time.thread_time()
        assert query.latest_offset(document, limited=True) == document
        query.report()
        times.append(time.thread_time() - began)
    return min(times)


def test_a_poll_with_a_hundred_times_the_partitions_does_not_look_at_each(
    enumerator: Enumerate, clusters: dict[str, Logs]
) -> None:
    """While nothing changes, it compares objects. It waits for news longer, which costs a little."""
    costs = []
    for partitions in (100, 10_000):
        clusters["kafka"] = {"t": [(0, 10)] * partitions}
        query = enumerator()
        costs.append(idle_call_s(query, batch(query, batch(query))))
    assert costs[1] < 30 * costs[0]


def test_ten_thousand_idle_partitions_are_looked_at_seldom_and_a_record_is_noticed_in_two_seconds(
    enumerator: Enumerate, clusters: dict[str, Logs], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh of them takes 30 ms of CPU on real brokers, so there is one in 1.5 s; with a record, soon the next one."""
    looks = []
    real = Connection.available_ends

    def available_ends(self: Connection, tps: Collection[KafkaTopicPartition], infos: Any) -> Any:
        looks.append(time.monotonic())
        return real(self, tps, infos)

    monkeypatch.setattr(Connection, "available_ends", available_ends)
    clusters["kafka"] = {"t": [(0, 10)] * 10_000}
    query = enumerator()
    document = batch(query)
    wait_until(lambda: batch(query, document) == document and len(looks) >= 4, 20, "an idle query")
    idle = [later - earlier for earlier, later in pairwise(looks)][2:]
    assert min(idle) >= 1.4
    clusters["kafka"]["t"][77] = (0, 11)
    began = time.monotonic()
    wait_until(lambda: batch(query, document) != document, 20, "the record")
    assert looks[-1] - began < 2


@pytest.mark.parametrize(("partitions", "rest_s"), [(1, 0), (1_000, 0), (4_500, 0.75), (8_000, 1.5), (100_000, 1.5)])
def test_clusters_of_usual_size_are_refreshed_at_each_call(partitions: int, rest_s: float) -> None:
    """Only thousands of partitions are given a rest because nothing changes."""
    assert monitor._rest_unchanged_s(partitions) == rest_s


def test_a_batch_is_read_from_its_text_once(enumerator: Enumerate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark hands the same two texts to several calls."""
    read = []

    def counted(value: Mapping[str, Any]) -> Document:
        read.append(value)
        return decode(value)

    monkeypatch.setattr(enumerator_module, "decode", counted)
    query = enumerator()
    first = batch(query)
    query.tasks(MARKER, first)
    second = batch(enumerator(), first)
    assert second == first
    assert len(read) == 1, "the other enumerator had not written it"
    query.tasks(first, batch(query, first))
    assert len(read) == 1


# --- what a task knows about its clusters ---


class Service(InMemoryMetadataService):
    """A metadata service that knows which clusters are switched off."""

    inactive: Collection[str] = ()

    def is_cluster_active(self, cluster_id: str) -> bool:
        """Whether it is not switched off."""
        return cluster_id not in self.inactive


def service(*names: str, inactive: Collection[str] = ()) -> SourceObjects:
    """The stream `s` with the topic `t` on some clusters."""
    metadata = {name: ClusterMetadata(frozenset({"t"}), {"bootstrap.servers": f"{name}:1"}) for name in names}
    found = Service([KafkaStream("s", metadata)])
    found.inactive = inactive
    return SourceObjects(metadata_service=found)


def test_a_task_knows_which_clusters_are_not_wanted_any_more(enumerator: Enumerate, clusters: dict[str, Logs]) -> None:
    """From an answer of the metadata service to the process that repeats the batch, and never without one."""
    clusters |= {name: {"t": [(0, 10)]} for name in ("a", "b")}
    end = batch(enumerator(service("a", "b"), **{"stream-ids": "s"}))

    def known(objects: SourceObjects) -> dict[str, tuple[str, str, bool]]:
        tasks = enumerator(objects, **{"stream-ids": "s"}).tasks(MARKER, end)
        return {
            name: (access.kafka_id, access.removed, access.from_checkpoint)
            for task in tasks
            for name, access in task.clusters.items()
        }

    wanted = {name: (f"id of {name}", "", False) for name in "ab"}
    assert known(service("a", "b")) == wanted
    gone = "the metadata does not name this cluster any more"
    assert known(service("a")) == wanted | {"b": ("id of b", gone, True)}
    off = "the metadata service calls this cluster inactive"
    assert known(service("a", "b", inactive={"b"})) == wanted | {"b": ("id of b", off, False)}


# --- batch reads ---


def test_a_batch_read_is_complete(enumerator: Enumerate) -> None:
    """From the first to the last offset, or as the options say, for every partition."""
    assert ranges(enumerator().batch_tasks()) == [("t", 0, 0, 100), ("t", 1, 0, 10)]
    given = {"startingOffsets": '{"t": {"0": 5, "1": -2}}', "endingOffsets": '{"t": {"0": 100, "1": -1}}'}
    assert ranges(enumerator(**given).batch_tasks()) == [("t", 0, 5, 100), ("t", 1, 0, 10)]
    assert ranges(enumerator(assign='{"t": [1]}').batch_tasks()) == [("t", 1, 0, 10)]


INCOMPLETE = [
    ({"subscribe": "t,u"}, "Topic 'u' does not exist on the cluster 'kafka'. A batch read does not wait"),
    ({"assign": '{"t": [0, 99]}'}, "Topic 't' has no partition 99 on the cluster 'kafka', but it has 2 partitions"),
    ({"startingOffsets": '{"t": {"0": 1}}'}, "Option 'startingOffsets' does not name t-1"),
    (
        {"startingOffsets": '{"t": {"0": 1, "1": 1, "7": 1}}'},
        "Option 'startingOffsets' names t-7, which this query does",
    ),
    ({"startingOffsets": '{"T": {"0": 1}, "t": "earliest"}'}, "Option 'startingOffsets' names T-0, which"),
    ({"startingOffsets": '{"T": "earliest", "t": "earliest"}'}, "Option 'startingOffsets' names topic T, which"),
    ({"startingOffsets": '{"t": {"0": -1, "1": 1}}'}, "'startingOffsets' gives the offset 'latest'"),
    ({"endingOffsets": '{"t": {"0": -2, "1": 1}}'}, "'endingOffsets' gives the offset 'earliest'"),
    ({"endingOffsets": '{"t": {"0": 100}}'}, "Option 'endingOffsets' does not name t-1"),
    ({"endingOffsets": '{"t": {"0": 1000, "1": 1}}'}, "reading ends at offset 1000, but the log ends at offset 100"),
    (
        {"startingOffsets": '{"t": {"0": 1000, "1": 1}}'},
        "reading starts at offset 1000, but the log ends at offset 100",
    ),
    ({"startingOffsetsByTimestamp": '{"t": {"0": 1, "1": 1, "8": 1}}'}, "'startingOffsets' names t-8|no record at"),
]


@pytest.mark.parametrize(("options", "message"), INCOMPLETE)
def test_a_batch_read_that_would_be_incomplete_fails(
    enumerator: Enumerate, options: dict[str, str], message: str
) -> None:
    """At once, and not after a time-out: as Spark's own connector does."""
    with pytest.raises(DynamicKafkaError, match=message):
        enumerator(**options).batch_tasks()


def test_a_batch_read_of_a_stream_finds_all_its_topics(enumerator: Enumerate, clusters: dict[str, Logs]) -> None:
    """Also those that it may not describe; `isolate` leaves out only clusters that do not answer."""
    clusters["a"] = {}
    for mode in ("fail", "isolate"):
        with pytest.raises(ConfigurationError, match="Topic 't' does not exist on the cluster 'a'"):
            enumerator(service("a"), **{"stream-ids": "s", "cluster-failure-mode": mode}).batch_tasks()


@pytest.mark.parametrize("bounded", [False, True], ids=["batch", "stream with an end"])
def test_a_query_with_an_end_finds_all_its_streams(enumerator: Enumerate, *, bounded: bool) -> None:
    """The error fits a batch read and a stream with stopping offsets."""
    options = {"stream-ids": "s;x", "scan.bounded.mode": "latest-offset"}
    query = enumerator(service("kafka"), **options)
    with pytest.raises(ConfigurationError) as caught:
        batch(query) if bounded else query.batch_tasks()
    assert str(caught.value) == (
        "The metadata service does not know the stream 'x'. A query that ends by itself asks only once: check the id, or "
        "add the stream to the metadata"
    )


def test_a_batch_read_without_a_cluster_says_so(
    enumerator: Enumerate, clusters: dict[str, Logs], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left out only if the user asked for it; also if the cluster dies between the look and the question for its end."""
    clusters |= {name: {"t": [(0, 10)]} for name in ("a", "b")}
    options = {"stream-ids": "s", "cluster-failure-mode": "isolate", "properties.default.api.timeout.ms": "500"}
    monkeypatch.setattr(Connection, "dead", {"b"})
    query = enumerator(service("a", "b"), **options)
    assert ranges(query.batch_tasks()) == [("t", 0, 0, 10)]
    assert events(query) == ["Cluster 'b' does not answer: its topics t are left out"]

    class DiesAtItsStop(KafkaOffsetsInitializer):
        def get_partition_offsets(
            self, partitions: Collection[KafkaTopicPartition], retriever: Any
        ) -> dict[KafkaTopicPartition, int]:
            if retriever.cluster_id == "b":
                raise ClusterUnavailableError("gone", cluster_id="b")
            return dict.fromkeys(partitions, 5)

    monkeypatch.setattr(Connection, "dead", ())
    objects = replace(service("a", "b"), stopping=DiesAtItsStop())
    query = enumerator(objects, **options)
    assert ranges(query.batch_tasks()) == [("t", 0, 0, 5)]
    assert (
        "Cluster 'b', topic 't', partition 0 cannot be read: the cluster did not return its offsets. It is left"
        in str(events(query))
    )
    with pytest.raises(ClusterUnavailableError, match="did not return the offsets"):
        enumerator(objects, **options | {"cluster-failure-mode": "fail"}).batch_tasks()


def test_a_batch_read_that_tolerates_loss_reads_what_is_there(enumerator: Enumerate) -> None:
    """With a warning; offsets beyond the end of a log begin at its earliest offset, as in Flink."""
    offsets = '{"t": {"0": 1000, "1": 1}}'
    query = enumerator(failOnDataLoss="false", endingOffsets=offsets)
    assert ranges(query.batch_tasks()) == [("t", 0, 0, 100), ("t", 1, 0, 1)]
    assert "it is read up to there, because failOnDataLoss=false" in events(query)[0]
    query = enumerator(failOnDataLoss="false", startingOffsets=offsets)
    assert ranges(query.batch_tasks()) == [("t", 0, 0, 100), ("t", 1, 1, 10)]
    assert "it is read from the earliest offset, because failOnDataLoss=false" in events(query)[0]


def test_a_stream_says_which_partitions_do_not_exist(enumerator: Enumerate) -> None:
    """It waits for them, as for a topic that does not exist."""
    query = enumerator(assign='{"t": [1, 99]}')
    assert ranges(query.tasks(MARKER, batch(query))) == [("t", 1, 0, 10)]
    assert events(query)[0].startswith("Cluster 'kafka', topic 't', partition 99 does not exist yet; it will be read")


# --- triggers and initializers ---


def test_trigger_once_reads_all_that_there_is(enumerator: Enumerate) -> None:
    """`minOffsetsPerTrigger` holds back other triggers; Spark asks a limit only for these, so they must have one."""
    query = enumerator(minOffsetsPerTrigger="1000")
    first = batch(query)
    assert "count" in first["clusters"]["kafka"]
    reader = DynamicKafkaStreamReader(query._settings, StructType([StructField("value", BinaryType())]))
    assert reader.getDefaultReadLimit() != ReadAllAvailable()
    plain = DynamicKafkaStreamReader(enumerator()._settings, StructType([StructField("value", BinaryType())]))
    assert plain.getDefaultReadLimit() == ReadAllAvailable()

    Connection.clusters["kafka"]["t"][0] = (0, 600)
    assert batch(query, first) == first
    assert query.latest_offset(first, limited=False) != first


def test_the_last_records_before_the_stops_are_not_held_back(enumerator: Enumerate) -> None:
    """No more can come, so the least number of a batch cannot be reached."""
    given = {"minOffsetsPerTrigger": "60", "maxOffsetsPerTrigger": "70", "startingOffsets": "earliest"}
    query = enumerator(**given, endingOffsets=json.dumps({"t": {"0": 100, "1": 10}}))
    first = batch(query)
    second = batch(query, first)
    assert ranges(query.tasks(first, second)) != []
    assert sum(end - start for *_, start, end in ranges(query.tasks(first, second))) == 40


@pytest.mark.parametrize("wrong", [-2, None, 1.0, True, "5", "no mapping", "left out"])
def test_a_wrong_answer_of_an_initializer_is_an_error(enumerator: Enumerate, wrong: Any) -> None:
    """It names the class, and nothing is written into the checkpoint."""

    class Wrong(KafkaOffsetsInitializer):
        def get_partition_offsets(self, partitions: Any, retriever: Any) -> Any:
            if wrong in ("no mapping", "left out"):
                return None if wrong == "no mapping" else {}
            return dict.fromkeys(partitions, wrong)

    clusters = SourceObjects(starting=Wrong())
    query = enumerator(clusters, **{"kafka.bootstrap.servers": "b:1", "subscribe": "t"})
    with pytest.raises(OffsetResolutionError, match=r"Wrong returned .* for t-0 on cluster 'kafka'; return an int"):
        batch(query)


def test_without_a_group_no_committed_offset_is_asked_for(
    enumerator: Enumerate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group that brokers see then is nobody's; a query may have no access to it."""
    asked: list[Any] = []

    def committed_offsets(_: Connection, tps: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        asked.append(tps)
        return dict.fromkeys(tps, 7)

    monkeypatch.setattr(Connection, "committed_offsets", committed_offsets)
    partial = '{"t": {"0": 5}}'
    flink = KafkaOffsetsInitializer.offsets({("t", 0): 5})
    both = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}

    def starts(query: SourceEnumerator) -> list[int]:
        return [start for _, _, start, _ in ranges(query.tasks(MARKER, batch(query)))]

    assert starts(enumerator(startingOffsets=partial)) == [5, 0]
    assert starts(enumerator(SourceObjects(starting=flink), **both)) == [5, 0]
    assert starts(enumerator(startingOffsets=partial, **{"kafka.group.id": "mine"})) == [5, 0]
    assert asked == []
    assert starts(enumerator(SourceObjects(starting=flink), **both, **{"kafka.group.id": "mine"})) == [5, 7]


def test_ending_offsets_name_every_partition(enumerator: Enumerate) -> None:
    """A partition that is left out would never be read, in a stream either."""
    with pytest.raises(OffsetResolutionError, match="Option 'endingOffsets' does not name t-1 on cluster 'kafka'"):
        batch(enumerator(endingOffsets='{"t": {"0": 100}}'))


# --- history ------------------------------------------------------------------------------------------------------------


def in_history(tmp_path: Path, *offsets: int, partition: int = 0) -> dict[str, str]:
    """Options of a query with a history of such records."""
    write(tmp_path / f"{partition}.parquet", records("t", offsets, partition=partition))
    return {"history.path": str(tmp_path), "maxOffsetsPerTrigger": "8"}


def rows_and_ranges(source: SourceEnumerator, start: Mapping[str, Any], end: Mapping[str, Any]) -> Any:
    """The rows of the history and the ranges of Kafka in a batch."""
    tasks = source.tasks(start, end)
    rows = [(p.first, p.last) for task in tasks if task.history is not None for p in task.history.pieces]
    ranges = [(r.partition, r.start, r.end) for task in tasks for r in task.ranges]
    return rows, ranges


def test_the_history_comes_first_and_kafka_goes_on_behind_it(enumerator: Enumerate, tmp_path: Path) -> None:
    """A batch is of the one or of the other, within the limit; what the history lacks starts at its beginning."""
    source = enumerator(**in_history(tmp_path, *range(95)))
    log = [dict(MARKER)]
    seen = []
    while len(log) < 50:
        end = source.latest_offset(log[-1], limited=True)
        if end == log[-1]:
            break
        log.append(json.loads(json.dumps(end)))
        seen.append(rows_and_ranges(source, *log[-2:]))
    rows = [r for found, _ in seen for r in found]
    ranges = [r for _, found in seen for r in found]
    assert rows == [(n, min(n + 8, 95)) for n in range(0, 95, 8)]
    assert all(bool(found) != bool(others) for found, others in seen)
    assert sum(end - start for p, start, end in ranges if p == 0) == 5
    assert min(start for p, start, _ in ranges if p == 0) == 95
    assert sum(end - start for p, start, end in ranges if p == 1) == 10
    assert "files" in log[1]["history"]
    assert "files" not in log[-1]["history"]
    progress = source.report()["history"]
    assert (progress["stage"], progress["read"]) == ("kafka", 95)
    assert "after the largest offset of each of 1 partitions" in progress["promise"]
    # Another process plans the same, without the options of the history and after the files are gone.
    shutil.rmtree(tmp_path)
    other = enumerator()
    assert [rows_and_ranges(other, *pair) for pair in pairwise(log)] == seen


def test_the_last_rows_of_the_history_are_not_the_end(enumerator: Enumerate, tmp_path: Path) -> None:
    """Of a query that ends: with nothing left in Kafka, it is done in the batch after the history."""
    options = in_history(tmp_path, *range(100)) | in_history(tmp_path, *range(10), partition=1)
    source = enumerator(endingOffsets="latest", **options | {"maxOffsetsPerTrigger": "200"})
    first = source.latest_offset(MARKER, limited=True)
    assert "done" not in first
    second = source.latest_offset(first, limited=True)
    assert second["done"] == 1
    assert rows_and_ranges(source, first, second) == ([], [])


def test_a_run_of_available_now_reads_both(enumerator: Enumerate, tmp_path: Path) -> None:
    """The history, then Kafka up to the ends that the run has found."""
    source = enumerator(**in_history(tmp_path, *range(98)) | {"maxOffsetsPerTrigger": "1000"})
    source.prepare_available_now()
    first = source.latest_offset(MARKER, limited=True)
    assert rows_and_ranges(source, MARKER, first) == ([(0, 98)], [])
    second = source.latest_offset(first, limited=True)
    assert rows_and_ranges(source, first, second) == ([], [(0, 98, 100), (1, 0, 10)])
    assert source.latest_offset(second, limited=True) is second


def test_a_batch_read_has_both(enumerator: Enumerate, tmp_path: Path) -> None:
    """The rows of the history are in its first tasks."""
    tasks = enumerator(**in_history(tmp_path, *range(98))).batch_tasks()
    assert [(task.history is not None, len(task.ranges)) for task in tasks] == [(True, 0), (False, 2)]


def test_a_gap_of_the_history_is_read_from_kafka(enumerator: Enumerate, tmp_path: Path) -> None:
    """In its place among the files, within the limit; also in a batch read, and under another name of the cluster."""
    options = in_history(tmp_path / "a", *range(10, 20)) | in_history(tmp_path / "b", *range(10))
    options |= in_history(tmp_path / "b" / "c", *range(26, 99)) | {"history.path": str(tmp_path)}
    log: list[Any] = [dict(MARKER)]
    source = enumerator(**options)
    for _ in range(4):
        log.append(batch(source, log[-1]))
    seen = [rows_and_ranges(source, *pair) for pair in pairwise(log)]
    assert seen == [([(0, 8)], []), ([(8, 10), (0, 6)], []), ([(6, 10)], [(0, 20, 24)]), ([(0, 6)], [(0, 24, 26)])]
    assert source.report()["history"]["verdict"] == "exact"
    document = decode(log[-2])
    document.clusters["new"] = document.clusters.pop("kafka")
    assert [r.cluster for ranges in plan(document) for r in ranges] == ["new"]
    del document.clusters["new"]
    with pytest.raises(
        ClusterUnavailableError, match="the history has a gap at offsets 20 to 25, which is read from Kafka"
    ):
        plan(document)
    tasks = enumerator(**options).batch_tasks()
    assert [[(r.partition, r.start, r.end) for r in task.ranges] for task in tasks if task.ranges] == [
        [(0, 20, 26), (1, 0, 10)],
        [(0, 99, 100)],  # a task reads one range of a partition
    ]


def archived(folder: Path, *ranges: tuple[int, int]) -> dict[str, str]:
    """Options of a query with an archive that has read these ranges of a partition."""
    made = Folder(folder, cluster=("id of kafka", "kafka"))
    for start, end in ranges:
        plan_ = made.plan({0: (PartitionKey("id of kafka", "t", f"{'t':x<11}", 0), start, end)})
        rows = pa.Table.from_pylist(records("t", range(start, end)), arrow_schema(records("t", [0])[0])).to_batches()
        parts = [write_parts(decode_plan(encode_plan(plan_)), rows)]
        assert archive_log.create_record(open_files(made.path), made.query, plan_.record, batch_of(plan_, parts))
    return {"history.path": str(folder), "maxOffsetsPerTrigger": "8"}


def test_what_an_archive_has_never_read_is_read_from_kafka_or_is_an_error(
    enumerator: Enumerate, tmp_path: Path, clusters: dict[str, Logs]
) -> None:
    """As other data loss, with the number and the range; tolerated, it is in the promise and a warning."""
    options = archived(tmp_path, (0, 10), (20, 30))
    source = enumerator(**options | {"maxOffsetsPerTrigger": "100"})
    first = batch(source)
    assert rows_and_ranges(source, MARKER, first) == ([(0, 10), (0, 10)], [(0, 10, 20)])
    assert source.report()["history"]["verdict"] == "exact"
    assert source.report()["history"]["promise"].endswith("recognized by cluster.id and topic id")

    clusters["kafka"]["t"][0] = (16, 100)
    said = "6 offsets were never read by the archive, and Kafka does not have them any more: kafka/t-0: 10 to 15"
    with pytest.raises(OffsetResolutionError, match=rf"is not complete: {said}\. Nothing was read"):
        batch(enumerator(**options))
    tolerant = enumerator(**options, failOnDataLoss="false")
    batch(tolerant)
    assert tolerant.report()["history"]["verdict"] == "not exact"
    assert f"Not exact: {said}; 4 offsets" in tolerant.report()["history"]["promise"]
    assert f"The history: {said}" in events(tolerant)


def test_nothing_is_read_if_kafka_does_not_go_on(
    enumerator: Enumerate, tmp_path: Path, clusters: dict[str, Logs]
) -> None:
    """The first start fails, with the number of records that are missing."""
    clusters["kafka"]["t"] = [(50, 100), (0, 10)]
    with pytest.raises(OffsetResolutionError, match=r"20 records .* t-0: 20 \(offsets 30 to 49\)"):
        enumerator(**in_history(tmp_path, *range(30))).latest_offset(MARKER, limited=True)
    tolerant = enumerator(**in_history(tmp_path, *range(30)), failOnDataLoss="false")
    assert tolerant.latest_offset(MARKER, limited=True)["clusters"]["kafka"]["start"] == [50, 0]
    assert "Not exact: Cluster 'kafka': 20 records" in tolerant.report()["history"]["promise"]
    assert any("20 records" in text and text.endswith("because failOnDataLoss=false") for text in events(tolerant))


def test_a_history_for_a_query_that_has_begun_has_no_effect(enumerator: Enumerate, tmp_path: Path) -> None:
    """It says so."""
    began = enumerator().latest_offset(MARKER, limited=True)
    source = enumerator(**in_history(tmp_path, 1))
    assert source.latest_offset(began, limited=True) is began
    assert any("history.path has no effect" in event["text"] for event in source.report()["events"])


def test_another_history_for_a_query_that_has_begun_has_no_effect(enumerator: Enumerate, tmp_path: Path) -> None:
    """It reads the one that it has begun with, and says so."""
    options = in_history(tmp_path / "a", *range(30))
    began = enumerator(**options).latest_offset(MARKER, limited=True)
    for path, is_said in ((tmp_path / "a", False), (tmp_path / "b", True)):
        source = enumerator(**options | {"history.path": str(path)})
        assert source.latest_offset(began, limited=True)["history"]["location"] == str(tmp_path / "a")
        assert any(f"history.path={path} has no effect" in text for text in events(source)) == is_said


def of_clusters(**starting: KafkaOffsetsInitializer | None) -> SourceObjects:
    """A metadata service with clusters that have the topic `t`, and starting offsets of their own or none."""
    metadata = {
        name: ClusterMetadata(frozenset({"t"}), {"bootstrap.servers": f"{name}:1"}, starting_offsets=own)
        for name, own in starting.items()
    }
    return SourceObjects(metadata_service=InMemoryMetadataService([KafkaStream("s", metadata)]))


@pytest.mark.parametrize("switch", ["coordinates", "timestamp", "starting-offsets"])
def test_a_clusters_own_starting_offsets_do_not_bypass_the_switch(
    enumerator: Enumerate, tmp_path: Path, clusters: dict[str, Logs], switch: str
) -> None:
    """They are without effect, or checked if starting offsets were asked for."""
    clusters["a"] = {"t": [(20, 100)]}
    options = in_history(tmp_path, *range(30)) | {"stream-ids": "s", "history.switch": switch}
    if switch == "timestamp":
        options |= {"history.switch.timestamp-millis": "5", "failOnDataLoss": "false"}
    if switch == "starting-offsets":
        options |= {"startingOffsets": "latest"}
    own = KafkaOffsetsInitializer.offsets({KafkaTopicPartition("t", 0): 3})
    source = enumerator(of_clusters(a=own), **options)
    if switch == "starting-offsets":
        with pytest.raises(OffsetResolutionError, match=r"17 records .* deleted from Kafka"):
            source.latest_offset(MARKER, limited=True)
        return
    write(tmp_path / "0.parquet", records("t", range(30), cluster="a"))
    first = source.latest_offset(MARKER, limited=True)
    # No record is late enough for the time, so Kafka goes on at its end.
    assert first["clusters"]["a"]["start"] == ([30] if switch == "coordinates" else [100])
    again = enumerator(of_clusters(a=own), **options)
    again.latest_offset(first, limited=True)
    assert not any("Not as in the checkpoint" in text for text in events(again))


@pytest.mark.parametrize("switch", ["coordinates", "starting-offsets"])
def test_all_clusters_answer_before_a_history_is_read(
    enumerator: Enumerate, tmp_path: Path, clusters: dict[str, Logs], monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    """Also with `isolate`: later nobody would check where Kafka goes on."""
    clusters |= {"a": {"t": [(0, 100)]}, "b": {"t": [(0, 100)]}}
    monkeypatch.setattr(Connection, "dead", {"b"})
    write(tmp_path / "f.parquet", records("t", range(30), cluster="a"))
    options = {"history.path": str(tmp_path), "history.switch": switch, "stream-ids": "s"}
    options |= {"cluster-failure-mode": "isolate", "properties.default.api.timeout.ms": "500"}
    if switch == "starting-offsets":
        options |= {"startingOffsets": "earliest"}
    with pytest.raises(ClusterUnavailableError, match="Cluster 'b' does not answer, so it cannot be proved"):
        enumerator(of_clusters(a=None, b=None), **options).latest_offset(MARKER, limited=True)


# --- the last row of a stream with an end ---


def plans(
    query: SourceEnumerator, start: Mapping[str, Any] = MARKER
) -> Iterator[tuple[dict[str, Any], list[ReadTask]]]:
    """Its batches up to the end: the document, and the tasks."""
    while (end := batch(query, start)) != start:
        yield end, query.tasks(start, end)
        start = end


@pytest.mark.parametrize("available_now", [False, True])
def test_the_last_row_comes_once_behind_all_records_and_is_not_the_last_batch(
    enumerator: Enumerate, *, available_now: bool
) -> None:
    """Spark has the watermark of the last row in the batch after it, so one more follows, also after a restart."""
    source = enumerator(endingOffsets="latest", last_row=True, maxOffsetsPerTrigger="60")
    if available_now:
        source.prepare_available_now()
    found = list(plans(source))
    assert [[task.last_row for task in tasks] for _, tasks in found] == [[False], [False], [True], []]
    assert [end.get("done", 0) for end, _ in found] == [0, 0, 1, 2]
    assert not any(ranges(tasks) for _, tasks in found[2:])
    assert list(plans(source, found[-1][0])) == []
    for again in (found[2][0], found[3][0]):  # a restart after each of the two batches
        later = list(plans(enumerator(endingOffsets="latest", last_row=True), again))
        assert [[task.last_row for task in tasks] for _, tasks in later] == [[True], []]
    # A repeated batch has the row, from its documents alone.
    assert enumerator(last_row=True).tasks(found[1][0], found[2][0]) == found[2][1]


@pytest.mark.parametrize("options", [{"endingOffsets": "latest", "last_row": False}, {"last_row": True}])
def test_there_is_no_last_row_unless_it_is_asked_for_and_there_is_an_end(
    enumerator: Enumerate, options: dict[str, Any]
) -> None:
    """A stream without an end has none, however often it has read everything."""
    source = enumerator(**options)
    found = list(plans(source))
    assert not any(task.last_row or "last row" in end for end, tasks in found for task in tasks)
    assert batch(source, found[-1][0]) == found[-1][0]


def test_what_comes_after_the_last_row_is_an_error(enumerator: Enumerate, clusters: dict[str, Logs]) -> None:
    """Such as without the end that it had, or with another topic: the query would drop it as late."""
    ended = list(plans(enumerator(endingOffsets="latest", last_row=True)))[-1][0]
    with pytest.raises(CheckpointError, match="had reached its end"):
        batch(enumerator(last_row=True), ended)
    clusters["kafka"]["u"] = [(0, 5)]
    with pytest.raises(CheckpointError, match="Start it with a new checkpoint"):
        batch(enumerator(endingOffsets="latest", last_row=True, subscribe="t,u"), ended)

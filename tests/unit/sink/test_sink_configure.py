"""What the sink's options mean together, and where the rows of a batch may go."""

from __future__ import annotations

import dataclasses
import pickle
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.continuation import Continues
from dynamic_kafka.errors import ConfigurationError, InvalidOptionError, MetadataServiceError
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.service import KafkaMetadataService, StreamListService
from dynamic_kafka.metadata.services import FileMetadataService, InMemoryMetadataService
from dynamic_kafka.metadata.snapshot import Snapshot, make_snapshot
from dynamic_kafka.sink import destinations
from dynamic_kafka.sink.committer import Committer
from dynamic_kafka.sink.configure import SinkObjects, commit_log_topic, configure_sink
from dynamic_kafka.sink.destinations import destinations_of
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.settings import Destination, LogPlace, SinkSettings
from dynamic_kafka.spark.writers import batch_writer

BROKER = {"kafka.bootstrap.servers": "h:9092"}
EXACTLY_ONCE = BROKER | {"sink.delivery-guarantee": "exactly-once"}
PREFIXED = EXACTLY_ONCE | {"sink.transactional-id-prefix": "job"}


class Last:
    """A user's own partitioner."""

    def open(self, parallel_instance_id: int, parallel_instances: int) -> None:
        """See KafkaPartitioner."""

    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:
        """See KafkaPartitioner."""
        return partitions[-1]


def stream(**clusters: tuple[set[str], dict[str, str]]) -> dict[str, KafkaStream]:
    """What a service says of the stream `s`: topics and more properties of each cluster."""
    parts = {
        name: ClusterMetadata(frozenset(topics), {"bootstrap.servers": f"{name}:1"} | properties)
        for name, (topics, properties) in clusters.items()
    }
    return {"s": KafkaStream("s", parts)}


def to_stream(**options: str) -> SinkSettings:
    """The settings of a sink that writes to the stream `s`; `__` stands for a dot and `_` for a dash."""
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return configure_sink({"stream-ids": "s"} | named, SinkObjects(metadata_service=InMemoryMetadataService()))


def found_in(
    settings: SinkSettings, streams: Mapping[str, KafkaStream], inactive: Collection[str] = ()
) -> dict[str, Destination]:
    """The destinations among the streams that a service has described."""
    return destinations_of(settings, make_snapshot(streams.values()), inactive)


def direct(options: dict[str, str]) -> dict[str, Destination]:
    """The destinations of a sink without a metadata service."""
    settings = configure_sink(options)
    return found_in(settings, settings.service().describe_streams([settings.stream]))


def fault(options: dict[str, str], objects: SinkObjects | None = None) -> str:
    """The message of the configuration error that the options raise."""
    with pytest.raises(ConfigurationError) as caught:
        configure_sink(options, objects)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- where to write -------------------------------------------------------------------------------------------------


def test_a_topic_of_one_cluster() -> None:
    """The option is every row's topic."""
    options = BROKER | {"topic": "t", "properties.linger.ms": "5"}
    settings = configure_sink(options)
    assert (settings.topic, settings.topics, settings.pattern) == ("t", (), None)
    assert settings.guarantee == "at-least-once"
    properties = {"bootstrap.servers": "h:9092", "linger.ms": "5"}
    assert direct(options) == {"kafka": Destination(properties, "t", frozenset({"t"}))}


def test_without_a_topic_the_column_is_needed() -> None:
    """No default, and no limit."""
    assert direct(BROKER) == {"kafka": Destination({"bootstrap.servers": "h:9092"}, None)}


def test_of_several_topics_the_column_chooses() -> None:
    """No default, but a limit."""
    options = BROKER | {"topic": "a;b"}
    assert configure_sink(options).topics == ("a", "b")
    assert direct(options)["kafka"].topic is None


def test_a_pattern_for_the_column() -> None:
    """And nothing beside it."""
    assert configure_sink(BROKER | {"topic-pattern": "a.*"}).pattern == re.compile("a.*")
    assert "'topic' and 'topic-pattern' are in conflict" in fault(BROKER | {"topic": "t", "topic-pattern": "t"})


def test_a_stream_and_its_service_belong_together() -> None:
    """One is no use without the other, and a stream says which topics it has."""
    service = SinkObjects(metadata_service=InMemoryMetadataService())
    assert "'metadata-service' is missing" in fault(BROKER | {"stream-ids": "s"})
    assert "there is no metadata service" in fault(BROKER | {"metadata-service.path": "x"})
    assert "'stream-ids' is missing" in fault({}, service)
    assert "'stream-ids' is missing" in fault({"metadata-service": "file", "metadata-service.path": "x"})
    assert "'topic-pattern' and 'stream-ids'" in fault({"stream-ids": "s", "topic-pattern": "t"}, service)


def test_a_service_named_by_options() -> None:
    """It is made once to check its own options."""
    options = {"stream-ids": "t", "metadata-service": "single-cluster", "metadata-service.cluster-id": "east"}
    settings = configure_sink(options | BROKER)
    found = found_in(settings, settings.service().describe_streams(["t"]))
    assert found == {"east": Destination({"bootstrap.servers": "h:9092"}, "t", frozenset({"t"}))}
    assert "'metadata-service.path' is missing" in fault({"stream-ids": "s", "metadata-service": "file"})


def test_a_stream_on_several_clusters() -> None:
    """Sorted by name; a cluster's own properties win; its only topic is the default."""
    described = stream(b=({"t"}, {"linger.ms": "9"}), a=({"t", "u"}, {}))
    found = found_in(to_stream(properties__linger__ms="5", properties__acks="all"), described)
    assert list(found) == ["a", "b"]
    assert found["a"].topic is None
    assert found["b"].topic == "t"
    assert found["b"].properties == {"bootstrap.servers": "b:1", "linger.ms": "9", "acks": "all"}


def test_a_topic_of_a_stream() -> None:
    """Only the clusters that have it."""
    described = stream(a=({"t", "u"}, {}), b=({"t"}, {}))
    found = found_in(to_stream(topic="u"), described)
    assert {name: d.topic for name, d in found.items()} == {"a": "u"}
    with pytest.raises(MetadataServiceError, match="no active cluster with the topic 'v'"):
        found_in(to_stream(topic="v"), described)


def test_inactive_clusters_are_not_written_to() -> None:
    """And a batch needs one that is active."""
    described = stream(a=({"t"}, {}), b=({"t"}, {}))
    assert list(found_in(to_stream(), described, {"a"})) == ["b"]
    with pytest.raises(MetadataServiceError, match="'s' has no active cluster"):
        found_in(to_stream(), described, {"a", "b"})


def test_a_stream_that_is_gone_is_an_error() -> None:
    """Its rows have nowhere to go."""
    with pytest.raises(MetadataServiceError, match="does not know the stream 's'"):
        found_in(to_stream(), {})


def test_what_a_service_says_is_checked() -> None:
    """As for the source; and no cluster may take the sink's guarantee away."""
    with pytest.raises(MetadataServiceError, match=r"lacks the property 'bootstrap\.servers'"):
        found_in(to_stream(), stream(a=({"t"}, {"bootstrap.servers": ""})))
    settings = to_stream(sink__delivery_guarantee="exactly-once", sink__transactional_id_prefix="p")
    with pytest.raises(ConfigurationError, match="Cluster 'a': property 'acks' has the value '1'"):
        found_in(settings, stream(a=({"t"}, {"acks": "1"})))
    with pytest.raises(ConfigurationError, match=r"Cluster 'a': property 'transactional\.id' is not supported"):
        found_in(settings, stream(a=({"t"}, {"transactional.id": "x"})))


# --- while the metadata service fails -------------------------------------------------------------------------------


class Outage(StreamListService):
    """A service that fails while its name is among `down`, in whatever process or copy it is."""

    down: ClassVar[set[str]] = set()

    def __init__(self, name: str, streams: dict[str, KafkaStream]) -> None:
        self.name, self.streams = name, streams
        self.calls = 0

    def get_all_streams(self) -> tuple[KafkaStream, ...]:
        """The streams, if it is not down."""
        self.calls += 1
        if self.name in self.down:
            raise OSError(f"{self.name} is down")
        return tuple(self.streams.values())


@pytest.fixture
def down(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the services that fail; no answer is kept from before."""
    names: set[str] = set()
    monkeypatch.setattr(Outage, "down", names)
    monkeypatch.setattr("dynamic_kafka.sink.destinations._last_good", {})
    return names


def through(service: KafkaMetadataService, **options: str) -> SinkSettings:
    """The settings of a sink that writes to the stream `s` of a service."""
    return configure_sink({"stream-ids": "s"} | options, SinkObjects(metadata_service=service))


def planned(settings: SinkSettings) -> Mapping[str, Destination]:
    """The destinations of the next batch."""
    task = batch_writer(settings, {})._task
    assert task is not None
    return task.destinations


def test_the_last_answer_stays_in_force(down: set[str]) -> None:
    """Settings are made anew for each batch, from the same options or from a pickle."""
    described = stream(a=({"t"}, {}))
    settings = pickle.dumps(through(Outage("one", described)))
    found = planned(pickle.loads(settings))
    assert list(found) == ["a"]
    down.add("one")
    assert planned(pickle.loads(settings)) == found
    assert planned(pickle.loads(pickle.dumps(pickle.loads(settings)))) == found
    assert planned(through(Outage("one", described))) == found


def test_a_wrong_entry_leaves_the_last_answer_in_force(down: set[str], caplog: pytest.LogCaptureFixture) -> None:
    """The warning names the cluster and the property. Without a last answer it is an error."""
    assert not down
    wrong = stream(a=({"t"}, {"security.protocl": "SSL"}))
    with pytest.raises(ConfigurationError, match=r"^Cluster 'a': Unknown Kafka property 'security\.protocl'"):
        planned(through(Outage("one", wrong)))
    service = Outage("one", stream(a=({"t"}, {})))
    found = planned(through(service))
    service.streams = wrong
    key = next(iter(destinations._last_good))
    assert destinations.current_clusters(through(service), key).destinations == found
    assert "Cluster 'a': Unknown Kafka property 'security.protocl'" in caplog.text


def test_a_cluster_that_continues_another_one_is_written_to_as_any_other(down: set[str]) -> None:
    """What it continues is for those who read."""
    assert not down
    described = stream(a=({"t"}, {}))
    cluster = dataclasses.replace(described["s"].clusters["a"], continues=Continues("old", "records"))
    moved = {"s": dataclasses.replace(described["s"], clusters={"a": cluster})}
    assert list(planned(through(Outage("moved", moved)))) == ["a"]


@pytest.mark.parametrize(("guarantee", "asked"), [("at-least-once", 1), ("exactly-once", 2)])
def test_other_clusters_are_looked_up_for_exactly_once_only(
    guarantee: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only it has a commit log, and transactions of earlier batches. The answer of the service is checked once a batch."""
    others = {"log": KafkaStream("log", {"z": ClusterMetadata(frozenset(), {"bootstrap.servers": "z:1"})})}
    service = Outage("one", stream(a=({"t"}, {}), b=({"u"}, {})) | others)
    made: list[Snapshot] = []

    def make(streams: Iterable[KafkaStream]) -> Snapshot:
        made.append(make_snapshot(streams))
        return made[-1]

    monkeypatch.setattr(destinations, "make_snapshot", make)
    settings = configure_sink(
        {
            "stream-ids": "s",
            "topic": "t",
            "sink.delivery-guarantee": guarantee,
            "sink.transactional-id-prefix": "p",
            "sink.commit-log.cluster": "z",
        },
        SinkObjects(metadata_service=service),
    )
    found = destinations.current_clusters(settings, f"other clusters, {guarantee}")
    assert list(found.destinations) == ["a"]
    assert list(found.others) == (["b", "z"] if guarantee == "exactly-once" else [])
    assert service.calls == asked
    assert len(made) == 1


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("two", {}),
        ("one", {"properties.sasl.password": "${env:OTHER_LOGIN}"}),
        ("one", {"topic": "t"}),
        ("one", {"sink.delivery-guarantee": "none"}),
    ],
    ids=["service", "properties", "topic", "guarantee"],
)
def test_no_sink_gets_the_last_answer_of_another_one(name: str, options: dict[str, str], down: set[str]) -> None:
    """Another service may mean another stream by the same id; other properties are another login."""
    described = stream(a=({"t"}, {}))
    assert list(planned(through(Outage("one", described)))) == ["a"]
    down |= {"one", "two"}
    with pytest.raises(OSError, match=f"{name} is down"):
        planned(through(Outage(name, described), **options))


def test_the_last_document_stays_in_force(down: set[str], tmp_path: Path) -> None:
    """A service that keeps what it has read is the same service after that; a service of options, too."""
    assert not down
    path = tmp_path / "streams.yaml"
    text = "- streamId: s\n  clusterMetadataList:\n  - {clusterId: a, bootstrapServers: 'a:1', topics: [t]}\n"
    path.write_text(text)
    by_object = through(FileMetadataService(str(path)))
    options = {"stream-ids": "s", "metadata-service": "file", "metadata-service.path": str(path)}
    found = [planned(by_object), planned(configure_sink(options))]
    path.unlink()
    assert [planned(by_object), planned(configure_sink(options))] == found
    (tmp_path / "other.yaml").touch()
    with pytest.raises(MetadataServiceError):
        planned(configure_sink(options | {"metadata-service.path": str(tmp_path / "other.yaml")}))


# --- exactly once ---------------------------------------------------------------------------------------------------


def test_exactly_once_needs_a_prefix() -> None:
    """Given, or made from the checkpoint's location; the error says both."""
    message = fault(EXACTLY_ONCE)
    assert message.startswith("Option 'sink.transactional-id-prefix' is missing")
    assert "'checkpointLocation'" in message
    assert configure_sink(PREFIXED | {"checkpointLocation": "/c"}).prefix == "job"
    made = configure_sink(EXACTLY_ONCE | {"checkpointlocation": "/c"}).prefix
    assert re.fullmatch("dynamic-kafka-[0-9a-f]{16}", made)


def test_other_guarantees_need_no_prefix() -> None:
    """One that is given is of no use, and does no harm."""
    for guarantee in ("none", "at-least-once"):
        options = BROKER | {"sink.delivery-guarantee": guarantee, "sink.transactional-id-prefix": "job"}
        assert (configure_sink(options).prefix, configure_sink(options).log_topic) == ("", "")


@pytest.mark.parametrize("location", ["checkpoint", "./a/b", "../a", "a:b", "file:a"])
def test_a_relative_checkpoint_identifies_nobody(location: str) -> None:
    """Two queries in different folders would have one prefix. The error names the prefix that it made before."""
    message = fault(EXACTLY_ONCE | {"checkpointLocation": location})
    prefix = "sink.transactional-id-prefix"
    assert re.fullmatch(rf".*relative path '{re.escape(location)}'.* {prefix}=dynamic-kafka-[0-9a-f]{{16}}", message)
    assert configure_sink(EXACTLY_ONCE | {"checkpointLocation": location, prefix: "p"}).prefix == "p"


@pytest.mark.parametrize("same", ["/a/b", "/a/b/", "file:/a/b", "file:///a/b", "FILE:///a//b/", "//a/b", " /a/b "])
def test_spellings_of_one_checkpoint_are_one_prefix(same: str) -> None:
    """A query that is started another way is the same query."""
    prefix = configure_sink(EXACTLY_ONCE | {"checkpointLocation": "/a/b"}).prefix
    assert configure_sink(EXACTLY_ONCE | {"checkpointLocation": same}).prefix == prefix


def test_other_checkpoints_are_other_prefixes() -> None:
    """Also where only the file system, or the case, differs."""
    places = ["/a/b", "/a/B", "/a", "/", "hdfs://a/b", "hdfs:///a/b", "s3a://a/b", "s3a://a/b/c"]
    prefixes = [configure_sink(EXACTLY_ONCE | {"checkpointLocation": place}).prefix for place in places]
    assert len(set(prefixes)) == len(places)


def test_the_commit_log() -> None:
    """Its name follows from the prefix unless it is given."""
    assert configure_sink(PREFIXED).log_topic == "__dynamic-kafka-commits-job"
    options = {
        "sink.commit-log.topic": "log",
        "sink.commit-log.cluster": "kafka",
        "sink.commit-log.replication-factor": "3",
    }
    settings = configure_sink(PREFIXED | options)
    assert (settings.log_topic, settings.log_cluster, settings.log_replication) == ("log", "kafka", 3)


def test_the_cluster_of_the_commit_log_exists() -> None:
    """Without a metadata service there is one; with one, the metadata says which there are."""
    assert "expected 'kafka'" in fault(PREFIXED | {"sink.commit-log.cluster": "east"})
    assert to_stream(sink__commit_log__cluster="east").log_cluster == "east"


ODD = st.text(min_size=1, max_size=400) | st.text("ab.-_/ ", min_size=1, max_size=30)


@given(ODD)
def test_every_prefix_has_a_commit_log_that_kafka_takes(prefix: str) -> None:
    """Legal characters, and not too many."""
    assert re.fullmatch(r"__dynamic-kafka-commits[A-Za-z0-9._-]{1,226}", commit_log_topic(prefix))


@given(ODD, ODD)
def test_no_two_prefixes_share_a_commit_log(one: str, other: str) -> None:
    """Nor does one that looks like the name made for another."""
    lookalike = commit_log_topic(other).removeprefix("__dynamic-kafka-commits")[1:]
    for prefix in {other, lookalike} - {one}:
        assert commit_log_topic(one) != commit_log_topic(prefix)


def test_batch_writes_have_an_identity() -> None:
    """`txnAppId` with the sink's name, and `txnVersion`."""
    txn = {"txnAppId": "app", "txnVersion": "7"}
    assert configure_sink(PREFIXED).identity is None
    assert configure_sink(PREFIXED | txn).identity == Identity("app", 7, consecutive=False, of_query=False)
    named = configure_sink(PREFIXED | txn | {"sink.name": "left"}).identity
    assert named == Identity("app/left", 7, consecutive=False, of_query=False)
    of_query = configure_sink(PREFIXED | {"sink.name": "left"})
    assert (of_query.identity, of_query.name) == (None, "left")
    assert configure_sink(PREFIXED | txn | {"__txnConsecutive": "true"}).identity == Identity("app", 7)


@given(*[st.text("ab/", min_size=1, max_size=5) for _ in range(2)], *[st.sampled_from(["", "a", "b", "ab"])] * 2)
def test_no_two_sinks_share_an_identity(app: str, other_app: str, name: str, other_name: str) -> None:
    """Else the batch of one would count as written by the other."""

    def identity(app: str, name: str) -> Identity | None:
        named = {"sink.name": name} if name else {}
        return configure_sink(PREFIXED | {"txnAppId": app, "txnVersion": "1"} | named).identity

    assert (identity(app, name) == identity(other_app, other_name)) == ((app, name) == (other_app, other_name))


def test_an_identity_is_whole_and_exactly_once() -> None:
    """Each error says what to do."""
    assert "'txnVersion' is missing; 'txnAppId'" in fault(PREFIXED | {"txnAppId": "app"})
    assert "'txnAppId' is missing; 'txnVersion'" in fault(PREFIXED | {"txnVersion": "1"})
    assert "set 'sink.delivery-guarantee' to exactly-once" in fault(BROKER | {"sink.name": "left"})
    assert "set 'sink.delivery-guarantee' to exactly-once" in fault(BROKER | {"txnAppId": "a", "txnVersion": "1"})


def test_a_word_to_go_on_names_its_batch() -> None:
    """The error says which one."""
    assert configure_sink(PREFIXED | {"sink.lost-transactions": "rewrite:0"}).lost_transactions == ("rewrite", 0)
    message = fault(PREFIXED | {"sink.accept-gaps": "true"})
    assert "expected the number of the batch that the error names, such as 41" in message
    message = fault(PREFIXED | {"sink.lost-transactions": "continue"})
    assert "expected fail, or the value that the error names, such as continue:41 or rewrite:41" in message


# --- the producer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["kafka.", "properties."])
@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("transactional.id", "x", "'sink.transactional-id-prefix'"),
        ("key.serializer", "org.apache.kafka.common.serialization.LongSerializer", "column 'key'"),
        ("value.serializer", "com.example.Avro", "DataFrame operations"),
        ("interceptor.classes", "com.example.Audit", "Java code"),
    ],
)
def test_properties_of_the_sink_are_rejected(prefix: str, key: str, value: str, says: str) -> None:
    """As in Spark; the error says what to use."""
    message = fault(BROKER | {prefix + key: value})
    assert key in message
    assert says in message


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("enable.idempotence", "false", "true"),
        ("acks", "1", "all"),
        ("request.required.acks", "0", "all"),
        ("retries", "0", "more than 0"),
        ("max.in.flight.requests.per.connection", "6", "5 or less"),
    ],
)
def test_exactly_once_needs_an_idempotent_producer(key: str, value: str, expected: str) -> None:
    """Other guarantees do not."""
    configure_sink(BROKER | {f"kafka.{key}": value})
    message = fault(PREFIXED | {f"kafka.{key}": value})
    assert "rules out exactly-once" in message
    assert message.endswith(f"expected {expected}")


def test_properties_that_say_what_happens_anyway_are_accepted() -> None:
    """Copied from a Java configuration; `transaction.timeout.ms` is the user's."""
    package = "org.apache.kafka.common.serialization"
    settings = configure_sink(
        PREFIXED
        | {
            "topic": "t",
            "kafka.key.serializer": f"{package}.StringSerializer",
            "kafka.value.serializer": f"{package}.ByteArraySerializer",
            "kafka.enable.idempotence": "True",
            "kafka.acks": "-1",
            "kafka.transaction.timeout.ms": "60000",
            "kafka.register.producer.metrics": "false",
        }
    )
    found = found_in(settings, settings.service().describe_streams([settings.stream]))
    assert found["kafka"].properties["transaction.timeout.ms"] == "60000"


def test_the_transactions_time_out_is_a_number() -> None:
    """Also in a cluster's own properties: before any cluster is called."""
    destinations = {"east": Destination({"bootstrap.servers": "h:9092", "transaction.timeout.ms": "abc"}, "t")}
    expected = r"'transaction\.timeout\.ms' has the value 'abc'; expected a whole number .*cluster 'east'"
    place = LogPlace("east", destinations["east"].properties, "log", ("id/log",))
    with pytest.raises(InvalidOptionError, match=expected):
        Committer(configure_sink(PREFIXED | {"topic": "t"}), destinations, place)


def test_partitioners() -> None:
    """By name, or a builder's object; not both."""
    assert configure_sink(BROKER).partitioner is None
    assert configure_sink(BROKER | {"sink.partitioner": "default"}).partitioner is None
    assert configure_sink(BROKER | {"sink.partitioner": "fixed"}).partitioner is not None
    objects = SinkObjects(partitioner=Last())
    assert isinstance(configure_sink(BROKER, objects).partitioner, Last)
    assert "'sink.partitioner' and 'set_partitioner'" in fault(BROKER | {"sink.partitioner": "fixed"}, objects)
    assert "sink.partitioner" in fault(BROKER | {"sink.partitioner": "sticky"})


# --- all of it ------------------------------------------------------------------------------------------------------


def test_no_secret_is_in_an_error_or_a_repr() -> None:
    """Whatever is wrong, and wherever it stands; also in what makes the metadata service."""
    secret = BROKER | {"kafka.sasl.password": "hunter2", "kafka.security.protocol": "SASL_SSL"}
    assert "hunter2" not in repr(configure_sink(secret))
    service = {"stream-ids": "t", "metadata-service": "single-cluster", "metadata-service.cluster-id": "east"}
    assert "hunter2" not in repr(configure_sink(secret | service))
    assert "hunter2" not in repr(direct(secret))
    assert "hunter2" not in fault(secret | {"kafka.sasl.pasword": "x"})

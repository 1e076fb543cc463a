"""One answer of the metadata service, checked and united."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.errors import MetadataServiceError
from dynamic_kafka.initializer import KafkaOffsetsInitializer
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.snapshot import EMPTY, describe_change, make_snapshot


def cluster(*topics: str, **properties: str) -> ClusterMetadata:
    """A cluster with these topics; further properties with `_` for the dot."""
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return ClusterMetadata(frozenset(topics), {"bootstrap.servers": "h:9092"} | named)


def fault(*streams: KafkaStream) -> str:
    """The message of the error that the streams raise."""
    with pytest.raises(MetadataServiceError) as caught:
        make_snapshot(streams)
    return str(caught.value)


def test_topics_of_one_cluster_are_united_over_streams() -> None:
    """A cluster is read once for all its streams; each stream still knows its own topics."""
    snapshot = make_snapshot(
        [KafkaStream("b", {"c": cluster("t2", "t3")}), KafkaStream("a", {"d": cluster("t1"), "c": cluster("t1", "t2")})]
    )
    assert {c: set(m.topics) for c, m in snapshot.clusters.items()} == {"c": {"t1", "t2", "t3"}, "d": {"t1"}}
    assert snapshot.streams == {"a": {"c": {"t1", "t2"}, "d": {"t1"}}, "b": {"c": {"t2", "t3"}}}


def test_order_of_the_answer_does_not_matter() -> None:
    """Streams, clusters and properties come out sorted: a service may shuffle."""
    streams = [
        KafkaStream(f"s{i}", {f"c{j}": cluster(f"t{i}", client_id="x", a_b="y") for j in range(3)}) for i in range(4)
    ]
    first = make_snapshot(streams)
    random.Random(7).shuffle(streams)
    second = make_snapshot(
        KafkaStream(
            s.stream_id,
            {
                c: ClusterMetadata(m.topics, dict(reversed(list(m.properties.items()))))
                for c, m in reversed(list(s.clusters.items()))
            },
        )
        for s in streams
    )
    assert repr(second) == repr(first)
    assert list(second.clusters["c0"].properties) == ["a.b", "bootstrap.servers", "client.id"]


def test_two_streams_give_one_cluster_different_properties() -> None:
    """The error names both streams, the cluster and the properties, and no value."""
    message = fault(
        KafkaStream("s1", {"c": cluster("t", sasl_password="s3cret", client_id="x")}),
        KafkaStream("s2", {"c": cluster("u", sasl_password="t0psecret", ssl_ca="x", client_id="x")}),
    )
    assert "'s1' and 's2' describe cluster 'c' differently: property 'sasl.password', property 'ssl.ca';" in message
    assert "s3cret" not in message
    assert "t0psecret" not in message


@pytest.mark.parametrize(("field", "name"), [("starting_offsets", "starting"), ("stopping_offsets", "stopping")])
def test_two_streams_give_one_cluster_different_initializers(field: str, name: str) -> None:
    """Equal initializers are the same cluster; different ones are an error that names both streams."""

    def streams(second: KafkaOffsetsInitializer) -> list[KafkaStream]:
        given: list[dict[str, Any]] = [{field: KafkaOffsetsInitializer.timestamp(1)}, {field: second}]
        return [
            KafkaStream(f"s{i}", {"c": ClusterMetadata(frozenset({"t"}), {"bootstrap.servers": "h"}, **kwargs)})
            for i, kwargs in enumerate(given)
        ]

    assert make_snapshot(streams(KafkaOffsetsInitializer.timestamp(1))).clusters.keys() == {"c"}
    assert f"'s0' and 's1' describe cluster 'c' differently: {name} offsets;" in fault(
        *streams(KafkaOffsetsInitializer.timestamp(2))
    )


def test_one_stream_described_twice() -> None:
    """The same stream twice is taken once; two versions of it are an error."""
    stream = KafkaStream("s", {"c": cluster("t")})
    assert make_snapshot([stream, stream]) == make_snapshot([stream])
    assert "describes stream 's' twice" in fault(stream, KafkaStream("s", {"c": cluster("u")}))


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (KafkaStream("s", {"": cluster("t")}), "stream 's', cluster '', has an id that is empty"),
        (KafkaStream("", {"c": cluster("t")}), "has an id that is empty"),
        (KafkaStream("s", {"c": ClusterMetadata(frozenset("t"), {})}), "'s', cluster 'c', lacks the property"),
        (KafkaStream("s", {"c": cluster("t", bootstrap_servers="")}), "lacks the property 'bootstrap.servers'"),
        (KafkaStream("s", {"c": cluster("t", bootstrap_servers=" , ")}), "lacks the property 'bootstrap.servers'"),
        (KafkaStream("s", {"c": cluster("..", "a b", "ok")}), "not allowed for topics in Kafka: '..', 'a b';"),
        (KafkaStream("s", {"c": ClusterMetadata("abc", {"bootstrap.servers": "h"})}), "`topics` as one text; give a set"),  # type: ignore[arg-type]
        (KafkaStream("s", {"c": cluster("t", a=5)}), "has properties that are not text: a"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_answer_that_cannot_be_read_is_refused(stream: KafkaStream, expected: str) -> None:
    """What a service of the user's own may get wrong is named, with the stream and the cluster."""
    assert expected in fault(stream)


def test_snapshot_does_not_follow_later_changes_of_the_answer() -> None:
    """A service may keep and change its dicts; the snapshot is a copy."""
    properties = {"bootstrap.servers": "h"}
    snapshot = make_snapshot([KafkaStream("s", {"c": ClusterMetadata(frozenset({"t"}), properties)})])
    properties["bootstrap.servers"] = "other"
    assert snapshot.clusters["c"].properties == {"bootstrap.servers": "h"}


def test_describe_change_tells_clusters_topics_streams_and_properties() -> None:
    """Each difference is one line; values of properties are not shown."""
    old = make_snapshot(
        [
            KafkaStream("gone", {"a": cluster("t")}),
            KafkaStream("kept", {"a": cluster("t", "u"), "b": cluster("t", sasl_password="s3cret")}),
        ]
    )
    new = make_snapshot(
        [
            KafkaStream("kept", {"b": cluster("t", "v", sasl_password="0ther"), "d": cluster("t")}),
            KafkaStream("new", {"b": cluster(*(f"x{i}" for i in range(7)), sasl_password="0ther")}),
        ]
    )
    assert describe_change(old, new) == [
        "cluster 'a' removed",
        "cluster 'd' added",
        "cluster 'b' changed: property 'sasl.password'",
        "stream 'gone' removed",
        "stream 'gone', cluster 'a': removed t",
        "stream 'kept', cluster 'a': removed t, u",
        "stream 'kept', cluster 'b': added v",
        "stream 'kept', cluster 'd': added t",
        "stream 'new' added",
        "stream 'new', cluster 'b': added x0, x1, x2, x3, x4 and 2 more",
    ]


_streams = st.dictionaries(
    st.sampled_from("abc"),
    st.dictionaries(st.sampled_from("xyz"), st.frozensets(st.sampled_from(["t", "u"])), max_size=3),
    max_size=3,
).map(lambda streams: [KafkaStream(s, {c: cluster(*topics) for c, topics in cs.items()}) for s, cs in streams.items()])


@given(_streams, _streams)
def test_describe_change_is_empty_exactly_when_nothing_changed(one: list[KafkaStream], two: list[KafkaStream]) -> None:
    """No difference goes unmentioned, and none is invented."""
    old, new = make_snapshot(one), make_snapshot(two)
    assert bool(describe_change(old, new)) == (old != new)


def test_empty_means_without_any_topic() -> None:
    """Clusters without topics leave nothing to read."""
    assert EMPTY.is_empty
    assert make_snapshot([KafkaStream("s", {"c": cluster()})]).is_empty
    assert not make_snapshot([KafkaStream("s", {"c": cluster("t")})]).is_empty

"""What `offsets reset` keeps of a topic: what is known of copies is about the records of one topic only."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

import pytest

from dynamic_kafka.cli import resets
from dynamic_kafka.cli.positions import Partition
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.source.document.document import ClusterOffsets, Document
from dynamic_kafka.source.document.evidence import Anchor, Marks, RecordPrint

KEPT, MADE_AGAIN = KafkaTopicPartition("kept", 0), KafkaTopicPartition("made again", 0)


def test_what_is_known_of_copies_goes_with_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marks and anchors of a topic that was made again are left out; those of another topic stay."""
    topics = {
        name: SimpleNamespace(leaders=[1], topic_id=topic_id)
        for name, topic_id in (("kept", "id-1"), ("made again", "id-3"))
    }
    connection = SimpleNamespace(kafka_id=lambda: "K", topics=lambda asked: (topics, False), close=lambda: None)
    monkeypatch.setattr(resets, "ClusterConnection", lambda *_, **__: connection)
    monkeypatch.setattr(resets, "checked_offsets", lambda target, tps, of: dict.fromkeys(tps, 0))
    both = (KEPT, MADE_AGAIN)
    state = ClusterOffsets(
        "K",
        topics={"kept": "id-1", "made again": "id-2"},
        ranges=dict.fromkeys(both, (10, 20)),
        marks=dict.fromkeys(both, (Marks(20, (RecordPrint(19, 1, "c", "h"),)),)),
        anchors=dict.fromkeys(both, Anchor("N", "T", 10, 10, 0, 0, 10, 1, 0, 1, 20)),
    )
    found, wanted = resets.reset_document(
        Document(clusters={"eu": state}),
        KafkaOffsetsInitializer.earliest(),
        clusters=None,
        topics=None,
        properties={},
        timeout_ms=1,
    )
    assert found.clusters["eu"].marks.keys() == found.clusters["eu"].anchors.keys() == {KEPT}
    assert wanted == {Partition("eu", "kept", 0): 0, Partition("eu", "made again", 0): 0}
    assert state.marks.keys() == state.anchors.keys() == set(both)


@pytest.mark.parametrize(("clusters", "topics"), [(["us"], None), (["us"], ["kept"]), (["eu"], ["there"])])
def test_a_reset_of_no_partition_is_refused(clusters: list[str], topics: list[str] | None) -> None:
    """A cluster that never answered, and a topic of another cluster: no cluster is asked."""
    document = Document(
        clusters={
            "eu": ClusterOffsets(topics={"kept": ""}, ranges={KEPT: (0, 1)}),
            "us": ClusterOffsets(since_ms=5),
            "as": ClusterOffsets(topics={"there": ""}),
        }
    )
    with pytest.raises(ConfigurationError, match="No partition of the checkpoint is chosen"):
        resets.reset_document(
            document, KafkaOffsetsInitializer.earliest(), clusters=clusters, topics=topics, properties={}, timeout_ms=1
        )


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999Z", "1900-01-01", "9" * 23, "9" * 5000, "yesterday"])
def test_what_is_no_time_from_1970_on_is_wrong_usage(text: str) -> None:
    """Kafka would take -1 for the latest offset."""
    with pytest.raises(argparse.ArgumentTypeError, match="a time from 1970 on"):
        resets.parse_target(text)

"""What `offsets reset` keeps of a topic: what is known of copies is about the records of one topic only."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dynamic_kafka.cli import resets
from dynamic_kafka.cli.positions import Partition
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

"""What the log says at a restart about options and metadata that are not as they were."""

from __future__ import annotations

import pytest

from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document, Packing
from dynamic_kafka.source.rules.differences import differences
from dynamic_kafka.source.rules.model import DesiredCluster, ReadPolicy

EARLIEST = KafkaOffsetsInitializer.earliest()
LATEST = KafkaOffsetsInitializer.latest()


class Own(KafkaOffsetsInitializer):
    """A user's own initializer, which has no text."""


def policy(starting: KafkaOffsetsInitializer = EARLIEST, stopping: KafkaOffsetsInitializer | None = None) -> ReadPolicy:
    """A policy of which only these two matter."""
    return ReadPolicy(starting, stopping, fail_on_data_loss=True, retention_ms=0, drain=False)


def clusters(*names: str, **more: object) -> dict[str, DesiredCluster]:
    """These clusters, alike."""
    return {name: DesiredCluster(frozenset({"t"}), **{"properties": {}, **more}) for name in names}  # type: ignore[arg-type]


def document(*names: str, **more: object) -> Document:
    """A document of these clusters, alike, of a query that started at the earliest offsets."""
    state = {name: ClusterOffsets(topics={"t": ""}, **more) for name in names}  # type: ignore[arg-type]
    return Document(clusters=state, starting="earliest")


def said(text: str) -> str:
    """The whole sentence around what differs."""
    return f"Not as in the checkpoint, from which the query continues: {text}"


def test_nothing_differs() -> None:
    """Then nothing is said."""
    assert differences(document("c"), clusters("c"), policy(), Packing()) is None


def test_global_starting_offsets() -> None:
    """They say what they change: nothing where reading has begun. A document that does not know them is no difference."""
    text = "the starting offsets were earliest and are latest, which changes nothing where reading has begun"
    assert differences(document(), {}, policy(LATEST), Packing()) == said(text)
    assert differences(Document(), {}, policy(LATEST), Packing()) is None
    assert differences(document(), {}, policy(Own()), Packing()) is None, "a user's own class has no text to compare"


def test_starting_offsets_of_clusters() -> None:
    """Clusters with the same change are named together, and none of their own is a value, too."""
    before = document("c", "d", "e")
    before.clusters["e"].starting = "earliest"
    desired = {**clusters("d", "c", starting=LATEST), **clusters("e")}
    assert differences(before, desired, policy(), Packing()) == said(
        "the starting offsets of clusters 'c', 'd' were not set and are latest, "
        "which changes nothing where reading has begun; "
        "the starting offsets of cluster 'e' were earliest and are not set, "
        "which changes nothing where reading has begun"
    )


def test_stopping_offsets_of_clusters() -> None:
    """A cluster's own ones, else the global ones."""
    before = document("c", "d", stopping="earliest")
    desired = {**clusters("c", stopping=EARLIEST), **clusters("d")}
    assert differences(before, desired, policy(stopping=LATEST), Packing()) == said(
        "the stopping offsets of cluster 'd' were earliest and are latest"
    )
    assert differences(before, desired, policy(stopping=EARLIEST), Packing()) is None
    assert differences(before, clusters("c", "d", stopping=Own()), policy(), Packing()) is None


@pytest.mark.parametrize(("topic", "end"), [("t" * 6, ': 0, "5": 0}}'), ("t" * 7, ': 0, "5":...')])
def test_long_offsets_are_shortened(topic: str, end: str) -> None:
    """They may name thousands of partitions."""
    own = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, p): 0 for p in range(6)})
    text = differences(document("c"), clusters("c", stopping=own), policy(), Packing())
    assert text is not None
    shown = text.partition(" were not set and are ")[2]
    assert len(shown) == 60
    assert shown.startswith(f'{{"{topic}": {{"0": 0, "1": 0')
    assert shown.endswith(end)


def test_properties_are_named_without_their_values() -> None:
    """Values may be secret. New, changed and removed ones are named."""
    before = document("c", properties={"same": "1", "changed": "old-secret", "removed": "1"})
    after = clusters("c", properties={"same": "1", "changed": "new-secret", "added": "1"})
    assert differences(before, after, policy(), Packing()) == said(
        "cluster 'c' has other properties (added, changed, removed)"
    )
    many = clusters("c", properties={f"p{i}": "" for i in range(7)})
    assert differences(document("c"), many, policy(), Packing()) == said(
        "cluster 'c' has other properties (p0, p1, p2, p3, p4 and 2 more)"
    )


def test_clusters_that_are_gone_and_new() -> None:
    """A cluster that has only retained positions was gone before."""
    before = document("a", "c", *(f"x{i}" for i in range(6)))
    before.clusters["a"].topics = {}
    assert differences(before, clusters("c", "new"), policy(), Packing()) == said(
        "the metadata does not name clusters 'x0', 'x1', 'x2', 'x3', 'x4' and 1 more any more; "
        "the metadata newly names cluster 'new'"
    )


def test_packing_is_told_by_its_options() -> None:
    """The option that cuts ranges follows from the others."""
    text = "maxRecordsPerPartition was 10 and is 20; minPartitions was 1 and is 2; scan.parallelism was 0 and is 3"
    assert differences(document(), {}, policy(), Packing(20, 2, 3, cuts=True)) is not None
    before = document()
    before.packing = Packing(10)
    assert differences(before, {}, policy(), Packing(20, 2, 3, cuts=True)) == said(text)
    assert differences(before, {}, policy(), Packing(10, cuts=True)) is None

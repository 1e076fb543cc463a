"""The random histories once more, with clusters that change their names, and restarts with other options.

The rules of `test_histories` speak of clusters; here the metadata calls them by names that change. What is checked is the
same, cluster by cluster: no offset is skipped or read twice, whatever the names were.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from tests.property.test_histories import (
    CLUSTERS,
    EARLIEST,
    LATEST,
    Bounded,
    Cluster,
    Draining,
    History,
    ModelView,
    World,
)

from dynamic_kafka.errors import CheckpointError
from dynamic_kafka.metadata.model import ClusterMetadata
from dynamic_kafka.metadata.snapshot import Snapshot
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document, Packing, decode
from dynamic_kafka.source.driver.enumerator import SourceEnumerator
from dynamic_kafka.source.rules.desired import desired_clusters
from dynamic_kafka.source.rules.model import ClusterView, SourceSnapshot
from dynamic_kafka.source.rules.planning import ReadTask

NAMES = (*CLUSTERS, "x", "y")


class NamedWorld:
    """A world in which the metadata has names of its own for clusters."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.names = {name: name for name in CLUSTERS}

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._world, attribute)

    def snapshot(self) -> Snapshot:
        """What the metadata service answers, by today's names."""
        found = self._world.snapshot()
        return Snapshot(
            {s: {self.names[c]: topics for c, topics in parts.items()} for s, parts in found.streams.items()},
            {self.names[c]: m for c, m in found.clusters.items()},
        )


class ByName:
    """The world as one process sees it: names lead where the servers say that it knows."""

    def __init__(self, named: NamedWorld) -> None:
        self._named = named
        self.servers: dict[str, str] = {}

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._named, attribute)

    @property
    def clusters(self) -> dict[str, Cluster]:
        """The clusters by the names that the process knows."""
        return {name: replace(self._named.clusters[cluster], name=name) for name, cluster in self.servers.items()}


class NamedView(ModelView):
    """A view by names. What a cluster tells of itself does not depend on its name."""

    def __init__(self, named: NamedWorld, *more: Any) -> None:
        self._by_name = ByName(named)
        super().__init__(self._by_name, *more)  # type: ignore[arg-type]

    def collect(self, previous: Document | None, *, at_once: bool) -> SourceSnapshot:
        """As the real one: servers come from the metadata, and from the document for what the metadata does not name."""
        known = previous.clusters if previous is not None else {}
        clusters: dict[str, Any] = {**known, **desired_clusters(self.snapshot(previous), previous)}
        before = self._by_name.servers
        self._by_name.servers = {n: c.properties["bootstrap.servers"].split(":")[0] for n, c in clusters.items()}
        for name in [n for n in self.last_views if before.get(n) != self._by_name.servers.get(n)]:
            del self.last_views[name]  # a view of other servers is of no use
            self._absent = {key for key in self._absent if key[0] != name}
        return super().collect(previous, at_once=at_once)

    def _view(self, cluster: Cluster, metadata: ClusterMetadata | None, previous: Document | None) -> ClusterView:
        seen = super()._view(cluster, metadata, previous)
        return replace(seen, kafka_id=f"kafka-{self._by_name.servers[cluster.name]}")


class Renaming(History):
    """Names change, are exchanged and come back, and the options are others after a restart."""

    def __init__(self) -> None:
        self.named: NamedWorld | None = None
        super().__init__()
        self.named = NamedWorld(self.world)
        self.source = self.new_process()

    def new_process(self) -> SourceEnumerator:
        """Spark's reader process, which knows clusters by name."""
        source = super().new_process()
        if self.named is not None:
            source._view = NamedView(self.named, self.settings)  # type: ignore[assignment]
        return source

    @precondition(lambda self: self.log)
    @rule(cluster=st.sampled_from(CLUSTERS), name=st.sampled_from(NAMES), batches=st.integers(0, 2))
    def rename(self, cluster: str, name: str, batches: int) -> None:
        """A cluster gets another name; if another cluster has that name, the two exchange their names.

        A cluster of the first start that was never reached is known by its name alone, so all names stay until it is.
        """
        assert self.named is not None
        if any(c.since_ms for c in decode(json.loads(self.log[-1])).clusters.values()):
            return
        old = self.named.names[cluster]
        other = {c: old for c, n in self.named.names.items() if n == name}
        self.named.names |= {**other, cluster: name}
        self.batches(batches)

    def next_document(self) -> bool:
        """Do as the error says: a name that leads to another cluster, and whose own one has none, is replaced."""
        try:
            return super().next_document()
        except CheckpointError:
            assert self.named is not None
            self.forget_unmet(set(CLUSTERS))
            self.named.names = {cluster: f"{cluster}{len(self.log)}" for cluster in CLUSTERS}
            self.world.service_up = True  # else the process does not learn of it
            return super().next_document()

    def forget_unmet(self, clusters: set[str]) -> None:
        """A cluster that was never reached is known by its name alone: under another name it was found later."""
        known = {c.kafka_id for c in decode(json.loads(self.log[-1])).clusters.values()}
        unmet = {c for c in clusters if f"kafka-{c}" not in known}
        self.first_starts = {chain: start for chain, start in self.first_starts.items() if chain[0] not in unmet}

    @precondition(lambda self: self.log)
    @rule(
        stops=st.sampled_from([None, LATEST, EARLIEST]),
        tasks=st.integers(1, 5),
        drain=st.booleans(),
    )
    def restart_with_other_options(self, stops: Any, tasks: int, drain: bool) -> None:  # noqa: FBT001
        """The checkpoint stays, the options change."""
        self.settings = replace(self.settings, stopping=stops, packing=Packing(300, max_tasks=tasks), drain=drain)
        self.the_process_dies()

    def read_tasks(self, tasks: list[ReadTask], document: Document) -> None:
        """Every range goes on where its cluster's chain stands, under whatever name it is read."""
        clusters = {name: _own_name(c, name) for name, c in document.clusters.items()}
        own = [t._replace(ranges=[r._replace(cluster=clusters[r.cluster]) for r in t.ranges]) for t in tasks]
        super().read_tasks(own, _by_cluster(document))

    def check_told(self, before: Document, after: Document) -> None:
        """A topic may leave one name for another without a warning."""

    def check_complete(self, document: Document) -> None:
        """At rest each wanted log has been read to its end, under today's name."""
        assert self.named is not None
        wanted = {self.named.names[cluster] for cluster in self.world.metadata}
        assert not any(c.topics for name, c in document.clusters.items() if name not in wanted)
        super().check_complete(_by_cluster(document))

    def expected_end(self, stop: int | None, start: int, log_end: int) -> int:
        """As the options say now."""
        assert (stop is None) == (self.settings.stopping is None)
        return log_end if stop is None else max(stop, start)


def _own_name(cluster: ClusterOffsets, name: str) -> str:
    return cluster.kafka_id.removeprefix("kafka-") or f"never met: {name}"


def _by_cluster(document: Document) -> Document:
    """The document with one entry for each cluster, by its own name."""
    clusters: dict[str, ClusterOffsets] = {}
    for name, c in document.clusters.items():
        into = clusters.setdefault(_own_name(c, name), ClusterOffsets(c.kafka_id))
        for field in ("topics", "ranges", "stops", "unresolved"):
            assert not getattr(into, field).keys() & getattr(c, field).keys(), "one topic is held under two names"
            getattr(into, field).update(getattr(c, field))
    return replace(document, clusters=clusters)


class RenamingWhileDraining(Renaming, Draining):
    """What is removed is read to its end first; what has another name is not removed."""


class RenamingWithStops(Renaming):
    """Stops are taken over with the positions."""

    options: ClassVar[Mapping[str, Any]] = Bounded.options
    starting = EARLIEST


class RenamingWithoutRetention(Renaming):
    """What is removed is forgotten at once, so nothing may count as removed while a name may only have changed."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = replace(self.settings, retention_ms=0)
        self.source = self.new_process()

    def change_metadata(self, name: str, topics: set[str], batches: int) -> None:
        """The metadata lists the same topics of the same clusters all the time."""

    def remove_cluster(self, name: str) -> None:
        """As above."""

    def metadata_flaps(self, name: str, meanwhile: str) -> None:
        """As above."""


@pytest.mark.hypothesis
@pytest.mark.parametrize(
    "history", [Renaming, RenamingWhileDraining, RenamingWithStops, RenamingWithoutRetention], ids=lambda h: h.__name__
)
def test_every_offset_is_planned_once_whatever_the_names_are(history: type[Renaming]) -> None:
    """Positions belong to Kafka's cluster.id, and options of a later start do not repeat or skip anything."""
    run_state_machine_as_test(history, settings=settings())

"""What the metadata service says now: the clusters, their properties, and how tasks reach them.

The metadata wins over what a document keeps: a login that was changed holds also for a batch that was planned before.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import closing
from functools import partial

from dynamic_kafka.errors import ClusterUnavailableError, MetadataServiceError, listed
from dynamic_kafka.kafka.clients import check_properties
from dynamic_kafka.kafka.cluster import ClusterConnection
from dynamic_kafka.metadata.snapshot import Snapshot
from dynamic_kafka.metadata.watcher import MetadataWatcher
from dynamic_kafka.observe.reports import Event, MetadataStatus
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document
from dynamic_kafka.source.driver.movers import answer
from dynamic_kafka.source.driver.record_log import OffsetSyncs
from dynamic_kafka.source.rules.planning import ClusterAccess, Range
from dynamic_kafka.source.rules.stand_in import stand_in
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["CurrentMetadata"]

_log = logging.getLogger(__name__)

_FIRST_METADATA_S = 30.0
_RESUMED_METADATA_S = 10.0
_ACTIVITY_S = 2.0


class CurrentMetadata:
    """The last good answer of a query's metadata service. Created without I/O; the watcher starts at the first call."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._watcher: MetadataWatcher | None = None
        self._checked: Snapshot | None = None
        self._own_properties: dict[str, Mapping[str, str]] = {}
        self._names_of_server: dict[str, list[str]] = {}

    def close(self) -> None:
        """Have the watcher end, without waiting for it."""
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    def snapshot(self, previous: Document | None) -> Snapshot | None:
        """Return the last good answer of the metadata service; None if a resumed query has none yet.

        The first call starts the watcher and waits for an answer, with a limit.

        Raises:
            MetadataServiceError: If the service failed more often than tolerated, or at a first start.
        """
        snapshot = self._current(previous)
        assert self._watcher is not None
        if (failure := self._watcher.failure()) is not None:
            raise failure
        if snapshot is None and previous is None:
            raise MetadataServiceError(
                f"The metadata service did not answer within {_FIRST_METADATA_S:.0f} s, and there is no checkpoint to "
                "continue from; make sure that the service is reachable, then start the query again"
            )
        return snapshot

    def resume(self, document: Document) -> None:
        """Take the current properties, for the tasks of a batch that is decided. A service that fails does not matter."""
        self._current(document)

    def _current(self, previous: Document | None) -> Snapshot | None:
        if self._watcher is None:
            settings = self._settings
            self._watcher = MetadataWatcher(
                settings.service(),
                settings.subscriber,
                interval_ms=settings.metadata_interval_ms,
                failure_threshold=settings.metadata_failure_threshold,
                check=lambda own: check_properties(settings.cluster_properties(own)),
            )
            had_topics = previous is not None and any(c.topics for c in previous.clusters.values())
            self._watcher.start(resuming=previous is not None, had_topics=had_topics)
            self._watcher.wait_first(_FIRST_METADATA_S if previous is None else _RESUMED_METADATA_S)
        snapshot = self._watcher.snapshot()
        if snapshot is not None and snapshot is not self._checked:
            self._checked = snapshot
            self._own_properties |= {name: c.properties for name, c in snapshot.clusters.items()}
            self._names_of_server = {}
            for name, properties in self._own_properties.items():
                for server in _servers(properties):
                    self._names_of_server.setdefault(server, []).append(name)
            self._warn_of_unused(snapshot)
        return snapshot

    def _warn_of_unused(self, snapshot: Snapshot) -> None:
        for name, cluster in snapshot.clusters.items():
            if "group.id" in cluster.properties:
                _log.warning(
                    "Cluster '%s': group.id in its metadata is not used; set the option 'properties.group.id', which holds "
                    "for all clusters",
                    name,
                )
        if unknown := sorted(self._settings.cluster_limits.keys() - snapshot.clusters.keys()):
            _log.warning(
                "maxOffsetsPerTriggerPerCluster limits %s, which the metadata does not name: the limit has no effect now",
                listed([f"'{name}'" for name in unknown], 5),
            )

    def properties(self, name: str, stored: Mapping[str, str]) -> dict[str, str]:
        """Return a cluster's client properties: those of the last metadata, else those stored in the document.

        The metadata may have the login under another name: a cluster with one of the same servers is the same.
        """
        today = self._name_today(name, stored)
        return self._settings.cluster_properties(stored if today is None else self._own_properties[today])

    def _name_today(self, name: str, stored: Mapping[str, str]) -> str | None:
        """Return the name that the metadata has for a cluster of the document; None if the metadata does not have it."""
        own = self._own_properties
        same = {other for server in _servers(stored) for other in self._names_of_server.get(server, ())}
        if name in own and (name in same or not same):
            return name
        return next(other for other in own if other in same) if same else None

    def access(self, clusters: Mapping[str, ClusterOffsets], *, ask_first: bool) -> dict[str, ClusterAccess]:
        """Return how tasks reach clusters, and the evidence that some are not wanted any more. Call `snapshot` first.

        Args:
            clusters: The clusters.
            ask_first: Whether to wait, with a limit, for what the service says of their activity.
        """
        assert self._watcher is not None
        snapshot = self._watcher.snapshot()
        today = {name: self._name_today(name, kept.properties) for name, kept in clusters.items()}
        named = frozenset() if snapshot is None else snapshot.clusters.keys() & set(today.values())
        if named and ask_first:
            self._watcher.track(named)
            self._watcher.wait_active(named, _ACTIVITY_S)
        found = {}
        for name, kept in clusters.items():
            now, removed = today[name], ""
            if snapshot is not None and now not in named:
                removed = "the metadata does not name this cluster any more"
            elif now is not None and not self._watcher.is_cluster_active(now):
                removed = "the metadata service calls this cluster inactive"
            found[name] = ClusterAccess(
                self.properties(name, kept.properties), kept.kafka_id, removed, from_checkpoint=now is None
            )
        return found

    def with_stand_ins(self, groups: list[list[Range]], document: Document) -> tuple[list[list[Range]], list[str]]:
        """Return the ranges of each task, and what to tell: those of a dead cluster are read from one that continues it.

        Call `resume` first.
        """
        snapshot = self._watcher.snapshot() if self._watcher is not None else None
        found = groups
        said: list[str] = []
        for new, cluster in snapshot.clusters.items() if snapshot is not None else ():
            old = cluster.continues.cluster if cluster.continues is not None else ""
            if cluster.continues is None or not any(r.cluster == old for group in groups for r in group):
                continue
            kept, named = document.clusters[old], snapshot.clusters.get(old) if snapshot is not None else None
            if (named is not None and named.topics) or self._answers(old, kept):
                continue
            settings = self._settings
            properties = {new: settings.cluster_properties(cluster.properties), old: {}}
            timeout_s = settings.call_timeout_ms / 1000
            ask = partial(
                answer,
                properties=properties,
                syncs=OffsetSyncs(),
                group_id=settings.consumer_group,
                timeout_s=timeout_s,
            )
            found, more = stand_in(found, document, new, topics=cluster.topics, continues=cluster.continues, ask=ask)
            said += more
        return found, said

    def _answers(self, name: str, kept: ClusterOffsets) -> bool:
        """Return whether the very cluster of the document answers now."""
        connection = ClusterConnection(
            name,
            self.properties(name, kept.properties),
            group_id=self._settings.consumer_group,
            timeout_ms=self._settings.call_timeout_ms,
        )
        with closing(connection):
            try:
                return connection.kafka_id() in ("", kept.kafka_id) or not kept.kafka_id
            except ClusterUnavailableError:
                return False

    def request_refresh(self) -> None:
        """Have the service asked now, instead of at its next turn. Call `snapshot` first."""
        assert self._watcher is not None
        self._watcher.request_refresh()

    def inactive(self, names: Collection[str]) -> set[str]:
        """Return which of some clusters the service calls inactive. It is asked about these from now on."""
        assert self._watcher is not None
        self._watcher.track(names)
        return {name for name in names if not self._watcher.is_cluster_active(name)}

    def status(self) -> MetadataStatus | None:
        """Return the watcher's counters and errors; None before the service is asked."""
        return self._watcher.status() if self._watcher is not None else None

    def events(self) -> list[Event]:
        """Return the watcher's last events."""
        return self._watcher.events() if self._watcher is not None else []


def _servers(properties: Mapping[str, str]) -> set[str]:
    return {server.strip() for server in properties.get("bootstrap.servers", "").split(",")} - {""}

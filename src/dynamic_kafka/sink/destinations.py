"""The destinations of the next batch: the metadata service is asked each time, so a stream may move while it is written."""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field

from dynamic_kafka.errors import ConfigurationError, MetadataServiceError
from dynamic_kafka.metadata.snapshot import Snapshot, make_snapshot
from dynamic_kafka.sink.configure import check_producer
from dynamic_kafka.sink.settings import Destination, SinkSettings

__all__ = ["Clusters", "current_clusters", "destinations_of"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Clusters:
    """The clusters that the metadata names for a stream.

    `destinations` are those that the rows of the next batch may go to, by name. `others`, only for exactly-once, are the
    properties of the rest, by name: earlier batches may have gone there, and the commit log may be there.
    """

    destinations: Mapping[str, Destination]
    others: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)


_last_good: dict[Hashable, Clusters] = {}


def current_clusters(settings: SinkSettings, key: Hashable) -> Clusters:
    """Return the clusters of the next batch. `key` is equal for settings that have the same destinations, and no others.

    While the metadata service fails, or describes a cluster with wrong properties, the last good answer in this process
    with the same key stays in force.

    Raises:
        MetadataServiceError: If there was no good answer yet, or the stream cannot be written to or is described wrongly.
        ConfigurationError: If there was no good answer yet, and a cluster's properties are wrong.
    """
    service = settings.service()
    try:
        streams = list(service.describe_streams([settings.stream]).values())
        names = {name for stream in streams for name in stream.clusters}
        inactive = {name for name in names if not service.is_cluster_active(name)}
        wished = settings.log_cluster if settings.guarantee == "exactly-once" else None
        if wished is not None and wished not in names:  # of another stream
            streams += [stream for stream in service.get_all_streams() if wished in stream.clusters]
            names.add(wished)
        snapshot = make_snapshot(streams)
        destinations = destinations_of(settings, snapshot, inactive)
        rest = names - destinations.keys() if settings.guarantee == "exactly-once" else set[str]()
        known = {name: snapshot.clusters[name].properties for name in sorted(rest & snapshot.clusters.keys())}
        others = {name: settings.cluster_properties(name, own) for name, own in known.items()}
        found = Clusters(destinations, others)
    except Exception as error:  # a service may raise anything
        kept = _last_good.get(key)
        if kept is None:
            raise
        _log.warning("The metadata could not be refreshed; using the last known destinations: %s", error)
        return kept
    finally:
        service.close()
    _last_good[key] = found
    return found


def destinations_of(
    settings: SinkSettings, snapshot: Snapshot, inactive: Collection[str] = ()
) -> dict[str, Destination]:
    """Return the clusters that the rows of a batch may go to, by metadata that may have other streams, too.

    Returns:
        The stream's active clusters by name, sorted; only those with `settings.topic`, if that is given. If the stream has
        only one topic on a cluster, rows that name no topic go there.

    Raises:
        MetadataServiceError: If the stream does not exist, or has no such cluster.
        ConfigurationError: If a cluster's own properties do not suit a producer, or the guarantee, or say what metadata may
            not say.
    """
    if settings.stream not in snapshot.streams:
        raise MetadataServiceError(
            f"The metadata service does not know the stream '{settings.stream}', so no rows can be written. Check "
            "the option 'stream-ids'"
        )
    found: dict[str, Destination] = {}
    for cluster_id, topics in snapshot.streams[settings.stream].items():
        if cluster_id in inactive or (settings.topic is not None and settings.topic not in topics):
            continue
        properties = settings.cluster_properties(cluster_id, snapshot.clusters[cluster_id].properties)
        try:
            check_producer(properties, settings.guarantee, "property '")
        except ConfigurationError as error:
            raise ConfigurationError(f"Cluster '{cluster_id}': {error}", cluster_id=cluster_id) from error
        found[cluster_id] = Destination(
            properties, settings.topic or (next(iter(topics)) if len(topics) == 1 else None), topics
        )
    if not found:
        having = f" with the topic '{settings.topic}'" if settings.topic is not None else ""
        raise MetadataServiceError(
            f"The stream '{settings.stream}' has no active cluster{having}, so no rows can be written. Activate a "
            "cluster, or add the topic to the stream in the metadata"
        )
    return found

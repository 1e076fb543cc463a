"""An archive as a history: its files, and the offsets up to which it has read each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.history.archive.log import read_archive
from dynamic_kafka.history.coverage import Offsets, Part
from dynamic_kafka.history.folder import ListedFile
from dynamic_kafka.history.model import LargestOffsets, Place

__all__ = ["ArchivedHistory", "archived_history"]


class ArchivedHistory(NamedTuple):
    """What an archive is as a history.

    Attributes:
        files: Its files, in the order of days, and of batches within them.
        evidence: What it is, for people.
        largest: The last offset that was read of each partition. It may be one without a record, such as a marker.
        clusters: The ids of clusters and topics, by the cluster's name.
        spans: The offsets of each place that were read, with the number of their records.
        names: The clusters' names, by cluster.id.
    """

    files: list[ListedFile]
    evidence: str
    largest: LargestOffsets
    clusters: dict[str, Any]
    spans: Mapping[Place, Sequence[Offsets]]
    names: Mapping[str, str]

    def named(self, parts: Iterable[tuple[Place, Part]]) -> tuple[tuple[Place, Part], ...]:
        """Return parts by the names of clusters instead of their ids."""
        return tuple(((self.names.get(place[0], ""), *place[1:]), part) for place, part in parts)


def archived_history(location: str, *, with_offsets: bool) -> ArchivedHistory | None:
    """Return the history of an archive; None if the folder is no archive.

    Args:
        location: The folder.
        with_offsets: If true, Kafka goes on after the offsets of the archive.

    Raises:
        ArchiveError: If the archive's log is damaged.
        ConfigurationError: If the archive has no records, or is one of two topics with the same name.
    """
    archive = read_archive(location)
    if archive is None:
        return None
    if not archive.files:
        raise ConfigurationError(
            f"Option 'history.path': the archive '{location}' has no records yet. Leave the option out, or wait for "
            "its query"
        )
    files = [
        ListedFile(path, file.size_bytes, 0, {"day": file.day or None}) for path, file in sorted(archive.files.items())
    ]
    largest: dict[Place, int] = {}
    spans: dict[Place, list[Offsets]] = {}
    clusters: dict[str, Any] = {}
    for key, position in archive.positions().items() if with_offsets else ():
        name = archive.names.get(key.cluster_id, "")
        topics = clusters.setdefault(name, {"id": key.cluster_id, "topics": {}})["topics"]
        if clusters[name]["id"] != key.cluster_id or topics.setdefault(key.topic, key.topic_id) != key.topic_id:
            raise ConfigurationError(
                f"Option 'history.path': the archive '{location}' has records of two "
                + (
                    f"clusters with the name '{name}'"
                    if clusters[name]["id"] != key.cluster_id
                    else f"topics '{key.topic}'"
                )
                + ", because it was made anew meanwhile. Set history.switch to starting-offsets or timestamp"
            )
        largest[name, key.topic, key.partition] = position - 1
        spans[name, key.topic, key.partition] = [Offsets(*span) for span in archive.spans[key]]
    return ArchivedHistory(files, f"an archive of {len(files):,} files", largest, clusters, spans, dict(archive.names))

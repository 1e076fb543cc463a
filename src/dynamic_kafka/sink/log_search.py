"""Finding the commit log on the clusters of a stream, and telling the others where it is; see `log.place`."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

from dynamic_kafka.errors import ClusterUnavailableError, DynamicKafkaError, ProducerFencedError
from dynamic_kafka.kafka.transactions.client import TransactionClient
from dynamic_kafka.sink.configure import commit_log_topic
from dynamic_kafka.sink.log.chain import Record, State
from dynamic_kafka.sink.log.commit_log import CommitLog
from dynamic_kafka.sink.log.place import Choice, Seen, Spot, check_wish, choose, unknown_log
from dynamic_kafka.sink.log.records import Pointer
from dynamic_kafka.sink.settings import LogPlace, SinkSettings
from dynamic_kafka.sink.transactional_ids import belongs_to

__all__ = ["OTHERS_TIMEOUT_MS", "FoundLog", "check_moved", "find_log", "seed", "write_pointers"]

_log = logging.getLogger(__name__)

_TIMEOUT_MS = 60_000
OTHERS_TIMEOUT_MS = 15_000
"""How long a cluster is asked that no row goes to now: it may be dead for good."""

_Properties = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class FoundLog:
    """The commit log of a prefix.

    `source` is where it is still, if it is to be moved. The `unaware` topics on other clusters need a pointer to the log.
    `begun` is True if it has records.
    """

    log: LogPlace
    source: LogPlace | None = None
    unaware: tuple[Spot, ...] = ()
    begun: bool = True


def find_log(
    settings: SinkSettings, clusters: _Properties, active: Collection[str], timeout_ms: int = _TIMEOUT_MS
) -> FoundLog:
    """Find the commit log on all clusters that the metadata names for the stream, or make its topic.

    The active ones, which rows may go to, may take the time-out to answer.

    Raises:
        ClusterUnavailableError: If a cluster that may have the log does not answer.
        TransactionError: If it is not clear which one the log is, or if there was one that is not found.
        ConfigurationError: If the topic is not fit to be a log.
    """
    check_wish(settings.log_cluster, clusters)
    seen, silent = _ask(settings, clusters, dict.fromkeys(active, timeout_ms))
    wished = None if settings.log_cluster is None else Spot(settings.log_cluster, settings.log_topic)
    first = Spot(min(active), settings.log_topic)
    choice = choose(settings.prefix, seen, silent, wished, first, settings.lost_clusters or ())
    if choice.create and len(choice.places) == 1 and not settings.lost_clusters:
        empty = {
            spot.cluster for spot, found in seen.items() if spot.topic == settings.log_topic and found.chain is not None
        }
        _check_unused(settings, clusters, empty)
    _prepare(settings, clusters, choice, exists=seen[choice.spot].chain is not None)
    found = _place(clusters, choice.spot, choice.places)
    source = None if choice.source is None else _place(clusters, choice.source, choice.places[:-1])
    return FoundLog(found, source, choice.unaware, not choice.create)


def write_pointers(settings: SinkSettings, clusters: _Properties, found: FoundLog) -> None:
    """Write pointers to the log on the clusters that have none. A failure is a warning: the log itself is not touched."""
    for spot in found.unaware:
        try:
            with closing(_open(clusters, spot, OTHERS_TIMEOUT_MS)) as log:
                if not log.topic.exists():
                    log.topic.create(settings.log_replication)
                log.append(Pointer(found.log.places[-1], found.log.cluster))
        except DynamicKafkaError as error:
            _log.warning(
                "Cluster '%s': no pointer to the commit log on cluster '%s' could be written. A start that reaches only the "
                "first one would not know that there is a log: %s",
                spot.cluster,
                found.log.cluster,
                error,
            )


def seed(source: LogPlace, target: LogPlace, state: State) -> None:
    """Let a log that was moved begin with the state that its old place had last, and say so in the old place."""
    with closing(CommitLog(target.cluster, target.properties, target.topic, timeout_ms=_TIMEOUT_MS)) as log:
        head = log.read()
        if head.state.places != target.places:
            log.append(Record(uuid.uuid4().hex, head.offset, state))
            head = log.read()
        check_moved(head.state, target)
    with closing(CommitLog(source.cluster, source.properties, source.topic, timeout_ms=_TIMEOUT_MS)) as log:
        log.append(Pointer(target.places[-1], target.cluster))
    _log.warning(
        "The commit log was moved from cluster '%s' (topic '%s') to cluster '%s' (topic '%s')",
        source.cluster,
        source.topic,
        target.cluster,
        target.topic,
    )


def check_moved(state: State, target: LogPlace) -> None:
    """Raise if a log's last state does not name the place that the log was to be moved to, and those where it was before."""
    if state.places != target.places:
        raise ProducerFencedError(
            f"The commit log could not be moved to cluster '{target.cluster}', because another query writes to it. Give "
            "each query a sink.transactional-id-prefix of its own"
        )


# --- parts ---


def _ask(
    settings: SinkSettings, clusters: _Properties, timeouts_ms: Mapping[str, int]
) -> tuple[dict[Spot, Seen], dict[str, str]]:
    """Ask all clusters at once. Return what they say, and why the others say nothing.

    An active one is given the time to restart; an inactive one, which has no time-out of its own, is often down for long.
    """
    seen: dict[Spot, Seen] = {}
    silent: dict[str, str] = {}
    topics = sorted({settings.log_topic, commit_log_topic(settings.prefix)})
    spots = [Spot(cluster, topic) for cluster in sorted(clusters) for topic in topics]
    with ThreadPoolExecutor(len(spots)) as pool:
        answers = {spot: pool.submit(_look, settings, clusters, spot, timeouts_ms) for spot in spots}
    for spot, answer in answers.items():
        try:
            seen[spot] = answer.result()
        except ClusterUnavailableError as error:
            silent[spot.cluster] = str(error)
    return {spot: found for spot, found in seen.items() if spot.cluster not in silent}, silent


def _look(settings: SinkSettings, clusters: _Properties, spot: Spot, timeouts_ms: Mapping[str, int]) -> Seen:
    timeout_ms = timeouts_ms.get(spot.cluster, OTHERS_TIMEOUT_MS)
    with closing(_open(clusters, spot, timeout_ms)) as log:
        kafka_id = log.topic.kafka_id()
        # Who names a topic may have no access to the one with the default name.
        exists = log.topic.exists(may_be_hidden=spot.topic != settings.log_topic)
        return Seen(kafka_id, log.read(), log.pointer) if exists else Seen(kafka_id)


def _check_unused(settings: SinkSettings, clusters: _Properties, empty: Collection[str]) -> None:
    """Raise if a cluster knows transactional ids of the prefix: then there was a log; `empty` have its topic."""
    for name, properties in sorted(clusters.items()):
        with closing(TransactionClient(name, properties, timeout_ms=_TIMEOUT_MS)) as client:
            known = next((found for found in sorted(client.list_all()) if belongs_to(settings.prefix, found)), None)
        if known is not None:
            raise unknown_log(settings.prefix, name, known, topic=settings.log_topic, seen=clusters, empty=empty)


def _prepare(settings: SinkSettings, clusters: _Properties, choice: Choice, *, exists: bool) -> None:
    with closing(_open(clusters, choice.spot, _TIMEOUT_MS)) as log:
        if not exists:
            log.topic.create(settings.log_replication)
        log.topic.check()
    if choice.create and settings.lost_clusters:
        _log.warning(
            "A new commit log of prefix '%s' begins on cluster '%s', because sink.lost-clusters=%s says that the earlier "
            "one is lost. The option is not needed any more",
            settings.prefix,
            choice.spot.cluster,
            ";".join(settings.lost_clusters),
        )


def _open(clusters: _Properties, spot: Spot, timeout_ms: int) -> CommitLog:
    return CommitLog(spot.cluster, clusters[spot.cluster], spot.topic, timeout_ms=timeout_ms)


def _place(clusters: _Properties, spot: Spot, places: tuple[str, ...]) -> LogPlace:
    return LogPlace(spot.cluster, clusters[spot.cluster], spot.topic, places)

"""How a query with a history begins: its files are frozen, and where Kafka goes on after them is proved (`switch`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from dynamic_kafka.errors import ConfigurationError, OffsetResolutionError
from dynamic_kafka.history.formats import Frozen, freeze, rows_at, with_gaps
from dynamic_kafka.history.model import Place
from dynamic_kafka.history.settings import HistorySettings
from dynamic_kafka.initializer import KafkaTopicPartition, initializer_to_json
from dynamic_kafka.source.document.document import ClusterOffsets, Document, HistoryStage, RetainedTopic
from dynamic_kafka.source.document.promise import Promise, Seen, seen_in
from dynamic_kafka.source.document.recorded import recorded_offsets
from dynamic_kafka.source.rules.model import Event, KafkaRow, ReadPolicy, SourceSnapshot
from dynamic_kafka.source.rules.reconcile import Reconciled
from dynamic_kafka.source.rules.switch import (
    AfterHistory,
    NextOffsets,
    Switched,
    check_answers,
    check_positions,
    check_rows,
    copies_seen,
    gaps_of,
    names_seen,
    next_offsets,
)

__all__ = ["RowsAt", "begin_with_history"]

RowsAt = Callable[[str, ClusterOffsets, Mapping[KafkaTopicPartition, int]], Mapping[KafkaTopicPartition, KafkaRow]]
"""Returns the records at offsets of a cluster."""

_COMPARED = 3
"""The number of partitions of a topic of which a record is compared."""

_NEVER_MS = 2**53
"""A time that does not come: positions since then are retained for ever."""


def begin_with_history(
    settings: HistorySettings,
    policy: ReadPolicy,
    seen: SourceSnapshot,
    resolve: Callable[[SourceSnapshot, ReadPolicy], Reconciled],
    records_at: RowsAt,
    *,
    tell: Callable[[Iterable[Event]], None],
) -> Reconciled:
    """Return the first document of a query with a history.

    Args:
        settings: The history's settings.
        policy: The policy of the query.
        seen: The metadata and the clusters.
        resolve: Makes the first document, from the starting offsets of the snapshot and the policy that it is given.
        records_at: Returns the records of Kafka that are compared with those of the history.
        tell: Takes what was found.

    Raises:
        ConfigurationError: If the history cannot be used, or the query that wrote it is running.
        ClusterUnavailableError: If a cluster does not answer.
        OffsetResolutionError: If Kafka does not have what follows the history.
    """
    frozen = _freeze(settings)
    by_largest = settings.switch in ("coordinates", "checkpoint")
    tolerant = not policy.fail_on_data_loss
    switched = Switched({}, [], Counter(), {}, set(), {}, {})
    if by_largest:
        switched = next_offsets(frozen.largest, frozen.clusters, seen.desired, seen.views)
        tell(switched.events)
        start = AfterHistory(tolerant, switched.offsets)
    else:
        start = AfterHistory(tolerant, given=policy.starting, is_time=settings.switch == "timestamp")
    check_answers(seen.desired, seen.views)
    # A cluster's own starting offsets are among those that were given; all else is where the history says.
    own = {name: desired.starting for name, desired in seen.desired.items()}
    of_switch = {
        name: replace(start, given=given) if given and settings.switch == "starting-offsets" else None
        for name, given in own.items()
    }
    after = replace(seen, desired={name: replace(d, starting=of_switch[name]) for name, d in seen.desired.items()})
    result = resolve(after, replace(policy, starting=start))
    document = result.document

    silent = {request.cluster for request in result.requests if request.purpose == "start"}
    check_answers(seen.desired, seen.views.keys() - silent)
    check_positions(document, switched.offsets, given=[name for name in own if own[name] is not None or not by_largest])
    tell(Event("warning", f"{text}. They are skipped, because failOnDataLoss=false") for text in start.given_up)

    for name, cluster in document.clusters.items():
        cluster.starting = initializer_to_json(own.get(name))
    document.starting = initializer_to_json(policy.starting)
    only = next(iter(own)) if len(own) == 1 and not frozen.history.decoded else ""
    rows = f"{frozen.history.rows:,} rows of {frozen.history.evidence}"
    said = _promise(settings, document, switched.offsets)
    if start.given_up:
        said = said.and_seen(Seen.of("deleted", start.given_up))
    if by_largest:
        compared, lacking = _compare(frozen, switched, document, start.begins, records_at)
        starts = {(name, tp): at for name, state in document.clusters.items() for tp, (at, _) in state.ranges.items()}
        lacking += copies_seen(switched, starts) + names_seen(switched, starts)
        said = replace(said, recognized=tuple(sorted(compared.items()))).and_seen(*lacking)
    if settings.switch == "coordinates":
        said = replace(said, rows=frozen.history.rows)
        frozen, found = _filled(frozen, switched, start, document)
        never_read = [seen for seen in found if frozen.archived and seen.kind in ("never read", "too many")]
        if never_read and not tolerant:
            raise OffsetResolutionError(
                f"The archive '{settings.path}' is not complete: {never_read[0]}. Nothing was read. Set "
                "failOnDataLoss=false to go on without them"
            )
        said = said.and_seen(*found)
    tell(Event("warning", text) for text in said.warnings())
    _keep_unread(switched, document)
    document.history = HistoryStage(replace(frozen.history, cluster=only), said)
    tell([Event("info", f"The history '{settings.path}' is read first: {rows}. {said}")])
    if absent := [name for name in frozen.absent if name != "cluster" or not only]:
        text = f"Files of the history have no columns {', '.join(absent)}: their rows have null there"
        tell([Event("warning", text)])
    return result


def _promise(settings: HistorySettings, document: Document, offsets: NextOffsets) -> Promise:
    """Return what a switch guarantees, before anything is said of the rows."""
    if settings.switch == "timestamp":
        assert settings.limit is not None
        return Promise(
            f"Kafka goes on at the time {settings.limit.before_ms}",
            only_if=f"'{settings.limit.column}' is the time of Kafka's record, the history has each record up to that time "
            "once, and none is written later with an earlier time, which is read from Kafka, too",
        )
    if settings.switch == "starting-offsets":
        return Promise(
            "Kafka goes on at the starting offsets that were given",
            only_if="the history has each record once and ends right before them",
        )
    known = sum(map(len, offsets.values()))
    new = sum(len(c.ranges) for c in document.clusters.values()) - known
    by_checkpoint = settings.switch == "checkpoint"
    where = "where its checkpoint ended, in" if by_checkpoint else "after the largest offset of each of"
    return Promise(
        f"Kafka goes on {where} {known:,} partitions in the history"
        + (f"; {new:,} partitions that are not in it start at their beginning" if new else ""),
        only_if="that query alone wrote the history, and all that it has read" if by_checkpoint else "",
    )


def _compare(
    frozen: Frozen,
    switched: Switched,
    document: Document,
    begins: Mapping[tuple[str, KafkaTopicPartition], int],
    records_at: RowsAt,
) -> tuple[Counter[str], list[Seen]]:
    """Compare the history's last records with those of Kafka, where there are no topic ids to compare.

    Raises:
        OffsetResolutionError: If one is another one.
    """
    places = {place: at for place, at in switched.places.items() if place in switched.without_id}
    asked: dict[str, dict[KafkaTopicPartition, int]] = {}
    for place, (cluster, tp) in places.items():
        last = frozen.largest[place]
        if place in frozen.coverage and begins.get((cluster, tp), last + 1) <= last:
            asked.setdefault(cluster, {})[tp] = last
    answers = {name: records_at(name, document.clusters[name], tps) for name, tps in asked.items()}
    of_kafka = {place: answers[name][tp] for place, (name, tp) in places.items() if tp in answers.get(name, {})}
    of_history: dict[Place, dict[str, Any]] = {}
    some = [list(of)[:_COMPARED] for _, of in groupby(sorted(of_kafka), lambda place: place[:2])]
    for place, row in rows_at(frozen, {place for of in some for place in of}).items():
        of_history[place] = {name: row[name].as_py() for name in ("key", "value") if name in row}
        if "timestamp" in row and row["timestamp"].is_valid:
            of_history[place]["timestamp_ms"] = row["timestamp"].value // 1000
    compared, lacking = check_rows(places, of_history, of_kafka)
    return switched.recognized + compared, lacking


def _filled(frozen: Frozen, switched: Switched, start: AfterHistory, document: Document) -> tuple[Frozen, list[Seen]]:
    """Return the history with the gaps that are read from Kafka, and what was seen of its offsets."""
    gaps, found = gaps_of(
        switched.places,
        frozen.coverage,
        None if frozen.archived is None else frozen.archived.spans,
        start.begins,
        {name: state.kafka_id for name, state in document.clusters.items()},
        copies=switched.copies,
    )
    frozen = with_gaps(frozen, gaps)
    return frozen, [*found, *seen_in(frozen.coverage)]


def _keep_unread(switched: Switched, document: Document) -> None:
    """Keep the history's largest offsets of what is not read from Kafka now: if it is later, Kafka goes on there."""
    for (name, topic), unread in switched.unread.items():
        state = document.clusters.setdefault(name, ClusterOffsets(unread.kafka_id))
        state.retained[topic] = RetainedTopic(unread.topic_id, _NEVER_MS, unread.offsets)


def _freeze(settings: HistorySettings) -> Frozen:
    """Return the history as it is now; for the switch by a checkpoint, with the offsets of that checkpoint."""
    if settings.switch != "checkpoint":
        return freeze(settings)
    recorded = recorded_offsets(settings.checkpoint)
    frozen = freeze(settings)
    if recorded_offsets(settings.checkpoint) != recorded:
        raise ConfigurationError(
            f"Option 'history.switch.checkpoint': the query of {settings.checkpoint} is running, so its table and "
            "its offsets do not belong together. Stop it"
        )
    return frozen._replace(largest=recorded.largest, clusters=recorded.clusters)

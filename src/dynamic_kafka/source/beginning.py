"""How a query with a history begins: its files are frozen, and where Kafka goes on behind them is proved (`switch`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.history.formats import Frozen, freeze
from dynamic_kafka.history.settings import HistorySettings
from dynamic_kafka.initializer import initializer_to_json
from dynamic_kafka.source.document import HistoryStage
from dynamic_kafka.source.model import Event, ReadPolicy, Reconciled
from dynamic_kafka.source.recorded import recorded_offsets
from dynamic_kafka.source.switch import AfterHistory, NextOffsets, check_answers, check_positions, next_offsets, promise
from dynamic_kafka.source.view import SourceSnapshot

__all__ = ["begin_with_history"]


def begin_with_history(
    settings: HistorySettings,
    policy: ReadPolicy,
    seen: SourceSnapshot,
    resolve: Callable[[SourceSnapshot, ReadPolicy], Reconciled],
    tell: Callable[[Iterable[Event]], None],
) -> Reconciled:
    """Return the first document of a query with a history.

    Args:
        settings: The history's settings.
        policy: The policy of the query.
        seen: The metadata and the clusters.
        resolve: Makes the first document, from the starting offsets of the snapshot and the policy that it is given.
        tell: Is told what was found.

    Raises:
        ConfigurationError: If the history cannot be used, or the query that wrote it is running.
        ClusterUnavailableError: If a cluster does not answer.
        OffsetResolutionError: If Kafka does not have what follows the history.
    """
    frozen = _freeze(settings)
    by_largest = settings.switch in ("coordinates", "checkpoint")
    tolerant = not policy.fail_on_data_loss
    offsets: NextOffsets = {}
    recognized: Mapping[str, int] = {}
    if by_largest:
        switched = next_offsets(frozen.largest, frozen.clusters, seen.desired, seen.views)
        tell(switched.events)
        offsets, recognized = switched.offsets, switched.recognized
        start = AfterHistory(tolerant, offsets)
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
    check_positions(document, offsets, given=[name for name in own if own[name] is not None or not by_largest])
    tell(Event("warning", f"{text}. They are skipped, because failOnDataLoss=false") for text in start.given_up)

    for name, cluster in document.clusters.items():
        cluster.starting = initializer_to_json(own.get(name))
    document.starting = initializer_to_json(policy.starting)
    only = next(iter(own)) if len(own) == 1 else ""
    said = promise(settings, document, offsets, recognized=recognized, given_up=start.given_up)
    document.history = HistoryStage(replace(frozen.history, cluster=only), said)
    rows = f"{frozen.history.rows:,} rows of {frozen.history.evidence}"
    tell([Event("info", f"The history '{settings.path}' is read first: {rows}. {said}")])
    if absent := [name for name in frozen.absent if name != "cluster" or not only]:
        text = f"Files of the history have no columns {', '.join(absent)}: their rows have null there"
        tell([Event("warning", text)])
    return result


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

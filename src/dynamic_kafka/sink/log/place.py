"""Where the commit log of a prefix is: found from what the clusters say, not computed from their names. Pure.

A place is Kafka's cluster.id and a topic. So a cluster that the metadata renames keeps its log, and a log that a mirror has
copied to another cluster is not taken for the original. Rules:

1. The last record of the log lists the places that it has had, and the newest one is the topic that has the record
   (`State.places`). On every other cluster of the stream the topic holds a pointer to the log.
2. Two logs are an error. A log that another one names among its earlier places was given up, or was moved.
3. A cluster that does not answer could have the log, so that is an error. But a log that is found was made when all
   answered, or after the user had said where it is, so it needs nobody else's answer.
4. Without a log nothing is made while there is a sign of one: a pointer, or transactional ids of the prefix. The user has to
   say that it is lost (sink.lost-clusters).
5. Only sink.commit-log.cluster and sink.commit-log.topic move a log: its last record names the new place, and the new
   log begins with the state of that record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, TransactionError
from dynamic_kafka.sink.log.chain import Chain
from dynamic_kafka.sink.log.records import Pointer

__all__ = ["Choice", "Seen", "Spot", "choose", "place", "unknown_log"]


class Spot(NamedTuple):
    """A topic on a cluster, by the cluster's name in today's metadata."""

    cluster: str
    topic: str


@dataclass(frozen=True)
class Seen:
    """The answer of a cluster about a topic, with Kafka's own cluster.id.

    `chain` is None if the topic does not exist. `pointer` is the last one in the topic, with its offset.
    """

    kafka_id: str
    chain: Chain | None = None
    pointer: tuple[int, Pointer] | None = None

    @property
    def names(self) -> Pointer | None:
        """Return the place that the topic names last: by a pointer, or by a log that was moved or copied."""
        found = None if self.pointer is None else self.pointer[1]
        if self.chain is not None and self.chain.state.places and (found is None or not self.has_later_pointer):
            return Pointer(self.chain.state.places[-1], "")
        return found

    @property
    def has_later_pointer(self) -> bool:
        """Return whether a pointer is later than what is left of a log here."""
        return self.pointer is not None and self.chain is not None and self.pointer[0] > self.chain.offset


@dataclass(frozen=True)
class Choice:
    """Where the log is.

    `places` are what its records have to say from now on; see `State.places`. It is made there with `create`, or moved from
    the `source`. The `unaware` spots lack a pointer to it.
    """

    spot: Spot
    places: tuple[str, ...]
    create: bool = False
    source: Spot | None = None
    unaware: tuple[Spot, ...] = ()


def place(kafka_id: str, topic: str) -> str:
    """Return the name of a place, as in `State.places`."""
    return f"{kafka_id}/{topic}"


def choose(  # noqa: PLR0917
    prefix: str,
    seen: Mapping[Spot, Seen],
    silent: Mapping[str, str],
    wished: Spot | None,
    first: Spot,
    lost: Collection[str],
) -> Choice:
    """Return where the log is, or where it is to be made.

    Args:
        prefix: The prefix of the transactional ids.
        seen: What the clusters say, for each topic that may be the log.
        silent: The clusters that do not answer, with the reason.
        wished: Where the user wants it; None if that was not said.
        first: Where it is made if there is none, and no topic was made by hand. Its topic is the one of the options.
        lost: Names or cluster.ids of clusters that are lost for good, as the user says.

    Raises:
        ClusterUnavailableError: If a cluster that may have the log does not answer.
        TransactionError: If there are several logs, or a sign of one that is not found.
    """
    here = {spot: place(found.kafka_id, spot.topic) for spot, found in seen.items()}
    if not seen:
        raise _silent(prefix, silent, "which might be there")
    logs = _logs(seen, here, wished)
    if len(logs) > 1:
        raise _several(prefix, logs, seen)
    pointers = {spot: names for spot, found in seen.items() if spot not in logs and (names := found.names) is not None}
    if not logs:
        return _without_log(prefix, seen, here, pointers, silent, wished or first, lost)
    (log,) = logs
    known = seen[log].chain
    assert known is not None
    places = known.state.places
    others = {s: p for s, p in pointers.items() if p.place not in places and not _is_lost(p, lost)}
    if others:
        raise _contradiction(prefix, log, others)
    target = wished or Spot(log.cluster, first.topic)
    if target not in seen:
        raise _silent(prefix, {target.cluster: silent[target.cluster]}, "which is to be there from now on")
    unaware = _unaware(seen, here, target)
    if here[target] == here[log]:
        return Choice(log, places, unaware=unaware)
    return Choice(target, (*places, here[target]), source=log, unaware=unaware)


def unknown_log(
    prefix: str, cluster: str, transactional_id: str, *, topic: str, seen: Collection[str], empty: Collection[str] = ()
) -> TransactionError:
    """Return the error for a prefix that has been in use, and whose log is nowhere, or has no records.

    A cluster knows a transactional id of the prefix. Of the clusters that were `seen`, the topic exists on those that are
    `empty`.
    """
    used = f"Prefix '{prefix}' has been in use (cluster '{cluster}' knows its transactional id '{transactional_id}')"
    if empty:
        where = " and ".join(f"'{name}'" for name in sorted(empty))
        return TransactionError(
            f"{used}, but its commit log '{topic}' on cluster {where} exists and has no records: they were deleted, or the "
            "topic was deleted and made again. So it is not known what was published. If the log is on another cluster, add "
            "that one to the stream's metadata (it may be inactive). If its records are lost for good, set "
            f"sink.lost-clusters={min(empty)} for one start"
        )
    (only, *others) = sorted(seen)
    where = f"is not on cluster '{only}'" if not others else "is on none of the clusters that the metadata names"
    way = (
        f"sink.lost-clusters={only}" if not others else "sink.lost-clusters to the name of the cluster that it was on,"
    )
    return TransactionError(
        f"{used}, but its commit log '{topic}' {where}. So it is not known what was published. If it is on another cluster, "
        "add that one to the stream's metadata (it may be inactive). If it had another name, set sink.commit-log.topic as "
        f"before. If it was deleted or is lost for good, set {way} for one start"
    )


# --- parts ---


def _logs(seen: Mapping[Spot, Seen], here: Mapping[Spot, str], wished: Spot | None) -> list[Spot]:
    """Return the logs, each under one of the names that the metadata has for its cluster."""
    found: dict[str, Spot] = {}
    earlier: set[str] = set()
    for spot in sorted(seen, key=lambda spot: (spot != wished, spot)):
        chain = seen[spot].chain
        if chain is not None and chain.offset >= 0 and chain.state.places[-1] == here[spot]:
            found.setdefault(here[spot], spot)
            earlier.update(chain.state.places[:-1])
    return [spot for name, spot in found.items() if name not in earlier]


def _without_log(  # noqa: PLR0917
    prefix: str,
    seen: Mapping[Spot, Seen],
    here: Mapping[Spot, str],
    pointers: Mapping[Spot, Pointer],
    silent: Mapping[str, str],
    first: Spot,
    lost: Collection[str],
) -> Choice:
    for source, found in seen.items():
        chain = found.chain
        # A move that was not completed: the old log's last record names the new place, and nobody has said that it is there.
        if (
            chain is not None
            and chain.state.places
            and here[source] in chain.state.places[:-1]
            and not found.has_later_pointer
        ):
            target = next((spot for spot, name in here.items() if name == chain.state.places[-1]), None)
            if target is not None:
                return Choice(target, chain.state.places, source=source, unaware=_unaware(seen, here, target))
    left = {spot: pointer for spot, pointer in pointers.items() if not _is_lost(pointer, lost)}
    if silent:
        raise _silent(prefix, silent, "which might be there")
    if left:
        raise _gone(prefix, left, seen)
    by_hand = [spot for spot, found in seen.items() if found.chain is not None and not found.names]
    spot = by_hand[0] if len(by_hand) == 1 and first not in by_hand else first
    given_up = tuple(dict.fromkeys(pointer.place for pointer in pointers.values()))
    places = (*(name for name in given_up if name != here[spot]), here[spot])
    return Choice(spot, places, create=True, unaware=_unaware(seen, here, spot))


def _unaware(seen: Mapping[Spot, Seen], here: Mapping[Spot, str], log: Spot) -> tuple[Spot, ...]:
    """Return the topic on each other cluster that has no pointer to this log."""
    clusters = {seen[log].kafka_id}
    found = []
    for spot in sorted(spot for spot in seen if spot.topic == log.topic and spot.cluster != log.cluster):
        there = seen[spot]
        points_here = there.has_later_pointer and there.pointer is not None and there.pointer[1].place == here[log]
        if there.kafka_id not in clusters and not points_here:
            found.append(spot)
        clusters.add(there.kafka_id)
    return tuple(found)


def _parts(pointer: Pointer) -> tuple[str, str]:
    """Return the cluster.id and the topic that a pointer names."""
    kafka_id, _, topic = pointer.place.partition("/")
    return kafka_id, topic


def _is_lost(pointer: Pointer, lost: Collection[str]) -> bool:
    return pointer.cluster in lost or _parts(pointer)[0] in lost


def _named(pointer: Pointer) -> str:
    kafka_id, topic = _parts(pointer)
    name = f"cluster '{pointer.cluster}' (cluster.id {kafka_id})" if pointer.cluster else f"the cluster {kafka_id}"
    return f"{name}, topic '{topic}'"


def _several(prefix: str, logs: Iterable[Spot], seen: Mapping[Spot, Seen]) -> TransactionError:
    shown = []
    for spot in logs:
        chain = seen[spot].chain
        assert chain is not None
        last = f"last decided batch {chain.state.batch}, {chain.state.status}"
        shown.append(f"topic '{spot.topic}' on cluster '{spot.cluster}' (generation {chain.state.generation}, {last})")
    return TransactionError(
        f"Prefix '{prefix}' has {len(shown)} commit logs: {' and '.join(sorted(shown))}. Nothing is written, because each "
        "may know batches that the other does not. Stop all writers of this prefix, find out which log was used last, "
        "and delete the topic of the other one. If two queries share the prefix, give each a sink.transactional-id-prefix "
        "of its own"
    )


def _contradiction(prefix: str, log: Spot, others: Mapping[Spot, Pointer]) -> TransactionError:
    spot, pointer = next(iter(others.items()))
    return TransactionError(
        f"Prefix '{prefix}' has a commit log on cluster '{log.cluster}' (topic '{log.topic}'), but cluster '{spot.cluster}' "
        f"says that it is on {_named(pointer)}. Nothing is written, because each of them may know batches that the other "
        "does not. Add the other cluster to the stream's metadata and delete the topic of the wrong log, or set "
        f"sink.lost-clusters={_parts(pointer)[0]} if that cluster is lost for good"
    )


def _silent(prefix: str, silent: Mapping[str, str], why: str) -> ClusterUnavailableError:
    name, reason = min(silent.items())
    return ClusterUnavailableError(
        f"Cluster '{name}' cannot be asked for the commit log of prefix '{prefix}', {why}. If the cluster is gone for good, "
        f"take it out of the stream's metadata. The cause: {reason}",
        cluster_id=name,
    )


def _gone(prefix: str, left: Mapping[Spot, Pointer], seen: Mapping[Spot, Seen]) -> TransactionError:
    spot, pointer = min(left.items())
    kafka_id, topic = _parts(pointer)
    topics = {there.topic: found.chain for there, found in seen.items() if found.kafka_id == kafka_id}
    if not topics:
        what = "which the metadata does not name any more. Add it to the metadata again (it may be inactive). Without "
    elif topic in topics and topics[topic] is None:
        what = "where it does not exist any more: it was deleted. Without "
    elif topic in topics:
        what = "where the topic has no record of it: its records or the topic were deleted. Without "
    else:
        what = f"where this query does not look: set sink.commit-log.topic={topic} as before. Without "
    return TransactionError(
        f"The commit log of prefix '{prefix}' is on {_named(pointer)}, according to cluster '{spot.cluster}', {what}it, "
        f"nobody knows what was published. If it is lost for good, set sink.lost-clusters={kafka_id} for one start: a new "
        "log begins, and the next batch of a stream is an error that says how to go on"
    )


def check_wish(wished: str | None, known: Iterable[str]) -> None:
    """Raise if the user wants the log on a cluster that nobody knows."""
    names = sorted(known)
    if wished is not None and wished not in names:
        raise ConfigurationError(
            f"Option 'sink.commit-log.cluster' has the value {wished!r}, which the metadata does not name; expected one of "
            f"{', '.join(names)}"
        )

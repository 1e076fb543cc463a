"""Which batch it is: the next one of its query, a repetition of the last one, or neither. Pure.

A number does not say which rows a batch has. Spark fixes them in the checkpoint; if that is restored from a copy, or made
anew, the same number stands for other rows. So the commit log also remembers how many rows the last batch of each identity
had. A repetition with another count is an error, as is a batch that is neither the next one nor the last one.

The user answers such an error with the batch's number, so an answer is good for one batch only. See
docs/explanations/exactly-once.md for why it is the count, and not a checksum of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from dynamic_kafka.errors import CheckpointError, ConfigurationError, plural

__all__ = ["Identity", "Place", "Published", "place"]


@dataclass(frozen=True)
class Identity:
    """The identity of a batch.

    Args:
        name: The query's id or `txnAppId`, and the sink's name; "" for a batch write without one, which is never a
            repetition.
        batch: The batch's number, or `txnVersion`.
        consecutive: True if the numbers have no gaps, as those of a streaming query.
        of_query: True if the number is that of a streaming query's batch. A `foreachBatch` need not write in each batch.
    """

    name: str
    batch: int
    consecutive: bool = True
    of_query: bool = True

    def __str__(self) -> str:
        """Return the batch in words."""
        if self.of_query:
            return f"batch {self.batch} of query {self.name}"
        return f"version {self.batch} of txnAppId '{self.name}'"


class Published(NamedTuple):
    """What the commit log remembers of the last published batch of an identity.

    `rows` and `run` (of the streaming query that published it, see `protocol.Batch`) are None if the log does not contain
    them. `accepted` is True if `sink.accept-gaps` was used for it.
    """

    batch: int
    rows: int | None = None
    run: str | None = None
    accepted: bool = False


class Place(NamedTuple):
    """The place of a batch among those of its identity.

    `next` has to be published, and `repeated` is published already. With `accepted` it is published because of
    `sink.accept-gaps`. The warning is for the log, if the user should know.
    """

    kind: Literal["next", "repeated"]
    accepted: bool = False
    warning: str = ""


def place(
    identity: Identity,
    last: Published | None,
    *,
    accept: int | None,
    skip: int | None,
    rows: int | None = None,
    run: str = "",
) -> Place:
    """Return the place of a batch after the last published one of its name; None if the log does not know one.

    `accept` is `sink.accept-gaps`, and `skip` is `sink.skip-batch`. The number of rows is None before its tasks have run,
    and the run is "" outside of a streaming query.

    Raises:
        CheckpointError: If it is neither the next batch nor a repetition of the last one.
        ConfigurationError: If it is the second write of one identity in one batch of a run.
    """
    if not identity.name:
        return Place("next")
    if last is not None and identity.batch == last.batch:
        return _repetition(identity, last, accept=accept, skip=skip, rows=rows, run=run)
    if _follows(identity, last):
        is_late = last is None and identity.batch > 0 and identity.of_query and not identity.consecutive
        return Place("next", warning=_first(identity) if is_late else "")
    why = _gap(identity, last)
    if accept == identity.batch:
        return Place("next", accepted=True, warning=_accepted(identity, why))
    is_older = last is not None and identity.batch < last.batch
    if is_older and skip == identity.batch:
        return Place("repeated", warning=_skipped(identity, why))
    raise CheckpointError(_error(identity, why, can_skip=is_older))


def _first(identity: Identity) -> str:
    return (
        f"{_capital(identity)} is its first one in this commit log. If it was published with another prefix, log or "
        "cluster, its rows are written again"
    )


def _follows(identity: Identity, last: Published | None) -> bool:
    if not identity.consecutive:
        return last is None or identity.batch > last.batch
    return identity.batch == (0 if last is None else last.batch + 1)


def _repetition(
    identity: Identity, last: Published, *, accept: int | None, skip: int | None, rows: int | None, run: str
) -> Place:
    if run and run == last.run:
        raise ConfigurationError(
            f"In one batch of a streaming query, {identity} was written twice. Nothing of the second write is published. "
            "Give each write in foreachBatch a sink.name of its own, so that it is not taken for a repetition of another"
        )
    accepts = accept == identity.batch and not last.accepted
    if rows is None:
        return Place("next" if accepts else "repeated")
    if last.rows is None:
        why = "is published already; the commit log does not contain its number of rows"
        return Place(
            "repeated", warning=f"{_capital(identity)} {why}. What was written again is dropped ({plural(rows, 'row')})"
        )
    if rows == last.rows:
        why = f"is published already, with {plural(last.rows, 'row')}"
        return Place("repeated", warning=f"{_capital(identity)} {why}. What was written again is dropped")
    deleted = "records that it had read were deleted meanwhile, " if rows < last.rows else ""
    why = (
        f"it is published already with {plural(last.rows, 'row')} and now has {plural(rows, 'row')}: {deleted}the "
        "checkpoint was rewound, or the query computes other rows when it is repeated"
    )
    if accepts:
        return Place("next", accepted=True, warning=_accepted(identity, why))
    if skip == identity.batch:
        return Place("repeated", warning=_skipped(identity, why))
    raise CheckpointError(_error(identity, why, can_skip=True, can_accept=not last.accepted))


def _gap(identity: Identity, last: Published | None) -> str:
    if last is None:
        return (
            "the commit log does not contain an earlier batch of this query: the prefix, the log or its cluster was "
            "changed"
        )
    if identity.batch > last.batch:
        return f"the last one published is {last.batch}: batches between them were written somewhere else"
    if identity.of_query:
        return f"batch {last.batch} is published already: the checkpoint was rewound, or is a copy of another query's"
    return (
        f"version {last.batch} is published already: the checkpoint was rewound or deleted, or an older write was started "
        "again (a new query needs a txnAppId of its own)"
    )


def _error(identity: Identity, why: str, *, can_skip: bool, can_accept: bool = True) -> str:
    ways = ["Use the newest checkpoint and its prefix, if you have them."]
    if can_accept:
        ways.append(
            f"Or set sink.accept-gaps={identity.batch} to publish it: the next ones follow it, and rows that are published "
            "already appear twice."
        )
    if can_skip:
        ways.append(
            f"Or set sink.skip-batch={identity.batch} to leave it out: rows of it that are not published yet are missing."
        )
    return (
        f"{_capital(identity)} cannot be published exactly once, because {why}. Nothing of it is published now. "
        + " ".join(ways)
    )


def _accepted(identity: Identity, why: str) -> str:
    return (
        f"sink.accept-gaps={identity.batch}: {identity} is published, although {why}. Rows that were published before "
        "appear twice. The option is not needed any more"
    )


def _skipped(identity: Identity, why: str) -> str:
    return (
        f"sink.skip-batch={identity.batch}: {identity} is left out, although {why}. Its rows are missing if they were not "
        "published before. The option is not needed any more"
    )


def _capital(identity: Identity) -> str:
    text = str(identity)
    return text[0].upper() + text[1:]

"""The commands that change the positions in a checkpoint, while the query is stopped.

After a finished batch N, a change is a new batch N + 1 that reads nothing and ends at the new positions. No file of Spark is
changed, and the next start runs that batch and goes on from there. A query that runs after all is fenced by Spark itself: it
cannot log its own batch N + 1 any more, and ends.

If batch N is not finished, its file is replaced. That must not change what the batch reads, because its rows may be in the
output already, unless the user says so and the sink's commit log, or the user, says that they are not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from dynamic_kafka.cli.connection import add_commit_log_arguments, add_timeout, properties_of, read_text
from dynamic_kafka.cli.offsets.evidence import Evidence, evidence_of_sink, looks_running, supersede_claim
from dynamic_kafka.cli.offsets.position_tables import SHOWN_PARTITIONS, change_entry, change_rows, exported
from dynamic_kafka.cli.output import now_ms, show_json, show_line, show_table, warn
from dynamic_kafka.cli.positions import (
    Change,
    Partition,
    Position,
    changes,
    ids_of,
    other_ids,
    parse_ids,
    parse_positions,
    positions,
    postponed,
    renamed,
    with_positions,
)
from dynamic_kafka.cli.resets import reset_document
from dynamic_kafka.errors import CheckpointError, ConfigurationError, listed, plural
from dynamic_kafka.source.document.checkpoint import Batch, Checkpoint, read_checkpoint
from dynamic_kafka.source.document.document import Document

__all__ = [
    "add_edit_arguments",
    "import_positions",
    "postpone_clusters",
    "rename_cluster",
    "reset_positions",
    "set_positions",
]

_BACKUPS = "dynamic-kafka-backups"
_NOT_COMPARED = "The offsets are not compared with the logs: lag shows a position beyond the end of one."

_Put = Callable[[Mapping[Partition, int], Document], Document]
_Change = Callable[[argparse.Namespace, Document, _Put], Document]


def add_edit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that all changes have."""
    parser.add_argument("--execute", action="store_true", help="make the change; without it, it is only shown")
    parser.add_argument(
        "--force", action="store_true", help="make the change although it was refused; read the reason first"
    )
    unfinished = parser.add_argument_group("if the last batch is not finished")
    unfinished.add_argument(
        "--rewrite-unfinished", action="store_true", help="change what the unfinished batch reads, which runs again"
    )
    unfinished.add_argument(
        "--sink-prefix",
        metavar="PREFIX",
        help="the transactional id prefix of the query's exactly-once sink, to ask its log",
    )
    add_commit_log_arguments(unfinished)
    add_timeout(unfinished)


def _set(args: argparse.Namespace, document: Document, put: _Put) -> Document:
    wanted: dict[Partition, int] = {}
    for key, offset in args.positions:
        if wanted.setdefault(key, offset) != offset:
            raise ConfigurationError(f"{key} is given twice, with different offsets")
    return put(wanted, document)


def _import(args: argparse.Namespace, document: Document, put: _Put) -> Document:
    text = read_text(args.file)
    wanted = parse_positions(text, args.file)
    if not wanted:
        raise ConfigurationError(f"{args.file} has no positions, so nothing would change; name another file")
    meant = {(key.cluster, topic) for key in wanted for topic in ("", key.topic)}
    ids = {place: known for place, known in parse_ids(text).items() if place in meant}
    if others := other_ids(ids, ids_of(document)):
        raise CheckpointError(
            f"{args.file} has positions in other logs than the checkpoint. {others[0]}. If they hold all the same, take the "
            "line with the id out of the file"
        )
    return put(wanted, document)


def _reset(args: argparse.Namespace, document: Document, put: _Put) -> Document:
    known, wanted = reset_document(
        document,
        args.to,
        clusters=args.cluster,
        topics=args.topic,
        properties=properties_of(args),
        timeout_ms=int(args.timeout * 1000),
    )
    return put(wanted, known)


class _Plan(NamedTuple):
    """What a command would change.

    `edited` is the last batch with the new document, `now` are the positions before, and `found` are the partitions that
    change. `about_unfinished` is the evidence about an unfinished batch; None if nothing changes what one reads. `postponed`
    are the offsets that `postpone` leaves to a later batch, by partition. `refusals` speak against it, and `notes` are what
    else the user should know.
    """

    checkpoint: Checkpoint
    source: str
    edited: Batch
    now: Mapping[Partition, Position]
    found: Sequence[Change]
    about_unfinished: Evidence | None
    postponed: Mapping[Partition, int]
    refusals: Sequence[str]
    notes: Sequence[str]


def _edit(args: argparse.Namespace, change: _Change) -> int:
    checkpoint = read_checkpoint(args.checkpoint)
    batch = checkpoint.last_batch()
    source, unfinished = batch.source(args.source), checkpoint.is_unfinished
    document = batch.document(source)
    before = _document_before(checkpoint, source) if unfinished else None

    def put(wanted: Mapping[Partition, int], known: Document) -> Document:
        return with_positions(known, wanted, unfinished=unfinished, before=before)

    edited = change(args, document, put)
    if edited == put({}, document):
        if args.output == "json":
            show_json({"checkpoint": checkpoint.files.location, "executed": False, "refused": [], "changes": []})
        else:
            show_line("Nothing to change: these are the positions in the checkpoint.")
        return 0
    now, then = (positions(d, unfinished=unfinished) for d in (document, edited))
    rewrites = unfinished and _planned(now) != _planned(then)
    names = getattr(args, "clusters", ())
    running = looks_running(checkpoint, now_ms())
    about_unfinished = _about_unfinished(args, checkpoint) if rewrites else None
    evidence = [running, about_unfinished or Evidence()]
    plan = _Plan(
        checkpoint,
        source,
        batch.with_document(source, edited),
        now,
        changes(now, then),
        about_unfinished,
        {key: position.planned for key, position in now.items() if position.planned and key.cluster in names},
        [e.against for e in evidence if e.against],
        [*(e.note for e in evidence if e.note), *([_NOT_COMPARED] if change in (_set, _import) else [])],
    )
    forced = args.force and (args.rewrite_unfinished or not rewrites) and not any(e.is_proof for e in evidence)
    allowed = not plan.refusals or forced
    backup = _write(args, plan) if args.execute and allowed else ""
    if args.output == "json":
        show_json(
            {
                "checkpoint": checkpoint.files.location,
                "executed": bool(backup),
                "refused": [] if allowed else plan.refusals,
                "notes": plan.notes,
                "backup": backup or None,
                "changes": [change_entry(c) for c in plan.found],
                "postponed": {str(key): count for key, count in plan.postponed.items()},
            }
        )
    else:
        _show_plan(args, plan, allowed=allowed)
        if backup:
            _show_done(plan, backup)
    return 0 if allowed else 1


def _document_before(checkpoint: Checkpoint, source: str) -> Document | None:
    """Return the document that the unfinished batch begins after; None if there is none."""
    if checkpoint.committed is None:
        return None
    earlier = checkpoint.batch(checkpoint.committed)
    return earlier.document(source) if earlier.sources.get(source, "-") != "-" else None


def _planned(found: Mapping[Partition, Position]) -> dict[Partition, tuple[int | None, int]]:
    return {key: (position.offset, position.planned) for key, position in found.items() if position.planned}


def _about_unfinished(args: argparse.Namespace, checkpoint: Checkpoint) -> Evidence:
    """Return what speaks against changing what the unfinished batch reads."""
    number = checkpoint.last
    if not args.rewrite_unfinished:
        return Evidence(
            f"Batch {number} is not finished, and this would change what it reads. Its rows may be in the output already. "
            "Start the query once with trigger availableNow, so that the batch is finished, and try again. If that is not "
            "possible, add --rewrite-unfinished"
        )
    if args.sink_prefix is not None:
        return evidence_of_sink(args, checkpoint.query_id, number)
    return Evidence(
        f"It is not known whether the rows of batch {number} are in the output already. If they are, rows that it does not "
        "read any more stay there, and rows that it reads again are there twice. For an exactly-once sink of dynamic-kafka, "
        "--sink-prefix asks its commit log. For any other sink, look into its output, then add --force"
    )


def _write(args: argparse.Namespace, plan: _Plan) -> str:
    """Write the edited batch, after a backup, and return the backup's folder."""
    checkpoint, edited = plan.checkpoint, plan.edited
    files = checkpoint.files
    folder = f"{_BACKUPS}/{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    last = f"offsets/{edited.number}"
    files.create(f"{folder}/positions.txt", exported(checkpoint, plan.source, plan.now), like=last)
    files.create(f"{folder}/{last}", files.read(last), like=last)
    if checkpoint.is_unfinished:
        if plan.about_unfinished is not None and args.sink_prefix is not None:
            supersede_claim(args, checkpoint.query_id, edited.number, plan.about_unfinished)
        _check_unchanged(checkpoint)
        files.replace(last, edited.text)
    else:
        path = f"offsets/{edited.number + 1}"
        following = edited.following(files.shown(path), checkpoint.watermark_ms(edited.number), now_ms())
        _check_unchanged(checkpoint)
        if not files.create(path, following.text, like=last):
            raise _moved(checkpoint)
    return files.shown(folder)


def _check_unchanged(checkpoint: Checkpoint) -> None:
    now = read_checkpoint(checkpoint.files.location)
    if (now.offsets, now.commits) != (checkpoint.offsets, checkpoint.commits):
        raise _moved(checkpoint)


def _moved(checkpoint: Checkpoint) -> CheckpointError:
    return CheckpointError(
        f"The query has written to {checkpoint.files.location} just now, so it runs. Nothing was changed; stop the query "
        "and try again"
    )


def _show_plan(args: argparse.Namespace, plan: _Plan, *, allowed: bool) -> None:
    renames = "old" in args
    count = _count(plan, renames=renames)
    if renames:
        show_line(f"Cluster '{args.old}' becomes '{args.new}', with {count}.")
    elif plan.postponed:
        offsets = sum(plan.postponed.values())
        names = listed([f"'{name}'" for name in args.clusters])
        show_line(f"Batch {plan.edited.number} leaves {offsets} offsets of {names} ({count}) to a later batch.")
    elif plan.found:
        show_table(change_rows(plan.found[:SHOWN_PARTITIONS], "NOW", "THEN"))
        if len(plan.found) > SHOWN_PARTITIONS:
            show_line(f"And {len(plan.found) - SHOWN_PARTITIONS} more; --output json shows all.")
    for note in plan.notes:
        show_line(note)
    for refusal in plan.refusals:
        if allowed:
            warn(f"--force: {refusal}")
        else:
            show_line(f"Refused: {refusal}.")
    if allowed and not args.execute:
        show_line(f"Dry run, nothing was changed: add --execute to change {count}.")


def _show_done(plan: _Plan, backup: str) -> None:
    files, number = plan.checkpoint.files, plan.edited.number
    show_line(f"Done. The next start goes on at the new positions. A copy of the old ones is in {backup}")
    undo = (
        f"put {backup}/offsets/{number} in the place of {files.shown(f'offsets/{number}')}"
        if plan.checkpoint.is_unfinished
        else f"delete {files.shown(f'offsets/{number + 1}')}"
    )
    show_line(f"To undo this before the next start: {undo}")


def _count(plan: _Plan, *, renames: bool) -> str:
    found = [change for change in plan.found if change.after is not None] if renames else plan.postponed or plan.found
    return plural(len(found), "partition")


set_positions = partial(_edit, change=_set)
"""`offsets set`"""
import_positions = partial(_edit, change=_import)
"""`offsets import`"""
reset_positions = partial(_edit, change=_reset)
"""`offsets reset`"""
postpone_clusters = partial(_edit, change=lambda args, document, put: postponed(put({}, document), args.clusters))
"""`offsets postpone`"""
rename_cluster = partial(_edit, change=lambda args, document, put: renamed(put({}, document), args.old, args.new))
"""`offsets rename-cluster`"""

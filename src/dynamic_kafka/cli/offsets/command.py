"""`dynamic-kafka offsets`: the positions in a checkpoint, shown, compared, exported and changed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from dynamic_kafka.cli.connection import (
    Run,
    add_command,
    add_option_arguments,
    add_property_arguments,
    add_source,
    add_timeout,
    read_text,
)
from dynamic_kafka.cli.offsets import edits
from dynamic_kafka.cli.offsets.position_tables import (
    SHOWN_PARTITIONS,
    change_entry,
    change_rows,
    entry,
    exported,
    filtered,
    position_rows,
    waiting_entries,
)
from dynamic_kafka.cli.offsets.translation import WAYS, topic_pair, translate_positions
from dynamic_kafka.cli.output import duration, json_text, now_ms, show_json, show_line, show_table, write_text
from dynamic_kafka.cli.positions import (
    Partition,
    Position,
    changes,
    ids_of,
    other_ids,
    parse_ids,
    parse_position,
    parse_positions,
    positions,
)
from dynamic_kafka.cli.resets import parse_target
from dynamic_kafka.errors import CheckpointError
from dynamic_kafka.source.document.checkpoint import read_checkpoint

__all__ = ["add_to"]

_EXAMPLES = """examples:
  dynamic-kafka offsets show s3a://bucket/checkpoints/orders
  dynamic-kafka offsets set /checkpoints/orders eu/orders/0:1200 eu/orders/1:900
  dynamic-kafka offsets reset /checkpoints/orders --to 2026-11-22T20:00Z --topic orders
  dynamic-kafka offsets export /checkpoints/orders > positions.txt
  dynamic-kafka offsets import /checkpoints/orders positions.txt --execute
  dynamic-kafka offsets postpone /checkpoints/orders us --rewrite-unfinished --sink-prefix orders
  dynamic-kafka offsets translate /checkpoints/orders --from eu --to eu-new --options-file query.properties

Commands that change something only show it, until you add --execute. Stop the query first.
"""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    text = "Show, compare and change the positions in a checkpoint."
    parser = add_command(commands, "offsets", text, None, _EXAMPLES)
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def add(name: str, text: str, run: Run) -> argparse.ArgumentParser:
        added = add_command(actions, name, text, run)
        added.add_argument("checkpoint", metavar="CHECKPOINT", help="a local path, or an address such as s3a://...")
        add_source(added)
        return added

    showing = add("show", "Show where reading goes on.", _show)
    _add_filters(showing)
    showing.add_argument("--batch", type=int, metavar="N", help="the positions after an earlier batch")
    showing.add_argument(
        "--all", action="store_true", help=f"every partition, also if there are over {SHOWN_PARTITIONS}"
    )

    comparing = add("diff", "Compare with another checkpoint or an exported file, else the last two batches.", _diff)
    comparing.add_argument("other", nargs="?", metavar="OTHER", help="a checkpoint, or a file that export has written")

    exporting = add("export", "Write the positions as a text to edit, compare and import.", _export)
    _add_filters(exporting)
    exporting.add_argument("--file", type=Path, metavar="FILE", help="the file to write (standard output)")

    setting = add("set", "Set the positions of partitions.", edits.set_positions)
    text = "a partition, and the offset of the next record that it reads"
    setting.add_argument("positions", nargs="+", type=_position, metavar="CLUSTER/TOPIC/PARTITION:OFFSET", help=text)

    importing = add("import", "Set the positions that a file names; the others stay.", edits.import_positions)
    importing.add_argument("file", metavar="FILE", help="a file as export writes it; - reads standard input")

    resetting = add("reset", "Ask the clusters for new positions.", edits.reset_positions)
    resetting.add_argument(
        "--to",
        required=True,
        type=parse_target,
        metavar="WHERE",
        help="earliest, latest, or a time such as 2026-11-22T20:00Z",
    )
    _add_filters(resetting)
    add_property_arguments(resetting)

    postponing = add(
        "postpone",
        "Take clusters that do not answer out of an unfinished batch; a later batch reads them.",
        edits.postpone_clusters,
    )
    postponing.add_argument("clusters", nargs="+", metavar="CLUSTER", help="a cluster that does not answer")

    renaming = add("rename-cluster", "Give a cluster another name.", edits.rename_cluster)
    renaming.add_argument("old", metavar="OLD", help="its name in the checkpoint")
    renaming.add_argument("new", metavar="NEW", help="its name in the metadata")

    translating = add(
        "translate", "Show where the positions are on a cluster that continues another.", translate_positions
    )
    translating.add_argument("--from", dest="old", required=True, metavar="CLUSTER", help="the cluster that was read")
    translating.add_argument("--to", dest="new", required=True, metavar="CLUSTER", help="the cluster that continues it")
    translating.add_argument("--by", choices=WAYS, help="how to translate (as the metadata says)")
    translating.add_argument(
        "--topic",
        action="append",
        type=topic_pair,
        default=[],
        metavar="OLD=NEW",
        help="the names of a topic on both clusters (as the metadata says); repeatable",
    )
    add_timeout(translating)
    add_option_arguments(translating)
    add_property_arguments(translating)

    for editing in (setting, importing, resetting, postponing, renaming):
        edits.add_edit_arguments(editing)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", action="append", metavar="NAME", help="only this cluster; repeatable")
    parser.add_argument("--topic", action="append", metavar="NAME", help="only this topic; repeatable")


def _position(text: str) -> tuple[Partition, int]:
    try:
        return parse_position(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _show(args: argparse.Namespace) -> int:
    checkpoint = read_checkpoint(args.checkpoint)
    number = checkpoint.last if args.batch is None else args.batch
    batch = checkpoint.batch(number)
    source = batch.source(args.source)
    unfinished = number == checkpoint.last and checkpoint.is_unfinished
    found, waits = filtered(args, batch.document(source), unfinished=unfinished)
    if args.output == "json":
        show_json(
            {
                "checkpoint": checkpoint.files.location,
                "query": checkpoint.query_id,
                "source": source,
                "batch": number,
                "finished": not unfinished,
                "changed_ms": checkpoint.offsets[number],
                "partitions": [*(entry(key, position) for key, position in found.items()), *waiting_entries(waits)],
            }
        )
        return 0
    rows = position_rows(found, waits, planned=unfinished, every=args.all)
    most = len(rows) if args.all else SHOWN_PARTITIONS
    show_table(rows[:most])
    if len(rows) > most:
        show_line(f"And {len(rows) - most} more topics that are read; choose with --topic, or add --all.")
    planned = sum(position.planned for position in found.values())
    age = duration(max(0, now_ms() - checkpoint.offsets[number]))
    if unfinished:
        show_line(
            f"Batch {number} is not finished (planned {age} ago). The next start runs it again: it reads {planned} offsets "
            "from these positions on."
        )
    elif number == checkpoint.last:
        show_line(f"Batch {number} is finished (planned {age} ago). The next start goes on at these positions.")
    else:
        show_line(
            f"These are the positions after batch {number} (planned {age} ago). The last batch is {checkpoint.last}."
        )
    return 0


def _diff(args: argparse.Namespace) -> int:
    checkpoint = read_checkpoint(args.checkpoint)
    batch = checkpoint.last_batch()
    source = batch.source(args.source)
    document = batch.document(source)
    after = positions(document, unfinished=checkpoint.is_unfinished and args.other is not None)
    if args.other is None:
        what = f"batch {checkpoint.last - 1} and batch {checkpoint.last}"
        if checkpoint.last - 1 not in checkpoint.offsets:
            raise CheckpointError(f"{checkpoint.files.location} has only one batch: name what to compare it with")
        earlier = checkpoint.batch(checkpoint.last - 1).document(source)
        before, ids = positions(earlier, unfinished=False), ids_of(earlier)
    elif Path(args.other).is_file():
        what = f"{args.other} and {checkpoint.files.location}"
        text = read_text(args.other)
        named, ids = parse_positions(text, args.other), parse_ids(text)
        before = {
            key: Position(offset, after[key].state if key in after else "reading") for key, offset in named.items()
        }
    else:
        other = read_checkpoint(args.other)
        what = f"{other.files.location} and {checkpoint.files.location}"
        last = other.last_batch()
        theirs = last.document(last.source(args.source))
        before, ids = positions(theirs, unfinished=other.is_unfinished), ids_of(theirs)
    found, others = changes(before, after), other_ids(ids, ids_of(document))
    if args.output == "json":
        entries = [change_entry(change) for change in found]
        show_json({"compared": what, "changes": entries, "others": others, "finished": not checkpoint.is_unfinished})
        return 0
    show_table(change_rows(found, "BEFORE", "AFTER"))
    for text in others:
        show_line(f"{text}.")
    count = len(found) + len(others)
    show_line(f"{count or 'No'} difference{'' if count == 1 else 's'} between {what}.")
    if checkpoint.is_unfinished:
        show_line(
            f"Batch {checkpoint.last} is not finished. The next start runs it again from where it begins, as dynamic-kafka "
            "offsets show says."
        )
    return 0


def _export(args: argparse.Namespace) -> int:
    checkpoint = read_checkpoint(args.checkpoint)
    batch = checkpoint.last_batch()
    source = batch.source(args.source)
    found, _ = filtered(args, batch.document(source), unfinished=checkpoint.is_unfinished)
    if args.output == "json":
        text = json_text({str(partition): position.offset for partition, position in found.items()})
    else:
        text = exported(checkpoint, source, found)
    if args.file is None:
        sys.stdout.write(text)
    else:
        write_text(args.file, text, "--file")
    return 0

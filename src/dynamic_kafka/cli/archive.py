"""`dynamic-kafka archive`: compacts an archive of records, and says whether each record is there once."""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dynamic_kafka.cli.connection import Run, add_command
from dynamic_kafka.cli.output import show_json, show_line, show_table, warn
from dynamic_kafka.errors import ConfigurationError, listed
from dynamic_kafka.options import duration_ms

if TYPE_CHECKING:
    from dynamic_kafka.archive import PartitionReport, Verified

__all__ = ["add_to"]

_EXAMPLES = """examples:
  dynamic-kafka archive verify s3a://bucket/archives/orders
  dynamic-kafka archive compact /archives/orders --execute
  dynamic-kafka archive delta /archives/orders
  dynamic-kafka archive compact /archives/orders --before 2026-11-01 --keep '1 d' --execute
"""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    parser = add_command(commands, "archive", "Compact and verify an archive of records.", None, _EXAMPLES)
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def add(name: str, text: str, run: Run) -> argparse.ArgumentParser:
        added = add_command(actions, name, text, run)
        added.add_argument("path", metavar="PATH", help="the archive: a local path, or an address such as s3a://...")
        return added

    add("verify", "Say whether each record is there once, and which offsets are missing.", _verify)
    add("delta", "Make the folder a Delta table, too, or that table what the archive is now.", _delta)
    compacting = add("compact", "Turn the files of each finished day into one.", _compact)
    compacting.add_argument("--before", type=_day, metavar="DAY", help="the first day that is left alone (today, UTC)")
    compacting.add_argument(
        "--keep", default="7 d", metavar="DURATION", help="how long replaced files stay for readers (7 d)"
    )
    compacting.add_argument("--execute", action="store_true", help="make the change; without it, it is only shown")


def _verify(args: argparse.Namespace) -> int:
    from dynamic_kafka import archive  # with pyarrow, which the other commands do not need

    found = archive.verify(args.path)
    if args.output == "json":
        show_json(
            {
                "sound": found.is_sound,
                "problems": found.problems,
                "files": found.files,
                "unknownFiles": found.unknown_files,
                "keptFiles": found.kept_files,
                "partitions": [_entry(report) for report in found.partitions],
            }
        )
    else:
        _show(found)
    return 0 if found.is_sound else 1


def _show(found: Verified) -> None:
    show_table(
        [
            {
                "CLUSTER": report.cluster,
                "TOPIC": report.key.topic,
                "PARTITION": report.key.partition,
                "OFFSETS": f"{report.first} to {report.position}",
                "RECORDS": report.records,
                "NOT READ": listed([f"{start} to {end - 1}" for start, end in report.unread], 3) or None,
                "WITHOUT RECORD": report.without_record,
            }
            for report in found.partitions
        ]
    )
    for problem in found.problems:
        show_line(f"Problem: {problem}")
    if left := len(found.unknown_files) - len(found.kept_files):
        show_line(f"{left} files are left of batches that were stopped. Compaction deletes old ones.")
    _show_kept(found.kept_files)
    records = sum(report.records for report in found.partitions)
    if found.is_sound:
        show_line(f"Each of the {records} records in {found.files} files is there once.")
    else:
        show_line(f"{len(found.problems)} problems in {found.files} files with {records} records.")


def _show_kept(paths: Sequence[str]) -> None:
    if paths:
        show_line(
            f"{len(paths)} files have records that the archive does not have, or cannot be read: {listed(paths, 3)}. They "
            "are of a batch that runs or was stopped, of a log that is not the newest one, or of something else. Compaction "
            "keeps them."
        )


def _entry(report: PartitionReport) -> dict[str, Any]:
    return {
        "cluster": report.cluster,
        "clusterId": report.key.cluster_id,
        "topic": report.key.topic,
        "topicId": report.key.topic_id,
        "partition": report.key.partition,
        "first": report.first,
        "position": report.position,
        "records": report.records,
        "unread": report.unread,
        "withoutRecord": report.without_record,
    }


def _delta(args: argparse.Namespace) -> int:
    from dynamic_kafka import archive

    done = archive.publish_delta(args.path)
    if args.output == "json":
        show_json(done._asdict())
    else:
        show_line(
            f"Version {done.version} of the Delta table is the archive: {done.added} files came in, {done.removed} went out."
        )
    return 0


def _compact(args: argparse.Namespace) -> int:
    try:
        keep = dt.timedelta(milliseconds=duration_ms(at_least=0)(args.keep))
    except ValueError:
        raise ConfigurationError(
            f"--keep '{args.keep}' is no duration; expected a number with a unit, such as 7 d"
        ) from None
    from dynamic_kafka import archive
    from dynamic_kafka.history.archive.compaction import compact

    if args.execute:
        done = archive.compact(args.path, before=args.before, keep=keep)
    else:
        before = args.before or dt.datetime.now(dt.UTC).date()
        done = compact(args.path, before=before, keep_ms=keep // dt.timedelta(milliseconds=1), execute=False)
    if args.output == "json":
        show_json({"days": done.days, "deleted": done.deleted, "kept": done.kept})
        return 0
    show_table([{"DAY": day or "without a time", "FILES": count} for day, count in done.days.items()])
    _show_kept(done.kept)
    if args.execute:
        show_line(f"{len(done.days)} days were compacted, and {done.deleted} old files deleted.")
    elif done.days or done.deleted:
        show_line(f"{len(done.days)} days would be compacted, and {done.deleted} old files deleted.")
        warn("nothing was changed; add --execute to do it")
    else:
        show_line("There is nothing to compact, and no old file to delete.")
    return 0


def _day(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError("expected a day such as 2026-11-23") from None

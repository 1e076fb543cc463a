"""`dynamic-kafka lag`: how far a query is behind, worst first, from its checkpoint or from the port of its driver."""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from contextlib import closing
from time import sleep
from typing import Any

from dynamic_kafka.cli.connection import (
    add_command,
    add_option_arguments,
    add_property_arguments,
    add_source,
    add_timeout,
    age,
    count,
    options_of,
    properties_of,
    seconds,
)
from dynamic_kafka.cli.job import job_of
from dynamic_kafka.cli.lag.lags import DEPTH, By, Look, Row, exceeds, rows_of
from dynamic_kafka.cli.lag.of_checkpoint import CheckpointLag
from dynamic_kafka.cli.lag.of_query import QueryLag
from dynamic_kafka.cli.output import duration, printable_json, show_json, show_line, show_table, warn
from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError

__all__ = ["add_to"]

_NAMES = ("cluster", "topic", "partition")
_TOP = 20
_AGES_OF = 100
_LOOKS = 300
_EXAMPLES = """examples:
  dynamic-kafka lag /checkpoints/orders                          by topic, worst first
  dynamic-kafka lag s3a://bucket/checkpoints/orders --by partition --top 5
  dynamic-kafka lag /checkpoints/orders --property 'sasl.password=${file:/run/secrets/kafka}'
  dynamic-kafka lag --url http://127.0.0.1:9250 --watch 5        live, with the trend and the time to clear
  dynamic-kafka lag /checkpoints/orders --max-lag 100000 --max-seconds 600 || page-somebody

Exit codes: 0 if all is known and within the limits; 1 if a limit is exceeded, or a cluster or a partition is not known;
2 for wrong usage.
"""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    text = "Show how far a query is behind, worst first."
    parser = add_command(commands, "lag", text, _run, _EXAMPLES)
    parser.add_argument("checkpoint", nargs="?", metavar="CHECKPOINT", help="the query's checkpoint, as Spark takes it")
    parser.add_argument("--url", help="the port of a running query's driver instead, such as http://127.0.0.1:9250")
    add_source(parser)
    parser.add_argument("--query", help="the query, if the driver runs several")
    parser.add_argument("--by", choices=_NAMES, default="topic", help="what a row is (topic)")
    parser.add_argument("--top", metavar="N", type=count, default=_TOP, help=f"show the worst N in the table ({_TOP})")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--once", action="store_true", help="look once (default)")
    when.add_argument("--watch", metavar="SECONDS", type=seconds, help="look again and again, until Ctrl-C")
    when.add_argument(
        "--trend", metavar="SECONDS", type=seconds, help="look twice, so many seconds apart, to see the trend"
    )
    parser.add_argument("--max-lag", metavar="N", type=count, help="exit with 1 if the lag of all is more")
    parser.add_argument(
        "--max-seconds", metavar="S", type=age, help="exit with 1 if the oldest record to read is older"
    )
    add_option_arguments(parser)
    add_property_arguments(parser)
    add_timeout(parser, 5.0)


def _run(args: argparse.Namespace) -> int:
    with closing(_origin(args)) as origin:
        looks: deque[Look] = deque([origin.look()], maxlen=_LOOKS)
        if args.trend is not None:
            sleep(args.trend)
            looks.append(origin.look())
        _show(args, looks)
        while args.watch is not None:
            sleep(args.watch)
            try:
                looks.append(origin.look())
            except DynamicKafkaError as error:  # a driver that starts again, a file that Spark has just deleted
                warn(str(error).partition("\n")[0])
            else:
                _show(args, looks)
    last = looks[-1]
    if why := exceeds(last, args.max_lag, args.max_seconds):
        warn(why)
        return 1
    return 1 if last.unknown or last.silent else 0


def _origin(args: argparse.Namespace) -> CheckpointLag | QueryLag:
    options, properties = options_of(args), properties_of(args)
    if (args.checkpoint is None) == (args.url is None):
        raise ConfigurationError("Give the checkpoint of the query, or --url with the port of its driver")
    if args.url is not None:
        if options or properties or args.source:
            raise ConfigurationError(
                "--url needs no options, properties or source: the driver asks the clusters itself"
            )
        return QueryLag(args.url, args.query, timeout_s=args.timeout)
    if args.query is not None:
        raise ConfigurationError("--query is for --url; a checkpoint is that of one query")
    return CheckpointLag(
        args.checkpoint,
        args.source,
        job_of(options).targets if options else (),
        properties,
        timeout_s=args.timeout,
        ages_of=None if args.max_seconds is not None else _AGES_OF,
    )


# --- showing ------------------------------------------------------------------------------------------------------------


def _show(args: argparse.Namespace, looks: deque[Look]) -> None:
    by: By = args.by
    now, rows = looks[-1], rows_of(list(looks), by)
    if args.output == "json":
        document = _document(now, rows, by)
        if args.watch is None:
            show_json(document)
        else:  # one line for each look, for programs that read a pipe
            sys.stdout.write(printable_json(json.dumps(document, ensure_ascii=False)) + "\n")
            sys.stdout.flush()
        return
    if args.watch is not None and sys.stdout.isatty():
        sys.stdout.write("\x1b[H\x1b[2J")
    shown = [_shown(row, by) for row in rows[: args.top]]
    show_table(shown)
    if len(rows) > len(shown):
        show_line(f"... and {len(rows) - len(shown)} more (--top)")
    show_line(_sentence(now))
    for note in now.notes:
        show_line(note)
    sys.stdout.flush()


def _shown(row: Row, by: By) -> dict[str, Any]:
    of_whole = [None] * (DEPTH[by] - len(row.key))  # a cluster of which nothing else is known
    cells: dict[str, Any] = dict(zip(map(str.upper, _NAMES), [*row.key, *of_whole], strict=False))
    if by == "partition":
        cells |= {"POSITION": row.position, "END": row.end}
    else:
        cells |= {"PARTITIONS": row.partitions}
    return cells | {
        "LAG": "unknown" if row.lag is None else f"{row.lag} + unknown" if row.unknown else row.lag,
        "AGE": _age(row),
        "TREND": _trend(row),
        "CLEAR IN": None if row.clear_s is None else duration(int(row.clear_s * 1000)),
        "NOTE": row.note,
    }


def _age(found: Row | Look) -> str | None:
    if found.seconds is None:
        return None
    return f"{'at least ' if found.ageless or found.unknown else ''}{duration(int(found.seconds * 1000))}"


def _trend(row: Row) -> str | None:
    per_second = row.per_second
    if row.swing is not None:
        return f"swings {row.swing[0]} to {row.swing[1]}"
    if per_second is None:
        return None
    if abs(per_second) < 0.05:
        return "steady"
    return f"{'grows' if per_second > 0 else 'falls'} {abs(per_second):.1f}/s"


def _sentence(now: Look) -> str:
    age = f", the oldest one to read is {_age(now)} old" if now.seconds else ""
    lost = f"; not known: {now.unknown} partitions" if now.unknown else ""
    silent = f" (clusters: {len(now.silent)})" if now.silent else ""
    known = len(now.partitions) - now.unknown
    number = f"{'at least ' if now.lag is None else ''}{now.known_lag} in {known} partitions" if known else "unknown"
    return f"Records to read: {number}{age}{lost}{silent}"


def _document(now: Look, rows: list[Row], by: By) -> dict[str, Any]:
    """Return the JSON document of `--output json`. null is what is not known."""
    return {
        "time_ms": now.time_ms,
        "by": by,
        "lag": now.lag,
        "known_lag": now.known_lag,
        "age_s": now.seconds,
        "unknown_ages": now.ageless,
        "partitions": len(now.partitions),
        "unknown_partitions": now.unknown,
        "unreachable": dict(now.silent),
        "notes": list(now.notes),
        "rows": [
            {
                **{n: int(text) if n == "partition" else text for n, text in zip(_NAMES, row.key, strict=False)},
                **({"position": row.position, "end": row.end} if by == "partition" else {"partitions": row.partitions}),
                "unknown_partitions": row.unknown,
                "lag": None if row.unknown else row.lag,
                "known_lag": row.lag or 0,
                "age_s": row.seconds,
                "unknown_ages": row.ageless,
                "lag_per_s": row.per_second,
                "lag_swing": None if row.swing is None else list(row.swing),
                "clear_s": row.clear_s,
                "note": row.note or None,
            }
            for row in rows
        ],
    }

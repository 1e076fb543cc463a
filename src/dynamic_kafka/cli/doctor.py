"""`dynamic-kafka doctor`: whether this machine and the clusters of a query are fit for it, and what to do if not.

Nothing is written and nothing is changed on the clusters. Clusters are examined side by side, and each question waits a few
seconds at most. What cannot be found out is unknown, with the reason.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from dynamic_kafka.cli.checks import exactly_once, machine, network, rights
from dynamic_kafka.cli.checks.findings import Finding, Result, error, unknown, warning
from dynamic_kafka.cli.checks.visit import NotAnsweredError, Visit
from dynamic_kafka.cli.connection import (
    add_command,
    add_connection_arguments,
    add_option_arguments,
    connection_of,
    options_of,
)
from dynamic_kafka.cli.job import Job, Purpose, Target, job_of
from dynamic_kafka.cli.output import show_json, show_line, show_table
from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError, MissingDependencyError, listed
from dynamic_kafka.metadata.factory import DEFAULT_CLUSTER
from dynamic_kafka.sink.configure import commit_log_topic

__all__ = ["CLUSTER_CHECKS", "MACHINE_CHECKS", "Row", "add_to"]

MACHINE_CHECKS: tuple[tuple[str, Callable[[Job], Iterable[Finding]]], ...] = (
    ("python", machine.check_python),
    ("workers", machine.check_workers),
    ("java", machine.check_java),
    ("spark", machine.check_spark),
    ("client", machine.check_client),
    ("features", machine.check_features),
    ("kernel", machine.check_kernel),
    ("memory", machine.check_memory),
)
"""The checks of this machine. After the clusters, `open files` follows, which depends on the number of brokers."""

CLUSTER_CHECKS: tuple[tuple[str, Callable[[Visit], Iterable[Finding]]], ...] = (
    ("properties", network.check_properties),
    ("address", network.check_addresses),
    ("listeners", network.check_listeners),
    ("answer", network.check_answer),
    ("clock", network.check_clock),
    ("topics", network.check_topics),
    ("rights", rights.check_rights),
    ("isolation", exactly_once.check_isolation),
    ("transactions", exactly_once.check_transactions),
    ("commit log", exactly_once.check_commit_log),
)
"""The checks of a cluster, in this order. `properties`, `address` and `answer` may end the examination."""

_PURPOSE_OF: Mapping[str, Purpose] = {
    "isolation": "reading",
    "transactions": "exactly-once",
    "commit log": "exactly-once",
}
"""The checks for one purpose only."""
_PURPOSES: tuple[Purpose, ...] = ("reading", "writing", "exactly-once")
_WORST_FIRST = (Result.ERROR, Result.WARNING, Result.UNKNOWN, Result.OK)
_AT_ONCE = 16
_EXAMPLES = """examples:
  dynamic-kafka doctor                                     this machine only
  dynamic-kafka doctor --bootstrap-servers kafka:9092 --topic orders --for reading
  dynamic-kafka doctor -o metadata-service=file -o metadata-service.path=streams.yaml -o stream-ids=flights
  dynamic-kafka doctor --options-file orders-sink.properties --output json

Exit codes: 0 if no error was found, 1 if there is one, 2 for wrong usage.
"""


class Row(NamedTuple):
    """A finding with its place: a cluster, or None for this machine."""

    cluster: str | None
    check: str
    finding: Finding


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    text = "Check whether this machine and the clusters of a query are fit for it. Nothing is changed."
    parser = add_command(commands, "doctor", text, _run, _EXAMPLES)
    add_option_arguments(parser)
    parser.add_argument("--write", action="store_true", help="the options are those of a sink")
    add_connection_arguments(parser, timeout_s=5.0)
    group = parser.add_argument_group("one cluster, without options")
    group.add_argument("--topic", action="append", default=[], help="a topic that is read or written; repeatable")
    group.add_argument("--group", metavar="GROUP", help="the consumer group to which offsets are committed")
    group.add_argument("--prefix", help="the transactional id prefix of an exactly-once sink")
    group.add_argument(
        "--for",
        dest="purposes",
        choices=_PURPOSES,
        action="append",
        default=[],
        help="what is to be done there; missing rights are an error then, and a warning otherwise; repeatable",
    )


def _run(args: argparse.Namespace) -> int:
    rows: list[Row] = []
    job = _job(args, rows)
    rows[:0] = [Row(None, name, finding) for name, check in MACHINE_CHECKS for finding in _guarded(check, job)]
    brokers: dict[str, int] = {}
    if job.targets:
        with ThreadPoolExecutor(min(_AT_ONCE, len(job.targets))) as pool:
            for found in pool.map(lambda target: _examine(target, job, args.timeout, brokers), job.targets):
                rows += found
    # Unknown is what clusters that do not answer would need: they have errors of their own.
    files = _guarded(lambda j: machine.check_open_files(j, brokers), job)
    rows += [Row(None, "open files", f) for f in files if f.result is not Result.UNKNOWN]
    _show(rows, args.output)
    return 1 if any(row.finding.result is Result.ERROR for row in rows) else 0


def _job(args: argparse.Namespace, rows: list[Row]) -> Job:
    """Return what to examine. A metadata service that fails is a finding, and then there are no clusters."""
    options = options_of(args)
    given = bool(args.bootstrap_servers or args.property or args.properties_file)
    if not options and (args.write or (not given and (args.topic or args.group or args.prefix or args.purposes))):
        raise ConfigurationError("There is no cluster to look at; give the options with -o, or add --bootstrap-servers")
    if options and (given or args.topic or args.group or args.prefix or args.purposes):
        raise ConfigurationError(
            "The options of a query name its clusters; leave out the arguments for one cluster (--bootstrap-servers ...)"
        )
    if not options:
        return _one_cluster(args) if given else Job()
    try:
        job = job_of(options, write=args.write)
    except MissingDependencyError as problem:
        what, _, remedy = str(problem).partition("; ")
        rows.append(Row(None, "extras", error(what, remedy)))
        return Job()
    except ConfigurationError as problem:
        rows.append(Row(None, "options", error(str(problem).partition("\n")[0], "correct the options")))
        return Job()
    except Exception as problem:  # noqa: BLE001  a service may raise anything
        name = "" if isinstance(problem, DynamicKafkaError) else f"{type(problem).__name__}: "
        text = f"the metadata service fails: {name}{str(problem).partition(chr(10))[0]}"
        rows.append(Row(None, "metadata", error(text, "make sure that it is reachable, and validate its document")))
        return Job()
    if job.unknown_streams:
        text = f"the metadata service does not know these streams: {listed(job.unknown_streams, 5)}"
        rows.append(Row(None, "metadata", warning(text, "check stream-ids; they are read as soon as they exist")))
    return job


def _one_cluster(args: argparse.Namespace) -> Job:
    purposes: tuple[Purpose, ...] = tuple(args.purposes) or _PURPOSES
    return Job(
        (Target(DEFAULT_CLUSTER, connection_of(args), frozenset(args.topic)),),
        {purpose: bool(args.purposes) for purpose in purposes},
        group=args.group,
        prefix=args.prefix or "",
        log_topic=commit_log_topic(args.prefix) if args.prefix else "",
    )


def _examine(target: Target, job: Job, timeout_s: float, brokers: dict[str, int]) -> list[Row]:
    """Return the findings about a cluster, and note the number of its brokers."""
    visit = Visit(target, job, timeout_s)
    rows: list[Row] = []
    try:
        skipped = []
        for name, check in CLUSTER_CHECKS:
            if name in _PURPOSE_OF and _PURPOSE_OF[name] not in job.purposes:
                continue
            if visit.stop:
                skipped.append(name)
                continue
            rows += [Row(target.cluster, name, finding) for finding in _guarded(check, visit)]
        if skipped:
            rows.append(
                Row(target.cluster, skipped[0], unknown(f"not asked, because {visit.stop}: {', '.join(skipped)}"))
            )
        if not visit.stop:
            brokers[target.cluster] = len(visit.described.nodes)
    finally:
        visit.close()
    return rows


def _guarded(check: Callable[[Any], Iterable[Finding]], argument: Any) -> Iterator[Finding]:
    """Yield what a check finds. A check that fails is a finding of its own, and does not hide the others."""
    try:
        yield from check(argument)
    except (NotAnsweredError, DynamicKafkaError) as problem:
        yield unknown(str(problem).partition("\n")[0])
    except Exception as problem:  # noqa: BLE001
        yield unknown(f"the check itself failed: {type(problem).__name__}: {problem}", "please report it")


# --- showing ------------------------------------------------------------------------------------------------------------


def _show(rows: list[Row], output: str) -> None:
    counts = Counter(row.finding.result for row in rows)
    if output == "json":
        show_json(
            {
                **{f"{result}_count": counts[result] for result in _WORST_FIRST},
                "findings": [
                    {
                        "cluster": row.cluster,
                        "check": row.check,
                        "result": row.finding.result,
                        "what": row.finding.what,
                        "remedy": row.finding.remedy or None,
                    }
                    for row in rows
                ],
            }
        )
        return
    show_table(
        [
            {
                "RESULT": row.finding.result,
                "WHERE": "this machine" if row.cluster is None else row.cluster,
                "CHECK": row.check,
                "FOUND": row.finding.what,
                "WHAT TO DO": row.finding.remedy,
            }
            for row in sorted(rows, key=lambda row: _WORST_FIRST.index(row.finding.result))
        ]
    )
    show_line(", ".join(f"{counts[result]} {result}" for result in _WORST_FIRST))

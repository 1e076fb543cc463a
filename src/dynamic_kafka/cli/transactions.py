"""`dynamic-kafka transactions`: look at, commit and abort what an exactly-once sink has left open.

Transactions are described before the commit log is read: what the log has decided by then is never taken for undecided. They
are ended by the described producer id and epoch, so a transaction that somebody begins meanwhile is not touched.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from dynamic_kafka.cli import report
from dynamic_kafka.cli.connection import ADDRESSES, connection_arguments, properties_of, property_pair
from dynamic_kafka.cli.decisions import Found, LogView, Step, Verdict, plan_abort, plan_commit, this_cluster
from dynamic_kafka.cli.output import show_details, show_json, show_line, show_table, warn
from dynamic_kafka.errors import ConfigurationError, TransactionError
from dynamic_kafka.kafka.config.secrets import resolve
from dynamic_kafka.kafka.transactions.client import EndResult, TransactionClient
from dynamic_kafka.metadata.factory import DEFAULT_CLUSTER
from dynamic_kafka.sink.commit_log import look
from dynamic_kafka.sink.committer import outcome
from dynamic_kafka.sink.configure import commit_log_topic
from dynamic_kafka.sink.ids import belongs_to
from dynamic_kafka.sink.protocol import Outcome, State, Transaction

__all__ = ["add_to"]

_PAUSE_S = 0.1

_FORCED_COMMIT = (
    "--force commits what the commit log has not decided: the batch's other transactions may stay unpublished, so that a "
    "part of it becomes visible, and its query writes the batch again, so that rows are there twice"
)
_FORCED_ABORT = (
    "--force aborts what the commit log has decided, or may have: these rows are lost, while others of the batch may be "
    "published, and the query then ends with LostTransactionsError"
)
_OWNED = (
    "the commit log is owned (generation %d): if its query still runs, these may be the transactions of its batch, which "
    "then fails, or loses rows if it is being committed; stop the query first"
)


def add_to(commands: Any) -> None:
    """Add the command's parser.

    Args:
        commands: What `ArgumentParser.add_subparsers` returns.
    """
    text = "Transactions that an exactly-once sink has left open."
    parser = commands.add_parser("transactions", help=text, description=text, allow_abbrev=False)
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        parents = [connection_arguments(), _sink_arguments(prefix_required=name != "list"), _common_arguments()]
        added: argparse.ArgumentParser = actions.add_parser(
            name, help=text, description=text, parents=parents, allow_abbrev=False
        )
        return added

    listing = add("list", "List open transactions, and what the commit log says of them.")
    listing.add_argument("--all", action="store_true", help="of all prefixes, and of other programs")
    listing.set_defaults(run=_list)

    describing = add("describe", "Show all that is known of transactions.")
    describing.add_argument("ids", nargs="+", metavar="ID", help="a transactional id")
    describing.set_defaults(run=_describe)

    for name, every, text, force in (
        ("commit", "--decided", "all that the commit log has decided", "also what the commit log has not decided"),
        ("abort", "--all-open", "all that are open", "also what the commit log has decided, or may have"),
    ):
        ending = add(name, f"{name.capitalize()} transactions. A dry run, unless --execute is given.")
        which = ending.add_mutually_exclusive_group(required=True)
        which.add_argument("ids", nargs="*", default=[], metavar="ID", help="a transactional id")
        which.add_argument(every, dest="every", action="store_true", help=text)
        ending.add_argument("--execute", action="store_true", help="do it")
        ending.add_argument("--force", action="store_true", help=f"{name} {force}: read the warning")
        ending.set_defaults(run=partial(_end, commit=name == "commit"))


def _sink_arguments(*, prefix_required: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("sink")
    group.add_argument(
        "--prefix", type=_prefix, required=prefix_required, help="the sink's transactional id prefix, exactly"
    )
    group.add_argument("--commit-log", metavar="TOPIC", help="its commit log, if sink.commit-log.topic was given")
    group.add_argument(
        "--commit-log-property",
        metavar="KEY=VALUE",
        type=property_pair,
        action="append",
        default=[],
        help="a property of the commit log's cluster, if that is another one: as bootstrap.servers=...; repeatable",
    )
    group.add_argument(
        "--cluster", metavar="NAME", help="this cluster's name in the metadata service, if its brokers do not tell"
    )
    return parser


def _common_arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--output", choices=("text", "json"), default="text", help="(text)")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from, and what happens")
    return parser


def _prefix(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected a prefix that is not empty")
    return text


# --- actions ------------------------------------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    if args.prefix is None and not args.all:
        raise ConfigurationError("No prefix is given; add --prefix, or --all to see the transactions of all prefixes")
    with closing(_client(args)) as client:
        names = [name for name in client.list_open() if args.all or belongs_to(args.prefix, name)]
        view, found = _look_at(args, client, names)
        found = [f for f in found if f.is_pending]
        if view is not None:  # what is decided matters also if it is not open any more
            found += _also(
                client, view, {t.transactional_id for t in view.decided_here} - {f.transactional_id for f in found}
            )
    if args.output == "json":
        show_json(report.document(args.prefix, view, found))
        return 0
    if found:
        show_table([report.row(f) for f in found])
    else:
        show_line("No open transactions." if args.all else f"No open transactions of the prefix '{args.prefix}'.")
    if view is not None:
        show_line(f"Commit log: {report.log_line(view)}")
    return 0


def _describe(args: argparse.Namespace) -> int:
    _check_ids(args)
    with closing(_client(args)) as client:
        view, found = _look_at(args, client, args.ids)
    assert view is not None
    if args.output == "json":
        show_json(report.document(args.prefix, view, found))
    else:
        for f in found:
            show_details(report.details(view, f))
            show_line("")
        show_line(f"Commit log: {report.log_line(view)}")
    return 0 if all(f.description is not None for f in found) else 1


def _end(args: argparse.Namespace, *, commit: bool) -> int:
    _check_ids(args)
    with closing(_client(args)) as client:
        view, found = _look_at(args, client, _wanted(args, client, commit=commit))
        assert view is not None
        if args.every and not commit:
            found = [f for f in found if f.is_open]  # not those that are ending already
        plan = plan_commit if commit else plan_abort
        steps = [plan(f, force=args.force) for f in found]
        todo = [f for f, step in zip(found, steps, strict=True) if step.kind == "end"]
        _warn(view, todo, commit=commit)
        if args.execute:
            ended = _execute(client, todo, args.timeout, commit=commit)
            steps = [ended.get(f.transactional_id, step) for f, step in zip(found, steps, strict=True)]
    _show_steps(args, view, found, steps, commit=commit)
    return 1 if any(step.kind == "refused" for step in steps) else 0


def _wanted(args: argparse.Namespace, client: TransactionClient, *, commit: bool) -> list[str]:
    """The ids to end."""
    if not args.every:
        return list(args.ids)
    if not commit:
        return [name for name in client.list_open() if belongs_to(args.prefix, name)]
    view = _log_view(args)
    if view.state is None:
        raise TransactionError(
            f"Nothing is known to be decided: {report.log_line(view)}; give the right --commit-log, and "
            "--commit-log-property bootstrap.servers=... if it is on another cluster"
        )
    if view.decided and view.cluster is None:
        clusters = ", ".join(f"'{name}'" for name in sorted({t.cluster for t in view.decided}))
        raise TransactionError(
            f"The commit log '{view.topic}' has a decision for {clusters}, and the brokers' addresses do not tell which of "
            "them this cluster is; add --cluster with its name"
        )
    return [t.transactional_id for t in view.decided_here]


def _execute(client: TransactionClient, todo: Sequence[Found], timeout_s: float, *, commit: bool) -> dict[str, Step]:
    """End transactions; what became of each."""
    wanted, done = (Outcome.COMMITTED, "committed") if commit else (Outcome.ABORTED, "aborted")
    left = {
        f.transactional_id: Transaction("", f.transactional_id, f.description.producer_id, f.description.producer_epoch)
        for f in todo
        if f.description is not None
    }
    steps: dict[str, Step] = {}
    deadline = time.monotonic() + timeout_s
    while left:
        results = client.end_all([t[1:] for t in left.values()], commit=commit)
        described = client.describe(list(left))
        late = time.monotonic() > deadline
        for (name, transaction), result in zip(list(left.items()), results, strict=True):
            now = outcome(transaction, described[name])
            if result is EndResult.DONE or now is wanted:
                steps[name] = Step("end", done)
            elif result is not EndResult.CONCURRENT:
                steps[name] = Step("refused", f"not {done}: {result}, it is {now} now; look at it with describe")
            elif late:
                steps[name] = Step("refused", f"not {done} yet: its coordinator is busy with it; try again")
        left = {name: transaction for name, transaction in left.items() if name not in steps}
        if left:
            time.sleep(_PAUSE_S)
    return steps


# --- looking ------------------------------------------------------------------------------------------------------------


def _client(args: argparse.Namespace) -> TransactionClient:
    return TransactionClient(args.cluster or DEFAULT_CLUSTER, properties_of(args), timeout_ms=int(args.timeout * 1000))


def _check_ids(args: argparse.Namespace) -> None:
    for name in args.ids:
        if not belongs_to(args.prefix, name):
            raise ConfigurationError(
                f"'{name}' is no transactional id of the prefix '{args.prefix}' (those are {args.prefix}.dk-...); give the "
                "prefix that it belongs to"
            )


def _look_at(
    args: argparse.Namespace, client: TransactionClient, names: Collection[str]
) -> tuple[LogView | None, list[Found]]:
    """Describe transactions, and then read the commit log; there is none without a prefix."""
    names = sorted(set(names))
    described = client.describe(names)
    view = None if args.prefix is None else _log_view(args)
    return view, [
        Found(
            name,
            described[name],
            view.verdict(name, described[name])
            if view is not None and belongs_to(args.prefix, name)
            else Verdict.OTHER_PREFIX,
        )
        for name in names
    ]


def _also(client: TransactionClient, view: LogView, names: Collection[str]) -> list[Found]:
    described = client.describe(sorted(names))
    return [Found(name, seen, view.verdict(name, seen)) for name, seen in described.items()]


def _log_view(args: argparse.Namespace) -> LogView:
    properties = properties_of(args)
    topic = args.commit_log or commit_log_topic(args.prefix)
    log_properties = {**properties, **dict(args.commit_log_property)}
    chain = look(args.cluster or DEFAULT_CLUSTER, log_properties, topic, timeout_ms=int(args.timeout * 1000))
    state = State() if chain is None else chain.state
    for transaction in state.transactions:
        if not belongs_to(args.prefix, transaction.transactional_id):
            raise ConfigurationError(
                f"The commit log '{topic}' is another prefix's: it names '{transaction.transactional_id}'; check --prefix "
                "and --commit-log"
            )
    addresses = resolve({key: value for key, value in properties.items() if key in ADDRESSES})
    return LogView(topic, chain, this_cluster(addresses, state.clusters, args.cluster))


# --- showing -----------------------------------------------------------------------------------------------------------


def _warn(view: LogView, todo: Sequence[Found], *, commit: bool) -> None:
    if not commit and todo and view.state is not None and view.state.status == "owned":
        warn(_OWNED % view.state.generation)
    if commit and any(f.verdict is not Verdict.DECIDED for f in todo):
        warn(_FORCED_COMMIT)
    if not commit and any(f.verdict in (Verdict.DECIDED, Verdict.UNKNOWN) for f in todo):
        warn(_FORCED_ABORT)
    others = sorted({t.cluster for t in view.decided} - {view.cluster})
    if commit and view.cluster is not None and others:
        warn(f"the decision has transactions on other clusters, too: commit them there ({', '.join(others)})")


def _show_steps(
    args: argparse.Namespace, view: LogView, found: Sequence[Found], steps: Sequence[Step], *, commit: bool
) -> None:
    verb = "commit" if commit else "abort"
    pairs = list(zip(found, steps, strict=True))
    if args.output == "json":
        document = report.document(args.prefix, view, found)
        for entry, (_, step) in zip(document["transactions"], pairs, strict=True):
            entry["result"] = step.kind if args.execute or step.kind != "end" else "dry-run"
            entry["result_text"] = step.text
        show_json({"action": verb, "executed": args.execute, **document})
        return
    if not pairs:
        show_line(f"Nothing to {verb}.")
    else:
        show_table(
            [
                {"TRANSACTIONAL ID": f.transactional_id, "STATE BEFORE": report.state_of(f), "RESULT": s.text}
                for f, s in pairs
            ]
        )
    show_line(f"Commit log: {report.log_line(view)}")
    count = sum(step.kind == "end" for step in steps)
    if not args.execute and count:
        show_line(f"Dry run, nothing was changed: add --execute to {verb} {count} of {len(steps)}.")

"""`dynamic-kafka transactions`: list, describe, commit and abort the open transactions of an exactly-once sink.

Transactions are described before the commit log is read, so a transaction that is decided meanwhile is not taken for
undecided. They are ended by the described producer id and epoch, so a transaction that begins meanwhile is not touched.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any

from dynamic_kafka.cli.connection import (
    Run,
    add_command,
    add_commit_log_arguments,
    add_connection_arguments,
    connection_of,
)
from dynamic_kafka.cli.output import duration, now_ms, show_details, show_json, show_line, show_table, warn
from dynamic_kafka.cli.transactions.verdicts import (
    CommitLogView,
    Result,
    TransactionView,
    Verdict,
    plan_abort,
    plan_commit,
    this_cluster,
)
from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, TransactionError, listed, may_not
from dynamic_kafka.kafka.config.property_names import ADDRESSES
from dynamic_kafka.kafka.config.secrets import resolve
from dynamic_kafka.kafka.logins import principal
from dynamic_kafka.kafka.transactions.client import EndResult, TransactionClient
from dynamic_kafka.kafka.transactions.connection import BrokerError
from dynamic_kafka.metadata.factory import DEFAULT_CLUSTER
from dynamic_kafka.sink.configure import commit_log_topic
from dynamic_kafka.sink.log.chain import State, Transaction
from dynamic_kafka.sink.log.commit_log import read_commit_log, supersede
from dynamic_kafka.sink.outcome import outcome
from dynamic_kafka.sink.protocol import Outcome
from dynamic_kafka.sink.transactional_ids import belongs_to

__all__ = ["add_to"]

_PAUSE_S = 0.1

_FORCED_COMMIT = (
    "Rows may appear twice, and a part of a batch may become visible. --force commits transactions that the commit log "
    "has not decided, although other transactions of their batch may stay uncommitted and the query writes the batch again"
)
_FORCED_ABORT = (
    "Rows are lost, and the query then ends with LostTransactionsError. --force aborts transactions that the commit log has "
    "decided, or may have decided, although other transactions of their batch may be committed"
)
_OWNED = (
    "The commit log is owned (generation %d): the transactions may belong to a batch that a running query is writing now. "
    "With --execute, this batch fails as a whole and nothing of it is published; start its query again afterwards"
)


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    text = "List, describe, commit and abort the open transactions of an exactly-once sink."
    parser = add_command(commands, "transactions", text, None)
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def add(name: str, text: str, run: Run) -> argparse.ArgumentParser:
        added = add_command(actions, name, text, run)
        add_connection_arguments(added)
        _add_sink_arguments(added, prefix_required=name != "list")
        return added

    listing = add("list", "List open transactions, with their state in the commit log.", _list)
    listing.add_argument("--all", action="store_true", help="list those of all prefixes and other programs")

    describing = add("describe", "Show transactions in full.", _describe)
    describing.add_argument("ids", nargs="+", metavar="ID", help="a transactional id")

    for name, every, which_text, force in (
        ("commit", "--decided", "all that the commit log has decided", "that the commit log has not decided"),
        ("abort", "--all-open", "all that are open", "that the commit log has decided, or may have"),
    ):
        text = f"{name.capitalize()} transactions. This is a dry run, unless --execute is given."
        ending = add(name, text, partial(_end, commit=name == "commit"))
        which = ending.add_mutually_exclusive_group(required=True)
        which.add_argument("ids", nargs="*", default=[], metavar="ID", help="a transactional id")
        which.add_argument(every, dest="every", action="store_true", help=which_text)
        ending.add_argument("--execute", action="store_true", help="make the change; without it, it is only shown")
        ending.add_argument("--force", action="store_true", help=f"also {name} transactions {force}; read the warning")


def _add_sink_arguments(parser: argparse.ArgumentParser, *, prefix_required: bool) -> None:
    group = parser.add_argument_group("sink")
    group.add_argument(
        "--prefix", type=_prefix, required=prefix_required, help="the sink's transactional id prefix, exactly"
    )
    add_commit_log_arguments(group)
    group.add_argument(
        "--cluster",
        metavar="NAME",
        help="this cluster's name in the metadata service, if its brokers' addresses do not show it",
    )


def _prefix(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected a prefix that is not empty")
    return text


# --- actions ------------------------------------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    if args.prefix is None and not args.all:
        raise ConfigurationError("No prefix is given; add --prefix, or --all for the transactions of all prefixes")
    with closing(_client(args)) as client:
        names = client.list_open()
        mine = names if args.prefix is None else _of_prefix(args, client, names)
        view, found = _read(args, client, names if args.all else mine)
        found = [f for f in found if f.is_pending]
        if view is not None:  # decided transactions matter even if they are not open any more
            more = {t.transactional_id for t in view.decided_here} - {f.transactional_id for f in found}
            described = client.describe(sorted(more))
            found += [TransactionView(name, seen, view.verdict(name, seen)) for name, seen in described.items()]
    if args.output == "json":
        show_json(_document(args.prefix, view, found))
        return 0
    if found:
        show_table([_row(f) for f in found])
    else:
        show_line(
            "No open transactions that this user may describe."
            if args.all
            else f"No open transactions of the prefix '{args.prefix}'."
        )
    if view is not None:
        show_line(f"Commit log: {_head(view)}")
    return 0


def _describe(args: argparse.Namespace) -> int:
    _check_ids(args)
    with closing(_client(args)) as client:
        view, found = _read(args, client, args.ids)
    assert view is not None
    if args.output == "json":
        show_json(_document(args.prefix, view, found))
    else:
        for f in found:
            show_details(_details(view, f))
            show_line("")
        show_line(f"Commit log: {_head(view)}")
    return 0 if all(f.description is not None for f in found) else 1


def _end(args: argparse.Namespace, *, commit: bool) -> int:
    _check_ids(args)
    with closing(_client(args)) as client:
        view, found = _read(args, client, _wanted(args, client, commit=commit))
        assert view is not None
        if args.every and not commit:
            found = [f for f in found if f.is_open]  # the others are ending already
        plan = plan_commit if commit else plan_abort
        steps = [plan(f, force=args.force) for f in found]
        todo = [f for f, step in zip(found, steps, strict=True) if step.kind == "end"]
        _warn(view, todo, commit=commit)
        if args.execute:
            if todo and not commit:
                _supersede(args, view)
            ended = _execute(client, todo, args.timeout, commit=commit)
            steps = [ended.get(f.transactional_id, step) for f, step in zip(found, steps, strict=True)]
        undecided = _undecided(args, client, found) if commit and args.every else 0
    _show_steps(args, view, found, steps, commit=commit)
    if undecided and args.output != "json":
        show_line(
            f"Open without a decision: {undecided}. Readers with read_committed wait for them until they time out. If no "
            "job writes with this prefix now, end them with: transactions abort --all-open"
        )
    return 1 if any(step.kind == "refused" for step in steps) else 0


def _undecided(args: argparse.Namespace, client: TransactionClient, decided: Collection[TransactionView]) -> int:
    """Return how many transactions of the prefix are open and not among those that the commit log has decided."""
    known = {f.transactional_id for f in decided}
    return sum(belongs_to(args.prefix, name) and name not in known for name in client.list_open())


def _wanted(args: argparse.Namespace, client: TransactionClient, *, commit: bool) -> list[str]:
    """Return the ids to end."""
    if not args.every:
        return list(args.ids)
    if not commit:
        return _of_prefix(args, client, client.list_open())
    view = _log_view(args)
    if view.state is None:
        raise TransactionError(
            f"The commit log does not exist or is empty ({_head(view)}), so no transaction is decided. Check "
            "--commit-log, and give --commit-log-property bootstrap.servers=... if the commit log is on another cluster"
        )
    if view.decided and view.cluster is None:
        clusters = ", ".join(f"'{name}'" for name in sorted({t.cluster for t in view.decided}))
        raise TransactionError(
            f"The commit log '{view.topic}' has a decision for {clusters}, and the brokers' addresses do not show which of "
            "them is this cluster. Add --cluster with its name"
        )
    return [t.transactional_id for t in view.decided_here]


def _of_prefix(args: argparse.Namespace, client: TransactionClient, names: Collection[str]) -> list[str]:
    """Return those of the open transactional ids that belong to the prefix.

    Brokers do not list ids that the user may not describe. If none is listed, one that does not exist is asked for, which
    shows whether the user has the right.

    Raises:
        TransactionError: If the user may not describe it.
    """
    found = [name for name in names if belongs_to(args.prefix, name)]
    if not found:
        try:
            client.describe([f"{args.prefix}.dk-doctor"])
        except ClusterUnavailableError as error:
            if not (isinstance(error.__cause__, BrokerError) and error.__cause__.unauthorized):
                raise
            user = principal(connection_of(args))
            right = may_not(user, ["Describe"], "transactional-id", f"{args.prefix}.dk-", prefixed=True)
            raise TransactionError(
                f"It is not known whether transactions of the prefix '{args.prefix}' are open: {right}"
            ) from None
    return found


def _supersede(args: argparse.Namespace, view: CommitLogView) -> None:
    """Take the commit log away from a batch that may be written now, so that it is not decided with aborted transactions."""
    if view.chain is None or view.state is None or view.state.status != "owned":
        return
    cluster, properties = args.cluster or DEFAULT_CLUSTER, _log_properties(args)
    if not supersede(cluster, properties, view.topic, view.chain, timeout_ms=int(args.timeout * 1000)):
        raise TransactionError(
            f"A running query has written to the commit log '{view.topic}' just now. Nothing was aborted; stop the query "
            "and try again"
        )


def _execute(
    client: TransactionClient, todo: Sequence[TransactionView], timeout_s: float, *, commit: bool
) -> dict[str, Result]:
    """End transactions, and return the result of each by its id."""
    wanted, done = (Outcome.COMMITTED, "committed") if commit else (Outcome.ABORTED, "aborted")
    left = {
        f.transactional_id: Transaction("", f.transactional_id, f.description.producer_id, f.description.producer_epoch)
        for f in todo
        if f.description is not None
    }
    steps: dict[str, Result] = {}
    deadline = time.monotonic() + timeout_s
    while left:
        results = client.end_all([t[1:] for t in left.values()], commit=commit)
        described = client.describe(list(left))
        late = time.monotonic() > deadline
        for (name, transaction), result in zip(list(left.items()), results, strict=True):
            now = outcome(transaction, described[name])
            if result is EndResult.DONE or now is wanted:
                steps[name] = Result("end", done)
            elif result is not EndResult.CONCURRENT:
                steps[name] = Result("refused", f"not {done}: {result}, it is {now} now; look at it with describe")
            elif late:
                steps[name] = Result("refused", f"not {done} yet: its coordinator is busy with it; try again")
        left = {name: transaction for name, transaction in left.items() if name not in steps}
        if left:
            time.sleep(_PAUSE_S)
    return steps


# --- reading ------------------------------------------------------------------------------------------------------------


def _client(args: argparse.Namespace) -> TransactionClient:
    return TransactionClient(args.cluster or DEFAULT_CLUSTER, connection_of(args), timeout_ms=int(args.timeout * 1000))


def _check_ids(args: argparse.Namespace) -> None:
    for name in args.ids:
        if not belongs_to(args.prefix, name):
            raise ConfigurationError(
                f"'{name}' is not a transactional id of the prefix '{args.prefix}' (its ids are {args.prefix}.dk-...). Give "
                "the prefix of this id"
            )


def _read(
    args: argparse.Namespace, client: TransactionClient, names: Collection[str]
) -> tuple[CommitLogView | None, list[TransactionView]]:
    """Describe transactions, and then read the commit log of the prefix, if one is given."""
    names = sorted(set(names))
    described = client.describe(names)
    view = None if args.prefix is None else _log_view(args)

    def verdict(name: str) -> Verdict:
        if view is None:
            return Verdict.NOT_ASKED
        return view.verdict(name, described[name]) if belongs_to(args.prefix, name) else Verdict.OTHER_PREFIX

    return view, [TransactionView(name, described[name], verdict(name)) for name in names]


def _log_properties(args: argparse.Namespace) -> dict[str, str]:
    return {**connection_of(args), **dict(args.commit_log_property)}


def _log_view(args: argparse.Namespace) -> CommitLogView:
    properties = connection_of(args)
    topic = args.commit_log or commit_log_topic(args.prefix)
    cluster = args.cluster or DEFAULT_CLUSTER
    chain = read_commit_log(cluster, _log_properties(args), topic, timeout_ms=int(args.timeout * 1000))
    state = State() if chain is None else chain.state
    for transaction in state.transactions:
        if not belongs_to(args.prefix, transaction.transactional_id):
            raise ConfigurationError(
                f"The commit log '{topic}' belongs to another prefix: it contains '{transaction.transactional_id}'. Check "
                "--prefix and --commit-log"
            )
    addresses = resolve({key: value for key, value in properties.items() if key in ADDRESSES})
    return CommitLogView(topic, chain, this_cluster(addresses, state.clusters, args.cluster))


# --- showing -----------------------------------------------------------------------------------------------------------


def _warn(view: CommitLogView, todo: Sequence[TransactionView], *, commit: bool) -> None:
    if not commit and todo and view.state is not None and view.state.status == "owned":
        warn(_OWNED % view.state.generation)
    if commit and any(f.verdict is not Verdict.DECIDED for f in todo):
        warn(_FORCED_COMMIT)
    if not commit and any(f.verdict in (Verdict.DECIDED, Verdict.UNKNOWN) for f in todo):
        warn(_FORCED_ABORT)
    others = sorted({t.cluster for t in view.decided} - {view.cluster})
    if commit and view.cluster is not None and others:
        warn(f"the decision also has transactions on other clusters: commit them there ({', '.join(others)})")


def _show_steps(
    args: argparse.Namespace,
    view: CommitLogView,
    found: Sequence[TransactionView],
    steps: Sequence[Result],
    *,
    commit: bool,
) -> None:
    verb = "commit" if commit else "abort"
    pairs = list(zip(found, steps, strict=True))
    if args.output == "json":
        document = _document(args.prefix, view, found)
        for entry, (_, step) in zip(document["transactions"], pairs, strict=True):
            entry["result"] = step.kind if args.execute or step.kind != "end" else "dry-run"
            entry["result_text"] = step.text
        show_json({"action": verb, "executed": args.execute, **document})
        return
    if not pairs:
        show_line(f"Nothing to {verb}.")
    else:
        show_table(
            [{"TRANSACTIONAL ID": f.transactional_id, "STATE BEFORE": _state(f), "RESULT": s.text} for f, s in pairs]
        )
    show_line(f"Commit log: {_head(view)}")
    count = sum(step.kind == "end" for step in steps)
    if not args.execute and count:
        show_line(f"Dry run, nothing was changed: add --execute to {verb} {count} of {len(steps)}.")


def _document(prefix: str | None, view: CommitLogView | None, found: Sequence[TransactionView]) -> dict[str, Any]:
    """Return the JSON document of `--output json`."""
    head = None if view is None else view.state
    log = view and {
        "topic": view.topic,
        "exists": view.chain is not None,
        "generation": None if head is None else head.generation,
        "status": None if head is None else head.status,
        "query": None if head is None else head.identity,
        "batch": None if head is None else head.batch,
    }
    return {"prefix": prefix, "commit_log": log, "transactions": [_entry(view, f) for f in found]}


def _entry(view: CommitLogView | None, found: TransactionView) -> dict[str, Any]:
    """Return a transaction as part of the JSON document. Ages are by the clock of this machine."""
    head = None if view is None or found.verdict not in (Verdict.DECIDED, Verdict.LOST) else view.state
    seen = found.description
    started_at_ms = (
        seen.started_at_ms if seen is not None and found.is_pending else None
    )  # an ended one keeps its start
    age_ms = None if started_at_ms is None else max(0, now_ms() - started_at_ms)
    return {
        "transactional_id": found.transactional_id,
        "state": None if seen is None else str(seen.state),
        "producer_id": None if seen is None else seen.producer_id,
        "producer_epoch": None if seen is None else seen.producer_epoch,
        "timeout_ms": None if seen is None else seen.timeout_ms,
        "started_at_ms": started_at_ms,
        "age_ms": age_ms,
        "left_ms": None if seen is None or age_ms is None else max(0, seen.timeout_ms - age_ms),
        "partitions": [
            {"topic": topic, "partition": partition}
            for topic, partitions in sorted(() if seen is None else seen.topics)
            for partition in sorted(partitions)
        ],
        "verdict": found.verdict.replace(" ", "-"),
        "decided_by_generation": None if head is None else head.generation,
        "decided_batch": None if head is None else head.batch,
    }


def _row(found: TransactionView) -> dict[str, Any]:
    """Return a transaction as a row of `list`."""
    entry = _entry(None, found)
    age_ms, left_ms = entry["age_ms"], entry["left_ms"]
    return {
        "TRANSACTIONAL ID": found.transactional_id,
        "STATE": _state(found),
        "PRODUCER ID": entry["producer_id"],
        "EPOCH": entry["producer_epoch"],
        "AGE": None if age_ms is None else duration(age_ms),
        "TIME LEFT": None if left_ms is None else duration(left_ms) if left_ms else "none",
        "PARTITIONS": ", ".join(f"{p['topic']}-{p['partition']}" for p in entry["partitions"]) or None,
        "COMMIT LOG": found.verdict,
    }


def _details(view: CommitLogView, found: TransactionView) -> dict[str, Any]:
    """Return everything about a transaction, by name."""
    row, seen = _row(found), found.description
    pairs: dict[str, Any] = {"Transactional id": found.transactional_id, "State": _state(found)}
    if seen is not None:
        began = datetime.fromtimestamp(seen.started_at_ms / 1000, UTC) if seen.started_at_ms >= 0 else None
        pairs |= {
            "Producer id": row["PRODUCER ID"],
            "Producer epoch": row["EPOCH"],
            "Time-out": f"{duration(seen.timeout_ms)} (transaction.timeout.ms={seen.timeout_ms})",
            "Began": None if began is None else began.isoformat(timespec="milliseconds"),
            "Age": row["AGE"],
            "Time left": row["TIME LEFT"],
            "Partitions": row["PARTITIONS"],
        }
    return pairs | {"Commit log": _verdict(view, found)}


def _verdict(view: CommitLogView, found: TransactionView) -> str:
    """Return the verdict with its reason."""
    head = view.state
    if found.verdict is Verdict.UNKNOWN:
        why = _head(view) if head is None else "it names this id on a cluster that may be this one; add --cluster"
        return f"{found.verdict}: {why}"
    if head is None or found.verdict is Verdict.UNDECIDED:
        return found.verdict
    query = f" of '{head.identity}'" if head.identity else ""
    return f"{found.verdict}: by generation {head.generation}, batch {head.batch}{query}"


def _head(view: CommitLogView) -> str:
    """Return the head of the commit log in words."""
    if view.chain is None:
        return f"the topic '{view.topic}' does not exist"
    head = view.state
    if head is None:
        return f"the topic '{view.topic}' does not contain a commit log"
    last = f", last decided batch {head.batch}" if head.batch >= 0 else ""
    query = f" of '{head.identity}'" if head.identity else ""
    meaning = " (a batch is being written, or its query ended before the end of it)" if head.status == "owned" else ""
    others = [f"'{name}' (batch {batch})" for name, batch in head.applied.items() if name != head.identity]
    also = f"; it also has batches of {listed(others, 3)}" if others else ""
    return f"'{view.topic}', generation {head.generation}, {head.status}{meaning}{last}{query}{also}"


def _state(found: TransactionView) -> str:
    return "not known" if found.description is None else found.description.state

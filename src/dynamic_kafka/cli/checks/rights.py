"""Checks of ACLs: whether the user may do what reading, writing and exactly-once need. Nothing is changed to find out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from dynamic_kafka.cli.checks.findings import Finding, error, ok, unknown, warning
from dynamic_kafka.cli.checks.visit import NotAnsweredError, Visit
from dynamic_kafka.cli.job import Purpose
from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.kafka.logins import principal
from dynamic_kafka.kafka.transactions.client import TransactionClient
from dynamic_kafka.kafka.transactions.connection import BrokerError

__all__ = ["Granted", "check_rights", "judge_rights"]

Granted = frozenset[str] | str
"""The operations that the user may do with a resource, or why that is not known."""

_TOPIC: Mapping[Purpose, frozenset[str]] = {
    "reading": frozenset({"Describe", "Read"}),
    "writing": frozenset({"Describe", "Write"}),
    "exactly-once": frozenset({"Describe", "Write"}),
}
_GROUP = frozenset({"Read"})
_LOG = frozenset({"Describe", "DescribeConfigs", "Read", "Write", "Delete"})
_POINTER = frozenset({"Describe", "Read", "Write"})
_TRANSACTIONS = frozenset({"Describe", "Write"})
_CLUSTER = frozenset({"DescribeConfigs"})
_NAMES: Mapping[Purpose, str] = {
    "reading": "reading",
    "writing": "writing at least once",
    "exactly-once": "writing exactly once",
}
_NOT_SAID = "the cluster does not say what this user may do"
_NO_TOPIC = "it does not exist"
_SHOWN = 5


def check_rights(visit: Visit) -> Iterator[Finding]:
    """Check the rights for each purpose of the query."""
    topics = _topics(visit)
    user = principal(visit.target.properties)
    name = user if user.startswith("User:") else "User:..."  # else it is said in words
    for purpose, asked_for in visit.job.purposes.items():
        needed = dict.fromkeys(topics, _TOPIC[purpose])
        granted = dict(topics)
        if purpose == "reading" and visit.job.group is not None:
            resource = f"Group '{visit.job.group}'"
            needed[resource], granted[resource] = _GROUP, _group(visit, visit.job.group)
        if purpose == "exactly-once":
            for resource, operations, found in _of_transactions(visit):
                needed[resource], granted[resource] = operations, found
        yield judge_rights(purpose, needed, granted, asked_for=asked_for, user=name)


def judge_rights(
    purpose: Purpose,
    needed: Mapping[str, frozenset[str]],
    granted: Mapping[str, Granted],
    *,
    asked_for: bool,
    user: str,
) -> Finding:
    """Judge whether the user may do all that a purpose needs, by resource.

    Without `asked_for` the purpose is only of interest. `user` is as ACLs name it.
    """
    missing, unclear = [], []
    for resource, operations in needed.items():
        found = granted[resource]
        if isinstance(found, str):
            unclear.append(f"{resource} ({found})")
        elif operations - found:
            missing.append(_short(resource, operations - found))
    name = _NAMES[purpose]
    also = f". Not known: {_joined(unclear)}" if unclear else ""
    if missing:
        judge = error if asked_for else warning
        return judge(
            f"not enough for {name}: missing is {_joined(missing)}{also}",
            f"{'' if asked_for else f'for {name}, '}grant it (kafka-acls.sh --add --allow-principal {user} ...)",
        )
    if unclear or not needed:
        return unknown(
            f"it is not known whether the rights are enough for {name}: {_joined(unclear) or 'no topic is named'}",
            "name the topics (--topic, or the options of the query)" if not needed else "",
        )
    return ok(f"enough for {name}: {_joined([_short(r, o) for r, o in needed.items()])}")


def _joined(parts: Sequence[str]) -> str:
    more = f"; and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    return "; ".join(parts[:_SHOWN]) + more


def _short(resource: str, operations: frozenset[str]) -> str:
    return f"{', '.join(sorted(operations))} on {resource}"


def _topics(visit: Visit) -> dict[str, Granted]:
    try:
        return {
            f"Topic '{name}'": _NO_TOPIC
            if not state.partitions and not state.hidden
            else (_NOT_SAID if state.rights is None else state.rights)
            for name, state in sorted(visit.topics.items())
            if name != visit.job.log_topic
        }
    except NotAnsweredError as refused:
        return {f"Topic '{name}'": str(refused) for name in sorted(visit.target.topics)}


def _group(visit: Visit, group: str) -> Granted:
    try:
        found = visit.group_rights(group)
    except NotAnsweredError as refused:
        return str(refused)
    return _NOT_SAID if found is None else found


# --- exactly once -------------------------------------------------------------------------------------------------------


def _of_transactions(visit: Visit) -> Iterator[tuple[str, frozenset[str], Granted]]:
    """Yield what exactly-once needs besides its topics: the resource, the operations, and what is granted."""
    log = visit.job.log_topic
    if not log:
        yield "the transactional ids and the commit log", _LOG, "no prefix is given; add --prefix"
        return
    yield f"TransactionalId '{visit.job.prefix}.dk-*'", _TRANSACTIONS, _transactional_ids(visit)
    yield "the Cluster", _CLUSTER, _cluster(visit)
    try:
        state = visit.topics[log]
    except NotAnsweredError as refused:
        yield f"Topic '{log}'", _LOG, str(refused)
        return
    if state.partitions:
        yield f"Topic '{log}'", _LOG, _of_log(state.rights, alone=len(visit.job.targets) == 1)
        return
    if state.hidden:
        yield f"Topic '{log}'", _LOG | {"Create"}, frozenset()
        return
    yield f"Topic '{log}'", frozenset({"Create"}), _create(visit, log)


def _of_log(rights: frozenset[str] | None, *, alone: bool) -> Granted:
    """Return the rights on a topic that is the commit log, or a pointer to the log on another cluster."""
    if rights is None:
        return _NOT_SAID
    if not alone and rights >= _POINTER and (missing := _LOG - rights):
        return f"{', '.join(sorted(missing))} is missing, and needed if the log itself is here and not a pointer to it"
    return rights


def _cluster(visit: Visit) -> Granted:
    # A cluster shows these rights only to users with Describe on it, so the operation itself is tried.
    try:
        return _CLUSTER if visit.broker_configuration else _NOT_SAID
    except NotAnsweredError as refused:
        return frozenset() if refused.denied else str(refused)


def _create(visit: Visit, topic: str) -> Granted:
    """Find out whether a topic could be made, by asking the broker to check a request without doing it."""
    request = [NewTopic(topic, num_partitions=1, replication_factor=-1)]
    try:
        for future in visit.clients.admin.create_topics(
            request, validate_only=True, request_timeout=visit.timeout_s
        ).values():
            future.result()
    except KafkaException as failure:
        refused: KafkaError = failure.args[0]
        if refused.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
            return frozenset()
        return refused.str() or "no answer"
    return frozenset({"Create"})


def _transactional_ids(visit: Visit) -> Granted:
    """Find out whether transactional ids may be used: one that nobody has is looked up, and its end is requested.

    There is no transaction of this id, so the broker refuses the end, but only if the user may end transactions (Kafka:
    KafkaApis.handleEndTxnRequest checks Write first). Nothing is kept of it.
    """
    name = f"{visit.job.prefix}.dk-doctor"
    granted: set[str] = set()
    with closing(
        TransactionClient(visit.target.cluster, visit.target.properties, timeout_ms=int(visit.timeout_s * 1000))
    ) as client:
        try:
            if client.describe([name])[name] is not None:
                return f"the id '{name}' is in use"
            granted.add("Describe")
            client.end(name, 0, 0, commit=False)
            granted.add("Write")
        except DynamicKafkaError as failure:
            cause = failure.__cause__
            if not (isinstance(cause, BrokerError) and cause.unauthorized):
                return str(failure)
    return frozenset(granted)

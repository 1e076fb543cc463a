"""The command line with a scripted cluster: what it shows, what it does and does not do, and how it ends."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.commands import Run, runner

from dynamic_kafka.cli.connection import add_option_arguments, options_of, parse_properties
from dynamic_kafka.cli.output import duration, show_rows
from dynamic_kafka.cli.transactions import command as transactions
from dynamic_kafka.cli.transactions.verdicts import (
    CommitLogView,
    TransactionView,
    Verdict,
    plan_abort,
    plan_commit,
    this_cluster,
)
from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError
from dynamic_kafka.kafka.transactions.client import EndResult, TransactionDescription, TransactionState
from dynamic_kafka.kafka.transactions.connection import BrokerError
from dynamic_kafka.sink.log.chain import Chain, State, Transaction

HERE = {"kafka": {"bootstrap.servers": "here:9092"}}
ID, OTHER, FOREIGN = "orders.dk-0123456789ab-0", "orders.dk-0123456789ab-1", "orders-eu.dk-0123456789ab-0"
CONNECT = ["--bootstrap-servers", "here:9092"]
ORDERS = [*CONNECT, "--prefix", "orders"]


def described(
    state: TransactionState = TransactionState.ONGOING, producer_id: int = 7, epoch: int = 3
) -> TransactionDescription:
    """An id's description; its transaction began 70 s ago and has 50 s left."""
    began = int(time.time() * 1000) - 70_500 if state is TransactionState.ONGOING else -1
    topics = (("orders", (1, 0)),) if began > 0 else ()
    return TransactionDescription(state, producer_id, epoch, 120_999, began, topics)


def log(status: Any = "finished", *decided: Transaction, clusters: Mapping[str, Mapping[str, str]] = HERE) -> Chain:
    """A commit log at generation 5 after batch 12."""
    return Chain(9, State("c", 5, status, "query-1", 12, decided, clusters if decided else {}))


def mine(name: str = ID, cluster: str = "kafka") -> Transaction:
    """A decided transaction."""
    return Transaction(cluster, name, 7, 3)


class Cluster:
    """What is behind the command line: transactions, and a commit log."""

    def __init__(self) -> None:
        self.transactions: dict[str, TransactionDescription] = {}
        self.log: Chain | None = log()
        self.ended: list[tuple[str, int, int, bool]] = []
        self.answers: dict[str, list[EndResult]] = {}
        self.clients: list[tuple[str, dict[str, str], int]] = []
        self.logs: list[tuple[str, dict[str, str]]] = []
        self.claimed: list[int] = []
        self.can_claim = True
        self.closed = 0
        self.error: Exception | None = None
        self.denied: Exception | None = None

    def client(self, cluster_id: str, properties: Mapping[str, str], *, timeout_ms: int) -> Cluster:
        """In the place of TransactionClient."""
        self.clients.append((cluster_id, dict(properties), timeout_ms))
        return self

    def read_commit_log(
        self, cluster_id: str, properties: Mapping[str, str], topic: str, *, timeout_ms: int
    ) -> Chain | None:
        """In the place of the commit log's."""
        self.logs.append((topic, dict(properties)))
        return self.log

    def supersede(
        self, cluster_id: str, properties: Mapping[str, str], topic: str, chain: Chain, *, timeout_ms: int
    ) -> bool:
        """In the place of the commit log's."""
        assert self.ended == [], "transactions are aborted after the claim"
        self.claimed.append(chain.offset)
        return self.can_claim

    def close(self) -> None:
        """See TransactionClient."""
        self.closed += 1

    def list_open(self) -> list[str]:
        """See TransactionClient."""
        if self.error is not None:
            raise self.error
        return sorted(name for name, d in self.transactions.items() if d.started_at_ms >= 0)

    def describe(self, ids: Collection[str]) -> dict[str, TransactionDescription | None]:
        """See TransactionClient."""
        if self.denied is not None and ids:
            raise self.denied
        return {name: self.transactions.get(name) for name in ids}

    def end_all(self, transactions: Sequence[tuple[str, int, int]], *, commit: bool) -> list[EndResult]:
        """See TransactionClient."""
        results = []
        for name, producer_id, epoch in transactions:
            self.ended.append((name, producer_id, epoch, commit))
            results.append(self.answers[name].pop(0) if self.answers.get(name) else EndResult.DONE)
        return results


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """With one open transaction of `orders`, and one of a prefix that begins like it."""
    cluster = Cluster()
    cluster.transactions = {ID: described(), FOREIGN: described(producer_id=8)}
    monkeypatch.setattr(transactions, "TransactionClient", cluster.client)
    monkeypatch.setattr(transactions, "read_commit_log", cluster.read_commit_log)
    monkeypatch.setattr(transactions, "supersede", cluster.supersede)
    monkeypatch.setattr(transactions, "_PAUSE_S", 0.0)
    return cluster


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `dynamic-kafka transactions`: its exit code, and what it wrote to the two outputs."""
    return runner(capsys, "transactions")


# --- list and describe --------------------------------------------------------------------------------------------------


def test_list_shows_the_prefixs_open_transactions(cluster: Cluster, run: Run) -> None:
    """Its state, producer, age, time left, partitions, and the commit log's word; never those of another prefix."""
    code, out, err = run("list", *ORDERS)
    assert (code, err) == (0, "")
    names, row, head = out.splitlines()
    assert " ".join(names.split()) == "TRANSACTIONAL ID STATE PRODUCER ID EPOCH AGE TIME LEFT PARTITIONS COMMIT LOG"
    assert row.split("  ")[0] == ID
    assert [c.strip() for c in row.split("  ") if c.strip()] == [
        *(ID, "Ongoing", "7", "3", "1 min 10 s", "50 s", "orders-0, orders-1", "not decided")
    ]
    assert head == (
        "Commit log: '__dynamic-kafka-commits-orders', generation 5, finished, last decided batch 12 of 'query-1'"
    )
    assert cluster.closed == 1


def test_list_names_the_queries_that_share_a_prefix(cluster: Cluster, run: Run) -> None:
    """Each with its last batch, so that it is seen which ones have to be separated."""
    assert cluster.log is not None
    cluster.log = replace(cluster.log, state=replace(cluster.log.state, applied={"query-1": 12, "query-2": 9}))
    _, out, _ = run("list", *ORDERS)
    assert out.endswith("last decided batch 12 of 'query-1'; it also has batches of 'query-2' (batch 9)\n")


def test_list_all_shows_other_prefixes(cluster: Cluster, run: Run) -> None:
    """Without a prefix no commit log is read; with one, only its own transactions are compared with it."""
    code, out, _ = run("list", "--all", *CONNECT, "--output", "json")
    assert code == 0
    assert cluster.logs == []
    assert {t["transactional_id"]: t["verdict"] for t in json.loads(out)["transactions"]} == {
        ID: "no-prefix-given",
        FOREIGN: "no-prefix-given",
    }
    _, out, _ = run("list", "--all", *ORDERS, "--output", "json")
    assert [t["verdict"] for t in json.loads(out)["transactions"]] == ["other-prefix", "not-decided"]


def test_list_as_json(cluster: Cluster, run: Run) -> None:
    """Everything, with units in the names."""
    cluster.log = log("decided", mine())
    _, out, _ = run("list", *ORDERS, "--output", "json")
    found = json.loads(out)
    assert found["commit_log"] == {
        "topic": "__dynamic-kafka-commits-orders",
        "exists": True,
        "generation": 5,
        "status": "decided",
        "query": "query-1",
        "batch": 12,
    }
    (entry,) = found["transactions"]
    assert entry["left_ms"] + entry["age_ms"] == entry["timeout_ms"] == 120_999
    assert entry["partitions"] == [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}]
    assert (entry["verdict"], entry["decided_by_generation"], entry["decided_batch"]) == ("decided", 5, 12)
    assert (entry["state"], entry["producer_id"], entry["producer_epoch"]) == ("Ongoing", 7, 3)


def test_list_with_nothing_open(cluster: Cluster, run: Run) -> None:
    """It says so, and that is no failure."""
    cluster.transactions = {}
    cluster.log = None
    code, out, _ = run("list", *ORDERS)
    assert code == 0
    assert out == (
        "No open transactions of the prefix 'orders'.\n"
        "Commit log: the topic '__dynamic-kafka-commits-orders' does not exist\n"
    )


@pytest.mark.parametrize(
    "action", [["list"], ["list", "--all"], ["abort", "--all-open"], ["abort", "--all-open", "--execute"]]
)
def test_what_the_user_may_not_see_is_not_nothing(cluster: Cluster, run: Run, action: list[str]) -> None:
    """Brokers leave out the ids that the user may not describe, so one of the prefix is asked for."""
    cluster.transactions = {}
    cluster.denied = ClusterUnavailableError("refused", cluster_id="kafka")
    assert run(*action, *ORDERS)[::2] == (1, "dynamic-kafka: error: refused\n")
    cluster.denied.__cause__ = BrokerError(53, "orders.dk-doctor")
    code, out, err = run(*action, *ORDERS)
    assert (code, out) == (1, "")
    assert "It is not known whether transactions of the prefix 'orders' are open" in err
    assert "--operation Describe --transactional-id 'orders.dk-' --resource-pattern-type prefixed" in err
    assert run("list", "--all", *CONNECT)[:2] == (0, "No open transactions that this user may describe.\n")


def test_list_shows_what_is_decided_and_gone(cluster: Cluster, run: Run) -> None:
    """A decided transaction that timed out is not open, and the first thing that an operator must know."""
    cluster.transactions[ID] = described(TransactionState.COMPLETE_ABORT, epoch=4)
    cluster.log = log("decided", mine())
    _, out, _ = run("list", *ORDERS)
    assert "decided and lost" in out
    assert "CompleteAbort" in out


def test_describe_shows_all(cluster: Cluster, run: Run) -> None:
    """Also who decided it; an id that is not known is a failure, after the others are shown."""
    cluster.log = log("decided", mine())
    code, out, _ = run("describe", *ORDERS, ID)
    assert code == 0
    assert "Commit log        decided: by generation 5, batch 12 of 'query-1'" in out
    assert "Time-out          2 min 0 s (transaction.timeout.ms=120999)" in out
    code, out, _ = run("describe", *ORDERS, ID, OTHER)
    assert code == 1
    assert "State             not known" in out


@pytest.mark.parametrize("action", ["describe", "commit", "abort"])
def test_other_prefixes_are_refused(cluster: Cluster, run: Run, action: str) -> None:
    """An id that only begins with the prefix is not the prefix's, with --force as well."""
    more = [] if action == "describe" else ["--execute", "--force"]
    code, out, err = run(action, *ORDERS, ID, FOREIGN, *more)
    assert (code, out) == (2, "")
    assert err.startswith(f"dynamic-kafka: error: '{FOREIGN}' is not a transactional id of the prefix 'orders'")
    assert cluster.ended == []


# --- commit and abort ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [ID, "--decided"])
def test_commit_is_a_dry_run_by_default(cluster: Cluster, run: Run, which: str) -> None:
    """It says what it would do; --execute does that, by the described producer id and epoch."""
    cluster.log = log("decided", mine())
    code, out, err = run("commit", *ORDERS, which)
    assert (code, err, cluster.ended) == (0, "", [])
    assert "Dry run, nothing was changed: add --execute to commit 1 of 1." in out
    code, out, err = run("commit", *ORDERS, which, "--execute")
    assert (code, err) == (0, "")
    assert cluster.ended == [(ID, 7, 3, True)]
    assert "committed" in out
    assert "Dry run" not in out


def test_commit_of_all_that_is_decided_tells_what_still_blocks_readers(cluster: Cluster, run: Run) -> None:
    """An open transaction without a decision holds readers up as well. Those of other prefixes do not matter."""
    other = ID.removesuffix("0") + "9"
    cluster.log = log("decided", mine())
    _, out, _ = run("commit", *ORDERS, "--decided", "--execute")
    assert "Open without a decision" not in out
    cluster.transactions[other] = described(producer_id=9)
    _, out, _ = run("commit", *ORDERS, "--decided", "--execute")
    assert "Open without a decision: 1. Readers with read_committed wait" in out
    assert "transactions abort --all-open" in out


def test_commit_refuses_what_is_not_decided(cluster: Cluster, run: Run) -> None:
    """--force does it, after a warning that says what can go wrong."""
    code, out, _ = run("commit", *ORDERS, ID, "--execute")
    assert code == 1
    assert "refused: not decided" in out
    assert cluster.ended == []
    code, _, err = run("commit", *ORDERS, ID, "--execute", "--force")
    assert code == 0
    assert cluster.ended == [(ID, 7, 3, True)]
    assert "Rows may appear twice, and a part of a batch may become visible" in err


def test_commit_decided_leaves_the_undecided_alone(cluster: Cluster, run: Run) -> None:
    """Only what the decision names, on this cluster; the others are pointed at."""
    cluster.transactions[OTHER] = described()
    there = {"far": {"bootstrap.servers": "far:9092"}}
    cluster.log = log("decided", mine(), mine(OTHER, cluster="far"), clusters=HERE | there)
    code, _, err = run("commit", *ORDERS, "--decided", "--execute")
    assert code == 0
    assert cluster.ended == [(ID, 7, 3, True)]
    assert "commit them there (far)" in err


def test_commit_decided_with_nothing_decided(cluster: Cluster, run: Run) -> None:
    """Nothing to do is done; but without a commit log nothing is known, and that is a failure."""
    code, out, _ = run("commit", *ORDERS, "--decided", "--execute")
    assert code == 0
    assert out.startswith("Nothing to commit.")
    for chain in (None, Chain()):
        cluster.log = chain
        code, _, err = run("commit", *ORDERS, "--decided", "--execute")
        assert code == 1
        assert "The commit log does not exist or is empty" in err
        assert "no transaction is decided" in err
    assert cluster.ended == []


def test_commit_decided_reports_what_is_lost(cluster: Cluster, run: Run) -> None:
    """A decided transaction that timed out cannot be committed, nor can what its id holds now be taken for it."""
    cluster.log = log("decided", mine())
    cluster.transactions[ID] = described(epoch=4)
    code, out, _ = run("commit", *ORDERS, "--decided", "--execute")
    assert code == 1
    assert "its rows are lost" in out
    assert cluster.ended == []


def test_abort_is_a_dry_run_by_default(cluster: Cluster, run: Run) -> None:
    """All open ones of the prefix, and of no other."""
    cluster.transactions[OTHER] = described(epoch=9)
    code, out, err = run("abort", *ORDERS, "--all-open")
    assert (code, err, cluster.ended) == (0, "", [])
    assert "add --execute to abort 2 of 2" in out
    code, _, _ = run("abort", *ORDERS, "--all-open", "--execute")
    assert code == 0
    assert cluster.ended == [(ID, 7, 3, False), (OTHER, 7, 9, False)]


def test_abort_refuses_what_is_decided(cluster: Cluster, run: Run) -> None:
    """The others are aborted; --force aborts it, too, after a warning."""
    cluster.transactions[OTHER] = described()
    cluster.log = log("decided", mine())
    code, out, _ = run("abort", *ORDERS, "--all-open", "--execute")
    assert code == 1
    assert "refused: decided; commit it instead, or start its query again" in out
    assert cluster.ended == [(OTHER, 7, 3, False)]
    code, _, err = run("abort", *ORDERS, ID, "--execute", "--force")
    assert code == 0
    assert cluster.ended[1:] == [(ID, 7, 3, False)]
    assert "Rows are lost" in err


def test_abort_warns_of_a_running_query(cluster: Cluster, run: Run) -> None:
    """A generation that is owned may be writing these transactions now."""
    cluster.log = log("owned")
    code, _, err = run("abort", *ORDERS, "--all-open")
    assert code == 0
    assert "owned (generation 5)" in err
    assert "this batch fails as a whole and nothing of it is published" in err
    assert cluster.claimed == []


def test_abort_takes_the_log_away_from_a_running_query_first(cluster: Cluster, run: Run) -> None:
    """Else the query could decide a batch of which a part was aborted; a log that nobody owns is left alone."""
    cluster.log = log("owned")
    assert run("abort", *ORDERS, ID, "--execute")[0] == 0
    assert cluster.claimed == [9]
    assert cluster.ended == [(ID, 7, 3, False)]
    cluster.log = log("finished")
    assert run("abort", *ORDERS, ID, "--execute")[0] == 0
    assert run("commit", *ORDERS, ID, "--execute", "--force")[0] == 0
    assert cluster.claimed == [9]


def test_abort_does_nothing_if_a_running_query_is_quicker(cluster: Cluster, run: Run) -> None:
    """It may just have decided these transactions."""
    cluster.log, cluster.can_claim = log("owned"), False
    code, _, err = run("abort", *ORDERS, ID, "--execute")
    assert code == 1
    assert "has written to the commit log '__dynamic-kafka-commits-orders' just now. Nothing was aborted" in err
    assert cluster.ended == []


@pytest.mark.parametrize("chain", [None, Chain()], ids=["no topic", "an empty one"])
@pytest.mark.parametrize("action", ["commit", "abort"])
def test_without_a_commit_log_nothing_is_ended(cluster: Cluster, run: Run, action: str, chain: Chain | None) -> None:
    """Nobody knows what is decided: the log may be on another cluster, or have another name."""
    cluster.log = chain
    code, out, _ = run(action, *ORDERS, ID, "--execute")
    assert code == 1
    assert "refused: the commit log is missing or empty" in out
    assert "check --commit-log and --cluster" in out
    code, _, err = run(action, *ORDERS, ID, "--execute", "--force")
    assert code == 0
    assert "--force" in err
    assert cluster.ended == [(ID, 7, 3, action == "commit")]


def test_nothing_to_do_is_done(cluster: Cluster, run: Run) -> None:
    """What is committed need not be committed again, and what is not open need not be aborted."""
    cluster.transactions[ID] = described(TransactionState.COMPLETE_COMMIT)
    assert run("commit", *ORDERS, ID, "--execute")[0] == 0
    assert run("abort", *ORDERS, ID, "--execute")[0] == 1
    cluster.transactions[ID] = described(TransactionState.COMPLETE_ABORT)
    assert run("abort", *ORDERS, ID, "--execute")[0] == 0
    assert run("commit", *ORDERS, ID, "--execute")[0] == 1
    for ending in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
        cluster.transactions[ID] = replace(described(), state=ending)
        code, out, _ = run("abort", *ORDERS, "--all-open", "--execute")
        assert (code, out.splitlines()[0]) == (0, "Nothing to abort.")
    assert cluster.ended == []


def test_a_busy_coordinator_is_asked_again(cluster: Cluster, run: Run) -> None:
    """While it writes markers; not longer than the time-out, though."""
    cluster.answers[ID] = [EndResult.CONCURRENT, EndResult.CONCURRENT, EndResult.DONE]
    assert run("abort", *ORDERS, ID, "--execute")[0] == 0
    assert len(cluster.ended) == 3
    cluster.answers[ID] = [EndResult.CONCURRENT] * 100_000
    code, out, _ = run("abort", *ORDERS, ID, "--execute", "--timeout", "0.01")
    assert code == 1
    assert "not aborted yet" in out


@pytest.mark.parametrize("result", [EndResult.FENCED, EndResult.INVALID_STATE, EndResult.UNKNOWN_ID])
def test_what_cannot_be_ended_is_told(cluster: Cluster, run: Run, result: EndResult) -> None:
    """Somebody was quicker: it is a failure, with what it is now."""
    cluster.answers[ID] = [result]
    code, out, _ = run("abort", *ORDERS, ID, "--execute", "--output", "json")
    assert code == 1
    document = json.loads(out)
    assert (document["action"], document["executed"]) == ("abort", True)
    (entry,) = document["transactions"]
    assert entry["result"] == "refused"
    assert f"not aborted: {result}, it is open now" in entry["result_text"]


# --- clusters, and where the log is -------------------------------------------------------------------------------------


def test_a_decision_is_matched_by_the_clusters_brokers(cluster: Cluster, run: Run) -> None:
    """One id, producer id and epoch may exist on two clusters; only the decided one's is committed."""
    cluster.log = log("decided", mine(cluster="far"), clusters={"far": {"bootstrap.servers": "a:1, far:9092"}} | HERE)
    assert run("commit", *ORDERS, ID, "--execute")[0] == 1
    assert run("commit", "--bootstrap-servers", "FAR", "--prefix", "orders", ID, "--execute")[0] == 0


def test_a_cluster_that_cannot_be_told_is_asked_for(cluster: Cluster, run: Run) -> None:
    """Other addresses lead to the same brokers: --cluster says so; a wrong name is an error."""
    elsewhere = ["--bootstrap-servers", "tunnel:9092", "--prefix", "orders"]
    cluster.log = log("decided", mine())
    code, out, _ = run("describe", *elsewhere, ID)
    assert "it names this id on a cluster that may be this one; add --cluster" in out
    for action in ("commit", "abort"):
        assert run(action, *elsewhere, ID, "--execute")[0] == 1
    code, _, err = run("commit", *elsewhere, "--decided")
    assert code == 1
    assert "a decision for 'kafka'" in err
    assert cluster.ended == []
    assert run("commit", *elsewhere, "--decided", "--cluster", "kafka", "--execute")[0] == 0
    assert cluster.ended == [(ID, 7, 3, True)]
    code, _, err = run("commit", *ORDERS, "--decided", "--cluster", "other")
    assert code == 2
    assert "the commit log calls it 'kafka'" in err


def test_the_commit_log_may_be_elsewhere(cluster: Cluster, run: Run) -> None:
    """Another topic, and another cluster with the properties that differ."""
    more = ["--commit-log", "mine", "--commit-log-property", "bootstrap.servers=log:1", "--property", "client.id=x"]
    assert run("list", *ORDERS, *more)[0] == 0
    assert cluster.logs == [("mine", {"bootstrap.servers": "log:1", "client.id": "x"})]
    assert cluster.clients == [("kafka", {"bootstrap.servers": "here:9092", "client.id": "x"}, 30_000)]


def test_another_prefixs_commit_log_is_refused(cluster: Cluster, run: Run) -> None:
    """It would call everything undecided."""
    cluster.log = log("decided", mine(FOREIGN))
    code, _, err = run("abort", *ORDERS, "--all-open", "--execute")
    assert code == 2
    assert "belongs to another prefix" in err
    assert cluster.ended == []


STATES = st.sampled_from(TransactionState)


@given(state=STATES, verdict=st.sampled_from(Verdict), known=st.booleans())
def test_without_force_only_what_is_right_is_ended(state: TransactionState, verdict: Verdict, *, known: bool) -> None:
    """A commit needs a decision, an abort needs to know that there is none, and both need it open."""
    found = TransactionView(ID, described(state) if known else None, verdict)
    is_open = known and state is TransactionState.ONGOING
    commits = is_open and verdict is Verdict.DECIDED
    aborts = is_open and verdict in (Verdict.UNDECIDED, Verdict.LOST)
    assert (plan_commit(found, force=False).kind == "end") == commits
    assert (plan_abort(found, force=False).kind == "end") == aborts
    assert (plan_commit(found, force=True).kind == "end") == is_open
    assert (plan_abort(found, force=True).kind == "end") == is_open


@given(
    status=st.sampled_from(["owned", "decided", "finished", "voided"]),
    producer=st.tuples(st.integers(6, 8), st.integers(1, 5)),
    state=STATES,
)
def test_only_the_decided_producer_id_and_epoch_are_decided(
    status: str, producer: tuple[int, int], state: TransactionState
) -> None:
    """Any other transaction of the id is another one."""
    view = CommitLogView("log", log(status, mine()), "kafka")
    verdict = view.verdict(ID, described(state, *producer))
    if status != "decided":
        assert verdict is Verdict.UNDECIDED
    elif verdict is Verdict.DECIDED:
        assert producer == (7, 3)
    else:
        assert verdict is Verdict.LOST
    assert view.verdict(OTHER, described()) is Verdict.UNDECIDED


def test_clusters_are_told_by_a_common_broker() -> None:
    """Ports may be left out, as 9092; two candidates are none."""
    clusters = {"a": {"bootstrap.servers": "PLAINTEXT://A,b:1"}, "c": {"bootstrap.servers": "c:9092"}}
    assert this_cluster({"bootstrap.servers": "x:1, a:9092"}, clusters, None) == "a"
    assert this_cluster({"metadata.broker.list": "c"}, clusters, None) == "c"
    assert this_cluster({"bootstrap.servers": "a,c"}, clusters, None) is None
    assert this_cluster({"bootstrap.servers": "a,c"}, clusters, "c") == "c"
    assert this_cluster({"bootstrap.servers": "x"}, clusters, "y") is None
    with pytest.raises(ConfigurationError, match="calls it 'a'"):
        this_cluster({"bootstrap.servers": "a"}, clusters, "c")


# --- properties ---------------------------------------------------------------------------------------------------------


def test_properties_come_from_a_file_and_arguments(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    """Arguments win over the file; references stay references here."""
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nclient.id=file\nsasl.password=${env:SECRET}\n")
    more = ["--properties-file", str(file), "--property", "client.id=argument", "--timeout", "2.5"]
    assert run("list", *ORDERS, *more)[0] == 0
    expected = {"bootstrap.servers": "here:9092", "client.id": "argument", "sasl.password": "${env:SECRET}"}
    assert cluster.clients == [("kafka", expected, 2500)]


def test_brokers_may_come_from_a_reference(cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are compared with the decision's by what it leads to."""
    monkeypatch.setenv("DYNAMIC_KAFKA_TEST_SERVERS", "here:9092")
    cluster.log = log("decided", mine())
    brokers = ["--property", "bootstrap.servers=${env:DYNAMIC_KAFKA_TEST_SERVERS}"]
    assert run("commit", *brokers, "--prefix", "orders", ID, "--execute")[0] == 0
    assert cluster.ended == [(ID, 7, 3, True)]


def test_javas_properties_format() -> None:
    """Comments, all separators, continuation lines and escapes, as java.util.Properties reads them."""
    text = "# c\n! c\n\n a = 1\nb:2\r\nc 3\nd=x\\\n   y\\\\\nbare\ne\\ f\\=g = \\u0041\\t\\q\nh==i\na=9\nlast=\\"
    assert parse_properties(text) == {
        "a": "9",
        "b": "2",
        "c": "3",
        "d": "xy\\",
        "bare": "",
        "e f=g": "A\tq",
        "h": "=i",
        "last": "",
    }


def test_options_of_a_query_come_from_a_file_and_from_arguments(tmp_path: Path) -> None:
    """Arguments win, also in another case, and a value may contain `=`."""
    file = tmp_path / "orders.options"
    file.write_text("# the query in production\nsubscribe = orders\nstartingOffsets=earliest\n")
    parser = argparse.ArgumentParser()
    add_option_arguments(parser)
    args = parser.parse_args(["--options-file", str(file), "-o", "startingoffsets=latest", "-o", "kafka.client.id=a=b"])
    assert options_of(args) == {"subscribe": "orders", "startingoffsets": "latest", "kafka.client.id": "a=b"}
    assert options_of(parser.parse_args([])) == {}
    with pytest.raises(ConfigurationError, match="--options-file '/no/such' cannot be read"):
        options_of(parser.parse_args(["--options-file", "/no/such"]))


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8"))))
def test_properties_survive_escaping(properties: dict[str, str]) -> None:
    """Whatever they hold."""

    def escape(text: str) -> str:
        return "".join(c if c.isalnum() and c.isascii() else {"\n": "\\n", "\r": "\\r"}.get(c, f"\\{c}") for c in text)

    assert parse_properties("\n".join(f"{escape(k)}={escape(v)}" for k, v in properties.items())) == properties


# --- usage, errors and output -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list", "--prefix", "orders"], "add --bootstrap-servers"),
        (["list", *CONNECT], "add --prefix, or --all"),
        (["list", *CONNECT, "--prefix", ""], "not empty"),
        (["describe", *ORDERS], "ID"),
        (["describe", *CONNECT, ID], "--prefix"),
        (["commit", *ORDERS], "--decided"),
        (["commit", *ORDERS, ID, "--decided"], "not allowed with"),
        (["abort", *ORDERS, ID, "--all"], "unknown options --all"),
        (["list", *ORDERS, "--timeout", "0"], "expected seconds"),
        (["list", *ORDERS, "--properties-file", "/no/such/file"], "cannot be read (No such file or directory)"),
    ],
)
def test_wrong_usage(cluster: Cluster, run: Run, arguments: list[str], said: str) -> None:
    """Exit code 2, and what is wrong; nothing is asked of the cluster."""
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert cluster.ended == []
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--property", "sasl.password:hunter2"],
        ["--proprety", "sasl.password=hunter2"],
        ["--sasl.password=hunter2"],
        ["--commit-log-property", "hunter2"],
    ],
)
def test_secrets_in_mistyped_arguments_are_not_repeated(cluster: Cluster, run: Run, arguments: list[str]) -> None:
    """Error output ends in logs."""
    code, out, err = run("list", *ORDERS, *arguments)
    assert code == 2
    assert "hunter2" not in out + err


def test_errors_are_one_line(cluster: Cluster, run: Run) -> None:
    """Known ones as they are, unknown ones with their kind, a missing PySpark with what to install."""
    cluster.error = ClusterUnavailableError("Cluster 'kafka' does not answer; bring it back\nmore", cluster_id="kafka")
    code, _, err = run("list", *ORDERS)
    assert (code, err) == (1, "dynamic-kafka: error: Cluster 'kafka' does not answer; bring it back\n")
    cluster.error = KeyError("x")
    code, _, err = run("list", *ORDERS)
    assert code == 1
    assert err.startswith("dynamic-kafka: error: unexpected KeyError: 'x'; --debug shows where")
    assert err.count("\n") == 1
    cluster.error = ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    code, _, err = run("list", *ORDERS)
    assert (code, err.rstrip().partition(": pip")[2]) == (1, " install 'pyspark-dynamic-kafka[spark]'")
    assert cluster.closed == 3


def test_debug_shows_the_traceback() -> None:
    """In a process of its own, as it changes logging. What others have written cannot command the terminal."""
    command = [sys.executable, "-m", "dynamic_kafka", "archive", "verify", "/nowhere/h\x1b[2J", "--debug"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "\\x1b[2J" in done.stderr
    assert "\x1b" not in done.stderr


def test_ids_cannot_command_the_terminal(cluster: Cluster, run: Run) -> None:
    """Other programs' ids may hold any character."""
    cluster.transactions["\x1b[31m[bold]evil"] = described()
    _, out, _ = run("list", "--all", *CONNECT)
    assert "\\x1b[31m[bold]evil" in out


@pytest.mark.parametrize("installed", [True, False])
def test_on_a_terminal_rich_draws_the_table_if_it_is_there(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch, *, installed: bool
) -> None:
    """The same words either way; what looks like markup is not."""
    cluster.transactions = {"x[bold]y": described()}
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    if not installed:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    code, out, _ = run("list", "--all", *CONNECT)
    assert code == 0
    assert "x[bold]y" in out
    assert ("──" in out) == installed


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 s"), (59_999, "59 s"), (192_000, "3 min 12 s"), (7_500_000, "2 h 5 min"), (270_000_000, "3 d 3 h")],
)
def test_durations(milliseconds: int, text: str) -> None:
    """Two units are enough."""
    assert duration(milliseconds) == text


def test_columns_are_aligned_as_a_terminal_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    """East Asian characters take two cells, accents none, and what is escaped takes the cells of its escape."""
    show_rows(["name", "n"], [["漢字", "1"], ["e\u0301", "2"], ["\u200d\x1b", "3"]])
    assert capsys.readouterr().out.splitlines() == [
        "name        n",
        "漢字        1",
        "e\u0301           2",
        r"\u200d\x1b  3",
    ]

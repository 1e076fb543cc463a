"""`dynamic-kafka transactions` against a broker: stuck transactions of a dead sink, and its commit log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from dynamic_kafka.cli.main import main
from dynamic_kafka.kafka.transactions.client import TransactionClient, TransactionDescription
from dynamic_kafka.sink.configure import commit_log_topic
from dynamic_kafka.sink.log.chain import Record, State, Transaction
from dynamic_kafka.sink.log.commit_log import CommitLog
from dynamic_kafka.sink.transactional_ids import transactional_id
from dynamic_kafka.testing import KafkaBroker, wait_until
from tests.brokers import SECURED_USERS, committed, leave_open

pytestmark = pytest.mark.broker

Topic = Callable[..., str]
Run = Callable[..., tuple[int, dict[str, Any]]]
HOST = "0123456789ab"


class Stuck:
    """A sink that died in the middle of a batch: the transactions of a prefix, and what its commit log says."""

    def __init__(self, broker: KafkaBroker, prefix: str) -> None:
        self.broker, self.prefix = broker, prefix
        self.client = TransactionClient("kafka", broker.client_properties(), timeout_ms=20_000)
        self._offset = -1

    def open(self, slot: int) -> str:
        """Leave a transaction open that writes its id into the topic of the prefix's name."""
        name = transactional_id(self.prefix, HOST, slot)
        leave_open(self.broker, self.prefix, name)
        return name

    def described(self, name: str) -> TransactionDescription:
        """What its coordinator says."""
        found = self.client.describe([name])[name]
        assert found is not None
        return found

    def abort(self, name: str) -> None:
        """End it, as its time-out would."""
        found = self.described(name)
        self.client.end(name, found.producer_id, found.producer_epoch, commit=False)

    def write_log(self, status: Any, *names: str) -> None:
        """Append a state that counts to the prefix's commit log, and make that if it is not there."""
        found = {name: self.described(name) for name in names}
        decided = tuple(Transaction("kafka", n, d.producer_id, d.producer_epoch) for n, d in found.items())
        clusters = {"kafka": self.broker.client_properties()} if decided else {}
        topic = commit_log_topic(self.prefix)
        log = CommitLog("kafka", self.broker.client_properties(), topic, timeout_ms=20_000)
        with closing(log):
            if not log.topic.exists():
                log.topic.create(None)
            follows = log.read().offset
            places = (f"{log.topic.kafka_id()}/{topic}",)
            state = State("c", 1, status, "query", 0, decided, clusters, places=places)
            log.append(Record(f"{status}-{follows}", follows, state))
            assert log.read().offset == follows + 1


@pytest.fixture
def stuck(cluster_a: KafkaBroker, topic: Topic) -> Iterator[Stuck]:
    """A prefix of its own; what is left open is aborted at the end."""
    found = Stuck(cluster_a, topic(cluster_a))
    with closing(found.client):
        yield found
        for name in found.client.list_open():
            if name.startswith(found.prefix):
                found.abort(name)


@pytest.fixture
def run(stuck: Stuck, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command for the prefix: its exit code, and what it said."""

    def call(*arguments: str) -> tuple[int, dict[str, Any]]:
        connect = ["--bootstrap-servers", stuck.broker.bootstrap_servers, "--prefix", stuck.prefix]
        code = main(["transactions", *arguments, *connect, "--output", "json"])
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return code, document

    return call


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    """What the commit log says of each id."""
    return {entry["transactional_id"]: entry["verdict"] for entry in document["transactions"]}


def test_a_decided_batch_is_committed(stuck: Stuck, run: Run) -> None:
    """Its driver died between the decision and the commit; what another attempt left open is aborted."""
    decided, left = stuck.open(0), stuck.open(1)
    stuck.write_log("owned")
    stuck.write_log("decided", decided)

    code, seen = run("list")
    assert code == 0
    assert verdicts(seen) == {decided: "decided", left: "not-decided"}
    assert (seen["commit_log"]["status"], seen["commit_log"]["batch"]) == ("decided", 0)
    assert all(entry["partitions"] == [{"topic": stuck.prefix, "partition": 0}] for entry in seen["transactions"])

    assert run("commit", "--decided")[0] == 0
    assert run("abort", left)[0] == 0
    assert verdicts(run("list")[1]) == {decided: "decided", left: "not-decided"}, "a dry run changes nothing"
    assert run("commit", left, "--execute")[0] == 1
    assert run("abort", decided, "--execute")[0] == 1
    assert verdicts(run("list")[1]) == {decided: "decided", left: "not-decided"}, "refused"

    assert run("commit", "--decided", "--execute")[0] == 0
    assert run("abort", "--all-open", "--execute")[0] == 0
    assert committed(stuck.broker, stuck.prefix) == [decided]
    wait_until(lambda: stuck.described(decided).state == "CompleteCommit", 20, "the end of the commit")
    wait_until(lambda: stuck.described(left).state == "CompleteAbort", 20, "the end of the abort")
    assert run("commit", "--decided", "--execute")[0] == 0, "nothing left to do"
    code, left_over = run("list")
    assert verdicts(left_over) == {decided: "decided"}, "until the query, or nobody, finishes the batch"
    assert left_over["transactions"][0]["left_ms"] is None
    code, after = run("describe", decided, left)
    assert code == 0
    assert [entry["state"] for entry in after["transactions"]] == ["CompleteCommit", "CompleteAbort"]


def test_without_a_commit_log(stuck: Stuck, run: Run) -> None:
    """It is shown as missing, is not created, and nothing is ended without --force."""
    name = stuck.open(0)
    code, seen = run("list")
    assert code == 0
    assert seen["commit_log"]["exists"] is False
    assert verdicts(seen) == {name: "not-known"}
    assert run("abort", name, "--execute")[0] == 1
    assert stuck.described(name).state == "Ongoing"
    assert run("abort", name, "--execute", "--force")[0] == 0
    assert committed(stuck.broker, stuck.prefix) == []
    topics = AdminClient({"bootstrap.servers": stuck.broker.bootstrap_servers}).list_topics(timeout=20).topics
    assert commit_log_topic(stuck.prefix) not in topics


def test_a_login_from_a_file(
    secured: KafkaBroker, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The properties that Java's tools take with --command-config; neither output nor errors show the password."""
    password = SECURED_USERS["admin"]
    file = tmp_path / "client.properties"
    file.write_text(
        "# as for kafka-transactions.sh\nsecurity.protocol = SASL_PLAINTEXT\nsasl.mechanism: PLAIN\n"
        "sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '    username="admin" password="${env:DYNAMIC_KAFKA_TEST_PASSWORD}";\n'
    )
    command = ["transactions", "list", "--prefix", "p", "--bootstrap-servers", secured.bootstrap_servers]
    command += ["--properties-file", str(file)]
    monkeypatch.setenv("DYNAMIC_KAFKA_TEST_PASSWORD", password)
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("No open transactions of the prefix 'p'.")
    monkeypatch.setenv("DYNAMIC_KAFKA_TEST_PASSWORD", wrong := f"{password}!")
    assert main([*command, "--timeout", "5"]) == 1
    written = capsys.readouterr()
    assert written.err.count("\n") == 1
    assert "authentication failed" in written.err
    assert wrong not in written.out + written.err


def test_a_user_who_may_not_see_the_transactions(secured: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """The brokers answer that there is none; the missing right is named."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "reader"}
    pairs = [*login.items(), ("sasl.password", SECURED_USERS["reader"])]
    command = ["--prefix", "p", "--bootstrap-servers", secured.bootstrap_servers]
    command += [word for pair in pairs for word in ("--property", "=".join(pair))]
    for action in (["list"], ["abort", "--all-open", "--execute"]):
        assert main(["transactions", *action, *command]) == 1
        shown = capsys.readouterr()
        assert shown.out == ""
        assert "--transactional-id 'p.dk-' --resource-pattern-type prefixed" in shown.err

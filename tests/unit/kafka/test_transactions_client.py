"""Asking brokers about transactions, with scripted brokers: who is asked what, how often, and what errors become."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError
from dynamic_kafka.kafka.transactions import brokers as brokers_module
from dynamic_kafka.kafka.transactions.brokers import BrokerClient, Brokers
from dynamic_kafka.kafka.transactions.client import BrokerSettings, EndResult, TransactionClient, TransactionState

Address = tuple[str, int]
FIND, DESCRIBE, END = "FindCoordinatorRequest", "DescribeTransactionsRequest", "EndTxnRequest"
LIST, METADATA, DESCRIBE_CONFIGS = "ListTransactionsRequest", "MetadataRequest", "DescribeConfigsRequest"


class Cluster:
    """Brokers 1 and 2; each transactional id is coordinated by the broker in `coordinators`, which is 1 by default.

    `errors` holds, by transactional id or request, the error codes (or exceptions) of the next answers.
    """

    def __init__(self) -> None:
        self.coordinators: dict[str, int] = {}
        self.errors: dict[str, deque[int | BaseException]] = {}
        self.log: list[tuple[str, str, Address]] = []
        self.requests: list[Any] = []
        self.opened: list[Address] = []
        self.closed = 0
        self.refusing: set[Address] = set()
        self.deadlines: list[float] = []
        self.members = [1, 2]
        self.settings = {"transaction.max.timeout.ms": "900000", "transaction.partition.verification.enable": "true"}

    def fails(self, key: str, *errors: int | BaseException) -> None:
        """Let the next answers about this be errors."""
        self.errors[key] = deque(errors)

    def error(self, key: str) -> int:
        """The next error code; 0 is none."""
        found = self.errors[key].popleft() if self.errors.get(key) else 0
        if isinstance(found, BaseException):
            raise found
        return found

    def answer(self, request: Any) -> Any:
        """What a broker says."""
        kind = type(request).__name__
        code = self.error(kind)
        if kind == METADATA:
            brokers = [SimpleNamespace(node_id=i, host=f"broker-{i}", port=9092) for i in self.members]
            return SimpleNamespace(brokers=[] if code else brokers, cluster_id="xyz")
        if kind == FIND:
            found = [
                SimpleNamespace(
                    key=key,
                    error_code=code,
                    node_id=self.coordinators.get(key, 1),
                    port=9092,
                    host=f"broker-{self.coordinators.get(key, 1)}",
                )
                for key in request.coordinator_keys
            ]
            return SimpleNamespace(coordinators=found)
        if kind == DESCRIBE:
            rows = [self.row(name, self.error(name)) for name in request.transactional_ids]
            return SimpleNamespace(transaction_states=rows)
        if kind == LIST:
            return SimpleNamespace(error_code=code, transaction_states=[self.row("listed", 0)])
        if kind == DESCRIBE_CONFIGS:
            ((_, _, asked),) = request.resources
            entries = [SimpleNamespace(name=k, value=v) for k, v in self.settings.items() if k in asked]
            return SimpleNamespace(results=[SimpleNamespace(error_code=code, configs=entries)])
        return SimpleNamespace(error_code=self.error(request.transactional_id))

    def row(self, name: str, code: int) -> Any:
        """A transaction's description."""
        return SimpleNamespace(
            transactional_id=name,
            error_code=code,
            transaction_state="Ongoing",
            producer_id=7,
            producer_epoch=3,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=1_700_000_000_000,
            topics=[SimpleNamespace(topic="t", partitions=[0, 1])],
        )

    def sent(self, kind: str) -> list[Address]:
        """Who was sent such requests."""
        return [address for what, name, address in self.log if (what, name) == ("send", kind)]


class Connection:
    """In place of `kafka.transactions.connection.Connection`."""

    cluster: Cluster

    def __init__(self, address: Address, _: object, deadline: float) -> None:
        self.cluster.deadlines.append(deadline)
        if address in self.cluster.refusing:
            raise ConnectionRefusedError("Connection refused")
        self.cluster.opened.append(address)
        self.address = address
        self.pending: deque[Any] = deque()

    def send(self, request: Any, _: float) -> None:
        """Remembers it."""
        self.cluster.log.append(("send", type(request).__name__, self.address))
        self.cluster.requests.append(request)
        self.pending.append(request)

    def receive(self, _: float) -> Any:
        """Answers the oldest."""
        request = self.pending.popleft()
        self.cluster.log.append(("receive", type(request).__name__, self.address))
        return self.cluster.answer(request)

    def close(self) -> None:
        """Counts it."""
        self.cluster.closed += 1


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The scripted brokers."""
    brokers = Cluster()
    monkeypatch.setattr(Connection, "cluster", brokers, raising=False)
    monkeypatch.setattr(brokers_module, "Connection", Connection)
    return brokers


@pytest.fixture
def client(cluster: Cluster) -> TransactionClient:
    """A client of them."""
    return TransactionClient("c", {"bootstrap.servers": "broker-1"}, timeout_ms=5000)


def test_many_ids_take_few_requests(cluster: Cluster, client: TransactionClient) -> None:
    """One look-up for all ids, one request to each coordinator, all sent before the first answer; then none but those."""
    cluster.coordinators = {"b": 2, "d": 2}
    found = client.describe(["a", "b", "c", "d", "a"])
    assert [(what, name) for what, name, _ in cluster.log] == [
        ("send", FIND),
        ("receive", FIND),
        ("send", DESCRIBE),
        ("send", DESCRIBE),
        ("receive", DESCRIBE),
        ("receive", DESCRIBE),
    ]
    assert set(found) == {"a", "b", "c", "d"}
    assert found["a"] is not None
    assert found["a"].topics == (("t", (0, 1)),)
    assert found["a"].state is TransactionState.ONGOING

    cluster.log.clear()
    client.end_all([("a", 1, 0), ("b", 1, 0), ("c", 1, 0)], commit=True)
    assert [what for what, _, _ in cluster.log] == ["send"] * 3 + ["receive"] * 3
    assert cluster.sent(FIND) == []
    assert cluster.opened == [("broker-1", 9092), ("broker-2", 9092)]


def test_a_coordinator_that_moved_is_looked_up_again(cluster: Cluster, client: TransactionClient) -> None:
    """Only the ids concerned are asked about again, and each with its new coordinator."""
    client.describe(["a", "b"])
    cluster.log.clear()
    cluster.fails("b", 16)
    cluster.coordinators["b"] = 2
    assert client.end_all([("a", 1, 0), ("b", 1, 0)], commit=True) == [EndResult.DONE] * 2
    assert cluster.sent(END) == [("broker-1", 9092), ("broker-1", 9092), ("broker-2", 9092)]
    assert len(cluster.sent(FIND)) == 1


def test_a_coordinator_that_left_the_cluster(cluster: Cluster, client: TransactionClient) -> None:
    """It was known from an earlier request; the list of brokers says that it is gone, and another one is looked up."""
    cluster.coordinators = {"b": 2}
    client.describe(["a", "b"])
    cluster.members, cluster.coordinators = [1], {}
    client.list_open()
    assert client.end("b", 7, 3, commit=True) is EndResult.DONE
    assert cluster.log[-1] == ("receive", "EndTxnRequest", ("broker-1", 9092))


def test_a_coordinator_that_loads_is_asked_again(cluster: Cluster, client: TransactionClient) -> None:
    """It stays the coordinator; also the look-up itself is repeated while there is none."""
    cluster.fails(FIND, 15, 15)
    cluster.fails("a", 14, 14)
    assert client.end("a", 1, 0, commit=True) is EndResult.DONE
    assert len(cluster.sent(FIND)) == 3
    assert len(cluster.sent(END)) == 3
    assert cluster.closed == 0


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), TimeoutError("timed out")])
def test_a_lost_connection_is_replaced(cluster: Cluster, client: TransactionClient, error: OSError) -> None:
    """The call is repeated on a new one."""
    cluster.fails(END, error)
    assert client.end("a", 1, 0, commit=True) is EndResult.DONE
    assert cluster.opened == [("broker-1", 9092)] * 2
    assert cluster.closed == 1


def test_an_interrupted_call_leaves_nothing_behind(cluster: Cluster, client: TransactionClient) -> None:
    """Its answer would be taken for the next call's."""
    cluster.fails(END, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        client.end("a", 1, 0, commit=True)
    assert cluster.closed == 1
    assert client.end("a", 1, 0, commit=True) is EndResult.DONE


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (0, EndResult.DONE),
        (51, EndResult.CONCURRENT),
        (47, EndResult.FENCED),
        (90, EndResult.FENCED),
        (48, EndResult.INVALID_STATE),
        (49, EndResult.UNKNOWN_ID),
    ],
)
def test_what_became_of_an_end(cluster: Cluster, client: TransactionClient, code: int, result: EndResult) -> None:
    """Each of Kafka's error codes has its result, after one request of transactions V1."""
    cluster.fails("a", code)
    assert client.end("a", 7, 3, commit=False) is result
    (request,) = [request for request in cluster.requests if type(request).__name__ == END]
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("a", 7, 3)
    assert request.committed is False
    request.API_VERSION = request._max_version
    assert request.API_VERSION < 5


def test_a_coordinator_that_loads_for_ever_is_an_error(cluster: Cluster) -> None:
    """Within the time-out."""
    client = TransactionClient("c", {"bootstrap.servers": "broker-1"}, timeout_ms=200)
    cluster.fails("a", *[14] * 100)
    begin = time.monotonic()
    with pytest.raises(
        ClusterUnavailableError, match=r"while requesting the abort.*COORDINATOR_LOAD_IN_PROGRESS \(error 14\)"
    ):
        client.end("a", 1, 0, commit=False)
    assert time.monotonic() - begin < 1


def test_an_unknown_id_is_none(cluster: Cluster, client: TransactionClient) -> None:
    """The others are described all the same."""
    cluster.fails("b", 105)
    found = client.describe(["a", "b"])
    assert found["a"] is not None
    assert found["b"] is None


def test_all_brokers_are_asked_for_their_transactions(cluster: Cluster, client: TransactionClient) -> None:
    """If one fails all are asked again: transactions may have moved from it to one that had answered."""
    cluster.fails(LIST, 0, 14)
    assert client.list_open() == ["listed"]
    assert cluster.sent(LIST) == [("broker-1", 9092), ("broker-2", 9092)] * 2
    assert cluster.requests[-1].state_filters == ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"]
    assert client.list_all() == {"listed": TransactionState.ONGOING}
    assert cluster.requests[-1].state_filters == []


def test_a_cluster_that_just_started_is_waited_for(cluster: Cluster, client: TransactionClient) -> None:
    """Its metadata may have no brokers at first."""
    cluster.fails(METADATA, 1)
    assert client.broker_settings().max_timeout_ms == 900_000


@pytest.mark.parametrize(
    ("call", "failing", "code", "told"),
    [
        (
            lambda c: c.describe(["a", "b"]),
            "b",
            53,
            r"error 53\); User:ANONYMOUS may not Describe transactional id 'b'; grant it with kafka-acls.sh",
        ),
        (lambda c: c.end("a", 1, 0, commit=True), "a", 53, "may not Write transactional id 'a'"),
        (lambda c: c.end("a", 1, 0, commit=False), FIND, 53, "may not Write transactional id 'a'"),
        (lambda c: c.list_open(), LIST, 31, r"CLUSTER_AUTHORIZATION_FAILED.*may not Describe the cluster"),
        (lambda c: c.end("a", 1, 0, commit=True), "a", -1, "refused .* UNKNOWN .*log of its brokers"),
    ],
)
def test_a_refusal_is_told_at_once(
    cluster: Cluster,
    client: TransactionClient,
    call: Callable[[TransactionClient], object],
    failing: str,
    code: int,
    told: str,
) -> None:
    """It names the cluster, and the ACL if it is one that is missing."""
    cluster.fails(failing, *[code] * 9)
    with pytest.raises(ClusterUnavailableError, match=told) as caught:
        call(client)
    assert str(caught.value).startswith("Cluster 'c' at broker-1 refused")
    assert caught.value.cluster_id == "c"
    assert len(cluster.log) <= 6


def test_a_configuration_that_may_not_be_seen_is_none(cluster: Cluster, client: TransactionClient) -> None:
    """Not an error: the caller can do without."""
    cluster.fails(DESCRIBE_CONFIGS, 31)
    assert client.broker_settings() == BrokerSettings(None, None)


@pytest.mark.parametrize(("value", "verifies"), [("true", True), ("false", False), (None, False)])
def test_what_brokers_do_with_late_records(
    cluster: Cluster, client: TransactionClient, value: str | None, *, verifies: bool
) -> None:
    """A broker before 3.6 does not have the setting."""
    name = "transaction.partition.verification.enable"
    cluster.settings |= {name: value or ""}
    if value is None:
        del cluster.settings[name]
    assert client.broker_settings() == BrokerSettings(900_000, verifies)


def test_servers_are_tried_in_turn(cluster: Cluster) -> None:
    """Each may take its share of the time, and the last error is told."""
    servers = ["broker-1", "broker-2", "broker-3"]
    client = TransactionClient("c", {"bootstrap.servers": ",".join(servers)}, timeout_ms=3000)
    cluster.refusing = {(server, 9092) for server in servers}
    begin = time.monotonic()
    with pytest.raises(ClusterUnavailableError, match=r"does not answer .*Connection refused; check"):
        client.list_open()
    first, second, third = (deadline - begin for deadline in cluster.deadlines[:3])
    assert 0.5 < first < second < third < 4
    cluster.refusing = {("broker-2", 9092), ("broker-3", 9092)}
    assert client.describe(["a"])["a"] is not None


def test_wrong_properties_are_told_before_anything_is_opened(cluster: Cluster) -> None:
    """And nothing is opened when the client is made."""
    client = TransactionClient("c", {}, timeout_ms=1000)
    with pytest.raises(ConfigurationError, match=r"bootstrap\.servers"):
        client.list_open()
    assert cluster.opened == []


def test_an_unknown_state_is_no_error() -> None:
    """Brokers may learn new ones."""
    assert TransactionState("PreparePartyTime") is TransactionState.UNKNOWN


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_silent_server_costs_no_more_than_the_time_out(protocol: str) -> None:
    """One that accepts connections and says nothing, with or without TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        properties = {"bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}", "security.protocol": protocol}
        client = TransactionClient("c", properties, timeout_ms=300)
        begin = time.monotonic()
        with pytest.raises(ClusterUnavailableError, match="timed out"):
            client.list_open()
        assert time.monotonic() - begin < 2


def test_a_server_that_hangs_leaves_most_of_the_time_to_the_others() -> None:
    """The first attempt has five seconds of sixty, and each further one twice as long."""
    client = BrokerClient("c", {"bootstrap.servers": "127.0.0.1:1"}, timeout_ms=60_000)
    shares: list[int] = []

    def attempt(_: Brokers, deadline: float) -> str:
        shares.append(round(deadline - time.monotonic()))
        if len(shares) < 3:
            raise TimeoutError("timed out")
        return "answered"

    assert client.call("x", "Describe", attempt) == "answered"
    assert shares == [5, 10, 20]

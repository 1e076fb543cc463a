"""Finding, making, moving and using the commit log, on clusters that are fakes: topics are lists of records."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from dynamic_kafka.errors import (
    ClusterUnavailableError,
    ConfigurationError,
    LostTransactionsError,
    ProducerFencedError,
    TransactionError,
)
from dynamic_kafka.kafka.transactions.client import BrokerSettings, EndResult, TransactionDescription, TransactionState
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.sink import committer, log_search
from dynamic_kafka.sink.configure import commit_log_topic
from dynamic_kafka.sink.log import commit_log
from dynamic_kafka.sink.log.chain import Chain, Record, State, Transaction, follow
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.log.records import Pointer, decode, encode
from dynamic_kafka.sink.protocol import Batch, Claim
from dynamic_kafka.sink.settings import Destination, LogPlace, SinkSettings

TOPIC = commit_log_topic("p")


@dataclass
class Cluster:
    """A cluster: its topics' records and replication, the ids of its transactions, and the topics that may not be seen."""

    kafka_id: str
    topics: dict[str, list[bytes]] = field(default_factory=dict)
    replication: dict[str, int | None] = field(default_factory=dict)
    ids: dict[str, TransactionDescription] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    settings: BrokerSettings = field(default_factory=lambda: BrokerSettings(900_000, verifies_partitions=True))
    up: bool = True


@dataclass
class World:
    """All clusters by address, what the driver asked of each address, and how long each cluster may take at first."""

    clusters: dict[str, Cluster] = field(default_factory=dict)
    asked: list[Mapping[str, str]] = field(default_factory=list)
    patience: dict[str, int] = field(default_factory=dict)
    before_append: Callable[[str, Record | Pointer], None] = lambda address, record: None

    def at(self, properties: Mapping[str, str], name: str) -> Cluster:
        """The cluster at an address."""
        self.asked.append(properties)
        found = self.clusters.get(properties["bootstrap.servers"])
        if found is None or not found.up:
            raise ClusterUnavailableError(f"Cluster '{name}' does not answer", cluster_id=name)
        return found


class Fake:
    """A client of a fake cluster."""

    world: World

    def __init__(self, name: str, properties: Mapping[str, str], *, timeout_ms: int) -> None:
        assert name
        assert timeout_ms > 0
        self._name, self._properties = name, properties

    @property
    def _cluster(self) -> Cluster:
        return self.world.at(self._properties, self._name)

    def kafka_id(self) -> str:
        """See `LogTopic` and `TransactionClient`."""
        return self._cluster.kafka_id

    def close(self) -> None:
        """See `CommitLog` and `TransactionClient`."""


class FakeLog(Fake):
    """As `CommitLog` and its `LogTopic`, for a topic of a fake cluster."""

    def __init__(self, name: str, properties: Mapping[str, str], topic: str, *, timeout_ms: int) -> None:
        super().__init__(name, properties, timeout_ms=timeout_ms)
        self._topic_name = topic
        self.world.patience.setdefault(name, timeout_ms)
        self.topic = self
        self.pointer: tuple[int, Pointer] | None = None

    def exists(self, *, may_be_hidden: bool = False) -> bool:
        """See `LogTopic`."""
        if self._topic_name in self._cluster.hidden and not may_be_hidden:
            raise ClusterUnavailableError("grant Describe", cluster_id=self._name)
        return self._topic_name in self._cluster.topics

    def create(self, replication: int | None) -> None:
        """See `LogTopic`."""
        assert self._topic_name not in self._cluster.topics
        self._cluster.topics[self._topic_name] = []
        self._cluster.replication[self._topic_name] = replication

    def check(self) -> None:
        """See `LogTopic`."""

    def read(self) -> Chain:
        """See `CommitLog`."""
        chain = Chain()
        for offset, text in enumerate(self._cluster.topics[self._topic_name]):
            record = decode(text)
            if isinstance(record, Pointer):
                self.pointer = offset, record
            elif record is not None:
                chain = follow(chain, offset, record, start=0)
        return chain

    def append(self, record: Record | Pointer) -> None:
        """See `CommitLog`."""
        self.world.before_append(self._properties["bootstrap.servers"], record)
        self._cluster.topics[self._topic_name].append(encode(record))

    def trim(self) -> None:
        """See `CommitLog`."""

    def deleted(self) -> TransactionError:
        """See `CommitLog`."""
        return TransactionError("the commit log or its records were deleted while it was in use")

    def poll_idle(self) -> bool:
        """See `CommitLog`."""
        return True


class FakeClient(Fake):
    """As `TransactionClient`."""

    def broker_settings(self) -> BrokerSettings:
        """See `TransactionClient`."""
        return self._cluster.settings

    def list_all(self) -> dict[str, TransactionState]:
        """See `TransactionClient`."""
        return {name: found.state for name, found in self._cluster.ids.items()}

    def list_open(self) -> list[str]:
        """See `TransactionClient`."""
        return [name for name, found in self._cluster.ids.items() if found.state is TransactionState.ONGOING]

    def describe(self, ids: list[str]) -> dict[str, TransactionDescription | None]:
        """See `TransactionClient`."""
        return {name: self._cluster.ids.get(name) for name in ids}

    def end_all(self, transactions: list[tuple[str, int, int]], *, commit: bool) -> list[EndResult]:
        """See `TransactionClient`."""
        state = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        for name, _, _ in transactions:
            found = self._cluster.ids.get(name)
            if found is not None and found.state is TransactionState.ONGOING:
                self._cluster.ids[name] = replace(found, state=state)
        return [EndResult.DONE] * len(transactions)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Clusters a to d, at addresses of their names."""
    found = World({f"{name}:1": Cluster(name.upper()) for name in "abcd"})
    for module in (committer, log_search):
        monkeypatch.setattr(module, "CommitLog", FakeLog)
        monkeypatch.setattr(module, "TransactionClient", FakeClient)
    monkeypatch.setattr(committer, "_LONGEST_WAIT_S", 0.0)
    monkeypatch.setattr(Fake, "world", found, raising=False)
    restart()
    yield found
    restart()


def restart() -> None:
    """Forget what this process knows, as a new driver."""
    committer._found_logs.clear()
    committer._committers.close()


def settings(**fields: Any) -> SinkSettings:
    """The settings of a sink."""
    words = {"prefix": "p", "log_topic": TOPIC, "guarantee": "exactly-once"} | fields
    return SinkSettings(service=InMemoryMetadataService, stream="s", **words)


def properties(*names: str) -> dict[str, dict[str, str]]:
    """The properties of clusters, with a secret that only the right cluster may see."""
    return {name: {"bootstrap.servers": f"{name}:1", "sasl.password": f"of {name}"} for name in names}


def destinations(names: str) -> dict[str, Destination]:
    """Clusters by their names; `x=a` is cluster a under the name x."""
    pairs = [(name.partition("=")[0], name.partition("=")[2] or name) for name in names.split()]
    return {name: Destination(properties(at)[at]) for name, at in pairs}


def claim(active: str, others: str = "", identity: Identity | None = None, **fields: Any) -> tuple[Claim, LogPlace]:
    """Plan a batch of a new driver."""
    restart()
    rest = {name: found.properties for name, found in destinations(others).items()}
    return committer.claim_batch(settings(**fields), destinations(active), rest, identity)


def commit(world: World, active: str, claimed: tuple[Claim, LogPlace], identity: Identity, *places: str) -> None:
    """Write and commit a batch, on these clusters."""
    written = tuple(open_transaction(world, name, f"p.dk-0123456789ab-{identity.batch}") for name in places)
    with committer.committer_for(settings(), destinations(active), claimed[1]) as found:
        found.commit(claimed[0], Batch(identity, 1, written))


def open_transaction(world: World, name: str, transactional_id: str) -> Transaction:
    """Open a transaction on a cluster; its clock is in the year 2100."""
    at = name.partition("=")[2] or name
    world.clusters[f"{at}:1"].ids[transactional_id] = TransactionDescription(
        TransactionState.ONGOING, 4711, 0, 60_000, 4_102_444_800_000
    )
    return Transaction(name.partition("=")[0], transactional_id, 4711, 0)


def append(world: World, name: str, state: State) -> None:
    """Append a record that counts."""
    topic = world.clusters[f"{name}:1"].topics.setdefault(TOPIC, [])
    log = FakeLog(name, properties(name)[name], TOPIC, timeout_ms=1)
    topic.append(encode(Record(f"r{len(topic)}", log.read().offset, state)))


def head(world: World, name: str) -> State:
    """The state of a log."""
    assert world.clusters[f"{name}:1"].up
    return FakeLog(name, properties(name)[name], TOPIC, timeout_ms=1).read().state


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the user was told."""
    return [record.getMessage() for record in caplog.records if record.name == log_search.__name__]


def identity(batch: int) -> Identity:
    """A batch of `foreachBatch`."""
    return Identity("app", batch, consecutive=False)


# --- found --------------------------------------------------------------------------------------------------------------


def test_a_published_batch_stays_known_when_a_cluster_joins(world: World) -> None:
    """Also one that is first by name. Its log was empty once, and the batch was published twice."""
    claimed = claim("b c", identity=identity(1))
    commit(world, "b c", claimed, identity(1), "b", "c")
    again, place = claim("a b c", identity=identity(1))
    assert (again.applied, place.cluster) == (True, "b")
    assert TOPIC in world.clusters["a:1"].topics  # it was told


def test_the_log_stays_on_a_cluster_that_is_inactive_renamed_or_without_the_topic(world: World) -> None:
    """The rest of the stream's clusters are looked at, too."""
    commit(world, "a b", claim("a b"), identity(1), "a")
    assert claim("b", others="a", identity=identity(1))[0].applied
    assert claim("b", others="z=a", identity=identity(1))[0].applied
    assert claim("b z=a", identity=identity(1))[0].applied


def test_a_running_driver_looks_once(world: World) -> None:
    """The clusters are asked for the log when they change, not for each batch."""
    committer.claim_batch(settings(), destinations("a b"), {}, None)
    world.clusters["b:1"].topics.clear()
    committer.claim_batch(settings(), destinations("a b"), {}, None)
    assert not world.clusters["b:1"].topics
    committer.claim_batch(settings(), destinations("a b c"), {}, None)
    assert TOPIC in world.clusters["b:1"].topics


def test_the_topic_is_made_with_the_replication_of_the_option(world: World) -> None:
    """Where the log begins, and where a pointer to it is written."""
    claim("a b", log_replication=2)
    assert [world.clusters[f"{name}:1"].replication for name in "abc"] == [{TOPIC: 2}, {TOPIC: 2}, {}]


def test_a_log_is_wished_for_on_a_cluster_of_the_stream(world: World) -> None:
    """Another name is an error before anything is made."""
    with pytest.raises(ConfigurationError, match=r"'sink\.commit-log\.cluster' has the value 'x'"):
        claim("a b", log_cluster="x")
    assert world.asked == []


def test_a_log_that_is_deleted_after_it_was_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not begun again: the new one would know nothing."""
    claim("a")
    monkeypatch.setattr(committer, "_EMPTY_S", 0.0)
    monkeypatch.setattr(FakeLog, "check", lambda log: log._cluster.topics[TOPIC].clear())
    with pytest.raises(TransactionError, match="were deleted while it was in use"):
        claim("a")
    assert world.clusters["a:1"].topics == {TOPIC: []}


def test_a_log_whose_cluster_left_is_an_error(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is made on the clusters that are left; the user's word makes one, once."""
    claim("a b c")
    for batch in range(2):
        with pytest.raises(TransactionError, match=r"is on cluster 'a' \(cluster\.id A\)"):
            claim("b c", identity=identity(batch))
    assert claim("b c", lost_clusters=("A", "Z"))[1].places == (f"A/{TOPIC}", f"B/{TOPIC}")
    (warning,) = warnings(caplog)
    assert warning == (
        "A new commit log of prefix 'p' begins on cluster 'b', because sink.lost-clusters=A;Z says that the earlier one is "
        "lost. The option is not needed any more"
    )
    assert claim("b c")[1].cluster == "b"
    assert claim("a b c")[1].cluster == "b"


def test_a_prefix_that_was_used_has_a_log_somewhere(world: World) -> None:
    """Its transactional ids show it, also where no pointer does."""
    open_transaction(world, "b", "p.dk-0123456789ab-0")
    known = r"^Prefix 'p' has been in use \(cluster 'b' knows its transactional id 'p\.dk-0123456789ab-0'\)"
    with pytest.raises(TransactionError, match=known):
        claim("a b")
    assert not world.clusters["a:1"].topics
    assert claim("a b", lost_clusters=("z",))[1].cluster == "a"


def test_another_topic_with_the_same_prefix_is_refused(world: World) -> None:
    """Two chains with the same ids would abort each other's transactions: the log under the default name is found."""
    commit(world, "a", claim("a"), identity(1), "a")
    claimed, place = claim("a", identity=identity(1), log_topic="own")
    assert (claimed.applied, place.topic) == (True, "own")
    with pytest.raises(TransactionError, match=r"where this query does not look.*set sink\.commit-log\.topic=own"):
        claim("a")


def test_a_log_that_is_made_again_under_a_running_driver(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no records, so its driver stops. A new leader that does not know the end yet is waited for."""
    monkeypatch.setattr(committer, "_EMPTY_S", 0.0)
    committer.claim_batch(settings(), destinations("a b"), {}, None)
    world.clusters["a:1"].topics[TOPIC].clear()
    with pytest.raises(TransactionError, match="were deleted while it was in use"):
        committer.claim_batch(settings(), destinations("a b"), {}, None)
    with pytest.raises(TransactionError, match="the topic has no record of it"):
        claim("a b")
    del world.clusters["a:1"].topics[TOPIC]
    with pytest.raises(TransactionError, match="does not exist any more: it was deleted"):
        claim("a b")


def test_a_topic_of_ones_own_needs_no_access_to_the_default_one(world: World) -> None:
    """ACLs may allow only that; but the topic itself has to be seen."""
    world.clusters["a:1"].hidden.add(TOPIC)
    assert claim("a", log_topic="own")[1].topic == "own"
    with pytest.raises(ClusterUnavailableError, match="grant Describe"):
        claim("a")


def test_an_inactive_cluster_that_is_down_does_not_matter(world: World) -> None:
    """If the log is known as the only one."""
    claim("a b")
    world.clusters["b:1"].up = False
    claim("a", others="b")


def test_an_active_cluster_is_given_the_time_to_restart(world: World) -> None:
    """An inactive one may be down for days, and each start waits for it."""
    claim("a b", others="c")
    assert world.patience["a"] == world.patience["b"] == 60_000
    assert world.patience["c"] == 15_000


def test_a_cluster_that_is_down_may_have_the_log(world: World) -> None:
    """So nothing is made."""
    world.clusters["b:1"].up = False
    with pytest.raises(ClusterUnavailableError, match="'b' cannot be asked for the commit log of prefix 'p'"):
        claim("a", others="b")
    assert not world.clusters["a:1"].topics


def test_a_cluster_that_cannot_be_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It is a warning: the log is all right."""

    def refuse(address: str, record: Record | Pointer) -> None:
        if address == "b:1" and isinstance(record, Pointer):
            raise ClusterUnavailableError("no ACL", cluster_id="b")

    world.before_append = refuse
    claim("a b")
    (warning,) = warnings(caplog)
    assert warning == (
        "Cluster 'b': no pointer to the commit log on cluster 'a' could be written. A start that reaches only the first one "
        "would not know that there is a log: no ACL"
    )


# --- moved --------------------------------------------------------------------------------------------------------------


def test_a_log_is_moved_with_all_that_it_knows(world: World) -> None:
    """A decided batch is finished first. Afterwards the old cluster may go."""
    commit(world, "a b", claim("a b"), identity(1), "a")
    transaction = open_transaction(world, "b", "p.dk-0123456789ab-9")
    state = replace(head(world, "a"), status="decided", identity="app", batch=2, applied={"app": 2})
    append(world, "a", replace(state, transactions=(transaction,), clusters={"b": {"cluster.id": "B"}}))
    place = claim("a b c", log_cluster="c")[1]
    assert (place.cluster, place.places) == ("c", (f"A/{TOPIC}", f"C/{TOPIC}"))
    assert world.clusters["b:1"].ids[transaction.transactional_id].state is TransactionState.COMPLETE_COMMIT
    assert claim("b c", identity=identity(2))[0].applied
    assert claim("a b c", identity=identity(2))[0].applied


def test_a_log_is_moved_twice(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It knows all of its places. The old ones are told where it is, first the one that it leaves. A warning says so."""
    commit(world, "a b c", claim("a b c"), identity(1), "a")
    claim("a b c", log_cluster="b")
    caplog.clear()
    told: list[tuple[str, Record | Pointer]] = []
    world.before_append = lambda address, record: told.append((address, record))
    claimed, place = claim("a b c", identity=identity(1), log_cluster="c")
    assert (claimed.applied, place.places) == (True, (f"A/{TOPIC}", f"B/{TOPIC}", f"C/{TOPIC}"))
    assert warnings(caplog) == [
        f"The commit log was moved from cluster 'b' (topic '{TOPIC}') to cluster 'c' (topic '{TOPIC}')"
    ]
    assert next(entry for entry in told if isinstance(entry[1], Pointer)) == ("b:1", Pointer(f"C/{TOPIC}", "c"))
    for name in "ab":
        assert decode(world.clusters[f"{name}:1"].topics[TOPIC][-1]) == Pointer(f"C/{TOPIC}", "c")


def test_a_log_that_another_driver_has_moved_goes_on(world: World) -> None:
    """What that one has written at the new place since is not undone."""
    claim("a b c")
    claim("a b c", log_cluster="b")

    def move_first(address: str, record: Record | Pointer) -> None:
        if address == "b:1" and isinstance(record, Record) and record.state.places[-1] == f"C/{TOPIC}":
            world.before_append = lambda address, record: None
            append(world, "c", replace(record.state, generation=40))

    world.before_append = move_first
    assert claim("a b c", log_cluster="c")[0].generation == 41


def test_a_log_is_not_moved_to_where_another_query_writes(world: World) -> None:
    """The move fails, and says why."""
    claim("a b")

    def write_first(address: str, record: Record | Pointer) -> None:
        if address == "b:1" and isinstance(record, Record):
            world.before_append = lambda address, record: None
            append(world, "b", State("other", 1, places=(f"B/{TOPIC}",)))

    world.before_append = write_first
    with pytest.raises(ProducerFencedError) as caught:
        claim("a b", log_cluster="b")
    assert str(caught.value) == (
        "The commit log could not be moved to cluster 'b', because another query writes to it. Give each query a "
        "sink.transactional-id-prefix of its own"
    )


def test_a_driver_of_the_old_place_is_fenced(world: World) -> None:
    """What it has written is not published."""
    old = claim("a b")
    claim("a b", log_cluster="b")
    with pytest.raises(ProducerFencedError, match="was moved away from cluster 'a'"):
        commit(world, "a b", old, identity(1), "a")


@pytest.mark.parametrize("dies_at", range(4))
def test_a_move_that_dies_at_any_append_is_completed(world: World, dies_at: int) -> None:
    """By the next driver, also one without the option."""
    commit(world, "a b", claim("a b"), identity(1), "a")
    appends = iter(range(100))

    def die(address: str, record: Record | Pointer) -> None:
        if next(appends) == dies_at:
            raise KeyboardInterrupt(address, record)

    world.before_append = die
    with pytest.raises(KeyboardInterrupt):
        claim("a b", log_cluster="b")
    world.before_append = lambda address, record: None
    assert claim("a b", identity=identity(1))[0].applied
    claimed, place = claim("a b", identity=identity(1), log_cluster="b")
    assert (claimed.applied, place.cluster) == (True, "b")
    commit(world, "a b", claim("a b"), identity(2), "a")
    assert head(world, "b").applied == {"app": 2}


def test_the_command_line_reads_the_log_only_where_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old place would call a decided transaction undecided, and let it be aborted."""
    monkeypatch.setattr(commit_log, "CommitLog", FakeLog)
    commit(world, "a b", claim("a b"), identity(1), "a")
    claim("a b c", log_cluster="c")
    for name in "ab":
        with pytest.raises(ConfigurationError, match=r"cluster\.id [AC], topic .*--commit-log-property"):
            commit_log.read_commit_log(name, properties(name)[name], TOPIC, timeout_ms=1)
    found = commit_log.read_commit_log("c", properties("c")["c"], TOPIC, timeout_ms=1)
    assert found is not None
    assert found.state.applied == {"app": 1}
    assert commit_log.read_commit_log("d", properties("d")["d"], TOPIC, timeout_ms=1) is None


# --- decisions ----------------------------------------------------------------------------------------------------------


def decide(world: World, name: str, clusters: dict[str, dict[str, str]], *transactions: Transaction) -> None:
    """Let the log on cluster a have a decision."""
    state = replace(head(world, name), status="decided", identity="app", batch=7, transactions=transactions)
    append(world, name, replace(state, clusters=clusters))


def test_a_decision_holds_no_way_to_reach_a_cluster(world: World) -> None:
    """But what it can be recognized by."""
    seen = []
    world.before_append = lambda _, record: seen.append(record)
    commit(world, "a", claim("a"), identity(1), "a")
    decided = next(r.state for r in seen if isinstance(r, Record) and r.state.status == "decided")
    assert decided.clusters == {"a": {"cluster.id": "A", "bootstrap.servers": "a:1"}}


def test_no_address_is_contacted_because_the_log_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a reference to a secret resolved: whoever may write to the log may have put it there."""
    monkeypatch.setenv("DRIVER_SECRET", "hunter2")
    claim("a")
    transaction = open_transaction(world, "evil=d", "p.dk-0123456789ab-9")
    forged = {"bootstrap.servers": "d:1", "sasl.password": "${env:DRIVER_SECRET}"}
    world.asked.clear()
    for facts in (forged, forged | {"cluster.id": "D"}):
        decide(world, "a", {"evil": facts}, transaction)
        with pytest.raises(
            TransactionError, match=r"partly on cluster 'evil'.*which the stream's metadata does not name"
        ):
            claim("a b")
    assert {asked["bootstrap.servers"] for asked in world.asked} == {"a:1", "b:1"}
    decide(world, "a", {"a": forged | {"cluster.id": "A"}}, transaction._replace(cluster="a"))
    with pytest.raises(LostTransactionsError):
        claim("a b")
    assert {asked["sasl.password"] for asked in world.asked} == {"of a", "of b"}


@pytest.mark.parametrize(("active", "others"), [("a", "b"), ("a b=c", "old=b")], ids=["inactive", "renamed"])
def test_a_decision_is_finished_with_todays_properties(world: World, active: str, others: str) -> None:
    """Of the cluster with this cluster.id. Its old name may mean another one now."""
    claim("a b")
    transaction = open_transaction(world, "b", "p.dk-0123456789ab-9")
    decide(world, "a", {"b": {"cluster.id": "B", "bootstrap.servers": "elsewhere:1"}}, transaction)
    claim(active, others=others)
    assert world.clusters["b:1"].ids[transaction.transactional_id].state is TransactionState.COMPLETE_COMMIT


def test_a_decision_on_a_cluster_whose_name_means_another_one(world: World) -> None:
    """Its transactions are not looked for at the wrong place."""
    claim("a b")
    transaction = open_transaction(world, "b", "p.dk-0123456789ab-9")
    decide(world, "a", {"b": {"cluster.id": "B"}}, transaction)
    with pytest.raises(TransactionError, match=r"The metadata now means another cluster by 'b'.*sink\.lost-clusters=B"):
        claim("a b=c")


@pytest.mark.parametrize("word", ["b", "B"])
def test_a_decision_on_a_cluster_that_is_lost_does_not_block_for_ever(world: World, word: str) -> None:
    """The rest is published, and the rows on the lost one are reported as lost transactions."""
    claim("a b")
    on_a, on_b = (open_transaction(world, name, f"p.dk-0123456789ab-{name}9") for name in "ab")
    decide(world, "a", {"a": {"cluster.id": "A"}, "b": {"cluster.id": "B"}}, on_a, on_b)
    world.clusters["b:1"].up = False
    with pytest.raises(ClusterUnavailableError):
        claim("a", others="b")
    with pytest.raises(LostTransactionsError, match=r"p\.dk-0123456789ab-b9"):
        claim("a", lost_clusters=(word,))
    assert world.clusters["a:1"].ids[on_a.transactional_id].state is TransactionState.COMPLETE_COMMIT
    claim("a", lost_clusters=(word,), lost_transactions=("continue", 7))
    claim("a")


def test_brokers_that_do_not_verify_transactions_are_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Once, at the start of a query, for each cluster that rows may go to. What may not be seen is no reason to warn."""
    world.clusters["a:1"].settings = BrokerSettings(900_000, verifies_partitions=False)
    world.clusters["b:1"].settings = BrokerSettings()
    claim("a b", "c")
    committer.claim_batch(settings(), destinations("a b"), properties("c"), None)
    warnings = [record.getMessage() for record in caplog.records if "Kafka 3.6" in record.getMessage()]
    assert [text[:11] for text in warnings] == ["Cluster 'a'"]
    assert "find-hanging" in warnings[0]


# --- open transactions --------------------------------------------------------------------------------------------------

LEFT = "p.dk-0123456789ab-0"


def claim_again(active: str, others: str = "") -> tuple[Claim, LogPlace]:
    """Plan a batch of the driver that runs, which knows the log already."""
    return committer.claim_batch(settings(), destinations(active), properties(*others.split()), None)


def state_of_left(world: World, name: str) -> TransactionState:
    """The state of the transaction that was left open on a cluster."""
    return world.clusters[f"{name}:1"].ids[LEFT].state


def test_a_cluster_that_does_not_answer_keeps_its_open_transactions(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The batch may have no rows for it: a warning says that its readers may have to wait, and the others are looked at."""
    claim("a b")
    open_transaction(world, "a", LEFT)
    world.clusters["b:1"].up = False
    claim_again("a b")
    assert state_of_left(world, "a") is TransactionState.COMPLETE_ABORT
    (said,) = [r.getMessage() for r in caplog.records if r.name == committer.__name__ and r.levelno == logging.WARNING]
    assert said == (
        "Open transactions cannot be listed, and readers may have to wait for their end: Cluster 'b' does not answer"
    )


def test_clusters_are_asked_for_open_transactions_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is far away or down does not let the others wait: each is asked before any of them has answered."""
    assert world.clusters
    both = threading.Barrier(2)
    monkeypatch.setattr(FakeClient, "list_open", lambda _: [LEFT][: both.wait(timeout=30) * 0])
    claim("a b")


def test_a_cluster_that_was_left_is_asked_once_for_open_transactions(world: World) -> None:
    """The batch before may have written to it. Later batches do not wait for one that may be dead for good."""
    claim("a b")
    for expected in (TransactionState.COMPLETE_ABORT, TransactionState.ONGOING):
        open_transaction(world, "b", LEFT)
        claim_again("a", others="b")
        assert state_of_left(world, "b") is expected


def test_aborts_that_fail_do_not_fail_the_batch(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be published already; what is left open ends by its time-out, or with the next batch."""

    def refuse(*_: object, **__: object) -> None:
        raise ClusterUnavailableError("Cluster 'a' is down", cluster_id="a")

    claim("a")
    open_transaction(world, "a", LEFT)
    monkeypatch.setattr(FakeClient, "end_all", refuse)
    claimed = claim_again("a")
    assert state_of_left(world, "a") is TransactionState.ONGOING
    assert f"Transactions stay open until the next batch or until they time out ({LEFT})" in caplog.text
    with pytest.raises(ClusterUnavailableError):
        commit(world, "a", claimed, identity(0), "a")

"""The exactly-once protocol step by step, where tests/model is too coarse: messages, identities, policies, bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol_world import OPEN, World

from dynamic_kafka.errors import (
    CheckpointError,
    ConfigurationError,
    DynamicKafkaError,
    ProducerFencedError,
    TransactionError,
)
from dynamic_kafka.sink.log.chain import (
    Chain,
    Record,
    State,
    Transaction,
    decided_state,
    finished_state,
    follow,
    next_generation,
    voided_state,
)
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.log.records import decode, encode
from dynamic_kafka.sink.protocol import (
    Abort,
    Append,
    Batch,
    Claim,
    Describe,
    Effect,
    End,
    ListOpen,
    ObservedTransaction,
    Outcome,
    ReadLog,
    TransactionPolicy,
    Wait,
    abandon,
    claim,
    commit,
)

T = TypeVar("T")

PLAIN = Identity("", 0)


@pytest.fixture
def world() -> World:
    """An empty one."""
    return World()


def error(call: Callable[[], Any], kind: type[DynamicKafkaError]) -> str:
    """The message of the error that a call raises, which is about no cluster: one line."""
    with pytest.raises(DynamicKafkaError) as caught:
        call()
    assert type(caught.value) is kind
    assert caught.value.cluster_id is None
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- a batch, effect by effect ------------------------------------------------------------------------------------------


def test_a_claim_lists_before_it_claims_and_aborts_after(world: World) -> None:
    """Only what was open before a claim that counts is aborted (rule 4)."""
    (old,) = world.prepare("p-0")
    assert world.run(claim("first", None, TransactionPolicy())) == Claim("first", 1)
    assert world.asked() == [ReadLog, ListOpen, Append, ReadLog, Abort]
    assert world.effects[-1] == Abort((old,))
    assert (world.state.chain, world.state.status, world.state.generation) == ("first", "owned", 1)
    assert world.claim() == Claim("first", 2)
    assert world.asked() == [ReadLog, ListOpen, Append, ReadLog]


def test_a_batch_from_its_claim_to_its_end(world: World) -> None:
    """Looked at, decided, committed, looked at again, finished: in this order."""
    claimed = world.claim()
    transactions = world.prepare("p-0", "p-1")
    assert world.commit(claimed, Identity("q", 0), transactions) == "published"
    assert world.asked() == [ReadLog, Describe, Append, ReadLog, End, Describe, ListOpen, Append, ReadLog]
    decided, finished = world.log[-2].state, world.log[-1].state
    assert (decided.status, decided.identity, decided.batch) == ("decided", "q", 0)
    assert (decided.transactions, list(decided.clusters)) == (transactions, ["c"])
    assert (finished.status, finished.transactions, finished.clusters) == ("finished", (), {})
    assert finished.applied == {"q": 0}
    assert world.outcomes() == ["committed", "committed"]


def test_an_empty_batch_is_one_record(world: World) -> None:
    """Nothing to look at, nothing to end; it counts as published. What a dead attempt left open is aborted with it."""
    claimed = world.claim()
    assert world.commit(claimed, Identity("q", 0)) == "published"
    assert world.asked() == [ReadLog, ListOpen, Append, ReadLog]
    assert (world.state.status, world.state.applied) == ("finished", {"q": 0})
    assert world.write(Identity("q", 1), "p-0") == "published"
    claimed, dead = world.claim(), world.prepare("p-1")
    assert world.commit(claimed, Identity("q", 2)) == "published"
    assert world.effects[-1] == Abort(dead)


def test_each_record_has_a_name_of_its_own(world: World) -> None:
    """By its name a driver finds out whether its record counts, so two records never share one."""
    world.write(Identity("q", 0), "p-0")
    world.write(Identity("q", 1))
    decided(world, Identity("q", 2), "p-1")
    world.run(abandon(world.name(), world.claim()))
    names: list[object] = [record.name for record in world.log]
    assert len(names) == len(set(names)) == 10
    assert all(isinstance(name, str) for name in names)


def test_a_claim_says_where_the_log_is(world: World) -> None:
    """And keeps what the log says if it is not told."""
    two, three = ("A/log", "B/log"), ("A/log", "B/log", "C/log")
    for told, expected in ((two, two), ((), two), (three, three)):
        world.run(claim(world.name(), None, TransactionPolicy(), told))
        assert world.state.places == expected


def test_what_dead_attempts_left_open_is_aborted(world: World) -> None:
    """After the batch was published, and only what was open before a record of ours counted: readers wait for it."""
    claimed = world.claim()
    (dead,), transactions = world.prepare("p-0"), world.prepare("p-1")
    late: list[Transaction] = []

    def open_late(effect: Effect) -> None:
        if isinstance(effect, Append) and effect.record.state.status == "finished":
            late.extend(world.prepare("p-2"))

    world.before = open_late
    assert world.commit(claimed, Identity("q", 0), transactions) == "published"
    assert world.effects[-1] == Abort((dead,))
    assert world.outcomes() == ["aborted", "committed", "open"]


# --- which batch it is --------------------------------------------------------------------------------------------------


def test_a_repetition_whose_run_cannot_be_noted(world: World) -> None:
    """Another driver takes over: nothing is dropped, because the next write of the run would be taken for it."""
    world.write(version("app", 4), "p-0", run="run-1/4")
    claimed = world.claim()
    (again,) = world.prepare("p-1")
    world.meanwhile(Append, world.claim)
    error(lambda: world.commit(claimed, version("app", 4), (again,), run="run-2/4"), ProducerFencedError)
    assert world.state.runs == {"app": "run-1/4"}


def test_the_run_of_a_write_is_remembered_with_what_it_has_published(world: World) -> None:
    """Not for a write without an identity or a run, and not for one that is voided: that one is written again."""
    world.write(version("none", 4), "p-0")
    world.write(PLAIN, "p-0", run="run-1/4")
    world.write(version("empty", 4), run="run-1/4")
    world.write(version("app", 4), "p-0", run="run-1/4")
    assert world.state.runs == {"empty": "run-1/4", "app": "run-1/4"}
    world.meanwhile(End, lambda: world.see(Outcome.ABORTED, *world.state.transactions))
    error(lambda: world.write(version("app", 5), "p-0", run="run-1/5"), TransactionError)
    assert world.state.runs == {"empty": "run-1/4"}
    assert world.write(version("app", 5), "p-0", run="run-1/5") == "published"
    assert world.state.runs == {"empty": "run-1/4", "app": "run-1/5"}


def stream(world: World, identity: Identity, *names: str, policy: TransactionPolicy | None = None) -> str:
    """A whole batch of a stream, whose claim does not know its identity."""
    return world.commit(world.claim(None, policy), identity, world.prepare(*names), policy, rows=1)


@pytest.mark.parametrize("sinks", [("q",), ("q/a", "q/b"), ("q/a", "q/b", "q/c")])
def test_the_word_to_accept_a_batch_is_good_once_for_each_of_its_sinks(world: World, sinks: tuple[str, ...]) -> None:
    """Whichever sink of the batch is written in between. The next batch begins anew."""
    policy = TransactionPolicy(accept_gaps=41)

    def write(name: str, batch: int, rows: int) -> str:
        identity = Identity(name, batch, consecutive=False)
        return world.commit(world.claim(None, policy), identity, world.prepare("p-0"), policy, rows=rows)

    for rows in (1, 2):
        assert [write(name, 41, rows) for name in sinks] == ["published"] * len(sinks)
        record = Record("r", 0, replace(world.state, places=("K/p",)))
        assert decode(encode(record)) == record
    assert world.state.accepted == sinks
    for name in sinks:
        error(partial(write, name, 41, 3), CheckpointError)
        assert write(name, 41, 2) == "repeated"
    assert world.state.accepted == sinks
    assert write(sinks[0], 42, 1) == "published"
    assert world.state.accepted == sinks[1:]


def test_the_first_batch_of_a_query_that_a_log_knows_in_foreach_batch(world: World) -> None:
    """It may have been published with another log: a warning says so, once. A gap is none of its business."""
    for batch, count in ((41, 1), (45, 0)):
        world.write(Identity("q", batch, consecutive=False))
        warnings = world.warnings()
        assert len(warnings) == count, warnings
        assert all("is its first one in this commit log" in text for text in warnings)
    world.write(Identity("new", 0, consecutive=False))
    world.write(version("app", 20_261_128))
    assert world.warnings() == []


def version(app: str, number: int) -> Identity:
    """A `txnAppId` and a `txnVersion`."""
    return Identity(app, number, consecutive=False, of_query=False)


def test_a_hundred_identities_are_remembered(world: World) -> None:
    """The log's records stay small; the identity unused for longest goes first, and a warning names it."""
    for number in range(100):
        world.write(version(f"app{number}", 1))
        assert world.warnings() == []
    world.write(version("app0", 2))
    for number in range(100, 150):
        world.write(version(f"app{number}", 1))
        (warning,) = world.warnings()
        assert warning == (
            "The commit log remembers 100 identities (queries, or txnAppId and sink.name), and forgets "
            f"'app{number - 99}' now. If its last batch is written again, it is published again. Use fewer identities under "
            "one prefix"
        )
    assert len(world.state.applied) == len(world.state.rows) == 100
    assert set(world.state.applied) == {"app0", *(f"app{n}" for n in range(51, 150))}
    assert world.write(version("app0", 2)) == "applied"


def test_a_batch_with_more_sinks_than_are_remembered(world: World) -> None:
    """It could not be repeated after a crash, because the first of them would be published again: an error."""
    for number in range(100):
        assert world.write(version(f"app/{number}", 1), run="run/1") == "published"
    message = error(lambda: world.write(version("app/100", 1), "p-0", run="run/1"), ConfigurationError)
    assert message == (
        "A batch of the query is written with more than 100 identities (txnAppId and sink.name) under one prefix. The "
        "commit log does not remember more, so the batch could not be repeated. Give some of its sinks a "
        "sink.transactional-id-prefix of their own"
    )
    assert world.outcomes() == ["open"]
    assert world.write(version("app/100", 2), run="run/2") == "published"
    assert list(world.state.runs) == [f"app/{number}" for number in range(1, 101)]


# --- what goes wrong before the decision --------------------------------------------------------------------------------


def test_another_log_is_another_chain(world: World) -> None:
    """The same generation of another chain is no right to decide."""
    claimed = world.claim()
    error(lambda: world.commit(replace(claimed, chain="x"), Identity("q", 0)), ProducerFencedError)


def test_a_decision_that_comes_too_late_does_not_count(world: World) -> None:
    """Somebody claims between the look and the decision: it is in the log, and nothing follows from it."""
    claimed, transactions = world.claim(), world.prepare("p-0")
    world.meanwhile(Append, lambda: world.append(generation=2))
    message = error(lambda: world.commit(claimed, Identity("q", 0), transactions), ProducerFencedError)
    assert "(now 2)" in message
    assert End not in world.asked()
    assert world.state.status == "owned"


def test_two_who_claim_all_the_time(world: World) -> None:
    """Ten lost races are an error that says what is wrong."""

    def claim_first(effect: Effect) -> None:
        if isinstance(effect, Append):
            world.append(generation=world.state.generation + 1)

    world.before = claim_first
    message = error(world.claim, ProducerFencedError)
    assert message == (
        "Another query claims the same transactional id prefix again and again; give each query a prefix of its own"
    )
    assert world.state.generation == 10


def test_a_lost_race_is_run_again(world: World) -> None:
    """One other claim is no error."""
    world.meanwhile(Append, lambda: world.append(chain="chain", generation=1, status="owned"))
    assert world.claim() == Claim("chain", 2)


# --- what goes wrong after it -------------------------------------------------------------------------------------------


def decided(world: World, identity: Identity, *names: str, run: str = "") -> tuple[Transaction, ...]:
    """A batch whose driver died right after its decision."""
    claimed, transactions = world.claim(), world.prepare(*names)
    batch = Batch(identity, 1, transactions, {"c": {}}, run)
    steps = commit(world.name(), claimed, batch, TransactionPolicy())
    answer: Any = None
    while not isinstance(effect := steps.send(answer), End):
        answer = world.do(effect)
    steps.close()
    assert world.state.status == "decided"
    return transactions


def test_a_batch_that_is_gone_while_it_is_published(world: World) -> None:
    """The driver that decided it is told so, and that the batch is written again."""
    claimed, transactions = world.claim(), world.prepare("p-0")
    world.meanwhile(End, lambda: world.see(Outcome.ABORTED, *transactions))
    message = error(lambda: world.commit(claimed, Identity("q", 0), transactions), TransactionError)
    assert message == (
        "Batch 0 counts as not published: its transactions timed out or were aborted after the decision. Start the query "
        "again, which writes the batch again"
    )
    assert world.write(Identity("q", 0), "p-1") == "published"


@pytest.mark.parametrize(("word", "status"), [("continue", "finished"), ("rewrite", "voided")])
def test_the_word_for_a_lost_batch_is_good_for_its_own_driver(
    world: World, word: Literal["continue", "rewrite"], status: str
) -> None:
    """The query goes on with what was published, or fails so that the batch is written again."""
    claimed, (lost, kept) = world.claim(), world.prepare("p-0", "p-1")
    world.meanwhile(End, lambda: world.see(Outcome.ABORTED, lost))
    policy = TransactionPolicy(lost_transactions=(word, 0))
    if word == "continue":
        assert world.commit(claimed, Identity("q", 0), (lost, kept), policy) == "published"
    else:
        message = error(lambda: world.commit(claimed, Identity("q", 0), (lost, kept), policy), TransactionError)
        assert message.startswith("Batch 0 counts as not published: ")
    assert world.outcomes() == ["aborted", "committed"]
    assert world.state.status == status


def test_a_look_that_lacks_a_transaction_decides_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """And finishes nothing: of a transaction without an answer, nobody knows the outcome."""
    claimed, transactions = world.claim(), world.prepare("p-0", "p-1")
    do = world.do

    def fails(call: Callable[[], Any]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(world, "do", lambda effect: do(effect)[1:] if isinstance(effect, Describe) else do(effect))
            with pytest.raises(ValueError, match="shorter"):
                call()
        assert Append not in world.asked()

    fails(lambda: world.commit(claimed, Identity("q", 0), transactions))
    decided(world, Identity("q", 0), "p-2", "p-3")
    fails(world.claim)


def test_a_batch_that_is_voided_and_decided_again_is_not_published_yet(world: World) -> None:
    """A driver that hung after its decision finds the same batch in the log, but in another decision, which is open."""
    claimed, (mine,) = world.claim(), world.prepare("p-0")

    def take_over() -> None:
        world.see(Outcome.ABORTED, mine)
        decided(world, Identity("q", 0), "p-1")
        world.see(Outcome.UNKNOWN, mine)  # its id is in use again

    world.meanwhile(End, take_over)
    message = error(lambda: world.commit(claimed, Identity("q", 0), [mine]), ProducerFencedError)
    assert message == (
        "Batch 0: another run of this query took over after the batch was decided, and publishes it or writes it again. Let "
        "only one of the runs go on"
    )
    assert world.state.status == "decided"


def test_a_batch_whose_number_is_passed_by_is_not_known_to_be_published(world: World) -> None:
    """Versions may leave gaps, so a later one does not prove that an earlier one is published."""
    claimed, (mine,) = world.claim(), world.prepare("p-0")

    def pass_by() -> None:
        world.see(Outcome.ABORTED, mine)
        world.write(version("app", 9), "p-1")
        world.see(Outcome.UNKNOWN, mine)

    world.meanwhile(End, pass_by)
    error(lambda: world.commit(claimed, version("app", 4), [mine]), ProducerFencedError)


@pytest.mark.parametrize("answer", [Outcome.ENDING, Outcome.UNKNOWN])
def test_an_answer_that_is_not_final_is_asked_for_again(world: World, answer: Outcome) -> None:
    """A time-out is in progress, or the coordinator was replaced and does not know it yet: neither is a loss."""
    claimed, (slow, quick) = world.claim(), world.prepare("p-0", "p-1")
    looks = iter([OPEN, ObservedTransaction(answer), ObservedTransaction(answer), OPEN])

    def move(effect: Effect) -> None:
        if isinstance(effect, Describe):
            world.seen[slow] = next(looks, world.seen[slow])
        elif isinstance(effect, End) and quick in effect.transactions:
            world.see(Outcome.UNKNOWN, slow)  # hidden from the first end

    world.before = move
    assert world.commit(claimed, Identity("q", 0), (slow, quick)) == "published"
    assert [e.attempt for e in world.effects if isinstance(e, Wait)] == [0, 1, 2]
    assert world.outcomes() == ["committed", "committed"]


def test_a_coordinator_that_does_not_commit(world: World) -> None:
    """It is asked ten times, with pauses; then an error names the transaction, and the next start goes on."""
    claimed, (slow, quick) = world.claim(), world.prepare("p-0", "p-1")

    def lose(effect: Effect) -> None:
        if isinstance(effect, End):
            world.see(Outcome.UNKNOWN, slow)  # hidden from the end that comes now
        elif isinstance(effect, Describe):
            world.seen[slow] = OPEN

    world.before = lose
    message = error(lambda: world.commit(claimed, Identity("q", 0), (slow, quick)), TransactionError)
    assert message.startswith(
        "Batch 0 is decided, and the coordinators have not committed 'p-0' on cluster 'c' yet; start"
    )
    assert [e.attempt for e in world.effects if isinstance(e, Wait)] == list(range(10))
    assert [e.transactions for e in world.effects if isinstance(e, End)] == [(slow, quick)] + [(slow,)] * 9
    assert world.asked().count(ReadLog) == 2  # what is open or committed leaves no question to the log
    world.before = lambda _: None
    assert stream(world, Identity("q", 0), "p-2") == "repeated"
    assert world.outcomes() == ["committed", "committed", "aborted"]


def finish(world: World, transaction: Transaction, **changes: Any) -> None:
    """Let another driver finish the decision at the head; the transaction's id is in use again."""
    world.append(**{"status": "finished", "transactions": (), "clusters": {}} | changes)
    del world.seen[transaction]


def test_somebody_else_finishes_a_decision(world: World) -> None:
    """Its ids are in use again when it is looked at: the log tells that it was published, so nothing is lost."""
    (transaction,) = decided(world, Identity("q", 0), "p-0")
    world.meanwhile(End, lambda: finish(world, transaction))
    assert world.claim().generation == 2
    assert world.state.applied == {"q": 0}


@pytest.mark.parametrize(
    ("changes", "is_known"),
    [
        ({}, True),
        ({"status": "decided", "identity": "other"}, True),
        ({"rows": {"q": 2}}, False),
        ({"rows": {}}, False),
        ({"batch": 1, "applied": {"q": 1}}, False),
        ({"applied": {}}, False),
    ],
    ids=str,
)
def test_somebody_else_finishes_a_batch_while_it_is_published(
    world: World,
    changes: dict[str, Any],
    is_known: bool,  # noqa: FBT001
) -> None:
    """It counts as published only if the log has it, with as many rows. In both cases nothing more is written."""
    claimed, (mine,) = world.claim(), world.prepare("p-0")
    world.meanwhile(End, lambda: finish(world, mine, **changes))
    if is_known:
        assert world.commit(claimed, Identity("q", 0), [mine]) == "published"
    else:
        error(lambda: world.commit(claimed, Identity("q", 0), [mine]), ProducerFencedError)
    assert world.log[-1].name == "other"


@pytest.mark.parametrize("who", ["the writer", "the next one"])
def test_somebody_else_finishes_a_plain_write(world: World, who: str) -> None:
    """Nobody knows what became of it: an error for who wrote it; who claims next does not mind."""
    claimed, (transaction,) = world.claim(), world.prepare("p-0")
    if who == "the next one":
        world.seen.clear()
        world.log.clear()
        (transaction,) = decided(world, PLAIN, "p-0")
    world.meanwhile(End, lambda: finish(world, transaction))
    if who == "the writer":
        message = error(lambda: world.commit(claimed, PLAIN, [transaction]), TransactionError)
        assert message == (
            "Another query with the same transactional id prefix took over while this write was published; it is published "
            "as a whole or not at all. Give each writer a prefix of its own, and txnAppId and txnVersion so that it can be "
            "repeated"
        )
    else:
        assert world.claim().generation == 2


# --- a batch that has failed --------------------------------------------------------------------------------------------


def test_a_failed_batch_is_aborted_under_a_claim_of_its_own(world: World) -> None:
    """So no decision of its generation can count any more."""
    claimed = world.claim()
    world.prepare("p-0")
    assert world.run(abandon("a", claimed))
    assert world.asked() == [ReadLog, ListOpen, Append, ReadLog, Abort]
    assert world.log[-1].name == "a"
    assert world.outcomes() == ["aborted"]
    error(lambda: world.commit(claimed, Identity("q", 0), ()), ProducerFencedError)
    assert world.write(Identity("q", 0), "p-1") == "published"


def test_a_transaction_begun_by_a_task_that_was_being_killed_is_aborted(world: World) -> None:
    """The claim that `abandon` returns serves to look again."""
    now = world.run(abandon("a", world.claim()))
    assert now is not None
    world.prepare("p-0")
    assert world.run(abandon("b", now)) == replace(now, generation=now.generation + 1)
    assert world.outcomes() == ["aborted"]


def test_a_stopped_run_finds_its_claim_by_its_name(world: World) -> None:
    """No task has told the claim: the one at the head is it, if this run has made it."""
    claimed = world.run(claim(world.name(), None, TransactionPolicy(), owner="run"))
    world.prepare("p-0")
    now = world.run(abandon("a", "run"))
    assert now == replace(claimed, generation=claimed.generation + 1)
    assert world.outcomes() == ["aborted"]
    assert world.write(Identity("q", 0), "p-1") == "published"


@pytest.mark.parametrize(("owner", "run"), [("other", "run"), ("", "run"), ("", "")], ids=str)
def test_a_stopped_run_leaves_the_claim_of_another_alone(world: World, owner: str, run: str) -> None:
    """Its transactions are those of a run that goes on. A run without a name cannot be told from others."""
    claimed = world.run(claim(world.name(), None, TransactionPolicy(), owner=owner))
    transactions = world.prepare("p-0")
    assert world.run(abandon("a", run)) is None
    assert world.commit(claimed, Identity("q", 0), transactions) == "published"


@pytest.mark.parametrize("reached", ["decided", "finished"])
def test_a_stopped_run_leaves_a_decision_alone(world: World, reached: str) -> None:
    """The next claim finishes it."""
    if reached == "decided":
        decided(world, Identity("q", 0), "p-0")
    else:
        world.write(Identity("q", 0), "p-0")
    world.append(owner="run")
    assert world.run(abandon("a", "run")) is None
    assert world.asked() == [ReadLog]


def test_a_failed_batch_without_transactions(world: World) -> None:
    """Nothing is aborted."""
    assert world.run(abandon("a", world.claim()))
    assert Abort not in world.asked()


@pytest.mark.parametrize("reached", ["decided", "finished", "superseded"])
def test_what_a_decision_may_name_is_not_aborted(world: World, reached: str) -> None:
    """Spark calls abort also when the commit failed midway."""
    claimed = Claim("", 0)
    if reached == "decided":
        transactions = decided(world, Identity("q", 0), "p-0")
        claimed = Claim(world.state.chain, world.state.generation)
    else:
        claimed, transactions = world.claim(), world.prepare("p-0")
        if reached == "finished":
            world.commit(claimed, Identity("q", 0), transactions)
        else:
            world.append(generation=2)
    records, outcomes = len(world.log), world.outcomes()
    assert not world.run(abandon("a", claimed))
    assert (len(world.log), world.outcomes(), world.asked()) == (records, outcomes, [ReadLog])


def test_an_abort_that_loses_the_race_does_nothing(world: World) -> None:
    """Somebody else has claimed, and sees to it."""
    claimed = world.claim()
    world.prepare("p-0")
    world.meanwhile(Append, lambda: world.append(generation=2))
    assert not world.run(abandon("a", claimed))
    assert world.outcomes() == ["open"]


# --- the chain ----------------------------------------------------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """Writers that know an old head, the newest one, or one that never was; and appends that came twice."""
    log: list[Record] = []
    head = -1
    old = [-1]
    for number in range(draw(st.integers(0, 40))):
        if log and draw(st.integers(0, 3)) == 0:
            record = log[draw(st.integers(0, len(log) - 1))]
        else:
            follows = draw(st.sampled_from([head, head, 1000 + number, draw(st.sampled_from(old))]))
            record = Record(f"r{number}", follows, State("chain", number))
        if record.follows == head:
            head = len(log)
            old.append(head)
        log.append(record)
    return log


def read(log: Sequence[Record], start: int = 0) -> list[Chain]:
    """The chain after each record, for a reader of a log that was trimmed to `start`."""
    found = [Chain()]
    for offset in range(start, len(log)):
        found.append(follow(found[-1], offset, log[offset], start=start))
    return found[1:]


def heads(log: Sequence[Record]) -> list[int]:
    """The offsets of the records that count."""
    return [offset for offset, chain in enumerate(read(log)) if chain.offset == offset]


@given(logs())
def test_a_repeated_record_never_counts_twice(log: list[Record]) -> None:
    """Each copy follows what the first one followed, which is no head any more."""
    names = [log[offset].name for offset in heads(log)]
    assert len(names) == len(set(names))
    if log:
        assert read(log)[-1].recent == {log[offset].name: offset for offset in heads(log)}


@given(logs())
def test_what_counts_follows_what_counted(log: list[Record]) -> None:
    """Each head names the one before it, so it is a chain."""
    for before, offset in pairwise([-1, *heads(log)]):
        assert log[offset].follows == before


@given(logs())
def test_every_reader_comes_to_the_same_chain(log: list[Record]) -> None:
    """Wherever the log was trimmed to, if only that is a head."""
    whole = read(log)
    for start in heads(log):
        for mine, full in zip(read(log, start), whole[start:], strict=True):
            assert (mine.offset, mine.state) == (full.offset, full.state)
            assert mine.recent == {name: offset for name, offset in full.recent.items() if offset >= start}


@given(logs(), st.integers(0, 40))
def test_a_log_that_begins_anywhere_has_the_same_head(log: list[Record], start: int) -> None:
    """A broker that dies right after trimming may bring back records that lost: the first one left is none to begin with."""
    if start <= max(heads(log), default=-1):
        found, whole = read(log, start)[-1], read(log)[-1]
        assert (found.offset, found.state) == (whole.offset, whole.state)


def test_of_records_that_follow_trimmed_ones_the_one_after_the_latest_counts() -> None:
    """Also if others have been taken for the chain before. Who follows a record that lost has lost, too."""
    trimmed = [Record("gone", -1, State())] * 5
    lost = [Record("lost", 2, State()), Record("after lost", 5, State())]
    log = [*trimmed, *lost, Record("counts", 4, State()), Record("late", 5, State()), Record("next", 7, State())]
    found = read(log, start=5)
    assert [chain.offset for chain in found] == [5, 6, 7, 7, 9]
    assert [chain.base for chain in found] == [2, 2, 4, 4, 4]


def test_the_states_of_a_batch() -> None:
    """A decision changes only its own identity. When it is finished or voided, its transactions are forgotten."""
    before = State("chain", 3, "finished", "a", 1, (), {}, {"q": 1, "a": 1}, {"q": 7, "a": 5}, {"q": "r/1", "a": "r/1"})
    owned = next_generation(before, "name")
    assert owned == replace(before, generation=4, status="owned")
    transactions, clusters = (Transaction("c", "p-0", 1, 0),), {"c": {"cluster.id": "C"}}
    decided = decided_state(owned, Identity("q", 2), 9, transactions, clusters, accepted=True)
    assert decided == State(
        "chain", 4, "decided", "q", 2, transactions, clusters, {"a": 1, "q": 2}, {"a": 5, "q": 9}, {"a": "r/1"}, ("q",)
    )
    assert list(decided.applied) == ["a", "q"]
    finished = State("chain", 4, "finished", "q", 2, (), {}, {"a": 1, "q": 2}, {"a": 5, "q": 9}, {"a": "r/1"}, ("q",))
    assert finished_state(decided) == finished
    assert voided_state(decided) == State(
        "chain", 4, "voided", "q", 2, (), {}, {"a": 1, "q": 1}, {"a": 5}, {"a": "r/1"}, accepted=()
    )
    assert next_generation(decided, "name") == replace(finished, generation=5, status="owned")


def test_a_chain_remembers_a_hundred_records() -> None:
    """The newest ones."""
    log = [Record(f"r{n}", n - 1, State()) for n in range(250)]
    assert list(read(log)[-1].recent.values()) == list(range(150, 250))

"""Every order of events keeps the exactly-once protocol's promises, and each of its rules is needed.

The explorations that take longest have the mark `crash`; `python -m tests.model` explores larger bounds.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest

from dynamic_kafka.sink import protocol
from dynamic_kafka.sink.log import chain, identity
from tests.model.explorer import Limits, Rules, ViolationError, explore

pytestmark = pytest.mark.timeout(900)

Break = Callable[..., None]
LONG = pytest.mark.crash


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(Limits(batches=1, drivers=2, late_tasks=1), id="late and repeated tasks", marks=LONG),
        pytest.param(Limits(batches=1, drivers=2, faults=1), id="lost, late and repeated requests", marks=LONG),
        pytest.param(Limits(batches=3, drivers=2), id="a zombie driver of three batches", marks=LONG),
        pytest.param(Limits(batches=2, drivers=2, copies=1), id="a restored checkpoint of two batches", marks=LONG),
        pytest.param(Limits(batches=2, drivers=2, named=True, copies=1), id="versions, two batches", marks=LONG),
        pytest.param(
            Limits(batches=1, drivers=2, late_timeouts=2, copies=1), id="a restored checkpoint, time-outs", marks=LONG
        ),
        pytest.param(
            Limits(batches=1, drivers=2, late_timeouts=2, named=True, copies=1), id="versions, time-outs", marks=LONG
        ),
        pytest.param(Limits(batches=1, drivers=2, two_steps=True), id="tasks of two steps", marks=LONG),
        pytest.param(
            Limits(batches=1, drivers=2, late_timeouts=2, epoch_steps=(1, 2), fences=True), id="fences", marks=LONG
        ),
        pytest.param(Limits(batches=1, drivers=2, timeouts=1), id="time-outs before a decision", marks=LONG),
        pytest.param(Limits(batches=1, drivers=2, late_timeouts=2), id="time-outs after a decision", marks=LONG),
        pytest.param(Limits(batches=1, drivers=2, queries=2), id="two queries with one prefix", marks=LONG),
        pytest.param(Limits(batches=1, drivers=2, trims=1), id="two drivers and a log that is trimmed", marks=LONG),
        pytest.param(Limits(batches=3, drivers=1, late_tasks=1, faults=1, timeouts=1), id="one driver"),
        pytest.param(Limits(batches=1, drivers=2, copies=1), id="a restored checkpoint", marks=LONG),
        pytest.param(Limits(batches=1, drivers=2, named=True, copies=1), id="versions"),
        pytest.param(Limits(batches=1, drivers=1, late_tasks=1, two_steps=True, aborts=1), id="aborts by hand"),
        pytest.param(Limits(batches=1, drivers=2, stops=True), id="stops in the middle", marks=LONG),
        pytest.param(Limits(batches=2, drivers=1, late_tasks=1, faults=1, stops=True), id="one driver that stops"),
    ],
)
def test_every_order_of_events_keeps_the_promises(limits: Limits) -> None:
    """Nothing is published twice or by halves, what Spark takes for done is published, and a new driver can go on."""
    assert explore(limits) > 1000


@pytest.fixture(name="break_rule")
def _break_rule(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Changes one line of the protocol, or of what it consists of, wherever that is used."""
    modules = (protocol, chain, identity)

    def change(function: str, line: str, changed: str) -> None:
        users = [module for module in modules if hasattr(module, function)]
        source = inspect.getsource(getattr(users[0], function))
        assert source.count(line) == 1, "the protocol has changed: change this test with it"
        scope = vars(sys.modules[getattr(users[0], function).__module__])
        found: dict[str, Any] = {}
        exec(compile(source.replace(line, changed), f"<{function}, changed>", "exec"), scope, found)
        for user in users:
            monkeypatch.setattr(user, function, found[function])

    return change


def _is_found(limits: Limits, rules: Rules | None = None) -> None:
    with pytest.raises(ViolationError):
        explore(limits, rules or Rules())


def test_rule_1_only_a_decision_that_counts_publishes(break_rule: Break) -> None:
    """A driver that publishes whether or not its decision counts publishes what another one has written again."""
    break_rule(
        "commit", "if decision is None:", "if decision is None and (decision := Chain(chain.offset, decided)) is None:"
    )
    _is_found(Limits(batches=1, drivers=2))


def test_rule_1_a_decision_comes_before_the_first_commit(break_rule: Break) -> None:
    """Transactions that are committed before the decision are published again after a crash between the two."""
    break_rule(
        "commit",
        "decision = yield from _append(chain, name, decided)",
        "yield End(prepared)\n        decision = yield from _append(chain, name, decided)",
    )
    _is_found(Limits(batches=1, drivers=2))


def test_rule_2_only_the_generation_at_the_head_decides(break_rule: Break) -> None:
    """If any record counts wherever it stands, a zombie's decision does."""
    break_rule("follow", "if record.follows != chain.offset and not begins:", "if False:")
    _is_found(Limits(batches=1, drivers=2))


def test_rule_3_a_decision_is_finished_before_the_next_claim(break_rule: Break) -> None:
    """A claim over an unfinished decision leaves the batch unpublished, and everybody takes it for published."""
    break_rule("claim", 'if chain.state.status == "decided":', "if False:")
    _is_found(Limits(batches=1, drivers=2))


def test_rule_4_aborts_name_producer_id_and_epoch() -> None:
    """InitProducerId asks for a name only: late, it aborts what somebody else has decided."""
    _is_found(Limits(batches=1, drivers=2, faults=1), Rules(abort_by_epoch=False))


def test_rule_4_open_transactions_are_listed_before_the_claim(break_rule: Break) -> None:
    """Listed after it, they may be those of a later generation, which a later driver has decided."""
    break_rule("claim", "if left_open:\n                yield Abort(left_open)", "yield Abort((yield ListOpen()))")
    _is_found(Limits(batches=1, drivers=2))


def test_rule_5_transactions_are_looked_at_before_they_are_decided(break_rule: Break) -> None:
    """What timed out before the decision cannot be published after it."""
    break_rule("commit", "_check_open(prepared, (yield Describe(prepared)), policy)", "yield Describe(prepared)")
    _is_found(Limits(batches=1, drivers=1, timeouts=1))


def test_rule_6_an_answer_to_a_commit_proves_nothing(break_rule: Break) -> None:
    """A request that is lost leaves its transaction open: only the coordinator's state says that it is committed."""
    break_rule("_publish", "(s.outcome for s in seen)", "(Outcome.COMMITTED for s in seen)")
    _is_found(Limits(batches=1, drivers=1, faults=1))


def test_rule_7_one_transaction_for_each_epoch() -> None:
    """A commit that comes late would find the next batch in the same epoch, and publish it before it is decided."""
    _is_found(Limits(batches=2, drivers=2, faults=1), Rules(one_transaction_per_epoch=False))


def test_rule_7_ids_prepared_by_this_generation_are_left_alone() -> None:
    """A task that starts late would take an id whose transaction is decided, and abort it."""
    _is_found(Limits(batches=1, drivers=1, late_tasks=1), Rules(slots_by_generation=False))


def test_rule_8_a_batch_that_is_published_is_not_published_again(break_rule: Break) -> None:
    """Spark replays a batch whose commit it did not write down."""
    break_rule("commit", "found = _place(head, batch.identity, policy, batch)", 'found = Place("next")')
    _is_found(Limits(batches=1, drivers=2))


def test_a_batch_that_was_voided_may_be_decided_again_and_open(break_rule: Break) -> None:
    """A driver that hung after its decision takes the one of another driver for its own, and tells Spark that it is done."""
    break_rule("_is_published", "not is_open and ", "")
    _is_found(Limits(batches=1, drivers=2, late_timeouts=2))


def test_a_batch_that_was_voided_may_be_published_with_other_rows(break_rule: Break) -> None:
    """A driver that hung takes the batch of a restored checkpoint for its own."""
    break_rule("_is_published", " and now.rows.get(name) == decided.rows.get(name)", "")
    _is_found(Limits(batches=1, drivers=2, late_timeouts=2, copies=1))


def test_a_batch_that_is_voided_is_the_next_one_again(break_rule: Break) -> None:
    """If it were remembered, its repetition would be dropped, and its rows would be lost."""
    break_rule("voided_state", "if n != state.identity", "if True")
    _is_found(Limits(batches=1, drivers=2, late_timeouts=2))


@pytest.mark.parametrize("named", [False, True], ids=["stream", "versions"])
def test_rule_8_a_repetition_has_as_many_rows(break_rule: Break, named: bool) -> None:  # noqa: FBT001
    """The next batch of a restored checkpoint has other rows than the one that the log knows by its number."""
    break_rule("_repetition", "if rows == last.rows:", "if True:")
    _is_found(Limits(batches=1, drivers=2, copies=1, named=named))


def test_rule_8_an_older_version_is_an_error(break_rule: Break) -> None:
    """If it is dropped, a checkpoint that is two batches behind loses one of them."""
    break_rule("place", "if is_older and skip == identity.batch:", "if is_older:")
    _is_found(Limits(batches=2, drivers=2, copies=1, named=True))


def test_rule_4_what_dead_attempts_left_open_is_listed_before_the_batch_is_finished(break_rule: Break) -> None:
    """Listed after it, it may be of the next batch, which another driver has decided."""
    break_rule(
        "_close",
        "closed = yield from _append(chain, name, state)",
        "closed = yield from _append(chain, name, state)\n    left_open = yield ListOpen()",
    )
    _is_found(Limits(batches=2, drivers=2))


def test_who_aborts_by_hand_claims_first() -> None:
    """Kafka lets a task go on in a second transaction of the same epoch, so half of its rows would be decided."""
    _is_found(Limits(batches=1, drivers=1, two_steps=True, aborts=1), Rules(aborts_claim=False))


def test_a_decision_that_nobody_can_finish_is_noticed(break_rule: Break) -> None:
    """From each state a new driver has to get on by itself, or with a word of the user."""
    break_rule("claim", "if closed is not None:", "if False:")
    _is_found(Limits(batches=1, drivers=2))


def test_who_stops_ends_the_claim_of_its_own_run_only(break_rule: Break) -> None:
    """The claim at the head may be that of another driver, which has taken over and goes on."""
    break_rule("abandon", "if not claimed or claimed != head.owner:", "if False:")
    _is_found(Limits(batches=1, drivers=2, stops=True))


def test_a_failed_batch_is_superseded_before_it_is_aborted(break_rule: Break) -> None:
    """Else its decision, on its way still, names transactions of which some are aborted."""
    break_rule(
        "abandon",
        "if (yield from _append(chain, name, next_generation(head, name))) is None:",
        "if False:",
    )
    _is_found(Limits(batches=1, drivers=2, faults=1))

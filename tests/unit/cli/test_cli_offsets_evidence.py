"""What the commit log of a sink says about an unfinished batch, and that it is asked again before a change is written."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from dynamic_kafka.cli.offsets import evidence
from dynamic_kafka.cli.offsets.evidence import Evidence, evidence_of_sink, supersede_claim
from dynamic_kafka.errors import TransactionError
from dynamic_kafka.sink.log.chain import Chain, State, Transaction, finished_state, next_generation, voided_state

ARGS = argparse.Namespace(commit_log_property=[("bootstrap.servers", "b")], commit_log=None, sink_prefix="p", timeout=5)
OWNED = State("c", 8, "owned", places=("K/p",))
OPEN = (Transaction("eu", "p.dk-0", 1, 0),)


class Log:
    """A commit log that a test steps.

    Args:
        state: Its head.
    """

    def __init__(self, state: State) -> None:
        self.chain: Chain | None = Chain(10, state)
        self.superseded = 0
        self.wins = True

    def supersede(self, *_: object, timeout_ms: int) -> bool:
        """Note that a claim was superseded."""
        self.superseded += 1
        return self.wins


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """A commit log that nothing but a claim is in."""
    made = Log(OWNED)
    monkeypatch.setattr(evidence, "read_commit_log", lambda *_, timeout_ms: made.chain)
    monkeypatch.setattr(evidence, "supersede", made.supersede)
    return made


def asked(log: Log, applied: Mapping[str, int], batch: int) -> Evidence:
    """What a log with these published batches says about a batch of the query Q."""
    log.chain = Chain(10, replace(OWNED, applied=applied))
    return evidence_of_sink(ARGS, "Q", batch)


@pytest.mark.parametrize(
    ("applied", "batch", "word"),
    [
        ({}, 0, "is not published"),
        ({}, 1, "no batch of this query"),
        ({"Q": 40}, 41, "is not published"),
        ({"Q": 41}, 41, "decided or published"),
        ({"Q": 42}, 41, "decided or published"),
        ({"Q": 39}, 41, "batch 39 of this query"),
        ({"Q": 0}, 0, "decided or published"),
        ({"Q/a": 0}, 0, "decided or published"),
        ({"Q/a": 40, "Q/b": 40}, 41, "is not published"),
        ({"Q/a": 40, "Q/b": 7}, 41, "is not published"),
        ({"Q/a": 39}, 41, "batch 39 of this query"),
        ({"Q": 40, "Q/b": 41}, 41, "decided or published"),
        ({"Q/a": 41, "Q/b": 40}, 41, "decided or published"),
        ({"Q/a": 41, "Q/b": 41}, 41, "decided or published"),
        ({"Q/b": 42, "OTHER": 3}, 41, "decided or published"),
        ({"OTHER": 99}, 0, "no batch of this query"),
        ({"OTHER": 0}, 1, "no batch of this query"),
        ({"QUITE": 0, "OTHER/Q": 0}, 0, "no batch of this query"),
        ({"OTHER": 41, "OTHER/Q": 41, "QUITE/a": 41, "Q": 40}, 41, "is not published"),
    ],
)
def test_a_batch_is_not_published_only_if_no_name_of_its_query_has_it(
    log: Log, applied: Mapping[str, int], batch: int, word: str
) -> None:
    """Writes of a stream, of foreachBatch, of foreachBatch with names, and a log of other queries."""
    found = asked(log, applied, batch)
    assert word in (found.note if word == "is not published" else found.against)
    assert bool(found.note) != bool(found.against)


def test_whatever_the_order_of_the_names_the_newest_batch_counts(log: Log) -> None:
    """All states of three names: a change is allowed only if none has the batch, and the newest one is the one before."""
    names = ("Q", "Q/a", "Q/b")
    for batches in product((None, 3, 4, 5, 6), repeat=3):
        applied = {name: n for name, n in zip(names, batches, strict=True) if n is not None}
        assert bool(asked(log, applied, 5).note) == (max(applied.values(), default=-1) == 4)


def test_a_log_that_is_empty_or_not_there_says_nothing(log: Log) -> None:
    """Also about batch 0."""
    for log.chain in (None, Chain()):
        assert "does not exist or is empty" in evidence_of_sink(ARGS, "Q", 0).against
        supersede_claim(ARGS, "Q", 0, evidence_of_sink(ARGS, "Q", 0))
    assert not log.superseded


@pytest.mark.parametrize("name", ["Q", "Q/b"])
@pytest.mark.parametrize("status", ["decided", "finished", "owned"])
def test_a_batch_that_was_decided_after_the_log_was_asked_is_not_changed(log: Log, name: str, status: str) -> None:
    """Wherever the log has come to meanwhile; nothing is superseded then."""
    before = replace(OWNED, applied={"Q": 40})
    decided = replace(
        before, status="decided", identity=name, batch=41, transactions=OPEN, applied={"Q": 40} | {name: 41}
    )
    after = {
        "decided": decided,
        "finished": finished_state(decided),
        "owned": next_generation(finished_state(decided), "n"),
    }
    known = asked(log, before.applied, 41)
    assert "is not published" in known.note
    log.chain = Chain(12, after[status])
    with pytest.raises(TransactionError, match="just now"):
        supersede_claim(ARGS, "Q", 41, known)
    assert not log.superseded


@pytest.mark.parametrize("status", ["owned", "finished", "decided", "voided"])
def test_a_claim_is_superseded_while_the_batch_is_not_decided(log: Log, status: str) -> None:
    """A claim at the head may be that of the batch. Any other head has none to take away."""
    decided = replace(OWNED, status="decided", identity="Q", batch=40, transactions=OPEN, applied={"Q": 40})
    again = replace(decided, batch=41, applied={"Q": 41})
    heads = {
        "owned": next_generation(finished_state(decided), "n"),
        "finished": finished_state(decided),
        "decided": decided,
        "voided": voided_state(again),
    }
    known = asked(log, {"Q": 40}, 41)
    log.chain = Chain(12, heads[status])
    supersede_claim(ARGS, "Q", 41, known)
    assert log.superseded == (status == "owned")
    log.wins = False
    if status == "owned":
        with pytest.raises(TransactionError, match="just now"):
            supersede_claim(ARGS, "Q", 41, known)


def test_what_the_user_forces_holds_while_the_log_says_the_same(log: Log) -> None:
    """The word is about what was shown: a batch of which the log does not show whether it is published."""
    known = asked(log, {"Q": 39}, 41)
    assert known.against
    supersede_claim(ARGS, "Q", 41, known)
    assert log.superseded == 1

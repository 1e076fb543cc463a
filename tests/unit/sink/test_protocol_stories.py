"""The exactly-once protocol in the stories of protocol_stories.txt: what becomes of batches after crashes and restarts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.protocol_world import World
from tests.stories import read_stories
from tests.unit.sink.test_sink_protocol import decided

from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.sink.log.chain import Record, State, Transaction
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.protocol import Claim, ObservedTransaction, Outcome, TransactionPolicy, Wait


class Story:
    """Drivers and the world around them, step by step.

    `write q/0 p-0` claims, writes and commits batch 0 of query q in the transaction p-0; `write app#4` is version 4 of a
    txnAppId, `write plain` a write without an identity. Options follow: `rows=2`, `run=r/1`, `accept=5`, `skip=5`,
    `continue=0` and `rewrite=0`. `stream` is the same for a claim that does not know the identity. `claim` and `open p-0`
    are the first steps of a batch, and `commit q/0` its last one: of the transactions that were opened since the claim;
    `as x` gives a claim a name, also for a commit by it. `decide q/0 p-0` is a batch whose driver dies after its decision.
    `p-0 is aborted` (unknown, ending, open), or has only 4999 ms left. `log q:3` is a log in which that batch is published.
    `fails ...` is a step that has to fail.
    """

    def __init__(self) -> None:
        self.world = World()
        self.claims: dict[str, tuple[Claim, list[Transaction]]] = {}

    def play(self, steps: str) -> str:
        """Play the steps, and return what came of the last one."""
        result = ""
        for step in map(str.strip, steps.split("|")):
            if step.startswith("fails "):
                with pytest.raises(DynamicKafkaError):
                    self.step(step.removeprefix("fails "))
                continue
            result = self.step(step)
        return result

    def step(self, step: str) -> str:
        """Play a step."""
        words, *options = step.split(", ")
        given = dict(option.split("=") for option in options)
        more: dict[str, Any] = {key: given[key] for key in ("run",) if key in given}
        more |= {key: int(given[key]) for key in ("rows",) if key in given}
        policy = TransactionPolicy(
            accept_gaps=int(given["accept"]) if "accept" in given else None,
            skip_batch=int(given["skip"]) if "skip" in given else None,
            lost_transactions=next(
                ((word, int(given[word])) for word in ("continue", "rewrite") if word in given), None
            ),
        )
        match words.split():
            case ["log", *applied]:
                pairs = dict(found.split(":") for found in applied)
                state = State("chain", 1, "finished", applied={name: int(batch) for name, batch in pairs.items()})
                self.world.log.append(Record("before", -1, state))
            case ["write", identity, *names]:
                return self.world.write(identity_of(identity), *names, policy=policy, **more)
            case ["stream", identity, *names]:
                claimed = self.world.claim(None, policy)
                return self.world.commit(claimed, identity_of(identity), self.world.prepare(*names), policy, **more)
            case ["claim", *name]:
                self.claims[name[-1] if name else ""] = self.world.claim(None, policy), []
                return "claimed"
            case ["open", *names]:
                next(reversed(self.claims.values()))[1].extend(self.world.prepare(*names))
            case ["commit", identity, *name]:
                claimed, transactions = self.claims[name[-1] if name else ""]
                return self.world.commit(claimed, identity_of(identity), transactions, policy, **more)
            case ["decide", identity, *names]:
                decided(self.world, identity_of(identity), *names, **more)
            case [name, "is", outcome]:
                self.see(name, ObservedTransaction(Outcome(outcome), left_ms=60_000, timeout_ms=60_000))
            case [name, "has", left_ms]:
                self.see(name, ObservedTransaction(Outcome.OPEN, left_ms=int(left_ms), timeout_ms=60_000))
            case _:
                raise AssertionError(step)
        return ""

    def see(self, name: str, outcome: ObservedTransaction) -> None:
        """Let coordinators say this of the newest transaction of a name."""
        self.world.seen[next(found for found in reversed(self.world.seen) if found.transactional_id == name)] = outcome

    def end(self) -> str:
        """The transactions in the order in which they were opened, and what the log says.

        `committed aborted; finished; q:0x5` has published batch 0 of q with 5 rows. The last step may have waited.
        """
        state = self.world.state
        applied = " ".join(
            f"{name}:{batch}{f'x{state.rows[name]}' if name in state.rows else ''}"
            f"{f' of {state.runs[name]}' if name in state.runs else ''}"
            for name, batch in state.applied.items()
        )
        waits = self.world.asked().count(Wait)
        found = (" ".join(self.world.outcomes()), state.status, applied, f"{waits} waits" if waits else "")
        return "; ".join(text for text in found if text)


def identity_of(text: str) -> Identity:
    """A batch of a query, a version, or none."""
    if text == "plain":
        return Identity("", 0)
    name, kind, number = re.fullmatch(r"([\w/]+?)([/#])(\d+)", text).groups()  # type: ignore[union-attr]
    return (
        Identity(name, int(number)) if kind == "/" else Identity(name, int(number), consecutive=False, of_query=False)
    )


@pytest.mark.parametrize(("steps", "end", "said"), read_stories(Path(__file__).with_name("protocol_stories.txt")))
def test_batches_are_published_as_the_story_says(steps: str, end: str, said: list[str]) -> None:
    """The last step's result, what became of all transactions and what the log says; and its error, or its warnings."""
    story = Story()
    if re.match(r"\w+Error;", end):
        with pytest.raises(DynamicKafkaError) as caught:
            story.play(steps)
        assert f"{type(caught.value).__name__}; {story.end()}" == end
        assert [str(caught.value)] == said
        return
    result = story.play(steps)
    assert f"{result}; {story.end()}" == end
    assert story.world.warnings() == said

"""Exactly-once writes in `foreachBatch`, for any function, wherever it fails, and however it is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

import pytest
from tests.protocol_world import World

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sink.configure import configure_sink
from dynamic_kafka.sink.log.chain import Transaction
from dynamic_kafka.sink.log.identity import Identity
from dynamic_kafka.sink.protocol import Effect, Outcome
from dynamic_kafka.spark.foreach_batch import identity_and_run

OPTIONS = {
    "kafka.bootstrap.servers": "h:9092",
    "sink.delivery-guarantee": "exactly-once",
    "sink.transactional-id-prefix": "job",
}
SWITCHED_OFF = ("spark.sql.cbo.enabled", "spark.sql.requireAllClusterKeysForDistribution")
QUERY, APP = "c9c64adf-e4e1-42d4-ad5f-9da44b183f98", {"txnAppId": "app", "txnVersion": "7"}
Caller = Literal["foreachBatch", "thread", "connect"]


class DiedError(Exception):
    """The driver has died."""


def uuid(number: int) -> str:
    """The id of a run, or of its session."""
    return f"56308a07-9c89-4de8-9784-{number:012x}"


def properties(caller: Caller, run: int) -> dict[str, str]:
    """What Spark tells a task of a write."""
    session = f"spark-session-{uuid(run)}-execution"
    if caller == "connect":
        session = f"SparkConnect_OperationTag_User__Session_{uuid(run)}_Operation_{uuid(99)}"
    found = {"spark.job.tags": session, **dict.fromkeys(SWITCHED_OFF, "false")}
    if caller == "foreachBatch":
        found |= {"sql.streaming.queryId": QUERY, "spark.jobGroup.id": uuid(run), "streaming.sql.batchId": "7"}
    return found


def told(options: dict[str, str], told: Mapping[str, str]) -> tuple[Identity | None, str]:
    """The identity and the run of a write."""
    return identity_and_run(configure_sink(OPTIONS | options), told.get)


_CALLS: list[list[str | None]] = [[None], [None, None], ["a", None], ["a", "a"], ["a", "b"], [None, "a", None]]
_STEPS = 26  # more than two writes take


@pytest.mark.parametrize("names", _CALLS)
@pytest.mark.parametrize(
    ("caller", "user"), [("foreachBatch", {}), ("foreachBatch", APP), ("thread", APP), ("connect", APP)]
)
def test_each_write_is_published_once_or_an_error_says_why_not(
    names: list[str | None], caller: Caller, user: dict[str, str]
) -> None:
    """The driver dies at any step of two runs, each of which repeats the batch, whose writes all have as many rows."""
    _check(names, [], caller, user)
    for first in range(_STEPS):
        _check(names, [first], caller, user)
        for second in range(0, _STEPS, 4):
            _check(names, [first, second], caller, user)


def _check(names: list[str | None], deaths: list[int], caller: Caller, user: dict[str, str]) -> None:
    world = World()
    written: dict[Transaction, int] = {}
    refused = ""

    def call(run: int) -> None:
        for number, name in enumerate(names):
            claimed = world.claim()
            (transaction,) = world.prepare(f"p-{number}")
            written[transaction] = number
            identity, of = told(user | ({"sink.name": name} if name else {}), properties(caller, run))
            assert identity is not None
            world.commit(claimed, identity, (transaction,), run=of)

    runs: list[int | None] = [*deaths, None]
    for run, steps in enumerate(runs):
        left: int | None = steps

        def step(_: Effect) -> None:
            nonlocal left
            if left is not None:
                left -= 1
                if left < 0:
                    raise DiedError

        world.before = step
        try:
            call(run)
        except DiedError:
            continue
        except ConfigurationError as error:
            refused = str(error)
        break
    published = Counter(written[t] for t, seen in world.seen.items() if seen.outcome is Outcome.COMMITTED)
    assert set(published.values()) <= {1}
    if len(set(names)) == len(names):
        assert (refused, sorted(published)) == ("", list(range(len(names))))
    else:
        assert "was written twice" in refused


@pytest.mark.parametrize("caller", ["thread", "connect"])
def test_a_write_whose_batch_is_not_known(caller: Caller) -> None:
    """A stream's session shows that it is one of foreachBatch; without the batch's number it is an error."""
    for name in ({}, {"sink.name": "left"}):
        with pytest.raises(ConfigurationError, match="add the options txnAppId"):
            told(name, properties(caller, 1))
    identity, run = told(APP, properties(caller, 1))
    assert identity == Identity("app", 7, consecutive=False, of_query=False)
    assert run != told(APP, properties(caller, 2))[1]


def test_a_write_outside_of_a_stream() -> None:
    """Without `txnAppId` it is a new write each time; a name alone says nothing."""
    outside = {"spark.job.tags": f"spark-session-{uuid(1)}-execution"}
    for own in ({}, *({setting: "false"} for setting in SWITCHED_OFF), dict.fromkeys(SWITCHED_OFF, "true")):
        assert told({}, outside | own) == (None, "")
    assert told(APP, outside) == (Identity("app", 7, consecutive=False, of_query=False), "")
    with pytest.raises(ConfigurationError, match=r"^Option 'sink\.name' is 'left', but Spark does not tell"):
        told({"sink.name": "left"}, outside)


def test_the_identity_in_foreach_batch_is_that_of_the_query() -> None:
    """A restart has another run; the query's id and the number stay. Each name is another write."""
    query = Identity(QUERY, 7, consecutive=False)
    assert told({}, properties("foreachBatch", 1)) == (query, f"{uuid(1)}/7")
    assert told({}, properties("foreachBatch", 2)) == (query, f"{uuid(2)}/7")
    named = Identity(f"{QUERY}/left", 7, consecutive=False)
    assert told({"sink.name": "left"}, properties("foreachBatch", 1))[0] == named
    assert str(query) == f"batch 7 of query {QUERY}"


def test_a_job_group_of_the_users_own() -> None:
    """It hides the run, which the session of the stream still shows; without that, it is an error."""
    grouped = properties("foreachBatch", 1) | {"spark.jobGroup.id": "mine"}
    assert told({}, grouped) == (Identity(QUERY, 7, consecutive=False), uuid(1))
    del grouped["spark.sql.cbo.enabled"]
    with pytest.raises(ConfigurationError, match="The job group 'mine' hides which run"):
        told({}, grouped)

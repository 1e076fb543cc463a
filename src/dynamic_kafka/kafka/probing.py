"""A look at one address of a broker: which step of connecting fails, which brokers it names, and what the time is there.

librdkafka tries all addresses again and again, and reports the last error. Here each address is tried once, by itself.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from dynamic_kafka.kafka.transactions.connection import BrokerError, Connection, Step
from dynamic_kafka.kafka.transactions.security import ConnectionSettings, LoginError

__all__ = ["Clock", "Probe", "probe"]

_METADATA_LOG = "__cluster_metadata"
_GRACE_S = 0.5


@dataclass(frozen=True, slots=True)
class Clock:
    """The time at the controller, in milliseconds since 1970, and the times here between which it was read.

    Args:
        controller: The id of the active controller.
        there_ms: The time there.
        before_ms: The time here when the question was sent.
        after_ms: The time here when the answer had arrived.
    """

    controller: int
    there_ms: int
    before_ms: int
    after_ms: int

    @property
    def least_apart_ms(self) -> int:
        """Return how far the clocks are apart at least; above 0 if that one is ahead, below 0 if it is behind."""
        if self.there_ms > self.after_ms:
            return self.there_ms - self.after_ms
        return min(0, self.there_ms - self.before_ms)


@dataclass(slots=True)
class Probe:
    """What was found at an address.

    Args:
        address: Host and port.
        steps: The steps that were begun, in order. The last one failed if there is a problem.
        problem: Why the last step failed; "" if all went well.
        refused: True if the broker refused the login or is not trusted: another try would not help, and may lock an account.
        seconds: The time that it took.
        brokers: The brokers that it names: id to host and port.
        clock: The time at the controller; None if it was not said.
        no_clock: The reason for that.
    """

    address: tuple[str, int]
    steps: list[Step] = field(default_factory=list)
    problem: str = ""
    refused: bool = False
    seconds: float = 0.0
    brokers: dict[int, tuple[str, int]] = field(default_factory=dict)
    clock: Clock | None = None
    no_clock: str = ""


def probe(address: tuple[str, int], settings: ConnectionSettings, timeout_s: float, *, login: bool = True) -> Probe:
    """Connect to an address once, and ask for its brokers and the time.

    Args:
        address: Host and port.
        settings: The cluster's security.
        timeout_s: The longest time that it may take.
        login: If false, everything up to the login.
    """
    found = Probe(address)
    began = time.monotonic()
    asked = settings if login else replace(settings, sasl={})
    may_ask = login or not settings.sasl
    # In a thread, because looking up a name has no time-out.
    work = threading.Thread(target=_look, args=(found, asked, began + timeout_s, may_ask), daemon=True)
    work.start()
    work.join(timeout_s + _GRACE_S)
    if work.is_alive():
        found = replace(found, steps=list(found.steps), problem=f"no answer within {timeout_s:g} s")
    found.seconds = time.monotonic() - began
    return found


def _look(found: Probe, settings: ConnectionSettings, deadline: float, may_ask: bool) -> None:  # noqa: FBT001
    try:
        connection = Connection(found.address, settings, deadline, found.steps.append)
        with closing(connection):
            if may_ask:
                _ask(found, connection, deadline)
    except Exception as error:  # noqa: BLE001  (in a thread; an address that was not looked at must not seem to be good)
        found.problem = _reason(error)
        found.refused = isinstance(error, LoginError)


def _ask(found: Probe, connection: Connection, deadline: float) -> None:
    from dynamic_kafka.kafka.transactions.kafka_python import DescribeQuorumRequest, MetadataRequest

    connection.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), deadline)
    answer = connection.receive(deadline)
    found.brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
    topics = [(_METADATA_LOG, [(0,)])]
    try:
        before_ms = time.time_ns() // 1_000_000
        connection.send(DescribeQuorumRequest(topics=topics), deadline)
        quorum = connection.receive(deadline)
        found.clock = _clock(quorum, before_ms, time.time_ns() // 1_000_000)
    except Exception as error:  # noqa: BLE001  (the address is good all the same)
        found.no_clock = _why_no_clock(error)


def _why_no_clock(error: Exception) -> str:
    if isinstance(error, BrokerError) and error.unsupported:
        return "its brokers are too old to tell it (DescribeQuorum)"
    if isinstance(error, BrokerError) and error.unauthorized:
        return "this user may not ask for it"
    return _reason(error)


def _reason(error: Exception) -> str:
    known = isinstance(error, (OSError, BrokerError, LoginError)) and str(error)
    return known or f"{type(error).__name__}: {error}"


def _clock(quorum: Any, before_ms: int, after_ms: int) -> Clock:
    """Return the time in an answer to DescribeQuorum, in which the controller tells its own time (KIP-836).

    Raises:
        BrokerError: If the broker refuses.
        ConnectionError: If the time is not in the answer.
    """
    if quorum.error_code:
        raise BrokerError(quorum.error_code)
    if not quorum.topics or not quorum.topics[0].partitions:
        raise ConnectionError("its controller does not tell the time")
    partition = quorum.topics[0].partitions[0]
    if partition.error_code:
        raise BrokerError(partition.error_code)
    times = [v.last_caught_up_timestamp for v in partition.current_voters if v.replica_id == partition.leader_id]
    if not times or times[0] < 0:
        raise ConnectionError("its controller does not tell the time")
    return Clock(partition.leader_id, times[0], before_ms, after_ms)

"""Broker discovery, routing and retries, for requests that librdkafka does not offer."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, Resource, may_not
from dynamic_kafka.kafka.config.secrets import fingerprint, has_changed
from dynamic_kafka.kafka.logins import note_accepted, principal, rest_after_refusal
from dynamic_kafka.kafka.transactions.connection import BrokerError, Connection
from dynamic_kafka.kafka.transactions.security import ConnectionSettings, LoginError, cluster_settings

__all__ = ["BrokerClient", "Brokers"]

T = TypeVar("T")

_TRANSACTION = 1  # FindCoordinator's key type
_SHORT_S = 4.0  # less than that is not divided further
_FIRST_ATTEMPT_S = 5.0  # each further attempt has twice as long: a cluster may be large and far away
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.01, 0.5
_MAX_IDLE_S = 180.0  # firewalls drop idle connections silently, some after four minutes


class Brokers:
    """Connections to the brokers of one cluster, each made when first needed.

    After an exception, other than `BrokerError`, answers may be left unread: close it and make another one. Deadlines are
    those of `time.monotonic()`. A method with a deadline raises `OSError` if no broker answers, `LoginError`, `BrokerError`.

    Attributes:
        kafka_id: Kafka's own cluster.id, from the last `refresh`.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._connections: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._coordinators: dict[str, int] = {}
        self.kafka_id = ""

    def close(self) -> None:
        """Close all connections; never waits for a broker."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def refresh(self, deadline: float) -> list[int]:
        """Ask for the cluster's brokers again, and return their ids."""
        from dynamic_kafka.kafka.transactions.kafka_python import MetadataRequest

        connection = self._any_connection(deadline)
        connection.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), deadline)
        answer = connection.receive(deadline)
        found, self.kafka_id = answer.brokers, answer.cluster_id or ""
        if not found:
            raise ConnectionError("the cluster has no brokers yet")
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in found}
        # A broker that has left takes its transactions to others, which are found when they are asked for.
        self._coordinators = {name: broker for name, broker in self._coordinators.items() if broker in self._brokers}
        for address in self._connections.keys() - self._brokers.values():
            self._connections.pop(address).close()
        return sorted(self._brokers)

    def ask(self, requests: Sequence[tuple[int, Any]], deadline: float) -> list[Any]:
        """Send each request to its broker, and only then wait for the first answer. Return the answers in that order."""
        connections = [self._connect(self._brokers[broker], deadline) for broker, _ in requests]
        for connection, (_, request) in zip(connections, requests, strict=True):
            connection.send(request, deadline)
        return [connection.receive(deadline) for connection in connections]

    def coordinators(self, transactional_ids: Collection[str], deadline: float) -> dict[str, int]:
        """Return the brokers that coordinate the transactions of these ids; each is looked up once."""
        from dynamic_kafka.kafka.transactions.kafka_python import FindCoordinatorRequest

        unknown = sorted(set(transactional_ids) - self._coordinators.keys())
        if unknown:
            connection = self._any_connection(deadline)
            connection.send(
                FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=unknown, min_version=4, max_version=4),
                deadline,
            )
            failed: list[BrokerError] = []
            for found in connection.receive(deadline).coordinators:
                if found.error_code:
                    failed.append(BrokerError(found.error_code, found.key))
                else:
                    self._coordinators[found.key] = found.node_id
                    self._brokers[found.node_id] = (found.host, found.port)
            if failed:
                raise min(failed, key=lambda error: error.retriable)
        return {name: self._coordinators[name] for name in transactional_ids}

    def forget_coordinator(self, transactional_id: str) -> None:
        """Look the coordinator up again when it is needed next, because it has moved."""
        self._coordinators.pop(transactional_id, None)

    def _connect(self, address: tuple[str, int], deadline: float) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(address, self._settings, deadline)
        return self._connections[address]

    def _any_connection(self, deadline: float) -> Connection:
        if self._connections:
            return next(iter(self._connections.values()))
        servers = random.sample(self._settings.servers, len(self._settings.servers))
        reason: OSError = TimeoutError("timed out")
        for left, server in zip(range(len(servers), 0, -1), servers, strict=True):
            now = time.monotonic()
            try:
                # A server that is silent leaves the others their share of the time.
                return self._connect(server, now + (deadline - now) / left)
            except OSError as error:
                reason = error
        raise reason


class BrokerClient:
    """Calls to one cluster, repeated within a time-out. For one thread at a time.

    Nothing is opened before the first call. Connections are kept between calls. After a failure they are made again, and
    secrets are looked up again.
    """

    def __init__(self, cluster_id: str, properties: Mapping[str, str], *, timeout_ms: int) -> None:
        self._cluster_id = cluster_id
        self._properties = dict(properties)
        self._timeout_s = timeout_ms / 1000
        self._brokers: Brokers | None = None
        self._fingerprint: Hashable = None
        self._used_at = 0.0

    def close(self) -> None:
        """Close what was opened; never waits for a broker. The next call opens it again."""
        if self._brokers is not None:
            self._brokers.close()
            self._brokers = None

    def call(self, what: str, operation: str, attempt: Callable[[Brokers, float], T]) -> T:
        """Try until it succeeds: while brokers do not answer, answer with an error that may pass, or get a new login.

        Args:
            what: The thing requested, for errors, as it reads after "while requesting".
            operation: The operation that an ACL must allow, for errors.
            attempt: A function that asks brokers, until a deadline. It may be repeated after a broker has acted on it.

        Raises:
            ClusterUnavailableError: If the cluster does not answer in time, refuses the login, or refuses the request.
            ConfigurationError: If the properties are wrong, or a broker is older than 3.0.
        """
        started = time.monotonic()
        deadline = started + self._timeout_s
        pause_s, attempt_s, refusals = _FIRST_PAUSE_S, _FIRST_ATTEMPT_S, 0
        while True:
            left_s = deadline - time.monotonic()
            try:
                # Not all of it: a broker that went silent may have been replaced, or a firewall forgot the connection.
                share_s = min(attempt_s, left_s / 2) if left_s > _SHORT_S else left_s
                answer = attempt(self._open(), deadline - left_s + share_s)
            except BrokerError as error:
                if not error.retriable:
                    self.close()
                    raise self._refused(what, operation, error) from error
                failure: Exception = error
            except OSError as error:
                self.close()
                failure = error
                attempt_s *= 2
            except LoginError as error:
                self.close()
                refusals += 1
                if rest_after_refusal(self._properties, self._is_outdated, refusals, deadline):
                    continue
                raise ClusterUnavailableError(
                    f"{self._name}: authentication failed (while requesting {what}): {error}; check the cluster's "
                    "security.protocol, sasl.* and ssl.* properties",
                    cluster_id=self._cluster_id,
                ) from error
            except BaseException:
                self.close()  # answers may be left unread
                raise
            else:
                note_accepted(self._properties)
                return answer
            finally:
                self._used_at = time.monotonic()
            if time.monotonic() + pause_s >= deadline:
                raise ClusterUnavailableError(
                    f"{self._name} does not answer (while requesting {what}, {time.monotonic() - started:.1f} s): {failure}"
                    "; check that its brokers are running and that the driver can reach them",
                    cluster_id=self._cluster_id,
                ) from failure
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)

    def _open(self) -> Brokers:
        if time.monotonic() - self._used_at > _MAX_IDLE_S:
            self.close()
        if self._brokers is None:
            self._fingerprint = fingerprint(self._properties)
            self._brokers = Brokers(cluster_settings(self._properties))
        return self._brokers

    def _is_outdated(self) -> bool:
        return has_changed(self._properties, self._fingerprint)

    @property
    def _name(self) -> str:
        return f"Cluster '{self._cluster_id}' at {self._properties.get('bootstrap.servers')}"

    def _refused(self, what: str, operation: str, error: BrokerError) -> Exception:
        if error.unsupported:
            return ConfigurationError(
                f"{self._name} is older than Apache Kafka 3.0 (while requesting {what}). Exactly-once writing needs 3.0 or "
                "newer; upgrade its brokers, or choose the delivery guarantee at-least-once",
                cluster_id=self._cluster_id,
            )
        if error.unauthorized:
            resource: Resource = "transactional-id" if error.subject else "cluster"
            remedy = may_not(principal(self._properties), [operation], resource, error.subject)
        else:
            remedy = "check the log of its brokers"
        return ClusterUnavailableError(
            f"{self._name} refused the request for {what}: {error}; {remedy}", cluster_id=self._cluster_id
        )

"""Making of librdkafka's consumers, admin clients and producers, and the errors that they report in the background."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.kafka.config.properties import Role, client_config
from dynamic_kafka.kafka.config.secrets import fingerprint, resolve
from dynamic_kafka.kafka.pool import ClientPool
from dynamic_kafka.native import Implementation, implementation, kernel

__all__ = [
    "LIBRDKAFKA_LOG",
    "QUESTIONS",
    "BackgroundErrors",
    "ClientSettings",
    "ClusterClients",
    "calls_python",
    "check_properties",
    "kept_clients",
    "pool_key",
    "usable_implementation",
    "with_known_leaders",
]

T = TypeVar("T")

_UNKNOWN = "no.such.property"
_SECRET_PATIENCE_S = 10.0
_SECRET_RETRY_S = 0.2
LIBRDKAFKA_LOG = logging.getLogger("dynamic_kafka.librdkafka")

# As in Java's clients (request.timeout.ms). A broker, or a dead connection that nobody closes, keeps a client waiting for as
# long; librdkafka's default is 60 s. The driver's questions are small, so they wait less.
_REQUEST_TIMEOUT = {"socket.timeout.ms": "30000"}
QUESTIONS = {"socket.timeout.ms": "10000"}
"""Defaults of a client that asks and does not transfer records."""

# No consumer of ours joins a group or lets librdkafka choose where to begin.
_CONSUMER = {"enable.auto.commit": "false", "enable.auto.offset.store": "false", "auto.offset.reset": "error"}


def _demote(record: logging.LogRecord) -> bool:
    """Make librdkafka's log lines debug lines.

    A broker that is down makes librdkafka log several errors a second. What matters of them is in our errors (see
    `BackgroundErrors`).
    """
    record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return LIBRDKAFKA_LOG.isEnabledFor(logging.DEBUG)


LIBRDKAFKA_LOG.addFilter(_demote)


@dataclass
class BackgroundErrors:
    """The errors that clients reported outside of any call. They often say more than the "timed out" of a call.

    Call `clear` after an answer, or before a new request.

    Attributes:
        last: The text of the last error; "" if there was none. "All brokers are down" follows a refused login and does not
            replace it.
        authentication_failed: True if a login was refused.
    """

    last: str = ""
    authentication_failed: bool = False

    def note(self, error: KafkaError) -> None:
        """Take an error from librdkafka (`error_cb`)."""
        if error.code() == KafkaError._AUTHENTICATION:
            self.authentication_failed = True
        elif self.authentication_failed and error.code() == KafkaError._ALL_BROKERS_DOWN:
            return
        self.last = error.str()

    def clear(self) -> None:
        """Forget all errors."""
        self.last, self.authentication_failed = "", False


@dataclass(frozen=True)
class ClientSettings:
    """The properties that a purpose needs, in librdkafka's names.

    Args:
        defaults: The user's properties win over these.
        fixed: These win over the user's properties.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)


class ClusterClients:
    """The clients of one cluster that belong together, each made on its first use.

    Args:
        properties: The properties to reach the cluster.
        consumer: The settings of the consumer, `group.id` above all.
        producer: The settings of the producer.

    Attributes:
        errors: The errors that the clients reported in the background.
        topics: The topics that the consumer was assigned to, as its users have noted them.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        consumer: ClientSettings = ClientSettings(),
        producer: ClientSettings = ClientSettings(),
    ) -> None:
        self.errors = BackgroundErrors()
        self.topics: set[str] = set()
        self._properties = dict(properties)
        self._consumer, self._producer = consumer, producer
        self._fingerprint: Hashable = None

    @cached_property
    def consumer(self) -> Consumer:
        """The consumer. Nothing is assigned to it at first."""
        return Consumer(self._config("consumer", self._consumer) | _CONSUMER)

    @cached_property
    def native_consumer(self) -> Any:
        """The consumer of the native kernel, made of the same properties. Nothing is assigned to it at first."""
        return kernel().module.Consumer(_without_callbacks(self._config("consumer", self._consumer) | _CONSUMER))

    @cached_property
    def admin(self) -> AdminClient:
        """The admin client."""
        return AdminClient(self._config("admin", ClientSettings(QUESTIONS)))

    @cached_property
    def producer(self) -> Producer:
        """The producer."""
        return Producer(self._config("producer", self._producer))

    @cached_property
    def native_producer(self) -> Any:
        """The producer of the native kernel, made of the same properties."""
        return kernel().module.Producer(_without_callbacks(self._config("producer", self._producer)))

    def _config(self, role: Role, settings: ClientSettings) -> dict[str, Any]:
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self._properties)
        # The callback belongs to the record of errors, not to this object. A client that referred to its owner would wait
        # for the garbage collector, which hardly ever runs in a quiet process.
        return {
            **_REQUEST_TIMEOUT,
            **settings.defaults,
            **client_config(self._properties, role=role),
            "logger": LIBRDKAFKA_LOG,
            **settings.fixed,
            "error_cb": self.errors.note,
        }

    def poll(self) -> None:
        """Call the callbacks that are due, without waiting. A consumer with an assignment would lose a record by it."""
        for name in ("consumer", "admin", "producer"):
            if name in self.__dict__:
                try:
                    self.__dict__[name].poll(0)
                except KafkaException as error:  # confluent-kafka raises fatal errors instead of calling error_cb
                    self.errors.note(error.args[0])

        self.note_reports()

    def note_reports(self) -> None:
        """Note the errors that the native clients report, and log their lines; for the others the callbacks do that."""
        for name, settings in (("native_consumer", self._consumer), ("native_producer", self._producer)):
            if name in self.__dict__:
                errors, lines = self.__dict__[name].reports()
                for code, text in errors:
                    self.errors.note(KafkaError(code, text))
                logger = settings.fixed.get("logger", LIBRDKAFKA_LOG)
                for line in lines:
                    logger.log(logging.DEBUG, "%s", line)

    def poll_idle(self) -> bool:
        """Poll. Return False after a refused login: the client may hold old secrets (see `ClientPool`)."""
        self.poll()
        return not self.errors.authentication_failed

    def is_outdated(self) -> bool:
        """Return whether a secret or a file behind the properties was replaced since the first client was made."""
        try:
            return self._fingerprint not in (None, fingerprint(self._properties))
        except ConfigurationError:
            return False  # it is being replaced: new clients could not be made now

    def renew_if_outdated(self) -> bool:
        """Close the clients if they are outdated, and return whether they were. New ones are made on their next use."""
        outdated = self.is_outdated()
        if outdated:
            self.renew()
        return outdated

    def renew(self) -> None:
        """Close the clients. New ones, with today's secrets and with new connections, are made on their next use."""
        self.close()
        self.errors.clear()
        self._fingerprint = None

    def close(self) -> None:
        """Close the clients that were made; never waits for a broker. A producer drops what it has not sent."""
        self.topics.clear()
        clients = [self.__dict__.pop(name, None) for name in ("consumer", "native_consumer", "native_producer")]
        for name in ("admin", "producer"):
            self.__dict__.pop(name, None)  # closed with the last reference
        for client in clients:
            if client is not None:
                client.close()


def _without_callbacks(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the properties for a client of the native kernel, which has no callbacks: see `note_reports`."""
    return [(name, str(value)) for name, value in config.items() if name not in ("logger", "error_cb")]


def usable_implementation(
    wanted: Implementation, properties: Mapping[str, str], option: str
) -> tuple[Literal["native", "python"], str]:
    """Return what reads or writes a cluster, and the same in words.

    Args:
        wanted: The user's wish.
        properties: The properties to reach the cluster.
        option: The name of the option with the wish, for errors.

    Raises:
        DynamicKafkaError: If the native kernel is wanted and not installed, or cannot be used.
    """
    if implementation(wanted, option) == "python":
        return "python", "Python"
    try:
        calls = calls_python(properties)
    except ConfigurationError:
        calls = False  # the client cannot be made, whichever it is: its user says so
    if calls:
        return "python", "Python (its tokens come from Python code, which the native kernel does not call)"
    return "native", "the native kernel"


def calls_python(properties: Mapping[str, str]) -> bool:
    """Return whether clients with these properties call Python back, as confluent-kafka does for tokens of AWS."""
    source = "sasl.oauthbearer.metadata.authentication.type"
    return source in properties and resolve({source: properties[source]})[source].strip() == "aws_iam"


def pool_key(purpose: str, cluster: str, properties: Mapping[str, str], *more: Hashable) -> Hashable:
    """Return the key of a client in a `ClientPool`.

    References to secrets and key stores are looked up each time. So one that was replaced is another key and makes a new
    client.

    Args:
        purpose: The purpose, which decides on the client's settings.
        cluster: The cluster.
        properties: The properties to reach it.
        more: Everything else that makes a difference.

    Raises:
        ConfigurationError: If a reference to a secret cannot be looked up.
    """
    return purpose, cluster, fingerprint(properties), more


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise if no consumer can be made of the properties: a wrong name or value, a missing secret, an unreadable key store.

    Args:
        properties: The properties to reach a cluster.

    Raises:
        ConfigurationError: With the property.
        MissingDependencyError: If a key store needs the library `cryptography`.
    """
    config = client_config(properties, role="consumer")
    try:
        # librdkafka checks the properties in order. The last one stops it from making a client.
        Consumer({"group.id": "", **config, _UNKNOWN: ""})
    except KafkaException as error:
        reason = error.args[0].str().strip()
        if _UNKNOWN not in reason:
            raise ConfigurationError(f"{reason}; correct it in the properties of the cluster") from None


def with_known_leaders(consumer: Consumer, topics: Iterable[str], ask: Callable[[], T], *, timeout_s: float) -> T:
    """Return what `ask` returns. If the consumer knows no leader, it looks the topics up again, and is asked once more.

    A consumer keeps its metadata from a moment without leaders for minutes, unless a topic is listed.

    Args:
        consumer: The consumer that `ask` uses.
        topics: The topics to look up.
        ask: The function to call.
        timeout_s: The longest time that looking up one topic may take.

    Raises:
        KafkaException: If there is no answer, or still no leader.
    """
    try:
        return ask()
    except KafkaException as error:
        if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
            raise
    for topic in sorted(topics):
        consumer.list_topics(topic, timeout=timeout_s)
    return ask()


_clients = ClientPool[ClusterClients]()


@contextmanager
def kept_clients(
    purpose: str, cluster: str, properties: Mapping[str, str], *, consumer: ClientSettings = ClientSettings()
) -> Iterator[ClusterClients]:
    """Use a cluster's consumer and admin client for a `with` block. They are kept for the next one if it ends well.

    A connection costs more than a small read, and Spark reuses a worker process for any task. The pool holds connections and
    never positions: the consumer's assignment is empty between two uses. The arguments are those of `pool_key` and of
    `ClusterClients`.
    """
    group_id = consumer.fixed.get("group.id", "")
    key = _patiently(lambda: pool_key(purpose, cluster, properties, group_id))
    with _clients.lease(key, lambda: ClusterClients(properties, consumer=consumer)) as clients:
        clients.errors.clear()  # errors from the time without use may be over
        yield clients
        if "consumer" in clients.__dict__:
            clients.consumer.unassign()
        if "native_consumer" in clients.__dict__:
            clients.native_consumer.assign([], [], "")


def _patiently(key: Callable[[], Hashable]) -> Hashable:
    """Return the key. A secret that is missing is waited for, because it may be about to be replaced."""
    deadline = time.monotonic() + _SECRET_PATIENCE_S
    while True:
        try:
            return key()
        except ConfigurationError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_SECRET_RETRY_S)

"""Making of librdkafka's consumers, admin clients and producers, and the errors that they report in the background."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.config.properties import Role, client_config
from dynamic_kafka.kafka.config.secrets import fingerprint, has_changed, hide
from dynamic_kafka.kafka.config.tokens import Token, TokenSource, token_source
from dynamic_kafka.kafka.logins import note_accepted, rest_after_refusal, without_token_answer
from dynamic_kafka.kafka.pool import ClientPool
from dynamic_kafka.native import kernel

__all__ = [
    "LIBRDKAFKA_LOG",
    "LOG_END",
    "LOG_START",
    "QUESTIONS",
    "BackgroundErrors",
    "ClientSettings",
    "ClusterClients",
    "Statistics",
    "check_properties",
    "kept_clients",
    "log_offsets",
    "pool_key",
    "with_known_leaders",
]

T = TypeVar("T")

_UNKNOWN = "no.such.property"
_FIRST_TURN_S, _LATER_TURN_S = 0.3, 2.0
_NO_ANSWER = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
# The broker ends a TLS connection, as for a client's certificate that it does not trust; 80 is an error of its own.
_ALERT = re.compile(r"SSL alert number (?!80\b)")
# librdkafka quotes the value when it makes an unsecured token.
_UNSECURED = re.compile(r"(sasl\.oauthbearer\.config[^:]*: ).*", re.DOTALL)
_SECRET_PATIENCE_S = 10.0
_SECRET_RETRY_S = 0.2
LOG_START: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LOG_END: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
LIBRDKAFKA_LOG = logging.getLogger("dynamic_kafka.librdkafka")

# As in Java's clients (request.timeout.ms). A broker, or a dead connection that nobody closes, keeps a client waiting for as
# long; librdkafka's default is 60 s. The driver's questions are small, so they wait less.
_REQUEST_TIMEOUT = {"socket.timeout.ms": "30000"}
QUESTIONS = {"socket.timeout.ms": "10000"}
"""Defaults of a client that asks and does not transfer records."""

_CALLBACKS = ("logger", "error_cb", "stats_cb", "oauth_cb")
# No consumer of ours joins a group or lets librdkafka choose where to begin.
_CONSUMER = {"enable.auto.commit": "false", "enable.auto.offset.store": "false", "auto.offset.reset": "error"}


def _demote(record: logging.LogRecord) -> bool:
    """Make librdkafka's log lines debug lines.

    A broker that is down makes librdkafka log several errors a second. What matters of them is in our errors (see
    `BackgroundErrors`).
    """
    record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    record.msg, record.args = _shown(record.getMessage()), ()
    return LIBRDKAFKA_LOG.isEnabledFor(logging.DEBUG)


def _shown(text: str) -> str:
    return without_token_answer(_UNSECURED.sub(r"\1***", text))


LIBRDKAFKA_LOG.addFilter(_demote)


@dataclass
class BackgroundErrors:
    """The errors that clients reported outside of any call. They often say more than the "timed out" of a call.

    Call `clear` after an answer, or before a new request.

    Attributes:
        last: The text of the last error; "" if there was none. "All brokers are down" follows an error that says why, and
            does not replace it.
        authentication_failed: True if a login was refused, or the TLS handshake failed, as with a certificate that one side
            does not trust. librdkafka goes on trying, some times a second: whoever waits has to stop and close the client.
        tls_failed: True if it was the TLS handshake.
        group_denied: True if a right on the consumer group is missing.
    """

    last: str = ""
    authentication_failed: bool = False
    tls_failed: bool = False
    group_denied: bool = False
    _no_token: str = ""

    def note_no_token(self, error: Exception) -> None:
        """Keep the reason why no token could be made: librdkafka reports only that there is none."""
        self._no_token = str(error)

    def note(self, error: KafkaError) -> None:
        """Take an error from librdkafka (`error_cb`)."""
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            self.group_denied = True
        tls_failed = error.code() == KafkaError._SSL or _ALERT.search(error.str()) is not None
        if error.code() == KafkaError._AUTHENTICATION or tls_failed:
            self.authentication_failed, self.tls_failed = True, tls_failed
            if self._no_token:
                self.last, self._no_token = self._no_token, ""
                return
        elif self.last and error.code() == KafkaError._ALL_BROKERS_DOWN:
            return
        self.last = _shown(error.str())

    def clear(self) -> None:
        """Forget all errors."""
        self.last = self._no_token = ""
        self.authentication_failed = self.tls_failed = self.group_denied = False

    @property
    def verdict(self) -> str:
        """What the cluster does, as it reads after its name."""
        if self.tls_failed:
            return "fails the TLS handshake"
        return "refuses the login" if self.authentication_failed else "does not answer"


@dataclass
class Statistics:
    """The last statistics of a client, if they were asked for.

    A record of its own, because a client's callbacks must not refer to the owner of the client (`ClusterClients._config`).

    Attributes:
        last: Their JSON text; "" if there are none since the last call of `take`.
    """

    last: str = ""

    def note(self, text: str) -> None:
        """Take them from librdkafka (`stats_cb`)."""
        self.last = text

    def take(self) -> str:
        """Return the last statistics, once; "" if there are no new ones."""
        found, self.last = self.last, ""
        return found


@dataclass(frozen=True)
class ClientSettings:
    """The properties that a purpose needs, in librdkafka's names.

    Args:
        defaults: The user's properties win over these.
        fixed: These win over the user's properties.
        statistics_ms: If above 0, the time between two statistics of a client.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    statistics_ms: int = 0


class ClusterClients:
    """The clients of one cluster that belong together, each made on its first use.

    Those of confluent-kafka ask questions and write what is not of users; those of the native kernel transfer records.

    Args:
        properties: The properties to reach the cluster.
        consumer: The settings of the consumer, `group.id` above all.
        producer: The settings of the producer.

    Attributes:
        errors: The errors that the clients reported in the background.
        topics: The topics that the consumer was assigned to, as its users have noted them.
        properties: The properties to reach the cluster, as they were given.
        statistics: The last statistics, if the settings ask for them.
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
        self.properties = dict(properties)
        self.statistics = Statistics()
        self._consumer, self._producer = consumer, producer
        self._tokens: dict[str, Iterator[Token]] = {}
        self._fingerprint: Hashable = None
        self._has_answered = False
        self._refusals = 0

    @cached_property
    def consumer(self) -> Consumer:
        """The consumer for questions. Nothing is assigned to it at first."""
        return self._made(lambda: Consumer(self._config("consumer", self._consumer) | _CONSUMER))

    @cached_property
    def fetching_consumer(self) -> Any:
        """The kernel's consumer, made of the same properties. Nothing is assigned to it at first."""
        config = self._config("consumer", self._consumer) | _CONSUMER
        return self._of_kernel("fetching_consumer", kernel().Consumer, config)

    @cached_property
    def admin(self) -> AdminClient:
        """The admin client."""
        return self._made(lambda: AdminClient(self._config("admin", ClientSettings(QUESTIONS))))

    @cached_property
    def producer(self) -> Producer:
        """The producer of the commit log's records."""
        return self._made(lambda: Producer(self._config("producer", self._producer)))

    @cached_property
    def record_producer(self) -> Any:
        """The kernel's producer, made of the same properties."""
        config = self._config("producer", self._producer)
        return self._of_kernel("record_producer", kernel().Producer, config)

    def _of_kernel(self, name: str, make: Callable[..., Any], config: Mapping[str, Any]) -> Any:
        """Return a new client of the kernel, with a token if it wants any. It has no callbacks: see `note_reports`."""
        texts = [(key, str(value)) for key, value in config.items() if key not in _CALLBACKS]
        make_token = config.get("oauth_cb")
        client = self._made(lambda: make(texts, make_token is not None))
        if make_token is not None:
            # Some calls wait for the login and take no reports meanwhile, so the first token is given at once. The client
            # asks for it all the same.
            first = make_token("")
            _give(client, first)
            self._tokens[name] = chain([first], iter(lambda: make_token(""), None))
        return client

    def _made(self, make: Callable[[], T]) -> T:
        """Return a new client. librdkafka quotes values that it cannot use: its error shows references in their place."""
        try:
            return make()
        except KafkaException as error:
            found: KafkaError = error.args[0]
            raise KafkaException(KafkaError(found.code(), hide(found.str(), self.properties))) from None

    def _config(self, role: Role, settings: ClientSettings) -> dict[str, Any]:
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self.properties)
        source = token_source(self.properties)
        # The callback belongs to the record of errors, not to this object. A client that referred to its owner would wait
        # for the garbage collector, which hardly ever runs in a quiet process.
        config = {
            **_REQUEST_TIMEOUT,
            **settings.defaults,
            **client_config(self.properties, role=role),
            "logger": LIBRDKAFKA_LOG,
            **settings.fixed,
            "error_cb": self.errors.note,
            **({} if source is None else {"oauth_cb": _token_callback(source, self.errors)}),
        }
        if settings.statistics_ms:
            config |= {"statistics.interval.ms": settings.statistics_ms, "stats_cb": self.statistics.note}
        return config

    def poll(self) -> None:
        """Call the callbacks that are due, without waiting. A consumer with an assignment would lose a record by it."""
        self._poll("consumer", "admin", "producer")
        self.note_reports()

    def _poll(self, *names: str) -> None:
        for name in names:
            if name in self.__dict__:
                try:
                    message = self.__dict__[name].poll(0)
                    # A consumer tells of a group that it may not use by a message.
                    if name == "consumer" and message is not None and message.error() is not None:
                        self.errors.note(message.error())
                except KafkaException as error:  # confluent-kafka raises fatal errors instead of calling error_cb
                    self.errors.note(error.args[0])

    def note_reports(self) -> None:
        """Note the errors and statistics of the kernel's clients, log their lines, and give them the tokens that they want.

        For the others the callbacks do that.
        """
        for name, settings in (("fetching_consumer", self._consumer), ("record_producer", self._producer)):
            if name in self.__dict__:
                errors, lines, statistics, wants_token = self.__dict__[name].reports()
                for code, text in errors:
                    self.errors.note(KafkaError(code, text))
                logger = settings.fixed.get("logger", LIBRDKAFKA_LOG)
                for line in lines:
                    logger.log(logging.DEBUG, "%s", line)
                if statistics is not None:
                    self.statistics.note(statistics)
                if wants_token:
                    self._give_token(name)

    def _give_token(self, name: str) -> None:
        client = self.__dict__[name]
        try:
            _give(client, next(self._tokens[name]))
        except Exception as error:  # noqa: BLE001  librdkafka reports it, and asks again
            self.errors.note_no_token(error)
            client.refuse_token(str(error))

    def ask(self, question: Callable[[float], T], timeout_s: float) -> T:
        """Ask with a short time-out first, and again with longer ones, so that a refused login is noticed soon.

        Args:
            question: The function that asks, with a time-out in seconds. It may be called several times.
            timeout_s: The longest time for all of them.

        Raises:
            KafkaException: If there is no answer, or as soon as a login was refused.
        """
        # Once in, a cluster that is far away needs no short turns.
        deadline, turn_s = time.monotonic() + timeout_s, _LATER_TURN_S if self._has_answered else _FIRST_TURN_S
        while True:
            left_s = deadline - time.monotonic()
            is_last = left_s <= 2 * turn_s
            began = time.monotonic()
            try:
                answer = question(max(left_s, 0.001) if is_last else turn_s)
            except KafkaException as error:
                self.poll()
                if self.errors.group_denied:
                    raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)) from error
                if is_last or self.errors.authentication_failed or error.args[0].code() not in _NO_ANSWER:
                    raise
            else:
                self.note_answer()
                return answer
            time.sleep(max(0.0, min(_FIRST_TURN_S, began + turn_s - time.monotonic())))  # some errors come at once
            turn_s *= 3

    def result(self, future: Future[T]) -> T:
        """Return the answer to a request of the admin client.

        Raises:
            KafkaException: If there is none in the time of the request, or as soon as a login was refused.
        """
        while not future.done():
            with suppress(FutureTimeoutError):
                answer = future.result(_FIRST_TURN_S)
                self.note_answer()
                return answer
            self._poll("admin")  # not the consumer, which may be reading
            if self.errors.authentication_failed:
                raise KafkaException(KafkaError(KafkaError._AUTHENTICATION, self.errors.last))
        return future.result()

    def kafka_id(self, timeout_s: float) -> str:
        """Return Kafka's own cluster.id; "" if the broker does not report it.

        Raises:
            KafkaException: If there is no answer in time, or as soon as a login was refused.
        """
        # Consumer.cluster_id() waits up to a second in a fresh client (measured); the admin client answers in one round.
        return self.result(self.admin.describe_cluster(request_timeout=timeout_s)).cluster_id or ""

    def note_answer(self) -> None:
        """Note that the cluster has answered, so that the login works."""
        if not self._has_answered:
            self._has_answered, self._refusals = True, 0
            note_accepted(self.properties)

    def rest_after_refusal(self, deadline: float) -> bool:
        """Wait after a refused login, and renew the clients. Return False if the login is not to be tried again.

        The arguments are those of `logins.rest_after_refusal`, which has the rules.
        """
        self._refusals += 1
        rested = rest_after_refusal(self.properties, self.is_outdated, self._refusals, deadline)
        if rested:
            self.renew()
        return rested

    def reason(self) -> str:
        """Return what the clients heard in the background; "" if nothing. It may ask a broker for its certificate."""
        last = self.errors.last
        if last.endswith("brokers are down"):  # also what a listener with another protocol looks like
            last += ": check bootstrap.servers, and that security.protocol is the listener's"
        if "Disconnected" in last and "SSL_HANDSHAKE" in last:
            return "a broker ends the TLS handshake without a word: check that security.protocol is the listener's"
        if self.errors.tls_failed and "certificate" in last:
            from dynamic_kafka.kafka.transactions.security import why_untrusted

            last = why_untrusted(self.properties) or last
            if _ALERT.search(last):
                last += "; the broker asks for a certificate of this client, or does not trust its own (ssl.keystore.*)"
        return last

    def poll_idle(self) -> bool:
        """Poll. Return False after a refused login: the client may hold old secrets (see `ClientPool`)."""
        self.poll()
        return not self.errors.authentication_failed

    def is_outdated(self) -> bool:
        """Return whether a secret or a file behind the properties was replaced since the first client was made."""
        return self._fingerprint is not None and has_changed(self.properties, self._fingerprint)

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
        self._has_answered = False
        clients = [self.__dict__.pop(name, None) for name in ("consumer", "fetching_consumer", "record_producer")]
        for name in ("admin", "producer"):
            self.__dict__.pop(name, None)  # closed with the last reference
        for client in clients:
            if client is not None:
                client.close()


def _token_callback(source: TokenSource, errors: BackgroundErrors) -> Callable[[str], Token]:
    """Return confluent-kafka's `oauth_cb`. It is called again before a token expires.

    The first token is made here. A client that gets none blocks for ten seconds, and then does not say why.

    Raises:
        ConfigurationError: If no token can be made.
    """
    try:
        first = [source()]
    except DynamicKafkaError as error:
        errors.last, errors.authentication_failed = str(error), True
        raise

    def make(_: str) -> Token:
        if first:
            return first.pop()
        try:
            return source()
        except Exception as error:
            errors.note_no_token(error)
            raise

    return make


def _give(client: Any, token: Token) -> None:
    client.give_token(token.text, int(token.expires_at_s * 1000), token.principal, list(token.extensions.items()))


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
        reason = hide(error.args[0].str().strip(), properties)
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


def log_offsets(
    clients: ClusterClients, partitions: Collection[KafkaTopicPartition], which: OffsetSpec, timeout_s: float
) -> dict[KafkaTopicPartition, int]:
    """Return where logs start or end (`LOG_START`, `LOG_END`), for the partitions whose leader answers.

    The end is that of all records, also under read_committed: an open transaction does not make a log shorter.
    """
    if not partitions:
        return {}
    futures = clients.admin.list_offsets({TopicPartition(*tp): which for tp in partitions}, request_timeout=timeout_s)
    found = {}
    for tp, future in futures.items():
        with suppress(KafkaException):  # no leader answers
            found[KafkaTopicPartition(tp.topic, tp.partition)] = clients.result(future).offset
    return found


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
    key = _patiently(lambda: pool_key(purpose, cluster, properties, group_id, consumer.statistics_ms))
    with _clients.lease(key, lambda: ClusterClients(properties, consumer=consumer)) as clients:
        clients.errors.clear()  # errors from the time without use may be over
        yield clients
        if "consumer" in clients.__dict__:
            clients.consumer.unassign()
        if "fetching_consumer" in clients.__dict__:
            clients.fetching_consumer.assign([], [], "")


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

"""One connection to one broker, in Kafka's protocol over a plain blocking socket.

kafka-python provides the messages and the SASL mechanisms. Its network loop is not used, for these reasons (3.0.12): its TLS
handshake has no time-out, its admin client leaves a thread behind when it cannot connect, the cause is only in its log, and
at debug level that log holds passwords. Blocking sockets need no thread, and each call ends at its deadline.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from dynamic_kafka.kafka.transactions.security import ConnectionSettings, LoginError

__all__ = ["BrokerError", "Connection", "Step"]

_MAX_ANSWER_BYTES = 100_000_000
_UNSUPPORTED_VERSION = 35


class Step(StrEnum):
    """The steps of connecting to a broker, in their order."""

    DNS = "DNS"
    TCP = "TCP"
    TLS = "TLS"
    VERSIONS = "ApiVersions"
    LOGIN = "login"


class BrokerError(Exception):
    """A broker answered with an error.

    Args:
        code: Kafka's error code.
        subject: The transactional id it is about; "" if it is about none.
    """

    def __init__(self, code: int, subject: str = "") -> None:
        from dynamic_kafka.kafka.transactions.kafka_python import AuthorizationError, for_code

        kind = for_code(code)
        super().__init__(f"{kind.message} (error {code})")
        self.code, self.subject = code, subject
        self.retriable: bool = kind.retriable
        self.unauthorized: bool = issubclass(kind, AuthorizationError)
        self.unsupported = code == _UNSUPPORTED_VERSION


class Connection:
    """A connection to one broker, logged in: requests out, answers back in their order.

    Args:
        address: Host and port.
        settings: The cluster's security.
        deadline: The end of the time allowed, by `time.monotonic()`; the same in the methods.
        on_step: Called at the beginning of each step.

    Raises:
        OSError: If the broker does not answer in time. All methods raise it.
        LoginError: If the broker refuses the login, or cannot be trusted.
        BrokerError: If the broker is too old.
    """

    def __init__(
        self,
        address: tuple[str, int],
        settings: ConnectionSettings,
        deadline: float,
        on_step: Callable[[Step], None] = lambda _: None,
    ) -> None:
        self._address = f"{address[0]}:{address[1]}"
        self._client_id = settings.client_id
        self._sent: deque[Any] = deque()
        self._number = 0
        self._versions: Any = None
        self._socket = _connected(address, min(deadline, time.monotonic() + settings.connect_timeout_s), on_step)
        try:
            if settings.tls is not None:
                on_step(Step.TLS)
                self._socket = self._with_tls(settings.tls, address[0], deadline)
            on_step(Step.VERSIONS)
            self._versions = self._ask_versions(deadline)
            if settings.sasl:
                on_step(Step.LOGIN)
                self._log_in(settings.sasl, address[0], deadline)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close it; unread answers are lost."""
        self._socket.close()

    def send(self, request: Any, deadline: float) -> None:
        """Send one of kafka-python's requests, in the newest version that it and the broker allow."""
        from dynamic_kafka.kafka.transactions.kafka_python import IncompatibleBrokerVersion

        if request.API_VERSION is None:
            try:
                request.API_VERSION = self._versions.api_version(request)
            except IncompatibleBrokerVersion:
                raise BrokerError(_UNSUPPORTED_VERSION) from None
        self._number += 1
        request.with_header(correlation_id=self._number, client_id=self._client_id)
        self._sent.append(request.header)
        self._socket.settimeout(_left(deadline))
        with _naming(self._address):
            self._socket.sendall(request.encode(framed=True, header=True))

    def receive(self, deadline: float) -> Any:
        """Return the answer to the oldest request that has none yet."""
        with _naming(self._address):
            (size,) = struct.unpack(">i", self._read(4, deadline))
            if not 0 < size <= _MAX_ANSWER_BYTES:
                raise ConnectionError("the answer is not in Kafka's protocol; check security.protocol and the port")
            data = self._read(size, deadline)
            request = self._sent.popleft()
            try:
                answer = request.get_response_class().decode(data, header=True)
            except (ValueError, struct.error) as error:
                raise ConnectionError("the answer cannot be decoded") from error
            if answer.header.correlation_id != request.correlation_id:
                raise ConnectionError("the answer belongs to another request")
        return answer

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._socket.settimeout(_left(deadline))
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            data += chunk
        return bytes(data)

    def _with_tls(self, tls: ssl.SSLContext, host: str, deadline: float) -> ssl.SSLSocket:
        self._socket.settimeout(_left(deadline))
        with _naming(self._address):
            return tls.wrap_socket(self._socket, server_hostname=host)

    def _ask_versions(self, deadline: float) -> Any:
        from dynamic_kafka.kafka.transactions.kafka_python import ApiVersionsRequest, BrokerVersionData

        self.send(ApiVersionsRequest(version=0), deadline)  # the version that every broker knows
        try:
            answer = self.receive(deadline)
        except ConnectionError as error:
            raise ConnectionError(f"{error}; check security.protocol") from error
        return BrokerVersionData(
            api_versions={api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        )

    def _log_in(self, sasl: Mapping[str, Any], host: str, deadline: float) -> None:
        from dynamic_kafka.kafka.transactions.kafka_python import (
            SaslAuthenticateRequest,
            SaslHandshakeRequest,
            get_sasl_mechanism,
        )

        name = sasl["sasl_mechanism"]
        self.send(SaslHandshakeRequest(mechanism=name, min_version=1), deadline)
        answer = self.receive(deadline)
        if answer.error_code:
            offered = ", ".join(answer.mechanisms) or "nothing"
            raise LoginError(f"{self._address} does not support sasl.mechanism {name}; it offers {offered}")
        if tokens := sasl.get("sasl_oauth_token_provider"):
            tokens.timeout_s = _left(deadline)
        mechanism = get_sasl_mechanism(name)(host=host, **sasl)
        while not mechanism.is_done():
            self.send(SaslAuthenticateRequest(auth_bytes=mechanism.auth_bytes(), max_version=1), deadline)
            answer = self.receive(deadline)
            if answer.error_code:
                raise LoginError(f"{self._address}: {answer.error_message or BrokerError(answer.error_code)}")
            try:
                mechanism.receive(answer.auth_bytes)
            except ValueError as error:  # the other side does not know the password either
                raise LoginError(f"{self._address}: {error}") from error
        if not mechanism.is_authenticated():
            raise LoginError(f"{self._address} did not confirm the login")


def _connected(address: tuple[str, int], deadline: float, on_step: Callable[[Step], None]) -> socket.socket:
    # Like socket.create_connection, but that has a time-out for each of a name's addresses, not for all of them.
    with _naming(f"{address[0]}:{address[1]}"):
        reason: OSError = ConnectionError("the host name has no address")
        on_step(Step.DNS)
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
        on_step(Step.TCP)
        for family, kind, protocol, _, target in found:
            candidate = socket.socket(family, kind, protocol)
            try:
                candidate.settimeout(_left(deadline))
                candidate.connect(target)
                candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                candidate.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            except OSError as error:
                candidate.close()
                reason = error
            else:
                return candidate
        raise reason


@contextmanager
def _naming(address: str) -> Iterator[None]:
    """Add the address to errors. Errors that may pass become an OSError, the others a LoginError."""
    try:
        yield
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError) as error:
        raise ConnectionError(
            f"{address}: the broker closed the connection during the TLS handshake; check security.protocol"
        ) from error
    except ssl.SSLCertVerificationError as error:
        raise LoginError(f"{address}: the broker's certificate is not trusted: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise LoginError(f"{address}: TLS: {error.reason or error}") from error
    except OSError as error:
        raise ConnectionError(f"{address}: {error.strerror or error}") from error


def _left(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s

"""From librdkafka's properties to the settings of a connection: servers, TLS, and the login.

A property that says how to connect is translated, or is an error. A property that tunes librdkafka's own threads and queues
is ignored.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import socket
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError, InvalidOptionError
from dynamic_kafka.kafka.config.properties import client_config
from dynamic_kafka.kafka.config.secrets import hidden
from dynamic_kafka.kafka.config.tokens import TokenSource, token_source

__all__ = ["ConnectionSettings", "LoginError", "cluster_settings", "connection_settings", "why_untrusted"]

_CERTIFICATE_S = 3.0
_MOST_ASKED = 3
_LARGEST_ANSWER = 2**20
_STATUS = {int(status): status.phrase for status in HTTPStatus}
_DEFAULT_PORT = 9092
_DEFAULT_CONNECT_TIMEOUT_MS = 10_000  # Java's default
_DEFAULT_CLIENT_ID = "dynamic-kafka"

# They change how a connection is made, and Python's ssl has no equivalent.
_NO_COUNTERPART = ("ssl.curves.list", "ssl.sigalgs.list", "ssl.engine.id", "ssl.engine.location", "ssl.providers")


class LoginError(Exception):
    """Raised when a broker refuses the login, or its certificate is not trusted: another try would not help."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """A cluster's addresses and security.

    Args:
        servers: Host and port of each bootstrap server.
        client_id: Kafka's client.id.
        connect_timeout_s: The longest time that one address may take to accept a connection.
        tls: The TLS context; None for plain text.
        sasl: The arguments of kafka-python's SASL mechanism, with secrets in clear; empty for no login.
    """

    servers: tuple[tuple[str, int], ...]
    client_id: str = _DEFAULT_CLIENT_ID
    connect_timeout_s: float = _DEFAULT_CONNECT_TIMEOUT_MS / 1000
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    sasl: Mapping[str, Any] = field(default_factory=dict, repr=False)


def connection_settings(config: Mapping[str, str], source: TokenSource | None = None) -> ConnectionSettings:
    """Translate librdkafka's properties. Reads the PEM files that they name, and nothing else.

    Args:
        config: librdkafka's properties with secrets in clear, as `client_config` gives them.
        source: The maker of tokens, if a cloud's library makes them.

    Raises:
        ConfigurationError: If a property that says how to connect is missing, wrong or not supported.
    """
    protocol = config.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise InvalidOptionError("security.protocol", protocol, "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL")
    connect_timeout = config.get("socket.connection.setup.timeout.ms", str(_DEFAULT_CONNECT_TIMEOUT_MS))
    if not connect_timeout.isdecimal() or int(connect_timeout) == 0:
        raise InvalidOptionError("socket.connection.setup.timeout.ms", connect_timeout, "milliseconds, above 0")
    return ConnectionSettings(
        servers=_servers(config.get("bootstrap.servers", "")),
        client_id=config.get("client.id", _DEFAULT_CLIENT_ID),
        connect_timeout_s=int(connect_timeout) / 1000,
        tls=_tls(config) if protocol.endswith("SSL") else None,
        sasl=_sasl(config, source) if protocol.startswith("SASL") else {},
    )


def cluster_settings(properties: Mapping[str, str]) -> ConnectionSettings:
    """Return the settings of connections to a cluster. Secrets are looked up.

    Args:
        properties: The properties to reach the cluster, as the user gave them.

    Raises:
        ConfigurationError: If they are wrong, or a secret is missing.
        MissingDependencyError: If a key store or a login needs a library that is not installed.
    """
    config, source = client_config(properties, role="admin"), token_source(properties)
    with hidden(properties):
        return connection_settings(config, source)


def _servers(text: str) -> tuple[tuple[str, int], ...]:
    found = []
    for server in filter(None, (part.strip() for part in text.split(","))):
        try:
            parts = urlsplit("//" + server.rpartition("://")[2])  # librdkafka takes PLAINTEXT://host:port as well
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host:
            raise InvalidOptionError("bootstrap.servers", text, "host:port,host:port")
        found.append((host, port or _DEFAULT_PORT))
    if not found:
        raise ConfigurationError("Property 'bootstrap.servers' is missing; set it to the cluster's host:port,host:port")
    return tuple(found)


# --- TLS ---


def why_untrusted(properties: Mapping[str, str]) -> str:
    """Return why a cluster's certificate is not trusted, by a handshake with one of its servers; "" if that cannot be said.

    librdkafka says only that it is not. Nothing but the handshake is sent.

    Args:
        properties: The properties to reach the cluster.
    """
    try:
        settings = cluster_settings(properties)
    except DynamicKafkaError:
        return ""
    if settings.tls is None:
        return ""
    for host, port in settings.servers[:_MOST_ASKED]:
        try:
            with socket.create_connection((host, port), timeout=_CERTIFICATE_S) as plain:
                settings.tls.wrap_socket(plain, server_hostname=host).close()
        except ssl.SSLCertVerificationError as error:
            return f"{host}:{port}: the broker's certificate is not trusted: {error.verify_message.rstrip('.')}"
        except OSError:
            continue
    return ""


def _tls(config: Mapping[str, str]) -> ssl.SSLContext:
    for name in _NO_COUNTERPART:
        if config.get(name):
            raise ConfigurationError(
                f"Property '{name}' is not supported by exactly-once sinks, because their transaction requests do not go "
                "through librdkafka; leave it out, or set the same in the system's OpenSSL configuration"
            )
    context = _client_context()
    # Java trusts whatever is in the trust store, also the certificate of an intermediate authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    verify = _boolean("enable.ssl.certificate.verification", config.get("enable.ssl.certificate.verification", "true"))
    context.check_hostname = verify and config.get("ssl.endpoint.identification.algorithm", "https") != "none"
    if not verify:
        context.verify_mode = ssl.CERT_NONE
    _trust(context, config, "ssl.ca")
    with _explained("ssl.certificate.* and ssl.key.*, or the key store"):
        _identify(context, config)
    if crl := config.get("ssl.crl.location"):
        with _explained("ssl.crl.location"):
            context.load_verify_locations(cafile=crl)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if ciphers := config.get("ssl.cipher.suites"):
        with _explained("ssl.cipher.suites"):
            context.set_ciphers(ciphers)
    return context


def _client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # OpenSSL's own minimum depends on the system's configuration: none on some systems. A stricter one counts.
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    return context


def _trust(context: ssl.SSLContext, config: Mapping[str, str], prefix: str) -> None:
    """Load the authorities to trust: `<prefix>.pem`, `<prefix>.location` (a file or a folder), or else the system's."""
    pem, location = config.get(f"{prefix}.pem"), config.get(f"{prefix}.location", "probe")
    with _explained(f"{prefix}.*, or the trust store"):
        if pem:
            context.load_verify_locations(cadata=pem)
        if location != "probe":
            is_folder = Path(location).is_dir()
            context.load_verify_locations(**{"capath" if is_folder else "cafile": location})
        elif not pem:
            context.load_default_certs()


def _identify(context: ssl.SSLContext, config: Mapping[str, str]) -> None:
    with _as_file(config, "ssl.certificate") as certificate, _as_file(config, "ssl.key") as key:
        if certificate is not None:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(certificate, key, password=config.get("ssl.key.password", ""))


@contextmanager
def _as_file(config: Mapping[str, str], prefix: str) -> Iterator[str | None]:
    pem = config.get(f"{prefix}.pem")
    if not pem:
        yield config.get(f"{prefix}.location")
        return
    with ExitStack() as stack:
        try:
            # Readable by its owner only.
            file = stack.enter_context(tempfile.NamedTemporaryFile("w", prefix="dynamic-kafka-", suffix=".pem"))
            file.write(pem)
            file.flush()
        except OSError as error:
            raise ConfigurationError(
                f"Property '{prefix}.pem': Python's TLS takes it only as a file, and a temporary one cannot be written "
                f"({error.strerror}); make room in the temporary directory, or set TMPDIR to another one"
            ) from None
        yield file.name


@contextmanager
def _explained(properties: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # also ssl.SSLError
        raise ConfigurationError(
            f"TLS cannot be set up: {error.strerror or error}; check the cluster's {properties}"
        ) from error


def _boolean(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise InvalidOptionError(name, value, "true or false")
    return value.lower() == "true"


# --- the login ---


def _sasl(config: Mapping[str, str], source: TokenSource | None) -> dict[str, Any]:
    mechanism = config.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism == "OAUTHBEARER" and source is not None:
        return {"sasl_mechanism": mechanism, **_cloud(source)}
    known = {"PLAIN": _password, "SCRAM-SHA-256": _scram, "SCRAM-SHA-512": _scram, "OAUTHBEARER": _oauth}
    translate = {**known, "GSSAPI": _kerberos}.get(mechanism)
    if translate is None:
        raise ConfigurationError(f"Property 'sasl.mechanism' is '{mechanism}'; expected one of {', '.join(known)}")
    return {"sasl_mechanism": mechanism, **translate(config)}


def _password(config: Mapping[str, str]) -> dict[str, Any]:
    return {
        "sasl_plain_username": _required(config, "sasl.username"),
        "sasl_plain_password": _required(config, "sasl.password"),
    }


def _scram(config: Mapping[str, str]) -> dict[str, Any]:
    found = _password(config)
    # RFC 5802, section 5.1; kafka-python sends the name as it is.
    found["sasl_plain_username"] = found["sasl_plain_username"].replace("=", "=3D").replace(",", "=2C")
    return found


def _kerberos(config: Mapping[str, str]) -> dict[str, Any]:
    if importlib.util.find_spec("gssapi") is None:
        raise ConfigurationError(
            "sasl.mechanism GSSAPI (Kerberos) needs the library gssapi for the transactions of an exactly-once sink. "
            "Run pip install gssapi on the driver, as docs/guides/security.md says, or use SCRAM, OAUTHBEARER or "
            "certificates on that cluster"
        )
    # The ticket is the one in the credential cache, which librdkafka's kinit fills.
    return {"sasl_kerberos_service_name": config.get("sasl.kerberos.service.name", "kafka")}


def _oauth(config: Mapping[str, str]) -> dict[str, Any]:
    from dynamic_kafka.kafka.transactions.kafka_python import AbstractTokenProvider

    if config.get("sasl.oauthbearer.method", "").lower() != "oidc":
        raise ConfigurationError(
            "sasl.mechanism OAUTHBEARER needs a token endpoint for the transactions of an exactly-once sink; set "
            "sasl.oauthbearer.method=oidc and sasl.oauthbearer.token.endpoint.url (unsecured tokens are not supported)"
        )
    grant = config.get("sasl.oauthbearer.grant.type", "client_credentials")
    managed = config.get("sasl.oauthbearer.metadata.authentication.type", "none")
    if grant != "client_credentials" or managed != "none":
        raise ConfigurationError(
            f"sasl.oauthbearer.{'grant.type' if managed == 'none' else 'metadata.authentication.type'} is not supported "
            "by exactly-once sinks; use the grant type client_credentials with a client id and a secret"
        )
    AbstractTokenProvider.register(ClientCredentials)
    return {"sasl_oauth_token_provider": ClientCredentials(config)}


def _cloud(source: TokenSource) -> dict[str, Any]:
    from dynamic_kafka.kafka.transactions.kafka_python import AbstractTokenProvider

    AbstractTokenProvider.register(CloudTokens)
    return {"sasl_oauth_token_provider": CloudTokens(source)}


class CloudTokens:
    """kafka-python's token provider over a `TokenSource`, which has time-outs of its own."""

    timeout_s = 0.0

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._extensions: dict[str, str] = {}

    def token(self) -> str:
        """Return a new token."""
        token = self._source()
        self._extensions = token.extensions
        return token.text

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions of the last token."""
        return self._extensions


class ClientCredentials:
    """kafka-python's token provider. It asks the endpoint for a token for each connection, because there are few.

    `timeout_s` is the longest time that the endpoint may take; set it before each use.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self._url = _required(config, "sasl.oauthbearer.token.endpoint.url")
        parts = urlsplit(self._url)
        self._host = parts.hostname  # only this part of the address is shown: the rest may hold secrets
        if parts.scheme not in ("http", "https"):
            raise InvalidOptionError(
                "sasl.oauthbearer.token.endpoint.url", f"{parts.scheme}:...", "http://... or https://..."
            )
        client = (
            f"{_required(config, 'sasl.oauthbearer.client.id')}:{_required(config, 'sasl.oauthbearer.client.secret')}"
        )
        self.timeout_s = 0.0
        self._authorization = "Basic " + base64.b64encode(client.encode()).decode()
        self._form = {"grant_type": "client_credentials"}
        if scope := config.get("sasl.oauthbearer.scope"):
            self._form["scope"] = scope
        pairs = (pair.partition("=") for pair in config.get("sasl.oauthbearer.extensions", "").split(",") if pair)
        self._extensions = {name.strip(): value for name, _, value in pairs}
        self._tls = _client_context()
        _trust(self._tls, config, "https.ca")

    def token(self) -> str:
        """Return a new access token."""
        import http.client
        import urllib.error
        import urllib.request

        of = urllib.request
        opener = of.OpenerDirector()  # without a handler of redirects: the secret is for this address
        for kind in (of.ProxyHandler, of.HTTPHandler, of.HTTPDefaultErrorHandler, of.HTTPErrorProcessor):
            opener.add_handler(kind())
        opener.add_handler(of.HTTPSHandler(context=self._tls))
        request = urllib.request.Request(  # noqa: S310  (the scheme was checked)
            self._url,
            data=urlencode(self._form).encode(),
            headers={"Authorization": self._authorization, "Accept": "application/json"},
        )
        try:
            with opener.open(request, timeout=self.timeout_s) as answer:
                return str(json.loads(answer.read(_LARGEST_ANSWER))["access_token"])
        except urllib.error.HTTPError as error:
            error.close()
            told = f"{error.code} {_STATUS.get(error.code, '')}".rstrip()  # not the server's own words
            text = f"the token endpoint on {self._host} answered {told}"
            raise (ConnectionError if error.code >= 500 else LoginError)(text) from None
        except (ValueError, KeyError, TypeError, RecursionError, http.client.HTTPException):
            raise LoginError(f"the token endpoint on {self._host} answered without an access_token") from None
        except OSError as error:
            raise ConnectionError(f"the token endpoint on {self._host} does not answer: {error}") from None

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions (KIP-342)."""
        return self._extensions


def _required(config: Mapping[str, str], name: str) -> str:
    value = config.get(name)
    if not value:
        raise ConfigurationError(f"Property '{name}' is missing; the cluster's sasl.mechanism needs it")
    return value

"""From librdkafka's properties to servers, TLS and login, as the connections for transactions need them."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.certificates import self_signed
from tests.web import WebServer

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.kafka.config.properties import client_config
from dynamic_kafka.kafka.transactions.security import (
    ClientCredentials,
    ConnectionSettings,
    LoginError,
    connection_settings,
)

SERVERS = {"bootstrap.servers": "a:1"}
TLS = {**SERVERS, "security.protocol": "SSL"}
SASL = {**SERVERS, "security.protocol": "SASL_PLAINTEXT"}
OIDC = {
    **SASL,
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "s3cret",
}


@pytest.fixture(scope="module")
def pem() -> dict[str, str]:
    """A certificate, its key, and the key encrypted with the password `s3cret`."""
    texts = (part.decode() for part in self_signed())
    return dict(zip(("certificate", "key", "encrypted"), texts, strict=True))


def tls(**properties: str) -> ssl.SSLContext:
    """The context, by properties with underscores for dots."""
    found = connection_settings({**TLS, **{name.replace("_", "."): value for name, value in properties.items()}}).tls
    assert found is not None
    return found


# --- servers ---


def test_plain_text_needs_servers_only() -> None:
    """Everything else has a default, Java's where it has one."""
    assert connection_settings(SERVERS) == ConnectionSettings(
        servers=(("a", 1),), client_id="dynamic-kafka", connect_timeout_s=10
    )


def test_names_and_times_are_taken_over() -> None:
    """client.id and how long a connection may take."""
    found = connection_settings({**SERVERS, "client.id": "me", "socket.connection.setup.timeout.ms": "500"})
    assert (found.client_id, found.connect_timeout_s) == ("me", 0.5)


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("a:1, b:2,", (("a", 1), ("b", 2))),
        ("a", (("a", 9092),)),
        ("SSL://a:1,PLAINTEXT://b", (("a", 1), ("b", 9092))),
        ("[::1]:9093,[fe80::2]", (("::1", 9093), ("fe80::2", 9092))),
    ],
)
def test_servers(text: str, servers: tuple[tuple[str, int], ...]) -> None:
    """As librdkafka reads them."""
    assert connection_settings({"bootstrap.servers": text}).servers == servers


@pytest.mark.parametrize(
    "wrong",
    [
        {"bootstrap.servers": ""},
        {"bootstrap.servers": "a:b"},
        {"bootstrap.servers": ":9092"},
        {"security.protocol": "TLS"},
        {"socket.connection.setup.timeout.ms": "soon"},
        {"socket.connection.setup.timeout.ms": "0"},
    ],
)
def test_wrong_values_are_named(wrong: dict[str, str]) -> None:
    """The error names the property."""
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=name):
        connection_settings({**SERVERS, **wrong})


# --- TLS ---


def test_tls_checks_certificates_and_names_by_default() -> None:
    """And speaks TLS 1.2 at least."""
    context = tls()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert ClientCredentials({**OIDC, "sasl.oauthbearer.token.endpoint.url": "https://a"})._tls.minimum_version >= (
        ssl.TLSVersion.TLSv1_2
    )
    assert connection_settings(SERVERS).tls is None


def test_checks_can_be_switched_off() -> None:
    """The name's alone, or all."""
    unnamed = tls(ssl_endpoint_identification_algorithm="none")
    assert (unnamed.verify_mode, unnamed.check_hostname) == (ssl.CERT_REQUIRED, False)
    off = tls(enable_ssl_certificate_verification="false")
    assert (off.verify_mode, off.check_hostname) == (ssl.CERT_NONE, False)
    with pytest.raises(ConfigurationError, match=r"enable\.ssl\.certificate\.verification"):
        tls(enable_ssl_certificate_verification="maybe")


def test_whom_to_trust(pem: dict[str, str], tmp_path: Path) -> None:
    """Authorities as PEM text, a file or a folder replace the system's; not only roots count, as in Java."""
    file = tmp_path / "ca.pem"
    file.write_text(pem["certificate"])
    for context in (tls(ssl_ca_pem=pem["certificate"]), tls(ssl_ca_location=str(file))):
        assert context.cert_store_stats()["x509"] == 1
        assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
    assert tls(ssl_ca_location=str(tmp_path)).cert_store_stats()["x509"] == 0  # read when needed
    assert tls(ssl_ca_location="probe").cert_store_stats() == tls().cert_store_stats()


def test_a_client_certificate_as_pem_leaves_no_file(
    pem: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's ssl reads it from files only: they are for their owner alone, and gone at once."""
    modes: list[int] = []
    original = ssl.SSLContext.load_cert_chain

    def load(context: ssl.SSLContext, certificate: str, key: str, password: str) -> None:
        modes.extend(Path(name).stat().st_mode & 0o777 for name in (certificate, key))
        original(context, certificate, key, password)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    tls(ssl_certificate_pem=pem["certificate"], ssl_key_pem=pem["key"])
    tls(ssl_certificate_pem=pem["certificate"], ssl_key_pem=pem["encrypted"], ssl_key_password="s3cret")
    assert modes == [0o600] * 4
    assert list(tmp_path.iterdir()) == []


def test_a_client_certificate_in_files(pem: dict[str, str], tmp_path: Path) -> None:
    """With the key in a file of its own, or in the same."""
    (tmp_path / "certificate.pem").write_text(pem["certificate"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path / "full"))
        with pytest.raises(ConfigurationError, match=r"'ssl.certificate.pem'.* cannot be written \(No such file"):
            tls(ssl_certificate_pem=pem["certificate"], ssl_key_pem=pem["key"])
    (tmp_path / "key.pem").write_text(pem["key"])
    (tmp_path / "both.pem").write_text(pem["certificate"] + pem["key"])
    tls(ssl_certificate_location=str(tmp_path / "certificate.pem"), ssl_key_location=str(tmp_path / "key.pem"))
    tls(ssl_certificate_location=str(tmp_path / "both.pem"))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"ssl.ca.pem": "no certificate"}, r"ssl\.ca\.\*, or the trust store"),
        ({"ssl.ca.location": "/nowhere/ca.pem"}, r"No such file or directory; check the cluster's ssl\.ca"),
        ({"ssl.certificate.location": "/nowhere/c.pem"}, r"ssl\.certificate\.\* and ssl\.key\.\*"),
        ({"ssl.crl.location": "/nowhere/crl.pem"}, r"ssl\.crl\.location"),
        ({"ssl.cipher.suites": "ROT13"}, r"ssl\.cipher\.suites"),
        ({"ssl.curves.list": "P-256"}, r"'ssl\.curves\.list' is not supported"),
        ({"ssl.engine.id": "hsm"}, r"'ssl\.engine\.id' is not supported"),
    ],
)
def test_what_tls_cannot_do_is_an_error(wrong: dict[str, str], told: str) -> None:
    """Never dropped silently."""
    with pytest.raises(ConfigurationError, match=told):
        connection_settings({**TLS, **wrong})


@pytest.mark.parametrize("password", [{}, {"ssl.key.password": "wrong"}])
def test_a_wrong_key_password_is_an_error(pem: dict[str, str], password: dict[str, str]) -> None:
    """A missing one, too: OpenSSL must not ask for it on the terminal."""
    config = {**TLS, "ssl.certificate.pem": pem["certificate"], "ssl.key.pem": pem["encrypted"], **password}
    with pytest.raises(ConfigurationError, match=r"ssl\.key\.\*") as caught:
        connection_settings(config)
    assert "wrong" not in str(caught.value)


def test_ciphers_are_taken_over() -> None:
    """In OpenSSL's words, as in librdkafka."""
    context = tls(ssl_cipher_suites="ECDHE-RSA-AES256-GCM-SHA384")
    assert "ECDHE-RSA-AES256-GCM-SHA384" in {cipher["name"] for cipher in context.get_ciphers()}
    assert "ECDHE-RSA-AES128-GCM-SHA256" not in {cipher["name"] for cipher in context.get_ciphers()}


# --- the login ---


@pytest.mark.parametrize("mechanism", ["PLAIN", "scram-sha-256", "SCRAM-SHA-512"])
def test_user_and_password(mechanism: str) -> None:
    """From a login module in Java's words, with the password by reference; and no secret in a repr."""
    module = "PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"
    properties = {
        **SASL,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'x.{module} required username="u" password="s3cret";',
    }
    found = connection_settings(client_config(properties, role="admin"))
    assert found.sasl == {
        "sasl_mechanism": mechanism.upper(),
        "sasl_plain_username": "u",
        "sasl_plain_password": "s3cret",
    }
    assert "s3cret" not in repr(found)


def test_scram_names_are_escaped() -> None:
    """RFC 5802: a comma and an equals sign have a meaning there; in PLAIN they have none."""
    user = {**SASL, "sasl.username": "a=b,c", "sasl.password": "=,"}
    scram = connection_settings({**user, "sasl.mechanism": "SCRAM-SHA-512"}).sasl
    assert (scram["sasl_plain_username"], scram["sasl_plain_password"]) == ("a=3Db=2Cc", "=,")
    assert connection_settings({**user, "sasl.mechanism": "PLAIN"}).sasl["sasl_plain_username"] == "a=b,c"


def test_kerberos(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs a library that says so; without a mechanism it is Kafka's default."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="pip install gssapi"):
        connection_settings(SASL)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    found = connection_settings({**SASL, "sasl.kerberos.service.name": "broker"}).sasl
    assert found == {"sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "broker"}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"sasl.mechanism": "PLAIN"}, r"'sasl\.username' is missing"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "u"}, r"'sasl\.password' is missing"),
        ({"sasl.mechanism": "X"}, "expected one of PLAIN, SCRAM"),
        ({"sasl.mechanism": "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": "true"}, "unsecured tokens"),
        (OIDC, r"'sasl\.oauthbearer\.token\.endpoint\.url' is missing"),
        ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "file:///s3cret"}, r"token\.endpoint\.url"),
        ({**OIDC, "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, r"grant\.type"),
        ({**OIDC, "sasl.oauthbearer.metadata.authentication.type": "azure_imds"}, r"metadata\.authentication\.type"),
    ],
)
def test_what_no_login_can_be_made_of_is_an_error(wrong: dict[str, str], told: str) -> None:
    """It names the property, and no secret."""
    with pytest.raises(ConfigurationError, match=told) as caught:
        connection_settings({**SASL, **wrong})
    assert "s3cret" not in str(caught.value)


@pytest.fixture
def endpoint() -> Iterator[WebServer]:
    """A token endpoint."""
    body = json.dumps({"access_token": "t0ken", "expires_in": 60}).encode()
    with WebServer(lambda _: (200, {}, body)) as server:
        server.reason = "s3cret phrase"
        server.url += "/token?tenant=s3cret"
        yield server


def token(url: str, **more: str) -> str:
    """Ask for a token, as a login does."""
    found = connection_settings({**OIDC, "sasl.oauthbearer.token.endpoint.url": url, **more}).sasl
    assert "s3cret" not in repr(found)
    provider = found["sasl_oauth_token_provider"]
    provider.timeout_s = 10
    assert provider.extensions() == ({"logicalCluster": "lkc-1", "pool": "a"} if more else {})
    return str(provider.token())


def test_a_token_is_fetched_with_client_credentials(endpoint: WebServer) -> None:
    """RFC 6749, section 4.4: id and secret as basic authentication, the scope in the form."""
    assert token(endpoint.url) == "t0ken"
    (asked,) = endpoint.requests
    assert (asked.headers["authorization"], asked.body) == ("Basic bWU6czNjcmV0", b"grant_type=client_credentials")
    extensions = {"sasl.oauthbearer.scope": "a b", "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,pool=a"}
    assert token(endpoint.url, **extensions) == "t0ken"
    assert endpoint.requests[1].body == b"grant_type=client_credentials&scope=a+b"


@pytest.mark.parametrize(
    ("status", "body", "error", "told"),
    [
        (401, b"s3cret", LoginError, "answered 401 Unauthorized"),
        (302, b"s3cret", LoginError, "answered 302 Found"),
        (307, b"s3cret", LoginError, "answered 307 Temporary Redirect"),
        (200, b"[" * 100_000, LoginError, "answered without an access_token"),
        (200, b'{"access_token": "' + b"x" * 2**20 + b'"}', LoginError, "answered without an access_token"),
        (503, b"s3cret", ConnectionError, "answered 503 Service Unavailable"),
        (200, b"<html>s3cret</html>", LoginError, "answered without an access_token"),
        (200, b'{"error": "s3cret"}', LoginError, "answered without an access_token"),
        (200, b'["s3cret"]', LoginError, "answered without an access_token"),
    ],
)
def test_no_token(endpoint: WebServer, status: int, body: bytes, error: type[Exception], told: str) -> None:
    """What may pass is told from what will not; the answer and the address' query are kept out of it."""
    endpoint.answer = lambda _: (status, {"Location": "/elsewhere"}, body)
    with pytest.raises(error, match=f"token endpoint on 127.0.0.1 {told}") as caught:
        token(endpoint.url)
    assert "s3cret" not in str(caught.value)


def test_what_is_no_token_endpoint_is_not_shown() -> None:
    """A server of another protocol begins with words of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"220 s3cret.internal ready\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(LoginError, match="without an access_token") as caught:
            token(f"http://127.0.0.1:{listening.getsockname()[1]}/token")
        thread.join()
    assert "s3cret" not in str(caught.value)


def test_no_token_endpoint() -> None:
    """An endpoint that is down may come back."""
    with pytest.raises(ConnectionError, match=r"does not answer: .*refused"):
        token("http://127.0.0.1:1/token")

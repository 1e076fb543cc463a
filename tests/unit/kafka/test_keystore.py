"""Key stores that Java's own keytool made (`tests/stores/make-stores`) become PEM that OpenSSL takes."""

from __future__ import annotations

import contextlib
import hashlib
import ssl
import struct
import sys
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError
from dynamic_kafka.kafka.config.keystore import (
    inline_pem,
    keystore_pem,
    truststore_pem,
)

PASSWORD = "test1234"
KEY_PASSWORD = "pässwörd-key"
STORES = Path(__file__).parents[2] / "stores"


def subjects(pem: str) -> list[str]:
    """The common names of the certificates, in order."""
    return [c.subject.rfc4514_string() for c in x509.load_pem_x509_certificates(pem.encode())]


def assert_pair(chain: str, key: str, folder: Path) -> None:
    """The key belongs to the first certificate, by OpenSSL's judgement."""
    (folder / "pair.pem").write_text(chain + key)

    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(folder / "pair.pem")


@pytest.mark.parametrize(
    ("name", "password"),
    [("trust.jks", PASSWORD), ("trust.jks", None), ("trust.p12", PASSWORD), ("ca.pem", None), ("ca.p12", PASSWORD)],
)
def test_trust_stores(name: str, password: str | None) -> None:
    """Every format gives the same certificate; a self-signed key pair is a trust store too, as in Java."""
    pem = truststore_pem(str(STORES / name), password)

    assert subjects(pem) == ["CN=Test CA"]
    assert pem == inline_pem((STORES / "ca.pem").read_text(), "x", "CERTIFICATE")


def test_the_name_of_the_file_means_nothing(tmp_path: Path) -> None:
    """A PKCS12 store named .jks, which is what today's keytool makes, is read."""
    path = tmp_path / "truststore.jks"
    path.write_bytes((STORES / "trust.p12").read_bytes())

    assert subjects(truststore_pem(str(path), PASSWORD)) == ["CN=Test CA"]


@pytest.mark.parametrize(
    ("name", "key_password"),
    [("client.jks", None), ("client.jks", PASSWORD), ("own-password.jks", KEY_PASSWORD), ("client.p12", None)],
)
def test_key_stores(tmp_path: Path, name: str, key_password: str | None) -> None:
    """Chain and key come out of JKS and PKCS12, leaf first, and belong together."""
    chain, key = keystore_pem(str(STORES / name), PASSWORD, key_password)

    assert subjects(chain) == ["CN=client", "CN=Test CA"]
    assert_pair(chain, key, tmp_path)


@pytest.mark.parametrize("password", [None, "secret"])
def test_pem_key_stores(tmp_path: Path, password: str | None) -> None:
    """A PEM file with chain and key is a key store; an encrypted key is opened with ssl.key.password."""
    chain, key = keystore_pem(str(STORES / "client.p12"), PASSWORD, None)
    loaded = serialization.load_pem_private_key(key.encode(), None)
    encryption = serialization.BestAvailableEncryption(password.encode()) if password else None
    text = loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        encryption or serialization.NoEncryption(),
    ).decode()
    path = tmp_path / "store.pem"
    path.write_text(f"Bag Attributes: none\n{chain}{text}")

    assert_pair(*keystore_pem(str(path), None, password), tmp_path)
    if password:
        with pytest.raises(ConfigurationError, match=r"encrypted; set ssl\.key\.password"):
            keystore_pem(str(path), None, None)
        with pytest.raises(ConfigurationError, match=r"ssl\.key\.password does not open"):
            keystore_pem(str(path), None, "wrong")


@pytest.mark.parametrize("separator", [" ", "\\n", "\r\n"])
def test_pem_on_one_line(separator: str) -> None:
    """PEM whose line breaks became spaces or the two characters backslash and n is put right."""
    text = (STORES / "ca.pem").read_text()

    one_line = separator.join(text.splitlines())
    assert inline_pem(text, "x", "CERTIFICATE") == inline_pem(one_line, "x", "CERTIFICATE")


@pytest.mark.parametrize("text", ["", "hunter2", "-----BEGIN CERTIFICATE-----\nhunter2!\n-----END CERTIFICATE-----"])
def test_inline_pem_that_is_none(text: str) -> None:
    """The error names the property and shows nothing of the value."""
    for label in ("CERTIFICATE", "PRIVATE KEY"):
        with pytest.raises(ConfigurationError, match=r"'ssl\.some'") as caught:
            inline_pem(text, "ssl.some", label)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["client.jks", "client.p12"])
def test_wrong_store_password(name: str) -> None:
    """The error names the file, the property of the location and the one of the password, not the password."""
    path = str(STORES / name)
    with pytest.raises(ConfigurationError) as keys:
        keystore_pem(path, "hunter2", None)
    with pytest.raises(ConfigurationError) as trust:
        truststore_pem(path, "hunter2")

    assert f"Property 'ssl.keystore.location', key store '{path}': ssl.keystore.password does not" in str(keys.value)
    assert f"Property 'ssl.truststore.location', key store '{path}': ssl.truststore.password" in str(trust.value)
    assert "hunter2" not in str(keys.value) + str(trust.value)


def test_wrong_key_password() -> None:
    """A key with a password of its own asks for ssl.key.password."""
    with pytest.raises(ConfigurationError, match=r"set ssl\.key\.password"):
        keystore_pem(str(STORES / "own-password.jks"), PASSWORD, None)


def test_missing_passwords() -> None:
    """Where Java needs a password the error says which."""
    with pytest.raises(ConfigurationError, match=r"set ssl\.keystore\.password, or ssl\.key\.password"):
        keystore_pem(str(STORES / "client.jks"), None, None)
    with pytest.raises(ConfigurationError, match=r"set ssl\.truststore\.password"):
        truststore_pem(str(STORES / "trust.p12"), None)


def test_stores_that_cannot_serve(tmp_path: Path) -> None:
    """No key, two keys, nothing to trust, another format, no file: each says what to do."""
    with pytest.raises(ConfigurationError, match="holds 0 private keys"):
        keystore_pem(str(STORES / "trust.jks"), PASSWORD, None)
    with pytest.raises(ConfigurationError, match=r"holds 2 private keys .* -srcalias"):
        keystore_pem(str(STORES / "two.jks"), PASSWORD, None)
    with pytest.raises(ConfigurationError, match=r"JCEKS.*-importkeystore"):
        truststore_pem(str(STORES / "trust.jceks"), PASSWORD)
    with pytest.raises(ConfigurationError, match=r"'/no/such\.jks': it cannot be read \(No such file"):
        truststore_pem("/no/such.jks", None)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        truststore_pem(str(tmp_path), None)
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    with pytest.raises(ConfigurationError, match="is not a JKS, PKCS12 or PEM file"):
        truststore_pem(str(empty), None)
    body = bytes.fromhex("feedfeed") + struct.pack(">II", 2, 0)
    empty.write_bytes(body + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest())
    with pytest.raises(ConfigurationError, match="holds no certificate"):
        truststore_pem(str(empty), PASSWORD)


# A changed byte can make PKCS12 BER instead of DER, which cryptography remarks on.
@pytest.mark.filterwarnings("ignore:PKCS#12 bundle could not be parsed as DER")
@pytest.mark.parametrize("name", ["client.jks", "client.p12", "chain.pem"])
@given(data=st.data())
def test_a_damaged_store_is_an_error_not_a_crash(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    """Cut short or with a byte changed, a store either still gives its key or is a ConfigurationError."""
    content = bytearray((STORES / name).read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = tmp_path_factory.getbasetemp() / f"damaged-{name}"
    damaged.write_bytes(bytes(content))

    for password in (PASSWORD, None):
        with contextlib.suppress(ConfigurationError):
            keystore_pem(str(damaged), password, PASSWORD)
        with contextlib.suppress(ConfigurationError):
            truststore_pem(str(damaged), password)


def test_pkcs12_without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library PKCS12 says what to install, and JKS works all the same."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)

    with pytest.raises(MissingDependencyError, match=r"pyspark-dynamic-kafka\[jks\]"):
        truststore_pem(str(STORES / "trust.p12"), PASSWORD)
    assert subjects(keystore_pem(str(STORES / "client.jks"), PASSWORD, None)[0])


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN CERTIFICATE-----\n" * 40_000,
        "-----BEGIN A-----" + "-----END B-----" * 60_000,
        "-----BEGIN " + "A " * 500_000,
        "-" * 1_000_000,
    ],
)
def test_any_text_is_searched_for_pem_in_one_pass(text: str, tmp_path: Path) -> None:
    """A text of one megabyte that never ends a block takes no minutes."""
    file = tmp_path / "ca.pem"
    file.write_text(text[: 2**20])
    began = time.process_time()
    with pytest.raises(ConfigurationError):
        truststore_pem(str(file), None)
    with pytest.raises(ConfigurationError, match="does not hold a PEM block"):
        inline_pem(text, "ssl.truststore.certificates", "CERTIFICATE")
    assert time.process_time() - began < 2


def test_a_beginning_without_an_end_does_not_hide_the_block_after_it() -> None:
    """As a file that was cut, and had a whole one appended."""
    whole = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    assert inline_pem("-----BEGIN CERTIFICATE-----\nAA" + whole, "x", "CERTIFICATE") == whole

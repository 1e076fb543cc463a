"""Java's key stores as PEM strings, which is what librdkafka understands.

JKS is read by `jks`; PKCS12 by the library `cryptography` (extra `jks`); PEM needs little more than finding its blocks. What
a file is, its first bytes say, not its name: today's keytool writes PKCS12 into `truststore.jks`. Keys stay in memory;
nothing is written to the executors' disks.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError
from dynamic_kafka.kafka.config import jks
from dynamic_kafka.kafka.config.jks import StoreError
from dynamic_kafka.kafka.config.small_files import read_small_file

__all__ = ["inline_pem", "keystore_pem", "truststore_pem"]

_TRUST = ("ssl.truststore.location", "ssl.truststore.password")
_KEYS = ("ssl.keystore.location", "ssl.keystore.password")
_KEY_PASSWORD = "ssl.key.password"  # noqa: S105  (a property's name)

_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_DER_SEQUENCE = b"\x30"

_MARK = re.compile(r"-----(BEGIN|END) ([A-Z0-9 ]{1,64})-----")


class _Store(NamedTuple):
    certificates: list[str]  # trusted ones, as PEM
    keys: list[tuple[list[str], str | bytes]]  # chain as PEM, and the key: PEM, or DER as a JKS protects it


def truststore_pem(path: str, password: str | None) -> str:
    """Return the certificates that a trust store trusts.

    Args:
        path: The value of `ssl.truststore.location`.
        password: The value of `ssl.truststore.password`. A JKS may be read without, unchecked, as in Java.

    Returns:
        PEM, for librdkafka's `ssl.ca.pem`.

    Raises:
        ConfigurationError: If the file is missing, damaged, of another format, or the password does not fit.
        MissingDependencyError: If it is PKCS12 and `cryptography` is not installed.
    """
    try:
        store = _read(path, password, _TRUST[1])
        # Java trusts a key entry's own certificate too: the usual store made of one self-signed pair works.
        trusted = [*store.certificates, *(chain[0] for chain, _ in store.keys if chain)]
        if not trusted:
            raise StoreError("it holds no certificate; import the CA's with keytool -importcert")
    except StoreError as error:
        raise _located(error, path, _TRUST[0]) from None
    return "".join(dict.fromkeys(trusted))


def keystore_pem(path: str, password: str | None, key_password: str | None) -> tuple[str, str]:
    """Return the client's certificate chain and private key.

    Args:
        path: The value of `ssl.keystore.location`.
        password: The value of `ssl.keystore.password`.
        key_password: The value of `ssl.key.password`; None if it is the store's.

    Returns:
        The chain, leaf first, and the unencrypted private key, both PEM, for librdkafka's `ssl.certificate.pem` and
        `ssl.key.pem`.

    Raises:
        ConfigurationError: If the file is missing, damaged, of another format, does not have exactly one private key, or a
            password does not fit.
        MissingDependencyError: If it is PKCS12, or PEM with an encrypted key, and `cryptography` is not installed.
    """
    try:
        store = _read(path, password, _KEYS[1])
        if len(store.keys) != 1:
            raise StoreError(
                f"it holds {len(store.keys)} private keys and must hold one; "
                "make a store with just that entry: keytool -importkeystore -srcalias <alias>"
            )
        chain, key = store.keys[0]
        if not chain:
            raise StoreError("its private key has no certificate; import the chain with keytool -importcert")
        if isinstance(key, bytes):
            key = _pem("PRIVATE KEY", _unprotect(key, key_password or password))
        elif "ENCRYPTED" in key:
            key = _decrypt_pem(key, key_password or password)
    except StoreError as error:
        raise _located(error, path, _KEYS[0]) from None
    return "".join(chain), key


def inline_pem(text: str, name: str, label: str) -> str:
    """Return the PEM blocks in a property that holds PEM itself, on as many lines as PEM should have.

    Args:
        text: The value; Kafka allows it to be on one line.
        name: The property, for the error.
        label: `CERTIFICATE`, or `PRIVATE KEY` for one that is encrypted or not.

    Raises:
        ConfigurationError: If there is no such block, or one is damaged.
    """
    try:
        blocks = [block for kind, block in _pem_blocks(text) if kind.endswith(label)]
    except StoreError as error:
        raise ConfigurationError(f"Property '{name}': {error}") from None
    if not blocks:
        raise ConfigurationError(
            f"Property '{name}' does not hold a PEM block of a {label.lower()}; expected -----BEGIN ..."
        )
    return "".join(blocks)


def _located(error: StoreError, path: str, location: str) -> ConfigurationError:
    return ConfigurationError(f"Property '{location}', key store '{path}': {error}")


def _read(path: str, password: str | None, password_property: str) -> _Store:
    try:
        data = read_small_file(path)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not a path"
        raise StoreError(
            f"it cannot be read ({reason}); the file must exist and be readable on the driver and on every executor"
        ) from None
    if data.startswith(jks.MAGIC):
        return _read_jks(data, password, password_property)
    if b"-----BEGIN " in data:
        return _read_pem(data.decode("utf-8", "replace"))
    if data.startswith(_DER_SEQUENCE):
        return _read_pkcs12(data, password, password_property)
    other = "it is not a JKS, PKCS12 or PEM file, or it is damaged"
    what = "it is a JCEKS store" if data.startswith(_JCEKS_MAGIC) else other
    raise StoreError(f"{what}; convert the original with keytool -importkeystore -deststoretype PKCS12")


# --- PEM ---


def _pem(label: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = [text[i : i + 64] for i in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def _bodies(text: str) -> Iterator[tuple[str, str]]:
    """Yield the label and the text of each block, in one pass: a file may hold any number of beginnings without an end."""
    begun: re.Match[str] | None = None
    for mark in _MARK.finditer(text):
        if mark[1] == "BEGIN":
            begun = mark
        elif begun is not None and mark[2] == begun[2]:
            yield mark[2], text[begun.end() : mark.start()]
            begun = None


def _pem_blocks(text: str) -> Iterable[tuple[str, str]]:
    for label, body in _bodies(text):
        if ":" in body:  # the headers of OpenSSL's old encryption; their lines must stay as they are
            yield label, f"-----BEGIN {label}-----{body}-----END {label}-----\n"
            continue
        try:
            # White space, also in the form "\n" that survives in environment variables, is not part of it.
            yield label, _pem(label, base64.b64decode(re.sub(r"\s|\\[nr]", "", body).encode(), validate=True))
        except binascii.Error:
            raise StoreError(f"its PEM block of a {label.lower()} is damaged; copy the file again") from None


def _read_pem(text: str) -> _Store:
    blocks = list(_pem_blocks(text))
    certificates = [block for label, block in blocks if label.endswith("CERTIFICATE")]
    keys = [block for label, block in blocks if label.endswith("PRIVATE KEY")]
    return _Store(certificates, [(certificates, key) for key in keys])


def _decrypt_pem(key: str, password: str | None) -> str:
    if password is None:
        raise StoreError(f"its private key is encrypted; set {_KEY_PASSWORD}")
    serialization = _serialization("to decrypt a private key")
    try:
        return _plain_key(serialization.load_pem_private_key(key.encode(), password.encode()))
    except (ValueError, TypeError):
        raise StoreError(f"{_KEY_PASSWORD} does not open its private key; correct the password") from None


# --- PKCS12 ---


def _serialization(purpose: str) -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise MissingDependencyError("cryptography", "jks", purpose) from None
    return serialization


def _plain_key(key: Any) -> str:
    serialization = _serialization("to read a private key")
    return str(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
    )


def _read_pkcs12(data: bytes, password: str | None, password_property: str) -> _Store:
    serialization = _serialization("to read key stores in the format PKCS12")
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except UnsupportedAlgorithm:
        raise StoreError(
            "it is encrypted in a way that is not supported; convert it with keytool -importkeystore "
            "-deststoretype PKCS12"
        ) from None
    except ValueError as error:
        if password is None:
            raise StoreError(f"it cannot be opened without a password; set {password_property}") from None
        if "password" in str(error):
            raise StoreError(f"{password_property} does not open it, or it is damaged; correct the password") from None
        raise StoreError("it is not a PKCS12 file, or it is damaged; copy the file again") from None
    others = [c.certificate.public_bytes(serialization.Encoding.PEM).decode() for c in store.additional_certs]
    own = [] if store.cert is None else [store.cert.certificate.public_bytes(serialization.Encoding.PEM).decode()]
    if store.key is None:
        return _Store([*own, *others], [])
    return _Store(others, [([*own, *others], _plain_key(store.key))])


# --- JKS ---


def _read_jks(data: bytes, password: str | None, password_property: str) -> _Store:
    if password is not None and not jks.is_intact(data, password):
        jks.read(data)  # says so if it is damaged
        raise StoreError(f"{password_property} does not open it, or it is damaged; correct the password")
    trusted, keys = jks.read(data)
    return _Store(
        [_pem("CERTIFICATE", der) for der in trusted],
        [([_pem("CERTIFICATE", der) for der in chain], key) for chain, key in keys],
    )


def _unprotect(key: bytes, password: str | None) -> bytes:
    if password is None:
        raise StoreError(f"its private key is protected; set {_KEYS[1]}, or {_KEY_PASSWORD} if the key has its own")
    plain = jks.unprotect(key, password)
    if plain is None:
        raise StoreError(f"the password does not open its private key; set {_KEY_PASSWORD} to the key's own password")
    return plain

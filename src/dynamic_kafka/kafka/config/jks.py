"""The format JKS, as sun.security.provider's JavaKeyStore and KeyProtector write it.

Big-endian: magic, version, number of entries; per entry its kind, alias and date, then a trusted certificate, or a
protected key and its certificate chain; at the end a SHA-1 digest of the password, a constant and all bytes before.
"""

from __future__ import annotations

import hashlib
import struct

__all__ = ["MAGIC", "StoreError", "is_intact", "read", "unprotect"]

MAGIC = b"\xfe\xed\xfe\xed"

_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_SHA1_BYTES = 20
_DER_SEQUENCE, _DER_OCTETS = 0x30, 0x04
_KEY_PROTECTOR = bytes.fromhex("2b060104012a02110101")  # OID 1.3.6.1.4.1.42.2.17.1.1


class StoreError(Exception):
    """Raised with the fault of a store and the remedy; the caller adds the name of the store."""


def read(data: bytes) -> tuple[list[bytes], list[tuple[list[bytes], bytes]]]:
    """Return the entries of a store.

    Args:
        data: The file, beginning with `MAGIC`.

    Returns:
        The trusted certificates, and per key its chain, leaf first, with the key as it is protected; all in DER.

    Raises:
        StoreError: If it is damaged.
    """
    trusted: list[bytes] = []
    keys: list[tuple[list[bytes], bytes]] = []
    try:
        reader = _Reader(data[len(MAGIC) : -_SHA1_BYTES])
        version, entries = reader.number(), reader.number()
        if version not in (1, 2):
            raise EOFError
        for _ in range(entries):
            kind = reader.number()
            reader.text()  # alias
            reader.take(8)  # date
            if kind == _KEY_ENTRY:
                key = reader.take(reader.number())
                keys.append(([reader.certificate(version) for _ in range(reader.number())], key))
            elif kind == _CERTIFICATE_ENTRY:
                trusted.append(reader.certificate(version))
            else:
                raise EOFError
        if reader.rest():
            raise EOFError
    except EOFError:
        raise StoreError("it is a JKS file, but it is damaged; copy the file again") from None
    return trusted, keys


def is_intact(data: bytes, password: str) -> bool:
    """Return whether the digest at the end fits the store and its password."""
    content, digest = data[:-_SHA1_BYTES], data[-_SHA1_BYTES:]
    return _sha1(_utf16(password), b"Mighty Aphrodite", content) == digest


def unprotect(key: bytes, password: str) -> bytes | None:
    """Undo Sun's key protector: a key stream of chained SHA-1 digests, then a digest that proves the password.

    Args:
        key: A key as `read` returns it: PKCS#8's EncryptedPrivateKeyInfo in DER.
        password: The key's password.

    Returns:
        PKCS#8's PrivateKeyInfo in DER; None if the password does not fit.

    Raises:
        StoreError: If the key is damaged, or protected by another algorithm.
    """
    algorithm, encrypted = _encrypted_key_info(key)
    if _KEY_PROTECTOR not in algorithm:
        raise StoreError(
            "its private key is protected in an unknown way; convert it with keytool -importkeystore -deststoretype PKCS12"
        )
    secret = _utf16(password)
    digest, body, proof = encrypted[:_SHA1_BYTES], encrypted[_SHA1_BYTES:-_SHA1_BYTES], encrypted[-_SHA1_BYTES:]
    stream = bytearray()
    while len(stream) < len(body):
        digest = _sha1(secret, digest)
        stream += digest
    plain = bytes(a ^ b for a, b in zip(body, stream, strict=False))
    return plain if _sha1(secret, plain) == proof else None


class _Reader:
    """Fields in their order; EOFError if they end early."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise EOFError
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self) -> int:
        return int(struct.unpack(">I", self.take(4))[0])

    def text(self) -> bytes:
        return self.take(struct.unpack(">H", self.take(2))[0])

    def certificate(self, version: int) -> bytes:
        if version == 2 and self.text() != b"X.509":
            raise EOFError
        return self.take(self.number())

    def rest(self) -> bytes:
        return self._data[self._at :]


def _encrypted_key_info(der: bytes) -> tuple[bytes, bytes]:
    """Return the two fields of EncryptedPrivateKeyInfo: the algorithm, undecoded, and the encrypted octets."""
    try:
        tag, fields, _ = _der(der)
        algorithm_tag, algorithm, rest = _der(fields)
        octets_tag, octets, _ = _der(rest)
    except EOFError:
        tag = algorithm_tag = octets_tag = 0
        algorithm = octets = b""
    tags = (tag, algorithm_tag, octets_tag)
    if tags != (_DER_SEQUENCE, _DER_SEQUENCE, _DER_OCTETS) or len(octets) < 2 * _SHA1_BYTES:
        raise StoreError("its private key is damaged; copy the file again")
    return algorithm, octets


def _der(data: bytes) -> tuple[int, bytes, bytes]:
    """Return the tag and content of the first DER element, and what follows it."""
    reader = _Reader(data)
    tag, size = reader.take(2)
    if size > 127:
        size = int.from_bytes(reader.take(size - 128), "big")
    return tag, reader.take(size), reader.rest()


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _sha1(*parts: bytes) -> bytes:
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).digest()

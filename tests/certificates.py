"""A certificate of its own for a server or a client."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["self_signed"]


def self_signed() -> tuple[bytes, bytes, bytes]:
    """A certificate for 127.0.0.1, its key, and the key encrypted with the password `s3cret`, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().issuer_name(name).subject_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    encryptions = serialization.NoEncryption(), serialization.BestAvailableEncryption(b"s3cret")
    plain, encrypted = (key.private_bytes(pem, form, encryption) for encryption in encryptions)
    return certificate.public_bytes(pem), plain, encrypted

"""The user that a cluster's brokers see, for errors about missing rights."""

from __future__ import annotations

from collections.abc import Mapping

from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.kafka.config.properties import client_config

__all__ = ["principal"]

_UNKNOWN = "this query's user"
_OF_CERTIFICATE = "the user of the client's certificate"


def principal(properties: Mapping[str, str]) -> str:
    """Return the user as ACLs name it (`User:alice`), or in words if only the brokers know it.

    Brokers may map names (`ssl.principal.mapping.rules`, `sasl.kerberos.principal.to.local.rules`).

    Args:
        properties: The properties to reach a cluster.
    """
    try:
        config = client_config(properties, role="admin")
    except DynamicKafkaError:
        return _UNKNOWN
    protocol = config.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "PLAINTEXT":
        return "User:ANONYMOUS"
    if protocol == "SSL":
        return _of_certificate(config)
    mechanism = config.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism == "OAUTHBEARER":
        client = config.get("sasl.oauthbearer.client.id")
        return "the user of the token" + (f" (client id '{client}')" if client else "")
    if mechanism == "GSSAPI":
        name = config.get("sasl.kerberos.principal", "").split("@")[0].split("/")[0]
    else:
        name = config.get("sasl.username", "")
    return f"User:{name}" if name else _UNKNOWN


def _of_certificate(config: Mapping[str, str]) -> str:
    pem = config.get("ssl.certificate.pem")
    if not pem:
        return _OF_CERTIFICATE if "ssl.certificate.location" in config else "User:ANONYMOUS"
    try:
        from cryptography import x509
    except ImportError:
        return _OF_CERTIFICATE
    try:
        return f"User:{x509.load_pem_x509_certificate(pem.encode()).subject.rfc4514_string()}"
    except ValueError:  # this is asked for an error about something else
        return _OF_CERTIFICATE

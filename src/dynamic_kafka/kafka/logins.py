"""Logins: when a refused one is tried again, and which user the brokers see.

A login that was never accepted is wrong, and each try may count against the account: the caller raises its error at once. A
login that was accepted in this process is being replaced. Either the cluster has the new password and the file of the
reference does not, or the other way round. So the caller waits until the value behind a reference changes, and tries again
without a change after 10, 20, 40 s, in case the cluster is the one that is late.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.kafka.config.properties import client_config

__all__ = ["note_accepted", "principal", "rest_after_refusal", "without_token_answer"]

_REST_S = 10.0
_LOOK_S = 0.2
# librdkafka's own text, then what the token endpoint said, or what failed on the way there (libcurl's words).
_NO_TOKEN = re.compile(r"(?<=Failed to acquire SASL OAUTHBEARER token: ).*", re.DOTALL)
_ON_THE_WAY = re.compile(
    r"(?:Could not resolve host|Failed to connect to|Connection timed out|Operation timed out|SSL certificate|Timeout was)"
    r"[\w .,:()\[\]-]{0,200}",
    re.ASCII,
)
_REFUSED = re.compile(
    r"\b(invalid_request|invalid_client|invalid_grant|unauthorized_client|unsupported_grant_type|invalid_scope)\b"
)
_UNKNOWN = "this query's user"
_OF_CERTIFICATE = "the user of the client's certificate"
_accepted: set[int] = set()  # hashes of the properties as they are given: references, not what they lead to


def without_token_answer(text: str) -> str:
    """Return an error of librdkafka without what a token endpoint answered: the address may be that of an internal page.

    Its error code is kept if it is one of RFC 6749, and so is why it cannot be reached.
    """
    return _NO_TOKEN.sub(lambda match: _shown_answer(match.group()), text)


def _shown_answer(answer: str) -> str:
    if _ON_THE_WAY.fullmatch(answer):
        return answer
    code = _REFUSED.search(answer)
    said = f"the error {code.group()}" if code else "no token (the answer is not shown)"
    return f"the token endpoint answered with {said}"


def note_accepted(properties: Mapping[str, str]) -> None:
    """Remember that a cluster has let this process in with these properties."""
    _accepted.add(_key(properties))


def rest_after_refusal(
    properties: Mapping[str, str], is_replaced: Callable[[], bool], refusals: int, deadline: float
) -> bool:
    """Wait before the login is tried again. Return False if it is not to be tried again.

    Args:
        properties: The properties to reach the cluster, as they are given.
        is_replaced: A function that says whether a secret behind them has changed since it was used.
        refusals: How many logins the cluster has refused since it last accepted one, this one included.
        deadline: The time by `time.monotonic()` after which nothing is tried again.
    """
    if _key(properties) not in _accepted:
        return False
    until = time.monotonic() + _REST_S * 2.0 ** (refusals - 1)
    while time.monotonic() < min(until, deadline):
        if is_replaced():
            return True
        time.sleep(_LOOK_S)
    return until < deadline


def _key(properties: Mapping[str, str]) -> int:
    return hash(frozenset(properties.items()))


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

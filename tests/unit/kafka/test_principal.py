"""Who the brokers see, and how a missing right is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_kafka.errors import may_not
from dynamic_kafka.kafka.logins import principal

STORES = Path(__file__).parents[2] / "stores"
PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
OIDC = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://tokens/",
    "sasl.jaas.config": 'x.OAuthBearerLoginModule required clientId="me" clientSecret="hunter2";',
}
CERTIFICATE = {
    "security.protocol": "SSL",
    "ssl.keystore.location": str(STORES / "client.p12"),
    "ssl.keystore.password": "test1234",
}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL"}, "User:ANONYMOUS"),
        (CERTIFICATE, "User:CN=client"),
        ({"security.protocol": "SSL", "ssl.certificate.location": "/x"}, "the user of the client's certificate"),
        (PLAIN | {"sasl.username": "alice", "sasl.password": "x"}, "User:alice"),
        (PLAIN | {"sasl.jaas.config": 'x.PlainLoginModule required username="${env:WHO}" password="x";'}, "User:bob"),
        (PLAIN | {"sasl.jaas.config": "${env:MISSING}"}, "this query's user"),
        (OIDC, "the user of the token (client id 'me')"),
    ],
)
def test_the_principal(properties: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ACLs name it, if that is known here."""
    monkeypatch.setenv("WHO", "bob")
    assert principal(properties) == expected


def test_a_missing_right_comes_with_the_command_that_grants_it() -> None:
    """The operation, the resource, the principal."""
    assert may_not("User:alice", ["Describe", "Read"], "topic", "t") == (
        "User:alice may not Describe and Read topic 't'; grant it with kafka-acls.sh --add --allow-principal 'User:alice' "
        "--operation Describe --operation Read --topic 't'"
    )
    prefixed = may_not("the user of the token", ["Write"], "transactional-id", "p", prefixed=True)
    assert prefixed == (
        "the user of the token may not Write transactional id 'p'*; grant it with kafka-acls.sh --add --allow-principal "
        "'User:<name>' --operation Write --transactional-id 'p' --resource-pattern-type prefixed"
    )
    assert may_not("User:a", ["IdempotentWrite"], "cluster").endswith("--operation IdempotentWrite --cluster")

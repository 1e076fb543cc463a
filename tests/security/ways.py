"""The ways in: what a client sets to connect to each listener of `brokers.secured_broker`, in Java's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.security.stores import PASSWORD
from tests.security.tokens import CLIENT_ID, CLIENT_SECRET

if TYPE_CHECKING:
    from tests.security.brokers import Secured

__all__ = ["KERBEROS", "NO_TICKET", "WAYS", "WRONG", "Way", "Wrong", "properties"]

_MODULES = "org.apache.kafka.common.security"
_PLAIN = f"{_MODULES}.plain.PlainLoginModule"
_SCRAM = f"{_MODULES}.scram.ScramLoginModule"
_OAUTH = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"
_KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
_ALICE = 'required username="alice" password="wonder-land";'


@dataclass(frozen=True)
class Way:
    """A way in.

    Args:
        name: Its name in the documentation.
        listener: The listener to connect to.
        properties: What the client sets; `{stores}` and `{tokens}` stand for a folder and an address.
    """

    name: str
    listener: str
    properties: Mapping[str, str]


def _trust(store: str) -> dict[str, str]:
    password = {} if store.endswith(".pem") else {"ssl.truststore.password": PASSWORD}
    return {"ssl.truststore.location": f"{{stores}}/{store}", **password}


def _keys(store: str, **more: str) -> dict[str, str]:
    password = {} if store.endswith(".pem") else {"ssl.keystore.password": PASSWORD}
    return {"ssl.keystore.location": f"{{stores}}/{store}", **password, **more}


def _sasl(protocol: str, mechanism: str, jaas: str, **more: str) -> dict[str, str]:
    return {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas, **more}


def _oidc(protocol: str, **more: str) -> dict[str, str]:
    login = f'required clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}";'
    handler = f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
    places = {"sasl.login.callback.handler.class": handler, "sasl.oauthbearer.token.endpoint.url": "{tokens}/token"}
    return _sasl(protocol, "OAUTHBEARER", f"{_OAUTH} {login}", **places, **more)


_TLS = {"security.protocol": "SSL"}
_PASSWORD_MECHANISMS = (("PLAIN", _PLAIN), ("SCRAM-SHA-256", _SCRAM), ("SCRAM-SHA-512", _SCRAM))

WAYS: tuple[Way, ...] = (
    Way("PLAINTEXT", "CLIENT", {}),
    *(
        Way(f"SASL_PLAINTEXT, {name}", "SASL", _sasl("SASL_PLAINTEXT", name, f"{module} {_ALICE}"))
        for name, module in _PASSWORD_MECHANISMS
    ),
    *(
        Way(f"SASL_SSL, {name}", "SASLTLS", _sasl("SASL_SSL", name, f"{module} {_ALICE}", **_trust("trust.jks")))
        for name, module in _PASSWORD_MECHANISMS
    ),
    Way("SSL, trust store JKS (keytool)", "TLS", {**_TLS, **_trust("trust.jks")}),
    Way("SSL, trust store PKCS12 (keytool)", "TLS", {**_TLS, **_trust("trust.p12")}),
    Way("SSL, trust store PKCS12 (openssl)", "TLS", {**_TLS, **_trust("trust-openssl.p12")}),
    Way("SSL, trust store PEM (openssl)", "TLS", {**_TLS, **_trust("ca.pem"), "ssl.truststore.type": "PEM"}),
    Way("SSL, trusted certificates inline", "TLS", {**_TLS, "ssl.truststore.certificates": "${file:{stores}/ca.pem}"}),
    Way("mutual TLS, key store JKS (keytool)", "MUTUAL", {**_TLS, **_trust("trust.jks"), **_keys("client.jks")}),
    Way("mutual TLS, key store PKCS12 (keytool)", "MUTUAL", {**_TLS, **_trust("trust.p12"), **_keys("client.p12")}),
    Way(
        "mutual TLS, key store PKCS12 (openssl)", "MUTUAL", {**_TLS, **_trust("ca.pem"), **_keys("client-openssl.p12")}
    ),
    Way("mutual TLS, PEM (openssl)", "MUTUAL", {**_TLS, **_trust("ca.pem"), **_keys("client.pem")}),
    Way(
        "mutual TLS, PEM with an encrypted key (openssl)",
        "MUTUAL",
        {**_TLS, **_trust("ca.pem"), **_keys("client-encrypted.pem"), "ssl.key.password": PASSWORD},
    ),
    Way("SASL_PLAINTEXT, OAUTHBEARER (OpenID Connect)", "OIDC", _oidc("SASL_PLAINTEXT")),
    Way(
        "SASL_SSL, OAUTHBEARER (OpenID Connect by https)",
        "OIDCTLS",
        _oidc("SASL_SSL", **_trust("trust.jks"), **{"https.ca.location": "{stores}/ca.pem"}),
    ),
    Way(
        "SASL_SSL, AWS MSK IAM",
        "CLOUD",
        _sasl(
            "SASL_SSL",
            "AWS_MSK_IAM",
            "software.amazon.msk.auth.iam.IAMLoginModule required;",
            **{"sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler"},
            **_trust("trust.jks"),
        ),
    ),
    Way(
        "SASL_SSL, Google Cloud",
        "CLOUD",
        _sasl(
            "SASL_SSL",
            "OAUTHBEARER",
            f"{_OAUTH} required;",
            **{"sasl.login.callback.handler.class": "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"},
            **_trust("trust.jks"),
        ),
    ),
    Way(
        "SASL_SSL, AWS's identity of this machine",
        "CLOUD",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.metadata.authentication.type": "aws_iam",
            "sasl.oauthbearer.config": "region=eu-north-1,audience=https://kafka",
            "sasl.oauthbearer.extensions": "pool=blue",
            **_trust("trust.jks"),
        },
    ),
)

_TICKETS = f"{_KRB5} required useTicketCache=true;"
_KEYTAB = f'{_KRB5} required useKeyTab=true keyTab="{{stores}}/alice.keytab" principal="alice@EXAMPLE.COM";'
_SERVICE = {"sasl.kerberos.service.name": "kafka"}

KERBEROS: tuple[Way, ...] = (
    Way("SASL_PLAINTEXT, Kerberos by a keytab", "KERBEROS", _sasl("SASL_PLAINTEXT", "GSSAPI", _KEYTAB, **_SERVICE)),
    Way(
        "SASL_PLAINTEXT, Kerberos by a ticket cache",
        "KERBEROS",
        _sasl("SASL_PLAINTEXT", "GSSAPI", _TICKETS, **_SERVICE),
    ),
)
"""Of another broker, `kerberos.realm`, and with a confluent-kafka that is not the wheel."""
NO_TICKET = "Kerberos, no ticket in the cache"
"""The row of what is said then."""


@dataclass(frozen=True)
class Wrong(Way):
    """A way that does not lead in.

    Args:
        expected: A pattern of the error.
        is_silent: True if the cluster cannot be told from one that is down.
    """

    expected: str = ""
    is_silent: bool = False


def _like(name: str, **changes: str | None) -> tuple[str, dict[str, str]]:
    """Return the listener and the properties of a way, with some changed; None takes one away."""
    way = next(way for way in WAYS if way.name == name)
    found = {**way.properties}
    for key, value in changes.items():
        found.pop(key, None)
        if value is not None:
            found[key] = value
    return way.listener, found


_WRONG_PASSWORD = 'required username="alice" password="hunter2";'

WRONG: tuple[Wrong, ...] = (
    Wrong(
        "wrong password, PLAIN",
        *_like("SASL_PLAINTEXT, PLAIN", **{"sasl.jaas.config": f"{_PLAIN} {_WRONG_PASSWORD}"}),
        "refuses the login",
    ),
    Wrong(
        "wrong password, SCRAM-SHA-512",
        *_like("SASL_SSL, SCRAM-SHA-512", **{"sasl.jaas.config": f"{_SCRAM} {_WRONG_PASSWORD}"}),
        "refuses the login",
    ),
    Wrong(
        "mechanism not enabled on the broker",
        "OIDC",
        _sasl("SASL_PLAINTEXT", "PLAIN", f"{_PLAIN} {_ALICE}"),
        "refuses the login",
    ),
    Wrong("unknown CA", *_like("SSL, trust store PEM (openssl)", **_trust("other-ca.pem")), "certificate"),
    Wrong("expired certificate", "EXPIRED", {**_TLS, **_trust("expired.pem")}, "expired"),
    Wrong("wrong host name", "OTHERNAME", {**_TLS, **_trust("ca.pem")}, "not valid for"),
    Wrong("missing client certificate", "MUTUAL", {**_TLS, **_trust("ca.pem")}, "certificate"),
    Wrong(
        "client certificate of an unknown CA",
        "MUTUAL",
        {**_TLS, **_trust("ca.pem"), **_keys("expired.p12")},
        "certificate",
    ),
    Wrong("plain text to a TLS listener", "TLS", {}, "security.protocol", is_silent=True),
    Wrong(
        "TLS to a plain text listener",
        "CLIENT",
        {**_TLS, **_trust("ca.pem")},
        "security.protocol",
        is_silent=True,
    ),
    Wrong("no login to a SASL listener", "SASL", {}, "security.protocol", is_silent=True),
    Wrong(
        "wrong password of the trust store",
        *_like("SSL, trust store JKS (keytool)", **{"ssl.truststore.password": "hunter2"}),
        "ssl.truststore.password",
    ),
    Wrong("missing trust store", "TLS", {**_TLS, **_trust("missing.jks")}, "cannot be read"),
    Wrong(
        "wrong client secret, OpenID Connect",
        *_like(
            "SASL_PLAINTEXT, OAUTHBEARER (OpenID Connect)",
            **{"sasl.jaas.config": f'{_OAUTH} required clientId="{CLIENT_ID}" clientSecret="hunter2";'},
        ),
        "token",
    ),
    Wrong(
        "token server down",
        *_like(
            "SASL_PLAINTEXT, OAUTHBEARER (OpenID Connect)",
            **{"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"},
        ),
        "token",
    ),
    Wrong(
        "token server with an unknown CA",
        *_like("SASL_SSL, OAUTHBEARER (OpenID Connect by https)", **{"https.ca.location": "{stores}/other-ca.pem"}),
        "token",
    ),
    Wrong(
        "OAUTHBEARER without a source of tokens",
        "OIDC",
        _sasl("SASL_PLAINTEXT", "OAUTHBEARER", f"{_OAUTH} required;"),
        "source of tokens",
    ),
    Wrong(
        "AWS MSK IAM, a profile that does not exist",
        *_like(
            "SASL_SSL, AWS MSK IAM",
            **{"sasl.jaas.config": 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="missing";'},
        ),
        "token",
    ),
    Wrong(
        "Kerberos",
        "SASL",
        _sasl("SASL_PLAINTEXT", "GSSAPI", f"{_KRB5} required;"),
        "is not in this build",
    ),
)


def properties(way: Way, secured: Secured) -> dict[str, str]:
    """What a client sets for a way, with `bootstrap.servers`."""
    tokens = secured.tokens_tls if way.listener == "OIDCTLS" else secured.tokens
    found = {"bootstrap.servers": secured.addresses[way.listener]}
    for key, value in way.properties.items():
        found[key] = value.replace("{stores}", str(secured.stores)).replace("{tokens}", tokens.url)
    return found

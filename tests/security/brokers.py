"""A broker with a listener for each way in, with the stores, users and tokens that they need."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from dynamic_kafka.testing import KafkaBroker
from dynamic_kafka.testing import broker as broker_module
from dynamic_kafka.testing.broker import admin_client
from dynamic_kafka.testing.configuration import HOST, Node, free_ports, nodes, plain_login_module
from dynamic_kafka.testing.jars import KAFKA_VERSION, kafka_classpath
from tests.security.stores import PASSWORD, make_stores
from tests.security.tokens import AUDIENCE, ISSUER, TokenServer

USER, USER_PASSWORD = "alice", "wonder-land"

_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
LISTENERS: Mapping[str, str] = {
    "SASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "OIDC": "SASL_PLAINTEXT",
    "OIDCTLS": "SASL_SSL",
    "CLOUD": "SASL_SSL",
    "EXPIRED": "SSL",
    "OTHERNAME": "SSL",
}
"""Listeners beside those of every test broker, with their protocols. What each accepts, `_properties` says."""


@dataclass(frozen=True)
class Secured:
    """A broker with many ways in.

    Args:
        broker: The broker; its own listener for clients is in plain text.
        stores: The folder of keys and certificates.
        tokens: The token server by http.
        tokens_tls: The token server by https.
        addresses: Listener to its address.
    """

    broker: KafkaBroker
    stores: Path
    tokens: TokenServer
    tokens_tls: TokenServer
    addresses: Mapping[str, str]

    def failed_logins(self) -> int:
        """How many logins and TLS handshakes the broker has refused."""
        return (self.stores / "data" / "broker.log").read_text().count("Failed authentication")


@contextmanager
def secured_broker(folder: Path) -> Iterator[Secured]:
    """Start it; `folder` is an empty one."""
    make_stores(folder)
    with TokenServer() as tokens, TokenServer(folder) as tokens_tls, pytest.MonkeyPatch.context() as patch:
        tokens_tls._key = tokens._key
        keys = f"{tokens.url}/keys"
        options = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"]
        options.append("-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.network.Selector=info")  # failed logins
        patch.setenv("JAVA_TOOL_OPTIONS", " ".join(options))
        classes = _shape_validator(folder)
        patch.setattr(broker_module, "kafka_classpath", lambda version: f"{kafka_classpath(version)}:{classes}")
        ports = free_ports()
        node = nodes(1, ports)[0]
        addresses = {name: f"{HOST}:{next(ports)}" for name in LISTENERS}
        if classes is None:
            del addresses["CLOUD"]
        with KafkaBroker(
            node=node, properties=_properties(folder, addresses, keys, node), log_dir=folder / "data"
        ) as broker:
            admin = admin_client(broker.internal_address)
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
                user = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), USER_PASSWORD.encode())
                admin.alter_user_scram_credentials([user])[USER].result(20)
            yield Secured(broker, folder, tokens, tokens_tls, addresses | {"CLIENT": broker.bootstrap_servers})


def _shape_validator(folder: Path) -> Path | None:
    """Compile the check of tokens; None without a compiler, which a JRE does not have."""
    if shutil.which("javac") is None:
        return None
    classes = folder / "classes"
    source = Path(__file__).with_name("ShapeValidator.java")
    command = ["javac", "-cp", kafka_classpath(KAFKA_VERSION), "-d", str(classes), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return classes


def _properties(stores: Path, addresses: Mapping[str, str], keys: str, node: Node) -> dict[str, str]:
    own = {"CLIENT": node.client, "INTERNAL": node.internal, "CONTROLLER": node.controller}
    listeners = [f"{name}://{HOST}:{port}" for name, port in own.items()]
    listeners += [f"{name}://{address}" for name, address in addresses.items()]
    protocols = dict.fromkeys(own, "PLAINTEXT") | {name: LISTENERS[name] for name in addresses}
    found = {
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "connection.failed.authentication.delay.ms": "100",
        "super.users": "User:ANONYMOUS",
    }

    def listener(name: str, properties: Mapping[str, str]) -> None:
        if name in addresses:
            found.update({f"listener.name.{name.lower()}.{key}": value for key, value in properties.items()})

    def tls(store: str, **more: str) -> dict[str, str]:
        keys = {"ssl.keystore.location": str(stores / store), "ssl.keystore.password": PASSWORD}
        return {**keys, "ssl.keystore.type": "PKCS12", **more}

    passwords = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "plain.sasl.jaas.config": plain_login_module({f"user_{USER}": USER_PASSWORD}),
        "scram-sha-256.sasl.jaas.config": _SCRAM,
        "scram-sha-512.sasl.jaas.config": _SCRAM,
    }
    tokens = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
    }
    signed = {
        **tokens,
        "oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": keys,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    trust = {"ssl.truststore.location": str(stores / "trust.jks"), "ssl.truststore.password": PASSWORD}
    listener("SASL", passwords)
    listener("SASLTLS", {**passwords, **tls("broker.p12")})
    listener("TLS", tls("broker.p12"))
    listener("MUTUAL", {**tls("broker.p12"), **trust, "ssl.truststore.type": "JKS", "ssl.client.auth": "required"})
    listener("OIDC", signed)
    listener("OIDCTLS", {**signed, **tls("broker.p12")})
    listener(
        "CLOUD", {**tokens, **tls("broker.p12"), "oauthbearer.sasl.server.callback.handler.class": "ShapeValidator"}
    )
    listener("EXPIRED", tls("expired.p12"))
    listener("OTHERNAME", tls("other-name.p12"))
    return found

"""What tasks and drivers show or log, searched for a secret: errors with their causes, log lines, and objects as text."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.kafka.clients import ClientSettings, ClusterClients, check_properties
from dynamic_kafka.kafka.cluster import ClusterConnection
from dynamic_kafka.kafka.transactions.client import TransactionClient
from dynamic_kafka.sink.configure import configure_sink
from dynamic_kafka.sink.report import TaskReport
from dynamic_kafka.sink.settings import Destination, LogPlace, WriteTask
from dynamic_kafka.spark.writers import KafkaBatchWriter, KafkaCommitMessage
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.sql.queries.catalog import View

SECRET = "hunter2-SECRET"
NOBODY = "127.0.0.1:1"
STORES = Path(__file__).parents[1] / "stores"
PEM = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"
URL = "sasl.oauthbearer.token.endpoint.url"

PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
OAUTH = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
SSL = {"security.protocol": "SSL"}
OIDC = OAUTH | {URL: f"http://{NOBODY}/token", "sasl.oauthbearer.client.id": "me"}

PROPERTIES = {
    "a password": PLAIN | {"sasl.username": "me", "sasl.password": SECRET},
    "a password that ends early": PLAIN | {"sasl.username": "me", "sasl.password": f"{SECRET}\0x"},
    "two passwords": PLAIN
    | {"sasl.password": SECRET, "sasl.jaas.config": "x.PlainLoginModule required username=me password=other;"},
    "JAAS without its end": PLAIN
    | {"sasl.jaas.config": f'x.PlainLoginModule required username="me" password="{SECRET}'},
    "JAAS that is none": PLAIN | {"sasl.jaas.config": SECRET},
    "JAAS with a word too much": PLAIN
    | {"sasl.jaas.config": f"x.PlainLoginModule required password={SECRET} {SECRET};"},
    "a client's secret": OIDC | {"sasl.oauthbearer.client.secret": SECRET},
    "a login in a URL": OIDC | {URL: f"http://me:{SECRET}@{NOBODY}/token", "sasl.oauthbearer.client.secret": SECRET},
    "a key that is none": SSL | {"ssl.key.pem": SECRET},
    "a key in PEM that is none": SSL | {"ssl.keystore.key": PEM},
    "a key for a certificate": SSL | {"ssl.ca.pem": PEM},
    "the wrong password of a JKS": SSL
    | {"ssl.keystore.location": str(STORES / "client.jks"), "ssl.keystore.password": SECRET},
    "the wrong password of a PKCS12": SSL
    | {"ssl.keystore.location": str(STORES / "client.p12"), "ssl.keystore.password": SECRET},
    "the password of a key without one": SSL
    | {"ssl.key.location": str(STORES / "rsa.pem"), "ssl.key.password": SECRET},
    "a name that does not exist": {"sasl.passwrd": SECRET},
    "a login in an address": {"bootstrap.servers": f"kafka://me:{SECRET}@{NOBODY}"},
    "a login before a host": {"bootstrap.servers": f"{NOBODY},me:{SECRET}@{NOBODY}"},
    "an unsecured token": OAUTH
    | {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal=me {SECRET}"},
    "an unsecured token by JAAS": OAUTH
    | {"sasl.jaas.config": f'x.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="me {SECRET}";'},
}
REFERENCE = "${env:DK_SECRET}"
PROPERTIES |= {
    f"a reference in the wrong place, {', '.join(found)}": found
    for found in (
        {"security.protocol": REFERENCE},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": REFERENCE},
        PLAIN | {"sasl.mechanism": REFERENCE, "sasl.jaas.config": "x.PlainLoginModule required username=u password=p;"},
        OAUTH | {"sasl.login.callback.handler.class": REFERENCE},
        OIDC | {"sasl.oauthbearer.method": REFERENCE},
        {"acks": REFERENCE},
        {"fetch.min.bytes": REFERENCE},
        {"isolation.level": REFERENCE},
        {"client.dns.lookup": REFERENCE},
        {"partitioner.class": REFERENCE},
        {"auto.offset.reset": f"by_duration:{REFERENCE}"},
        {"socket.connection.setup.timeout.ms": REFERENCE},
        SSL | {"ssl.truststore.location": REFERENCE},
        SSL | {"ssl.ca.location": REFERENCE},
        SSL | {"ssl.ca.pem": REFERENCE},
        SSL | {"ssl.certificate.location": REFERENCE, "ssl.key.location": REFERENCE},
        SSL | {"ssl.cipher.suites": REFERENCE},
        SSL | {"ssl.endpoint.identification.algorithm": REFERENCE},
        SSL | {"enable.ssl.certificate.verification": REFERENCE},
    )
}


def ask_transactions(properties: dict[str, str]) -> None:
    """Ask with the requests of our own."""
    with closing(TransactionClient("c", properties, timeout_ms=50)) as client:
        client.kafka_id()


def ask_as_the_driver(properties: dict[str, str]) -> None:
    """Ask with the driver's connection."""
    with closing(ClusterConnection("c", properties, group_id="g", timeout_ms=50)) as connection:
        connection.kafka_id()


def make(name: str) -> Callable[[dict[str, str]], None]:
    """Make a client of librdkafka."""

    def made(properties: dict[str, str]) -> None:
        with closing(ClusterClients(properties, consumer=ClientSettings(fixed={"group.id": "g"}))) as clients:
            getattr(clients, name)

    return made


USES = {
    "check": check_properties,
    "transactions": ask_transactions,
    "driver": ask_as_the_driver,
    "consumer": make("consumer"),
    "producer": make("producer"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("what", PROPERTIES)
def test_no_error_and_no_log_line_shows_a_secret(
    what: str, use: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even in the causes of an error, which Spark logs, nor at debug level."""
    monkeypatch.setenv("DK_SECRET", SECRET)
    caplog.set_level(logging.DEBUG)
    shown = ""
    try:
        USES[use]({"bootstrap.servers": NOBODY} | PROPERTIES[what])
    except Exception as error:  # noqa: BLE001  whatever it is
        shown = "".join(traceback.format_exception(error))
    assert SECRET.lower() not in (shown + caplog.text).lower()


@pytest.mark.parametrize("what", ["a login in a URL", "a login in an address", "a login before a host"])
def test_a_login_in_an_address_is_refused(what: str) -> None:
    """The client would log it with each failed connection, and it has no use."""
    with pytest.raises(ConfigurationError, match=r"holds a login in an address.*give the login with sasl\.\*"):
        check_properties({"bootstrap.servers": NOBODY} | PROPERTIES[what])


def test_what_tasks_get_and_report_shows_no_secret() -> None:
    """Tasks and their messages carry what reaches a cluster, and as text they do not show it."""
    properties = {"bootstrap.servers": NOBODY} | PROPERTIES["a password"]
    destinations = {"c": Destination(properties, "t")}
    place = LogPlace("c", properties, "log", ("id/log",))
    settings = configure_sink({f"kafka.{key}": value for key, value in properties.items()} | {"topic": "t"})
    task = WriteTask(destinations, settings, "chain", 1, place)
    message = KafkaCommitMessage(TaskReport(), destinations=destinations, log=place)
    for found in (task, message, KafkaBatchWriter(settings, task, None), settings):
        assert SECRET not in repr(found)
        assert SECRET not in str(found)


def test_a_view_is_shown_without_secrets() -> None:
    """They may be in the hints of its query."""
    environment = TableEnvironment(Mock())
    hint = f"/*+ OPTIONS('properties.sasl.password' = '{SECRET}') */"
    environment._catalog.add(("v",), View("v", f"SELECT * FROM t {hint}"))
    ((text,),) = environment.execute_sql("SHOW CREATE VIEW v").collect()
    assert "SELECT * FROM t /*+ OPTIONS('properties.sasl.password' = ***" in text
    assert SECRET not in text

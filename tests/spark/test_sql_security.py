"""The documentation's table with TLS and SCRAM, against a broker that wants both."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from pyspark.sql import SparkSession

from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.sql import TableEnvironment
from dynamic_kafka.testing import KafkaBroker, produce
from tests.engine import MetadataFile
from tests.spark.tables import rows

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.spark]

STORE, USER = "test1234", "pass-of-alice"


@pytest.fixture(scope="module", name="stores")
def _stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key stores of a broker and a client in Java's own format, and stores with the other's certificate."""
    folder = tmp_path_factory.mktemp("stores")

    def keytool(*arguments: str, store: str) -> None:
        command = ["keytool", *arguments, "-keystore", str(folder / store), "-storetype", "JKS", "-storepass", STORE]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    for name in ("broker", "client"):
        pair = ("-genkeypair", "-keyalg", "RSA", "-dname", f"CN={name}", "-ext", "san=ip:127.0.0.1,dns:localhost")
        keytool(*pair, "-alias", name, "-keypass", STORE, store=f"{name}.keystore.jks")
        certificate = str(folder / f"{name}.pem")
        keytool("-exportcert", "-rfc", "-file", certificate, "-alias", name, store=f"{name}.keystore.jks")
        keytool("-importcert", "-noprompt", "-alias", name, "-file", certificate, store=f"trust-{name}.jks")
    return folder


@pytest.fixture(scope="module", name="secured")
def _secured(stores: Path) -> Iterator[KafkaBroker]:
    """SASL_SSL with SCRAM-SHA-256; a client has to show a certificate."""
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.client.ssl.keystore.location": str(stores / "broker.keystore.jks"),
        "listener.name.client.ssl.keystore.type": "JKS",
        "listener.name.client.ssl.keystore.password": STORE,
        "listener.name.client.ssl.truststore.location": str(stores / "trust-client.jks"),
        "listener.name.client.ssl.truststore.type": "JKS",
        "listener.name.client.ssl.truststore.password": STORE,
        "listener.name.client.ssl.client.auth": "required",
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.client.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    with KafkaBroker(properties=properties, sasl_plain={"admin": "admin"}) as broker:
        broker.create_topic("user_behavior")
        admin = AdminClient(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SASL_SSL",
                "ssl.ca.pem": (stores / "broker.pem").read_text(),
                "ssl.keystore.location": str(_as_pkcs12(stores)),
                "ssl.keystore.password": STORE,
                "sasl.mechanism": "PLAIN",
                "sasl.username": "admin",
                "sasl.password": "admin",
            }
        )
        alice = UserScramCredentialUpsertion(
            "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), USER.encode()
        )
        admin.alter_user_scram_credentials([alice])["alice"].result(20)
        yield broker


def _as_pkcs12(stores: Path) -> Path:
    """The client's key store as librdkafka itself reads it."""
    copy = stores / "client.p12"
    passwords = ("-srcstorepass", STORE, "-deststorepass", STORE)
    both = ("-srckeystore", str(stores / "client.keystore.jks"), "-destkeystore", str(copy), "-deststoretype", "PKCS12")
    subprocess.run(
        ["keytool", "-importkeystore", "-noprompt", *both, *passwords], check=True, capture_output=True, timeout=60
    )
    return copy


def statement(broker: KafkaBroker, stores: Path, password: str, *more: str) -> str:
    """The documentation's, with this broker's address and stores, and with a format."""
    return rf"""CREATE TABLE KafkaTable (
      `user_id` BIGINT,
      `item_id` BIGINT,
      `behavior` STRING,
      `ts` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'
    ) WITH (
      'connector' = 'kafka',
      'topic' = 'user_behavior',
      'properties.bootstrap.servers' = '{broker.bootstrap_servers}',
      'properties.security.protocol' = 'SASL_SSL',
      /* SSL configurations */
      /* Configure the path of truststore (CA) provided by the server */
      'properties.ssl.truststore.location' = '{stores}/trust-broker.jks',
      'properties.ssl.truststore.password' = '{STORE}',
      /* Configure the path of keystore (private key) if client authentication is required */
      'properties.ssl.keystore.location' = '{stores}/client.keystore.jks',
      'properties.ssl.keystore.password' = '{STORE}',
      /* SASL configurations */
      /* Set SASL mechanism as SCRAM-SHA-256 */
      'properties.sasl.mechanism' = 'SCRAM-SHA-256',
      /* Set JAAS configurations */
      'properties.sasl.jaas.config' = 'org.apache.kafka.common.security.scram.ScramLoginModule required username=\"alice\" password=\"{password}\";',
      'scan.startup.mode' = 'earliest-offset',
      {"".join(f"{option}, " for option in more)}
      'format' = 'csv'
    )"""  # noqa: E501  as in the documentation


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_tls_and_scram_with_javas_key_stores(
    env: TableEnvironment, secured: KafkaBroker, stores: Path, guarantee: str
) -> None:
    """Written and read; the transactions of exactly-once go through a client of our own, which logs in as well."""
    options = [f"'sink.delivery-guarantee' = '{guarantee}'", f"'sink.transactional-id-prefix' = 'p-{guarantee}'"]
    env.execute_sql(statement(secured, stores, USER, *(options if guarantee == "exactly-once" else options[:1])))
    env.execute_sql("SET 'execution.runtime-mode' = 'batch'")
    now_ms = time.time_ns() // 1_000_000
    env.execute_sql(f"INSERT INTO KafkaTable SELECT 1L, 2L, '{guarantee}', timestamp_millis({now_ms})")
    found = rows(env, "SELECT user_id, item_id, behavior, unix_millis(ts) FROM KafkaTable")
    assert (1, 2, guarantee, now_ms) in found
    shown = next(env.execute_sql("SHOW CREATE TABLE KafkaTable").collect())[0]
    assert STORE not in shown
    assert USER not in shown


def test_one_query_over_clusters_with_different_security(
    spark: SparkSession, env: TableEnvironment, secured: KafkaBroker, stores: Path, tmp_path: Path
) -> None:
    """Plain text, a password in plain text, and SCRAM over TLS with a certificate of the client: one stream."""
    file = MetadataFile(tmp_path / "streams.yaml")
    with KafkaBroker() as plain, KafkaBroker(sasl_plain={"bob": "builder"}) as password:
        for broker in (plain, password):
            broker.create_topic("user_behavior")
        produce(plain.bootstrap_servers, "user_behavior", [(None, b"plain")])
        produce(password.internal_address, "user_behavior", [(None, b"password")])
        produce(secured.internal_address, "user_behavior", [(None, b"scram")])
        scram = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(stores / "trust-broker.jks"),
            "ssl.truststore.password": STORE,
            "ssl.keystore.location": str(stores / "client.keystore.jks"),
            "ssl.keystore.password": STORE,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": (
                f'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{USER}";'
            ),
        }
        login = {key: value for key, value in password.client_properties().items() if key != "bootstrap.servers"}
        brokers = {"plain": (plain, {}), "password": (password, login), "scram": (secured, scram)}
        file.write(
            s={
                name: {"bootstrapServers": broker.bootstrap_servers, "topics": ["user_behavior"], "properties": own}
                for name, (broker, own) in brokers.items()
            }
        )
        allowed = {"metadata-service.allowed-references": f"file:{stores}/*", "startingOffsets": "earliest"}
        stream = spark.readStream.format("dynamic-kafka").options(**file.options(**allowed)).load()
        query = stream.writeStream.format("memory").queryName("mixed").trigger(availableNow=True).start()
        query.awaitTermination(120)
        found = {(row["cluster"], bytes(row["value"]).decode()) for row in spark.table("mixed").collect()}
    assert {("plain", "plain"), ("password", "password"), ("scram", "scram")} <= found


def test_a_wrong_password_is_told_and_not_shown(env: TableEnvironment, secured: KafkaBroker, stores: Path) -> None:
    """As the broker says it."""
    env.execute_sql(statement(secured, stores, "wrong-one", "'properties.default.api.timeout.ms' = '10000'"))
    with pytest.raises(
        DynamicKafkaError, match=r"Cluster 'kafka' at .* refuses the login .* authentication error"
    ) as caught:
        rows(env, "SELECT * FROM KafkaTable")
    assert "wrong-one" not in str(caught.value)

"""Java's properties mean the same to librdkafka, and none is lost silently."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, UnknownOptionError
from dynamic_kafka.kafka.config import property_names as names
from dynamic_kafka.kafka.config.properties import Role, client_config, to_librdkafka
from dynamic_kafka.sink.configure import configure_sink
from dynamic_kafka.source.configure import configure_source

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
STORES = Path(__file__).parents[2] / "stores"
ROLES: tuple[Role, ...] = ("consumer", "admin", "producer")


def librdkafka_says(key: str, value: str) -> str:
    """The error of librdkafka for a property, or "" if it takes it; no client is made, as the last name stops it."""
    with pytest.raises((confluent_kafka.KafkaException, TypeError, ValueError)) as caught:
        confluent_kafka.Producer({key: value, "no.such.property": ""})
    return "" if "no.such.property" in str(caught.value) else str(caught.value)


@pytest.mark.parametrize("key", sorted(names.COMMON | names.CONSUMER | names.PRODUCER))
def test_librdkafka_knows_each_name(key: str) -> None:
    """Each name in the list exists in librdkafka and can be set by text; its value may still be wrong."""
    complaint = librdkafka_says(key, "1000")

    for refusal in ("No such configuration property", "must be set through dedicated", "not settable", "expected"):
        assert refusal not in complaint


def test_the_lists_do_not_overlap() -> None:
    """A property belongs to one kind of client or all, and what is ignored is not librdkafka's."""
    lists = [names.COMMON, names.CONSUMER, names.PRODUCER, names.IGNORED]

    assert sum(map(len, lists)) == len(frozenset().union(*lists))


def test_new_names_lead_to_names_librdkafka_knows() -> None:
    """Every translation has a target that exists."""
    assert set(names.RENAMED.values()) <= names.COMMON | names.CONSUMER | names.PRODUCER


def test_defaults_that_differ_are_pinned() -> None:
    """Java's defaults hold where librdkafka's differ, and a consumer or admin client never makes a topic."""
    shared = {"metadata.max.age.ms": "300000"}
    assert shared | {
        "isolation.level": "read_uncommitted",
        "check.crcs": "true",
        "allow.auto.create.topics": "false",
    } == to_librdkafka({}, role="consumer")
    assert shared | {"allow.auto.create.topics": "false"} == to_librdkafka({}, role="admin")
    assert shared | {"enable.idempotence": "true", "partitioner": "murmur2_random"} == to_librdkafka(
        {}, role="producer"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("isolation.level", "read_committed"),
        ("check.crcs", "false"),
        ("metadata.max.age.ms", "5000"),
        ("allow.auto.create.topics", "true"),
    ],
)
def test_a_given_value_wins_over_a_pinned_default(key: str, value: str) -> None:
    """The user's word is the last."""
    assert value == to_librdkafka({key: value}, role="consumer")[key]


@pytest.mark.parametrize(
    ("role", "key", "value", "expected"),
    [
        ("consumer", "bootstrap.servers", "a:1", {"bootstrap.servers": "a:1"}),
        ("consumer", "metadata.broker.list", "a:1", {"bootstrap.servers": "a:1"}),
        ("consumer", "fetch.max.wait.ms", "100", {"fetch.wait.max.ms": "100"}),
        ("consumer", "fetch.wait.max.ms", "100", {"fetch.wait.max.ms": "100"}),
        ("consumer", "fetch.min.bytes", "0", {"fetch.min.bytes": "1"}),
        ("consumer", "fetch.max.bytes", "5000", {"fetch.max.bytes": "5000", "message.max.bytes": "5000"}),
        ("consumer", "receive.buffer.bytes", "65536", {"socket.receive.buffer.bytes": "65536"}),
        ("consumer", "receive.buffer.bytes", "-1", {"socket.receive.buffer.bytes": "0"}),
        ("producer", "send.buffer.bytes", "131072", {"socket.send.buffer.bytes": "131072"}),
        ("consumer", "connections.max.idle.ms", "-1", {"connections.max.idle.ms": "0"}),
        ("consumer", "request.timeout.ms", "40000", {"socket.timeout.ms": "40000"}),
        ("admin", "request.timeout.ms", "40000", {"socket.timeout.ms": "40000"}),
        ("producer", "request.timeout.ms", "40000", {"request.timeout.ms": "40000"}),
        ("producer", "max.request.size", "2000000", {"message.max.bytes": "2000000"}),
        ("consumer", "max.request.size", "2000000", {}),
        ("producer", "buffer.memory", "33554432", {"queue.buffering.max.kbytes": "32768"}),
        ("producer", "buffer.memory", "10", {"queue.buffering.max.kbytes": "1"}),
        ("producer", "partitioner.class", "", {"partitioner": "murmur2_random"}),
        ("producer", "partitioner.class", "o.a.k.DefaultPartitioner", {"partitioner": "murmur2_random"}),
        ("producer", "partitioner", "consistent", {"partitioner": "consistent"}),
        ("consumer", "partitioner.class", "my.Own", {}),
        ("consumer", "auto.offset.reset", "none", {"auto.offset.reset": "error"}),
        ("consumer", "auto.offset.reset", "latest", {"auto.offset.reset": "latest"}),
        ("consumer", "partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor", {}),
        ("consumer", "partition.assignment.strategy", "range", {"partition.assignment.strategy": "range"}),
        ("consumer", "client.dns.lookup", "use_all_dns_ips", {"client.dns.lookup": "use_all_dns_ips"}),
        ("consumer", "client.dns.lookup", "default", {}),
        ("consumer", "key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer", {}),
        ("consumer", "max.poll.records", "10", {}),
        ("consumer", "acks", "1", {}),
        ("admin", "group.id", "g", {}),
        ("admin", "isolation.level", "read_committed", {}),
        ("consumer", "ssl.endpoint.identification.algorithm", "", {"ssl.endpoint.identification.algorithm": "none"}),
        (
            "consumer",
            "ssl.endpoint.identification.algorithm",
            "HTTPS",
            {"ssl.endpoint.identification.algorithm": "https"},
        ),
        (
            "consumer",
            "sasl.kerberos.kinit.cmd",
            "/usr/bin/kinit",
            {"sasl.kerberos.kinit.cmd": '/usr/bin/kinit -t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal}'},
        ),
    ],
)
def test_one_property(role: Role, key: str, value: str, expected: dict[str, str]) -> None:
    """A property becomes what means the same, or nothing where the client has no use for it."""
    without = to_librdkafka({}, role=role)

    assert without | expected == to_librdkafka({key: value}, role=role)
    for name, new_value in expected.items():
        assert librdkafka_says(name, new_value) == ""


def test_compression_levels() -> None:
    """Of Java's levels, one for each codec, the one of the codec in use counts."""
    given_properties = {"compression.type": "zstd", "compression.zstd.level": "5", "compression.gzip.level": "9"}

    config = to_librdkafka(given_properties, role="producer")

    assert config["compression.level"] == "5"


@pytest.mark.parametrize(
    "contradiction", [{"acks": "1"}, {"retries": "0"}, {"max.in.flight.requests.per.connection": "10"}]
)
def test_idempotence_gives_way(contradiction: dict[str, str]) -> None:
    """As in Java, settings that contradict idempotence switch its default off, and librdkafka takes the result."""
    config = client_config(contradiction, role="producer")

    assert "enable.idempotence" not in config
    confluent_kafka.Producer(config)


@pytest.mark.parametrize("key", ["config.providers", "config.providers.secretsmanager.class"])
def test_javas_providers_of_secrets_are_refused_with_ours(key: str) -> None:
    """A script of Amazon's examples has them."""
    with pytest.raises(ConfigurationError, match=r"write \$\{env:NAME\} for an environment variable"):
        to_librdkafka({key: "secretsmanager"}, role="consumer")


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("bootstrap.server", "bootstrap.servers"),
        ("sasl.mechanim", "sasl.mechanism"),
        ("fetch.max.wait", "fetch.max.wait.ms"),
        ("Isolation.Level", "isolation.level"),
    ],
)
def test_an_unknown_property_is_an_error_with_a_suggestion(key: str, suggestion: str) -> None:
    """No property is lost silently, for any client."""
    for role in ROLES:
        with pytest.raises(UnknownOptionError, match=f"did you mean '{suggestion}'"):
            to_librdkafka({key: "x"}, role=role)


def test_dropped_properties_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """What changes nothing is dropped with one debug message that holds names and no values."""
    with caplog.at_level(logging.DEBUG, logger="dynamic_kafka"):
        to_librdkafka({"metric.reporters": "my.Reporter", "value.deserializer": "x", "acks": "1"}, role="consumer")

    assert caplog.messages == [
        "Properties without a meaning for librdkafka's consumer: acks, metric.reporters, value.deserializer"
    ]


def test_two_spellings_of_one_property() -> None:
    """Two names for one thing may agree; if they do not, both are named and no value is shown."""
    assert to_librdkafka({"linger.ms": "5", "queue.buffering.max.ms": "5"}, role="producer")["linger.ms"] == "5"
    with pytest.raises(ConflictingOptionsError, match=r"'sasl\.username' and 'sasl\.jaas\.config'") as caught:
        to_librdkafka(
            {
                "sasl.mechanism": "PLAIN",
                "sasl.username": "hunter1",
                "sasl.jaas.config": f"{PLAIN} required username=hunter2 password=hunter3;",
            },
            role="consumer",
        )
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize(
    ("role", "properties", "problem"),
    [
        ("producer", {"buffer.memory": "32m"}, "'buffer.memory' has the value '32m'; expected a whole number"),
        ("consumer", {"auto.offset.reset": "by_duration:PT1H"}, "earliest, latest or none"),
        ("producer", {"partitioner.class": "my.Own"}, "Java class that cannot run here"),
        ("consumer", {"ssl.engine.factory.class": "my.Own"}, "Java class that cannot run here"),
        ("consumer", {"sasl.login.callback.handler.class": "my.Own"}, "Java class that cannot run here"),
        ("consumer", {"sasl.jaas.config": f"{PLAIN} required username=u password=p;"}, "set sasl.mechanism to PLAIN"),
        (
            "consumer",
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": "x.OAuthBearerLoginModule required clientId=i clientSecret=s;",
            },
            "'sasl.oauthbearer.token.endpoint.url' is missing",
        ),
    ],
)
def test_what_cannot_be_translated(role: Role, properties: dict[str, str], problem: str) -> None:
    """A wrong value, or one that needs Java, is an error that says what to do."""
    with pytest.raises(ConfigurationError) as caught:
        to_librdkafka(properties, role=role)

    assert problem in str(caught.value)


def test_oauthbearer_with_kafkas_handler() -> None:
    """Kafka's own OAuth login handler is librdkafka's OIDC, and librdkafka takes the result."""
    properties = {
        "bootstrap.servers": "localhost:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": "o.a.k.c.s.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": "http://localhost:1/token",
        "sasl.jaas.config": "x.OAuthBearerLoginModule required clientId=i clientSecret=s scope=a;",
    }

    config = client_config(properties, role="consumer")

    assert {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "i",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.scope": "a",
    }.items() <= config.items()
    confluent_kafka.Consumer({"group.id": "g", "log_level": "0", **config}).close()


def test_kerberos_says_how_to_get_it() -> None:
    """The wheels of confluent-kafka have no GSSAPI: an error with the remedy, also when it is only the default."""
    for extra in ({"sasl.mechanism": "GSSAPI"}, {}):
        with pytest.raises(ConfigurationError, match=r"libsasl2.*--no-binary.*set sasl\.mechanism"):
            client_config({"security.protocol": "SASL_PLAINTEXT", **extra}, role="consumer")


def test_kerberos_without_a_keytab_is_by_the_ticket_cache() -> None:
    """As in Java: librdkafka runs its kinit only if there is a keytab, or a command of the user's own."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    name = "sasl.kerberos.min.time.before.relogin"
    jaas = "com.sun.security.auth.module.Krb5LoginModule required"
    cache = {"sasl.jaas.config": f"{jaas} useTicketCache=true;", name: "60000"}
    assert to_librdkafka({**login, **cache}, role="consumer")[name] == "0"
    for kinit in ({"sasl.jaas.config": f'{jaas} keyTab="/k" principal="me";'}, {"sasl.kerberos.kinit.cmd": "kinit -R"}):
        assert name not in to_librdkafka({**login, **kinit}, role="consumer")


def test_kerberos_is_refused_when_a_query_is_defined() -> None:
    """On one cluster it is known then; the clusters of a metadata service may have other logins."""
    login = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "GSSAPI"}
    cluster = {"kafka.bootstrap.servers": "a:1"}
    with pytest.raises(ConfigurationError, match="libsasl2"):
        configure_source({"subscribe": "t", **cluster, **login})
    with pytest.raises(ConfigurationError, match="libsasl2"):
        configure_sink({"topic": "t", **cluster, **login})
    service = {"metadata-service": "file", "metadata-service.path": "m", "stream-ids": "s"}
    configure_source({**service, **login})


@pytest.mark.parametrize("role", ROLES)
def test_the_documentations_sasl_ssl_example(role: Role, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flink's example with SASL_SSL, SCRAM and JKS stores makes each kind of client, with secrets as references."""
    monkeypatch.setenv("DK_STORES", str(STORES))
    monkeypatch.setenv("DK_PASSWORD", 'pass"word')
    properties = {
        "bootstrap.servers": "localhost:1",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": "${env:DK_STORES}/trust-rsa.jks",
        "ssl.truststore.password": "test1234",
        "ssl.keystore.location": "${env:DK_STORES}/rsa.jks",
        "ssl.keystore.password": "test1234",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{SCRAM} required username="username" password="${{env:DK_PASSWORD}}";',
    }

    config = client_config(properties, role=role)

    assert config["sasl.password"] == 'pass"word'
    assert not [key for key in config if "store" in key or "jaas" in key]
    for key in ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"):
        assert config[key].startswith("-----BEGIN ")
    quiet = {**config, "log_level": "0"}
    if role == "consumer":
        confluent_kafka.Consumer({"group.id": "g", **quiet}).close()
    elif role == "admin":
        AdminClient(quiet)  # type: ignore[arg-type]
    else:
        confluent_kafka.Producer(quiet)


def test_inline_pem() -> None:
    """Certificates given as PEM in Java's properties are librdkafka's, without any file."""
    certificate = (STORES / "rsa.pem").read_text()
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": " ".join(certificate.splitlines()),
    }

    config = client_config(properties, role="consumer")

    assert certificate.replace("\r", "") == config["ssl.ca.pem"]
    assert "ssl.truststore.type" not in config


def test_a_store_and_a_pem_for_one_thing() -> None:
    """A trust store beside librdkafka's own property for the same is an error that names both."""
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(STORES / "trust-rsa.jks"),
        "ssl.ca.location": "/etc/ssl/ca.pem",
    }

    with pytest.raises(ConflictingOptionsError, match=r"'ssl\.truststore\.location' and 'ssl\.ca\.location'"):
        client_config(properties, role="consumer")


def test_stores_are_not_read_without_tls() -> None:
    """As in Java, stores mean nothing to a plaintext connection, not even if the file is missing."""
    config = client_config({"ssl.truststore.location": "/no/such.jks"}, role="consumer")

    assert not [key for key in config if key.startswith("ssl.")]


def test_translating_reads_nothing() -> None:
    """`to_librdkafka` leaves references and stores alone: it is pure."""
    properties = {
        "sasl.password": "${file:/no/such}",
        "ssl.truststore.location": "/no/such.jks",
        "ssl.keystore.key": "${file:/no/such.pem}",
    }

    translated = to_librdkafka(properties, role="consumer")

    assert properties.pop("ssl.keystore.key") == translated["ssl.key.pem"]
    assert properties.items() <= translated.items()


@given(
    st.dictionaries(
        st.sampled_from(sorted(names.COMMON | names.CONSUMER | names.PRODUCER | names.RENAMED.keys())),
        st.sampled_from(["1", "true", "hunter2", "", "-1", "all"]),
        max_size=6,
    ),
    st.sampled_from(ROLES),
)
def test_any_properties_are_translated_or_refused(properties: dict[str, str], role: Role) -> None:
    """The result has only names that this client knows (stores aside), or the error is a ConfigurationError."""
    allowed = (
        names.COMMON | names.STORES | {"consumer": names.CONSUMER, "producer": names.PRODUCER}.get(role, frozenset())
    )
    try:
        config = to_librdkafka(properties, role=role)
    except ConfigurationError:
        return

    assert config.keys() <= allowed
    assert config == to_librdkafka(config, role=role), "translating twice changes nothing"


# --- TLS versions and ciphers -----------------------------------------------------------------------------------------

TLS_1_3 = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"


@pytest.mark.parametrize("role", ["consumer", "admin", "producer"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("ssl.enabled.protocols", value) for value in ("TLSv1.3", "TLSv1.2", "TLSv1.2,TLSv1.1,TLSv1.3", "SSLv3")),
        *(("ssl.protocol", value) for value in ("TLSv1.1", "TLSv1", "SSL", "DTLSv1.2")),
        ("security.providers", "com.example.FipsProviderCreator"),
        ("ssl.provider", "BCFIPS"),
        ("ssl.cipher.suites", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
        ("ssl.cipher.suites", "TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
        ("ssl.cipher.suites", TLS_1_3),
        ("ssl.cipher.suites", f"{TLS_1_3},TLS_RSA_WITH_RC4_128_MD5"),
        ("ssl.cipher.suites", f"{TLS_1_3},ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_a_choice_of_tls_that_cannot_be_kept_is_refused(role: Role, key: str, value: str) -> None:
    """Else a connection would use a version or a cipher that the user has ruled out."""
    with pytest.raises(ConfigurationError, match=rf"^Property '{key}'"):
        to_librdkafka({key: value}, role=role)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("ssl.enabled.protocols", value) for value in ("", "TLSv1.2,TLSv1.3", " TLSv1.3 , TLSv1.2 ")),
        *(("ssl.protocol", value) for value in ("TLS", "TLSv1.2", "TLSv1.3")),
    ],
)
def test_javas_defaults_of_tls_are_what_connections_offer(key: str, value: str) -> None:
    """They need no translation."""
    assert to_librdkafka({key: value}, role="consumer") == to_librdkafka({}, role="consumer")


@pytest.mark.parametrize("value", ["aNULL:@SECLEVEL=0", "@SECLEVEL=0:DEFAULT", "eNULL:DEFAULT@SECLEVEL=0"])
@pytest.mark.parametrize("role", ["consumer", "admin"])
def test_the_security_level_0_is_refused(value: str, role: Role) -> None:
    """A broker without a certificate could take the login."""
    with pytest.raises(
        ConfigurationError, match=r"'ssl\.cipher\.suites' has @SECLEVEL=0, which allows brokers without a"
    ):
        to_librdkafka({"ssl.cipher.suites": value, "security.protocol": "SSL"}, role=role)


@pytest.mark.parametrize("value", ["ALL", "HIGH", "aNULL", "eNULL:DEFAULT", "ALL:@SECLEVEL=1"])
def test_without_the_security_level_0_no_cipher_lacks_a_certificate(value: str) -> None:
    """OpenSSL does not use those of a list: neither for a client, nor for a server that has nothing else."""
    found = to_librdkafka({"ssl.cipher.suites": value, "security.protocol": "SSL"}, role="admin")["ssl.cipher.suites"]
    client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client.set_ciphers(found)
    server.set_ciphers("aNULL:eNULL:@SECLEVEL=0")
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = client.wrap_bio(to_client, to_server, server_hostname="broker")
    with pytest.raises(ssl.SSLWantReadError):
        asks.do_handshake()
    with pytest.raises(ssl.SSLError, match=r"NO_SHARED_CIPHER|UNSUPPORTED_PROTOCOL|INTERNAL_ERROR"):
        server.wrap_bio(to_server, to_client, server_side=True).do_handshake()


@pytest.mark.parametrize("exchange", ["ECDHE_RSA", "ECDHE_ECDSA", "DHE_RSA", "RSA"])
@pytest.mark.parametrize(
    "cipher", ["AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "AES_128_CBC_SHA", "CHACHA20_POLY1305_SHA256"]
)
def test_javas_ciphers_are_openssls_in_both_clients(exchange: str, cipher: str) -> None:
    """Python's ssl and librdkafka take the same translated list, and then offer that cipher of TLS 1.2 and no other."""
    if exchange == "RSA" and "CHACHA" in cipher:
        pytest.skip("no such cipher")
    java = f"{TLS_1_3},TLS_{exchange}_WITH_{cipher}"
    found = to_librdkafka({"ssl.cipher.suites": java, "security.protocol": "SSL"}, role="consumer")["ssl.cipher.suites"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers(found + ":@SECLEVEL=0")
    assert [c["name"] for c in context.get_ciphers() if not c["name"].startswith("TLS_")] == [found]
    config = {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "g",
        "security.protocol": "SSL",
        "ssl.cipher.suites": found,
    }
    Consumer(config).close()


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.crl.location", "https.ca.location"),
        *("ssl.truststore.location", "ssl.keystore.location", "sasl.oauthbearer.assertion.file"),
        *("sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.assertion.jwt.template.file"),
        *("sasl.password", "ssl.truststore.certificates", "client.id"),
    ],
)
def test_only_regular_files_of_a_sane_size_are_read(key: str, tmp_path: Path) -> None:
    """A pipe would be waited for, a device never ends, and a large file is a mistake."""
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(17 * 2**20)
    for path, reason in ((pipe, "not a regular file"), ("/dev/zero", "not a regular file"), (large, "larger than")):
        value = str(path) if key.endswith((".location", ".file")) else f"${{file:{path}}}"
        with pytest.raises(ConfigurationError, match=reason):
            client_config({"security.protocol": "SSL", key: value}, role="consumer")

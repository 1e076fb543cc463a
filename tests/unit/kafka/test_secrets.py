"""References are resolved late and nothing else about a secret leaves the process."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.kafka.config import jaas, secrets, small_files

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_resolves_variables_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of reference are replaced, alone and within a value; a file loses its last line break only."""
    secret_file = tmp_path / "secret"
    secret_file.write_text(" s3cret \n\n")
    monkeypatch.setenv("DK_HOST", "broker")
    given_properties = {
        "bootstrap.servers": "${env:DK_HOST}-0:9092,${env:DK_HOST}-1:9092",
        "ssl.keystore.password": f"${{file:{secret_file}}}",
        "client.id": "a ${b} $c",
    }

    resolved = secrets.resolve(given_properties)

    assert resolved == {
        "bootstrap.servers": "broker-0:9092,broker-1:9092",
        "ssl.keystore.password": " s3cret \n",
        "client.id": "a ${b} $c",
    }


def test_an_error_about_a_value_shows_its_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As libraries quote values: as they are, escaped, or in other letters. Short ones only between quotation marks."""
    secret_file = tmp_path / "secret"
    secret_file.write_text("it's s3cret\n")
    monkeypatch.setenv("DK_ONE", "1")
    reference = f"${{file:{secret_file}}}"
    properties = {"a": f"x{reference}", "b": "${env:DK_ONE}", "c": "${env:DK_MISSING}", "d": "plain"}

    def shown(text: str) -> str:
        return secrets.hide(text, properties)

    assert shown("bad value xit's s3cret") == f"bad value x{reference}"
    assert shown("bad value " + repr("it's s3cret")) == f'bad value "{reference}"'
    assert shown("bad value IT'S S3CRET") == f"bad value {reference}"
    assert shown("1 of 11: plain '1'") == "1 of 11: plain '${env:DK_ONE}'"
    with pytest.raises(ConfigurationError) as caught, secrets.hidden(properties):
        raise ConfigurationError("bad '1'")
    assert str(caught.value) == "bad '${env:DK_ONE}'"


def test_a_resolved_value_is_not_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password that looks like a reference stays what it is."""
    monkeypatch.setenv("DK_PASSWORD", "${env:HOME}")

    assert secrets.resolve({"sasl.password": "${env:DK_PASSWORD}"}) == {"sasl.password": "${env:HOME}"}


@pytest.mark.parametrize("quoted", ['"${env:DK_PASSWORD}"', "'${env:DK_PASSWORD}'", "${env:DK_PASSWORD}"])
def test_a_password_in_a_jaas_string_may_have_any_characters(quoted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotes, backslashes and semicolons in a referenced password neither end the value nor add options."""
    password = 'a"b\'c\\d; username="root" \n//'
    monkeypatch.setenv("DK_PASSWORD", password)

    resolved = secrets.resolve({"sasl.jaas.config": f'{PLAIN} required username="alice" password={quoted};'})

    assert {"username": "alice", "password": password} == jaas.parse(resolved["sasl.jaas.config"]).options


def test_a_whole_jaas_string_may_be_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference that is the whole value brings JAAS, which is taken as it is."""
    text = f'{PLAIN} required username="a" password="b\\"c";'
    monkeypatch.setenv("DK_JAAS", text)

    assert {"sasl.jaas.config": text} == secrets.resolve({"sasl.jaas.config": "${env:DK_JAAS}"})


@pytest.mark.parametrize(
    "reference", ["${env:DK_MISSING}", "${file:/no/such/file}", "${env:}", "${file:}", "${file:/}"]
)
def test_a_missing_reference_is_named_and_no_value_is_shown(reference: str) -> None:
    """The error names the property and the reference, and nothing that stands beside it."""
    with pytest.raises(ConfigurationError) as caught:
        secrets.resolve({"sasl.password": f"hunter2{reference}"})

    assert "'sasl.password'" in str(caught.value)
    assert reference in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_no_text_shows_none_of_its_bytes(tmp_path: Path) -> None:
    """A binary file is an error that holds nothing of it, also in the chained exception."""
    path = tmp_path / "binary"
    path.write_bytes(b"hunter2\xff\xfe")

    with pytest.raises(ConfigurationError, match="UTF-8") as caught:
        secrets.resolve({"sasl.password": f"${{file:{path}}}"})

    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password",
        "sasl.jaas.config",
        "properties.sasl.jaas.config",
        "ssl.truststore.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "SASL.OAUTHBEARER.CLIENT.SECRET",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "basic.auth.user.info",
        "avro-confluent.basic-auth.user-info",
        "bearer.auth.token",
        "fs.azure.account.key.lake.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.files.lake.blob.core.windows.net",
        "parquet.encryption.key.list",
        "metadata-service.auth-header",
        "auth.header",
        "pwd",
        "my.pwd",
        "dbpwd",
        "PASSCODE",
        "sas",
        "my.sas-url.passkey",
        "access.key",
        "fs.s3a.access-key",
    ],
)
def test_secret_names(key: str) -> None:
    """These names hold secrets, with any prefix and in any case."""
    assert secrets.is_secret(key)
    assert {key: "***"} == secrets.redact({key: "hunter2"})
    assert secrets.storable({key: "hunter2"}) == {}


@pytest.mark.parametrize(
    "key",
    [
        "bootstrap.servers",
        "sasl.username",
        "ssl.key.location",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.certificate.chain",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.mechanism",
    ],
)
def test_names_that_only_point_to_a_secret(key: str) -> None:
    """A path or URL is no secret: it is shown and stored."""
    assert not secrets.is_secret(key)
    assert {key: "x"} == secrets.redact({key: "x"}) == secrets.storable({key: "x"})


def test_references_are_shown_and_stored() -> None:
    """What consists of references only is no secret; a literal beside a reference makes it one."""
    references = {"sasl.password": "${env:A}", "ssl.key.password": "${env:A}${file:/b}", "x.y": "${env:A}"}

    assert references == secrets.redact(references) == secrets.storable(references)
    assert secrets.storable({"sasl.password": "hunter2${env:A}", "ssl.key.password": "${vault:a}"}) == {}
    assert secrets.redact({"sasl.password": "hunter2${env:A}"}) == {"sasl.password": "***"}


def test_jaas_is_stored_only_with_a_referenced_password() -> None:
    """A JAAS string is seen and stored if its secret options are references, without its comments."""
    kept = f'/* was hunter2 */ {PLAIN} required username=alice password="${{env:P}}"; // hunter2'

    expected = {"sasl.jaas.config": f'{PLAIN} required username="alice" password="${{env:P}}";'}
    assert expected == secrets.storable({"sasl.jaas.config": kept}) == secrets.redact({"sasl.jaas.config": kept})
    for value in (
        f'{PLAIN} required username="alice" password="hunter2";',
        f'{PLAIN} required username="alice" password="hunter2${{env:P}}";',
        f'{PLAIN} required username="alice" password="${{env:P}}" other="hunter2";',
        f'{PLAIN} required username="alice" password="hunter2',
        "hunter2",
        "",
    ):
        assert secrets.storable({"sasl.jaas.config": value}) == {}
        assert secrets.redact({"sasl.jaas.config": value}) == {"sasl.jaas.config": "***"}


def test_credentials_in_a_url_are_secret() -> None:
    """User and password in a URL are neither shown nor stored, whatever characters they have."""
    properties = {"sasl.oauthbearer.token.endpoint.url": "https://me:hunt/er@2@idp.example/token"}

    assert secrets.redact(properties) == {"sasl.oauthbearer.token.endpoint.url": "https://***@idp.example/token"}
    assert secrets.storable(properties) == {}


def test_a_private_key_in_the_wrong_property_is_secret() -> None:
    """A PEM file with both, pasted into the certificates, is neither shown nor stored."""
    properties = {"ssl.truststore.certificates": "-----BEGIN PRIVATE KEY-----\nhunter2"}

    assert secrets.redact(properties) == {"ssl.truststore.certificates": "***"}
    assert secrets.storable(properties) == {}


def test_storable_is_an_allow_list() -> None:
    """Connection properties, time-outs and sizes are kept; what is not known is left out."""
    kept = {
        "bootstrap.servers": "${env:HOST}:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.truststore.location": "/t.jks",
        "ssl.endpoint.identification.algorithm": "",
        "isolation.level": "read_committed",
        "request.timeout.ms": "1000",
        "fetch.max.bytes": "1",
        "client.rack": "a",
    }

    assert kept == secrets.storable({**kept, "my.own": "hunter2", "odd.ms": "hunter2"})


@given(st.dictionaries(st.sampled_from(["sasl.password", "sasl.jaas.config", "ssl.key.pem", "x.token"]), st.text()))
def test_no_literal_secret_is_ever_shown_or_stored(properties: dict[str, str]) -> None:
    """Of a secret property nothing but references and JAAS without literals gets out, whatever the text."""
    for key, value in secrets.storable(properties).items():
        assert value.startswith("${") or jaas.parse(value).options.keys() <= jaas.PUBLIC_OPTIONS, (key, value)
    assert secrets.redact(properties).keys() == properties.keys()


def test_a_file_that_tells_no_size_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of /proc, and one that grows while it is read: half of a secret is another secret."""
    monkeypatch.setattr(small_files, "_LARGEST", 100)
    with pytest.raises(OSError, match="larger than"):
        small_files.read_small_file("/proc/self/status")


def test_the_parameters_of_a_url_are_shown_without_secrets() -> None:
    """As people write them for JDBC."""
    shown = secrets.redact({"url": "jdbc:postgresql://h/db?user=me&password=geheim;access.token=geheim&ssl=true"})
    assert shown == {"url": "jdbc:postgresql://h/db?user=me&password=***;access.token=***&ssl=true"}

"""Logins with tokens of clouds: which properties ask for them, and how the tokens of the clouds' own libraries look."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from base64 import urlsafe_b64decode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from confluent_kafka import KafkaError

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError
from dynamic_kafka.kafka.clients import BackgroundErrors, ClusterClients, calls_python, usable_implementation
from dynamic_kafka.kafka.config.properties import client_config, to_librdkafka
from dynamic_kafka.kafka.config.secrets import storable
from dynamic_kafka.kafka.config.tokens import token_source
from dynamic_kafka.kafka.transactions.security import connection_settings

ROOT = Path(__file__).parents[2]
MSK_HOST = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"
SASL = {"bootstrap.servers": MSK_HOST, "security.protocol": "SASL_SSL"}
IAM = "software.amazon.msk.auth.iam"
AWS = SASL | {
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{IAM}.IAMLoginModule required;",
    "sasl.client.callback.handler.class": f"{IAM}.IAMClientCallbackHandler",
}
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
AWS_OAUTH = SASL | {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": OAUTH_MODULE,
    "sasl.login.callback.handler.class": f"{IAM}.IAMOAuthBearerLoginCallbackHandler",
    "sasl.client.callback.handler.class": f"{IAM}.IAMOAuthBearerLoginCallbackHandler",
}
GOOGLE = SASL | {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": OAUTH_MODULE,
    "sasl.login.callback.handler.class": "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
}


@pytest.fixture(autouse=True)
def _no_cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials of nobody, and no others."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")


def decoded(text: str) -> str:
    """A part of a token."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


@pytest.mark.parametrize("properties", [AWS, AWS_OAUTH, AWS | {"sasl.jaas.config": "${env:JAAS}"}])
def test_the_token_of_aws_is_a_presigned_url(properties: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """For the region in the brokers' names, for 15 minutes; by Java's mechanism, or by the handler for OAUTHBEARER."""
    monkeypatch.setenv("JAAS", AWS["sasl.jaas.config"])
    source = token_source(properties)
    assert source is not None
    token = source()
    url = urlsplit(decoded(token.text))
    query = parse_qs(url.query)
    assert url.netloc == "kafka.eu-west-1.amazonaws.com"
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert 800 < token.expires_at_s - time.time() <= 900
    assert "hunter2" not in decoded(token.text)
    assert client_config(properties, role="consumer")["sasl.mechanism"] == "OAUTHBEARER"


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        ("boot-x.c1.kafka-serverless.us-east-1.amazonaws.com:9098", "us-east-1"),
        ("b-2.x.y.c3.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("proxy.example.com:9098", "ap-south-1"),
    ],
)
def test_the_region_of_aws(servers: str, region: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the brokers' names, or else from the environment."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    source = token_source(AWS | {"bootstrap.servers": servers})
    assert source is not None
    assert decoded(source().text).startswith(f"https://kafka.{region}.amazonaws.com/")


def test_a_profile_of_aws(tmp_path: Path) -> None:
    """As Java's option `awsProfileName`."""
    (tmp_path / "credentials").write_text("[mine]\naws_access_key_id = OTHER\naws_secret_access_key = x\n")
    source = token_source(AWS | {"sasl.jaas.config": f'{IAM}.IAMLoginModule required awsProfileName="mine";'})
    assert source is not None
    assert "X-Amz-Credential=OTHER%2F" in decoded(source().text)


def test_what_aws_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """No region, no credentials, an option that the library does not have: a client is never made."""
    with pytest.raises(
        ConfigurationError, match=r"needs the region of the cluster.*set the environment variable AWS_REGION"
    ):
        token_source(AWS | {"bootstrap.servers": "a:1"})
    jaas = f'{IAM}.IAMLoginModule required awsRoleExternalId="hunter2";'
    with pytest.raises(ConfigurationError, match="option 'awsRoleExternalId', which is not supported") as caught:
        token_source(AWS | {"sasl.jaas.config": jaas})
    assert "hunter2" not in str(caught.value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    began = time.monotonic()
    with pytest.raises(
        ConfigurationError, match="No token could be made for AWS MSK's IAM login: no credentials were found"
    ):
        _ = ClusterClients(AWS).admin
    assert time.monotonic() - began < 5


def test_the_token_of_google(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head, claims with the account, and the access token behind them."""
    expiry = datetime.now(UTC).replace(tzinfo=None, microsecond=0) + timedelta(minutes=30)
    credentials = SimpleNamespace(
        service_account_email="me@example.com", token="access-token", expiry=expiry, refresh=lambda _: None
    )
    monkeypatch.setattr("google.auth.default", lambda **_: (credentials, "project"))
    source = token_source(GOOGLE)
    assert source is not None
    token = source()
    head, claims, access = token.text.split(".")
    assert json.loads(decoded(head)) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    found = json.loads(decoded(claims))
    assert (found["iss"], found["scope"], found["sub"]) == ("Google", "kafka", "me@example.com")
    assert decoded(access) == "access-token"
    assert token.expires_at_s == found["exp"] == expiry.replace(tzinfo=UTC).timestamp()


def test_google_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says where Google's library looks."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    source = token_source(GOOGLE)
    assert source is not None
    with pytest.raises(ConfigurationError, match=r"No token could be made for Google Cloud's Kafka: .*missing.json"):
        source()


@pytest.mark.parametrize(
    ("library", "properties", "extra"), [("aws_msk_iam_sasl_signer", AWS, "aws"), ("google", GOOGLE, "gcp")]
)
def test_a_library_that_is_not_installed(
    library: str, properties: dict[str, str], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the extra, when options are checked already."""
    for name in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'pyspark-dynamic-kafka\[{extra}\]'"):
        client_config(properties, role="consumer")


def test_other_logins_have_no_tokens() -> None:
    """And no secret is looked up for the question."""
    jaas = 'x.PlainLoginModule required username="u" password="${file:/missing}";'
    assert token_source({**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}) is None
    assert token_source({"bootstrap.servers": "a:1"}) is None
    assert token_source({**AWS, "security.protocol": "SSL"}) is None


def test_tokens_are_made_in_python() -> None:
    """So the kernel does not read or write such a cluster, also if it is asked for."""
    assert calls_python(AWS)
    assert usable_implementation("auto", AWS, "reader-implementation")[0] == "python"


def test_the_transactions_of_a_sink_use_the_same_tokens() -> None:
    """The connections of our own ask the same source."""
    source = token_source(AWS)
    found = connection_settings(client_config(AWS, role="admin"), source).sasl
    assert found["sasl_mechanism"] == "OAUTHBEARER"
    assert decoded(found["sasl_oauth_token_provider"].token()).startswith("https://kafka.eu-west-1.amazonaws.com/")


def test_the_reason_for_a_missing_token_is_kept() -> None:
    """Librdkafka says only that the callback has raised."""
    errors = BackgroundErrors()
    errors.note_no_token(ConfigurationError("no credentials were found"))
    errors.note(KafkaError(KafkaError._AUTHENTICATION, "OAuth callback raised exception"))
    assert (errors.last, errors.authentication_failed) == ("no credentials were found", True)


def test_oauthbearer_without_a_source_of_tokens_is_an_error() -> None:
    """A client would wait for one for ever."""
    properties = SASL | {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": OAUTH_MODULE}
    with pytest.raises(
        ConfigurationError, match=r"needs a source of tokens; set sasl\.oauthbearer\.token\.endpoint\.url"
    ):
        client_config(properties, role="consumer")
    assert "sasl.oauthbearer.method" not in to_librdkafka(properties, role="consumer")


def test_a_checkpoint_keeps_how_to_log_in() -> None:
    """Nothing of these properties is secret."""
    assert storable(AWS).keys() == AWS.keys()
    assert storable(GOOGLE).keys() >= {"sasl.mechanism", "sasl.login.callback.handler.class"}


def test_the_libraries_are_extras_with_bounds_and_are_imported_late() -> None:
    """The group `dev` has the same ones."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras, dev = project["project"]["optional-dependencies"], project["dependency-groups"]["dev"]
    for extra, libraries in (("aws", ["aws-msk-iam-sasl-signer-python", "boto3"]), ("gcp", ["google-auth[urllib3]"])):
        assert [needed.partition(">=")[0] for needed in extras[extra]] == libraries
        assert all(",<" in needed and needed in dev for needed in extras[extra])
    code = (
        "import sys, dynamic_kafka, dynamic_kafka.kafka.clients, dynamic_kafka.kafka.transactions.client\n"
        "sys.exit(', '.join({'boto3', 'botocore', 'google', 'aws_msk_iam_sasl_signer'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

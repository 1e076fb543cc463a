"""Logins with tokens of clouds: which properties ask for them, and how the tokens of the clouds' own libraries look."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from confluent_kafka import KafkaError, KafkaException

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError
from dynamic_kafka.kafka import clients as clients_module
from dynamic_kafka.kafka.clients import BackgroundErrors, ClientSettings, ClusterClients
from dynamic_kafka.kafka.config.properties import client_config, to_librdkafka
from dynamic_kafka.kafka.config.secrets import storable
from dynamic_kafka.kafka.config.tokens import Token, token_source
from dynamic_kafka.kafka.transactions.security import connection_settings

ROOT = Path(__file__).parents[3]
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
IDENTITY = SASL | {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.metadata.authentication.type": "aws_iam",
    "sasl.oauthbearer.config": "region=eu-west-1,audience=https://kafka",
    "sasl.oauthbearer.extensions": "pool=1",
}
JWT = ".".join(
    urlsafe_b64encode(part).decode().rstrip("=") for part in (b"{}", b'{"sub": "arn:aws:iam::1:role/r"}', b"x")
)


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


class KernelClient:
    """A client of the kernel that wants tokens; like librdkafka, it asks for the first one, too."""

    def __init__(self, *_: object) -> None:
        self.wants = True
        self.given: list[tuple[str, int, str, list[tuple[str, str]]]] = []
        self.refused: list[str] = []

    def give_token(self, *token: Any) -> None:
        """Take a token."""
        self.given.append(token)

    def refuse_token(self, reason: str) -> None:
        """Take the reason why there is none."""
        self.refused.append(reason)

    def reports(self) -> tuple[list[tuple[int, str]], list[str], None, bool]:
        """Return that a token is wanted, once."""
        wanted, self.wants = self.wants, False
        return [], [], None, wanted

    def close(self) -> None:
        """Close nothing."""


@pytest.mark.parametrize("name", ["fetching_consumer", "record_producer"])
def test_clients_of_the_kernel_get_the_same_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one at once, and not another one when it is asked for; then a new one whenever a client wants one."""
    made: list[Token] = []

    def source() -> Token:
        if len(made) == 2:
            raise ConfigurationError("no credentials were found")
        made.append(Token(f"token {len(made)}", 1_700_000_000.5 + len(made), "me", {"pool": "1"}))
        return made[-1]

    monkeypatch.setattr(clients_module, "token_source", lambda _: source)
    monkeypatch.setattr(clients_module, "kernel", lambda: SimpleNamespace(Consumer=KernelClient, Producer=KernelClient))
    clients = ClusterClients(AWS)
    client = getattr(clients, name)
    first = ("token 0", 1_700_000_000_500, "me", [("pool", "1")])
    assert client.given == [first]
    clients.note_reports()
    assert client.given == [first, first]
    clients.note_reports()
    assert len(client.given) == 2
    for _ in range(2):
        client.wants = True
        clients.note_reports()
    assert [token[0] for token in client.given] == ["token 0", "token 0", "token 1"]
    assert client.refused == ["no credentials were found"]
    clients.errors.note(KafkaError(KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token"))
    assert (clients.errors.last, clients.errors.authentication_failed) == ("no credentials were found", True)


@pytest.mark.parametrize("name", ["fetching_consumer", "record_producer"])
def test_a_client_of_the_kernel_is_not_made_without_a_token(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for one, and could not say why there is none."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    clients = ClusterClients(AWS)
    with pytest.raises(ConfigurationError, match="no credentials were found"):
        getattr(clients, name)
    assert clients.errors.authentication_failed


def test_a_real_client_takes_tokens_and_refusals() -> None:
    """As librdkafka does: with a principal and extensions, and not one that has expired."""
    clients = ClusterClients(AWS, consumer=ClientSettings(fixed={"group.id": "g"}))
    expires_at_ms = int(time.time() * 1000) + 60_000
    for client in (clients.fetching_consumer, clients.record_producer):
        client.give_token("text", expires_at_ms, "me", [("pool", "1")])
        client.refuse_token("no credentials")
        with pytest.raises(KafkaException, match="expired"):
            client.give_token("text", 1, "", [])
    clients.close()


class Sts:
    """AWS's service for tokens of this machine's identity."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def get_web_identity_token(self, **asked: Any) -> dict[str, Any]:
        """Return a token whose subject is a role."""
        self.asked.append(asked)
        return {"WebIdentityToken": JWT, "Expiration": datetime(2100, 1, 1, tzinfo=UTC)}


def test_the_identity_that_aws_vouches_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """confluent-kafka's tokens serve all clients: none of its properties is left to librdkafka, which asks nobody."""
    monkeypatch.setattr("boto3.Session.client", lambda *_, **__: Sts())
    source = token_source(IDENTITY)
    assert source is not None
    assert source() == (JWT, datetime(2100, 1, 1, tzinfo=UTC).timestamp(), "arn:aws:iam::1:role/r", {"pool": "1"})
    assert Sts.asked[-1]["Audience"] == ["https://kafka"]
    config = client_config(IDENTITY, role="consumer")
    assert [name for name in config if name.startswith("sasl.oauthbearer")] == []
    found = connection_settings(client_config(IDENTITY, role="admin"), source).sasl["sasl_oauth_token_provider"]
    assert (found.token(), found.extensions()) == (JWT, {"pool": "1"})
    clients = ClusterClients(IDENTITY)
    assert clients.record_producer is not None
    clients.close()


def test_what_that_identity_lacks_is_said() -> None:
    """Its configuration, verified TLS, and a service that answers."""
    with pytest.raises(ConfigurationError, match=r"Property 'sasl\.oauthbearer\.config': .*audience"):
        token_source(IDENTITY | {"sasl.oauthbearer.config": "region=eu-west-1"})
    with pytest.raises(ConfigurationError, match=r"this machine's identity.*security\.protocol is not SASL_SSL"):
        token_source(IDENTITY | {"security.protocol": "SASL_PLAINTEXT"})
    config = f"{IDENTITY['sasl.oauthbearer.config']},sts_endpoint=http://127.0.0.1:9"
    source = token_source(IDENTITY | {"sasl.oauthbearer.config": config})
    assert source is not None
    with pytest.raises(ConfigurationError, match=r"AWS made no token for this machine's identity: .*sts:GetWebId"):
        source()


OWN = SASL | {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.login.callback.handler.class": "my_tokens:make",
}


@pytest.fixture
def my_tokens(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A module of the user's."""
    module = SimpleNamespace(make=lambda: ("text", 2e9))
    monkeypatch.setitem(sys.modules, "my_tokens", module)
    return module


def test_a_function_of_the_user_makes_tokens(my_tokens: SimpleNamespace) -> None:
    """It returns what confluent-kafka's `oauth_cb` does. All clients ask it, and a login by another mechanism does not."""
    own = OWN
    source = token_source(own)
    assert source is not None
    assert source() == Token("text", 2e9)
    my_tokens.make = lambda: ("other", 2e9, "me", {"pool": "1"})
    source = token_source(own)
    assert source is not None
    assert source() == ("other", 2e9, "me", {"pool": "1"})
    assert client_config(own, role="producer")["sasl.mechanism"] == "OAUTHBEARER"
    for other in ({"sasl.mechanism": "PLAIN"}, {"security.protocol": "SSL"}):
        assert token_source(own | other) is None


@pytest.mark.parametrize(
    ("path", "made", "problem"),
    [
        ("my_tokens:missing", None, "names my_tokens:missing, which cannot be imported .*every executor"),
        ("no_such_module:make", None, "names no_such_module:make, which cannot be imported"),
        (
            "my_tokens:make",
            lambda: "text",
            "No token could be made by my_tokens:make: TypeError: it has to return a tuple",
        ),
        ("my_tokens:make", lambda: (b"text", 2e9), "it has to return a tuple of a text"),
        ("my_tokens:make", lambda: 1 / 0, "No token could be made by my_tokens:make: ZeroDivisionError"),
    ],
)
def test_a_function_of_the_user_that_makes_none(my_tokens: SimpleNamespace, path: str, made: Any, problem: str) -> None:
    """The error names it; no client is made."""
    my_tokens.make = made
    with pytest.raises(ConfigurationError, match=problem):
        _ = ClusterClients(OWN | {"sasl.login.callback.handler.class": path}).admin


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

"""Logins with tokens that Python makes.

A cloud's own library makes those for AWS MSK's IAM and for Google Cloud's Managed Service for Kafka, and confluent-kafka
those with which AWS vouches for this machine (`aws_iam`). A user's own function may make them, too, if the query's options
name it; a document may not.

Which cloud it is, Java's names say: a login module, or a callback handler. All clients then ask Python for each new token,
and so do the connections for transactions. The credentials are those that the library finds in the process that connects:
environment variables, a profile, the role of the machine or pod. The libraries are imported when a token is made.

Whoever has a token may act as this process, in Google's cloud with all its rights. So a token goes only over TLS, to a
broker whose certificate is verified.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from datetime import UTC
from functools import partial
from typing import Any, NamedTuple

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError
from dynamic_kafka.kafka.config import jaas, secrets

__all__ = [
    "Cloud",
    "Token",
    "TokenSource",
    "cloud_of",
    "is_own_function",
    "require_verified_tls",
    "token_source",
    "without_token_source",
]

_JAAS = "sasl.jaas.config"
_ASKED = (
    *("sasl.login.callback.handler.class", "sasl.client.callback.handler.class", "sasl.jaas.config"),
    *("sasl.mechanism", "sasl.mechanisms", "security.protocol"),
)
_WAY = ("bootstrap.servers", "enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm")
_MANAGED, _AWS_IDENTITY = "sasl.oauthbearer.metadata.authentication.type", "aws_iam"
_OF_MANAGED = ("sasl.oauthbearer.method", _MANAGED, "sasl.oauthbearer.config", "sasl.oauthbearer.extensions")
_BY_TOKEN = ("OAUTHBEARER", "AWS_MSK_IAM", "")
_HANDLERS = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")
_OWN_FUNCTION = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*", re.ASCII)
_AWS_HANDLERS = {"IAMClientCallbackHandler", "IAMOAuthBearerLoginCallbackHandler"}
_GOOGLE_HANDLER = "GcpLoginCallbackHandler"
_AWS_MODULE, _AWS_MECHANISM = "IAMLoginModule", "AWS_MSK_IAM"
_AWS_OPTIONS = ("awsProfileName", "awsRoleArn", "awsRoleSessionName")
_AWS_OPTIONS_WITHOUT_EFFECT = ("awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs")
_AWS_SESSION = "dynamic-kafka"
_AWS_BROKER = re.compile(
    r"(?:[a-z0-9-]+\.)+kafka(?:-serverless)?\.([a-z]+(?:-[a-z]+)+-[0-9]+)"
    r"\.(?:amazonaws\.com(?:\.cn)?|api\.aws|api\.amazonwebservices\.com\.cn)"
)
_GOOGLE_BROKER = re.compile(r"(?:[a-z0-9-]+\.)+managedkafka\.[a-z0-9.-]+\.cloud\.goog")
_LONGEST_HOST = 253
_NOBODYS_BROKER = re.compile(r"(?!)")
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class Token(NamedTuple):
    """A token, as confluent-kafka's `oauth_cb` returns it.

    Args:
        text: The token, in clear.
        expires_at_s: When it expires, in seconds since 1970.
        principal: Its principal; "" leaves it to the broker.
        extensions: SASL extensions (KIP-342).
    """

    text: str
    expires_at_s: float
    principal: str = ""
    extensions: dict[str, str] = {}  # noqa: RUF012  confluent-kafka takes nothing but a dict


class Cloud(NamedTuple):
    """A cloud that makes tokens.

    Attributes:
        name: Its name, in errors.
        brokers: The names of its own brokers.
    """

    name: str
    brokers: re.Pattern[str]

    def owns(self, host: str) -> bool:
        """Return whether a host, in lower case, is one of its brokers, by its name."""
        return len(host) <= _LONGEST_HOST and self.brokers.fullmatch(host) is not None


_AWS, _GOOGLE = Cloud("AWS", _AWS_BROKER), Cloud("Google Cloud", _GOOGLE_BROKER)
_UNKNOWN = Cloud("a cloud", _NOBODYS_BROKER)

TokenSource = Callable[[], Token]
"""A function that makes a new token. It raises `ConfigurationError` with the remedy if it cannot."""


def token_source(properties: Mapping[str, str]) -> TokenSource | None:
    """Return the maker of the tokens that a cluster's properties ask for; None if they ask for another login.

    Args:
        properties: The cluster's properties, as the user gave them.

    Raises:
        ConfigurationError: If the login has an option that is not supported, or no region is known.
        MissingDependencyError: If the cloud's library is not installed.
    """
    own = properties.get(_HANDLERS[0], "")
    if is_own_function(own):
        asked = secrets.resolve({key: properties[key] for key in _ASKED[3:] if key in properties})
        mechanism = asked.get("sasl.mechanism", asked.get("sasl.mechanisms", ""))
        is_asked = "SASL" in asked.get("security.protocol", "").upper() and mechanism.upper() == "OAUTHBEARER"
        return _own_source(own) if is_asked else None
    if not any(_may_ask(properties.get(key, "")) for key in (*_ASKED, _MANAGED)):
        return None
    asked = secrets.resolve({key: properties[key] for key in (*_ASKED, *_WAY, *_OF_MANAGED) if key in properties})
    if "SASL" not in asked.get("security.protocol", "").upper():
        return None
    if asked.get(_MANAGED, "").strip() == _AWS_IDENTITY:
        require_verified_tls(asked, "this machine's identity")
        return _aws_identity_source(asked.get("sasl.oauthbearer.config", ""), asked.get("sasl.oauthbearer.extensions"))
    cloud = cloud_of(asked)
    if cloud not in (_AWS, _GOOGLE):
        return None
    require_verified_tls(asked, cloud.name)
    if cloud is _GOOGLE:
        _import_google()
        return _google_token
    options = jaas.parse(asked[_JAAS]).options if _JAAS in asked else {}
    return _aws_source(options, asked.get("bootstrap.servers", ""))


def without_token_source(config: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's properties without those for which a `TokenSource` makes the tokens."""
    if config.get(_MANAGED, "").strip() != _AWS_IDENTITY:
        return dict(config)
    return {key: value for key, value in config.items() if key not in _OF_MANAGED}


def is_own_function(handler: str) -> bool:
    """Return whether a callback handler is a function in Python, `package.module:function`, and not a class in Java."""
    return _OWN_FUNCTION.fullmatch(handler) is not None


def cloud_of(properties: Mapping[str, str]) -> Cloud | None:
    """Return the cloud that the login is of; None if there is none. No reference is looked up.

    A reference that may lead to a cloud's login stands for a cloud without any brokers.

    Args:
        properties: The properties to reach a cluster.
    """
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", ""))
    handlers = {properties.get(key, "").rpartition(".")[2] for key in _HANDLERS}
    text = properties.get(_JAAS, "")
    module = "" if not text or secrets.is_reference(text) else jaas.parse(text).name.rpartition(".")[2]
    if handlers & _AWS_HANDLERS or mechanism == _AWS_MECHANISM or module == _AWS_MODULE:
        return _AWS
    if _GOOGLE_HANDLER in handlers:
        return _GOOGLE
    others = (mechanism, *(properties.get(key, "") for key in _HANDLERS))
    is_hidden = any("${" in value for value in others) or (
        secrets.is_reference(text) and mechanism.upper() in _BY_TOKEN
    )
    return _UNKNOWN if is_hidden else None


def require_verified_tls(properties: Mapping[str, str], name: str) -> None:
    """Raise if a token would be sent in clear text, or to a broker that nobody has verified.

    Args:
        properties: The properties to reach a cluster, resolved.
        name: Whose token it is.

    Raises:
        ConfigurationError: With the property.
    """
    servers = properties.get("bootstrap.servers", "")
    if properties.get("security.protocol", "").upper() != "SASL_SSL" or "://" in servers:
        wrong = "bootstrap.servers names a protocol" if "://" in servers else "security.protocol is not SASL_SSL"
    elif properties.get("enable.ssl.certificate.verification", "true").strip().lower() != "true":
        wrong = "enable.ssl.certificate.verification is not true"
    elif properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower() != "https":
        wrong = "ssl.endpoint.identification.algorithm is not https"
    else:
        return
    raise ConfigurationError(
        f"A token of {name} goes only to brokers with a verified certificate, and {wrong}; set security.protocol=SASL_SSL, "
        "give host:port as addresses, and leave the other properties out"
    )


def _may_ask(value: str) -> bool:
    """Return whether it is worth a closer look: secrets are not looked up for other logins."""
    return "IAM" in value or _AWS_IDENTITY in value or _GOOGLE_HANDLER in value or value.startswith("${")


# --- the user's own ---


def _own_source(path: str) -> TokenSource:
    module, _, name = path.partition(":")
    try:
        make = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"Property '{_HANDLERS[0]}' names {path}, which cannot be imported ({_reason(error)}); install it on the driver "
            "and on every executor"
        ) from error
    return partial(_own_token, path, make)


def _own_token(path: str, make: Callable[[], Any]) -> Token:
    try:
        text, expires_at_s, *more = made = make()
        if not isinstance(made, tuple) or not isinstance(text, str):
            raise TypeError(
                "it has to return a tuple of a text, when that expires, and perhaps a principal and extensions"
            )
        return Token(text, float(expires_at_s), *more)
    except Exception as error:  # whatever the user's code raises
        raise ConfigurationError(
            f"No token could be made by {path}: {_reason(error)}; correct that function"
        ) from error


# --- AWS ---


def _aws_source(options: Mapping[str, str], servers: str) -> TokenSource:
    for name in options:
        if name not in (*_AWS_OPTIONS, *_AWS_OPTIONS_WITHOUT_EFFECT):
            raise ConfigurationError(
                f"Property '{_JAAS}' has the option '{name}', which is not supported for AWS MSK's IAM login; supported are "
                f"{', '.join(_AWS_OPTIONS)}. Set anything else in a profile of the AWS configuration, and name that with "
                "awsProfileName"
            )
    signer = _import_aws()
    region = _aws_region(servers)
    make: Callable[[], tuple[str, int]]
    if role := options.get("awsRoleArn"):
        session = options.get("awsRoleSessionName", _AWS_SESSION)
        make = partial(signer.generate_auth_token_from_role_arn, region, role, session)
    elif profile := options.get("awsProfileName"):
        make = partial(signer.generate_auth_token_from_profile, region, profile)
    else:
        make = partial(signer.generate_auth_token, region)
    return partial(_aws_token, make)


def _aws_token(make: Callable[[], tuple[str, int]]) -> Token:
    try:
        text, expires_at_ms = make()
    except Exception as error:  # the library and botocore raise many kinds
        reason = "no credentials were found" if isinstance(error, AttributeError) else _reason(error)
        raise ConfigurationError(
            f"No token could be made for AWS MSK's IAM login: {reason}; give the driver and every executor AWS credentials "
            "(a role of the machine or pod, environment variables, or a profile)"
        ) from error
    return Token(text, expires_at_ms / 1000)


def _aws_region(servers: str) -> str:
    hosts = (server.strip().partition(":")[0].lower() for server in servers.split(","))
    found = next(filter(None, map(_AWS_BROKER.fullmatch, hosts)), None)
    region = found[1] if found else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigurationError(
            f"AWS MSK's IAM login needs the region of the cluster, and bootstrap.servers '{servers}' does not name it; set "
            "the environment variable AWS_REGION on the driver and on every executor (spark.executorEnv.AWS_REGION)"
        )
    return region


def _import_aws() -> Any:
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError:
        raise MissingDependencyError("aws-msk-iam-sasl-signer-python", "aws", "for AWS MSK's IAM login") from None
    return MSKAuthTokenProvider


def _aws_identity_source(config: str, extensions: str | None) -> TokenSource:
    """Return the maker of tokens that confluent-kafka's own clients have for `aws_iam`."""
    try:
        from confluent_kafka._oauthbearer.aws.aws_autowire import create_handler
    except ImportError as error:
        if error.name == "boto3":
            raise MissingDependencyError("boto3", "aws", f"for {_MANAGED}={_AWS_IDENTITY}") from None
        raise ConfigurationError(
            f"The confluent-kafka that is installed here makes no tokens for {_MANAGED}={_AWS_IDENTITY}; upgrade it, on the "
            "driver and on every executor"
        ) from None
    try:
        return partial(_aws_identity_token, create_handler(config, extensions))
    except ImportError as error:  # boto3 is too old: the error names the version
        raise ConfigurationError(f"No tokens can be made for {_MANAGED}={_AWS_IDENTITY}: {error}") from None
    except (ValueError, RuntimeError) as error:
        raise ConfigurationError(f"Property 'sasl.oauthbearer.config': {_reason(error)}; correct it") from error


def _aws_identity_token(make: Callable[[str], tuple[str, float, str, dict[str, str]]]) -> Token:
    try:
        return Token(*make(""))
    except Exception as error:  # the library and botocore raise many kinds
        raise ConfigurationError(
            f"AWS made no token for this machine's identity: {_reason(error)}; give the driver and every executor AWS "
            "credentials that may call sts:GetWebIdentityToken"
        ) from error


# --- Google ---


def _google_token() -> Token:
    google_auth, request = _import_google()
    try:
        credentials, _ = google_auth.default(scopes=[_GOOGLE_SCOPE])
        credentials.refresh(request())
        expires_at_s = credentials.expiry.replace(tzinfo=UTC).timestamp()
    except Exception as error:  # google.auth's own, and those of its HTTP client
        raise ConfigurationError(
            f"No token could be made for Google Cloud's Kafka: {_reason(error)}; give the driver and every executor "
            "application default credentials (a service account of the machine or pod, or GOOGLE_APPLICATION_CREDENTIALS)"
        ) from error
    account = getattr(credentials, "service_account_email", None) or getattr(credentials, "account", None) or ""
    head = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    claims = {"exp": expires_at_s, "iat": time.time(), "iss": "Google", "scope": "kafka", "sub": account}
    parts = (json.dumps(head), json.dumps(claims), credentials.token)
    return Token(".".join(urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts), expires_at_s)


def _import_google() -> tuple[Any, Any]:
    try:
        import google.auth
        from google.auth.transport.urllib3 import Request
    except ImportError:
        raise MissingDependencyError("google-auth", "gcp", "for Google Cloud's Kafka login") from None

    def request() -> Any:
        import urllib3

        make: Any = Request
        return make(urllib3.PoolManager(timeout=urllib3.Timeout(10.0), retries=1))

    return google.auth, request


def _reason(error: Exception) -> str:
    """Return the first line of an error's text, which may go on for long."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__

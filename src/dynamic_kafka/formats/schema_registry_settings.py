"""How to reach a schema registry: Flink's options, and what they are for confluent-kafka's client.

The settings are pickled to the workers with references to secrets, not with the secrets.

Differences to Flink: a password is used also without `basic-auth.credentials-source`, and a token without
`bearer-auth.credentials-source`, which Java's client then ignores; `SASL_INHERIT` is not supported; a property that would
have no effect here is an error, not ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, InvalidOptionError
from dynamic_kafka.formats.schema_ids import location_option
from dynamic_kafka.options import Option, Parser, boolean, choice, integer, non_blank, text

__all__ = [
    "AUTO_REGISTER",
    "FAIL",
    "RegistrySettings",
    "check_url",
    "client_configuration",
    "evolution_option",
    "key_value_map",
    "options",
    "settings",
    "subject_of",
    "version_option",
    "without_logins",
]

AUTO_REGISTER = "auto.register.schemas"
"""The option, and the property of Java's client, that says whether schemas may be registered."""

FAIL = "fail"
"""The value of `schema-evolution` that ends a query at a message with new fields."""

_TIMEOUT_S = 30.0  # for one attempt, of which there are 4; the library's own default is to wait for ever

# Options, after the prefix, that stand for a property of Java's client (Flink: buildOptionalPropertiesMap): the property
# has `.` for `-`.
_STANDS_FOR_PROPERTY = ("basic-auth.", "bearer-auth.", "ssl.")
_STORES = [
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.key.password",
]
_WHOLE_NUMBER = Parser(int, "a whole number")


def _proxy(url: str) -> str:
    """Return the URL of a proxy. What is none could be a login, which the HTTP client would quote in its error."""
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in {"http", "https", "socks5", "socks5h"}:
        raise ValueError
    return url


_TEXTS = """
    basic.auth.user.info bearer.auth.credentials.source bearer.auth.token bearer.auth.logical.cluster
    bearer.auth.identity.pool.id bearer.auth.client.id bearer.auth.client.secret bearer.auth.scope
    bearer.auth.issuer.endpoint.url bearer.auth.issuer.endpoint.query
    ssl.ca.location ssl.certificate.location ssl.key.location ssl.key.password
"""
# Properties that confluent-kafka knows by the same name, with the parser of its value.
_TAKEN: Mapping[str, Parser[Any]] = {
    **dict.fromkeys(_TEXTS.split(), text()),
    "proxy": Parser(_proxy, "a URL such as http://host:3128"),
    **dict.fromkeys(("max.retries", "retries.wait.ms", "retries.max.wait.ms"), _WHOLE_NUMBER),
}
_TIMEOUT_MS = integer(at_least=1, expected="a whole number of milliseconds above 0")
_CREDENTIALS_SOURCE = "basic.auth.credentials.source"
_TIMEOUT = "http.read.timeout.ms"
_HIDDEN = "***"
_PROPERTY = re.compile(r"[a-z]+(\.[a-z]+)+")
_LOGIN = re.compile(r"(?<=://).*@", re.DOTALL)


@dataclass(frozen=True)
class RegistrySettings:
    """Where a registry is and how to log in: hashable, picklable, with references to secrets as they were given.

    Args:
        prefix: The format's name, for messages.
        url: One or more URLs, between commas.
        properties: Properties of Java's client; sorted pairs.
        auto_register: Whether `Registry.register` may register what does not exist yet.
    """

    prefix: str
    url: str = field(repr=False)
    properties: tuple[tuple[str, str], ...] = field(repr=False)
    auto_register: bool


def options(prefix: str) -> tuple[Option[Any], ...]:
    """Return the options of a registry, as Flink's `AvroConfluentFormatOptions` has them, for a format's name."""

    def option(name: str, doc: str, *, alias: str = "", shown_default: str = "") -> Option[str]:
        aliases = (f"{prefix}.{alias}",) if alias else ()
        return Option(f"{prefix}.{name}", non_blank(), doc=doc, shown_default=shown_default, aliases=aliases)

    return (
        option("url", "The URL of the schema registry, or several URLs between commas.", alias="schema-registry.url"),
        option(
            "subject",
            "The subject under which the schema is registered when rows are written.",
            shown_default="`<topic>-key` or `<topic>-value`",
            alias="schema-registry.subject",
        ),
        option(
            "schema",
            "The schema to register, or the one that is registered.",
            shown_default="made from the columns",
            alias="schema-registry.schema",
        ),
        Option(
            f"{prefix}.{AUTO_REGISTER}",
            boolean,
            "true",
            doc="If true, a schema that the subject does not have is registered; otherwise it is an error.",
        ),
        location_option(prefix),
        evolution_option(prefix),
        version_option(prefix),
        option("basic-auth.credentials-source", "The place of user and password: `USER_INFO` or `URL`."),
        option("basic-auth.user-info", "`<user>:<password>`; may be a reference such as `${env:REGISTRY_LOGIN}`."),
        option("bearer-auth.credentials-source", "The source of the token: `STATIC_TOKEN` or `OAUTHBEARER`."),
        option("bearer-auth.token", "The token; may be a reference."),
        option("ssl.keystore.location", "A JKS, PKCS12 or PEM file with the client's key and certificate."),
        option("ssl.keystore.password", "The password of that file; may be a reference."),
        option(
            "ssl.truststore.location",
            "A JKS, PKCS12 or PEM file with the certificates of trusted authorities.",
            shown_default="those of certifi",
        ),
        option("ssl.truststore.password", "The password of that file; may be a reference."),
        Option(
            f"{prefix}.properties",
            non_blank("properties such as max.retries:3,proxy:http..."),
            doc="More properties of Java's registry client, between commas. Each may also be an option of its own, "
            f"`{prefix}.properties.<property>`. The options above win.",
        ),
    )


def evolution_option(prefix: str) -> Option[str]:
    """Return the option that says what a query does at a message with fields of a newer schema, for a format's name."""
    return Option(
        f"{prefix}.schema-evolution",
        choice("ignore", FAIL),
        "ignore",
        doc="Reading: what happens at a message of a later version of the subject that has new fields. `ignore` reads the "
        f"message without them. `{FAIL}` ends the query before the message; a new start reads it with the new columns.",
    )


def version_option(prefix: str) -> Option[int]:
    """Return the option with the version of the subject with which a query is planned, for a format's name."""
    return Option(
        f"{prefix}.schema-version",
        integer(at_least=1, expected="the number of a version of the subject"),
        doc="Reading: the version of the subject that has the columns, if the table has none of its own. Its fields are not "
        "new for `schema-evolution`.",
        shown_default="the latest",
    )


def key_value_map(value: str) -> dict[str, str]:
    """Parse Flink's text of a map: `key:value` between commas.

    Raises:
        ValueError: If a part has no colon.
    """
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in value.split(","))):
        key, colon, rest = part.partition(":")
        if not colon or not key.strip():
            raise ValueError
        found[key.strip()] = rest.strip()
    return found


def settings(prefix: str, given: Mapping[str, Any]) -> RegistrySettings:
    """Return the settings that a format's options make; nothing is resolved or requested yet.

    Args:
        prefix: The format's name, such as `avro-confluent`.
        given: Values by whole name, as `FormatOptions`; also single ones, `<prefix>.properties.<property>`.

    Raises:
        ConfigurationError: If there is no URL, or a value or property is wrong; no secret is shown.
    """
    start = f"{prefix}.properties."
    try:
        properties = key_value_map(given.get(f"{prefix}.properties", ""))
    except ValueError:  # the text may be part of a password
        raise ConfigurationError(
            f"Option '{prefix}.properties' is not <property>:<value> between commas; a value with a comma goes into an "
            f"option of its own, '{start}<property>'"
        ) from None
    properties |= {name.removeprefix(start): str(value) for name, value in given.items() if name.startswith(start)}
    properties = {name.removeprefix("schema.registry."): value for name, value in properties.items()}
    declared = {option.key.removeprefix(f"{prefix}."): option for option in options(prefix)}
    for name, option in declared.items():
        if name.startswith(_STANDS_FOR_PROPERTY) and (value := option.of(given)) is not None:
            properties[name.replace("-", ".")] = value
    as_property = properties.pop(AUTO_REGISTER, None)
    auto_register: bool = declared[AUTO_REGISTER].of(given)
    if as_property is not None:
        value = _parsed(boolean, start + AUTO_REGISTER, as_property)
        auto_register = given.get(f"{prefix}.{AUTO_REGISTER}", value)
    url = given.get(f"{prefix}.url")
    if not url:
        raise ConfigurationError(f"Option '{prefix}.url' is missing; set it to the URL of the schema registry")
    if "${" not in url:
        check_url(url, prefix, url)
    client_configuration(properties, prefix)
    return RegistrySettings(prefix, url, tuple(sorted(properties.items())), auto_register)


def subject_of(prefix: str, given: Mapping[str, Any]) -> str:
    """Return the subject of a table's schema.

    Args:
        prefix: The format's name.
        given: The format's options.

    Raises:
        ConfigurationError: If the options do not have it.
    """
    subject: str | None = given.get(f"{prefix}.subject")
    if subject is None:
        raise ConfigurationError(f"Option '{prefix}.subject' is missing; it names the table's schema in the registry")
    return subject


def client_configuration(given: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """Return properties of Java's client, without the URL, as confluent-kafka takes them; those of key stores are left out.

    Raises:
        ConfigurationError: If a property is not known, or cannot have its value; no secret is shown.
    """
    found: dict[str, Any] = {"timeout": _TIMEOUT_S}
    for name, value in given.items():
        shown = f"{prefix}.properties.{name}"
        if name in _TAKEN:
            found[name] = _parsed(_TAKEN[name], shown, value)
        elif name == _TIMEOUT:
            found["timeout"] = _parsed(_TIMEOUT_MS, shown, value) / 1000
        elif name == _CREDENTIALS_SOURCE:
            if value not in {"USER_INFO", "URL"}:
                raise InvalidOptionError(f"{prefix}.basic-auth.credentials-source", _HIDDEN, "USER_INFO or URL")
        elif name not in _STORES:
            known = ", ".join(sorted({*_TAKEN, *_STORES, _CREDENTIALS_SOURCE, _TIMEOUT}))
            # An unknown name may be part of a password that contains a comma: do not print it.
            shown = shown if _PROPERTY.fullmatch(name) else f"{prefix}.properties.{_HIDDEN}"
            raise ConfigurationError(
                f"Property '{shown}' is not known to the registry's client here; take it out, or use one of {known}; a "
                f"value with a comma goes into an option of its own, '{prefix}.properties.<property>'"
            )
    if given.get(_CREDENTIALS_SOURCE) == "URL":
        found.pop("basic.auth.user.info", None)
    if given.get(_CREDENTIALS_SOURCE) == "USER_INFO" and "basic.auth.user.info" not in given:
        raise ConfigurationError(f"Option '{prefix}.basic-auth.user-info' is missing; USER_INFO needs it")
    if "bearer.auth.token" in given:
        found.setdefault("bearer.auth.credentials.source", "STATIC_TOKEN")
        token = given["bearer.auth.token"]
        if not token.isascii() or not token.isprintable():
            # The HTTP client would quote it in its error.
            raise ConfigurationError(f"Option '{prefix}.bearer-auth.token' holds characters that no header can hold")
    if "bearer.auth.credentials.source" in found:
        if "basic.auth.user.info" in found or _CREDENTIALS_SOURCE in given:
            raise ConflictingOptionsError(
                [f"{prefix}.basic-auth.*", f"{prefix}.bearer-auth.*"], "both say how to log in; give one of them"
            )
        # Confluent Cloud's; Java's client does without, this one wants it to be there.
        found.setdefault("bearer.auth.logical.cluster", "")
    if "ssl.keystore.location" in given:
        found.pop("ssl.key.password", None)
    return found


def _parsed(parser: Parser[Any], shown: str, value: str) -> Any:
    try:
        return parser(value)
    except ValueError:
        raise InvalidOptionError(shown, _HIDDEN, parser.expected) from None


def without_logins(text: str) -> str:
    """Return a URL, or a text that quotes one, with `***` for the login in it."""
    return _LOGIN.sub(f"{_HIDDEN}@", text)


def check_url(urls: str, prefix: str, shown: str) -> None:
    """Refuse a text that is not a list of http or https URLs.

    Args:
        urls: The text.
        prefix: The format's name.
        shown: The URLs as the user gave them; they are shown unless there could be a login in them.
    """
    for url in urls.split(","):
        try:
            parts = urlsplit(url.strip())
            host, _ = parts.hostname, parts.port  # the port is parsed, and refused, on access
        except ValueError:
            host = None
        # A query or a fragment would be sent nowhere, and could be a secret.
        if not host or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
            shown = _HIDDEN if {*"@?#"} & {*shown} else shown
            raise InvalidOptionError(f"{prefix}.url", shown, "a URL such as http://host:8081")

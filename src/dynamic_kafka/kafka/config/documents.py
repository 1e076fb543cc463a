"""What metadata may say. Others write it than the query, so it is data that is not trusted.

A document decides which brokers and topics are read. It must not decide what code runs, which files and variables of the
driver and the executors are read, or who gets the login of the query. Rules, for each cluster that a document describes:

=====================  ================================================================================================
a property             only those of `property_names.IN_DOCUMENTS`, and those that `allowed-properties` names
a reference            only as a secret or a certificate, and only what `allowed-references` lists
a path of a file       as the reference `${file:PATH}`
the URL of tokens      only what `allowed-token-urls` lists
a broker's address     host:port, without a protocol, because librdkafka would prefer that to security.protocol
the query's own login  only to brokers that `allowed-servers` lists, and as the query's options say: the document sets no
                       property of the login or of TLS
a function in Python   never, because it would be run
a cloud's token        only to that cloud's own brokers and those that `allowed-servers` lists, with the certificates that
                       the query trusts. `tokens` adds, for any query: only by verified TLS
a name for Kerberos    letters, digits and `. _ / @ -`, because it goes into a shell command
=====================  ================================================================================================

Nothing is allowed by default but the first. What is refused is refused before any reference is looked up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import NamedTuple

from dynamic_kafka.errors import ConfigurationError, UnknownOptionError
from dynamic_kafka.kafka.config import jaas, secrets, tokens
from dynamic_kafka.kafka.config.property_names import ADDRESSES, ALL_NAMES, IN_DOCUMENTS

__all__ = ["PREFIX", "DocumentRules", "Refused", "cluster_properties", "refused"]

PREFIX = "metadata-service."
"""The prefix of the options that allow more."""

_PROPERTIES, _REFERENCES = f"{PREFIX}allowed-properties", f"{PREFIX}allowed-references"
_SERVERS, _TOKEN_URLS = f"{PREFIX}allowed-servers", f"{PREFIX}allowed-token-urls"
_HANDLER = "sasl.login.callback.handler.class"
_JAAS, _KEYTAB = "sasl.jaas.config", "keyTab"
_NAMES_IN_JAAS = ("principal", "serviceName")
_PROBE = "probe"  # librdkafka's word for the certificates of the system
_WILDCARDS = frozenset("*?[")
_SERVER = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?", re.ASCII)
_URL = re.compile(
    r"(https?)://([a-z0-9.-]+)(?::([0-9]{1,5}))?(/[A-Za-z0-9._~/=+-]*)?(\?[A-Za-z0-9._~/=&+-]*)?", re.ASCII
)
_URL_PATTERN = re.compile(r"(https?)://([^/:]+)(?::([0-9]{1,5}))?(/.*)?")
_PORTS = {"http": "80", "https": "443"}
_NAME = re.compile(r"[A-Za-z0-9._/@-]*", re.ASCII)
_PATH = re.compile(r"/[\w./@+,:=-]*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DEFAULT_PORT = "9092"
_NO_ADDRESS = "an address that is not host:port"

# What a login consists of. The query's own one is in force if a document leaves one of these as the options have it.
_LOGIN = frozenset(
    {_JAAS, "sasl.password", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret"}
    | {"sasl.oauthbearer.metadata.authentication.type", "sasl.oauthbearer.config"}
    | {f"sasl.oauthbearer.assertion.{name}" for name in ("file", "private.key.file", "private.key.pem")}
)
# With another way to look up names, the certificate is compared with the name that an address has in reverse.
_LOOKUP = "client.dns.lookup"
_TRANSPORT = ("security.protocol", "sasl.", "ssl.", "https.", "enable.s", _LOOKUP)
_RECEIVERS = ("ssl.ca.", "ssl.truststore.", _LOOKUP)


@dataclass(frozen=True)
class DocumentRules:
    """What a document may say besides what any document may: the options `metadata-service.allowed-*`.

    Args:
        properties: More properties that it may set.
        references: The patterns of references and files that it may name: `env:NAME`, `file:/path`.
        servers: The patterns of brokers that may get the query's own login, or a cloud's token: `host` or `host:port`.
        token_urls: The patterns of token endpoints that it may name.
    """

    properties: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    token_urls: tuple[str, ...] = ()


class Refused(NamedTuple):
    """Something that a document must not say.

    Attributes:
        what: The property, and what is wrong with it. No secret.
        remedy: What to do about it.
        option: The option of the query that would allow it, with its value; "" if none does.
    """

    what: str
    remedy: str
    option: str = ""


def cluster_properties(own: Mapping[str, str], given: Mapping[str, str], rules: DocumentRules | None) -> dict[str, str]:
    """Return the properties that reach a cluster: those of the query's options, under the cluster's own.

    Args:
        own: The cluster's own ones, of its metadata.
        given: Those of the query's options.
        rules: What the metadata may say; None if the metadata is the query's own.

    Raises:
        ConfigurationError: If the metadata says something else.
    """
    if rules is not None:
        for found in refused(own, given, rules):
            allowed = f", or have the query allow it: {found.option}" if found.option else ""
            raise ConfigurationError(f"{found.what}; {found.remedy}{allowed}")
    return {**given, **own}


def refused(own: Mapping[str, str], given: Mapping[str, str], rules: DocumentRules) -> Iterator[Refused]:
    """Yield what is not allowed of a cluster's own properties. It looks up no reference and opens no file.

    Args:
        own: The cluster's own properties, of its metadata.
        given: Those of the query's options.
        rules: What is allowed besides.
    """
    found = [fault for key, value in own.items() for fault in _in_property(key, value, rules)]
    yield from found
    if not found:  # what follows relies on properties that are in order
        yield from _logins(own, given, rules)


# --- one property -----------------------------------------------------------------------------------------------------


def _in_property(key: str, value: str, rules: DocumentRules) -> Iterator[Refused]:
    kind = IN_DOCUMENTS.get(key)
    if kind is None and key not in rules.properties:
        if key not in ALL_NAMES and not key.startswith("config.providers"):
            raise UnknownOptionError(key, ALL_NAMES, what="Kafka property")
        yield Refused(
            f"Property '{key}' is not allowed in metadata",
            "take it out, and set it as an option of the query (properties.*) if it is needed",
            f"{_PROPERTIES}={key}" if key in ALL_NAMES else "",
        )
        return
    if tokens.is_own_function(value) and key.endswith("callback.handler.class"):
        yield Refused(
            f"Property '{key}' names a function in Python, which would be run",
            "take it out, and set it as an option of the query (properties.*) if it is needed",
        )
        return
    references = list(secrets.references(key, value))
    if references and kind != "secret":
        yield Refused(
            f"Property '{key}' holds a reference, {references[0]}, and is neither a secret nor a certificate",
            "write its value out",
        )
        return
    for reference in references:
        yield from _reference(f"Property '{key}' refers to {reference}", reference[2:-1], rules)
    match kind:
        case "file" if value != _PROBE or not key.endswith("ca.location"):
            yield from _file(key, value, rules)
        case "url":
            if not any(_is_url_of(value, pattern) for pattern in rules.token_urls):
                yield Refused(
                    f"Property '{key}' has an address that the query does not allow, and would send secrets there",
                    "set it as an option of the query",
                    f"{_TOKEN_URLS}={value if _is_url_of(value, value) else 'https://host/path'}",
                )
        case "name":
            yield from _shell_name(key, value)
    if key in ADDRESSES and "://" in value:
        yield Refused(f"Property '{key}' names a protocol in an address", "give host:port, and security.protocol")
    if key == _JAAS and not secrets.is_reference(value):
        module = jaas.parse(value)
        for name in module.options.keys() & set(_NAMES_IN_JAAS):
            yield from _shell_name(f"{key}, option {name}", module.options[name])
        if _KEYTAB in module.options:
            yield from _file(f"{key}, option {_KEYTAB}", module.options[_KEYTAB], rules)


def _reference(what: str, reference: str, rules: DocumentRules) -> Iterator[Refused]:
    kind, _, name = reference.partition(":")
    if kind == "file":
        allowed = any(_is_file_of(name, pattern) for pattern in rules.references)
    else:
        allowed = any(fnmatchcase(reference, pattern) for pattern in rules.references if pattern.startswith("env:"))
    if not allowed:
        # Nobody shall be led to allow more by a name that is a pattern, or a list of them.
        is_one = _VARIABLE.fullmatch(name) is not None if kind == "env" else _is_file_of(name, reference)
        option = f"{_REFERENCES}={reference}" if is_one else ""
        yield Refused(
            f"{what}, which the query does not allow",
            "name something that it allows, as docs/guides/security.md says",
            option,
        )


def _file(what: str, path: str, rules: DocumentRules) -> Iterator[Refused]:
    yield from _reference(f"Property '{what}' names the file {path!r}", f"file:{path}", rules)


def _shell_name(what: str, value: str) -> Iterator[Refused]:
    if not _NAME.fullmatch(value):
        yield Refused(
            f"Property '{what}' has characters that mean something to a shell, and goes into Kerberos's command",
            "use letters, digits and . _ / @ -",
        )


def _is_plain(path: str) -> bool:
    """Return whether a path is absolute and leads where it says: no `..`, and nothing for a shell."""
    return _PATH.fullmatch(path) is not None and ".." not in PurePosixPath(path).parts


def _is_file_of(path: str, pattern: str) -> bool:
    """Return whether a pattern such as `file:/run/secrets/kafka/*` allows a file. Links must not lead out of its folder."""
    kind, _, wanted = pattern.partition(":")
    if kind != "file" or not _is_plain(path) or "//" in path or "/./" in path:
        return False
    if not _WILDCARDS & set(wanted):
        return path == wanted
    if not fnmatchcase(path, wanted):
        return False
    plain = re.split(r"[*?\[]", wanted)[0]
    folder = os.path.realpath(plain.rpartition("/")[0] or "/")
    return os.path.realpath(path).startswith(folder.rstrip("/") + "/")


def _is_url_of(url: str, pattern: str) -> bool:
    """Return whether a pattern allows a URL. Each part is compared for itself, so a path never passes for a host."""
    given, wanted = _URL.fullmatch(url), _URL_PATTERN.fullmatch(pattern)
    if given is None or wanted is None or ".." in url:
        return False
    scheme, host, port, path, query = given.groups()
    return (
        scheme == wanted[1]
        and fnmatchcase(host, wanted[2].lower())
        and (port or _PORTS[scheme]) == (wanted[3] or _PORTS[scheme])
        and fnmatchcase((path or "/") + (query or ""), wanted[4] or "/")
    )


# --- who gets a login -------------------------------------------------------------------------------------------------


def _logins(own: Mapping[str, str], given: Mapping[str, str], rules: DocumentRules) -> Iterator[Refused]:
    merged = {**given, **own}
    protocol = merged.get("security.protocol", "PLAINTEXT").upper()
    if "SASL" not in protocol and "${" not in protocol:
        return
    mechanism = merged.get("sasl.mechanism", merged.get("sasl.mechanisms", "GSSAPI")).upper()
    if mechanism == "GSSAPI":
        return  # a ticket is of use for the broker of its name only
    others = [server for server in _servers(merged) if not _is_listed(server, rules.servers)]
    lent = sorted(key for key in _LOGIN if key in given and key not in own and not _is_open(key, given[key]))
    if tokens.is_own_function(merged.get(_HANDLER, "")):  # a document has none
        lent.append(_HANDLER)
    cloud = tokens.cloud_of(merged)
    if lent:
        if others:
            shown = _shown(others[0])
            yield Refused(
                f"The login of the query's options ({lent[0]}) would go to {shown or _NO_ADDRESS}, which the metadata names",
                "give the cluster a login of its own",
                f"{_SERVERS}={shown}" if shown else "",
            )
        for key in sorted(own):
            if key.startswith(_TRANSPORT) and given.get(key) != own[key]:
                yield Refused(
                    f"Property '{key}' would change how the login of the query's own options ({lent[0]}) travels",
                    "take it out, or give the cluster a login of its own",
                )
    elif cloud is not None:
        for server in others:
            if not cloud.owns(server.rpartition(":")[0]):
                shown = _shown(server)
                yield Refused(
                    f"A token of {cloud.name} for this process would go to {shown or _NO_ADDRESS}, which is not a broker of "
                    f"{cloud.name}",
                    "name the cloud's brokers",
                    f"{_SERVERS}={shown}" if shown else "",
                )
        for key in sorted(own):
            if key.startswith(_RECEIVERS) and given.get(key) != own[key]:
                yield Refused(
                    f"Property '{key}' would decide who may take a token of {cloud.name}",
                    "take it out, and set it as an option of the query if it is needed",
                )


def _is_open(key: str, value: str) -> bool:
    """Return whether a property of a login is a JAAS text without any secret, as the clouds' logins have it."""
    if key != _JAAS or secrets.is_reference(value):
        return False
    return jaas.parse(value).options.keys() <= jaas.PUBLIC_OPTIONS


def _servers(properties: Mapping[str, str]) -> list[str]:
    """Return host:port of each broker, in lower case; a text that is neither as it is, which no pattern allows."""
    given = (server.strip() for key in ADDRESSES for server in properties.get(key, "").split(","))
    found = []
    for server in filter(None, given):
        match = _SERVER.fullmatch(server)
        found.append(f"{match[1].lower()}:{match[2] or _DEFAULT_PORT}" if match else server)
    return found


def _shown(server: str) -> str:
    """Return the address of a broker as it may be shown, and allowed; "" if it is a pattern, or may hold a login."""
    return server if _SERVER.fullmatch(server) else ""


def _is_listed(server: str, patterns: Iterable[str]) -> bool:
    if not _SERVER.fullmatch(server):
        return False
    names = (server, server.rpartition(":")[0])
    # An IPv6 address is in brackets, which mean something in a pattern.
    return any(
        pattern.lower() in names if pattern.startswith("[") else any(fnmatchcase(n, pattern.lower()) for n in names)
        for pattern in patterns
    )

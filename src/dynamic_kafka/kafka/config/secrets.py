"""Secrets stay references until a client is made, and are never shown or stored.

A value may hold references, `${env:NAME}` (an environment variable) and `${file:PATH}` (a text file, without its last
line break), alone or within a longer value such as a JAAS string. They are resolved in the process that makes the
client, so the variable or file must exist on the driver and on every executor.

Secrets and key stores are replaced while queries run. `fingerprint` shows it: it differs as soon as a value or a file behind
the properties is another one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError
from dynamic_kafka.kafka.config import jaas
from dynamic_kafka.kafka.config.property_names import ADDRESSES, STORABLE
from dynamic_kafka.kafka.config.small_files import read_small_file

__all__ = [
    "fingerprint",
    "has_changed",
    "has_login",
    "hidden",
    "hide",
    "is_reference",
    "is_secret",
    "redact",
    "references",
    "resolve",
    "storable",
]

_HIDDEN = "***"
# Texts of metadata are matched, so no pattern may begin anew at each place and go on to the end of a text: a name has no
# braces, and a login is looked for word by word.
_REFERENCE = re.compile(r"\$\{(env|file):([^{}]*)\}")
_ONLY_REFERENCES = re.compile(r"(?:\$\{(?:env|file):[^{}]+\})+")
_SECRET = re.compile(
    r"password|passphrase|passwd|passcode|passkey|pwd|(?:^|[._-])sas(?:$|[._-])|secret"
    r"|token|jaas|credential|private|authorization|auth[._-]?header"
    r"|api[._-]?key|access[._-]?key|ssl\.key\.|ssl\.keystore\.key|user[._-]info|oauthbearer\.config|kinit\.cmd"
    r"|account\.key|encryption\.key\.list"
)
# A path, a URL or a class is not the secret it leads to.
_POINTS_TO_SECRET = (".location", ".type", ".url", ".file", ".class")
_WORD = re.compile(r"\S+")
_PARAMETER = re.compile(r"([?&;]([^=?&;\s]+)=)[^&;\s]+")
_PRIVATE_KEY = "PRIVATE KEY"
_JAAS = "sasl.jaas.config"
_NAMES_A_FILE = (".location", ".keytab", ".file")
_LEAST_HIDDEN = 4  # shorter values are found in any text by chance
_NUMERIC = (".ms", ".bytes", ".kbytes")  # time-outs and sizes; stored only if the value is a number


def resolve(properties: Mapping[str, str]) -> dict[str, str]:
    """Put the values in the place of the references.

    Within a JAAS string a value keeps its meaning whatever characters it has: quotes in a password need no escaping.
    What a reference leads to is taken as it is, also if it looks like a reference.

    Args:
        properties: Kafka properties, in any spelling.

    Returns:
        The same properties, with secrets in clear: never log, raise or store them.

    Raises:
        ConfigurationError: If a variable or file is missing; it names the property and the reference.
    """
    return {key: _resolve(key, value, _look_up) for key, value in properties.items()}


def references(key: str, value: str) -> list[str]:
    """Return the references that `resolve` would look up in a property, such as `${env:NAME}`. None is looked up."""
    found: list[str] = []

    def note(_key: str, reference: re.Match[str]) -> str:
        found.append(reference.group())
        return ""

    _resolve(key, value, note)
    return found


def is_reference(value: str) -> bool:
    """Return whether a value consists of references only, so that nothing is known of what it says."""
    return _ONLY_REFERENCES.fullmatch(value) is not None


def fingerprint(properties: Mapping[str, str]) -> Hashable:
    """Return what the properties lead to now: their resolved values, and the state of each file or directory they name.

    It contains secrets in clear: only compare it.

    Args:
        properties: Kafka properties, in any spelling.

    Raises:
        ConfigurationError: If a variable or file of a reference is missing.
    """
    resolved = resolve(properties)
    files = ((key, _file_state(value)) for key, value in resolved.items() if key.endswith(_NAMES_A_FILE))
    return frozenset(resolved.items()), frozenset(files)


def has_changed(properties: Mapping[str, str], before: Hashable) -> bool:
    """Return whether the properties lead to something else than they did when they had the fingerprint `before`."""
    try:
        return fingerprint(properties) != before
    except ConfigurationError:
        return False  # a secret is being replaced, and nothing new can be used yet


def hide(text: str, properties: Mapping[str, str]) -> str:
    """Return a text about resolved properties with the references in the place of their values.

    The text is one of a library or of a check that was given the values, and may quote them: a reference to a secret may be
    in any property by mistake. Values of up to three characters are replaced only between quotation marks.

    Args:
        text: The text, an error mostly.
        properties: The properties before `resolve`.
    """
    for key, given in properties.items():
        for reference in _REFERENCE.finditer(given):
            with suppress(ConfigurationError):  # it leads to nothing now
                text = _put_back(text, _look_up(key, reference), reference.group())
    return text


@contextmanager
def hidden(properties: Mapping[str, str]) -> Iterator[None]:
    """Have the errors of a `with` block about resolved properties show references, and not their values: see `hide`."""
    try:
        yield
    except DynamicKafkaError as error:
        error.args = tuple(hide(arg, properties) if isinstance(arg, str) else arg for arg in error.args)
        raise


def redact(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties for logs and messages: secrets as `***`, references as they are.

    Args:
        properties: Kafka properties or options, in any spelling, also with a prefix such as `properties.`.
    """
    return {
        key: (_without_literals(key, value) or _HIDDEN)
        if is_secret(key) or _PRIVATE_KEY in value or _has_secret(key, value)
        else _without_logins(key, value)
        for key, value in properties.items()
    }


def _has_secret(key: str, value: str) -> bool:
    """Return whether an option is a map of properties (`basic.auth.user.info:me:secret,...`) with a secret among them."""
    return key.lower().endswith(".properties") and _SECRET.search(value.lower()) is not None


def is_secret(key: str) -> bool:
    """Return whether a property or option holds a secret, judged by its name."""
    lower = key.lower()
    return _SECRET.search(lower) is not None and not lower.endswith(_POINTS_TO_SECRET)


def has_login(key: str, value: str) -> bool:
    """Return whether a value has an address with a login in it: `https://me:secret@host/`, or of a broker `me:pw@host`."""
    return _without_logins(key, value) != value


def _without_logins(key: str, value: str) -> str:
    """Return a value with `***` in the place of each login: in an address, or as a parameter (`?password=...`) of a URL.

    Without `://`, only a property of addresses has logins.
    """
    if key.endswith(ADDRESSES):
        return ",".join(_without_login(address, "") for address in value.split(","))
    shown = _WORD.sub(lambda word: _without_login(word[0], "://"), value)
    return _PARAMETER.sub(lambda found: f"{found[1]}{_HIDDEN}" if is_secret(found[2]) else found[0], shown)


def _without_login(word: str, needed: str) -> str:
    """Return a word without what is before its last `@` and after its first `://`, which may be needed or not."""
    before, mark, rest = word.partition("://") if "://" in word or needed else ("", "", word)
    login, at, host = rest.rpartition("@")
    return f"{before}{mark}{_HIDDEN}{at}{host}" if login else word


def storable(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the part that may be written into a checkpoint: how to reach the cluster, without any secret.

    It keeps properties known to hold no secret, and values that consist of references only. A JAAS string is kept if
    each of its secret options is a reference; it loses its comments. Everything else is left out.

    Args:
        properties: Kafka properties before `resolve`, without a prefix.
    """
    kept: dict[str, str] = {}
    for key, value in properties.items():
        if is_secret(key):
            without_literals = _without_literals(key, value)
            if without_literals is not None:
                kept[key] = without_literals
        elif _is_public(key, value) or _ONLY_REFERENCES.fullmatch(value):
            kept[key] = value
    return kept


_LookUp = Callable[[str, re.Match[str]], str]


def _resolve(key: str, value: str, look_up: _LookUp) -> str:
    if _REFERENCE.search(value) is None:
        return value
    if key == _JAAS and not _ONLY_REFERENCES.fullmatch(value):
        # As text, a quote in a password would end the value and could even add options; so parse first.
        module = jaas.parse(value)
        options = {k: _substitute(key, v, look_up) for k, v in module.options.items()}
        return jaas.render(replace(module, options=options))
    return _substitute(key, value, look_up)


def _substitute(key: str, value: str, look_up: _LookUp) -> str:
    return _REFERENCE.sub(lambda match: look_up(key, match), value)


def _look_up(key: str, reference: re.Match[str]) -> str:
    kind, name = reference.groups()
    if kind == "env":
        if name not in os.environ:
            raise ConfigurationError(
                f"Property '{key}' refers to {reference.group()}, but this environment variable does not exist; "
                "set it on the driver and on every executor (spark.executorEnv.<NAME>)"
            )
        return os.environ[name]
    try:
        text = read_small_file(name).decode("utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8; its text would show the bytes
        reason = (error.strerror if isinstance(error, OSError) else None) or "not a text file in UTF-8"
        raise ConfigurationError(
            f"Property '{key}' refers to {reference.group()}, which cannot be read ({reason}); "
            "the file must exist and be readable on the driver and on every executor"
        ) from None
    return text.removesuffix("\n").removesuffix("\r")


def _put_back(text: str, value: str, reference: str) -> str:
    for shown in {value, repr(value)[1:-1], value.upper(), value.lower()} - {""}:
        if len(shown) >= _LEAST_HIDDEN:
            text = text.replace(shown, reference)
        for quote in "'\"":
            text = text.replace(f"{quote}{shown}{quote}", f"{quote}{reference}{quote}")
    return text


def _file_state(path: str) -> Hashable:
    try:
        found = Path(path).stat()  # follows links: a mounted secret is replaced by moving a link
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _without_literals(key: str, value: str) -> str | None:
    """Return a secret property as it may be shown; None if it holds a secret itself and not only references."""
    if _ONLY_REFERENCES.fullmatch(value):
        return value
    if not key.endswith(_JAAS):
        return None
    try:
        module = jaas.parse(value)
    except ConfigurationError:
        return None
    if all(n in jaas.PUBLIC_OPTIONS or _ONLY_REFERENCES.fullmatch(v) for n, v in module.options.items()):
        return jaas.render(module)  # not the text itself: its comments may hold anything
    return None


def _is_public(key: str, value: str) -> bool:
    if key.endswith(_NUMERIC):
        return value.strip().lstrip("-").isdecimal()
    return key in STORABLE and _PRIVATE_KEY not in value and not has_login(key, value)

"""Java's `sasl.jaas.config`, read without Java.

The form is that of Kafka's JaasConfig: one login module, a control flag and options, ended by a semicolon::

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="...";

Comments, both kinds of quotes and the escapes of Java's StreamTokenizer are understood. A relocated class name (Flink's
`org.apache.flink.kafka.shaded...`, Databricks' `kafkashaded...`) means the same as the plain one.

An error names a position, never the text there: one quotation mark too few turns a password into an option's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dynamic_kafka.errors import ConfigurationError

__all__ = ["PUBLIC_OPTIONS", "LoginModule", "parse", "render", "sasl_properties"]

PUBLIC_OPTIONS = frozenset(
    {"username", "clientId", "scope", "serviceName", "principal", "keyTab", "tokenauth"}
    | {"useKeyTab", "storeKey", "useTicketCache", "doNotPrompt", "refreshKrb5Config"}
    | {"awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsDebugCreds"}
)
"""Options with values that are not secret, in any supported login module."""

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<punctuation>[=;])
      | (?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True, repr=False)
class LoginModule:
    """One entry of a JAAS configuration; `repr` shows no option.

    Args:
        name: The class, with its package.
        control_flag: `required`, `requisite`, `sufficient` or `optional`.
        options: Option to value, without quotes and escapes.
    """

    name: str
    control_flag: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({len(self.options)} options)"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # "word", "quoted", "=", ";" or "end"
    text: str
    at: int


def parse(text: str) -> LoginModule:
    """Read a JAAS configuration of one login module.

    Args:
        text: The value of `sasl.jaas.config`.

    Raises:
        ConfigurationError: If it is not of the form above; the message says where, and shows nothing of the text.
    """
    tokens = _tokens(text)

    def expect(kinds: tuple[str, ...], what: str) -> _Token:
        token = next(tokens)
        if token.kind not in kinds:
            raise _error(token.at, f"expected {what}")
        return token

    name = expect(("word",), "the class of a login module")
    flag = expect(("word",), "a control flag (required, requisite, sufficient or optional)")
    if flag.text.lower() not in _FLAGS:
        raise _error(flag.at, "expected a control flag (required, requisite, sufficient or optional)")
    options: dict[str, str] = {}
    while (token := expect(("word", "quoted", ";"), "an option or the semicolon that ends the entry")).kind != ";":
        expect(("=",), f"'=' after the name of option {len(options) + 1}")
        options[token.text] = expect(("word", "quoted"), f"the value of option {len(options) + 1}").text
    expect(("end",), "nothing after the semicolon; only one login module can be given")
    return LoginModule(name.text, flag.text.lower(), options)


def render(module: LoginModule) -> str:
    """Return the text that `parse` reads back as this module, with every value in double quotes."""
    options = "".join(f' {name}="{_escape(value)}"' for name, value in module.options.items())
    return f"{module.name} {module.control_flag}{options};"


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:  # only a quotation mark fits none of the alternatives
            raise _error(at, "a quotation mark that is never closed")
        found = match.group()
        if match.lastgroup == "quoted":
            yield _Token("quoted", _ESCAPE.sub(_unescape, found[1:-1]), at)
        elif match.lastgroup == "punctuation":
            yield _Token(found, found, at)
        elif match.lastgroup == "word":
            yield _Token("word", found, at)
        at = match.end()
    while True:
        yield _Token("end", "", at)


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    return chr(int(code, 8)) if code[0] in "01234567" else _CONTROL.get(code, code)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def _error(at: int, problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"Property 'sasl.jaas.config', character {at + 1}: {problem}; the form is "
        '<class> required <option>="<value>" ... ;'
    )


def sasl_properties(module: LoginModule, mechanism: str) -> dict[str, str]:
    """Translate a login module to librdkafka's properties.

    Args:
        module: The login module.
        mechanism: The value of `sasl.mechanism` (GSSAPI if it is not set, as in Kafka).

    Raises:
        ConfigurationError: If the class is not known, does not belong to the mechanism, or lacks an option.
    """
    simple_name = module.name.rpartition(".")[2]
    if simple_name not in _MODULES:
        raise ConfigurationError(
            "Property 'sasl.jaas.config' names an unknown login module; "
            f"expected a class that ends in one of {', '.join(_MODULES)}"
        )
    mechanisms, translate = _MODULES[simple_name]
    if mechanism.upper() not in mechanisms:
        raise ConfigurationError(
            f"Property 'sasl.jaas.config' has a {simple_name}, which does not belong to the sasl.mechanism in force, "
            f"'{mechanism}' (Kafka's default is GSSAPI); set sasl.mechanism to {' or '.join(mechanisms)}"
        )
    return translate(module.options)


def _password(options: Mapping[str, str]) -> dict[str, str]:
    if options.get("tokenauth", "").lower() == "true":
        raise ConfigurationError(
            "Property 'sasl.jaas.config' has tokenauth=true, a delegation token, which librdkafka cannot use; "
            "give the user's own name and password"
        )
    return {"sasl.username": _required(options, "username"), "sasl.password": _required(options, "password")}


def _kerberos(options: Mapping[str, str]) -> dict[str, str]:
    names = {
        "keyTab": "sasl.kerberos.keytab",
        "principal": "sasl.kerberos.principal",
        "serviceName": "sasl.kerberos.service.name",
    }
    return {names[option]: value for option, value in options.items() if option in names}


def _oauth(options: Mapping[str, str]) -> dict[str, str]:
    subject = options.get("unsecuredLoginStringClaim_sub")
    if subject is not None:
        return {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={subject}"}
    found: dict[str, str] = {}
    if {"clientId", "clientSecret", "scope"} & set(options):  # else they have properties of their own (Kafka 4.1)
        found["sasl.oauthbearer.method"] = "oidc"
        found["sasl.oauthbearer.client.id"] = _required(options, "clientId")
        found["sasl.oauthbearer.client.secret"] = _required(options, "clientSecret")
    if "scope" in options:
        found["sasl.oauthbearer.scope"] = options["scope"]
    extensions = [f"{n.removeprefix('extension_')}={v}" for n, v in options.items() if n.startswith("extension_")]
    if extensions:
        found["sasl.oauthbearer.extensions"] = ",".join(extensions)
    return found


def _required(options: Mapping[str, str], name: str) -> str:
    if name not in options:
        raise ConfigurationError(f"Property 'sasl.jaas.config' has no option '{name}'; add {name}=\"...\" to it")
    return options[name]


_MODULES: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, str]], dict[str, str]]]] = {
    "PlainLoginModule": (("PLAIN",), _password),
    "ScramLoginModule": (("SCRAM-SHA-256", "SCRAM-SHA-512"), _password),
    "OAuthBearerLoginModule": (("OAUTHBEARER",), _oauth),
    "Krb5LoginModule": (("GSSAPI",), _kerberos),
    "IAMLoginModule": (("AWS_MSK_IAM", "OAUTHBEARER"), lambda _: {}),  # see `tokens`
}

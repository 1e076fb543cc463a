"""From Java's property names and values to librdkafka's.

Users write the properties they know from Java, Flink and Spark; librdkafka's own names are accepted as they are. Nothing
is lost silently: a property is translated, known to change nothing, or an error. Where the two clients' defaults differ in
what a user would notice, Java's are pinned.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Mapping
from typing import Literal

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError, InvalidOptionError, UnknownOptionError
from dynamic_kafka.kafka.config import jaas, keystore, secrets, tls, tokens
from dynamic_kafka.kafka.config.property_names import (
    ADDRESSES,
    ALL_NAMES,
    CHECKED,
    COMMON,
    CONSUMER,
    IGNORED,
    JAVA_CODE,
    JAVA_CODE_UNDERSTOOD,
    PRODUCER,
    RENAMED,
    STORES,
)
from dynamic_kafka.kafka.config.small_files import check_file_of_library

__all__ = ["Role", "check_mechanism", "client_config", "reject_owned", "to_librdkafka", "whole_number"]

_log = logging.getLogger(__name__)

Role = Literal["consumer", "admin", "producer"]
"""Which client a configuration is for."""

_KNOWN_TO: dict[Role, frozenset[str]] = {"consumer": COMMON | CONSUMER, "admin": COMMON, "producer": COMMON | PRODUCER}

_PINNED: dict[Role, dict[str, str]] = {
    "consumer": {
        "isolation.level": "read_uncommitted",
        "check.crcs": "true",
        "metadata.max.age.ms": "300000",
        "allow.auto.create.topics": "false",  # Java's default is true; reading must never create a topic
    },
    "admin": {
        "metadata.max.age.ms": "300000",
        "allow.auto.create.topics": "false",  # librdkafka's admin client is a producer, which may create what it looks up
    },
    "producer": {
        "metadata.max.age.ms": "300000",
        "enable.idempotence": "true",
        "partitioner": "murmur2_random",  # librdkafka's own default sends keys to other partitions than Java's
    },
}

_JAAS = "sasl.jaas.config"
_SERVER = re.compile(
    r"(?:(?:plaintext|ssl|sasl_plaintext|sasl_ssl)://)?(?:\[[0-9a-f:.%\w]+\](?::\d+)?|[^\s\[\]'\"{};/]+)", re.I
)
# Files that librdkafka and Python's TLS open themselves.
_READ_FOR_TLS = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.crl.location")
_READ_FOR_TOKENS = (
    "https.ca.location",
    *(f"sasl.oauthbearer.assertion.{name}" for name in ("file", "jwt.template.file", "private.key.file")),
)
_MECHANISMS = ("sasl.mechanism", "sasl.mechanisms")


def client_config(properties: Mapping[str, str], *, role: Role) -> dict[str, str]:
    """Return the configuration of a confluent-kafka client: secrets resolved, names translated, key stores as PEM.

    This is the only function here that reads files and environment variables. Call it where the client is made.

    Args:
        properties: The cluster's properties, as the user gave them.
        role: The client.

    Returns:
        librdkafka's properties, with secrets in clear: never log, raise or store them.

    Raises:
        ConfigurationError: If a property is unknown or wrong, or a secret or key store cannot be read.
        MissingDependencyError: If a key store needs the library `cryptography`, or a token the cloud's library.
    """
    resolved = secrets.resolve(properties)
    with secrets.hidden(properties):
        config = _with_stores_as_pem(to_librdkafka(resolved, role=role))
    if _logs_in_by(config, "GSSAPI"):
        _require_kerberos()
    elif _logs_in_by(config, "OAUTHBEARER"):
        _require_tokens(config, properties)
        config = tokens.without_token_source(config)
    return config


def check_mechanism(options: Mapping[str, str]) -> None:
    """Raise if a query's options ask for Kerberos and this build of confluent-kafka lacks it. No secret is looked up.

    Nothing is said of options without addresses or without a mechanism: each cluster of the metadata may have a login of
    its own, and `client_config` checks it.

    Args:
        options: Kafka properties, in any spelling.

    Raises:
        ConfigurationError: With what to do.
    """
    if options.keys() & set(ADDRESSES) and options.keys() & set(_MECHANISMS) and _logs_in_by(options, "GSSAPI"):
        _require_kerberos()


def to_librdkafka(properties: Mapping[str, str], *, role: Role) -> dict[str, str]:
    """Translate names and values; reads nothing but its arguments.

    The `ssl.truststore.*` and `ssl.keystore.*` of a store in a file are left as they are: `client_config` puts PEM in
    their place.

    Args:
        properties: Properties in Java's or librdkafka's names.
        role: The client; what concerns only other clients is dropped.

    Returns:
        librdkafka's properties.

    Raises:
        UnknownOptionError: If the property is unknown. The error has the nearest known name.
        ConflictingOptionsError: If two properties say different things about one.
        ConfigurationError: If a value is wrong, or asks for what only Java can do.
    """
    config: dict[str, str] = {}
    given_as: dict[str, str] = {}
    dropped: list[str] = []
    for key, value in properties.items():
        translated = _translate(key, value, properties, role)
        if not translated:
            dropped.append(key)
        for name, new_value in translated.items():
            if config.setdefault(name, new_value) != new_value:
                raise ConflictingOptionsError([given_as[name], key], f"both set '{name}'; keep one")
            given_as.setdefault(name, key)
    if dropped:
        _log.debug("Properties without a meaning for librdkafka's %s: %s", role, ", ".join(sorted(dropped)))
    return _with_defaults(config, role)


def whole_number(properties: Mapping[str, str], key: str, default: int, expected: str = "a whole number") -> int:
    """Return the value of a property, with references looked up.

    Args:
        properties: Kafka properties.
        key: The name of the property.
        default: The value if the property is not set.
        expected: A right value, in words, for the error.

    Raises:
        InvalidOptionError: If the value is not a whole number.
        ConfigurationError: If a reference cannot be looked up.
    """
    if key not in properties:
        return default
    value = secrets.resolve({key: properties[key]})[key]
    with secrets.hidden(properties):
        return _integer(key, value, expected)


def reject_owned(properties: Mapping[str, str]) -> None:
    """Refuse the properties that belong to the connector, as Spark's KafkaSourceProvider.validateGeneralOptions does.

    Values that say what the connector does anyway are accepted: ByteArrayDeserializer, `enable.auto.commit=false`.
    `auto.offset.reset` is left to the caller.

    Args:
        properties: Kafka properties without their prefix.

    Raises:
        ConfigurationError: If there is one.
    """
    for part in ("key", "value"):
        given = properties.get(f"{part}.deserializer")
        if given is not None and given.rpartition(".")[2] != "ByteArrayDeserializer":
            raise ConfigurationError(
                f"Option 'properties.{part}.deserializer' is not supported because {part}s are deserialized as byte arrays "
                f"with ByteArrayDeserializer; use a format option, or DataFrame operations, to deserialize the {part}s"
            )
    if properties.get("enable.auto.commit", "false").strip().lower() != "false":
        raise ConfigurationError(
            "Option 'properties.enable.auto.commit' is not supported because the offsets in the checkpoint decide what is "
            "read; a group's offsets are committed when a micro-batch has finished"
        )
    if properties.get("interceptor.classes", "").strip():
        raise ConfigurationError(
            "Option 'properties.interceptor.classes' is not supported because interceptors are Java code, and could "
            "change what is read; use DataFrame operations instead"
        )


# --- one property ---


def _translate(key: str, value: str, properties: Mapping[str, str], role: Role) -> dict[str, str]:
    """Translate one property; the result is empty if it does not concern this client."""
    if key == _JAAS:
        return jaas.sasl_properties(jaas.parse(value), _mechanism(properties))
    if key in STORES:
        return {key: value}
    if key in IGNORED:
        return {}
    if key in CHECKED:
        if "${" not in value:  # see below
            _CHECKS[key](key, value)
        return {}
    if key in JAVA_CODE:
        is_own = key == "sasl.login.callback.handler.class" and tokens.is_own_function(value)
        if not is_own and value.rpartition(".")[2] not in JAVA_CODE_UNDERSTOOD:
            raise ConfigurationError(
                f"Property '{key}' names a Java class that cannot run here ('{value}'); {JAVA_CODE[key]}"
            )
        return {}
    if key == "config.providers" or key.startswith("config.providers."):
        raise ConfigurationError(
            f"Property '{key}' names Java classes that look up secrets, which cannot run here. Remove it, and write "
            "${env:NAME} for an environment variable or ${file:PATH} for a file in place of the secret"
        )
    if key not in ALL_NAMES:
        raise UnknownOptionError(key, ALL_NAMES, what="Kafka property")
    if (key in ADDRESSES or key.endswith(".url")) and secrets.has_login(key, value):
        raise ConfigurationError(
            f"Property '{key}' holds a login in an address, which brokers do not use and clients would log; remove it, and "
            "give the login with sasl.* properties"
        )
    if key == "request.timeout.ms" and role != "producer":
        return {"socket.timeout.ms": value}
    if key == "max.request.size" and role != "producer":
        return {}  # a limit of producers in Java; its counterpart in librdkafka binds every client
    name = RENAMED.get(key, key)
    if name not in _KNOWN_TO[role]:
        return {}
    if key.startswith("compression.") and key.endswith(".level") and key != "compression.level":
        codec = properties.get("compression.type", properties.get("compression.codec", ""))
        if key.split(".")[1] != codec.lower():
            return {}
    if key not in _VALUES or "${" in value:  # an unresolved reference, when a translation is only shown
        return {name: value}
    new_value = _VALUES[key](key, value)
    return {} if new_value is None else {name: new_value}


def _integer(key: str, value: str, expected: str = "a whole number") -> int:
    try:
        return int(value)
    except ValueError:
        raise InvalidOptionError(key, value, expected) from None


def _partitioner(key: str, value: str) -> str:
    partitioners = {"DefaultPartitioner": "murmur2_random", "UniformStickyPartitioner": "random"}
    name = value.rpartition(".")[2]
    if value and name not in partitioners:
        raise ConfigurationError(
            f"Property '{key}' names a Java class that cannot run here ('{value}'); "
            "leave it out for Java's default, or choose one of librdkafka's with 'partitioner'"
        )
    return partitioners.get(name, "murmur2_random")


def _offset_reset(key: str, value: str) -> str:
    if value.lower().startswith("by_duration"):
        raise InvalidOptionError(key, value, "earliest, latest or none; start from a timestamp with an initializer")
    return "error" if value.lower() == "none" else value


def _servers(key: str, value: str) -> str:
    # librdkafka would look for a broker of such a name, and say only that no broker answers.
    servers = [server.strip() for server in value.split(",")]
    if not all(_SERVER.fullmatch(server) for server in servers if server):
        raise InvalidOptionError(key, value, "host:port, with ',' between several")
    return value


def _one_of(*words: str) -> Callable[[str, str], str]:
    def check(key: str, value: str) -> str:
        if value.strip().lower() not in words:
            raise InvalidOptionError(key, value, f"one of {', '.join(words)}")
        return value

    return check


def _assignors(_key: str, value: str) -> str | None:
    # A class concerns groups that share partitions among consumers; here partitions are always assigned.
    return None if "." in value else value


def _kinit(_key: str, value: str) -> str:
    # Java names the program, librdkafka the whole command.
    bare = bool(value) and not any(c.isspace() for c in value)
    return f'{value} -t "%{{sasl.kerberos.keytab}}" -k %{{sasl.kerberos.principal}}' if bare else value


def _at_least(minimum: int) -> Callable[[str, str], str]:
    return lambda key, value: str(max(minimum, _integer(key, value)))


def _known_mechanism(_key: str, value: str) -> str:
    # Java's name of a mechanism of its own. The same brokers take the same token by OAUTHBEARER.
    return "OAUTHBEARER" if value == "AWS_MSK_IAM" else value


_CHECKS: dict[str, Callable[[str, str], None]] = {
    "ssl.enabled.protocols": tls.check_enabled_protocols,
    "ssl.protocol": tls.check_protocol,
}
_VALUES: dict[str, Callable[[str, str], str | None]] = {
    **dict.fromkeys(ADDRESSES, _servers),
    "security.protocol": _one_of("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
    "isolation.level": _one_of("read_uncommitted", "read_committed"),
    "sasl.mechanism": _known_mechanism,
    "sasl.mechanisms": _known_mechanism,
    "ssl.endpoint.identification.algorithm": lambda _key, value: value.strip().lower() or "none",
    "ssl.cipher.suites": tls.cipher_list,
    "auto.offset.reset": _offset_reset,
    "partition.assignment.strategy": _assignors,
    "partitioner.class": _partitioner,
    "buffer.memory": lambda key, value: str(max(1, _integer(key, value) // 1024)),
    "client.dns.lookup": lambda _key, value: None if value == "default" else value,
    "sasl.kerberos.kinit.cmd": _kinit,
    "ssl.truststore.certificates": lambda key, value: keystore.inline_pem(value, key, "CERTIFICATE"),
    "ssl.keystore.certificate.chain": lambda key, value: keystore.inline_pem(value, key, "CERTIFICATE"),
    "ssl.keystore.key": lambda key, value: keystore.inline_pem(value, key, "PRIVATE KEY"),
    # Java's special values lie below what librdkafka takes: -1 for the system's default, or for never; 0 for at once.
    "receive.buffer.bytes": _at_least(0),
    "send.buffer.bytes": _at_least(0),
    "connections.max.idle.ms": _at_least(0),
    "metadata.max.age.ms": _at_least(1),
    "retry.backoff.ms": _at_least(1),
    "fetch.min.bytes": _at_least(1),
}


# --- the whole ---


def _with_defaults(config: dict[str, str], role: Role) -> dict[str, str]:
    pinned = dict(_PINNED[role])
    if "topic.metadata.refresh.interval.ms" in config:
        del pinned["metadata.max.age.ms"]  # librdkafka then derives it
    if role == "producer" and not _may_be_idempotent(config):
        del pinned["enable.idempotence"]
    if role == "consumer" and "message.max.bytes" not in config:
        # librdkafka insists on fetch.max.bytes >= message.max.bytes, of which Java's consumer knows nothing.
        fetch_max_bytes = _integer("fetch.max.bytes", config.get("fetch.max.bytes", "52428800"))
        if fetch_max_bytes < 1_000_000:
            pinned["message.max.bytes"] = str(max(1000, fetch_max_bytes))
    if "sasl.oauthbearer.token.endpoint.url" in config and _mechanism(config).upper() == "OAUTHBEARER":
        pinned["sasl.oauthbearer.method"] = "oidc"
    if config.get("sasl.oauthbearer.method") == "oidc" and not (
        config.keys() & {"sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.metadata.authentication.type"}
    ):
        raise ConfigurationError(
            "Property 'sasl.oauthbearer.token.endpoint.url' is missing; set it to the URL that issues the tokens"
        )
    if _logs_in_by(config, "GSSAPI") and not config.keys() & {"sasl.kerberos.keytab", "sasl.kerberos.kinit.cmd"}:
        # As in Java, a login without a keytab is by the ticket cache. librdkafka would run kinit, and that needs one.
        config = {**config, "sasl.kerberos.min.time.before.relogin": "0"}
    return pinned | config


def _may_be_idempotent(config: Mapping[str, str]) -> bool:
    """Java's rule: idempotence is the default, and gives way to settings that contradict it."""
    return (
        config.get("acks", "all").lower() in ("all", "-1")
        and _integer("retries", config.get("retries", "1")) > 0
        and _integer("max.in.flight.requests.per.connection", config.get("max.in.flight.requests.per.connection", "5"))
        <= 5
    )


def _mechanism(properties: Mapping[str, str]) -> str:
    return next((properties[name] for name in _MECHANISMS if name in properties), "GSSAPI")


def _logs_in_by(properties: Mapping[str, str], mechanism: str) -> bool:
    return "SASL" in _protocol(properties) and _mechanism(properties).upper() == mechanism


def _protocol(config: Mapping[str, str]) -> str:
    return config.get("security.protocol", "PLAINTEXT").upper()


def _with_stores_as_pem(config: dict[str, str]) -> dict[str, str]:
    stores = {key: config[key] for key in STORES & config.keys()}
    rest = {key: value for key, value in config.items() if key not in STORES}
    has_tls = "SSL" in _protocol(config)
    for key in (*_READ_FOR_TOKENS, *(_READ_FOR_TLS if has_tls else ())):
        if key in rest:
            _check_file(key, rest[key])
    if not has_tls:
        return rest  # as in Java, stores are not touched without TLS
    if location := stores.get("ssl.truststore.location"):
        _exclude("ssl.truststore.location", rest, "ssl.ca.pem", "ssl.ca.location")
        rest["ssl.ca.pem"] = keystore.truststore_pem(location, stores.get("ssl.truststore.password"))
    if location := stores.get("ssl.keystore.location"):
        _exclude("ssl.keystore.location", rest, "ssl.certificate.pem", "ssl.certificate.location")
        _exclude("ssl.keystore.location", rest, "ssl.key.pem", "ssl.key.location")
        rest["ssl.certificate.pem"], rest["ssl.key.pem"] = keystore.keystore_pem(
            location, stores.get("ssl.keystore.password"), rest.pop("ssl.key.password", None)
        )
    return rest


def _check_file(key: str, path: str) -> None:
    try:
        check_file_of_library(path)
    except FileNotFoundError:
        pass  # librdkafka says it, or it is the word `probe`
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not a path"
        raise ConfigurationError(
            f"Property '{key}' names '{path}', which cannot be read ({reason}); name a file that is on the driver and on "
            "every executor"
        ) from None


def _exclude(location: str, config: Mapping[str, str], *others: str) -> None:
    for other in others:
        if other in config:
            raise ConflictingOptionsError([location, other], "both say which certificates or key to use; keep one")


def _require_tokens(config: Mapping[str, str], properties: Mapping[str, str]) -> None:
    """Raise if there is nothing to make tokens: librdkafka would wait for one for ever. Or if one would be exposed."""
    if config.get("sasl.oauthbearer.metadata.authentication.type", "none") != "none":
        tokens.require_verified_tls(config, "this machine's identity")
    made = (
        config.get("sasl.oauthbearer.method") == "oidc" or config.get("enable.sasl.oauthbearer.unsecure.jwt") == "true"
    )
    if tokens.token_source(properties) is None and not made:
        raise ConfigurationError(
            "sasl.mechanism OAUTHBEARER needs a source of tokens; set sasl.oauthbearer.token.endpoint.url with a clientId "
            "and a clientSecret in sasl.jaas.config, or sasl.login.callback.handler.class to AWS MSK's or Google Cloud's "
            "handler"
        )


@functools.cache
def _require_kerberos() -> None:
    from confluent_kafka import KafkaException, Producer

    try:
        # librdkafka checks the list of features as it is set; the name after it then stops it from making a client.
        Producer({"builtin.features": "sasl_gssapi", "no.such.property": ""})
    except KafkaException as error:
        if "builtin.features" not in str(error):
            return
    raise ConfigurationError(
        "sasl.mechanism GSSAPI (Kerberos) is not in this build of confluent-kafka: its wheels come without libsasl2. "
        "Build it against a librdkafka with libsasl2 (pip install --no-binary confluent-kafka confluent-kafka) on the "
        "driver and on every executor, as docs/guides/security.md says, or use SCRAM, OAUTHBEARER or certificates on that "
        "cluster. If Kerberos was not meant, set sasl.mechanism: GSSAPI is Kafka's default"
    )

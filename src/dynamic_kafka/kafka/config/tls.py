"""Java's properties for TLS versions and ciphers. What both clients here cannot keep is refused. Pure.

librdkafka and Python's own client for transactions offer TLS 1.2 and TLS 1.3, with the three usual ciphers of TLS 1.3.
librdkafka has no property for either. Its `ssl.cipher.suites` is OpenSSL's list, which says nothing of TLS 1.3.
"""

from __future__ import annotations

import re

from dynamic_kafka.errors import ConfigurationError

__all__ = ["check_enabled_protocols", "check_protocol", "cipher_list"]

_OFFERED = {"TLSv1.2", "TLSv1.3"}
_TLS_1_3 = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
_JAVA_CIPHER = re.compile(
    r"TLS_(?:(ECDHE_RSA|ECDHE_ECDSA|DHE_RSA)|RSA)_WITH_(?:AES_(128|256)_(GCM|CBC)_(SHA256|SHA384|SHA)|(CHACHA20_POLY1305)_SHA256)"
)


def check_enabled_protocols(key: str, value: str) -> None:
    """Raise unless a list is what is offered: both versions, which is also Java's default.

    Args:
        key: The property.
        value: Its value.

    Raises:
        ConfigurationError: If a connection could use a version that is not in the list, or never one that is.
    """
    wanted = {name.strip() for name in value.split(",") if name.strip()}
    if wanted and wanted != _OFFERED:
        raise ConfigurationError(
            f"Property '{key}' is '{value}', which cannot be kept: connections offer TLSv1.2 and TLSv1.3; remove it, and "
            "have the brokers say which version to use"
        )


def check_protocol(key: str, value: str) -> None:
    """Raise for a version of TLS that is not offered. In Java, `ssl.enabled.protocols` decides among the others.

    Args:
        key: The property.
        value: Its value.

    Raises:
        ConfigurationError: If it is another one.
    """
    if value.strip() not in {"", "TLS", *_OFFERED}:
        raise ConfigurationError(
            f"Property '{key}' is '{value}', which is not offered: connections use TLSv1.2 or TLSv1.3; remove it"
        )


def cipher_list(key: str, value: str) -> str:
    """Return a list of ciphers in OpenSSL's names. A list that has none of Java's names is returned as it is.

    OpenSSL's security level 0 is refused: only there are ciphers without a certificate, by which no broker is verified
    whatever else is set, ciphers that do not encrypt, and versions of TLS before 1.2.

    Args:
        key: The property.
        value: Java's names, separated by commas, or OpenSSL's list.

    Raises:
        ConfigurationError: If a name has no counterpart, or the list leaves out what TLS 1.3 would use all the same, or has
            the security level 0.
    """
    names = [name.strip() for name in value.split(",")]
    if not any(name.startswith("TLS_") for name in names):
        if "@SECLEVEL=0" in value:
            raise ConfigurationError(
                f"Property '{key}' has @SECLEVEL=0, which allows brokers without a certificate and versions of TLS before "
                "1.2; remove it"
            )
        return value
    older = [name for name in names if name not in _TLS_1_3]
    if missing := sorted(_TLS_1_3 - set(names)):
        raise ConfigurationError(
            f"Property '{key}' leaves out {', '.join(missing)}, which connections by TLS 1.3 would offer all the same; add "
            "it, or give OpenSSL's names (such as ECDHE-RSA-AES256-GCM-SHA384), which are about TLS 1.2 only"
        )
    if not older:
        raise ConfigurationError(f"Property '{key}' has no cipher of TLS 1.2, which is offered, too; add one of them")
    return ":".join(_openssl_name(key, name) for name in older)


def _openssl_name(key: str, name: str) -> str:
    match = _JAVA_CIPHER.fullmatch(name)
    if match is None:
        raise ConfigurationError(
            f"Property '{key}' has the cipher '{name}', which is not known here; remove it, or give all ciphers in "
            "OpenSSL's names"
        )
    exchange, bits, mode, digest, chacha = match.groups()
    cipher = chacha.replace("_", "-") if chacha else f"AES{bits}-{'GCM-' if mode == 'GCM' else ''}{digest}"
    return f"{exchange.replace('_', '-')}-{cipher}" if exchange else cipher

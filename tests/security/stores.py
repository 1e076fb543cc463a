"""Keys, certificates and stores for the tests of security, made by openssl and the JDK's keytool."""

from __future__ import annotations

import subprocess
from pathlib import Path

PASSWORD = "test1234"
"""The password of all stores, and of the encrypted key."""

_DAYS = "3650"


def make_stores(folder: Path) -> None:
    """Fill a folder.

    By openssl: `ca.pem`, `trust-openssl.p12`, `broker.pem` (certificate), `broker-key.pem`, `broker.p12`, `other-name.p12`,
    `client.pem` (key and certificate), `client-encrypted.pem`, `client-openssl.p12`, `other-ca.pem`, `token.pem`,
    `token-key.pem`. By keytool: `trust.jks`, `trust.p12`, `client.jks`, `client.p12`, `expired.p12` and `expired.pem`.
    """
    _authority(folder, "ca")
    _authority(folder, "other-ca")
    _signed(folder, "broker", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    _signed(folder, "other-name", "subjectAltName=DNS:kafka.example.com")
    _signed(folder, "client", "extendedKeyUsage=clientAuth")
    for name in ("broker", "other-name", "client"):
        _pkcs12(folder, name, f"{name}-openssl.p12" if name == "client" else f"{name}.p12")
    certificate, key = (folder / "client-certificate.pem").read_text(), (folder / "client-key.pem").read_text()
    (folder / "client.pem").write_text(key + certificate)
    _openssl(
        folder,
        *_words("pkcs8 -topk8 -v2 aes-256-cbc -in client-key.pem -out encrypted.pem"),
        f"-passout=pass:{PASSWORD}",
    )
    (folder / "client-encrypted.pem").write_text((folder / "encrypted.pem").read_text() + certificate)
    _openssl(
        folder, *_words("pkcs12 -export -nokeys -in ca.pem -out trust-openssl.p12"), "-passout", f"pass:{PASSWORD}"
    )

    for store, kind in (("trust.jks", "JKS"), ("trust.p12", "PKCS12")):
        _keytool(folder, *_words("-importcert -noprompt -alias ca -file ca.pem"), store=store, kind=kind)
    for store, kind in (("client.jks", "JKS"), ("client.p12", "PKCS12")):
        source = _words(f"-importkeystore -noprompt -srckeystore client-openssl.p12 -srcstorepass {PASSWORD}")
        target = ["-destkeystore", store, "-deststoretype", kind, "-deststorepass", PASSWORD]
        _run(folder, "keytool", *source, *target)
    expired = (
        "-genkeypair -keyalg EC -alias broker -dname CN=broker -startdate 2020/01/01 -validity 1 -ext san=ip:127.0.0.1"
    )
    _keytool(folder, *_words(expired), store="expired.p12", kind="PKCS12")
    _keytool(folder, *_words("-exportcert -rfc -alias broker -file expired.pem"), store="expired.p12", kind="PKCS12")


def _words(text: str) -> list[str]:
    return text.split()


def _authority(folder: Path, name: str) -> None:
    new = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days {_DAYS} -subj /CN={name}"
    _openssl(folder, *_words(f"{new} -keyout {name}-key.pem -out {name}.pem"))


def _signed(folder: Path, name: str, extension: str) -> None:
    new = f"req -newkey rsa:2048 -nodes -subj /CN={name}/O=tests -keyout {name}-key.pem -out {name}.csr"
    _openssl(folder, *_words(new))
    (folder / "extension").write_text(extension)
    sign = f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days {_DAYS} -extfile extension"
    _openssl(folder, *_words(f"{sign} -out {name}-certificate.pem"))


def _pkcs12(folder: Path, name: str, store: str) -> None:
    command = (
        f"pkcs12 -export -in {name}-certificate.pem -inkey {name}-key.pem -certfile ca.pem -name {name} -out {store}"
    )
    _openssl(folder, *_words(command), "-passout", f"pass:{PASSWORD}")


def _keytool(folder: Path, *arguments: str, store: str, kind: str) -> None:
    _run(folder, "keytool", *arguments, "-keystore", store, "-storetype", kind, "-storepass", PASSWORD)


def _openssl(folder: Path, *arguments: str) -> None:
    _run(folder, "openssl", *arguments)


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"

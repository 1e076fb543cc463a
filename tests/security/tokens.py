"""A token server: OpenID Connect's client credentials, and the keys (JWKS) with which brokers check its tokens."""

from __future__ import annotations

import base64
import json
import ssl
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.web import Answer, Request, WebServer, as_json

ISSUER, AUDIENCE = "https://tokens.test", "kafka"
CLIENT_ID, CLIENT_SECRET = "connector", "oidc-secret"


class TokenServer(WebServer):
    """Serves `/token` to those who know the client's secret, and `/keys` to everybody, until the end of the `with` block.

    Args:
        stores: A folder with `broker-certificate.pem` and `broker-key.pem`, for https; None is http.

    Attributes:
        asked: How often a token was asked for.
        lifetime_s: How long new tokens are valid.
    """

    def __init__(self, stores: Path | None = None) -> None:
        super().__init__(self._answer)
        self.asked = 0
        self.lifetime_s = 300
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        if stores is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(stores / "broker-certificate.pem", stores / "broker-key.pem")
            self.secure(context)

    def keys(self) -> dict[str, Any]:
        """The public key."""
        numbers = self._key.public_key().public_numbers()

        def text(number: int) -> str:
            return _text(number.to_bytes((number.bit_length() + 7) // 8, "big"))

        return {
            "keys": [
                {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": text(numbers.n), "e": text(numbers.e)}
            ]
        }

    def token(self) -> str:
        """A new token, signed."""
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": CLIENT_ID, "iat": now, "exp": now + self.lifetime_s}
        head = {"alg": "RS256", "typ": "JWT", "kid": "1"}
        signed = ".".join(_text(json.dumps(part).encode()) for part in (head, claims))
        return f"{signed}.{_text(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def _answer(self, request: Request) -> Answer:
        if request.method == "GET":
            return as_json(200, self.keys())
        self.asked += 1
        login = f"{CLIENT_ID}:{CLIENT_SECRET}".encode()
        if request.headers["authorization"] != f"Basic {base64.b64encode(login).decode()}":
            return as_json(401, {"error": "invalid_client", "error_description": "wrong client id or secret"})
        if parse_qs(request.body.decode()).get("grant_type") != ["client_credentials"]:
            return as_json(400, {"error": "unsupported_grant_type"})
        return as_json(200, {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.lifetime_s})


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

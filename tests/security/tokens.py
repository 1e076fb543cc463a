"""A token server: OpenID Connect's client credentials, and the keys (JWKS) with which brokers check its tokens."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

ISSUER, AUDIENCE = "https://tokens.test", "kafka"
CLIENT_ID, CLIENT_SECRET = "connector", "oidc-secret"


class TokenServer:
    """Serves `/token` to those who know the client's secret, and `/keys` to everybody, until the end of the `with` block.

    Args:
        stores: A folder with `broker-certificate.pem` and `broker-key.pem`, for https; None is http.

    Attributes:
        asked: How often a token was asked for.
        lifetime_s: How long new tokens are valid.
    """

    def __init__(self, stores: Path | None = None) -> None:
        self.asked = 0
        self.lifetime_s = 300
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._scheme = "http"
        if stores is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(stores / "broker-certificate.pem", stores / "broker-key.pem")
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"

    @property
    def url(self) -> str:
        """The address, without a path."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

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

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, server.keys())

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                login = f"{CLIENT_ID}:{CLIENT_SECRET}".encode()
                server.asked += 1
                if self.headers["Authorization"] != f"Basic {base64.b64encode(login).decode()}":
                    self._answer(401, {"error": "invalid_client", "error_description": "wrong client id or secret"})
                elif form.get("grant_type") != ["client_credentials"]:
                    self._answer(400, {"error": "unsupported_grant_type"})
                else:
                    token = server.token()
                    self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": server.lifetime_s})

            def _answer(self, status: int, content: dict[str, Any]) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

"""A metadata service that fetches a document by HTTP."""

from __future__ import annotations

import importlib.util
import time
from typing import Any
from urllib.parse import urlsplit

from dynamic_kafka.errors import ConfigurationError, MetadataServiceError, MissingDependencyError
from dynamic_kafka.metadata.model import KafkaStream
from dynamic_kafka.metadata.service import StreamListService

__all__ = ["HttpMetadataService"]

_MAX_BYTES = 64 * 1024 * 1024
_MAX_REDIRECTS = 5


class HttpMetadataService(StreamListService):
    """Streams from a YAML or JSON document at a URL; `metadata.document` describes its shape.

    The document is asked for at each refresh, with the ETag of the last one: an unchanged one costs a 304. Redirects are
    followed, but never to another host, port or scheme if there is an `auth_header`. Whether a cluster is active is
    answered from the last document. Proxies are taken from the environment (`HTTPS_PROXY`, `NO_PROXY`).

    Args:
        url: The document's http or https URL. Messages show it without its query.
        timeout_ms: The longest wait for a connection or for more data, and about the longest time for the whole.
        auth_header: The value of the header `Authorization`, with references that are resolved for each request, so that
            a rotated file counts: `Bearer ${file:/run/token}`, `${env:METADATA_AUTH}`. Never shown, and pickled as given.

    Raises:
        ConfigurationError: If the URL is none, or holds a user or password.
        MissingDependencyError: If httpx2 is not installed.
    """

    def __init__(self, url: str, timeout_ms: int = 10_000, auth_header: str | None = None) -> None:
        self._shown = _shown(url)
        if importlib.util.find_spec("httpx2") is None:
            raise MissingDependencyError("httpx2", "http", "for the metadata service 'http'")
        self._url = url
        self._timeout_s = timeout_ms / 1000
        self._auth_header = auth_header
        self._client: Any = None
        self._etag: str | None = None
        self._streams: tuple[KafkaStream, ...] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_etag": None, "_streams": None}

    def __repr__(self) -> str:
        return f"HttpMetadataService({self._shown!r})"

    def get_all_streams(self) -> tuple[KafkaStream, ...]:
        """The streams in the document as it is now.

        Raises:
            MetadataServiceError: If the server does not answer with 200 or 304, takes too long, redirects where it must
                not, sends more than 64 MiB, or sends no valid document.
            ConfigurationError: If a reference in the `auth_header` leads nowhere.
        """
        import httpx2

        if self._client is None:
            self._client = httpx2.Client(timeout=self._timeout_s)
        try:
            return self._fetch(self._client)
        except httpx2.HTTPError as error:
            raise self._error(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _fetch(self, client: Any) -> tuple[KafkaStream, ...]:
        headers = {"Accept": "application/json, application/yaml"}
        if self._auth_header is not None:
            headers["Authorization"] = self._resolved_auth_header()
        if self._etag is not None:
            headers["If-None-Match"] = self._etag
        request = client.build_request("GET", self._url, headers=headers)
        for _ in range(1 + _MAX_REDIRECTS):
            response = client.send(request, stream=True)
            try:
                if response.next_request is None:
                    return self._read(response)
            finally:
                response.close()
            target = response.next_request.url
            if self._auth_header is not None and target.origin != request.url.origin:
                raise self._error(
                    f"status {response.status_code} redirects to {target.scheme}://{target.host}, "
                    "where the Authorization header must not go; set the URL to the final address"
                )
            request = response.next_request
        raise self._error(f"more than {_MAX_REDIRECTS} redirects")

    def _read(self, response: Any) -> tuple[KafkaStream, ...]:
        if response.status_code == 304 and self._streams is not None:
            return self._streams
        if response.status_code != 200:
            hint = "; check the auth header" if response.status_code in {401, 403} else ""
            raise self._error(f"status {response.status_code} {response.reason_phrase}{hint}")
        deadline = time.monotonic() + self._timeout_s
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > _MAX_BYTES:
                raise self._error(f"the document is larger than {_MAX_BYTES // 2**20} MiB")
            if time.monotonic() > deadline:
                raise self._error(f"the document took longer than {self._timeout_s:g} s")

        from dynamic_kafka.metadata.document import parse_document  # pydantic: only where a document is parsed

        try:
            text = body.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise self._error(f"the document is not UTF-8 at byte {error.start}") from None
        self._streams = parse_document(text, self._shown)
        self._etag = response.headers.get("ETag")
        return self._streams

    def _resolved_auth_header(self) -> str:
        from dynamic_kafka.kafka.config.secrets import resolve

        assert self._auth_header is not None
        option = "metadata-service.auth-header"
        value = resolve({option: self._auth_header})[option].strip()
        # httpx would quote a header that it cannot send, and with it the secret.
        if not value or not (value.isascii() and value.isprintable()):
            raise self._error(f"the value of {option} is empty or holds characters that no header can hold")
        return value

    def _error(self, what: str) -> MetadataServiceError:
        return MetadataServiceError(f"Metadata URL {self._shown} failed: {what}")


def _shown(url: str) -> str:
    """The URL without its query, which may hold a token; refuses a URL that is none."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # the port is parsed, and refused, on access
    except ValueError:
        host = None
    if not host or parts.scheme not in {"http", "https"}:
        raise ConfigurationError("Option 'metadata-service.url' is not an http or https URL, such as https://host/path")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(
            f"Option 'metadata-service.url' holds a user or password (host '{host}'); "
            "take them out and set 'metadata-service.auth-header', such as 'Basic ${env:METADATA_AUTH}'"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path}"

"""The built-in metadata services: one cluster's topics, a file, a document at a URL, and streams in memory.

Heavy libraries are imported where they are used: options are checked, and services pickled, without them.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import os
import socket
import stat
import threading
import time
import zlib
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dynamic_kafka.errors import ConfigurationError, MetadataServiceError, MissingDependencyError
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.service import StreamListService

__all__ = ["FileMetadataService", "HttpMetadataService", "InMemoryMetadataService", "SingleClusterTopicMetadataService"]

_LIST_TOPICS_S = 30.0
_SETTLED_S = 2.0
_MAX_BYTES = 64 * 1024 * 1024
_MAX_REDIRECTS = 5
_ENCODINGS = ("identity", "gzip", "")


class SingleClusterTopicMetadataService:
    """The topics of one cluster as streams (Flink and PyFlink: the class of this name).

    Only `get_all_streams`, that is, a subscription by pattern, asks the cluster: a stream id given by name is taken for
    a topic, whether it exists yet or not.

    Args:
        cluster_id: The name of the cluster.
        properties: The properties to reach it, in Java's or librdkafka's names, with `bootstrap.servers`.

    Raises:
        ConfigurationError: If the cluster id is empty or `bootstrap.servers` is missing.
    """

    def __init__(self, cluster_id: str, properties: Mapping[str, str]) -> None:
        if not cluster_id:
            raise ConfigurationError("The single-cluster metadata service needs a cluster id; it must not be empty")
        if not properties.get("bootstrap.servers", "").strip(" ,"):
            raise ConfigurationError(
                f"The single-cluster metadata service of '{cluster_id}' needs the Kafka property 'bootstrap.servers'"
            )
        self._cluster_id = cluster_id
        self._properties = dict(properties)

    def __repr__(self) -> str:
        return f"SingleClusterTopicMetadataService({self._cluster_id!r})"

    def get_all_streams(self) -> list[KafkaStream]:
        """Return a stream for each topic that the client may see, without Kafka's internal ones (`__*`).

        Raises:
            MetadataServiceError: If the cluster does not answer within 30 s.
        """
        topics = sorted(topic for topic in self._list_topics() if not topic.startswith("__"))
        return list(self.describe_streams(topics).values())

    def describe_streams(self, stream_ids: Collection[str]) -> dict[str, KafkaStream]:
        """Return a stream for each id, without asking the cluster."""
        return {
            topic: KafkaStream(topic, {self._cluster_id: ClusterMetadata(frozenset({topic}), self._properties)})
            for topic in stream_ids
        }

    def is_cluster_active(self, cluster_id: str) -> bool:
        """Return whether it is the one cluster."""
        return cluster_id == self._cluster_id

    def close(self) -> None:
        """Do nothing: each call gives its client back to the pool, which closes it."""

    def _list_topics(self) -> Collection[str]:
        from confluent_kafka import KafkaException

        from dynamic_kafka.kafka.clients import kept_clients

        reason, verdict = "", "does not answer"
        try:
            with kept_clients("list topics", self._cluster_id, self._properties) as clients:
                try:
                    found = clients.ask(lambda timeout_s: clients.admin.list_topics(timeout=timeout_s), _LIST_TOPICS_S)
                except KafkaException:
                    reason = clients.reason()  # says more than "timed out"
                    verdict = clients.errors.verdict
                    raise
                return found.topics.keys()
        except KafkaException as error:
            raise MetadataServiceError(
                f"Cluster '{self._cluster_id}' {verdict}, so its topics cannot be listed: {reason or error.args[0].str()}",
                cluster_id=self._cluster_id,
            ) from None


class FileMetadataService(StreamListService):
    """Streams from a YAML or JSON file (Flink: YamlFileMetadataService); `metadata.document` describes its shape.

    The file is on the driver's machine. It is read again when its modification time, size or inode has changed.
    Replace it by renaming a finished file over it: a half-written document that happens to be valid looks like one with
    fewer streams. JSON is safe from that, for half of it is never valid.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._signature: tuple[int, int, int] | None = None
        self._streams: tuple[KafkaStream, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_signature": None, "_streams": ()}

    def __repr__(self) -> str:
        return f"FileMetadataService({str(self._path)!r})"

    def get_all_streams(self) -> tuple[KafkaStream, ...]:
        """Return the streams in the file as it is now.

        Raises:
            MetadataServiceError: If the file is missing, unreadable, or not a valid document.
        """
        try:
            found = self._path.stat()  # follows links: a mounted file is replaced by moving a link
            signature = (found.st_mtime_ns, found.st_size, found.st_ino)
            if signature != self._signature:
                from dynamic_kafka.metadata.document import parse_document  # pydantic: only where a document is parsed

                if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for, a device would never end
                    raise MetadataServiceError(f"Metadata file '{self._path}' is not a regular file; name a file")
                with self._path.open("rb") as file:
                    text = file.read(_MAX_BYTES + 1)
                if len(text) > _MAX_BYTES:
                    raise MetadataServiceError(
                        f"Metadata file '{self._path}' is larger than {_MAX_BYTES // 2**20} MiB; divide the streams"
                    )
                self._streams = parse_document(text.decode("utf-8-sig"), str(self._path))
                # A file may change twice within one tick of its clock: a young time stamp proves nothing.
                settled = time.time() - found.st_mtime > _SETTLED_S
                self._signature = signature if settled else None
        except OSError as error:
            raise MetadataServiceError(
                f"Metadata file '{self._path}' cannot be read: {error.strerror}; it must be on the driver's machine"
            ) from error
        except UnicodeDecodeError as error:
            raise MetadataServiceError(
                f"Metadata file '{self._path}' is not UTF-8 at byte {error.start}; save it as UTF-8"
            ) from None
        return self._streams


class HttpMetadataService(StreamListService):
    """Streams from a YAML or JSON document at a URL; `metadata.document` describes its shape.

    The document is requested at each refresh, with the ETag of the last one: an unchanged one costs a 304. Redirects are
    followed, but never from https to http, and never to another host, port or scheme if there is an `auth_header`. Whether
    a cluster is active is answered from the last document. Proxies are taken from the environment (`HTTPS_PROXY`,
    `NO_PROXY`). The server has to say where the document ends, by `Content-Length`, chunks or gzip, unless it is JSON:
    half of a YAML document may look like one with fewer streams.

    Args:
        url: The document's http or https URL. Messages show it without its query.
        timeout_ms: The longest time for an answer, with all redirects and the whole document.
        auth_header: The value of the header `Authorization`, with references that are resolved for each request, so that
            a rotated file counts: `Bearer ${file:/run/token}`, `${env:METADATA_AUTH}`. Never shown, and pickled as given.

    Raises:
        ConfigurationError: If the URL is not valid, or holds a user or password.
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
        self._connections = _Connections()
        self._etag: str | None = None
        self._streams: tuple[KafkaStream, ...] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_connections": _Connections(), "_etag": None, "_streams": None}

    def __repr__(self) -> str:
        return f"HttpMetadataService({self._shown!r})"

    def get_all_streams(self) -> tuple[KafkaStream, ...]:
        """Return the streams in the document as it is now.

        Raises:
            MetadataServiceError: If the server does not answer with 200 or 304, takes too long, redirects where it must
                not, sends more than 64 MiB, or sends a document that is not valid or may be incomplete.
            ConfigurationError: If a reference in the `auth_header` cannot be looked up.
        """
        import httpx2

        if self._client is None:
            self._client = httpx2.Client(timeout=self._timeout_s)
        self._connections.are_cut = False
        # The client's time-outs begin again with each piece of data: a server that drips would never run into one.
        limit = threading.Timer(self._timeout_s, self._connections.cut)
        limit.daemon = True
        limit.start()
        try:
            return self._fetch(self._client)
        except httpx2.HTTPError as error:
            if self._connections.are_cut:
                raise self._late() from error
            raise self._error(f"{type(error).__name__}: {error}") from error
        finally:
            limit.cancel()

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _fetch(self, client: Any) -> tuple[KafkaStream, ...]:
        # Other encodings could unfold to any size before it can be counted.
        headers = {"Accept": "application/json, application/yaml", "Accept-Encoding": "gzip"}
        if self._auth_header is not None:
            headers["Authorization"] = self._resolved_auth_header()
        if self._etag is not None:
            headers["If-None-Match"] = self._etag
        extensions = {"trace": self._connections.note}
        request = client.build_request("GET", self._url, headers=headers, extensions=extensions)
        for _ in range(1 + _MAX_REDIRECTS):
            response = client.send(request, stream=True)
            try:
                if response.next_request is None:
                    return self._read(response)
            finally:
                response.close()
            target = response.next_request.url
            if target.scheme != "https" and request.url.scheme == "https":
                raise self._error(
                    f"status {response.status_code} redirects from https to {target.scheme}://{target.host}, where anybody "
                    "on the way could change the document; set the URL to the final address"
                )
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
        if (encoding := response.headers.get("Content-Encoding", "identity").strip().lower()) not in _ENCODINGS:
            raise self._error(f"the document has the content encoding '{encoding}', which was not asked for")
        body = self._body(response, is_gzip=encoding == "gzip")

        from dynamic_kafka.metadata.document import parse_document  # pydantic: only where a document is parsed

        try:
            text = body.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise self._error(f"the document is not UTF-8 at byte {error.start}") from None
        if encoding != "gzip" and not response.headers.keys() & {"content-length", "transfer-encoding"}:
            try:
                json.loads(text)
            except (ValueError, RecursionError):
                raise self._error(
                    "the answer ends with its connection, and half of a document that is not JSON may look like the whole; "
                    "have the server send Content-Length or Transfer-Encoding: chunked, or a JSON document"
                ) from None
        self._streams = parse_document(text, self._shown)
        self._etag = response.headers.get("ETag")
        return self._streams

    def _body(self, response: Any, *, is_gzip: bool) -> bytes:
        too_large = self._error(f"the document is larger than {_MAX_BYTES // 2**20} MiB")
        body = bytearray()
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > _MAX_BYTES:
                raise too_large
        if self._connections.are_cut:  # which may look like the end of the document
            raise self._late()
        if not is_gzip:
            return bytes(body)
        try:
            unpacked = gzip.GzipFile(fileobj=io.BytesIO(body)).read(_MAX_BYTES + 1)  # which wants the trailer
        except (EOFError, OSError, zlib.error) as error:
            raise self._error(f"the document's gzip encoding is cut off or damaged: {error}") from None
        if len(unpacked) > _MAX_BYTES:
            raise too_large
        return unpacked

    def _resolved_auth_header(self) -> str:
        from dynamic_kafka.kafka.config.secrets import resolve

        assert self._auth_header is not None
        option = "metadata-service.auth-header"
        value = resolve({option: self._auth_header})[option].strip()
        # httpx would quote a header that it cannot send, and with it the secret.
        if not value or not (value.isascii() and value.isprintable()):
            raise self._error(f"the value of {option} is empty or holds characters that no header can hold")
        return value

    def _late(self) -> MetadataServiceError:
        return self._error(f"the whole answer took longer than {self._timeout_s:g} s")

    def _error(self, what: str) -> MetadataServiceError:
        return MetadataServiceError(f"Metadata URL {self._shown} failed: {what}")


class _Connections:
    """The last connections of an HTTP client, so that a request can be ended from another thread."""

    def __init__(self) -> None:
        self.are_cut = False
        self._sockets: deque[socket.socket] = deque(maxlen=1 + _MAX_REDIRECTS)

    def note(self, event: str, info: Mapping[str, Any]) -> None:
        """Take an event of httpx2 (the extension `trace`)."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._sockets.append(info["return_value"].get_extra_info("socket"))
            if self.are_cut:
                self.cut()

    def cut(self) -> None:
        """End all of them, and those that are made from now on. Whoever waits for data of one gets its end."""
        self.are_cut = True
        for connected in list(self._sockets):
            with suppress(OSError):  # it is closed
                socket.socket.shutdown(connected, socket.SHUT_RDWR)  # SSLSocket's own is not for other threads


def _shown(url: str) -> str:
    """Return the URL without its query, which may hold a token. Refuse a URL that is not valid."""
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


class InMemoryMetadataService(StreamListService):
    """Streams held in memory, for fixed metadata and for tests.

    It is copied to the reader process when a query starts: later changes are seen by users of this very object, never by
    a query that runs. Thread-safe: each change is one assignment, or one change of a set.

    Args:
        streams: The streams it knows at first.
    """

    def __init__(self, streams: Iterable[KafkaStream] = ()) -> None:
        self._inactive: set[str] = set()
        self.set_streams(streams)

    def set_streams(self, streams: Iterable[KafkaStream]) -> None:
        """Replace all streams."""
        self._streams = tuple(streams)

    def set_active(self, cluster_id: str, active: bool) -> None:  # noqa: FBT001  # reads well: set_active("a", False)
        """Set whether a cluster is active; every cluster is active at first."""
        if active:
            self._inactive.discard(cluster_id)
        else:
            self._inactive.add(cluster_id)

    def get_all_streams(self) -> tuple[KafkaStream, ...]:
        """Return the streams last set."""
        return self._streams

    def is_cluster_active(self, cluster_id: str) -> bool:
        """Return whether the cluster was not set inactive."""
        return cluster_id not in self._inactive

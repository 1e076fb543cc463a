"""The metadata services: by option, from one cluster, a file, a URL, and from memory; and the subscribers."""

from __future__ import annotations

import gzip
import json
import logging
import os
import pickle
import re
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from confluent_kafka import Producer
from tests.certificates import self_signed
from tests.web import Answer, Request, WebServer

import dynamic_kafka.metadata.services as services_module
from dynamic_kafka.errors import (
    ConfigurationError,
    ConflictingOptionsError,
    InvalidOptionError,
    MetadataServiceError,
    MissingDependencyError,
    UnknownOptionError,
)
from dynamic_kafka.metadata.factory import create_metadata_service
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.service import KafkaMetadataService
from dynamic_kafka.metadata.services import (
    FileMetadataService,
    HttpMetadataService,
    InMemoryMetadataService,
    SingleClusterTopicMetadataService,
)
from dynamic_kafka.metadata.subscriber import StreamPatternSubscriber, StreamSetSubscriber

SERVERS = {"bootstrap.servers": "h:9092"}


def document(*stream_ids: str) -> str:
    """A document of streams on one cluster, each with one topic of its name."""
    return json.dumps(
        [
            {
                "streamId": s,
                "clusterMetadataList": [{"clusterId": "c", "bootstrapServers": "h:9092", "topics": [s]}],
            }
            for s in stream_ids
        ]
    )


def streams(*stream_ids: str) -> list[KafkaStream]:
    """What `document` describes."""
    return [KafkaStream(s, {"c": ClusterMetadata(frozenset({s}), SERVERS)}) for s in stream_ids]


def ids(found: Collection[KafkaStream]) -> list[str]:
    """The stream ids, in order."""
    return [stream.stream_id for stream in found]


# --- by option --------------------------------------------------------------------------------------------------------


class UserService:
    """A service as a user writes it: duck-typed; it remembers its options."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self.options = options

    def get_all_streams(self) -> list[KafkaStream]:
        """None."""
        return []

    def describe_streams(self, stream_ids: Collection[str]) -> dict[str, KafkaStream]:
        """Each on one cluster."""
        return {stream.stream_id: stream for stream in streams(*stream_ids)}

    def is_cluster_active(self, cluster_id: str) -> bool:
        """The one cluster is."""
        return cluster_id == "c"

    def close(self) -> None:
        """Do nothing."""


class Inheriting(KafkaMetadataService):
    """A service that inherits from the protocol and has no __init__ of its own."""


class Incomplete:
    """A class that is no service."""

    def close(self) -> None:
        """Do nothing."""


class Failing(UserService):
    """A service that cannot be made."""

    def __init__(self) -> None:
        raise ValueError("no registry")


@pytest.fixture
def user_module(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an importable module with the classes above."""
    module = ModuleType("user_metadata_module")
    for cls in (UserService, Inheriting, Failing, Incomplete):
        setattr(module, cls.__name__, cls)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


def test_built_in_services_are_made_by_name(tmp_path: Path) -> None:
    """Each built-in name gives its service, and each service meets the protocol."""
    path = tmp_path / "m.json"
    path.write_text(document("s"))
    made = [
        create_metadata_service("single-cluster", {"metadata-service.cluster-id": "a", "other": "x"}, SERVERS),
        create_metadata_service("file", {"Metadata-Service.Path": str(path)}, {}),
        create_metadata_service(
            "http",
            {
                "metadata-service.url": "https://host:8443/m",
                "metadata-service.timeout-ms": "500",
                "metadata-service.auth-header": "Bearer ${env:TOKEN}",
            },
            {},
        ),
        InMemoryMetadataService(),
    ]
    assert [type(service) for service in made] == [
        SingleClusterTopicMetadataService,
        FileMetadataService,
        HttpMetadataService,
        InMemoryMetadataService,
    ]
    assert all(isinstance(service, KafkaMetadataService) for service in made)
    assert ids(made[1].get_all_streams()) == ["s"]


def test_user_class_gets_the_options_without_prefix(user_module: str) -> None:
    """A class that takes an argument is given the service's options; the others are none of its business."""
    service = create_metadata_service(
        f"{user_module}:UserService", {"metadata-service.Registry": "R", "metadata-service": "x", "topic": "t"}, {}
    )
    assert isinstance(service, UserService)
    assert service.options == {"Registry": "R"}


def test_user_class_without_argument_is_made_without(user_module: str) -> None:
    """A class that inherits from the protocol has no argument, though its inherited __init__ seems to take some."""
    assert isinstance(create_metadata_service(f"{user_module}:Inheriting", {}, {}), Inheriting)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("files", r"Option 'metadata-service' has the value 'files'; expected .*; did you mean 'file'\?"),
        ("com.example.Service", r"expected single-cluster, file, http or package.module:Class$"),
        (
            "no_such_module:Service",
            r"\('no_such_module:Service'\) could not be imported or created: ModuleNotFoundError",
        ),
        ("user_metadata_module:Servic", r"AttributeError: .* no attribute 'Servic'"),
        ("user_metadata_module:Failing", r"could not be imported or created: ValueError: no registry"),
        ("user_metadata_module:Incomplete", r"lacks get_all_streams, describe_streams, is_cluster_active$"),
    ],
)
@pytest.mark.usefixtures("user_module")
def test_wrong_service_name_is_a_configuration_error(name: str, expected: str) -> None:
    """The error names the option `metadata-service` and what is wrong with it."""
    with pytest.raises(ConfigurationError, match=expected) as caught:
        create_metadata_service(name, {}, {})
    assert "metadata-service" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "error", "expected"),
    [
        ("file", {}, ConfigurationError, "'metadata-service.path' is missing"),
        ("file", {"path": " "}, ConfigurationError, "'metadata-service.path' is missing"),
        ("file", {"pth": "x"}, UnknownOptionError, "'metadata-service.pth'; did you mean 'metadata-service.path'"),
        ("file", {"path": "x", "url": "y"}, ConflictingOptionsError, "'file' takes only metadata-service.path"),
        ("single-cluster", {}, ConfigurationError, "'metadata-service.cluster-id' is missing"),
        ("single-cluster", {"cluster-id": "a"}, ConfigurationError, "'a' needs the Kafka property 'bootstrap.servers'"),
        ("http", {}, ConfigurationError, "'metadata-service.url' is missing"),
        ("http", {"url": "http://h", "timeout-ms": "0"}, InvalidOptionError, "a positive number of milliseconds"),
        ("http", {"url": "http://h", "timeout-ms": "1s"}, InvalidOptionError, "a positive number of milliseconds"),
        ("http", {"url": "ftp://h"}, ConfigurationError, "'metadata-service.url' is not an http or https URL"),
        ("http", {"url": "http://h", "auth-header": "s3cret"}, ConfigurationError, "in plain text; refer to it"),
        ("http", {"url": "http://u:s3cret@h"}, ConfigurationError, "holds a user or password"),
        ("http", {"url": "http://u:s3cret/@h"}, ConfigurationError, "is not an http or https URL"),
    ],
)
def test_wrong_service_option_is_a_configuration_error(
    name: str, options: dict[str, str], error: type[Exception], expected: str
) -> None:
    """Missing, unknown and wrong options are named, with a suggestion; secrets are not shown."""
    with pytest.raises(error) as caught:
        create_metadata_service(name, {f"metadata-service.{key}": value for key, value in options.items()}, {})
    assert expected in str(caught.value)
    assert "s3cret" not in str(caught.value)


# --- single-cluster ---------------------------------------------------------------------------------------------------


def test_single_cluster_describes_streams_as_topics_without_asking() -> None:
    """A stream id is a topic, known or not; only the one cluster is active; a pickled service works the same."""
    service = pickle.loads(pickle.dumps(SingleClusterTopicMetadataService("a", SERVERS)))
    assert service.describe_streams(["t"]) == {"t": KafkaStream("t", {"a": ClusterMetadata(frozenset({"t"}), SERVERS)})}
    assert (service.is_cluster_active("a"), service.is_cluster_active("b")) == (True, False)
    service.close()


def test_single_cluster_lists_topics_without_internal_ones() -> None:
    """All topics of the cluster (here librdkafka's mock) are streams, but not Kafka's own; the client is kept."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "replaced"})
    for topic in ("b", "__consumer_offsets", "a"):
        producer.produce(topic, b"")
    assert producer.flush(10) == 0
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    service = SingleClusterTopicMetadataService("c", {"bootstrap.servers": f"{broker.host}:{broker.port}"})
    found = service.get_all_streams()
    assert ids(found) == ["a", "b"]
    assert found == service.get_all_streams()
    assert found == list(service.describe_streams(["a", "b"]).values())
    service.close()


def test_single_cluster_that_does_not_answer_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the cluster and the client's reason; the client in use does not hinder pickling."""
    monkeypatch.setattr("dynamic_kafka.metadata.services._LIST_TOPICS_S", 0.5)
    service = SingleClusterTopicMetadataService("a", {"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(
        MetadataServiceError, match=r"Cluster 'a' does not answer, so its topics cannot be listed: .+"
    ) as caught:
        service.get_all_streams()
    assert caught.value.cluster_id == "a"
    pickle.dumps(service)
    service.close()


def test_single_cluster_demotes_the_log_of_its_client() -> None:
    """A process that only uses the service shows none of librdkafka's errors but in ours."""
    code = """
        import logging, sys
        logging.basicConfig(level=logging.INFO, stream=sys.stdout)
        import dynamic_kafka.metadata.services as module
        from dynamic_kafka.errors import MetadataServiceError

        module._LIST_TOPICS_S = 0.5
        try:
            module.SingleClusterTopicMetadataService("a", {"bootstrap.servers": "127.0.0.1:1"}).get_all_streams()
        except MetadataServiceError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=60
    )
    (line,) = (done.stdout + done.stderr).splitlines()
    assert line.startswith("Cluster 'a' does not answer, so its topics cannot be listed: ")


# --- file -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were parsed."""
    import dynamic_kafka.metadata.document as document_module

    texts: list[str] = []
    parse = document_module.parse_document

    def counting(text: str, source: str) -> tuple[KafkaStream, ...]:
        texts.append(text)
        return parse(text, source)

    monkeypatch.setattr(document_module, "parse_document", counting)
    return texts


def test_file_is_parsed_again_only_when_it_changed(tmp_path: Path, parsed: list[str]) -> None:
    """A refresh of an unchanged file costs a stat; a replaced one is read."""
    path = tmp_path / "m.json"
    path.write_text(document("a"))
    os.utime(path, (1000, 1000))
    service = FileMetadataService(path)
    assert [ids(service.get_all_streams()) for _ in range(3)] == [["a"]] * 3
    assert len(parsed) == 1

    (tmp_path / "new").write_text(document("b"))  # the same size
    os.utime(tmp_path / "new", (1000, 1000))  # and the same time: only the inode tells
    (tmp_path / "new").replace(path)
    assert list(service.describe_streams(["a", "b"])) == ["b"]
    assert len(parsed) == 2


def test_file_changed_twice_within_a_tick_of_the_clock_is_noticed(tmp_path: Path) -> None:
    """A young file is read again although its time, size and inode are the same."""
    path = tmp_path / "m.json"
    path.write_text(document("a"))
    young = path.stat()
    service = FileMetadataService(path)
    assert ids(service.get_all_streams()) == ["a"]
    path.write_text(document("b"))
    os.utime(path, ns=(young.st_atime_ns, young.st_mtime_ns))
    assert ids(service.get_all_streams()) == ["b"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "cannot be read: No such file or directory; it must be on the driver's machine"),
        (b"", "is invalid: the document: expected a list, not nothing"),
        (document("a")[:-5].encode(), "not YAML, did not find expected ',' or ']'"),
        (b"- \xff", "is not UTF-8 at byte 2"),
    ],
)
def test_missing_or_half_written_file_is_a_failure_until_it_is_whole(
    tmp_path: Path, content: bytes | None, expected: str
) -> None:
    """Each refresh fails while the file is bad, and the first after it is mended succeeds."""
    path = tmp_path / "m.yaml"
    if content is not None:
        path.write_bytes(content)
    service = FileMetadataService(path)
    for _ in range(2):
        with pytest.raises(MetadataServiceError, match=re.escape(expected)):
            service.get_all_streams()
    path.write_text(document("a"))
    assert service.is_cluster_active("c")
    assert service.is_cluster_active("d")


def test_file_that_is_no_file_is_neither_waited_for_nor_read(tmp_path: Path) -> None:
    """A pipe would be waited for, and a device would never end."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(MetadataServiceError, match=r"is not a regular file|cannot be read"):
            FileMetadataService(path).get_all_streams()


def test_file_may_not_be_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill the memory of the driver."""
    monkeypatch.setattr(services_module, "_MAX_BYTES", 1024 * 1024)
    path = tmp_path / "m.yaml"
    path.write_text(" " * (1024 * 1024 + 1))
    with pytest.raises(MetadataServiceError, match=r"m\.yaml' is larger than 1 MiB"):
        FileMetadataService(path).get_all_streams()


def test_file_may_be_a_link(tmp_path: Path) -> None:
    """Kubernetes mounts files so, and replaces them by moving the link."""
    (tmp_path / "v1").write_text(document("a"))
    (tmp_path / "m.json").symlink_to(tmp_path / "v1")
    service = FileMetadataService(tmp_path / "m.json")
    assert ids(service.get_all_streams()) == ["a"]


def test_file_service_is_pickled_with_its_path(tmp_path: Path) -> None:
    """The copy in the reader process reads the same file."""
    path = tmp_path / "m.json"
    path.write_text("\ufeff" + document("a"))
    copy = pickle.loads(pickle.dumps(FileMetadataService(str(path))))
    assert ids(copy.get_all_streams()) == ["a"]


# --- http -------------------------------------------------------------------------------------------------------------


def always(status: int, fields: dict[str, str], body: bytes) -> Callable[[Request], Answer]:
    """The same answer to every request."""
    return lambda _: (status, fields, body)


@pytest.fixture
def server() -> Iterator[WebServer]:
    """A server that answers with a document."""
    with WebServer(always(200, {}, document("a").encode())) as server:
        yield server


@pytest.fixture
def other() -> Iterator[WebServer]:
    """Another server, that is, another origin."""
    with WebServer(always(200, {}, document("a").encode())) as server:
        yield server


def fetch_error(service: HttpMetadataService) -> str:
    """The message of the failure; the service is closed."""
    with pytest.raises(MetadataServiceError) as caught:
        service.get_all_streams()
    service.close()
    return str(caught.value)


def test_http_fetches_the_document_with_its_authorization(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """References in the header are resolved for each request; a pickled copy holds the reference only."""
    monkeypatch.setenv("METADATA_TOKEN", "s3cret")
    service = HttpMetadataService(f"{server.url}/m?x=1", auth_header="Bearer ${env:METADATA_TOKEN}")
    assert ids(service.get_all_streams()) == ["a"]
    monkeypatch.setenv("METADATA_TOKEN", "rotated")
    pickled = pickle.dumps(service)
    copy = pickle.loads(pickled)
    assert ids(copy.get_all_streams()) == ["a"]
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer s3cret", "Bearer rotated"]
    assert b"s3cret" not in pickled
    assert "x=1" not in repr(service)
    service.close()
    copy.close()


def test_http_document_that_did_not_change_is_not_sent_again(server: WebServer) -> None:
    """The ETag of the last good document is sent back; 304 gives the same streams, and a new ETag the new ones."""
    etag, body = '"1"', document("a")

    def answer(request: Request) -> Answer:
        if request.headers.get("if-none-match") == etag:
            return 304, {"ETag": etag}, b""
        return 200, {"ETag": etag}, body.encode()

    server.answer = answer
    service = HttpMetadataService(server.url)
    first = service.get_all_streams()
    assert service.get_all_streams() is first
    etag, body = '"2"', "no document"
    with pytest.raises(MetadataServiceError, match="is invalid"):
        service.get_all_streams()
    etag, body = '"3"', document("b")
    assert ids(service.get_all_streams()) == ["b"]
    assert [request.headers.get("if-none-match") for request in server.requests] == [None, '"1"', '"1"', '"1"']
    assert service.is_cluster_active("c")
    assert service.is_cluster_active("d")
    assert len(server.requests) == 4, "activity is answered from the last document"
    service.close()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (500, "status 500 Internal Server Error"),
        (404, "status 404 Not Found"),
        (204, "status 204 No Content"),
        (304, "status 304 Not Modified"),
        (401, "status 401 Unauthorized; check the auth header"),
    ],
)
def test_http_status_other_than_200_is_a_failure(server: WebServer, status: int, expected: str) -> None:
    """The error names the URL without its query, and the status; the body is not shown."""
    body = b"" if status in {204, 304} else b"s3cret"
    server.answer = always(status, {}, body)
    message = fetch_error(HttpMetadataService(f"{server.url}/m?token=s3cret"))
    assert message == f"Metadata URL {server.url}/m failed: {expected}"


def test_http_redirect_to_the_same_host_is_followed(server: WebServer) -> None:
    """Also with authorization."""

    def answer(request: Request) -> Answer:
        return (200, {}, document("a").encode()) if request.path == "/new" else (302, {"Location": "/new"}, b"")

    server.answer = answer
    service = HttpMetadataService(f"{server.url}/old", auth_header="Bearer x")
    assert ids(service.get_all_streams()) == ["a"]
    assert [request.path for request in server.requests] == ["/old", "/new"]
    assert server.requests[1].headers["authorization"] == "Bearer x"
    service.close()


def test_http_redirect_to_another_host_is_followed_only_without_authorization(
    server: WebServer, other: WebServer
) -> None:
    """The header never leaves the host it is meant for; the error says where the redirect leads, without its query."""
    server.answer = always(307, {"Location": f"{other.url}/m?token=s3cret"}, b"")
    message = fetch_error(HttpMetadataService(server.url, auth_header="Bearer x"))
    assert "status 307 redirects to http://127.0.0.1, where the Authorization header must not go" in message
    assert "s3cret" not in message
    assert other.requests == []

    service = HttpMetadataService(server.url)
    assert ids(service.get_all_streams()) == ["a"]
    assert len(other.requests) == 1
    service.close()


@pytest.fixture
def tls_server(server: WebServer, tmp_path: Path) -> WebServer:
    """The server by https, with a certificate of its own for 127.0.0.1."""
    certificate, key, _ = self_signed()
    (tmp_path / "pair.pem").write_bytes(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    server.secure(context)
    (tmp_path / "ca.pem").write_bytes(certificate)
    return server


def test_https_certificate_is_verified(tls_server: WebServer) -> None:
    """The login is not sent to a server that nobody vouches for."""
    message = fetch_error(HttpMetadataService(tls_server.url, auth_header="Bearer s3cret"))
    assert "certificate verify failed" in message.lower()
    assert tls_server.requests == []


def test_https_never_leads_to_http(
    tls_server: WebServer, other: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without a login: the document says where the clusters are."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    tls_server.answer = always(302, {"Location": f"{other.url}/m"}, b"")
    message = fetch_error(HttpMetadataService(tls_server.url))
    assert "status 302 redirects from https to http://127.0.0.1" in message
    assert other.requests == []


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "deflate"])
def test_http_other_encodings_are_refused(server: WebServer, encoding: str) -> None:
    """They unfold to any size before it can be counted."""
    server.answer = always(200, {"Content-Encoding": encoding}, b"x")
    assert f"has the content encoding '{encoding}', which was not asked for" in fetch_error(
        HttpMetadataService(server.url)
    )
    assert server.requests[0].headers["accept-encoding"] == "gzip"


def test_http_redirects_end(server: WebServer) -> None:
    """A loop of redirects is a failure."""
    server.answer = always(302, {"Location": "/"}, b"")
    assert "more than 5 redirects" in fetch_error(HttpMetadataService(server.url))


def test_http_document_may_not_be_too_large(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit counts what comes out of decompression, so that a small answer cannot fill the memory."""
    monkeypatch.setattr(services_module, "_MAX_BYTES", 1024 * 1024)
    server.answer = always(200, {"Content-Encoding": "gzip"}, gzip.compress(b" " * 2_000_000))
    assert "the document is larger than 1 MiB" in fetch_error(HttpMetadataService(server.url))


def test_http_server_that_is_slow_or_gone_is_a_failure(server: WebServer) -> None:
    """Silence ends after the time-out; a refused connection is named."""
    release = threading.Event()

    def answer(request: Request) -> Answer:
        release.wait(10)
        return 204, {}, b""

    server.answer = answer
    message = fetch_error(HttpMetadataService(server.url, timeout_ms=50))
    assert "ReadTimeout" in message or "took longer than 0.05 s" in message
    release.set()
    assert "ConnectError" in fetch_error(HttpMetadataService("http://127.0.0.1:1/"))


@pytest.mark.parametrize(
    "beginning",
    [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n[]"],
    ids=["headers", "document", "document without a length"],
)
def test_http_answer_that_drips_is_a_failure(beginning: bytes) -> None:
    """A server that keeps sending a little does not hold the refresh up, and half a document is never taken for one."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connected, _ = listening.accept()
            with connected, suppress(OSError):
                connected.sendall(beginning)
                while True:
                    connected.sendall(b" ")
                    time.sleep(0.02)

        thread = threading.Thread(target=drip)
        thread.start()
        service = HttpMetadataService(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout_ms=300)
        began = time.monotonic()
        assert "the whole answer took longer than 0.3 s" in fetch_error(service)
        assert time.monotonic() - began < 5
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("body", "expected"), [(b"- \xff", "the document is not UTF-8 at byte 2"), (b"x", "/m' is invalid: the document")]
)
def test_http_answer_that_is_no_document_is_a_failure(server: WebServer, body: bytes, expected: str) -> None:
    """Whatever a proxy may answer with 200."""
    server.answer = always(200, {}, body)
    assert expected in fetch_error(HttpMetadataService(f"{server.url}/m?token=s3cret"))


YAML = yaml.safe_dump(json.loads(document("a", "b"))).encode()
JSON = document("a", "b").encode()


@pytest.mark.parametrize(
    ("fields", "body", "expected"),
    [
        ({}, YAML, "have the server send Content-Length or Transfer-Encoding: chunked"),
        ({}, YAML[: YAML.index(b"- clusterMetadataList", 1)], "have the server send Content-Length"),
        ({}, JSON, ""),
        ({}, JSON[:-1], "have the server send Content-Length"),
        ({"Transfer-Encoding": "chunked"}, b"%x\r\n%b\r\n0\r\n\r\n" % (len(YAML), YAML), ""),
        ({"Transfer-Encoding": "chunked"}, b"%x\r\n%b\r\n" % (len(YAML), YAML), "RemoteProtocolError"),
        ({"Content-Length": str(len(YAML) + 1)}, YAML, "RemoteProtocolError"),
        ({"Content-Encoding": "gzip"}, gzip.compress(YAML), ""),
        ({"Content-Encoding": "gzip"}, gzip.compress(YAML)[:-1], "gzip encoding is cut off or damaged"),
        ({"Content-Encoding": "gzip"}, gzip.compress(YAML)[:-12], "gzip encoding is cut off or damaged"),
        ({"Content-Encoding": "gzip"}, YAML, "gzip encoding is cut off or damaged"),
    ],
)
def test_http_answer_is_taken_only_if_it_is_known_to_be_whole(
    server: WebServer, fields: dict[str, str], body: bytes, expected: str
) -> None:
    """A connection that breaks in the middle must not look like metadata with fewer streams."""
    server.answer = always(200, {"Content-Length": "", **fields}, body)
    service = HttpMetadataService(server.url)
    if expected:
        assert expected in fetch_error(service)
    else:
        assert ids(service.get_all_streams()) == ["a", "b"]
        service.close()


@pytest.mark.parametrize("value", ["s3cret\nX: y", "s3cr\u00e9t", ""])
def test_http_authorization_that_no_header_can_hold_is_never_shown(
    server: WebServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    """The HTTP library would quote it."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("METADATA_TOKEN", value)
    message = fetch_error(HttpMetadataService(server.url, auth_header="${env:METADATA_TOKEN}"))
    assert "is empty or holds characters that no header can hold" in message
    assert "s3cr" not in message + caplog.text
    assert server.requests == []


def test_http_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes when the service is made, and names the extra."""
    monkeypatch.setattr("importlib.util.find_spec", {}.get)
    with pytest.raises(MissingDependencyError, match=r"pyspark-dynamic-kafka\[http\]"):
        HttpMetadataService("http://h/")


# --- in memory and subscribers ----------------------------------------------------------------------------------------


def test_in_memory_service_answers_what_it_was_told() -> None:
    """Streams can be replaced and clusters called inactive; a pickled copy goes its own way."""
    service = InMemoryMetadataService(streams("a"))
    copy = pickle.loads(pickle.dumps(service))
    assert service.is_cluster_active("c")
    service.set_active("c", False)
    assert not service.is_cluster_active("c")
    service.set_active("c", True)
    assert service.is_cluster_active("c")
    service.set_streams(streams("b"))
    assert ids(service.get_all_streams()) == ["b"]
    assert copy.describe_streams(["a", "b"]) == {"a": streams("a")[0]}


def test_stream_set_subscriber_leaves_out_what_the_service_does_not_know() -> None:
    """The streams come sorted, and only those asked for."""
    subscriber = StreamSetSubscriber(["c", "a", "unknown"])
    service = InMemoryMetadataService(streams("a", "b", "c"))
    assert ids(subscriber.get_subscribed_streams(service)) == ["a", "c"]
    assert StreamSetSubscriber("abc").stream_ids == {"abc"}


def test_stream_pattern_subscriber_searches_anywhere_in_the_id() -> None:
    """As Flink's `find`: a pattern without anchors matches a part of the id."""
    service = InMemoryMetadataService(streams("orders", "old-orders-eu", "users"))
    assert ids(StreamPatternSubscriber("orders").get_subscribed_streams(service)) == ["orders", "old-orders-eu"]
    assert ids(StreamPatternSubscriber(re.compile("^orders$")).get_subscribed_streams(service)) == ["orders"]


@pytest.mark.parametrize("make", [lambda: StreamSetSubscriber([]), lambda: StreamSetSubscriber(["a", ""])])
def test_no_stream_id_is_a_configuration_error(make: Callable[[], object]) -> None:
    """A query that names no stream would read nothing for ever."""
    with pytest.raises(ConfigurationError, match="'stream-ids' names no stream"):
        make()


@pytest.mark.parametrize("pattern", ["(", ""])
def test_wrong_stream_pattern_is_a_configuration_error(pattern: str) -> None:
    """Neither a broken pattern nor an empty one, which would match all streams."""
    with pytest.raises(InvalidOptionError, match="'stream-pattern'"):
        StreamPatternSubscriber(pattern)

"""Messages for Flink's formats and for ours: a table's columns and options, and bytes."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dynamic_kafka.formats import FORMATS

__all__ = ["REGISTRY", "Case", "serving"]

REGISTRY = "{registry}"
"""Stands in options for the URL of a schema registry."""
_TEXTS = ("csv", "json")


@dataclass(frozen=True)
class Case:
    """A table and messages.

    Args:
        columns: What stands between the parentheses of CREATE TABLE.
        options: The options that begin with the format's name, without it; the key "" has the name.
        messages: The messages.
    """

    columns: str
    options: dict[str, str]
    messages: tuple[bytes, ...]

    @property
    def format(self) -> str:
        """Return the format's name."""
        return self.options[""]

    def key(self, message: bytes) -> str:
        """Return a message as text: the text itself, or hexadecimal digits."""
        assert self.format in FORMATS
        return message.decode(errors="backslashreplace") if self.format.endswith(_TEXTS) else message.hex()

    def table_options(self, registry: str) -> dict[str, str]:
        """Return the table's options, for a schema registry at a URL."""
        own = {
            f"{self.format}.{name}": value.replace(REGISTRY, registry) for name, value in self.options.items() if name
        }
        return {"format": self.format, **own}


@contextmanager
def serving(schemas: Sequence[str]) -> Iterator[str]:
    """Serve schemas as a schema registry does, the first with the id 1, and yield the URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer `/schemas/ids/{id}`."""
            number = int(self.path.partition("?")[0].rpartition("/")[2])
            known = 1 <= number <= len(schemas)
            found: dict[str, Any] = {"error_code": 40403, "message": f"Schema {number} not found"}
            body = json.dumps({"schema": schemas[number - 1]} if known else found).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()

"""Messages for Flink's formats and for ours: a table's columns and options, and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dynamic_kafka.formats import FORMATS
from tests.web import Answer, Request, WebServer, as_json

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

    def answer(request: Request) -> Answer:
        """Answer `/schemas/ids/{id}`."""
        number = int(request.path.partition("?")[0].rpartition("/")[2])
        if 1 <= number <= len(schemas):
            return as_json(200, {"schema": schemas[number - 1]})
        return as_json(404, {"error_code": 40403, "message": f"Schema {number} not found"})

    with WebServer(answer) as server:
        yield server.url

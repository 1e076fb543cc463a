"""A TCP proxy between Kafka's clients and one broker, whose link can be slow, narrow, cut, stuck or half-open.

The broker advertises the proxy's port, so every client of the listener comes through here. One event loop in a thread of its
own serves all links of the process.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

__all__ = ["OPEN", "STUCK", "Condition", "Link"]

_CHUNK = 64 * 1024
_TICK_S = 0.05


@dataclass(frozen=True)
class Condition:
    """The condition of a link.

    Args:
        delay_s: How much later each byte arrives, in each direction.
        bytes_per_s: How many bytes pass in each direction of each connection; 0 is no limit.
        accepts: Whether new connections are accepted; if not, they are refused.
        forwards: Whether bytes are passed on; if not, connections stay open and nothing arrives.
    """

    delay_s: float = 0.0
    bytes_per_s: int = 0
    accepts: bool = True
    forwards: bool = True


OPEN = Condition()
STUCK = Condition(forwards=False)
"""Connections stay open and new ones are accepted, but nothing arrives: a firewall that drops packets."""


class Link:
    """One proxy in front of one address; closed by `close`.

    Args:
        port: The port to listen on.
        target: The address to connect to, as (host, port).
    """

    def __init__(self, port: int, target: tuple[str, int]) -> None:
        self.port = port
        self._target = target
        self._condition = OPEN
        self._era = 0  # a connection of an earlier era is dead
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        """How many connections clients have."""
        return len(self._writers) // 2

    def open(self) -> Self:
        """Begin to listen."""
        _run(self._listen())
        return self

    def set(self, condition: Condition) -> None:
        """Change the link's condition, for the connections that exist and for new ones."""
        _run(self._change(condition))

    def half_open(self) -> None:
        """Let the connections of now be dead without a word, as if a router had lost its table; new ones work."""
        self._era += 1

    def cut(self) -> None:
        """Reset all connections and refuse new ones, until `set` or `restore`."""
        self.set(Condition(accepts=False))
        self.reset()

    def reset(self) -> None:
        """Reset all connections; new ones are as the condition says."""
        _run(self._reset())

    def restore(self) -> None:
        """Make the link whole."""
        self.set(OPEN)

    def close(self) -> None:
        """End the proxy and all of its connections."""
        self.cut()

        async def end() -> None:
            for task in list(self._tasks):
                task.cancel()

        _run(end())

    # --- in the event loop ---

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=2 * _CHUNK)

    async def _change(self, condition: Condition) -> None:
        self._condition = condition
        if condition.accepts:
            await self._listen()
        elif self._server is not None:
            self._server.close()
            self._server = None

    async def _reset(self) -> None:
        for writer in list(self._writers):
            found = writer.get_extra_info("socket")
            if found is not None:
                with suppress(OSError):  # a reset instead of an orderly end
                    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        era = self._era
        try:
            there, back = await asyncio.open_connection(*self._target, limit=2 * _CHUNK)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, back)
        self._writers.update(pair)
        pumps = [asyncio.ensure_future(self._pump(*ends, era)) for ends in ((reader, back), (there, writer))]
        self._tasks.update(pumps)
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            self._tasks.difference_update(pumps)
            self._writers.difference_update(pair)
            for end in pair:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, era: int) -> None:
        """Pass bytes on, each `delay_s` after it came, until one side ends."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=256)
        sender = asyncio.ensure_future(self._send(queue, writer, era))
        loop = asyncio.get_running_loop()
        try:
            with suppress(OSError):
                while chunk := await reader.read(_CHUNK):
                    await queue.put((loop.time(), chunk))
            if era == self._era:
                await queue.put((loop.time(), b""))
                await sender
        finally:
            sender.cancel()

    async def _send(self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, era: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            came, chunk = await queue.get()
            while (wait := came + self._condition.delay_s - loop.time()) > 0:
                await asyncio.sleep(min(wait, _TICK_S))
            while era != self._era or not self._condition.forwards:
                await asyncio.sleep(_TICK_S)
            if not chunk:
                return
            if self._condition.bytes_per_s:
                await asyncio.sleep(len(chunk) / self._condition.bytes_per_s)
            try:
                writer.write(chunk)
                await writer.drain()
            except OSError:
                return


_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    global _loop  # noqa: PLW0603
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="proxy", daemon=True).start()
    asyncio.run_coroutine_threadsafe(coroutine, _loop).result(10)

"""A headless Chromium, driven by its DevTools protocol over two pipes: no driver and no library is needed."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from tests.tools import tool

CHROMIUM = tool("chromium", "chromium-browser", "google-chrome")
"""The path of the browser, None if it is not installed."""

_ANSWER_S = 30.0
_END_S = 10.0
_POLL_S = 0.05

_WRAPPER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

_QUIET = (
    "--headless",
    "--no-sandbox",  # root, as in containers of CI, has no sandbox; the only pages are our own
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
)


class BrowserError(AssertionError):
    """The browser refused a command, or a page threw an error."""


class Browser:
    """One page in a headless Chromium, until the end of its `with` block.

    Args:
        profile: An empty folder for what the browser stores.

    Attributes:
        complaints: Errors that pages threw or logged since they were opened, for example by their Content-Security-Policy.
    """

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None, "Chromium is not installed: scripts/get-observers"
        self.complaints: list[str] = []
        self._number = 0
        self._unread = b""
        self._log = (profile / "browser.log").open("wb")
        # The browser reads commands from its file descriptor 3 and writes answers to 4, each ended by a zero byte.
        to_browser, self._commands = os.pipe()
        self._answers, from_browser = os.pipe()
        command = [CHROMIUM, *_QUIET, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        wrapper = [sys.executable, "-I", "-S", "-c", _WRAPPER, str(to_browser), str(from_browser)]
        self._process = subprocess.Popen(
            [*wrapper, *command], pass_fds=(to_browser, from_browser), stdout=self._log, stderr=self._log
        )
        os.close(to_browser)
        os.close(from_browser)
        self._session = ""
        try:
            target = self.send("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self.send(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser."""
        os.close(self._commands)  # the browser ends with its pipe
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)
        self._log.close()

    def send(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _ANSWER_S
        while True:
            answer = self._next_message(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _next_message(self, deadline: float) -> dict[str, Any]:
        """Return the next message, and keep the complaints among the events."""
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise BrowserError("The browser does not answer")
            more = os.read(self._answers, 1 << 16)
            if not more:
                raise BrowserError("The browser has ended")
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        event, found = message.get("method"), message.get("params", {})
        if event == "Runtime.exceptionThrown":
            details = found["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Log.entryAdded" and found["entry"]["level"] == "error":
            self.complaints.append(found["entry"]["text"])
        elif event == "Runtime.consoleAPICalled" and found["type"] in {"error", "assert"}:
            self.complaints.append(str([argument.get("value") for argument in found["args"]]))
        return message

    def screen(
        self,
        width: int,
        height: int,
        *,
        scheme: Literal["light", "dark"] = "light",
        reduced_motion: bool = False,
        scale: float = 1,
    ) -> None:
        """Set the size of the window in CSS pixels, and the colours that the reader prefers."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce" if reduced_motion else "no-preference"},
        ]
        self.send("Emulation.setEmulatedMedia", features=features)

    def open(self, url: str) -> None:
        """Open a page and wait until it is loaded, with its scripts."""
        self.complaints.clear()
        answer = self.send("Page.navigate", url=url)
        if "errorText" in answer:
            raise BrowserError(f"{url}: {answer['errorText']}")
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait(self, condition: str, timeout_s: float = 20.0) -> None:
        """Wait until an expression in the page is true."""
        deadline = time.monotonic() + timeout_s
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise BrowserError(f"Not true after {timeout_s:g} s: {condition}. The page says:\n{self.text()}")
            time.sleep(_POLL_S)

    def text(self, selector: str = "body") -> str:
        """Return the visible text of an element, "" if there is none."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def press(self, *keys: str) -> None:
        """Press keys, named as in `KeyboardEvent.key`, for example `Tab`, `Enter`, ` `, `ArrowDown`."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39}
        codes |= {"ArrowDown": 40, "End": 35, "Home": 36}
        for key in keys:
            text = {"Enter": "\r", " ": " "}.get(key, key if len(key) == 1 else "")
            named: dict[str, Any] = {"key": key, "code": "Space" if key == " " else key}
            named["windowsVirtualKeyCode"] = codes.get(key, ord(key[0].upper()))
            self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **named)
            self.send("Input.dispatchKeyEvent", type="keyUp", **named)

    def screenshot(self, path: Path, clip: Sequence[float] | None = None) -> None:
        """Save what the window shows as PNG.

        Args:
            path: The file.
            clip: Left, top, width and height in CSS pixels; None is the window.
        """
        arguments: dict[str, Any] = {"format": "png"}
        if clip is not None:
            arguments["clip"] = dict(zip(("x", "y", "width", "height"), clip, strict=True), scale=1)
            arguments["captureBeyondViewport"] = True
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", **arguments)["data"]))

"""A Prometheus for the demo: started from the installed package, as this user, with its data in a folder of the demo."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Self

from examples.monitoring.shop import free_port

__all__ = ["HOW_TO_INSTALL", "Prometheus", "find_prometheus"]

HOW_TO_INSTALL = """The demo needs Prometheus, and no rights for it once it is installed.
  Debian, Ubuntu: apt-get install --no-install-recommends prometheus
                  (The package also starts a service of its own. To stop that: systemctl disable --now prometheus)
  macOS:          brew install prometheus
  elsewhere:      https://prometheus.io/download, and put `prometheus` on the PATH"""

_HERE = Path(__file__).parent
_READY_S = 30.0
_END_S = 10.0


def find_prometheus() -> str | None:
    """Return the path of the program; None if it is not installed."""
    return shutil.which("prometheus")


class Prometheus:
    """Prometheus with the configuration and the rules beside this file, until the end of its `with` block.

    Args:
        scratch: A folder for its files.
        drivers: The addresses that it scrapes, as `host:port`.
    """

    def __init__(self, scratch: Path, drivers: list[str]) -> None:
        program = find_prometheus()
        assert program is not None, HOW_TO_INSTALL
        for name in ("prometheus.yml", "alerts.yml"):
            shutil.copy(_HERE / name, scratch)
        (scratch / "drivers.json").write_text(json.dumps([{"targets": drivers}]))
        self.url = f"http://127.0.0.1:{free_port()}"
        command = [program, f"--config.file={scratch / 'prometheus.yml'}", f"--storage.tsdb.path={scratch / 'data'}"]
        command += [f"--web.listen-address={self.url.removeprefix('http://')}", "--log.level=warn"]
        with (scratch / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def __enter__(self) -> Self:
        deadline = time.monotonic() + _READY_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise RuntimeError("Prometheus does not start")
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop it."""
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def alerts(self) -> dict[str, dict[str, Any]]:
        """Return the alerts that are pending or firing, by their names."""
        found = self._get("/api/v1/alerts")["data"]["alerts"]
        return {alert["labels"]["alertname"]: alert for alert in found}

    def value(self, expression: str) -> float | None:
        """Return the value of an expression; None if it has none."""
        found = self._get(f"/api/v1/query?query={urllib.parse.quote(expression)}")["data"]["result"]
        return float(found[0]["value"][1]) if found else None

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    def _is_ready(self) -> bool:
        try:
            return bool(urllib.request.urlopen(f"{self.url}/-/ready", timeout=2).status == 200)
        except OSError:
            return False

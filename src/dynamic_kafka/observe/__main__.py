"""The process of the metrics server: `python -m dynamic_kafka.observe HOST PORT OTLP_ENDPOINT DRIVER_PID DRIVER_START FILE`.

Our processes start it (`place`). It ends when the driver does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from dynamic_kafka.observe.place import Process, process, reach_of, write_place
from dynamic_kafka.observe.server import MetricsServer

__all__: list[str] = []

_LOOK_S = 1.0


def main(arguments: list[str]) -> None:
    """Serve until the driver ends."""
    host, port, otlp_endpoint, driver_pid, driver_started, file = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    path, own = Path(file), process()
    try:
        server = MetricsServer(host, int(port))
    except OSError as error:
        write_place(path, {"pid": own.pid, "started": own.started, "error": error.strerror or str(error)})
        return
    of_server: dict[str, int | str] = {"reach": reach_of(host), "port": server.port, "token": server.token}
    write_place(path, {"pid": own.pid, "started": own.started, **of_server})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if otlp_endpoint:
        from dynamic_kafka.observe.export import push

        push(otlp_endpoint, server.samples)
    of = Process(int(driver_pid), driver_started)
    while of.is_alive:
        time.sleep(_LOOK_S)
    with suppress(OSError):
        path.unlink()
        path.with_suffix(".lock").unlink()
    os._exit(0)  # whatever a thread is doing


if __name__ == "__main__":
    main(sys.argv[1:])

"""The command line, as the script `dynamic-kafka` and as `python -m dynamic_kafka`."""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> int:
    """Run a command. Ctrl-C ends it without a traceback, also while its modules are imported."""
    try:
        from dynamic_kafka.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT  # as in shells


if __name__ == "__main__":
    sys.exit(main())

"""`python -m dynamic_kafka`: the command line, also where no script is installed."""

from __future__ import annotations

import sys

from dynamic_kafka.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())

"""The input of commands: texts that the user names."""

from __future__ import annotations

import sys
from pathlib import Path

from dynamic_kafka.errors import ConfigurationError

__all__ = ["read_text"]

_MAX_BYTES = 64 * 2**20


def read_text(path: str | Path, argument: str = "") -> str:
    """Return the text of a file in UTF-8.

    Args:
        path: The file; `-` is standard input.
        argument: The argument that names it, for errors.

    Raises:
        ConfigurationError: If it cannot be read, is no text, or has more than 64 MiB.
    """
    name = "standard input" if str(path) == "-" else f"{argument} '{path}'".lstrip()
    try:
        if str(path) == "-":
            data = sys.stdin.read(_MAX_BYTES + 1).encode()
        else:
            with Path(path).open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is not a text in UTF-8"
        raise ConfigurationError(
            f"{name} cannot be read ({reason}); name a text file that this user may read"
        ) from None
    if len(data) > _MAX_BYTES:
        raise ConfigurationError(f"{name} is larger than {_MAX_BYTES // 2**20} MiB; name another file")
    return text

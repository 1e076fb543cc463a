"""Secrets, certificates and key stores in files: small regular files, and nothing else.

A pipe would be waited for, a device never ends, and a large file fills the memory. All are mistakes, or meant to harm.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["check_file_of_library", "read_small_file"]

_LARGEST = 2**20
_LARGEST_OF_LIBRARIES = 16 * 2**20  # a list of revoked certificates has some MiB


def read_small_file(path: str) -> bytes:
    """Return the content of a regular file of at most 1 MiB.

    Args:
        path: The file. Links are followed: a mounted secret is replaced by moving a link.

    Raises:
        OSError: If it cannot be read, is no regular file, or is larger. `strerror` says which.
        ValueError: If the path holds a character that no path can hold.
    """
    # Without O_NONBLOCK, to open a pipe waits until somebody writes to it.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        _check(os.fstat(file.fileno()), _LARGEST)
        content = file.read(_LARGEST + 1) or b""  # it may grow meanwhile, or be one of the system that tells no size
    if len(content) > _LARGEST:
        raise _too_large(_LARGEST)
    return content


def check_file_of_library(path: str) -> None:
    """Raise if a file that a library reads by itself is no regular file or larger than 16 MiB. A folder may be named, too.

    Raises:
        OSError: As `read_small_file`.
        ValueError: As `read_small_file`.
    """
    found = Path(path).stat()
    if not stat.S_ISDIR(found.st_mode):
        _check(found, _LARGEST_OF_LIBRARIES)


def _check(found: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if found.st_size > most:
        raise _too_large(most)


def _too_large(most: int) -> OSError:
    return OSError(errno.EFBIG, f"larger than {most // 2**20} MiB")

"""File systems by the address of a file or folder: local, hdfs, s3, gs, abfs by pyarrow, and what fsspec knows beyond.

And the folder for files that several processes of this user share on one machine.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError

__all__ = ["failure_reason", "failures", "make_private", "open_file_system", "own_folder"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/.*)")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?]*)([^?]*)(?:\?(.*))?", re.DOTALL)
_NO_PORT = re.compile(r":(?!\d*$)")
_QUERY_NAME = re.compile(r"(?:^|&)([^=&]*)")
_SECRET = re.compile("key|secret|token|password|passwd|credential|signature|^sig$", re.IGNORECASE)
_BY_PYARROW = ("hdfs", "viewfs", "s3", "gs", "gcs", "abfs", "abfss", "mock")
_GOOGLE = ("gs", "gcs")
_RETRY_S = 30
_NEEDS = dict.fromkeys(("hdfs", "viewfs"), "pyarrow needs JAVA_HOME, HADOOP_HOME and Hadoop's CLASSPATH")
_OTHER_NAMES = {"s3a": "s3", "s3n": "s3"}  # Hadoop's names


def open_file_system(location: str) -> tuple[Any, str]:
    """Return pyarrow's file system for an address, and the path there.

    Args:
        location: A local path, or an address such as `s3a://bucket/path`, as Spark takes it.

    Raises:
        ConfigurationError: If the address cannot be used, or has a secret.
        MissingDependencyError: If the file system needs fsspec, which is not installed.
    """
    from pyarrow.fs import FileSystem, LocalFileSystem

    if not location.strip():
        raise ConfigurationError("The address is empty; give a path, or an address such as s3a://bucket/path")
    _check_secrets(location)
    match = _SCHEME.fullmatch(location)
    if match is None or match[1].lower() == "file":
        path = location if match is None else "/" + match[2].lstrip("/")
        return LocalFileSystem(), str(Path(path).absolute())
    scheme = _OTHER_NAMES.get(match[1].lower(), match[1].lower())
    address = f"{scheme}:{match[2]}"
    if scheme in _GOOGLE and "?" not in address:
        address += f"?retry_limit_seconds={_RETRY_S}"  # the default is a quarter of an hour
    try:
        file_system, path = FileSystem.from_uri(address) if scheme in _BY_PYARROW else _by_fsspec(address)
    except failures() as error:
        needs = f" ({_NEEDS[scheme]})" if scheme in _NEEDS else ""
        raise ConfigurationError(f"'{location}' cannot be opened: {failure_reason(error)}{needs}") from error
    if not path.strip("/"):
        raise ConfigurationError(f"'{location}' names no file or folder; give an address such as s3a://bucket/path")
    return file_system, path


def _check_secrets(location: str) -> None:
    """Raise if an address has a password or a key: addresses are in logs, checkpoints and errors."""
    match = _ADDRESS.match(location)
    if match is None:
        return
    scheme, host, path, query = match.groups()
    user, has_user, _ = host.rpartition("@")
    # A key may have a slash: then what looks like a port is none.
    with_login = (has_user and (":" in user or scheme.lower() in ("s3", *_OTHER_NAMES))) or (
        "@" in path and _NO_PORT.search(host)
    )
    named = [name for name in _QUERY_NAME.findall(query or "") if _SECRET.search(name)]
    if with_login or named:
        what = "a login" if with_login else f"the parameter '{named[0]}'"
        raise ConfigurationError(
            f"The address '{scheme}://{(host + path).rpartition('@')[2]}' was given with {what}. Addresses are shown in "
            "logs, progress and checkpoints, so they must not have secrets. Give them by the environment (AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY for s3) or by the machine's own role"
        )


def failures() -> tuple[type[Exception], ...]:
    """Return what file systems raise."""
    from pyarrow import ArrowException

    return OSError, ValueError, NotImplementedError, ImportError, ArrowException


def failure_reason(error: Exception) -> str:
    """Return why a call to a file system failed, as a clause."""
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    return (isinstance(error, OSError) and error.strerror) or str(error).partition("\n")[0] or type(error).__name__


def _by_fsspec(address: str) -> tuple[Any, str]:
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    try:
        import fsspec
    except ImportError:
        scheme = address.partition(":")[0]
        raise MissingDependencyError("fsspec", "fsspec", f"for addresses that begin with {scheme}:") from None
    file_system, path = fsspec.core.url_to_fs(address)
    return PyFileSystem(FSSpecHandler(file_system)), path


def own_folder() -> Path:
    """Return the folder of this user, which `make_private` makes. Everybody can guess its name."""
    return Path(tempfile.gettempdir()) / f"dynamic-kafka-{os.getuid()}"


def make_private(folder: Path) -> None:
    """Create a folder with the mode 0700, or give this mode to the one that exists.

    Raises:
        OSError: If it cannot be made, or if another user could write into the one that is there.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "it is a symbolic link or a file", str(folder))
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "other users can write into it", str(folder))
    if found.st_mode & 0o077:  # it was created with another umask
        folder.chmod(0o700)

"""File systems by the address of a file or folder: local, hdfs, s3, gs, abfs by pyarrow, and what fsspec knows beyond."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError

__all__ = ["failure_reason", "failures", "open_file_system"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/.*)")
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
        ConfigurationError: If the address cannot be used.
        MissingDependencyError: If the file system needs fsspec, which is not installed.
    """
    from pyarrow.fs import FileSystem, LocalFileSystem

    if not location.strip():
        raise ConfigurationError("The address is empty; give a path, or an address such as s3a://bucket/path")
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

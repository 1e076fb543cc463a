"""The files of a folder: which ones are data, what their folders' names say, and whether a file is still the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError, HistoryError
from dynamic_kafka.filesystems import failure_reason, failures, open_file_system
from dynamic_kafka.history.model import FrozenHistory, HistoryFile

__all__ = ["ARCHIVE_FILE", "NULL", "Folder", "ListedFile", "in_parallel", "is_at", "open_folder"]

ARCHIVE_FILE = "_dynamic_kafka/archive.json"
"""The file that says which clusters and topics an archive was made from."""

NULL = "__HIVE_DEFAULT_PARTITION__"
"""As Spark and Hive name the folder of null."""
_TABLES = {"_delta_log": "a Delta table", "_iceberg": "an Iceberg table"}
_LOGS = {
    "_delta_log": "a Delta table",
    "_spark_metadata": "the folder of Spark's streaming file sink",
    "_dynamic_kafka": "an archive",
}
_ADDRESS = re.compile("[A-Za-z][A-Za-z0-9+.-]*:/")
_CALLS = 16


class ListedFile(NamedTuple):
    """A file before its rows are known; the fields are those of `HistoryFile`."""

    path: str
    size: int
    modified_ns: int
    values: Mapping[str, str | None] = {}


class Folder:
    """A history's folder, or its only file.

    Args:
        location: As the user named it. `self.location` is the same, but never relative: executors and later runs may be in
            other folders.
        is_name: True if it is the name of a table, whose files have whole addresses.
    """

    def __init__(self, location: str, *, is_name: bool = False) -> None:
        self.location = location if is_name else whole_address(location)
        self._fs, root = open_file_system("/" if is_name else self.location or "/")
        self._root = root.rstrip("/")
        self._opened: dict[str, tuple[Any, str]] = {}

    def files(self) -> list[ListedFile]:
        """Return the files with data, in the order of their paths.

        Files and folders with names that begin with `_` or `.` are no data. Of a folder that Spark's file sink has written,
        only committed files are, in the order of their batches.

        Raises:
            ConfigurationError: If there is no such folder, it has no file, or it is a table that only its own format reads.
        """
        from pyarrow.fs import FileSelector, FileType

        try:
            itself = self._fs.get_file_info(self._root)
            if itself.type == FileType.File:
                name = self._root.rpartition("/")[2]
                self._root = self._root[: -len(name) - 1]
                self.location = self.location.removesuffix(f"/{name}")
                return [ListedFile(name, itself.size, itself.mtime_ns or 0)]
            if itself.type == FileType.NotFound:
                raise ConfigurationError(f"Option 'history.path': '{self.location}' does not exist. Correct the path")
            found = self._fs.get_file_info(FileSelector(self._root, recursive=True))
        except failures() as error:
            reason = failure_reason(error)
            raise ConfigurationError(f"Option 'history.path': '{self.location}' cannot be listed: {reason}") from error
        paths = {info.path[len(self._root) :].lstrip("/"): info for info in found}
        for name, kind in _TABLES.items():
            if name in paths:
                raise ConfigurationError(
                    f"Option 'history.path': '{self.location}' is {kind}, some files of which may not be rows of it any "
                    "more. Set history.format to the format of the table"
                )
        self._check_logs(paths)
        data = {
            path: info
            for path, info in paths.items()
            if info.type == FileType.File and not any(_is_hidden(part) for part in path.split("/"))
        }
        numbers: dict[str, int | None] = {}
        if "_spark_metadata" in paths:
            committed = self._committed(sorted(path for path in paths if path.startswith("_spark_metadata/")))
            numbers = {path: _number_of(path, committed) for path in data}
            data = {path: info for path, info in data.items() if numbers[path] is not None}
        if not data:
            raise ConfigurationError(
                f"Option 'history.path': '{self.location}' has no files with data. Correct the path, or leave the option out"
            )
        return [
            ListedFile(path, info.size, info.mtime_ns or 0, _hive_values(path))
            for path, info in sorted(data.items(), key=lambda entry: (numbers.get(entry[0]) or 0, entry[0]))
        ]

    def archive(self) -> Mapping[str, Any]:
        """Return what the folder says of the clusters it was made from; nothing if it says nothing."""
        try:
            with self._fs.open_input_stream(f"{self._root}/{ARCHIVE_FILE}") as stream:
                return dict(json.loads(stream.read()))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError) as error:
            raise ConfigurationError(
                f"{self.shown(ARCHIVE_FILE)} says which clusters the history was made from, but it cannot be read: "
                f"{failure_reason(error)}. Restore it, or delete it to go by the clusters' names alone"
            ) from error

    @contextmanager
    def open(self, file: HistoryFile | ListedFile, checksum: Callable[[Any, int], int] | None = None) -> Iterator[Any]:
        """Open a file that is still the same, and check at the end that it has stayed so.

        It is the same if its size is, and the time at which it was changed or, as of a file that was restored, the checksum.

        Args:
            file: The file. One that was only listed has no checksum yet.
            checksum: Returns the checksum of an open file with a size.

        Raises:
            HistoryError: If it was changed or deleted, or cannot be read.
        """
        modified_ns = self._modified_ns(file)
        try:
            file_system, path = self._place(file.path)
            with file_system.open_input_file(path) as opened:
                if not modified_ns or modified_ns != file.modified_ns:
                    self._check_content(file, opened, checksum)
                    opened.seek(0)
                yield opened
        except DynamicKafkaError:
            raise
        except failures() as error:  # damaged files, too
            raise self.unreadable(file, error) from error
        if self._modified_ns(file) != modified_ns:
            raise HistoryError(self.shown(file.path), "was written again while it was read")

    def _check_content(
        self, file: HistoryFile | ListedFile, opened: Any, checksum: Callable[[Any, int], int] | None
    ) -> None:
        if isinstance(file, HistoryFile):
            if checksum is not None and checksum(opened, file.size) != file.checksum:
                raise HistoryError(self.shown(file.path), "was written again, with another content")
        elif file.modified_ns:
            raise HistoryError(self.shown(file.path), "was written again while the query started")

    def unreadable(self, file: HistoryFile | ListedFile, error: Exception) -> HistoryError:
        """Return the error for a file that cannot be read."""
        return HistoryError(self.shown(file.path), f"cannot be read: {failure_reason(error)}")

    def shown(self, path: str) -> str:
        """Return a file's whole path as the user would write it."""
        return path if "://" in path else f"{self.location}/{path}"

    def _modified_ns(self, file: HistoryFile | ListedFile) -> int:
        """Return when a file of the same size was changed; 0 if the file system does not say."""
        from pyarrow.fs import FileType

        try:
            file_system, path = self._place(file.path)
            now = file_system.get_file_info(path)
        except failures() as error:
            raise self.unreadable(file, error) from error
        if now.type == FileType.NotFound:
            raise HistoryError(self.shown(file.path), "was deleted")
        if now.size != file.size:
            raise HistoryError(self.shown(file.path), f"was changed: it had {file.size} bytes and now has {now.size}")
        return now.mtime_ns or 0

    def _place(self, path: str) -> tuple[Any, str]:
        """Return the file system and the path there of a file, which may be on another one than the folder."""
        scheme, address, rest = path.partition("://")
        if not address:
            return self._fs, f"{self._root}/{path}"
        host, _, rest = rest.partition("/")
        begin = f"{scheme}://{host}/"
        if begin not in self._opened:  # opened once: it may ask for the region of a bucket
            file_system, root = open_file_system(f"{begin}_")
            self._opened[begin] = file_system, root.removesuffix("_")
        file_system, root = self._opened[begin]
        return file_system, f"{root}{rest}"

    def _check_logs(self, paths: Mapping[str, Any]) -> None:
        """Raise if some of the files are of a table, an archive or a sink, whose log says which of its files count."""
        from pyarrow.fs import FileType

        found = [path for path in sorted(paths) if "/" in path and path.rpartition("/")[2] in _LOGS]
        if found:
            whole = found[0].rpartition("/")
            raise ConfigurationError(
                f"Option 'history.path': within is {_LOGS[whole[2]]}, '{self.location}/{whole[0]}', and only its log says "
                "which of its files count. Name that folder alone"
            )
        above = self._root.split("/")[:-1]
        places = {
            f"{'/'.join(above[:i])}/{name}": kind
            for i in range(len(above), 0, -1)
            if any(above[:i])
            for name, kind in _LOGS.items()
        }
        try:
            infos = self._fs.get_file_info(list(places)) if places else []
        except failures():  # who may read a folder may not always look above it
            return
        for info in infos:
            if info.type != FileType.NotFound:
                raise ConfigurationError(
                    f"Option 'history.path': '{self.location}' is a part of {places[info.path]}, "
                    f"'{info.path.rpartition('/')[0]}', and only its log says which of its files count. Name that folder"
                )

    def _committed(self, logs: list[str]) -> dict[str, dict[str, int]]:
        """Return the addresses of the files that Spark's file sink has committed, with their place in the order of batches.

        They are by the name of the file.
        """
        entries = {path.rpartition("/")[2]: path for path in logs}
        batches = {int(name.removesuffix(".compact")): name for name in entries if name.split(".")[0].isdecimal()}
        compacted = [batch for batch, name in batches.items() if name.endswith(".compact")]
        found: dict[str, dict[str, int]] = {}
        number = 0
        for batch, name in sorted(batches.items()):
            if batch < max(compacted, default=-1):
                continue
            with self._fs.open_input_stream(f"{self._root}/{entries[name]}") as stream:
                lines = stream.read().decode().splitlines()
            for line in filter(str.strip, lines[1:]):  # the first line is a version
                address = str(json.loads(line)["path"])
                found.setdefault(address.rpartition("/")[2], {})[address] = number
                number += 1
        return found


def open_folder(location: str, file_format: str) -> Folder:
    """Return a history's folder. An Iceberg table may have a name in a catalog instead."""
    return Folder(location, is_name=file_format == "iceberg" and "/" not in location)


def whole_address(location: str) -> str:
    """Return an address as it is, and a local path as an absolute one."""
    return location.rstrip("/") if _ADDRESS.match(location) else str(Path(location).absolute()).rstrip("/")


def is_at(history: FrozenHistory, path: str) -> bool:
    """Return whether a history was frozen from a path. Of a single file it has the folder, and its name until it is read."""
    known = {history.location, whole_address(history.location)}
    if path in known or whole_address(path) in known:  # a table's name is no path
        return True
    folder, _, name = whole_address(path).rpartition("/")
    return folder in known and [file.path for file in history.files] in ([], [name])


def in_parallel(function: Any, items: Any) -> Iterator[Any]:
    """Yield the results for all items, in order. The calls wait for a file system most of the time."""
    with ThreadPoolExecutor(_CALLS, thread_name_prefix="history") as pool:
        yield from pool.map(function, items)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _number_of(path: str, addresses: Mapping[str, Mapping[str, int]]) -> int | None:
    """Return the place of a file in the order of batches; None if it was not committed."""
    # Addresses are whole ones, and the folder may have been moved since.
    found = addresses.get(path.rpartition("/")[2], {})
    return next((number for address, number in found.items() if unquote(address).endswith(f"/{path}")), None)


def _hive_values(path: str) -> dict[str, str | None]:
    folders = [unquote(part).partition("=") for part in path.split("/")[:-1]]
    return {name: None if value == NULL else value for name, equals, value in folders if equals}

"""The files of a folder on any file system that pyarrow or fsspec reaches: local, hdfs, s3, gs, abfs and others."""

from __future__ import annotations

import errno
import os
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dynamic_kafka.errors import CheckpointError, DynamicKafkaError
from dynamic_kafka.filesystems import failure_reason, failures, open_file_system

__all__ = ["Files", "open_files"]

_OBJECT_STORES = frozenset(("s3", "s3a", "gcs", "gs", "abfs", "abfss", "az", "oss", "oci", "tos"))
_FULL = (errno.ENOSPC, errno.EDQUOT)
_MAX_BYTES = 128 * 2**20  # a million partitions are 30 MB


class Files:
    """The files of one folder.

    Args:
        file_system: A file system of pyarrow.
        root: The folder's path there.
        location: The folder as the user named it, for errors.
        error: The class of the errors.
    """

    def __init__(
        self, file_system: Any, root: str, location: str, error: type[DynamicKafkaError] = CheckpointError
    ) -> None:
        self._fs, self._root, self._error = file_system, root.rstrip("/"), error
        self.location = location.rstrip("/")

    @property
    def file_system(self) -> Any:
        """Return the file system of pyarrow, for its readers and writers."""
        return self._fs

    def names(self, folder: str) -> list[str]:
        """Return the names of a folder's files, without hidden ones; nothing if there is no such folder."""
        return list(self.changed_ms(folder))

    def changed_ms(self, folder: str) -> dict[str, int]:
        """Return the names of a folder's files with the times when they were changed, in milliseconds since 1970.

        If the file system does not say when, it is now: then nothing looks as if it had not been written for long.
        """
        from pyarrow.fs import FileSelector, FileType

        with self.failing(folder, "listed"):
            found = self._fs.get_file_info(FileSelector(self.full(folder), allow_not_found=True))
        return {
            info.base_name: self._changed_ns(info) // 1_000_000
            for info in found
            if info.type == FileType.File and not info.base_name.startswith(".")
        }

    def read(self, path: str) -> str:
        """Return the text of a file.

        Raises:
            DynamicKafkaError: If it cannot be read, with the file and the reason.
        """
        with self.failing(path, "read"), self._fs.open_input_stream(self.full(path)) as stream:
            data = bytes(stream.read(_MAX_BYTES + 1))
        if len(data) > _MAX_BYTES:
            raise self._error(f"{self.shown(path)} is damaged: it has more than {_MAX_BYTES // 2**20} MiB")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self._error(f"{self.shown(path)} is damaged: it is not a text in UTF-8") from None

    def create(self, path: str, text: str, like: str | None = None) -> bool:
        """Write a new file; return False if there is one already.

        On a local disk this is one step, and the file and its new folders get the owner and the rights of another file,
        `like`, and of its folder. Elsewhere another process may come in between, as with Spark itself.
        """
        if not self._is_local:
            if self._exists(path):
                return False
            self._write(path, text, replaces=False)
            return True
        temporary = self._temporary(path, text, like)
        with self.failing(path, "written"):
            try:
                os.link(temporary, self.full(path))
            except FileExistsError:
                return False
            finally:
                temporary.unlink()
        self._drop_checksum(path)  # of a file that was here before
        return True

    def replace(self, path: str, text: str) -> None:
        """Write a file in the place of the one that is there; on a local disk with its owner and its rights."""
        if not self._is_local:
            self._write(path, text, replaces=True)
            return
        temporary = self._temporary(path, text, path)
        with self.failing(path, "written"):
            try:
                self._drop_checksum(path)
                temporary.replace(self.full(path))
            except OSError:
                temporary.unlink(missing_ok=True)
                raise

    def delete(self, path: str) -> None:
        """Delete a file; one that does not exist is no error."""
        with self.failing(path, "deleted"), suppress(FileNotFoundError):
            self._fs.delete_file(self.full(path))

    def walk(self) -> dict[str, tuple[int, int]]:
        """Return the paths of all files, also in folders within, with size and time of the last change in milliseconds."""
        from pyarrow.fs import FileSelector, FileType

        with self.failing("", "listed"):
            found = self._fs.get_file_info(FileSelector(self._root, recursive=True, allow_not_found=True))
        return {
            info.path.removeprefix(self._root).lstrip("/"): (info.size or 0, self._changed_ns(info) // 1_000_000)
            for info in found
            if info.type == FileType.File
        }

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        with self.failing(path, "looked at"):
            found = self._fs.get_file_info(self.full(path)).size
        return None if found is None else int(found)

    def hidden(self, path: str) -> str:
        """Return the path under which a new file is written until it is complete: the same, if it appears at its end."""
        folder, slash, name = path.rpartition("/")
        return f"{folder}{slash}.{name}" if self._renames else path

    def reveal(self, path: str) -> None:
        """Give a complete file, which was written to `hidden(path)`, its name; on a local disk it is then safe there."""
        hidden = self.hidden(path)
        with self.failing(path, "written"):
            if self._is_local:
                with Path(self.full(hidden)).open("rb") as file:
                    os.fsync(file.fileno())
            if hidden != path:
                self._move(hidden, path)

    def shown(self, path: str) -> str:
        """Return a file's whole path as the user would write it."""
        return f"{self.location}/{path}".rstrip("/")

    @contextmanager
    def failing(self, path: str, what: str, kinds: tuple[type[Exception], ...] | None = None) -> Iterator[None]:
        """Let an error of the file system say which file cannot be read, written or the like, and why.

        Args:
            path: The file.
            what: What cannot be done.
            kinds: The errors; by default all that file systems raise.
        """
        kinds = kinds or failures()
        try:
            yield
        except kinds as error:
            room = ". Make room there, and start again" if getattr(error, "errno", None) in _FULL else ""
            raise self._error(f"{self.shown(path)} cannot be {what}: {failure_reason(error)}{room}") from error

    def _changed_ns(self, info: Any) -> int:
        if info.mtime_ns is not None:
            return int(info.mtime_ns)
        try:  # S3's of fsspec does not tell pyarrow
            return time.time_ns() if self._fsspec is None else int(self._fsspec.modified(info.path).timestamp() * 1e9)
        except (OSError, ValueError, NotImplementedError):
            return time.time_ns()

    @property
    def _renames(self) -> bool:
        """Return whether a new file is hidden and then renamed. Object stores show a file only when it is complete."""
        names = self._fs.type_name if self._fsspec is None else self._fsspec.protocol
        return _OBJECT_STORES.isdisjoint((names,) if isinstance(names, str) else names)

    @property
    def _fsspec(self) -> Any:
        """Return the file system of fsspec; None if it is one of pyarrow."""
        return getattr(getattr(self._fs, "handler", None), "fs", None)

    def _move(self, path: str, to: str) -> None:
        if self._fsspec is None:
            self._fs.move(self.full(path), self.full(to))
        else:  # pyarrow gives fsspec one more argument, which that of sftp does not take
            self._fsspec.mv(self.full(path), self.full(to))

    @property
    def _is_local(self) -> bool:
        return str(self._fs.type_name) == "local"

    def full(self, path: str) -> str:
        """Return a file's path on the file system."""
        return f"{self._root}/{path}".rstrip("/")

    def _exists(self, path: str) -> bool:
        from pyarrow.fs import FileType

        with self.failing(path, "looked at"):
            return bool(self._fs.get_file_info(self.full(path)).type != FileType.NotFound)

    def _write(self, path: str, text: str, *, replaces: bool) -> None:
        """Write a file that can be seen only when it is complete."""
        hidden = f"{self.hidden(path)}.{uuid.uuid4().hex}.tmp" if self._renames else path
        with self.failing(path, "written"):
            self._fs.create_dir(self.full(path).rpartition("/")[0], recursive=True)
            try:
                with self._fs.open_output_stream(self.full(hidden)) as stream:
                    stream.write(text.encode())
            except failures():
                if hidden != path:
                    with suppress(*failures()):
                        self._fs.delete_file(self.full(hidden))
                raise
            if hidden != path:
                if replaces:
                    self.delete(path)  # not each file system renames a file to one that is there
                self._move(hidden, path)

    def _temporary(self, path: str, text: str, like: str | None) -> Path:
        """Write a whole file beside a local one, under a name that Spark does not look at."""
        place = Path(self.full(path))
        temporary = place.with_name(f".{place.name}.{uuid.uuid4().hex}.tmp")
        with self.failing(path, "written"):
            try:
                folders = [folder for folder in place.parents if not folder.exists()]
                place.parent.mkdir(parents=True, exist_ok=True)
                with temporary.open("w", encoding="utf-8", newline="") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                if like is not None:
                    other = Path(self.full(like))
                    for new, old in ((temporary, other), *((folder, other.parent) for folder in folders)):
                        _share(new, old.stat())
            except OSError:
                temporary.unlink(missing_ok=True)
                raise
        return temporary

    def _drop_checksum(self, path: str) -> None:
        """Remove Hadoop's checksum of a local file, which a new text would not fit. Without one, Hadoop checks nothing."""
        place = Path(self.full(path))
        place.with_name(f".{place.name}.crc").unlink(missing_ok=True)


def _share(new: Path, other: os.stat_result) -> None:
    """Give a file or a folder the owner and the rights of another one, as far as this user may."""
    for owner, group in ((-1, other.st_gid), (other.st_uid, -1)):
        with suppress(OSError):
            os.chown(new, owner, group)
    with suppress(OSError):
        new.chmod(stat.S_IMODE(other.st_mode))


def open_files(location: str, error: type[DynamicKafkaError] = CheckpointError) -> Files:
    """Return the files of a folder.

    Args:
        location: A local path, or an address such as `s3a://bucket/path`, as Spark takes it.
        error: The class of the errors of reading and writing.

    Raises:
        ConfigurationError: If the address cannot be used.
        MissingDependencyError: If the file system needs fsspec, which is not installed.
    """
    return Files(*open_file_system(location), location, error)

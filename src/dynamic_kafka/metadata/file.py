"""A metadata service that reads a document from a file."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dynamic_kafka.errors import MetadataServiceError
from dynamic_kafka.metadata.model import KafkaStream
from dynamic_kafka.metadata.service import StreamListService

__all__ = ["FileMetadataService"]

_SETTLED_S = 2.0


class FileMetadataService(StreamListService):
    """Streams from a YAML or JSON file (Flink: YamlFileMetadataService); `metadata.document` describes its shape.

    The file is on the driver's machine. It is read again when its modification time, size or inode has changed.
    Replace it by renaming a finished file over it: a half-written document that happens to be valid cannot be told from
    one with fewer streams. JSON is safe from that, for half of it is never valid.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._signature: tuple[int, int, int] | None = None
        self._streams: tuple[KafkaStream, ...] = ()

    def __repr__(self) -> str:
        return f"FileMetadataService({str(self._path)!r})"

    def get_all_streams(self) -> tuple[KafkaStream, ...]:
        """The streams in the file as it is now.

        Raises:
            MetadataServiceError: If the file is missing, unreadable, or no valid document.
        """
        try:
            found = self._path.stat()
            signature = (found.st_mtime_ns, found.st_size, found.st_ino)
            if signature != self._signature:
                self._streams = self._parse(self._path.read_text(encoding="utf-8-sig"))
                # A file may change twice within one tick of its clock: a young time stamp proves nothing.
                settled = time.time() - found.st_mtime > _SETTLED_S
                self._signature = signature if settled else None
        except OSError as error:
            raise MetadataServiceError(
                f"Metadata file '{self._path}' cannot be read: {error.strerror}; it must be on the driver's machine"
            ) from error
        except UnicodeDecodeError as error:
            raise MetadataServiceError(
                f"Metadata file '{self._path}' is not UTF-8 at byte {error.start}; save it as UTF-8"
            ) from None
        return self._streams

    def _parse(self, text: str) -> tuple[KafkaStream, ...]:
        from dynamic_kafka.metadata.document import parse_document  # pydantic: only where a document is parsed

        return parse_document(text, str(self._path))

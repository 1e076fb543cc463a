r"""The text of CSV files: quotes within values, as they are written in two ways.

==================  ===================================  =====================================================
`history.format`    a value with quotes and a backslash  who writes it so
==================  ===================================  =====================================================
`csv`               `"say \"hi\" \\"`                    Spark, without options
`csv-rfc4180`       `"say ""hi"" \"`                     RFC 4180: pandas, pyarrow, Spark with `escape` set to `"`
==================  ===================================  =====================================================

Outside of quotes a backslash is a backslash, in both. Arrow reads the second way only: with an escape character, it would
take backslashes outside of quotes for one, too. So texts of the first way are turned into those of the second. A text that
is not of the way that the format says is an error, because its values would be others.
"""

from __future__ import annotations

import io
import re
from typing import Any

__all__ = ["CSV_FORMATS", "Rfc4180Text"]

_BLOCK_BYTES = 1 << 20
_BY_BACKSLASH = re.compile(rb'"([^"\\]*(?:\\["\\][^"\\]*)*)"')
_DOUBLED = re.compile(rb'"([^"]*(?:""[^"]*)*)"')
_BEGUN_BY_BACKSLASH = re.compile(rb'"[^"\\]*(?:\\["\\][^"\\]*)*\\?')
_BEGUN_DOUBLED = re.compile(rb'"[^"]*(?:""[^"]*)*')
_ESCAPED = re.compile(rb'\\(["\\])')
CSV_FORMATS = ("csv", "csv-rfc4180")
"""The names of the two ways."""


class Rfc4180Text(io.RawIOBase):
    """The text of a file in the way of RFC 4180.

    Args:
        stream: The text of the file.
        file_format: One of `CSV_FORMATS`.
    """

    def __init__(self, stream: Any, file_format: str) -> None:
        super().__init__()
        self._stream, self._format = stream, file_format
        self._left = b""  # not looked at yet, because a value in quotes is not complete
        self._ready = memoryview(b"")
        self._ended = False

    def readable(self) -> bool:
        """Return true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; return 0 at the end of the text.

        Raises:
            ValueError: If the text is not of the way that its format says.
        """
        while not self._ready and not self._ended:
            block = self._stream.read(_BLOCK_BYTES)
            self._ended = not block
            self._ready = memoryview(self._translated(self._left + bytes(block)))
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _translated(self, text: bytes) -> bytes:
        by_backslash = self._format == "csv"
        value, begun = (_BY_BACKSLASH, _BEGUN_BY_BACKSLASH) if by_backslash else (_DOUBLED, _BEGUN_DOUBLED)
        parts, position = [], 0
        self._left = b""
        while (quote := text.find(b'"', position)) >= 0:
            parts.append(text[position:quote])
            found = value.match(text, quote)
            after = None if found is None else text[found.end() : found.end() + 1]
            is_whole = found is not None and after not in (b"", b'"')
            if not self._ended and not is_whole and (after == b"" or begun.fullmatch(text, quote)):
                self._left = text[quote:]
                return b"".join(parts)
            if found is None or after not in (b",", b"\n", b"\r", b""):
                raise self._wrong(text[quote : quote + 60])
            inside = found[1]
            if by_backslash and (b"\\" in inside):
                inside = _ESCAPED.sub(rb"\1", inside).replace(b'"', b'""')
            parts.append(b'"%b"' % inside)
            position = found.end()
        parts.append(text[position:])
        return b"".join(parts)

    def _wrong(self, near: bytes) -> ValueError:
        shown = near.decode(errors="replace").partition("\n")[0]
        other = CSV_FORMATS[1 - CSV_FORMATS.index(self._format)]
        rule = (
            r"a quote within a value is \" and a backslash is \\"
            if self._format == "csv"
            else 'a quote within a value is ""'
        )
        return ValueError(
            f"near {shown}: this is not history.format={self._format}, in which {rule} wherever a value is in quotes. Is it "
            f"{other}?"
        )

"""A file as a sink for records, one a line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from millrace.clients.records import Done, Record
from millrace.connectors.base import Sink, Tally, Target
from millrace.errors import FileUnusable, InvalidOption


class FileSink(Sink):
    """A file, one value a line, appended to."""

    guarantee = "at least once: a batch counts as written when the system has it on disk"

    def __init__(self, target: Target) -> None:
        if not target.path:
            raise InvalidOption("a file needs a path", hint="add --out FILE")
        try:
            self._file = Path(target.path).open("ab")  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise FileUnusable(f"cannot write to {target.path}", why=str(error)) from None
        self._path = target.path
        self.place = str(Path(target.path).absolute())
        self._written = 0

    def write(self, records: Sequence[Record], done: Done | None = None) -> None:
        """Append the values; on disk before `done` is called."""
        try:
            self._file.write(b"".join((record.value or b"") + b"\n" for record in records))
            if done:
                self._sync()
        except OSError as error:
            raise FileUnusable(f"cannot write to {self._path}", why=str(error)) from None
        self._written += len(records)
        if done:
            done(None)

    def tally(self) -> Tally:
        """Lines written so far."""
        return Tally(self._written)

    def close(self) -> Tally:
        """Everything on disk, then closed."""
        try:
            self._sync()
        except OSError as error:
            raise FileUnusable(f"cannot write to {self._path}", why=str(error)) from None
        finally:
            with suppress(OSError):  # what cannot be written was told above
                self._file.close()
        return self.tally()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

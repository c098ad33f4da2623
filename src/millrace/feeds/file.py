"""Lines of a file or of standard input."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import orjson

from millrace.clients.kafka.record import Record
from millrace.clients.line_input import STANDARD_INPUT, input_chunks, open_input, split_lines
from millrace.errors import FileUnusable, InvalidOption
from millrace.feeds.base.api import Batch, Feed, Run
from millrace.plugins import option


@dataclass(frozen=True)
class File(Feed):
    """Lines of a file, or of standard input, as they are: one record a line.

    Lines end in LF or CRLF, need not be UTF-8 and may be empty. From a pipe they are sent as they come.
    """

    path: str = option(STANDARD_INPUT, "The file; - is standard input.", argument=True)
    loop: bool = option(False, "Start again at the end of the file.")
    key: str | None = option(None, "The field of JSON lines whose value becomes the record's key.")

    def batches(self, run: Run) -> Iterator[Batch]:
        keys = _Keys(self.key, run.notify)
        with open_input(self.path) as descriptor:
            while not run.stop.is_set():
                if self.loop:
                    self._rewind(descriptor)
                for lines in split_lines(input_chunks(descriptor, run.stop), run.stop):
                    yield Batch([Record(line, keys.of(line)) for line in lines])
                if not self.loop:
                    return

    def _rewind(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            name = "standard input" if self.path == STANDARD_INPUT else self.path
            raise InvalidOption(f"{name} can be read only once, so it cannot loop", hint="put the lines in a file")
        if not status.st_size:
            raise FileUnusable(f"{self.path} is empty, so there is nothing to loop over")
        os.lseek(descriptor, 0, os.SEEK_SET)


class _Keys:
    """Reads the keys of lines; reports the first line without one."""

    def __init__(self, field: str | None, notify: Callable[[str], None]) -> None:
        self._field = field
        self._notify = notify
        self._line = 0
        self._reported = False

    def of(self, line: bytes) -> bytes | None:
        if self._field is None:
            return None
        self._line += 1
        try:
            value = orjson.loads(line)[self._field]
        except (ValueError, LookupError, TypeError):
            value = None
        if value is not None:
            return value.encode() if isinstance(value, str) else orjson.dumps(value)
        if not self._reported:
            self._reported = True
            self._notify(
                f"line {self._line} has no field {self._field!r}; it and others like it are sent without a key"
            )
        return None

"""Lines of a file or of standard input."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import orjson

from millrace.clients.records import Record
from millrace.errors import FeedFailed, FileUnusable, InvalidOption
from millrace.feeds.base import Batch, Feed, Run, option

_STANDARD_INPUT = 0
_BLOCK = 1 << 18
_PATIENCE = 0.1  # seconds between two looks at whether the run is over


@dataclass(frozen=True)
class File(Feed):
    """Lines of a file, or of standard input, as they are: one record a line.

    Lines end in LF or CRLF, need not be UTF-8 and may be empty. From a pipe they are sent as they come.
    """

    path: str = option("-", "The file; - is standard input.", argument=True)
    loop: bool = option(False, "At the end, begin anew.")
    key: str | None = option(None, "The field of JSON lines whose value becomes the record's key.")

    def batches(self, run: Run) -> Iterator[Batch]:
        """Every line, once or again and again."""
        keys = _Keys(self.key, run.say)
        with _opened(self.path) as descriptor:
            while not run.stop.is_set():
                if self.loop:
                    self._rewind(descriptor)
                for lines in _lines(descriptor, run, self.path):
                    yield Batch([Record(line, keys.of(line)) for line in lines])
                if not self.loop:
                    return

    def _rewind(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            name = "standard input" if self.path == "-" else self.path
            raise InvalidOption(f"{name} can be read only once, so it cannot loop", hint="put the lines in a file")
        if not status.st_size:
            raise FileUnusable(f"{self.path} is empty, so there is nothing to loop over")
        os.lseek(descriptor, 0, os.SEEK_SET)


class _Keys:
    """Finds the keys of lines; says so, once, when there is none."""

    def __init__(self, field: str | None, say: Callable[[str], None]) -> None:
        self._field = field
        self._say = say
        self._line = 0
        self._said = False

    def of(self, line: bytes) -> bytes | None:
        if self._field is None:
            return None
        self._line += 1
        try:
            value = orjson.loads(line)[self._field]
        except (ValueError, LookupError, TypeError):
            value = None
        if value is None:
            self._say_missing(self._field)
            return None
        return value.encode() if isinstance(value, str) else orjson.dumps(value)

    def _say_missing(self, field: str) -> None:
        if not self._said:
            self._said = True
            self._say(f"line {self._line} has no field {field!r}; it and others like it are sent without a key")


@contextmanager
def _opened(path: str) -> Iterator[int]:
    if path == "-":
        yield _STANDARD_INPUT
        return
    try:
        # A named pipe without a writer would hold up a blocking `open`, and nothing could stop it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise FileUnusable(f"{path} cannot be read", why=error.strerror) from error
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise FileUnusable(f"{path} is a directory", hint="name a file in it")
        yield descriptor
    finally:
        os.close(descriptor)


def _lines(descriptor: int, run: Run, path: str) -> Iterator[list[bytes]]:
    """Lines, as many at a time as there are; the last one need not end."""
    unfinished: list[bytes] = []
    for block in _blocks(descriptor, run, path):
        head, found, tail = block.rpartition(b"\n")
        if found:
            yield [_without_return(line) for line in b"".join([*unfinished, head]).split(b"\n")]
            unfinished = []
        if tail:
            unfinished.append(tail)
    if unfinished and not run.stop.is_set():
        yield [b"".join(unfinished)]


def _without_return(line: bytes) -> bytes:
    return line[:-1] if line.endswith(b"\r") else line


def _blocks(descriptor: int, run: Run, path: str) -> Iterator[bytes]:
    while not run.stop.is_set():
        try:
            ready, _, _ = select.select([descriptor], [], [], _PATIENCE)
            block = os.read(descriptor, _BLOCK) if ready else None
        except BlockingIOError:  # another reader of the same pipe was faster
            continue
        except OSError as error:
            raise FeedFailed(f"{path} cannot be read any further", why=error.strerror) from error
        if block == b"":
            return
        if block:
            yield block

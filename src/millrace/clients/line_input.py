"""Lines of text as records.

The bytes of a file, a named pipe or standard input, as they come, until `stop` is set.
"""

from __future__ import annotations

import os
import select
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat

from millrace.clients.kafka.record import Record
from millrace.errors import FileUnusable, InvalidOption, NotUtf8


@dataclass(frozen=True)
class LineFormat:
    """What a line means."""

    key: str | None = None
    key_separator: str | None = None
    headers: Sequence[tuple[str, str]] = ()
    null: str | None = None
    partition: int | None = None
    raw: bool = False

    def __post_init__(self) -> None:
        if self.key is not None and self.key_separator is not None:
            raise InvalidOption("--key and --key-separator cannot go together", hint="choose one of them")
        if self.key_separator == "":
            raise InvalidOption("--key-separator is empty", hint="write the text between key and value, as ':'")
        texts = (self.key, self.key_separator, self.null, *chain.from_iterable(self.headers))
        try:
            "".join(filter(None, texts)).encode()
        except UnicodeEncodeError:  # bytes of the command line that are no text; the client would break on them
            hint = "look at --key, --key-separator, --header and --null"
            raise InvalidOption("an option is not UTF-8", hint=hint) from None


_PLAIN = LineFormat()
_NOTHING_ELSE = tuple(map(repeat, Record(None)[1:]))
_record = partial(tuple.__new__, Record)
"""A record of a tuple, made a few times faster than by its name: lines come by the million."""


def split_lines(
    chunks: Iterable[bytes], stop: threading.Event | None = None, *, crlf: bool = True
) -> Iterator[list[bytes]]:
    """Whole lines, as many as have come; the last one need not end, unless reading was stopped in its middle.

    Lines end in LF, or with `crlf` in CRLF as well.
    """
    unfinished: list[bytes] = []
    for chunk in chunks:
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            whole = b"".join([*unfinished, head, b"\n"])
            yield (whole.replace(b"\r\n", b"\n") if crlf else whole).split(b"\n")[:-1]
            unfinished = []
        unfinished.append(tail)
    rest = b"".join(unfinished)
    if rest and not (stop and stop.is_set()):
        yield [rest]


def line_records(blocks: Iterable[list[bytes]], form: LineFormat) -> Iterator[list[Record]]:
    """Records in the order of the lines; a bad line raises with its number.

    The good lines before a bad one are yielded first, so what was sent is known.
    """
    number = 0
    for lines in blocks:
        good, problem = _checked(lines, form, number)
        if good:
            yield good
        if problem:
            raise problem
        number += len(lines)


def _checked(lines: list[bytes], form: LineFormat, before: int) -> tuple[list[Record], NotUtf8 | InvalidOption | None]:
    if form.raw:
        return _split(lines, form, before)
    text = b"\n".join(lines)
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = text[: error.start].count(b"\n")
        good, problem = _split(lines[:bad], form, before)
        position = error.start - text.rfind(b"\n", 0, error.start)
        return good, problem or NotUtf8(
            f"line {before + bad + 1} is not UTF-8",
            why=f"byte {position} (0x{text[error.start]:02x}): {lines[bad][:40]!r}",
            hint="the lines before it were sent, unless in a transaction; fix it and send the rest, or use --raw",
        )
    return _split(lines, form, before)


def _split(lines: list[bytes], form: LineFormat, before: int) -> tuple[list[Record], InvalidOption | None]:
    headers = tuple((name, text.encode()) for name, text in form.headers)
    null = None if form.null is None else form.null.encode()
    if form.key_separator is None:
        if form == _PLAIN:
            return list(map(_record, zip(lines, *_NOTHING_ELSE, strict=False))), None
        key = None if form.key is None else form.key.encode()
        return [Record(None if line == null else line, key, None, headers, form.partition) for line in lines], None
    separator = form.key_separator.encode()
    good: list[Record] = []
    for number, line in enumerate(lines, before + 1):
        key, separated, text = line.partition(separator)
        if not separated:
            return good, InvalidOption(
                f"line {number} has no {form.key_separator!r} between key and value",
                hint="fix the line, or choose another --key-separator",
            )
        good.append(Record(None if text == null else text, key, None, headers, form.partition))
    return good, None


STANDARD_INPUT = "-"
_BLOCK = 1 << 18
_POLL_TIMEOUT_S = 0.1
"""Seconds between two looks at whether to stop."""


@contextmanager
def open_input(path: str) -> Iterator[int]:
    """The descriptor of a file; `-` is standard input."""
    if path == STANDARD_INPUT:
        yield 0
        return
    try:
        # A named pipe without a writer would hold up a blocking `open`, and nothing could stop it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise FileUnusable(f"{path} cannot be read", why=error.strerror) from None
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise FileUnusable(f"{path} is a directory", hint="name a file in it")
        yield descriptor
    finally:
        os.close(descriptor)


def input_chunks(descriptor: int, stop: threading.Event) -> Iterator[bytes]:
    """What there is to read, as soon as there is something; a read that blocks could not be stopped."""
    while not stop.is_set():
        try:
            ready, _, _ = select.select([descriptor], [], [], _POLL_TIMEOUT_S)
            block = os.read(descriptor, _BLOCK) if ready else None
        except BlockingIOError:  # another reader of the same pipe was faster
            continue
        except OSError as error:
            raise FileUnusable("the input cannot be read any further", why=error.strerror) from None
        if block == b"":
            return
        if block:
            yield block

"""Lines of text as records."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat

from millrace.clients.records import Record
from millrace.errors import InvalidOption, NotUtf8


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
            raise InvalidOption("--key-separator is empty", hint="write what stands between key and value, as ':'")
        texts = (self.key, self.key_separator, self.null, *(text for pair in self.headers for text in pair))
        try:
            "".join(text or "" for text in texts).encode()
        except UnicodeEncodeError:  # bytes of the command line that are no text; the client would break on them
            raise InvalidOption(
                "an option is not UTF-8", hint="look at --key, --key-separator, --header and --null"
            ) from None


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
        head, found, tail = chunk.rpartition(b"\n")
        if found:
            whole = b"".join([*unfinished, head, b"\n"])
            yield (whole.replace(b"\r\n", b"\n") if crlf else whole).split(b"\n")[:-1]
            unfinished = []
        unfinished.append(tail)
    rest = b"".join(unfinished)
    if rest and not (stop and stop.is_set()):
        yield [rest]


def records(blocks: Iterable[list[bytes]], form: LineFormat) -> Iterator[list[Record]]:
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
    if not form.raw:
        bad = _first_not_utf8(lines)
        if bad is not None:
            good, problem = _split(lines[:bad], form, before)
            return good, problem or _not_utf8(lines[bad], before + bad + 1)
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
        key, found, text = line.partition(separator)
        if not found:
            return good, InvalidOption(
                f"line {number} has no {form.key_separator!r} between key and value",
                hint="mend the line, or choose another --key-separator",
            )
        good.append(Record(None if text == null else text, key, None, headers, form.partition))
    return good, None


def _first_not_utf8(lines: list[bytes]) -> int | None:
    try:
        b"\n".join(lines).decode("utf-8")
    except UnicodeDecodeError as error:
        return b"\n".join(lines)[: error.start].count(b"\n")
    return None


def _not_utf8(line: bytes, number: int) -> NotUtf8:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"byte {error.start + 1} (0x{line[error.start]:02x})"
    return NotUtf8(
        f"line {number} is not UTF-8",
        why=f"{where}: {line[:40]!r}",
        hint="the lines before it were sent, unless in a transaction; mend it and send the rest, or use --raw",
    )

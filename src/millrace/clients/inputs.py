"""The bytes of a file, a named pipe or standard input, as they come, until told to stop."""

from __future__ import annotations

import os
import select
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from millrace.errors import FileUnusable

STANDARD_INPUT = "-"
_BLOCK = 1 << 18
_PATIENCE = 0.1
"""Seconds between two looks at whether to stop."""


@contextmanager
def opened(path: str) -> Iterator[int]:
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


def chunks(descriptor: int, stop: threading.Event) -> Iterator[bytes]:
    """What there is to read, as soon as there is something; a read that blocks could not be stopped."""
    while not stop.is_set():
        try:
            ready, _, _ = select.select([descriptor], [], [], _PATIENCE)
            block = os.read(descriptor, _BLOCK) if ready else None
        except BlockingIOError:  # another reader of the same pipe was faster
            continue
        except OSError as error:
            raise FileUnusable("the input cannot be read any further", why=error.strerror) from None
        if block == b"":
            return
        if block:
            yield block

"""Files that the user names, read with limits.

- At most a number of bytes: a device such as /dev/zero and a file that grows have no end.
- At most some seconds without a byte: a named pipe that no process writes to, or a terminal, would block for ever.

What goes wrong is an OSError whose `strerror` says so, as of any other file that cannot be read.
"""

from __future__ import annotations

import errno
import os
import select
from pathlib import Path

DEFINITION_BYTES = 1_000_000
"""The most bytes of a file that defines something: a pipeline, a schema, client properties, a secret."""
_WAIT_S = 10.0
_BLOCK_BYTES = 1 << 16


def read_limited(path: str | Path, limit: int = DEFINITION_BYTES) -> bytes:
    """Return the bytes of a file; raise OSError if there are more than `limit`, or if it keeps us waiting."""
    data = read_start(path, limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"the file is larger than {limit:,} bytes", str(path))
    return data


def read_limited_text(path: str | Path, limit: int = DEFINITION_BYTES) -> str:
    """Return the UTF-8 text of a file, every line end as one sign; raise as `read_limited` does."""
    return read_limited(path, limit).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def read_start(path: str | Path, size: int) -> bytes:
    """Return the first bytes of a file, at most `size`; raise OSError if it keeps us waiting."""
    # A blocking `open` of a named pipe waits for a writer.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError:
        raise OSError(errno.EINVAL, "a path has no null character", str(path)) from None
    try:
        data = bytearray()
        while len(data) < size and (block := _block(descriptor, size - len(data), path)):
            data += block
        return bytes(data)
    finally:
        os.close(descriptor)


def _block(descriptor: int, most: int, path: str | Path) -> bytes:
    """Return what comes next; nothing at the end."""
    while True:
        waiting = select.poll()  # `select` takes no descriptor from 1,024 on
        waiting.register(descriptor, select.POLLIN)
        if not waiting.poll(_WAIT_S * 1000):
            raise OSError(errno.ETIMEDOUT, f"nothing came from it within {_WAIT_S:g}s", str(path))
        try:
            return os.read(descriptor, min(most, _BLOCK_BYTES))
        except BlockingIOError:  # another reader of the same pipe was faster
            continue

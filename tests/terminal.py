"""A program at a real terminal, for tests of what people see."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def at_a_terminal(
    command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None, *, piped: bool = False
) -> tuple[bytes, bytes]:
    """Run a program to its good end; return what the terminal has shown, and standard output.

    Standard output is the terminal too, unless it is `piped` to us.
    """
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=subprocess.PIPE if piped else theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm"},
        cwd=folder,
    ) as program:
        os.close(theirs)
        screen = b""
        try:
            while data := os.read(ours, 65536):
                screen += data
        except OSError:
            pass  # Linux says so that a terminal has ended
        out = program.stdout.read() if program.stdout else screen
        assert program.wait() == 0
    os.close(ours)
    return screen, out

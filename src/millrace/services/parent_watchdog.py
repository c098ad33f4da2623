"""Runs a program and ends it as soon as the parent process has ended.

Started as a script (`python guard.py GRACE PROGRAM ARGS…`) so that it needs nothing but the standard library.
Standard input is a pipe from the parent: its end, for whatever reason, means stop. Standard output tells the
program's pid; standard error is the program's log.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Start the program, then wait for its end or the parent's."""
    grace, command = float(sys.argv[1]), sys.argv[2:]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        close_fds=False,
        # Safe here: this process has one thread when it forks.
        preexec_fn=functools.partial(die_with_parent, os.getpid()),  # noqa: PLW1509
    )
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    threading.Thread(target=_stop_with_parent, args=(child, grace), daemon=True).start()
    code = child.wait()
    # The thread may be blocked in a read; leaving at once is what is wanted.
    os._exit(code if code >= 0 else 128 - code)


def _stop_with_parent(child: subprocess.Popen[bytes], grace: float) -> None:
    while os.read(0, 1):
        pass
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(grace)
        return
    child.kill()


def die_with_parent(parent: int) -> None:
    """Linux: end when the thread that started this process ends, also when it is killed outright.

    `parent` is its process, as it knows itself: it may have ended before this call.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()

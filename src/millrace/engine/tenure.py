"""Who uses a state folder on a store, which knows no locks: a note that its holder renews.

Whoever finds one waits until it has seen it stay the same for longer than a holder ever leaves it, and takes it over.
No clocks are compared: only the waiting one's own counts. A holder that was away for so long finds another's note and
begins no batch any more.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import psutil

from millrace.errors import MillraceError, RunError, StateMismatch
from millrace.stores import StorePath

RENEWED = 3.0
"""Seconds between two renewals."""
STALE = 15.0
"""Seconds after which a note that has not changed is nobody's."""
_LOOK = 0.5
_FILE = "holder.json"


class Tenure:
    """A hold on a folder of a store."""

    def __init__(self, folder: StorePath, tell: Callable[[str], None] = lambda _: None) -> None:
        self._path = folder / _FILE
        self._id, self._turn = uuid.uuid4().hex, 0
        self._tell = tell
        self._over = threading.Event()
        self._lost: MillraceError | None = None
        self._renewed = time.monotonic()
        self._thread = threading.Thread(target=self._renew, name="tenure", daemon=True)

    def acquire(self) -> None:
        """Take the folder; raises when somebody else goes on using it."""
        while not self._taken():
            self._require_stale()
        if self._read().get("id") != self._id:  # another one has waited as long as we have, and came later
            raise self._in_use(self._read())
        self._renewed = time.monotonic()
        self._thread.start()

    def require(self) -> None:
        """Raise when the folder may be another's by now: asked before each batch."""
        if self._lost is None and time.monotonic() - self._renewed > STALE - RENEWED:
            self._once_more()
        if self._lost is not None:
            raise self._lost

    def release(self) -> None:
        """Let go of it."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(STALE)
        if self._lost is None and self._read().get("id") == self._id:
            self._path.unlink(missing_ok=True)

    def _taken(self) -> bool:
        try:
            self._path.store.write(str(self._path), self._told(), new=True)
        except FileExistsError:
            return False
        return True

    def _require_stale(self) -> None:
        """Wait until a note that is there is nobody's, and remove it; raises when it is somebody's."""
        seen, since = self._read(), time.monotonic()
        if not seen:
            return
        if not _is_gone(seen):
            self._tell(f"waiting whether the run {_named(seen)} goes on")
            while time.monotonic() - since < STALE:
                time.sleep(_LOOK)
                now = self._read()
                if not now:
                    return
                if now != seen:
                    raise self._in_use(now)
        if self._read() == seen:
            self._path.unlink(missing_ok=True)

    def _in_use(self, other: dict[str, Any]) -> StateMismatch:
        return StateMismatch(
            f"another run uses the state folder {self._path.parent}",
            why=f"it is {_named(other)}",
            hint="stop it first; to run beside it, a pipeline needs another name in its file",
        )

    def _renew(self) -> None:
        while not self._over.wait(RENEWED) and self._lost is None:
            self._once_more()

    def _once_more(self) -> None:
        try:
            found = self._read()
            if found.get("id") != self._id:
                self._lost = StateMismatch(
                    f"another run has taken over the state folder {self._path.parent}",
                    why=f"it is {_named(found)}" if found else "the note of this one is gone",
                    hint="let one of the two go on",
                )
                return
            self._turn += 1
            self._path.write_bytes(self._told())
            self._renewed = time.monotonic()
        except OSError as error:  # a store that is away for a while is asked again
            if time.monotonic() - self._renewed > STALE - RENEWED:
                self._lost = RunError(
                    f"the state folder {self._path.parent} cannot be held",
                    why=error.strerror or str(error),
                    hint="run it again when the store answers; the batch in hand is repeated",
                )

    def _read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._path.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return found

    def _told(self) -> bytes:
        me = {"id": self._id, "host": socket.gethostname(), "pid": os.getpid(), "turn": self._turn}
        return json.dumps(me).encode()


def _is_gone(holder: dict[str, Any]) -> bool:
    """Whether it was a process of this machine, and is none any more."""
    return holder.get("host") == socket.gethostname() and not psutil.pid_exists(int(holder.get("pid", 0)))


def _named(holder: dict[str, Any]) -> str:
    return f"process {holder.get('pid')} on {holder.get('host')}"

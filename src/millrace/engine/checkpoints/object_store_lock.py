"""Who uses a state folder on a store, which knows no locks: a row of terms, of which the newest is the holder's.

A term is a file that the store makes only if it is not there, so each has one maker. Its holder shows that it lives by
changing a second file. Whoever wants the folder watches that file for longer than a holder ever trusts itself, and then
makes the next term. No clocks of two machines are compared, and what is in a file decides nothing: an empty or a half
one does no harm. docs/decisions/0027-cluster.md says what this guarantees and what it does not.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress

from millrace.errors import ClusterUnfit, MillraceError, RunError, StateMismatch
from millrace.object_stores import StorePath

RENEWED = 4.0
"""Seconds between two signs of life."""
STALE = 20.0
"""Seconds without one after which the folder may be taken."""
_TRUSTED = 0.5
"""The share of that time for which a holder takes its last look for true; later it looks again before it writes."""
_LOOK = 0.5
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while this process, or the whole machine, is asleep."""
_TERM, _ALIVE, _OVER = ".term", ".alive", ".over"


class ObjectStoreLock:
    """A hold on a folder of a store."""

    def __init__(self, folder: StorePath, tell: Callable[[str], None] = lambda _: None) -> None:
        self._state = folder
        self._folder = folder / "holders"
        self._id, self._number, self._signs = uuid.uuid4().hex, 0, 0
        self._tell = tell
        self._over = threading.Event()
        self._lost: MillraceError | None = None
        self._looking = threading.Lock()
        self._seen = 0.0
        """When the look began that last found us the holder."""
        self._thread = threading.Thread(target=self._live, name="tenure", daemon=True)

    def acquire(self) -> None:
        """Take the folder; raises when somebody else goes on using it."""
        newest = self._newest()
        sign = None if self._is_free(newest) else self._require_silent(newest)
        self._number = newest + 1
        if not self._make():
            raise self._in_use(self._number)
        if sign is not None and self._read(newest, _ALIVE) != sign:  # it woke up, and may not have seen us
            self._path(_TERM).unlink(missing_ok=True)
            raise self._in_use(newest)
        self._require_conditional()
        self._look()
        self.check()
        self._forget_older()
        self._thread.start()

    def check(self) -> None:
        """Raise if the folder may be another run's by now; ask the store only if the last look is too old."""
        # An answer that took so long to come is as old as none.
        while self._lost is None and time.clock_gettime(_CLOCK) - self._seen > STALE * _TRUSTED:
            try:
                self._look()
            except OSError as error:
                raise RunError(
                    f"nobody can tell whether the state folder {self._state} is still this run's",
                    why=error.strerror or str(error),
                    hint="it goes on when the store answers; the batch in hand is repeated",
                ) from error
        self.check_cached()

    def check_cached(self) -> None:
        """Raise if the last look found another holder; ask nobody."""
        if self._lost is not None:
            raise self._lost

    def release(self, *, over: bool = True) -> None:
        """Let go of it: the next one need not wait, unless something of ours may still write (not `over`)."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(STALE)
        if over and self._number and self._lost is None:
            with suppress(OSError):  # then the next one waits
                self._path(_OVER).write_bytes(b"")

    def _live(self) -> None:
        while not self._over.wait(RENEWED) and self._lost is None:
            with suppress(OSError):  # a store that is away for a while is asked again, and before the next batch
                self._look()

    def _look(self) -> None:
        """Show that we live, and then see whether we hold: in this order, so that of two one sees the other."""
        with self._looking:
            began = time.clock_gettime(_CLOCK)
            self._signs += 1
            self._path(_ALIVE).write_bytes(f"{self._id} {self._signs}".encode())
            newest = self._newest()
            if newest == self._number:
                self._seen = began
            else:
                self._lost = self._lost or StateMismatch(
                    f"another run has taken over the state folder {self._state}",
                    why=f"it is {self._named(newest)}; this one was silent for {STALE:.0f} s or longer",
                    hint="let one of the two go on",
                )

    def _newest(self) -> int:
        """The number of the newest term; 0 before the first."""
        names = (path.name.partition(".")[0] for path in self._folder.iterdir() if path.name.endswith(_TERM))
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def _is_free(self, number: int) -> bool:
        return number == 0 or self._path(_OVER, number).exists()

    def _require_silent(self, number: int) -> bytes | None:
        """Wait until a holder has been silent for too long: its last sign, None if it let go. Raises when it lives.

        A term that vanishes was somebody's who gave way to the one before it.
        """
        sign, since = self._read(number, _ALIVE), time.clock_gettime(_CLOCK)
        self._tell(f"waiting {STALE:.0f} s whether the run that used the state folder goes on: {self._named(number)}")
        while time.clock_gettime(_CLOCK) - since < STALE:
            time.sleep(_LOOK)
            if self._is_free(number):
                return None
            if self._read(number, _ALIVE) != sign or not self._path(_TERM, number).exists():
                raise self._in_use(number)
        return sign

    def _make(self) -> bool:
        """Make our term; False when another one has made it."""
        me = {"id": self._id, "host": socket.gethostname(), "pid": os.getpid()}
        path = self._path(_TERM)
        try:
            path.store.write(str(path), json.dumps(me).encode(), new=True)
        except FileExistsError:  # by us, where the answer to a first attempt was lost
            return self._id.encode() in self._read(self._number, _TERM)
        return True

    def _require_conditional(self) -> None:
        """Raise when the store lets a second file take the place of the first: then nothing here holds."""
        path = self._path(_TERM)
        with suppress(FileExistsError):
            path.store.write(str(path), b"", new=True)
            raise ClusterUnfit(
                f"the store of {self._state} cannot hold a state",
                why="it replaces a file that must be new: it knows no conditional writes (If-None-Match)",
                hint="use one that does, hdfs://… or a shared folder",
            )

    def _forget_older(self) -> None:
        """Remove terms that nobody asks for any more; the one before ours stays, for who came as we did."""
        for path in [*self._folder.iterdir()]:
            name = path.name.partition(".")[0]
            if name.isdecimal() and int(name) < self._number - 1:
                path.unlink(missing_ok=True)

    def _in_use(self, number: int) -> StateMismatch:
        why = f"it is {self._named(number)}"
        hint = "stop it first; to run beside it, a pipeline needs another name in its file"
        return StateMismatch(f"another run uses the state folder {self._state}", why=why, hint=hint)

    def _named(self, number: int) -> str:
        try:
            holder = json.loads(self._read(number, _TERM))
            return f"process {holder['pid']} on {holder['host']}"
        except (ValueError, KeyError, TypeError):
            return "one that has left no name"

    def _read(self, number: int, kind: str) -> bytes:
        with suppress(FileNotFoundError):
            return self._path(kind, number).read_bytes()
        return b""

    def _path(self, kind: str, number: int | None = None) -> StorePath:
        return self._folder / f"{self._number if number is None else number:012d}{kind}"

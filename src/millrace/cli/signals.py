"""Ctrl-C and SIGTERM as an orderly end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """A time in which Ctrl-C, SIGTERM and a hang-up interrupt at once, so that what was begun is undone.

    Only the first one does: a second one in the middle of the undoing would leave the rest of it behind.
    """
    asked = False

    def interrupt(*_: object) -> None:
        nonlocal asked
        if not asked:
            asked = True
            raise KeyboardInterrupt

    with _handling(_ASKING, interrupt):
        yield


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C, SIGTERM or hang-up sets; a second Ctrl-C interrupts at once.

    The event is set by a thread that reads the signals from a pipe. A handler runs in the middle of whatever the
    main thread does; if that holds the event's lock, setting the event there would wait for ever.
    """
    stop = threading.Event()
    presses = 0

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal presses
        presses += number == signal.SIGINT
        if presses > 1:
            raise KeyboardInterrupt

    with _signals_as_bytes() as source, _handling(_ASKING, handle):
        threading.Thread(target=_watch, args=(source, stop), name="signals", daemon=True).start()
        yield stop


def _watch(source: int, stop: threading.Event) -> None:
    while number := os.read(source, 1):
        if number[0] in _ASKING:
            stop.set()
    os.close(source)


@contextmanager
def _signals_as_bytes() -> Iterator[int]:
    """The reading end of a pipe into which the system writes each signal's number."""
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    before = signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    try:
        yield source
    finally:
        signal.set_wakeup_fd(before)
        os.close(sink)  # which ends the thread that reads


@contextmanager
def _handling(numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    # What the caller has chosen to ignore (nohup) stays ignored.
    wanted = [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, handler) for number in wanted}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)

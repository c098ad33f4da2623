"""Ctrl-C, SIGTERM and SIGHUP: `interruptible` interrupts a block, `until_stopped` asks it to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block at Ctrl-C, SIGTERM or SIGHUP, so that it can clean up.

    Only the first signal does: a second one could interrupt the clean-up.
    """
    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            raise KeyboardInterrupt

    with _handling(_STOP_SIGNALS, interrupt):
        yield


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C, SIGTERM or SIGHUP sets; a second Ctrl-C interrupts at once.

    A thread reads the signals from a pipe and sets the event. A signal handler could not: it interrupts the main
    thread, and if that holds the event's lock, setting the event would wait for ever.
    """
    stop = threading.Event()
    presses = 0

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal presses
        presses += number == signal.SIGINT
        if presses > 1:
            raise KeyboardInterrupt

    with _signals_as_bytes() as source, _handling(_STOP_SIGNALS, handle):
        threading.Thread(target=_watch, args=(source, stop), name="signals", daemon=True).start()
        yield stop


def _watch(source: int, stop: threading.Event) -> None:
    while number := os.read(source, 1):
        if number[0] in _STOP_SIGNALS:
            stop.set()
    os.close(source)


@contextmanager
def _signals_as_bytes() -> Iterator[int]:
    """Yield the reading end of a pipe into which the system writes the number of each signal."""
    source, target = os.pipe()
    os.set_blocking(target, False)
    before = signal.set_wakeup_fd(target, warn_on_full_buffer=False)
    try:
        yield source
    finally:
        signal.set_wakeup_fd(before)
        os.close(target)  # ends the thread that reads


@contextmanager
def _handling(numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    # A signal that the caller ignores (nohup) stays ignored.
    handled = [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, handler) for number in handled}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)

"""Ctrl-C and SIGTERM as an orderly end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[None]:
    """A time in which SIGTERM and a hang-up interrupt as Ctrl-C does, so that what was begun is undone."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with _handling((signal.SIGTERM, signal.SIGHUP), interrupt):
        yield


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C, SIGTERM or hang-up sets; a second Ctrl-C interrupts at once."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    with _handling((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), ask):
        yield stop


@contextmanager
def _handling(numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)

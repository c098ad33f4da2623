"""How far a replay is, on the terminal: a line that is renewed in place, or one every few seconds elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millrace.cli.output import err, say
from millrace.units import format_duration, so_many

if TYPE_CHECKING:
    from millrace.engine.distance import Distance, Stage

EVERY = 5.0
"""Seconds between two plain lines."""
_OFTEN = 0.5


class Shown:
    """What is shown of a replay; nothing before there is a distance."""

    def __init__(self) -> None:
        self.distance: Distance | None = None

    def line(self) -> str:
        """How far it is, in one line."""
        return "Spark is starting" if self.distance is None else told(self.distance.stage())


def told(stage: Stage) -> str:
    """A stage in words."""
    if not stage.total:
        return so_many(stage.rows, "row")
    share = 100 * stage.done / stage.total
    words = [f"{stage.done:,} of {stage.total:,} records ({share:.0f} %)"]
    words += [f"{stage.rate:,.0f}/s"] if stage.rate else []
    words += [f"{format_duration(stage.left)} left"] if stage.left and stage.done < stage.total else []
    return ", ".join(words)


@contextmanager
def shown() -> Iterator[Callable[[Distance], None]]:
    """A time in which the way of a replay is shown, once it is known."""
    console, stop, what = err(), threading.Event(), Shown()

    def know(distance: Distance) -> None:
        what.distance = distance

    if console.is_terminal:
        with console.status("") as status:
            thread = _repeating(stop, _OFTEN, lambda: status.update(what.line()))
            yield from _until(stop, thread, know)
    else:
        tell = _when_new(what)
        yield from _until(stop, _repeating(stop, EVERY, tell), know)
        tell()  # how far it has come in the end


def _until(
    stop: threading.Event, thread: threading.Thread, know: Callable[[Distance], None]
) -> Iterator[Callable[[Distance], None]]:
    try:
        yield know
    finally:
        stop.set()
        thread.join()


def _when_new(what: Shown) -> Callable[[], None]:
    last = ""

    def tell() -> None:
        nonlocal last
        if what.distance is not None and what.line() != last:
            last = what.line()
            say(last)

    return tell


def _repeating(stop: threading.Event, seconds: float, act: Callable[[], None]) -> threading.Thread:
    def repeat() -> None:
        while not stop.wait(seconds):
            act()

    thread = threading.Thread(target=repeat, name="replaying", daemon=True)
    thread.start()
    return thread

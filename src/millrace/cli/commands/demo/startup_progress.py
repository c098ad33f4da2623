"""What a demo waits for and what it has: lines, and on a terminal a picture that is renewed in place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millrace.cli.live_view import PlainReporter, of_page, picture
from millrace.cli.output import err, say
from millrace.telemetry.channels import Channels
from millrace.telemetry.query_status import RunStatus

if TYPE_CHECKING:
    from rich.console import RenderableType

_LOOK = 0.1


@dataclass
class StartupProgress:
    """The way from the command to the first moving chart."""

    run_status: RunStatus
    channels: Channels
    foot: str = ""
    """What stands below, once there is something to see."""
    quiet: bool = False
    """Whether the terminal belongs to somebody who types."""
    began: float = field(default_factory=time.monotonic)
    done: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    live: bool = False

    @contextmanager
    def step(self, doing: str, done: str) -> Iterator[None]:
        """A time in which something is waited for; several may be at once."""
        self.waiting.append(doing)
        if not self._drawn:
            say(f"{doing} …")
        yield
        self.waiting.remove(doing)
        self._tell(f"{done} after {self.seconds:.0f} s")

    def expect(self, doing: str) -> None:
        """What is waited for until the first panel has something to show."""
        self.waiting.append(doing)
        if not self._drawn:
            say(f"{doing} …")

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self.began

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show it for the time of a block."""
        stop = threading.Event()
        thread = threading.Thread(target=self._follow, args=(stop,), name="awaited", daemon=True)
        with _drawn(self.picture) if self._drawn else _plainly():
            thread.start()
            try:
                yield
            finally:
                stop.set()
                thread.join()

    def picture(self) -> RenderableType:
        """All of it, as rich draws it."""
        from rich.console import Group
        from rich.spinner import Spinner
        from rich.text import Text

        parts: list[RenderableType] = [Text(f"✔ {line}", style="green") for line in self.done]
        parts += [Spinner("dots", Text(f"{line} …")) for line in self.waiting]
        parts += [Text(), picture(self.run_status, of_page(self.channels))] if self.run_status.queries() else []
        return Group(*parts, *((Text(self.foot, style="bold"),) if self.live and self.foot else ()))

    @property
    def _drawn(self) -> bool:
        return err().is_terminal and not self.quiet

    def _tell(self, text: str) -> None:
        self.done.append(text)
        if not self._drawn:
            say(text)

    def _follow(self, stop: threading.Event) -> None:
        teller = PlainReporter(self.run_status, of_page(self.channels))
        while not stop.wait(_LOOK):
            if not self._drawn and not self.quiet:
                teller.tell(time.monotonic())
            if not self.live and shows_rows(self.channels):
                self.live = True
                self.waiting.clear()
                self._tell(f"the first chart moves after {self.seconds:.0f} s")
                if self.foot and not self._drawn:
                    say(self.foot)


def shows_rows(channels: Channels) -> bool:
    """Whether a panel has something to show."""
    return any(name.startswith("panel:") and (channels.slot(name).value or {}).get("rows") for name in channels.names())


@contextmanager
def _drawn(draw: Callable[[], RenderableType]) -> Iterator[None]:
    from rich.live import Live

    shown = Live(get_renderable=draw, console=err(), refresh_per_second=8, vertical_overflow="visible")
    with shown:
        yield


@contextmanager
def _plainly() -> Iterator[None]:
    yield

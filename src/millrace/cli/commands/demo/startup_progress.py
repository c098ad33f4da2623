"""The progress of a demo's start: lines, and on a terminal a picture that is updated in place."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millrace.cli.live_view import PlainReporter, dashboard_figures, drawn, picture, repeating
from millrace.cli.output import err, print_line
from millrace.telemetry.channels import Channels
from millrace.telemetry.query_status import RunStatus

if TYPE_CHECKING:
    from rich.console import RenderableType

_POLL_INTERVAL_S = 0.1


@dataclass
class StartupProgress:
    """The steps from the command to the first chart with rows."""

    run_status: RunStatus
    channels: Channels
    footer: str = ""
    """Shown below, once a chart has rows."""
    quiet: bool = False
    """Whether the user types in the terminal, so that nothing is drawn in it."""
    started: float = field(default_factory=time.monotonic)
    done: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    live: bool = False

    def __post_init__(self) -> None:
        self._reporter = PlainReporter(self.run_status, dashboard_figures(self.channels))

    @contextmanager
    def step(self, doing: str, done: str) -> Iterator[None]:
        """Show a step while the block runs; there may be several at once."""
        self.expect(doing)
        yield
        self.waiting.remove(doing)
        self._finish(f"{done} after {self.seconds:.0f} s")

    def expect(self, doing: str) -> None:
        """Show a step until a chart has rows."""
        self.waiting.append(doing)
        if not self._draws:
            print_line(f"{doing} …")

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self.started

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the progress while the block runs."""
        with ExitStack() as stack:
            if self._draws:
                stack.enter_context(drawn(self.picture, updates_per_second=8))
            stack.enter_context(repeating(self._update, _POLL_INTERVAL_S, "startup progress"))
            yield

    def picture(self) -> RenderableType:
        """Return all of it, as rich draws it."""
        from rich.console import Group
        from rich.spinner import Spinner
        from rich.text import Text

        parts: list[RenderableType] = [Text(f"✔ {line}", style="green") for line in self.done]
        parts += [Spinner("dots", Text(f"{line} …")) for line in self.waiting]
        if self.run_status.queries():
            parts += [Text(), picture(self.run_status, dashboard_figures(self.channels))]
        return Group(*parts, *((Text(self.footer, style="bold"),) if self.live and self.footer else ()))

    @property
    def _draws(self) -> bool:
        return err().is_terminal and not self.quiet

    def _finish(self, text: str) -> None:
        self.done.append(text)
        if not self._draws:
            print_line(text)

    def _update(self) -> None:
        if not self._draws and not self.quiet:
            self._reporter.report(time.monotonic())
        panels = (self.channels.slot(name).value for name in self.channels.names() if name.startswith("panel:"))
        if not self.live and any((panel or {}).get("rows") for panel in panels):
            self.live = True
            self.waiting.clear()
            self._finish(f"the first chart moves after {self.seconds:.0f} s")
            if self.footer and not self._draws:
                print_line(self.footer)

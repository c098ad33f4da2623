"""Channels that are filled only while a client has subscribed to them, each by a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millrace.dashboard.run_interface import Work
from millrace.errors import MillraceError
from millrace.telemetry.channels import Channels

LINGER = 5.0
"""Seconds for which a channel is still filled without subscribers: a page that is reloaded comes back."""
MOST_CHANNELS = 16
"""Channels that are filled at once."""
_AGAIN = 2.0
_PATIENCE = 1.0


@dataclass
class _Filling:
    thread: threading.Thread
    stop: threading.Event
    unwanted: float | None = None


class OnDemandChannels:
    """Starts and ends the work for channels; lives in the server's event loop."""

    def __init__(self, channels: Channels, work: Callable[[str], Work | None], linger: float = LINGER) -> None:
        self._channels, self._work, self._linger = channels, work, linger
        self._fillings: dict[str, _Filling] = {}
        self._refused: dict[str, Work] = {}
        """What is looked at and finds no room."""

    def want(self, names: Iterable[str]) -> None:
        """These are looked at now, and no others."""
        wanted, now = set(names), time.monotonic()
        for name in self._refused.keys() - wanted:
            del self._refused[name]
            self._channels.set_problem(name, None)
        for name in wanted - self._fillings.keys() - self._refused.keys():
            if work := self._work(name):
                self._begin(name, work)
        for name, filling in self._fillings.items():
            if name in wanted:
                filling.unwanted = None
            elif filling.unwanted is None:
                filling.unwanted = now
        self.tidy()

    def tidy(self) -> None:
        """End channels without subscribers, and start those that have room now."""
        now = time.monotonic()
        for name, filling in list(self._fillings.items()):
            if filling.unwanted is not None and now - filling.unwanted >= self._linger:
                filling.stop.set()
                del self._fillings[name]
        while self._refused and len(self._fillings) < MOST_CHANNELS:
            name = next(iter(self._refused))
            self._begin(name, self._refused.pop(name))

    def close(self) -> None:
        """End everything, and wait for it, though not for a Kafka that does not answer."""
        for filling in self._fillings.values():
            filling.stop.set()
        deadline = time.monotonic() + _PATIENCE
        for filling in self._fillings.values():
            filling.thread.join(max(0.0, deadline - time.monotonic()))
        self._fillings.clear()

    @property
    def names(self) -> set[str]:
        """The channels that are being filled."""
        return set(self._fillings)

    def _begin(self, name: str, work: Work) -> None:
        if len(self._fillings) >= MOST_CHANNELS:
            self._refused[name] = work
            self._channels.set_problem(name, f"only {MOST_CHANNELS} live views can be open at once: close some of them")
            return
        self._channels.set_problem(name, None)
        stop = threading.Event()
        thread = threading.Thread(target=self._fill, args=(name, work, stop), name=f"filling-{name}", daemon=True)
        self._fillings[name] = _Filling(thread, stop)
        thread.start()

    def _fill(self, name: str, work: Work, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                work(stop)
            except MillraceError as error:
                self._channels.set_problem(name, f"{error.message}{f' ({error.why})' if error.why else ''}")
            except Exception as error:
                self._channels.set_problem(name, f"this cannot be shown: {type(error).__name__}: {error}")
            stop.wait(_AGAIN)  # a broker may come back, a topic may be made

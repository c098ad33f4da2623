"""A thread that does something every so often, until it is told to end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_PATIENCE = 2.0
_log = logging.getLogger(__name__)


class Sampler:
    """Calls `look` at once and then every so many seconds; what one look could not do is tried at the next."""

    def __init__(self, name: str, look: Callable[[], None], every: float, *, last: bool = True) -> None:
        """`last`: look once more at the end."""
        self._name = name
        self._look = look
        self._every = every
        self._last = last
        self._told = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sampler-{name}", daemon=True)

    def start(self) -> Sampler:
        """Begin."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop; a look that takes long is not waited for."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        self._try()
        while not self._stop.wait(self._every):
            self._try()
        if self._last:
            self._try()

    def _try(self) -> None:
        # A picture of the run must never end because one look at it failed; the run itself does not depend on it.
        try:
            self._look()
        except Exception as error:
            level = logging.DEBUG if self._told else logging.WARNING
            _log.log(level, "the page's %s cannot be renewed: %r", self._name, error)
            self._told = True

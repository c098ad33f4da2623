"""Alerts on their way to a URL or a command: in a thread of their own, so that none can hold up or harm the run."""

from __future__ import annotations

import json
import os
import queue
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from urllib.parse import urlsplit

from millrace.errors import InvalidOption
from millrace.telemetry.alerts import Alert

PATIENCE = 10.0
"""Seconds that one alert may take, and that the end of the run waits for those that are still to be sent."""
_MOST = 100
"""Alerts that wait; more are not kept."""
_ATTEMPTS = 3
_PAUSE = 1.0

Send = Callable[[Alert], str | None]
"""Sends one alert; gives the reason when it could not."""


def to(target: str) -> Send:
    """How alerts get to a URL (as JSON by POST) or to a command (as JSON on its standard input)."""
    if target.startswith(("http://", "https://")):
        if not urlsplit(target).hostname:
            raise InvalidOption("the alert's URL names no host", hint="write it as https://host/path")
        return lambda alert: _posted(target, alert)
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise InvalidOption(f"the alert's command cannot be read: {error}") from None
    if not words:
        raise InvalidOption("the alert is empty", hint="give a URL, or a command with its arguments")
    return lambda alert: _ran(words, alert)


class Messenger:
    """Sends alerts one after the other; what goes wrong with them is said once."""

    def __init__(self, send: Send, say: Callable[[str], None], patience: float = PATIENCE) -> None:
        self._send = send
        self._say = say
        self.patience = patience
        self._waiting: queue.Queue[Alert | None] = queue.Queue(_MOST)
        self._complained = False
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
        self._thread.start()

    def tell(self, alert: Alert) -> None:
        """Send it soon; returns at once."""
        try:
            self._waiting.put_nowait(alert)
        except queue.Full:
            self._complain("too many wait to be sent")

    def close(self) -> None:
        """Wait for those that are on their way, but not long."""
        deadline = time.monotonic() + self.patience
        with suppress(queue.Full):
            self._waiting.put(None, timeout=self.patience)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._complain("it has not ended in time")

    def _run(self) -> None:
        while (alert := self._waiting.get()) is not None:
            try:
                trouble = self._send(alert)
            except Exception as error:  # whatever it is, the run does not depend on it
                trouble = f"{type(error).__name__}"
            if trouble:
                self._complain(trouble)

    def _complain(self, why: str) -> None:
        if not self._complained:
            self._complained = True
            self._say(f"an alert could not be sent: {why}; this is said once")


def _posted(url: str, alert: Alert) -> str | None:
    import httpx

    host, trouble = urlsplit(url).hostname, ""  # the rest of the address may be a secret
    for attempt in range(_ATTEMPTS):
        time.sleep(_PAUSE * attempt)
        try:
            # The answer's body is not waited for.
            with httpx.stream("POST", url, json=_told(alert), timeout=PATIENCE / _ATTEMPTS) as answer:
                if answer.is_success:
                    return None
                trouble = f"{host} answers {answer.status_code}"
                if answer.is_client_error:
                    return trouble
        except httpx.HTTPError as error:
            trouble = f"{host} does not answer ({type(error).__name__})"
    return trouble


def _ran(words: list[str], alert: Alert) -> str | None:
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C does not reach it, and all of it can be ended
        )
    except OSError as error:
        return f"{words[0]} cannot be started: {error.strerror}"
    try:
        child.communicate(json.dumps(_told(alert)).encode(), timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return f"{words[0]} took longer than {PATIENCE:.0f} s and was ended"
    return f"{words[0]} ended with exit code {child.returncode}" if child.returncode else None


def _told(alert: Alert) -> dict[str, str | None]:
    return {**asdict(alert), "text": alert.sentence}

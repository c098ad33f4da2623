"""A page as the browser is one: it subscribes, applies what it is told, acknowledges, and can come back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import orjson
from websockets.sync.client import connect

PATIENCE = 20.0


class Page:
    """A client of the WebSocket that keeps what it was told."""

    def __init__(self, address: str, before: Page | None = None, **more: Any) -> None:
        self._open = ExitStack()
        self.socket = self._open.enter_context(connect(f"{address.replace('http', 'ws')}ws", max_size=None, **more))
        self.hello = self.receive()
        self.columns: dict[str, dict[str, list[Any]]] = before.columns if before else {}
        self.values: dict[str, Any] = before.values if before else {}
        self.versions: dict[str, int] = before.versions if before else {}
        self.epoch = before.epoch if before else None
        self.kinds: list[tuple[str, str]] = []
        """Each channel's kind of news, in order."""
        self.errors: list[dict[str, Any]] = []
        self.frames: list[dict[str, Any]] = []

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def say(self, **said: Any) -> None:
        """Send a message."""
        self.socket.send(orjson.dumps(said).decode())

    def subscribe(self, *names: str) -> None:
        """Want these channels, with what is there already."""
        self.say(type="subscribe", channels=names, have={"epoch": self.epoch, "versions": self.versions})
        self.epoch = self.hello["epoch"]

    def receive(self, timeout: float = PATIENCE) -> dict[str, Any]:
        """The next message."""
        told: dict[str, Any] = orjson.loads(self.socket.recv(timeout))
        return told

    def step(self, *, ack: bool = True) -> dict[str, Any]:
        """Take the next message in."""
        told = self.receive()
        if told["type"] == "error":
            self.errors.append(told)
        if told["type"] == "frame":
            self.frames.append(told)
            for name, delta in told["channels"].items():
                self._apply(name, delta)
            if ack:
                self.say(type="ack", seq=told["seq"])
        return told

    def until(self, holds: Callable[[Page], bool]) -> Page:
        """Go on until something holds."""
        while not holds(self):
            self.step()
        return self

    def _apply(self, name: str, delta: dict[str, Any]) -> None:
        self.kinds.append((name, delta["kind"]))
        if delta["kind"] == "replace":
            self.values[name] = delta["data"]
        else:
            mine = {} if delta["kind"] == "snapshot" else self.columns.setdefault(name, {})
            rows = max(map(len, mine.values()), default=0)
            size = delta["data"]["size"]
            for column, values in delta["data"]["columns"].items():
                if delta["kind"] == "append":
                    assert len(values) == delta["version"] - self.versions[name], "a gap, or rows that come twice"
                mine[column] = (mine.get(column, [None] * rows) + values)[-size:]
            self.columns[name] = mine
        self.versions[name] = delta["version"]

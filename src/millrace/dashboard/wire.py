"""The WebSocket of a page: what it says, and what is said to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

from millrace.dashboard.encoding import message, now
from millrace.dashboard.hub import BEAT, Hub
from millrace.dashboard.reader import Reader

_MESSAGE_INTERVAL_S = 0.02
"""At least so long from one message of a client to the next that is listened to: one that floods us waits."""


async def converse(socket: WebSocket, hub: Hub) -> None:
    """Serve one page until it leaves."""
    await socket.accept()
    with hub.reading() as reader:
        writing = asyncio.create_task(_write(socket, hub, reader))
        try:
            await _listen(socket, hub, reader)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)


async def _write(socket: WebSocket, hub: Hub, reader: Reader) -> None:
    await socket.send_text(hub.hello())
    while True:
        try:
            told = await asyncio.wait_for(reader.next(), BEAT)
        except TimeoutError:
            told = message("beat", time=now())
        await socket.send_text(told)


async def _listen(socket: WebSocket, hub: Hub, reader: Reader) -> None:
    while True:
        try:
            text = await socket.receive_text()
        except (WebSocketDisconnect, KeyError):  # it has left, or sent bytes
            return
        try:
            _take(orjson.loads(text), hub, reader)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reader.note(None, f"not understood: {type(error).__name__}: {error}"[:500])
        await asyncio.sleep(_MESSAGE_INTERVAL_S)


def _take(said: Any, hub: Hub, reader: Reader) -> None:
    if not isinstance(said, dict):
        raise TypeError("a message is an object")
    if said.get("type") == "ack":
        reader.acknowledge(int(said["seq"]))
    elif said.get("type") == "subscribe":
        names = said["channels"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("channels is a list of names")
        have = said.get("have") or {}
        hub.subscribe(reader, names, _versions(have.get("versions")), have.get("epoch"))
    else:
        raise ValueError(f"no message is of type {said.get('type')!r}")


def _versions(told: Any) -> Mapping[str, int]:
    if not isinstance(told, dict):
        return {}
    return {name: version for name, version in told.items() if type(version) is int}

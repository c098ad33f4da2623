"""The live connections of browsers.

- `Broadcaster` sends what changed to every client, ten times a second; each update is encoded once for all of them.
- `Client` has the channels that a browser wants, their versions, and the one frame that may be on its way to it.
- `converse` serves the WebSocket of a browser.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from functools import cache, partial
from typing import Any, NamedTuple

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

from millrace.dashboard.on_demand import OnDemandChannels
from millrace.masking import bytes_without_secrets, without_secrets
from millrace.telemetry.channels import Channels


class EncodedUpdate(NamedTuple):
    """What one channel has to say to those who have a certain version of it."""

    text: bytes
    version: int
    forgotten: int
    """Rows between that version and these that are no longer there."""


GetUpdate = Callable[[str, int | None], EncodedUpdate | None]


def encoded_update(channels: Channels, name: str, version: int | None) -> EncodedUpdate | None:
    """Return what a client of a version of a channel misses; None when it misses nothing."""
    channel = channels.get(name)
    delta = channel.since(version) if channel else None
    if delta is None:
        return None
    forgotten = 0
    if delta.kind == "snapshot" and version is not None:
        kept = max((len(values) for values in delta.data["columns"].values()), default=0)
        forgotten = max(0, delta.version - version - kept)
    text = orjson.dumps({"kind": delta.kind, "version": delta.version, "data": delta.data})
    return EncodedUpdate(bytes_without_secrets(text), delta.version, forgotten)


def encoded_frame(seq: int, pieces: dict[str, bytes], coalesced: int, dropped: int) -> str:
    """One message out of pieces that are encoded already."""
    inside = b",".join(orjson.dumps(name) + b":" + text for name, text in pieces.items())
    head = b'{"type":"frame","seq":%d,"time":%d,"channels":{' % (seq, now_milliseconds())
    return (head + inside + b'},"coalesced":%d,"dropped":%d}' % (coalesced, dropped)).decode()


def encoded_message(kind: str, **more: Any) -> str:
    """Any other message."""
    return without_secrets(orjson.dumps({"type": kind, **more}).decode())


def now_milliseconds() -> int:
    """Milliseconds since 1970."""
    return round(time.time() * 1000)


MAX_NOTES = 50


class Client:
    """Lives in the server's event loop. Nothing is queued for it: a frame is made when the last one has arrived."""

    def __init__(self, *, acknowledges: bool = True) -> None:
        self.wanted: dict[str, int | None] = {}
        """The channels, each with the version that was sent."""
        self._acknowledges = acknowledges
        self._awaited: int | None = None
        self._frame: str | None = None
        self._seq = self._coalesced = self._dropped = 0
        self._notes: deque[str] = deque(maxlen=MAX_NOTES)
        self._problems: dict[str, str] = {}
        self._something = asyncio.Event()

    def subscribe(self, names: Iterable[str], have: Mapping[str, int]) -> None:
        """Want these channels and no others; `have` says which versions are there already.

        A channel that stays wanted continues from what was sent last: that may be newer than what has arrived.
        """
        before = self.wanted
        self.wanted = {name: before[name] if name in before else have.get(name) for name in names}
        self._problems = {name: text for name, text in self._problems.items() if name in self.wanted}

    def acknowledge(self, seq: int) -> None:
        """A frame has been worked on."""
        if self._awaited is not None and seq >= self._awaited:
            self._awaited = None

    def note(self, channel: str | None, text: str | None) -> None:
        """Say that something is wrong, or (None) that it is over."""
        self._notes.append(encoded_message("error", channel=channel, message=text))
        self._something.set()

    def look(self, get_update: GetUpdate, problems: Mapping[str, str]) -> None:
        """Take what is new, unless the last frame is still on its way."""
        self._note_problems(problems)
        if self._frame is not None or self._awaited is not None:
            self._coalesced += any(get_update(*channel) is not None for channel in self.wanted.items())
            return
        updates = {name: update for name, version in self.wanted.items() if (update := get_update(name, version))}
        if not updates:
            return
        self._seq += 1
        self._dropped += sum(update.forgotten for update in updates.values())
        self.wanted |= {name: update.version for name, update in updates.items()}
        texts = {name: update.text for name, update in updates.items()}
        self._frame = encoded_frame(self._seq, texts, self._coalesced, self._dropped)
        self._coalesced = self._dropped = 0
        self._awaited = self._seq if self._acknowledges else None
        self._something.set()

    async def next(self) -> str:
        """The next message for it."""
        await self._something.wait()
        if self._notes:
            text = self._notes.popleft()
        else:
            text, self._frame = self._frame or "", None
        if not self._notes and self._frame is None:
            self._something.clear()
        return text

    def _note_problems(self, problems: Mapping[str, str]) -> None:
        for name in self.wanted:
            text = problems.get(name)
            if self._problems.get(name) == text:
                continue
            if text is None:
                del self._problems[name]
            else:
                self._problems[name] = text
            self.note(name, text)


_log = logging.getLogger(__name__)

TICK = 0.1
BEAT = 2.0
MOST_CHANNELS = 200
_KNOWN = ("state", "events", "panels", "topics", "dead", "redrive")
_PREFIXES = ("history:", "lag:", "panel:", "tail:")


class Broadcaster:
    """Lives in the server's event loop. Each tick makes each client's frame, out of pieces that are shared."""

    def __init__(self, channels: Channels, demand: OnDemandChannels) -> None:
        self.channels, self._demand = channels, demand
        self._readers: set[Client] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._changed = False
        """Whether other channels are wanted than at the last tick."""

    def hello(self) -> str:
        """Return the first message to every client."""
        tick, beat = round(TICK * 1000), round(BEAT * 1000)
        return encoded_message("hello", epoch=self.channels.epoch, time=now_milliseconds(), tick=tick, heartbeat=beat)

    async def messages(self, client: Client) -> AsyncGenerator[str, None]:
        """Yield a hello, then every message for a client, and a beat whenever there was none for a while."""
        yield self.hello()
        while True:
            try:
                text = await asyncio.wait_for(client.next(), BEAT)
            except TimeoutError:
                text = encoded_message("beat", time=now_milliseconds())
            yield text

    def start(self) -> None:
        """Begin to tick."""
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def stop(self) -> None:
        """Stop ticking, and end what was done for readers."""
        if self._ticking:
            self._ticking.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticking
        await asyncio.to_thread(self._demand.close)

    @contextmanager
    def reading(self, *, acknowledges: bool = True) -> Iterator[Client]:
        """One more client, for as long as it is there."""
        client = Client(acknowledges=acknowledges)
        self._readers.add(client)
        try:
            yield client
        finally:
            self._readers.discard(client)
            self._changed = True

    def subscribe(self, client: Client, names: list[str], have: Mapping[str, int], epoch: str | None) -> None:
        """What a client wants; it gets a note about names that cannot be."""
        existing = [name for name in dict.fromkeys(names) if name in _KNOWN or name.startswith(_PREFIXES)]
        for name in [name for name in names if name not in _KNOWN and not name.startswith(_PREFIXES)][:MAX_NOTES]:
            client.note(name[:200], "there is no such channel")
        if len(existing) > MOST_CHANNELS:
            client.note(None, f"only {MOST_CHANNELS} channels can be subscribed at once")
        client.subscribe(existing[:MOST_CHANNELS], have if epoch == self.channels.epoch else {})
        self._changed = True

    def look(self) -> None:
        """One tick."""
        get_update, problems = cache(partial(encoded_update, self.channels)), self.channels.problems()
        for client in self._readers:
            client.look(get_update, problems)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            try:
                if self._changed:  # once a tick, however often readers change their minds
                    self._changed = False
                    self._demand.want({name for client in self._readers for name in client.wanted})
                self.look()
                self._demand.tidy()
            except Exception:  # one frame that cannot be made must not end all others
                _log.exception("a tick of the dashboard failed")


_MESSAGE_INTERVAL_S = 0.02
"""At least so long from one message of a client to the next that is listened to: one that floods us waits."""


async def converse(socket: WebSocket, hub: Broadcaster) -> None:
    """Serve one page until it leaves."""
    await socket.accept()
    with hub.reading() as client:

        async def write() -> None:
            async with aclosing(hub.messages(client)) as messages:
                async for text in messages:
                    await socket.send_text(text)

        writing = asyncio.create_task(write())
        try:
            await _listen(socket, hub, client)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)


async def _listen(socket: WebSocket, hub: Broadcaster, client: Client) -> None:
    while True:
        try:
            text = await socket.receive_text()
        except (WebSocketDisconnect, KeyError):  # it has left, or sent bytes
            return
        try:
            _take(orjson.loads(text), hub, client)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            client.note(None, f"not understood: {type(error).__name__}: {error}"[:500])
        await asyncio.sleep(_MESSAGE_INTERVAL_S)


def _take(message: Any, hub: Broadcaster, client: Client) -> None:
    if not isinstance(message, dict):
        raise TypeError("a message is an object")
    if message.get("type") == "ack":
        client.acknowledge(int(message["seq"]))
    elif message.get("type") == "subscribe":
        names = message["channels"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("channels is a list of names")
        have = message.get("have") or {}
        versions = have.get("versions")
        pairs = versions.items() if isinstance(versions, dict) else ()
        have_versions = {name: version for name, version in pairs if type(version) is int}
        hub.subscribe(client, names, have_versions, have.get("epoch"))
    else:
        raise ValueError(f"no message is of type {message.get('type')!r}")

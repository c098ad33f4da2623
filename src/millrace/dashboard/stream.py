"""The same frames as an event stream, for curl."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse

from millrace.dashboard.encoding import message, now
from millrace.dashboard.hub import BEAT, Hub

USUAL = ["state", "events"]


def event_stream(hub: Hub, names: list[str]) -> StreamingResponse:
    """Frames of these channels until whoever listens leaves."""
    return StreamingResponse(
        _events(hub, names or USUAL), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def _events(hub: Hub, names: list[str]) -> AsyncIterator[str]:
    with hub.reading(acknowledges=False) as reader:
        hub.subscribe(reader, names, {}, None)
        yield _event(hub.hello())
        while True:
            try:
                told = await asyncio.wait_for(reader.next(), BEAT)
            except TimeoutError:
                told = message("beat", time=now())
            yield _event(told)


def _event(told: str) -> str:
    return f"data: {told}\n\n"  # JSON as orjson writes it has no line ends

"""The web application: its routes, before which the guard stands.

The built page, as files; or words about how to build it.

The same frames as an event stream, for curl.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from millrace.dashboard.api import Api, answer_or_problem, asked, known, problem, unanswered
from millrace.dashboard.auth import AccessControl, App, Receive, Rules, Scope, Send
from millrace.dashboard.live import Broadcaster, converse
from millrace.dashboard.on_demand import OnDemandChannels
from millrace.dashboard.run_interface import RunInterface

STATIC = Path(__file__).parent / "static"
_MISSING = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Millrace</title>
<h1>The page is not built</h1>
<p>This is a checkout of Millrace whose page has not been built yet.
Build it with <code>make setup</code>, then reload.</p>
<p>Everything else works: <a href="/api/state">/api/state</a>, <a href="/metrics">/metrics</a>,
<a href="/healthz">/healthz</a>.</p>
</html>
"""


class _Files(StaticFiles):
    async def check_config(self) -> None:
        """Take a folder that does not exist for an empty one: the dashboard may be built later."""


async def _events(hub: Broadcaster, names: list[str]) -> AsyncGenerator[str, None]:
    with hub.reading(acknowledges=False) as client:
        hub.subscribe(client, names, {}, None)
        async with aclosing(hub.messages(client)) as messages:
            async for message in messages:
                yield f"data: {message}\n\n"  # JSON as orjson writes it has no line ends


_USUAL_CHANNELS = ["state", "events"]
_MOST_BODY = 200_000
_MAX_QUESTIONS = 16
"""Questions that are answered at once, which is fewer than there are threads: files of the dashboard need some too."""
_IN_MEMORY = ("/api/state", "/api/events")


def make_app(subject: RunInterface, rules: Rules, *, read_only: bool = False, static: Path = STATIC) -> App:
    """Everything that is served."""
    api = Api(subject, read_only=read_only)
    hub = Broadcaster(subject.channels, OnDemandChannels(subject.channels, subject.work))

    async def index(_: Request) -> Response:
        page = static / "index.html"
        if not page.is_file():
            return HTMLResponse(_MISSING, headers={"Cache-Control": "no-store"})
        # It names its scripts by their content, so it alone must be asked for each time.
        return FileResponse(page, headers={"Cache-Control": "no-cache"})

    async def other(request: Request) -> Response:
        """Return a file beside the page (an icon), if there is one."""
        files = {file.name: file for file in static.glob("[!.]*") if file.is_file() and not file.is_symlink()}
        file = files.get(request.path_params["name"])
        return FileResponse(file) if file else Response("there is nothing here\n", 404, media_type="text/plain")

    async def events(request: Request) -> Response:
        names = list(filter(None, request.query_params.get("channels", "").split(","))) or _USUAL_CHANNELS
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(_events(hub, names), media_type="text/event-stream", headers=headers)

    async def socket(websocket: WebSocket) -> None:
        subject.opened()
        await converse(websocket, hub)

    @asynccontextmanager
    async def ticking(_: Starlette) -> AsyncIterator[None]:
        hub.start()
        try:
            yield
        finally:
            await hub.stop()

    app = Starlette(
        routes=[
            Route("/", index),
            Route("/healthz", known(api.healthz)),
            Route("/readyz", known(api.readyz)),
            Route("/metrics", known(api.metrics)),
            Route("/api/pipeline", asked(api.pipeline)),
            Route("/api/state", known(api.state)),
            Route("/api/queries/{name:path}", asked(api.query)),
            Route("/api/topics", asked(api.topics)),
            Route("/api/topics/{name}", asked(api.records)),
            Route("/api/dead", asked(api.dead)),
            Route("/api/dead/export", asked(api.export)),
            Route("/api/dead/redrive", _posted(api.redrive), methods=["POST"]),
            Route("/api/sql", _posted(api.sql), methods=["POST"]),
            Route("/api/events", events),
            WebSocketRoute("/ws", socket),
            Mount("/assets", _Files(directory=static / "assets", check_dir=False)),
            Route("/{name}", other),
        ],
        lifespan=ticking,
        exception_handlers={HTTPException: unanswered},
    )
    return AccessControl(_LimitedQuestions(app), rules)


class _LimitedQuestions:
    """Answers a few questions to Kafka at once, from the first byte to the last; others are to ask again.

    What is posted is not counted: SQL and redrives are one at a time anyway, and a body may be long in coming.
    """

    def __init__(self, app: App) -> None:
        self._app, self._answering = app, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or say that there are too many."""
        path = scope["path"] if scope["type"] == "http" else ""
        if not path.startswith("/api/") or path in _IN_MEMORY or scope["method"] == "POST":
            await self._app(scope, receive, send)
        elif self._answering >= _MAX_QUESTIONS:
            refusal = problem(503, f"{_MAX_QUESTIONS} questions are being answered", "ask again in a moment")
            await refusal(scope, receive, send)
        else:
            self._answering += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._answering -= 1


def _posted(ask: Callable[[bytes], Response]) -> Callable[[Request], Awaitable[Response]]:
    """A question whose words are JSON in the body of the request."""

    async def asking(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return problem(415, "the body is not JSON", "send it with content-type application/json")
        body = await _body(request)
        return problem(413, "the body is too large") if body is None else await answer_or_problem(ask, body)

    return asking


async def _body(request: Request) -> bytes | None:
    """What was sent; None when it is too much."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BODY:
            return None
    return bytes(body)

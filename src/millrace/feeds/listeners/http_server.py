"""The server of the HTTP feed.

- Checks a request's token, content type and size, and reads its records.
- Queues them as a batch.
- Answers when the sink has them, also after the feed was stopped.
"""

from __future__ import annotations

import asyncio
import hmac
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeVar

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from millrace.clients.kafka.record import Record
from millrace.errors import FeedFailed, RecordRefused
from millrace.feeds.base.api import Batch
from millrace.feeds.listeners.backpressure import ByteBudget, Receipt, Verdict, refuse_queued, settle
from millrace.feeds.listeners.json_payloads import Malformed, from_json, from_ndjson
from millrace.units import format_bytes

T = TypeVar("T")

MAX_HELD_BYTES = 64_000_000
"""Bytes that all requests together may hold until the sink has their records."""
BODY_TIMEOUT_S = 60.0
"""A slower body is refused: it holds memory that other requests wait for."""
STOP_TIMEOUT_S = 60.0
"""How long requests wait for the sink's result after the feed was stopped."""

_PARSERS: dict[str, Callable[[bytes, str | None], list[Record]]] = {
    "application/json": from_json,
    "application/x-ndjson": from_ndjson,
    "application/jsonl": from_ndjson,
}
_MIN_RESERVED_BYTES = 4096
_MAX_INLINE_BYTES = 65536
"""Larger bodies are parsed in a thread, so that other requests do not wait."""


class RequestRefused(Exception):
    """A request is refused as a whole."""

    def __init__(self, status: int, error: str, **more: object) -> None:
        super().__init__(error)
        self.response = JSONResponse({"error": error, **more}, status)
        if status == 401:
            self.response.headers["www-authenticate"] = "Bearer"


@dataclass(frozen=True)
class HttpListenerOptions:
    """Limits for requests."""

    max_bytes: int
    key: str | None = None
    token: str | None = None


class HttpListener:
    """Serves the requests of one run in an event loop."""

    def __init__(self, options: HttpListenerOptions) -> None:
        self.batches: SimpleQueue[Batch] = SimpleQueue()
        """Batches that wait for the sink; the budget bounds them."""
        self.ready = threading.Event()
        self.app = Starlette(
            routes=[Route("/", self._post, methods=["POST"]), Route("/healthz", self._health, methods=["GET"])],
            lifespan=self._lifespan,
        )
        self._options = options
        self._budget = ByteBudget(max(MAX_HELD_BYTES, 2 * options.max_bytes))
        self._pending: set[asyncio.Timeout] = set()
        self._verdicts: set[Verdict] = set()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def stop(self) -> None:
        """Accept no more requests; those that the sink has are still answered. May be called from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._stopping = True
        for limit in self._pending:
            with suppress(RuntimeError):  # it has just ended
                limit.reschedule(asyncio.get_running_loop().time())
        refuse_queued(self.batches)
        asyncio.get_running_loop().call_later(STOP_TIMEOUT_S, self._give_up)

    def _give_up(self) -> None:
        for verdict in self._verdicts:
            settle(verdict, FeedFailed("it is not known whether the records were delivered", why="the feed stopped"))

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self._loop = asyncio.get_running_loop()
        self.ready.set()
        yield

    async def _health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _post(self, request: Request) -> Response:
        try:
            self._admit(request)
            return await self._take(request)
        except RequestRefused as refused:
            return refused.response
        except ClientDisconnect:
            return Response(status_code=400)

    def _admit(self, request: Request) -> None:
        if self._options.token and not _has_token(request, self._options.token):
            raise RequestRefused(401, "a bearer token is needed, and the right one")
        if _content_type(request) not in _PARSERS:
            raise RequestRefused(415, f"send it as {' or '.join(_PARSERS)}")
        if request.headers.get("content-encoding", "identity") != "identity":
            raise RequestRefused(415, "send it uncompressed")
        self._check_open()

    async def _take(self, request: Request) -> Response:
        size = max(self._declared_size(request), _MIN_RESERVED_BYTES)
        await self._unless_stopped(self._budget.take(size))
        try:
            self._check_open()
            body = await self._unless_stopped(self._body(request), BODY_TIMEOUT_S)
            return await self._deliver(await self._records(request, body))
        finally:
            self._budget.give(size)

    def _declared_size(self, request: Request) -> int:
        # A chunked body may have any length, whatever content-length says.
        if "transfer-encoding" in request.headers:
            return self._options.max_bytes
        size = int(request.headers.get("content-length", "0"))
        self._check_size(size)
        return size

    async def _body(self, request: Request) -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            self._check_size(len(body) + len(chunk))
            body += chunk
        return bytes(body)

    async def _records(self, request: Request, body: bytes) -> list[Record]:
        parse, key = _PARSERS[_content_type(request)], request.query_params.get("key") or self._options.key
        try:
            return parse(body, key) if len(body) <= _MAX_INLINE_BYTES else await asyncio.to_thread(parse, body, key)
        except Malformed as error:
            position = "".join(f"{unit} {number}: " for unit, number in error.where.items())
            raise RequestRefused(400, f"{position}{error}", **error.where) from None

    async def _deliver(self, records: list[Record]) -> Response:
        self._check_open()
        if records:
            verdict: Verdict = asyncio.get_running_loop().create_future()
            self._verdicts.add(verdict)
            verdict.add_done_callback(self._verdicts.discard)
            self.batches.put(Batch(records, Receipt(verdict)))
            error = await verdict
            if error is not None:
                status = 413 if isinstance(error, RecordRefused) else 503
                raise RequestRefused(status, error.message, why=error.why, condition=error.condition)
        return JSONResponse({"accepted": len(records)})

    async def _unless_stopped(self, work: Awaitable[T], seconds: float | None = None) -> T:
        try:
            async with asyncio.timeout(seconds) as limit:
                self._pending.add(limit)
                try:
                    return await work
                finally:
                    self._pending.discard(limit)
        except TimeoutError:
            self._check_open()
            raise RequestRefused(408, "the body did not come in time") from None

    def _check_open(self) -> None:
        if self._stopping:
            raise RequestRefused(503, "the feed is stopping")

    def _check_size(self, size: int) -> None:
        if size > self._options.max_bytes:
            raise RequestRefused(413, f"send at most {format_bytes(self._options.max_bytes)} at once")


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _has_token(request: Request, token: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    # Headers are decoded as Latin-1, which restores their bytes. The comparison takes the same time for any token.
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), token.encode())

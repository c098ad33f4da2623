"""The requests of the HTTP feed: read, checked, handed over, and answered when the sink has what they brought."""

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
from millrace.feeds.listeners.backpressure import ByteBudget, Receipt, Verdict, settle
from millrace.feeds.listeners.json_payloads import Malformed, from_json, from_ndjson
from millrace.units import format_bytes

T = TypeVar("T")

HELD = 64_000_000
"""Bytes that all requests together may hold, from their first byte until the sink has them."""
BODY_SECONDS = 60.0
"""A body that takes longer to come is given up: it holds memory that others wait for."""
GRACE_SECONDS = 60.0
"""After the stop a sink has so long to say what became of its records; then their requests wait no more."""

_FORMS: dict[str, Callable[[bytes, str | None], list[Record]]] = {
    "application/json": from_json,
    "application/x-ndjson": from_ndjson,
    "application/jsonl": from_ndjson,
}
_LEAST = 4096
_SHORT = 65536


class RequestRefused(Exception):
    """A request is not taken; nothing of it was."""

    def __init__(self, status: int, error: str, **more: object) -> None:
        super().__init__(error)
        self.response = JSONResponse({"error": error, **more}, status)
        if status == 401:
            self.response.headers["www-authenticate"] = "Bearer"


@dataclass(frozen=True)
class HttpListenerOptions:
    """What a request must keep to."""

    largest: int
    key: str | None = None
    token: str | None = None


class HttpListener:
    """The requests of one run, from the event loop's side."""

    def __init__(self, terms: HttpListenerOptions) -> None:
        self.batches: SimpleQueue[Batch] = SimpleQueue()
        """What was taken and waits for the sink; the budget bounds it."""
        self.ready = threading.Event()
        self.app = Starlette(
            routes=[Route("/", self._post, methods=["POST"]), Route("/healthz", self._health, methods=["GET"])],
            lifespan=self._lifespan,
        )
        self._terms = terms
        self._budget = ByteBudget(max(HELD, 2 * terms.largest))
        self._pending: set[asyncio.Timeout] = set()
        self._verdicts: set[Verdict] = set()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def stop(self) -> None:
        """Take nothing more, from any thread; what the sink was given already is still answered by its verdict."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._stopping = True
        for limit in self._pending:
            with suppress(RuntimeError):  # it is ending just now
                limit.reschedule(asyncio.get_running_loop().time())
        while not self.batches.empty():
            _, done = self.batches.get_nowait()
            if done is not None:
                done(FeedFailed("the feed is stopping"))
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._give_up)

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
        if self._terms.token and not _bears(request, self._terms.token):
            raise RequestRefused(401, "a bearer token is needed, and the right one")
        if _form(request) not in _FORMS:
            raise RequestRefused(415, f"send it as {' or '.join(_FORMS)}")
        if request.headers.get("content-encoding", "identity") != "identity":
            raise RequestRefused(415, "send it uncompressed")
        self._check_open()

    async def _take(self, request: Request) -> Response:
        size = max(self._declared(request), _LEAST)
        await self._unless_stopped(self._budget.take(size))
        try:
            self._check_open()
            body = await self._unless_stopped(self._body(request), BODY_SECONDS)
            return await self._deliver(await self._records(request, body))
        finally:
            self._budget.give(size)

    def _declared(self, request: Request) -> int:
        # In chunks it may be as long as it likes, whatever the other header says.
        if "transfer-encoding" in request.headers:
            return self._terms.largest
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
        parse, key = _FORMS[_form(request)], request.query_params.get("key") or self._terms.key
        try:
            # A long one in a thread, because the loop has other requests to attend to.
            return parse(body, key) if len(body) <= _SHORT else await asyncio.to_thread(parse, body, key)
        except Malformed as error:
            place = "".join(f"{unit} {number}: " for unit, number in error.where.items())
            raise RequestRefused(400, f"{place}{error}", **error.where) from None

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
        if size > self._terms.largest:
            raise RequestRefused(413, f"send at most {format_bytes(self._terms.largest)} at once")


def _form(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _bears(request: Request, token: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    # Headers come decoded as Latin-1, which gives their bytes back. The comparison takes as long for any token.
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), token.encode())

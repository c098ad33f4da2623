"""Questions over HTTP, answered in JSON: the run, its queries, topics, records, dead letters, SQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import wraps
from http import HTTPStatus
from itertools import chain, islice
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from millrace.dashboard.run_interface import DeadLetterQuery, LetterGroup, RunInterface
from millrace.errors import InputError, InvalidOption, MillraceError, NotReady, RedriveBusy, UnknownName
from millrace.masking import bytes_without_secrets
from millrace.telemetry import prometheus
from millrace.telemetry.channels import MAX_TEXT_CHARS, RowBuffer, Slot, plain_value

MOST_RECORDS = 1000
MOST_ROWS = 10_000
MOST_SQL = 100_000
_MISSING = ("name.unknown", "kafka.none", "kafka.topic-unknown")


class Api:
    """Answers for one run."""

    def __init__(self, subject: RunInterface, *, read_only: bool = False) -> None:
        self._subject, self._read_only = subject, read_only

    def healthz(self, request: Request) -> Response:
        """Whether the run is well."""
        health = self._subject.health()
        return _verdict(request, "healthy", health.healthy, health.reasons)

    def readyz(self, request: Request) -> Response:
        """Whether every query has begun."""
        health = self._subject.health()
        return _verdict(request, "ready", health.ready, health.reasons)

    def metrics(self, _: Request) -> Response:
        """Everything for Prometheus."""
        text = prometheus.to_text(self._state(), self._subject.health())
        return PlainTextResponse(text, headers={"Content-Type": prometheus.CONTENT_TYPE})

    def pipeline(self, _: Request) -> Response:
        """What the run is made of."""
        return answer({**self._subject.pipeline(), "actions": not self._read_only}, MOST_SQL)

    def state(self, _: Request) -> Response:
        """The run now."""
        return answer(self._state())

    def query(self, request: Request) -> Response:
        """One query: how it stands, and its batches and lag of late."""
        name = request.path_params["name"]
        statuses = {query["name"]: query for query in self._state().get("queries", ())}
        if name not in statuses:
            raise UnknownName.among("query", name, statuses)
        return answer({**statuses[name], "history": self._rows(f"history:{name}"), "lags": self._rows(f"lag:{name}")})

    def topics(self, _: Request) -> Response:
        """Every topic."""
        return answer(self._subject.topics())

    def records(self, request: Request) -> Response:
        """Records of a topic."""
        asked = request.query_params
        most = _count(asked.get("max"), 100, MOST_RECORDS)
        return answer(self._subject.records(request.path_params["name"], asked.get("from") or "newest", most))

    def dead(self, request: Request) -> Response:
        """Dead letters."""
        return answer(list(self._subject.letters(_letters(request, 100))))

    def export(self, request: Request) -> Response:
        """Dead letters as a file of JSON lines."""
        name = f"dead-letters-{time.strftime('%Y%m%dT%H%M%S')}.jsonl"
        letters = self._subject.letters(_letters(request, None))
        return _Lines(letters, {"Content-Disposition": f'attachment; filename="{name}"'})

    def sql(self, body: bytes) -> Response:
        """Rows of a SELECT over the tables in memory."""
        if self._read_only:
            return problem(403, "the dashboard is read-only", "start the run without --read-only")
        try:
            asked = orjson.loads(body)
            sql, rows = asked["sql"], asked.get("rows", 100)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InvalidOption("the body is not understood", hint='send {"sql": "SELECT …", "rows": 100}') from None
        if not isinstance(sql, str) or len(sql) > MOST_SQL:
            raise InvalidOption("sql is no text, or too long")
        if type(rows) is not int or rows < 1:
            raise InvalidOption("rows is a whole number from 1 on", hint=f"at most {MOST_ROWS:,} are answered")
        return answer(self._subject.sql(sql, min(rows, MOST_ROWS)))

    def redrive(self, body: bytes) -> Response:
        """Dead letters sent again: a group of them, or one."""
        if self._read_only:
            return problem(403, "the dashboard is read-only", "start the run without --read-only")
        try:
            source, topic, reason, letter = map(orjson.loads(body).get, ("source", "topic", "reason", "letter"))
        except (ValueError, AttributeError):
            source = None
        if not isinstance(source, str) or not all(isinstance(part, str | None) for part in (topic, reason, letter)):
            hint = 'send {"source": "posts", "topic": "posts.dead", "reason": "…"}, or a "letter"'
            raise InvalidOption("the body is not understood", hint=hint)
        return answer(self._subject.redrive(LetterGroup(source, topic, reason, letter)))

    def _state(self) -> Mapping[str, Any]:
        channel = self._subject.channels.get("state")
        return (channel.value if isinstance(channel, Slot) else None) or {}

    def _rows(self, name: str) -> list[dict[str, Any]]:
        channel = self._subject.channels.get(name)
        return channel.newest() if isinstance(channel, RowBuffer) else []


def known(ask: Callable[[Request], Response]) -> Callable[[Request], Any]:
    """A question whose answer is in memory: answered at once, however many others are being worked on."""

    @wraps(ask)
    async def answering(request: Request) -> Response:
        return ask(request)

    return answering


def asked(ask: Callable[[Request], Response]) -> Callable[[Request], Any]:
    """A question that may take a while: asked in a thread, its errors as JSON."""

    @wraps(ask)
    async def asking(request: Request) -> Response:
        return await answer_or_problem(ask, request)

    return asking


async def unanswered(request: Request, error: Exception) -> Response:
    """What is not there, or not to be had in this way."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = f"{request.method} {request.url.path}: {HTTPStatus(status).phrase.lower()}"
    response = problem(status, message, "the dashboard is at /; docs/dashboard.md lists what can be asked under /api")
    response.headers.update((isinstance(error, HTTPException) and error.headers) or {})
    return response


async def answer_or_problem(ask: Callable[..., Response], *arguments: Any) -> Response:
    """The answer to a question, or the error as one."""
    try:
        return await run_in_threadpool(ask, *arguments)
    except MillraceError as error:
        return problem(_status(error), error.message, error.hint, error.why)


def answer(value: Any, longest: int = MAX_TEXT_CHARS) -> Response:
    """A value as JSON; longer texts in it are cut."""
    body = bytes_without_secrets(orjson.dumps(plain_value(value, longest)))
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})


def problem(status: int, error: str, hint: str | None = None, why: str | None = None) -> Response:
    """An error as JSON."""
    body = {"error": error, "hint": hint, "why": why}
    return Response(bytes_without_secrets(orjson.dumps(plain_value(body))), status, media_type="application/json")


def _status(error: MillraceError) -> int:
    if isinstance(error, NotReady):
        return 503
    if error.condition in _MISSING:
        return 404
    if isinstance(error, RedriveBusy):
        return 409
    return 400 if isinstance(error, InputError) else 502


def _verdict(request: Request, name: str, verdict: bool, reasons: tuple[str, ...]) -> Response:
    response = answer({name: verdict} | ({"reasons": list(reasons)} if request.scope.get("trusted") else {}))
    response.status_code = 200 if verdict else 503
    return response


def _letters(request: Request, usual: int | None) -> DeadLetterQuery:
    given = request.query_params
    most = given.get("max")
    return DeadLetterQuery(
        given.get("source") or None,
        given.get("reason") or None,
        usual if most is None else _count(most, MOST_RECORDS, 1_000_000 if usual is None else MOST_RECORDS),
        given.get("topic") or None,
        redriven=given.get("all") == "1",
    )


def _count(text: str | None, usual: int, most: int) -> int:
    if not text:
        return usual
    if not text.isascii() or not text.isdigit():
        raise InvalidOption(f"max: {text[:50]!r} is not a number")
    return max(1, min(int(text[:12]), most))


class _Lines(StreamingResponse):
    """Rows as JSON lines; what gives them is closed at the end, also when the client has left before."""

    media_type = "application/x-ndjson"

    def __init__(self, rows: Iterator[Mapping[str, Any]], headers: Mapping[str, str]) -> None:
        self._rest = rows
        rows = chain(list(islice(rows, 1)), rows)  # an error is reported before the file begins
        super().__init__((orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows), headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the rows."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            if isinstance(self._rest, Generator):
                await run_in_threadpool(self._rest.close)

"""Simulated log lines of the applications behind a web shop."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp
from typing import ClassVar, NamedTuple

from millrace.clients.kafka.record import Record
from millrace.feeds.simulation.samples import SIZE, bell, spread, with_draws, zipf
from millrace.feeds.simulation.simulator import Scene, Simulated, iso

_SHOP = {
    "gateway": ("GET /", "GET /health", "GET /favicon.ico", "POST /session"),
    "catalogue": ("GET /products", "GET /products/{}", "GET /categories/{}"),
    "search": ("GET /search", "GET /suggest"),
    "images": ("GET /images/{}.webp", "GET /thumbnails/{}.webp"),
    "basket": ("GET /basket", "POST /basket/items", "DELETE /basket/items/{}"),
    "accounts": ("POST /login", "GET /accounts/{}", "PUT /accounts/{}/address"),
    "checkout": ("POST /checkout", "GET /checkout/{}"),
    "payments": ("POST /payments", "GET /payments/{}", "POST /refunds"),
    "stock": ("GET /stock/{}", "POST /reservations"),
    "reviews": ("GET /reviews/{}", "POST /reviews"),
    "mail": ("POST /messages", "GET /messages/{}"),
    "ledger": ("POST /entries", "GET /balance/{}"),
}
_CAUSES = (
    "upstream timed out",
    "connection pool exhausted",
    "deadlock detected and the transaction rolled back",
    "no route to host",
    "out of memory in worker",
    "certificate has expired",
)
_REFUSALS = ((400, "bad request"), (401, "not signed in"), (404, "not found"), (429, "too many requests"))

_IDS = 5000
_REFUSED = SIZE * 4 // 100
_FAILED = SIZE // 200
_FAILED_IN_OUTAGE = SIZE * 6 // 10
_SLOWER_IN_OUTAGE = 8.0


@dataclass(frozen=True, kw_only=True)
class Weblogs(Simulated):
    """Log lines of the twelve applications behind a web shop, with outages that come and go.

    A few applications write most of the lines. Each has an outage every few minutes, in which most of its
    requests fail for one reason. Latency is in milliseconds. The key is the application.
    """

    schema: ClassVar[str] = (
        "application string, level string, time timestamp, message string, "
        "method string, path string, status int, latency double"
    )
    moment: ClassVar[str] = "time"

    def scene(self, rng: random.Random) -> Scene:
        shop = [_Application(name, requests, rng) for name, requests in _SHOP.items()]
        applications = spread(shop, zipf(len(shop), 1.1))
        latencies = [exp(0.6 * deviation) for deviation in bell()]

        def lines(times: Sequence[int]) -> Iterator[Record]:
            for at, who, what, which, luck, wait in with_draws(times, rng, 5):
                application = applications[who]
                method, path, usual = application.requests[what % len(application.requests)]
                level, status, outcome, slower = application.answer(at, luck)
                path = path.replace("{}", str(which % _IDS))
                latency = f"{usual * slower * latencies[wait]:.1f}"
                value = (
                    f'{application.start}{level}","time":"{iso(at)}",'
                    f'"message":"{method} {path}: {outcome} ({status}) after {latency} ms",'
                    f'"method":"{method}","path":"{path}","status":{status},"latency":{latency}}}'
                )
                yield Record(value.encode(), application.key)

        return lines


class _Answer(NamedTuple):
    level: str
    status: int
    outcome: str
    slower: float


_FINE = _Answer("INFO", 200, "ok", 1.0)
_REFUSED_WITH = [_Answer("WARN", status, outcome, 0.5) for status, outcome in _REFUSALS]


class _Application:
    def __init__(self, name: str, requests: Sequence[str], rng: random.Random) -> None:
        self.start = f'{{"application":"{name}","level":"'
        self.key = name.encode()
        # Method, path, and the usual latency in milliseconds.
        self.requests = [(method, path, rng.uniform(4, 60)) for method, path in map(str.split, requests)]
        self._cause = _Answer("ERROR", 503, rng.choice(_CAUSES), _SLOWER_IN_OUTAGE)
        self._accident = _Answer("ERROR", 500, rng.choice(_CAUSES), 2.0)
        self._period = rng.randrange(180_000, 900_000)
        self._phase = rng.randrange(self._period)
        self._length = rng.randrange(15_000, 60_000)

    def answer(self, at: int, luck: int) -> _Answer:
        if luck < _FAILED:
            return self._accident
        if luck < _FAILED_IN_OUTAGE and (at + self._phase) % self._period < self._length:
            return self._cause
        return _REFUSED_WITH[luck % len(_REFUSED_WITH)] if luck >= SIZE - _REFUSED else _FINE

"""Whether a run is well, and whether it has begun: what `/healthz` and `/readyz` tell."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from millrace.telemetry.board import Board, Phase
from millrace.telemetry.outline import Outline
from millrace.telemetry.samples import Samples

DEAF = 30.0
"""Seconds without an answer from Spark after which the run counts as ill."""


@dataclass(frozen=True, slots=True)
class Health:
    """A verdict with its reasons."""

    healthy: bool
    ready: bool
    reasons: tuple[str, ...] = ()


def health(board: Board, samples: Samples, outline: Outline, now: float | None = None) -> Health:
    """Healthy: every query works, none is dead or restarted, Spark and Kafka answer. Ready: every query has begun."""
    standings = {one.query: one for one in board.queries() if outline.query(one.query).writes}
    ill = [
        f"query {one.query} failed: {one.error.message if one.error else 'nobody knows why'}"
        for one in standings.values()
        if one.phase is Phase.FAILED
    ]
    moment = datetime.now(UTC)
    ill += [f"query {one.query}: {one.restart.sentence(moment)}" for one in standings.values() if one.restart]
    ill += [
        f"a batch of {one.query} failed: {one.error.message}"
        for one in standings.values()
        if one.error and not one.phase.idle and not one.restart
    ]
    ill += [samples.failure] if samples.failure and not ill else []
    if not samples.over:
        ended = [one.query for one in standings.values() if one.phase is Phase.STOPPED]
        ill += [f"query {name} has ended" for name in ended if outline.planned and outline.query(name).lasting]
    alive = any(not one.phase.ended for one in standings.values())
    now = time.monotonic() if now is None else now
    silent = None if board.looked is None else now - board.looked
    if alive and silent is not None and silent > DEAF:
        ill.append(f"Spark has not answered for {silent:.0f} s")
    ill += [str(missing)] if alive and (missing := board.kafka.missing(now)) else []
    begun = {one.query for one in standings.values() if one.phase is not Phase.STARTING}
    absent = [one.name for one in outline.queries if one.writes and one.name not in begun]
    absent += [name for name in standings if name not in begun and name not in absent]
    waiting = [f"query {name} has not begun" for name in absent]
    ready = not ill and not absent and (bool(begun) or not outline.planned)
    return Health(not ill, ready, (*ill, *waiting))

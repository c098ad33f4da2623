"""The queries of a run from start to end: one that fails is started again, and one that is given up ends all.

A query that only draws is started again too, and never ends the run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from millrace.clients.kafka.cluster import Cluster
from millrace.engine.checkpoints.checkpoint import BatchState, batch_state
from millrace.engine.failures.classify import Classification, FailureKind, classify
from millrace.engine.failures.explain import explain
from millrace.engine.queries.builder import QueryBuilder
from millrace.engine.queries.decoding import asks_for_care
from millrace.engine.supervision.restart_policy import GiveUp, Policy, RestartState
from millrace.engine.supervision.stopping import interrupted, stop_all
from millrace.errors import MillraceError
from millrace.errors.spark_text import full_text
from millrace.pipeline.plan import Query
from millrace.settings import STOP_TIMEOUT
from millrace.telemetry.query_status import RestartRecord, RunStatus
from millrace.units import so_many

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK = 0.1
_UNCOUNTED = "rows of real-time queries since their last checkpoint are not counted, and the next run writes them again"
_NOT_AGAIN = "what its source has sent cannot be read again, so a restart would lose records"


@dataclass(eq=False)
class SupervisedQuery:
    """A query of the run, and how it goes with it."""

    query: Query
    course: RestartState
    running: StreamingQuery | None = None
    """None while it waits to be started again."""
    due: float = 0.0
    error: MillraceError | None = None
    """Why it waits, or how it has ended."""
    over: bool = False
    """Whether it was given up, or has done enough."""


@dataclass
class Supervisor:
    """Queries that were started."""

    workshop: QueryBuilder
    run_status: RunStatus
    follow: Callable[[StreamingQuery, str], None]
    """Called with each start of a query, and what is to be added when it has ended."""
    policy: Policy = field(default_factory=Policy)
    queries: list[SupervisedQuery] = field(default_factory=list)
    enough: Callable[[str], bool] = lambda _: False
    """Whether a query has read all that it shall, and is stopped."""
    patience: float = STOP_TIMEOUT.default
    """Seconds that its batch in hand has then."""

    def start(self, query: Query) -> StreamingQuery | None:
        """Start one more; None when it could not be, and only panels miss it."""
        one = SupervisedQuery(query, RestartState(self.policy))
        try:
            self._start(one)
        except MillraceError as error:
            if self._writes(one):
                raise
            self._tell_panels(one, error)
            return None
        self.queries.append(one)
        return one.running

    def wait(self, seconds: float | None, stop: threading.Event) -> None:
        """Wait until nothing is written any more, the time is over or `stop` is set; raises when one is given up."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not stop.wait(_LOOK):
            self.workshop.require_not_lost()  # also while there is no batch that would ask
            # Asked before: one that ends while we look may have failed, which is seen at the next look.
            busy = any(one.running is None or one.running.isActive for one in self._writing())
            for one in [*self.queries]:
                self._check(one)
            busy = busy or any(one.running is None or one.running.isActive for one in self._writing())
            if not busy or (deadline is not None and time.monotonic() >= deadline):
                return

    def stop(self, patience: float) -> list[str]:
        """Stop all of them, those that only draw at once; gives the names of those whose batch was cut off."""
        writing = [one.running for one in self.queries if one.running and self._writes(one)]
        drawing = [one.running for one in self.queries if one.running and not self._writes(one)]
        cut = stop_all(writing, patience, at_once=drawing)
        for one in self.queries:
            self._settle(one, cut=one.running in cut)
        return [one.query.name for one in self._writing() if one.running in cut and one.query.batches]

    def release(self) -> None:
        """Let go of what a batch that failed, or was cut off, has left open: readers would wait behind it.

        Where that does not work, Kafka ends it when its time is over: no reason to tell another failure than the run's.
        """
        with suppress(Exception):
            left = [
                one for one in self._writing() if batch_state(self.workshop.checkpoint(one.query)).batch is not None
            ]
            if left and self.workshop.holds_name():
                for one in left:
                    self.workshop.release(one.query)

    def require_sound(self) -> None:
        """Raise when one that writes failed while it was stopped, or was waiting to be started again."""
        for one in self._writing():
            if one.error is not None:
                raise _of_query(one, one.error)

    def _start(self, one: SupervisedQuery) -> None:
        one.running = self.workshop.start(one.query)
        one.error = None
        one.course.started(time.monotonic())
        self.follow(one.running, _left_out(one.query))

    def _settle(self, one: SupervisedQuery, *, cut: bool) -> None:
        """Find out how a query has ended that was asked to."""
        if one.over:
            return
        if one.running is None:
            if one.error is not None:
                one.error.message += f" (the run was stopped before restart {one.course.number})"
        else:
            failure = None if one.running.isActive else one.running.exception()
            if failure is None:
                return
            if asks_for_care(failure):
                if self.workshop.take_care(one.query):  # the next run begins with it
                    self._tell_care(one, "the next run")
            elif not cut and not interrupted(failure):
                one.error = self._explained(one, failure)
        self.run_status.ended(one.query.name, one.error, _left_out(one.query))

    def _check(self, one: SupervisedQuery) -> None:
        """See to one query."""
        if one.over:
            return
        if one.running is None:
            if time.monotonic() >= one.due:
                self._restart(one)
        elif one.running.isActive:
            if self.enough(one.query.name):
                stop_all([one.running], self.patience)
                one.over = True
                self.run_status.ended(one.query.name, left=_left_out(one.query))
            elif one.course.calm(time.monotonic()) and self._idle(one):
                one.course.forget()
                self.run_status.recovered(one.query.name)
        elif (failure := one.running.exception()) is not None:
            self._ended(one, failure)

    def _ended(self, one: SupervisedQuery, failure: BaseException) -> None:
        """See to one that has ended by itself."""
        try:
            careful = asks_for_care(failure) and self.workshop.take_care(one.query)
        except OSError as error:  # a store that is away: the query ends in the same way when it is back
            self._failed(one, error)
            return
        if careful:
            self._tell_care(one, "it")
            self._restart(one)
        else:
            self._failed(one, failure)

    def _tell_care(self, one: SupervisedQuery, who: str) -> None:
        met = f"query {one.query.name!r} has met its first bad record"
        self.workshop.tell(f"{met}: {who} runs the batch again, and looks at each record from now on")

    def _idle(self, one: SupervisedQuery) -> bool:
        """Whether no batch is at work, which might be the one that failed."""
        if not one.query.batches:
            return True
        at = self._in_hand(one)
        return at is not None and at.batch is None

    def _in_hand(self, one: SupervisedQuery) -> BatchState | None:
        """How far a query is; None where nobody can tell: its state is on a store that is away."""
        try:
            return batch_state(self.workshop.checkpoint(one.query))
        except OSError:
            return None

    def _restart(self, one: SupervisedQuery) -> None:
        try:
            self._start(one)
        except MillraceError as error:  # what it needs is still away
            self._failed(one, error)

    def _failed(self, one: SupervisedQuery, failure: BaseException) -> None:
        """Decide what becomes of a query that has failed."""
        error = self._explained(one, failure)
        at = self._in_hand(one) or BatchState(one.course.done)
        verdict = self._verdict(one, error, full_text(failure))
        decided = one.course.failed(verdict, done=at.done, batch=at.batch)
        if isinstance(decided, GiveUp):
            self._give_up(one, error, _tried(decided, at))
            return
        one.running, one.error, one.due = None, error, time.monotonic() + decided.seconds
        due = datetime.now(UTC) + timedelta(seconds=decided.seconds)
        self.run_status.restarting(one.query.name, error, RestartRecord(decided.number, decided.most, due, verdict.why))
        self._tell_panels(one, error)

    def _verdict(self, one: SupervisedQuery, error: MillraceError, text: str) -> Classification:
        verdict = classify(error, text)
        if verdict.kind is FailureKind.TERMINAL or not self._writes(one) or self.workshop.rereads(one.query):
            return verdict
        error.why = "; ".join(filter(None, (error.why, _NOT_AGAIN)))
        return Classification(FailureKind.TERMINAL, _NOT_AGAIN)

    def _give_up(self, one: SupervisedQuery, error: MillraceError, tried: str = "") -> None:
        """Tell that a query is dead; one that writes ends the run."""
        one.error, one.over = error, True
        error.message += f" ({tried})" if tried else ""
        self.run_status.ended(one.query.name, error)
        if self._writes(one):
            raise _of_query(one, error)
        self.queries.remove(one)
        self._tell_panels(one, error)

    def _writing(self) -> list[SupervisedQuery]:
        return [one for one in self.queries if self._writes(one)]

    def _writes(self, one: SupervisedQuery) -> bool:
        """Whether the run depends on it, or it only draws, where somebody sees it."""
        return one.query.lasts or self.workshop.gallery is None

    def _tell_panels(self, one: SupervisedQuery, error: MillraceError) -> None:
        if self.workshop.gallery and not self._writes(one):
            self.workshop.gallery.fail(one.query.panels, error)

    def _explained(self, one: SupervisedQuery, failure: BaseException) -> MillraceError:
        error = explain(failure, cluster=self._cluster(), checkpoint=self.workshop.checkpoint(one.query))
        if error is not failure:
            error.__cause__ = failure
        return error

    def _cluster(self) -> Cluster | None:
        try:
            return self.workshop.ground.cluster()
        except MillraceError:
            return None


def _left_out(query: Query) -> str:
    """What the figures of a query leave out when it has ended."""
    return "" if query.batches else _UNCOUNTED


def _of_query(one: SupervisedQuery, error: MillraceError) -> MillraceError:
    """The error as it ends the run: it says whose it is."""
    told = copy(error)
    told.message = f"query {one.query.name!r} failed: {error.message}"
    told.__cause__ = error.__cause__
    return told


def _tried(decided: GiveUp, at: BatchState) -> str:
    """What was tried, in words; nothing when it was clear at once that nothing would help."""
    if decided.same:
        return f"{decided.same} times at the same batch, {at}"
    return f"given up after {so_many(decided.restarts, 'restart')}" if decided.restarts else ""

"""Supervises the queries of a run from start to stop.

- A query that fails is restarted after a delay, or given up (`restart_policy`).
- A query with sinks that is given up ends the run. A query that only feeds panels never does.
- A query that has read as much as it should, as in a replay, is stopped.
- A query that fails when its last batch is committed has ended: another start would plan a batch in which all is late.
- All queries are stopped at the end of the run, between two batches if possible (`stopping`).
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
from millrace.engine.checkpoints.last_batch import LAST_BATCH, is_last_batch_done
from millrace.engine.failures.classify import Classification, FailureKind, classify
from millrace.engine.failures.explain import explain
from millrace.engine.queries.builder import QueryBuilder
from millrace.engine.supervision.restart_policy import GiveUp, Policy, RestartState
from millrace.engine.supervision.stopping import is_interruption, stop_all
from millrace.errors import MillraceError
from millrace.errors.spark_text import full_text
from millrace.pipeline.plan import Query
from millrace.settings import STOP_TIMEOUT
from millrace.telemetry.query_status import RestartRecord, RunStatus
from millrace.units import format_count

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_INTERVAL_S = 0.1
_UNCOUNTED = "rows of real-time queries since their last checkpoint are not counted, and the next run writes them again"
_NOT_REREADABLE = "its source cannot be read again, so a restart would lose records"


@dataclass(eq=False)
class SupervisedQuery:
    """A query of the run and its current state."""

    query: Query
    restart_state: RestartState
    streaming: StreamingQuery | None = None
    """The query in Spark; None while it waits for a restart."""
    restart_at: float = 0.0
    error: MillraceError | None = None
    """Why it waits for a restart, or how it ended."""
    ended: bool = False
    """Whether it was given up, has read enough, or has run its last batch."""

    @property
    def name(self) -> str:
        return self.query.name

    @property
    def is_busy(self) -> bool:
        """Whether it runs or waits for a restart."""
        return not self.ended and (self.streaming is None or self.streaming.isActive)


@dataclass
class Supervisor:
    """The queries that were started, and what becomes of them."""

    builder: QueryBuilder
    run_status: RunStatus
    track: Callable[[StreamingQuery, str], None]
    """Called at each start of a query, with a note for its end."""
    policy: Policy = field(default_factory=Policy)
    queries: list[SupervisedQuery] = field(default_factory=list)
    has_read_enough: Callable[[str], bool] = lambda _: False
    """Returns whether the query of that name has read everything it should, and is to be stopped."""
    stop_timeout_s: float = STOP_TIMEOUT.default
    """How long the running batch of such a query may take."""

    def start(self, query: Query) -> StreamingQuery | None:
        """Start a query; return None if it cannot be started and only feeds panels."""
        supervised = SupervisedQuery(query, RestartState(self.policy))
        try:
            self._start(supervised)
        except MillraceError as error:
            if self._writes(supervised):
                raise
            self._show_on_panels(supervised, error)
            return None
        self.queries.append(supervised)
        return supervised.streaming

    def start_last_batch(self, query: Query) -> None:
        """Start a query that has ended once more, for a batch that is planned."""
        supervised = SupervisedQuery(query, RestartState(self.policy))
        self.queries = [*(other for other in self.queries if other.name != query.name), supervised]
        try:
            self._start(supervised)
        except MillraceError as error:  # the batch is planned, so it is tried again
            self._failed(supervised, error)

    def is_busy(self) -> bool:
        """Return whether a query with sinks runs or waits for a restart."""
        return any(supervised.is_busy for supervised in self._writing())

    def wait(self, seconds: float | None, stop: threading.Event) -> None:
        """Wait until every query with sinks has ended, the time is over or `stop` is set.

        Raise the error of a query with sinks that is given up.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not stop.wait(_POLL_INTERVAL_S):
            self.builder.context.lock.check_cached()  # also while there is no batch that would ask
            # Looked at before the checks: a query that ends during them may have failed, which the next round sees.
            busy = self.is_busy()
            for supervised in [*self.queries]:
                self._check(supervised)
            busy = busy or self.is_busy()
            if not busy or (deadline is not None and time.monotonic() >= deadline):
                return

    def stop(self, timeout_s: float) -> list[str]:
        """Stop all queries; return the names of those whose batch took too long and was interrupted."""
        writing = [supervised.streaming for supervised in self._writing() if supervised.streaming]
        others = (supervised for supervised in self.queries if not self._writes(supervised))
        only_panels = [supervised.streaming for supervised in others if supervised.streaming]
        interrupted = stop_all(writing, timeout_s, at_once=only_panels)
        for supervised in self.queries:
            self._record_end(supervised, interrupted=supervised.streaming in interrupted)
        cut_off = (supervised for supervised in self._writing() if supervised.streaming in interrupted)
        return [supervised.name for supervised in cut_off if supervised.query.batches]

    def release(self, is_name_held: Callable[[], bool]) -> None:
        """End the transactions that failed or interrupted batches left open: they would block readers.

        Where that does not work, Kafka ends them after their timeout, so the failure of the run is reported, not this.
        """
        with suppress(Exception):
            queries = [supervised.query for supervised in self._writing()]
            unfinished = [query for query in queries if batch_state(self.builder.checkpoint(query)).batch is not None]
            for query in unfinished if unfinished and is_name_held() else ():
                self.builder.release(query)

    def require_no_failure(self) -> None:
        """Raise if a query with sinks failed while it was stopped, or was waiting for a restart."""
        for supervised in self._writing():
            if supervised.error is not None:
                raise _error_of_run(supervised, supervised.error)

    def _start(self, supervised: SupervisedQuery) -> None:
        supervised.streaming = self.builder.start(supervised.query)
        supervised.error = None
        supervised.restart_state.started(time.monotonic())
        self.track(supervised.streaming, _end_note(supervised.query))

    def _record_end(self, supervised: SupervisedQuery, *, interrupted: bool) -> None:
        if supervised.ended:
            return
        if supervised.streaming is None:
            if supervised.error is not None:
                supervised.error.message += f" (the run was stopped before restart {supervised.restart_state.number})"
        else:
            failure = None if supervised.streaming.isActive else supervised.streaming.exception()
            if failure is None:
                return
            if not interrupted and not is_interruption(failure):
                supervised.error = self._explain(supervised, failure)
        self.run_status.ended(supervised.name, supervised.error, _end_note(supervised.query))

    def _check(self, supervised: SupervisedQuery) -> None:
        """Restart, stop or give up a query, if it is time to."""
        if supervised.ended:
            return
        now = time.monotonic()
        if supervised.streaming is None:
            if now >= supervised.restart_at:
                try:
                    if self._has_run_last_batch(supervised):
                        self._end(supervised)
                    else:
                        self._start(supervised)
                except (MillraceError, OSError) as error:  # what it needs is still unreachable
                    self._failed(supervised, error)
        elif supervised.streaming.isActive:
            if self.has_read_enough(supervised.name):
                stop_all([supervised.streaming], self.stop_timeout_s)
                self._end(supervised)
            elif supervised.restart_state.is_healthy(now) and self._is_between_batches(supervised):
                supervised.restart_state.reset()
                self.run_status.recovered(supervised.name)
        elif (failure := supervised.streaming.exception()) is not None:
            self._failed(supervised, failure)

    def _end(self, supervised: SupervisedQuery) -> None:
        supervised.ended, supervised.error = True, None
        self.run_status.ended(supervised.name, left=_end_note(supervised.query))

    def _has_run_last_batch(self, supervised: SupervisedQuery) -> bool:
        """Return whether a query was started for its last batch, and that is committed."""
        return supervised.query.trigger == LAST_BATCH and is_last_batch_done(self.builder.checkpoint(supervised.query))

    def _is_between_batches(self, supervised: SupervisedQuery) -> bool:
        """Return whether no batch is running that might be the one that failed."""
        state = self._batch_state(supervised) if supervised.query.batches else BatchState()
        return state is not None and state.batch is None

    def _batch_state(self, supervised: SupervisedQuery) -> BatchState | None:
        """Return which batches are committed and started; None if the store of the state is unreachable."""
        with suppress(OSError):
            return batch_state(self.builder.checkpoint(supervised.query))
        return None

    def _failed(self, supervised: SupervisedQuery, failure: BaseException) -> None:
        """Decide whether a failed query is restarted or given up, if it had not done all before."""
        with suppress(OSError):
            if self._has_run_last_batch(supervised):
                self._end(supervised)
                return
        error = self._explain(supervised, failure)
        state = self._batch_state(supervised) or BatchState(supervised.restart_state.committed_batch)
        classification = self._classify(supervised, error, full_text(failure))
        decision = supervised.restart_state.failed(classification, committed_batch=state.done, batch=state.batch)
        if isinstance(decision, GiveUp):
            self._give_up(supervised, error, _attempts(decision, state))
            return
        supervised.streaming, supervised.error = None, error
        supervised.restart_at = time.monotonic() + decision.delay_s
        due = datetime.now(UTC) + timedelta(seconds=decision.delay_s)
        record = RestartRecord(decision.number, decision.max_number, due, classification.why)
        self.run_status.restarting(supervised.name, error, record)
        self._show_on_panels(supervised, error)

    def _classify(self, supervised: SupervisedQuery, error: MillraceError, text: str) -> Classification:
        classification = classify(error, text)
        terminal = classification.kind is FailureKind.TERMINAL
        if terminal or not self._writes(supervised) or self.builder.rereads(supervised.query):
            return classification
        error.why = "; ".join(filter(None, (error.why, _NOT_REREADABLE)))
        return Classification(FailureKind.TERMINAL, _NOT_REREADABLE)

    def _give_up(self, supervised: SupervisedQuery, error: MillraceError, attempts: str) -> None:
        """Give a query up; raise its error if it has sinks."""
        supervised.error, supervised.ended = error, True
        error.message += f" ({attempts})" if attempts else ""
        self.run_status.ended(supervised.name, error)
        if self._writes(supervised):
            raise _error_of_run(supervised, error)
        self.queries.remove(supervised)
        self._show_on_panels(supervised, error)

    def _writing(self) -> list[SupervisedQuery]:
        return [supervised for supervised in self.queries if self._writes(supervised)]

    def _writes(self, supervised: SupervisedQuery) -> bool:
        """Return whether the run depends on a query; it does not on one that only feeds panels that are shown."""
        return supervised.query.lasts or self.builder.panels is None

    def _show_on_panels(self, supervised: SupervisedQuery, error: MillraceError) -> None:
        if self.builder.panels and not self._writes(supervised):
            self.builder.panels.fail(supervised.query.panels, error)

    def _explain(self, supervised: SupervisedQuery, failure: BaseException) -> MillraceError:
        cluster: Cluster | None = None
        with suppress(MillraceError):
            cluster = self.builder.context.cluster()
        error = explain(failure, cluster=cluster, checkpoint=self.builder.checkpoint(supervised.query))
        if error is not failure:
            error.__cause__ = failure
        return error


def _end_note(query: Query) -> str:
    """Return what the figures of a query leave out."""
    return "" if query.batches else _UNCOUNTED


def _error_of_run(supervised: SupervisedQuery, error: MillraceError) -> MillraceError:
    """Return the error with which a query ends the run; it names the query."""
    named = copy(error)
    named.message = f"query {supervised.name!r} failed: {error.message}"
    named.__cause__ = error.__cause__
    return named


def _attempts(decision: GiveUp, state: BatchState) -> str:
    """Return what was tried before a query was given up; empty if a restart could not have helped."""
    if decision.same_batch_failures:
        return f"{decision.same_batch_failures} times at the same batch, {state}"
    return f"given up after {format_count(decision.restarts, 'restart')}" if decision.restarts else ""

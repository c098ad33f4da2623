"""Commits do not delay batches, and the last one happens at the end."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from millrace.dstreams.batch_log import DStreamBatchLog
from millrace.dstreams.context_tracker import SourceState
from millrace.dstreams.source import StreamSource
from millrace.errors import TakenOver


class Slow(StreamSource):
    """A source whose commits take until the test says so."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self.answer, self.asked, self.closed = threading.Event(), threading.Event(), False
        self.committed: list[int] = []
        self.failure = failure

    def description(self) -> str:
        return "slow"

    def next_input(self, previous: Any, batch: Any, client: Any) -> Any:
        raise NotImplementedError

    def empty_input(self, previous: Any) -> Any:
        raise NotImplementedError

    def read(self, batch_input: Any, batch: Any, client: Any) -> Any:
        raise NotImplementedError

    def record_count(self, batch_input: Any) -> int:
        raise NotImplementedError

    def commit(self, batch_input: Any, client: Any) -> bool:
        self.asked.set()
        assert self.answer.wait(30)
        if self.failure:
            raise self.failure
        self.committed.append(batch_input["until"])
        return True

    def close(self, client: Any) -> None:
        self.closed = True


def state_of(source: Slow) -> SourceState:
    """With three batches."""
    state = SourceState(source, DStreamBatchLog(None, source.stream), None)
    for time in (100, 200, 300):
        state.batch_log.write(time, {"until": time})
    return state


def test_nobody_waits_for_an_answer_but_the_end_does() -> None:
    source = Slow()
    state = state_of(source)
    state.commit(100)
    assert source.asked.wait(30)
    state.commit(200)  # while the first is still being told
    assert source.committed == []
    source.answer.set()
    state.close(300)
    assert source.committed == [100, 300]
    assert source.closed


def test_what_went_wrong_is_raised_to_whoever_comes_next() -> None:
    source = Slow(TakenOver("another program has it"))
    state = state_of(source)
    source.answer.set()
    state.commit(100)
    assert state._commit_thread
    state._commit_thread.join()
    with pytest.raises(TakenOver):
        state.commit(200)
    with pytest.raises(TakenOver):
        state.close(200)
    assert source.closed

"""That batches are done is told outside without keeping anybody waiting, and for certain at the end."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from millrace.dstreams.context_tracker import SourceState
from millrace.dstreams.source import StreamSource
from millrace.errors import TakenOver


class Slow(StreamSource):
    """Where it is told that batches are done, nobody answers until the test says so."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self.answer, self.asked, self.closed = threading.Event(), threading.Event(), False
        self.settled: list[int] = []
        self.failure = failure

    def described(self) -> str:
        return "slow"

    def decide(self, before: Any, batch: Any, opened: Any) -> Any:
        raise NotImplementedError

    def nothing(self, before: Any) -> Any:
        raise NotImplementedError

    def read(self, note: Any, batch: Any, opened: Any) -> Any:
        raise NotImplementedError

    def count(self, note: Any) -> int:
        raise NotImplementedError

    def settle(self, note: Any, opened: Any) -> bool:
        self.asked.set()
        assert self.answer.wait(30)
        if self.failure:
            raise self.failure
        self.settled.append(note["until"])
        return True

    def close(self, opened: Any) -> None:
        self.closed = True


def flow_of(inflow: Slow) -> SourceState:
    """With three batches."""
    flow = SourceState(inflow, None, None)
    for time in (100, 200, 300):
        flow.notes.write(time, {"until": time})
    return flow


def test_nobody_waits_for_an_answer_but_the_end_does() -> None:
    inflow = Slow()
    flow = flow_of(inflow)
    flow.settle(100)
    assert inflow.asked.wait(30)
    flow.settle(200)  # while the first is still being told
    assert inflow.settled == []
    inflow.answer.set()
    flow.close(300)
    assert inflow.settled == [100, 300]
    assert inflow.closed


def test_what_went_wrong_is_raised_to_whoever_comes_next() -> None:
    inflow = Slow(TakenOver("another program has it"))
    flow = flow_of(inflow)
    inflow.answer.set()
    flow.settle(100)
    assert flow._telling
    flow._telling.join()
    with pytest.raises(TakenOver):
        flow.settle(200)
    with pytest.raises(TakenOver):
        flow.close(200)
    assert inflow.closed

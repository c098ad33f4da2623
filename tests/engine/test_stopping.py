"""How queries are stopped: those that write between two batches, those that only draw at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from millrace.engine.stopping import stop_all


class _Query:
    """A query in a batch that ends when it is told to."""

    def __init__(self) -> None:
        self.isActive = True
        self.doing = "Processing new data"

    @property
    def status(self) -> dict[str, Any]:
        return {"message": self.doing}

    def stop(self) -> None:
        self.isActive = False


def test_a_batch_that_only_closes_windows_is_waited_for_too() -> None:
    query = _Query()
    query.doing = "No new data but cleaning up state"
    assert stop_all([query], 0.0) == [query]  # type: ignore[list-item, comparison-overlap]
    assert not query.isActive


def test_only_what_is_kept_is_waited_for() -> None:
    writing, drawing = _Query(), _Query()
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(stop_all, [writing], 60.0, at_once=[drawing])  # type: ignore[list-item]
        while drawing.isActive:
            assert not ending.done(), ending.exception()
        assert writing.isActive
        writing.doing = "Waiting for data to arrive"
        ending.result(30)
    assert not writing.isActive

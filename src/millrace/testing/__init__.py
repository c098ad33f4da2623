"""Pipelines put to the test: rows given per source, a batch a step, and the rows, late rows and dead letters expected.

    from millrace.testing import trial

    with trial("trending.yaml") as test:
        test.give(posts=[{"id": "a", "text": "#rain", "at": "2026-05-04T12:00:00Z"}])
        test.expect("hashtags", [{"tag": "rain"}])

In pytest, `millrace_test("trending.yaml")` is the same and closes itself; `*.test.yaml` files are tests too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace.testing.compare import Different
    from millrace.testing.pipeline_test import Trial, trial

__all__ = ["Different", "Trial", "trial"]


def __getattr__(name: str) -> Any:
    if name == "Different":
        from millrace.testing.compare import Different

        return Different
    if name in ("Trial", "trial"):
        from millrace.testing import pipeline_test as module

        return getattr(module, name)
    raise AttributeError(f"module 'millrace.testing' has no attribute {name!r}")

"""Test pipelines: give rows to each source, a batch a step, and expect rows, late rows and dead letters.

    from millrace.testing import PipelineTest

    with PipelineTest("trending.yaml") as test:
        test.give(posts=[{"id": "a", "text": "#rain", "at": "2026-05-04T12:00:00Z"}])
        test.expect("hashtags", [{"tag": "rain"}])

In pytest, `millrace_test("trending.yaml")` is the same and closes itself; `*.test.yaml` files are tests too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace.testing.compare import Different
    from millrace.testing.pipeline_test import PipelineTest

    Trial = trial = PipelineTest

__all__ = ["Different", "PipelineTest", "Trial", "trial"]


def __getattr__(name: str) -> Any:
    if name == "Different":
        from millrace.testing.compare import Different

        return Different
    if name in ("PipelineTest", "Trial", "trial"):  # the last two are its old names, for one release
        from millrace.testing.pipeline_test import PipelineTest

        return PipelineTest
    raise AttributeError(f"module 'millrace.testing' has no attribute {name!r}")

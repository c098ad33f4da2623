"""Questions to a JVM that is gone are no news."""

from __future__ import annotations

from typing import Any

from millrace.dstreams.jvm_internals import await_failure, stop_streams


class Gone:
    """A context whose JVM has ended."""

    def __getattr__(self, _: str) -> Any:
        def refused(*_: Any) -> None:
            raise ConnectionRefusedError

        return refused


def test_a_context_whose_jvm_is_gone_has_failed_and_is_stopped() -> None:
    await_failure(Gone())
    stop_streams(Gone())

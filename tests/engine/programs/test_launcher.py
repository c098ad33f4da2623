"""A StreamingContext that could not be started is not called started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.programs.test_dstream_monitor import Failing
from millrace.engine.programs.launcher import ProgramLauncher
from millrace.engine.session.jvm import OutputRouting
from millrace.telemetry.query_status import RunStatus


class Fresh(Failing):
    """A context that is not started yet."""

    def getState(self) -> Any:  # noqa: N802 - Spark's name
        return SimpleNamespace(toString=lambda: "INITIALIZED")


def test_a_context_that_spark_refuses_to_start_was_never_started(tmp_path: Path) -> None:
    def refuse(_: Any) -> None:
        raise RuntimeError("The checkpoint directory has not been set")

    run_status = RunStatus()
    guest = ProgramLauncher(run_status, master=None, settings={}, log=tmp_path / "log", output=OutputRouting())
    with pytest.raises(RuntimeError):
        guest._with_monitor(refuse)(cast("Any", Fresh("", None)))
    assert run_status.queries() == ()

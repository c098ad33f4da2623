"""What ends a run is an alert, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millrace.cli.run_options import AlertSettings, alerting
from millrace.errors import MillraceError, SparkFailed
from millrace.pipeline.loading import load
from millrace.pipeline.plan import Plan, make_plan
from millrace.telemetry.alerts import Alert, Limits
from millrace.telemetry.query_status import RunStatus

Run = Callable[..., Any]

PIPELINE = """
name: ticks
sources: {ticks: {rate: 1}}
sinks: [{from: ticks, console: }]
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "ticks.yaml").write_text(PIPELINE)
    return make_plan(load(str(tmp_path / "ticks.yaml")))


@pytest.mark.parametrize(
    ("error", "why"),
    [(SparkFailed("Spark could not be started"), "Spark could not be started"), (OSError(28, "full"), "OSError")],
)
def test_an_error_that_ends_a_run_is_told(plan: Plan, error: Exception, why: str) -> None:
    told: list[Alert] = []

    def send(alert: Alert) -> None:
        told.append(alert)

    with (
        pytest.raises((MillraceError, OSError)),
        alerting(AlertSettings(send, Limits()), plan, RunStatus(), None, None),
    ):
        raise error
    assert [(one.pipeline, one.what) for one in told] == [("ticks", "gave-up")]
    assert why in told[0].why


def test_windows_are_flushed_only_where_everything_is_read(offline_run: Run, plan: Plan) -> None:
    del plan  # whose file it is
    error = offline_run("run", "ticks.yaml", "--flush", code=2).err
    assert "error[option.invalid]: --flush ends event time" in error
    assert "--until-caught-up" in error

"""A state that was written with deprecated names of options resumes unchanged under the current ones, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millrace as mr
from millrace.connectors.base.registry import CONNECTORS
from millrace.engine.checkpoints.query_history import record_start
from millrace.engine.checkpoints.resume import RESUMES, resume_decisions
from millrace.pipeline.compatibility.query_snapshot import snapshot_query
from millrace.pipeline.plan import Plan, make_plan

OLD: dict[str, Any] = {"lost": "go_on", "on_bad": "dead"}
NEW: dict[str, Any] = {"on_data_loss": "continue", "on_bad": "dead_letter"}


def plan(source: dict[str, Any], sink: dict[str, Any]) -> Plan:
    pipeline = mr.Pipeline("p")
    pipeline.source("posts", mr.kafka("posts", schema="n int", **source))
    pipeline.sink("posts", mr.kinesis("out", region="eu-north-1", **sink))
    return make_plan(pipeline.model())


def ran(state: Path, before: Plan) -> None:
    """Leave the state of a run that has committed one batch."""
    (query,) = before.queries
    record_start(state, query.name, snapshot_query(before.pipeline, query, CONNECTORS), None)
    for folder in ("offsets", "commits"):
        path = state / "checkpoints" / query.name / folder / "0"
        path.parent.mkdir(parents=True)
        path.write_text('v1\n{"conf":{}}\n{"posts":{"0":7}}')


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (plan(OLD, {"patience": "1m"}), plan(NEW, {"retry_timeout": "1m"})),
        (plan(NEW, {"retry_timeout": "1m"}), plan(OLD, {"patience": "1m"})),
    ],
)
def test_another_name_of_an_option_is_no_change(tmp_path: Path, before: Plan, now: Plan) -> None:
    ran(tmp_path, before)
    (decision,) = resume_decisions(now, tmp_path, None)
    assert (decision.verdict, decision.changes) == (RESUMES, ())


def test_another_value_is_a_change_under_the_current_name(tmp_path: Path) -> None:
    ran(tmp_path, plan(OLD, {}))
    (decision,) = resume_decisions(plan({"lost": "fail"}, {}), tmp_path, None)
    assert sorted(one.what.partition(" was ")[0] for one in decision.changes) == [
        "posts: on_bad",
        "posts: on_data_loss",
    ]

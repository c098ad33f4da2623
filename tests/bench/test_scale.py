"""The simulation behind docs/scale.md: its tables are what it says, and more of everything is never worse."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scale() -> Any:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("bench_scale", ROOT / "bench" / "scale" / "simulate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("cost", [24.8e-6, 3.1e-6])
def test_the_page_has_what_the_simulation_says(scale: Any, cost: float) -> None:
    assert scale.table(scale.Costs(record=cost)) in (ROOT / "docs" / "scale.md").read_text("utf-8")


def test_measured_costs_are_those_of_the_pages(scale: Any) -> None:
    performance = (ROOT / "docs" / "performance.md").read_text("utf-8")
    for part, cost in (("## A:", scale.Costs.record), ("## E:", scale.Costs.written)):
        row = next(line for line in performance[performance.index(part) :].splitlines() if "**Millrace**" in line)
        assert f"| {cost * 1e6:.1f} |" in row
    page = (ROOT / "docs" / "decisions" / "0016-exactly-once.md").read_text("utf-8")
    assert f"({scale.Costs.batch * 1000:.0f} against" in page


def test_every_rate_is_kept_up_with(scale: Any) -> None:
    costs = scale.Costs()
    plans = [scale.plan(rate, costs) for rate in scale.RATES]
    assert [one.cores for one in plans] == sorted(one.cores for one in plans)
    for one in plans:
        seen = scale.simulate(one, costs)
        assert seen.batch <= seen.slowest
        assert seen.catching_up < 3600


def test_too_few_cores_never_catch_up(scale: Any) -> None:
    costs = scale.Costs()
    few = scale.Plan(1_000_000, 10, 2, 10, 14, 0.0, 0.0)
    assert (
        scale.simulate(few, costs, minutes=0.1).catching_up
        > scale.simulate(scale.plan(1_000_000, costs), costs).catching_up
    )

"""The simulation behind docs/scale.md: its tables are what it says, and more of everything is never worse."""

from __future__ import annotations

import importlib.util
import math
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


def test_the_page_has_what_the_simulation_says(scale: Any) -> None:
    text = (ROOT / "docs" / "scale.md").read_text("utf-8")
    assert scale.page(text) == text, "run python bench/scale/simulate.py"


def test_measured_costs_are_read_from_where_they_are_written_down(scale: Any) -> None:
    """The figures of docs/performance.md, by their place in its tables; they are written nowhere else."""
    performance = (ROOT / "docs" / "performance.md").read_text("utf-8")
    more = performance[performance.index("## With more records") :]
    assert f"| {scale.measured('W') * 1e6:.1f} | " in more
    assert f" {scale.measured('A') * 1e6:.1f} |" in more
    assert scale.Costs().record == scale.measured("A")
    assert f"| {scale.Costs().written * 1e6:.1f} | " in performance[performance.index("## E:") :]
    assert scale.Costs().batch == scale.smallest_batch() > 0
    program = (ROOT / "bench" / "scale" / "simulate.py").read_text("utf-8")
    assert not [job for job in "WAE" if f"{scale.measured(job) * 1e6:.1f}" in program]


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
    few = scale.Plan(1_000_000, 3, 2, 10, 14, 0.0, 0.0)
    assert scale.simulate(few, costs, minutes=0.1).catching_up == math.inf

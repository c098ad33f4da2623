"""The text of Prometheus can be parsed, and has the same figures."""

from __future__ import annotations

import re

from millrace.telemetry.measurements import Lag, Measurements
from millrace.telemetry.metrics import Health, run_state
from millrace.telemetry.prometheus import to_text

from .runs import NOW, OUTLINE, batch, running

LINE = re.compile(
    r'^(?P<name>[a-z_]+)(?:\{(?P<labels>(?:[a-z]+="(?:[^"\\\n]|\\[\\n"])*",?)+)\})? (?P<value>-?[0-9.e+-]+)$'
)


def parsed(told: str) -> dict[tuple[str, str], float]:
    """Every sample; each must belong to the family above it."""
    found: dict[tuple[str, str], float] = {}
    family = ""
    for line in told.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert not any(name == family for name, _ in found), f"{family} comes twice"
        elif line.startswith("# TYPE "):
            assert line.split()[2:] in ([family, "gauge"], [family, "counter"])
            assert line.endswith("counter") == family.endswith("_total")
        else:
            match = LINE.match(line)
            assert match, line
            assert match["name"] == family
            found[match["name"], match["labels"] or ""] = float(match["value"])
    assert told.endswith("\n")
    return found


def test_figures() -> None:
    measurements = Measurements()
    measurements.put_lag("popular", Lag(12, 1.5))
    run_status = running(batch(late_rows=2))
    run_status.set_dead_letters('po"sts\\\n', 3)
    found = parsed(to_text(run_state(run_status, measurements, OUTLINE, NOW), Health(True, True)))
    label = 'query="popular"'
    assert found["millrace_query_restarts_total", label] == 0
    assert found["millrace_query_phase", 'phase="restarting",query="popular"'] == 0
    assert found["millrace_query_lag_records", label] == 12
    assert found["millrace_query_lag_seconds", label] == 1.5
    assert found["millrace_query_input_rows_total", label] == 100
    assert found["millrace_query_batch_seconds", label] == 0.5
    assert found["millrace_query_phase", 'phase="running",query="popular"'] == 1
    assert found["millrace_query_phase", 'phase="failed",query="popular"'] == 0
    assert found["millrace_dead_letters_total", r'source="po\"sts\\\n"'] == 3
    assert found["millrace_healthy", ""] == 1


def test_what_is_not_known_is_left_out() -> None:
    found = parsed(to_text({}, Health(False, False)))
    assert found == {("millrace_healthy", ""): 0, ("millrace_ready", ""): 0}


def test_delays_of_dstreams() -> None:
    found = parsed(to_text(run_state(running(batch(waited=250)), Measurements(), OUTLINE, NOW), Health(True, True)))
    assert found["millrace_query_scheduling_delay_seconds", 'query="popular"'] == 0.25
    assert found["millrace_query_total_delay_seconds", 'query="popular"'] == 0.75

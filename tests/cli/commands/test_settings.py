"""`millrace settings` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millrace.settings import SETTINGS

Run = Callable[..., Any]


def test_every_setting_is_listed(offline_run: Run) -> None:
    found = json.loads(offline_run("settings", "--json").out)
    assert [one["variable"] for one in found] == [one.variable for one in SETTINGS]
    assert all(one.keys() == {"variable", "value", "default", "help"} and one["help"] for one in found)
    table = offline_run("settings").out
    assert all(one.variable in table for one in SETTINGS)


def test_what_holds_now_is_told(offline_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_KAFKA", "a:1,b:2")
    monkeypatch.setenv("MILLRACE_KAFKA_TIMEOUT", "1m30s")
    monkeypatch.setenv("MILLRACE_CACHE", "~/jars")
    found = {one["variable"]: one["value"] for one in json.loads(offline_run("settings", "--json").out)}
    assert found["MILLRACE_KAFKA"] == "a:1,b:2"
    assert found["MILLRACE_KAFKA_TIMEOUT"] == "90s"
    assert found["MILLRACE_CACHE"] == str(Path.home() / "jars")
    assert found["MILLRACE_KAFKA_HEAP"] == "512m"


def test_whom_to_alert_is_not_shown(offline_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_ALERT", "https://hooks.example/s3cret")
    monkeypatch.setenv("MILLRACE_ALERT_LAG", "10000")
    monkeypatch.setenv("MILLRACE_ALERT_DEAD", "10/m")
    found = {one["variable"]: one["value"] for one in json.loads(offline_run("settings", "--json").out)}
    assert found["MILLRACE_ALERT"] == "***"
    assert (found["MILLRACE_ALERT_LAG"], found["MILLRACE_ALERT_DEAD"]) == ("10,000 records", "10/m")


@pytest.mark.parametrize(("variable", "value"), [("MILLRACE_KAFKA_TIMEOUT", "soon"), ("MILLRACE_KAFKA_HEAP", "lots")])
def test_a_value_that_cannot_be_used_is_told_with_its_variable(
    offline_run: Run, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert offline_run("settings", code=2).err.startswith(f"error[setting.invalid]: {variable}")

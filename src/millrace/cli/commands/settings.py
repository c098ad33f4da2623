"""`millrace settings`: every setting, and what holds now."""

from __future__ import annotations

from millrace.cli.options import AsJson
from millrace.cli.output import show_rows
from millrace.settings import SETTINGS, Setting
from millrace.units import parse_rate_with_unit


def settings(as_json: AsJson = False) -> None:
    """List every setting: its environment variable, what holds now, what it means."""
    rows = [(one.variable, _shown(one), one.shown_default or one.default, one.help) for one in SETTINGS]
    columns = {"variable": "environment variable", "value": "now", "default": "default", "help": "what it means"}
    show_rows(columns, rows, as_json=as_json)


def _shown(setting: Setting[object]) -> object:
    """What holds now, as one would write it; those with a point are durations, or rates."""
    value = setting.value()
    if setting.secret and value:
        return "***"
    if not isinstance(value, float):
        return value
    return f"{value * 60:g}/m" if setting.parse is parse_rate_with_unit else f"{value:g}s"

"""`millrace settings`: list every setting with its current value."""

from __future__ import annotations

from millrace.cli.options import AsJson
from millrace.cli.output import show_rows
from millrace.settings import SETTINGS, Setting
from millrace.units import parse_rate_with_unit


def settings(as_json: AsJson = False) -> None:
    """List every setting: its environment variable, current value, default and meaning."""
    rows = [(each.variable, _written(each), each.shown_default or each.default, each.help) for each in SETTINGS]
    columns = {"variable": "environment variable", "value": "now", "default": "default", "help": "what it means"}
    show_rows(columns, rows, as_json=as_json)


def _written(setting: Setting[object]) -> object:
    """Return the current value as the user would write it; a float is a duration or a rate."""
    value = setting.value()
    if setting.secret and value:
        return "***"
    if not isinstance(value, float):
        return value
    return f"{value * 60:g}/m" if setting.parse is parse_rate_with_unit else f"{value:g}s"

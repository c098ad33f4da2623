"""`millrace settings`: every setting, and what holds now."""

from __future__ import annotations

from millrace.cli.options import AsJson
from millrace.cli.output import show_json, show_table
from millrace.settings import SETTINGS


def settings(as_json: AsJson = False) -> None:
    """List every setting: its environment variable, what holds now, what it means."""
    rows = [(one.variable, one.value(), one.shown_default or one.default, one.help) for one in SETTINGS]
    if as_json:
        keys = ("variable", "value", "default", "help")
        show_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        show_table(("environment variable", "now", "default", "what it means"), rows)

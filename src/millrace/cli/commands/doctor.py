"""`millrace doctor`: what is wrong with this machine and how to mend it."""

from __future__ import annotations

import typer

from millrace.cli.options import AsJson
from millrace.cli.output import show_json, show_table


def doctor(as_json: AsJson = False) -> None:
    """Check Java, Python, PySpark, jars, ports, disk, memory and Kafka; say what mends each."""
    from rich.text import Text

    from millrace.services.doctor import examine

    findings = examine()
    if as_json:
        show_json(findings)
    else:
        style = {"ok": "green", "warn": "yellow", "bad": "bold red"}
        rows = [(one.name, Text(one.verdict, style=style[one.verdict]), one.found, one.mend or "") for one in findings]
        show_table(("what", "verdict", "found", "to mend it"), rows)
    if any(one.verdict == "bad" for one in findings):
        raise typer.Exit(1)

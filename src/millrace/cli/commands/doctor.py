"""`millrace doctor`: report problems of this machine and how to fix them."""

from __future__ import annotations

import typer

from millrace.cli.options import AsJson
from millrace.cli.output import show_json, show_table


def doctor(as_json: AsJson = False) -> None:
    """Check Java, Python, PySpark, jars, ports, disk, memory and Kafka; show how to fix each problem."""
    from rich.text import Text

    from millrace.services.doctor import examine

    findings = examine()
    if as_json:
        show_json(findings)
    else:
        style = {"ok": "green", "warn": "yellow", "bad": "bold red"}
        rows = [
            (finding.name, Text(finding.verdict, style=style[finding.verdict]), finding.found, finding.mend or "")
            for finding in findings
        ]
        show_table(("what", "verdict", "found", "how to fix it"), rows)
    if any(finding.verdict == "bad" for finding in findings):
        raise typer.Exit(1)

"""The chart of the documentation, as SVG: bars for what was measured, ours in another colour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from peers.tables import OURS, cpu, ranked

Made = Mapping[str, Any]
WIDTH, LEFT, RIGHT, BAR, GAP, HEAD = 760, 150, 90, 16, 6, 34
FONT = "font-family='system-ui, sans-serif' font-size='12'"
COLOURS = {True: "#0f766e", False: "#94a3b8"}


def drawn(made: Made) -> str:
    """A panel for each job that has figures, one below the other; shorter is better in all of them."""
    panels = [
        ("W: word count, CPU seconds per million lines, warm", "W", cpu, "{:,.1f}"),
        ("A: ad analytics, CPU seconds per million events, warm", "A", cpu, "{:,.1f}"),
        ("E: Kafka to Kafka exactly once, CPU seconds per million records, warm", "E", cpu, "{:,.1f}"),
        ("L1: stateless, milliseconds to the result, p50", "L1", _p50, "{:,.1f}"),
        ("L2: running count, milliseconds to the result, p50", "L2", _p50, "{:,.1f}"),
    ]
    parts, top = [], 10
    for title, letter, figure, form in panels:
        runs = ranked([run for run in made["runs"] if run["job"] == letter and "wrong" not in run])
        if runs:
            parts.append(_panel(title, runs, figure, form, top))
            top += HEAD + len(runs) * (BAR + GAP) + 10
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {top}' width='{WIDTH}' height='{top}' {FONT}>"
    return "\n".join([head, f"<rect width='{WIDTH}' height='{top}' fill='#ffffff'/>", *parts, "</svg>"]) + "\n"


def _p50(run: Made) -> float:
    return float(run["p50"])


def _panel(title: str, runs: Sequence[Made], figure: Callable[[Made], float], form: str, top: int) -> str:
    most = max(map(figure, runs))
    lines = [f"<text x='10' y='{top + 16}' font-weight='600' fill='#0f172a'>{escape(title)}</text>"]
    for number, run in enumerate(runs):
        y = top + HEAD - 8 + number * (BAR + GAP)
        length = max(1.0, figure(run) / most * (WIDTH - LEFT - RIGHT))
        lines += [
            f"<text x='{LEFT - 8}' y='{y + 12}' text-anchor='end' fill='#334155'>{escape(run['peer'])}</text>",
            f"<rect x='{LEFT}' y='{y}' width='{length:.1f}' height='{BAR}' fill='{COLOURS[run['peer'] == OURS]}'/>",
            f"<text x='{LEFT + length + 6:.1f}' y='{y + 12}' fill='#0f172a'>{form.format(figure(run))}</text>",
        ]
    return "\n".join(lines)

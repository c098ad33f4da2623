"""Results as tables, for the terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Made = Mapping[str, Any]
OURS = "Millrace"
ALL = "all parts"


@dataclass(frozen=True)
class Table:
    """A title, a head and rows of text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def plain(self) -> str:
        """With columns under each other."""
        lines = [self.head, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.head))]
        shown = [
            "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(pairs))
            for pairs in (list(zip(line, widths, strict=True)) for line in lines)
        ]
        return "\n".join([self.title, *shown])

    def markdown(self) -> str:
        """As documentation has it."""
        rules = ["---", *("---:" for _ in self.head[1:])]
        lines = [self.head, rules, *self.rows]
        return f"### {self.title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables(made: Made) -> Iterator[Table]:
    """One for each job; the sizes of S share one."""
    for letter in ("W", "A", "E"):
        runs = _of(made, letter)
        if runs:
            yield Table(f"{letter}: {_about(runs)}", _THROUGHPUT, [_throughput(run, runs) for run in runs])
    for letter in ("L1", "L2"):
        runs = _of(made, letter)
        if runs:
            yield Table(f"{letter}: {_about(runs)}", _LATENCY, [_latency(run) for run in runs])
    for letter in ("M1", "M2"):
        runs = _of(made, letter)
        if runs:
            yield Table(f"{letter}: {_about(runs)}", _AT_REST, [_at_rest(run) for run in runs])
    if runs := _of(made, "S"):
        yield from _growth(runs)
    if runs := _of(made, "B"):
        whole = next((run for run in runs if run["peer"] == ALL), runs[0])
        yield Table("B: what each part costs, job A", _PARTS, [_part(run, whole) for run in runs])


_THROUGHPUT = ("", "cold s", "cold CPU s", "warm records/s", "warm CPU s per million", "memory", "runs")
_LATENCY = ("", "p50 ms", "p99 ms", "CPU", "memory", "runs")
_AT_REST = ("", "p50 ms", "p99 ms", "CPU", "ms a batch", "CPU ms a batch", "memory", "runs")
_PARTS = ("", "warm records/s", "warm CPU s per million", "against all", "runs")


def _of(made: Made, letter: str) -> list[Made]:
    return ranked([run for run in made["runs"] if run["job"] == letter])


def ranked(runs: Sequence[Made]) -> list[Made]:
    """Ours first, then by what counts: CPU of what is there, latency of what comes; the floor; what is wrong."""

    def place(run: Made) -> tuple[object, ...]:
        figure = 0.0 if "wrong" in run else run["p50"] if "p50" in run else cpu(run)
        return run["peer"] != OURS, "wrong" in run, run["peer"].startswith("floor"), figure

    return sorted(runs, key=place)


def _about(runs: Sequence[Made]) -> str:
    return str(next((run["about"] for run in runs if "about" in run), ""))


def _throughput(run: Made, runs: Sequence[Made]) -> list[str]:
    if "wrong" in run:
        return [_name(run), "wrong", *([""] * (len(_THROUGHPUT) - 2))]
    full = max(other.get("warm_records", 0) for other in runs)
    share = "" if run["warm_records"] == full else f" ({run['warm_records'] / full:.0%} of the records)"
    return [
        f"{_name(run)}{share}",
        f"{run['cold_wall']:.1f}",
        f"{run['cold_cpu']:.1f}",
        f"{rate(run):,.0f}",
        f"{cpu(run):.1f}",
        _memory(run),
        _runs(run),
    ]


def _latency(run: Made) -> list[str]:
    if "wrong" in run:
        return [_name(run), "wrong", *([""] * (len(_LATENCY) - 2))]
    return [_name(run), f"{run['p50']:.1f}", f"{run['p99']:.1f}", f"{run['cpu']:.0%}", _memory(run), _runs(run)]


def _at_rest(run: Made) -> list[str]:
    if "wrong" in run:
        return [_name(run), "wrong", *([""] * (len(_AT_REST) - 2))]
    took_ms = run["seconds"] * 1000 / run["batches"] if run["batches"] else None
    batch = ["", ""] if took_ms is None else [f"{took_ms:,.0f}", f"{took_ms * run['cpu']:,.0f}"]
    return [
        _name(run),
        f"{run['p50']:,.0f}",
        f"{run['p99']:,.0f}",
        f"{run['cpu']:.0%}",
        *batch,
        _memory(run),
        _runs(run),
    ]


def _growth(runs: Sequence[Made]) -> Iterator[Table]:
    title = "S: running count with ever more keys"
    yield _by_keys(runs, title, "warm CPU s per million records", cpu)
    kept = [run for run in runs if run.get("written")]
    if kept:
        yield _by_keys(kept, "S: what 200,000 updates write to the checkpoint", "MB", lambda run: run["written"] / 1e6)


def _by_keys(runs: Sequence[Made], title: str, unit: str, figure: Callable[[Made], float]) -> Table:
    sizes = sorted({run["size"] for run in runs})
    found = {(run["peer"], run["size"]): run for run in runs}
    rows = []
    for peer in dict.fromkeys(run["peer"] for run in runs):
        figures = [figure(one) if (one := found.get((peer, size))) and "wrong" not in one else None for size in sizes]
        growth = f"{figures[-1] / figures[0]:.2f}" if figures[0] and figures[-1] else ""
        rows.append([peer, *("wrong" if one is None else f"{one:.1f}" for one in figures), growth])
    return Table(title, (unit, *(f"{size:,} keys" for size in sizes), "growth"), rows)


def _part(run: Made, whole: Made) -> list[str]:
    if "wrong" in run:
        return [run["peer"], "wrong", "", "", _runs(run)]
    against = f"{cpu(run) / cpu(whole):.2f}" if "wrong" not in whole else ""
    return [run["peer"], f"{rate(run):,.0f}", f"{cpu(run):.1f}", against, _runs(run)]


def rate(run: Made) -> float:
    """Records a second of the second half."""
    return float(run["warm_records"] / run["warm_wall"])


def cpu(run: Made) -> float:
    """CPU seconds for a million records of the second half."""
    return float(run["warm_cpu"] / run["warm_records"] * 1e6)


def _name(run: Made) -> str:
    return f"**{OURS}**" if run["peer"] == OURS else str(run["peer"])


def _memory(run: Made) -> str:
    return f"{run['memory'] / 2**20:,.0f} MB"


def _runs(run: Made) -> str:
    return str(run["runs"]) if run["runs"] == run["right"] else f"{run['right']} of {run['runs']}"

"""What came out: kept run by run, so that nothing is lost; shown as medians in tables and as a chart."""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from peers import chart, machine
from peers.tables import Table, tables

Row = dict[str, object]


class Results:
    """Runs in DIR/runs.jsonl; DIR/results.json, DIR/tables.md and DIR/chart.svg are made of them."""

    def __init__(self, folder: Path, *, add: bool) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._runs = folder / "runs.jsonl"
        if not add:
            self._runs.unlink(missing_ok=True)

    def version(self, peer: str, version: str) -> None:
        """What was measured."""
        self._keep({"peer": peer, "version": version})

    def left_out(self, peer: str, why: str) -> None:
        """Who was not."""
        self._keep({"peer": peer, "left_out": why})

    def add(self, letter: str, size: int, peer: str, row: Row) -> None:
        """One run."""
        self._keep({"job": letter, "size": size, "peer": peer, **row})
        shown = {name: round(value, 2) if isinstance(value, float) else value for name, value in row.items()}
        print(f"{letter} {peer}: {shown}", file=sys.stderr)

    def show(self) -> None:
        """Medians of all runs that were right."""
        made = medians([json.loads(line) for line in self._runs.read_text("utf-8").splitlines()])
        made["machine"] = machine.described()
        (self._folder / "results.json").write_text(json.dumps(made, indent=1) + "\n", "utf-8")
        shown = list(tables(made))
        text = "\n\n".join(one.markdown() for one in shown)
        (self._folder / "tables.md").write_text(text + "\n", "utf-8")
        (self._folder / "chart.svg").write_text(chart.drawn(made), "utf-8")
        print("\n\n".join(map(Table.plain, shown)))

    def _keep(self, row: Row) -> None:
        with self._runs.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def medians(rows: list[Row]) -> dict[str, object]:
    """By job, size and peer: how many runs were right, and the median of each figure."""
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if "job" in row:
            groups[row["job"], row["size"], row["peer"]].append(row)
    return {
        "versions": {str(row["peer"]): row["version"] for row in rows if row.get("version")},
        "left_out": {str(row["peer"]): row["left_out"] for row in rows if "left_out" in row},
        "runs": [_median(key, group) for key, group in groups.items()],
    }


def _median(key: tuple[object, ...], group: list[Row]) -> Row:
    job, size, peer = key
    right = [row for row in group if "wrong" not in row]
    made: Row = {"job": job, "size": size, "peer": peer, "runs": len(group), "right": len(right)}
    if not right:
        return made | {"wrong": group[-1]["wrong"]}
    for name, value in right[0].items():
        if isinstance(value, int | float) and name not in ("size",):
            made[name] = statistics.median([float(str(row[name])) for row in right])
        elif name == "about":
            made[name] = value
    return made

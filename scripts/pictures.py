"""The pictures of the documentation: runs what they show (Spark, three brokers), notes it, and draws it.

python scripts/pictures.py [--draw]

What was seen is kept in docs/images/pictures.json; --draw draws it again without running anything.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from drawing import AMBER, BAND, FAINT, INK, LINE, RED, TEAL, Drawing
from pictures_run import MODES, run_batches, run_cluster

IMAGES = Path(__file__).parents[1] / "docs/images"
SEEN = IMAGES / "pictures.json"


def pictures(seen: dict[str, Any]) -> dict[Path, str]:
    """Every picture, from what was seen."""
    return {
        IMAGES / "event-time.svg": event_time(seen["run"]),
        IMAGES / "output-modes.svg": output_modes(seen["run"]),
        IMAGES / "guarantees.svg": guarantees(),
        IMAGES / "replicas.svg": replicas(seen["cluster"]),
    }


def seconds(time: str) -> int:
    """A time of the day as a number."""
    hours, minutes, rest = map(int, time.split(":"))
    return hours * 3600 + minutes * 60 + rest


def event_time(run: dict[str, Any]) -> str:
    """Records by their arrival and their event time, the windows, and the watermark of each batch."""
    first, step, per_second = seconds("12:00:00"), 44, 1.55
    batches: list[list[str]] = [*run["batches"], *([[]] * (len(run["watermarks"]) - len(run["batches"])))]
    starts, width = [], 100.0
    for times in batches:
        starts.append(width)
        width += max(len(times), 3) * step + 14
    picture = Drawing(width + 200, 470, "Event time, watermark and windows of a run")

    def level(time: str) -> float:
        return 405 - (seconds(time) - first) * per_second

    for minute, closed in _closed(run).items():
        top, bottom = level(f"{minute}:59") - per_second, level(f"{minute}:00")
        picture.box(92, top, width - 92, bottom - top - 2)
        picture.text(84, bottom - 4, minute, fill=FAINT, anchor="end")
        picture.text(width + 8, bottom - 34, f"window {minute}", fill=INK, bold=True)
        picture.text(width + 8, bottom - 18, closed, fill=FAINT)
    late = _late(run)
    for number, (start, times) in enumerate(zip(starts, batches, strict=True)):
        end = starts[number + 1] if number + 1 < len(starts) else width
        picture.line([(end - 7, 40), (end - 7, 412)], dashed=True)
        picture.text((start + end - 14) / 2, 432, f"batch {number}", anchor="middle", bold=True)
        mark = run["watermarks"][number]
        picture.text((start + end - 14) / 2, 450, f"watermark {mark or 'none yet'}", anchor="middle", fill=AMBER)
        for place, time in enumerate(times):
            x = start + 18 + place * step
            picture.dot(x, level(time), fill=RED if time in late else TEAL, hollow=time in late)
            picture.text(x, level(time) - 10, time[3:], anchor="middle", fill=RED if time in late else FAINT)
    picture.line(_steps(run["watermarks"], starts, width, level), stroke=AMBER, wide=2.5)
    picture.text(10, 24, "Each click by when it happened (upwards) and when it came (to the right)", bold=True)
    picture.dot(560, 20)
    picture.text(570, 24, "counted")
    picture.dot(640, 20, fill=RED, hollow=True)
    picture.text(650, 24, "too late: left out", fill=RED)
    picture.line([(770, 20), (795, 20)], stroke=AMBER, wide=2.5)
    picture.text(802, 24, "watermark", fill=AMBER)
    return picture.svg()


def _steps(marks: list[str | None], starts: list[float], width: float, level: Any) -> list[tuple[float, float]]:
    """The watermark as a line: level in a batch, up between two."""
    points = []
    for number, mark in enumerate(marks):
        if mark:
            end = starts[number + 1] if number + 1 < len(starts) else width
            points += [(starts[number] - 7, level(mark)), (end - 7, level(mark))]
    return points


def _closed(run: dict[str, Any]) -> dict[str, str]:
    """Each window, and in which batch append mode wrote it."""
    written = {minute: number for number, rows in enumerate(run["append"]) for minute, _ in rows}
    counts = _counted(run)
    return {
        minute: f"{count} clicks, written in batch {written[minute]}" if minute in written else f"{count} so far, open"
        for minute, count in counts.items()
    }


def _counted(run: dict[str, Any]) -> dict[str, int]:
    """Each window's clicks, as update mode told them last."""
    return {minute: clicks for rows in run["update"] for minute, clicks in rows}


def _late(run: dict[str, Any]) -> set[str]:
    """The clicks whose window was over when they came: what is missing in the counts of update mode proves it."""
    found = set()
    for mark, times in zip([None, *run["watermarks"]], run["batches"], strict=False):  # Spark asks the batch before
        found |= {time for time in times if mark and f"{time[:5]}:59" < mark}
    counted = _counted(run)
    came = sum(len(times) for times in run["batches"])
    if sum(counted.values()) != came - len(found):
        raise SystemExit(f"{came} clicks came, {counted} were counted, and {found} should be late")
    return found


def output_modes(run: dict[str, Any]) -> str:
    """What each mode wrote in each batch of the same run."""
    count, cell, row = len(run["watermarks"]), 112, 92
    picture = Drawing(110 + count * cell, 76 + len(MODES) * row, "What each output mode writes, batch by batch")
    picture.text(10, 24, "The same clicks, the same batches: what goes to the sink (minute, clicks)", bold=True)
    for number, mark in enumerate(run["watermarks"]):
        picture.text(104 + number * cell, 48, f"batch {number}", bold=True)
        picture.text(104 + number * cell, 63, f"watermark {mark[3:] if mark else 'none'}", fill=AMBER)
    for place, mode in enumerate(MODES):
        top = 74 + place * row
        picture.text(10, top + 20, mode, fill=TEAL, bold=True)
        for number in range(count):
            rows = run[mode][number] if number < len(run[mode]) else []
            picture.box(100 + number * cell, top, cell - 8, row - 8, fill=BAND if rows else "#ffffff", line=LINE)
            for line, (minute, clicks) in enumerate(rows):
                picture.text(110 + number * cell, top + 19 + line * 18, f"{minute}   {clicks}")
            if not rows:
                picture.text(
                    110 + number * cell, top + 19, "nothing" if number < len(run[mode]) else "no batch", fill=FAINT
                )
    return picture.svg()


def guarantees() -> str:
    """The steps of a batch, and what a crash after each of them leaves to be done again."""
    steps = (
        ("noted", "offsets of the batch", "the same records are read again"),
        ("read", "decoded, dead letters", "letters that are there are not written twice"),
        ("written", "rows to every sink", "a sink that knows the batch leaves out what it has"),
        ("committed", "the batch is done", "nothing is repeated"),
    )
    picture = Drawing(860, 190, "The steps of a batch, and what follows a crash after each")
    picture.text(10, 24, "One batch, and what happens when the run is killed after a step and started again", bold=True)
    for place, (name, what, again) in enumerate(steps):
        x = 14 + place * 212
        picture.box(x, 46, 176, 52, fill=BAND, line=LINE)
        picture.text(x + 10, 67, f"{place + 1}. {name}", fill=TEAL, bold=True)
        picture.text(x + 10, 86, what)
        if place + 1 < len(steps):
            picture.arrow(x + 180, 72, x + 208)
        picture.line([(x + 88, 102), (x + 88, 122)], stroke=RED, wide=2, dashed=True)
        words = again.split()
        half = (len(words) + 1) // 2
        picture.text(x + 88, 140, " ".join(words[:half]), fill=RED, anchor="middle")
        picture.text(x + 88, 157, " ".join(words[half:]), fill=RED, anchor="middle")
    return picture.svg()


def replicas(cluster: dict[str, Any]) -> str:
    """Which broker has a copy of which partition, before and after one was killed."""
    brokers = sorted({one for partition in cluster["before"] for one in partition["replicas"]})
    picture = Drawing(820, 100 + 30 * len(brokers), "Replicas, leaders and in-sync sets of a topic")
    picture.text(10, 24, "A topic of six partitions with three copies each, as `topics describe` tells it", bold=True)
    for place, (name, title) in enumerate(
        (("before", "three brokers"), ("after", f"broker {cluster['killed']} is dead"))
    ):
        left = 90 + place * 390
        picture.text(left, 50, title, bold=True)
        for row, broker in enumerate(brokers):
            y = 66 + row * 30
            picture.text(left - 10, y + 16, f"broker {broker}", fill=FAINT, anchor="end")
            for partition in cluster[name]:
                x = left + partition["id"] * 50
                leads, there = partition["leader"] == broker, broker in partition["in_sync"]
                picture.box(
                    x, y, 44, 24, fill=TEAL if leads else BAND if there else "#ffffff", line=LINE if there else RED
                )
                colour = "#ffffff" if leads else INK if there else RED
                picture.text(x + 22, y + 16, f"p{partition['id']}", fill=colour, anchor="middle", bold=leads)
    y = 84 + 30 * len(brokers)
    for x, fill, line, words in (
        (90, TEAL, LINE, "leads: producers and consumers talk to it"),
        (370, BAND, LINE, "follows, in sync"),
        (520, "#ffffff", RED, "has a copy, not in sync"),
    ):
        picture.box(x, y - 11, 16, 14, fill=fill, line=line)
        picture.text(x + 22, y, words, fill=FAINT)
    return picture.svg()


def main() -> None:
    """Run, unless what was seen is enough, and draw."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--draw", action="store_true", help="draw what was seen before")
    if not given.parse_args().draw:
        with tempfile.TemporaryDirectory() as batches, tempfile.TemporaryDirectory() as cluster:
            seen = {"from": "runs", "run": run_batches(Path(batches)), "cluster": run_cluster(Path(cluster))}
        SEEN.write_text(json.dumps(seen, indent=1) + "\n")
    for path, svg in pictures(json.loads(SEEN.read_text("utf-8"))).items():
        path.write_text(svg, "utf-8")
        print(path.relative_to(IMAGES.parents[1]))


if __name__ == "__main__":
    main()

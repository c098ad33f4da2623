"""How many cores, partitions, brokers and bytes a rate of events takes, from costs that were measured on 2 cores.

    python bench/scale/simulate.py            # writes the tables of docs/scale.md
    python bench/scale/simulate.py --cost 3.1 # prints one for another cost of a record, in CPU seconds a million

The loop is that of Spark's micro-batches: a batch takes all that has come while the one before it ran. It costs
something whatever is in it, something for each of its tasks in the driver, and something for each record on a core.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs"
KEYS = 1_000_000
"""Windows and keys that are open at a time."""
RATES = (1_000, 100_000, 1_000_000, 10_000_000)


def measured(job: str) -> float:
    """CPU seconds a record of a job, as docs/performance.md has it: nowhere else is it written down."""
    page = (PAGES / "performance.md").read_text("utf-8")
    part, column = (f"## {job}:", 4) if job == "E" else ("## With more records", {"W": 2, "A": 4}[job])
    row = next(line for line in page[page.index(part) :].splitlines() if "**Millrace**" in line)
    return float(row.split("|")[1 + column].strip("* ")) / 1e6


def smallest_batch() -> float:
    """Seconds of a batch of four tasks with a row or two, as docs/decisions/0016-exactly-once.md has it."""
    page = (PAGES / "decisions" / "0016-exactly-once.md").read_text("utf-8")
    found = re.search(r"\((\d+) against", page)
    if not found:
        raise ValueError("the page does not say how long a small batch takes")
    return int(found[1]) / 1000


@dataclass(frozen=True)
class Costs:
    """What things cost, and where that is known from."""

    record: float = field(default_factory=partial(measured, "A"))
    """CPU seconds a record: measured."""
    written: float = field(default_factory=partial(measured, "E"))
    """CPU seconds a row that is written exactly once: measured."""
    batch: float = field(default_factory=smallest_batch)
    """Seconds of a batch that has nearly nothing in it: measured."""
    task: float = 0.004
    """Seconds of the driver for each task of a batch: assumed."""
    size: int = 175
    """Bytes of an event: that of the data which was measured."""
    key: int = 200
    """Bytes of a window's count in the state: assumed."""
    rows: float = 0.01
    """Rows written for each event that is read: assumed; a windowed count is much smaller than what it counts."""
    broker: float = 40e6
    """Bytes a second that a broker takes in, copies for others included: assumed, for one ordinary disk."""
    used: float = 0.6
    """The share of the cores that is in use at the usual rate; the rest is for catching up."""


@dataclass(frozen=True)
class Plan:
    """What a rate takes."""

    rate: int
    cores: int
    executors: int
    partitions: int
    brokers: int
    state: float
    """Bytes."""
    day: float
    """Bytes in Kafka for each day that it keeps."""


@dataclass(frozen=True)
class Outcome:
    """What the simulated minutes were like."""

    batch: float
    """Seconds of a usual batch."""
    slowest: float
    """Seconds from an event to its result for all but one batch in a hundred."""
    checkpoint: float
    """Bytes: three whole states, and what changed in each of the hundred batches that Spark keeps."""
    catching_up: float
    """Seconds to be on time again after a stop of five minutes; infinite when it never is."""


def plan(rate: int, costs: Costs) -> Plan:
    """Enough of everything for a rate."""
    busy = rate * (costs.record + costs.rows * costs.written)
    cores = max(2, math.ceil(busy / costs.used))
    executors = max(1, math.ceil(cores / 8))
    brokers = max(3, math.ceil(3 * rate * costs.size / costs.broker))
    partitions = max(3, cores)
    return Plan(rate, cores, executors, partitions, brokers, 2.0 * KEYS * costs.key, 3.0 * rate * costs.size * 86_400)


def simulate(wanted: Plan, costs: Costs, *, minutes: float = 10, stopped: float = 300, seed: int = 1) -> Outcome:
    """Batches one after another, then a stop, then batches until the backlog is gone."""
    chance = random.Random(seed)

    def batch(events: float) -> float:
        work = events * costs.record + events * costs.rows * costs.written
        tasks = wanted.partitions + wanted.cores  # those that read, and those after the shuffle
        straggling = 1 + abs(chance.gauss(0, 0.1))
        return costs.batch + tasks * costs.task + work / wanted.cores * straggling

    waiting, clock, took = float(wanted.rate), 0.0, []
    while clock < minutes * 60:
        seconds = batch(waiting)
        took.append(seconds)
        clock += seconds
        waiting = seconds * wanted.rate
    usual = statistics.median(took)
    twice = [before + after for before, after in pairwise(took)]
    slowest = sorted(twice)[int(len(twice) * 0.99)] if twice else 2 * usual
    changed = min(KEYS, usual * wanted.rate * costs.rows) * costs.key
    checkpoint = 3.0 * KEYS * costs.key + 100 * changed
    waiting, clock = stopped * wanted.rate, 0.0
    while clock < 24 * 3600:
        seconds = batch(waiting)
        clock += seconds
        if seconds < 1.5 * usual:
            return Outcome(usual, slowest, checkpoint, clock)
        waiting = seconds * wanted.rate
    return Outcome(usual, slowest, checkpoint, math.inf)


def table(costs: Costs, rates: Sequence[int] = RATES) -> str:
    """Every rate, as docs/scale.md has it."""
    names = ("events/s", "cores", "executors of 8", "partitions", "brokers", "state", "checkpoint", "Kafka, a day")
    names += ("batch", "to a result, p99", "after 5 min away")
    lines = [f"| {' | '.join(names)} |", f"|{' ---: |' * len(names)}"]
    for rate in rates:
        one = plan(rate, costs)
        seen = simulate(one, costs)
        cells = [f"{rate:,}", f"{one.cores:,}", f"{one.executors:,}", f"{one.partitions:,}", f"{one.brokers:,}"]
        cells += [size(one.state), size(seen.checkpoint), size(one.day)]
        cells += [f"{seen.batch:.1f} s", f"{seen.slowest:.1f} s", f"{seen.catching_up / 60:.0f} min"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def size(count: float) -> str:
    """Bytes in words."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} PB"


def page(text: str) -> str:
    """docs/scale.md with the figures that are measured and those that follow from them."""
    made = {"A": table(Costs()), "W": table(Costs(record=measured("W"))), "costs": _costs()}
    for name, content in made.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n\n{content}\n\n{end}{rest.split(end)[1]}"
    return text


def _costs() -> str:
    known = Costs()
    rows = [
        ("what", "value", "where from"),
        ("---", "---:", "---"),
        (
            "CPU of an event: decoded, filtered, joined, counted in windows",
            f"{measured('A') * 1e6:.1f} s a million",
            "measured: [job A, with more records](performance.md#with-more-records)",
        ),
        (
            "CPU of a line of 8 words, split and counted by word",
            f"{measured('W') * 1e6:.1f} s a million",
            "measured: [job W, with more records](performance.md#with-more-records)",
        ),
        (
            "CPU of a row that is written to Kafka exactly once",
            f"{known.written * 1e6:.1f} s a million",
            "measured: [job E](performance.md), which also reads and decodes it, so too high rather than too low",
        ),
        (
            "a batch with nearly nothing in it, four tasks",
            f"{known.batch * 1000:.0f} ms",
            "measured: [0016](decisions/0016-exactly-once.md)",
        ),
        ("the driver's time for each task of a batch", f"{known.task * 1000:.0f} ms", "assumed"),
        ("an event", f"{known.size} bytes", "that of the data which was measured"),
        ("a key in the state; keys and windows open at a time", f"{known.key} bytes; {KEYS:,}", "assumed"),
        ("rows written for each event read", f"{known.rows}", "assumed"),
        ("what a broker takes in, copies included; copies", f"{known.broker / 1e6:.0f} MB/s; 3", "assumed"),
        ("cores in use at the usual rate", f"{known.used:.0%}", "chosen: the rest is for catching up"),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Write the page, or print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cost", type=float, help="CPU seconds a million events")
    cost = parser.parse_args().cost
    if cost is None:
        file = PAGES / "scale.md"
        file.write_text(page(file.read_text("utf-8")), "utf-8")
    else:
        print(table(Costs(record=cost / 1e6)))


if __name__ == "__main__":
    main()

"""Writes the generated sample data of the examples; it is the same each time: python examples/make_data.py

The other samples are written by hand.
"""

import sys
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from millrace.feeds.base.api import FEEDS, Run

MONDAY = datetime(2026, 5, 4, 7, 30, tzinfo=UTC)


def write(feed, count, *files):
    """So many lines of a feed into each of the files."""
    lines = (record.value for batch in feed.batches(Run()) for record in batch.records)
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(line + b"\n" for line in islice(lines, count)))


def main(folder):
    trips = FEEDS.load("trips")(format="csv", seed=4, start=MONDAY, pace=0.1)
    write(trips, 80, *(folder / f"bike-trips/data/trips-{number}.csv" for number in (1, 2, 3)))
    weblogs = FEEDS.load("weblogs")
    logs = weblogs(seed=7, start=MONDAY, pace=1.0)
    write(logs, 100, *(folder / f"json-logs/data/logs-{number}.json" for number in (1, 2, 3)))
    requests = weblogs(seed=11, start=MONDAY, pace=5.0)
    write(requests, 120, *(folder / f"files-to-parquet/data/logs-{number}.json" for number in (1, 2)))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)

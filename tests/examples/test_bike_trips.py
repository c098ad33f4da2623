"""examples/bike-trips."""

from __future__ import annotations

import csv
from collections import Counter

from .conftest import EXAMPLES, Stage, readme_rows

DATA = EXAMPLES / "bike-trips" / "data"


def test_trips_are_counted_by_terminal_and_station(stage: Stage) -> None:
    stage.run("bike-trips", {"examples/bike-trips/data": str(DATA)})
    assert stage.shown("starts")[:3] == [
        ("5", "Weavers Row", "28"),
        ("8", "Almond Street", "26"),
        ("10", "Kingfisher Way", "26"),
    ]
    trips = [row for file in DATA.glob("*.csv") for row in csv.reader(file.read_text().splitlines())]
    counted = Counter((int(row[4]), row[3]) for row in trips)
    assert counted.total() == 240
    expected = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
    assert stage.shown("starts") == [(str(terminal), name, str(count)) for (terminal, name), count in expected[:10]]
    assert readme_rows("bike-trips") == set(stage.shown("starts"))

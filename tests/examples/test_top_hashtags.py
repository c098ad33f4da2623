"""examples/top-hashtags."""

from __future__ import annotations

from .conftest import Stage, readme_rows

# The ends of windows, and the three most used tags of the minute before; of equal ones, the later in the alphabet.
CHARTS = {
    "12:00:10": [("rain", 1), ("coffee", 1)],
    "12:00:20": [("coffee", 2), ("rain", 1)],
    "12:00:30": [("coffee", 2), ("rain", 1)],
    "12:00:40": [("rain", 2), ("coffee", 2), ("novel", 1)],
    "12:00:50": [("coffee", 3), ("rain", 2), ("novel", 1)],
    "12:01:00": [("coffee", 3), ("rain", 2), ("novel", 2)],
    "12:01:10": [("novel", 2), ("coffee", 2), ("tram", 1)],
    "12:01:20": [("tram", 2), ("novel", 2), ("coffee", 2)],
    "12:01:30": [("tram", 2), ("novel", 2), ("coffee", 2)],
    "12:01:40": [("tram", 2), ("coffee", 2), ("novel", 1)],
    "12:01:50": [("tram", 2), ("novel", 1), ("coffee", 1)],
    "12:02:00": [("tram", 1), ("coffee", 1)],
    "12:02:10": [("tram", 1), ("coffee", 1)],
}


def test_each_window_has_its_chart_when_it_is_over(stage: Stage) -> None:
    stage.run("top-hashtags", {"posts": stage.sample("top-hashtags/data/posts.jsonl")})
    expected = [
        (f"2026-05-04 {until}", str(place), tag, str(count))
        for until, chart in CHARTS.items()
        for place, (tag, count) in enumerate(chart, 1)
    ]
    assert sorted(stage.shown("top_three")) == expected
    assert readme_rows("top-hashtags") == {row for row in expected if row[0].endswith("12:01:00")}

"""examples/trending: the example of the design, in both forms."""

from __future__ import annotations

from .conftest import Stage

# Windows of a minute that begin at so many seconds after 12:00:00, with their tags.
COUNTS = {
    -50: {"coffee": 1, "rain": 1},
    -40: {"coffee": 2, "rain": 1},
    -30: {"coffee": 2, "rain": 1},
    -20: {"coffee": 2, "rain": 1},
    -10: {"coffee": 3, "rain": 1},
    0: {"coffee": 3, "rain": 1},
    10: {"coffee": 2, "rain": 1, "tram": 1},
    20: {"coffee": 2, "rain": 1, "tram": 2},
    30: {"coffee": 2, "rain": 1, "tram": 2},
    40: {"coffee": 2, "rain": 1, "tram": 2},
    50: {"coffee": 1, "rain": 1, "tram": 2},
    60: {"coffee": 1, "rain": 1, "tram": 2},
    70: {"coffee": 1, "tram": 1},
}


def moment(seconds: int) -> str:
    minutes, rest = divmod(12 * 3600 + seconds, 60)
    return f"2026-05-04T{minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}.000Z"


def test_each_tag_is_counted_in_each_of_its_windows(stage: Stage) -> None:
    posts, popular = stage.sample("trending/data/posts.jsonl"), stage.topic()
    stage.run("trending", {"posts": posts, "popular": popular})
    expected = [
        (tag, {"window": {"start": moment(start), "end": moment(start + 60)}, "tag": tag, "count": count})
        for start, tags in COUNTS.items()
        for tag, count in tags.items()
    ]
    assert sorted(stage.received(popular), key=repr) == sorted(expected, key=repr)

"""examples/sensor-alerts."""

from __future__ import annotations

from .conftest import EXAMPLES, Stage, readme_rows

ROOMS = "examples/sensor-alerts/data/rooms.csv"


def test_a_room_that_is_too_warm_raises_an_alert_in_both_sinks(stage: Stage) -> None:
    sensors, alerts = stage.sample("sensor-alerts/data/readings.jsonl"), stage.topic()
    rooms = str(EXAMPLES / "sensor-alerts/data/rooms.csv")
    run_status = stage.run("sensor-alerts", {"sensors": sensors, "alerts": alerts, ROOMS: rooms})
    assert sorted(stage.shown("alerts")) == [
        ("kitchen", "0", "2026-05-04 12:00:04", "53.2", "28.0"),
        ("kitchen", "0", "2026-05-04 12:00:07", "48.8", "28.0"),
        ("nursery", "1", "2026-05-04 12:00:01", "24.6", "24.0"),
    ]
    assert readme_rows("sensor-alerts") == set(stage.shown("alerts"))
    written = [(key, value["room"], value["at"], value["value"]) for key, value in stage.received(alerts)]
    assert written == [
        ("nursery", "nursery", "2026-05-04T12:00:01.000Z", 24.6),
        ("kitchen", "kitchen", "2026-05-04T12:00:04.000Z", 53.2),
        ("kitchen", "kitchen", "2026-05-04T12:00:07.000Z", 48.8),
    ]
    (query,) = run_status.queries()  # two sinks, and the topic is read once
    assert query.rows == 8

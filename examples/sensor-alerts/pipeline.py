"""Readings joined with a table of rooms; a room that is warmer than it may be raises an alert."""

import millrace as mr

home = mr.Pipeline("sensor-alerts")

home.source(
    "sensors",
    mr.kafka("sensors", schema="sensor string, room string, kind string, value double, unit string, at timestamp"),
)
home.source(
    "rooms",
    mr.files(
        "examples/sensor-alerts/data/rooms.csv",
        format="csv",
        header=True,
        schema="room string, floor int, warmest double",
    ),
    static=True,
)


@home.table
def alerts(sensors, rooms):
    warm = sensors.where("kind = 'temperature'").join(rooms, "room").where("value > warmest")
    return warm.select("room", "floor", "at", "value", "warmest")


home.sink("alerts", mr.console())
home.sink("alerts", mr.kafka("alerts", key="room"))

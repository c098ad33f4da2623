"""examples/files-to-memory."""

from __future__ import annotations

from millrace.connectors.memory import MEMORY
from millrace.engine.memory_sql import MemorySql

from .conftest import EXAMPLES, Stage


def test_the_averages_can_be_asked_for(stage: Stage) -> None:
    stage.run("files-to-memory", {"examples/files-to-memory/data": str(EXAMPLES / "files-to-memory/data")})
    assert sorted(MEMORY.tables()["rooms"].to_pylist(), key=lambda row: row["room"]) == [
        {"room": "attic", "average": 27.3, "readings": 1},
        {"room": "bedroom", "average": 18.0, "readings": 2},
        {"room": "kitchen", "average": 20.7, "readings": 3},
    ]
    # As `millrace query` does while it runs.
    memory = MemorySql()
    memory.open()
    asked = memory.ask("SELECT room FROM rooms WHERE average > 20 ORDER BY average DESC", 10)
    memory.close()
    assert asked["rows"] == [["attic"], ["kitchen"]]

"""examples/files-to-memory."""

from __future__ import annotations

from pyspark.sql import SparkSession

from millrace.connectors.memory import MEMORY
from millrace.engine.questions import answer

from .conftest import EXAMPLES, Stage


def test_the_averages_can_be_asked_for(stage: Stage, spark: SparkSession) -> None:
    stage.run("files-to-memory", {"examples/files-to-memory/data": str(EXAMPLES / "files-to-memory/data")})
    assert sorted(MEMORY.tables()["rooms"].to_pylist(), key=lambda row: row["room"]) == [
        {"room": "attic", "average": 27.3, "readings": 1},
        {"room": "bedroom", "average": 18.0, "readings": 2},
        {"room": "kitchen", "average": 20.7, "readings": 3},
    ]
    # As `millrace query` does while it runs.
    asked = answer(spark, "SELECT room FROM rooms WHERE average > 20 ORDER BY average DESC", 10)
    assert asked == {"columns": ["room"], "rows": [["attic"], ["kitchen"]]}

"""Which of the processes of a test run gets which file.

- Every process can start a Spark of its own. The first begins with the files that need Spark, the others with those
  that do not; a process that has nothing of its own kind left helps with the rest.
- The file that took longest in a recorded run (`tests/durations.json`) comes first, so that all end together.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

_ROOT = Path(__file__).parents[1]
DURATIONS = Path(__file__).with_name("durations.json")
_UNKNOWN_S = 30.0
"""A file without a recorded time is taken for a long one."""
# Followed by a type: `spark: rate` in a pipeline's text asks for nothing.
_ASKS_FOR_SPARK = re.compile(r"\b(?:spark|ssc|run_pipeline|millrace_test)\b\s*: *(?:[A-Z]|str\b)")


class BalancedScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out whole files, the longest first."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _assign_work_unit(self, node: Any) -> None:
        prefers_spark = node.gateway.id == "gw0"
        first = min(self.workqueue, key=lambda file: (needs_spark(file) is not prefers_spark, -recorded_s(file)))
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


@cache
def needs_spark(file: str) -> bool:
    """Return whether the tests of a file use the Spark of their process."""
    path = _ROOT / file
    return path.parent.name == "examples" or _ASKS_FOR_SPARK.search(path.read_text("utf-8")) is not None


def recorded_s(file: str) -> float:
    """Return how long a file took when durations were recorded."""
    return _recorded().get(file, _UNKNOWN_S)


@cache
def _recorded() -> dict[str, float]:
    durations: dict[str, float] = json.loads(DURATIONS.read_text("utf-8")) if DURATIONS.exists() else {}
    return durations


def record(durations: dict[str, float]) -> None:
    """Store how long the files of a whole run took."""
    rounded = {file: round(seconds, 1) for file, seconds in sorted(durations.items())}
    DURATIONS.write_text(json.dumps(rounded, indent=0) + "\n", encoding="utf-8")

"""How long our broker takes from the call to the first answer: new, and with data that is there already."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from measure import median

from millrace.services.kafka import KafkaCluster, KafkaClusterOptions

REPEATS = 5
GOAL = 5.0


def main() -> None:
    """Start and stop a broker several times."""
    with tempfile.TemporaryDirectory() as folder:
        first = start(Path(folder))
        warm = median([start(Path(folder)) for _ in range(REPEATS)])
    print(f"one broker: first start {first:.1f} s, warm start {warm:.1f} s, goal {GOAL:.0f} s")
    with tempfile.TemporaryDirectory() as folder:
        first = start(Path(folder), 3)
        warm = median([start(Path(folder), 3) for _ in range(2)])
    print(f"three brokers: first start {first:.1f} s, warm start {warm:.1f} s")


def start(folder: Path, brokers: int | None = None) -> float:
    """Seconds until the cluster answers."""
    service = KafkaCluster(folder, KafkaClusterOptions(brokers=brokers))
    begun = time.monotonic()
    service.start()
    took = time.monotonic() - begun
    service.stop()
    return took


if __name__ == "__main__":
    main()

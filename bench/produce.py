"""`millrace kafka produce --file` against a bare confluent-kafka loop over the same lines, in one run.

Both are programs of their own, with the same client settings; start-up counts for both. The goal is half.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from measure import MILLRACE, Took, broker, median, run

RECORDS = 1_000_000
REPEATS = 3
GOAL = 0.5
BARE = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "acks": "all", "enable.idempotence": True,
    "compression.type": "lz4", "linger.ms": 20, "queue.buffering.max.messages": 500000})
for line in open(sys.argv[3], "rb"):
    while True:
        try:
            producer.produce(sys.argv[2], line[:-1])
            break
        except BufferError:
            producer.poll(0.05)
producer.flush()
"""


def main() -> None:
    """Interleave both, repeat, and print medians and their ratio."""
    ours: list[Took] = []
    bare: list[Took] = []
    with broker() as cluster, tempfile.NamedTemporaryFile("w", suffix=".txt") as lines:
        lines.writelines(f"{number:09d} {'the mill turns ' * 12}\n" for number in range(RECORDS))
        lines.flush()
        for number in range(REPEATS + 1):
            for name, took in (("ours", ours), ("bare", bare)):
                topic = f"{name}-{number}"
                run(MILLRACE, "kafka", "topics", "create", topic, "--partitions", "4", "--kafka", cluster.bootstrap)
                if name == "ours":
                    command = [MILLRACE, "kafka", "produce", topic, "--file", lines.name, "--kafka", cluster.bootstrap]
                else:
                    command = [Path(sys.executable), "-c", BARE, cluster.bootstrap, topic, lines.name]
                took.append(run(*command))
    speeds = {name: [RECORDS / one.wall for one in took[1:]] for name, took in (("ours", ours), ("bare", bare))}
    for name, took in (("ours", ours), ("bare", bare)):
        cpu = median([RECORDS / one.cpu for one in took[1:]])
        print(f"{name}: {median(speeds[name]):,.0f} records/s, {cpu:,.0f} records per CPU second")
    ratio = median(speeds["ours"]) / median(speeds["bare"])
    print(f"ratio {ratio:.2f}, goal {GOAL}")


if __name__ == "__main__":
    main()

"""How fast `millrace feed posts` fills a topic: records a second, and records per second of processor time.

The goal is 60,000 records a second with one core's worth of Python, so the second figure is the one that counts.
Both include the start of the program.
"""

from __future__ import annotations

from measure import MILLRACE, broker, median, run

RECORDS = 600_000
REPEATS = 3
GOAL = 60_000


def main() -> None:
    """Repeat and print medians."""
    with broker() as cluster:
        feed = [MILLRACE, "feed", "posts", "--kafka", cluster.bootstrap, "--seed", "1", "--topic"]
        run(*feed, "warm-up", "--count", "100000")
        took = [run(*feed, f"posts-{number}", "--count", str(RECORDS)) for number in range(REPEATS)]
    per_second = median([RECORDS / one.wall for one in took])
    per_core = median([RECORDS / one.cpu for one in took])
    print(f"feed posts: {per_second:,.0f} records/s, {per_core:,.0f} records per CPU second")
    print(f"goal {GOAL:,}: {min(per_second, per_core) / GOAL:.2f} times")


if __name__ == "__main__":
    main()

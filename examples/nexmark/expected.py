"""What the queries must give, worked out by DuckDB from the events as finished tables.

    millrace feed examples/nexmark/events.py --to files --out events.jsonl --count 5000 --pace 10/s --seed 7
    python examples/nexmark/expected.py events.jsonl q5

The SQL here is written as Nexmark states the queries, with OVER, ROW_NUMBER and count(DISTINCT), and knows nothing of
streams, except one thing: a window, a session or an auction that the watermark has not ended has no row yet.
"""

import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import orjson
import pyarrow as pa

SIDE_INPUT = Path(__file__).parent / "data" / "side_input.csv"
DELAY = timedelta(seconds=4)
"""The watermarks of the pipelines."""
ARRIVAL_DELAY = timedelta(seconds=1)
BIDDING = timedelta(minutes=1)
"""A join waits for bids this much longer."""

_TIME = pa.timestamp("us", "UTC")
_TABLES = {
    "person": {"id": pa.int64(), "name": pa.string(), "city": pa.string(), "state": pa.string()},
    "auction": {
        **{"id": pa.int64(), "item": pa.string(), "description": pa.string()},
        **{"initial_bid": pa.int64(), "reserve": pa.int64(), "expires": _TIME},
        **{"seller": pa.int64(), "category": pa.int64()},
    },
    "bid": {
        **{"auction": pa.int64(), "bidder": pa.int64(), "price": pa.int64()},
        **{"channel": pa.string(), "url": pa.string(), "extra": pa.string()},
    },
}

_WINNERS = """
winners AS (
  SELECT a.*, a.moment AS opened, b.bidder, b.price, b.moment AS bid_at, b.extra
  FROM auction a JOIN bid b ON b.auction = a.id AND b.moment BETWEEN a.moment AND a.expires
  WHERE a.moment <= (SELECT joins_ended FROM clock)
  QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.moment) = 1
)
"""
_STATISTICS = """
count(*) AS bids,
count(*) FILTER (price < 10000) AS bids_1,
count(*) FILTER (price >= 10000 AND price < 1000000) AS bids_2,
count(*) FILTER (price >= 1000000) AS bids_3,
count(DISTINCT bidder) AS bidders,
count(DISTINCT bidder) FILTER (price < 10000) AS bidders_1,
count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000) AS bidders_2,
count(DISTINCT bidder) FILTER (price >= 1000000) AS bidders_3,
count(DISTINCT auction) AS auctions,
count(DISTINCT auction) FILTER (price < 10000) AS auctions_1,
count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000) AS auctions_2,
count(DISTINCT auction) FILTER (price >= 1000000) AS auctions_3
"""

QUERIES = {
    "q0": "SELECT auction, bidder, price, moment AS at, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, moment AS at, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE mod(auction, 123) = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id AS auction FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')
    """,
    "q4": f"""
        WITH {_WINNERS}
        SELECT date_trunc('minute', opened) AS minute, category, avg(price) AS average, count(*) AS sold FROM winners
        WHERE date_trunc('minute', opened) + INTERVAL 1 MINUTE <= (SELECT joins_ended FROM clock) GROUP BY ALL
    """,
    "q5": """
        WITH counts AS (
          SELECT auction, time_bucket(INTERVAL 2 SECOND, moment) - 2 * step * INTERVAL 1 SECOND AS start, count(*) AS bids
          FROM bid, range(5) AS steps(step) GROUP BY ALL
        )
        SELECT start, start + INTERVAL 10 SECOND AS end, auction, bids FROM counts
        WHERE start + INTERVAL 10 SECOND <= (SELECT ended FROM clock)
        QUALIFY rank() OVER (PARTITION BY start ORDER BY bids DESC) = 1
    """,
    "q6": f"""
        WITH {_WINNERS}
        SELECT seller, id, opened,
          avg(price) OVER (PARTITION BY seller ORDER BY opened ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS average
        FROM winners
        QUALIFY max(opened) OVER (PARTITION BY seller) + INTERVAL 1 MINUTE <= (SELECT joins_ended FROM clock)
    """,
    "q7": """
        WITH highest AS (
          SELECT time_bucket(INTERVAL 10 SECOND, moment) AS start, max(price) AS price FROM bid GROUP BY ALL
        )
        SELECT start + INTERVAL 10 SECOND AS end, auction, bidder, bid.price, moment AS at
        FROM bid JOIN highest ON bid.price = highest.price AND moment >= start AND moment < start + INTERVAL 10 SECOND
        WHERE start + INTERVAL 10 SECOND <= (SELECT ended FROM clock)
    """,
    "q8": """
        SELECT DISTINCT p.id, p.name, time_bucket(INTERVAL 10 SECOND, p.moment) AS start
        FROM person p JOIN auction a
        ON a.seller = p.id AND time_bucket(INTERVAL 10 SECOND, a.moment) = time_bucket(INTERVAL 10 SECOND, p.moment)
        WHERE time_bucket(INTERVAL 10 SECOND, p.moment) + INTERVAL 10 SECOND <= (SELECT ended FROM clock)
    """,
    "q9": f"""
        WITH {_WINNERS}
        SELECT id, item, description, initial_bid, reserve, expires, opened, seller, category,
          bidder, price, bid_at AS at, extra
        FROM winners
    """,
    "q10": """
        SELECT auction, bidder, price, moment AS at, extra, strftime(moment, '%Y-%m-%d') AS day, strftime(moment, '%H-%M') AS minute
        FROM bid
    """,
    "q11": """
        WITH marked AS (
          SELECT *, moment >= lag(moment) OVER (PARTITION BY bidder ORDER BY moment) + INTERVAL 10 SECOND AS new FROM bid
        ), numbered AS (
          SELECT *, count(*) FILTER (new) OVER (PARTITION BY bidder ORDER BY moment) AS session FROM marked
        )
        SELECT bidder, count(*) AS bids, min(moment) AS start, max(moment) + INTERVAL 10 SECOND AS end
        FROM numbered GROUP BY bidder, session HAVING max(moment) + INTERVAL 10 SECOND <= (SELECT ended FROM clock)
    """,
    "q12": """
        SELECT bidder, count(*) AS bids, time_bucket(INTERVAL 10 SECOND, arrived) AS start,
          time_bucket(INTERVAL 10 SECOND, arrived) + INTERVAL 10 SECOND AS end
        FROM bid
        WHERE time_bucket(INTERVAL 10 SECOND, arrived) + INTERVAL 10 SECOND <= (SELECT arrivals_ended FROM clock)
        GROUP BY ALL
    """,
    "q13": """
        SELECT auction, bidder, price, moment AS at, value FROM bid JOIN side_input ON mod(auction, 100) = key
    """,
    "q14": """
        SELECT auction, bidder, 0.908 * price AS price,
          CASE WHEN hour(moment) >= 8 AND hour(moment) <= 18 THEN 'day'
            WHEN hour(moment) <= 6 OR hour(moment) >= 20 THEN 'night' ELSE 'other' END AS bid_time,
          moment AS at, extra, len(list_filter(string_split(extra, ''), lambda letter: letter = 'c')) AS c_counts
        FROM bid WHERE 0.908 * price >= 1000000 AND 0.908 * price <= 50000000
    """,
    "q15": f"SELECT strftime(moment, '%Y-%m-%d') AS day, {_STATISTICS} FROM bid GROUP BY ALL",
    "q16": f"""
        SELECT channel, strftime(moment, '%Y-%m-%d') AS day, strftime(max(moment), '%H:%M') AS minute, {_STATISTICS}
        FROM bid GROUP BY ALL
    """,
    "q17": """
        SELECT auction, strftime(moment, '%Y-%m-%d') AS day, count(*) AS bids,
          count(*) FILTER (price < 10000) AS bids_1,
          count(*) FILTER (price >= 10000 AND price < 1000000) AS bids_2,
          count(*) FILTER (price >= 1000000) AS bids_3,
          min(price) AS lowest, max(price) AS highest, avg(price) AS average, sum(price)::BIGINT AS total
        FROM bid GROUP BY ALL
    """,
    "q18": """
        SELECT auction, bidder, price, channel, url, moment AS at, extra FROM bid
        QUALIFY row_number() OVER (PARTITION BY auction, bidder ORDER BY moment DESC) = 1
    """,
    "q19": """
        SELECT auction, row_number() OVER (PARTITION BY auction ORDER BY price DESC, moment) AS place,
          bidder, price, channel, url, moment AS at, extra
        FROM bid
        QUALIFY place <= 10
          AND max(moment) OVER (PARTITION BY auction) + INTERVAL 1 MINUTE <= (SELECT ended FROM clock)
    """,
    "q20": """
        SELECT b.*, a.item, a.description, a.initial_bid, a.reserve, a.moment AS opened, a.expires, a.seller, a.category
        FROM (SELECT auction, bidder, price, channel, url, moment AS at, extra FROM bid) b JOIN auction a ON b.auction = a.id
        WHERE a.category = 10
    """,
    "q21": """
        SELECT auction, bidder, price, channel,
          CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
            WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'
            ELSE string_split(url, 'channel_id=')[2] END AS channel_id
        FROM bid
        WHERE contains(url, 'channel_id=') OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
    """,
    "q22": """
        SELECT auction, bidder, price, channel, string_split(url, '/')[4] AS dir1, string_split(url, '/')[5] AS dir2,
          string_split(url, '/')[6] AS dir3
        FROM bid
    """,
}


class Event(NamedTuple):
    """A record of the topic: its value, and the time that Kafka has for it."""

    value: bytes
    arrived: datetime | None = None


def expected(events: Iterable[Event], *queries: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each query."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    tables = _tables(events)
    for name, table in tables.items():
        database.register(name, table)
    database.register("clock", _clock(tables))
    database.execute(f"CREATE VIEW side_input AS FROM read_csv('{SIDE_INPUT}')")
    return {name: database.sql(QUERIES[name]).to_arrow_table().to_pylist() for name in queries or QUERIES}


def _tables(events: Iterable[Event]) -> dict[str, pa.Table]:
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _TABLES}
    for event in events:
        read = orjson.loads(event.value)
        at = datetime.fromisoformat(read.pop("at"))
        ((kind, content),) = read.items()
        if "expires" in content:
            content["expires"] = datetime.fromisoformat(content["expires"])
        rows[kind].append({**content, "moment": at, "arrived": event.arrived})
    common = {"moment": _TIME, "arrived": _TIME}
    return {
        name: pa.Table.from_pylist(rows[name], pa.schema({**columns, **common})) for name, columns in _TABLES.items()
    }


def _clock(tables: dict[str, pa.Table]) -> pa.Table:
    """Return where the watermarks are: each holds for a kind of events, and a query has the least of its own."""
    newest = min(max(table["moment"].to_pylist()) for table in tables.values())
    arrived = tables["bid"]["arrived"].to_pylist()
    clock = {
        "ended": newest - DELAY,
        "joins_ended": newest - DELAY - BIDDING,
        "arrivals_ended": None if None in arrived else max(arrived) - ARRIVAL_DELAY,
    }
    return pa.Table.from_pylist([clock], pa.schema(dict.fromkeys(clock, _TIME)))


if __name__ == "__main__":
    file, *names = sys.argv[1:]
    for name, rows in expected(map(Event, Path(file).read_bytes().splitlines()), *names).items():
        print(f"{name}: {len(rows)} rows")
        for row in rows[:10]:
            print("  ", *row.values())

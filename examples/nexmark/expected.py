"""What the queries must give, worked out by DuckDB from the events as finished tables.

    millrace feed examples/nexmark/events.py --to files --out events.jsonl --count 5000 --pace 10/s --seed 7
    python examples/nexmark/expected.py events.jsonl q5
    python examples/nexmark/expected.py events.jsonl q5 --all

The SQL here is written as Nexmark states the queries, with OVER, ROW_NUMBER and count(DISTINCT), and knows nothing of
streams, except one thing: a window, a session or an auction that the watermark has not ended has no row yet.
"""

import json
from argparse import ArgumentParser
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from signal import SIG_DFL, SIGPIPE, signal
from typing import Any, NamedTuple

import duckdb

SIDE_INPUT = Path(__file__).parent / "data" / "side_input.csv"
_EVENT = """{
  "at": "TIMESTAMP",
  "person": {"id": "BIGINT", "name": "VARCHAR", "city": "VARCHAR", "state": "VARCHAR"},
  "auction": {
    "id": "BIGINT", "item": "VARCHAR", "description": "VARCHAR", "initial_bid": "BIGINT", "reserve": "BIGINT",
    "expires": "TIMESTAMP", "seller": "BIGINT", "category": "BIGINT"
  },
  "bid": {
    "auction": "BIGINT", "bidder": "BIGINT", "price": "BIGINT", "channel": "VARCHAR", "url": "VARCHAR",
    "extra": "VARCHAR"
  }
}"""

VIEWS = {
    "person": """SELECT event."at" AS moment, unnest(event.person) FROM events WHERE event.person IS NOT NULL""",
    "auction": """SELECT event."at" AS moment, unnest(event.auction) FROM events WHERE event.auction IS NOT NULL""",
    "bid": """SELECT event."at" AS moment, arrived, unnest(event.bid) FROM events WHERE event.bid IS NOT NULL""",
    # Where the watermarks of the pipelines are in the end: each goes by the newest of the events that its query reads.
    # A join of auctions and bids waits for bids a minute longer.
    "clock": """
        SELECT max(event."at") FILTER (event.bid IS NOT NULL) - INTERVAL 4 SECOND AS bids_ended,
          max(event."at") FILTER (event.bid IS NULL) - INTERVAL 4 SECOND AS sellers_ended,
          max(event."at") FILTER (event.person IS NULL) - INTERVAL 64 SECOND AS joins_ended,
          max(arrived) FILTER (event.bid IS NOT NULL) - INTERVAL 1 SECOND AS arrivals_ended
        FROM events
    """,
    # The first of the highest bids on each auction while it was open.
    "winners": """
        SELECT a.*, a.moment AS opened, b.bidder, b.price, b.moment AS bid_at, b.extra
        FROM auction a JOIN bid b ON b.auction = a.id AND b.moment BETWEEN a.moment AND a.expires
        WHERE a.moment <= (SELECT joins_ended FROM clock)
        QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.moment) = 1
    """,
    "statistics": """
        SELECT strftime(moment, '%Y-%m-%d') AS day, channel, grouping(channel) AS every_channel,
          strftime(max(moment), '%H:%M') AS minute, count(*) AS bids,
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
        FROM bid GROUP BY GROUPING SETS ((day), (day, channel))
    """,
}

QUERIES = {
    "q0": "SELECT auction, bidder, price, moment AS at, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, moment AS at, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE mod(auction, 123) = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id AS auction FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')
    """,
    "q4": """
        SELECT date_trunc('minute', opened) AS minute, category, avg(price) AS average, count(*) AS sold FROM winners
        WHERE date_trunc('minute', opened) + INTERVAL 1 MINUTE <= (SELECT joins_ended FROM clock) GROUP BY ALL
    """,
    "q5": """
        WITH counts AS (
          SELECT auction, time_bucket(INTERVAL 2 SECOND, moment) - 2 * step * INTERVAL 1 SECOND AS start,
            count(*) AS bids
          FROM bid, range(5) AS steps(step) GROUP BY ALL
        )
        SELECT start, start + INTERVAL 10 SECOND AS end, auction, bids FROM counts
        WHERE start + INTERVAL 10 SECOND <= (SELECT bids_ended FROM clock)
        QUALIFY rank() OVER (PARTITION BY start ORDER BY bids DESC) = 1
    """,
    "q6": """
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
        WHERE start + INTERVAL 10 SECOND <= (SELECT bids_ended FROM clock)
    """,
    "q8": """
        SELECT DISTINCT p.id, p.name, time_bucket(INTERVAL 10 SECOND, p.moment) AS start
        FROM person p JOIN auction a
        ON a.seller = p.id AND time_bucket(INTERVAL 10 SECOND, a.moment) = time_bucket(INTERVAL 10 SECOND, p.moment)
        WHERE time_bucket(INTERVAL 10 SECOND, p.moment) + INTERVAL 10 SECOND <= (SELECT sellers_ended FROM clock)
    """,
    "q9": """
        SELECT id, item, description, initial_bid, reserve, expires, opened, seller, category,
          bidder, price, bid_at AS at, extra
        FROM winners
    """,
    "q10": """
        SELECT auction, bidder, price, moment AS at, extra,
          strftime(moment, '%Y-%m-%d') AS day, strftime(moment, '%H-%M') AS minute
        FROM bid
    """,
    "q11": """
        WITH marked AS (
          SELECT *, moment >= lag(moment) OVER (PARTITION BY bidder ORDER BY moment) + INTERVAL 10 SECOND AS new
          FROM bid
        ), numbered AS (
          SELECT *, count(*) FILTER (new) OVER (PARTITION BY bidder ORDER BY moment) AS session FROM marked
        )
        SELECT bidder, count(*) AS bids, min(moment) AS start, max(moment) + INTERVAL 10 SECOND AS end
        FROM numbered GROUP BY bidder, session HAVING max(moment) + INTERVAL 10 SECOND <= (SELECT bids_ended FROM clock)
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
    "q15": "SELECT * EXCLUDE (channel, every_channel, minute) FROM statistics WHERE every_channel = 1",
    "q16": "SELECT * EXCLUDE every_channel FROM statistics WHERE every_channel = 0",
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
          AND max(moment) OVER (PARTITION BY auction) + INTERVAL 1 MINUTE <= (SELECT bids_ended FROM clock)
    """,
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.moment AS at, b.extra,
          a.item, a.description, a.initial_bid, a.reserve, a.moment AS opened, a.expires, a.seller, a.category
        FROM bid b JOIN auction a ON b.auction = a.id
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
    """A record of the topic: its value, and the time that Kafka has for it, in milliseconds since 1970."""

    value: bytes
    arrived: int | None = None
    """If it is not known, the time of the event stands for it."""


def expected(events: Iterable[Event], *queries: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each query."""
    values, arrivals = zip(*((event.value.decode(), event.arrived) for event in events), strict=True)
    database = duckdb.connect()
    database.read_csv(str(SIDE_INPUT)).create_view("side_input")
    database.execute(
        """
        CREATE TABLE events AS SELECT event, coalesce(arrived, event."at") AS arrived FROM (
          SELECT json_transform(value, ?) AS event, make_timestamp_ms(arrived) AS arrived
          FROM (SELECT unnest(?) AS value, unnest(?::BIGINT[]) AS arrived)
        )
        """,
        [_EVENT, values, arrivals],
    )
    for name, query in VIEWS.items():
        database.sql(query).create_view(name)
    return {name: _rows(database.sql(QUERIES[name])) for name in queries or QUERIES}


def _rows(result: duckdb.DuckDBPyRelation) -> list[dict[str, Any]]:
    return [dict(zip(result.columns, row, strict=True)) for row in result.fetchall()]


def main() -> None:
    """Print the rows of the queries: of each the first ten, or of one all, as JSON like the records of its topic."""
    parser = ArgumentParser(description="The rows that the queries of Nexmark must give, by DuckDB.")
    parser.add_argument("file", type=Path, help="the events, a line of JSON each")
    parser.add_argument("queries", nargs="*", choices=[[], *QUERIES], metavar="query", help="as q5; without one: all")
    parser.add_argument("--all", action="store_true", help="print every row, as JSON, instead of the first ten")
    given = parser.parse_args()
    for name, rows in expected(map(Event, given.file.read_bytes().splitlines()), *given.queries).items():
        if given.all:
            print(*sorted(json.dumps(row, default=_json, separators=(",", ":")) for row in rows), sep="\n")
            continue
        print(f"{name}: {len(rows)} rows")
        for row in rows[:10]:
            print("  ", *row.values())


def _json(value: object) -> object:
    return value.isoformat(timespec="milliseconds") + "Z" if isinstance(value, datetime) else float(str(value))


if __name__ == "__main__":
    signal(SIGPIPE, SIG_DFL)  # as of other commands whose output is cut by head
    main()

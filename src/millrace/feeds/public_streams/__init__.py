"""Read a public stream without end, across lost connections, into batches of records.

- `reader`: connects, reads ahead of the sink, reconnects, stops at once.
- `transport`: HTTP, server-sent events, lines of JSON, WebSocket messages, and their limits.
- `backoff`: which failures are retried, and after which delay.
- `progress`: the position up to which the sink has everything.

What an event is, and where its id and its time are, belongs to each feed.
"""

from millrace.feeds.public_streams.backoff import Backoff, ConnectionLapse, DelayRamp
from millrace.feeds.public_streams.progress import (
    CONNECTED,
    Event,
    PositionTracker,
    RecentIds,
    event_fields,
    key_of,
    timestamp_of,
    valid_timestamp,
)
from millrace.feeds.public_streams.reader import Events, PublicStream, StreamHalt, read_events
from millrace.feeds.public_streams.transport import (
    HttpClient,
    checked_url,
    json_lines,
    server_sent_events,
    user_agent,
    websocket_messages,
)

__all__ = [
    "CONNECTED",
    "Backoff",
    "ConnectionLapse",
    "DelayRamp",
    "Event",
    "Events",
    "HttpClient",
    "PositionTracker",
    "PublicStream",
    "RecentIds",
    "StreamHalt",
    "checked_url",
    "event_fields",
    "json_lines",
    "key_of",
    "read_events",
    "server_sent_events",
    "timestamp_of",
    "user_agent",
    "valid_timestamp",
    "websocket_messages",
]

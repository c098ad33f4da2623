"""What the feeds of public streams share: an origin is read without end, whatever happens to the connection.

Everything here is about the way from a stream to batches of records. What an event is and where in it the
id and the time are, is each feed's own.
"""

from millrace.feeds.public_streams.backoff import Backoff, ConnectionLapse, DelayRamp
from millrace.feeds.public_streams.progress import (
    CONNECTED,
    Event,
    PositionTracker,
    Recent,
    event_fields,
    key_of,
    not_future,
    time_of,
)
from millrace.feeds.public_streams.reader import Events, StreamHalt, read_events
from millrace.feeds.public_streams.sse import EventParser, ServerSentEvent, json_lines
from millrace.feeds.public_streams.transport import Web, checked_url, user_agent, websocket_messages

__all__ = [
    "CONNECTED",
    "Backoff",
    "ConnectionLapse",
    "DelayRamp",
    "Event",
    "EventParser",
    "Events",
    "PositionTracker",
    "Recent",
    "ServerSentEvent",
    "StreamHalt",
    "Web",
    "checked_url",
    "event_fields",
    "json_lines",
    "key_of",
    "not_future",
    "read_events",
    "time_of",
    "user_agent",
    "websocket_messages",
]

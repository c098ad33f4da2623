"""What the feeds of public streams share: an origin is read without end, whatever happens to the connection.

Everything here is about the way from a stream to batches of records. What an event is and where in it the
id and the time are, is each feed's own.
"""

from millrace.feeds.streams.backoff import Backoff, Lapse, Ramp
from millrace.feeds.streams.events import CONNECTED, Event, Recent, fields, key_of, not_future, time_of
from millrace.feeds.streams.progress import Progress
from millrace.feeds.streams.reading import Events, Halt, read
from millrace.feeds.streams.web import Web, checked_url, user_agent
from millrace.feeds.streams.websocket import messages
from millrace.feeds.streams.wire import EventParser, ServerSentEvent, lines

__all__ = [
    "CONNECTED",
    "Backoff",
    "Event",
    "EventParser",
    "Events",
    "Halt",
    "Lapse",
    "Progress",
    "Ramp",
    "Recent",
    "ServerSentEvent",
    "Web",
    "checked_url",
    "fields",
    "key_of",
    "lines",
    "messages",
    "not_future",
    "read",
    "time_of",
    "user_agent",
]

"""Read a public stream without end, across lost connections, into batches of records.

- `reader`: connects, reads ahead of the sink, reconnects, stops at once.
- `transport`: HTTP, server-sent events, lines of JSON, WebSocket messages, and their limits.
- `backoff`: which failures are retried, and after which delay.
- `progress`: the position up to which the sink has everything.

What an event is, and where its id and its time are, belongs to each feed.
"""

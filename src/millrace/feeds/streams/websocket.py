"""WebSocket messages from an origin, and what the failures of the connection mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidProxy, InvalidStatus
from websockets.sync.client import connect

from millrace.errors import FeedFailed
from millrace.feeds.streams.backoff import Lapse, refusal
from millrace.feeds.streams.reading import Halt
from millrace.feeds.streams.web import CONNECT_TIMEOUT, certificate_fault, untrusted, unusable_proxy, user_agent
from millrace.feeds.streams.wire import LONGEST

_TOO_BIG = 1009


def messages(url: str, halt: Halt, *, name: str, idle: float) -> Iterator[bytes | None]:
    """Messages as the bytes that came; first of all a None, once the server has accepted the connection.

    The connection is asked for a sign of life twice in `idle` seconds, and given up when there is none.
    """
    with (
        _faults(name),
        connect(
            url,
            user_agent_header=user_agent(),
            compression=None,
            open_timeout=CONNECT_TIMEOUT,
            ping_interval=idle / 2,
            ping_timeout=idle / 2,
            close_timeout=1.0,
            max_size=LONGEST,
        ) as connection,
    ):
        halt.cuts(connection.socket)
        yield None
        while True:
            yield connection.recv(decode=False)


@contextmanager
def _faults(name: str) -> Iterator[None]:
    try:
        yield
    except InvalidStatus as error:
        answer = error.response
        headers = {field.lower(): value for field, value in answer.headers.raw_items()}
        raise refusal(name, answer.status_code, headers, bytes(answer.body or b"")) from error
    except ConnectionClosed as error:
        if error.sent and error.sent.code == _TOO_BIG:
            raise FeedFailed(f"{name} sent a message that is too big", why=str(error)) from error
        raise Lapse(f"the connection was closed ({error})") from error
    except (InvalidProxy, ImportError) as error:
        raise unusable_proxy(error) from error
    except (InvalidHandshake, OSError) as error:
        if (wrong := certificate_fault(error)) is not None:
            raise untrusted(name, wrong) from error
        raise Lapse(str(error) or type(error).__name__) from error

"""Lines that somebody types become records of a topic, and what is made of them is told below."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable

from millrace.cli.output import say
from millrace.clients.cluster import Cluster
from millrace.telemetry.channels import Channels

_LOOK = 0.1
_TOLD = 8


def send_typed(
    cluster: Cluster, topic: str, ready: Callable[[], bool], stop: threading.Event, over: threading.Event
) -> None:
    """Send each line of standard input until its end or ours (`over`); at a terminal Ctrl-D ends all (`stop`).

    What is typed before the queries are `ready` waits: they read from where the topic ends when they start.
    """
    from millrace.clients.producer import Producer
    from millrace.clients.records import Record

    while not ready():
        if over.wait(_LOOK):
            return
    producer = Producer(cluster, topic, stop=over)
    if sys.stdin.isatty():
        say("type words; each line is sent when you press Enter, and Ctrl-D ends it")
    rest = b""
    try:
        # Not by readline, which would still wait for the keyboard when everything else has ended.
        while not over.is_set():
            if not select.select([sys.stdin.fileno()], [], [], _LOOK)[0]:
                continue
            read = os.read(sys.stdin.fileno(), 65_536)
            *lines, rest = (rest + read).split(b"\n") if read else (rest, b"")
            producer.send([Record(line) for line in lines if line.strip()])
            producer.flush()
            if not read:
                break
        if sys.stdin.isatty():
            stop.set()
    finally:
        producer.close()


def tell_counts(channels: Channels, panel: str, over: threading.Event) -> None:
    """Say the words with the highest counts whenever they change."""
    slot = channels.slot(f"panel:{panel}")
    told = ""
    while not over.wait(_LOOK):
        rows = (slot.value or {}).get("rows") or ()
        line = ", ".join(f"{label} {value}" for label, value in rows[:_TOLD])
        if line != told:
            told = line
            say(f"  {line}")

"""A dead letter in the terminal: as lines for people, and as one line of JSON for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.clients.dead import Found

_LONGEST = 1000


def line(one: Found) -> bytes:
    """A letter as a line of JSON, with where it lies and what became of it."""
    from millrace.clients.letters import to_line

    home = {"topic": one.home, "partition": one.partition, "offset": one.offset}
    lies = {"file": one.home, "line": one.offset} if one.partition is None else home
    more = {"attempts": one.letter.attempts, "redriven": one.redriven}
    return to_line(one.letter, dead=lies, buried=one.buried, **more)


def shown(one: Found) -> list[str]:
    """A letter as lines for people."""
    letter = one.letter
    made = "" if letter.timestamp is None else f" of {moment(letter.timestamp)}"
    return [
        f"{letter.place}{made}",
        f"  reason:   {safe(letter.reason)}",
        f"  pipeline: {letter.pipeline}, source {letter.source}",
        f"  letter:   {one.place} of {moment(one.buried)}{', sent again' if one.redriven else ''}",
        *([f"  attempts: {letter.attempts}"] if letter.attempts > 1 else []),
        *([] if letter.key is None else [f"  key:      {preview(letter.key)}"]),
        *(f"  header:   {safe(name)}: {preview(content)}" for name, content in letter.headers),
        f"  value:    {preview(letter.value)}",
    ]


def preview(content: bytes | None) -> str:
    """Bytes as text when they are text, else as hex; the first of them when there are many."""
    from millrace.clients.letters import text

    if content is None:
        return "(null)"
    words = text(content)
    if words is None:
        first = content[: _LONGEST // 10]
        return f"{first.hex(' ')}{' …' * (len(first) < len(content))} ({len(content):,} bytes, not UTF-8)"
    if len(words) > _LONGEST:
        return f"{safe(words[:_LONGEST])}… ({len(content):,} bytes)"
    return safe(words)


def safe(words: str) -> str:
    """Text that cannot steer the terminal it is shown on."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in words)


def moment(milliseconds: int | None) -> str | None:
    """A time, unless it is none that a calendar has."""
    if milliseconds is None:
        return None
    try:
        return (
            datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"

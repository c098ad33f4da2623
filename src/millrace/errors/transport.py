"""Our errors on their way out of Spark's Python workers: Spark hands on only the text of an exception."""

from __future__ import annotations

import json

import millrace.errors as errors
from millrace.errors import MillraceError, SourceLocation

_MARK = "millrace-error:"


class TransportedError(Exception):
    """One of our errors, written as a line that `restored` reads."""


def to_transport(error: BaseException) -> BaseException:
    """The error in a form that survives the way to the driver; any other error as it is."""
    if not isinstance(error, MillraceError):
        return error
    told = {
        "type": type(error).__name__,
        "message": error.message,
        "why": error.why,
        "hint": error.hint,
        "file": error.place.file if error.place else None,
        "line": error.place.line if error.place else None,
    }
    return TransportedError(_MARK + json.dumps(told))


def from_transport(text: str) -> MillraceError | None:
    """The error that a worker's text carries, if it does."""
    start = text.find(_MARK + "{")
    if start < 0:
        return None
    try:
        told, _ = json.JSONDecoder().raw_decode(text, start + len(_MARK))
    except ValueError:
        return None
    kind = getattr(errors, told["type"], errors.RunError)
    place = SourceLocation(told["file"], told["line"]) if told["file"] else None
    made: MillraceError = kind(told["message"], why=told["why"], hint=told["hint"], place=place)
    return made

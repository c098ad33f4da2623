"""Millrace's errors on their way from a Spark worker to the driver: Spark passes on only the text of an exception."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import millrace.errors as errors
from millrace.errors.base import MillraceError, RunError, SourceLocation

_MARK = "millrace-error:"
_NAMED = re.compile(rf"^{re.escape(errors.__name__)}\.(?:\w+\.)?(\w+): (.*)$", re.MULTILINE)
"""The last line of a traceback of one of our errors."""


class TransportedError(Exception):
    """One of our errors, written as a line of JSON that `from_transport` reads."""


def to_transport(error: BaseException) -> BaseException:
    """Return the error in a form whose text holds all its parts; an error that is not ours is returned as it is."""
    if not isinstance(error, MillraceError):
        return error
    payload = {
        "type": type(error).__name__,
        "message": error.message,
        "why": error.why,
        "hint": error.hint,
        "file": error.place.file if error.place else None,
        "line": error.place.line if error.place else None,
    }
    if isinstance(error, errors.FunctionFailed):
        payload["exception"] = error.exception
    return TransportedError(_MARK + json.dumps(payload))


@contextmanager
def errors_in_transport() -> Iterator[None]:
    """Raise our errors of a block, or of a decorated function, in the form of `to_transport`."""
    try:
        yield
    except MillraceError as error:
        raise to_transport(error) from error.__cause__  # the log of the executor shows it


def from_transport(text: str) -> MillraceError | None:
    """Return our error that a text carries; of one that was raised without `to_transport`, only its message."""
    start = text.find(_MARK + "{")
    if start >= 0:
        try:
            payload, _ = json.JSONDecoder().raw_decode(text, start + len(_MARK))
        except ValueError:
            return None
        place = SourceLocation(payload["file"], payload["line"]) if payload["file"] else None
        parts = {name: payload[name] for name in ("why", "hint", "exception") if name in payload}
        return _error_class(payload["type"])(payload["message"], place=place, **parts)
    named = _NAMED.findall(text)
    return _error_class(named[-1][0])(named[-1][1]) if named else None


def _error_class(name: str) -> type[MillraceError]:
    kind = getattr(errors, name, RunError)
    return kind if isinstance(kind, type) and issubclass(kind, MillraceError) else RunError

"""An error as the page shows it."""

from __future__ import annotations

from typing import Any

from millrace.errors import MillraceError


def told(error: MillraceError | None) -> dict[str, Any] | None:
    """Its words by what they are; None when there is no error."""
    if error is None:
        return None
    where = str(error.place) if error.place else None
    return {"message": error.message, "why": error.why, "hint": error.hint, "where": where}

"""Feeds: where events come from."""

from __future__ import annotations

from millrace.errors.base import InputError, RunError


class FeedInUse(InputError):
    """Another run of the same feed writes to the same place, and both would save their position."""

    condition = "feed.in-use"


class FeedFailed(RunError):
    """A feed's origin cannot be read any more."""

    condition = "feed.failed"

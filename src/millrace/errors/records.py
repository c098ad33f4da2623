"""Records that cannot be decoded, the dead letters that they become, and the registry of their schemas.

Feeds: where events come from.
"""

from __future__ import annotations

from millrace.errors.base import InputError, RunError


class BadRecord(RunError):
    """A record that cannot be decoded, in a source that is told to fail then."""

    condition = "record.bad"


class RedriveBusy(RunError):
    """Another redrive of the same dead letters is at work, or has taken over."""

    condition = "dead.redrive-busy"


class NotRedrivable(RunError):
    """Dead letters whose records cannot be put back where they came from."""

    condition = "dead.not-redrivable"


class RegistryUnreachable(RunError):
    """The schema registry does not answer, or not as one."""

    condition = "registry.unreachable"


class RegistryRefused(RunError):
    """The schema registry answers and refuses what is asked: the password, or a schema that does not fit."""

    condition = "registry.refused"


class FeedInUse(InputError):
    """Another run of the same feed writes to the same place, and both would save their position."""

    condition = "feed.in-use"


class FeedFailed(RunError):
    """A feed's origin cannot be read any more."""

    condition = "feed.failed"

"""What each batch of a stream reads, written ahead, so that a batch that comes again is the same batch."""

from __future__ import annotations

import json
from typing import Any

from millrace.dstreams.folder import Folder
from millrace.errors import CheckpointIncompatible, StateMismatch

Note = dict[str, Any]
"""What a batch reads, in words that JSON has."""
_ROOM = "millrace"
_OWNER = "owner.json"
_ENDING = ".json"
_FORGOTTEN = "forgotten"


class Notes:
    """The notes of one stream by batch time (in milliseconds); without a checkpoint they are in memory only."""

    def __init__(self, checkpoint: Folder | None, stream: str) -> None:
        self._folder = checkpoint.under(_ROOM).under(stream) if checkpoint else None
        self._known: dict[int, Note] = {}
        self._forgotten = -1
        """The newest batch whose note was removed."""
        if self._folder:
            self._load(self._folder)

    def _load(self, folder: Folder) -> None:
        for name in folder.names():
            if name.endswith(_ENDING) and name.removesuffix(_ENDING).isdigit():
                self._known[int(name.removesuffix(_ENDING))] = json.loads(folder.read(name) or b"{}")
        self._forgotten = int(folder.read(_FORGOTTEN) or -1)

    def at(self, time: int) -> Note | None:
        """What the batch of a time reads; None when that is not decided yet."""
        if time <= self._forgotten and time not in self._known:
            raise CheckpointIncompatible(
                f"what the batch of {time} read is no longer known",
                why="no checkpoint that is newer needs it, and this one is older",
                hint="start from the newest checkpoint, or anew with another folder",
            )
        return self._known.get(time)

    def last(self) -> tuple[int, Note] | None:
        """The newest one with its time."""
        return max(self._known.items(), key=lambda one: one[0], default=None)

    def before(self, time: int) -> Note | None:
        """The newest one of an earlier batch."""
        earlier = [one for one in self._known if one < time]
        return self._known[max(earlier)] if earlier else None

    def write(self, time: int, note: Note) -> None:
        """Decide a batch: it is safe on disk when this returns."""
        if self._folder:
            self._folder.write(f"{time}{_ENDING}", json.dumps(note).encode())
        self._known[time] = note

    def forget(self, before: int) -> None:
        """Remove what is older, but never the newest: the next batch begins where that ends."""
        gone = sorted(time for time in self._known if time < before)[: len(self._known) - 1]
        if not gone:
            return
        if self._folder:
            self._folder.write(_FORGOTTEN, str(gone[-1]).encode())
        for time in gone:
            if self._folder:
                self._folder.delete(f"{time}{_ENDING}")
            del self._known[time]
        self._forgotten = gone[-1]


def require_own(checkpoint: Folder, program: str, streams: list[str]) -> None:
    """The one rule of whose a checkpoint is: its folder belongs to the program that first wrote notes there.

    Spark would run the functions of the other program, whatever this one says.
    """
    room = checkpoint.under(_ROOM)
    found = room.read(_OWNER)
    if found is None:
        room.write(_OWNER, json.dumps({"program": program, "streams": streams}).encode())
        return
    owner = json.loads(found)
    if owner["program"] != program:
        raise StateMismatch(
            f"the checkpoint belongs to {owner['program']}, not to {program}",
            why=f"{owner['program']} reads {'; '.join(owner['streams'])}",
            hint="give each program a checkpoint folder of its own; one that was renamed starts anew with another",
        )


def forget_others(checkpoint: Folder, streams: list[str]) -> None:
    """Remove the notes of streams of earlier starts, which began anew in the same folder."""
    room = checkpoint.under(_ROOM)
    for name in room.names():
        if name != _OWNER and name not in streams and not name.startswith("."):
            room.delete(name)


def oldest_checkpoint(checkpoint: Folder) -> int | None:
    """The time of the oldest of Spark's checkpoints that is still there."""
    times = [name.removeprefix("checkpoint-").removesuffix(".bk") for name in checkpoint.names()]
    return min((int(time) for time in times if time.isdigit()), default=None)

"""Explains errors of Spark that a DStream program or its checkpoint causes."""

from __future__ import annotations

import re

from millrace.errors import CheckpointUnusable, InvalidStreams, MillraceError
from millrace.errors.spark_text import full_text, python_error_of, root_cause

_NO_FOLDER = "The checkpoint directory has not been set"
_NOT_A_MULTIPLE = re.compile(r"(window|slide)Duration must be multiple of .+?\((\d+) ms\)", re.DOTALL)
_UNREADABLE = re.compile(r"Failed to read checkpoint from directory (.+)")
_MISSING_FOLDER = re.compile(r"Checkpoint directory does not exist: (?:file:)?(.+)")
_NEW_FOLDER = "or start with a new folder: the state and the offsets of sources then start from scratch too"
_DURATIONS = {"window": "length of a window", "slide": "slide of a window"}


def explain_dstream_error(error: BaseException) -> MillraceError | None:
    """Return the error to show for an exception that a program did not catch; None if it is none of these."""
    try:
        text = full_text(error)
    except Exception:  # an error of Java reads its text from the JVM, which may have ended: the traceback is shown
        return None
    place = python_error_of(error).place
    if _NO_FOLDER in text:
        return InvalidStreams(
            "a stream keeps state, and there is no checkpoint folder",
            why="updateStateByKey, and windows with an inverse function, keep their state in it",
            hint="call ssc.checkpoint(FOLDER) before the start",
            place=place,
        )
    if match := _NOT_A_MULTIPLE.search(text):
        interval = f"{int(match[2]) / 1000:g} s"
        return InvalidStreams(
            f"the {_DURATIONS[match[1]]} is not a multiple of {interval}",
            why=f"the stream has a batch every {interval}, and a window consists of whole batches",
            hint=f"choose a multiple of {interval}, or another batch interval for the StreamingContext",
            place=place,
        )
    if match := _MISSING_FOLDER.search(text):
        return CheckpointUnusable(
            f"the checkpoint refers to {match[1].strip()}, which does not exist",
            why="it has the full paths of its files: the folder was moved or copied, or a part of it was removed",
            hint=f"move the folder back, {_NEW_FOLDER}",
            place=place,
        )
    if match := _UNREADABLE.search(text):
        return CheckpointUnusable(
            f"no checkpoint in {match[1].strip()} can be read",
            why=root_cause(error).partition("\n")[0],
            hint=f"undo the change of the program or its modules, restore a copy of the folder, {_NEW_FOLDER}",
            place=place,
        )
    return None

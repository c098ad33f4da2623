"""What Spark refuses of a DStream program, in our words: the program or its checkpoint is to be mended."""

from __future__ import annotations

import re
from collections.abc import Callable

from millrace.errors import CheckpointUnusable, InvalidStreams, MillraceError, SourceLocation
from millrace.errors.spark_text import full_text, python_error_of, root_cause

_NO_FOLDER = re.compile(r"The checkpoint directory has not been set")
_NO_MULTIPLE = re.compile(r"(window|slide)Duration must be multiple of .+?\((\d+) ms\)", re.DOTALL)
_UNREADABLE = re.compile(r"Failed to read checkpoint from directory (.+)")
_ELSEWHERE = re.compile(r"Checkpoint directory does not exist: (?:file:)?(.+)")
_ANEW = "or start anew with another one: the state, and how far sources were read, begins anew too"

_Rule = Callable[[re.Match[str], BaseException, SourceLocation | None], MillraceError]


def refused(error: BaseException) -> MillraceError | None:
    """The error to show for an exception that a program did not catch; None when it is not one of these."""
    try:
        text = full_text(error)
    except Exception:  # an error of Java's asks its JVM for its words, which may be gone: the program's trace tells
        return None
    for pattern, rule in _RULES:
        if found := pattern.search(text):
            return rule(found, error, python_error_of(error).place)
    return None


def _no_folder(found: re.Match[str], error: BaseException, place: SourceLocation | None) -> MillraceError:
    del found, error
    return InvalidStreams(
        "a stream keeps state, and there is no checkpoint folder",
        why="updateStateByKey, and windows with an inverse function, keep in one what they know",
        hint="call ssc.checkpoint(FOLDER) before the start",
        place=place,
    )


def _no_multiple(found: re.Match[str], error: BaseException, place: SourceLocation | None) -> MillraceError:
    del error
    every = f"{int(found[2]) / 1000:g} s"
    return InvalidStreams(
        f"the {_SPANS[found[1]]} is no multiple of {every}",
        why=f"the stream has a batch every {every}, and a window is made of whole batches",
        hint=f"choose a multiple of {every}, or another batch interval for the StreamingContext",
        place=place,
    )


def _unreadable(found: re.Match[str], error: BaseException, place: SourceLocation | None) -> MillraceError:
    return CheckpointUnusable(
        f"no checkpoint in {found[1].strip()} can be read",
        why=root_cause(error).partition("\n")[0],
        hint=f"undo what was changed in the program or its modules, put back a copy of the folder, {_ANEW}",
        place=place,
    )


def _elsewhere(found: re.Match[str], error: BaseException, place: SourceLocation | None) -> MillraceError:
    del error
    return CheckpointUnusable(
        f"the checkpoint refers to {found[1].strip()}, which is not there",
        why="it knows its files by their full paths: the folder was moved or copied, or a part of it was removed",
        hint=f"put the folder back where it was, {_ANEW}",
        place=place,
    )


_SPANS = {"window": "length of a window", "slide": "slide of a window"}
_RULES: tuple[tuple[re.Pattern[str], _Rule], ...] = (
    (_NO_FOLDER, _no_folder),
    (_NO_MULTIPLE, _no_multiple),
    (_ELSEWHERE, _elsewhere),
    (_UNREADABLE, _unreadable),
)

"""An exception of the user's file as one error with its place, whatever the exception does when it is looked at."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any

from millrace.errors import InvalidDefinition, SourceLocation, described

FUNCTIONS_MODULE = "millrace_functions"
"""The name under which a file of `functions:` runs."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def mistake(file: str, error: BaseException) -> InvalidDefinition:
    """Return the error that says what the code of a file did wrong, and on which of its lines."""
    if isinstance(error, SyntaxError) and _is_of_parser(error):
        place = SourceLocation(error.filename or file, error.lineno)
        return InvalidDefinition(f"the file does not parse: {error.msg}", place=place)
    place = place_in(file, error)
    if isinstance(error, SystemExit):
        hint = "leave it out: a pipeline's file only describes the pipeline"
        return InvalidDefinition(f"the file ended itself with {described(error)}", place=place, hint=hint)
    if _is_of_pyspark(error):
        why = "no Spark runs while the file is read; a column or a session is made where rows are"
        hint = "move it into the function of a table"
        return InvalidDefinition("this line asks Spark for something", place=place, why=why, hint=hint)
    return InvalidDefinition(f"the file raised {described(error)}", place=place, hint="fix that line")


def place_in(file: str, error: BaseException) -> SourceLocation:
    """Return the last line of the user's file on the way to where an error was raised."""
    own = Path(file).absolute()
    lines = [line for frame, line in walk_tb(error.__traceback__) if Path(frame.f_code.co_filename).absolute() == own]
    return SourceLocation(file, lines[-1] if lines else None)


@contextmanager
def interrupts_noted() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether the user has interrupted since: a file may raise KeyboardInterrupt itself."""
    arrived: list[int] = []

    def noting(before: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], Any]:
        def handle(number: int, frame: FrameType | None) -> Any:
            arrived.append(number)
            return before(number, frame)

        return handle

    previous = {number: signal.getsignal(number) for number in _ENDING}
    # Elsewhere than in the main thread no signal interrupts.
    main = threading.current_thread() is threading.main_thread()
    ours = {number: noting(before) for number, before in previous.items() if main and callable(before)}
    for number, handler in ours.items():
        signal.signal(number, handler)
    try:
        yield lambda: bool(arrived)
    finally:
        for number, handler in ours.items():
            if signal.getsignal(number) is handler:  # else the file has a handler of its own
                signal.signal(number, previous[number])


def _is_of_parser(error: SyntaxError) -> bool:
    """Whether what it says of itself is what the parser says; a file may raise one with anything in it."""
    return type(error.msg) is str and type(error.filename) is str and type(error.lineno) in (int, type(None))


def _is_of_pyspark(error: BaseException) -> bool:
    frames = list(walk_tb(error.__traceback__))
    return bool(frames) and "pyspark" in Path(frames[-1][0].f_code.co_filename).parts

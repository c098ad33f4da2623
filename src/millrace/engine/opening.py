"""A Spark session that is opened while other things start, and closed at the end, however that comes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millrace.engine.session import close_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def opened_aside(open_session: Callable[[], SparkSession]) -> Iterator[Future[SparkSession]]:
    """The session to be. Whoever interrupts is not held up: what is cut off now is run again at the next start."""
    opening: Future[SparkSession] = Future()
    # A daemon: a JVM that is still starting when we are interrupted ends with this process, which need not wait for it.
    threading.Thread(target=_settle, args=(opening, open_session), name="session", daemon=True).start()
    hurried = False
    try:
        yield opening
    except KeyboardInterrupt:
        hurried = True
        raise
    finally:
        if (opening.done() or not hurried) and opening.exception() is None:
            close_session(opening.result(), hurried=hurried)


def _settle(opening: Future[SparkSession], open_session: Callable[[], SparkSession]) -> None:
    try:
        opening.set_result(open_session())
    except BaseException as error:
        opening.set_exception(error)

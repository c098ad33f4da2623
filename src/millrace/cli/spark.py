"""What every command that starts Spark has ready before: the connectors, and an archive for quick starts."""

from __future__ import annotations

from millrace.cli.output import fetching, status_line
from millrace.cli.signals import interruptible


def prepare_spark(*sets: str) -> None:
    """Fetch and make what is missing; the first time takes a while and says so. `sets` are jars besides Spark's."""
    from millrace.engine import archive
    from millrace.engine.session import is_submitted

    if is_submitted():  # Spark runs, and has its jars
        return
    fetch_jars("spark", *sets)
    with interruptible(), status_line() as tell:
        archive.ensure(tell)


def fetch_jars(*sets: str) -> None:
    """Fetch the sets that are missing."""
    from millrace.services import jars

    for name in sets:
        with interruptible(), fetching() as progress:
            jars.ensure(name, progress)

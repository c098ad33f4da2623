"""What every command that starts Spark has ready before: the connectors, and an archive for quick starts."""

from __future__ import annotations

from millrace.cli.output import fetching, status_line
from millrace.cli.signals import interruptible


def prepare_spark(*sets: str) -> None:
    """Fetch and make what is missing; the first time takes a while and says so. `sets` are jars besides Spark's."""
    from millrace.engine import archive
    from millrace.engine.session import is_submitted
    from millrace.services import jars

    if is_submitted():  # Spark runs, and has its jars
        return
    for name in ("spark", *sets):
        with interruptible(), fetching() as progress:
            jars.ensure(name, progress)
    with interruptible(), status_line() as tell:
        archive.ensure(tell)

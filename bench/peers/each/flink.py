"""Apache Flink: the Table API of PyFlink, in one process as it starts by itself."""

from __future__ import annotations

import zipfile
from pathlib import Path

from peers.contract import Peer, Place
from peers.homes import PROGRAMS, compiled, environment, jar_set

VERSION = "2.3.0"


class Flink(Peer):
    """Checkpoints every 5 s, every second where it writes exactly once; mini-batches, except where latency counts.

    The campaign of an ad comes from a function in Java: its joins would keep every event.
    """

    name = "Flink"
    jobs = frozenset({"words", "ads", "once", "state", "stateless", "keyed", "windowed", "filtered"})

    def prepare(self) -> None:
        """PyFlink, the connector, and the function that is compiled against PyFlink's own jars."""
        self._python = environment("flink", f"apache-flink=={VERSION}")
        library = next(self._python.parents[1].glob("lib/python*/site-packages/pyflink/lib"))
        classes = compiled(PROGRAMS / "CampaignOf.java", f"{library}/*")
        function = classes / "campaign-of.jar"
        with zipfile.ZipFile(function, "w") as jar:
            for path in classes.glob("*.class"):
                jar.write(path, path.name)
        self._jars = [jar_set("flink-kafka"), str(function)]

    def command(self, place: Place) -> list[str | Path]:  # noqa: ARG002
        """Its own Python."""
        return [self._python, PROGRAMS / "with_flink.py"]

    def variables(self, place: Place) -> dict[str, str]:  # noqa: ARG002
        """The jars, as addresses."""
        return {"JARS": ";".join(f"file://{path}" for path in self._jars)}

    def version(self) -> str:
        """As it is pinned."""
        return VERSION

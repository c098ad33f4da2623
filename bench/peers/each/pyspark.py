"""PySpark without Millrace: as textbooks write it, and tuned by hand."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

from millrace.services import jars
from peers.contract import Peer, Place
from peers.homes import PROGRAMS


class PlainPySpark(Peer):
    """Spark's defaults, from_json, Spark's own Kafka sink (at least once)."""

    name = "plain PySpark"
    jobs = frozenset({"words", "ads", "state", "stateless", "keyed"})
    tuned = ""

    def command(self, place: Place) -> list[str | Path]:  # noqa: ARG002
        """The same Python and the same PySpark as ours."""
        return [sys.executable, PROGRAMS / "with_pyspark.py"]

    def variables(self, place: Place) -> dict[str, str]:  # noqa: ARG002
        """The connector's jars, which textbooks take from the network at each start."""
        connector = jars.ensure("spark").classpath().replace(":", ",")
        return {
            "JARS": connector,
            "TUNED": self.tuned,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def version(self) -> str:
        """Spark's."""
        return version("pyspark")


class TunedPySpark(PlainPySpark):
    """The settings of an expert: partitions as cores, no page, larger fetches, real-time mode for latency."""

    name = "tuned PySpark"
    jobs = PlainPySpark.jobs | {"windowed", "filtered"}
    tuned = "1"

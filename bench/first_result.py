"""From the call to the first result: `millrace run` against a minimal PySpark program, interleaved."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import MILLRACE, broker, median

from millrace.clients.kafka import topics
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.services import jars

ROUNDS = int(os.environ.get("ROUNDS", "5"))
PIPELINE = """
name: first
sources: {lines: {kafka: lines, format: text}}
tables: {counts: "SELECT value, count(*) AS count FROM lines GROUP BY value"}
sinks: [{from: counts, console: , mode: complete}]
"""
PROGRAM = """
import os
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.jars", os.environ["JARS"]).getOrCreate()
lines = spark.readStream.format("kafka").option("kafka.bootstrap.servers", os.environ["MILLRACE_KAFKA"])
lines = lines.option("subscribe", "lines").option("startingOffsets", "earliest").load()
counts = lines.selectExpr("cast(value as string) value").groupBy("value").count()
counts.writeStream.format("console").outputMode("complete").start().awaitTermination()
"""


def first_result(*command: str | Path, folder: str) -> float:
    """Seconds until the first table's line of a result is printed."""
    started = time.monotonic()
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert any(b"|hello" in line for line in process.stdout)
        took = time.monotonic() - started
        process.terminate()
    return took


def main() -> None:
    """Both in turn."""
    os.environ["JARS"] = jars.ensure("spark").classpath().replace(":", ",")
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    took: dict[str, list[float]] = {"ours": [], "bare": []}
    with broker() as cluster:
        os.environ["MILLRACE_KAFKA"] = cluster.bootstrap
        topics.create(cluster, "lines", 1)
        producer = Producer(cluster, "lines")
        producer.send([Record(b"hello")])
        producer.close()
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "p.yaml").write_text(PIPELINE)
                Path(folder, "p.py").write_text(PROGRAM)
                took["bare"].append(first_result(sys.executable, "p.py", folder=folder))
                took["ours"].append(first_result(MILLRACE, "run", "p.yaml", folder=folder))
    ours, bare = median(took["ours"]), median(took["bare"])
    print(f"first result, seconds: ours {ours:.1f}, bare PySpark {bare:.1f}, ratio {ours / bare:.2f} (goal: 1.3)")


if __name__ == "__main__":
    main()

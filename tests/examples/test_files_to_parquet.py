"""examples/files-to-parquet."""

from __future__ import annotations

import orjson
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from .conftest import EXAMPLES, Stage

DATA = EXAMPLES / "files-to-parquet" / "data"
COLUMNS = ["application", "level", "time", "method", "path", "status", "latency"]


def test_every_line_is_in_the_folder_of_its_level_once(stage: Stage, spark: SparkSession) -> None:
    out = stage.folder / "out"
    places = {"examples/files-to-parquet/data": str(DATA), "examples/files-to-parquet/out": str(out)}
    stage.run("files-to-parquet", places)
    stage.run("files-to-parquet", places)  # nothing new, nothing written
    lines = [orjson.loads(line) for file in DATA.glob("*.json") for line in file.read_bytes().splitlines()]
    written = ds.dataset(out, partitioning="hive", exclude_invalid_files=False).to_table().to_pylist()
    found = sorted((row["level"], row["application"], row["path"], row["latency"]) for row in written)
    assert found == sorted((line["level"], line["application"], line["path"], line["latency"]) for line in lines)
    by_level = {row["level"]: row["count"] for row in spark.read.parquet(str(out)).groupBy("level").count().collect()}
    assert by_level == {"ERROR": 37, "INFO": 191, "WARN": 12}
    assert {folder.name for folder in out.glob("level=*")} == {"level=ERROR", "level=INFO", "level=WARN"}
    assert set(written[0]) == set(COLUMNS)

"""What a task reads is described the same wherever it runs, by what this version of Spark has."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from millrace.connectors.base.batch_tasks import task_numbers
from millrace.connectors.base.rdd_lineage import SPARK_VERSION, _parent_inputs, _partition_input, task_inputs

SOURCE = "DataSourceRDDPartition"


class Java:
    """An object of Spark's: a class name, a text, and methods that answer."""

    def __init__(self, kind: str, text: str = "", **answers: Any) -> None:
        self._kind, self._text = kind, text
        for name, answer in answers.items():
            setattr(self, name, lambda *_, answer=answer: answer)

    def getClass(self) -> Java:  # noqa: N802 - Java's name
        return self

    def getSimpleName(self) -> str:  # noqa: N802 - Java's name
        return self._kind

    def toString(self) -> str:  # noqa: N802 - Java's name
        return self._text


def kafka(partition: int, first: int, end: int, host: str | None) -> Java:
    """A part of a topic, as the Kafka source plans it; on a cluster each has an executor that would read it."""
    place = f"Some({host})" if host else "None"
    span = f"KafkaOffsetRange(t-0-{partition},{first},{end},{place})"
    return Java(SOURCE, inputPartition=Java("Some", f"Some(KafkaBatchInputPartition({span},{{…}},512))"))


@pytest.mark.parametrize("host", ["executor_10.0.0.1_1", "executor_10.0.0.2_5", None])
def test_kafka_is_told_without_the_executor(host: str | None) -> None:
    assert _partition_input(SOURCE, kafka(2, 5, 9, host), 0) == "[t-0/2 5-9]"


@pytest.mark.parametrize(("text", "told"), [("Some(Part(1,2))", "[Part(1,2)]"), ("None", "[]")])
def test_another_source_is_told_as_it_tells_itself(text: str, told: str) -> None:
    assert _partition_input(SOURCE, Java(SOURCE, inputPartition=Java("", text)), 0) == told


def test_files_are_told_by_path_and_range() -> None:
    part = Java("FilePartition", "FilePartition(0,[…],[host-a, host-b])", files=[Java("", "path: a.json, range: 0-9")])
    assert _partition_input("FilePartition", part, 3) == "[path: a.json, range: 0-9]"


def test_what_has_no_name_is_told_by_its_number() -> None:
    assert _partition_input("ParallelCollectionPartition", Java("", "Partition@1f2e3d"), 3) == "[3]"


def test_behind_a_shuffle_rows_are_dealt_out_by_what_is_in_them() -> None:
    assert _parent_inputs("ShuffleDependency", Java(""), 3) == ["[part 0]", "[part 1]", "[part 2]"]


def test_executors_in_another_order_change_no_number() -> None:
    planned = [_partition_input(SOURCE, kafka(number, 0, 9, f"executor_a_{number}"), number) for number in range(4)]
    again = [
        _partition_input(SOURCE, kafka(number, 0, 9, f"executor_b_{number}"), 3 - number) for number in (3, 1, 0, 2)
    ]
    first, second = task_numbers(tuple(planned)), task_numbers(tuple(again))
    assert dict(zip(planned, first, strict=True)) == dict(zip(again, second, strict=True))


def test_it_was_written_for_this_version_of_spark() -> None:
    """Another version needs a look at the sources of RDD, DataSourceRDD and KafkaBatchInputPartition."""
    assert pyspark.__version__.startswith(f"{SPARK_VERSION}.")


def test_spark_has_what_is_reached_for(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    spark.range(4).repartition(2).write.json(str(folder))
    spark.conf.set("spark.sql.files.maxPartitionBytes", "1")
    try:
        files = spark.read.schema("id long").json(str(folder))
        inputs = task_inputs(files)
        assert len(inputs) > 1
        assert all(str(folder) in text for text in inputs)
        assert task_inputs(files.union(files)) == inputs * 2
        assert task_inputs(files.coalesce(1)) == ("".join(inputs),)
        assert task_inputs(files.repartition(3, "id")) == ("[part 0]", "[part 1]", "[part 2]")
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


def test_spark_has_the_classes_of_sources() -> None:
    """Their names and methods are constants in the class files of Spark."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-sql_*.jar")
    with zipfile.ZipFile(jar) as archive:
        names = archive.namelist()
        named = {
            kind: archive.read(next(name for name in names if name.endswith(f"/{kind}.class")))
            for kind in ("DataSourceRDDPartition", "FilePartition", "PythonStreamingInputPartition")
            if any(name.endswith(f"/{kind}.class") for name in names)
        }
    assert b"inputPartition" in named["DataSourceRDDPartition"]
    assert b"files" in named["FilePartition"]
    assert b"pickedPartition" in named["PythonStreamingInputPartition"]

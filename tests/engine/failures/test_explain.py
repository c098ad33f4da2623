"""Real exceptions of Spark become errors of ours, with no Java in them."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from py4j.protocol import Py4JNetworkError
from pyspark.errors import StreamingQueryException

from errors.test_spark_text import POSITION, PROXY
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.engine.failures.classify import FailureKind, classify
from millrace.engine.failures.explain import explain
from millrace.errors import InvalidSchema, MillraceError, QueryFailed, SourceLocation
from millrace.errors.transport import to_transport
from millrace.object_stores import StoreFailed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

HERE = __file__
YAML = SourceLocation("pipeline.yaml", 10)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.fixture
def read(spark: SparkSession, cluster: Cluster) -> Callable[..., DataFrame]:
    """A stream of a topic."""

    def read(topic: str, **options: str) -> DataFrame:
        wanted = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return spark.readStream.format("kafka").options(**(wanted | options)).load()

    return read


def write(cluster: Cluster, topic: str, values: list[bytes], partition: int = -1) -> None:
    """Records into a topic."""
    producer = Producer(cluster.config())
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def test_what_real_time_mode_refuses(read: Callable[..., DataFrame], topic: str, checkpoint: str) -> None:
    from pyspark.sql import functions as F

    loud = read(topic).select(F.udf(lambda value: value)("value").alias("value"))
    options = {"kafka.bootstrap.servers": "localhost:1", "topic": topic, "checkpointLocation": checkpoint}
    writer = loud.writeStream.format("kafka").options(**options).outputMode("update").trigger(realTime="5 minutes")
    with pytest.raises(StreamingQueryException) as raised:
        writer.start().awaitTermination()
    error = explain(raised.value, place=YAML)
    assert error.message.startswith("Spark's real-time mode does not do ")
    assert "PythonExec" in error.message
    assert "allowlist" not in "".join(error.lines())
    assert classify(error, "").kind is FailureKind.TERMINAL


def run(rows: DataFrame, checkpoint: str, mode: str = "append") -> None:
    """Everything that is there, through a query."""
    writer = rows.writeStream.format("noop").outputMode(mode).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def failure(act: Callable[[], Any], **known: Any) -> MillraceError:
    """What is explained of an act that fails."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever Spark throws
        act()
    error = explain(caught.value, **known)
    told = "\n".join(error.lines())
    assert "\tat " not in told
    assert "SQLSTATE" not in told
    assert "Logical Plan" not in told
    return error


def line_of(text: str) -> int:
    """The line of this file that has a text (the first that is not this call)."""
    lines = Path(HERE).read_text("utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_an_unknown_column(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load()
    error = failure(lambda: rows.select("valeu"))  # the unknown column
    assert error.condition == "spark.analysis"
    assert "`value`" in str(error.hint)
    assert error.place == SourceLocation(HERE, line_of("# the unknown column"))


def test_sql_is_shown_by_its_line_in_the_file(spark: SparkSession) -> None:
    spark.range(1).createOrReplaceTempView("numbers")
    for sql in ("SELECT id\nFROM numbers\nWHERE idd > 0", "SELECT id\nFROM numbers\nWERE id > 0"):
        error = explain(refused(spark, sql), place=YAML)
        assert error.condition == "spark.analysis"
        assert error.place == SourceLocation("pipeline.yaml", 12)
        assert "line 3" in str(error.why)


def refused(spark: SparkSession, sql: str) -> BaseException:
    """What Spark throws at the engine: no line of the user's on the way."""
    namespace: dict[str, Any] = {}
    exec(compile("def call(spark, sql): spark.sql(sql)", inspect.getfile(MillraceError), "exec"), namespace)  # noqa: S102
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever Spark throws
        namespace["call"](spark, sql)
    return caught.value.with_traceback(caught.tb.tb_next)


def test_what_streams_do_not_have(spark: SparkSession, checkpoint: str) -> None:
    rows = spark.readStream.format("rate").load()
    assert failure(lambda: run(rows.sort("value"), checkpoint)).condition == "spark.analysis"
    assert failure(lambda: run(rows.groupBy("value").count(), checkpoint)).condition == "spark.analysis"
    assert failure(lambda: spark.readStream.format("nope").load(), place=YAML).condition == "spark.analysis"
    assert failure(lambda: spark.readStream.format("kafka").load()).condition == "spark.analysis"
    assert failure(lambda: rows.select(rows.value + 1, 3.5)).condition == "spark.analysis"


def test_a_function_that_raises(read: Callable[..., DataFrame], cluster: Cluster, topic: str, checkpoint: str) -> None:
    from pyspark.sql.functions import udf

    write(cluster, topic, [b"1", b"2"], partition=0)
    run(read(topic), checkpoint)
    write(cluster, topic, [b"3", b"4"], partition=0)

    @udf("string")
    def strict(value):  # type: ignore[no-untyped-def]  # Spark would ask the hints for the kind of function
        raise ValueError("I take nothing")  # the function's line

    error = failure(lambda: run(read(topic).select(strict("value")), checkpoint), place=YAML)
    assert error.condition == "function.failed"
    assert error.place == SourceLocation(HERE, line_of("# the function's line"))
    assert "ValueError: I take nothing" in error.message
    assert f"topic {topic} partition 0 offsets 2-3" in str(error.why)


def test_a_function_for_batches_that_raises(read: Callable[..., DataFrame], topic: str, checkpoint: str) -> None:
    def refuse(rows: DataFrame, batch: int) -> None:
        raise RuntimeError("the sink refuses")

    writer = read(topic).writeStream.foreachBatch(refuse).option("checkpointLocation", checkpoint)
    error = failure(lambda: writer.trigger(availableNow=True).start().awaitTermination())
    assert error.condition == "function.failed"
    assert "refuse raised RuntimeError: the sink refuses" in error.message


def test_an_error_of_ours_comes_out_of_a_worker_whole(spark: SparkSession) -> None:
    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise to_transport(
            InvalidSchema("no such type", why="it is «new»", hint="fix it", place=SourceLocation("a.yaml", 3))
        )

    error = failure(lambda: spark.range(1).mapInArrow(decode, "id long").collect())
    assert isinstance(error, InvalidSchema)
    assert (error.message, error.why, error.hint) == ("no such type", "it is «new»", "fix it")
    assert error.place == SourceLocation("a.yaml", 3)


def test_an_error_of_ours_out_of_a_batch(spark: SparkSession, checkpoint: str) -> None:
    def refuse(rows: DataFrame, batch: int) -> None:
        raise QueryFailed("the sink is away")

    rows = spark.readStream.format("rate").load()
    writer = rows.writeStream.foreachBatch(refuse).option("checkpointLocation", checkpoint)
    error = failure(lambda: writer.trigger(once=True).start().awaitTermination())
    assert (error.condition, error.message) == ("query.failed", "the sink is away")


def test_a_full_disk(spark: SparkSession) -> None:
    def full(row: Any) -> None:
        Path("/dev/full").write_text("x" * 100_000)

    error = failure(lambda: spark.range(1).foreach(full))
    assert error.condition == "disk.full"


def test_offsets_that_are_gone(read: Callable[..., DataFrame], cluster: Cluster, topic: str, checkpoint: str) -> None:
    write(cluster, topic, [b"x"] * 5, partition=0)
    run(read(topic), checkpoint)
    write(cluster, topic, [b"x"] * 5, partition=0)
    (deleted,) = cluster.admin().delete_records([TopicPartition(topic, 0, 8)]).values()
    deleted.result()
    error = failure(lambda: run(read(topic), checkpoint), cluster=cluster)
    assert error.condition == "kafka.offsets-gone"
    assert error.message == f"topic {topic!r}, partition 0: offsets 5 to 7 are gone, the first that exists is 8"
    assert "on_data_loss: continue" in str(error.hint)
    assert "5 to 9" in failure(lambda: run(read(topic), checkpoint)).message


def test_a_topic_that_was_made_anew(read: Callable[..., DataFrame], cluster: Cluster, checkpoint: str) -> None:
    name = f"again-{uuid.uuid4().hex[:8]}"
    topics.create(cluster, name, 1)
    write(cluster, name, [b"x"] * 5, partition=0)
    run(read(name), checkpoint)
    topics.delete(cluster, [name])
    error = failure(lambda: run(read(name), checkpoint))
    assert error.condition == "kafka.topic-unknown"
    assert name in error.message
    topics.create(cluster, name, 1)
    error = failure(lambda: run(read(name), checkpoint))
    assert (error.condition, "at offset 5" in error.message) == ("kafka.offsets-gone", True)


def test_nobody_answers(read: Callable[..., DataFrame], checkpoint: str) -> None:
    away = {
        "kafka.bootstrap.servers": "127.0.0.1:9",
        "kafka.default.api.timeout.ms": "2000",
        "kafka.request.timeout.ms": "1000",
    }
    assert failure(lambda: run(read("any", **away), checkpoint)).condition == "kafka.unreachable"


def test_a_query_that_was_changed(
    read: Callable[..., DataFrame], cluster: Cluster, topic: str, checkpoint: str
) -> None:
    def changed(rows: DataFrame, mode: str = "update") -> MillraceError:
        error = failure(lambda: run(rows, checkpoint, mode))
        assert error.condition == "checkpoint.incompatible"
        assert "--state" in str(error.hint)
        return error

    write(cluster, topic, [b"x"])
    run(read(topic).groupBy("value").count(), checkpoint, "update")
    write(cluster, topic, [b"y"])
    other_keys = changed(read(topic).groupBy("value", "partition").count())
    assert other_keys.why == "its state is kept by value; the query now wants value, partition"
    assert "holds count" in str(changed(read(topic).groupBy("value").agg({"topic": "max"})).why)
    assert "[2] sources" in str(changed(read(topic).union(read(topic)).groupBy("value").count()).why)
    changed(read(topic), "append")


def test_any_other_failure_of_a_batch(
    read: Callable[..., DataFrame], cluster: Cluster, topic: str, checkpoint: str
) -> None:
    write(cluster, topic, [b"not a number"], partition=0)
    rows = read(topic).selectExpr("cast(cast(value AS string) AS int)")
    error = failure(lambda: run(rows, checkpoint))
    assert error.condition == "query.failed"
    assert "'not a number'" in error.message
    assert f"topic {topic} partition 0" in error.message


def test_the_exception_of_a_query_that_has_ended(
    read: Callable[..., DataFrame], cluster: Cluster, topic: str, checkpoint: str
) -> None:
    write(cluster, topic, [b"not a number"], partition=0)
    rows = read(topic).selectExpr("cast(cast(value AS string) AS int)")
    query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        query.awaitTermination()
    ended = query.exception()
    assert ended
    error = explain(ended)
    assert error.condition == "query.failed"
    assert f"topic {topic} partition 0" in error.message


def test_nobody_answers_while_a_batch_is_written() -> None:
    failed = StreamingQueryException(f"[STREAM_FAILED] Query [id = f] terminated with exception: {PROXY}")
    error = explain(failed)
    assert (error.condition, error.why) == ("kafka.unreachable", POSITION)
    other = explain(
        StreamingQueryException(
            PROXY.replace("org.apache.kafka.common.errors.Timeout", "a.b.Odd").replace(
                "Timeout of 60000ms expired before", "Nobody has"
            )
        )
    )
    assert "Traceback" not in "".join(other.lines())
    assert other.message.endswith("Nobody has the position for partition nums-0 could be determined")


def test_a_jvm_that_is_gone() -> None:
    assert explain(Py4JNetworkError("Answer from Java side is empty")).condition == "spark.failed"
    assert explain(ConnectionRefusedError(111, "Connection refused")).condition == "spark.failed"


def test_a_connection_of_the_users_own_is_not_the_jvms() -> None:
    def call() -> None:
        raise ConnectionResetError(104, "Connection reset by peer")

    assert failure(call).condition == "function.failed"


def test_a_store_that_fails() -> None:
    """It is no function of the user's, and its words tell whether it may work another time."""
    error = explain(StoreFailed(0, "Service Unavailable (Service: S3, Status Code: 503)", "s3a://runs/state/x"))
    assert error.condition == "run.failed"
    assert "s3a://runs/state/x" in error.message
    assert classify(error).kind is FailureKind.TRANSIENT
    gone = StoreFailed(0, "Spark's JVM does not answer", "s3a://runs/state/x")
    gone.__cause__ = Py4JNetworkError("Answer from Java side is empty")
    assert explain(gone).condition == "spark.failed"


def test_an_exception_of_plain_python() -> None:
    def table() -> None:
        raise KeyError("posts")  # the table's line

    error = failure(table, place=YAML)
    assert error.condition == "function.failed"
    assert error.place == SourceLocation(HERE, line_of("# the table's line"))
    mine = QueryFailed("mine")
    assert explain(mine) is mine

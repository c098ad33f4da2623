"""A stream of Spark's that gives nothing, once a batch: what the batch reads is decided then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.streaming import StreamingContext

_KIND = "ConstantInputDStream"


def ticking(ssc: StreamingContext) -> tuple[Any, Any]:
    """An input that needs nothing outside: it gives the same empty RDD for each batch. The stream, and Java's of it."""
    jvm: Any = ssc._jvm
    tag = getattr(jvm.scala.reflect, "ClassTag$").__getattr__("MODULE$").Any()
    empty = ssc._sc._jsc.sc().emptyRDD(tag)
    tick = getattr(jvm.org.apache.spark.streaming.dstream, _KIND)(ssc._jssc.ssc(), empty, tag)
    return tick, jvm.JavaDStream(tick, tag)


def keep_ticking(ssc: StreamingContext) -> None:
    """Before a context starts: the RDD of an input that comes from a checkpoint belongs to no SparkContext.

    Spark would find out as soon as it lets go of the first batch after the recovery (SPARK-13758), and end.
    """
    context = ssc._jssc.ssc()
    for stream in context.graph().getInputStreams():
        if stream.getClass().getSimpleName() == _KIND:
            empty = _field(stream.getClass(), "rdd").get(stream)
            owner = _field(empty.getClass().getSuperclass(), "_sc")
            if owner.get(empty) is None:
                owner.set(empty, context.sparkContext())


def _field(owner: Any, name: str) -> Any:
    found = owner.getDeclaredField(name)
    found.setAccessible(True)
    return found

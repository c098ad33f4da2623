"""The lag of the Kafka consumers in Spark's JVM, as they measure it themselves.

In real-time mode Spark reports what it has read only at checkpoints, minutes apart. Its consumers know their lag at any
time. On a local master they run in the driver's JVM, whose management beans have the metric.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONSUMERS = "kafka.consumer:type=consumer-fetch-manager-metrics,client-id=*,topic=*,partition=*"
_LAG = "records-lag"
_OBJECT_NAME = "javax.management.ObjectName"


def consumer_lag(spark: SparkSession) -> dict[tuple[str, int], int]:
    """Return the lag by topic and partition: the largest, if several consumers read a partition.

    Empty on a cluster's master, whose consumers run elsewhere. The name of a topic may have `_` for each dot.
    """
    lags: dict[tuple[str, int], int] = {}
    with suppress(Exception):  # Spark is being stopped, or a consumer has just ended
        beans = _ManagementBeans(spark)
        for name in beans.names(_CONSUMERS):
            lag = beans.attribute(name, _LAG)
            if lag is None or lag != lag:  # NaN before the first fetch
                continue
            topic, partition = (name.getKeyProperty(key).strip('"') for key in ("topic", "partition"))
            key = (topic, int(partition))
            lags[key] = max(lags.get(key, 0), int(lag))
    return lags


class _ManagementBeans:
    """The JVM's management beans. The class of their server is hidden, so its public interface is called."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway: Any = spark.sparkContext._gateway
        self._jvm = self._gateway.jvm
        self._server = self._jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()

    def names(self, pattern: str) -> Any:
        types = (_OBJECT_NAME, "javax.management.QueryExp")
        return self._call("queryNames", types, self._jvm.javax.management.ObjectName(pattern), None)

    def attribute(self, name: Any, attribute: str) -> Any:
        return self._call("getAttribute", (_OBJECT_NAME, "java.lang.String"), name, attribute)

    def _call(self, method: str, types: tuple[str, ...], *arguments: Any) -> Any:
        find, java = self._jvm.java.lang.Class.forName, self._jvm.java.lang
        classes = self._gateway.new_array(java.Class, len(types))
        values = self._gateway.new_array(java.Object, len(arguments))
        for index, (name, argument) in enumerate(zip(types, arguments, strict=True)):
            classes[index], values[index] = find(name), argument
        return find("javax.management.MBeanServer").getMethod(method, classes).invoke(self._server, values)

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
        gateway: Any = spark.sparkContext._gateway
        consumers = gateway.jvm.javax.management.ObjectName(_CONSUMERS)
        any_bean = ("javax.management.QueryExp", None)
        for name in _call(gateway, "queryNames", (_OBJECT_NAME, consumers), any_bean):
            lag = _call(gateway, "getAttribute", (_OBJECT_NAME, name), ("java.lang.String", _LAG))
            if lag is None or lag != lag:  # NaN before the first fetch
                continue
            topic, partition = (name.getKeyProperty(key).strip('"') for key in ("topic", "partition"))
            key = (topic, int(partition))
            lags[key] = max(lags.get(key, 0), int(lag))
    return lags


def _call(gateway: Any, method: str, *arguments: tuple[str, Any]) -> Any:
    """Call a method of the server of management beans: by its public interface, since its class is hidden."""
    java = gateway.jvm.java.lang
    classes, values = (gateway.new_array(kind, len(arguments)) for kind in (java.Class, java.Object))
    for index, (kind, argument) in enumerate(arguments):
        classes[index], values[index] = java.Class.forName(kind), argument
    server = java.management.ManagementFactory.getPlatformMBeanServer()
    return java.Class.forName("javax.management.MBeanServer").getMethod(method, classes).invoke(server, values)

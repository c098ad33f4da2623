"""How far Kafka's consumers inside Spark's JVM are behind, as they themselves measure it.

In real-time mode Spark tells what it has read only at checkpoints, minutes apart. Its consumers know at any time; on a
local master they are in the driver's JVM, where its management beans can be asked.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONSUMERS = "kafka.consumer:type=consumer-fetch-manager-metrics,client-id=*,topic=*,partition=*"
_LAG = "records-lag"


def consumer_lag(spark: SparkSession) -> dict[tuple[str, int], int]:
    """Records that wait, by topic and partition; of several consumers of one partition the one that is furthest behind.

    Nothing on a cluster's master, whose consumers are elsewhere. A topic's name may have `_` for each dot.
    """
    found: dict[tuple[str, int], int] = {}
    with suppress(Exception):  # Spark is being stopped, which others tell; or a consumer has just ended
        beans = _Beans(spark)
        for name in beans.named(_CONSUMERS):
            lag = beans.attribute(name, _LAG)
            if lag is None or lag != lag:  # NaN before the first fetch
                continue
            place = (_unquoted(name.getKeyProperty("topic")), int(_unquoted(name.getKeyProperty("partition"))))
            found[place] = max(found.get(place, 0), int(lag))
    return found


class _Beans:
    """The JVM's management beans. Their server's class is hidden, so its public interface is asked for the methods."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway: Any = spark.sparkContext._gateway
        self._jvm = self._gateway.jvm
        self._server = self._jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()

    def named(self, pattern: str) -> Any:
        """The names that match."""
        parameters = ("javax.management.ObjectName", "javax.management.QueryExp")
        return self._call("queryNames", parameters, self._jvm.javax.management.ObjectName(pattern), None)

    def attribute(self, name: Any, attribute: str) -> Any:
        """One value of one bean."""
        return self._call("getAttribute", ("javax.management.ObjectName", "java.lang.String"), name, attribute)

    def _call(self, method: str, parameters: tuple[str, ...], *arguments: Any) -> Any:
        find, java = self._jvm.java.lang.Class.forName, self._jvm.java.lang
        kinds = self._gateway.new_array(java.Class, len(parameters))
        given = self._gateway.new_array(java.Object, len(arguments))
        for place, (kind, argument) in enumerate(zip(parameters, arguments, strict=True)):
            kinds[place] = find(kind)
            given[place] = argument
        return find("javax.management.MBeanServer").getMethod(method, kinds).invoke(self._server, given)


def _unquoted(text: str) -> str:
    return text.strip('"')

"""Queries on streams that Spark takes or refuses, by output mode.

`a` and `b` are streams, `a_w` and `b_w` the same with a watermark on `at`, `s` is static.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import functions as F

MODES = ("append", "update", "complete")
_IN_TIME = "b_w.at BETWEEN a_w.at AND a_w.at + INTERVAL 1 MINUTE"

_WRITTEN = (
    "SELECT * FROM a",
    "SELECT tag, count(*) AS c FROM a GROUP BY tag",
    "SELECT count(*) AS c FROM a",
    "SELECT tag, count(*) AS c FROM a GROUP BY ALL",
    "SELECT tag FROM a GROUP BY tag",
    "SELECT count(*) FILTER (WHERE id > 1) AS c FROM a",
    "SELECT tag, count(*) AS c FROM a_w GROUP BY tag",
    "SELECT at, count(*) AS c FROM a_w GROUP BY at",
    "SELECT (at) AS at, count(*) AS c FROM a_w GROUP BY 1",
    "SELECT CAST(at AS timestamp) AS at, count(*) AS c FROM a_w GROUP BY 1",
    "SELECT date_trunc('minute', at) AS m, count(*) AS c FROM a_w GROUP BY 1",
    "SELECT window(at, '1 minute') AS w, count(*) AS c FROM a GROUP BY 1",
    "SELECT window(at, '1 minute') AS w, count(*) AS c FROM a_w GROUP BY 1",
    "SELECT window(at, '1 minute') AS w, count(*) AS c FROM a_w GROUP BY w",
    "SELECT window(at, '1 minute') AS w, tag, count(*) AS c FROM a_w GROUP BY window(at, '1 minute'), tag",
    "SELECT window(x, '1 minute') AS w, count(*) AS c FROM (SELECT at AS x FROM a_w) GROUP BY 1",
    "SELECT window(x, '1 minute') AS w, count(*) AS c FROM (SELECT at + INTERVAL 1 HOUR AS x FROM a_w) GROUP BY 1",
    "SELECT w, count(*) AS c FROM (SELECT window(at, '1 minute') AS w FROM a_w) GROUP BY w",
    "SELECT w.end, count(*) AS c FROM (SELECT window(at, '1 minute') AS w FROM a_w) GROUP BY w.end",
    "SELECT at, tag, count(*) AS c FROM a_w GROUP BY at, ROLLUP (tag)",
    "SELECT session_window(at, '1 minute') AS w, tag, count(*) AS c FROM a_w GROUP BY 1, 2",
    "SELECT DISTINCT tag FROM a",
    "SELECT DISTINCT at, tag FROM a_w",
    "SELECT tag FROM a UNION SELECT tag FROM b",
    "SELECT at FROM a_w UNION SELECT at FROM b_w",
    "SELECT tag FROM a UNION ALL SELECT tag FROM b",
    "SELECT tag FROM a UNION ALL SELECT tag FROM s",
    "SELECT at, count(*) AS c FROM (SELECT at FROM a_w UNION ALL SELECT at FROM b) GROUP BY at",
    "SELECT at, count(*) AS c FROM (SELECT at FROM a UNION ALL SELECT at FROM b_w) GROUP BY at",
    "SELECT * FROM a ORDER BY id",
    "SELECT * FROM a SORT BY id",
    "SELECT * FROM a CLUSTER BY id",
    "SELECT * FROM a DISTRIBUTE BY id",
    "SELECT tag, count(*) AS c FROM a GROUP BY tag ORDER BY c DESC LIMIT 3",
    "SELECT tag, count(*) AS c FROM (SELECT * FROM a ORDER BY id) GROUP BY tag",
    "SELECT * FROM a LIMIT 3",
    "SELECT window(at, '1 minute') AS w, count(*) AS c FROM a_w GROUP BY 1 LIMIT 3",
    "SELECT * FROM a OFFSET 3",
    "SELECT count(DISTINCT tag) AS c FROM a",
    "SELECT id, sum(DISTINCT id) AS c FROM a GROUP BY id",
    "SELECT tag, approx_count_distinct(id) AS c FROM a GROUP BY tag",
    "SELECT row_number() OVER (PARTITION BY tag ORDER BY id) AS r FROM a",
    "SELECT * FROM a QUALIFY row_number() OVER (PARTITION BY tag ORDER BY id) = 1",
    "SELECT tag, sum(count(*)) OVER () AS c FROM a GROUP BY tag",
    "SELECT tag FROM a INTERSECT SELECT tag FROM s",
    "SELECT tag FROM a EXCEPT SELECT tag FROM b",
    "SELECT tag FROM a EXCEPT SELECT tag FROM s",
    "SELECT tag FROM s EXCEPT SELECT tag FROM a",
    "SELECT a.* FROM a JOIN b ON a.id = b.id",
    "SELECT a.* FROM a CROSS JOIN b",
    "SELECT a.* FROM a, b WHERE a.id = b.id",
    "SELECT a_w.* FROM a_w JOIN b_w ON a_w.id = b_w.id AND IN_TIME",
    "SELECT a.* FROM a LEFT JOIN b ON a.id = b.id",
    "SELECT a_w.* FROM a_w LEFT JOIN b_w ON a_w.id = b_w.id",
    "SELECT a_w.* FROM a_w LEFT JOIN b_w ON a_w.id = b_w.id AND IN_TIME",
    "SELECT a_w.* FROM a_w LEFT JOIN b_w ON a_w.id = b_w.id WHERE IN_TIME",
    "SELECT a_w.* FROM a_w RIGHT JOIN b_w ON a_w.id = b_w.id AND IN_TIME",
    "SELECT a_w.* FROM a_w FULL JOIN b_w ON a_w.id = b_w.id AND IN_TIME",
    "SELECT * FROM a_w LEFT SEMI JOIN b_w ON a_w.id = b_w.id AND IN_TIME",
    "SELECT * FROM a_w LEFT ANTI JOIN b_w ON a_w.id = b_w.id AND IN_TIME",
    "SELECT * FROM a LEFT SEMI JOIN b ON a.id = b.id",
    "SELECT a_w.* FROM a_w LEFT JOIN b ON a_w.id = b.id AND b.at BETWEEN a_w.at AND a_w.at + INTERVAL 1 MINUTE",
    "SELECT a_w.* FROM a_w LEFT JOIN b_w ON a_w.id = b_w.id AND b_w.at <= a_w.at",
    "SELECT a_w.* FROM a_w LEFT JOIN b_w ON a_w.id = b_w.id AND b_w.at >= a_w.at",
    "SELECT a_w.* FROM a_w RIGHT JOIN b_w ON a_w.id = b_w.id AND a_w.at < b_w.at + INTERVAL 1 MINUTE",
    "SELECT a_w.* FROM a_w RIGHT JOIN b_w ON a_w.id = b_w.id AND a_w.at > b_w.at - INTERVAL 1 MINUTE",
    "SELECT * FROM a_w LEFT SEMI JOIN b_w ON a_w.id = b_w.id AND b_w.at >= a_w.at - INTERVAL 1 MINUTE",
    "SELECT a_w.* FROM a_w LEFT JOIN b_w ON a_w.at = b_w.at",
    "SELECT a_w.* FROM a_w LEFT JOIN b_w USING (at)",
    "SELECT a.* FROM a JOIN s ON a.id = s.id",
    "SELECT a.* FROM a LEFT JOIN s ON a.id = s.id",
    "SELECT a.* FROM a RIGHT JOIN s ON a.id = s.id",
    "SELECT a.* FROM a FULL JOIN s ON a.id = s.id",
    "SELECT * FROM a LEFT ANTI JOIN s ON a.id = s.id",
    "SELECT s.* FROM s LEFT JOIN a ON a.id = s.id",
    "SELECT s.* FROM s LEFT SEMI JOIN a ON a.id = s.id",
    "SELECT *, (SELECT max(id) FROM b) AS m FROM a",
    "SELECT *, (SELECT max(id) FROM s) AS m FROM a",
    "SELECT * FROM a WHERE id IN (SELECT id FROM b)",
    "SELECT * FROM a WHERE id NOT IN (SELECT id FROM s)",
    "SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.id = b.id)",
    "SELECT * FROM a, LATERAL (SELECT * FROM s WHERE s.id = a.id)",
    "SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.id = a.id)",
    "SELECT t FROM a LATERAL VIEW explode(split(tag, '')) x AS t",
    "SELECT window(window_time(w), '1 hour') FROM (SELECT window(at, '1 minute') AS w FROM a_w GROUP BY 1) GROUP BY 1",
    "SELECT c, count(*) AS n FROM (SELECT tag, count(*) AS c FROM a GROUP BY tag) GROUP BY c",
    "SELECT x, count(*) AS c FROM (SELECT a_w.at AS x FROM a_w JOIN b_w ON a_w.id = b_w.id AND IN_TIME) GROUP BY x",
    "SELECT x.tag FROM (SELECT tag, count(*) AS c FROM a GROUP BY tag) x JOIN b ON x.tag = b.tag",
    "SELECT x.tag, c FROM (SELECT tag, count(*) AS c FROM a GROUP BY tag) x JOIN s ON x.tag = s.tag",
    "SELECT tag, count(*) AS c FROM (SELECT DISTINCT id, tag FROM a) GROUP BY tag",
    "SELECT * FROM a TABLESAMPLE (10 PERCENT)",
    "SELECT monotonically_increasing_id() AS i FROM a",
    "SELECT * FROM (SELECT id, tag FROM a) PIVOT (count(id) FOR tag IN ('1', '2'))",
    "WITH a AS (SELECT * FROM a WHERE id > 1), c AS (SELECT tag, count(*) AS c FROM a GROUP BY tag) SELECT * FROM c",
    "SELECT * FROM s",
    "SELECT tag, count(*) AS c FROM a WHERE id IN (SELECT id FROM s ORDER BY id LIMIT 3) GROUP BY tag",
)
SQL = tuple(query.replace("IN_TIME", _IN_TIME) for query in _WRITTEN)


def same(a: Any) -> Any:
    return a.where("id > 1").select("id", "tag")


def counted(a: Any) -> Any:
    return a.groupBy("tag").count()


def all_counted(a: Any) -> Any:
    return a.agg(F.count("*"))


def in_windows(a_w: Any) -> Any:
    return a_w.groupBy(F.window("at", "1 minute"), "tag").count()


def in_windows_late(a: Any) -> Any:
    waited = a.withWatermark("at", "10 seconds")
    renamed = waited.select(F.col("at").alias("x"), "tag")
    return renamed.groupBy(F.window("x", "1 minute").alias("w"), "tag").agg(F.count("*").alias("c"))


def watermark_too_late(a: Any) -> Any:
    return a.groupBy("at").count().withWatermark("at", "1 second")


def in_sessions(a_w: Any) -> Any:
    return a_w.groupBy(F.session_window("at", "1 minute"), "tag").count()


def by_tag_only(a_w: Any) -> Any:
    return a_w.groupBy("tag").count()


def shifted(a_w: Any) -> Any:
    return a_w.withColumn("x", F.date_trunc("minute", "at")).select("x").groupBy(F.window("x", "1 minute")).count()


def sorted_rows(a: Any) -> Any:
    return a.orderBy("id")


def sorted_counts(a: Any) -> Any:
    return a.groupBy("tag").count().orderBy(F.desc("count")).limit(3)


def limited(a: Any) -> Any:
    return a.limit(3)


def sampled(a: Any) -> Any:
    return a.sample(0.1)


def deduplicated(a: Any) -> Any:
    return a.dropDuplicates(["id"])


def deduplicated_within(a_w: Any) -> Any:
    return a_w.dropDuplicatesWithinWatermark(["id"])


def deduplicated_within_nothing(a: Any) -> Any:
    return a.dropDuplicatesWithinWatermark(["id"])


def distinct_counted(a: Any) -> Any:
    return a.groupBy("tag").agg(F.count_distinct("id").alias("c"))


def numbered(a: Any) -> Any:
    return a.withColumn("i", F.monotonically_increasing_id())


def joined(a: Any, b: Any) -> Any:
    return a.join(b, "id")


def left_joined(a: Any, b: Any) -> Any:
    return a.join(b, "id", "left")


def left_joined_in_time(a_w: Any, b_w: Any) -> Any:
    x, y = a_w.alias("x"), b_w.alias("y")
    return x.join(y, F.expr("x.id = y.id AND y.at BETWEEN x.at AND x.at + INTERVAL 1 MINUTE"), how="left_outer").select(
        "x.id"
    )


def anti_joined(a: Any, b: Any) -> Any:
    return a.join(b, "id", "left_anti")


def right_joined_static(a: Any, s: Any) -> Any:
    return a.join(s, "id", "right")


def joined_static(a: Any, s: Any) -> Any:
    return a.join(s, "id", "left")


def mixed(a: Any, s: Any) -> Any:
    return a.select("id").unionByName(s.select("id"))


def both(a: Any, b: Any) -> Any:
    return a.union(b)


def intersected(a: Any, s: Any) -> Any:
    return a.select("id").intersect(s.select("id"))


def counted_twice(a: Any) -> Any:
    return a.groupBy("tag").count().groupBy("count").agg(F.count("*"))


def counted_twice_in_time(a_w: Any) -> Any:
    minutes = a_w.groupBy(F.window("at", "1 minute")).count()
    return minutes.groupBy(F.window("window", "1 hour")).agg(F.sum("count"))


def pivoted(a: Any) -> Any:
    return a.groupBy("tag").pivot("id", [1, 2]).count()


FUNCTIONS: tuple[Callable[..., Any], ...] = tuple(
    made for made in list(globals().values()) if getattr(made, "__module__", None) == __name__ and callable(made)
)


def ask_spark(spark: Any) -> dict[str, dict[str, bool]]:
    """Whether Spark takes each query in each mode."""
    frames = {"s": spark.range(10).selectExpr("id", "cast(id AS string) AS tag")}
    for name in ("a", "b"):
        rows = spark.readStream.format("rate").load()
        frames[name] = rows.selectExpr("timestamp AS at", "value AS id", "cast(value AS string) AS tag")
        frames[f"{name}_w"] = frames[name].withWatermark("at", "10 seconds")
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    asked: dict[str, Callable[[], Any]] = {query: lambda query=query: spark.sql(query) for query in SQL}  # type: ignore[misc]
    for function in FUNCTIONS:
        given = [frames[name] for name in function.__code__.co_varnames[: function.__code__.co_argcount]]
        asked[function.__name__] = lambda function=function, given=given: function(*given)  # type: ignore[misc]
    return {name: {mode: _takes(spark, make, mode) for mode in MODES} for name, make in asked.items()}


def _takes(spark: Any, make: Callable[[], Any], mode: str) -> bool:
    jvm = spark._jvm.org.apache.spark.sql
    try:
        plan = make()._jdf.queryExecution().analyzed()
        asked = getattr(jvm.streaming.OutputMode, mode.capitalize())()
        jvm.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, asked)
    except Exception:
        return False
    return True

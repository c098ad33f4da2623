"""PySpark's methods and functions as far as a stream's shape depends on them."""

from __future__ import annotations

import ast
from dataclasses import replace

from millrace.pipeline.shapes.shape import Shape

GROUPS = frozenset({"groupBy", "groupby", "rollup", "cube"})
AGGREGATES = frozenset({"agg", "count", "sum", "avg", "mean", "max", "min"})
STATES = frozenset({"applyInPandasWithState", "transformWithState", "transformWithStateInPandas"})
DEDUPLICATES = frozenset({"distinct", "dropDuplicates", "drop_duplicates"})
ACTIONS = frozenset({"count", "collect", "show", "toPandas", "first", "head", "take", "tail", "foreach", "isEmpty"})
STEPS = {
    "orderBy": "sort",
    "sort": "sort",
    "sortWithinPartitions": "sort",
    "limit": "limit",
    "offset": "offset",
    "sample": "sample",
    "sampleBy": "sample",
    "randomSplit": "sample",
}
SETS = {
    "union": "union",
    "unionAll": "union",
    "unionByName": "union",
    "intersect": "intersect",
    "intersectAll": "intersect",
    "subtract": "except",
    "exceptAll": "except",
}
COLUMNS = {
    "countDistinct": "distinct",
    "count_distinct": "distinct",
    "sumDistinct": "distinct",
    "sum_distinct": "distinct",
    "over": "over",
    "monotonically_increasing_id": "number",
    "explode": "explode",
    "explode_outer": "explode",
    "posexplode": "explode",
    "posexplode_outer": "explode",
    "inline": "explode",
    "current_timestamp": "clock",
    "current_date": "clock",
    "now": "clock",
}
_SAME = frozenset(
    {"filter", "where", "alias", "hint", "repartition", "coalesce", "cache", "persist", "observe", "fillna", "fill"}
)


def after(shape: Shape, name: str, node: ast.Call) -> Shape:
    """The rows that another method gives: what it does to the columns of event time."""
    words = [_text(one) for one in node.args]
    if name == "withWatermark":
        return shape.watermarked((words[0] if words else None) or "")
    if name in _SAME:
        return shape
    known = name in ("select", "selectExpr", "withColumn", "withColumnRenamed", "drop", "dropna", "toDF", "withColumns")
    if not shape.events:
        return shape if known else replace(shape, opaque=True)
    kept = _kept(shape.events, name, node, words)
    return replace(shape, events=kept, opaque=shape.opaque or not known)


def _kept(events: frozenset[str], name: str, node: ast.Call, words: list[str | None]) -> frozenset[str] | None:
    named = [word.lower() if word else None for word in words]
    if name == "withColumn" and named and named[0]:
        return events if named[0] not in events else None
    if name == "withColumnRenamed" and len(named) == 2 and named[0] and named[1]:
        return frozenset(named[1] if one == named[0] else one for one in events)
    if name == "drop" and None not in named:
        return events - set(named)
    if name == "select":
        columns = [(event_of(one, events), name_of(one)) for one in node.args]
        if any(word == "*" for word in words):
            return events
        if all(found is not None for found, _ in columns):
            return frozenset(column for found, column in columns if found and column)
    return None


def event_of(node: ast.expr, events: frozenset[str]) -> bool | None:
    """Whether a column carries the watermark: "at", F.col("at"), posts.at, F.window("at", …); None if unclear."""
    text = _text(node)
    if text is not None:
        return text.lower() in events
    if isinstance(node, ast.Attribute):
        return node.attr.lower() in events
    if isinstance(node, ast.Subscript):
        return event_of(node.slice, events)
    if not isinstance(node, ast.Call):
        return None
    name = _called(node)
    if name == "alias" and isinstance(node.func, ast.Attribute):
        return event_of(node.func.value, events)
    if name in ("col", "column", "window", "session_window", "window_time") and node.args:
        return event_of(node.args[0], events)
    if name in ("expr", "") or not isinstance(node.func, ast.Attribute | ast.Name):
        return None
    # Any other function makes a new column, which has no watermark; a helper of the user's may return anything.
    return False if isinstance(node.func, ast.Attribute) else None


def name_of(node: ast.expr) -> str | None:
    """The name of a column, in small letters, when it can be told."""
    text = _text(node)
    if text is not None:
        return text.lower()
    if isinstance(node, ast.Attribute):
        return node.attr.lower()
    if isinstance(node, ast.Subscript):
        return name_of(node.slice)
    if isinstance(node, ast.Call):
        name = _called(node)
        if name in ("alias", "col", "column") and node.args:
            return (_text(node.args[0]) or "").lower() or None
        return name if name in ("window", "session_window", "window_time") else None
    return None


def ends_duplicates(shape: Shape, node: ast.Call) -> bool | None:
    """Whether a watermark ends what a deduplication remembers: event time must be among its columns."""
    if not shape.events:
        return None if shape.events is None else False
    given = next((one.value for one in node.keywords if one.arg == "subset"), node.args[0] if node.args else None)
    if given is None:
        return True
    if not isinstance(given, ast.List | ast.Tuple):
        return None
    names = [_text(one) for one in given.elts]
    if any(name and name.lower() in shape.events for name in names):
        return True
    return None if None in names else False


def ends_join(left: Shape, right: Shape, node: ast.Call) -> bool | None:
    """Whether watermarks end the state of a join; a condition that is an expression cannot be told."""
    if left.events is None or right.events is None:
        return None
    events = left.events | right.events
    if not events:
        return False
    on = node.args[1] if len(node.args) > 1 else next((one.value for one in node.keywords if one.arg == "on"), None)
    keys = list(on.elts) if isinstance(on, ast.List | ast.Tuple) else [on] if on is not None else []
    names = [_text(key) for key in keys if key is not None]
    if any(name and name.lower() in events for name in names):
        return True
    return None if None in names else False


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None

"""Two versions of a table's SQL side by side."""

from __future__ import annotations

import re
from typing import Any

from millrace.errors import InvalidSql
from millrace.pipeline.sql import parsed

_OPERAND = re.compile(r"'(?:[^']|'')*'|`[^`]+`|\b\d[\w.]*|\b[a-z_]\w*(?:\.[a-z_]\w*)*\b")


def only_filters_differ(before: str, now: str) -> bool | None:
    """Whether WHERE is all that differs between two plain SELECTs; None when they say the same."""
    from sqlglot import exp

    try:
        old, new = parsed(before), parsed(now)
    except InvalidSql:
        return False
    if _written(old) == _written(new):
        return None
    if any(not isinstance(one, exp.Select) or one.find(exp.Subquery, exp.With) for one in (old, new)):
        return False
    return _written(_unfiltered(old)) == _written(_unfiltered(new))


def skeleton(written: str) -> str:
    """An expression without its columns and literals: what is left is certain, whatever a column is called."""
    return _OPERAND.sub("?", written)


def _unfiltered(tree: Any) -> Any:
    copy = tree.copy()
    copy.set("where", None)
    return copy


def _written(tree: Any) -> str:
    written: str = tree.sql(dialect="spark", comments=False)
    return written

"""The functions of Spark's SQL, and what to write instead of those that other engines have.

`spark_functions.txt` is written by `scripts/spark_functions.py` from Spark itself; a test compares the two.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")
GRAMMAR = frozenset(("all", "cube", "identifier", "rollup", "timestampadd", "timestampdiff", "try_cast", "values"))
"""Words of Spark's grammar that look like functions and are not in its list."""

_CLOSE = 0.75
"""How near a name must be to be proposed, of 1: with hundreds of names something is always a little near."""
_WINDOW = "window(at, '1 minute')"
_LATEST = "max_by(x, at) is the newest x of its group"
_TOP = "slice(sort_array(collect_list(x), false), 1, n) are the n largest of a group"
_INSTEAD = {
    "tumble": f"GROUP BY {_WINDOW}, of which .start and .end are the bounds",
    "tumble_start": f"{_WINDOW}.start",
    "tumble_end": f"{_WINDOW}.end",
    "tumble_rowtime": f"window_time({_WINDOW})",
    "hop": "window(at, '10 minutes', '1 minute'): first the length, then how often one begins",
    "hop_start": "window(at, '10 minutes', '1 minute').start",
    "hop_end": "window(at, '10 minutes', '1 minute').end",
    "cumulate": f"{_WINDOW} for the parts, and add them up where they are read",
    "session": "session_window(at, '5 minutes'): it ends after 5 minutes without a row",
    "session_start": "session_window(at, '5 minutes').start",
    "session_end": "session_window(at, '5 minutes').end",
    "proctime": "current_timestamp(), or better a column of event time with a watermark",
    "rowtime": "the column that the watermark is on, as window_time(window) after a window",
    "descriptor": f"{_WINDOW}, without TABLE(…)",
    "date_bin": f"{_WINDOW}.start",
    "latest_by_offset": _LATEST,
    "earliest_by_offset": "min_by(x, at) is the first x of its group",
    "arg_max": "max_by(x, at)",
    "argmax": "max_by(x, at)",
    "arg_min": "min_by(x, at)",
    "argmin": "min_by(x, at)",
    "latest": _LATEST,
    "topk": _TOP,
    "topkdistinct": "slice(sort_array(collect_set(x), false), 1, n)",
    "count_distinct": "size(collect_set(x)), or approx_count_distinct(x)",
    "countdistinct": "size(collect_set(x)), or approx_count_distinct(x)",
    "collect": "collect_list(x)",
    "row": "struct(a, b), or named_struct('a', a)",
    "unnest": "LATERAL VIEW explode(xs) t AS x",
    "stringtotimestamp": "to_timestamp(text, 'yyyy-MM-dd HH:mm:ss')",
    "timestamptostring": "date_format(at, 'yyyy-MM-dd HH:mm:ss')",
    "extractjsonfield": "get_json_object(x, '$.field'), or a schema of the source",
    "json_value": "get_json_object(x, '$.field'), or a schema of the source",
    "json_query": "get_json_object(x, '$.field')",
    "json_extract": "get_json_object(x, '$.field')",
    "safe_cast": "try_cast(x AS int)",
    "safe_divide": "try_divide(a, b)",
    "strpos": "instr(text, part)",
    "generate_series": "sequence(first, last)",
    "array_length": "size(xs)",
    "iif": "if(condition, a, b)",
    "group_concat": "array_join(collect_list(x), ',')",
    "datetime_diff": "timestampdiff(SECOND, a, b)",
    "split_index": "split_part(text, ',', n), which counts from 1",
    "getdate": "current_timestamp()",
    "sysdate": "current_timestamp()",
    "to_unixtime": "unix_timestamp(x)",
}
"""What to write instead of functions of Flink SQL, ksqlDB and others, in lower case."""


@lru_cache(maxsize=1)
def spark_functions() -> frozenset[str]:
    """Return the names of Spark's functions, in lower case, with those that are its grammar."""
    return frozenset(LIST.read_text("utf-8").split()) | GRAMMAR


def function_hint(name: str) -> str:
    """Return what to write instead of a function that Spark does not have."""
    instead = _INSTEAD.get(name.lower())
    if instead is not None:
        return f"write {instead}"
    near = get_close_matches(name.lower(), sorted(spark_functions()), n=1, cutoff=_CLOSE)
    return f"did you mean {near[0]!r}?" if near else "Spark's documentation lists its functions"

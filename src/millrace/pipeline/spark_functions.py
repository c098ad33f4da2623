"""The functions of Spark's SQL, and what to write instead of those that other engines have.

`spark_functions.txt` is written by `scripts/spark_functions.py` from Spark itself; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")
GRAMMAR = frozenset(("all", "cube", "identifier", "rollup", "timestampadd", "timestampdiff", "try_cast", "values"))
"""Words of Spark's grammar that look like functions and are not in its list."""

_CLOSE = 0.75
"""How near a name must be to be proposed, of 1: with hundreds of names something is always a little near."""
_LATEST = "max_by({x}, {at}), the newest {x} of its group"
INSTEAD = {
    "tumble": "GROUP BY {tumble}, of which .start and .end are the bounds",
    "tumble_start": "{tumble}.start",
    "tumble_end": "{tumble}.end",
    "tumble_rowtime": "window_time({tumble})",
    "hop": "{hop}: first the length, then how often one begins",
    "hop_start": "{hop}.start",
    "hop_end": "{hop}.end",
    "cumulate": "{cumulate} for the parts, and add them up where they are read",
    "session": "{session}: it ends when so long no row has come",
    "session_start": "{session}.start",
    "session_end": "{session}.end",
    "proctime": "current_timestamp(), or better a column of event time with a watermark",
    "rowtime": "the column that the watermark is on, as window_time(window) after a window",
    "descriptor": "{tumble}, without TABLE(…)",
    "date_bin": "{tumble}.start",
    "latest_by_offset": _LATEST,
    "earliest_by_offset": "min_by({x}, {at}), the first {x} of its group",
    "arg_max": "max_by({x}, {y})",
    "argmax": "max_by({x}, {y})",
    "arg_min": "min_by({x}, {y})",
    "argmin": "min_by({x}, {y})",
    "latest": _LATEST,
    "topk": "max_by({x}, {x}, {n}), the {n} largest of a group",
    "topkdistinct": "slice(sort_array(collect_set({x}), false), 1, {n})",
    "count_distinct": "size(collect_set({x})), or approx_count_distinct({x})",
    "countdistinct": "size(collect_set({x})), or approx_count_distinct({x})",
    "collect": "collect_list({x})",
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
    "group_concat": "array_join(collect_list({x}), {separator})",
    "datetime_diff": "timestampdiff(SECOND, a, b)",
    "split_index": "split_part(text, ',', n), which counts from 1",
    "getdate": "current_timestamp()",
    "sysdate": "current_timestamp()",
    "to_unixtime": "unix_timestamp({x})",
}
"""What to write instead of functions of Flink SQL, ksqlDB and others, in lower case.

`x`, `y` and `n` are arguments of the call, and `at` is the event time.
"""
_OF_SEVERAL = {
    "latest_by_offset": "max_by({x}, {at}, {n}), the {n} newest {x} of its group",
    "earliest_by_offset": "min_by({x}, {at}, {n}), the {n} first {x} of its group",
}
"""The same where the second argument is a number of rows."""
_DURATIONS = {"tumble": ["1 minute"], "hop": ["1 minute", "10 minutes"], "session": ["5 minutes"]}
"""Where a call has none that can be read."""
_NO_TIME = re.compile(r"(proctime|rowtime|descriptor|table)\b", re.I)
"""An argument in the place of the event time that Spark does not have either."""


@lru_cache(maxsize=1)
def spark_functions() -> frozenset[str]:
    """Return the names of Spark's functions, in lower case, with those that are its grammar."""
    return frozenset(LIST.read_text("utf-8").split()) | GRAMMAR


def window_form(kind: str, at: str, durations: Sequence[str]) -> str:
    """Return Spark's window for TUMBLE(size), HOP(slide, size), CUMULATE(step, …) or SESSION(gap) of other engines."""
    first, *others = durations or _DURATIONS.get(kind, ["1 minute"])
    given = [first]
    if kind == "hop" and others:
        given = [others[0], first, *others[1:]]
    elif kind == "tumble" and others:
        given = [first, first, *others]
    texts = ", ".join(f"'{text}'" for text in given)
    return f"{'session_window' if kind == 'session' else 'window'}({at}, {texts})"


def function_hint(name: str, arguments: Sequence[str] = (), durations: Sequence[str] = (), at: str = "at") -> str:
    """Return what to write instead of a function that Spark does not have.

    `arguments` are those of the call without its intervals, `durations` are these, and `at` is the event time.
    """
    instead = INSTEAD.get(name.lower())
    if instead is not None:
        x, y, *_ = [*arguments, *("x", at)[len(arguments) :]]
        if y.isdecimal():
            instead = _OF_SEVERAL.get(name.lower(), instead)
        kind = "tumble" if name.lower() == "date_bin" else name.lower().partition("_")[0]
        given = arguments[0] if arguments and kind in (*_DURATIONS, "cumulate") else ""
        time = given if given and not _NO_TIME.match(given) else at
        windows = {
            each: window_form(each, time, durations if each == kind else ()) for each in (*_DURATIONS, "cumulate")
        }
        n = y if y.isdecimal() else "n"
        separator = arguments[1] if len(arguments) > 1 else "','"
        return f"write {instead.format(x=x, y=y, n=n, at=at, separator=separator, **windows)}"
    near = get_close_matches(name.lower(), sorted(spark_functions()), n=1, cutoff=_CLOSE)
    return f"did you mean {near[0]!r}?" if near else "Spark's documentation lists its functions"

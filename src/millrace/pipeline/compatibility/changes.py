"""The changes between the snapshot of a query and its current definition, and their effects.

- `changes` compares sources, tables, state, sinks and trigger.
- `only_filters_differ` compares two versions of a table's SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from millrace.errors import InvalidSql
from millrace.pipeline.compatibility.query_snapshot import QuerySnapshot
from millrace.pipeline.sql import parsed

_OPERAND = re.compile(r"'(?:[^']|'')*'|`[^`]+`|\b\d[\w.]*|\b[a-z_]\w*(?:\.[a-z_]\w*)*\b")


def only_filters_differ(before: str, now: str) -> bool | None:
    """Return whether two plain SELECTs differ only in WHERE; None if they are equal."""
    from sqlglot import exp

    try:
        old, new = parsed(before), parsed(now)
    except InvalidSql:
        return False
    if _sql_text(old) == _sql_text(new):
        return None
    if any(not isinstance(tree, exp.Select) or tree.find(exp.Subquery, exp.With) for tree in (old, new)):
        return False
    return _sql_text(old, filtered=False) == _sql_text(new, filtered=False)


def skeleton(written: str) -> str:
    """Return an expression without its columns and literals, so that other names do not matter."""
    return _OPERAND.sub("?", written)


def _sql_text(tree: Any, *, filtered: bool = True) -> str:
    if not filtered:
        tree = tree.copy()
        tree.set("where", None)
    return str(tree.sql(dialect="spark", comments=False))


COMPATIBLE, UNKNOWN, CHANGES_MEANING, INCOMPATIBLE = "new", "asks", "mixes", "breaks"
_COLUMN_OPTIONS = {"avro_schema", "format", "include", "schema"}
"""Options of a source that decide which columns it has, and of which types."""


@dataclass(frozen=True)
class Change:
    """One difference and its effect, by its word in files and in `plan --json`.

    - `new`: the query resumes, and does something new
    - `asks`: only Spark knows whether it resumes
    - `mixes`: its state fits, and holds what was computed otherwise; or its output continues elsewhere
    - `breaks`: it cannot resume
    """

    effect: str
    part: str
    """source, table, state, sink, trigger, columns, or end (of event time)."""
    what: str


def changes(before: QuerySnapshot, now: QuerySnapshot) -> list[Change]:
    """Return every difference that is found without Spark."""
    tables = list(_tables(before, now))
    differences = [*_sources(before, now), *_state(before, now, changed=bool(tables)), *tables, *_sinks(before, now)]
    if before["trigger"] != now["trigger"]:
        differences.append(Change(COMPATIBLE, "trigger", f"the trigger was {before['trigger']}; now {now['trigger']}"))
    return differences


def _sources(before: QuerySnapshot, now: QuerySnapshot) -> Iterator[Change]:
    """Another place under the same name, and changed options; the state folder tells the rest, with the cluster."""
    for name in [name for name in now["sources"] if name in before["sources"]]:
        old, new = before["sources"][name], now["sources"][name]
        times, given_times = (snapshot.get("offsets", {}).get(name, 1) for snapshot in (before, now))
        if times != given_times and "offsets" in before and not new["static"]:
            what = f"{name} was read {times} times, with offsets for each; now {given_times}"
            yield Change(INCOMPATIBLE, "source", what)
        if old["argument"] == new["argument"] and old["reads"] != new["reads"] and not new["static"]:
            what = f"{name} was {old['reads'] or 'elsewhere'}; now {new['reads'] or 'elsewhere'}"
            yield Change(INCOMPATIBLE, "source", what)
        for option, was, given in _changed_options(old, new):
            effect = UNKNOWN if option in _COLUMN_OPTIONS and _keeps(before, now) else COMPATIBLE
            what = f"{option} was {was}; now {given}"
            if option == "start":
                what = f"start is now {given}; not used, since it reads on where it was"
            yield Change(effect, "source", f"{name}: {what}")
        if old["watermark"] != new["watermark"]:
            yield Change(COMPATIBLE, "source", f"{name}: {_watermark(old, new)}")
        if old["static"] and old["argument"] != new["argument"]:
            what = f"{name}: the static table was {old['argument']!r}; now {new['argument']!r}"
            yield Change(COMPATIBLE, "source", what)


def _keeps(before: QuerySnapshot, now: QuerySnapshot) -> bool:
    """Return whether there is, or may be, state that a change could invalidate."""
    return bool(before["steps"] or now["steps"] or not (before["certain"] and now["certain"]))


def _tables(before: QuerySnapshot, now: QuerySnapshot) -> Iterator[Change]:
    old, new = before["tables"], now["tables"]
    keeps = _keeps(before, now)
    for name in new:
        if name not in old:
            yield Change(UNKNOWN if keeps else COMPATIBLE, "table", f"table {name} is new")
            continue
        if old[name]["watermark"] != new[name]["watermark"]:
            yield Change(COMPATIBLE, "table", f"table {name}: {_watermark(old[name], new[name])}")
        for what in _changed_functions(name, old[name].get("functions", {}), new[name].get("functions", {})):
            yield Change(UNKNOWN if keeps else COMPATIBLE, "table", what)
        yield from _ranked_otherwise(name, old[name].get("ranking"), new[name].get("ranking"))
        changed = _rewritten(name, old[name], new[name], now)
        if changed:
            sure = not keeps or (changed.effect == COMPATIBLE and _first_to_keep(name, before, now))
            yield Change(COMPATIBLE if sure else UNKNOWN, "table", changed.what)
    for name in old:
        if name not in new:
            yield Change(UNKNOWN if keeps else COMPATIBLE, "table", f"table {name} is gone")


def _rewritten(name: str, old: QuerySnapshot, new: QuerySnapshot, now: QuerySnapshot) -> Change | None:
    """How a table's definition differs: its effect is `new` when it is a filter alone."""
    if (old["sql"] is None) != (new["sql"] is None):
        return Change(UNKNOWN, "table", f"table {name} is now {'SQL' if new['sql'] else 'a function'}")
    if new["sql"] is not None:
        filters = None if old["sql"] == new["sql"] else only_filters_differ(old["sql"], new["sql"])
        if filters is None:
            return None
        effect, what = (COMPATIBLE, "filter") if filters else (UNKNOWN, "SQL")
        return Change(effect, "table", f"table {name}: the {what} changed")
    if old.get("function") is None or old.get("function") != new.get("function"):
        return Change(UNKNOWN, "table", f"table {name}: the function changed")
    if not now["certain"] and old.get("file") != new.get("file"):
        what = f"table {name}: the file of its function changed, and it may call what is there"
        return Change(UNKNOWN, "table", what)
    return None


def _changed_functions(table: str, old: QuerySnapshot, new: QuerySnapshot) -> Iterator[str]:
    """Yield which functions of a table's SQL do something else, or may."""
    for name in [name for name in new if name in old]:
        if old[name]["function"] is None or old[name]["function"] != new[name]["function"]:
            yield f"table {table}: the function {name}() changed"
        elif old[name]["file"] != new[name]["file"]:
            yield f"table {table}: the file of the function {name}() changed, and it may call what is there"


def _ranked_otherwise(name: str, old: QuerySnapshot | None, new: QuerySnapshot | None) -> Iterator[Change]:
    """Yield what is not the same in the state of a `latest` or `top`: it has rows that were chosen otherwise."""
    if not old or not new:
        return
    for part in ("by", "order"):
        if old[part] != new[part]:
            what = f"table {name}: {part} changed, and its state has the rows that were first before"
            yield Change(CHANGES_MEANING, "table", what)
    if old["n"] != new["n"]:
        what, more = f"table {name}: n was {old['n']}; now {new['n']}", new["n"] > old["n"]
        what += f", and of older rows there are no more than {old['n']}" if more else ""
        yield Change(CHANGES_MEANING if more else COMPATIBLE, "table", what)


def _first_to_keep(name: str, before: QuerySnapshot, now: QuerySnapshot) -> bool:
    """Whether nothing that a table reads keeps state, so that a filter in it only decides what comes in from now on."""
    return all(snapshot["certain"] and _above(snapshot, name) for snapshot in (before, now))


def _above(snapshot: QuerySnapshot, name: str) -> bool:
    order = list(snapshot["tables"])
    steps = [step for step in snapshot["steps"] if step["table"] in order]
    joins = any(step["kind"] == "join" and step["table"] == name for step in steps)  # its WHERE comes after it
    return not joins and all(order.index(step["table"]) >= order.index(name) for step in steps)


def _state(before: QuerySnapshot, now: QuerySnapshot, *, changed: bool) -> Iterator[Change]:
    """Yield changes of the keys and values of the state, where both are certain."""
    old, new = before["steps"], now["steps"]
    if not changed or not (before["certain"] and now["certain"]):
        return
    if [_kind(step) for step in old] != [_kind(step) for step in new]:
        yield Change(INCOMPATIBLE, "state", f"{_kept(old, 'it kept')}; now {_kept(new, 'it keeps')}")
        return
    for old_step, new_step in zip(old, new, strict=True):
        for part, noun in (("keys", "keys"), ("values", "aggregates")):
            yield from _differing(old_step, new_step, part, "condition" if old_step["kind"] == "join" else noun)


def _differing(old: QuerySnapshot, new: QuerySnapshot, part: str, noun: str) -> Iterator[Change]:
    """Yield a change if functions or their number differ; another name may be the same column."""
    was, given = old[part], new[part]
    if was is None or given is None or list(map(skeleton, was)) == list(map(skeleton, given)):
        return
    effect = INCOMPATIBLE if len(was) != len(given) and noun != "condition" else CHANGES_MEANING
    where = f" of {new['what']}" if noun == "keys" else ""
    yield Change(effect, "state", f"the {noun}{where} were {_listed(was)}; now {_listed(given)}")


def _sinks(before: QuerySnapshot, now: QuerySnapshot) -> Iterator[Change]:
    old, new = ({_sink_text(sink): sink for sink in snapshot["sinks"]} for snapshot in (before, now))
    lasting = [sink for sink in old if old[sink]["resumes"]]
    midway = [sink["midway"] for sink in now["sinks"]]
    if lasting and not any(sink in new for sink in lasting):
        rest = "" if any(midway) else ", which cannot begin in the middle"
        effect = CHANGES_MEANING if all(midway) else INCOMPATIBLE
        yield Change(effect, "sink", f"it wrote to {', '.join(old)}; now it writes to {', '.join(new)}{rest}")
        return
    for sink in new:
        if sink in old:
            for option, was, given in _changed_options(old[sink], new[sink]):
                yield Change(COMPATIBLE, "sink", f"{sink}: {option} was {was}; now {given}")
        elif new[sink]["midway"]:
            yield Change(COMPATIBLE, "sink", f"{sink} is new: it gets what comes from now on")
        else:
            yield Change(INCOMPATIBLE, "sink", f"{sink} is new, and cannot begin in the middle of a query")
    for sink in old:
        if sink not in new:
            yield Change(COMPATIBLE, "sink", f"{sink} is not written any more")


def _changed_options(old: QuerySnapshot, new: QuerySnapshot) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each option that differs, with its old and its new value for messages."""
    before, now = old["options"], new["options"]
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) != now.get(name):
            was, given = ("not set" if value is None else repr(value) for value in (before.get(name), now.get(name)))
            yield name, was, given


def _kind(step: QuerySnapshot) -> tuple[str, str]:
    return step["kind"], step["join"]


def _kept(steps: list[QuerySnapshot], verb: str) -> str:
    return f"{verb} the state of {', '.join(step['what'] for step in steps)}" if steps else f"{verb} no state"


def _sink_text(sink: QuerySnapshot) -> str:
    return sink["to"] if sink["to"] == sink["connector"] else f"{sink['to']} ({sink['connector']})"


def _watermark(old: QuerySnapshot, new: QuerySnapshot) -> str:
    marks = (old["watermark"], new["watermark"])
    was, given = ("none" if mark is None else f"{mark[1]:g}s on {mark[0]}" for mark in marks)
    return f"the watermark was {was}; now {given}"


def _listed(texts: list[str]) -> str:
    return ", ".join(texts) or "none"

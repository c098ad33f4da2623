"""Small stateful queries that are made from a seed, and rows for them.

- `QueryGenerator` combines what keeps state on a stream: aggregations in windows and sessions, chained ones, DISTINCT,
  deduplication, joins of every kind by equal event times and by ranges, unions of branches that share a part.
- `arrivals` makes rows whose disorder is below the watermark, in the order in which they arrive.
"""

# ruff: noqa: S608 - SQL is made here, from constants
from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

Row = tuple[str, int, str | None, int, datetime]
"""A source's name, and the columns id, k, v and at."""

DELAY_S = 10
_DISORDER_S = 8.0
_START = datetime(2026, 1, 1, tzinfo=UTC)
_EVENTS = 40
_WINDOWS_S = (5, 10, 20, 30, 60)
_GAPS_S = (3, 8, 20)
_JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN")
_SOURCES = ("a", "b", "a_once", "b_once")
"""Two streams, and both without the rows that come twice."""


@dataclass(frozen=True)
class StatefulQuery:
    """A query, and the output mode of its sink."""

    name: str
    sql: str
    mode: str
    keys: tuple[str, ...] | None = None
    """The columns whose last row counts in update mode; None if every row does."""


@dataclass(frozen=True)
class _Rows:
    """A SELECT, its columns by their kind (text, number, time, window), and the column of event time."""

    sql: str
    columns: Mapping[str, str]
    event: str
    nullable: bool = False
    """Whether there are rows without an event time, as a full join has; a group without one is never finished."""

    def of(self, kind: str) -> list[str]:
        return [name for name, found in self.columns.items() if found == kind]


class QueryGenerator:
    """Makes the same queries from the same seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = random.Random(seed)
        self._joins = 0

    def queries(self, count: int) -> list[StatefulQuery]:
        """Return queries, most of them in append mode."""
        return [self._query(number) for number in range(count)]

    def _query(self, number: int) -> StatefulQuery:
        name, self._joins = f"q{self._seed}_{number}", 0
        kind = self._random.random()
        if kind < 0.85:
            return StatefulQuery(name, self._rows(self._random.choice((1, 1, 2, 2, 2, 3, 3, 4))).sql, "append")
        if kind < 0.92:
            rows, keys = self._counts(self._stateless(), self._random.random() < 0.6)
            return StatefulQuery(name, rows.sql, "update", keys)
        if kind < 0.96:
            return StatefulQuery(name, self._joined(self._stateless(), self._stateless()).sql, "update")
        rows, keys = self._counts(self._stateless(), self._random.random() < 0.6)
        return StatefulQuery(name, rows.sql, "complete", keys)

    def _rows(self, depth: int) -> _Rows:
        """Return rows that are made by a number of stateful operators."""
        if depth <= 0:
            return self._stateless()
        kind = self._random.random()
        if kind < 0.5:
            return self._after(self._one(self._rows(depth - 1)))
        left, right = self._branches(depth - 1)
        return self._after(self._union(left, right) if kind < 0.65 else self._joined(left, right))

    def _branches(self, depth: int) -> tuple[_Rows, _Rows]:
        """Return two branches, which often have a part in common."""
        if self._random.random() < 0.4:
            common = self._rows(max(depth - 1, 0))
            other = self._one(common) if self._random.random() < 0.7 else common
            sides = (self._after(common), other)
            return sides if self._random.random() < 0.5 else sides[::-1]
        first = self._random.randint(0, depth)
        return self._rows(first), self._rows(depth - first)

    def _stateless(self) -> _Rows:
        columns = {"id": "number", "k": "text", "v": "number", "at": "time"}
        return self._after(_Rows(f"SELECT id, k, v, at FROM {self._random.choice(_SOURCES)}", columns, "at"))

    def _after(self, rows: _Rows) -> _Rows:
        """Return the rows after an operation without state, or as they are."""
        kind = self._random.random()
        numbers, texts = rows.of("number"), rows.of("text")
        if kind < 0.12 and numbers:
            return replace(rows, sql=f"SELECT * FROM ({rows.sql}) WHERE {self._random.choice(numbers)} > 1")
        if kind < 0.2 and texts:
            return replace(rows, sql=f"SELECT * FROM ({rows.sql}) WHERE {self._random.choice(texts)} <> 'x'")
        if kind < 0.28 and texts and "label" not in rows.columns:
            join = self._random.choice(("JOIN", "LEFT JOIN"))
            sql = f"SELECT i.*, s.label FROM ({rows.sql}) i {join} s ON i.{self._random.choice(texts)} = s.code"
            return replace(rows, sql=sql, columns={**rows.columns, "label": "text"})
        if kind < 0.4 and rows.columns[rows.event] == "window":
            return self._timed(rows)
        return rows

    def _one(self, rows: _Rows) -> _Rows:
        """Return rows after an operator with one input."""
        rows = _with_times(rows)
        kind = self._random.random()
        if kind < 0.55:
            return self._counts(rows, windowed=True)[0]
        if kind < 0.75:
            return self._sessions(rows)
        return self._distinct(rows)

    def _counts(self, rows: _Rows, windowed: bool) -> tuple[_Rows, tuple[str, ...]]:
        event, timed = rows.event, rows.columns[rows.event] == "time"
        length = self._random.choice(_WINDOWS_S)
        slide = f", '{length // 2} seconds'" if length % 2 == 0 and self._random.random() < 0.3 else ""
        texts = self._some(rows.of("text"))
        groups: dict[str, str] = {}
        if windowed and timed and self._random.random() < 0.15:
            groups[event] = event
        elif windowed and timed:
            groups["w"] = f"window({event}, '{length} seconds'{slide})"
        elif windowed:
            of = self._random.choice((event, event, f"window({event}, '{length} seconds')"))
            groups["w"] = self._random.choice((of, f"window(window_time({event}), '{length} seconds'{slide})"))
        elif not texts:
            texts = rows.of("text")[:1]
        groups |= {text: text for text in texts}
        values = {"n": "count(*)"}
        for number in self._some(rows.of("number"))[:2]:
            function = self._random.choice(("sum", "max", "min", "approx_count_distinct"))
            values[f"m_{len(values)}"] = f"{function}({number})"
        having = " HAVING count(*) > 1" if self._random.random() < 0.1 else ""
        made = self._grouped(rows, groups, values, having)
        return made, tuple(groups)

    def _sessions(self, rows: _Rows) -> _Rows:
        timed = rows.columns[rows.event] == "time"
        of = rows.event if timed else f"window_time({rows.event})"
        groups = {"w": f"session_window({of}, '{self._random.choice(_GAPS_S)} seconds')"}
        groups |= {text: text for text in rows.of("text")[:1] + self._some(rows.of("text")[1:])}
        values = {"n": "count(*)"} | {f"m_{number}": f"max({number})" for number in self._some(rows.of("number"))[:1]}
        return self._grouped(rows, groups, values, "")

    def _grouped(self, rows: _Rows, groups: dict[str, str], values: dict[str, str], having: str) -> _Rows:
        selected = ", ".join(f"{what} AS {name}" for name, what in (groups | values).items())
        positions = ", ".join(str(number + 1) for number in range(len(groups)))
        sql = f"SELECT {selected} FROM ({rows.sql}) GROUP BY {positions}{having}"
        kinds = {name: "window" if name == "w" else rows.columns[name] for name in groups}
        event = next(iter(groups), "")
        return _Rows(sql, {**kinds, **dict.fromkeys(values, "number")}, event)

    def _distinct(self, rows: _Rows) -> _Rows:
        names = [rows.event, *self._some(rows.of("text")), *self._some(rows.of("number"))[:1]]
        columns = {name: rows.columns[name] for name in names}
        return _Rows(f"SELECT DISTINCT {', '.join(names)} FROM ({rows.sql})", columns, rows.event)

    def _union(self, left: _Rows, right: _Rows) -> _Rows:
        left, right = _with_times(left), _with_times(right)
        if left.columns[left.event] != right.columns[right.event]:
            left, right = self._timed(left), self._timed(right)
        text, number = left.of("text") and right.of("text"), left.of("number") and right.of("number")
        columns = (
            {"at": left.columns[left.event]} | ({"k": "text"} if text else {}) | ({"v": "number"} if number else {})
        )
        kind = self._random.choice(("UNION ALL", "UNION ALL", "UNION ALL", "UNION"))
        sides = []
        for side in (left, right):
            picked = [side.event, *(side.of("text")[:1] if text else []), *(side.of("number")[:1] if number else [])]
            named = (f"{column} AS {name}" for column, name in zip(picked, columns, strict=True))
            sides.append(f"SELECT {', '.join(named)} FROM ({side.sql})")
        return _Rows(f" {kind} ".join(sides), columns, "at")

    def _joined(self, left: _Rows, right: _Rows) -> _Rows:
        left, right = _with_times(left), _with_times(right)
        join = self._random.choice(_JOINS)
        ranged = self._random.random() < 0.5
        if ranged or left.columns[left.event] != right.columns[right.event]:
            left, right = self._timed(left), self._timed(right)
        keys = [(one, other) for kind in ("text", "number") for one in left.of(kind) for other in right.of(kind)]
        pairs = self._random.sample(keys, min(len(keys), self._random.choice((1, 1, 1, 2)))) if keys else []
        conditions = [f"x.{one} = y.{other}" for one, other in pairs]
        if ranged and conditions:
            conditions.append(self._range(f"x.{left.event}", f"y.{right.event}"))
        else:
            conditions.insert(0, f"x.{left.event} = y.{right.event}")
            conditions = conditions[: self._random.choice((1, 2, 3))]
        # Spark takes one column of event time after a join: that of one side.
        either = join in ("JOIN", "FULL JOIN") and self._random.random() < 0.3
        kept = "right" if join == "RIGHT JOIN" or either else "left"
        self._joins += 1
        names = {f"x.{name}": name for name in left.columns if kept == "left" or name != left.event}
        kinds = {name: left.columns[name] for name in names.values()}
        event = left.event
        if join != "LEFT SEMI JOIN":
            for name, kind in right.columns.items():
                if kept == "right" or name != right.event:
                    names[f"y.{name}"] = f"{name}_{self._joins}"
                    kinds[f"{name}_{self._joins}"] = kind
            event = event if kept == "left" else f"{right.event}_{self._joins}"
        selected = ", ".join(f"{column} AS {name}" for column, name in names.items())
        sql = f"SELECT {selected} FROM ({left.sql}) x {join} ({right.sql}) y ON {' AND '.join(conditions)}"
        return _Rows(sql, kinds, event, join == "FULL JOIN")

    def _range(self, left: str, right: str) -> str:
        before, after = self._random.choice((0, 2, 5, 15)), self._random.choice((0, 2, 5, 15))
        low, high = f"{left} - INTERVAL {before} SECONDS", f"{left} + INTERVAL {after} SECONDS"
        return self._random.choice(
            (
                f"{right} BETWEEN {low} AND {high}",
                f"{right} >= {low} AND {right} <= {high}",
                f"{right} > {low} AND {right} < {high}",
                f"{left} >= {right} - INTERVAL {before} SECONDS AND {left} <= {right} + INTERVAL {after} SECONDS",
                f"{right} >= {low}",
            )
        )

    def _timed(self, rows: _Rows) -> _Rows:
        """Return rows whose event time is a timestamp, not a window."""
        if rows.columns[rows.event] == "time":
            return rows
        others = [name for name in rows.columns if name != rows.event]
        selected = ", ".join([f"window_time({rows.event}) AS t", *others])
        columns = {"t": "time"} | {name: rows.columns[name] for name in others}
        return _Rows(f"SELECT {selected} FROM ({rows.sql})", columns, "t", rows.nullable)

    def _some(self, names: list[str]) -> list[str]:
        return [name for name in names if self._random.random() < 0.6]


def _with_times(rows: _Rows) -> _Rows:
    """Return the rows that have an event time."""
    if not rows.nullable:
        return rows
    return replace(rows, sql=f"SELECT * FROM ({rows.sql}) WHERE {rows.event} IS NOT NULL", nullable=False)


def arrivals(seed: int) -> list[Row]:
    """Return the rows of both sources in the order of their arrival; some come twice, some have no key."""
    source = random.Random(seed)
    arriving: list[tuple[float, Row]] = []
    number = 0
    for name in ("a", "b"):
        at = 0.0
        for event in range(_EVENTS):
            at += source.choice((0, 1, 1, 2, 3, 5)) + (25 if event == _EVENTS // 2 else 0)
            number += 1
            key = source.choice(("x", "y", "z", "x", "y", None))
            row = (name, number, key, source.randint(0, 4), _START + timedelta(seconds=at))
            times = 2 if source.random() < 0.15 else 1
            arriving += [(at + source.uniform(0, _DISORDER_S), row) for _ in range(times)]
    return [row for _, row in sorted(arriving, key=lambda one: one[0])]


def cut(rows: list[Row], batches: int) -> list[list[Row]]:
    """Return rows in batches of about the same size."""
    size = -(-len(rows) // batches)
    return [rows[start : start + size] for start in range(0, len(rows), size)]

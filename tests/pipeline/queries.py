"""Queries over declared schemas, sound ones and ones with a single mistake, to be compared with Spark's analyser.

- `generated` makes a query from a seed: expressions, struct fields, CTEs, subqueries, joins, unions, aggregates.
- `WRITTEN` are like those of Nexmark and TPC-H; `misspelled` puts a mistake into one of them.
"""

# ruff: noqa: S608

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

SCHEMAS = {
    "events": "kind string, bid struct<auction bigint, bidder bigint, price bigint, channel string, at timestamp>, "
    "auction struct<id bigint, item string, seller bigint, category int, expires timestamp, at timestamp>, "
    "person struct<id bigint, name string, city string, state string, at timestamp>, "
    "tags array<string>, parts array<struct<sku string, amount int>>, extra map<string, string>, at timestamp",
    "bids": "auction bigint, bidder bigint, price bigint, channel string, url string, at timestamp",
    "auctions": "id bigint, item string, seller bigint, category int, reserve bigint, expires timestamp, at timestamp",
    "persons": "id bigint, name string, email string, city string, state string, at timestamp",
    "orders": "o_orderkey bigint, o_custkey bigint, o_orderstatus string, o_totalprice decimal(15,2), "
    "o_orderdate date, o_orderpriority string",
    "lineitem": "l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_quantity decimal(15,2), "
    "l_extendedprice decimal(15,2), l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag string, "
    "l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipmode string",
    "customer": "c_custkey bigint, c_name string, c_nationkey bigint, c_acctbal decimal(15,2), c_mktsegment string",
    "nation": "n_nationkey bigint, n_name string, n_regionkey bigint",
    "part": "p_partkey bigint, p_name string, p_brand string, p_type string, p_size int",
}

WRITTEN = tuple(
    " ".join(part.split())
    for part in Path(__file__).with_name("queries.sql").read_text("utf-8").split("\n\n")
    if not part.startswith("--")
)
_WORDS = {word for schema in SCHEMAS.values() for word in re.findall(r"(\w+) (?:\w+)", schema)} | {"n", "final", "best"}


def misspelled(query: str, random: Random) -> str:
    """Return a query with one name of a column written wrongly."""
    words = [found for found in re.finditer(r"\b[a-z_]\w+\b(?!\s*\()", query) if found[0] in _WORDS]
    word = random.choice(words)
    return f"{query[: word.start()]}{word[0]}x{query[word.end() :]}"


MISTAKES = ("column", "qualifier", "field", "function", "interval", "window", "ambiguous", "alias")


@dataclass
class Rows:
    """What FROM may read: its SQL, the name for it, and its columns with their kinds."""

    sql: str
    name: str
    columns: list[tuple[str, str]]


@dataclass
class Generator:
    """Makes one query; a mistake that is asked for is made at the first place that fits after a while."""

    random: Random
    mistake: str | None = None
    made: bool = False
    ctes: list[Rows] = field(default_factory=list)
    names: int = 0

    def query(self) -> str:
        """Return a whole query."""
        for _ in range(self.random.choice((0, 0, 1, 2))):
            sql, columns = self.select(1)
            self.ctes.append(Rows(sql, self.name(), columns))
        sql, _ = self.select(2)
        parts = ", ".join(f"{part.name} AS ({part.sql})" for part in self.ctes)
        return f"WITH {parts} {sql}" if parts else sql

    def name(self) -> str:
        self.names += 1
        return f"r{self.names}"

    def now(self, *kinds: str) -> bool:
        """Return whether a mistake of these kinds is made here."""
        if self.made or self.mistake not in kinds or self.random.random() < 0.5:
            return False
        self.made = True
        return True

    def rows(self, depth: int) -> Rows:
        kind = self.random.choice(("table", "table", "query", "cte", "struct"))
        if kind == "query" and depth:
            sql, columns = self.select(depth - 1)
            return Rows(f"({sql})", self.name(), columns)
        if kind == "cte" and self.ctes:
            part = self.random.choice(self.ctes)
            return Rows(part.name, self.name(), part.columns)
        if kind == "struct":
            column, fields = self.random.choice(list(_STRUCTS.items()))
            return Rows(f"(SELECT {column}.*, at AS seen FROM events)", self.name(), [*fields, ("seen", "time")])
        table = self.random.choice(list(_COLUMNS))
        return Rows(table, self.name(), _COLUMNS[table])

    def select(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        """Return a SELECT and its columns."""
        shapes: tuple[Callable[[int], tuple[str, list[tuple[str, str]]]], ...]
        shapes = (self.plain, self.plain, self.grouped, self.joined, self.united, self.exploded, self.starred)
        return self.random.choice(shapes)(depth)

    def plain(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        rows = self.rows(depth)
        listed, columns = self.listed([rows])
        where = self.condition([rows])
        if self.now("alias"):
            where = f"{columns[0][0]} IS NOT NULL"
        order = self.random.choice(("", "", f" ORDER BY {columns[0][0]}"))
        return f"SELECT {listed} FROM {rows.sql} {rows.name} WHERE {where}{order if depth > 1 else ''}", columns

    def starred(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        rows = self.rows(depth)
        star = self.random.choice(("*", f"{rows.name}.*"))
        return f"SELECT {star} FROM {rows.sql} AS {rows.name} WHERE {self.condition([rows])}", rows.columns

    def grouped(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        rows = self.rows(depth)
        key, kind = self.column([rows], "number", "text")
        key_name, count, total = self.name(), self.name(), self.name()
        number, _ = self.column([rows], "number")
        columns = [(key_name, kind), (count, "number"), (total, "number")]
        listed = f"{key} AS {key_name}, count(*) AS {count}, max({number}) AS {total}"
        group = f"{key}"
        if any(kind == "time" for _, kind in rows.columns):
            at, _ = self.column([rows], "time")
            length = "10 parsecs" if self.now("window") else self.random.choice(("1 minute", "2 hours 5 minutes"))
            listed += f", window({at}, '{length}').end AS {(ends := self.name())}"
            columns.append((ends, "time"))
            group += f", window({at}, '{length}')"
        having = self.random.choice(("", f" HAVING {count} > 1", f" HAVING min({number}) < 3"))
        return (
            f"SELECT {listed} FROM {rows.sql} {rows.name} WHERE {self.condition([rows])} GROUP BY {group}{having}",
            columns,
        )

    def joined(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        left, right = self.rows(depth), self.rows(depth)
        keys = [self.column([rows], "number")[0] for rows in (left, right)]
        listed, columns = self.listed([left, right], qualified=True)
        shared = {name for name, _ in left.columns} & {name for name, _ in right.columns}
        ambiguous = bool(shared) and self.now("ambiguous")
        if ambiguous:
            listed += f", {sorted(shared)[0]}"
        kind = self.random.choice(("JOIN", "LEFT JOIN", "FULL OUTER JOIN"))
        using = [name for name, kind in left.columns if (name, kind) in right.columns and "." not in name]
        on = f"ON {keys[0]} = {keys[1]}"
        if using and not ambiguous and not self.random.randrange(3):
            on = f"USING ({using[0]})"
        return f"SELECT {listed} FROM {left.sql} {left.name} {kind} {right.sql} {right.name} {on}", columns

    def united(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        selects = []
        names = [self.name(), self.name()]
        for _ in range(2):
            rows = self.rows(depth)
            number, text = self.expression([rows], "number"), self.expression([rows], "text")
            selects.append(f"SELECT {number} AS {names[0]}, {text} AS {names[1]} FROM {rows.sql} {rows.name}")
            if self.random.randrange(2):
                names = [*names]
        return " UNION ALL ".join(selects), [(names[0], "number"), (names[1], "text")]

    def exploded(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        rows = Rows("events", self.name(), _COLUMNS["events"])
        tag, part, sku = self.name(), self.name(), self.name()
        listed, columns = self.listed([rows])
        wrong = _WRONG if self.now("field") else ""
        views = f"LATERAL VIEW explode({rows.name}.tags) AS {tag} LATERAL VIEW explode(parts) AS {part}"
        query = f"SELECT {listed}, {tag}, {part}.sku{wrong} AS {sku} FROM {rows.sql} {rows.name} {views}"
        return query, [*columns, (tag, "text"), (sku, "text")]

    def listed(self, rows: list[Rows], *, qualified: bool = False) -> tuple[str, list[tuple[str, str]]]:
        """Return a SELECT list and its columns."""
        parts, columns = [], []
        for _ in range(self.random.randint(1, 3)):
            kind = self.random.choice(("number", "text", "time"))
            name = self.name()
            parts.append(f"{self.expression(rows, kind, qualified=qualified)} AS {name}")
            columns.append((name, kind))
        return ", ".join(parts), columns

    def condition(self, rows: list[Rows]) -> str:
        first = f"{self.expression(rows, 'number')} > {self.random.randint(0, 9)}"
        other = f"{self.expression(rows, 'text')} LIKE 'a%'"
        time = f"{self.expression(rows, 'time')} < current_timestamp()"
        return self.random.choice((first, other, time, f"{first} AND NOT ({other})"))

    def column(self, rows: list[Rows], *kinds: str, qualified: bool = True) -> tuple[str, str]:
        """Return a column of some kind as SQL, and its kind; a literal where there is none."""
        found = [(chosen.name, name, kind) for chosen in rows for name, kind in chosen.columns if kind in kinds]
        if not found:
            return {"number": "1", "text": "'x'", "time": "timestamp '2026-01-01 00:00:00'"}[kinds[0]], kinds[0]
        owner, name, kind = self.random.choice(found)
        if self.now("column") or ("." in name and self.now("field")):
            name = f"{name}{_WRONG}"
        if self.now("qualifier"):
            return f"zz.{name}", kind
        return (f"{owner}.{name}" if qualified or self.random.randrange(2) else name), kind

    def expression(self, rows: list[Rows], kind: str, *, qualified: bool = False) -> str:
        x, _ = self.column(rows, kind, qualified=qualified)
        if self.now("function"):
            return f"{self.random.choice(_UNKNOWN)}({x})"
        if kind == "time":
            if self.now("interval"):
                return f"{x} + INTERVAL {self.random.choice(_WRONG_INTERVALS)}"
            forms = ("{x}", "date_trunc('hour', {x})", "{x} + INTERVAL '5 minutes'", "{x} - INTERVAL 1 DAY 2 HOURS")
            return self.random.choice((*forms, "greatest({x}, current_timestamp())", "CAST({x} AS timestamp)")).format(
                x=x
            )
        if kind == "number":
            text, _ = self.column(rows, "text", qualified=qualified)
            forms = ("{x}", "{x} + 1", "abs({x})", "coalesce({x}, 0)", "CASE WHEN {x} > 1 THEN {x} ELSE 0 END")
            return self.random.choice((*forms, "length({text})", "CAST({x} AS bigint)", "nullif({x}, 3)")).format(
                x=x, text=text
            )
        forms = ("{x}", "upper({x})", "concat({x}, '!')", "substring({x}, 1, 3)", "regexp_replace({x}, 'a', 'b')")
        return self.random.choice((*forms, "trim(BOTH ' ' FROM {x})", "nvl({x}, 'none')", "split({x}, ' ')[0]")).format(
            x=x
        )


_UNKNOWN = ("uper", "safe_divide", "strpos", "tumble", "proctime", "my_function", "len_gth", "latest_by_offset")
_WRONG_INTERVALS = ("'10 parsecs'", "5 minuts", "'1 day 2'", "'ten' DAY", "'1.5 days'")
_WRONG = "_wrong"
_MARKS = (_WRONG, "zz.", "parsecs", *(f"{name}(" for name in _UNKNOWN), *_WRONG_INTERVALS)
_KINDS = {"bigint": "number", "int": "number", "string": "text", "timestamp": "time"}


def _kinds(ddl: str) -> list[tuple[str, str]]:
    return [(name, _KINDS[kind]) for name, kind in re.findall(r"(\w+) (\w+)", ddl) if kind in _KINDS]


_STRUCTS = {name: _kinds(fields) for name, fields in re.findall(r"(\w+) struct<([^<>]*)>", SCHEMAS["events"])[:3]}
_COLUMNS = {name: _kinds(ddl) for name, ddl in SCHEMAS.items() if "<" not in ddl and "decimal" not in ddl}
_COLUMNS["events"] = [("kind", "text"), ("at", "time")] + [
    (f"{column}.{name}", kind) for column, fields in _STRUCTS.items() for name, kind in fields
]


def generated(seed: int) -> tuple[str, str | None]:
    """Return the query of a seed and the kind of its mistake; every second one is sound."""
    for attempt in range(3000):
        random = Random(f"{seed}/{attempt}")
        generator = Generator(random, MISTAKES[seed // 2 % len(MISTAKES)] if seed % 2 else None)
        query = generator.query()
        visible = generator.mistake in ("alias", "ambiguous") or any(mark in query for mark in _MARKS)
        if not generator.mistake or (generator.made and visible):  # an expression may have been made and left out
            return query, generator.mistake
    raise AssertionError(f"no query of seed {seed} has a place for its mistake")

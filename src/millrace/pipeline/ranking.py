"""Tables of the forms `latest` (the newest row of each key) and `top` (the best rows of each group).

- `Ranking` is what the user wrote: keys, order, number of rows.
- `Ranking.sql` is the same as an aggregation that Spark accepts on a stream, whatever the columns are.
- `ranking` reads the user's words; it raises InvalidDefinition.

Of rows with equal order, the other columns decide from left to right, in the direction of the order: of the newest
rows the greatest one is taken, and in an order of both directions the least one, so that every run takes the same.
Maps have no order and do not take part.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millrace.errors import InvalidDefinition, InvalidSql, SourceLocation
from millrace.pipeline.sql import parsed

LATEST, TOP = "latest", "top"
MAX_ROWS = 100_000
"""What Spark's `max_by` can keep of a group."""
_ORDER = re.compile(r"(?P<what>.+?)(?:\s+(?P<way>ASC|DESC))?(?:\s+NULLS\s+(?P<nulls>FIRST|LAST))?", re.I | re.S)


@dataclass(frozen=True)
class OrderKey:
    """A part of an order: an expression and its direction. Rows without a value come last, unless said otherwise."""

    expression: str
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Ranking:
    """The rows of each group that come first in an order."""

    kind: str
    """`latest` or `top`."""
    by: tuple[str, ...]
    """Columns, or expressions of them; none for one group of all rows."""
    order: tuple[OrderKey, ...]
    n: int = 1
    rank: str | None = None
    """The column that gets the place of a row: 1 is the first."""
    places: Mapping[str, SourceLocation] = field(default_factory=dict, compare=False, repr=False)
    """Where `by`, `order`, `n` and `rank` stand, when that is known."""

    @property
    def bounded(self) -> bool:
        """Return whether the state of a group has at most `n` rows: Spark keeps the greatest or the least ones only."""
        return len({key.descending for key in self.order}) == 1

    def sql(self, source: str, without_order: Collection[str] = ()) -> str:
        """Return the query over a source or table; the columns `without_order` cannot be compared."""
        groups = f"\n  GROUP BY {', '.join(self.by)}" if self.by else ""
        of_group = f"FROM {_quoted(source)}{groups}"
        if self.kind == LATEST and not without_order:  # the row is in its state once
            best = f"max(struct({self._sort_values()}, struct(*) AS _row))"
            return f"SELECT _best._row.*\nFROM (\n  SELECT {best} AS _best\n  {of_group}\n)"
        others = ", ".join(map(_quoted, without_order))
        row = f"struct(* EXCEPT ({others}))" if without_order else "struct(*)"
        if self.kind == LATEST:
            return f"SELECT _row.*\nFROM (\n  SELECT {self._best(row)} AS _row\n  {of_group}\n)"
        rows = self._best(row, f", {self.n}") if self.bounded else self._sorted(row)
        ranked = f"(\n  SELECT {rows} AS _rows\n  {of_group}\n)"
        if self.rank is None:
            return f"SELECT inline(_rows)\nFROM {ranked}"
        placed = f"(SELECT posexplode(_rows) AS (_place, _row) FROM {ranked})"  # noqa: S608 - the pipeline's own
        return f"SELECT _row.*, _place + 1 AS `{self.rank}`\nFROM {placed}"

    def _best(self, row: str, n: str = "") -> str:
        """The best row, or the best `n`: Spark keeps no more than these in its state."""
        function = "max_by" if self.order[0].descending else "min_by"
        return f"{function}(struct(*), struct({self._sort_values()}, {row} AS _row){n})"

    def _sort_values(self) -> str:
        """The values to compare by: null is less than all others for Spark, so a flag puts it to the other end."""
        values = []
        for key in self.order:
            if key.descending == key.nulls_first:
                values.append(f"{_operand(key.expression)} IS NULL")
            values.append(_operand(key.expression))
        return ", ".join(f"{value} AS _{number}" for number, value in enumerate(values, 1))

    def _sorted(self, row: str) -> str:
        """All rows of the group in order, for keys of both directions; then the first of them."""
        keys = [f"{_operand(key.expression)} AS _{number}" for number, key in enumerate(self.order, 1)]
        listed = f"collect_list(struct({', '.join(keys)}, {row} AS _ties, struct(*) AS _row))"
        cases = "".join(_comparison(number, key) for number, key in enumerate(self.order, 1))
        ties = " WHEN a._ties <=> b._ties THEN 0 WHEN a._ties < b._ties THEN -1 ELSE 1 END"
        return f"slice(array_sort({listed}, (a, b) -> CASE{cases}{ties}), 1, {self.n})._row"


def ranking(
    kind: str,
    by: Any,
    order: Any,
    n: Any = 1,
    rank: Any = None,
    places: Mapping[str, SourceLocation] | None = None,
) -> Ranking:
    """Return a ranking in the user's words: texts with commas or lists of texts, a number, a name."""
    at = dict(places or {})
    keys = tuple(map(_order_key, _texts(order, "order", at)))
    groups = _texts(by, "by", at)
    for what, text in (*(("by", text) for text in groups), *(("order", key.expression) for key in keys)):
        _require_expression(what, text, at)
    if kind == LATEST and any(key.descending for key in keys):
        hint = f"write order: {', '.join(key.expression for key in keys)}; for the least, write top: with n: 1"
        raise _invalid("order", "latest takes the greatest row of the order, and needs no DESC", at, hint)
    if kind == LATEST:
        keys = tuple(OrderKey(key.expression, True, key.nulls_first) for key in keys)
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_ROWS:
        raise _invalid("n", f"n is a whole number from 1 to {MAX_ROWS:,}, not {n!r}", at, "write n: 10")
    if rank is not None and not (isinstance(rank, str) and re.fullmatch(r"[A-Za-z_]\w*", rank)):
        raise _invalid("rank", f"rank is the name of a column, not {rank!r}", at, "write rank: place")
    return Ranking(kind, groups, keys, n, rank, at)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _comparison(number: int, key: OrderKey) -> str:
    """A case of a comparison of the rows a and b, for when they differ in one key."""
    a, b, null = f"a._{number}", f"b._{number}", -1 if key.nulls_first else 1
    before = f"{a} {'>' if key.descending else '<'} {b}"
    differ = f"CASE WHEN {a} IS NULL THEN {null} WHEN {b} IS NULL THEN {-null} WHEN {before} THEN -1 ELSE 1 END"
    return f" WHEN NOT {a} <=> {b} THEN {differ}"


def _texts(given: Any, what: str, at: Mapping[str, SourceLocation]) -> tuple[str, ...]:
    """The parts of a list, or of a text with commas."""
    items = [given] if isinstance(given, str) else given
    if not isinstance(items, Sequence) or not all(isinstance(item, str) for item in items):
        raise _invalid(what, f"{what} is a column, or a list of columns, not {given!r}", at, _example(what))
    texts = tuple(text for item in items for text in _split(item))
    if not all(texts) or (what == "order" and not texts):
        raise _invalid(what, f"{what} names no column", at, _example(what))
    return texts


def _split(text: str) -> list[str]:
    """The parts of a text between the commas that stand in no brackets."""
    from sqlglot import TokenType
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import TokenError

    try:
        tokens = Spark().tokenize(text)
    except TokenError:
        return [text.strip()]  # the parser says what is wrong with it
    depth, cuts = 0, [0]
    for token in tokens:
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if token.text == "," and depth == 0:
            cuts.append(token.start + 1)
    return [text[start : end - 1].strip() for start, end in zip(cuts, [*cuts[1:], len(text) + 1], strict=True)]


def _order_key(text: str) -> OrderKey:
    match = _ORDER.fullmatch(text)
    if match is None:
        return OrderKey(text)
    return OrderKey(match["what"], (match["way"] or "").upper() == "DESC", (match["nulls"] or "").upper() == "FIRST")


def _operand(text: str) -> str:
    """An expression as a part of another: in brackets if it is a condition."""
    from sqlglot import exp

    condition = isinstance(parsed(_selected(text)).selects[0], exp.Not | exp.Connector | exp.Predicate)
    return f"({text})" if condition else text


def _selected(text: str) -> str:
    return f"SELECT {text} FROM t"  # noqa: S608 - it is only parsed


def _require_expression(what: str, text: str, at: Mapping[str, SourceLocation]) -> None:
    """Raise unless a text is one expression of the columns of a row, and nothing but that."""
    from sqlglot import exp

    try:
        tree = parsed(_selected(text))
    except InvalidSql as error:
        raise _invalid(what, f"{what}: {error.message}", at, _example(what), error.why) from None
    clauses = {key for key, value in tree.args.items() if value}
    strange = (exp.Alias, exp.Star, exp.Query, exp.AggFunc, exp.Window, exp.UDTF)
    plain = isinstance(tree, exp.Select) and clauses == {"expressions", "from_"} and len(tree.selects) == 1
    if not plain or tree.selects[0].find(*strange) or not tree.selects[0].find(exp.Column):
        message = f"{what} takes columns and expressions of them, not {text!r}"
        raise _invalid(what, message, at, _example(what))


def _example(what: str) -> str:
    return {"by": "write by: key, or by: [window, country]"}.get(what, 'write order: at, or order: "count DESC"')


def _invalid(
    what: str, message: str, at: Mapping[str, SourceLocation], hint: str, why: str | None = None
) -> InvalidDefinition:
    return InvalidDefinition(message, place=at.get(what), hint=hint, why=why)

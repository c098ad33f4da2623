"""The columns of a table that is written in SQL, and the names in it that stand for nothing.

- `resolved` follows a query through its subqueries, CTEs, joins, unions and lateral views, from the columns of what it
  reads to those that it gives.
- What is not known (a Python table, a source without a schema, PIVOT) may have any column: there are no false alarms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from sqlglot import exp

from millrace.errors import InvalidSql, Problem
from millrace.pipeline.analysis.columns import (
    FROM_SPARK,
    UNKNOWN_RELATION,
    Aliases,
    NotFound,
    Relation,
    ResolvedColumn,
    Scope,
    field_type,
)
from millrace.pipeline.analysis.sql import is_aggregate, location
from millrace.pipeline.analysis.streaming_forms import position_of
from millrace.pipeline.analysis.types import CAST_FUNCTIONS, WINDOW, call_name, generated, is_generator, type_of
from millrace.pipeline.model import TableDef
from millrace.pipeline.schema import Array, Type
from millrace.pipeline.sql import defined_by, has_plus, parsed

_WINDOWS = ("window", "session_window")
_OUTPUT_CLAUSES = ("having", "qualify", "order", "sort", "cluster", "distribute")
_GROUPINGS = (exp.Group, exp.Cube, exp.Rollup, exp.GroupingSets, exp.Tuple, exp.Paren)
_OF_ELEMENTS = ("transform", "filter", "exists", "forall")
_WHERE_HINT = (
    "an alias of the SELECT list is not known in WHERE: write its expression, or filter around the query; "
    "an aggregate is filtered with HAVING"
)


def resolved(table: TableDef, inputs: Mapping[str, Relation]) -> tuple[Relation, list[Problem]]:
    """Return the columns of a table's SQL and the names that stand for nothing; `inputs` are by name in lower case."""
    resolver = _Resolver(table, inputs)
    try:
        relation = resolver.query(parsed(table.sql or ""), None)
    except (InvalidSql, RecursionError):
        return UNKNOWN_RELATION, []
    return relation, resolver.problems


class _Resolver:
    def __init__(self, table: TableDef, inputs: Mapping[str, Relation]) -> None:
        self.table, self.inputs = table, inputs
        self.problems: list[Problem] = []
        self._parts: dict[int, Relation] = {}

    def query(self, node: Any, outer: Scope | None) -> Relation:
        """Return the columns of a query; `outer` is what a subquery in an expression may name besides its own."""
        with_ = node.args.get("with_")
        for part in with_.expressions if with_ else ():
            self._part(part)
        if isinstance(node, exp.Subquery):
            relation = self._around(node, outer)
        elif isinstance(node, exp.SetOperation):
            relation = self._combined(node, outer)
        elif isinstance(node, exp.Select):
            return self._select(node, outer)
        else:
            relation = UNKNOWN_RELATION
        scope = Scope(outer)
        scope.add("", relation)
        for key in _OUTPUT_CLAUSES:
            self._visit(node.args.get(key), scope)
        return relation

    def _around(self, node: exp.Subquery, outer: Scope | None) -> Relation:
        """Return the columns of what stands in brackets: a query, a table or joined tables."""
        if isinstance(node.this, exp.Query) and not node.args.get("joins"):
            return self.query(node.this, outer)
        return UNKNOWN_RELATION

    def _combined(self, node: exp.SetOperation, outer: Scope | None) -> Relation:
        left, right = self.query(node.this, outer), self.query(node.expression, outer)
        if node.args.get("by_name"):
            others = [column for column in right.columns if column.name and not left.named(column.name)]
            return Relation((*left.copy().columns, *others), left.open or right.open)
        same_number = len(left.columns) == len(right.columns) and not (left.open or right.open)
        pairs = zip(left.columns, right.columns, strict=True) if same_number else ((one, one) for one in left.columns)
        columns = (ResolvedColumn(one.name, one.type if one.type == other.type else None) for one, other in pairs)
        return Relation(tuple(columns), left.open)

    def _select(self, node: exp.Select, outer: Scope | None) -> Relation:
        scope = self._from(node, outer)
        scope.aliases.update(self._windows(node))
        columns: list[ResolvedColumn] = []
        is_open = False
        for expression in node.expressions:
            self._visit(expression, scope, Aliases.AFTER)
            relation = self._output(expression, scope)
            columns += relation.columns
            is_open = is_open or relation.open
            if not expression.is_star and not isinstance(expression, exp.Cast):
                scope.aliases.update({column.name.lower(): column for column in relation.columns if column.name})
        self._visit(node.args.get("where"), scope)
        self._visit(node.args.get("group"), scope, Aliases.WHOLE)
        self._refuse_ungrouped(node, scope)
        output = Relation(tuple(columns), is_open)
        rows = scope
        if node.args.get("distinct"):
            rows = Scope(outer)
            rows.add("", output)
            for name, relation in scope.relations.items():
                kept = (column for column in relation.columns if column.name and output.named(column.name))
                rows.relations[name] = Relation(tuple(kept), relation.open)
        for key in _OUTPUT_CLAUSES:
            self._visit(node.args.get(key), scope if key in ("having", "qualify") else rows, Aliases.FIRST)
        for window in node.args.get("windows") or ():
            self._visit(window, scope, Aliases.AFTER)
        return output

    def _refuse_ungrouped(self, node: exp.Select, scope: Scope) -> None:
        """Report what is certainly neither grouped nor aggregated: a column as such, of which GROUP BY says nothing."""
        group = node.args.get("group")
        own = (part.walk(prune=lambda inner: isinstance(inner, exp.Query)) for part in node.expressions)
        if not (group or any(map(is_aggregate, chain(*own)))):
            return
        if self.problems or (group and group.args.get("all")) or any(part.is_star for part in node.expressions):
            return
        named = {part.alias.lower(): part for part in node.expressions if isinstance(part, exp.Alias)}
        grouped = set(named) if group is None else _names(group) | set(named)
        for name in _names(group) & set(named) if group else ():
            grouped |= _names(named[name])
        for place in group.walk(prune=lambda part: not isinstance(part, _GROUPINGS)) if group else ():
            if (position := position_of(place)) is not None:
                grouped |= set().union(*map(_names, node.expressions[position - 1 : position]))
        for part in node.expressions:
            column = part.unalias()
            if not isinstance(column, exp.Column) or (name := column.name).lower() in grouped:
                continue
            columns, fields, _ = scope.candidates(_parts(column))
            if columns and not fields:
                message = f"{name!r} is neither grouped nor in an aggregate"
                hint = f"group by {name} as well, or write any_value({name})"
                self._report(NotFound("sql.invalid", message, hint), part)

    def _windows(self, node: exp.Select) -> Iterator[tuple[str, ResolvedColumn]]:
        """Yield the columns that `GROUP BY window(…)` adds to what the SELECT list may name."""
        for clause in (*node.expressions, node.args.get("group")):
            for part in clause.walk() if clause else ():
                if (name := call_name(part)) in _WINDOWS:
                    yield name, ResolvedColumn(name, WINDOW)

    def _from(self, node: exp.Select, outer: Scope | None) -> Scope:
        scope = Scope(outer)
        start = node.args.get("from_")
        if start is not None:
            self._add(scope, start.this)
            for join in start.this.args.get("joins") or ():
                self._join(scope, join)
        for join in node.args.get("joins") or ():
            self._join(scope, join)
        for lateral in node.args.get("laterals") or ():
            self._lateral(scope, lateral)
        return scope

    def _add(self, scope: Scope, node: Any) -> None:
        if isinstance(node, exp.Lateral | exp.Unnest):
            self._lateral(scope, node)
        else:
            scope.add(node.alias_or_name, self._relation(node, scope))

    def _join(self, scope: Scope, join: exp.Join) -> None:
        if isinstance(join.this, exp.Lateral | exp.Unnest):
            self._lateral(scope, join.this)
            return
        before, names = Scope(scope.outer, dict(scope.relations), list(scope.visible), scope.open), set(scope.relations)
        relation = self._relation(join.this, scope)
        scope.add(join.this.alias_or_name, relation)
        self._visit(join.args.get("on"), scope)
        if join.args.get("using") or (join.args.get("method") or "").upper() == "NATURAL":
            self._merge(scope, join, before, relation)
        if (join.kind or "").upper() in ("SEMI", "ANTI"):
            scope.relations = {name: scope.relations[name] for name in names}
            scope.visible, scope.open = before.visible, before.open

    def _merge(self, scope: Scope, join: exp.Join, left: Scope, right: Relation) -> None:
        """Make one column of those that two sides are joined by."""
        using = [column.name for column in join.args.get("using") or ()]
        if not using:
            if left.open or right.open:
                scope.open = True
            using = [column.name for column in left.visible if column.name and right.named(column.name)]
        for name in using:
            side = Relation(tuple(left.visible), left.open)
            for relation in (side, right):
                if not relation.named(name) and not relation.open:
                    self._report(NotFound("column.unknown", f"USING names {name!r}, which one side lacks"), join)
        folded = {name.lower() for name in using}
        right_kept = (join.side or "").upper() == "RIGHT"
        first = [*(right.columns if right_kept else left.visible)]
        keys = [column for column in first if column.name and column.name.lower() in folded]
        if (join.side or "").upper() == "FULL":
            keys = [ResolvedColumn(column.name, column.type) for column in keys]
        others = [
            column for column in (*left.visible, *right.columns) if not (column.name and column.name.lower() in folded)
        ]
        scope.visible = [*keys, *others]

    def _lateral(self, scope: Scope, node: Any) -> None:
        """Add what a generator gives for each row: LATERAL VIEW explode(…) t AS x, LATERAL (SELECT …)."""
        alias = node.args.get("alias")
        names = [column.name for column in (alias.args.get("columns") or ())] if alias else []
        inner = node.this
        if isinstance(node, exp.Unnest) or inner is None:
            relation = UNKNOWN_RELATION
        elif isinstance(inner, exp.Query):
            relation = self.query(inner, scope)
        else:
            self._visit(inner, scope)
            relation = generated(inner, scope)
        if relation.open and names:
            relation = Relation(tuple(map(ResolvedColumn, names)))
        scope.add(alias.name if alias else "", relation.copy(names))

    def _relation(self, node: Any, scope: Scope) -> Relation:
        """Return the columns of what stands in FROM or JOIN."""
        relation = self._rows(node, scope)
        alias = node.args.get("alias")
        names = [column.name for column in (alias.args.get("columns") or ())] if alias else []
        if node.args.get("pivots") or node.args.get("laterals"):
            return UNKNOWN_RELATION
        if relation.open and names:
            return Relation(tuple(map(ResolvedColumn, names)), open=True)
        return relation.copy(names)

    def _rows(self, node: Any, scope: Scope) -> Relation:
        if isinstance(node, exp.Subquery):
            return self.query(node, scope.outer)
        if isinstance(node, exp.Values):
            count = len(node.expressions[0].expressions) if isinstance(node.expressions[0], exp.Tuple) else 1
            return Relation(tuple(ResolvedColumn(f"col{number + 1}") for number in range(count)))
        if not isinstance(node, exp.Table) or node.db:
            return UNKNOWN_RELATION
        if not isinstance(node.this, exp.Identifier):
            self._visit(node.this, scope)
            return generated(node.this, scope)
        part = defined_by(node)
        return self._part(part) if part is not None else self.inputs.get(node.name.lower(), UNKNOWN_RELATION)

    def _part(self, part: Any) -> Relation:
        """Return the columns of a part of WITH."""
        if id(part) not in self._parts:
            self._parts[id(part)] = UNKNOWN_RELATION  # for one that reads itself
            names = [column.name for column in (part.args["alias"].args.get("columns") or ())]
            self._parts[id(part)] = self.query(part.this, None).copy(names)
        return self._parts[id(part)]

    def _output(self, node: Any, scope: Scope) -> Relation:
        """Return the columns that one expression of a SELECT list gives."""
        try:
            if node.is_star and isinstance(node, exp.Star | exp.Column):
                star = node.this if isinstance(node, exp.Column) else node
                left_out = star.args.get("except_") or ()
                removed = {column.name.lower() for column in left_out if not column.args.get("table")}
                whole = scope.star(_parts(node)[:-1] if isinstance(node, exp.Column) else [])
                kept = tuple(column for column in whole.columns if (column.name or "").lower() not in removed)
                changed = star.args.get("replace") or star.args.get("rename") or len(removed) < len(left_out)
                return Relation(kept, whole.open or bool(changed))
        except NotFound:
            return UNKNOWN_RELATION
        alias = node.args.get("alias") if isinstance(node, exp.Alias) else None
        if (isinstance(node, exp.Dot) and isinstance(node.expression, exp.Star)) or isinstance(alias, exp.Placeholder):
            return UNKNOWN_RELATION
        if isinstance(node, exp.Aliases):
            if call_name(node.this) == "identifier":  # IDENTIFIER('max')(x)
                return UNKNOWN_RELATION
            names = [name.name for name in node.args["expressions"]]
            relation = generated(node.this, scope)
            if len(relation.columns) != len(names) and not relation.open:
                message = f"{call_name(node.this)}() gives {len(relation.columns)} columns, and has {len(names)} names"
                self._report(NotFound("sql.invalid", message), node)
            return relation.copy(names)
        bare = node.unalias() if isinstance(node, exp.Alias) else node
        relation = generated(bare, scope)
        if not relation.open or relation.columns:
            return relation.copy([node.alias]) if isinstance(node, exp.Alias) else relation
        if isinstance(node, exp.Alias):
            return Relation((ResolvedColumn(node.alias, type_of(bare, scope)),))
        if is_generator(bare):
            return UNKNOWN_RELATION
        return self._unaliased(bare, scope)

    def _unaliased(self, node: Any, scope: Scope) -> Relation:
        name = _name(node, scope)
        if name is None:
            return UNKNOWN_RELATION
        node = node.unnest()
        same = isinstance(node, exp.Column) and not node.table
        column = next((found for found in scope.visible if found.name == name), None) if same else None
        return Relation((column or ResolvedColumn(name or None, type_of(node, scope)),))

    def _visit(self, node: Any, scope: Scope, aliases: Aliases = Aliases.NONE) -> None:
        """Report the columns of an expression that do not exist, and those of the queries inside it."""
        if node is None:
            return
        if isinstance(node, exp.Query):
            self.query(node, scope)
            return
        try:
            if isinstance(node, exp.Column):
                self._column(node, scope, aliases)
                return
            if isinstance(node, exp.Lambda):
                scope = replace(scope, variables=scope.variables | _variables(node, scope))
            for child in node.iter_expressions():
                if not isinstance(child, exp.DataType | exp.Pivot | exp.Hint):
                    self._visit(child, scope, aliases)
            if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
                field_type(type_of(node.this, scope), node.expression.name, node.this.sql(dialect="spark"))
        except NotFound as error:
            self._report(error, node)

    def _column(self, node: exp.Column, scope: Scope, aliases: Aliases) -> None:
        parts = _parts(node)
        if isinstance(node.this, exp.Star):
            scope.star(parts[:-1])
            return
        try:
            scope.find(parts, aliases)
        except NotFound as error:
            if error.condition == "column.unknown" and aliases is Aliases.NONE and parts[0].lower() in scope.aliases:
                error.hint = _WHERE_HINT
            raise

    def _report(self, error: NotFound, node: Any) -> None:
        message = f"table {self.table.name!r}: {error.message}"
        self.problems.append(Problem(error.condition, message, location(self.table, node), error.hint, error.why))


def _parts(node: exp.Column) -> list[str]:
    return [part.name for part in node.parts]


def _names(node: Any) -> set[str]:
    """Return the names in an expression: of columns, their fields and tables, and of functions."""
    return {part.name.lower() for part in node.find_all(exp.Identifier)} | {call_name(part) for part in node.walk()}


def _variables(node: exp.Lambda, scope: Scope) -> dict[str, Type | None]:
    """Return the types of the variables of a lambda function, where they are known: the elements of an array."""
    call: Any = node.parent
    types: dict[str, Type | None] = {variable.name.lower(): None for variable in node.expressions}
    if types and call_name(call) in _OF_ELEMENTS:
        array = type_of(call.this if isinstance(call.this, exp.Expression) else call.expressions[0], scope)
        types[next(iter(types))] = array.element if isinstance(array, Array) else None
    return types


def _name(node: Any, scope: Scope) -> str | None:
    """Return the name that Spark gives an expression; empty if it is no word, None if it is not known.

    CAST keeps the name of a column, `int(x)` that of anything. The rest is called as it is written, with its brackets.
    """
    bare, casts = node, 0
    while (isinstance(bare, exp.Paren) and not has_plus(bare)) or call_name(bare) in CAST_FUNCTIONS:
        casts += not isinstance(bare, exp.Paren)
        bare = bare.this if isinstance(bare.this, exp.Expression) else next(iter(bare.expressions), exp.Null())
    if isinstance(bare, exp.Cast) and call_name(bare) in ("", "cast", "try_cast"):
        inner = bare.this.unnest()
        column = isinstance(inner, exp.Column) or call_name(inner) in (*_WINDOWS, "identifier")
        if casts or not column:
            return ""
        bare, casts = inner, 1
    if has_plus(bare):
        return ""
    if isinstance(bare, exp.Column):
        parts = _parts(bare)
        columns, fields, _ = scope.candidates(parts)
        if not columns and ((casts and len(parts) > 1) or parts[0].lower() in FROM_SPARK):
            return None
        return "" if casts and fields else parts[-1]
    if isinstance(bare, exp.Dot):
        last = bare.expression.name
        while isinstance(bare, exp.Paren) or (
            isinstance(bare, exp.Dot) and isinstance(bare.expression, exp.Identifier)
        ):
            bare = bare.this
        return last if isinstance(bare, exp.Column) and not casts else ""
    if (called := call_name(bare)) in _WINDOWS:
        return called
    unknown = isinstance(bare, exp.Literal | exp.Boolean | exp.Null | exp.QueryTransform)
    return None if unknown or called == "identifier" else ""

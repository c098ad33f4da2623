"""What the state of a SELECT is kept by and what it holds, as SQL in one form whatever the spelling."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from millrace.pipeline.shapes.sql_parts import is_aggregate, keys


def text(node: Any) -> str:
    """An expression without its alias, in small letters where capitals do not matter."""
    bare = node.unalias() if isinstance(node, exp.Alias) else node
    written: str = bare.transform(_plain).sql(dialect="spark", normalize=True, comments=False, identify=False)
    return written


def grouped_by(node: exp.Select) -> tuple[str, ...] | None:
    """What a SELECT groups by; None when a name may be a column or another expression's alias."""
    found = []
    for key in keys(node):
        named = _named(node, key)
        if named is not None and text(named) != text(key):
            return None
        found.append(text(key))
    return tuple(dict.fromkeys(found))


def aggregates(node: exp.Select) -> tuple[str, ...]:
    """The aggregates of a SELECT in the order in which they are written, which is that of its state."""
    parts = [*node.expressions, *filter(None, (node.args.get("having"), node.args.get("order")))]
    found = [text(_whole(one)) for part in parts for one in part.find_all(exp.Func, bfs=False) if is_aggregate(one)]
    return tuple(dict.fromkeys(found))


def selected(node: exp.Select) -> tuple[str, ...] | None:
    """The columns of a SELECT DISTINCT; None for those of a star."""
    return None if node.is_star else tuple(text(one) for one in node.expressions)


def condition(join: exp.Join) -> tuple[str, ...]:
    """What a join joins by, without regard to order."""
    on = join.args.get("on")
    parts = list(on.flatten()) if isinstance(on, exp.And) else [on] if on is not None else []
    using = [one.name.lower() for one in join.args.get("using") or ()]
    return tuple(sorted([*(text(part) for part in parts), *using]))


def _named(node: exp.Select, key: Any) -> Any:
    """The expression whose alias a key is written as."""
    if not isinstance(key, exp.Column) or key.table:
        return None
    found = (one for one in node.expressions if isinstance(one, exp.Alias) and one.alias.lower() == key.name.lower())
    return next(found, None)


def _whole(node: Any) -> Any:
    """An aggregate with its FILTER."""
    while isinstance(node.parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        node = node.parent
    return node


def _plain(node: Any) -> Any:
    if isinstance(node, exp.Identifier):
        return exp.to_identifier(node.name.lower())
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return exp.Count(this=exp.Literal.number(1))
    return node

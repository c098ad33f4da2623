"""Rules about columns: those that SQL names, and those that sinks name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from millrace.errors import Problem
from millrace.pipeline.analysis.columns import NotFound, Relation, column_hint, field_type
from millrace.pipeline.checks.context import CheckContext, sink_name
from millrace.pipeline.sql import defined_by, parsed


def unknown_columns(context: CheckContext) -> Iterator[Problem]:
    """A name in SQL is a column of what the query reads, where the columns of the sources are declared."""
    yield from context.column_problems


def unknown_sink_columns(context: CheckContext) -> Iterator[Problem]:
    """The columns that a sink's options name are columns of its table, where those are known."""
    for sink in context.pipeline.sinks:
        relation = context.relation(sink.table)
        for option, name in context.sink_facts(sink).columns if not relation.open else ():
            if hint := _unknown_column(name, relation):
                message = f"{sink_name(sink)}: {option} names {name!r}, which the table does not have"
                yield Problem("sink.column", message, sink.connection.option_place(option), hint)


def _unknown_column(name: str, relation: Relation) -> str | None:
    """Return a hint if a name is certainly no column, and no field of one."""
    first, *fields = name.split(".")
    columns = relation.named(name) or relation.named(first.strip("`"))
    if not columns:
        hidden = any(column.name is None for column in relation.columns) and not first.strip("`").isidentifier()
        return None if hidden else column_hint(name, relation.columns)
    kind, path = columns[0].type, first
    try:
        for part in fields if "`" not in name and not relation.named(name) else ():
            kind, path = field_type(kind, part, path), f"{path}.{part}"
    except NotFound as error:
        return error.hint
    return None


def duplicate_sink_columns(context: CheckContext) -> Iterator[Problem]:
    """A sink that writes columns by their names needs each name once."""
    for sink in context.pipeline.sinks:
        facts, relation = context.sink_facts(sink), context.relation(sink.table)
        if not facts.unique_columns or relation.open:
            continue
        chosen = facts.form.only if facts.form else ()
        named = {name.lower() for name in (*chosen, *(name for _, name in facts.columns))}
        counts = Counter(column.name.lower() for column in relation.columns if column.name)
        for name, count in counts.items():
            if count > 1 and (not chosen or name in named):
                message = f"{sink_name(sink)} cannot write {count} columns of the name {name!r}"
                hint = f"give one another name in {sink.table!r}, as b.{name} AS b_{name}, instead of * or b.*"
                yield Problem("column.ambiguous", message, sink.place, hint)


def updates_without_key(context: CheckContext) -> Iterator[Problem]:
    """Readers of a topic need a key to tell which row an update replaces."""
    for sink in context.pipeline.sinks:
        if sink.mode == "update" and context.sink_facts(sink).unkeyed and context.plan(sink.table).aggregated:
            message = f"{sink_name(sink)} is in update mode, and its records have no key"
            why = "each change is a record; without a key no reader can tell which record it replaces"
            yield Problem("sink.no-key", message, sink.mode_place, _key_hint(context, sink.table), why, "warning")


def _key_hint(context: CheckContext, name: str) -> str:
    keys = key_columns(context, name)
    if len(keys) > 1:
        return f"add key: [{', '.join(keys)}]"
    return f"add key: {keys[0]}" if keys else "add key: with the columns that it is grouped by"


def key_columns(context: CheckContext, name: str) -> list[str]:
    """Return the columns that tell the rows of a table in update mode apart; none unless all are columns of it."""
    from sqlglot import exp

    from millrace.pipeline.analysis.sql import expression_text, grouping_keys, is_aggregate

    table = context.pipeline.table(name)
    columns = [column.name or "" for column in context.relation(name).columns]
    by_text = {column.lower(): column for column in columns if column}
    keys: tuple[str, ...] = ()
    if table is not None and table.ranking:
        keys = tuple(filter(None, (*table.ranking.by, table.ranking.rank)))
        keys = keys if table.ranking.n == 1 or table.ranking.rank else ()
    elif table is not None and table.sql is not None and not context.relation(name).open:
        select = parsed(table.sql)
        if isinstance(select, exp.Select) and len(select.expressions) == len(columns) and not select.is_star:
            pairs = list(zip(select.expressions, columns, strict=True))
            by_text = {
                name.lower(): name
                for part, name in pairs
                if not any(map(is_aggregate, part.walk())) and not (part.alias and _may_be_read(context, select, name))
            }
            by_text |= {expression_text(part): name for part, name in pairs}
            grouped = select.expressions if select.args.get("distinct") else grouping_keys(select)
            keys = tuple(map(expression_text, grouped))
        elif isinstance(select, exp.Select) and select.is_star:
            groups = [operator.keys for operator in context.plan(name).operators if operator.kind == "aggregate"]
            keys = groups[-1] or ()
    found = [by_text.get(key) or by_text.get(key.lower(), "") for key in keys]
    return list(dict.fromkeys(found)) if all(found) else []


def _may_be_read(context: CheckContext, select: Any, name: str) -> bool:
    """Return whether a name in GROUP BY may be a column of what FROM reads, which Spark prefers to an alias."""
    from sqlglot import exp

    for part in (select.args.get("from_"), *(select.args.get("joins") or ()), *(select.args.get("laterals") or ())):
        table = part.this if part else None
        if not isinstance(table, exp.Table) or table.db or table.alias_column_names or table.args.get("pivots"):
            return table is not None
        relation = context.relation(table.name)
        if defined_by(table) is not None or relation.open or relation.named(name):
            return True
    return False

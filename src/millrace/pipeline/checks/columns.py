"""Rules about columns: those that SQL names, and those that sinks name."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem
from millrace.pipeline.analysis.columns import column_hint
from millrace.pipeline.checks.context import CheckContext, sink_name
from millrace.pipeline.sql import parsed


def unknown_columns(context: CheckContext) -> Iterator[Problem]:
    """A name in SQL is a column of what the query reads, where the columns of the sources are declared."""
    yield from context.column_problems


def unknown_sink_columns(context: CheckContext) -> Iterator[Problem]:
    """The columns that a sink's options name are columns of its table, where those are known."""
    for sink in context.pipeline.sinks:
        relation = context.relation(sink.table)
        names = [column.name for column in relation.columns if column.name]
        if relation.open:
            continue
        for option, name in context.sink_facts(sink).columns:
            first = name.split(".")[0].strip("`")
            hidden = len(names) < len(relation.columns) and not first.isidentifier()
            if hidden or not {name.lower(), first.lower()}.isdisjoint(map(str.lower, names)):
                continue
            message = f"{sink_name(sink)}: {option} names {name!r}, which the table does not have"
            place = sink.connection.option_place(option)
            yield Problem("sink.column", message, place, column_hint(name, relation.columns))


def updates_without_key(context: CheckContext) -> Iterator[Problem]:
    """Readers of a topic need a key to tell which row an update replaces."""
    for sink in context.pipeline.sinks:
        if sink.mode == "update" and context.sink_facts(sink).unkeyed and context.plan(sink.table).aggregated:
            message = f"{sink_name(sink)} is in update mode, and its records have no key"
            why = "each change is a record; without a key no reader can tell which record it replaces"
            yield Problem("sink.no-key", message, sink.mode_place, _key_hint(context, sink.table), why, "warning")


def _key_hint(context: CheckContext, name: str) -> str:
    keys = _grouped_by(context, name)
    if len(keys) > 1:
        return f"add key: [{', '.join(keys)}]"
    return f"add key: {keys[0]}" if keys else "add key: with the columns that it is grouped by"


def _grouped_by(context: CheckContext, name: str) -> list[str]:
    """Return the columns of a table that it is grouped by; none unless all of them are among its columns."""
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
            by_text = {name.lower(): name for part, name in pairs if not any(map(is_aggregate, part.walk()))}
            by_text |= {expression_text(part): name for part, name in pairs}
            grouped = select.expressions if select.args.get("distinct") else grouping_keys(select)
            keys = tuple(map(expression_text, grouped))
        elif isinstance(select, exp.Select) and select.is_star:
            groups = [operator.keys for operator in context.plan(name).operators if operator.kind == "aggregate"]
            keys = groups[-1] or ()
    found = [by_text.get(key) or by_text.get(key.lower(), "") for key in keys]
    return found if all(found) else []

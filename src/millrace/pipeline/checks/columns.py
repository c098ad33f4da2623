"""Rules about columns: those that SQL names, and those that sinks name."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem, did_you_mean
from millrace.pipeline.checks.context import CheckContext, sink_name


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
            yield Problem("sink.column", message, place, did_you_mean(name, names))


def updates_without_key(context: CheckContext) -> Iterator[Problem]:
    """Readers of a topic need a key to tell which row an update replaces."""
    for sink in context.pipeline.sinks:
        if sink.mode == "update" and context.sink_facts(sink).unkeyed and context.plan(sink.table).aggregated:
            message = f"{sink_name(sink)} is in update mode, and its records have no key"
            why = "each change is a record; without a key no reader can tell which record it replaces"
            yield Problem("sink.no-key", message, sink.mode_place, _key_hint(context, sink.table), why, "warning")


def _key_hint(context: CheckContext, table: str) -> str:
    names = {column.name.lower(): column.name for column in context.relation(table).columns if column.name}
    groups = [operator for operator in context.plan(table).operators if operator.kind == "aggregate"]
    texts = [key.split("(")[0] for key in (groups[-1].keys or () if groups else ())]  # window(…) is called window
    keys = [names[text] for text in texts if text in names]
    if len(keys) > 1:
        return f"add key: [{', '.join(keys)}]"
    return f"add key: {keys[0]}" if keys else "add key: with the columns that it is grouped by"

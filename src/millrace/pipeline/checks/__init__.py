"""What `check` looks for: one small function a problem, listed in `RULES`. docs/checks.md explains each condition."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from millrace.errors import Problem
from millrace.pipeline.rules import (
    connectors,
    continuous,
    graph,
    modes,
    names,
    operations,
    panels,
    realtime,
    secrets,
    sql,
    state,
    targets,
    watermarks,
)
from millrace.pipeline.rules.scope import Scope

Rule = Callable[[Scope], Iterator[Problem]]

RULES: tuple[Rule, ...] = (
    names.invalid_names,
    names.duplicate_names,
    names.unknown_names,
    graph.cycles,
    graph.no_sinks,
    graph.unused_tables,
    graph.unused_sources,
    graph.static_sinks,
    sql.unparsable,
    sql.other_parameters,
    connectors.mistakes,
    modes.unknown_mode,
    modes.mode_of_sink,
    modes.complete_without_aggregation,
    modes.append_without_watermark,
    modes.sessions_in_update,
    modes.joins_out_of_mode,
    modes.chained,
    operations.unsupported,
    operations.sorting,
    operations.limiting,
    operations.anti_joins,
    state.endless_aggregation,
    state.endless_deduplication,
    state.endless_join,
    state.outer_join_without_watermark,
    state.deduplication_within_nothing,
    watermarks.unknown_column,
    watermarks.not_a_time,
    realtime.mode,
    realtime.sources,
    realtime.sink,
    realtime.watermarks,
    realtime.operators,
    realtime.shared_table,
    continuous.sources,
    continuous.sink,
    continuous.watermarks,
    continuous.operators,
    secrets.plain,
    targets.shared,
    targets.loops,
    panels.unknown_kind,
    panels.options,
    panels.columns,
    panels.without_stream,
    panels.own_query,
)

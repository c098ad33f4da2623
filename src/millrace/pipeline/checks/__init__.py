"""What `check` looks for: one small function a problem, listed in `RULES`. docs/checks.md explains each condition.

Every problem of a pipeline at once, without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from millrace.errors import Problem
from millrace.pipeline.checks import graph, output_modes, state
from millrace.pipeline.checks.connections import connector_mistakes, plain_secrets
from millrace.pipeline.checks.context import CheckContext
from millrace.pipeline.checks.graph import shared_targets, target_loops
from millrace.pipeline.checks.output_modes import chained_aggregation, unsupported_operation
from millrace.pipeline.checks.state import unknown_watermark_column, watermark_not_a_time
from millrace.pipeline.checks.tables import (
    other_sql_parameters,
    panel_columns,
    panel_options,
    panel_own_query,
    panel_without_stream,
    unknown_panel_kind,
    unparsable_sql,
)
from millrace.pipeline.checks.triggers import (
    continuous_operators,
    continuous_sink,
    continuous_sources,
    continuous_watermarks,
    realtime_mode,
    realtime_operators,
    realtime_shared_table,
    realtime_sink,
    realtime_sources,
    realtime_watermarks,
)
from millrace.pipeline.connector_facts import Connectors
from millrace.pipeline.model import PipelineDef

Rule = Callable[[CheckContext], Iterator[Problem]]

RULES: tuple[Rule, ...] = (
    graph.invalid_names,
    graph.duplicate_names,
    graph.unknown_names,
    graph.cycles,
    graph.no_sinks,
    graph.unused_tables,
    graph.unused_sources,
    graph.static_sinks,
    unparsable_sql,
    other_sql_parameters,
    connector_mistakes,
    output_modes.unknown_mode,
    output_modes.mode_of_sink,
    output_modes.complete_without_aggregation,
    output_modes.append_without_watermark,
    output_modes.sessions_in_update,
    output_modes.joins_out_of_mode,
    chained_aggregation,
    unsupported_operation,
    output_modes.sorting,
    output_modes.limiting,
    output_modes.anti_joins,
    state.endless_aggregation,
    state.endless_deduplication,
    state.endless_join,
    state.outer_join_without_watermark,
    state.deduplication_within_nothing,
    unknown_watermark_column,
    watermark_not_a_time,
    realtime_mode,
    realtime_sources,
    realtime_sink,
    realtime_watermarks,
    realtime_operators,
    realtime_shared_table,
    continuous_sources,
    continuous_sink,
    continuous_watermarks,
    continuous_operators,
    plain_secrets,
    shared_targets,
    target_loops,
    unknown_panel_kind,
    panel_options,
    panel_columns,
    panel_without_stream,
    panel_own_query,
)
__all__ = ["Problem", "check", "in_order"]


def check(pipeline: PipelineDef, connectors: Connectors) -> list[Problem]:
    """What is wrong with a pipeline, or may be, in the order of its file."""
    from millrace.pipeline.checks.context import CheckContext

    scope = CheckContext(pipeline, connectors)
    return in_order(problem for rule in RULES for problem in rule(scope))


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Problems by their place, each once."""
    return sorted(dict.fromkeys(problems), key=_position)


def _position(problem: Problem) -> tuple[str, int, str, str]:
    place = problem.place
    return (place.file if place else "", (place.line if place else None) or 0, problem.severity, problem.condition)

"""`millrace check`: find every problem of a pipeline at once, without Spark.

- A rule is a function that yields problems of one condition; `RULES` lists all of them.
- `check` applies the rules to a pipeline. docs/checks.md explains each condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from millrace.errors import Problem
from millrace.pipeline.checks import (
    columns,
    connections,
    functions,
    graph,
    output_modes,
    ranking,
    state,
    tables,
    triggers,
    user_functions,
)
from millrace.pipeline.checks.context import CheckContext
from millrace.pipeline.connector_facts import Connectors
from millrace.pipeline.model import PipelineDef
from millrace.pipeline.spark_functions import INSTEAD

Rule = Callable[[CheckContext], Iterator[Problem]]

RULES: tuple[Rule, ...] = (
    graph.invalid_names,
    graph.duplicate_names,
    graph.unknown_names,
    graph.cycles,
    graph.no_sinks,
    graph.unused_elements,
    graph.static_sinks,
    tables.unparsable_sql,
    tables.other_sql_parameters,
    functions.unknown_functions,
    functions.misplaced_calls,
    functions.expanded_calls,
    functions.impossible_intervals,
    columns.unknown_columns,
    columns.unknown_sink_columns,
    columns.duplicate_sink_columns,
    columns.updates_without_key,
    ranking.rank_column,
    ranking.mixed_directions,
    user_functions.function_names,
    user_functions.argument_counts,
    connections.connector_mistakes,
    output_modes.unknown_mode,
    output_modes.mode_of_sink,
    output_modes.complete_without_aggregation,
    output_modes.append_without_watermark,
    output_modes.sessions_in_update,
    output_modes.sessions_without_key,
    output_modes.joins_out_of_mode,
    output_modes.chained_aggregation,
    output_modes.unsupported_operation,
    output_modes.sorting,
    output_modes.limiting,
    output_modes.anti_joins,
    state.unbounded_states,
    state.outer_join_without_watermark,
    state.join_with_one_watermark,
    state.semi_join_of_final_rows,
    state.deduplication_without_watermark,
    state.unknown_watermark_column,
    state.watermark_not_a_time,
    triggers.realtime_mode,
    triggers.trigger_sources,
    triggers.trigger_sink,
    triggers.trigger_watermarks,
    triggers.realtime_operators,
    triggers.realtime_shared_table,
    triggers.continuous_operators,
    connections.plain_secrets,
    graph.shared_targets,
    graph.target_loops,
    tables.unknown_panel_kind,
    tables.panel_options,
    tables.panel_columns,
    tables.panel_without_stream,
    tables.panel_own_query,
)

_EXPLAINED_BY = {
    "function.unknown": ("function.file", "function.types"),
    "name.unknown": ("include.", "file."),
}
"""What is unknown because a file that has it could not be read."""
__all__ = ["Problem", "check", "in_order"]


def check(pipeline: PipelineDef, connectors: Connectors) -> list[Problem]:
    """Return the errors and warnings of a pipeline in the order of its file."""
    context = CheckContext(pipeline, connectors)
    return in_order(problem for rule in RULES for problem in rule(context))


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems by their location, without duplicates and without those that another one explains."""
    found = dict.fromkeys(problems)
    causes = [one for one in found if one.severity == "error"]
    return sorted((one for one in found if not any(_explains(cause, one) for cause in causes)), key=_position)


def _explains(cause: Problem, problem: Problem) -> bool:
    """Return whether a name is unknown because of another problem."""
    if not cause.condition.startswith(_EXPLAINED_BY.get(problem.condition, ())):
        return False
    if cause.condition == "function.types":
        return cause.name.lower() == problem.name.lower()
    return problem.condition != "function.unknown" or problem.name.lower() not in INSTEAD


def _position(problem: Problem) -> tuple[str, int, str, str]:
    place = problem.place
    return (place.file if place else "", (place.line if place else None) or 0, problem.severity, problem.condition)

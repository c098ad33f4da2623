"""Every problem of a pipeline at once, without Spark."""

from __future__ import annotations

from collections.abc import Iterable

from millrace.errors import Problem
from millrace.pipeline.facts import Connectors
from millrace.pipeline.model import Pipeline

__all__ = ["Problem", "check", "in_order"]


def check(pipeline: Pipeline, connectors: Connectors) -> list[Problem]:
    """What is wrong with a pipeline, or may be, in the order of its file."""
    from millrace.pipeline.rules import RULES
    from millrace.pipeline.rules.scope import Scope

    scope = Scope(pipeline, connectors)
    return in_order(problem for rule in RULES for problem in rule(scope))


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Problems by their place, each once."""
    return sorted(dict.fromkeys(problems), key=_position)


def _position(problem: Problem) -> tuple[str, int, str, str]:
    place = problem.place
    return (place.file if place else "", (place.line if place else None) or 0, problem.severity, problem.condition)

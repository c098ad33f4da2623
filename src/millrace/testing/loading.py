"""Pipelines for tests: read as any command reads them, and sound."""

from __future__ import annotations

from millrace.connectors.forms import connector_names
from millrace.connectors.options import CONNECTORS
from millrace.errors import InvalidDefinition
from millrace.pipeline.check import check
from millrace.pipeline.load import read
from millrace.pipeline.model import Pipeline


def sound(file: str) -> Pipeline:
    """The pipeline of a file, after `check`: its errors are raised all at once."""
    pipeline, problems = read(file, connector_names())
    found = [*problems, *(check(pipeline, CONNECTORS) if pipeline else ())]
    errors = [problem for problem in found if problem.severity == "error"]
    if pipeline is None or errors:
        raise InvalidDefinition.listing(file, errors)
    return pipeline

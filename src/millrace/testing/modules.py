"""Modules that stand beside a pipeline, in the Python workers of a test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millrace.pipeline.model import Pipeline


@contextmanager
def own_modules(spark: SparkSession, pipeline: Pipeline) -> Iterator[None]:
    """Workers find the modules beside a pipeline that it names; where it names none, those that run are used again."""
    own = Path(pipeline.place.file).absolute()
    environment: dict[str, str] = spark.sparkContext.environment
    before = dict(environment)
    if own.suffix == ".py" and own.is_file() and _names_modules(own):
        environment["PYTHONPATH"] = str(own.parent)
    try:
        yield
    finally:
        environment.clear()
        environment.update(before)


def _names_modules(file: Path) -> bool:
    """Whether a file imports a module beside it, wherever in it, or has its name in quotes."""
    named: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            named.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            named.add(node.module or "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named.add(node.value)
    beside = (*file.parent.glob("*.py"), *(one.parent for one in file.parent.glob("*/*.py")))
    return not {one.stem for one in beside}.isdisjoint(name.partition(".")[0] for name in named)

"""Millrace: real-time data pipelines in Python on Apache Kafka and PySpark.

    import millrace as mr

    pipeline = mr.Pipeline("counts")
    pipeline.source("lines", mr.kafka("lines", format="text"))

Every connector is here by its name (`mr.kafka`, `mr.files`, `mr.console`, …), and so is every kind of panel.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from millrace.pipeline.loading.functions import arrow_udf
    from millrace.pipeline.loading.python import Pipeline
    from millrace.pipeline.secret import secret

__version__ = "0.1.0"
__all__ = ["Pipeline", "__version__", "arrow_udf", "secret"]
_MODULES = {
    "Pipeline": "millrace.pipeline.loading.python",
    "arrow_udf": "millrace.pipeline.loading.functions",
    "secret": "millrace.pipeline.secret",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    if name.startswith("_"):
        raise AttributeError(f"module 'millrace' has no attribute {name!r}")
    from millrace.pipeline.model import PANELS

    if name in PANELS:
        from millrace.pipeline.panels import maker

        return maker(name)
    if name in _connectors():
        return _connector(name)
    from millrace.errors import did_you_mean

    raise AttributeError(f"millrace has no {name!r}: {did_you_mean(name, __dir__())}")


def __dir__() -> list[str]:
    from millrace.pipeline.model import PANELS

    return sorted({*__all__, *PANELS, *_connectors()})


def _connectors() -> set[str]:
    from millrace.connectors.base.api import SINKS, SOURCES

    return {*SOURCES.names(), *SINKS.names()}


def _connector(name: str) -> Callable[..., Any]:
    from millrace.connectors.base.registry import with_signature
    from millrace.pipeline.loading.python import as_given, calling_place
    from millrace.pipeline.model import connection

    def connect(argument: Any = None, /, **options: Any) -> Any:
        given = {option: as_given(value) for option, value in options.items()}
        return connection(name, as_given(argument), given, place=calling_place())

    return with_signature(connect, name)

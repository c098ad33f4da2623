"""The user's own code as a sink: a function, an object, or a function of whole batches."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from millrace.connectors.base.api import RunContext, Sink, whole_batch
from millrace.errors import InputError
from millrace.pipeline.connector_facts import OptionMistake
from millrace.plugins import module_of, option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True, kw_only=True)
class ForeachSink(Sink):
    """A function of a row, an object with open, process and close, or with `batch: true` a function of a DataFrame."""

    delivery_guarantee: ClassVar[str] = "at least once: a batch that failed is given again, with the same batch id"

    call: Any = option(  # noqa: RUF009 - ruff takes it for a call that shares a value
        help="A function or object; in YAML where it is, as ./handlers.py:shout.", argument=True
    )
    batch: bool = option(False, "The function takes (DataFrame, batch id), once a batch.")

    @property
    def realtime(self) -> bool:  # type: ignore[override]
        return not self.batch

    def mistakes(self) -> Iterator[OptionMistake]:
        try:
            handler = self._handler()
        except InputError as error:
            yield OptionMistake("option.invalid", error.message, hint=error.hint, why=error.why)
            return
        if not callable(handler) and not callable(getattr(handler, "process", None)):
            yield OptionMistake("option.invalid", "foreach needs a function, or an object that has process(row)")

    def write(self, frame: DataFrame, batch: int, context: RunContext) -> None:
        del context
        handler = _portable(self._handler())
        if self.batch:
            handler(whole_batch(frame), batch)
        else:
            frame.foreachPartition(_Partition(handler, batch))

    def stream(self, rows: DataStreamWriter, context: RunContext) -> DataStreamWriter:
        """Spark's own foreach, which real-time mode knows."""
        if self.batch or context.checks_ownership_per_batch:
            return super().stream(rows, context)
        return rows.foreach(_portable(self._handler()))

    def _handler(self) -> Any:
        return _named(self.call) if isinstance(self.call, str) else self.call


@dataclass(frozen=True)
class _Partition:
    """Rows of one partition given to the user's code, as Spark's own foreach does."""

    handler: Any
    batch: int

    def __call__(self, rows: Iterator[Any]) -> None:
        from pyspark import TaskContext

        process: Callable[[Any], Any] = getattr(self.handler, "process", self.handler)
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        opened = not hasattr(self.handler, "open") or self.handler.open(partition, self.batch)
        failed: Exception | None = None
        try:
            for row in rows if opened else ():
                process(row)
        except Exception as error:
            failed = error
            raise
        finally:
            if hasattr(self.handler, "close"):
                self.handler.close(failed)


def _portable(handler: Any) -> Any:
    """The user's code in a form that workers can take: what comes from a file of theirs travels with its code."""
    from pyspark.cloudpickle import register_pickle_by_value

    module = inspect.getmodule(handler if inspect.isroutine(handler) or inspect.isclass(handler) else type(handler))
    if module is not None and module.__name__.startswith("millrace_file_"):
        register_pickle_by_value(module)
    return handler


def _named(text: str) -> Any:
    """What `module:name` or `./file.py:name` stands for."""
    where, _, name = text.rpartition(":")
    if not where:
        raise InputError(f"{text!r} names no function", hint="write ./handlers.py:shout or package.module:shout")
    try:
        module = module_of(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except ImportError as error:
        raise InputError(f"there is no module {where!r}", why=str(error)) from None
    if not hasattr(module, name):
        raise InputError(f"{where} has no {name!r}")
    return getattr(module, name)

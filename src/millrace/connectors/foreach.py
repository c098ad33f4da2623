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
        """Row by row only."""
        return not self.batch

    def mistakes(self) -> Iterator[OptionMistake]:
        try:
            found = self._found()
        except InputError as error:
            yield OptionMistake("option.invalid", error.message, hint=error.hint, why=error.why)
            return
        if not callable(found) and not callable(getattr(found, "process", None)):
            yield OptionMistake("option.invalid", "foreach needs a function, or an object that has process(row)")

    def write(self, frame: DataFrame, batch: int, context: RunContext) -> None:
        del context
        found = _portable(self._found())
        if self.batch:
            found(whole_batch(frame), batch)
        else:
            frame.foreachPartition(_Partition(found, batch))

    def stream(self, rows: DataStreamWriter, context: RunContext) -> DataStreamWriter:
        """Spark's own foreach, which real-time mode knows."""
        return (
            super().stream(rows, context)
            if self.batch or context.checks_ownership_per_batch
            else rows.foreach(_portable(self._found()))
        )

    def _found(self) -> Any:
        return _named(self.call) if isinstance(self.call, str) else self.call


@dataclass(frozen=True)
class _Partition:
    """Rows of one partition given to the user's code, as Spark's own foreach does."""

    found: Any
    batch: int

    def __call__(self, rows: Iterator[Any]) -> None:
        process: Callable[[Any], Any] = getattr(self.found, "process", self.found)
        opened = self._open()
        failed: Exception | None = None
        try:
            for row in rows if opened else ():
                process(row)
        except Exception as error:
            failed = error
            raise
        finally:
            if hasattr(self.found, "close"):
                self.found.close(failed)

    def _open(self) -> bool:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        return bool(self.found.open(partition, self.batch)) if hasattr(self.found, "open") else True


def _portable(found: Any) -> Any:
    """The user's code in a form that workers can take: what comes from a file of theirs travels with its code."""
    from pyspark.cloudpickle import register_pickle_by_value

    module = inspect.getmodule(found if inspect.isroutine(found) or inspect.isclass(found) else type(found))
    if module is not None and module.__name__.startswith("millrace_file_"):
        register_pickle_by_value(module)
    return found


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

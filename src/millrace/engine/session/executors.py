"""Executors on other machines: waited for, equipped with what they need to run our code, and asked whether they can."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.engine.session import shipping
from millrace.engine.session.spark_conf import is_local
from millrace.errors import ClusterUnfit, InvalidOption
from millrace.errors.spark_text import root_cause

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PATIENCE = 300.0
"""Seconds in which the first executor must have come: a cluster may have to make room, or start a machine."""
_SETTLED = 1.0
"""Seconds without another one, after which those that are there are taken for all."""
_LOOK = 0.1
_SHOWN = 3
_STANDALONE = re.compile(r"spark://(.+):\d+$")


@dataclass(frozen=True)
class RemoteExecutorSettings:
    """What matters only where executors are on other machines."""

    shared: Path | None = None
    """A folder that each of them must see as we do."""
    packages: bool = False
    """Whether they are sent the packages of our Python, and not only our code."""
    tell: Callable[[str], None] = lambda _: None
    stopped: Callable[[], bool] = lambda: False
    """Whether nobody waits for them any more."""


class ExecutorsStopped(Exception):
    """The run was stopped before its executors had come."""


def require_reachable(master: str | None, bootstrap: str) -> None:
    """Raise when Kafka is at an address that means another machine on each of several."""
    there = _STANDALONE.match(master or "")
    elsewhere = master is not None and not is_local(master) and not (there and _is_this_machine(there[1]))
    if elsewhere and all(_is_this_machine(one.rpartition(":")[0]) for one in bootstrap.split(",")):
        raise InvalidOption(
            f"the executors of {master} cannot reach Kafka at {bootstrap}",
            why="that address is this machine for us, and their own machine for them",
            hint="name brokers that they can reach with --kafka HOST:PORT",
        )


def _is_this_machine(host: str) -> bool:
    return host.strip("[]") in ("localhost", "::1") or host.startswith("127.")


def equip(
    spark: SparkSession, travel: RemoteExecutorSettings, folder: Path, beside: Path | None = None, *, send: bool = True
) -> None:
    """Wait for executors and make them fit; raises when they are not, or when nobody waits any more.

    `folder` is one here, for as long as the session lives: executors that come later fetch from it too. `beside` is
    that of the pipeline's file. `send`: whether nobody has sent them our code yet.
    """
    context = spark.sparkContext
    cores = _awaited(context, travel)
    if send:
        files = [shipping.millrace_zip(folder)]
        if beside is not None:
            files.append(shipping.project_zip(beside, folder))
        shipping.send(context, files)
    _require_fit(context, cores, travel.shared)
    travel.tell(f"{_executors(context)} executors with {cores} cores at {context.master}")


def _awaited(context: SparkContext, travel: RemoteExecutorSettings) -> int:
    """The cores of the executors that have come."""
    began, since, known = time.monotonic(), time.monotonic(), 0
    told = False
    while True:
        if travel.stopped():
            raise ExecutorsStopped
        now, found = time.monotonic(), _executors(context)
        if found != known:
            since, known = now, found
        elif known and now - since >= _SETTLED:
            return int(context.defaultParallelism)
        if now - began > PATIENCE:
            raise ClusterUnfit(
                f"no executor of {context.master} has come in {PATIENCE:.0f} s",
                why="the cluster has no room for one, or none could reach this machine",
                hint="compare spark.executor.memory and spark.executor.cores with what is free there; set "
                "spark.driver.host to an address of this machine that they can reach",
            )
        if not known and not told and now - began > 2 * _SETTLED:
            travel.tell(f"waiting for executors of {context.master}")
            told = True
        time.sleep(_LOOK)


def _executors(context: SparkContext) -> int:
    tracker = context._jsc.sc().statusTracker()
    return len(tracker.getExecutorInfos()) - 1  # one of them is the driver


def _require_fit(context: SparkContext, cores: int, shared: Path | None) -> None:
    with _marked(shared) as mark:
        try:
            found = context.parallelize(range(2 * cores), 2 * cores).mapPartitions(_asking(mark)).collect()
        except Exception as error:
            raise _unable(error) from error
    problems = {f"{one['host']}: {one['problem']}": one for one in found if one["problem"]}
    if not problems:
        return
    shown = "; ".join([*sorted(problems)[:_SHOWN], *(["…"] if len(problems) > _SHOWN else [])])
    if all(one["blind"] for one in problems.values()):
        raise ClusterUnfit(
            "the state folder is not shared with the executors",
            why=shown,
            hint="name a folder that all machines see at the same path with --state, or a store: s3a://…, hdfs://…",
        )
    raise ClusterUnfit(
        "the executors' Python lacks what a pipeline needs",
        why=shown,
        hint="install Millrace's packages there, name another Python with PYSPARK_PYTHON, or add --ship-packages",
    )


def _unable(error: Exception) -> ClusterUnfit:
    said = root_cause(error)
    if "PYTHON_VERSION_MISMATCH" in said:
        hint = "set PYSPARK_PYTHON to a Python of the executors that has the version of this one"
    else:
        hint = "PYSPARK_PYTHON names the executors' Python (python3 unless it is set); the log has all that was said"
    return ClusterUnfit("the executors cannot run Python functions", why=said, hint=hint)


class _marked:  # noqa: N801 - used as a function
    """A file in the shared folder for the time of the question; None when nothing must be shared."""

    def __init__(self, shared: Path | None) -> None:
        self._path = None if shared is None else shared.absolute() / f".seen-{uuid.uuid4().hex}"

    def __enter__(self) -> str | None:
        if self._path is None:
            return None
        self._path.touch()
        return str(self._path)

    def __exit__(self, *_: object) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _asking(mark: str | None) -> Callable[[Iterator[Any]], Iterator[dict[str, Any]]]:
    """The question, as a function that needs nothing of Millrace where it runs: it travels whole."""
    needed = (*shipping.NEEDED, "millrace.engine.queries.decoding")

    def ask(_: Iterator[Any]) -> Iterator[dict[str, Any]]:
        import importlib
        import os
        import platform
        import sys

        missing = []
        for name in needed:
            try:
                importlib.import_module(name)
            except ImportError as error:
                missing.append(name if isinstance(error, ModuleNotFoundError) and error.name == name else str(error))
        blind = not missing and mark is not None and not os.path.exists(mark)  # noqa: PTH110 - it is sent as it is
        problem = f"{sys.executable} lacks {', '.join(missing)}" if missing else ""
        if blind:
            problem = f"there is no {os.path.dirname(mark or '')} there, or it is another one"  # noqa: PTH120
        yield {"host": platform.node(), "problem": problem, "blind": blind}

    return ask

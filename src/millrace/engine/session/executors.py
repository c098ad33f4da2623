"""Executors on other machines.

- `require_reachable` refuses addresses of Kafka that they cannot reach.
- `equip_executors` waits for them, sends them our code and checks that they can run it.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

FIRST_EXECUTOR_TIMEOUT_S = 300.0
"""A cluster may have to free resources, or to start a machine."""
_SETTLE_TIME_S = 1.0
"""Time without a new executor after which those that have registered count as all."""
_POLL_INTERVAL_S = 0.1
_MAX_SHOWN_PROBLEMS = 3
_STANDALONE = re.compile(r"spark://(.+):\d+$")


@dataclass(frozen=True)
class RemoteExecutorSettings:
    """Settings that matter only if executors run on other machines."""

    shared: Path | None = None
    """A folder that each executor must see at the same path."""
    packages: bool = False
    """Whether executors get the packages of this Python, and not only our code."""
    notify: Callable[[str], None] = lambda _: None
    is_stopped: Callable[[], bool] = lambda: False
    """Whether the run was stopped, so that nobody waits for executors."""


class ExecutorsStopped(Exception):
    """The run was stopped before its executors had registered."""


def require_reachable(master: str | None, bootstrap: str) -> None:
    """Raise InvalidOption if the address of Kafka means another machine on each executor."""
    standalone = _STANDALONE.match(master or "")
    remote = master is not None and not is_local(master) and not (standalone and _is_this_machine(standalone[1]))
    if remote and all(_is_this_machine(address.rpartition(":")[0]) for address in bootstrap.split(",")):
        raise InvalidOption(
            f"the executors of {master} cannot reach Kafka at {bootstrap}",
            why="that address is this machine here, and their own machine on the executors",
            hint="name brokers that they can reach with --kafka HOST:PORT",
        )


def _is_this_machine(host: str) -> bool:
    return host.strip("[]") in ("localhost", "::1") or host.startswith("127.")


def equip_executors(
    spark: SparkSession,
    settings: RemoteExecutorSettings,
    folder: Path,
    module_folder: Path | None = None,
    *,
    send: bool = True,
) -> None:
    """Wait for executors, send them our code, and raise ClusterUnfit if they cannot run it.

    The files are in `folder` while the session lives, since executors that register later fetch them too.
    `module_folder` is the folder of the pipeline's file. `send` is False if they have our code already.
    """
    context = spark.sparkContext
    cores = _wait_for_cores(context, settings)
    if send:
        project = [] if module_folder is None else [shipping.project_zip(module_folder, folder)]
        shipping.send(context, [shipping.millrace_zip(folder), *project])
    _require_fit(context, cores, settings.shared)
    settings.notify(f"{_count_executors(context)} executors with {cores} cores at {context.master}")


def _wait_for_cores(context: SparkContext, settings: RemoteExecutorSettings) -> int:
    """Wait until no more executors register; return the number of their cores."""
    started = last_change = time.monotonic()
    executors, notified = 0, False
    while True:
        if settings.is_stopped():
            raise ExecutorsStopped
        now, count = time.monotonic(), _count_executors(context)
        if count != executors:
            last_change, executors = now, count
        elif executors and now - last_change >= _SETTLE_TIME_S:
            return int(context.defaultParallelism)
        if now - started > FIRST_EXECUTOR_TIMEOUT_S:
            raise ClusterUnfit(
                f"no executor of {context.master} has registered within {FIRST_EXECUTOR_TIMEOUT_S:.0f} s",
                why="the cluster has no resources for one, or none could reach this machine",
                hint="compare spark.executor.memory and spark.executor.cores with what is free there; set "
                "spark.driver.host to an address of this machine that they can reach",
            )
        if not executors and not notified and now - started > 2 * _SETTLE_TIME_S:
            settings.notify(f"waiting for executors of {context.master}")
            notified = True
        time.sleep(_POLL_INTERVAL_S)


def _count_executors(context: SparkContext) -> int:
    return len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1  # one of them is the driver


def _require_fit(context: SparkContext, cores: int, shared: Path | None) -> None:
    with _marker_file(shared) as marker:
        try:
            tasks = context.parallelize(range(2 * cores), 2 * cores)
            results = tasks.mapPartitions(_probe(marker)).collect()
        except Exception as error:
            cause = root_cause(error)
            hint = "PYSPARK_PYTHON names the executors' Python (python3 unless it is set); the log has the whole output"
            if "PYTHON_VERSION_MISMATCH" in cause:
                hint = "set PYSPARK_PYTHON to a Python of the executors that has the version of this one"
            raise ClusterUnfit("the executors cannot run Python functions", why=cause, hint=hint) from error
    problems = {f"{result['host']}: {result['problem']}": result for result in results if result["problem"]}
    if not problems:
        return
    more = ["…"] if len(problems) > _MAX_SHOWN_PROBLEMS else []
    shown = "; ".join([*sorted(problems)[:_MAX_SHOWN_PROBLEMS], *more])
    if all(result["not_shared"] for result in problems.values()):
        hint = "name a folder that all machines see at the same path with --state, or a store: s3a://…, hdfs://…"
        raise ClusterUnfit("the state folder is not shared with the executors", why=shown, hint=hint)
    hint = "install Millrace's packages there, name another Python with PYSPARK_PYTHON, or add --ship-packages"
    raise ClusterUnfit("the executors' Python lacks what a pipeline needs", why=shown, hint=hint)


@contextmanager
def _marker_file(shared: Path | None) -> Iterator[str | None]:
    """Create a file in the shared folder while executors look for it; None if no folder has to be shared."""
    if shared is None:
        yield None
        return
    path = shared.absolute() / f".seen-{uuid.uuid4().hex}"
    path.touch()
    try:
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


def _probe(marker: str | None) -> Callable[[Iterator[Any]], Iterator[dict[str, Any]]]:
    """Return the function that checks an executor; it is pickled whole, and needs nothing of Millrace to start."""
    modules = (*shipping.NEEDED, "millrace.engine.queries.decoding")

    def probe(_: Iterator[Any]) -> Iterator[dict[str, Any]]:
        import importlib
        import os
        import platform
        import sys

        missing = []
        for name in modules:
            try:
                importlib.import_module(name)
            except ImportError as error:
                missing.append(name if isinstance(error, ModuleNotFoundError) and error.name == name else str(error))
        not_shared = not missing and marker is not None and not os.path.exists(marker)  # noqa: PTH110 - pickled
        problem = f"{sys.executable} lacks {', '.join(missing)}" if missing else ""
        if not_shared:
            problem = f"there is no {os.path.dirname(marker or '')} there, or it is another folder"  # noqa: PTH120
        yield {"host": platform.node(), "problem": problem, "not_shared": not_shared}

    return probe

"""The settings that Millrace chooses for Spark, each with its reason; whoever runs it may choose otherwise.

Which of Spark's stores keeps what the queries of a plan remember, and why.

Settings that were given to Spark under a name that it does not have: it takes any, and says nothing.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import TYPE_CHECKING

import psutil

from millrace.errors import InvalidOption
from millrace.pipeline.analysis.operators import UNKNOWN
from millrace.pipeline.analysis.pipeline import analyse
from millrace.pipeline.plan import Plan
from millrace.settings import STATE_KEYS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
"""Where Spark runs unless a master is named: in one JVM, on every core of this machine."""
REALTIME = "local[24]"
"""Real-time mode keeps a slot for every task of every stage at once, most of them idle: more slots than cores."""
PARTITIONS = "spark.sql.shuffle.partitions"
"""A checkpoint keeps it for ever: so it is chosen by what is asked for, not by which executors happen to be there."""
MEMORY = "spark.executor.memory"
_UNASKED = 16
"""Of them on a cluster where nobody says how many cores shall be used."""

_LOCAL = re.compile(r"local(?:-cluster)?(?:\[\s*(\*|[1-9]\d*)[\d\s,*]*\])?")
_ELSEWHERE = re.compile(r"spark://[^/]+:\d+|yarn$|k8s://.+")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
_GB = 2**30


@dataclass(frozen=True, slots=True)
class ConfChoice:
    """One of Spark's settings, the value that we choose, and why."""

    key: str
    value: str
    why: str


_STATE = "spark.sql.streaming.stateStore"
ROCKSDB = ConfChoice(
    f"{_STATE}.providerClass",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "arbitrary state is kept nowhere else",
)
"""Chosen only where a pipeline needs it or says that its state will be large; a checkpoint cannot change its store."""
_IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
IN_ROCKSDB = (
    ConfChoice(
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled",
        "true",
        "a checkpoint of RocksDB writes what a batch has changed, not files of the whole state",
    ),
    ConfChoice(
        f"{_STATE}.rocksdb.blockCacheSizeMB", "64", "where RocksDB has it: 8 MB hold too little of a large state"
    ),
    ConfChoice(
        f"{_STATE}.rocksdb.writeBufferSizeMB",
        "16",
        "where RocksDB has it: what is new is looked up in a list, which is slow when long",
    ),
)
"""How RocksDB works, wherever it keeps a state."""
_KEYS_A_GIGABYTE = 500_000
"""Of heap, between what was measured in 4 GB: with 1,000,000 keys memory needs half of what RocksDB does in batches of
100,000 records and up to twice in batches of 10,000; with 5,000,000 seven times (docs/performance.md)."""

_MEANING = (
    ConfChoice("spark.sql.session.timeZone", "UTC", "the same input gives the same windows and days on every machine"),
    ConfChoice(
        "spark.sql.streaming.numRecentProgressUpdates", "20", "Spark keeps them in memory, with what panels see"
    ),
    ConfChoice(
        "spark.sql.adaptive.streaming.stateless.enabled",
        "false",
        "a batch that is run again is cut into the same tasks, which sinks that write once rely on",
    ),
    ConfChoice("spark.sql.streaming.stopTimeout", "10s", "a query whose batch is cut off ends soon or not at all"),
)
_PUSH_DOWN_OFF = ConfChoice(
    "spark.sql.optimizer.excludedRules",
    f"{_OPTIMIZER}.PushDownPredicates,{_OPTIMIZER}.PushPredicateThroughNonJoin",
    "a filter that is pushed below from_json parses every record again: 1.2 times the CPU",
)
_AT_ONCE = ConfChoice(
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs",
    "1",
    "rows that are counted by key wait for company on their way to who counts them: 1 ms instead of Spark's 20",
)
_HIDDEN = (
    ConfChoice(
        "spark.redaction.regex",
        r"(?i)secret|passw(or)?d|passphrase|\bpwd\b|token|credential|jaas|api[._-]?key|access[._-]?key|account[._-]?key"
        r"|private[ ._-]?key|keystore[.]key|://[^/\s:@]*:[^/\s@]+@",
        "values like these do not appear in Spark's own page, in its event log or in plans",
    ),
    ConfChoice(
        "spark.sql.redaction.string.regex",
        r"(?i)((passw(or)?d|passphrase|pwd|secret|token|api_?key)=[^\s,;&)\]}]+)|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)",
        "nor do they in what it prints of a query",
    ),
)
"""Secrets in Spark's own words; a name or a value that looks like one is enough."""
AUTHENTICATED = ConfChoice(
    "spark.authenticate",
    "true",
    "Spark's ports take Java objects from every process here; with a secret that only the JVM knows, from none",
)
_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
ON_DISK = ConfChoice(
    _CHECKPOINTS,
    f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
    "Hadoop's other way starts two programs for each file it writes on a local disk: half of a small batch's time",
)
ON_A_STORE = ConfChoice(
    _CHECKPOINTS,
    f"{_CHECKPOINTING}.FileContextBasedCheckpointFileManager",
    "a file of a checkpoint gets its name in one step, and never in the place of another",
)
_HERE = (
    ConfChoice(
        "spark.python.daemon.module",
        "millrace.engine.queries.worker_daemon",
        "what workers need is loaded once, not by each of them",
    ),
    ON_DISK,
)
COLLECTOR = ConfChoice(
    "spark.driver.extraJavaOptions",
    "-XX:+UseParallelGC",
    "Java's usual collector takes a third more CPU of a catch-up, and twice as much of a state of 5,000,000 keys",
)
_JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_SPARK_OPTIONS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
_NAMES_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_THERE = (
    ConfChoice(MEMORY, "2g", "the JVM's share of an executor; its Python workers come on top"),
    ConfChoice(
        "spark.dynamicAllocation.enabled", "false", "an executor that is let go takes the state in its memory along"
    ),
    ConfChoice("spark.speculation", "false", "of two that write the same rows in a transaction, one would fail"),
)
"""For executors on other machines."""


def spark_choices(
    *, master: str | None = None, realtime: bool = False, given: Mapping[str, str] = MappingProxyType({})
) -> tuple[ConfChoice, ...]:
    """Everything that is chosen for a pipeline of ours; `given` are settings that others may follow from."""
    made = speed_choices(master=master, realtime=realtime)
    chosen = made[0].value
    if not is_local(chosen):
        return (*made, *_MEANING, _partitions_there(chosen, given), *_THERE)
    # Its pauses are longer, though fewer: nothing for results within milliseconds.
    own = realtime or names_java_option(_NAMES_COLLECTOR, given)  # Java does not start with two
    secret = (AUTHENTICATED,) if in_one_jvm(chosen) else ()
    return (*made, *_MEANING, *_HERE, *secret, *(() if own else (COLLECTOR,)))


def speed_choices(*, master: str | None = None, realtime: bool = False) -> tuple[ConfChoice, ...]:
    """What makes a program quicker or quieter and cannot change its results: also for programs that are not ours."""
    chosen = master or (REALTIME if realtime else LOCAL)
    if not is_local(chosen) and not _ELSEWHERE.match(chosen):
        raise InvalidOption(f"there is no Spark master {chosen!r}", hint="local[2], spark://HOST:7077, yarn or k8s://…")
    made = [
        ConfChoice("spark.master", chosen, _why(chosen, realtime=realtime)),
        ConfChoice(
            "spark.ui.enabled", "false", "Spark's own page costs a tenth of the CPU; the live view does without"
        ),
        ConfChoice("spark.ui.showConsoleProgress", "false", "its progress bars would be drawn over the live view"),
        ConfChoice(
            "spark.sql.execution.arrow.maxRecordsPerBatch", "65536", "fewer, larger batches between the JVM and Python"
        ),
    ]
    made += _HIDDEN
    if is_local(chosen):
        made += [_shuffle_partitions(chosen), _heap()]
    if realtime:
        made += [_PUSH_DOWN_OFF, _AT_ONCE]
    return tuple(made)


def names_java_option(pattern: re.Pattern[str], given: Mapping[str, str]) -> bool:
    """Whether the user gives the driver such an option, in Spark's settings or in the variables that Java reads."""
    said = [os.environ.get(one, "") for one in _JAVA_OPTIONS] + [given.get(one, "") for one in _SPARK_OPTIONS]
    return any(map(pattern.search, said))


def _why(master: str, *, realtime: bool) -> str:
    if not is_local(master):
        return "as it was named"
    return "real-time mode needs a slot for every task" if realtime else "every core here"


def state_store_choices(
    keys: int | None, master: str | None = None, given: Mapping[str, str] = MappingProxyType({})
) -> ConfChoice:
    """Where state is kept of which somebody says how many keys it will have; None: nobody does."""
    most = int(_heap_there(given.get("spark.master", master), given) / _GB * _KEYS_A_GIGABYTE)
    if keys is None or keys <= most:
        said = "to say of more, set MILLRACE_STATE_KEYS" if keys is None else f"{keys:,} are said to come"
        why = f"quicker for up to about {most:,} keys in the heap that is there; {said}, before the first run"
        return ConfChoice(ROCKSDB.key, _IN_MEMORY, why)
    why = f"{keys:,} keys are said to come: in the heap that is there, more than about {most:,} are quicker in RocksDB"
    return ConfChoice(ROCKSDB.key, ROCKSDB.value, why)


def settled_conf(chosen: Iterable[ConfChoice], given: Mapping[str, str]) -> dict[str, str]:
    """The settings that hold: what was given wins over what we choose; options of Java stand beside each other."""
    made = {choice.key: choice.value for choice in chosen}
    java = given.get(COLLECTOR.key, "")
    if COLLECTOR.key in made and not _NAMES_COLLECTOR.search(java):
        given = {**given, COLLECTOR.key: f"{made[COLLECTOR.key]} {java}".strip()}
    return made | dict(given)


def is_local(master: str) -> bool:
    """Whether the master is this machine."""
    return _LOCAL.fullmatch(master.strip()) is not None


def in_one_jvm(master: str) -> bool:
    """Whether driver and executors are one process, so that nobody else must know a secret of theirs."""
    return is_local(master) and not master.strip().startswith("local-cluster")


def _shuffle_partitions(master: str) -> ConfChoice:
    # Not more than there are cores, however many slots real-time mode has: each one is a task of every batch.
    found = _LOCAL.fullmatch(master.strip())
    slots = found[1] if found else None
    parts = _cores() if slots == "*" else min(_cores(), int(slots or 1))
    return ConfChoice(
        PARTITIONS,
        str(parts),
        "one for each core: Spark's 200 cost 1.6 times the CPU; a checkpoint keeps the number it began with",
    )


def _partitions_there(master: str, given: Mapping[str, str]) -> ConfChoice:
    """On a cluster: by the cores that are asked for."""
    cores = _asked_for(master, given)
    if cores is None:
        why = f"nobody says how many cores shall be used, so {_UNASKED}; a checkpoint keeps the number it began with"
        return ConfChoice(PARTITIONS, str(_UNASKED), why)
    return ConfChoice(
        PARTITIONS, str(cores), "one for each core that is asked for; a checkpoint keeps the number it began with"
    )


def _asked_for(master: str, given: Mapping[str, str]) -> int | None:
    """The cores of all executors, as the settings ask for them; None where a cluster gives all that it has."""
    if master.startswith("spark://"):
        return _number(given, "spark.cores.max", 0) or None
    if given.get("spark.dynamicAllocation.enabled", "").lower() == "true":
        return None
    # What Spark asks for unless it is told.
    return _number(given, "spark.executor.instances", 2) * _number(given, "spark.executor.cores", 1)


def _number(given: Mapping[str, str], key: str, otherwise: int) -> int:
    try:
        return int(given.get(key, otherwise))
    except ValueError:
        raise InvalidOption(f"{key} is no number: {given[key]}", hint=f"write it as --set {key}=4") from None


def _heap() -> ConfChoice:
    gigabytes = min(4, max(1, round(_memory() / _GB / 4)))
    return ConfChoice("spark.driver.memory", f"{gigabytes}g", "a quarter of the memory here, from 1g to 4g")


def _heap_there(master: str | None, given: Mapping[str, str]) -> float:
    """Bytes of heap for all state: of the JVM here, or of the executors that are asked for."""
    if is_local(master or LOCAL):
        return _bytes(given, "spark.driver.memory", _heap().value)
    memory = _bytes(given, MEMORY, _THERE[0].value)
    return memory * _number(given, "spark.executor.instances", 1 if (master or "").startswith("spark://") else 2)


def _bytes(given: Mapping[str, str], key: str, otherwise: str) -> float:
    """Of a size as Spark writes it, 512m or 2g; without a letter they are megabytes."""
    text = given.get(key, otherwise)
    found = re.fullmatch(r"(\d+)\s*(?:(b)|([kmgtp]?)b?)", text.strip().lower())
    if not found:
        raise InvalidOption(f"{key} is no size: {text}", hint=f"write it as --set {key}=2g")
    return float(int(found[1]) * (1 if found[2] else 1024 ** " kmgtp".index(found[3] or "m")))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> int:
    """Bytes that this process may use: a container's limit counts, not the machine's memory."""
    total: int = psutil.virtual_memory().total
    with suppress(OSError, ValueError):
        return min(total, int(_CGROUP_LIMIT.read_text("ascii")))
    return total


STATEFUL = ("aggregate", "deduplicate", "within", "join", "state")
"""Operations that remember something from batch to batch."""


def state_store(
    plan: Plan, master: str | None = None, given: Mapping[str, str] = MappingProxyType({})
) -> tuple[ConfChoice, ...]:
    """The store for queries that begin: a checkpoint keeps its own for ever. How RocksDB works is no part of that.

    So Spark is always told, for checkpoints that were begun in RocksDB; the store in memory does not look at it.
    Real-time mode chooses RocksDB by itself, and takes no other.
    """
    if has_arbitrary_state(plan):
        return ROCKSDB, *IN_ROCKSDB
    if any(not query.batches for query in plan.queries):
        return ()
    return (state_store_choices(STATE_KEYS.value(), master, given), *IN_ROCKSDB) if _remembers(plan) else ()


def has_arbitrary_state(plan: Plan) -> bool:
    """Whether a table keeps arbitrary state, which Spark keeps in RocksDB only."""
    used = {name for table in plan.pipeline.tables if table.function for name in _names_in(table.function.__code__)}
    return any(name.startswith("transformWithState") for name in used)


def _remembers(plan: Plan) -> bool:
    """Whether a query keeps state, or may."""
    found = analyse(plan.pipeline)
    made = [found.get(query.table.lower(), UNKNOWN) for query in plan.queries]
    return any(shape.opaque or any(step.kind in STATEFUL for step in shape.steps) for shape in made)


def _names_in(code: CodeType) -> Iterator[str]:
    """Every name that a function's code uses, and those of functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


_log = logging.getLogger(__name__)
LISTED = "spark.sql."
"""Of these Spark has a list, of nearly all; others are read by name here and there."""
_NOT_LISTED = ("spark.sql.streaming.stateStore.rocksdb.", "spark.sql.streaming.checkpointFileManagerClass")
_ALIKE = 0.9
"""How much a name must be like one of the list: extensions read names of their own, which are none of Spark's."""


def conf_doubts(spark: SparkSession, given: Iterable[str]) -> list[str]:
    """A sentence for each name that is almost one of Spark's; a Spark that is built otherwise may not tell."""
    try:
        return _unread(spark, given)
    except Exception:  # a hint ends nothing
        _log.debug("the names of settings could not be looked up", exc_info=True)
        return []


def _unread(spark: SparkSession, given: Iterable[str]) -> list[str]:
    doubtful = [key for key in given if key.startswith(LISTED) and not key.startswith(_NOT_LISTED)]
    if not doubtful:
        return []
    defined = spark._jsparkSession.sessionState().conf().getAllDefinedConfs()
    known = {defined.apply(number)._1() for number in range(defined.size())}
    entries = spark.sparkContext._gateway.jvm.org.apache.spark.internal.config.ConfigEntry
    wrong = [key for key in doubtful if key not in known and entries.findEntry(key) is None]
    return [
        f"Spark has no setting {key}, and may never read it; is {meant} meant?"
        for key in wrong
        for meant in get_close_matches(key, known, 1, _ALIKE)
    ]

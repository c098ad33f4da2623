"""The settings that Millrace chooses for Spark, each with its reason; the user's own settings win.

- `spark_choices`: the choices for a pipeline; `speed_choices`: those that also fit other programs.
- `state_store`: the state store for the queries of a plan.
- `merge_conf`: the choices merged with the user's settings.
- `conf_doubts`: warnings about settings that Spark does not have; Spark accepts any name silently.
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
"""The default master: one JVM, on every core of this machine."""
REALTIME = "local[24]"
"""Real-time mode needs a slot for every task of every stage at the same time, so more slots than cores."""
PARTITIONS = "spark.sql.shuffle.partitions"
"""A checkpoint keeps it, so it is chosen by the cores that are requested, not by those that happen to be there."""
MEMORY = "spark.executor.memory"
_DEFAULT_CLUSTER_PARTITIONS = 16
"""Where no setting says how many cores of a cluster are used."""

_LOCAL = re.compile(r"local(?:-cluster)?(?:\[\s*(\*|[1-9]\d*)[\d\s,*]*\])?")
_CLUSTER = re.compile(r"spark://[^/]+:\d+|yarn$|k8s://.+")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class ConfChoice:
    """A setting of Spark, the value that we choose, and the reason."""

    key: str
    value: str
    why: str


_STATE = "spark.sql.streaming.stateStore"
ROCKSDB = ConfChoice(
    f"{_STATE}.providerClass",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "no other store supports arbitrary state",
)
"""Chosen only if a pipeline needs it or expects a large state; a checkpoint cannot change its store."""
_IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB_OPTIONS = (
    ConfChoice(
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled",
        "true",
        "a checkpoint of RocksDB writes the changes of a batch, not files of the whole state",
    ),
    ConfChoice(
        f"{_STATE}.rocksdb.blockCacheSizeMB", "64", "for a state in RocksDB: 8 MB hold too little of a large state"
    ),
    ConfChoice(
        f"{_STATE}.rocksdb.writeBufferSizeMB",
        "16",
        "for a state in RocksDB: a larger write buffer makes lookups of new keys slow",
    ),
)
"""For every state in RocksDB."""
_MAX_KEYS_PER_GIB = 500_000
"""Keys for which the store in memory is faster. Measured in 4 GB of heap: with 1,000,000 keys it takes half to twice as
long as RocksDB, depending on the batch size; with 5,000,000 keys seven times as long (docs/performance.md)."""

EXCHANGE_REUSE = ConfChoice(
    "spark.sql.exchange.reuse",
    "false",
    "the watermark does not get through a reused exchange: what aggregates above it would never give a row",
)
_EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
STABLE_PLANS = ConfChoice(
    _EXCLUDED_RULES,
    f"{_OPTIMIZER}.PushDownLeftSemiAntiJoin,{_OPTIMIZER}.RemoveNoopUnion",
    "they move a semi join, or remove one of two equal branches, by the size of a batch: the next finds the state of "
    "another plan",
)
"""A session with queries in real-time mode may have others, and a checkpoint may be resumed by either."""
_RESULT_CHOICES = (
    EXCHANGE_REUSE,
    ConfChoice("spark.sql.session.timeZone", "UTC", "the same input gives the same windows and days on every machine"),
    ConfChoice(
        "spark.sql.streaming.numRecentProgressUpdates", "20", "Spark keeps them in memory, with the metrics of panels"
    ),
    ConfChoice(
        "spark.sql.adaptive.streaming.stateless.enabled",
        "false",
        "a repeated batch has the same tasks, which exactly-once sinks rely on",
    ),
    ConfChoice("spark.sql.streaming.stopTimeout", "10s", "a query whose batch is interrupted ends soon or not at all"),
)
_PARSED_ONCE = ConfChoice(
    _EXCLUDED_RULES,
    f"{_OPTIMIZER}.PushDownPredicates,{_OPTIMIZER}.PushPredicateThroughNonJoin",
    "a filter that is pushed below from_json parses every record again: 1.2 times the CPU",
)
_REALTIME_CHOICES = (
    _PARSED_ONCE,
    ConfChoice(
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs",
        "1",
        "rows of a shuffle wait at most 1 ms for a full buffer, instead of Spark's 20",
    ),
)
_SPEED_CHOICES = (
    ConfChoice("spark.ui.enabled", "false", "Spark's own UI costs a tenth of the CPU; the dashboard does not need it"),
    ConfChoice("spark.ui.showConsoleProgress", "false", "its progress bars would be drawn over the live view"),
    ConfChoice(
        "spark.sql.execution.arrow.maxRecordsPerBatch", "65536", "fewer, larger batches between the JVM and Python"
    ),
    # Settings whose name or value looks like a secret are masked.
    ConfChoice(
        "spark.redaction.regex",
        r"(?i)secret|passw(or)?d|passphrase|\bpwd\b|token|credential|jaas|api[._-]?key|access[._-]?key|account[._-]?key"
        r"|private[ ._-]?key|keystore[.]key|://[^/\s:@]*:[^/\s@]+@",
        "secrets do not appear in Spark's own UI, in its event log or in plans",
    ),
    ConfChoice(
        "spark.sql.redaction.string.regex",
        r"(?i)((passw(or)?d|passphrase|pwd|secret|token|api_?key)=[^\s,;&)\]}]+)|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)",
        "secrets do not appear in the plans that Spark prints",
    ),
)
AUTHENTICATED = ConfChoice(
    "spark.authenticate",
    "true",
    "Spark's ports accept Java objects from every process of this machine, unless they need a secret",
)
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
ON_DISK = ConfChoice(
    _FILE_MANAGER,
    f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
    "the other file manager starts two programs for each file on a local disk: half of a small batch's time",
)
ON_A_STORE = ConfChoice(
    _FILE_MANAGER,
    f"{_CHECKPOINTING}.FileContextBasedCheckpointFileManager",
    "a file of a checkpoint is renamed in one step, and never replaces another",
)
COLLECTOR = ConfChoice(
    "spark.driver.extraJavaOptions",
    "-XX:+UseParallelGC",
    "Java's default collector takes a third more CPU in a catch-up, and twice as much with a state of 5,000,000 keys",
)
_JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_SPARK_OPTIONS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
_COLLECTOR_OPTION = re.compile(r"-XX:\+Use\w+GC\b")
_CLUSTER_CHOICES = (
    ConfChoice(MEMORY, "2g", "the memory of an executor's JVM; its Python workers need more"),
    ConfChoice(
        "spark.dynamicAllocation.enabled", "false", "the state in the memory of a released executor would be lost"
    ),
    ConfChoice("spark.speculation", "false", "of two tasks that write the same rows in a transaction, one would fail"),
)
"""For executors on other machines."""


def spark_choices(
    *, master: str | None = None, realtime: bool = False, given: Mapping[str, str] = MappingProxyType({})
) -> tuple[ConfChoice, ...]:
    """Return all choices for a pipeline; some depend on the settings that are `given`."""
    choices = speed_choices(master=master, realtime=realtime)
    chosen = choices[0].value
    results = (*_RESULT_CHOICES, _both(STABLE_PLANS, _PARSED_ONCE) if realtime else STABLE_PLANS)
    choices = tuple(choice for choice in choices if choice is not _PARSED_ONCE)
    if not is_local(chosen):
        return (*choices, *results, _cluster_partitions(chosen, given), *_CLUSTER_CHOICES)
    # The pauses of our collector are fewer but longer, too long for results within milliseconds.
    other_collector = realtime or names_java_option(_COLLECTOR_OPTION, given)  # Java does not start with two
    secret = (AUTHENTICATED,) if in_one_jvm(chosen) else ()
    return (*choices, *results, ON_DISK, *secret, *(() if other_collector else (COLLECTOR,)))


def _both(one: ConfChoice, other: ConfChoice) -> ConfChoice:
    """Return one choice for two lists of the same setting."""
    return ConfChoice(one.key, f"{one.value},{other.value}", f"{one.why}; {other.why}")


def speed_choices(*, master: str | None = None, realtime: bool = False) -> tuple[ConfChoice, ...]:
    """Return the choices that make any program faster or quieter and cannot change its results."""
    chosen = master or (REALTIME if realtime else LOCAL)
    if not is_local(chosen) and not _CLUSTER.match(chosen):
        raise InvalidOption(f"there is no Spark master {chosen!r}", hint="local[2], spark://HOST:7077, yarn or k8s://…")
    why = "real-time mode needs a slot for every task" if realtime else "every core of this machine"
    return (
        ConfChoice("spark.master", chosen, why if is_local(chosen) else "as given"),
        *_SPEED_CHOICES,
        *((_local_partitions(chosen), _heap()) if is_local(chosen) else ()),
        *(_REALTIME_CHOICES if realtime else ()),
    )


def names_java_option(pattern: re.Pattern[str], given: Mapping[str, str]) -> bool:
    """Return whether the user sets such an option of Java, in Spark's settings or in the variables that Java reads."""
    options = [*(os.environ.get(name, "") for name in _JAVA_OPTIONS), *(given.get(key, "") for key in _SPARK_OPTIONS)]
    return any(map(pattern.search, options))


def state_store_choices(
    keys: int | None, master: str | None = None, given: Mapping[str, str] = MappingProxyType({})
) -> ConfChoice:
    """Return the state store for an expected number of keys, if that is known."""
    max_keys = int(_heap_bytes(given.get("spark.master", master), given) / _GIB * _MAX_KEYS_PER_GIB)
    if keys is not None and keys > max_keys:
        why = f"{keys:,} keys are expected; above about {max_keys:,} keys in this heap RocksDB is faster"
        return ConfChoice(ROCKSDB.key, ROCKSDB.value, why)
    note = (
        "if you expect more, set MILLRACE_STATE_KEYS before the first run" if keys is None else f"{keys:,} are expected"
    )
    return ConfChoice(ROCKSDB.key, _IN_MEMORY, f"faster for up to about {max_keys:,} keys in this heap; {note}")


def merge_conf(choices: Iterable[ConfChoice], given: Mapping[str, str]) -> dict[str, str]:
    """Return the choices overridden by the settings that are given; options of Java and excluded rules are combined."""
    conf = {choice.key: choice.value for choice in choices}
    if conf.get(_EXCLUDED_RULES) and given.get(_EXCLUDED_RULES):
        given = {**given, _EXCLUDED_RULES: f"{given[_EXCLUDED_RULES]},{conf[_EXCLUDED_RULES]}"}
    java = given.get(COLLECTOR.key, "")
    if COLLECTOR.key in conf and not _COLLECTOR_OPTION.search(java):
        given = {**given, COLLECTOR.key: f"{conf[COLLECTOR.key]} {java}".strip()}
    return conf | dict(given)


def is_local(master: str) -> bool:
    """Return whether the master is this machine."""
    return _LOCAL.fullmatch(master.strip()) is not None


def in_one_jvm(master: str) -> bool:
    """Return whether driver and executors are one process, so that no other process needs their secret."""
    return is_local(master) and not master.strip().startswith("local-cluster")


def _local_partitions(master: str) -> ConfChoice:
    # Not more than cores, also with the many slots of real-time mode: each partition is a task of every batch.
    match = _LOCAL.fullmatch(master.strip())
    slots = match[1] if match else None
    partitions = _cores() if slots == "*" else min(_cores(), int(slots or 1))
    why = "one for each core: Spark's 200 cost 1.6 times the CPU; a checkpoint keeps its first number"
    return ConfChoice(PARTITIONS, str(partitions), why)


def _cluster_partitions(master: str, given: Mapping[str, str]) -> ConfChoice:
    cores = _requested_cores(master, given)
    if cores is None:
        why = "the number of cores is not set; a checkpoint keeps its first number"
        return ConfChoice(PARTITIONS, str(_DEFAULT_CLUSTER_PARTITIONS), why)
    return ConfChoice(PARTITIONS, str(cores), "one for each requested core; a checkpoint keeps its first number")


def _requested_cores(master: str, given: Mapping[str, str]) -> int | None:
    """Return the cores of all executors that the settings request; None if a cluster gives all it has."""
    if master.startswith("spark://"):
        return _number(given, "spark.cores.max", 0) or None
    if given.get("spark.dynamicAllocation.enabled", "").lower() == "true":
        return None
    # The numbers are Spark's defaults.
    return _number(given, "spark.executor.instances", 2) * _number(given, "spark.executor.cores", 1)


def _number(given: Mapping[str, str], key: str, default: int) -> int:
    try:
        return int(given.get(key, default))
    except ValueError:
        raise InvalidOption(f"{key} is no number: {given[key]}", hint=f"write it as --set {key}=4") from None


def _heap() -> ConfChoice:
    gigabytes = min(4, max(1, round(_memory() / _GIB / 4)))
    return ConfChoice("spark.driver.memory", f"{gigabytes}g", "a quarter of this machine's memory, from 1g to 4g")


def _heap_bytes(master: str | None, given: Mapping[str, str]) -> float:
    """Return the heap for all state: of the local JVM, or of the requested executors."""
    if is_local(master or LOCAL):
        return _bytes(given, "spark.driver.memory", _heap().value)
    memory = _bytes(given, MEMORY, _CLUSTER_CHOICES[0].value)
    return memory * _number(given, "spark.executor.instances", 1 if (master or "").startswith("spark://") else 2)


def _bytes(given: Mapping[str, str], key: str, default: str) -> float:
    """Return the bytes of a size as Spark writes it, 512m or 2g; without a letter it is in megabytes."""
    text = given.get(key, default)
    match = re.fullmatch(r"(\d+)\s*(?:(b)|([kmgtp]?)b?)", text.strip().lower())
    if not match:
        raise InvalidOption(f"{key} is no size: {text}", hint=f"write it as --set {key}=2g")
    return float(int(match[1]) * (1 if match[2] else 1024 ** " kmgtp".index(match[3] or "m")))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> int:
    """Return the bytes that this process may use: the limit of a container, or the machine's memory."""
    total: int = psutil.virtual_memory().total
    with suppress(OSError, ValueError):
        return min(total, int(_CGROUP_LIMIT.read_text("ascii")))
    return total


STATEFUL = ("aggregate", "deduplicate", "within", "join", "state")
"""Kinds of operators that keep state."""


def state_store(
    plan: Plan, master: str | None = None, given: Mapping[str, str] = MappingProxyType({})
) -> tuple[ConfChoice, ...]:
    """Return the choices for the state store of new queries; a checkpoint keeps its store.

    The options of RocksDB are always set, for checkpoints that use it; the store in memory ignores them. Real-time mode
    chooses RocksDB by itself, and accepts no other store.
    """
    if has_arbitrary_state(plan):
        return ROCKSDB, *ROCKSDB_OPTIONS
    if any(not query.batches for query in plan.queries):
        return ()
    return (state_store_choices(STATE_KEYS.value(), master, given), *ROCKSDB_OPTIONS) if _may_keep_state(plan) else ()


def has_arbitrary_state(plan: Plan) -> bool:
    """Return whether a table uses arbitrary state, which Spark keeps in RocksDB only."""
    used = {name for table in plan.pipeline.tables if table.function for name in _names_in(table.function.__code__)}
    return any(name.startswith("transformWithState") for name in used)


def _may_keep_state(plan: Plan) -> bool:
    tables = analyse(plan.pipeline)
    analysed = [tables.get(query.table.lower(), UNKNOWN) for query in plan.queries]
    return any(table.opaque or any(step.kind in STATEFUL for step in table.operators) for table in analysed)


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield every name that the code of a function uses, and of the functions in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


_log = logging.getLogger(__name__)
LISTED = "spark.sql."
"""The settings of which Spark has a list of nearly all."""
_NOT_LISTED = ("spark.sql.streaming.stateStore.rocksdb.", "spark.sql.streaming.checkpointFileManagerClass")
_MIN_SIMILARITY = 0.9
"""How similar a name must be to one of the list: extensions have settings of their own."""


def conf_doubts(spark: SparkSession, given: Iterable[str]) -> list[str]:
    """Return a warning for each name that is almost that of a setting; empty if Spark's list cannot be read."""
    doubtful = [key for key in given if key.startswith(LISTED) and not key.startswith(_NOT_LISTED)]
    if not doubtful:
        return []
    try:
        entries = spark._jsparkSession.sessionState().conf().getAllDefinedConfs()
        defined = {entries.apply(number)._1() for number in range(entries.size())}
        registry = spark.sparkContext._gateway.jvm.org.apache.spark.internal.config.ConfigEntry
        unknown = [key for key in doubtful if key not in defined and registry.findEntry(key) is None]
    except Exception:  # a warning must not fail the run
        _log.debug("the names of settings could not be looked up", exc_info=True)
        return []
    return [
        f"Spark has no setting {key}, and may ignore it; did you mean {similar}?"
        for key in unknown
        for similar in get_close_matches(key, defined, 1, _MIN_SIMILARITY)
    ]

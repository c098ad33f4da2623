"""`millrace plan`: what a run would do, against what ran before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.options import (
    Accept,
    AsJson,
    DataFolder,
    KafkaAddress,
    KafkaConfig,
    Master,
    PipelineFile,
    SparkSettings,
    State,
    chosen_cluster,
    spark_settings,
    state_folder,
)
from millrace.cli.output import out, say, show_error, show_json, show_table, status_line
from millrace.errors import MillraceError, NoCluster, StateMismatch
from millrace.settings import ARCHIVE, KAFKA_DATA
from millrace.units import format_bytes

if TYPE_CHECKING:
    from millrace.clients.kafka.cluster import Cluster
    from millrace.connectors.base.api import RunContext
    from millrace.engine.replay.generations import ChosenGeneration
    from millrace.pipeline.compatibility.state_schema import StateSchema
    from millrace.pipeline.model import PipelineDef
    from millrace.pipeline.plan import Plan

_CLASSES = ("spark.jars", "spark.driver.extraClassPath")
"""Settings of Spark SQL may name what is in there."""
_NEW_CLUSTER = "(new)"
"""Stands for the id of a cluster that a run would make: no checkpoint is of use with it."""
_STYLES = {"resumes": "bold green", "starts anew": "bold cyan", "asks Spark": "bold yellow"}


def plan(
    file: PipelineFile,
    state: State = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Start Spark as well, and compare what it makes of the queries.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="What is remembered, whether real-time mode fits, Spark's settings and why."),
    ] = False,
    accept: Accept = None,
    master: Master = None,
    set_: SparkSettings = None,
    as_json: AsJson = False,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
) -> None:
    """Tell what a run would do with each query: resume, start anew, or not start at all, and why."""
    from millrace.cli.commands.check import load_sound
    from millrace.connectors.base.registry import CONNECTORS
    from millrace.engine.checkpoints.resume import check_sinks, resume_decisions
    from millrace.engine.checkpoints.state_dir import unused_checkpoints
    from millrace.engine.plan_report import query_report, settings_report
    from millrace.engine.queries.builder import follow_generations
    from millrace.pipeline.plan import make_plan, with_letters

    given = spark_settings(set_)
    chosen, others = _generations(load_sound(file), state)
    pipeline, folder = chosen.pipeline, chosen.state.absolute()
    with suppress(MillraceError):  # whoever cannot be asked for the current generation is told of below
        pipeline = follow_generations(pipeline, lambda: chosen_cluster(kafka, kafka_config, data))
    made = with_letters(make_plan(pipeline), CONNECTORS)
    kafka_told, cluster_id, problem = _kafka(made, kafka, kafka_config, data)
    found = resume_decisions(made, folder, cluster_id, accept or ())
    doubtful: list[str] | None = None
    if deep:
        fingerprints, doubtful = _asked(made, folder, given)
        found = resume_decisions(made, folder, cluster_id, accept or (), fingerprints)
    in_use = _in_use(folder)
    if in_use is None:  # else its run goes on while we look, and would seem to be ahead of it
        context = _context(pipeline.name, folder, lambda: _answering(problem, kafka, kafka_config, data))
        found = [check_sinks(one, context) for one in found]
    problem = in_use or problem
    refused = not all(one.starts for one in found)
    told = {
        "starts": not refused and problem is None,
        "pipeline": pipeline.name,
        "file": pipeline.place.file,
        "state": str(folder),
        "generation": chosen.number,
        "generations": others,
        "queries": [query_report(pipeline, one, folder, chosen.span) for one in found],
        "letters": {one.name: one.undertakes.name for one in made.queries if one.undertakes},
        "unused": unused_checkpoints(folder, made),
        "kafka": kafka_told,
        "needs": _needs(made, kafka_told),
        "settings": settings_report(made, master, given, found),
        "doubts": doubtful,
        "error": None if problem is None else {"condition": problem.condition, "message": problem.message},
    }
    if as_json:
        show_json(told)
    else:
        _show(told, explain=explain, deep=deep)
        if problem:
            show_error(problem)
    if refused:
        raise typer.Exit(2)
    if problem:
        raise typer.Exit(problem.exit_code)


def _kafka(
    made: Plan, kafka: str | None, config: str | None, data: str | None
) -> tuple[dict[str, Any] | None, str | None, MillraceError | None]:
    """The cluster that a run would use, its id as far as it is known, and why it cannot be used."""
    from millrace.connectors.base.registry import uses_system
    from millrace.engine.plan_report import topics_report
    from millrace.services.kafka import ClusterLayout

    if not uses_system(made.pipeline, "kafka"):
        return None, None, None
    wanted = topics_report(made.pipeline)
    try:
        cluster = chosen_cluster(kafka, config, data)
    except NoCluster:
        folder = KAFKA_DATA.value(data)
        lies = ClusterLayout.load(folder) if (folder / "cluster.json").exists() else None
        own = {"address": None, "own": str(folder), "topics": wanted, "missing": wanted if lies is None else None}
        return own, lies.cluster_id if lies else _NEW_CLUSTER, None
    told: dict[str, Any] = {"address": cluster.bootstrap, "own": None, "topics": wanted, "missing": None}
    try:
        metadata = cluster.connect()
    except MillraceError as error:
        return told, None, error
    return told | {"missing": [one for one in wanted if one not in metadata.topics]}, metadata.cluster_id, None


def _answering(problem: MillraceError | None, kafka: str | None, config: str | None, data: str | None) -> Cluster:
    """The cluster, unless it has not answered already."""
    if problem:
        raise problem
    return chosen_cluster(kafka, config, data)


def _context(pipeline: str, folder: Path, cluster: Callable[[], Cluster]) -> RunContext:
    """What sinks may know of a run that is not begun; none of what they are asked needs Spark."""
    from millrace.connectors.base.api import RunContext

    return RunContext(folder, cluster, pipeline=pipeline, create_topics=False)


def _generations(pipeline: PipelineDef, state: Path | None) -> tuple[ChosenGeneration, list[dict[str, Any]]]:
    """The generation that a run would go on with, and all that there are, if a replay has made one."""
    from millrace.engine.replay.generations import choose, listed

    base = state_folder(pipeline, state)
    return choose(pipeline, base), listed(base)


def _in_use(folder: Path) -> MillraceError | None:
    from millrace.locks import in_use

    if not in_use(folder):
        return None
    return StateMismatch(
        f"another run uses the state folder {folder}",
        hint="stop it first; to run beside it, a pipeline needs another name in its file",
    )


def _asked(made: Plan, folder: Path, given: Mapping[str, str]) -> tuple[dict[str, StateSchema], list[str]]:
    """What Spark says of the queries, and of settings; it is started for this alone."""
    from millrace.cli.services import prepare_spark
    from millrace.engine.deep_check import query_fingerprints
    from millrace.engine.session.session import close_session, open_session
    from millrace.engine.session.spark_conf import LISTED, conf_doubts

    # Others are for where it would run.
    readable = {key: value for key, value in given.items() if key.startswith((LISTED, *_CLASSES))}
    prepare_spark()
    with status_line() as waiting:
        waiting("Spark analyses the plans")
        name, beside = made.pipeline.name, Path(made.pipeline.place.file).absolute().parent
        spark = open_session(name, master="local[1]", settings=readable, module_folder=beside)
        try:
            return query_fingerprints(made, spark, folder), conf_doubts(spark, given)
        finally:
            close_session(spark)


def _needs(made: Plan, kafka: dict[str, Any] | None) -> list[str]:
    from millrace.connectors.base.registry import uses_system

    needs = ["Java and Spark"]
    if kafka:
        named = f"Kafka at {kafka['address']}" if kafka["address"] else f"a Kafka of its own, in {kafka['own']}"
        needs.append(named)
    return [*needs, "Cassandra"] if uses_system(made.pipeline, "cassandra") else needs


def _show(told: dict[str, Any], *, explain: bool, deep: bool) -> None:
    for one in told["queries"]:
        _show_query(one)
        if explain:
            _explain_query(one, told["queries"])
    for name, source in told["letters"].items():
        _line(f"{name}  reads {source} once more, each second, for its dead letters: without batches nothing is buried")
    for name in told["unused"]:
        _line(f"the checkpoint of query {name!r} is not used any more: no sink of the pipeline leads to it")
    missing = (told["kafka"] or {}).get("missing")
    if missing:
        _line(f"topics that a run makes: {', '.join(missing)}")
    _line(f"a run needs: {', '.join(told['needs'])}")
    _line(f"state: {told['state']}")
    for one in told["generations"]:
        current = ", the current one" if one["current"] else ""
        _line(f"generation {one['number']}{current}: {one['standing']}; {', '.join(one['outputs'])}")
    if explain:
        rows = [(one["key"], one["value"], _why(one)) for one in told["settings"]]
        show_table(("setting", "value", "why"), rows)
        if ARCHIVE.value():
            _line(f"Spark starts from an archive of its classes, made once (unless {ARCHIVE.variable}=off)")
    else:
        more = "" if deep else "; --deep asks Spark itself"
        say(f"millrace plan --explain says more, with Spark's settings and their reasons{more}")
    for sentence in told["doubts"] or ():
        _line(sentence)


def _show_query(one: dict[str, Any]) -> None:
    done = one["batch"] is not None and one["batch"] >= 0
    at = f" after batch {one['batch']}" if done and one["verdict"] in ("resumes", "asks Spark") else ""
    why = f": {one['why']}" if one["why"] else ""
    console = out()
    console.print(one["name"], style="bold", markup=False, end="  ")
    console.print(one["verdict"], style=_STYLES.get(one["verdict"], "bold red"), markup=False, end="")
    console.print(f"{at}{why}", markup=False, soft_wrap=True)
    for change in one["changes"]:
        _line(f"  {_LABELS[change['effect']]}: {change['what']}")
    if one["choices"]:
        _line(f"  try: {one['choices']}")
    if one["unasked"]:
        _line(f"  not asked: whether its sinks hold more than this state folder knows ({one['unasked']})")
    for source in one["sources"]:
        start = f"{source['start']}{_offsets(source.get('offsets'))}"
        listens = f" (listens at {source['listens']})" if "listens" in source else ""
        _line(f"  reads {source['name']}: {source['reads']}{listens}, {_from(start)}")
    for sink in one["sinks"]:
        _line(f"  writes {sink['to']}: {sink['guarantee']}")
    _line(f"  trigger {one['trigger']}, mode {one['mode']}")


def _explain_query(one: dict[str, Any], among: list[dict[str, Any]]) -> None:
    """What an expert would add: what it reads beside others, what it remembers, whether it could be quicker."""
    for source in one["sources"]:
        if "way" in source:
            _line(f"  records of {source['name']} are {source['way']}")
        readers = [query["name"] for query in among if source["name"] in (read["name"] for read in query["sources"])]
        if len(readers) > 1:
            _line(f"  {source['name']} is read by {len(readers)} queries, by each for itself: {', '.join(readers)}")
    if len(one["sinks"]) > 1:
        _line(f"  its {len(one['sinks'])} sinks share one reading and one computation")
    for kept in one["state"]:
        keys = f"a row for each {', '.join(kept['keys'])}" if kept["keys"] else "rows"
        _line(f"  remembers, for {kept['operation']} in {kept['table']}, {keys}: {_FORGOTTEN[kept['forgotten']]}")
    if one["state"] and one["state_bytes"]:
        _line(f"  its state takes {format_bytes(one['state_bytes'])} on disk now")
    if not one["state"]:
        _line("  remembers nothing but offsets from batch to batch, as far as the file tells")
    _line(f"  real-time mode: {_realtime(one['realtime'])}")


_FORGOTTEN = {
    True: "forgotten when the watermark has passed it",
    False: "never forgotten, so it grows with the number of keys",
    None: "whether it is ever forgotten, only Spark can tell",
}


def _realtime(told: dict[str, Any]) -> str:
    if told["chosen"]:
        return "chosen"
    if told["possible"]:
        return "possible, as far as the file tells, with trigger: realtime (milliseconds, at least once)"
    return f"not possible: {'; '.join(told['against'])}"


_LABELS = {"new": "new", "asks": "changed", "mixes": "not the same", "breaks": "not possible"}


def _from(start: str) -> str:
    return start if start.startswith(("where", "whole")) else f"from {start}"


def _offsets(found: Any) -> str:
    """A Kafka source's offsets: the next record of each partition."""
    if not isinstance(found, dict):
        return ""
    return f" ({'; '.join(f'{topic} {_partitions(one)}' for topic, one in found.items())})"


def _partitions(found: dict[str, int]) -> str:
    return " ".join(f"{number}:{offset}" for number, offset in sorted(found.items(), key=lambda one: int(one[0])))


def _why(one: dict[str, Any]) -> str:
    kept = ", ".join(f"{query} has {value}" for query, value in one.get("kept", {}).items())
    return f"{one['why']}; checkpoints keep theirs: {kept}" if kept else one["why"]


def _line(text: str) -> None:
    out().print(text, markup=False, soft_wrap=True)

"""`millrace plan`: show what a run would do with each query, compared with what ran before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.app import OUTPUT_PANEL
from millrace.cli.options import AcceptOptions, AsJson, KafkaOptions, SparkOptions, State, state_folder
from millrace.cli.output import print_line, print_result, show_error, show_json, show_table, status_line
from millrace.errors import InvalidOption, MillraceError, NoCluster, Problem
from millrace.settings import ARCHIVE, KAFKA_DATA
from millrace.units import format_bytes

if TYPE_CHECKING:
    from millrace.clients.kafka.cluster import Cluster
    from millrace.pipeline.analysis.operators import Operator
    from millrace.pipeline.compatibility.state_schema import StateSchema
    from millrace.pipeline.lineage import Link
    from millrace.pipeline.loading.folder import FolderContents
    from millrace.pipeline.model import PipelineDef
    from millrace.pipeline.plan import Plan

_CLASS_PATH_SETTINGS = ("spark.jars", "spark.driver.extraClassPath")
"""Settings of Spark SQL may name classes that are in there."""
_NEW_CLUSTER_ID = "(new)"
"""Stands for the id of a cluster that a run would create: no checkpoint fits it."""
_STYLES = {"resumes": "bold green", "starts from scratch": "bold cyan", "asks Spark": "bold yellow"}


@dataclass(frozen=True)
class _Options:
    """The options of the command, for each pipeline."""

    deep: bool
    state: Path | None
    accept: AcceptOptions
    spark: SparkOptions
    kafka: KafkaOptions


@dataclass(frozen=True)
class _Planned:
    """The plan of a pipeline."""

    report: dict[str, Any] = field(default_factory=dict)
    """Empty if there is none."""
    pipeline: PipelineDef | None = None
    """As its file declares it."""
    problem: MillraceError | None = None
    """Why there is no plan, or what else would prevent a run."""

    @property
    def exit_code(self) -> int:
        from millrace.engine.checkpoints.resume import BLOCKED, REFUSED

        if any(query["verdict"] in (REFUSED, BLOCKED) for query in self.report.get("queries", ())):
            return 2
        return self.problem.exit_code if self.problem else 0


def plan(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|DIR", help="The pipeline's .py or .yaml file, or a folder: each pipeline in it.", default=...
        ),
    ],
    *,
    deep: bool = OUTPUT_PANEL.flag("Also start Spark, and compare its plans of the queries."),
    explain: bool = OUTPUT_PANEL.flag(
        "Also show state, whether real-time mode is possible, and Spark's settings with their reasons."
    ),
    as_json: AsJson = False,
    state: State = None,
    accept: AcceptOptions,
    spark: SparkOptions,
    kafka: KafkaOptions,
) -> None:
    """Show what a run would do with each query: resume, start from scratch, or not start, and why."""
    options = _Options(deep, state, accept, spark, kafka)
    if not file:
        raise InvalidOption("no file was named", hint="millrace plan FILE")
    if Path(file).is_dir():
        _plan_folder(file, options, explain=explain, as_json=as_json)
        return
    planned = _planned(file, options)
    if as_json:
        show_json(planned.report)
    else:
        _show(planned.report, explain=explain, deep=deep)
        if planned.problem:
            show_error(planned.problem)
    if planned.exit_code:
        raise typer.Exit(planned.exit_code)


def _plan_folder(folder: str, options: _Options, *, explain: bool, as_json: bool) -> None:
    """Show the plans of all pipelines of a folder, and which of them feeds which; exit by the worst."""
    from millrace.connectors.base.registry import CONNECTORS
    from millrace.pipeline.lineage import endpoints, links, mismatches, shared_names
    from millrace.pipeline.loading.folder import pipelines_in

    if options.state is not None or options.accept.queries():
        hint = "name the file of that pipeline instead of the folder"
        raise InvalidOption("--state and --accept-state-change are for one pipeline", hint=hint)
    contents = pipelines_in(folder)
    plans: dict[str, _Planned] = {}
    for file in contents.pipelines:
        plans[file] = planned = _planned_or_error(file, options)
        if not as_json:
            print_result(f"== {file}", style="bold")
            if planned.report:
                _show(planned.report, explain=explain, deep=options.deep)
            if planned.problem:
                show_error(planned.problem)
    pipelines = [planned.pipeline for planned in plans.values() if planned.pipeline]
    found = links(end for pipeline in pipelines for end in endpoints(pipeline, CONNECTORS))
    if as_json:
        show_json(_folder_report(plans, found, contents))
    else:
        named = ((pipeline.name, pipeline.place) for pipeline in pipelines)
        _show_lineage(found, [*shared_names(named), *mismatches(found)])
        for left_out in contents.left_out:
            print_line(str(left_out))
    if worst := max(planned.exit_code for planned in plans.values()):
        raise typer.Exit(worst)


def _planned_or_error(file: str, options: _Options) -> _Planned:
    try:
        return _planned(file, options)
    except MillraceError as error:
        return _Planned(problem=error)


def _folder_report(plans: Mapping[str, _Planned], found: Collection[Link], contents: FolderContents) -> dict[str, Any]:
    failed = {file: each.problem for file, each in plans.items() if each.problem and not each.report}
    return {
        "pipelines": [planned.report for planned in plans.values() if planned.report],
        "errors": [
            {"file": file, "condition": error.condition, "message": error.message} for file, error in failed.items()
        ],
        "lineage": [
            {
                "writer": link.writer.pipeline,
                "table": link.writer.element,
                "target": link.writer.target,
                "reader": link.reader.pipeline,
                "source": link.reader.element,
            }
            for link in {str(link): link for link in found}.values()
        ],
        "left_out": [asdict(left_out) for left_out in contents.left_out],
    }


def _show_lineage(found: Collection[Link], between: Collection[Problem]) -> None:
    from millrace.pipeline.lineage import texts

    print_result("== what feeds what", style="bold")
    for link in texts(found):
        print_result(link)
    if not found:
        print_result("no pipeline reads what another one writes")
    for problem in between:
        for line in problem.lines():
            print_result(line)


def _planned(file: str, options: _Options) -> _Planned:
    """Return the plan of a pipeline; raise a MillraceError if there is none."""
    from millrace.cli.commands.check import load_sound
    from millrace.connectors.base.api import RunContext
    from millrace.connectors.base.registry import CONNECTORS
    from millrace.engine.checkpoints.resume import check_sinks, resume_decisions
    from millrace.engine.checkpoints.state_dir import unused_checkpoints
    from millrace.engine.plan_report import query_report, settings_report
    from millrace.engine.queries.builder import follow_generations
    from millrace.engine.replay.generations import choose, listed
    from millrace.locks import in_use
    from millrace.pipeline.plan import make_plan, with_letters

    spark, kafka = options.spark, options.kafka
    given, accepted = spark.settings(), options.accept.queries()
    declared = load_sound(file)
    base = state_folder(declared, options.state)
    chosen = choose(declared, base)
    pipeline, folder = chosen.pipeline, chosen.state.absolute()
    with suppress(MillraceError):  # a system that does not answer is reported below
        pipeline = follow_generations(pipeline, kafka.cluster)
    run_plan = with_letters(make_plan(pipeline), CONNECTORS)
    kafka_report, cluster_id, problem = _kafka(run_plan, kafka)
    decisions = resume_decisions(run_plan, folder, cluster_id, accepted)
    doubts: list[str] | None = None
    found: dict[str, list[Operator]] = {}
    if options.deep:
        schemas, doubts, found = _ask_spark(run_plan, folder, given)
        decisions = resume_decisions(run_plan, folder, cluster_id, accepted, schemas)
    running = in_use(folder)
    if not running:  # else its run continues meanwhile, and its sinks would seem to be ahead of it
        context = RunContext(
            folder, lambda: _answering_cluster(problem, kafka), pipeline=pipeline.name, create_topics=False
        )
        decisions = [check_sinks(decision, context) for decision in decisions]
    report = {
        "starts": problem is None and all(decision.starts for decision in decisions),
        "running": running,
        "pipeline": pipeline.name,
        "file": pipeline.place.file,
        "state": str(folder),
        "generation": chosen.number,
        "generations": listed(base),
        "queries": [
            query_report(pipeline, decision, folder, chosen.span, found.get(decision.query.name))
            for decision in decisions
        ],
        "letters": {
            query.name: query.dead_letter_source.name for query in run_plan.queries if query.dead_letter_source
        },
        "unused": unused_checkpoints(folder, run_plan),
        "kafka": kafka_report,
        "needs": _needs(run_plan, kafka_report),
        "settings": settings_report(run_plan, spark.master, given, decisions),
        "doubts": doubts,
        "error": None if problem is None else {"condition": problem.condition, "message": problem.message},
    }
    return _Planned(report, declared, problem)


def _kafka(plan: Plan, kafka: KafkaOptions) -> tuple[dict[str, Any] | None, str | None, MillraceError | None]:
    """Return the cluster that a run would use, its id if it is known, and why it cannot be used."""
    from millrace.connectors.base.registry import uses_system
    from millrace.engine.plan_report import topics_report
    from millrace.services.kafka import ClusterLayout

    if not uses_system(plan.pipeline, "kafka"):
        return None, None, None
    topics = topics_report(plan.pipeline)
    try:
        cluster = kafka.cluster()
    except NoCluster:
        folder = KAFKA_DATA.value(kafka.data)
        layout = ClusterLayout.load(folder) if (folder / "cluster.json").exists() else None
        own = {"address": None, "own": str(folder), "topics": topics, "missing": topics if layout is None else None}
        return own, layout.cluster_id if layout else _NEW_CLUSTER_ID, None
    report: dict[str, Any] = {"address": cluster.bootstrap, "own": None, "topics": topics, "missing": None}
    try:
        metadata = cluster.connect()
    except MillraceError as error:
        return report, None, error
    return report | {"missing": [topic for topic in topics if topic not in metadata.topics]}, metadata.cluster_id, None


def _answering_cluster(problem: MillraceError | None, kafka: KafkaOptions) -> Cluster:
    """Return the cluster; raise at once if it has not answered before."""
    if problem:
        raise problem
    return kafka.cluster()


def _ask_spark(
    plan: Plan, folder: Path, given: Mapping[str, str]
) -> tuple[dict[str, StateSchema], list[str], dict[str, list[Operator]]]:
    """Start Spark; return the state schemas of the queries, doubts about settings, and the operators with state."""
    from millrace.cli.services import prepare_spark
    from millrace.engine.deep_check import query_states
    from millrace.engine.session.session import close_session, open_session
    from millrace.engine.session.spark_conf import LISTED, conf_doubts

    # The others are for the place where it would run.
    readable = {key: value for key, value in given.items() if key.startswith((LISTED, *_CLASS_PATH_SETTINGS))}
    prepare_spark()
    with status_line() as notify:
        notify("Spark analyses the plans")
        name, beside = plan.pipeline.name, Path(plan.pipeline.place.file).absolute().parent
        spark = open_session(name, master="local[1]", settings=readable, module_folder=beside)
        try:
            schemas, operators = query_states(plan, spark, folder)
            return schemas, conf_doubts(spark, given), operators
        finally:
            close_session(spark)


def _needs(plan: Plan, kafka: dict[str, Any] | None) -> list[str]:
    from millrace.connectors.base.registry import uses_system

    needs = ["Java and Spark"]
    if kafka:
        needs += [f"Kafka at {kafka['address']}" if kafka["address"] else f"a Kafka of its own, in {kafka['own']}"]
    return [*needs, "Cassandra"] if uses_system(plan.pipeline, "cassandra") else needs


def _show(report: dict[str, Any], *, explain: bool, deep: bool) -> None:
    if report["running"]:
        print_result(
            "another run uses the state folder now: this is what the next one would do by the batches stored so far"
        )
    for query in report["queries"]:
        _show_query(query)
        if explain:
            _explain_query(query, report["queries"], deep=deep)
    for name, source in report["letters"].items():
        print_result(
            f"{name}  reads {source} a second time, each second, for its dead letters: a query without batches "
            "stores none"
        )
    for name in report["unused"]:
        print_result(f"the checkpoint of query {name!r} is no longer used: no sink of the pipeline leads to it")
    if missing := (report["kafka"] or {}).get("missing"):
        print_result(f"topics that a run creates: {', '.join(missing)}")
    print_result(f"a run needs: {', '.join(report['needs'])}")
    print_result(f"state: {report['state']}")
    for generation in report["generations"]:
        current = ", the current one" if generation["current"] else ""
        outputs = ", ".join(generation["outputs"])
        print_result(f"generation {generation['number']}{current}: {generation['standing']}; {outputs}")
    if explain:
        _explain_settings(report["settings"])
    else:
        more = "" if deep else "; --deep asks Spark itself"
        print_line(f"millrace plan --explain shows more, with Spark's settings and their reasons{more}")
    for doubt in report["doubts"] or ():
        print_result(doubt)


def _explain_settings(settings: list[dict[str, Any]]) -> None:
    show_table(("setting", "value", "why"), [(each["key"], each["value"], _reason(each)) for each in settings])
    if ARCHIVE.value():
        print_result(f"Spark starts from an archive of its classes, created once (unless {ARCHIVE.variable}=off)")


def _show_query(query: dict[str, Any]) -> None:
    verdict, batch = query["verdict"], query["batch"]
    done = batch is not None and batch >= 0
    at = f" after batch {batch}" if done and verdict in ("resumes", "asks Spark") else ""
    why = f": {query['why']}" if query["why"] else ""
    print_result(query["name"], style="bold", end="  ")
    print_result(verdict, style=_STYLES.get(verdict, "bold red"), end="")
    print_result(f"{at}{why}")
    for change in query["changes"]:
        print_result(f"  {_CHANGES[change['effect']]}: {change['what']}")
    if query["choices"]:
        print_result(f"  try: {query['choices']}")
    if query["unasked"]:
        print_result(f"  not asked: whether its sinks hold more than this state folder knows ({query['unasked']})")
    for source in query["sources"]:
        start = f"{source['start']}{_offsets(source.get('offsets'))}"
        start = start if start.startswith(("where", "whole")) else f"from {start}"
        listens = f" (listens at {source['listens']})" if "listens" in source else ""
        print_result(f"  reads {source['name']}: {source['reads']}{listens}, {start}")
    for sink in query["sinks"]:
        print_result(f"  writes {sink['to']}: {sink['guarantee']}")
    print_result(f"  trigger {query['trigger']}, mode {query['mode']}")


def _explain_query(query: dict[str, Any], queries: list[dict[str, Any]], *, deep: bool) -> None:
    """Print what a query shares with others, its state, and whether it could be faster."""
    for source in query["sources"]:
        name = source["name"]
        if source["times"] > 1 and not source["static"]:
            print_result(
                f"  {name} is read {source['times']} times by this query, once for each use of it in its tables"
            )
        if "way" in source:
            print_result(f"  records of {name} are {source['way']}")
        if "alignment" in source:
            print_result(f"  {source['alignment']}")
        readers = [each["name"] for each in queries if name in (read["name"] for read in each["sources"])]
        if len(readers) > 1:
            print_result(f"  {name} is read by {len(readers)} queries, by each separately: {', '.join(readers)}")
    if len(query["sinks"]) > 1:
        print_result(f"  its {len(query['sinks'])} sinks share one reading and one computation")
    _show_rewritten(query["rewritten"])
    for state in query["state"]:
        keys = f"a row for each {', '.join(state['keys'])}" if state["keys"] else "rows"
        expiry = _OWN_EXPIRY if deep and state["forgotten"] is None else _EXPIRY[state["forgotten"]]
        print_result(f"  keeps state for {state['operation']} in {state['table']}, {keys}: {expiry}")
    if query["state"] and query["state_bytes"]:
        print_result(f"  its state takes {format_bytes(query['state_bytes'])} on disk now")
    if not query["state"]:
        print_result("  keeps no state but offsets from batch to batch, as far as the file shows")
    print_result(f"  real-time mode: {_realtime(query['realtime'])}")


def _show_rewritten(tables: list[dict[str, str]]) -> None:
    """Print the SQL of tables that are written in another form."""
    for table in tables:
        print_result(f"  {table['form']} of {table['table']} is computed as")
        for line in table["sql"].splitlines():
            print_result(f"    {line}")


_CHANGES = {"new": "new", "asks": "changed", "mixes": "not the same", "breaks": "not possible"}
_EXPIRY = {
    True: "removed when the watermark has passed it",
    False: "never removed, so it grows with the number of keys",
    None: "the file does not show whether it is ever removed; millrace plan --deep asks Spark",
}
_OWN_EXPIRY = "removed as its own code and timeouts say"


def _realtime(mode: dict[str, Any]) -> str:
    if mode["chosen"]:
        return "chosen"
    if mode["possible"]:
        return "possible, as far as the file shows, with trigger: realtime (milliseconds, at least once)"
    return f"not possible: {'; '.join(mode['against'])}"


def _offsets(topics: Any) -> str:
    """Return the offsets of a Kafka source: the next record of each partition."""
    if not isinstance(topics, dict):
        return ""
    return f" ({'; '.join(f'{topic} {_partitions(offsets)}' for topic, offsets in topics.items())})"


def _partitions(offsets: dict[str, int]) -> str:
    return " ".join(f"{number}:{offset}" for number, offset in sorted(offsets.items(), key=lambda item: int(item[0])))


def _reason(setting: dict[str, Any]) -> str:
    kept = ", ".join(f"{query} has {value}" for query, value in setting.get("kept", {}).items())
    return f"{setting['why']}; checkpoints keep theirs: {kept}" if kept else str(setting["why"])

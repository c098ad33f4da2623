"""Names on disk and on the wire do not change: other versions, other programs and people use them.

- Short names are spelled here; long lists are in `stable_names.yaml`, one section for each kind of name.
- Each list is compared with what the code uses, so a name that was changed is missing, and its successor is new.
- A file is made by the function that makes it in a run. No Spark and no Kafka is needed.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer
import yaml

import millrace
from millrace.cli.commands.feed import _cursor_folder as cursor_folder
from millrace.cli.main import app
from millrace.cli.options import state_folder
from millrace.clients.cassandra import _OPTIONS as CASSANDRA_PROPERTIES
from millrace.clients.cassandra import PREFIX as CASSANDRA_PREFIX
from millrace.clients.kafka.cluster import PREFIX as KAFKA_PREFIX
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.security import is_access
from millrace.clients.kinesis.shard_positions import SequenceRange
from millrace.connectors.base.api import SINKS, SOURCES, RunContext
from millrace.connectors.base.batch_tasks import ARGUMENTS_PROPERTY, NUMBERS_PROPERTY
from millrace.connectors.base.record_sink import RECORD_SINKS
from millrace.connectors.base.registry import CONNECTORS, sink_forms, source_forms
from millrace.connectors.cassandra import CassandraSink, times_path
from millrace.connectors.cassandra.sink import WriteTimestamps
from millrace.connectors.cassandra.table import _TABLE as GENERATIONS_TABLE
from millrace.connectors.files import CURRENT, FilesSink, FilesSource
from millrace.connectors.kafka.commit_ledger import LEDGER, BatchCommit, sink_group, sink_transactional_id
from millrace.connectors.kafka.exactly_once import BatchLog, StartedBatch, batches_path
from millrace.connectors.kafka.generation_alias import TOPIC as GENERATIONS_TOPIC
from millrace.connectors.kafka.generation_alias import GenerationAlias
from millrace.connectors.kafka.sink import KafkaSink
from millrace.connectors.kafka.source import KafkaSource
from millrace.connectors.kafka.start_offsets import _note as start_path
from millrace.connectors.kafka.start_offsets import pinned_path
from millrace.connectors.kinesis import KinesisSource
from millrace.connectors.kinesis.source import ShardInputPartition
from millrace.connectors.socket import SocketSource
from millrace.dashboard.app import make_app
from millrace.dashboard.auth import COOKIE, Rules
from millrace.dashboard.kafka.lag import LAG_COLUMNS
from millrace.dashboard.kafka.tail import RECORD_COLUMNS
from millrace.dashboard.live import _KNOWN as CHANNELS
from millrace.dashboard.live import _PREFIXES as CHANNEL_PREFIXES
from millrace.dashboard.live import Broadcaster
from millrace.dashboard.pipeline_info import pipeline_info, program_info
from millrace.dashboard.run_interface import LetterGroup, RunInterface
from millrace.dead_letters.file_journal import FileSource, Journal, JournalEntry
from millrace.dead_letters.fixes import FIX_COLUMNS
from millrace.dead_letters.kafka_writer import KafkaDeadLetterTarget, dead_letter_transactional_id
from millrace.dead_letters.letter import (
    REDRIVEN_HEADER,
    DeadLetter,
    dead_topic,
    redriven_file_name,
    to_headers,
    to_json,
)
from millrace.dead_letters.offset_ledger import MARKER_KEY, OffsetLedger
from millrace.dead_letters.offset_ledger import DecoderId as LedgerReader
from millrace.dead_letters.offset_ledger import marker_record as mark_record
from millrace.dead_letters.redrive import _provenance as provenance
from millrace.dead_letters.redrive import redrive_transactional_id
from millrace.dead_letters.store import StoredDeadLetter, dead_folders
from millrace.dead_letters.writer import FolderDeadLetterTarget, WriterTask
from millrace.dstreams.batch_log import CheckpointFolder, DStreamBatchLog, claim_checkpoint
from millrace.dstreams.kinesis import LEASES, LOST
from millrace.engine.checkpoints.checkpoint import CHECKPOINTS, PANEL_CHECKPOINTS
from millrace.engine.checkpoints.data_loss import TopicIds
from millrace.engine.checkpoints.fingerprint import _WHOLE as WHOLE_METRIC
from millrace.engine.checkpoints.object_store_lock import ObjectStoreLock
from millrace.engine.checkpoints.query_history import checkpoint_of, record_start
from millrace.engine.checkpoints.run_lease import LeaseHolder, run_group
from millrace.engine.checkpoints.state_dir import StateDir, nearby
from millrace.engine.memory_sql import QUERY_FILE, QUERY_SOCKET
from millrace.engine.queries.decoding import _LETTER as LETTER_COLUMN
from millrace.engine.replay.generations import Generation, Output, change, mark_of, name_of, state_of
from millrace.engine.replay.switch import is_group_of
from millrace.engine.session.scratch import PREFIX as SCRATCH_PREFIX
from millrace.engine.session.shipping import UNPACKED
from millrace.engine.supervision.offset_commits import group_of
from millrace.errors import MillraceError
from millrace.feeds.base.api import FEEDS, Cursor
from millrace.feeds.x import TOKEN_VARIABLE as X_VARIABLE
from millrace.formats.base import FORMATS
from millrace.object_stores import StorePath, mounted
from millrace.pipeline.compatibility.query_snapshot import snapshot_query
from millrace.pipeline.loading.yaml import GENERAL, KEYS, load_yaml
from millrace.pipeline.model import MODES
from millrace.pipeline.panels import KINDS
from millrace.pipeline.plan import make_plan
from millrace.secret_files import SUFFIX as FILE_SUFFIX
from millrace.services.cassandra import CassandraNode
from millrace.services.certificates import CERTIFICATE_FILES
from millrace.services.jars import jar_sets
from millrace.services.kafka import ClusterLayout, Node, node_folder
from millrace.services.lifecycle import client_properties
from millrace.services.process import Identity
from millrace.settings import CASSANDRA_DATA, KAFKA_DATA, SETTINGS, STATE
from millrace.telemetry.channels import Channels
from millrace.telemetry.measurements import Measurements
from millrace.telemetry.metrics import Health
from millrace.telemetry.metrics import run_state as state_of_run
from millrace.telemetry.panel_registry import RegisteredPanel
from millrace.telemetry.progress import METRICS, WITHIN
from millrace.telemetry.prometheus import to_text as prometheus_text
from millrace.telemetry.publisher import EVENT_COLUMNS, HISTORY_COLUMNS
from millrace.telemetry.query_status import Phase, RunStatus
from millrace.telemetry.topology import Topology, topology_of
from millrace.testing.memory_source import _TICK as TICK_COLUMN
from millrace.testing.spec_file import _CASE_KEYS as CASE_KEYS
from millrace.testing.spec_file import _TOP_KEYS as TEST_KEYS
from millrace.testing.spec_file import ENDINGS
from test_object_stores import Kept

FILE = Path(__file__).with_name("stable_names.yaml")
DOCS = Path(__file__).parents[1] / "docs"
SOURCE = Path(millrace.__file__).parent
CLUSTER = Cluster.at("127.0.0.1:1")
"""Never asked."""
PIPELINE = """
name: trending
sources:
  posts: {kafka: posts, schema: "id string, at timestamp", watermark: [at, 1 minute]}
tables:
  popular: SELECT window(at, '1 minute').start AS at, count(*) AS n FROM posts GROUP BY window(at, '1 minute')
sinks:
  - {from: popular, kafka: popular, mode: append}
panels:
  - {from: popular, series: {time: at, value: n}}
"""
LETTER = DeadLetter(
    value=b"{", topic="posts", partition=3, offset=7, timestamp=5, reason="no", pipeline="trending", source="posts"
)

Names = Mapping[str, Iterable[str]] | Iterable[str]


def context(state: Path, **more: Any) -> RunContext:
    """A place where connectors work; there is no Spark in it."""
    return RunContext(state, lambda: CLUSTER, pipeline="trending", name="posts", query="popular", **more)


@cache
def plan_in(folder: Path) -> Any:
    """The plan of a small pipeline."""
    file = folder / "trending.yaml"
    file.write_text(PIPELINE)
    return make_plan(load_yaml(file), panels=True)


def files_in(folder: Path) -> list[str]:
    """Every file below a folder, by its path from there."""
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


def keys_of(file: Path) -> list[str]:
    """The top-level keys of a file of JSON."""
    return sorted(json.loads(file.read_text("utf-8")))


# What the lists of the file are compared with.


def commands(command: Any, path: tuple[str, ...] = ("millrace",)) -> Iterator[tuple[str, list[str]]]:
    """Every command, also the hidden ones, with its options and their aliases."""
    options = [one for one in command.params if one.param_type_name == "option"]
    yield " ".join(path), sorted(word for one in options for word in (*one.opts, *one.secondary_opts))
    if hasattr(command, "list_commands"):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))


def conditions() -> set[str]:
    """Every condition that is documented or that an error has."""
    page = (DOCS / "reference/conditions.md").read_text("utf-8")
    return set(re.findall(r"^\| `([a-z0-9.-]+)` \|", page, re.MULTILINE)) | {one.condition for one in errors()}


def errors(kind: type[MillraceError] = MillraceError) -> Iterator[type[MillraceError]]:
    """Our errors."""
    if kind.__module__.startswith("millrace."):
        yield kind
    for one in kind.__subclasses__():
        yield from errors(one)


def variables() -> Iterator[str]:
    """Every environment variable that has a name of its own."""
    yield from (one.variable for one in SETTINGS)
    yield from (one.old_variable for one in SETTINGS if one.old_variable)
    yield from (f"{CASSANDRA_PREFIX}{one.upper().replace('.', '_')}" for one in CASSANDRA_PROPERTIES)
    yield X_VARIABLE
    for name in FEEDS.names():
        fields = dataclasses.fields(FEEDS.load(name))  # type: ignore[arg-type]
        yield from (one.metadata["variable"] for one in fields if one.metadata.get("variable"))


def run_state() -> dict[str, Any]:
    """The state of a run with one query, as the dashboard has it."""
    run_status = RunStatus()
    run_status.started("popular")
    run_status.set_dead_letters("posts", 1)
    return state_of_run(run_status, Measurements(), Topology())


def metrics() -> set[str]:
    """The name and the labels of every metric, of a run in which each figure is known."""
    told = run_state()
    known: dict[str, Any] = told | {
        "process": dict.fromkeys(told["process"], 1),
        "queries": [{name: 1 if one is None else one for name, one in query.items()} for query in told["queries"]],
    }
    text = prometheus_text(known, Health(healthy=True, ready=True, reasons=()))
    found = re.findall(r"^(\w+)(?:\{(.*)\})? ", text, re.MULTILINE)
    return {" ".join([name, *re.findall(r'(\w+)="', labels)]) for name, labels in found}


def options(forms: Iterable[Any]) -> dict[str, list[str]]:
    """The options of connectors, with the values of those that allow only some; what comes first is marked."""
    return {
        one.name: [
            *([f"{_written(one.argument)} (first)"] if one.argument else []),
            *sorted(_written(option) for option in one.options),
            *(["(others)"] if one.others else []),
        ]
        for one in forms
    }


def _written(option: Any) -> str:
    return f"{option.name}: {' | '.join(sorted(option.choices))}" if option.choices else str(option.name)


def deprecated_options() -> Iterator[tuple[str, list[str]]]:
    """Names and values of options that are still accepted, with the current ones."""
    for room in (SOURCES, SINKS):
        for name in room.names():
            fields = dataclasses.fields(room.load(name))  # type: ignore[arg-type]
            names = [f"{alias} -> {one.name}" for one in fields for alias in one.metadata.get("aliases", ())]
            values = [
                f"{one.name}: {old} -> {new}"
                for one in fields
                for old, new in one.metadata.get("value_aliases", {}).items()
            ]
            if names or values:
                yield f"{room.noun} {name}", [*names, *values]


def format_options() -> dict[str, list[str]]:
    """The options of formats."""
    kinds = {name: FORMATS.load(name) for name in FORMATS.names()}
    return {name: [one.name for one in dataclasses.fields(kind) if one.init] for name, kind in kinds.items()}  # type: ignore[arg-type]


def routes() -> list[str]:
    """Everything that the server of the dashboard answers."""
    inner: Any = make_app(RunInterface(Channels(), lambda: Health(True, True, ()), dict), Rules())
    while not hasattr(inner, "routes"):
        inner = vars(inner)["_app"]
    return [" ".join([*sorted(getattr(one, "methods", None) or ["-"]), one.path]) for one in inner.routes]


def dashboard_keys(folder: Path) -> dict[str, Iterable[str]]:
    """The keys of what the dashboard is sent, by where they are."""
    plan = plan_in(folder)
    pipeline = pipeline_info(plan, master=None, spark={}, kafka=None)
    assert set(pipeline) == set(program_info("p", "p.py", master=None, spark={}, kafka=None))
    told = run_state()
    edges = state_of_run(RunStatus(), Measurements(), topology_of(plan, {}))["edges"]
    panel = RegisteredPanel(plan.queries[0].panels[0])
    return {
        "state": told,
        "state.figures": told["figures"],
        "state.queries": told["queries"][0],
        "state.edges": edges[0],
        "state.process": told["process"],
        "pipeline": pipeline,
        **{f"pipeline.{one}": pipeline[one][0] for one in ("sources", "tables", "sinks", "queries", "panels")},
        "pipeline.settings": pipeline["settings"][0],
        "panels": panel.summary(),
        "panel": panel.content(0),
        "history": HISTORY_COLUMNS,
        "lag": LAG_COLUMNS,
        "events": EVENT_COLUMNS,
        "tail": RECORD_COLUMNS,
        "letter": to_json(LETTER),
        "redrive": [one.name for one in dataclasses.fields(LetterGroup)],
        "hello": orjson.loads(Broadcaster(Channels(), None).hello()),  # type: ignore[arg-type]
    }


FOUND: dict[str, Callable[[Path], Names]] = {
    "commands": lambda _: dict(commands(typer.main.get_command(app))),
    "conditions": lambda _: conditions(),
    "variables": lambda _: variables(),
    "metrics": lambda _: metrics(),
    "sources": lambda _: options(source_forms()),
    "sinks": lambda _: options(sink_forms()),
    "deprecated_options": lambda _: dict(deprecated_options()),
    "feeds": lambda _: FEEDS.names(),
    "formats": lambda _: format_options(),
    "panels": lambda _: {name: [one.name for one in kind.options] for name, kind in KINDS.items()},
    "jars": lambda _: list(jar_sets()),
    "routes": lambda _: routes(),
    "dashboard": dashboard_keys,
}
"""What the code uses, by the section of the file."""


def flat(names: Names) -> set[str]:
    """Names as lines; those below another name begin with it."""
    if not isinstance(names, Mapping):
        return set(names)
    return {line for name, below in names.items() for line in (name, *(f"{name}: {one}" for one in below or ()))}


@pytest.mark.parametrize("section", FOUND)
def test_names_are_those_of_the_file(section: str, tmp_path: Path) -> None:
    stable = flat(yaml.safe_load(FILE.read_text("utf-8"))[section])
    found = flat(FOUND[section](tmp_path))
    told = [f"missing: {one}" for one in sorted(stable - found)] + [f"new: {one}" for one in sorted(found - stable)]
    assert not told, "\n".join(
        [
            f"the names of {section} have changed:",
            *told,
            "A name on disk or on the wire must not change: put a missing one back.",
            f"One that is only new is to be added to {FILE.name}.",
        ]
    )


def test_every_section_of_the_file_is_compared() -> None:
    assert set(yaml.safe_load(FILE.read_text("utf-8"))) == set(FOUND)


def test_every_condition_is_spelled_in_the_code() -> None:
    trees = (ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py"))
    spelled = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert conditions() - spelled == set()


# Kafka and Cassandra.


def test_topics_and_tables() -> None:
    assert dead_topic("posts") == "posts.dead"
    assert LEDGER == "millrace.ledger"
    assert GENERATIONS_TOPIC == "millrace.generations"
    assert GENERATIONS_TABLE == "millrace_generations"


def test_generations() -> None:
    assert KafkaSink(topic="popular").in_generation(2) == {"topic": "popular.g2"}
    assert FilesSink(path="/data/popular/").in_generation(2) == {"path": "/data/popular.g2"}
    assert CassandraSink(table="shop.popular").in_generation(2) == {"table": "shop.popular_g2"}
    assert (name_of("trending", 1), name_of("trending", 2)) == ("trending", "trending@2")
    assert state_of(Path("/state/trending"), 2) == Path("/state/trending@2")
    assert CURRENT == ".current"


def test_dead_topics_of_a_replay(tmp_path: Path) -> None:
    target = KafkaSource(topic=("posts",), schema="id string").dead_letter_target(
        context(tmp_path, topic_suffix=mark_of(2))
    )
    assert isinstance(target, KafkaDeadLetterTarget)
    assert target.dead_topic("posts") == "posts.g2.dead"


def test_consumer_groups(tmp_path: Path) -> None:
    sink = KafkaSink(topic="popular")._commit_ledger(context(tmp_path)).name
    assert sink == "trending/popular/popular"
    assert (
        KafkaSink(topic="popular")._commit_ledger(context(tmp_path, duplicate_index=1)).name
        == "trending/popular/popular/1"
    )
    groups = {
        run_group("trending"): "millrace.run/trending",
        sink_group(sink, 49): "millrace.sink/trending/popular/popular",
        sink_group(sink, 50): "millrace.sink/trending/popular/popular#1",
        KafkaDeadLetterTarget(CLUSTER, "trending", "posts").group: "millrace.dead.trending.posts",
        group_of("trending", "popular"): "millrace.trending.popular",
    }
    assert list(groups) == list(groups.values())
    assert all(is_group_of("trending", group) for group in groups)
    assert not any(is_group_of("trend", group) for group in groups)


def test_transactional_ids() -> None:
    assert sink_transactional_id("trending/popular/popular", 3) == "millrace.sink/trending/popular/popular/3"
    group = KafkaDeadLetterTarget(CLUSTER, "trending", "posts").group
    assert dead_letter_transactional_id(group, "posts", 3) == "millrace.dead.trending.posts/posts/3"
    assert redrive_transactional_id("posts.dead") == "millrace.redrive.posts.dead"


def test_client_id_of_a_run() -> None:
    assert LeaseHolder(5, "state", "host", "42").client == "millrace/5/state/host/42"


def test_headers_of_dead_letters() -> None:
    names = ["topic", "partition", "offset", "timestamp", "reason", "pipeline", "source"]
    assert [name for name, _ in to_headers(LETTER)] == [f"millrace.{name}" for name in names]


def test_header_of_a_record_that_was_sent_again() -> None:
    assert REDRIVEN_HEADER == "millrace.redriven"
    made = orjson.loads(provenance(StoredDeadLetter(LETTER, "posts.dead", 3, 0, 0), "fix.py", 1))
    assert list(made) == [
        *("attempt", "at", "topic", "partition", "offset", "timestamp", "dead", "reason", "pipeline", "source", "fix")
    ]


def test_marks_in_dead_topics() -> None:
    assert MARKER_KEY == b"millrace.redriven"
    record = mark_record(3, [7, 8, 11], {"at": 1, "fix": None, "to": None})
    assert (record.key, record.partition) == (MARKER_KEY, 3)
    assert orjson.loads(record.value or b"") == {"letters": [[7, 9], [11, 12]], "at": 1, "fix": None, "to": None}


def test_what_is_committed_beside_an_offset() -> None:
    ledger = OffsetLedger().with_range(LedgerReader("query", "lineage", 4), (7, 9))
    assert ledger.text() == '[["4ee9451a3b09bb2ec3ecb3ab",4,[[7,9]]]]'
    assert BatchCommit.of(5, "query/lane/plan") == BatchCommit("query", 4, "lane", "plan")


def test_lineage_of_dead_letters(tmp_path: Path) -> None:
    reader = KafkaSource(topic=("posts",), schema="id string")
    target = reader.dead_letter_target(context(tmp_path, state_id="state"))
    assert isinstance(target, KafkaDeadLetterTarget)
    assert target.decoder_version == "1db555900e43"


def test_record_of_the_current_generation() -> None:
    assert [one.name for one in dataclasses.fields(GenerationAlias)] == ["pipeline", "generation", "at", "topics"]


# The state folder.


def test_default_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [one.default for one in (STATE, KAFKA_DATA, CASSANDRA_DATA)]
    assert folders == [Path(".millrace"), Path(".millrace/kafka"), Path(".millrace/cassandra")]
    monkeypatch.delenv(STATE.variable, raising=False)
    assert state_folder(plan_in(tmp_path).pipeline, None) == Path(".millrace/pipelines/trending")
    assert nearby(StorePath("s3a://bucket/state"), "trending") == Path(".millrace/pipelines/trending-ca7fc761")
    assert cursor_folder("posts", "kafka posts") == Path(".millrace/feeds/posts-kafka_posts-4963ab16")


def test_queries_have_the_names_of_their_checkpoints(tmp_path: Path) -> None:
    file = tmp_path / "names.yaml"
    sinks = [
        "",
        ", mode: update",
        ", trigger: 5s",
        ", trigger: once",
        ", trigger: realtime",
        ", trigger: continuous 1s",
    ]
    told = "".join(f"\n  - {{from: posts, kafka: popular{one}}}" for one in sinks)
    file.write_text(f"name: names\nsources: {{posts: {{kafka: posts, schema: id string}}}}\nsinks:{told}\n")
    assert [one.name for one in make_plan(load_yaml(file)).queries] == [
        "posts",
        "posts-update",
        "posts-every-5.0",
        "posts-once",
        "posts-realtime-kafka-popular",
        "posts-continuous-1.0-kafka-popular",
    ]


def test_files_of_the_state(tmp_path: Path) -> None:
    plan, state = plan_in(tmp_path), tmp_path / "state"
    query, here = plan.queries[0], context(state)
    with StateDir(state, plan.pipeline) as held:
        held.claim(plan, "cluster")
    record_start(state, query.name, snapshot_query(plan.pipeline, query, CONNECTORS), None)
    TopicIds(state, query.name, CLUSTER).save([])
    BatchLog(batches_path(here, "sink")).begin(StartedBatch.of("id", 0, ("a",)))
    WriteTimestamps(times_path(here, "shop.popular"), "id").of(0)
    kinesis = KinesisSource(stream="posts", region="eu-west-1", start="2026-01-01T00:00:00Z", schema="id string")
    kinesis._since(here)
    assert files_in(state) == [
        "cassandra/popular@shop.popular.json",
        "lock",
        "pipeline.json",
        "ran/popular.json",
        "sinks/popular-1978baf2c153.json",
        "starts/posts.json",
        "topics/popular.json",
    ]
    assert start_path(here) == state / "starts/popular/posts.json"
    assert pinned_path(here) == state / "starts/posts.json"
    assert checkpoint_of(state, "popular") == state / "checkpoints/popular"
    assert (CHECKPOINTS, PANEL_CHECKPOINTS) == ("checkpoints", "panels")
    assert (QUERY_FILE, QUERY_SOCKET) == ("query.json", "query.sock")
    assert keys_of(state / "pipeline.json") == ["id", "name", "queries"]
    assert keys_of(state / "ran/popular.json") == ["ran", "version"]
    (ran,) = json.loads((state / "ran/popular.json").read_text("utf-8"))["ran"]
    assert sorted(ran) == ["after", "found", "said"]
    assert sorted(ran["said"]) == [
        "certain",
        "mode",
        "offsets",
        "sinks",
        "sources",
        "steps",
        "table",
        "tables",
        "trigger",
    ]
    (sink,) = (state / "sinks").iterdir()
    assert keys_of(sink) == ["at", "batch", "ledger", "query", "read", "tasks"]
    assert keys_of(state / "cassandra/popular@shop.popular.json") == ["batches", "query"]
    assert keys_of(state / "starts/posts.json") == ["at", "start"]


def test_files_of_generations(tmp_path: Path) -> None:
    made = Generation(2, ("earliest", "latest"), "code", {}, {}, (Output("kafka", "popular", "popular.g2"),))
    change(tmp_path / "trending", lambda known: known.with_generation(made))
    assert files_in(tmp_path) == ["trending.generations.json", "trending.generations.lock"]
    told = json.loads((tmp_path / "trending.generations.json").read_text("utf-8"))
    assert sorted(told) == ["before", "current", "dropping", "first_gone", "last", "made", "switching", "version"]
    names = ["asked", "begin", "begun", "code", "done", "end", "left_out", "number", "outputs"]
    assert sorted(told["made"][0]) == names
    assert told["made"][0]["outputs"] == [{"kind": "kafka", "name": "popular", "own": "popular.g2"}]


def test_files_of_dead_letters(tmp_path: Path) -> None:
    state = tmp_path / "pipelines/trending"
    folder = state / "dead/posts"
    target = FilesSource(path="/data", schema="id string").dead_letter_target(context(state))
    others = [SocketSource(address="127.0.0.1:1", schema="id string").dead_letter_target(context(state))]
    others.append(
        KinesisSource(stream="posts", region="eu-west-1", schema="id string").dead_letter_target(context(state))
    )
    assert isinstance(target, FolderDeadLetterTarget)
    assert {one.folder for one in (target, *others) if isinstance(one, FolderDeadLetterTarget)} == {folder}
    writer = target.open(WriterTask("id", 4, 3))
    writer.write([LETTER])
    writer.close()
    Journal(folder).add([JournalEntry(folder / "draft", folder / "final", ("a",))])
    with Journal(folder).locked():
        assert files_in(folder) == ["id-4-3.jsonl", "redrive.lock", "redriven.log", "source.json"]
    assert keys_of(folder / "redriven.log") == ["at", "draft", "file", "fix", "letters"]
    assert keys_of(folder / "source.json") == ["header", "only", "path"]
    assert FileSource.load(folder) == target.files
    assert dead_folders(tmp_path) == dead_folders(tmp_path, "trending") == dead_folders(state) == [folder]
    assert redriven_file_name("posts.json", 2, "0" * 16) == f"posts-redriven-2-{'0' * 16}.json"


def test_files_of_a_state_on_a_store() -> None:
    kept = Kept()
    with mounted(kept):
        tenure = ObjectStoreLock(StorePath("s3a://bucket/state"))
        tenure.acquire()
        held = sorted(kept.files)
        tenure.release()
    names = [f"s3a://bucket/state/holders/000000000001.{kind}" for kind in ("alive", "over", "term")]
    assert held == [names[0], names[2]]
    assert sorted(kept.files) == names


def test_files_of_a_feed(tmp_path: Path) -> None:
    Cursor(tmp_path).save("here")
    assert files_in(tmp_path) == ["lock", "position"]


def test_files_of_a_dstream_program(tmp_path: Path) -> None:
    folder = CheckpointFolder.at(str(tmp_path))
    claim_checkpoint(folder, "program.py", ["posts"])
    notes = DStreamBatchLog(folder, "posts")
    for time in (1000, 2000):
        notes.write(time, {})
    notes.remove_before(2000)
    assert files_in(tmp_path) == ["millrace/owner.json", "millrace/posts/2000.json", "millrace/posts/forgotten"]
    assert keys_of(tmp_path / "millrace/owner.json") == ["program", "streams"]


def test_files_of_our_services(tmp_path: Path) -> None:
    process = Identity(42, "server.properties")
    ClusterLayout("id", (Node(1, 9092, 9093, 9094, process),), password="p").save(tmp_path)
    CassandraNode(9042, 7000, process, password="p").save(tmp_path)
    assert files_in(tmp_path) == ["cassandra.json", "cluster.json"]
    assert keys_of(tmp_path / "cluster.json") == ["cluster_id", "nodes", "password", "secure"]
    (node,) = json.loads((tmp_path / "cluster.json").read_text("utf-8"))["nodes"]
    assert sorted(node) == ["controller_port", "id", "internal_port", "port", "process"]
    assert sorted(node["process"]) == ["argument", "pid"]
    assert keys_of(tmp_path / "cassandra.json") == [
        *("password", "port", "process", "secure", "settled", "storage_port")
    ]
    assert node_folder(tmp_path, Node(1, 9092, 9093, 9094)) == tmp_path / "node-1"
    assert client_properties(tmp_path) == tmp_path / "client.properties"
    assert CERTIFICATE_FILES == ("server.p12", "server.password", "ca.pem")


def test_temporary_files() -> None:
    assert SCRATCH_PREFIX == "millrace-scratch-"
    assert UNPACKED == "millrace_packages"


# What people and other packages write.


def test_entry_points() -> None:
    groups = [one.package for one in (SOURCES, SINKS, RECORD_SINKS, FEEDS, FORMATS)]
    assert groups == ["millrace.connectors"] * 3 + ["millrace.feeds", "millrace.formats"]
    assert RECORD_SINKS.names() == ["console", "files", "kafka"]


def test_keys_of_a_pipeline() -> None:
    assert KEYS == ("name", "trigger", "include", "functions", "sources", "tables", "sinks", "panels")
    assert GENERAL == ("from", "mode", "trigger", "watermark", "static")
    assert MODES == ("append", "update", "complete")


def test_keys_of_tests() -> None:
    assert ENDINGS == (".test.yaml", ".test.yml")
    assert TEST_KEYS == ("pipeline", "environment", "tests")
    assert CASE_KEYS == ("given", "watermark", "expect", "late", "dead", "steps", "key")


def test_columns_of_a_fix() -> None:
    record = ("value", "key", "headers", "topic", "partition", "offset", "timestamp", "file")
    assert (*record, "reason", "pipeline", "source", "attempts") == FIX_COLUMNS


def test_variables_of_client_properties() -> None:
    assert (KAFKA_PREFIX, CASSANDRA_PREFIX, FILE_SUFFIX) == ("MILLRACE_KAFKA_", "MILLRACE_CASSANDRA_", "_FILE")
    for name in ("security.protocol", "sasl.password", "ssl.ca.location", "https.ca.location"):
        assert is_access(name)


def test_settings_of_spark() -> None:
    assert (LEASES, LOST) == ("spark.millrace.kinesis.leases", "spark.millrace.kinesis.lost")


# The dashboard, and what travels inside Spark.


def test_channels() -> None:
    assert CHANNELS == ("state", "events", "panels", "topics", "dead", "redrive")
    assert CHANNEL_PREFIXES == ("history:", "lag:", "panel:", "tail:")
    assert [str(one) for one in Phase] == ["starting", "running", "waiting", "restarting", "stopped", "failed"]
    assert COOKIE == "millrace_token"


def test_internal_columns_and_properties() -> None:
    assert (LETTER_COLUMN, TICK_COLUMN) == ("_millrace_letter", "_millrace_tick")
    assert (NUMBERS_PROPERTY, ARGUMENTS_PROPERTY) == ("millrace.lanes", "millrace.batch")
    assert (METRICS, WITHIN, WHOLE_METRIC) == ("millrace.panels", "millrace.within.", "millrace.whole")


def test_the_input_of_a_kinesis_task() -> None:
    """It is part of the digest of a started batch."""
    partition = ShardInputPartition(SequenceRange("shardId-0", "1", "9"), None)
    assert partition.task_input == "Span(shard='shardId-0', first='1', last='9')"

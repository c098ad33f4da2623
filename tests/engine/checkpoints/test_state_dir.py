"""Runs with their state on a store: each batch asks whether it still is theirs, and what cannot be sound is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import millrace as mr
from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.api import NoLock, RunContext
from millrace.connectors.base.registry import CONNECTORS, make_sink
from millrace.dead_letters.writer import FolderDeadLetterTarget
from millrace.engine.checkpoints import object_store_lock
from millrace.engine.checkpoints.state_dir import StateDir, nearby, require_fit
from millrace.engine.queries.builder import QueryBuilder, _MultiSink
from millrace.engine.run import _at_rest
from millrace.errors import FileUnusable, InvalidDefinition, InvalidOption, StateMismatch
from millrace.errors.transport import TransportedError, from_transport
from millrace.object_stores import mounted, path_of
from millrace.pipeline.loading.python import Pipeline as Written
from millrace.pipeline.model import Connection, PipelineDef
from millrace.pipeline.plan import make_plan, with_letters
from test_object_stores import Kept

STORE = path_of("s3a://runs/state")
ROWS = "id bigint"


class Rows:
    """A stream that is being written: it keeps what would be called for each batch."""

    def __init__(self) -> None:
        self.each: Callable[[Any, int], None] | None = None
        self._df = self

    def mapInArrow(self, *_: Any) -> Rows:  # noqa: N802 - Spark's name
        return self

    @property
    def writeStream(self) -> Rows:  # noqa: N802 - Spark's name
        return self

    def foreachBatch(self, each: Callable[[Any, int], None]) -> Rows:  # noqa: N802 - Spark's name
        self.each = each
        return self

    def format(self, _: str) -> Rows:
        return self


class Lost(NoLock):
    """The lock of a run that another one has taken over from."""

    def check(self) -> None:
        raise StateMismatch("another run has taken over")


def nobody() -> Any:
    raise AssertionError("nothing may be asked for before it is known who holds the state")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life come at every look, and nobody waits long for them."""
    monkeypatch.setattr(object_store_lock, "RENEWED", 0.01)
    monkeypatch.setattr(object_store_lock, "_LOOK", 0.1)


@pytest.fixture
def context() -> RunContext:
    """Of a run that has lost its state."""
    return RunContext(STORE, nobody, pipeline="p", name="rows", query="q", lock=Lost())


def refuses(each: Callable[[Any, int], None] | None) -> None:
    assert each is not None
    with pytest.raises(TransportedError) as raised:
        each(None, 7)
    assert isinstance(from_transport(str(raised.value)), StateMismatch)


@pytest.mark.parametrize(
    "connection",
    [
        Connection("files", "s3a://runs/out"),
        Connection("kafka", "out", (("guarantee", "at-least-once"),)),
        Connection("foreach", print),
        Connection("foreach", print, (("batch", True),)),
        Connection("memory", "table"),
        Connection("console"),
    ],
)
def test_a_batch_is_not_written_when_the_state_is_lost(connection: Connection, context: RunContext) -> None:
    writer, mistakes = make_sink(connection)
    assert writer, mistakes
    rows = Rows()
    writer.stream(rows, context)  # type: ignore[arg-type]
    refuses(rows.each)


def test_nor_in_transactions(context: RunContext) -> None:
    writer, mistakes = make_sink(Connection("kafka", "out"))
    assert writer, mistakes
    assert writer.needs_single_writer
    rows = Rows()
    writer.stream(rows, replace(context, cluster=lambda: Cluster("nowhere:9092")))  # type: ignore[arg-type]
    refuses(rows.each)


def test_nor_by_several_sinks_or_by_none(context: RunContext) -> None:
    writer, _ = make_sink(Connection("files", "s3a://runs/out"))
    assert writer
    refuses(_MultiSink([(writer, context, None)]))  # type: ignore[list-item]
    rows = Rows()
    shop = QueryBuilder(None, context)  # type: ignore[arg-type]
    shop._discard(rows)  # type: ignore[arg-type]
    refuses(rows.each)


def test_nor_is_a_query_started(context: RunContext) -> None:
    """A start removes and writes files of the checkpoint."""
    shop = QueryBuilder(None, context)  # type: ignore[arg-type]
    with pytest.raises(StateMismatch):
        shop.start(SimpleNamespace(name="counts"))  # type: ignore[arg-type]


def test_on_a_disk_spark_writes_by_itself(context: RunContext) -> None:
    rows = Rows()
    QueryBuilder(None, replace(context, state=Path()))._discard(rows)  # type: ignore[arg-type]
    assert rows.each is None


def pipeline(source: Connection, **sink: Any) -> PipelineDef:
    made = Written("copy")
    made.source("rows", source)
    made.sink("rows", mr.kafka("out"), **sink)
    return made.model()


def fit(made: PipelineDef, state: Path) -> None:
    require_fit(with_letters(make_plan(made), CONNECTORS), state)


KEEP_LETTERS = [
    mr.socket("there:9999", format="json", schema=ROWS),
    mr.kinesis("events", schema=ROWS),
    mr.files("s3a://runs/in", schema=ROWS),
]


@pytest.mark.parametrize("source", KEEP_LETTERS, ids=lambda one: one.connector)
def test_letters_that_workers_would_write_to_a_store(source: Connection, tmp_path: Path) -> None:
    made = pipeline(source)
    with pytest.raises(InvalidDefinition) as refused:
        fit(made, STORE)
    assert "on_bad" in (refused.value.hint or "")
    fit(made, tmp_path)
    fit(pipeline(replace(source, options=(*source.options, ("on_bad", "drop")))), STORE)


def test_whoever_else_buries_in_a_folder_of_a_store() -> None:
    with pytest.raises(InvalidDefinition):
        FolderDeadLetterTarget(STORE / "dead" / "rows", "copy", "rows")


@pytest.mark.parametrize(
    "source", [mr.kafka("in", schema=ROWS), mr.files("s3a://runs/in", format="parquet"), mr.rate(10)]
)
def test_letters_in_kafka_and_sources_that_have_none(source: Connection) -> None:
    fit(pipeline(source), STORE)


@pytest.mark.parametrize("trigger", ["realtime", "continuous 1s"])
def test_queries_without_batches_never_ask(trigger: str, tmp_path: Path) -> None:
    made = pipeline(mr.kafka("in", schema=ROWS, on_bad="drop"), trigger=trigger, mode="update")
    with pytest.raises(InvalidDefinition):
        fit(made, STORE)
    fit(made, tmp_path)


@pytest.mark.parametrize("url", ["gs://runs/state", "abfs://runs@there/state"])
def test_stores_that_nobody_has_seen_hold_a_state(url: str) -> None:
    with pytest.raises(InvalidOption):
        fit(pipeline(mr.kafka("in", schema=ROWS)), path_of(url))


def test_a_state_on_a_store_is_held_whatever_the_sinks_are(often: None) -> None:
    made = pipeline(mr.rate(10))
    with mounted(Kept()), StateDir(STORE, made) as state:
        state.check()
        with pytest.raises(StateMismatch), StateDir(STORE, made):
            raise AssertionError("two hold it")


@pytest.mark.parametrize(
    ("fails", "at_rest", "waits"), [(False, True, False), (True, True, True), (False, False, True)]
)
def test_the_next_run_waits_where_something_may_still_write(fails: bool, at_rest: bool, waits: bool) -> None:
    store = Kept()
    with mounted(store), suppress(ZeroDivisionError), StateDir(STORE, pipeline(mr.rate(10)), at_rest=lambda: at_rest):
        assert not fails or 1 / 0
    assert any(url.endswith(".over") for url in store.files) is not waits


def test_a_session_that_has_queries_is_not_at_rest() -> None:
    def session(*active: str) -> Any:
        return SimpleNamespace(streams=SimpleNamespace(active=active))

    assert (_at_rest(None), _at_rest(session()), _at_rest(session("copy"))) == (True, True, False)
    assert not _at_rest(object()), "nobody answers"  # type: ignore[arg-type]


def test_two_states_of_a_pipeline_have_their_own_folders_here(tmp_path: Path) -> None:
    assert nearby(STORE, "copy") != nearby(STORE.with_name("other"), "copy")
    assert nearby(tmp_path, "copy") == tmp_path


def test_a_store_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Kept()

    def denied(url: str) -> list[str]:
        raise OSError(0, "Access Denied", url)

    monkeypatch.setattr(store, "names", denied)
    with mounted(store), pytest.raises(FileUnusable) as refused, StateDir(STORE, pipeline(mr.rate(10))):
        raise AssertionError("nobody can hold it")
    assert refused.value.why == "Access Denied"

"""Which queries a model becomes."""

from __future__ import annotations

from millrace.pipeline.connector_facts import Connectors, Facts
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef, TableDef, Trigger, connection
from millrace.pipeline.plan import make_plan, unbatched, with_letters, with_letters_of

SOURCES = (SourceDef("posts", connection("kafka", "posts")), SourceDef("users", connection("kafka", "users")))
TABLES = (
    TableDef("tags", ("posts",), "SELECT 1 FROM posts"),
    TableDef("joined", ("tags", "users"), "SELECT 1 FROM tags, users"),
)


def sink(table: str, connector: str, mode: str = "append", trigger: Trigger | None = None) -> SinkDef:
    return SinkDef(table, connection(connector), mode, trigger)


def test_sinks_of_one_table_share_a_query() -> None:
    plan = make_plan(PipelineDef("p", SOURCES, TABLES, (sink("tags", "console"), sink("tags", "memory"))))
    assert [(query.name, len(query.sinks)) for query in plan.queries] == [("tags", 2)]


def test_another_mode_or_trigger_is_another_query() -> None:
    later = sink("tags", "kafka", trigger=Trigger("every", 5))
    plan = make_plan(
        PipelineDef("p", SOURCES, TABLES, (sink("tags", "console"), sink("tags", "memory", "update"), later))
    )
    assert [query.name for query in plan.queries] == ["tags", "tags-update", "tags-every-5"]


def test_a_query_keeps_its_name_whatever_else_there_is_and_however_it_runs() -> None:
    first = sink("tags", "kafka", "update", Trigger("every", 60))
    alone = make_plan(PipelineDef("p", SOURCES, TABLES, (first,)))
    among = make_plan(PipelineDef("p", SOURCES, TABLES, (sink("tags", "files"), first)), once=True)
    assert alone.queries[0].name == among.queries[1].name == "tags-update-every-60"


def test_real_time_queries_have_one_sink() -> None:
    realtime = Trigger("realtime")
    sinks = tuple(SinkDef("tags", connection("kafka", to), "update", realtime) for to in ("a", "b"))
    plan = make_plan(PipelineDef("p", SOURCES, TABLES, sinks))
    assert [query.name for query in plan.queries] == ["tags-update-realtime-kafka-a", "tags-update-realtime-kafka-b"]
    assert not any(query.batches for query in plan.queries)


def test_a_function_that_rows_go_to_gives_its_query_the_same_name_in_each_run() -> None:
    shown = SinkDef("tags", connection("foreach", print), "update", Trigger("realtime"))
    (query,) = make_plan(PipelineDef("p", SOURCES, TABLES, (shown,))).queries
    assert query.name == "tags-update-realtime-foreach-print"


def test_each_source_is_buried_by_one_query() -> None:
    plan = make_plan(PipelineDef("p", SOURCES, TABLES, (sink("tags", "console"), sink("joined", "console"))))
    assert [query.buries for query in plan.queries] == [("posts",), ("users",)]


def test_a_source_that_is_read_without_batches_has_a_query_for_its_dead_letters() -> None:
    letters = Connectors(lambda connection, _: Facts(letters=connection.argument == "posts"), lambda *_: Facts())
    sinks = (sink("tags", "kafka", "update", Trigger("realtime")), sink("joined", "kafka"))
    plan = with_letters(make_plan(PipelineDef("p", SOURCES, TABLES, sinks)), letters)
    assert [(query.name, query.buries, query.batches) for query in plan.queries] == [
        ("dead.posts", ("posts",), True),
        ("tags-update-realtime-kafka-None", (), False),
        ("joined", ("users",), True),
    ]
    assert plan.queries[0].place is SOURCES[0].place
    assert unbatched(plan.pipeline) == {"posts"}
    once = with_letters(make_plan(plan.pipeline, once=True), letters)
    assert [(query.name, query.trigger.kind) for query in once.queries][:1] == [("dead.posts", "once")]


def test_with_batches_nobody_buries_for_others() -> None:
    letters = Connectors(lambda *_: Facts(letters=True), lambda *_: Facts())
    plan = make_plan(PipelineDef("p", SOURCES, TABLES, (sink("tags", "kafka"),)))
    assert with_letters(plan, letters) == plan


def test_the_dead_letters_of_a_query_that_has_ended_are_another_s() -> None:
    first, second = sink("tags", "kafka"), sink("joined", "kafka")
    plan = make_plan(PipelineDef("p", SOURCES, TABLES, (first, second)))
    taken = with_letters_of(plan.queries, plan.pipeline, {"tags"})
    assert [query.buries for query in taken] == [("posts",), ("users", "posts")], "the first reads nothing more"
    left_out = with_letters_of(plan.queries[1:], plan.pipeline, ())
    assert [query.buries for query in left_out] == [("users", "posts")]
    assert with_letters_of(plan.queries, plan.pipeline, ()) == list(plan.queries)


def test_once_wins_over_every_trigger() -> None:
    plan = make_plan(
        PipelineDef("p", SOURCES, TABLES, (sink("tags", "console", trigger=Trigger("every", 5)),)), once=True
    )
    assert plan.queries[0].trigger == Trigger("once")

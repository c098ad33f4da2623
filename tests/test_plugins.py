"""How feeds and sinks are found."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millrace import plugins
from millrace.connectors.base.api import SOURCES
from millrace.connectors.base.record_sink import RECORD_SINKS
from millrace.connectors.base.registry import connector_names, make_source, source_forms
from millrace.errors import FileUnusable, PluginUnusable, UnknownName
from millrace.feeds.base.api import FEEDS, Run
from millrace.pipeline.loading import load
from millrace.pipeline.model import connection
from millrace.plugins import PluginRegistry

COUNTER = '''
from dataclasses import dataclass

from millrace.clients.kafka.record import Record
from millrace.feeds.base.api import Batch, Feed
from millrace.plugins import option


@dataclass(frozen=True)
class Counter(Feed):
    """Numbers, counted up."""

    until: int = option(3, "The last number.")

    def batches(self, run):
        for number in range(1, self.until + 1):
            yield Batch([Record(str(number).encode())])
'''


class Tool:
    """What the module of a made-up room defines."""


@pytest.fixture(autouse=True)
def _modules(tmp_path: Path) -> Iterator[None]:
    """Modules that a test wrote are forgotten after it."""
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], PluginRegistry[Tool]]:
    """A room with one module of the given text, named `saw`."""

    def make(text: str) -> PluginRegistry[Tool]:
        package = tmp_path / "shed"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "saw.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setitem(sys.modules, "tool_of_the_test", sys.modules[__name__])
        return PluginRegistry("shed", Tool, "tool")

    return make


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Install a distribution whose entry point `gadget` among the connectors leads to a module of the given text."""

    def install(text: str, member: str = "") -> None:
        metadata = tmp_path / "gadget_plugin-1.2.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: gadget-plugin\nVersion: 1.2\n")
        (metadata / "entry_points.txt").write_text(f"[millrace.connectors]\ngadget = gadget_module{member}\n")
        (tmp_path / "gadget_module.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        plugins._points.cache_clear()

    yield install
    plugins._points.cache_clear()


def test_a_plugin_that_cannot_be_imported_is_named_with_its_distribution_and_its_error(
    plugin: Callable[[str], None], tmp_path: Path
) -> None:
    plugin("import no_such_module\n")
    with pytest.raises(PluginUnusable) as raised:
        SOURCES.load("gadget")
    assert "gadget = gadget_module" in raised.value.message
    assert "gadget-plugin 1.2" in raised.value.message
    assert raised.value.why == "ModuleNotFoundError: No module named 'no_such_module'"
    mistakes = make_source(connection("gadget", "rows"))[1]
    assert [mistake.condition for mistake in mistakes] == ["plugin.unusable"]
    assert "gadget" in connector_names()
    assert "gadget" not in {form.name for form in source_forms()}
    file = tmp_path / "pipeline.py"
    file.write_text('import millrace as mr\nmr.Pipeline("p").source("a", mr.gadget("rows"))\n')
    with pytest.raises(PluginUnusable):
        load(str(file))


def test_an_entry_point_that_leads_to_no_module_is_unusable(plugin: Callable[..., None]) -> None:
    plugin("class Gadget: pass\n", ":Gadget")
    with pytest.raises(PluginUnusable) as raised:
        SOURCES.load("gadget")
    assert "gadget = gadget_module" in (raised.value.hint or "")


def test_a_plugin_without_a_class_of_the_kind_is_unknown_and_not_suggested(plugin: Callable[[str], None]) -> None:
    plugin("nothing = 1\n")
    with pytest.raises(UnknownName) as raised:
        SOURCES.load("gadget")
    assert "gadget" not in (raised.value.hint or "")
    assert "gadget-plugin 1.2" in (raised.value.why or "")
    assert "gadget" not in {form.name for form in source_forms()}


def test_built_in_feeds_are_found() -> None:
    simulated, files, world = {"ads", "posts", "sensors", "trips", "weblogs"}, {"file", "http"}, {"wikimedia"}
    assert simulated | files | world <= set(FEEDS.names())


def test_modules_that_define_no_feed_are_no_feeds() -> None:
    assert not {"base", "pump", "pace", "streams"} & set(FEEDS.names())


def test_built_in_sinks_are_found() -> None:
    assert {"console", "files", "kafka"} <= set(RECORD_SINKS.names())
    assert "base" not in RECORD_SINKS.names()


@pytest.mark.parametrize("room", [FEEDS, RECORD_SINKS])
def test_every_name_leads_to_a_class_that_says_what_it_is(room: PluginRegistry[object]) -> None:
    for name in room.names():
        assert issubclass(room.load(name), room.kind)
        assert room.load(name).__doc__


def test_a_feed_in_a_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "my_counter.py"
    file.write_text(COUNTER)
    feed = FEEDS.load(str(file))(until=2)  # type: ignore[call-arg]
    values = [record.value for batch in feed.batches(Run()) for record in batch.records]
    assert values == [b"1", b"2"]


def test_an_unknown_name_gets_the_nearest_known_one() -> None:
    with pytest.raises(UnknownName) as raised:
        FEEDS.load("sensor")
    assert raised.value.condition == "name.unknown"
    assert "'sensors'" in (raised.value.hint or "")


@pytest.mark.parametrize("name", ["base", "pump", "no such feed", "../posts", "", "feeds.posts"])
def test_what_is_no_feed_is_unknown(name: str) -> None:
    with pytest.raises(UnknownName):
        FEEDS.load(name)


def test_a_missing_file_is_unusable(tmp_path: Path) -> None:
    with pytest.raises(FileUnusable):
        FEEDS.load(str(tmp_path / "none.py"))


@pytest.mark.parametrize(
    ("text", "cause"),
    [("def", "SyntaxError"), ("1 / 0", "ZeroDivisionError"), ("import no_such_module", "ModuleNotFoundError")],
)
def test_a_file_that_does_not_load_says_why(tmp_path: Path, text: str, cause: str) -> None:
    file = tmp_path / "broken_feed.py"
    file.write_text(text)
    with pytest.raises(FileUnusable) as raised:
        FEEDS.load(str(file))
    assert cause in (raised.value.why or "")


def test_a_file_without_a_feed_is_unusable(tmp_path: Path) -> None:
    file = tmp_path / "no_feed.py"
    file.write_text("nothing = 1\n")
    with pytest.raises(FileUnusable):
        FEEDS.load(str(file))


def test_a_file_may_have_the_name_of_a_module(tmp_path: Path) -> None:
    file = tmp_path / "http.py"
    file.write_text(COUNTER)
    before = importlib.import_module("http")
    assert FEEDS.load(str(file)).__name__ == "Counter"
    assert importlib.import_module("http") is before


def test_a_module_of_a_room_is_found(room: Callable[[str], PluginRegistry[Tool]]) -> None:
    tools = room("from tool_of_the_test import Tool\nclass Saw(Tool): 'It saws.'\n")
    assert tools.names() == ["saw"]
    assert tools.load("saw").__name__ == "Saw"


def test_a_module_whose_dependency_is_missing_is_not_unknown(room: Callable[[str], PluginRegistry[Tool]]) -> None:
    tools = room("import no_such_module\n")
    with pytest.raises(ModuleNotFoundError) as raised:
        tools.load("saw")
    assert raised.value.name == "no_such_module"

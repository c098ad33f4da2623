"""Connectors by their names in a pipeline file.

- `make_source` and `make_sink`: options of a pipeline become connectors, or mistakes that `check` reports at once.
- `source_facts` and `sink_facts`: what `check` and `plan` know about a connector.
- `source_forms` and `sink_forms`: connectors as a YAML file may name them, for its JSON Schema.
- `system_of` and `uses_system`: which outside system has the records of a source or sink.
- What `help(mr.kafka)` shows: the options of a connector as a source and as a sink.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from millrace.connectors.base.api import SINKS, SOURCES, Sink, Source, require_no_mistakes
from millrace.errors import InputError, PluginUnusable, UnknownName, deprecation_notice, did_you_mean
from millrace.pipeline.connector_facts import Connectors, Facts, OptionMistake
from millrace.pipeline.loading.json_schema import ConnectorForm, OptionForm
from millrace.pipeline.model import Connection, PipelineDef, SinkDef, SourceDef, freeze
from millrace.plugins import PluginRegistry

T = TypeVar("T")


def make_source(connection: Connection) -> tuple[Source | None, list[OptionMistake]]:
    """The source that a connection names, or what is wrong with it."""
    return _make(SOURCES, connection)


def make_sink(connection: Connection) -> tuple[Sink | None, list[OptionMistake]]:
    """The sink that a connection names, or what is wrong with it."""
    return _make(SINKS, connection)


def source_facts(connection: Connection, static: bool) -> Facts:
    """What `check` must know of a source."""
    reader, mistakes = make_source(connection)
    deprecated = _deprecated(SOURCES, connection)
    if reader is None:
        return Facts(tuple(mistakes), deprecated=deprecated)
    if static and not reader.reads_whole:
        mistakes.append(OptionMistake("source.not-static", f"{connection.connector} cannot be read as a static table"))
    if not static and not reader.streams:
        mistakes.append(
            OptionMistake("source.not-streaming", f"{connection.connector} cannot be followed", hint="say static: true")
        )
    name = connection.connector
    try:
        schema = None if mistakes else reader.columns()
    except InputError:
        schema = None
    return Facts(
        tuple(mistakes),
        schema,
        realtime=None if reader.realtime else f"real-time mode cannot read from {name}",
        continuous=None if reader.continuous else f"the continuous trigger cannot read from {name}",
        touches=reader.resources(),
        resumes=reader.resumes,
        letters=reader.keeps_dead_letters,
        deprecated=deprecated,
    )


def sink_facts(connection: Connection, table: str) -> Facts:
    """What `check` must know of a table's sink."""
    writer, mistakes = make_sink(connection)
    deprecated = _deprecated(SINKS, connection)
    if writer is None:
        return Facts(tuple(mistakes), deprecated=deprecated)
    name = connection.connector
    return Facts(
        tuple(mistakes),
        None,
        writer.modes,
        None if writer.realtime else f"real-time mode cannot write to {name}",
        None if writer.continuous else f"the continuous trigger cannot write to {name}",
        writer.delivery_guarantee,
        writer.resources(table),
        writer.exclusive_target,
        writer.resumes,
        writer.midway,
        deprecated=deprecated,
    )


CONNECTORS = Connectors(source_facts, sink_facts)


def in_generation(connection: Connection, number: int) -> Connection | None:
    """A sink's connection that leads to a generation of its output; None where there can only be one."""
    writer, _ = make_sink(connection)
    changed = writer.in_generation(number) if writer else None
    if writer is None or changed is None:
        return None
    argument = _argument(type(writer))
    kept = {name: value for name, value in connection.options if name not in changed}
    own = {name: value for name, value in changed.items() if name != argument or connection.argument is None}
    first = changed.get(argument or "", connection.argument) if connection.argument is not None else None
    return dataclasses.replace(connection, argument=first, options=freeze({**kept, **own}))


def _make(room: PluginRegistry[T], connection: Connection) -> tuple[T | None, list[OptionMistake]]:
    try:
        kind = room.load(connection.connector)
    except PluginUnusable as error:
        return None, [OptionMistake("plugin.unusable", error.message, hint=error.hint, why=error.why)]
    except InputError as error:
        return None, [OptionMistake("connector.unknown", error.message, hint=error.hint, why=error.why)]
    given = dict(connection.options)
    mistakes: list[OptionMistake] = []
    argument = _argument(kind)
    if connection.argument is not None and argument:
        given[argument] = connection.argument
    elif connection.argument is not None:
        hint = f"write {connection.connector}: with nothing after it, and options beside it"
        mistakes.append(OptionMistake("option.unknown", f"{connection.connector} takes nothing but options", hint=hint))
    twice = sorted(name for alias, name in _aliases(kind).items() if alias in given and name in given)
    for name in twice:
        message = f"{connection.connector}: {name} is given twice, once under its deprecated name"
        mistakes.append(OptionMistake("option.invalid", message, name, f"keep {name}"))
    given = current_options(kind, given)
    connector = None if twice else build(kind, given, connection.connector, mistakes)
    wrong = {mistake.option for mistake in mistakes}
    sound = connector or build(kind, {name: value for name, value in given.items() if name not in wrong}, "", [])
    if sound is not None:
        mistakes.extend(sound.mistakes())  # type: ignore[attr-defined]
    as_written = {name: alias for alias, name in _aliases(kind).items() if alias in dict(connection.options)}
    return connector, [
        dataclasses.replace(mistake, option=as_written.get(mistake.option or "", mistake.option))
        for mistake in mistakes
    ]


def build(kind: type[T], given: Mapping[str, Any], what: str, mistakes: list[OptionMistake]) -> T | None:
    """An instance of a dataclass from options; what is wrong goes into `mistakes`, and then there is none."""
    fields = {one.name: one for one in dataclasses.fields(kind) if one.init}  # type: ignore[arg-type]
    rest = next((name for name, one in fields.items() if one.metadata.get("rest")), None)
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    others: dict[str, Any] = {}
    before = len(mistakes)
    for name, value in given.items():
        if name in fields and name != rest:
            values[name] = _value(what, fields[name], hints[name], value, mistakes)
        elif rest:
            others[name] = value
        else:
            hint = did_you_mean(name, [one for one in fields if not fields[one].metadata.get("hidden")])
            mistakes.append(OptionMistake("option.unknown", f"{what} has no option {name!r}", name, hint))
    for name, one in fields.items():
        if name not in values and name != rest and one.default is dataclasses.MISSING:
            mistakes.append(OptionMistake("option.missing", f"{what} needs {name}", None, one.metadata.get("help")))
    if len(mistakes) > before:
        return None
    return kind(**values, **({rest: others} if rest else {}))


def current_options(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a connector under their current names, with current values; `option` declares the old ones."""
    aliases = _aliases(kind)
    values = {one.name: one.metadata.get("value_aliases") or {} for one in dataclasses.fields(kind)}
    named = {aliases.get(name, name): value for name, value in given.items()}
    return {name: _current_value(values.get(name, {}), value) for name, value in named.items()}


def _aliases(kind: type[Any]) -> dict[str, str]:
    """Return the current name of each deprecated name."""
    return {
        alias: one.name for one in dataclasses.fields(kind) if one.init for alias in one.metadata.get("aliases", ())
    }


def _current_value(aliases: Mapping[str, str], value: Any) -> Any:
    return aliases.get(value, value) if isinstance(value, str) else value


def _deprecated(room: PluginRegistry[Any], connection: Connection) -> tuple[OptionMistake, ...]:
    """Return a notice for each deprecated name or value in a connection."""
    try:
        kind = room.load(connection.connector)
    except InputError:
        return ()
    notices = []
    for name, value in connection.options:
        ((current, current_value),) = current_options(kind, {name: value}).items()
        if (current, current_value) != (name, value):
            old, new = (
                (name, current) if value == current_value else (f"{name}: {value}", f"{current}: {current_value}")
            )
            notices.append(OptionMistake("option.deprecated", deprecation_notice(old, new), name))
    return tuple(notices)


def _argument(kind: type[Any]) -> str | None:
    return next((one.name for one in dataclasses.fields(kind) if one.metadata.get("argument")), None)


def _value(what: str, field: dataclasses.Field[Any], hint: Any, value: Any, mistakes: list[OptionMistake]) -> Any:
    parse = field.metadata.get("parse")
    choices = field.metadata.get("choices")
    if choices and value not in choices:
        found = did_you_mean(str(value), choices)
        mistakes.append(OptionMistake("option.invalid", f"{what}: {field.name} cannot be {value!r}", field.name, found))
        return None
    if parse and isinstance(value, str):
        try:
            return parse(value)
        except InputError as error:
            mistakes.append(
                OptionMistake(
                    error.condition, f"{what}: {field.name}: {error.message}", field.name, error.hint, error.why
                )
            )
            return None
    fits, converted = _fitted(hint, value)
    if not fits:
        wanted = _named(hint)
        mistakes.append(OptionMistake("option.invalid", f"{what}: {field.name} must be {wanted}", field.name))
    least = field.metadata.get("least")
    if fits and least is not None and converted is not None and converted < least:
        mistakes.append(OptionMistake("option.invalid", f"{what}: {field.name} must be at least {least}", field.name))
    return converted


def _fitted(hint: Any, value: Any) -> tuple[bool, Any]:
    """Whether a value fits a type, and the value in that type's form."""
    origin = get_origin(hint)
    if hint is Any or hint is object:
        return True, value
    if origin in (Union, UnionType):
        tried = [_fitted(one, value) for one in get_args(hint)]
        return next(((fits, converted) for fits, converted in tried if fits), (False, None))
    if origin is tuple:
        return _fitted_tuple(get_args(hint)[0], value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        fits = isinstance(value, Mapping) or _is_frozen_mapping(value)
        return fits, dict(value) if fits else None
    return _fitted_plain(hint, value)


def _is_frozen_mapping(value: Any) -> bool:
    """Whether a value is what `freeze` makes of a mapping."""
    pairs = value if isinstance(value, tuple) else ("no pairs",)
    return all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs)


def _fitted_plain(hint: Any, value: Any) -> tuple[bool, Any]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is str and number:
        return True, str(value)
    if hint is float and number:
        return True, float(value)
    if hint is int:
        return number and isinstance(value, int), value
    if isinstance(hint, type):
        return isinstance(value, hint), value
    return callable(value), value


def _fitted_tuple(element: Any, value: Any) -> tuple[bool, Any]:
    values = value if isinstance(value, tuple | list) else (value,)
    fitted = [_fitted(element, one) for one in values]
    return all(fits for fits, _ in fitted), tuple(one for _, one in fitted)


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def _named(hint: Any) -> str:
    """A type in words."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return " or ".join(_word(one) for one in options if one is not NoneType)


def _word(hint: Any) -> str:
    if get_origin(hint) is tuple:
        return "a list"
    return _WORDS.get(hint, "a mapping" if get_origin(hint) else "a function")


_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def connector_names() -> frozenset[str]:
    """The names that stand for a source or a sink."""
    return frozenset((*SOURCES.names(), *SINKS.names()))


def source_forms() -> list[ConnectorForm]:
    """Every connector that can be read."""
    return list(_forms(SOURCES))


def sink_forms() -> list[ConnectorForm]:
    """Every connector that can be written."""
    return list(_forms(SINKS))


def _forms(room: PluginRegistry[Any]) -> Iterator[ConnectorForm]:
    for name, kind in room.kinds():
        hints = get_type_hints(kind)
        fields = [one for one in dataclasses.fields(kind) if one.init and not one.metadata.get("rest")]
        options = [_option(one, hints[one.name]) for one in fields if not one.metadata.get("argument")]
        argument = next((_option(one, hints[one.name]) for one in fields if one.metadata.get("argument")), None)
        others = any(one.metadata.get("rest") for one in dataclasses.fields(kind))
        help_ = (kind.__doc__ or "").strip().splitlines()[0]
        yield ConnectorForm(name, help_, argument, tuple(options), others)


def _option(field: dataclasses.Field[Any], hint: Any) -> OptionForm:
    missing = dataclasses.MISSING
    required = field.default is missing and field.default_factory is missing
    types = tuple(dict.fromkeys(_types(hint)))
    if field.metadata.get("parse"):
        types = tuple(dict.fromkeys(("string", *types)))
    about = field.metadata
    return OptionForm(field.name, about.get("help", ""), types, tuple(about.get("choices", ())), required)


def _types(hint: Any) -> Iterator[str]:
    """JSON's names for what a field takes; nothing when that is more than JSON has."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        for one in get_args(hint):
            yield from _types(one)
    elif hint in _TYPES:
        yield _TYPES[hint]
        if hint is str:  # a topic named 7 is text as well
            yield from ("integer", "number")
    elif origin is tuple:
        yield "array"
        yield from _types(get_args(hint)[0])
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield "object"
    elif hint is not NoneType:
        return


def with_signature(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function that makes a connection, with the connector's own documentation."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = "\n".join([*_part(SOURCES, name, "As a source"), *_part(SINKS, name, "As a sink")])
    return function


def _part(room: PluginRegistry[Any], name: str, title: str) -> Iterator[str]:
    try:
        kind = room.load(name)
    except UnknownName:
        return
    yield f"{title}: {(kind.__doc__ or '').strip()}"
    for option in dataclasses.fields(kind):
        about = option.metadata
        if about.get("rest") or not option.init:
            continue
        default = "" if option.default in (dataclasses.MISSING, None, ()) else f" [{option.default}]"
        place = " (first)" if about.get("argument") else ""
        yield f"  {option.name}{place}: {about.get('help', '')}{default}"
    yield ""


def system_of(source: SourceDef) -> str:
    """That of a source: of what comes through Kafka, Kafka."""
    name = source.connection.connector
    try:
        return SOURCES.load(name).system or name
    except InputError:  # there is none of that name, which `check` reports
        return name


def uses_system(pipeline: PipelineDef, system: str) -> bool:
    """Whether a source or a sink has its records in this system."""
    return any(sink.connection.connector == system for sink in pipeline.sinks) or any(
        system_of(source) == system for source in pipeline.sources
    )


def topics_read(pipeline: PipelineDef) -> dict[str, tuple[str, ...]]:
    """The topics that each source in Kafka names; one with a pattern names none."""
    return {name: reader.topics() for name, reader in _kafka_readers(pipeline).items()}


def patterns_read(pipeline: PipelineDef) -> tuple[str, ...]:
    """The patterns by which sources in Kafka find their topics."""
    return tuple(pattern for reader in _kafka_readers(pipeline).values() if (pattern := reader.matching))


def _kafka_readers(pipeline: PipelineDef) -> dict[str, Source]:
    readers = {one.name: make_source(one.connection)[0] for one in pipeline.sources if system_of(one) == "kafka"}
    return {name: reader for name, reader in readers.items() if reader}


def source_of(source: SourceDef) -> Source:
    """The connector of a source."""
    return _without_mistakes(*make_source(source.connection), f"source {source.name!r}", source.place)


def sink_of(sink: SinkDef) -> Sink:
    """The connector of a sink."""
    return _without_mistakes(*make_sink(sink.connection), f"the sink of {sink.table!r}", sink.place)


def _without_mistakes(connector: T | None, mistakes: list[OptionMistake], what: str, place: Any) -> T:
    require_no_mistakes(mistakes, what, place=place)
    assert connector is not None  # noqa: S101 - where there is none, there is a mistake
    return connector

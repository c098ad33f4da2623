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
from contextlib import suppress
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
    deprecated = tuple(_deprecated(SOURCES, connection))
    if reader is None:
        return Facts(tuple(mistakes), deprecated=deprecated)
    name = connection.connector
    if static and not reader.reads_whole:
        mistakes.append(OptionMistake("source.not-static", f"{name} cannot be read as a static table"))
    if not static and not reader.streams:
        mistakes.append(OptionMistake("source.not-streaming", f"{name} cannot be followed", hint="say static: true"))
    schema = None
    with suppress(InputError):
        schema = None if mistakes else reader.columns()
    return Facts(
        tuple(mistakes),
        schema,
        realtime=None if reader.realtime else f"real-time mode cannot read from {name}",
        continuous=None if reader.continuous else f"the continuous trigger cannot read from {name}",
        touches=reader.resources(),
        form=None if mistakes else reader.record_form(),
        resumes=reader.resumes,
        letters=reader.keeps_dead_letters,
        deprecated=deprecated,
    )


def sink_facts(connection: Connection, table: str) -> Facts:
    """What `check` must know of a table's sink."""
    writer, mistakes = make_sink(connection)
    deprecated = tuple(_deprecated(SINKS, connection))
    if writer is None:
        return Facts(tuple(mistakes), deprecated=deprecated)
    name = connection.connector
    return Facts(
        tuple(mistakes),
        modes=writer.modes,
        realtime=None if writer.realtime else f"real-time mode cannot write to {name}",
        continuous=None if writer.continuous else f"the continuous trigger cannot write to {name}",
        guarantee=writer.delivery_guarantee,
        touches=writer.resources(table),
        form=writer.record_form(),
        alone=writer.exclusive_target,
        resumes=writer.resumes,
        midway=writer.midway,
        deprecated=deprecated,
        columns=tuple(_columns_named(writer)),
        unique_columns=writer.unique_columns,
        unkeyed=writer.updates_by_key and not getattr(writer, "key", ()),
    )


def _columns_named(writer: Sink) -> Iterator[tuple[str, str]]:
    """The columns of its table that a sink's options name, each with the option."""
    for field in dataclasses.fields(writer):
        value = getattr(writer, field.name) if field.metadata.get("columns") else None
        yield from ((field.name, name) for name in ((value,) if isinstance(value, str) else value or ()))


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


def _make(registry: PluginRegistry[T], connection: Connection) -> tuple[T | None, list[OptionMistake]]:
    try:
        kind = registry.load(connection.connector)
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
    valid = connector or build(kind, {name: value for name, value in given.items() if name not in wrong}, "", [])
    if valid is not None:
        mistakes.extend(valid.mistakes())  # type: ignore[attr-defined]
    as_written = {name: alias for alias, name in _aliases(kind).items() if alias in dict(connection.options)}
    return connector, [
        dataclasses.replace(mistake, option=as_written.get(mistake.option or "", mistake.option))
        for mistake in mistakes
    ]


def build(kind: type[T], given: Mapping[str, Any], what: str, mistakes: list[OptionMistake]) -> T | None:
    """An instance of a dataclass from options; what is wrong goes into `mistakes`, and then there is none."""
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}  # type: ignore[arg-type]
    rest = next((name for name, field in fields.items() if field.metadata.get("rest")), None)
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
            message = f"{what} has no option {name!r}"
            mistakes.append(OptionMistake("option.unknown", message, name, did_you_mean(name, fields)))
    for name, field in fields.items():
        if name not in values and name != rest and field.default is dataclasses.MISSING:
            mistakes.append(OptionMistake("option.missing", f"{what} needs {name}", None, field.metadata.get("help")))
    if len(mistakes) > before:
        return None
    return kind(**values, **({rest: others} if rest else {}))


def current_options(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a connector under their current names, with current values; `option` declares the old ones."""
    aliases = _aliases(kind)
    value_aliases = {field.name: field.metadata.get("value_aliases") or {} for field in dataclasses.fields(kind)}
    named = {aliases.get(name, name): value for name, value in given.items()}
    return {
        name: value_aliases.get(name, {}).get(value, value) if isinstance(value, str) else value
        for name, value in named.items()
    }


def _aliases(kind: type[Any]) -> dict[str, str]:
    """Return the current name of each deprecated name."""
    fields = [field for field in dataclasses.fields(kind) if field.init]
    return {alias: field.name for field in fields for alias in field.metadata.get("aliases", ())}


def _deprecated(registry: PluginRegistry[Any], connection: Connection) -> Iterator[OptionMistake]:
    """Yield a notice for each deprecated name or value in a connection."""
    try:
        kind = registry.load(connection.connector)
    except InputError:
        return
    for name, value in connection.options:
        ((current, current_value),) = current_options(kind, {name: value}).items()
        if value != current_value:
            notice = deprecation_notice(f"{name}: {value}", f"{current}: {current_value}")
            yield OptionMistake("option.deprecated", notice, name)
        elif name != current:
            yield OptionMistake("option.deprecated", deprecation_notice(name, current), name)


def _argument(kind: type[Any]) -> str | None:
    return next((field.name for field in dataclasses.fields(kind) if field.metadata.get("argument")), None)


def _value(what: str, field: dataclasses.Field[Any], hint: Any, value: Any, mistakes: list[OptionMistake]) -> Any:
    def add(message: str, condition: str = "option.invalid", *more: str | None) -> None:
        mistakes.append(OptionMistake(condition, f"{what}: {field.name}{message}", field.name, *more))

    parse, choices, least = (field.metadata.get(name) for name in ("parse", "choices", "least"))
    if choices and value not in choices:
        add(f" cannot be {value!r}", "option.invalid", did_you_mean(str(value), choices))
        return None
    if parse and isinstance(value, str):
        try:
            return parse(value)
        except InputError as error:
            add(f": {error.message}", error.condition, error.hint, error.why)
            return None
    fits, converted = _fitted(hint, value)
    if not fits:
        add(f" must be {_named(hint)}")
    elif least is not None and converted is not None and converted < least:
        add(f" must be at least {least}")
    return converted


def _fitted(hint: Any, value: Any) -> tuple[bool, Any]:
    """Whether a value fits a type, and the value in that type's form."""
    origin = get_origin(hint)
    if hint is Any or hint is object:
        return True, value
    if origin in (Union, UnionType):
        attempts = (_fitted(option, value) for option in get_args(hint))
        return next((attempt for attempt in attempts if attempt[0]), (False, None))
    if origin is tuple:
        values = value if isinstance(value, tuple | list) else (value,)
        fitted = [_fitted(get_args(hint)[0], element) for element in values]
        return all(fits for fits, _ in fitted), tuple(converted for _, converted in fitted)
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


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def _named(hint: Any) -> str:
    """A type in words."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return " or ".join(_named(option) for option in get_args(hint) if option is not NoneType)
    return "a list" if origin is tuple else _WORDS.get(hint, "a mapping" if origin else "a function")


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


def _forms(registry: PluginRegistry[Any]) -> Iterator[ConnectorForm]:
    for name, kind in registry.kinds():
        hints = get_type_hints(kind)
        fields = [field for field in dataclasses.fields(kind) if field.init and not field.metadata.get("rest")]
        options = {field.name: _option(field, hints[field.name]) for field in fields}
        argument = options.pop(_argument(kind) or "", None)
        others = any(field.metadata.get("rest") for field in dataclasses.fields(kind))
        help_ = (kind.__doc__ or "").strip().splitlines()[0]
        yield ConnectorForm(name, help_, argument, tuple(options.values()), others)


def _option(field: dataclasses.Field[Any], hint: Any) -> OptionForm:
    missing, metadata = dataclasses.MISSING, field.metadata
    required = field.default is missing and field.default_factory is missing
    types = dict.fromkeys((*(("string",) if metadata.get("parse") else ()), *_types(hint)))
    return OptionForm(field.name, metadata.get("help", ""), tuple(types), tuple(metadata.get("choices", ())), required)


def _types(hint: Any) -> Iterator[str]:
    """JSON's names for what a field takes; nothing when that is more than JSON has."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        for option in get_args(hint):
            yield from _types(option)
    elif hint in _TYPES:
        yield _TYPES[hint]
        if hint is str:  # a topic named 7 is text as well
            yield from ("integer", "number")
    elif origin is tuple:
        yield "array"
        yield from _types(get_args(hint)[0])
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield "object"


def with_signature(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function that makes a connection, with the connector's own documentation."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = "\n".join([*_part(SOURCES, name, "As a source"), *_part(SINKS, name, "As a sink")])
    return function


def _part(registry: PluginRegistry[Any], name: str, title: str) -> Iterator[str]:
    try:
        kind = registry.load(name)
    except UnknownName:
        return
    yield f"{title}: {(kind.__doc__ or '').strip()}"
    for option in dataclasses.fields(kind):
        if option.init and not option.metadata.get("rest"):
            default = "" if option.default in (dataclasses.MISSING, None, ()) else f" [{option.default}]"
            position = " (first)" if option.metadata.get("argument") else ""
            yield f"  {option.name}{position}: {option.metadata.get('help', '')}{default}"
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
    sources = [source for source in pipeline.sources if system_of(source) == "kafka"]
    return {source.name: reader for source in sources if (reader := make_source(source.connection)[0])}


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

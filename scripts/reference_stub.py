"""The stub src/millrace/__init__.pyi: the signatures of `mr.kafka(…)`, `mr.top(…)` and the others for type checkers.

The functions are made at run time from the options of connectors and panels, and so is the stub.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import millrace
from millrace.connectors.base.api import SINKS, SOURCES
from millrace.errors import UnknownName
from millrace.pipeline.panels import KINDS, PanelKind, PanelOption

STUB = Path(millrace.__file__).with_suffix(".pyi")
_HEAD = '''"""Written by scripts/reference.py from the options of connectors and panels: change those, not this file."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from pyspark.sql.types import StructType

from millrace.pipeline.loading.functions import arrow_udf as arrow_udf
from millrace.pipeline.loading.python import Pipeline as Pipeline
from millrace.pipeline.model import Connection
from millrace.pipeline.secret import secret as secret

_Text = str | PathLike[str]
_Picture = tuple[str, dict[str, Any]]

__version__: str
'''
_TAIL = '''
def __getattr__(name: str) -> Callable[..., Connection]:
    """A connector of an installed plug-in."""
'''


def stub_text() -> str:
    """Return the stub."""
    own = [name for name in sorted({*SOURCES.names(), *SINKS.names()}) if _is_built_in(name)]
    functions = [*(_connector(name) for name in own), *(_panel(kind) for kind in KINDS.values())]
    return "\n".join((_HEAD, *functions, _TAIL.lstrip()))


def _is_built_in(name: str) -> bool:
    return all(kind.__module__.startswith("millrace.") for kind in _kinds(name).values())


def _kinds(name: str) -> dict[str, type[Any]]:
    kinds: dict[str, type[Any]] = {}
    for registry, title in ((SOURCES, "As a source"), (SINKS, "As a sink")):
        try:
            kinds[title] = registry.load(name)  # type: ignore[attr-defined]
        except UnknownName:
            continue
    return kinds


@dataclasses.dataclass
class _Parameter:
    """An option of a connector: with the types that its source and its sink take."""

    name: str
    types: dict[str, None]
    choices: dict[str, None]
    required: bool
    argument: bool


def _connector(name: str) -> str:
    kinds = _kinds(name)
    parameters = list(_parameters(kinds.values()))
    arguments = [parameter for parameter in parameters if parameter.argument]
    others = [parameter for parameter in parameters if not parameter.argument]
    lines = [f"def {name}("]
    if len(arguments) > 1:  # the source and the sink call it by different names
        types = dict.fromkeys(one for parameter in arguments for one in parameter.types)
        lines.append(f"    argument: {' | '.join(types)} = ...,\n    /,")
        others = [*(dataclasses.replace(parameter, required=False) for parameter in arguments), *others]
    lines += [_declared(parameter) for parameter in arguments if len(arguments) == 1]
    lines += ["    *,", *(_declared(parameter) for parameter in others)] if others else []
    rest = any(field.metadata.get("rest") for kind in kinds.values() for field in dataclasses.fields(kind))
    lines += ["    **more: Any,"] if rest else []
    summary = [f"{title}: {_first_line(kind)}" for title, kind in kinds.items()]
    options = [f"{option}: {text}" for option, text in _help(kinds.values()).items()]
    return "\n".join([*lines, ") -> Connection:", *_docstring(summary, options)])


def _parameters(kinds: Iterable[type[Any]]) -> Iterator[_Parameter]:
    """Yield every option that one of the classes has; one that not all of them need can be left out."""
    kinds = list(kinds)
    found: dict[str, _Parameter] = {}
    seen: dict[str, int] = {}
    for kind in kinds:
        hints = get_type_hints(kind)
        for field in _options(kind):
            required = field.default is dataclasses.MISSING
            types = dict.fromkeys(_types(field, hints[field.name]))
            parameter = found.setdefault(field.name, _Parameter(field.name, {}, {}, required, False))
            parameter.choices |= dict.fromkeys(field.metadata.get("choices", ()))
            parameter.types |= types
            parameter.required &= required
            parameter.argument |= bool(field.metadata.get("argument"))
            seen[field.name] = seen.get(field.name, 0) + 1
    for name, parameter in found.items():
        yield dataclasses.replace(parameter, required=parameter.required and seen[name] == len(kinds))


def _options(kind: type[Any]) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(kind) if field.init and not field.metadata.get("rest")]


def _declared(parameter: _Parameter) -> str:
    types = sorted(parameter.types, key=lambda one: one == "None")
    if parameter.choices:
        types.insert(0, "Literal[{}]".format(", ".join(f'"{choice}"' for choice in parameter.choices)))
    return f"    {parameter.name}: {' | '.join(types)}{'' if parameter.required else ' = ...'},"


def _types(field: dataclasses.Field[Any], hint: Any) -> Iterator[str]:
    """Yield what a call may give for an option."""
    if field.metadata.get("choices"):
        yield from ("None",) if field.default is None else ()
        return
    if field.metadata.get("parse"):
        yield "_Text"
    yield from _names(hint)
    if field.name == "schema":
        yield "StructType"


def _names(hint: Any) -> Iterator[str]:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        for one in get_args(hint):
            yield from _names(one)
    elif hint is NoneType:
        yield "None"
    elif hint is str:
        yield "_Text"
    elif origin is tuple:
        element = " | ".join(_names(get_args(hint)[0]))
        yield element
        yield f"Sequence[{element}]"
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield "Mapping[str, Any]"
    else:
        yield hint.__name__ if hint in (int, float, bool) else "Any"


def _first_line(kind: type[Any]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def _help(kinds: Iterable[type[Any]]) -> dict[str, str]:
    """Return the help of each option, that of the source first."""
    texts: dict[str, str] = {}
    for kind in kinds:
        for field in _options(kind):
            texts.setdefault(field.name, field.metadata.get("help", ""))
    return texts


_PANEL_TYPES = {"columns": "str | Sequence[str]", "count": "int", "text": "str | float"}


def _panel(kind: PanelKind) -> str:
    options = sorted(kind.options, key=lambda option: not option.required)
    lines = [f"def {kind.name}(", "    *,", *(_panel_option(option) for option in options), ") -> _Picture:"]
    return "\n".join([*lines, *_docstring([kind.help], [f"{one.name}: {one.help}" for one in options])])


def _panel_option(option: PanelOption) -> str:
    types = _PANEL_TYPES.get(option.takes, "str")
    return f"    {option.name}: {types}," if option.required else f"    {option.name}: {types} | None = ...,"


def _docstring(summary: list[str], options: list[str]) -> list[str]:
    first, *others = summary
    parts = [f'    """{first}', *(f"    {line}" for line in others), "", *(f"    {line}" for line in options)]
    return [*parts, '    """', ""]

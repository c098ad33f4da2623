"""Every kind of panel and its options, once: for `check`, for editors, for Python's `mr.top(…)` and for the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any, Protocol

from millrace.errors import InvalidOption, did_you_mean
from millrace.pipeline.connector_facts import OptionMistake
from millrace.pipeline.model import Panel

MOST_ROWS = 1000
"""Rows of a table that a page can show at a time."""


@dataclass(frozen=True)
class PanelOption:
    """An option: a `time`, a `number` or any `column`, several `columns`, an `order`; or a `text`, or a `count`."""

    name: str
    takes: str
    help: str
    required: bool = False
    default: Any = None


@dataclass(frozen=True)
class PanelKind:
    """A way to show a table."""

    name: str
    help: str
    options: tuple[PanelOption, ...]


_COLUMN_VALUES = ("time", "number", "column", "columns", "order")
"""What options take whose values name columns of the table."""
_DIRECTIONS = ("asc", "desc")
_ORDER = "a column and asc or desc, as: count desc"
_TITLE = PanelOption("title", "text", "What stands above it; the table's name if nothing is given.")

_KINDS = (
    PanelKind(
        "series",
        "Lines over time.",
        (
            PanelOption("time", "time", "A column of time, or a window.", required=True),
            PanelOption("value", "number", "The number that is drawn.", required=True),
            PanelOption("key", "column", "One line for each of its values."),
            _TITLE,
        ),
    ),
    PanelKind(
        "top",
        "The largest values, as bars; of a windowed table, those of the window that is going on.",
        (
            PanelOption("label", "column", "What each bar is called.", required=True),
            PanelOption("value", "number", "How long it is.", required=True),
            PanelOption("limit", "count", "How many.", default=10),
            _TITLE,
        ),
    ),
    PanelKind(
        "table",
        "Rows as they are, the newest first.",
        (
            PanelOption("columns", "columns", "Which columns; all if nothing is given."),
            PanelOption("order", "order", "A column to sort by, as: count desc."),
            PanelOption("limit", "count", "How many rows.", default=100),
            PanelOption("key", "columns", "Columns whose newest row replaces the one before."),
            _TITLE,
        ),
    ),
    PanelKind(
        "heat",
        "A grid that is coloured by a number.",
        (
            PanelOption("x", "column", "What goes from left to right: a time, a window or anything.", required=True),
            PanelOption("y", "column", "What goes from top to bottom.", required=True),
            PanelOption("value", "number", "The number that colours a cell.", required=True),
            _TITLE,
        ),
    ),
    PanelKind(
        "number",
        "One number, the newest.",
        (
            PanelOption("value", "number", "The number.", required=True),
            PanelOption("unit", "text", "What stands behind it."),
            _TITLE,
        ),
    ),
)
KINDS: dict[str, PanelKind] = {kind.name: kind for kind in _KINDS}


class Column(Protocol):
    """A column of a panel's table."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str | None:
        """What the dashboard takes it for: a `number`, a `time`, a `window` …; None when that is not known."""

    @property
    def spark(self) -> str:
        """Its type, as Spark writes it."""


@dataclass(frozen=True)
class RunPanel:
    """A panel of a run: its id, which its channel is called after, and whether its author asked for it."""

    id: str
    panel: Panel
    inferred: bool = False

    @property
    def given(self) -> dict[str, Any]:
        """Its options, with the defaults of those that are not given."""
        defaults = {option.name: option.default for option in KINDS[self.panel.kind].options}
        return defaults | dict(self.panel.options)

    @property
    def title(self) -> str:
        """What stands above it."""
        return str(self.given.get("title") or self.panel.table.replace("_", " "))


def shown(panels: Iterable[Panel], *, inferred: bool = False) -> tuple[RunPanel, ...]:
    """Panels with their ids: the table and the kind, numbered when there are several alike."""
    counts: Counter[str] = Counter()
    run_panels = []
    for panel in panels:
        name = f"{panel.table}-{panel.kind}"
        counts[name] += 1
        run_panels.append(RunPanel(name if counts[name] == 1 else f"{name}-{counts[name]}", panel, inferred))
    return tuple(run_panels)


def mistakes(panel: Panel) -> Iterator[OptionMistake]:
    """What is wrong with a panel's options."""
    kind = KINDS.get(panel.kind)
    if kind is None:
        return
    given = dict(panel.options)
    names = [option.name for option in kind.options]
    for name in given:
        if name not in names:
            message = f"a panel of the kind {kind.name} has no option {name!r}"
            yield OptionMistake("panel.option", message, name, did_you_mean(name, names))
    for option in kind.options:
        value = given.get(option.name)
        wanted = None if value is None else _wanted(option, value)
        if wanted:
            yield OptionMistake("panel.value", f"{kind.name}: {option.name} must be {wanted}", option.name, option.help)
        elif value is None and option.required:
            hint = f"add {option.name}: {option.help[0].lower()}{option.help[1:]}"
            yield OptionMistake("panel.missing", f"a panel of the kind {kind.name} needs {option.name}", None, hint)


def columns_named(panel: Panel) -> Iterator[tuple[PanelOption, str]]:
    """The columns that a panel's options name."""
    kind = KINDS.get(panel.kind)
    given = dict(panel.options)
    for option in kind.options if kind else ():
        value = given.get(option.name) if option.takes in _COLUMN_VALUES else None
        for name in _names(value) if value is not None else ():
            yield option, parse_order(name)[0] if option.takes == "order" else name


def column_mistakes(panel: Panel, columns: Iterable[Column]) -> Iterator[OptionMistake]:
    """What is wrong with the columns that a panel names, where those of its table are known."""
    by_name = {column.name.lower(): column for column in reversed(list(columns))}  # of two, the first
    for option, name in columns_named(panel):
        column = by_name.get(name.lower())
        if column is None:
            message = f"the panel names {name!r}, which {panel.table!r} does not have"
            hint = did_you_mean(name, [column.name for column in by_name.values()])
            yield OptionMistake("panel.column", message, option.name, hint)
        elif column.type is not None and (wanted := _misfit(option, column.type)):
            message = f"the panel's {option.name} is {name!r}, which is {column.spark}, not {wanted}"
            yield OptionMistake("panel.type", message, option.name, option.help)


def parse_order(text: str) -> tuple[str, bool]:
    """`count desc` as a column and whether it falls."""
    words = text.split()
    if len(words) > 1 and words[-1].lower() in _DIRECTIONS:
        return text.rsplit(None, 1)[0].strip(), words[-1].lower() == "desc"
    if not words:
        raise InvalidOption("no column is named")
    return text.strip(), False


def maker(kind: str) -> Callable[..., tuple[str, dict[str, Any]]]:
    """The function of a kind, as `mr.top`; what it is given is looked at by `check`."""
    about = KINDS[kind]

    def picture(**options: Any) -> tuple[str, dict[str, Any]]:
        return kind, {name: value for name, value in options.items() if value is not None}

    options = "\n".join(f"    {option.name}: {option.help}" for option in about.options)
    picture.__name__ = picture.__qualname__ = kind
    picture.__doc__ = f"{about.help}\n\n{options}\n"
    parameters = [
        Parameter(option.name, Parameter.KEYWORD_ONLY, default=Parameter.empty if option.required else option.default)
        for option in sorted(about.options, key=lambda option: not option.required)
    ]
    picture.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return picture


def _misfit(option: PanelOption, kind: str) -> str | None:
    if option.takes == "number" and kind != "number":
        return "a number"
    return "a time or a window" if option.takes == "time" and kind not in ("time", "window") else None


def _names(value: Any) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _wanted(option: PanelOption, value: Any) -> str | None:
    """In words what an option's value must be, when it is something else."""
    if option.takes == "count":
        number = isinstance(value, int) and not isinstance(value, bool)
        return None if number and 1 <= value <= MOST_ROWS else f"a whole number from 1 to {MOST_ROWS}"
    if option.takes == "text":
        return None if isinstance(value, str | int | float) and not isinstance(value, bool) else "text"
    if option.takes == "columns":
        listed = _names(value)
        return None if listed and all(isinstance(name, str) and name for name in listed) else "a list of columns"
    if not isinstance(value, str) or not value.strip():
        return "the name of a column" if option.takes != "order" else _ORDER
    if option.takes == "order" and len(value.split()) > 1 and value.split()[-1].lower() not in _DIRECTIONS:
        return f"{_ORDER}; {value.split()[-1]!r} is neither"
    return None

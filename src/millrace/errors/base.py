"""What every error has: a message, why, a hint and a place; and whose fault it is."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar

from millrace.masking import without_passwords, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "InputError", "MillraceError", "Problem", "RunError", "SourceLocation", "deprecation_notice", "described",
    "did_you_mean", "printable",
]  # fmt: skip

_MAX_TEXT_CHARS = 1000


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A place in the user's files."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a pipeline's file, or (as a warning) that may be; `check` lists them all."""

    condition: str
    message: str
    place: SourceLocation | None = None
    hint: str | None = None
    why: str | None = None
    severity: str = "error"
    name: str = ""
    """The function that it is about, so that one problem of it can explain another."""

    def __post_init__(self) -> None:
        for name in ("message", "hint", "why"):
            if text := getattr(self, name):
                object.__setattr__(self, name, without_secrets(text))

    def lines(self) -> list[str]:
        """Return the problem as a compiler would print it, without colour."""
        at = f"{self.place}: " if self.place else ""
        details = {"why:": self.why, "try:": self.hint}
        lines = [f"  {label} {text}" for label, text in details.items() if text]
        return [f"{at}{self.severity}[{self.condition}]: {self.message}", *lines]


class MillraceError(Exception):
    """Anything that Millrace reports in one message instead of a stack trace."""

    condition: ClassVar[str] = "millrace.error"
    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, *, condition: str | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.condition = condition or cls.condition

    def __init__(
        self, message: str, *, hint: str | None = None, why: str | None = None, place: SourceLocation | None = None
    ) -> None:
        message = without_passwords(message)
        super().__init__(message)
        self.message = message
        self.hint = without_secrets(hint) if hint else hint
        self.why = without_passwords(why) if why else why
        self.place = place

    def lines(self) -> list[str]:
        """Return the message as it is shown, without colour."""
        details = {"at: ": self.place, "why:": self.why, "try:": self.hint}
        lines = [f"  {label} {text}" for label, text in details.items() if text]
        return [f"error[{self.condition}]: {self.message}", *lines]


class InputError(MillraceError, condition="input.invalid"):
    """What was typed or given is wrong; the same call fails again until it is changed."""

    exit_code = 2


class RunError(MillraceError, condition="run.failed"):
    """What was asked for is right and did not work; it may work another time."""


def described(error: BaseException) -> str:
    """Return the type and the text of an exception of the user's code, of which both may fail or be long."""
    try:
        name, text = str.__str__(type(error).__name__), str.__str__(str(error))
    except BaseException:  # whatever it raises is again an exception of the user's code
        return f"{object.__repr__(type(error))[1:-1]}, whose text cannot be shown"
    text = text if len(text) <= _MAX_TEXT_CHARS else f"{text[:_MAX_TEXT_CHARS]}…"
    return printable(f"{name}: {text}" if text else name)


def printable(text: str) -> str:
    """Return a text without what a terminal or UTF-8 cannot take: control characters, halves of characters."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that names the nearest other name, and all of them when they are few."""
    every = set(known)
    names = sorted(every - {name})
    if near := get_close_matches(name, names, n=1, cutoff=0.6):
        return f"did you mean {near[0]!r}?"
    if not names:
        return "there are no others" if every else "there are none yet"
    return f"there are: {', '.join(names[:20])}{', …' if len(names) > 20 else ''}"


def deprecation_notice(old: str, new: str) -> str:
    """Return the warning about the use of a name or value that has a new one."""
    return f"{old} is deprecated and will be removed in the next release; use {new}"

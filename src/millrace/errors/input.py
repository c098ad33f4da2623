"""What was typed or given beside a pipeline: options, settings, names, files, ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors.base import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable


class InvalidOption(InputError):
    """An option's value cannot be read, or options contradict each other."""

    condition = "option.invalid"


class InvalidSetting(InputError):
    """An environment variable or a settings file holds a value that cannot be used."""

    condition = "setting.invalid"


class UnknownName(InputError):
    """A name (of a jar set, a feed, a sink) that is not known."""

    condition = "name.unknown"

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str]) -> UnknownName:
        """An error that lists what is known and guesses what was meant."""
        names = sorted(known)
        return cls(f"there is no {kind} named {name!r}", hint=did_you_mean(name, names))


class NotUtf8(InputError):
    """Text was expected and the bytes are not UTF-8."""

    condition = "input.not-utf8"


class FileUnusable(InputError):
    """A file that was named cannot be read or written."""

    condition = "file.unusable"


class PortInUse(InputError):
    """The chosen port belongs to another process."""

    condition = "port.in-use"


class MissingExtra(InputError):
    """A package that Millrace does not bring by itself is needed and not installed."""

    condition = "extra.missing"

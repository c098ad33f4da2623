"""Errors in what the user gave: options, settings, names, files, ports, and the pipeline with its state."""

from collections.abc import Iterable as _Iterable
from typing import Self as _Self

from millrace.errors.base import InputError, Problem, did_you_mean


class InvalidOption(InputError, condition="option.invalid"):
    """An option's value cannot be read, or options contradict each other."""


class InvalidSetting(InputError, condition="setting.invalid"):
    """An environment variable or a settings file holds a value that cannot be used."""


class UnknownName(InputError, condition="name.unknown"):
    """A name (of a jar set, a feed, a sink) that is not known."""

    @classmethod
    def among(cls, kind: str, name: str, known: _Iterable[str]) -> _Self:
        """An error that lists what is known and guesses what was meant."""
        return cls(f"there is no {kind} named {name!r}", hint=did_you_mean(name, known))


class PluginUnusable(InputError, condition="plugin.unusable"):
    """An installed plug-in cannot be imported, or is not of the form that its entry point must lead to."""


class NotUtf8(InputError, condition="input.not-utf8"):
    """Text was expected and the bytes are not UTF-8."""


class FileUnusable(InputError, condition="file.unusable"):
    """A file that was named cannot be read or written."""


class PortInUse(InputError, condition="port.in-use"):
    """The chosen port belongs to another process."""


class MissingExtra(InputError, condition="extra.missing"):
    """A package that Millrace does not bring by itself is needed and not installed."""


class InvalidDefinition(InputError, condition="pipeline.invalid"):
    """A pipeline's file cannot be read as one, or has problems that `check` lists."""

    problems: tuple[Problem, ...] = ()
    """All that is wrong, when it is more than the message says."""

    @classmethod
    def listing(cls, file: str, problems: _Iterable[Problem]) -> _Self:
        """Return one error for several problems of a file."""
        listed = tuple(problems)
        error = cls(f"{file} has {len(listed)} problem{'s' if len(listed) > 1 else ''}")
        error.problems = listed
        return error

    def lines(self) -> list[str]:
        """The message, then every problem."""
        return [*super().lines(), *(line for problem in self.problems for line in problem.lines())]


class InvalidTest(InvalidDefinition, condition="test.invalid"):
    """A test that cannot be run: its file is none, a source or table is not there, rows cannot be given."""


class InvalidSchema(InputError, condition="schema.invalid"):
    """A schema that cannot be parsed or used; `line` and `column` count from 1 within its text."""

    line: int | None = None
    column: int | None = None


class InvalidSql(InputError, condition="sql.invalid"):
    """SQL that cannot be parsed; `line` and `column` count from 1 within the text."""

    line = 1
    column = 1


class InvalidQuery(InputError, condition="spark.analysis"):
    """Spark cannot make a plan of what was written: an unknown column, types that do not fit, an operation refused."""


class StateMismatch(InputError, condition="state.mismatch"):
    """A state folder holds the checkpoints of another pipeline, or another run uses it."""


class CheckpointIncompatible(InputError, condition="checkpoint.incompatible"):
    """A query was changed in a way that its checkpoint cannot follow, or has written its last windows."""


class CheckpointUnusable(InputError, condition="checkpoint.unusable"):
    """The checkpoint of a DStream program cannot be read, or is not where it was made."""


class InvalidStreams(InputError, condition="dstreams.invalid"):
    """A DStream program asks for what cannot be: state without a checkpoint folder, windows of parts of batches."""


class InvalidReplay(InputError, condition="replay.invalid"):
    """A replay, a switch or a generation that cannot be: nothing to read again, no such one, not finished."""

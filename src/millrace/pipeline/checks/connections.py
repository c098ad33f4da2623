"""Secrets that stand in the file for everyone to read.

What the connectors find wrong with what they are given.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem, SourceLocation
from millrace.pipeline.checks.context import CheckContext
from millrace.pipeline.connector_facts import Facts
from millrace.pipeline.model import Connection
from millrace.pipeline.python_source import literal_keywords
from millrace.pipeline.secret import Secret, holds_password, is_secret


def plain_secrets(scope: CheckContext) -> Iterator[Problem]:
    """A password, token or key that is written out; the value itself is never shown."""
    sources = [source.connection for source in scope.pipeline.sources]
    for connection in (*sources, *(sink.connection for sink in scope.pipeline.sinks)):
        in_python = connection.place.file.endswith(".py")
        where = "the environment or a file"
        hint = (
            f'take it from {where}: mr.secret("PASSWORD") or mr.secret(file="/path")'
            if in_python
            else f"take it from {where}: ${{PASSWORD}} or ${{file:/path}}"
        )
        for name, place in (*connection.bare, *_spelt_out(connection)):
            said = f"{name or connection.connector} is a secret in plain text"
            yield Problem("secret.plain", said, place, hint, "whoever sees the file sees it")


def _spelt_out(connection: Connection) -> Iterator[tuple[str, SourceLocation]]:
    """Those in a call in Python."""
    if not connection.place.file.endswith(".py") or not _has_secret((connection.argument, connection.options)):
        return
    for name, text, place in literal_keywords(connection.place):
        if is_secret(name) or holds_password(text):
            yield name, place


def _has_secret(value: object) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_secret, value))
    return isinstance(value, Secret)


def connector_mistakes(scope: CheckContext) -> Iterator[Problem]:
    """An unknown connector, an unknown or missing option, a value that cannot be, a schema that does not parse."""
    for source in scope.pipeline.sources:
        yield from _told(source.connection, scope.source_facts(source), f"source {source.name!r}")
    for sink in scope.pipeline.sinks:
        yield from _told(sink.connection, scope.sink_facts(sink), f"the sink of {sink.table!r}")


def _told(connection: Connection, facts: Facts, what: str) -> Iterator[Problem]:
    for severity, notices in (("error", facts.mistakes), ("warning", facts.deprecated)):
        for one in notices:
            place = connection.option_place(one.option) if one.option else connection.place
            yield Problem(one.condition, f"{what}: {one.message}", place, one.hint, one.why, severity)

"""Rules about connections: mistakes that the connectors find, and secrets in plain text."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem, SourceLocation
from millrace.pipeline.checks.context import CheckContext
from millrace.pipeline.connector_facts import Facts
from millrace.pipeline.model import Connection
from millrace.pipeline.python_source import literal_keywords
from millrace.pipeline.secret import Secret, holds_password, is_secret


def plain_secrets(context: CheckContext) -> Iterator[Problem]:
    """A password, token or key is not in the file itself; the message never shows its value."""
    sources = [source.connection for source in context.pipeline.sources]
    for connection in (*sources, *(sink.connection for sink in context.pipeline.sinks)):
        in_python = connection.place.file.endswith(".py")
        example = 'mr.secret("PASSWORD") or mr.secret(file="/path")' if in_python else "${PASSWORD} or ${file:/path}"
        hint = f"take it from the environment or a file: {example}"
        for name, place in (*connection.bare, *_literal_secrets(connection)):
            message = f"{name or connection.connector} is a secret in plain text"
            yield Problem("secret.plain", message, place, hint, "everyone who reads the file sees it")


def _literal_secrets(connection: Connection) -> Iterator[tuple[str, SourceLocation]]:
    """Yield the secrets that are literals in a call in Python."""
    if connection.place.file.endswith(".py") and _has_secret((connection.argument, connection.options)):
        for name, text, place in literal_keywords(connection.place):
            if is_secret(name) or holds_password(text):
                yield name, place


def _has_secret(value: object) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_secret, value))
    return isinstance(value, Secret)


def connector_mistakes(context: CheckContext) -> Iterator[Problem]:
    """Connectors and options exist, required options are set, values are valid, schemas parse."""
    for source in context.pipeline.sources:
        yield from _problems(source.connection, context.source_facts(source), f"source {source.name!r}")
    for sink in context.pipeline.sinks:
        yield from _problems(sink.connection, context.sink_facts(sink), f"the sink of {sink.table!r}")


def _problems(connection: Connection, facts: Facts, what: str) -> Iterator[Problem]:
    for severity, mistakes in (("error", facts.mistakes), ("warning", facts.deprecated)):
        for mistake in mistakes:
            place = connection.option_place(mistake.option) if mistake.option else connection.place
            yield Problem(mistake.condition, f"{what}: {mistake.message}", place, mistake.hint, mistake.why, severity)

"""The settings of Millrace.

- `Setting` is defined once for each: its name, default and help make its flag, environment variable and documentation.
- A value comes from the flag, else from the environment, else it is the default.
- A setting that was renamed is still read by its old name for one release; `old_name_notices` reports the use of one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from platformdirs import user_cache_path

from millrace.errors import InvalidOption, InvalidSetting, deprecation_notice
from millrace.secret_files import read_variable_or_file
from millrace.units import Backlog, parse_backlog, parse_duration, parse_heap, parse_rate_with_unit

T = TypeVar("T")


@dataclass(frozen=True)
class Setting(Generic[T]):
    """A value that the user sets by flag, else by environment variable; else the default is used."""

    name: str
    parse: Callable[[str], T]
    default: T
    help: str
    shown_default: str | None = None
    secret: bool = False
    """Whether the value must not be shown."""
    old_name: str | None = None
    """The name before the last release that renamed the setting: still accepted."""

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The name in the environment."""
        return "MILLRACE_" + self.name.upper()

    @property
    def old_variable(self) -> str | None:
        """The former name in the environment."""
        return "MILLRACE_" + self.old_name.upper() if self.old_name else None

    def value(self, given: str | None = None) -> T:
        """Return the flag's value if one was given, else the environment's, else the default."""
        if given is not None:
            return self.parse(given)
        for variable in filter(None, (self.variable, self.old_variable)):
            text = read_variable_or_file(variable, os.environ) if self.secret else os.environ.get(variable)
            if text:
                try:
                    return self.parse(text)
                except InvalidOption as error:
                    raise InvalidSetting(f"{variable}: {error.message}", hint=error.hint) from None
        return self.default


def _path(text: str) -> Path:
    return Path(text).expanduser()


_ON, _OFF = ("1", "yes", "true", "on"), ("0", "no", "false", "off")


def _count(text: str) -> int:
    if re.fullmatch(r"-\d+", text, re.ASCII):
        raise InvalidOption(f"{text!r} must not be negative", hint="write a whole number, as 5")
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise InvalidOption(f"{text!r} is not a number", hint="write a whole number, as 5")
    return int(text)


def _on_or_off(text: str) -> bool:
    if text.lower() not in (*_ON, *_OFF):
        raise InvalidOption(f"{text!r} is neither on nor off", hint="write on or off")
    return text.lower() in _ON


def _positive_duration(text: str) -> float:
    seconds = parse_duration(text)
    if seconds <= 0:
        raise InvalidOption(f"{text!r} must be more than nothing", hint="write a duration, as 30s")
    return seconds


def _on_off_or_auto(text: str) -> str:
    if text.lower() not in ("on", "off", "auto"):
        raise InvalidOption(f"{text!r} is none of on, off and auto", hint="auto is the default")
    return text.lower()


def _token(text: str) -> str:
    if not re.fullmatch(r"[\w.~+/=-]{16,512}", text, re.ASCII):
        hint = "write 16 to 512 letters, digits and -._~+/= , as `openssl rand -base64 24` makes them"
        raise InvalidOption("the token is too short, or has signs that an address or a header cannot have", hint=hint)
    return text


KAFKA = Setting[str | None](
    "kafka", str, None, "An outside Kafka cluster to use, as HOST:PORT[,HOST:PORT…].", "the one running here"
)
KAFKA_CONFIG = Setting[Path | None](
    "kafka_config",
    _path,
    None,
    "A file of client properties for the cluster (security.protocol, sasl.mechanism, ssl.ca.location, …).",
    "none",
)
KAFKA_DATA = Setting(
    "kafka_data", _path, Path(".millrace/kafka"), "Where our own Kafka keeps its data.", ".millrace/kafka"
)
KAFKA_HEAP = Setting("kafka_heap", parse_heap, "512m", "How much memory each of our brokers may use for its heap.")
KAFKA_TIMEOUT = Setting("kafka_timeout", parse_duration, 10.0, "How long to wait for an answer of a broker.", "10s")
CASSANDRA = Setting[str | None](
    "cassandra", str, None, "An outside Cassandra to use, as HOST:PORT[,HOST:PORT…].", "the one running here"
)
CASSANDRA_CONFIG = Setting[Path | None](
    "cassandra_config",
    _path,
    None,
    "A file of client properties for Cassandra (user, password, datacenter, tls.ca, …).",
    "none",
)
CASSANDRA_DATA = Setting(
    "cassandra_data",
    _path,
    Path(".millrace/cassandra"),
    "Where our own Cassandra keeps its data.",
    ".millrace/cassandra",
)
CASSANDRA_HEAP = Setting(
    "cassandra_heap", parse_heap, "384m", "How much memory our own Cassandra may use for its heap."
)
CASSANDRA_TIMEOUT = Setting(
    "cassandra_timeout", parse_duration, 10.0, "How long to wait for an answer of Cassandra.", "10s"
)
CACHE = Setting(
    "cache",
    _path,
    user_cache_path("millrace"),
    "Where fetched jars and the archive of Spark's classes are kept.",
    "the user's cache folder",
)
IVY_SETTINGS = Setting[Path | None](
    "ivy_settings", _path, None, "An Ivy settings file, to fetch jars from a company mirror.", "Maven Central"
)
JAVA = Setting[Path | None]("java", _path, None, "The java program to use.", "JAVA_HOME's, else the first on the PATH")
STATE = Setting("state", _path, Path(".millrace"), "State directory: how far runs and feeds have read.", ".millrace")
RESTARTS = Setting(
    "restarts", _count, 5, "How often in a row a failing query is restarted before it fails permanently."
)
STOP_TIMEOUT = Setting(
    "stop_timeout",
    parse_duration,
    60.0,
    "How long a run that is stopped waits for its running batches to end.",
    "60s",
    old_name="patience",
)
ALERT = Setting[str | None](
    "alert", str, None, "A URL or a command that gets failures, recoveries, lag and dead letters.", "none", secret=True
)
ALERT_LAG = Setting[Backlog | None](
    "alert_lag", parse_backlog, None, "Alert when a query is further behind than this: 10000 (records) or 30s.", "never"
)
ALERT_DEAD = Setting[float | None](
    "alert_dead", parse_rate_with_unit, None, "Alert when more dead letters come than this: 10/m, 1/s.", "never"
)
TOKEN = Setting[str | None](
    "token",
    _token,
    None,
    "The token for requests to the dashboard from other machines or other accounts of this machine.",
    "made for each run whose dashboard other machines reach",
    secret=True,
)
ARCHIVE = Setting(
    "archive", _on_or_off, True, "Whether an archive of Spark's classes is made and used, for quick starts.", "on"
)
BULK_READER = Setting(
    "bulk_reader",
    _on_off_or_auto,
    "auto",
    "Whether batches of topics are read in columns, without Spark's own source: on, off, or auto (large batches only).",
    old_name="bulk",
)
STATE_KEYS = Setting[int | None](
    "state_keys", _count, None, "About how many keys a pipeline will remember; a large state starts in RocksDB.", "few"
)
CHECK_TIMEOUT = Setting(
    "check_timeout",
    _positive_duration,
    30.0,
    "How long `millrace check` lets the code of a pipeline's file run before it gives up.",
    "30s",
)
VERBOSE = Setting("verbose", _on_or_off, False, "Show stack traces and what child processes say.", "off")

SETTINGS: tuple[Setting[Any], ...] = tuple(value for value in globals().values() if isinstance(value, Setting))
"""Every setting, in the order of this file."""


def old_name_notices() -> list[str]:
    """Return a line for each environment variable that is set by the old name of its setting."""
    renamed = [(setting.old_variable, setting.variable) for setting in SETTINGS if setting.old_variable]
    return [
        deprecation_notice(old, new) + (f", which is also set: {old} is ignored" if os.environ.get(new) else "")
        for old, new in renamed
        if os.environ.get(old)
    ]

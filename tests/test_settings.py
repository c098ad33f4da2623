"""A setting is the flag's text, else the environment's, else the default."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.errors import InvalidOption, InvalidSetting
from millrace.settings import (
    ALERT_DEAD,
    BULK_READER,
    CACHE,
    KAFKA_HEAP,
    KAFKA_TIMEOUT,
    RESTARTS,
    SETTINGS,
    STOP_TIMEOUT,
    TOKEN,
    VERBOSE,
    old_name_notices,
)


def test_flag_before_environment_before_default(set_environment: Callable[..., None]) -> None:
    set_environment(MILLRACE_KAFKA_TIMEOUT=None)
    assert KAFKA_TIMEOUT.value() == 10.0
    set_environment(MILLRACE_KAFKA_TIMEOUT="3s")
    assert KAFKA_TIMEOUT.value() == 3.0
    assert KAFKA_TIMEOUT.value("500ms") == 0.5


def test_a_wrong_value_names_its_variable(set_environment: Callable[..., None]) -> None:
    set_environment(MILLRACE_KAFKA_HEAP="huge")
    with pytest.raises(InvalidSetting) as caught:
        KAFKA_HEAP.value()
    assert "MILLRACE_KAFKA_HEAP" in caught.value.message
    with pytest.raises(InvalidOption):
        KAFKA_HEAP.value("huge")


def test_a_count_and_a_rate_say_what_is_wrong_with_them() -> None:
    assert (RESTARTS.value("0"), ALERT_DEAD.value("30/m")) == (0, 0.5)
    with pytest.raises(InvalidOption, match="must not be negative"):
        RESTARTS.value("-1")
    with pytest.raises(InvalidOption, match="in which time"):
        ALERT_DEAD.value("10")
    for setting in (RESTARTS, ALERT_DEAD):
        with pytest.raises(InvalidOption, match="is not a"):
            setting.value("many")


def test_paths_and_switches(set_environment: Callable[..., None]) -> None:
    set_environment(MILLRACE_CACHE="~/jars", MILLRACE_VERBOSE="0")
    assert CACHE.value() == Path.home() / "jars"
    assert VERBOSE.value() is False
    assert [VERBOSE.value(text) for text in ("On", "yes", "OFF")] == [True, True, False]
    with pytest.raises(InvalidOption, match="neither on nor off"):
        VERBOSE.value("perhaps")


def test_names_make_flags_and_variables() -> None:
    assert (KAFKA_HEAP.flag, KAFKA_HEAP.variable) == ("--kafka-heap", "MILLRACE_KAFKA_HEAP")
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)


def test_a_token_is_long_and_is_not_shown_when_it_is_wrong(
    set_environment: Callable[..., None], tmp_path: Path
) -> None:
    for wrong in ("too-short", "with a space in it", "with;a;semicolon", "ä" * 20, "x" * 600):
        set_environment(MILLRACE_TOKEN=wrong)
        with pytest.raises(InvalidSetting) as caught:
            TOKEN.value()
        assert wrong not in f"{caught.value.message} {caught.value.hint}"
    file = tmp_path / "token"
    file.write_text("5B+z/0123456789abcdef==\n")
    set_environment(MILLRACE_TOKEN=None, MILLRACE_TOKEN_FILE=str(file))
    assert TOKEN.value() == "5B+z/0123456789abcdef=="


def test_a_renamed_setting_is_read_by_its_old_name_with_a_notice(set_environment: Callable[..., None]) -> None:
    set_environment(MILLRACE_STOP_TIMEOUT=None, MILLRACE_PATIENCE=None, MILLRACE_BULK=None, MILLRACE_BULK_READER=None)
    assert old_name_notices() == []
    set_environment(MILLRACE_PATIENCE="20s", MILLRACE_BULK="off")
    assert (STOP_TIMEOUT.value(), BULK_READER.value()) == (20.0, "off")
    assert [notice.split()[0] for notice in old_name_notices()] == ["MILLRACE_PATIENCE", "MILLRACE_BULK"]
    assert not [notice for notice in old_name_notices() if "ignored" in notice]
    set_environment(MILLRACE_STOP_TIMEOUT="5s")
    assert STOP_TIMEOUT.value() == 5.0
    assert ["MILLRACE_PATIENCE is ignored" in notice for notice in old_name_notices()] == [True, False]
    set_environment(MILLRACE_BULK="perhaps")
    with pytest.raises(InvalidSetting, match="MILLRACE_BULK:"):
        BULK_READER.value()


def test_old_names_of_settings_are_nobody_elses() -> None:
    names = [name for setting in SETTINGS for name in (setting.name, setting.old_name) if name]
    assert len(set(names)) == len(names)
    assert STOP_TIMEOUT.old_variable == "MILLRACE_PATIENCE"

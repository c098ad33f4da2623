"""What a record says cannot steer the terminal of the person who looks at it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import CommandLine
from millrace.cli.output import without_controls
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Delivery, Producer
from millrace.clients.kafka.record import Record
from terminal import at_a_terminal

TITLE = "\x1b]0;mine\x07"
HOSTILE = f"a{TITLE}\x9b31m\u202eb\r\x7f"
SHOW = f"""\
from millrace.cli.output import print_line, show_table
show_table([{HOSTILE!r}], [[{HOSTILE!r}]])
print_line({HOSTILE!r})
"""


@pytest.mark.parametrize("options", [[], ["--json"], ["--format", "json"], ["--keys"]])
def test_records_on_a_terminal(millrace: CommandLine, cluster: Cluster, topic: str, options: list[str]) -> None:
    producer = Producer(cluster, topic, Delivery())
    producer.send([Record(HOSTILE.encode(), HOSTILE.encode())])
    producer.close()
    command = ["kafka", "consume", topic, "--from-beginning", "--max", "1", *options]
    program = str(Path(sys.executable).with_name("millrace"))
    screen = at_a_terminal([program, *command], millrace.environment, millrace.folder)[0].decode()
    assert not {"\x9b", "\u202e", "\x7f"} & set(screen)
    assert "\x1b]0" not in screen
    assert "a" in screen
    if not options:
        read = subprocess.run([program, *command], capture_output=True, env=millrace.environment, check=True).stdout
        assert read == HOSTILE.encode() + b"\n", "a program that reads it gets every byte"


def test_tables_and_messages_on_a_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SHOW]
    screen = at_a_terminal(command, os.environ | {"COLUMNS": "200"}, tmp_path)[0].decode()
    assert TITLE not in screen
    assert "\u202e" not in screen
    assert screen.count("\\x1b]0;mine\\x07") == 3


def test_ordinary_text_stays_as_it_is() -> None:
    text = "Grüße, 東京, 👩‍🚀, a\tb\nc"
    assert without_controls(text) == text

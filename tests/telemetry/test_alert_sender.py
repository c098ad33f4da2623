"""Alerts arrive at a URL and at a command; one that hangs or fails holds up nobody."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from millrace.errors import InvalidOption
from millrace.telemetry import alerts
from millrace.telemetry.alerts import Alert, AlertSender, alert_sender

ALERT = Alert("trending", "popular", "failed", "Kafka does not answer", "2026-05-04T12:00:00.000+00:00")


class Hook(ThreadingHTTPServer):
    """A server that keeps what it is sent, and answers as it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.got: list[dict[str, str]] = []
        self.status = 204
        self.hang = threading.Event()
        self.hang.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks/s3cret"


class Answer(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.hang.wait()
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.hang.set()
        server.shutdown()
        thread.join()


def test_a_url_gets_json(hook: Hook) -> None:
    said: list[str] = []
    sending = AlertSender(alert_sender(hook.url), said.append)
    sending.send(ALERT)
    sending.close()
    (got,) = hook.got
    assert (got["pipeline"], got["query"], got["what"]) == ("trending", "popular", "failed")
    assert got["text"] == "trending/popular: failed: Kafka does not answer"
    assert said == []


def test_a_refusal_is_said_once_and_without_the_address(hook: Hook) -> None:
    hook.status = 404
    said: list[str] = []
    sending = AlertSender(alert_sender(hook.url), said.append)
    sending.send(ALERT)
    sending.send(ALERT)
    sending.close()
    assert len(hook.got) == 2
    (line,) = said
    assert "404" in line
    assert "s3cret" not in line


def test_one_that_hangs_holds_up_nobody(hook: Hook) -> None:
    hook.hang.clear()
    said: list[str] = []
    sending = AlertSender(alert_sender(hook.url), said.append, timeout=0.1)
    for _ in range(200):
        sending.send(ALERT)
    sending.close()
    assert len(said) == 1


def test_nobody_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "_RETRY_DELAY_S", 0.0)
    trouble = alert_sender("http://127.0.0.1:9/s3cret")(ALERT)
    assert trouble
    assert "s3cret" not in trouble


def test_a_command_gets_json_on_its_standard_input(tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())")
    assert alert_sender(f"{sys.executable} {script} '{tmp_path}/to whom.json'")(ALERT) is None
    assert json.loads((tmp_path / "to whom.json").read_text())["why"] == "Kafka does not answer"


def test_a_command_that_fails_or_is_not_there() -> None:
    assert "exit code 3" in str(alert_sender(f"{sys.executable} -c 'raise SystemExit(3)'")(ALERT))
    assert "cannot be started" in str(alert_sender("/nowhere/at/all")(ALERT))


def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "SEND_TIMEOUT_S", 0.2)
    assert "was ended" in str(alert_sender("sleep 600")(ALERT))


@pytest.mark.parametrize("target", ["", "'open", "https:///path"])
def test_what_is_no_target(target: str) -> None:
    with pytest.raises(InvalidOption):
        alert_sender(target)

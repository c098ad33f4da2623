"""A small schema registry on a free port."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from millrace.formats.schema_registry import registry_at


class SmallRegistry:
    """Schemas by id and subjects by name, behind the API that Confluent's registry has."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.user: str | None = None
        self.status: int | None = None
        self.body = b"it hurts"
        registry = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(b"")

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["content-length"])))

            def _answer(self, body: bytes) -> None:
                status, answer = registry.answer(self.command, self.path, self.headers.get("authorization"), body)
                self.send_response(status)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def add(self, subject: str, schema: dict[str, Any], **more: Any) -> int:
        """Keep a schema."""
        number = len(self.schemas) + 1
        self.schemas[number] = {"schema": json.dumps(schema), **more}
        self.subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, method: str, path: str, authorization: str | None, body: bytes) -> tuple[int, bytes]:
        """What it says to a request."""
        self.asked.append(f"{method} {path}")
        if self.status is not None:
            return self.status, self.body
        if self.user and authorization != "Basic " + b64encode(self.user.encode()).decode():
            return 401, b'{"error_code":40101,"message":"Unauthorized"}'
        parts = path.strip("/").split("/")
        if parts[0] == "subjects" and method == "POST":
            return 200, json.dumps({"id": self._registered(parts[1], json.loads(body)["schema"])}).encode()
        if parts[0] == "subjects" and parts[1] in self.subjects:
            return 200, json.dumps(self.schemas[self.subjects[parts[1]][int(parts[3]) - 1]]).encode()
        if parts[0] == "schemas" and int(parts[2]) in self.schemas:
            return 200, json.dumps(self.schemas[int(parts[2])]).encode()
        return 404, b'{"error_code":40403,"message":"Schema not found"}'

    def _registered(self, subject: str, text: str) -> int:
        known = [number for number in self.subjects.get(subject, []) if self.schemas[number]["schema"] == text]
        return known[0] if known else self.add(subject, json.loads(text))

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    """A registry that runs during a test; what was learnt of it is forgotten afterwards."""
    small = SmallRegistry()
    yield small
    small.close()
    for kept in (registry_at,):
        kept.cache_clear()

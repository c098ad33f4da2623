"""Kinesis as a client sees it: what is asked again, and what is told."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from emulator import KEYS, REGION, Emulator, Faults, failing
from millrace.clients.kinesis.client import Kinesis
from millrace.connectors.kinesis.sink import KinesisBatchWriter
from millrace.errors import (
    InvalidOption,
    KinesisDenied,
    KinesisFailed,
    KinesisUnreachable,
    MissingExtra,
    UnknownStream,
)


@pytest.fixture(scope="module", autouse=True)
def here(emulator: Emulator) -> None:
    """A stream of two shards."""
    emulator.create("here", 2)


def _door(endpoint: str, **options: float) -> Kinesis:
    return Kinesis(REGION, endpoint, **KEYS, **{"patience": 0.3, **options})  # type: ignore[arg-type]


def test_a_stream_that_is_not_there(emulator: Emulator) -> None:
    with pytest.raises(UnknownStream):
        _door(emulator.endpoint).stream("nowhere")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ((400, "UnrecognizedClientException"), KinesisDenied),
        ((400, "AccessDeniedException"), KinesisDenied),
        ((400, "LimitExceededException"), KinesisFailed),
        ((500, "InternalFailure"), KinesisUnreachable),
        ("drop", KinesisUnreachable),
    ],
)
def test_what_the_service_says_is_one_sentence(emulator: Emulator, fault: object, error: type[Exception]) -> None:
    with failing(emulator.port, Faults(lambda *_: fault)) as endpoint, pytest.raises(error) as told:
        _door(endpoint).stream("here")
    assert "\n" not in str(told.value)


def test_what_passes_is_asked_again(emulator: Emulator) -> None:
    kinds = [(400, "LimitExceededException"), (503, "ServiceUnavailable"), "drop", "break"]
    faults = Faults(lambda _, number: kinds[number - 1] if number <= 4 else None)
    with failing(emulator.port, faults) as endpoint:
        assert _door(endpoint, patience=30.0).stream("here").name == "here"
    assert faults.asked["DescribeStreamSummary"] == 5


def test_no_region_and_no_boto3_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(InvalidOption, match="region"):
        Kinesis(**KEYS).client()
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingExtra) as told:
        Kinesis("eu-west-1", **KEYS).client()
    assert "millrace[kinesis]" in (told.value.hint or "")


def test_nothing_shows_the_keys() -> None:
    assert KEYS["secret_key"] not in repr(Kinesis("eu-west-1", **KEYS))
    assert KEYS["secret_key"] not in str(UnknownStream(f"with {KEYS['secret_key']}"))


def test_a_role_is_taken_on(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    with _sts(asked) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", address)
        door = Kinesis(
            REGION, emulator.endpoint, **KEYS, role="arn:aws:iam::123456789012:role/reader", role_session="me"
        )
        assert door.stream("here").name == "here"
        assert door.stream("here").name == "here"
    assert len(asked) == 1
    assert "RoleSessionName=me" in asked[0]


@contextmanager
def _sts(asked: list[str]) -> Iterator[str]:
    """A service that gives roles."""
    until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    given = "<AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>of+it</SecretAccessKey><SessionToken>t</SessionToken>"
    told = f"<Credentials>{given}<Expiration>{until}</Expiration></Credentials>"
    answer = f"<AssumeRoleResponse><AssumeRoleResult>{told}</AssumeRoleResult></AssumeRoleResponse>".encode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_of_records_that_were_refused_only_they_are_sent_again(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, door = emulator.create(f"partly-{uuid.uuid4().hex[:12]}", 1), emulator.door
    client, sent = door.client(), []

    def put(**asked: object) -> object:
        records = asked["Records"]
        assert isinstance(records, list)
        sent.append(len(records))
        if len(sent) > 1:
            return real(**asked)
        real(StreamName=stream, Records=records[:3])
        refused = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "slowly"}
        return {"FailedRecordCount": len(records) - 3, "Records": [{}, {}, {}, *([refused] * (len(records) - 3))]}

    real = client.put_records
    monkeypatch.setattr(client, "put_records", put)
    records = [{"Data": f"{n}".encode(), "PartitionKey": "k"} for n in range(10)]
    assert KinesisBatchWriter(door, stream).put(records) == 10
    assert sent == [10, 7]
    assert sorted(map(int, emulator.values(stream))) == list(range(10))

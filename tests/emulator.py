"""A real HTTP service that speaks as Kinesis and DynamoDB do, and one in front of it that fails as they do."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from millrace.clients.kinesis.client import Kinesis
from millrace.locks import FolderLock

FOLDER = Path(__file__).parent / "kinesis"
REGION = "eu-central-1"
KEYS = {"access_key": "AKIAEXAMPLE0000TEST", "secret_key": "not/a+key/of-anybody/0123456789"}


def _node() -> Any:
    spec = importlib.util.spec_from_file_location("web_build", FOLDER.parents[1] / "web" / "build.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.the_node()


def installed() -> str:
    """Fetch the emulators' packages unless they are there; the node to run them with."""
    node = _node()
    modules, lock = FOLDER / "node_modules", FOLDER / "package-lock.json"
    with FolderLock(FOLDER / ".millrace"):
        done = modules / ".package-lock.json"
        if not done.is_file() or done.stat().st_mtime < lock.stat().st_mtime:
            path = os.pathsep.join([str(Path(node.node).parent), os.environ.get("PATH", "")])
            subprocess.run([*node.npm, "ci"], cwd=FOLDER, env=os.environ | {"PATH": path}, check=True, timeout=170)
            done.touch()
    return str(node.node)


class Emulator:
    """Kinesis and DynamoDB in one process of Node; nothing is kept."""

    def __init__(self) -> None:
        command = [installed(), "emulator.cjs"]
        self._process = subprocess.Popen(command, cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout
        kinesis, dynamodb = json.loads(self._process.stdout.readline())
        self.port, self.dynamodb_port = kinesis, dynamodb
        self.endpoint, self.dynamodb = f"http://127.0.0.1:{kinesis}", f"http://127.0.0.1:{dynamodb}"

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    @property
    def door(self) -> Kinesis:
        """How it is reached."""
        return Kinesis(REGION, self.endpoint, **KEYS, patience=20.0)

    @property
    def client(self) -> Any:
        """A client of boto3's."""
        return self.door.client()

    def stop(self) -> None:
        """End the process."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def create(self, stream: str, shards: int = 1) -> str:
        """A new stream, ready."""
        self.client.create_stream(StreamName=stream, ShardCount=shards)
        self.settled(stream)
        return stream

    def settled(self, stream: str) -> None:
        """Wait until a change of the stream is done."""
        waiter = self.client.get_waiter("stream_exists")
        waiter.wait(StreamName=stream, WaiterConfig={"Delay": 0.02, "MaxAttempts": 500})

    def put(
        self, stream: str, values: list[bytes] | list[str], key: str | None = None, shard: str | None = None
    ) -> None:
        """Records, each under a key of its own unless one is given; all to one shard if it is named."""
        chosen = {"ExplicitHashKey": self._span(stream, shard)["StartingHashKey"]} if shard else {}
        encoded = [one if isinstance(one, bytes) else one.encode() for one in values]
        for at in range(0, len(encoded), 500):
            part = encoded[at : at + 500]
            records = [{"Data": one, "PartitionKey": key or f"k{at + n}", **chosen} for n, one in enumerate(part)]
            assert self.client.put_records(StreamName=stream, Records=records)["FailedRecordCount"] == 0

    def split(self, stream: str, shard: str) -> None:
        """Split a shard in two halves."""
        span = self._span(stream, shard)
        middle = (int(span["StartingHashKey"]) + int(span["EndingHashKey"])) // 2
        self.client.split_shard(StreamName=stream, ShardToSplit=shard, NewStartingHashKey=str(middle))
        self.settled(stream)

    def _span(self, stream: str, shard: str) -> dict[str, str]:
        """The hash keys of a shard."""
        listed = self.client.describe_stream(StreamName=stream)["StreamDescription"]["Shards"]
        span: dict[str, str] = next(one["HashKeyRange"] for one in listed if one["ShardId"] == shard)
        return span

    def merge(self, stream: str, one: str, other: str) -> None:
        """Merge two shards that are beside each other."""
        self.client.merge_shards(StreamName=stream, ShardToMerge=one, AdjacentShardToMerge=other)
        self.settled(stream)

    def values(self, stream: str) -> list[bytes]:
        """Every record that is in the stream."""
        found: list[bytes] = []
        for shard in self.client.list_shards(StreamName=stream)["Shards"]:
            where = {"StreamName": stream, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
            at = self.client.get_shard_iterator(**where)["ShardIterator"]
            while at:
                answer = self.client.get_records(ShardIterator=at)
                found += [one["Data"] for one in answer["Records"]]
                at = answer.get("NextShardIterator") if answer["Records"] or answer["MillisBehindLatest"] else None
        return found


class Faults:
    """Decides what goes wrong: gets the name of each request and its number among those of that name.

    Returns None (all is well), `drop` (no answer), `break` (half of the answer), or a status and an error's name.
    """

    def __init__(self, decide: Callable[[str, int], Any]) -> None:
        self.decide = decide
        self.asked: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.lock = threading.Lock()

    def of(self, action: str) -> Any:
        """What happens to a request."""
        with self.lock:
            self.asked[action] += 1
            found = self.decide(action, self.asked[action])
            if found:
                self.failed[action] += 1
            return found


@contextmanager
def failing(port: int, faults: Faults) -> Iterator[str]:
    """The address of a proxy in front of the service at a port, which fails as it is told to."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = faults.of(self.headers.get("X-Amz-Target", "").rpartition(".")[2])
            if fault == "drop":
                self.close_connection = True
                return
            if isinstance(fault, tuple):
                self._answer(fault[0], json.dumps({"__type": fault[1], "message": "made up"}).encode())
                return
            behind = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
            behind.request("POST", self.path, body, kept)
            answer = behind.getresponse()
            told = answer.read()
            behind.close()
            self._answer(answer.status, told, half=fault == "break")

        def _answer(self, status: int, body: bytes, half: bool = False) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if half else body)
            self.close_connection = self.close_connection or half

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()

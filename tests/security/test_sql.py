"""Questions in SQL reach neither a file, a process nor the network, and are bounded in time and memory.

The attacks of which the first version of `/api/sql` fell for some, and those that DuckDB's own dialect offers, each in
two hundred variations of quoting, comments, letters, spaces and nesting.
"""

# ruff: noqa: S608 - putting SQL together is what this is about

from __future__ import annotations

import json
import os
import random
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pyarrow as pa
import pytest

from millrace.connectors.memory import MEMORY
from millrace.dashboard.run_interface import RunInterface
from millrace.dashboard.server import Dashboard, ServerOptions
from millrace.engine.memory_sql import MemorySql
from millrace.errors import InputError
from millrace.telemetry.channels import Channels
from millrace.telemetry.metrics import Health

VARIATIONS = 200
SECRET = "canary-5f0c"
HOME = "/home/of-nobody-but-this-test"
CONFINED = Path(__file__).parent / "confined.py"

ATTACKS = {
    "command": [
        "SELECT TRANSFORM(room) USING 'cat {canary}; touch {marker}' AS (y) FROM rooms",
        "SELECT * FROM (FROM rooms SELECT TRANSFORM(room) USING 'touch {marker}')",
        "COPY rooms TO PROGRAM 'touch {marker}'",
        "SELECT system('touch {marker}')",
        "SELECT * FROM read_csv('touch {marker} |')",
        "SELECT * FROM python_map_function((SELECT * FROM rooms), 1)",
        "LOAD '{folder}/evil.duckdb_extension'",
        "SELECT * FROM shell('touch {marker}')",
    ],
    "java": [
        "SELECT `reflect`('java.lang.System', 'getProperty', 'user.home')",
        "SELECT system.builtin.`java_method`('java.lang.System', 'getenv', 'HOME')",
        "SELECT reflect('java.nio.file.Files', 'readString', '{canary}')",
        "SELECT try_reflect('java.lang.Runtime', 'exit', 0) FROM rooms",
        "SELECT * FROM IDENTIFIER('text.`{canary}`')",
    ],
    "comment": [
        "SELECT room FROM rooms -- \\\n UNION SELECT value FROM text.`{canary}`",
        "SELECT room /* \\*/ FROM rooms UNION SELECT content FROM read_text('{canary}') -- */",
        "SELECT room FROM rooms WHERE room IN (SELECT value FROM text.`{canary}`) -- \\\n",
        "SELECT 1 -- \\\n, (SELECT content FROM read_text('{canary}'))",
    ],
    "file": [
        "SELECT content FROM read_text('{canary}')",
        "SELECT content FROM read_blob('{canary}')",
        "SELECT * FROM read_csv('{canary}', header = false)",
        "SELECT * FROM read_csv_auto('{canary}')",
        "SELECT * FROM read_json('{canary}')",
        "SELECT * FROM '{canary}'",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM sniff_csv('{canary}')",
        "SELECT content FROM read_text('/proc/self/environ')",
        "SELECT getenv('HOME')",
        "SELECT getvariable('HOME')",
        "ATTACH '{canary}' AS other",
        "COPY rooms FROM '{canary}'",
        "SELECT * FROM parquet_scan('{canary}')",
        "SELECT * FROM text.`{canary}`",
    ],
    "write": [
        "COPY rooms TO '{folder}/written.csv'",
        "COPY (SELECT 1) TO '{folder}/written.parquet' (FORMAT parquet)",
        "EXPORT DATABASE '{folder}/written'",
        "ATTACH '{folder}/written.db' AS other",
        "SET temp_directory = '{folder}/written'",
        "SELECT * FROM enable_logging(storage = 'file', storage_path = '{folder}')",
        "PRAGMA enable_profiling = 'json'",
        "SET profiling_output = '{folder}/written.json'",
        "SELECT write_log('{folder}/written')",
    ],
    "network": [
        "SELECT * FROM read_csv('http://127.0.0.1:{port}/x.csv')",
        "SELECT * FROM 'http://127.0.0.1:{port}/x.parquet'",
        "ATTACH 'http://127.0.0.1:{port}/x.db' AS other",
        "INSTALL httpfs FROM 'http://127.0.0.1:{port}'",
        "ATTACH 'host=127.0.0.1 port={port}' AS other (TYPE postgres)",
        "COPY rooms TO 's3://127.0.0.1:{port}/x.csv'",
        "SELECT * FROM postgres_scan('host=127.0.0.1 port={port}', 'public', 't')",
        "CREATE SECRET s (TYPE http, EXTRA_HTTP_HEADERS MAP {{'a': 'b'}})",
    ],
    "settings": [
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "RESET enable_external_access",
        "SET GLOBAL allow_unsigned_extensions = true",
        "PRAGMA disable_lock_configuration",
        "SELECT set_config('enable_external_access', 'true', false), content FROM read_text('{canary}')",
        "SELECT content FROM read_text('{canary}') WHERE current_setting('enable_external_access') IS NOT NULL",
    ],
}
HEAVY = [
    "SELECT len(range(500000000))",
    "SELECT repeat('x', 1500000000)",
    "SELECT length(repeat('x', 1500000000))",
    "SELECT size(sequence(1, 500000000))",
    "SELECT list(i) FROM range(1000000000) t(i)",
    "SELECT count(*) FROM range(1000000000000)",
    "SELECT count(*) FROM rooms a, range(1000000000) b, range(1000000000) c",
    "WITH RECURSIVE w AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM w) SELECT count(*) FROM w",
    "WITH RECURSIVE w AS (SELECT 'x' AS s UNION ALL SELECT s || s FROM w) SELECT max(length(s)) FROM w",
    "SELECT md5(string_agg(room, '')) FROM rooms, range(1000000000)",
    "SELECT * FROM rooms, range(10000000) ORDER BY random()",
    "SELECT regexp_matches(repeat('a', 50000000), '(a*)*b')",
    f"SELECT {'(' * 5000}1{')' * 5000}",
    f"SELECT {' + '.join(['1'] * 20000)}",
]


@dataclass(frozen=True)
class Lure:
    """What an attack would reach: a file to read, a folder to write to, a command's trace, a port."""

    folder: Path
    listener: socket.socket

    def filled(self, attack: str) -> str:
        names = {"canary": self.folder / "canary.txt", "marker": self.folder / "marker", "folder": self.folder}
        return attack.format(**names, port=self.listener.getsockname()[1])

    def require_untouched(self, answers: str) -> None:
        assert SECRET not in answers
        assert HOME not in answers
        assert [path.name for path in self.folder.iterdir()] == ["canary.txt"]
        with pytest.raises(BlockingIOError):
            self.listener.accept()


@pytest.fixture
def lure(tmp_path: Path) -> Iterator[Lure]:
    folder = tmp_path / "lure"
    folder.mkdir()
    (folder / "canary.txt").write_text(f"{SECRET}\n", "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield Lure(folder, listener)


@pytest.fixture(scope="module")
def memory() -> Iterator[MemorySql]:
    """Answers all the time."""
    MEMORY.clear()
    rooms = pa.table({"room": ["attic", "hall"], "n": [2, 1]})
    MEMORY.put("rooms", rooms, 0, mode="complete", key=(), limit=10)
    made = MemorySql()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", HOME)
        made.open()
    yield made
    made.close()
    MEMORY.clear()


@pytest.fixture
def address(memory: MemorySql, tmp_path: Path) -> Iterator[str]:
    """The dashboard's server over these tables."""
    subject = RunInterface(Channels(), lambda: Health(True, True), lambda: {"name": "test"}, sql=memory.ask)
    with Dashboard(subject, ServerOptions(port=0), tmp_path / "not built") as server:
        yield server.address


def confined(sql: list[str], *, open_: bool = False) -> list[dict[str, Any]]:
    """The answers of a process that is confined as that of a question."""
    command = [sys.executable, str(CONFINED), *(["open"] if open_ else [])]
    environment = os.environ | {"HOME": HOME}
    given = json.dumps({"sql": sql})
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True, env=environment)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


# Variations. Texts in quotes stay as they are, so that an attack still means what it meant.

_PARTS = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|`[^`]*`|--[^\n]*\n?|/\*.*?\*/|\w+|\s+|.""", re.DOTALL)
_COMMENTS = ("/**/", "/* ' */", "/*\\*/", "-- \\\n", "--\n", "/* -- */", '/* " */', "-- '\n", "\n\t")
_SPACES = ("\t", "\n", "\r\n", "\f", " ", "\u2003", "\u200b", "\ufeff", "\u3000")


def _words(sql: str, change: Callable[[str], str]) -> str:
    return "".join(change(part) if part.isidentifier() else part for part in _PARTS.findall(sql))


def _any_case(sql: str, chance: random.Random) -> str:
    return _words(sql, lambda word: "".join(chance.choice((c.upper(), c.lower())) for c in word))


def _quoted(sql: str, chance: random.Random) -> str:
    marks = (('"', '"'), ("`", "`"), ("[", "]"), ("", ""))
    return re.sub(r"\b([a-z_]\w*)(?=\()", lambda found: _between(found[1], chance.choice(marks)), sql)


def _between(text: str, marks: tuple[str, str]) -> str:
    return marks[0] + text + marks[1]


def _commented(sql: str, chance: random.Random) -> str:
    parts = _PARTS.findall(sql)
    return "".join(part + (chance.choice(_COMMENTS) if chance.random() < 0.3 else "") for part in parts)


def _spaced(sql: str, chance: random.Random) -> str:
    return "".join(chance.choice(_SPACES) if part.isspace() else part for part in _PARTS.findall(sql))


def _wide(sql: str, chance: random.Random) -> str:
    """Letters that look alike, and names by their numbers."""

    def change(word: str) -> str:
        if not word.isascii() or chance.random() < 0.6:
            return word
        escaped = "".join(f"\\{ord(letter):04x}" for letter in word)
        return chance.choice((f'U&"{escaped}"', "".join(chr(ord(letter) + 0xFEE0) for letter in word), f"\u202e{word}"))

    return _words(sql, change)


def _spelled(sql: str, chance: random.Random) -> str:
    """Texts put together, by their letters or with escapes."""

    def change(part: str) -> str:
        if not part.startswith("'") or chance.random() < 0.4:
            return part
        text = part[1:-1]
        half = len(text) // 2
        escaped = "".join(f"\\x{ord(letter):02x}" for letter in text)
        ways = (f"('{text[:half]}' || '{text[half:]}')", f"E'{escaped}'", f"$${text}$$", f"concat('', {part})")
        return chance.choice(ways)

    return "".join(map(change, _PARTS.findall(sql)))


def _nested(sql: str, chance: random.Random) -> str:
    doubled = sql.replace("'", "''")
    return chance.choice(
        (
            f"SELECT * FROM ({sql})",
            f"SELECT ({sql})",
            f"WITH w AS ({sql}) SELECT * FROM w",
            f"WITH w AS MATERIALIZED ({sql}) SELECT (SELECT max(columns(*)) FROM w)",
            f"SELECT room, ({sql}) FROM rooms",
            f"SELECT * FROM rooms WHERE EXISTS ({sql})",
            f"SELECT * FROM rooms WHERE room NOT IN ({sql})",
            f"SELECT * FROM rooms, LATERAL ({sql}) x",
            f"SELECT * FROM query('{doubled}')",
            f"SELECT [x FOR x IN (SELECT list(y) FROM ({sql}) y)]",
            f"(({sql}))",
            f"{sql} UNION ALL {sql}",
            f"EXPLAIN ANALYZE {sql}",
            f"SELECT 1; {sql}",
            f"{sql};;",
            f"DESCRIBE {sql}",
            f"SUMMARIZE {sql}",
            f"CREATE OR REPLACE TABLE rooms AS {sql}",
            f"WITH w AS (INSERT INTO rooms {sql} RETURNING *) SELECT * FROM w",
            f"PREPARE p AS {sql}",
        )
    )


def variations(attacks: list[str], seed: str) -> list[str]:
    """Two hundred texts that differ."""
    chance = random.Random(seed)
    ways = (_any_case, _quoted, _commented, _spaced, _wide, _spelled, _nested)
    found = dict.fromkeys(attacks)
    while len(found) < VARIATIONS:
        text = chance.choice(attacks)
        for way in chance.sample(ways, chance.randint(1, 3)):
            text = way(text, chance)
        found[text] = None
    return list(found)


@pytest.mark.parametrize("kind", ATTACKS)
def test_two_hundred_variations_of_an_attack_reach_nothing(kind: str, lure: Lure) -> None:
    texts = variations([lure.filled(attack) for attack in ATTACKS[kind]], kind)
    answers = confined(texts)
    assert len(answers) >= VARIATIONS
    lure.require_untouched(json.dumps(answers))


def test_the_variations_would_reach_files_if_nothing_were_confined(lure: Lure) -> None:
    """So that the test above can fail."""
    texts = variations([lure.filled(attack) for attack in ATTACKS["file"]], "file")
    reached = [answer for answer in confined(texts, open_=True) if SECRET in json.dumps(answer)]
    assert len(reached) > VARIATIONS // 10


@pytest.mark.parametrize("kind", ATTACKS)
def test_attacks_on_the_server_are_refused(kind: str, lure: Lure, address: str) -> None:
    answers = []
    with httpx.Client(base_url=address, timeout=60) as client:
        for attack in ATTACKS[kind]:
            answer = client.post("api/sql", json={"sql": lure.filled(attack)})
            assert 400 <= answer.status_code < 500 or answer.json()["rows"] in ([], [[None]]), attack
            answers.append(answer.json())
        assert client.post("api/sql", json={"sql": "SELECT sum(n) FROM rooms"}).json()["rows"] == [[3]]
    # An error may repeat the question, and with it the name of the file, not what is in it.
    lure.require_untouched(json.dumps(answers))


@pytest.mark.long
@pytest.mark.parametrize("sql", HEAVY)
def test_heavy_questions_are_bounded(sql: str, memory: MemorySql, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as short, suppress(InputError):  # most are given up; DuckDB is quick enough for some
        short.setattr(memory, "_timeout_s", 1.0)
        memory.ask(sql, 10)
    assert memory.ask("SELECT sum(n) FROM rooms", 1)["rows"] == [[3]], "the next question is answered"


@pytest.mark.long
def test_fifty_heavy_questions_at_once_leave_the_server_answering(
    memory: MemorySql, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(sql: str) -> int:
        return httpx.post(f"{address}api/sql", json={"sql": sql}, timeout=120).status_code

    monkeypatch.setattr(memory, "_timeout_s", 1.0)
    with ThreadPoolExecutor(50) as pool:
        asked = [pool.submit(ask, HEAVY[5]) for _ in range(50)]
        while not all(one.done() for one in asked):
            assert httpx.get(f"{address}healthz", timeout=60).status_code == 200
    assert {one.result() for one in asked} <= {400, 503}, "given up, or told to come later"
    monkeypatch.undo()
    assert httpx.post(f"{address}api/sql", json={"sql": "SELECT sum(n) FROM rooms"}).json()["rows"] == [[3]]


def test_the_process_of_a_question_has_no_means(memory: MemorySql, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of ours, one descriptor and no other to be had, a limit on memory, the lowest priority."""
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    monkeypatch.setattr(memory, "_timeout_s", 10.0)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(memory.ask, HEAVY[5], 1)
        child = None
        while child is None or child.rlimit(psutil.RLIMIT_NOFILE) != (0, 0):  # confined a moment after it was made
            assert not asked.done(), asked.exception()
            process = memory._process
            child = next(iter(psutil.Process(process._popen.pid).children() if process else ()), None)
        assert set(child.environ()) <= {"LD_LIBRARY_PATH", "LC_CTYPE"}
        assert child.num_fds() == 1
        assert child.rlimit(psutil.RLIMIT_AS)[1] != resource.RLIM_INFINITY
        assert child.rlimit(psutil.RLIMIT_FSIZE) == (0, 0)
        assert child.nice() == 10
        assert not child.net_connections()
        with pytest.raises(InputError):
            asked.result(60)

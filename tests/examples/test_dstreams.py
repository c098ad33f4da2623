"""examples/dstreams: programs of the RDD era, and those that Spark carries itself."""

from __future__ import annotations

import ast
import json
import re
import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from conftest import CommandLine
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.services.process import free_port
from talking import Talker

from .conftest import EXAMPLES, commands
from .playing import Executed, Play, play, sparks_own, wait

__all__ = ["play"]
FOLDER = EXAMPLES / "dstreams"
PROGRAMS = sorted(path.name for path in FOLDER.glob("*.py"))
LINES = ("apache spark", "apache kafka")
COUNTED = (r"^\('apache', 2\)$", r"^\('spark', 1\)$", r"^\('kafka', 1\)$")

pytestmark = [
    pytest.mark.filterwarnings("ignore:DStream is deprecated:FutureWarning"),
    pytest.mark.timeout(170),
]


@pytest.fixture
def talker() -> Iterator[Talker]:
    """Who is at the other end of the socket."""
    with Talker() as found:
        yield found


def words(*given: str) -> set[tuple[str, int]]:
    """The counts of words in lines."""
    return set(Counter(word for line in given for word in line.split()).items())


def sums(printed: str) -> Counter[str]:
    """The counts of all batches that were printed, added up."""
    found: Counter[str] = Counter()
    for word, count in re.findall(r"^\('(.*)', (\d+)\)$", printed, re.MULTILINE):
        found[word] += int(count)
    return found


def test_every_program_is_in_the_readme_and_tested() -> None:
    page, here = (FOLDER / "README.md").read_text("utf-8"), Path(__file__)
    beside = here.parents[1] / "dstreams/test_kinesis_example.py"
    tested = here.read_text("utf-8") + beside.read_text("utf-8")
    shown = "\n".join(commands(FOLDER / "README.md"))
    for name in PROGRAMS:
        assert f"[{name}]({name})" in page
        assert f"millrace exec examples/dstreams/{name}" in shown
        assert f'/ "{name}"' in tested


def test_network_word_count(play: Play, talker: Talker) -> None:
    running = play(FOLDER / "network_word_count.py", "127.0.0.1", talker.port)
    talker.say(*LINES)
    wait(lambda: sums(running.until()) == dict(words(*LINES)), running.until)
    running.stop()


def test_stateful_word_count(play: Play, talker: Talker, tmp_path: Path) -> None:
    running = play(FOLDER / "stateful_word_count.py", "127.0.0.1", talker.port, tmp_path / "checkpoint")
    running.until(r"^\('hello', 1\)$", r"^\('world', 1\)$")
    talker.say("hello spark")
    running.until(r"^\('hello', 2\)$", r"^\('spark', 1\)$")
    talker.say("hello")
    running.until(r"^\('hello', 3\)$")
    running.stop()


@pytest.mark.long
def test_windowed_word_count(play: Play, talker: Talker, tmp_path: Path) -> None:
    running = play(FOLDER / "windowed_word_count.py", "127.0.0.1", talker.port, tmp_path / "checkpoint")
    talker.say(*LINES)
    running.until(r"^\('apache', 2\)$", "^2 lines in the window$")
    # Five seconds later they have left the window, and a word that is gone is forgotten.
    nothing = r"-+\nTime: .*\n-+\n\n"
    running.until(rf"\('apache', 2\)\n(?s:.*){nothing}{nothing}")
    running.stop()


def test_file_stream(play: Play, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    running = play(FOLDER / "file_stream.py", folder)
    running.until("^Time: ")
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in LINES))
    (tmp_path / "lines.txt").rename(folder / "lines.txt")
    running.until(*COUNTED)
    running.stop()


def test_save_as_text_files(play: Play, talker: Talker, tmp_path: Path) -> None:
    running = play(FOLDER / "save_as_text_files.py", "127.0.0.1", talker.port, tmp_path / "counts")
    talker.say(*LINES)

    def written() -> Counter[str]:
        parts = [part for done in tmp_path.glob("counts-*.txt/_SUCCESS") for part in done.parent.glob("part-*")]
        return sums("\n".join(part.read_text() for part in parts))

    wait(lambda: written() == dict(words(*LINES)), lambda: str(written()))
    running.stop()


def test_foreach_rdd(play: Play, talker: Talker, tmp_path: Path) -> None:
    database = tmp_path / "counts.db"
    running = play(FOLDER / "foreach_rdd.py", "127.0.0.1", talker.port, database)
    talker.say(*LINES)

    def stored() -> set[tuple[str, int]]:
        try:
            with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
                return set(connection.execute("SELECT word, count FROM counts"))
        except sqlite3.OperationalError:  # there is no table yet
            return set()

    wait(lambda: stored() == words(*LINES), lambda: str(stored()))
    talker.say(LINES[0])
    wait(lambda: stored() == words(*LINES, LINES[0]), lambda: str(stored()))
    running.stop()


@pytest.mark.chaos
def test_recoverable_word_count(offline_millrace: CommandLine, talker: Talker, tmp_path: Path) -> None:
    """Killed and started again; and the page knows of batches, delays and rows."""
    port, output = free_port(), tmp_path / "counts.txt"
    program = (FOLDER / "recoverable_word_count.py", "127.0.0.1", talker.port, tmp_path / "checkpoint", output)
    running = Executed(offline_millrace, *program, options=("--port", str(port)))

    def written() -> list[str]:
        return output.read_text().splitlines() if output.exists() else []

    def await_line(pattern: str, times: int = 1) -> None:
        wait(lambda: sum(bool(re.search(pattern, line)) for line in written()) >= times, lambda: str(written()))

    try:
        talker.say("the apache spark", "an apache kafka")
        running.until("^Creating new context$")
        # What has been seen twice is in a checkpoint: state is kept with the batch, before the next one.
        await_line(r"\[\('apache', 2\), \('kafka', 1\), \('spark', 1\)\], 2 dropped$", 2)
        state = asked(port, "/api/state")
        (query,) = state["queries"]
        assert (query["name"], query["rows"], query["error"]) == ("dstreams", 2, None)
        assert query["delay_ms"] >= query["waited_ms"] >= 0
        history = asked(port, "/api/queries/dstreams")["history"]
        assert sum(batch["input_rows"] for batch in history) == 2
        assert all(batch["phase:schedulingDelay"] == batch["waited_ms"] for batch in history)
        figures = dict(re.findall(r"^(\w+)\{query=\"dstreams\"\} (\S+)$", told(port, "/metrics"), re.MULTILINE))
        assert figures["millrace_query_input_rows_total"] == "2"
        assert float(figures["millrace_query_total_delay_seconds"]) > 0
        running.kill()
        talker.hang_up()
        before = len(written())
        running = Executed(offline_millrace, *program)
        talker.say("a spark")
        await_line(r"\[\('apache', 2\), \('kafka', 1\), \('spark', 2\)\], 1 dropped$")
        assert "Creating new context" not in running.until()
        # No batch after the crash began with less than what was known.
        for line in written()[before:]:
            assert dict(ast.literal_eval(line[9 : line.index("]") + 1])).items() >= {("apache", 2), ("kafka", 1)}
        running.stop()
    finally:
        running.kill()


def told(port: int, path: str) -> str:
    """What the page's server answers."""
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def asked(port: int, path: str) -> dict[str, Any]:
    """The same, of JSON."""
    found: dict[str, Any] = json.loads(told(port, path))
    return found


def in_kafka(cluster: Cluster, *lines: str) -> str:
    """A new topic with these lines."""
    name = f"lines-{uuid.uuid4().hex[:8]}"
    topics.create(cluster, name, 2)
    producer = Producer(cluster, name)
    producer.send([Record(line.encode()) for line in lines])
    producer.close()
    return name


def test_kafka_direct(play: Play, cluster: Cluster) -> None:
    lines = (FOLDER / "data/shakespeare.txt").read_text().splitlines()
    topic = in_kafka(cluster, *lines)
    running = play(FOLDER / "kafka_direct.py", cluster.bootstrap, topic)
    said = Counter(word.strip(",.;:?!'") for line in lines for word in line.lower().split(" "))
    best = sorted(said.items(), key=lambda pair: (-pair[1], pair[0]))[:10]
    printed = running.until("".join(rf"^\('{word}', {count}\)\n" for word, count in best))
    ends = re.findall(rf"^{topic} \d: 0 to (\d+)$", printed, re.MULTILINE)
    assert sum(map(int, ends)) == len(lines)
    running.stop()


def test_kafka_receiver(play: Play, cluster: Cluster) -> None:
    topic = in_kafka(cluster, *LINES)
    running = play(FOLDER / "kafka_receiver.py", cluster.bootstrap, f"group-{topic}", topic)
    wait(lambda: sums(running.until()) == dict(words(*LINES)), running.until)
    running.stop()


def test_sparks_network_wordcount(play: Play, talker: Talker) -> None:
    running = play(sparks_own("network_wordcount.py"), "127.0.0.1", talker.port)
    talker.say(*LINES)
    wait(lambda: sums(running.until()) == dict(words(*LINES)), running.until)
    running.stop()


@pytest.mark.chaos
def test_sparks_stateful_network_wordcount(play: Play, talker: Talker) -> None:
    running = play(sparks_own("stateful_network_wordcount.py"), "127.0.0.1", talker.port)
    talker.say("hello spark")
    running.until(r"^\('hello', 2\)$", r"^\('world', 1\)$", r"^\('spark', 1\)$")
    running.stop()


@pytest.mark.chaos
def test_sparks_hdfs_wordcount(play: Play, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    running = play(sparks_own("hdfs_wordcount.py"), folder)
    running.until("^Time: ")
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in LINES))
    (tmp_path / "lines.txt").rename(folder / "lines.txt")
    running.until(*COUNTED)
    running.stop()


@pytest.mark.chaos
@pytest.mark.parametrize("play", ["exec"], indirect=True)  # its file is beside the program: Spark must be started there
def test_sparks_network_wordjoinsentiments(play: Play, talker: Talker, tmp_path: Path) -> None:
    (tmp_path / "data/streaming").mkdir(parents=True)
    (tmp_path / "data/streaming/AFINN-111.txt").write_text("good 3\nbad -3\n")  # Spark's file is not in the package
    running = play(sparks_own("network_wordjoinsentiments.py"), "127.0.0.1", talker.port)
    talker.say("good good bad", "indifferent")
    running.until(r"^good \(6 happiness\)$", r"^bad \(-3 happiness\)$")
    running.stop()


@pytest.mark.chaos
def test_sparks_sql_network_wordcount(play: Play, talker: Talker) -> None:
    running = play(sparks_own("sql_network_wordcount.py"), "127.0.0.1", talker.port)
    talker.say(*LINES)
    running.until(r"^\|apache\| +2\|$", r"^\| *kafka\| +1\|$", r"^\| *spark\| +1\|$")
    running.stop()


@pytest.mark.chaos
def test_sparks_recoverable_network_wordcount(offline_millrace: CommandLine, talker: Talker, tmp_path: Path) -> None:
    line = (sparks_own("recoverable_network_wordcount.py"), "127.0.0.1", talker.port, tmp_path / "c", tmp_path / "out")
    for new in (True, False):
        running = Executed(offline_millrace, *line)
        try:
            talker.say("a apache")
            printed = running.until(r"Counts at time .*\('apache', 1\)", r"^Dropped 1 word\(s\) totally$")
            assert ("Creating new context" in printed) is new
            running.stop()
            talker.hang_up()
        finally:
            running.kill()


@pytest.mark.chaos
def test_sparks_queue_stream(offline_millrace: CommandLine) -> None:
    ran = offline_millrace("exec", "--no-dashboard", str(sparks_own("queue_stream.py")))
    assert len(re.findall(r"^\(0, 100\)$", ran.stdout, re.MULTILINE)) == 5
    assert re.search(r"^dstreams: stopped after", ran.stderr, re.MULTILINE)

"""Plain PySpark programs, unchanged: Spark's own examples, and small ones that look at what is around them."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from importlib import util
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cli.conftest import Run, Start
from conftest import CommandLine
from millrace.clients.kafka.cluster import Cluster
from millrace.services.kafka import KafkaCluster

Program = Callable[[str], Path]


def example(name: str) -> str:
    """One of the programs that PySpark carries."""
    spec = util.find_spec("pyspark")
    assert spec
    assert spec.origin
    return str(Path(spec.origin).parent / "examples/src/main/python/sql/streaming" / name)


def until(running: subprocess.Popen[bytes], *wanted: str) -> None:
    """Read what a program prints until every pattern has been seen."""
    assert running.stdout
    seen = ""
    for line in running.stdout:
        seen += line.decode()
        if all(re.search(pattern, seen, re.MULTILINE) for pattern in wanted):
            return
    raise AssertionError(f"it ended: {seen}\n{running.communicate()[1].decode()}")


def ended(running: subprocess.Popen[bytes], number: int) -> str:
    """Interrupt a program that shows its queries; gives what it wrote to standard error."""
    running.send_signal(number)
    err = running.communicate(timeout=120)[1].decode()
    assert running.returncode == 128 + number, err
    assert "Traceback" not in err
    assert re.search(r"^query 1: started$", err, re.MULTILINE)
    assert re.search(r"^query 1: stopped after [\d,]+ rows in \d+ batch", err, re.MULTILINE)
    return err


@pytest.fixture
def words() -> Iterator[int]:
    """The port of a server that sends a few words to whoever connects, and stays."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connections.append(server.accept()[0])
                except OSError:
                    return
                connections[-1].sendall(b"apache spark\napache kafka\n" * 2)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in connections:
            connection.close()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A program in a folder of its own."""

    def write(text: str) -> Path:
        path = tmp_path / "programs" / "mine.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.mark.long
def test_kafka_wordcount(start: Start, cluster: Cluster, topic: str) -> None:
    running = start("exec", example("structured_kafka_wordcount.py"), cluster.bootstrap, "subscribe", topic)
    until(running, "^Batch: 0$")
    producer = Producer(cluster.config())
    for line in ("apache spark", "apache kafka"):
        producer.produce(topic, line)
    producer.flush()
    until(running, r"^\|apache\| +2\|$", r"^\| *kafka\| +1\|$", r"^\| *spark\| +1\|$")
    ended(running, signal.SIGINT)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        pytest.param(
            "structured_network_wordcount.py",
            (),
            (r"^\|apache\| +4\|$", r"^\| *kafka\| +2\|$"),
            marks=pytest.mark.chaos,
        ),
        ("structured_network_wordcount_windowed.py", ("100000", "50000"), (r"^\|\{.+\} *\|apache *\|4 *\|$",)),
        pytest.param(
            "structured_network_wordcount_session_window.py",
            (),
            (r"^\| +apache\| +4\|.+\|$", r"^\| +kafka\| +2\|.+\|$"),
            marks=pytest.mark.chaos,
        ),
    ],
)
def test_programs_that_read_a_socket(
    start: Start, words: int, name: str, more: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    quick = ("--set", "spark.sql.shuffle.partitions=1")
    running = start("exec", *quick, example(name), "127.0.0.1", str(words), *more)
    until(running, *expected)
    ended(running, signal.SIGTERM)


@pytest.mark.long
def test_what_a_program_says_wins_and_what_it_prints_is_seen(millrace: CommandLine, program: Program) -> None:
    script = program(
        """
from pyspark.sql import SparkSession
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "7").getOrCreate()
for key in ("sql.shuffle.partitions", "ui.enabled", "mine", "master"):
    print(key, spark.conf.get("spark." + key))
spark.range(1).foreach(lambda row: print("from a worker"))
spark.readStream.format("nope").load()
"""
    )
    options = ("--master", "local[2]", "--set", "spark.mine=1", "--set", "spark.sql.shuffle.partitions=9")
    with millrace.start("exec", "--no-dashboard", *options, "--log", "my.log", str(script)) as running:
        out, err = (text.decode() for text in running.communicate(timeout=170))
    assert running.returncode == 1
    assert out.splitlines() == ["sql.shuffle.partitions 7", "ui.enabled false", "mine 1", "master local[2]"]
    assert err.startswith("from a worker\nTraceback (most recent call last):\n")
    assert f'File "{script}", line 7, in <module>' in err.splitlines()[2]
    assert "DATA_SOURCE_NOT_FOUND" in err
    assert "\tat " not in err
    assert "runpy" not in err
    assert (millrace.folder / "my.log").exists()


def test_everything_after_the_name_is_the_programs(offline_millrace: CommandLine, program: Program) -> None:
    script = program("import sys, mine_too\nprint(__name__, *sys.argv[1:], mine_too.X)\nsys.exit(3)\n")
    (script.parent / "mine_too.py").write_text("X = 5\n")
    ran = offline_millrace("exec", str(script), "--help", "--set", "-x", "--", "y", code=3)
    assert ran.stdout == "__main__ --help --set -x -- y 5\n"
    assert ran.stderr == ""
    assert not (offline_millrace.folder / ".millrace").exists()


def test_exit_codes(offline_millrace: CommandLine, program: Program) -> None:
    assert offline_millrace("exec", str(program("print(1)"))).stdout == "1\n"
    assert offline_millrace("exec", str(program("import sys; sys.exit('no')")), code=1).stderr == "no\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_may_end_in_its_own_way(offline_millrace: CommandLine, program: Program, number: int) -> None:
    waits = "import time\ntry:\n    print('here', flush=True)\n    time.sleep(100)\nfinally:\n    print('tidy')\n"
    with offline_millrace.start("exec", str(program(waits))) as running:
        until(running, "^here$")
        running.send_signal(number)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (128 + number, b"tidy\n", b"")


def test_mistakes_of_a_program_are_shown_as_python_shows_them(offline_millrace: CommandLine, program: Program) -> None:
    for text, shown in (("def f():\n    1 / 0\nf()\n", "ZeroDivisionError: division by zero"), ("if", "SyntaxError")):
        script = program(text)
        with offline_millrace.start("exec", str(script)) as running:
            err = running.communicate(timeout=60)[1].decode()
        assert running.returncode == 1
        assert shown in err.splitlines()[-1]
        assert str(script) in err.splitlines()[0 if text == "if" else 1]
        assert "runpy" not in err
        assert "millrace/" not in err


def test_what_spark_refuses_of_dstreams_is_one_message(offline_millrace: CommandLine, program: Program) -> None:
    said = "windowDuration must be multiple of the parent dstream's slide (batch) duration (2000 ms)"
    script = program(f'raise ValueError("{said}")\n')
    with offline_millrace.start("exec", "--no-dashboard", str(script)) as running:
        err = running.communicate(timeout=60)[1].decode()
    assert running.returncode == 2
    assert "dstreams.invalid" in err
    assert f"{script}:1" in err
    assert "Traceback" not in err


def test_what_cannot_be_run(offline_run: Run, tmp_path: Path) -> None:
    assert "file.unusable" in offline_run("exec", "nothing.py", code=2).err
    (tmp_path / "mine.py").write_text("")
    assert "option.invalid" in offline_run("exec", "--set", "x", "mine.py", code=2).err


def test_our_own_kafka_is_named_to_the_program(
    offline_millrace: CommandLine, broker: KafkaCluster, cluster: Cluster, program: Program
) -> None:
    script = str(program("import os\nprint(os.environ.get('MILLRACE_KAFKA'))\n"))
    assert offline_millrace("exec", "--data", str(broker.folder), script).stdout == f"{cluster.bootstrap}\n"
    assert offline_millrace("exec", script, MILLRACE_KAFKA="mine:1").stdout == "mine:1\n"
    assert offline_millrace("exec", script).stdout == "None\n"


@pytest.mark.parametrize(
    ("written", "raised"),
    [
        (
            "from pyspark.streaming.kafka import KafkaUtils\n",
            "ModuleNotFoundError: No module named 'pyspark.streaming.kafka'",
        ),
        (  # as Py4J says it of a class that no jar has; without a Spark to say it
            "import pyspark.streaming.kinesis\nraise TypeError(\"'JavaPackage' object is not callable\")\n",
            "TypeError: 'JavaPackage' object is not callable",
        ),
    ],
    ids=["KafkaUtils", "KinesisUtils"],
)
def test_who_imports_from_where_pyspark_had_it_is_told_where_it_is(
    offline_millrace: CommandLine, program: Program, written: str, raised: str, request: pytest.FixtureRequest
) -> None:
    with offline_millrace.start("exec", "--no-dashboard", str(program(written))) as running:
        err = running.communicate(timeout=100)[1].decode()
    assert running.returncode == 1
    assert raised in err
    assert f"from millrace.dstreams import {request.node.callspec.id}" in err


@pytest.mark.chaos
def test_a_program_without_a_session_ends_without_a_trace(offline_millrace: CommandLine, program: Program) -> None:
    script = program("from pyspark import SparkContext\nsc = SparkContext()\nprint(sc.parallelize(range(5)).sum())\n")
    ran = offline_millrace("exec", "--no-dashboard", str(script))
    assert (ran.stdout, ran.stderr) == ("10\n", "")


@pytest.mark.chaos
def test_a_batch_of_dstreams_that_fails_ends_the_program(offline_millrace: CommandLine, program: Program) -> None:
    script = program(
        """
from pyspark import SparkContext
from pyspark.streaming import StreamingContext
sc = SparkContext()
ssc = StreamingContext(sc, 1)
ssc.queueStream([sc.parallelize([1, 0])]).map(lambda number: 1 / number).pprint()
ssc.start()
ssc.awaitTermination()
"""
    )
    with offline_millrace.start("exec", "--no-dashboard", str(script)) as running:
        err = running.communicate(timeout=170)[1].decode()
    assert running.returncode == 1
    assert f'File "{script}", line 8, in <module>' in err
    assert "ZeroDivisionError" in err
    assert "\tat " not in err
    assert re.search(r"^dstreams: (?:a batch failed|failed after .*): .*ZeroDivisionError", err, re.MULTILINE)

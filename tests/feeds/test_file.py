import os
import threading

import pytest

from millrace.clients.kafka.record import Record
from millrace.errors import FileUnusable, InvalidOption
from millrace.feeds.base.api import Run
from millrace.feeds.base.pump import pump
from millrace.feeds.file import File


@pytest.fixture
def write(tmp_path):
    def write(data: bytes) -> str:
        path = tmp_path / "lines"
        path.write_bytes(data)
        return str(path)

    return write


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return str(path)


@pytest.fixture
def typing():
    """Standard input, as a function that types into it."""
    before = os.dup(0)
    read, write = os.pipe()
    os.dup2(read, 0)
    os.close(read)
    with os.fdopen(write, "wb", buffering=0) as keyboard:
        yield keyboard
    os.dup2(before, 0)
    os.close(before)


def values(feed: File, run: Run | None = None) -> list[bytes]:
    return [record.value for batch in feed.batches(run or Run()) for record in batch.records]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"\n\na\n\n", [b"", b"", b"a", b""]),
        (b"a\rb\r\r\n", [b"a\rb\r"]),
        (b"\xff\xfe\x00\n\xef\xbb\xbfa\n", [b"\xff\xfe\x00", b"\xef\xbb\xbfa"]),
    ],
)
def test_a_record_is_a_line_as_it_is(write, data, lines):
    assert values(File(write(data))) == lines


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_lines_do_not_depend_on_how_they_are_read(write, monkeypatch, size):
    monkeypatch.setattr("millrace.clients.line_input._BLOCK", size)
    assert values(File(write(b"one\r\n\ntwo\nthree\r\nfour"))) == [b"one", b"", b"two", b"three", b"four"]


def test_a_missing_file_is_unusable(tmp_path):
    with pytest.raises(FileUnusable):
        values(File(str(tmp_path / "none")))


def test_a_directory_is_unusable(tmp_path):
    with pytest.raises(FileUnusable):
        values(File(str(tmp_path)))


def test_a_loop_begins_anew(write, sink):
    pump(File(write(b"a\nb"), loop=True), sink, Run(count=5))
    assert [record.value for record in sink.records] == [b"a", b"b", b"a", b"b", b"a"]


def test_an_empty_file_cannot_loop(write):
    with pytest.raises(FileUnusable):
        values(File(write(b""), loop=True))


def test_a_pipe_cannot_loop(pipe):
    with pytest.raises(InvalidOption):
        values(File(pipe, loop=True))


def test_a_key_is_a_field(write):
    said: list[str] = []
    data = b'{"id":"x"}\n{"id":7}\n{"id":null}\n{}\n[1]\nnot json\n"id"\n'
    batch = next(File(write(data), key="id").batches(Run(notify=said.append)))
    assert batch.records[:2] == [Record(b'{"id":"x"}', b"x"), Record(b'{"id":7}', b"7")]
    assert [record.key for record in batch.records[2:]] == [None] * 5
    assert len(said) == 1
    assert said[0].startswith("line 3 ")


def test_lines_of_a_pipe_come_as_they_are_written(typing):
    batches = File("-").batches(Run())
    typing.write(b"one\ntw")
    assert next(batches).records == [Record(b"one")]
    typing.write(b"o\n")
    assert next(batches).records == [Record(b"two")]
    typing.write(b"three")
    typing.close()
    assert next(batches).records == [Record(b"three")]
    assert list(batches) == []


def test_a_silent_pipe_ends_with_the_run(typing):
    run = Run()
    threading.Timer(0.01, run.stop.set).start()
    assert values(File("-"), run) == []


def test_a_half_line_is_not_sent_when_the_run_stops(typing):
    run = Run()
    typing.write(b"one\nhal")
    batches = File("-").batches(run)
    assert next(batches).records == [Record(b"one")]
    run.stop.set()
    assert list(batches) == []


def test_a_named_pipe_that_nobody_writes_to_ends_with_the_run(pipe):
    run = Run()
    threading.Timer(0.01, run.stop.set).start()
    assert values(File(pipe), run) == []


def test_a_named_pipe_is_read_to_its_end(pipe):
    def write() -> None:
        with open(pipe, "wb") as file:  # noqa: PTH123 - opened for its effect on the reader
            file.write(b"a\nb\n")

    writer = threading.Thread(target=write)
    writer.start()
    assert values(File(pipe)) == [b"a", b"b"]
    writer.join()

"""Whatever a pipeline's file does, `millrace check` ends in one error with its place, and leaves no process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from conftest import MILLRACE, CommandLine
from millrace.errors import InvalidDefinition
from millrace.pipeline.loading import load

SOUND = """\
import millrace as mr
p = mr.Pipeline("p")
p.source("a", mr.kafka("a", format="text"))
p.sink("a", mr.console())
"""
HELD = """\
import re
re.match("(a|a)*$", "a" * 60 + "b")
"""
"""A call that keeps Python's lock: no other thread of Python's can say where it is."""
RAISES = {
    "an exception that cannot be printed": (
        "class Odd(Exception):\n    def __str__(self):\n        raise ValueError\n\nraise Odd\n",
        5,
    ),
    "one whose text ends the process": (
        "class Odd(Exception):\n    def __str__(self):\n        raise SystemExit(0)\n\nraise Odd\n",
        5,
    ),
    "one whose text is no text": ("class Odd(Exception):\n    def __str__(self):\n        return 3\n\nraise Odd\n", 5),
    "half a character": ("x = 1\nraise ValueError('\\ud800 \\x1b[2J')\n", 2),
    "a text without end": ("raise ValueError('x' * 10**7)\n", 1),
    "an exception of no kind": ("class Odd(BaseException):\n    pass\n\nraise Odd('no')\n", 4),
    "KeyboardInterrupt": ("x = 1\nraise KeyboardInterrupt\n", 2),
    "Ctrl-C by itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True:\n    pass\n", None),
    "SystemExit": ("raise SystemExit(0)\n", 1),
    "SystemExit with anything": (
        "class Odd:\n    def __repr__(self):\n        raise ValueError\n\nraise SystemExit(Odd())\n",
        5,
    ),
    "GeneratorExit": ("raise GeneratorExit\n", 1),
    "a syntax error of its own": ("error = SyntaxError('no')\nerror.filename = error.msg = object()\nraise error\n", 3),
    "endless recursion": ("def f():\n    return f()\n\nf()\n", 2),
    "all memory": ("kept = []\nwhile True:\n    kept.append(bytes(1 << 28))\n", 3),
    "a read of an input that has ended": ("input()\n", 1),
    "an import that is not there": ("import nothing_of_this_name\n", 1),
    "modules that are gone": ("import sys\nsys.modules.clear()\nimport json\n", None),
}
ENDS = {
    "os._exit": ("import os\n\nos._exit(0)\n", 3),
    "posix._exit": ("import posix\nposix._exit(0)\n", 2),
    "os._exit in a function": ("import os\ndef f():\n    os._exit(0)\nf()\n", 3),
    "os._exit in a thread": (
        "import os, threading\none = threading.Thread(target=lambda: os._exit(0))\none.start()\none.join()\n",
        2,
    ),
    "exit of the C library": ("import ctypes\nctypes.CDLL(None)._exit(0)\n", None),
    "SIGKILL": ("import os\nos.kill(os.getpid(), 9)\n", 2),
    "SIGTERM": ("import signal\nsignal.raise_signal(signal.SIGTERM)\n", 2),
    "an alarm": ("import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.1)\nwhile True:\n    pass\n", (3, 4)),
    "its process group": ("import os\nos.killpg(0, 9)\n", 2),
    "a crash": ("import ctypes\nctypes.string_at(0)\n", 2),
    "abort": ("import os\nos.abort()\n", 2),
    "another program": ("import os\nos.execv('/bin/true', ['true'])\n", 2),
    "a daemon's fork": ("import os\nif os.fork():\n    os._exit(0)\n", 3),
}
STUCK = {
    "a loop": ("while True:\n    pass\n", (1, 2)),
    "a sleep": ("import time\ntime.sleep(1e9)\n", 2),
    "a call that keeps Python's lock": (HELD, 2),
    "a lock": ("import threading\nthreading.Lock().acquire()\nthreading.Event().wait()\n", 3),
    "a process of its own": ("import subprocess\nsubprocess.run(['sleep', '1000'])\n", 2),
    "signals that are ignored": (
        "import signal, time\nfor one in (1, 2, 15):\n    signal.signal(one, signal.SIG_IGN)\ntime.sleep(1e9)\n",
        4,
    ),
    "a timer that it cancels": (
        "import faulthandler, time\nfaulthandler.cancel_dump_traceback_later()\ntime.sleep(1e9)\n",
        None,
    ),
    "a stop": ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n", None),
    "a flood": ("while True:\n    print('x' * 1000)\n", None),  # it may be cut off between two lines
    "many threads": (
        "import threading\nfor _ in range(20):\n    threading.Timer(1e6, print).start()\nthreading.Event().wait()\n",
        4,
    ),
}
HARMLESS = {
    "threads that stay": "import threading, time\nthreading.Thread(target=time.sleep, args=(1e9,)).start()\n",
    "a process that stays": "import subprocess\nsubprocess.Popen(['sleep', '1000'])\n",
    "a fork that stays": "import os, time\nif not os.fork():\n    time.sleep(1000)\n",
    "a fork that goes on": "import os\nos.fork()\n",
    "closed files": "import os\nos.closerange(0, 4096)\n",
    "another standard output": "import sys\nsys.stdout = sys.stderr = None\n",
    "an output that fails": (
        "import sys\nclass Odd:\n    __hash__ = None\n    def flush(self):\n        raise KeyboardInterrupt\n"
        "    write = flush\nsys.stdout = Odd()\n"
    ),
    "a module of Python's": "import sys\nsys.modules['json'] = sys.modules['traceback'] = None\n",
    "functions of Python's": "import os, sys\nos.getpid = os.write = sys.exit = None\n",
}


class Attacked:
    """A `millrace check` whose processes can be found."""

    def __init__(self, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = folder
        self.run = CommandLine(folder, os.environ | {"ATTACKED": self.mark})

    def write(self, code: str) -> None:
        (self.folder / "p.py").write_text(code)

    def processes(self) -> list[psutil.Process]:
        """Those that the command has started, and which are not gone."""
        found = []
        for one in psutil.process_iter():
            try:
                if one.environ().get("ATTACKED") == self.mark and one.status() != psutil.STATUS_ZOMBIE:
                    found.append(one)
            except psutil.Error:
                continue
        return found


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the time limit of the test ends it."""
    while not condition():
        time.sleep(0.02)


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[Attacked]:
    """At the end of the test nothing may be left of it."""
    made = Attacked(tmp_path)
    yield made
    until(lambda: not made.processes())


def one_error(said: str, condition: str, line: int | tuple[int, ...] | None) -> None:
    """There is one error, with its condition and place."""
    (first, *others) = [text for text in said.splitlines() if re.match(r"p\.py(:\d+)?: error\[", text)]
    assert others == []
    assert f"error[{condition}]" in first
    found = re.match(r"p\.py:(\d+):", first)
    lines = line if isinstance(line, tuple) else (line,)
    assert (int(found[1]) if found else None) in lines or line is None, first
    assert said.splitlines()[-1] == "p.py: 1 error"


@pytest.mark.parametrize("name", RAISES)
def test_what_a_file_raises(attacked: Attacked, name: str) -> None:
    code, line = RAISES[name]
    attacked.write(code)
    ran = attacked.run("check", "p.py", code=2)
    one_error(ran.stdout, "pipeline.invalid", line)
    assert len(ran.stdout) < 5000


@pytest.mark.parametrize("name", ENDS)
def test_what_ends_the_process(attacked: Attacked, name: str) -> None:
    code, line = ENDS[name]
    attacked.write(code + SOUND)
    one_error(attacked.run("check", "p.py", code=2).stdout, "pipeline.ended", line)


@pytest.mark.long
@pytest.mark.parametrize("name", STUCK)
def test_what_never_returns(attacked: Attacked, name: str) -> None:
    code, line = STUCK[name]
    attacked.write(code)
    ran = attacked.run("check", "--timeout", "2s", "p.py", code=2)
    one_error(
        ran.stdout[ran.stdout.rindex("p.py:", 0, -20) :] if name == "a flood" else ran.stdout, "pipeline.timeout", line
    )


def test_an_input_that_does_not_come(attacked: Attacked) -> None:
    attacked.write("import sys\nsys.stdin.read()\n")
    with attacked.run.start("check", "--timeout", "1s", "p.py") as process:
        assert process.stdout
        said = process.stdout.read().decode()
    one_error(said, "pipeline.timeout", 2)
    assert process.returncode == 2


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_no_harm(attacked: Attacked, name: str) -> None:
    attacked.write(HARMLESS[name] + SOUND)
    assert attacked.run("check", "p.py").stdout.splitlines()[-1] == "p.py: no problems (1 source, 0 tables, 1 sink)"


@pytest.mark.parametrize(
    ("code", "condition", "line"),
    [
        (ENDS["os._exit"][0], "pipeline.ended", 3),
        (STUCK["a sleep"][0], "pipeline.timeout", 2),
        (RAISES["half a character"][0], "pipeline.invalid", 2),
        ("import os\nos.write(1, b'not JSON')\nos._exit(0)\n", "pipeline.ended", 3),
    ],
)
def test_json_has_the_problem(attacked: Attacked, code: str, condition: str, line: int) -> None:
    attacked.write(code)
    (told,) = json.loads(attacked.run("check", "--json", "--timeout", "1s", "p.py", code=2).stdout)
    assert (told["condition"], told["file"], told["line"], told["severity"]) == (condition, "p.py", line, "error")
    assert told["hint"]


def test_a_name_that_is_not_ascii(attacked: Attacked) -> None:
    (attacked.folder / "größe ☃.py").write_text("import time\n\ntime.sleep(1e9)\n")
    (told,) = json.loads(attacked.run("check", "--json", "--timeout", "1s", "größe ☃.py", code=2).stdout)
    assert (told["file"], told["line"]) == ("größe ☃.py", 3)


def test_the_line_of_the_file_that_leads_to_another(attacked: Attacked) -> None:
    (attacked.folder / "helper.py").write_text("import time\ndef wait():\n    time.sleep(1e9)\n")
    attacked.write("import helper\n\nhelper.wait()\n")
    (told,) = json.loads(attacked.run("check", "--json", "--timeout", "1s", "p.py", code=2).stdout)
    assert (told["line"], told["condition"]) == (3, "pipeline.timeout")
    assert "helper.py:3 in wait" in told["why"]


def test_the_time_is_a_setting(attacked: Attacked) -> None:
    attacked.write(STUCK["a sleep"][0])
    one_error(attacked.run("check", "p.py", code=2, MILLRACE_CHECK_TIMEOUT="1s").stdout, "pipeline.timeout", 2)
    assert "error[option.invalid]" in attacked.run("check", "--timeout", "0s", "p.py", code=2).stderr
    assert "error[setting.invalid]" in attacked.run("check", "p.py", code=2, MILLRACE_CHECK_TIMEOUT="soon").stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_at_once(attacked: Attacked, number: signal.Signals) -> None:
    attacked.write(
        "import subprocess, time\nsubprocess.Popen(['sleep', '1000'])\nopen('reached', 'w')\ntime.sleep(1e9)\n"
    )
    with attacked.run.start("check", "--timeout", "1000s", "p.py") as process:
        until((attacked.folder / "reached").exists)
        process.send_signal(number)
        said, complained = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in said + complained


def test_a_check_that_is_killed_leaves_nothing_for_long(attacked: Attacked) -> None:
    attacked.write("import time\nopen('reached', 'w')\ntime.sleep(1e9)\n")
    with attacked.run.start("check", "--timeout", "2s", "p.py") as process:
        until((attacked.folder / "reached").exists)
        process.kill()


def test_a_report_that_is_none(attacked: Attacked) -> None:
    forged = (
        "import gc, mmap, os, struct\n"
        "(board,) = [one for one in gc.get_objects() if isinstance(one, mmap.mmap)] or [None]\n"
    )
    attacked.write(
        forged + "report = b'{\"problems\": [3]}'\nboard[4096:4096 + len(report)] = report\n"
        "board[:16] = struct.pack('=QQ', 0, len(report))\nimport ctypes\nctypes.CDLL(None)._exit(0)\n"
    )
    ran = attacked.run("check", "p.py", code=2)
    assert "p.py: 1 error" in ran.stdout


@pytest.mark.parametrize(
    "name", ["KeyboardInterrupt", "SystemExit", "an exception that cannot be printed", "endless recursion"]
)
def test_where_the_file_is_read_in_the_process(tmp_path: Path, name: str) -> None:
    code, line = RAISES[name]
    (tmp_path / "p.py").write_text(code)
    with pytest.raises(InvalidDefinition) as raised:
        load(str(tmp_path / "p.py"))
    assert raised.value.place
    assert raised.value.place.line == line


def test_an_interrupt_of_the_users_stays_one(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("import time\nopen('reached', 'w')\ntime.sleep(1e9)\n")
    program = (
        "from millrace.pipeline.loading import load\n"
        "try:\n    load('p.py')\nexcept KeyboardInterrupt:\n    print('stopped')\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        until((tmp_path / "reached").exists)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
    assert said == b"stopped\n"


def test_run_and_plan_have_the_place_too(attacked: Attacked) -> None:
    for name in ("KeyboardInterrupt", "one whose text ends the process"):
        code, line = RAISES[name]
        attacked.write(code)
        for command in (("plan", "p.py"), ("run", "p.py", "--no-dashboard")):
            said = attacked.run(*command, code=2).stderr
            assert f"p.py:{line}: error[pipeline.invalid]" in said


def test_what_a_file_prints_comes_first(attacked: Attacked) -> None:
    attacked.write("print('here I am')\n" + SOUND)
    assert attacked.run("check", "p.py").stdout.splitlines()[0] == "here I am"
    checked = attacked.run("check", "--json", "p.py")
    assert (json.loads(checked.stdout), checked.stderr) == ([], "here I am\n")


def test_a_file_without_end(attacked: Attacked) -> None:
    (attacked.folder / "zero.yaml").symlink_to("/dev/zero")
    with (attacked.folder / "p.py").open("wb") as large, (attacked.folder / "p.yaml").open("wb") as other:
        large.truncate(1 << 40)
        other.truncate(1 << 40)
    os.mkfifo(attacked.folder / "pipe.py")
    for name in ("/dev/zero", "zero.yaml", "p.py", "pipe.py"):
        assert "error[file.unusable]" in attacked.run("check", name, code=2).stderr
    assert "p.yaml: error[file.too-large]" in attacked.run("check", "p.yaml", code=2).stdout


def test_code_that_says_it_is_of_a_device(attacked: Attacked) -> None:
    code = "exec(compile('def t(a):\\n    return a', '/dev/zero', 'exec'))\np.table(t)\n"
    attacked.write(SOUND + code)
    said = attacked.run("check", "p.py").stdout
    assert said.splitlines()[-1] == "p.py: 1 warning (1 source, 1 table, 1 sink)"


WITH_SECRET = "name: p\nsources:\n  a: {kafka: '${%s}', format: text}\nsinks: [{from: a, console: }]\n"
SOUND_YAML = "p.yaml: no problems (1 source, 0 tables, 1 sink)\n"


def test_a_secret_without_end(attacked: Attacked) -> None:
    (attacked.folder / "p.yaml").write_text(WITH_SECRET % "file:/dev/zero")
    said = attacked.run("check", "p.yaml", code=2).stdout
    assert "p.yaml:3: error[file.unusable]" in said
    assert "larger than" in said


def test_a_secret_in_a_named_pipe(attacked: Attacked) -> None:
    pipe = attacked.folder / "secret"
    os.mkfifo(pipe, 0o600)
    (attacked.folder / "p.yaml").write_text(WITH_SECRET % f"file:{pipe}")
    assert "error[pipeline.timeout]" in attacked.run("check", "--timeout", "1s", "p.yaml", code=2).stdout
    writer = threading.Thread(target=pipe.write_text, args=("posts-of-all\n",))
    writer.start()
    assert attacked.run("check", "p.yaml").stdout == SOUND_YAML
    writer.join()


def test_a_secret_of_a_substituted_process(attacked: Attacked) -> None:
    (attacked.folder / "p.yaml").write_text(WITH_SECRET % "PW")
    command = f"PW_FILE=<(sleep 0.2; echo posts-of-all) {MILLRACE} check p.yaml"
    ran = subprocess.run(["bash", "-c", command], cwd=attacked.folder, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, SOUND_YAML), ran.stderr

"""The life of a service that Millrace starts: a Kafka broker or Cassandra, one or more processes with a data folder.

- `Embedded` locks the folder, launches the processes, waits until they answer, and stops them.
- `Description` is the file in the folder that tells other programs the address and the processes of the service.
- `stop_service` stops the service of a folder from another program.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from millrace.atomic_files import write_whole
from millrace.errors import FileUnusable, MillraceError, ServiceFailed
from millrace.locks import FolderLock
from millrace.services import jars
from millrace.services.certificates import Certificates
from millrace.services.java import Java, find_java
from millrace.services.process import Child, Identity


@dataclass(frozen=True, kw_only=True)
class Description(ABC):
    """The description of a service on disk; its processes have numbers."""

    file: ClassVar[str]
    what: ClassVar[str]
    """What the folder of one holds, in a word."""
    mismatch: ClassVar[type[MillraceError]]
    """The error of a folder that holds something else."""

    password: str
    secure: bool = False

    @property
    @abstractmethod
    def address(self) -> str:
        """Where clients reach it."""

    @abstractmethod
    def processes(self) -> dict[int, Identity]:
        """Those that are noted, whether they still run or not."""

    @abstractmethod
    def with_process(self, number: int, process: Identity | None, /) -> Self:
        """The same with another process."""

    @classmethod
    @abstractmethod
    def parsed(cls, content: dict[str, Any]) -> Self:
        """One from the content of its file; raises what Python does when that is something else."""

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Return the service of a folder, or None if the folder is new."""
        path = folder / cls.file
        if not path.exists():
            cls._require_empty(folder)
            return None
        try:
            return cls.parsed(json.loads(path.read_text("utf-8")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"{type(error).__name__}: {error}"
            raise cls.mismatch(f"{path} cannot be read", why=why, hint="choose another --data folder") from None

    @classmethod
    def running(cls, folder: Path) -> Self | None:
        """The service that runs in a folder, or None when none does."""
        service = cls.load(folder) if (folder / cls.file).exists() else None
        return service if service and service.alive() else None

    def save(self, folder: Path) -> None:
        """Write it; it holds a password."""
        write_whole(folder / self.file, json.dumps(asdict(self), indent=2), private=True)

    def alive(self) -> dict[int, Identity]:
        """The processes that run now."""
        return {number: process for number, process in self.processes().items() if process.process()}

    def stop(self, folder: Path) -> list[int]:
        """Stop its processes, also if another process started them; return the numbers of those that ran."""
        alive, stopped = self.alive(), self
        with ThreadPoolExecutor(max(1, len(alive))) as pool:
            list(pool.map(Identity.stop, alive.values()))
        for number in alive:
            stopped = stopped.with_process(number, None)
        stopped.save(folder)
        return list(alive)

    @classmethod
    def _require_empty(cls, folder: Path) -> None:
        """A draft of the file is what a start leaves that was killed before it had begun."""
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        foreign = sorted(name for name in names if name != "lock" and not name.startswith(f".{cls.file}."))
        if foreign:
            raise cls.mismatch(
                f"{folder} is not empty and holds no {cls.what} of Millrace",
                why=f"it has {', '.join(foreign[:4])}" + (", …" if len(foreign) > 4 else ""),
                hint="choose another --data folder, or an empty one",
            )


_TRIES = 3
"""How often a start is tried when somebody takes a free port between its choice and its use."""

Notify = Callable[[str], None]
Layout = TypeVar("Layout", bound=Description)
Client = TypeVar("Client")


class Embedded(ABC, Generic[Layout, Client]):
    """A service in a folder. Use it as a context, or call `start` and `stop`.

    Unless detached its processes end with this one, however this one ends. The folder is locked while any of its
    processes lives.
    """

    name: ClassVar[str]
    """What people call it; in small letters the command and the jars are called so."""
    start_timeout_s: ClassVar[float]
    lock_timeout_s: ClassVar[float]
    """Seconds in which the watchdog of a process that was killed lets go of its folder."""
    taken_port_texts: ClassVar[tuple[str, ...]]
    """What it writes when another process has one of its ports, so that a start with other ports may help."""
    in_use: ClassVar[type[MillraceError]]
    none: ClassVar[type[MillraceError]]
    """The error where one is asked for that does not run."""

    def __init__(self, folder: Path, kind: type[Layout], *, port: int | None, detach: bool) -> None:
        self.folder = folder.absolute()
        self.layout: Layout | None = None
        self._kind = kind
        self._port = port
        self._detach = detach
        self._children: dict[int, Child] = {}
        self._launching = threading.Lock()
        self._stops = 0
        """How often it was stopped: what was to be launched before a stop is not launched after it."""
        self._lock: FolderLock | None = None

    @abstractmethod
    def _start(self, java: Java, classpath: str, before: Layout | None, notify: Notify) -> None:
        """Set the layout, save it, write what is needed, launch the processes and wait until they are ready."""

    @abstractmethod
    def client(self) -> Client:
        """How clients reach it."""

    def _start_failure(self, child: Child) -> ServiceFailed:
        """Why a process has ended at the start."""
        return child.failure(f"{child.name} did not start")

    def start(self, print_line: Notify | None = None, progress: jars.Progress | None = None) -> Client:
        """Start it and wait until it answers; leaves nothing behind when that fails."""
        notify = print_line or (lambda _: None)
        java = find_java()
        self._take_folder()
        try:
            before = self._kind.load(self.folder)
            classpath = jars.ensure(self.name.lower(), progress).classpath()
            for attempt in range(1, _TRIES + 1):
                try:
                    self._start(java, classpath, self.layout or before, notify)
                    return self.client()
                except _PortTaken as taken:
                    self._stop_children()
                    if self._port or attempt == _TRIES:
                        raise taken.failure from None
            raise AssertionError("unreachable")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop every process in order, and wait for each."""
        self._stop_children()
        self._let_go()

    def kill_all(self) -> None:
        """End every process at once, as a crash would."""
        for number in list(self._children):
            self._kill(number)

    def died(self) -> Child | None:
        """A process that has ended by itself, if one has."""
        return next((child for child in self._children.values() if not child.running()), None)

    def __enter__(self) -> Client:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def require_layout(self) -> Layout:
        """Its layout, once it was started."""
        if self.layout is None:
            raise self.none(f"this {self.name} has not been started")
        return self.layout

    def _take_folder(self) -> None:
        self._kind.load(self.folder)  # a folder that is not ours is left as it is
        try:
            lock = FolderLock(self.folder)
        except OSError as error:
            raise FileUnusable(f"cannot use the data folder {self.folder}", why=str(error)) from None
        if not lock.try_acquire(self.lock_timeout_s):
            lock.release()
            raise self._refusal()
        self._lock = lock

    def _certificates(
        self, java: Java, notify: Notify, properties: Callable[[Certificates], Mapping[str, str]]
    ) -> Certificates:
        """Make the certificates of a secure service, and write the properties that its clients need."""
        notify("making certificates")
        certificates = Certificates.ensure(self.folder / "tls", java)
        lines = "".join(f"{key}={value}\n" for key, value in properties(certificates).items())
        write_whole(client_properties(self.folder), lines, private=True)  # it holds a password
        return certificates

    def _let_go(self) -> None:
        if self._lock:
            self._lock.release()
            self._lock = None

    def _refusal(self) -> MillraceError:
        running = self._kind.running(self.folder)
        pids = ", ".join(str(process.pid) for process in running.alive().values()) if running else ""
        runs = f"a {self.name} runs on it at {running.address} (pid {pids})" if running else None
        down = f"millrace {self.name.lower()} down --data {self.folder}"
        return self.in_use(
            f"the data folder {self.folder} is in use",
            why=runs or "another process is starting on it",
            hint=f"use that one, stop it with {down}, or choose another --data folder",
        )

    def _launch(self, number: int, name: str, command: Sequence[str | Path], log: Path) -> None:
        # In a thread, where no Ctrl-C can come between its start and our knowing of it; this one waits for both.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self._spawn, self._stops, number, name, command, log).result()

    def _spawn(self, stops: int, number: int, name: str, command: Sequence[str | Path], log: Path) -> None:
        # A thread that is interrupted may not wait for this one. A stop meanwhile waits here, or this comes too late.
        with self._launching:
            if stops == self._stops:
                held = [self._lock.fd] if self._lock else []
                self._children[number] = Child(name, command, log, detach=self._detach, keep_fds=held)
                self._note(number)

    def _note(self, number: int) -> None:
        """Keep in the folder which process it is, so that others can find and stop it."""
        child = self._children.get(number)
        self.layout = self.require_layout().with_process(number, child.identity if child else None)
        self.layout.save(self.folder)

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        """Poll until the service answers; raise at the timeout."""
        deadline = time.monotonic() + self.start_timeout_s
        while time.monotonic() < deadline:
            if child := self.died():
                failure = self._start_failure(child)
                taken = any(text in child.output() for text in self.taken_port_texts)
                raise _PortTaken(failure) if taken else failure
            if ready():
                return
        raise next(iter(self._children.values())).failure(
            f"{self.name} did not answer within {self.start_timeout_s:.0f} s"
        )

    def _kill(self, number: int) -> None:
        self._children.pop(number).kill()
        self._note(number)

    def _stop_children(self) -> None:
        with self._launching:
            self._stops += 1
        with ThreadPoolExecutor(max(1, len(self._children))) as pool:
            list(pool.map(Child.stop, self._children.values()))
        for number in list(self._children):
            del self._children[number]
            self._note(number)


class _PortTaken(Exception):
    """A start that failed because another process has taken its port."""

    def __init__(self, failure: ServiceFailed) -> None:
        super().__init__(str(failure))
        self.failure = failure


def client_properties(folder: Path) -> Path:
    """The file of client properties of a service that is secure."""
    return folder.absolute() / "client.properties"


def stop_service(service: type[Embedded[Layout, Client]], kind: type[Layout], folder: Path) -> list[int]:
    """Stop the service of a folder, also of another process; return the numbers of the processes that ran."""
    running = kind.running(folder)
    if running is None:
        raise service.none(f"no {service.name} of ours runs in {folder}", hint="give its folder with --data")
    return running.stop(folder)

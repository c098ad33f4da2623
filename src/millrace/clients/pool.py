"""Connections that a process keeps open between tasks: Kafka producers, consumers and broker connections."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")
_POOLS: WeakSet[Pool[Any]] = WeakSet()


def close_pools() -> None:
    """Close what nobody has borrowed, in every pool of this process; for tests, which must leave nothing open."""
    for pool in list(_POOLS):
        pool.close()


class Pool(Generic[T]):
    """Open things by key, each lent to one borrower at a time; the least recently used go when there are too many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._of_parents: list[object] = []
        _POOLS.add(self)

    @contextmanager
    def borrow(self, key: Hashable, make: Callable[[], T], sound: Callable[[T], bool] | None = None) -> Iterator[T]:
        """The thing of a key, a new one if there is none, or none that is `sound`; not kept when the borrower fails."""
        with self._lock:
            self._leave_parents_behind()
            thing = self._idle.pop(key, None)
        if thing is None or (sound and not sound(thing)):
            thing = make()
        yield thing
        with self._lock:
            self._idle[key] = thing
            gone = [self._idle.popitem(last=False) for _ in range(len(self._idle) - self._most)]
        del gone  # closes them, which may take a moment: not under the lock

    def __contains__(self, key: Hashable) -> bool:
        """Whether something of a key is open in this process, and nobody has it."""
        with self._lock:
            self._leave_parents_behind()
            return key in self._idle

    def close(self) -> None:
        """Close what nobody has borrowed; the pool can be used again."""
        with self._lock:
            self._leave_parents_behind()
            idle, self._idle = self._idle, OrderedDict()
        del idle

    def __len__(self) -> int:
        return len(self._idle)

    def _leave_parents_behind(self) -> None:
        """A fork has its parent's things without their threads: neither to be used nor to be closed."""
        if self._process != os.getpid():
            self._of_parents.append(self._idle)
            self._idle, self._process = OrderedDict(), os.getpid()

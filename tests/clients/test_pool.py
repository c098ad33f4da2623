"""What a process keeps open."""

from __future__ import annotations

import os

import pytest

from millrace.clients.pool import Pool, close_pools


def test_a_thing_is_made_once_and_lent_to_one_at_a_time() -> None:
    kept: Pool[object] = Pool(2)
    with kept.borrow("a", object) as first, kept.borrow("a", object) as second:
        assert first is not second
        assert "a" not in kept, "they are lent"
    assert "a" in kept
    with kept.borrow("a", object) as third:
        assert third in (first, second)


def test_a_thing_whose_borrower_failed_is_not_lent_again() -> None:
    kept: Pool[object] = Pool(2)
    with pytest.raises(OSError, match="no"), kept.borrow("a", object):
        raise OSError("no")
    assert len(kept) == 0


def test_the_least_recently_used_goes() -> None:
    kept: Pool[list[str]] = Pool(2)
    for key in ("a", "b", "a", "c"):
        with kept.borrow(key, list) as thing:
            thing.append(key)
    with kept.borrow("a", list) as thing:
        assert thing == ["a", "a"]
    with kept.borrow("b", list) as thing:
        assert thing == []


def test_a_fork_does_not_use_what_its_parent_opened() -> None:
    kept: Pool[list[int]] = Pool(2)
    with kept.borrow("a", list) as thing:
        thing.append(1)
    child = os.fork()
    if not child:
        with kept.borrow("a", list) as thing:
            os._exit(len(thing))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with kept.borrow("a", list) as thing:
        assert thing == [1]


def test_closing_drops_what_nobody_has() -> None:
    kept: Pool[object] = Pool(2)
    with kept.borrow("a", object) as lent:
        with kept.borrow("b", object):
            pass
        close_pools()
        assert len(kept) == 0
    with kept.borrow("a", object) as again:
        assert again is lent

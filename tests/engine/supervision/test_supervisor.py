"""Queries that fail are started again or given up; here over queries that only pretend, so that nothing takes time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint_files import commit_last_batch, write_checkpoint
from millrace.engine.checkpoints.last_batch import LAST_BATCH, plan_last_batch
from millrace.engine.supervision.restart_policy import Policy
from millrace.engine.supervision.supervisor import Supervisor
from millrace.errors import FunctionFailed, KafkaUnreachable, MillraceError, QueryFailed, StateMismatch
from millrace.object_stores import StoreFailed, StorePath, mounted
from millrace.pipeline.model import SinkDef, Trigger, connection
from millrace.pipeline.plan import Query
from millrace.telemetry.query_status import Phase, RunStatus
from test_object_stores import Kept

AWAY = KafkaUnreachable("no broker answers")
NOT_STARTED = KafkaUnreachable("no broker answers when the query starts")
CUT = Exception("Job aborted: java.io.IOException: java.lang.InterruptedException at Shell.runCommand")


class Pretended:
    """A query of Spark's: it lives until it is told that it fails, or is stopped."""

    def __init__(self, name: str, fails: BaseException | None) -> None:
        self.name = name
        self.batch_never_ends = False
        self.isActive = fails is None
        self._failure = fails

    def exception(self) -> BaseException | None:
        return self._failure

    def stop(self) -> None:
        self.isActive = False

    def fail(self, failure: BaseException) -> None:
        self._failure, self.isActive = failure, False


@pytest.fixture(autouse=True)
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretended queries have no lock of Spark's; how that is used, its own tests show."""

    def ended(query: Pretended, deadline: float) -> bool:
        while query.batch_never_ends and time.monotonic() < deadline:
            time.sleep(0.001)
        return not query.batch_never_ends

    monkeypatch.setattr("millrace.engine.supervision.stopping._finish_batch", ended)


class Shop:
    """A workshop whose queries fail as they are told to, one failure a start."""

    def __init__(self, folder: Path, *fails: BaseException | None, rereads: bool = True) -> None:
        self.panels = Panels()
        self.started: list[Pretended] = []
        self._fails, self._folder, self._rereads = list(fails), folder, rereads
        self.context: Any = self
        self.lock = self
        self.lost: MillraceError | None = None

    def start(self, query: Query) -> Pretended:
        fails = self._fails.pop(0) if self._fails else None
        if isinstance(fails, QueryFailed) or fails is NOT_STARTED:
            raise fails
        self.started.append(Pretended(query.name, fails))
        return self.started[-1]

    def rereads(self, _: Query) -> bool:
        return self._rereads

    def checkpoint(self, query: Query) -> Path:
        return self._folder / query.name

    def cluster(self) -> None:
        return None

    def check_cached(self) -> None:
        if self.lost:
            raise self.lost


class Panels:
    """Remembers what is told on panels."""

    def __init__(self) -> None:
        self.errors: list[MillraceError] = []

    def fail(self, _: object, error: MillraceError) -> None:
        self.errors.append(error)


def written(name: str = "copied") -> Query:
    return Query(name, name, (SinkDef(name, connection("memory")),), "append", Trigger())


def drawn() -> Query:
    return Query("panels.x", "x", (), "append", Trigger())


def running(shop: Shop, restarts: int = 3) -> Supervisor:
    board = RunStatus()
    policy = Policy(restarts, first_delay_s=0.0)
    return Supervisor(shop, board, lambda one, _: board.started(str(one.name)), policy)  # type: ignore[arg-type]


class Until(threading.Event):
    """An event that is set as soon as a condition holds: nothing is waited for by time."""

    def __init__(self, holds: Callable[[], bool]) -> None:
        super().__init__()
        self._holds = holds

    def wait(self, timeout: float | None = None) -> bool:
        return self._holds() or super().wait(0.001)


def test_what_passes_is_started_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path, AWAY, QueryFailed("Spark failed: Connection reset"), AWAY)
    queries = running(shop)
    queries.start(written())
    queries.wait(None, Until(lambda: len(shop.started) == 3))
    standing = queries.run_status.query("copied")
    assert (standing.restarts, standing.phase) == (3, Phase.STARTING)
    queries.stop(0)
    queries.require_no_failure()


def test_the_last_batch_is_not_followed_by_another(tmp_path: Path) -> None:
    """A batch after it would have the end of event time as its watermark: all that came meanwhile would be late."""
    shop = Shop(tmp_path, AWAY)
    queries = running(shop)
    folder = write_checkpoint(tmp_path / "copied")
    assert plan_last_batch(folder, watermarked=True)
    queries.start_last_batch(replace(written(), trigger=LAST_BATCH))
    queries.wait(None, Until(lambda: len(shop.started) == 2))
    assert shop.started[-1].isActive, "it was not done: it is started again"
    commit_last_batch(folder)
    shop.started[-1].fail(AWAY)
    queries.wait(None, threading.Event())
    assert len(shop.started) == 2
    assert queries.run_status.query("copied").phase is Phase.STOPPED
    queries.stop(0)
    queries.require_no_failure()


def test_a_last_batch_that_ends_while_a_restart_is_due(tmp_path: Path) -> None:
    shop = Shop(tmp_path, AWAY)
    queries = running(shop)
    queries.policy = Policy(3, first_delay_s=3600.0)
    folder = write_checkpoint(tmp_path / "copied")
    plan_last_batch(folder, watermarked=True)
    queries.start_last_batch(replace(written(), trigger=LAST_BATCH))
    queries.wait(None, Until(lambda: queries.run_status.query("copied").restarts == 1))
    commit_last_batch(folder)
    queries.queries[0].restart_at = 0.0
    queries.wait(None, threading.Event())
    assert len(shop.started) == 1
    queries.require_no_failure()


def test_a_last_batch_is_tried_again_where_what_it_needs_was_away(tmp_path: Path) -> None:
    shop = Shop(tmp_path, NOT_STARTED)
    queries = running(shop)
    assert plan_last_batch(write_checkpoint(tmp_path / "copied"), watermarked=True)
    queries.run_status.started("copied")
    queries.start_last_batch(replace(written(), trigger=LAST_BATCH))
    queries.wait(None, Until(lambda: len(shop.started) == 1))
    assert shop.started[-1].isActive


def test_a_last_batch_whose_plan_cannot_be_read_is_not_taken_as_done(tmp_path: Path) -> None:
    shop = Shop(tmp_path, AWAY)
    queries = running(shop)
    folder = write_checkpoint(tmp_path / "copied")
    assert plan_last_batch(folder, watermarked=True)
    (folder / "offsets" / "4").write_text("v1")
    queries.start_last_batch(replace(written(), trigger=LAST_BATCH))
    queries.wait(None, Until(lambda: len(shop.started) == 2))
    assert queries.run_status.query("copied").restarts == 1


class Away(Kept):
    """A store that answers nothing."""

    def names(self, url: str) -> list[str]:
        raise StoreFailed(0, "Please reduce your request rate. (Service: S3, Status Code: 503)", url)

    def is_folder(self, url: str) -> bool | None:
        raise StoreFailed(0, "UnknownHostException: store.example", url)


def test_a_store_that_is_away_ends_no_run() -> None:
    shop = Shop(StorePath("s3a://runs/state"), AWAY, AWAY)
    queries = running(shop)
    queries.policy = Policy(5, first_delay_s=0.0, healthy_after_s=0.0)
    queries.start(written())
    with mounted(Away()):
        looks = iter(range(5))
        queries.wait(None, Until(lambda: len(shop.started) == 3 and next(looks) == 4))
        assert shop.started[-1].isActive
        assert queries.run_status.query("copied").restarts == 2, "nobody knows whether a batch is at work"
        queries.stop(0)
        queries.release(lambda: True)
    queries.require_no_failure()


def test_rows_that_only_a_checkpoint_would_count_are_said_not_to_be(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    queries = running(shop)
    queries.start(replace(written(), trigger=Trigger("realtime")))
    shop.started[0].stop = lambda: shop.started[0].fail(CUT)  # type: ignore[method-assign]
    queries.stop(0)
    told = "0 rows in 0 batches; rows of real-time queries since their last checkpoint are not counted, and the"
    assert queries.run_status.summary().startswith(told)


def test_a_run_whose_state_is_another_s_ends_without_a_batch(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    queries = running(shop)
    queries.start(written())
    shop.lost = StateMismatch("another run has taken over")
    with pytest.raises(StateMismatch):
        queries.wait(None, threading.Event())


def test_what_does_not_pass_ends_the_run_at_once(tmp_path: Path) -> None:
    shop = Shop(tmp_path, FunctionFailed("the function number raised ValueError"))
    queries = running(shop)
    queries.start(written())
    with pytest.raises(FunctionFailed) as raised:
        queries.wait(None, threading.Event())
    assert raised.value.message == "query 'copied' failed: the function number raised ValueError"
    queries.stop(0)
    standing = queries.run_status.query("copied")
    assert (standing.phase, standing.restarts) == (Phase.FAILED, 0)


def test_one_is_given_up_and_the_others_go_on_until_then(tmp_path: Path) -> None:
    shop = Shop(tmp_path, None, AWAY, AWAY, AWAY, AWAY)
    queries = running(shop)
    queries.start(written("sound"))
    queries.start(written("poisoned"))
    with pytest.raises(KafkaUnreachable) as raised:
        queries.wait(None, threading.Event())
    assert raised.value.exit_code == 1
    assert raised.value.message == "query 'poisoned' failed: no broker answers (given up after 3 restarts)"
    assert shop.started[0].isActive
    queries.stop(0)
    assert not shop.started[0].isActive
    assert queries.run_status.query("poisoned").phase is Phase.FAILED


def test_the_batch_that_fails_each_time_is_named(tmp_path: Path) -> None:
    log = tmp_path / "copied" / "offsets"
    log.mkdir(parents=True)
    (log / "0").write_text('v1\n{}\n{"posts":{"0":3}}')
    strange = Exception("nobody has seen this")
    strange.java_exception = None  # type: ignore[attr-defined]  # so that it counts as one of Spark's
    queries = running(Shop(tmp_path, strange, strange, strange))
    queries.start(written())
    with pytest.raises(MillraceError) as raised:
        queries.wait(None, threading.Event())
    assert "(3 times at the same batch, batch 0: topic posts partition 0 offsets up to 2)" in raised.value.message


class Slow(threading.Event):
    """An event that is never set; every third time that somebody looks, the query that runs fails."""

    def __init__(self, shop: Shop, most: int) -> None:
        super().__init__()
        self._shop, self._most, self._looks = shop, most, 0

    def wait(self, timeout: float | None = None) -> bool:
        self._looks += 1
        if self._looks % 3 == 0 and self._shop.started[-1].isActive:
            self._shop.started[-1].fail(AWAY)
        return len(self._shop.started) >= self._most


def batches(folder: Path, *, done: bool) -> None:
    """A checkpoint in which batch 0 is begun, or done."""
    for log in ("offsets", "commits") if done else ("offsets",):
        (folder / "copied" / log).mkdir(parents=True)
        (folder / "copied" / log / "0").write_text("v1\n{}")


def test_a_batch_that_takes_long_to_fail_is_no_time_of_health(tmp_path: Path) -> None:
    batches(tmp_path, done=False)
    shop = Shop(tmp_path)
    queries = running(shop)
    queries.policy = Policy(2, first_delay_s=0.0, healthy_after_s=0.0)
    queries.start(written())
    with pytest.raises(KafkaUnreachable) as raised:
        queries.wait(None, Slow(shop, most=9))
    assert "(3 times at the same batch, batch 0)" in raised.value.message
    assert len(shop.started) == 3


def test_a_time_of_health_is_one_without_a_batch_at_work(tmp_path: Path) -> None:
    batches(tmp_path, done=True)
    shop = Shop(tmp_path)
    queries = running(shop)
    queries.policy = Policy(2, first_delay_s=0.0, healthy_after_s=0.0)
    queries.start(written())
    queries.wait(None, Slow(shop, most=9))
    assert len(shop.started) == 9


def test_what_cannot_be_read_again_is_not_restarted(tmp_path: Path) -> None:
    queries = running(Shop(tmp_path, AWAY, rereads=False))
    queries.start(written())
    with pytest.raises(KafkaUnreachable) as raised:
        queries.wait(None, threading.Event())
    assert "lose records" in str(raised.value.why)


def test_a_query_that_only_draws_never_ends_the_run(tmp_path: Path) -> None:
    shop = Shop(tmp_path, None, AWAY, AWAY, AWAY, AWAY)
    queries = running(shop)
    queries.start(written())
    queries.start(drawn())
    queries.wait(None, Until(lambda: queries.run_status.query("panels.x").phase is Phase.FAILED))
    queries.stop(0)
    queries.require_no_failure()
    assert len(shop.panels.errors) == 4


def test_a_run_that_is_stopped_while_one_waits_has_failed(tmp_path: Path) -> None:
    queries = running(Shop(tmp_path, AWAY))
    queries.policy = Policy(first_delay_s=3600.0)
    queries.start(written())
    queries.wait(None, Until(lambda: queries.run_status.query("copied").phase is Phase.RESTARTING))
    queries.stop(0)
    with pytest.raises(KafkaUnreachable) as raised:
        queries.require_no_failure()
    assert "the run was stopped before restart 1" in raised.value.message
    assert queries.run_status.query("copied").phase is Phase.FAILED


def test_a_query_that_is_stopped_in_the_middle_of_a_file_has_not_failed(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    queries = running(shop)
    queries.start(written())
    shop.started[0].stop = lambda: shop.started[0].fail(CUT)  # type: ignore[method-assign]
    assert queries.stop(0) == []
    queries.require_no_failure()
    assert queries.run_status.query("copied").phase is Phase.STOPPED


def test_one_that_has_done_enough_is_stopped_with_the_patience_that_was_asked_for(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    queries = running(shop)
    queries.has_read_enough, queries.stop_timeout_s = lambda _: True, 0.0
    queries.start(written())
    shop.started[0].batch_never_ends = True
    queries.wait(None, threading.Event())
    assert queries.run_status.query("copied").phase is Phase.STOPPED


def test_a_batch_that_takes_too_long_is_cut_off_and_told(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    queries = running(shop)
    queries.start(written())
    shop.started[0].batch_never_ends = True
    shop.started[0].stop = lambda: shop.started[0].fail(ValueError("whatever"))  # type: ignore[method-assign]
    assert queries.stop(0) == ["copied"]
    queries.require_no_failure()

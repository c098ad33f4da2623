"""Signals end things in order, whatever the main thread is doing when they come."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from millrace.cli.signals import interruptible, until_stopped


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_sets_the_event(number: signal.Signals) -> None:
    with until_stopped() as stop:
        os.kill(os.getpid(), number)
        assert stop.wait(30)


def test_a_second_ctrl_c_interrupts() -> None:
    with until_stopped() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(30)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_in_the_middle_of_a_wait_does_not_block() -> None:
    with until_stopped() as stop:
        ended = threading.Event()

        def shower() -> None:
            while not ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=shower)
        thread.start()
        for _ in range(2000):
            stop.wait(0.0001)
            stop.clear()
        ended.set()
        thread.join()


def test_what_the_caller_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with until_stopped() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_interruptible_undoes_what_was_begun() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_second_ctrl_c_does_not_interrupt_the_undoing() -> None:
    undone = []

    def begin_and_undo() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            undone.append(True)

    with pytest.raises(KeyboardInterrupt), interruptible():
        begin_and_undo()
    assert undone


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interruptible_within_a_longer_wait_hands_over_without_a_gap(number: signal.Signals) -> None:
    with until_stopped() as stop:
        with pytest.raises(KeyboardInterrupt), interruptible():
            os.kill(os.getpid(), number)
        stop.clear()
        os.kill(os.getpid(), number)
        assert stop.wait(30)

"""Loads of the bench: what many threads measure, and at which rate they call."""

from __future__ import annotations

import threading
import time

import pytest

from bench.load import Load, closed_loop, offered


def test_every_call_of_every_thread_counts() -> None:
    counted = []
    load = closed_loop(lambda: counted.append(threading.get_ident()), 3, 0.05)
    assert len(load.latencies) == len(counted)
    assert len(set(counted)) == 3
    assert load.seconds_a_call == pytest.approx(load.span_s / len(counted))


def test_a_call_that_fails_is_raised() -> None:
    def fails() -> None:
        raise ValueError("no such thing")

    for load in (lambda: closed_loop(fails, 2, 0.05), lambda: offered(fails, 2, 1000, 0.05)):
        with pytest.raises(ValueError, match="no such thing"):
            load()


def test_calls_wait_for_when_they_are_due() -> None:
    load = offered(lambda: None, 4, 200.0, 0.5)
    assert 30 < len(load.latencies) < 200  # 100 are due; those of a Poisson process vary


def test_a_pause_counts_for_the_calls_that_it_prevents() -> None:
    begun = []

    def pauses_once() -> None:
        begun.append(None)
        if len(begun) == 1:
            time.sleep(0.3)

    load = offered(pauses_once, 1, 100.0, 0.5)
    assert load.quantile(1.0) >= 0.3
    assert sum(latency > 0.1 for latency in load.latencies) > 5


def test_a_quantile_is_the_latency_that_so_many_do_not_exceed() -> None:
    load = Load([float(i) for i in range(1, 101)], 1.0)
    assert (load.quantile(0.5), load.quantile(0.99), load.quantile(1.0)) == (51.0, 100.0, 100.0)

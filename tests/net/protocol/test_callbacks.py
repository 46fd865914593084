"""Calls of functions of a client by its server, over one stream with everything else."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jflow import errors
from jflow.base.deadline import FOREVER, Deadline
from jflow.net.wire import connect
from tests.net.protocol.hosts import PATIENCE_S, large, same


async def _requested(client, number, *operands):
    answer = asyncio.get_running_loop().create_future()
    await client(number, operands, answer)
    return await answer


def _calling(*calls):
    """A step that calls functions of the client one after the other and gives their results."""

    async def run(_, __, feeds, client):
        results = []
        for number in calls:
            results.extend(await _requested(client, number, *feeds))
        return results

    return run


def test_operands_go_to_the_function_of_that_number_and_its_results_come_back(client, host):
    host.script["run"] = _calling(1, 0, 1)
    sent = [np.arange(3), large(2), np.zeros((0, 2), np.int8)]
    threads = set()

    def double(operands):
        threads.add(threading.current_thread())
        for got, value in zip(operands, sent, strict=True):
            same(got, value)
        return [operands[0] * 2]

    found = client.run_step(1, sent, FOREVER, [lambda operands: operands[1:2], double])
    for got, value in zip(found, [np.arange(3) * 2, sent[1], np.arange(3) * 2], strict=True):
        same(got, value)
    assert threads == {threading.current_thread()}


def test_a_function_may_use_the_client_that_calls_it(client, host):
    host.script["run"] = _calling(0)

    def run(operands):
        return client.run_step(
            2, operands, FOREVER, [lambda values: values]
        )  # gRPC's thread is free

    (found,) = client.run_step(1, [np.arange(3)], FOREVER, [run])
    same(found, np.arange(3))


def test_what_a_function_raises_is_raised_here_and_told_to_the_step(client, host):
    told = []

    async def run(_, __, feeds, client):
        try:
            await _requested(client, 0)
        except errors.UnknownError as error:
            told.append(error.message)
            raise

    host.script["run"] = run
    raised = KeyError("mine")

    def fail(_):
        raise raised

    with pytest.raises(KeyError) as caught:
        client.run_step(1, [], FOREVER, [fail])
    assert caught.value is raised
    (message,) = told
    assert "KeyError: 'mine'" in message
    assert client.is_open


def test_no_function_is_called_when_one_has_failed(client, host):
    async def run(_, __, feeds, client):
        return await asyncio.gather(*(_requested(client, number) for number in range(3)))

    host.script["run"] = run
    called = []

    def fail(_):
        called.append(1)
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - it has no words
        client.run_step(1, [], Deadline(PATIENCE_S), [fail] * 3)
    assert called == [1]


def test_a_function_that_the_step_does_not_have_ends_it(client, host):
    host.script["run"] = _calling(7)
    with pytest.raises(errors.InvalidArgumentError, match="no callback 7"):
        client.run_step(1, [], FOREVER, [lambda _: []])
    assert client.is_open


def test_a_step_is_over_at_its_deadline_though_a_function_runs_on(client, host):
    ended = threading.Event()

    async def run(_, deadline, feeds, client):
        try:
            async with asyncio.timeout(deadline.remaining()):
                return await _requested(client, 0)
        except TimeoutError:
            raise errors.DeadlineExceededError("too late") from None
        finally:
            ended.set()

    host.script["run"] = run

    def slow(_):
        assert ended.wait(PATIENCE_S)  # the step has ended while this still runs
        return []

    with pytest.raises(errors.DeadlineExceededError):
        client.run_step(1, [], Deadline(0.1), [slow])
    assert client.is_open


def test_a_client_that_goes_ends_the_steps_that_wait_for_its_functions(server, host):
    ended, entered = threading.Event(), threading.Event()

    async def run(_, __, feeds, client):
        try:
            return await _requested(client, 0)
        finally:
            ended.set()

    host.script["run"] = run
    client = connect(server.address, PATIENCE_S)

    def wait(_):
        entered.set()
        ended.wait(PATIENCE_S)
        return []

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.run_step, 1, [], FOREVER, [wait])
        assert entered.wait(PATIENCE_S)
        client.close()
        assert ended.wait(PATIENCE_S)
        assert isinstance(call.exception(PATIENCE_S), errors.CancelledError)

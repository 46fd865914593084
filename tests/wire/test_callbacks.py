"""Calls of functions of a client by its server, over one stream with everything else."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError as FutureCancelledError

import numpy as np
import pytest

from jflow import errors
from jflow.deadline import FOREVER, Deadline
from jflow.wire import MasterClient
from tests.wire.hosts import PATIENCE_S, TOKEN, Host, large, same, served


@pytest.fixture(autouse=True)
def _token(monkeypatch):
    monkeypatch.setenv("JFLOW_TOKEN", TOKEN)


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def server(host):
    with served(host) as server:
        yield server


@pytest.fixture
def client(server):
    client = MasterClient(server.address, PATIENCE_S)
    yield client
    client.close()


async def _asked(client, number, *operands):
    answer = asyncio.get_running_loop().create_future()
    await client(number, operands, answer)
    return await answer


def _calling(*calls):
    """A step that calls functions of the client one after the other and gives their results."""

    async def run(_, __, feeds, client):
        results = []
        for number in calls:
            results.extend(await _asked(client, number, *feeds))
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

    found = client.run(1, sent, FOREVER, [lambda operands: operands[1:2], double])
    for got, value in zip(found, [np.arange(3) * 2, sent[1], np.arange(3) * 2], strict=True):
        same(got, value)
    assert threads == {threading.current_thread()}


def test_functions_of_a_step_that_is_only_started_have_threads_of_their_own(client, host):
    host.script["run"] = _calling(0)
    threads = []

    def run(operands):
        threads.append(threading.current_thread())
        return client.run(2, operands, FOREVER, [lambda values: values])  # gRPC's thread is free

    (found,) = client.start(1, [np.arange(3)], FOREVER, [run]).result(PATIENCE_S)
    same(found, np.arange(3))
    assert threads[0] is not threading.current_thread()


@pytest.mark.parametrize("is_started", [False, True])
def test_what_a_function_raises_is_raised_here_and_told_to_the_step(client, host, is_started):
    told = []

    async def run(_, __, feeds, client):
        try:
            await _asked(client, 0)
        except errors.UnknownError as error:
            told.append(error.message)
            raise

    host.script["run"] = run
    raised = KeyError("mine")

    def fail(_):
        raise raised

    def call():
        if is_started:
            return client.start(1, [], FOREVER, [fail]).result(PATIENCE_S)
        return client.run(1, [], FOREVER, [fail])

    with pytest.raises(KeyError) as caught:
        call()
    assert caught.value is raised
    (message,) = told
    assert "KeyError: 'mine'" in message
    assert client.is_open


def test_no_function_is_called_when_one_has_failed(client, host):
    async def run(_, __, feeds, client):
        return await asyncio.gather(*(_asked(client, number) for number in range(3)))

    host.script["run"] = run
    called = []

    def fail(_):
        called.append(1)
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - it has no words
        client.run(1, [], Deadline(PATIENCE_S), [fail] * 3)
    assert called == [1]


def test_a_function_that_the_step_does_not_have_ends_it(client, host):
    host.script["run"] = _calling(7)
    with pytest.raises(errors.InvalidArgumentError, match="no callback 7"):
        client.run(1, [], FOREVER, [lambda _: []])
    assert client.is_open


def test_a_step_is_over_at_its_deadline_though_a_function_runs_on(client, host):
    ended = threading.Event()

    async def run(_, deadline, feeds, client):
        try:
            async with asyncio.timeout(deadline.remaining()):
                return await _asked(client, 0)
        except TimeoutError:
            raise errors.DeadlineExceededError("too late") from None
        finally:
            ended.set()

    host.script["run"] = run

    def slow(_):
        assert ended.wait(PATIENCE_S)  # the step has ended while this still runs
        return []

    with pytest.raises(errors.DeadlineExceededError):
        client.run(1, [], Deadline(0.1), [slow])
    assert client.is_open


def test_cancelling_a_started_step_cancels_it_while_a_function_runs(client, host):
    ended, entered, go_on = threading.Event(), threading.Event(), threading.Event()

    async def run(_, __, feeds, client):
        try:
            return await _asked(client, 0)
        finally:
            ended.set()

    host.script["run"] = run

    def slow(_):
        entered.set()
        assert go_on.wait(PATIENCE_S)
        return []

    outcome = client.start(1, [], FOREVER, [slow])
    assert entered.wait(PATIENCE_S)
    assert outcome.cancel()
    assert ended.wait(PATIENCE_S)
    go_on.set()
    with pytest.raises(FutureCancelledError):
        outcome.result(PATIENCE_S)
    host.script.clear()
    assert client.run(1, [], FOREVER) == []


def test_a_client_that_goes_ends_the_steps_that_wait_for_its_functions(server, host):
    ended, entered = threading.Event(), threading.Event()

    async def run(_, __, feeds, client):
        try:
            return await _asked(client, 0)
        finally:
            ended.set()

    host.script["run"] = run
    client = MasterClient(server.address, PATIENCE_S)

    def wait(_):
        entered.set()
        ended.wait(PATIENCE_S)
        return []

    client.start(1, [], FOREVER, [wait])
    assert entered.wait(PATIENCE_S)
    client.close()
    assert ended.wait(PATIENCE_S)

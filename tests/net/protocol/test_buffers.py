"""Receive buffers: used again for later messages, and never while anything refers to them."""

import gc
import threading
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jflow.net.protocol import buffers
from jflow.net.protocol.buffers import BufferPool, receive_buffer
from jflow.net.protocol.frame import Assembler, encode
from tests.drawn import examples

KEEPS = 4096
SIZES = st.integers(1, 3 * KEEPS // 2)


class Buffers(RuleBasedStateMachine):
    """What is taken, kept in parts, and dropped, in any order."""

    def __init__(self):
        super().__init__()
        self.pool = BufferPool(KEEPS)
        self.kept = []
        self.mark = 0

    @rule(n_bytes=SIZES)
    def take(self, n_bytes):
        taken = self.pool.allocate(n_bytes)
        assert taken.nbytes == n_bytes
        assert taken.ctypes.data % buffers.ALIGNMENT == 0
        self.mark = (self.mark + 1) % 256
        taken[:] = self.mark
        self.kept.append((taken, self.mark))

    @rule(data=st.data())
    def keep_a_part(self, data):
        if self.kept:
            number = data.draw(st.integers(0, len(self.kept) - 1))
            whole, mark = self.kept[number]
            start = data.draw(st.integers(0, len(whole)))
            self.kept[number] = memoryview(whole[start:]) if mark % 2 else whole[start:], mark

    @rule(data=st.data())
    def drop(self, data):
        if self.kept:
            del self.kept[data.draw(st.integers(0, len(self.kept) - 1))]

    @rule()
    def sweep(self):
        self.pool.sweep()

    @invariant()
    def nothing_that_is_kept_was_overwritten(self):
        for view, mark in self.kept:
            assert (np.asarray(view) == mark).all()

    @invariant()
    def no_more_than_the_limit_is_kept_for_later(self):
        assert self.pool.n_free_bytes <= KEEPS


Buffers.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=30)
TestBuffers = Buffers.TestCase


def address(array):
    return array.__array_interface__["data"][0]


def test_the_next_message_of_about_the_size_uses_the_memory_of_one_that_is_gone():
    pool = BufferPool()
    first = pool.allocate(100_000)
    where, part = address(first), first[5:].view(np.uint8)
    del first
    assert address(pool.allocate(100_000)) != where, "a part of it is still there"
    del part
    assert address(pool.allocate(99_000)) == where
    assert pool.allocate(50_000).nbytes == 50_000


def test_memory_that_nothing_used_for_two_sweeps_is_freed():
    pool = BufferPool()
    del [pool.allocate(n_bytes) for n_bytes in (1000, 2000)][:]
    assert pool.n_free_bytes > 0
    pool.sweep()
    pool.allocate(2000)
    pool.sweep()
    assert 2000 <= pool.n_free_bytes < 3000, "the other one was used in between"
    pool.sweep()
    assert pool.n_free_bytes == 0


def test_nothing_is_kept_when_nothing_sweeps():
    swept = Sweeper()
    pool = BufferPool(sweeper=swept)
    late = pool.allocate(1000)
    assert swept.functions == {pool.sweep}
    pool.sweep()
    pool.sweep()
    assert swept.functions == set()
    del late
    assert pool.n_free_bytes == 0


class Sweeper:
    def __init__(self):
        self.functions = set()
        self.add, self.remove = self.functions.add, self.functions.discard


def test_memory_that_comes_back_while_the_pool_is_in_use_is_freed_and_nothing_waits():
    pool = BufferPool()
    taken = [pool.allocate(1000)]
    with pool._lock:
        taken.clear()
        gc.collect()
    assert pool.n_free_bytes == 0
    assert pool.allocate(1000).nbytes == 1000


def test_programs_that_run_still_read_what_they_were_given():
    pool, size = BufferPool(), 1 << 20
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 30, lambda _, y: jnp.sin(y) + x, x))
    wanted = np.asarray(slow(np.full(size // 4, 1.0, np.float32)))
    for _ in range(3):
        given = pool.allocate(size).view(np.float32)
        given[:] = 1.0
        held, result = jax.device_put(given), slow(given)
        del given
        pool.allocate(size)[:] = 255
        np.testing.assert_array_equal(result, wanted)
        np.testing.assert_array_equal(held, 1.0)


def test_threads_that_take_and_drop_never_share_memory():
    pool, wrong = BufferPool(1 << 20), []

    def use(mark):
        for n_bytes in range(1, 20_000, 100):
            taken = pool.allocate(n_bytes)
            taken[:] = mark
            if not (taken == mark).all():
                wrong.append(mark)

    threads = [threading.Thread(target=partial(use, mark)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("n_bytes", [buffers.MIN_POOLED_BYTES - 64, buffers.MIN_POOLED_BYTES])
def test_messages_come_whole_in_new_memory_and_in_used_memory(n_bytes):
    assembler, random = Assembler(), np.random.default_rng(0)
    sent = [random.integers(0, 256, n_bytes, np.uint8) for _ in range(3)]
    for number, tensor in enumerate(sent, 1):
        *_, message = map(assembler.feed, encode(number, b"", [tensor.data]))
        np.testing.assert_array_equal(message.payload, tensor)
        del message


def test_large_messages_are_received_into_the_pool(monkeypatch):
    pool = BufferPool()
    monkeypatch.setattr(buffers, "_POOL", pool)
    receive_buffer(buffers.MIN_POOLED_BYTES - 1)
    assert pool.n_free_bytes == 0
    receive_buffer(buffers.MIN_POOLED_BYTES)
    assert pool.n_free_bytes == buffers.MIN_POOLED_BYTES

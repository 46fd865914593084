import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.compiler import lowering
from jflow.plan import xla
from jflow.plan.xla.cache import ProgramCache
from jflow.plan.xla.modules import ModuleFacts
from jflow.testing import PATIENCE_S
from tests.compiler.lowering.programs import lowered

DEVICES = jax.local_devices(backend="cpu")
_FACTS = ModuleFacts(has_loops=False, is_pure=True, calls_native=False)


class _Source:
    """Bytes of a program that adds a number, and how often they were asked for."""

    def __init__(self, number):
        x = tf.placeholder("float32", ())
        program = lowering.export(lowered(x + number, inputs=(x,)).jaxpr, "cpu")
        self.digest = xla.digest_of(program)
        self.n_requested = 0
        self._data = xla.inspected(program.tobytes())

    def __call__(self):
        self.n_requested += 1
        return self._data


def _get(cache, source, device=DEVICES[0], donated=()):
    return cache.get(source.digest, device, donated, source)


def test_a_program_is_compiled_the_first_time_only():
    cache, source = ProgramCache(), _Source(1.0)
    assert not cache.has(source.digest, DEVICES[0], ())
    first = _get(cache, source)
    assert cache.has(source.digest, DEVICES[0], ())
    assert _get(cache, source) is first
    assert first(np.float32(2))[0] == 3.0
    assert (source.n_requested, cache.n_compiled) == (1, 1)


def test_each_device_and_each_donation_has_an_executable_of_its_own():
    cache, source = ProgramCache(), _Source(1.0)
    found = [_get(cache, source), _get(cache, source, DEVICES[1])]
    found.append(_get(cache, source, donated=(0,)))
    assert len(set(map(id, found))) == cache.n_compiled == 3
    assert found[1](np.float32(2))[0].devices() == {DEVICES[1]}


def test_threads_that_want_one_program_wait_for_one_compilation():
    cache, source = ProgramCache(), _Source(1.0)
    together = threading.Barrier(8)

    def get(_):
        together.wait()
        return _get(cache, source)

    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(get, range(8)))
    assert len(found) == 1
    assert (source.n_requested, cache.n_compiled) == (1, 1)


def test_threads_that_wait_for_a_failure_all_hear_of_it():
    cache = ProgramCache()
    requested, fail = threading.Event(), threading.Event()

    def source():
        requested.set()
        assert fail.wait(PATIENCE_S)
        return xla.ValidProgram(b"rubbish", _FACTS)

    def get():
        with pytest.raises(tf.errors.InvalidArgumentError):
            cache.get("digest", DEVICES[0], (), source)
        return True

    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(get)
        assert requested.wait(PATIENCE_S)
        others = [threads.submit(get) for _ in range(3)]
        fail.set()
        assert all(future.result() for future in [first, *others])


def test_a_failure_is_forgotten():
    cache, source = ProgramCache(), _Source(1.0)
    for bad in (lambda: xla.ValidProgram(b"rubbish", _FACTS), lambda: 1 / 0):
        with pytest.raises((tf.errors.InvalidArgumentError, ZeroDivisionError)):
            cache.get(source.digest, DEVICES[0], (), bad)
        assert not cache.has(source.digest, DEVICES[0], ())
    assert _get(cache, source)(np.float32(2))[0] == 3.0
    assert cache.n_compiled == 1


def test_the_least_recently_used_program_is_dropped_first():
    cache = ProgramCache(capacity=2)
    a, b, c = sources = [_Source(float(number)) for number in range(3)]
    kept = _get(cache, a)
    _get(cache, b)
    _get(cache, a)
    _get(cache, c)
    assert [cache.has(source.digest, DEVICES[0], ()) for source in sources] == [True, False, True]
    assert _get(cache, a) is kept
    _get(cache, b)
    assert [source.n_requested for source in sources] == [1, 2, 1]


def test_a_dropped_executable_works_where_it_is_still_held():
    cache = ProgramCache(capacity=1)
    held = _get(cache, _Source(1.0))
    _get(cache, _Source(2.0))
    assert held(np.float32(5))[0] == 6.0

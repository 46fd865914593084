"""Servers whose programs another process compiles: values, a compiler that crashes, ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from jax.sharding import PartitionSpec as P

import jflow as tf
from jflow.errors import InvalidArgumentError, UnimplementedError
from jflow.plan.compiler import COMPILER, compiler
from jflow.task.server.apart import check_can_compile_apart, compiles_apart
from jflow.testing import PATIENCE_S, Kill, ProcessCluster, free_ports, wait_until
from tests.clusters import in_process

APART = {"JFLOW_COMPILE_APART": "1"}
WORKER = "/job:worker/task:0"
SPD = np.eye(4, dtype=np.float32) * 4


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JFLOW_COMPILE_APART", "1")
            backend = stack.enter_context(in_process())
        yield backend.target


@pytest.fixture
def compiled_here(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What servers compile in this process although they have another one for that."""
    found: list[Any] = []
    monkeypatch.setattr(
        compiler, "compile_here", lambda one: found.append(one) or compiler.compile_here(one)
    )
    return found


def test_steps_and_updates_and_loops_are_as_without(target: str, compiled_here: list[Any]) -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, (None, 4))
        w = tf.Variable(SPD, name="w")
        y = tf.nn.tanh(tf.matmul(x, w))
        loop = tf.while_loop(lambda i, _: i < 5, lambda i, z: (i + 1, z @ w / 4), (0, w))[1]
        fetches = [y, loop, tf.function(jnp.linalg.cholesky)(w.value()), w.assign_add(w)]
        values = []
        for where in (target, ""):
            with tf.Session(where) as session:
                session.run(tf.global_variables_initializer())
                fed = [np.ones((n, 4), np.float32) / n for n in (2, 3)]
                values.append([session.run(fetches, {x: one}) for one in fed])
    for found, wanted in zip(*values, strict=True):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)
    assert COMPILER.pids
    assert not compiled_here


def test_a_program_on_a_mesh_of_a_server_is_compiled_apart(
    target: str, compiled_here: list[Any]
) -> None:
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    with tf.connect(target), tf.device(WORKER, mesh={"x": 2}):
        v = tf.Variable(x, name="on_a_mesh", sharding=P("x"))

        @tf.function
        def add(x: Any) -> Any:
            v.assign_add(x)
            return jnp.sum(v.value(), axis=0)

        np.testing.assert_array_equal(add(x), (2 * x).sum(0))
        np.testing.assert_array_equal(v.numpy(), 2 * x)
    assert not compiled_here


def test_a_program_that_crashes_the_compiler_fails_its_closure_and_ends_no_worker() -> None:
    crash = {"compiler.before_compile": Kill()}
    points = {f"/job:worker/task:{i}": crash for i in range(2)}
    with ProcessCluster(ps=1, workers=2, points=points, environment=APART) as cluster:
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        with strategy.scope():
            v = tf.Variable(2.0, name="v")
        with tf.ClusterCoordinator(strategy) as coordinator:

            @tf.function
            def crashes(x: Any) -> Any:
                return jnp.sin(x) + v.value()

            words = set()
            for worker in (0, 1, 0, 1):
                value = coordinator.schedule(crashes, args=(1.0,), worker=worker)
                with pytest.raises(tf.errors.InternalError, match="ended with SIGKILL") as caught:
                    value.fetch()
                assert caught.value.task == f"/job:worker/task:{worker}"
                assert caught.value.message.startswith(f"{caught.value.op!r} cannot be compiled:")
                words.add(caught.value.message)
                with pytest.raises(tf.errors.InternalError):
                    coordinator.join()
            # What was killed first was forked with the failpoint; the next is a new Python.
            cholesky = tf.function(jnp.linalg.cholesky)
            good = coordinator.schedule(cholesky, args=(SPD,), worker=0, timeout=PATIENCE_S)
            np.testing.assert_array_equal(good.fetch(), SPD / 2)
            assert coordinator.metrics().worker_failures == 0
            assert coordinator.metrics().put_back == 0
            assert v.value() == 2.0
        strategy.close()
        assert len(words) == 1, "the same on each task, also the second time"
        assert cluster.points("worker", 0).reached("compiler.before_compile") == 1
        tasks = [("ps", 0), ("worker", 0), ("worker", 1)]
        assert [cluster.exit_code(*task) for task in tasks] == [None] * 3
        children = children_of(cluster.pid("worker", 0))
        assert all(map(runs, children)), "no zombies"
        cluster.kill("worker", 0)
        wait_until(lambda: not any(map(runs, children)))


def children_of(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def runs(process: psutil.Process) -> bool:
    # What is the parent of orphans may not wait for them.
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_the_compiler_of_a_server_that_is_stopped_ends() -> None:
    (port,) = free_ports(1)
    cluster = json.dumps({"local": [f"127.0.0.1:{port}"]})
    with subprocess.Popen(
        [sys.executable, "-m", "jflow", "server", "--cluster", cluster, "--compile-apart"],
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert b"is ready" in process.stdout.readline()
            with tf.Session(f"grpc://127.0.0.1:{port}") as session:
                assert session.run(tf.constant(1.0) + 1) == 2.0
            children = children_of(process.pid)
            assert [one for one in children if "plan.compiler" in " ".join(one.cmdline())]
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
            wait_until(lambda: not any(map(runs, children)))
        finally:
            process.kill()


def test_without_the_option_no_process_compiles() -> None:
    with ProcessCluster(ps=0, workers=1) as cluster:
        with tf.Session(cluster.target("worker", 0)) as session:
            assert session.run(tf.constant(1.0) + 2) == 3.0
        assert len(children_of(cluster.pid("worker", 0))) == 1, "the validator"


def test_what_the_variable_says_is_checked_and_so_are_the_devices() -> None:
    assert compiles_apart(APART)
    assert not compiles_apart({})
    with pytest.raises(InvalidArgumentError, match="JFLOW_COMPILE_APART must be 0 or 1, got 'yes'"):
        compiles_apart({"JFLOW_COMPILE_APART": "yes"})
    check_can_compile_apart(jax.devices("cpu"))
    with pytest.raises(UnimplementedError, match=r"devices of the platform gpu\. Start"):
        check_can_compile_apart([*jax.devices("cpu"), Mock(platform="gpu")])

"""The process that validates programs: what ends it, what it costs, what it leaves."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import psutil
import pytest

import jflow as tf
from jflow.errors import InternalError, InvalidArgumentError
from jflow.plan.apart.queue import ApartQueue
from jflow.plan.validator import Validator
from jflow.plan.validator.process import ValidationLimits, ValidatorProcess
from jflow.testing import PATIENCE_S, ProgramProcess, wait_until
from tests.plan.validator.outcomes import outcomes

MALFORMED = Path(__file__).parent / "malformed"
BLOBS = [file.read_bytes() for file in sorted(MALFORMED.glob("?.bin"))]
"""Programs with a few random bytes changed; each has crashed the process that parsed it."""

ENDLESS = (MALFORMED / "endless.bin").read_bytes()
"""Another one, which MLIR of JAX 0.10 never finishes to parse."""


def program(number: float) -> bytes:
    exported = jax.export.export(jax.jit(lambda x: [x * number]), platforms=["cpu"])
    return bytes(exported(jax.ShapeDtypeStruct((3,), np.float32)).serialize())


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="module")
def validator() -> Iterator[Validator]:
    validator = Validator()
    yield validator
    validator.close()
    assert validator.pid is None


def validate(validator: Validator, data: bytes) -> bytes:
    return validator.validate(digest(data), data).result(PATIENCE_S).data


def is_gone(pid: int) -> bool:
    """Whether there is no process of this id, not even a zombie."""
    return not psutil.pid_exists(pid)


def test_a_malformed_program_ends_the_validator_only(validator: Validator) -> None:
    good = program(1.0)
    for data in BLOBS:
        with pytest.raises(InvalidArgumentError, match=f"program {digest(data)[:12]} of"):
            validate(validator, data)
    assert jax.export.deserialize(bytearray(validate(validator, good))).platforms == ("cpu",)


def test_a_program_is_validated_once(validator: Validator) -> None:
    data, before = program(2.0), validator.n_validated
    futures = [validator.validate(digest(data), data) for _ in range(5)]
    assert len({future.result(PATIENCE_S).data for future in futures}) == 1
    validate(validator, data)
    assert validator.n_validated == before + 1


def test_a_validator_that_is_killed_while_it_parses_refuses_that_program(
    validator: Validator,
) -> None:
    validate(validator, program(3.0))
    pid = validator.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    one, other = program(4.0), program(5.0)
    waiting = validator.validate(digest(one), one)
    behind = validator.validate(digest(other), other)
    assert not waiting.done()
    os.kill(pid, signal.SIGKILL)
    assert behind.result(PATIENCE_S).data
    if (error := waiting.exception()) is not None:  # it may not have been sent yet
        assert isinstance(error, InvalidArgumentError)
        assert "ended with SIGKILL" in str(error)
    assert is_gone(pid)


def test_an_idle_validator_that_dies_is_started_again_and_leaves_no_zombie(
    validator: Validator,
) -> None:
    validator.start()
    validate(validator, program(6.0))
    pid = validator.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: is_gone(pid) and validator.pid not in (None, pid))
    validate(validator, program(7.0))
    validator.stop()


def test_a_program_that_takes_too_long_or_too_much_memory_is_refused() -> None:
    large = np.random.default_rng(0).normal(size=1 << 21)
    exported = jax.export.export(jax.jit(lambda x: [x + large]), platforms=["cpu"])
    data = bytes(exported(jax.ShapeDtypeStruct((1 << 21,), np.float32)).serialize())
    slow, greedy, good = outcomes([ENDLESS, data, program(8.0)], ValidationLimits(5, 8 << 20))
    assert slow.valid is greedy.valid is None
    assert slow.how_it_ended in ("SIGALRM", None)  # a later version of MLIR may refuse it
    assert good.valid is not None


def test_a_validator_knows_no_secrets_and_has_no_grpc_and_no_backend() -> None:
    process = ValidatorProcess()
    try:
        process.validate("a program", program(9.0))
        folder = Path(f"/proc/{process.pid}")
        assert "JFLOW_" not in (folder / "environ").read_text()
        assert "grpc" not in (folder / "maps").read_text()
        assert psutil.Process(process.pid).num_threads() == 1
    finally:
        process.end()
    assert is_gone(process.pid)


def test_a_validator_stays_however_much_memory_the_other_process_has() -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from jflow.plan.validator.process import ValidatorProcess\n"
        "held = bytearray(b'x') * (1200 << 20); process = ValidatorProcess()\n"
        "good = Path(sys.argv[1]).read_bytes()\n"
        "for _ in range(2): process.validate('good', good)\n"
        "print(process.has_ended)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        good = Path(folder) / "good"
        good.write_bytes(program(12.0))
        with ProgramProcess([sys.executable, "-c", code, str(good)]) as parent:
            assert parent.read_line() == "False"


def test_a_fork_is_a_validator_that_has_nothing_of_the_other_process() -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from jflow.errors import InvalidArgumentError\n"
        "from jflow.plan.validator.process import ValidatorProcess\n"
        "process = ValidatorProcess(forks=True)\n"
        "good = Path(sys.argv[1]).read_bytes()\n"
        "assert process.validate('good', good).data\n"
        "files = os.listdir(f'/proc/{process.pid}/fd')\n"
        "os.kill(process.pid, signal.SIGSEGV)\n"
        "try: process.validate('late', good)\n"
        "except InvalidArgumentError: print(len(files), process.has_ended, process.how_it_ended)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        good = Path(folder) / "good"
        good.write_bytes(program(11.0))
        with ProgramProcess([sys.executable, "-c", code, str(good)]) as parent:
            n_files, has_ended, how = parent.read_line().split()
    assert int(n_files) == 4, "three standard files and the socket"
    assert has_ended == "True"
    assert how == "SIGSEGV"


def test_tasks_on_one_machine_fork_their_validators() -> None:
    before = psutil.Process().children(recursive=True)
    with tf.LocalCluster(workers=1) as cluster:
        with tf.Session(cluster.target("worker", 0)) as session:
            assert session.run(tf.constant(2.0) * 3) == 6.0
        after = set(psutil.Process().children(recursive=True)).difference(before)
        new = [one for one in after if "plan.validator" in " ".join(one.cmdline())]
        assert {one.ppid() for one in new} <= {os.getpid()}, "a task has none of these"


def test_a_validator_that_cannot_start_is_an_error_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    validator = Validator()
    with pytest.raises(InternalError, match="could not be started"):
        validate(validator, program(10.0))
    validator.close()


def test_a_validator_ends_with_its_parent() -> None:
    code = (
        "from jflow.plan.validator import VALIDATOR as v; import time; v.start()\n"
        "while v.pid is None: time.sleep(0.01)\n"
        "print(v.pid, flush=True); time.sleep(1000)"
    )
    with ProgramProcess([sys.executable, "-c", code]) as parent:
        pid = int(parent.read_line())
        assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        parent.kill()
        # What is the parent of orphans may not wait for them.
        wait_until(lambda: is_gone(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_what_a_local_session_traces_itself_is_not_validated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("a validator is started")

    monkeypatch.setattr(ApartQueue, "_wake_idle", fail)
    with tf.Graph().as_default(), tf.Session() as session:
        x, n = tf.placeholder(tf.float32, (3,)), tf.placeholder(tf.float32, (None,))
        found = session.run([tf.numpy.sort(x), tf.numpy.cumsum(n)], {x: [3, 1, 2], n: [1, 2]})
    np.testing.assert_array_equal(found[0], [1, 2, 3])
    assert tf.function(lambda x: jnp.sum(x * 11.0))(np.float32([1])) == 11.0

"""Children that are forked, which have none of the threads that JAX and gRPC work with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_a_forked_child_is_told_to_be_spawned_and_does_not_wait() -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).parent.parent / "programs" / "forked.py"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "local session spawn",
        "another session spawn",
        "callable spawn",
        "session spawn",
        "devices spawn",
        "reset spawn",
        "function spawn",
        "variable spawn",
        "update spawn",
        "queue spawn",
        "connection spawn",
        "server spawn",
        "closed",
        "parent 1.0 1.0 2.0",
    ], done.stderr


def test_a_child_that_is_forked_before_jflow_is_used_may_use_it() -> None:
    code = (
        "import os, jflow as tf\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    print(tf.Session().run(tf.constant(1.0) + 1), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "2.0\n", done.stderr


@pytest.mark.parametrize(("wanted", "is_set"), [(None, "0"), ("1", "1")])
def test_grpc_starts_no_threads_in_a_child_unless_asked_to(wanted: str | None, is_set: str) -> None:
    """It would start them with the locks of threads that are gone, which aborts some children."""
    program = "import jflow, os; print(os.environ['GRPC_ENABLE_FORK_SUPPORT'])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("GRPC_ENABLE_FORK_SUPPORT", None)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | ({"GRPC_ENABLE_FORK_SUPPORT": wanted} if wanted else {}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [is_set]

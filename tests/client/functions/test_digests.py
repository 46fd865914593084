"""The same function has the same digest in each file and process; another has not."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jflow as tf
from tests.client.functions import one_function

SOURCE = Path(one_function.__file__)
ROOT = SOURCE.parents[3]


@pytest.fixture(scope="module")
def wanted() -> list[str]:
    found = one_function.digests()
    assert len(found) == 1
    return found


def test_from_another_file(tmp_path: Path, wanted: list[str]) -> None:
    copy = tmp_path / "somebody_elses_function.py"
    copy.write_text("\n" * 50 + SOURCE.read_text().replace("whole", "everything"))
    spec = importlib.util.spec_from_file_location(copy.stem, copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.digests() == wanted


@pytest.mark.parametrize("device", ["/cpu:0", "/cpu:2", "/job:ps/task:0/cpu:1"])
def test_on_another_device(device: str, wanted: list[str]) -> None:
    assert one_function.digests(device=device) == wanted


def test_in_another_process(wanted: list[str]) -> None:
    program = (
        "import jax; jax.config.update('jax_num_cpu_devices', 3)\n"
        "from tests.client.functions import one_function\n"
        "print(one_function.digests())"
    )
    environ = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(wanted)


def test_named_otherwise_and_beside_other_functions(wanted: list[str]) -> None:
    def renamed(x: Any, factor: float) -> Any:
        with jax.named_scope("elsewhere"):
            return one_function.whole(x, factor)

    tf.function(jnp.sin)(1.0)
    assert one_function.digests(renamed) == wanted


def test_one_changed_constant_changes_it(wanted: list[str]) -> None:
    assert one_function.digests(factor=2.5) != wanted
    assert one_function.digests(factor=2.5) == one_function.digests(factor=2.5)


@pytest.mark.parametrize(
    "other",
    [
        lambda x, factor: jax.lax.scan(lambda c, row: (c + row, c * factor), x[0], x)[0],
        lambda x, factor: jax.lax.scan(lambda c, row: (c + row, c), x[0], x)[0],
        lambda x, factor: one_function.whole(x, factor)[1],
        lambda x, factor: one_function.whole(x[:1], factor),
    ],
)
def test_another_function_has_another(other: Any, wanted: list[str]) -> None:
    assert one_function.digests(other) != wanted


def test_a_linear_solve_has_one_wherever_it_runs() -> None:
    def solve(x: Any, factor: float) -> Any:
        return jax.scipy.sparse.linalg.cg(lambda v: v * factor, x[0])[0]

    wanted = one_function.digests(solve)
    assert one_function.digests(solve, device="/job:ps/task:0/cpu:1") == wanted

"""Public names, which are imported at first use; each case in a fresh interpreter."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import jflow as tf


def printed(program: str) -> str:
    """What a program prints in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_package_alone_imports_neither_grpc_nor_grain() -> None:
    program = "import sys, jflow; print({'jax', 'grpc', 'grain'} & set(sys.modules))"
    assert printed(program) == "{'jax'}"


@pytest.mark.parametrize(
    "program",
    [
        "import jflow as tf; print(tf.Session.__name__)",
        "from jflow import Session; print(Session.__name__)",
        "from jflow import *; print(Session.__name__)",
        "import jflow; print([name for name in dir(jflow) if name == 'Session'][0])",
    ],
)
def test_a_name_may_be_asked_for_in_every_way(program: str) -> None:
    assert printed(program) == "Session"


def test_submodules_come_when_they_are_used() -> None:
    names = "contrib.learn data errors estimator inspect lax nn numpy random train"
    program = f"import jflow as tf; print(*[tf.{', tf.'.join(names.split())}], sep='\\n')"
    assert len(printed(program).splitlines()) == len(names.split())


def test_once_used_all_names_are_attributes_like_others() -> None:
    program = "import jflow as tf; tf.constant; print('constant' in vars(tf), 'Tensor' in vars(tf))"
    assert printed(program) == "True True"
    program = "import jflow.numpy as np; np.dot; print('dot' in vars(np))"
    assert printed(program) == "True"


def test_threads_that_use_the_first_name_at_once_get_the_same() -> None:
    program = """
import threading, jflow as tf
names = ["Session", "constant", "train", "float32", "numpy", "Variable", "function", "random"] * 4
barrier, found = threading.Barrier(len(names)), []
def use(name):
    barrier.wait()
    found.append((name, getattr(tf, name)))
threads = [threading.Thread(target=use, args=(name,)) for name in names]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(found), all(value is getattr(tf, name) for name, value in found))
"""
    assert printed(program) == "32 True"


@pytest.mark.parametrize(
    "program",
    [
        "import jflow.numpy as np; x = np.ones(3)",
        "from jflow import train; x = train.limit_epochs(__import__('numpy').ones(3))",
        "import jflow as tf; x = tf.constant(1.0)",
    ],
)
def test_tracebacks_end_at_methods_of_classes_that_were_not_asked_for(program: str) -> None:
    program += """
import traceback
try:
    x + object()
except Exception as error:
    print([frame.filename for frame in traceback.extract_tb(error.__traceback__)])
"""
    assert printed(program) == "['<string>']"


def test_other_modules_of_the_package_are_found_and_not_listed() -> None:
    program = (
        "from jflow import wire; import jflow; print(wire is jflow.wire, 'wire' in dir(jflow))"
    )
    assert printed(program) == "True False"


def test_names_of_train_that_are_missing_are_advised_on() -> None:
    with pytest.raises(AttributeError, match="'shufle_batch'; did you mean 'shuffle_batch'"):
        tf.train.shufle_batch  # type: ignore[attr-defined]  # noqa: B018
    assert "ClusterSpec" in dir(tf.train)
    assert "batch" in dir(tf.train)

"""Public names, which are imported at first use; each program runs in a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import jflow as tf

EACH_IN_A_FORK = """
import gc, json, os, sys, warnings
gc.disable()  # imports take a third longer with it
warnings.simplefilter("ignore")  # JAX warns of the fork
import jax
for program in json.loads(sys.argv[1]):
    if os.fork() == 0:
        try:
            exec(program, {})
        except Exception as error:
            print(repr(error))
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""

MODULES = "contrib.learn data errors estimator inspect lax nn numpy random train"

THREADS = """
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

ROOM = """
import threading, jflow as tf
barrier, done = threading.Barrier(2), []
def attribute():
    barrier.wait()
    done.append(tf.data.__name__)
def statement():
    barrier.wait()
    import jflow.data
    done.append(jflow.data.__name__)
threads = [threading.Thread(target=each, daemon=True) for each in (attribute, statement)]
[thread.start() for thread in threads]
[thread.join(60) for thread in threads]
print(done)
"""

WITHOUT_PYTEST = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pytest", "_pytest"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
import jflow, jflow.testing
print(len(jflow.testing.FAILPOINTS) > 5, "pytest" in sys.modules)
"""

FRAMES = """
import traceback
try:
    x + object()
except Exception as error:
    print([frame.filename for frame in traceback.extract_tb(error.__traceback__)])
"""

PROGRAMS = {
    "the package alone imports little": (
        "import sys, jflow; print(*(x for x in ['jax', 'grpc', 'grain'] if x in sys.modules))",
        "jax",
    ),
    "a solver is imported when it solves": (
        "import sys, jflow as tf; tf.Session, tf.function, tf.train; print('scipy' in sys.modules)",
        "False",
    ),
    "the kit for tests is not imported": (
        "import sys, jflow; jflow.Session; print('jflow.testing' in sys.modules)",
        "False",
    ),
    "only the fixtures of the kit need pytest": (WITHOUT_PYTEST, "True False"),
    "a name as an attribute": ("import jflow as tf; print(tf.Session.__name__)", "Session"),
    "a name by itself": ("from jflow import Session; print(Session.__name__)", "Session"),
    "all names": (
        "from jflow import *; print(Session.__name__, nn.__name__, 'data' in globals())",
        "Session jflow.nn False",
    ),
    "all names of a module, its own too": (
        "from jflow.train import *; print(ClusterSpec.__name__, Server.__name__, batch.__name__)",
        "ClusterSpec Server batch",
    ),
    "names are listed": ("import jflow; print('Session' in dir(jflow))", "True"),
    "submodules come when they are used": (
        f"import jflow as tf; print(len([tf.{', tf.'.join(MODULES.split())}]))",
        "10",
    ),
    "once used all names are attributes": (
        "import jflow as tf; tf.constant; print('constant' in vars(tf), 'Tensor' in vars(tf))",
        "True True",
    ),
    "once used a name of JAX is an attribute": (
        "import jflow.numpy as np; np.dot; print('dot' in vars(np))",
        "True",
    ),
    "other modules are found and not listed": (
        "import jflow; from jflow import net; print(net is jflow.net, 'net' in dir(jflow))",
        "True False",
    ),
    "threads that use first names at once get the same": (THREADS, "32 True"),
    "a module is imported and used at once": (ROOM, "['jflow.data', 'jflow.data']"),
    "tracebacks end at tensors of JAX's functions": (
        "import jflow.numpy as np; x = np.ones(3)" + FRAMES,
        "['<string>']",
    ),
    "tracebacks end at tensors of training": (
        "from jflow import train; x = train.limit_epochs(__import__('numpy').ones(3))" + FRAMES,
        "['<string>']",
    ),
}


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What each program prints."""
    done = subprocess.run(
        [sys.executable, "-c", EACH_IN_A_FORK, json.dumps([code for code, _ in PROGRAMS.values()])],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(PROGRAMS), done.stderr
    return dict(zip(PROGRAMS, lines, strict=True))


@pytest.mark.parametrize("case", PROGRAMS)
def test_names_are_imported_at_first_use(printed: dict[str, str], case: str) -> None:
    assert printed[case] == PROGRAMS[case][1]


def test_names_of_train_that_are_missing_are_advised_on() -> None:
    with pytest.raises(AttributeError, match="'shufle_batch'; did you mean 'shuffle_batch'"):
        tf.train.shufle_batch  # type: ignore[attr-defined]  # noqa: B018
    assert "ClusterSpec" in dir(tf.train)
    assert "batch" in dir(tf.train)

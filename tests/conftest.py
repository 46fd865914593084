"""What every test needs: four CPU devices before JAX starts, and a default graph of its own."""

import atexit
import contextlib
import gc
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# XLA compiles small programs in half the time. `make check-long` and `make test-matrix` set it to
# nothing, so they compile as users do.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    # The processes of a run, those that tests start too, compile a program once for all.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="jflow-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)

import jax
import pytest
from hypothesis import settings

from tests.collected import ALL_IDS
from tests.drawn import BASE

pytest_plugins = ["jflow.testing.fixtures"]
jax.config.update("jax_num_cpu_devices", 4)
# A test that fails should show jflow's own frames; those that are about tracebacks filter them.
jax.config.update("jax_traceback_filtering", "off")

# Here each run draws other examples; `ci` draws the same ones each time.
settings.register_profile("local", deadline=None, print_blob=True, max_examples=BASE)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=BASE)
settings.register_profile("long", deadline=None, print_blob=True, max_examples=40 * BASE)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "local")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background without Ctrl-C, which some tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONG_FILES = (
    "tests/examples/",
    "tests/test_notebooks.py",
    "tests/client/session/test_dtypes.py",
    "tests/client/functions/test_callbacks.py",
    "tests/client/functions/test_effects.py",
    "tests/seeds/",
    "tests/task/server/",
    "tests/launch/testing/",
    "tests/chaos/",
    "tests/client/session/",
    "tests/client/functions/",
    "tests/test_",
    "tests/training/test_decoupled.py",
    "tests/training/parameter_servers/",
)
"""Files that take longest, or begin so. They run first, so that in the end none runs alone."""


WHOLE_PRODUCT = ("tests/client/session/",)
"""Where `make test` runs every test on servers in this process too."""

ABOUT_PROGRAMS = (
    "tests/client/session/test_changing_sizes.py",
    "tests/client/session/test_equal_sizes.py",
    "tests/client/session/test_unknown_ranks.py",
)
"""Files there that are about what a graph becomes, which shares nothing with the client."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Collecting makes a million objects, and none of them is garbage."""
    gc.disable()
    try:
        if worker := getattr(session.config, "workerinput", None):
            _import_from_another_file_on(
                session.config, int(worker["workerid"][2:]) / worker["workercount"]
            )
        return (yield)
    finally:
        gc.enable()


def _import_from_another_file_on(config, part):
    """Imports the test files of a run, from another one on in each process.

    So each file is compiled by one process of the run, and loaded by the others.
    """
    left_out = {*config.getini("norecursedirs")}
    files = sorted(
        file.relative_to(config.rootpath)
        for path in config.args
        for file in _test_files(config.rootpath / path.partition("::")[0])
        if not left_out & {*file.relative_to(config.rootpath).parts}
    )
    begin = int(part * len(files))
    for file in files[begin:] + files[:begin]:
        # Collection tells what cannot be imported.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.with_suffix("").parts))


def _test_files(path):
    return path.rglob("test_*.py") if path.is_dir() else [path]


def pytest_collection_modifyitems(config, items):
    config.stash[ALL_IDS] = [item.nodeid for item in items]
    _mark_product(items)

    def rank(item):
        path = item.nodeid.partition("::")[0]
        return next(
            (i for i, start in enumerate(LONG_FILES) if path.startswith(start)), len(LONG_FILES)
        )

    items.sort(key=rank)


def _mark_product(items):
    """Marks tests on servers in this process that run on servers in other processes as well.

    The two differ in what they share with the client only, which the suite of sessions looks at.
    """
    ids = {item.nodeid for item in items}
    for item in items:
        twin = item.nodeid.replace("in_process", "processes", 1)
        has_twin = twin != item.nodeid and twin in ids
        is_whole = item.nodeid.startswith(WHOLE_PRODUCT)
        if has_twin and (not is_whole or item.nodeid.startswith(ABOUT_PROGRAMS)):
            item.add_marker("product")


@pytest.fixture(autouse=True)
def _fresh_default_graph(fresh_graph):
    """Every test has a default graph of its own."""


@pytest.fixture(autouse=True)
def _same_handlers():
    """A test leaves the handlers of signals as they were, or Ctrl-C is lost to all after it."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    yield
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.fixture(autouse=True, scope="module")
def _short_collections():
    """A garbage collection looks at what this file's tests have made only.

    Late in a run the process has millions of objects, which would make each one take seconds.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _one_validator():
    """The validator of this process stays between tests with servers; to start takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jflow.plan.apart.queue.LINGER_S", 3600.0)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_calibration(tmp_path_factory):
    """Costs are those of the prior, whatever the user of this machine has measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JFLOW_CALIBRATION", raising=False)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def gpu():
    """The environment of programs that use this machine's GPU; a skip where there is none.

    The process of the tests keeps to CPUs itself.
    """
    of_tests = ("JAX_PLATFORMS", "XLA_FLAGS")
    environment = {key: value for key, value in os.environ.items() if key not in of_tests}
    # The tasks of a cluster share the GPU, so none of them may take all of its memory.
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    found = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices('gpu')"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        pytest.skip(f"no GPU here: {found.stderr.strip().splitlines()[-1]}")
    return environment

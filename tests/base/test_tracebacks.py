"""Tracebacks of exceptions that leave jflow, as a script and a notebook print them."""

from __future__ import annotations

import asyncio
import linecache
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from IPython.core.ultratb import FormattedTB

import jflow as tf
from jflow.base import tracebacks
from tests.clusters import in_process

PRELUDE = """
import asyncio
import jax, jax.numpy as jnp, numpy as np
import jflow as tf

@tf.function
def f(x):
    y = x + 1
    return jnp.dot(y, jnp.ones((4, 5)))

@tf.function
def branch(x):
    if x > 0:
        return x
    return -x

class Model:
    @tf.function
    def call(self, x):
        return jnp.concatenate([x, jnp.ones((2, 2))])
"""

GRAPH = """
v = tf.Variable(1.0, name="v")
p = tf.placeholder(tf.float32, (3,))
q = p * 2
session = tf.Session(TARGET)
"""

LIVE = """
connection = tf.connect(TARGET)
live = tf.Variable(np.ones(3, np.float32), name="live")
queue = tf.FIFOQueue(1, tf.float32, ())
queue.put(1.0)
"""

TRACED = {
    "f(jnp.ones(3))": "return jnp.dot(y, jnp.ones((4, 5)))",
    "branch(1.0)": "if x > 0:",
    "Model().call(jnp.ones(3))": "return jnp.concatenate([x, jnp.ones((2, 2))])",
    "tf.grad(f)(jnp.ones(3))": "return jnp.dot(y, jnp.ones((4, 5)))",
}
BUILT = (
    "p + tf.constant(np.ones(4, np.float32))",
    "tf.numpy.dot(p, tf.constant(np.ones((4, 4), np.float32)))",
    "tf.constant(object())",
    "tf.gradients(q, 3)",
    "bool(p)",
    "session.run(v)",
    "session.run(q)",
    "session.run(q, {p: [1, 2]})",
    "session.run(3)",
    "v.eval()",
    "tf.FIFOQueue(2, 'nonsense')",
    "tf.train.ClusterSpec({'a': ['x:y:z']})",
)
AT_ONCE = (
    "live.assign(np.ones(4, np.float32))",
    "live + np.ones(4, np.float32)",
    "live[0, 1]",
    "tf.nonsense",
    "tf.nn.dynamic_rnn",
    "queue.put([1, 2])",
    "queue.put(1.0, timeout=0.01)",
    "asyncio.run(queue.put_async(1.0, timeout=0.01))",
    "f.placement(object())",
)


@pytest.fixture(autouse=True)
def _filtering() -> Iterator[None]:
    before = jax.config.values["jax_traceback_filtering"]
    jax.config.update("jax_traceback_filtering", "auto")
    yield
    jax.config.update("jax_traceback_filtering", before)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with in_process() as backend:
        yield backend.targets[0]


@pytest.fixture(params=["local", "cluster"])
def target(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "local" else request.getfixturevalue("cluster")


def failing(*cells: str, target: str, tmp_path: Path) -> BaseException:
    """Runs cells, the last of which fails, and gives the exception as a notebook gets it."""
    names = {"TARGET": target}
    for number, cell in enumerate(cells):
        path = tmp_path / f"cell_{number}.py"
        path.write_text(cell)
        linecache.checkcache(str(path))
        try:
            exec(compile(cell, str(path), "exec"), names)
        except Exception as error:
            assert number == len(cells) - 1
            trace = error.__traceback__
            assert trace is not None
            return error.with_traceback(trace.tb_next)  # without the frame of this function
        finally:
            if number == len(cells) - 1:
                for value in (names.get("connection"), names.get("session")):
                    if value is not None:
                        value.close()  # type: ignore[attr-defined]
    raise AssertionError(f"{cells[-1]} did not fail")


def lines_of(error: BaseException) -> list[str]:
    """The user's lines in it, innermost last."""
    return [frame.line or "" for frame in traceback.extract_tb(error.__traceback__)]


def printed(error: BaseException) -> list[str]:
    """What a script prints, without JAX's own words."""
    text = "".join(traceback.format_exception(error))
    return text.split("-" * 20)[0].splitlines()


@pytest.mark.parametrize("cell", TRACED)
def test_an_error_in_a_traced_function_shows_the_call_and_the_users_line(
    cell: str, target: str, tmp_path: Path
) -> None:
    error = failing(PRELUDE, LIVE, cell, target=target, tmp_path=tmp_path)
    assert lines_of(error) == [cell, TRACED[cell]]
    assert len(printed(error)) <= 10


@pytest.mark.parametrize("cell", BUILT)
def test_an_error_of_graph_code_or_a_step_ends_at_the_users_line(
    cell: str, target: str, tmp_path: Path
) -> None:
    error = failing(PRELUDE, GRAPH, cell, target=target, tmp_path=tmp_path)
    assert lines_of(error) == [cell]
    assert len(printed(error)) <= 10


@pytest.mark.parametrize("cell", AT_ONCE)
def test_an_error_of_a_live_variable_or_queue_ends_at_the_users_line(
    cell: str, target: str, tmp_path: Path
) -> None:
    error = failing(PRELUDE, LIVE, cell, target=target, tmp_path=tmp_path)
    assert {frame.filename for frame in traceback.extract_tb(error.__traceback__)} <= {
        str(tmp_path / "cell_2.py"),
        *(asyncio.runners.__file__, asyncio.base_events.__file__),
    }
    assert lines_of(error)[0] == cell
    if "asyncio" not in cell:
        assert len(printed(error)) <= 10


def test_an_error_while_a_queue_or_dataset_is_iterated_ends_at_the_users_line(
    tmp_path: Path,
) -> None:
    cell = "for row in tf.data.Dataset.range(3).map(lambda x: [1][int(x)]):\n    pass"
    error = failing(PRELUDE, cell, target="", tmp_path=tmp_path)
    assert isinstance(error, IndexError)
    assert lines_of(error) == [cell.splitlines()[0]] * 2
    cell = "connection.close()\nfor row in queue:\n    pass"
    error = failing(PRELUDE, LIVE, cell, target="", tmp_path=tmp_path)
    assert lines_of(error) == ["for row in queue:"]


def test_a_cell_of_ipython_shows_the_users_lines_only(tmp_path: Path) -> None:
    error = failing(PRELUDE, "f(jnp.ones(3))", target="", tmp_path=tmp_path)
    formatter = FormattedTB(mode="Context", theme_name="nocolor")
    text = formatter.text(type(error), error, error.__traceback__)
    assert "jflow/" not in text
    assert "site-packages" not in text
    arrows = [line for line in text.splitlines() if line.startswith("---->")]
    assert ["f(jnp.ones(3))" in arrows[0], "return jnp.dot" in arrows[1]] == [True, True]
    assert len(arrows) == 2
    assert len(text.splitlines()) <= 24


def test_what_users_code_calls_is_shown_and_what_jflow_calls_is_not(tmp_path: Path) -> None:
    cell = """
import statistics, functools
def fails(x):
    return statistics.mean([])
tf.function(functools.partial(fails))(1.0)
"""
    error = failing(PRELUDE, cell, target="", tmp_path=tmp_path)
    lines = lines_of(error)
    assert lines[:2] == [
        "tf.function(functools.partial(fails))(1.0)",
        "return statistics.mean([])",
    ]
    assert len(lines) == 3


def test_filtering_can_be_turned_off(tmp_path: Path) -> None:
    jax.config.update("jax_traceback_filtering", "off")
    error = failing(PRELUDE, GRAPH, "session.run(v)", target="", tmp_path=tmp_path)
    assert len(lines_of(error)) > 5
    assert not hasattr(error, "__notes__")


def test_the_whole_traceback_can_be_kept_as_the_cause(tmp_path: Path) -> None:
    jax.config.update("jax_traceback_filtering", "remove_frames")
    for cell in ("session.run(v)", "f(jnp.ones(3))"):
        error = failing(PRELUDE, GRAPH, cell, target="", tmp_path=tmp_path)
        assert lines_of(error)[0] == cell
        assert len(lines_of(error)) <= 2
        assert error.__cause__ is not None
        files = [frame.filename for frame in traceback.extract_tb(error.__cause__.__traceback__)]
        assert any("/jflow/" in file for file in files)


def test_frames_can_be_marked_for_ipython_instead(tmp_path: Path) -> None:
    jax.config.update("jax_traceback_filtering", "tracebackhide")
    error = failing(PRELUDE, GRAPH, "session.run(v)", target="", tmp_path=tmp_path)
    marked = [
        "__tracebackhide__" in frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    assert marked[0] is False
    assert all(marked[1:])
    assert len(marked) > 5


def test_the_note_says_once_how_to_see_all_frames(tmp_path: Path) -> None:
    for cell in ("session.run(v)", "f(jnp.ones(3))"):
        error = failing(PRELUDE, GRAPH, cell, target="", tmp_path=tmp_path)
        (note,) = error.__notes__
        assert "JAX_TRACEBACK_FILTERING=off" in note


def test_the_note_is_left_out_where_hardly_anything_was_removed(tmp_path: Path) -> None:
    error = failing(PRELUDE, "tf.nonsense", target="", tmp_path=tmp_path)
    assert not hasattr(error, "__notes__")


def test_public_functions_keep_their_names_and_documentation() -> None:
    assert tf.constant.__name__ == "constant"
    assert tf.Session.run.__doc__
    assert "feed_dict" in str(__import__("inspect").signature(tf.Session.run))
    assert sys.modules["jflow.client.ops"].constant is tf.constant.__wrapped__  # type: ignore[attr-defined]


def test_the_methods_that_are_no_boundaries_exist() -> None:
    classes = (tf.Graph, tf.Operation, tf.Tensor, tf.Variable)
    kinds = {base.__name__: base for kind in classes for base in kind.__mro__}
    for path in tracebacks._CALLED_INSIDE:
        kind, name = path.split(".")
        assert path == vars(kinds[kind])[name].__qualname__

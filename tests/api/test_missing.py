"""Names of TensorFlow that jflow has not: the error says what to use."""

import importlib
import json
import re

import pytest

import jflow as tf
from jflow.api.absent import ABSENT
from tools.generate_names_page import MODULES, NAMES, PAGE, answer, page


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("softmax", "use jflow.nn.softmax"),
        ("einops_", ""),
        ("random_gamma", "use jflow.random.gamma, with a key"),
        ("mul", "use jflow.multiply"),
        ("py_function", "use jax.debug.callback"),
        ("unravel_index", "use jflow.numpy.unravel_index"),
    ],
)
def test_a_name_of_tensorflow_says_what_does_the_same_here(name: str, instead: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(tf, name)
    expected = f"module 'jflow' has no attribute {name!r}" + (f"; {instead}" if instead else "")
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("app", "absl.app.run"),
        ("flags", "argparse, or absl.flags"),
        ("gfile", "pathlib, or etils.epath"),
        ("layers", "jflow.get_variable and jflow.matmul, .* Flax or Equinox"),
        ("losses", "optax.losses"),
        ("metrics", "jflow.assign_add"),
    ],
)
def test_a_module_of_tensorflow_beside_the_graph_says_what_does_the_same(
    name: str, instead: str
) -> None:
    with pytest.raises(
        AttributeError, match=f"^module 'jflow' has no attribute '{name}'; .*{instead}"
    ):
        getattr(tf, name)
    with pytest.raises(AttributeError, match=f"'jflow.train' has no attribute '{name}'(?!; .*use)"):
        getattr(tf.train, name)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("GradientTape", r"jflow\.value_and_grad\(loss\)"),
        ("keras", "Flax or Equinox"),
        ("saved_model", r"jflow\.export\.save"),
        ("train.Checkpoint", r"jflow\.checkpoint\.save"),
        ("initializers.uniform_unit_scaling", "variance_scaling"),
        ("nn.dynamic_rnn", "jflow.scan"),
        ("nn.reduce_mean", "use jflow.reduce_mean"),
        ("nn.conv2d_transpose", "jflow.lax.conv_transpose with transpose_kernel=True"),
        ("is_non_decreasing", r"jflow\.less_equal\(x"),
        ("is_strictly_increasing", r"jflow\.less\(x"),
        ("lbeta", "jflow.lgamma, which is gammaln"),
    ],
)
def test_a_name_that_several_names_replace_says_what_to_do(name: str, instead: str) -> None:
    module, _, last = f"jflow.{name}".rpartition(".")
    with pytest.raises(AttributeError, match=f"no attribute '{last}'; .*{instead}"):
        getattr(importlib.import_module(module), last)


def test_a_misspelt_name_says_what_is_close_to_it() -> None:
    with pytest.raises(AttributeError, match=r"'placholder'; did you mean 'placeholder'\?$"):
        tf.placholder  # noqa: B018
    with pytest.raises(AttributeError, match=r"'jflow.numpy' .* did you mean 'concatenate'\?$"):
        tf.numpy.concatenat  # noqa: B018


def test_an_unknown_name_is_missing_as_always() -> None:
    with pytest.raises(AttributeError, match=r"^module 'jflow' has no attribute 'qzxw'$"):
        tf.qzxw  # noqa: B018
    assert not hasattr(tf, "softmax")
    assert not hasattr(tf, "__path_of_nothing__")


@pytest.mark.parametrize("module", MODULES)
def test_each_name_of_tensorflow_is_there_or_says_what_to_use(module: str) -> None:
    ours = importlib.import_module("jflow" + (f".{module}" if module else ""))
    for name in json.loads(NAMES.read_text())["names"][module]:
        said = answer(ours, name)
        assert hasattr(ours, name) or (said and "did you mean" not in said), name


def test_the_page_of_names_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run tools/generate_names_page.py"


def test_what_is_advised_exists_and_what_is_absent_does_not() -> None:
    for name, advice in ABSENT.items():
        module, _, last = name.rpartition(".")
        assert not hasattr(importlib.import_module(module), last), name
        for path in re.findall(r"(?:use|of|and|with|or) ((?:jflow|jax|optax)(?:\.\w+)+)", advice):
            package, *parts = path.split(".")
            found = importlib.import_module(package)
            for part in parts:
                found = (
                    getattr(found, part)
                    if hasattr(found, part)
                    else importlib.import_module(f"{found.__name__}.{part}")
                )

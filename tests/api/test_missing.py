"""Names of TensorFlow that jflow has not: the error says what to use."""

import importlib

import pytest

import jflow as tf
from jflow.api.missing import _RENAMED


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("einsum", "jflow.numpy.einsum"),
        ("matmul", "jflow.numpy.matmul"),
        ("reduce_mean", "jflow.numpy.mean"),
        ("softmax", "jflow.nn.softmax"),
        ("stop_gradient", "jflow.lax.stop_gradient"),
        ("while_loop", "jflow.lax.while_loop"),
        ("random_normal", "jflow.random.normal"),
        ("truncated_normal", "jflow.random.truncated_normal"),
        ("all_variables", "jflow.global_variables"),
        ("embedding_lookup", "jflow.nn.embedding_lookup"),
        ("py_function", "jax.pure_callback"),
        ("print", "jax.debug.print"),
    ],
)
def test_a_name_of_tensorflow_says_what_does_the_same_here(name: str, instead: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(tf, name)
    assert str(caught.value) == f"module 'jflow' has no attribute {name!r}; use {instead}"


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("app", "absl.app.run"),
        ("flags", "argparse, or absl.flags"),
        ("gfile", "pathlib, or etils.epath"),
        ("layers", "jflow.get_variable and jflow.numpy, .* Flax or Equinox"),
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
        ("train.Supervisor", r"jflow\.train\.MonitoredTrainingSession"),
    ],
)
def test_a_name_that_several_names_replace_says_what_to_do(name: str, instead: str) -> None:
    module, _, last = f"jflow.{name}".rpartition(".")
    with pytest.raises(AttributeError, match=f"no attribute '{last}'; .*{instead}"):
        getattr(importlib.import_module(module), last)


def test_so_do_names_in_nn() -> None:
    with pytest.raises(AttributeError, match=r"'jflow.nn' .* use jflow.lax.conv_general_dilated"):
        tf.nn.conv2d  # noqa: B018
    with pytest.raises(AttributeError, match=r"use optax.softmax_cross_entropy$"):
        tf.nn.softmax_cross_entropy_with_logits  # noqa: B018


def test_a_misspelt_name_says_what_is_close_to_it() -> None:
    with pytest.raises(AttributeError, match=r"'placholder'; did you mean 'placeholder'\?$"):
        tf.placholder  # noqa: B018
    with pytest.raises(AttributeError, match=r"'jflow.numpy' .* did you mean 'concatenate'\?$"):
        tf.numpy.concatenat  # noqa: B018


def test_an_unknown_name_is_missing_as_always() -> None:
    with pytest.raises(AttributeError, match=r"^module 'jflow' has no attribute 'qzxw'$"):
        tf.qzxw  # noqa: B018
    assert not hasattr(tf, "einsum")
    assert not hasattr(tf, "__path_of_nothing__")


def test_what_is_advised_exists() -> None:
    for name, instead in _RENAMED.items():
        package, *parts = instead.split(".")
        found = importlib.import_module(package)
        for part in parts:
            found = getattr(found, part)
        assert not hasattr(tf, name)

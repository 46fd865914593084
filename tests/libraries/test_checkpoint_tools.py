"""Checkpoints and other tools: Orbax in both directions, a Flax model, and safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from safetensors import safe_open
from safetensors.flax import load_file as load_for_jax
from safetensors.numpy import load_file

from jflow.base.values import NUMBERS, SaveSliceInfo, TensorSpec, as_strings, to_physical
from jflow.errors import (
    AlreadyExistsError,
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
)
from jflow.state.checkpoint_files import Item, open_checkpoint, write_orbax
from tests.samples import assert_same, keys, numbers
from tests.state.checkpoint.saving import SAVE, save

pytestmark = pytest.mark.filterwarnings("ignore")  # of Orbax, about shardings and itself

# What TensorStore's Zarr driver has no name for.
BY_ORBAX = ("float32", "float16", "bfloat16", "int32", "uint8", "bool", "int4", "float8_e5m2")


class Model(nnx.Module):
    """Two layers."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(3, 8, rngs=rngs)
        self.second = nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(nnx.relu(self.first(x)))


def model_and_tree(seed: int) -> tuple[Model, Any]:
    """A model, and its parameters as nested dicts."""
    model = Model(nnx.Rngs(seed))
    return model, nnx.to_pure_dict(nnx.state(model))


def with_parameters(tree: Any) -> Model:
    """A model with these parameters."""
    model, _ = model_and_tree(seed=99)
    state = nnx.state(model)
    nnx.replace_by_pure_dict(state, tree)
    nnx.update(model, state)
    return model


def items_of(tree: Any) -> list[Item]:
    """The leaves of nested dicts."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [
        Item(jax.tree_util.keystr(where, simple=True, separator="/"), leaf)
        for where, leaf in leaves
    ]


def tree_of(path: Path) -> Any:
    """The tensors of a checkpoint as nested dicts, as jflow reads them."""
    tree: dict[str, Any] = {}
    with open_checkpoint(path) as checkpoint:
        for key in checkpoint.keys():  # noqa: SIM118 - it is not a mapping
            *outer, name = key.split("/")
            inner = tree
            for one in outer:
                inner = inner.setdefault(one, {})
            inner[name] = checkpoint.read(key)
    return tree


def test_a_flax_model_that_orbax_saved_is_opened_by_jflow(tmp_path: Path) -> None:
    model, tree = model_and_tree(seed=1)
    with ocp.StandardCheckpointer() as writer:
        writer.save(tmp_path / "model", tree)
    x = jnp.ones((4, 3))
    assert (with_parameters(tree_of(tmp_path / "model"))(x) == model(x)).all()


def test_a_flax_model_that_jflow_saved_is_opened_by_orbax(tmp_path: Path) -> None:
    model, tree = model_and_tree(seed=2)
    items = items_of(tree)
    save(tmp_path / "m", items[::2], items[1::2])
    with open_checkpoint(tmp_path / "m") as checkpoint:
        write_orbax(checkpoint, tmp_path / "model")
    with ocp.StandardCheckpointer() as reader:
        found = reader.restore(tmp_path / "model", jax.tree.map(jnp.zeros_like, tree))
    x = jnp.ones((4, 3))
    assert (with_parameters(found)(x) == model(x)).all()


def test_the_step_of_a_checkpoint_manager_is_opened(tmp_path: Path) -> None:
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(7, args=ocp.args.StandardSave({"w": np.arange(3)}))
    with open_checkpoint(tmp_path / "run" / "7") as checkpoint:
        assert checkpoint.keys() == ["w"]
        assert checkpoint.read("w", [slice(1, 3)]).tolist() == [1, 2]
        checkpoint.verify()


@pytest.mark.parametrize("name", BY_ORBAX)
def test_dtypes_go_through_orbax_and_back(name: str, tmp_path: Path) -> None:
    value = numbers(name, (2, 3)).astype(TensorSpec((), name).physical.numpy_dtype)
    save(tmp_path / "m", [Item("w", value, name), Item("scalar", value[0, 0], name)])
    with open_checkpoint(tmp_path / "m") as checkpoint:
        write_orbax(checkpoint, tmp_path / "orbax")
    with open_checkpoint(tmp_path / "orbax") as checkpoint:
        assert (checkpoint.info("w").dtype, checkpoint.info("w").shape) == (name, (2, 3))
        assert_same(checkpoint.read("w"), value)
        assert_same(checkpoint.read("scalar"), np.asarray(value[0, 0]))
        assert_same(checkpoint.read("w", [slice(0, 2), slice(1, 2)]), value[:, 1:2])


def test_random_keys_go_to_orbax_as_their_data(tmp_path: Path) -> None:
    sent = keys("threefry2x32", (2,))
    save(tmp_path / "m", [Item("k", np.asarray(to_physical(sent)), sent.dtype.name)])
    with open_checkpoint(tmp_path / "m") as checkpoint:
        write_orbax(checkpoint, tmp_path / "orbax")
    with ocp.StandardCheckpointer() as reader:
        assert_same(np.asarray(reader.restore(tmp_path / "orbax")["k"]), jax.random.key_data(sent))


def test_what_orbax_cannot_write_is_named(tmp_path: Path) -> None:
    items = [Item("a", np.ones(2)), Item("a/b", np.ones(2)), Item("s", as_strings("x"))]
    save(tmp_path / "m", [*items, Item("none", np.ones((0, 2)))])
    with open_checkpoint(tmp_path / "m") as checkpoint:
        for chosen, problem in [
            (["s"], "'s' has strings"),
            (["a", "a/b"], "'a/b' cannot be in a tree that has 'a' as a leaf"),
            (["none"], "zero size.*name=none"),
        ]:
            with pytest.raises(InvalidArgumentError, match=problem):
                write_orbax(checkpoint, tmp_path / "orbax", chosen)
        with pytest.raises(NotFoundError, match="'v' not found"):
            write_orbax(checkpoint, tmp_path / "orbax", ["v"])
        write_orbax(checkpoint, tmp_path / "written", ["a/b"])
        with pytest.raises(AlreadyExistsError, match="written' exists already"):
            write_orbax(checkpoint, tmp_path / "written", ["a"])


def test_a_damaged_checkpoint_of_orbax_is_data_loss(tmp_path: Path) -> None:
    with ocp.StandardCheckpointer() as writer:
        writer.save(tmp_path / "w", {"w": np.arange(3.0)})
    (data,) = (tmp_path / "w" / "d").iterdir()
    data.write_bytes(b"damaged")
    with (
        pytest.raises(DataLossError, match="Orbax cannot read"),
        open_checkpoint(tmp_path / "w") as checkpoint,
    ):
        checkpoint.read("w")
    (tmp_path / "w" / "_METADATA").write_text("{")
    with pytest.raises(DataLossError, match="Orbax cannot read"):
        open_checkpoint(tmp_path / "w")


def test_without_the_package_an_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "m", [Item("w", np.ones(2))])
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "_METADATA").write_text("{}")
    monkeypatch.setitem(__import__("sys").modules, "orbax.checkpoint", None)
    with pytest.raises(UnimplementedError, match=r"checkpoint of Orbax.*jflow\[orbax\]"):
        open_checkpoint(tmp_path / "tree")
    with (
        open_checkpoint(tmp_path / "m") as checkpoint,
        pytest.raises(UnimplementedError, match=r"jflow\[orbax\]"),
    ):
        write_orbax(checkpoint, tmp_path / "orbax")


def test_shards_are_files_of_safetensors(tmp_path: Path) -> None:
    names = ("float32", "bfloat16", "float16", "int64", "bool", "uint16", "complex64")
    values = {name: numbers(name, (2, 3)) for name in names}
    part = SaveSliceInfo("table", (10, 3), (4, 0), (2, 3))
    items = [Item(name, value) for name, value in values.items()]
    items.append(Item("table", values["float32"], slice=part))
    items.append(Item("wide", numbers("complex128", (2,))))
    save(tmp_path / "m", items)
    shard = tmp_path / f"m.{SAVE}.ps-0.safetensors"
    found = load_file(shard)
    for name, value in values.items():
        assert_same(found[name], value)
    assert_same(found["table[4, 0]"], values["float32"])
    # What the format has no dtype for is there as bytes.
    assert found["wide"].shape == (2, NUMBERS["complex128"].itemsize)
    assert found["wide"].tobytes() == numbers("complex128", (2,)).tobytes()
    with safe_open(shard, "np") as file:
        assert file.metadata() == {"format": "jflow"}
    assert load_for_jax(shard)["bfloat16"].dtype == jnp.bfloat16

"""The examples of trainers on a cluster of this process, and the pages that quote examples."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

import jflow as tf
from jflow.testing import start_servers
from tests.examples.modules import module_of

ROOT = Path(__file__).parents[2]
PAGES = [(ROOT / "docs" / f"{name}.md").read_text() for name in ("trainers", "recipes")]


def example(name: str) -> ModuleType:
    return module_of(ROOT / "examples" / f"{name}.py")


@pytest.fixture
def images() -> Any:
    return example("digits").load_images()


def test_a_loop_with_optax_learns_and_a_second_one_goes_on(
    images: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("train_optax")
    trained, tested = images
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 2, "worker": 1})
        target = servers[-1].target
        assert module.accuracy(module.train(target, trained, 8), tested) > 0.9
        assert module.accuracy(module.train(target, trained, 1), tested) > 0.9
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", capsys.readouterr().out)]
    assert losses[0] > 1.5
    assert losses[8] < 0.5


def test_workers_train_a_module_of_nnx(images: Any, coordinator: tf.ClusterCoordinator) -> None:
    pytest.importorskip("flax")
    module = example("train_flax_nnx")
    trained, tested = images
    network = module.train(coordinator, trained, 100, lambda _: None)
    assert module.accuracy(network, tested) > 0.9
    assert network.dropout.rngs.count[...] > 0


def test_a_program_goes_on_from_a_checkpoint_of_orbax(
    images: Any, coordinator: tf.ClusterCoordinator, tmp_path: Path
) -> None:
    pytest.importorskip("orbax.checkpoint")
    module = example("train_grain_orbax")
    trained, tested = images
    shown: list[str] = []
    module.train(coordinator, trained, tmp_path, 100, shown.append)
    params = module.train(coordinator, trained, tmp_path, 200, shown.append)
    assert [line.split(":")[0] for line in shown] == [
        "step 100",
        "goes on from step 100",
        "step 200",
    ]
    assert module.accuracy(params, tested) > 0.9


def test_the_pages_quote_the_examples() -> None:
    pattern = r"^From \[(?:examples/)?(\w+\.py)\]\(\.\./examples/\1\)(.*?)(?=^## |\Z)"
    sections = re.findall(pattern, "\n".join(PAGES), re.MULTILINE | re.DOTALL)
    files = {name for name, _ in sections}
    assert files >= {path.name for path in (ROOT / "examples").glob("train_*.py")}
    for name, section in sections:
        lines = (ROOT / "examples" / name).read_text().splitlines()
        blocks = re.findall(r"^```py\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        assert blocks
        for block in blocks:
            quoted = block.rstrip().splitlines()
            runs = (lines[at : at + len(quoted)] for at in range(len(lines)))
            assert any(dedent("\n".join(run)).splitlines() == quoted for run in runs), block

"""What `RayCluster` refuses at once, with a stand-in for Ray; `tests/libraries` has a real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import jflow as tf
from jflow.launch import RayCluster
from jflow.launch import ray as module


class _ReachedError(Exception):
    """RayCluster has begun to wait for what it reserves."""


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The nodes of the stand-in."""
    nodes: list[dict[str, Any]] = []

    def reserve(*_: Any) -> None:
        raise _ReachedError

    ray = SimpleNamespace(
        is_initialized=lambda: True,
        nodes=lambda: nodes,
        util=SimpleNamespace(placement_group=reserve),
    )
    monkeypatch.setattr(module, "_ray", lambda: ray)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    return nodes


def _node(*, is_alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"Alive": is_alive, "Resources": resources}


@pytest.mark.parametrize(
    ("options", "has"),
    [
        ({"ps": 1, "workers": 2}, [_node(CPU=2.0)]),
        ({"ps": 1, "workers": 2}, [_node(CPU=2.0), _node(CPU=2.0, is_alive=False)]),
        ({"ps": 0, "workers": 1, "cpus": 3}, [_node(CPU=2.0), _node(CPU=2.0)]),
        ({"ps": 1, "workers": 1, "gpus": 1}, [_node(CPU=8.0)]),
        ({"ps": 0, "workers": 1}, []),
    ],
    ids=["too little", "a node that is lost", "no node has that much", "no GPU", "no node"],
)
def test_what_no_node_has_is_said_at_once(
    nodes: list[dict[str, Any]], options: dict[str, Any], has: list[dict[str, Any]]
) -> None:
    nodes += has
    with pytest.raises(tf.errors.ResourceExhaustedError, match="ask for less") as caught:
        RayCluster(**options)
    assert f"{options['ps'] + options['workers']} tasks reserve" in str(caught.value)
    with pytest.raises(_ReachedError):
        RayCluster(**options, may_grow=True)


def test_what_the_nodes_have_is_reserved(nodes: list[dict[str, Any]]) -> None:
    nodes += [_node(CPU=2.0), _node(CPU=1.0, GPU=2.0)]
    for options in ({"ps": 1}, {"ps": 0, "workers": 1, "gpus": 2}, {"ps": 5, "cpus": 0.4}):
        with pytest.raises(_ReachedError):
            RayCluster(**options)

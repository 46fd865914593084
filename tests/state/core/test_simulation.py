"""A master, its spare and two workers, with faults at every message: what holds in the end.

The seed of a run that fails repeats it exactly.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from jflow.state.checkpoint_files import open_checkpoint
from tests.state.core.clients import Client, rng_of
from tests.state.core.simulation import MASTER, A, B, World

N_SEEDS = 30
N_CLIENTS = 2
N_INCREMENTS = 15
"""Of each client."""
LONGEST_S = 5000.0
"""After how much of its own time a run counts as stuck."""


class Run:
    """Counts while state moves and is saved, messages get lost and the master dies.

    Args:
      seed: decides everything.
      directory: where checkpoints are put.
      p_fault: how probable it is that a message breaks its stream.
    """

    def __init__(self, seed: int, directory: Path, p_fault: float) -> None:
        self.world, self._rng = World(seed, p_fault), rng_of(seed)
        self._directory, self._p_fault = directory, p_fault
        where = {"x": A, "y": B}
        for name, task in where.items():
            self.world.tasks[task].set(name, 0.0)
        self._clients = [Client(self.world, f"client {n}", where) for n in range(N_CLIENTS)]

    def run(self) -> World:
        """Runs it to its end, and checks what has to hold then."""
        world = self.world
        main = world.start(self._all())
        world.run_until(lambda: main.done() or world.time > LONGEST_S)
        assert main.done(), "it goes on for ever"
        main.result()
        check(world)
        return world

    async def _all(self) -> None:
        disturbing = (self._move(), self._save(), self._kill())
        await self.world.all_of([*map(self._count, self._clients), *disturbing])
        self.world.p_fault = 0.0
        await self.world.sleep(300.0)  # what was left in doubt is resolved

    def _are_counting(self) -> bool:
        return any(one.n_done < N_INCREMENTS for one in self._clients)

    async def _pause(self, longest_s: float) -> None:
        await self.world.sleep(self._rng.uniform(0.0, longest_s))

    async def _count(self, client: Client) -> None:
        for sequence in range(N_INCREMENTS):
            await client.increment(sequence)

    async def _move(self) -> None:
        while self._are_counting():
            await self._pause(1.0)
            await self._clients[0].move(self._rng.choice("xy"))

    async def _save(self) -> None:
        for number in itertools.count():
            if not self._are_counting():
                return
            await self._pause(0.1)
            prefix = str(self._directory / f"model-{number}")
            if await self._clients[0].save(prefix):
                check_saved(prefix)

    async def _kill(self) -> None:
        await self._pause(2.0)
        if self._p_fault:
            self.world.kill(MASTER)
            await self._pause(1.0)
            self.world.restart(MASTER)


def check(world: World) -> None:
    n_done = N_CLIENTS * N_INCREMENTS
    values = {
        name: [v for task in (A, B) if (v := world.tasks[task].value(name)) is not None]
        for name in ("x", "y")
    }
    assert all(len(found) == 1 for found in values.values()), f"each is in one place: {values}"
    assert values == {"x": [n_done], "y": [n_done]}, "each was done exactly once"
    for task in world.tasks.values():
        if not task.host.is_dead:
            for gate in (task.moves.steps, task.moves.plans):
                assert not gate.directory._holds
                assert not gate.directory._pauses
                assert not gate.waiting
            assert not task.effects._open
            assert not task.moves._holds


def check_saved(prefix: str) -> None:
    with open_checkpoint(prefix) as checkpoint:
        x, y = checkpoint.read("x"), checkpoint.read("y")
    assert x == y, "a consistent save has no part of a step"


@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_everything_is_done_once_and_nothing_is_left(seed: int, tmp_path: Path) -> None:
    Run(seed, tmp_path, p_fault=0.03).run()


@pytest.mark.long
def test_a_thousand_other_runs(tmp_path: Path) -> None:
    for seed in range(1000, 2000):
        directory = tmp_path / str(seed)
        directory.mkdir()
        Run(seed, directory, p_fault=0.03 if seed % 2 else 0.15).run()


def test_without_faults_nothing_is_in_doubt(tmp_path: Path) -> None:
    world = Run(0, tmp_path, p_fault=0.0).run()
    assert world.tasks[MASTER].incarnation == 1


def test_a_run_can_be_repeated(tmp_path: Path) -> None:
    def trace(name: str) -> Any:
        (tmp_path / name).mkdir()
        world = Run(7, tmp_path / name, p_fault=0.03).run()
        return world.time, world.random.getstate()

    assert trace("once") == trace("again")

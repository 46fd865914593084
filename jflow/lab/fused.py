"""The step of a workload as one program of `jax.jit`, in a process that is pinned to a core.

It is what a placement has to compare with: no runtime, no cut, everything fused that XLA can fuse.
`python -m jflow.lab.fused WORKLOAD SCALE` runs a step for each line that it reads.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import IO

import jax
import jax.extend.core as jex
import numpy as np

import jflow as tf
from jflow.base.cluster import LOCAL_TASK, Device
from jflow.base.handles import Closing
from jflow.base.values import Array
from jflow.compiler.pipeline import StepRequest, compile_placed, prune_step
from jflow.errors import InternalError, UnimplementedError
from jflow.lab.workloads import WORKLOADS, WorkloadStep
from jflow.launch.resources import pinned
from jflow.plan import Program, Run

_READY = "ready"


class FusedStep:
    """The training step of a workload as one program, with variables of its own.

    Args:
      step: the step.

    Raises:
      UnimplementedError: if it is no single program, because it uses queues or is too large.
    """

    def __init__(self, step: WorkloadStep) -> None:
        request = StepRequest((step.train,), (), ())
        device = Device(LOCAL_TASK, "CPU", 0)
        placement = dict.fromkeys(prune_step(step.graph, request), device)
        compiled = compile_placed(request, placement, platforms=None)
        instructions = [one for plan in compiled.plans for one in plan.instructions]
        match instructions:
            case [Run(program=Program() as program) as run]:
                self._run = run
            case _:
                raise UnimplementedError(
                    f"the step has {len(instructions)} instructions, and is no single program"
                )
        self._names = [spec.key.name for spec in compiled.plans[0].variables]
        self._values = [jax.device_put(value) for value in _initial(step, self._names)]
        self._constants = [jax.device_put(compiled.artifacts[name]) for name in program.constants]
        self._compute = jax.jit(
            jex.jaxpr_as_fun(compiled.programs[program.digest].jaxpr),
            donate_argnums=program.donated,
        )

    @property
    def variables(self) -> dict[str, Array]:
        """The values of its variables, by name."""
        return dict(zip(self._names, map(np.asarray, self._values), strict=True))

    def run_step(self) -> None:
        """Runs a step, and waits for its results."""
        arguments = [self._values[i] for i in self._run.reads]
        results = self._compute(*arguments, *self._constants)
        for i, value in zip(self._run.writes, results, strict=False):
            self._values[i] = value
        jax.block_until_ready(results)


def _initial(step: WorkloadStep, names: Sequence[str]) -> Sequence[Array]:
    """Returns the initial values of variables."""
    known = {variable.op.name: variable for variable in step.graph.get_collection("variables")}
    with tf.Session(graph=step.graph) as session:
        session.run(step.initialize)
        values: Sequence[Array] = session.run([known[name] for name in names])
        return values


class FusedProcess(Closing):
    """A process that runs the fused step of a workload. Ends with its `with` block.

    Args:
      name: of the workload.
      scale: the name of its size.
      core: the core that the process is pinned to; None for all of them.

    Raises:
      InternalError: if the process ends while it starts; what it printed says why.
    """

    def __init__(self, name: str, scale: str, core: int | None) -> None:
        with pinned(core):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jflow.lab.fused", name, scale],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        self._expect_answer()

    def run_step(self) -> None:
        """Runs one step."""
        stdin = _pipe(self._process.stdin)
        stdin.write("\n")
        stdin.flush()
        self._expect_answer()

    def _expect_answer(self) -> None:
        if _pipe(self._process.stdout).readline().strip() != _READY:
            self._leave(failed=True)
            raise InternalError("the process of the fused step ended; what it printed is above")

    def _leave(self, failed: bool) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            _pipe(pipe).close()
        self._process.wait()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def main(arguments: list[str]) -> None:
    """Runs the process: a step at first, and one for each line of standard input."""
    name, scale = arguments
    step = FusedStep(WORKLOADS[name].build(scale))
    step.run_step()
    _answer()
    for _ in sys.stdin:
        step.run_step()
        _answer()


def _answer() -> None:
    sys.stdout.write(_READY + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])

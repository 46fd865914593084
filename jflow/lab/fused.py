"""The step of a workload as one program of `jax.jit`, in a process that is pinned to a core.

It is what a placement has to compare with: no runtime, no cut, everything fused that XLA can fuse.
`python -m jflow.lab.fused WORKLOAD SCALE` runs a step for each line that it reads.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any

import jax
import jax.extend.core as jex

import jflow as tf
from jflow.closing import Closing
from jflow.cluster import LOCAL_TASK, Device
from jflow.errors import InternalError, UnimplementedError
from jflow.lab.workloads import WORKLOADS, WorkloadStep
from jflow.launch.pinning import pinned
from jflow.pipeline import StepRequest, compile_placed, prune_step
from jflow.plan import Program, Run

_READY = "ready"


def fused(step: WorkloadStep) -> Callable[[], None]:
    """A function that runs the training step as one program, and keeps the variables.

    Raises:
      UnimplementedError: if the step is no single program, because it uses queues or is too large.
    """
    request = StepRequest((step.train,), (), ())
    device = Device(LOCAL_TASK, "CPU", 0)
    compiled = compile_placed(
        request, dict.fromkeys(prune_step(step.graph, request), device), platforms=None
    )
    runs = [one for plan in compiled.plans for one in plan.instructions]
    if len(runs) != 1 or not isinstance(runs[0], Run) or not isinstance(runs[0].program, Program):
        raise UnimplementedError(f"the step has {len(runs)} instructions, and is no one program")
    (plan,), run, program = compiled.plans, runs[0], runs[0].program
    with tf.Session(graph=step.graph) as session:
        session.run(step.initialize)
        known = {v.op.name: v for v in step.graph.get_collection("variables")}
        values = session.run([known[spec.key.name] for spec in plan.variables])
    kept = [jax.device_put(value) for value in values]
    constants = [jax.device_put(compiled.artifacts[name]) for name in program.constants]
    lowered = compiled.programs[program.digest]
    compute = jax.jit(jex.jaxpr_as_fun(lowered.jaxpr), donate_argnums=program.donated)

    def run_step() -> None:
        results = compute(*(kept[i] for i in run.reads), *constants)
        for i, value in zip(run.writes, results, strict=False):
            kept[i] = value
        jax.block_until_ready(results)

    return run_step


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

    def run(self) -> None:
        """Runs one step."""
        stdin = _pipe(self._process.stdin)
        stdin.write("\n")
        stdin.flush()
        self._expect_answer()

    def _expect_answer(self) -> None:
        if _pipe(self._process.stdout).readline().strip() != _READY:
            self.__exit__(None, None, None)
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
    run: Any = fused(WORKLOADS[name].build(scale))
    run()
    _answer()
    for _ in sys.stdin:
        run()
        _answer()


def _answer() -> None:
    sys.stdout.write(_READY + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])

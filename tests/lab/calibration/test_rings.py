"""What collectives take is found in the times of programs with and without them."""

from __future__ import annotations

import math
import time

import pytest

from jflow.base.cluster import Device, Task
from jflow.compiler.placement.equations import Count
from jflow.compiler.placement.mesh_work import count_program_on_mesh
from jflow.lab.calibration.rings import Rings, meshes_of
from jflow.lab.calibration.site import Site, Time

MESSAGE, BANDWIDTH, START = 5e-5, 2e9, 1e-3


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_constants_are_those_that_explain_the_times(kind) -> None:
    """Devices of type CPU share what sends, each accelerator has its own."""
    with Site("", time.perf_counter) as site:
        (meshes,) = meshes_of(site.devices).values()
        assert [mesh.n_devices for mesh in meshes] == [2, 4]
        rings = Rings(site, kind, meshes, quick=True)
        times, without = [], 0.0
        for step in rings.steps:
            (program,) = site.compiled(step).programs.values()
            counts = count_program_on_mesh(program)
            n = 1 if kind == "CPU" else math.prod(size for _, size in program.axes)
            spent = counts[Count.MESSAGES] * MESSAGE + counts[Count.SENT_BYTES] / n / BANDWIDTH
            if step.name == "nothing":
                assert spent == 0
                without = START if not times else 2 * START
            else:
                assert spent > 0
            times.append(Time(without + spent, 0.0))
        fit = rings.fit(times)
    assert fit.message == pytest.approx(MESSAGE, rel=0.02)
    assert fit.bandwidth == pytest.approx(BANDWIDTH, rel=0.02)
    assert fit.start == START
    assert fit.median_error < 0.02


@pytest.mark.parametrize("n", [1, 3])
def test_any_number_of_devices_has_programs(n) -> None:
    with Site("", time.perf_counter) as site:
        mesh = Device(site.devices[0].task, "MESH", 0, (("ring", n),))
        rings = Rings(site, "CPU", [mesh], quick=True)
        site.initialize()
        for step in rings.steps:
            site.callable(step)()


def test_meshes_are_of_the_devices_that_a_task_has_several_of() -> None:
    one, two = Task("worker", 0), Task("worker", 1)
    alone = [Device(one, "CPU", 0), Device(two, "CPU", 0)]
    assert meshes_of(alone) == {}
    gpus = [Device(two, "GPU", i) for i in range(2)]
    (kind, meshes), *others = meshes_of([*alone, *gpus]).items()
    assert not others
    assert kind == "GPU"
    assert [str(mesh) for mesh in meshes] == [f"{two}/device:MESH:0[ring=2]"]

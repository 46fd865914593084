"""Times by a clock that a test moves."""

from __future__ import annotations

import pytest

from jflow.lab.calibration.site import typical_times


class Machine:
    """A clock, and steps that move it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: list[str] = []

    def clock(self) -> float:
        return self.now

    def step(self, name: str, *seconds: float):
        """A step that takes these seconds in its runs, the last of them from then on."""
        left = [*seconds]

        def run() -> None:
            self.ran.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


def test_the_median_counts_and_the_first_run_of_a_turn_does_not() -> None:
    machine = Machine()
    step = machine.step("a", 9.0, 0.01, 9.0, 0.05, 0.04, 9.0, 0.03, 0.06)
    (found,) = typical_times([step], 2, machine.clock)
    assert found.seconds == pytest.approx(0.045)
    assert found.noise == pytest.approx(0.0)


def test_steps_run_in_turn() -> None:
    machine = Machine()
    typical_times([machine.step("a", 0.1), machine.step("b", 0.2)], 3, machine.clock)
    assert "".join(machine.ran) == "aabb" + "aaabbb" * 3


def test_short_steps_run_several_times_in_each_turn() -> None:
    machine = Machine()
    typical_times([machine.step("a", 0.0005), machine.step("b", 1e-6)], 2, machine.clock)
    assert "".join(machine.ran) == "aabb" + ("a" * 5 + "b" * 11) * 2

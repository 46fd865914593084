"""The fuzzer itself: its inputs follow from seeds, and what must not happen is found."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import jflow as tf
from jflow.net.protocol.v1 import plan_pb2 as pb_plan
from jflow.testing import PATIENCE_S
from tests.fuzz import importer, servers
from tests.fuzz.campaign import Campaign, run
from tests.fuzz.corpus import graph_files, program
from tests.fuzz.mutations import Mutator
from tests.fuzz.tally import Growth, Tally


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return Campaign("inputs", seed=5, n=4, until=math.inf, kept=tmp_path)


def test_equal_seeds_give_equal_inputs_and_others_give_others() -> None:
    data, (file, *_) = program(0), graph_files()

    def inputs(seed: str) -> list[bytes]:
        message = pb_plan.Plan(device="d", stages=[pb_plan.Stage()] * 3)
        Mutator(seed).message(message)
        made = Mutator(seed).program(data), Mutator(seed).archive(file)
        return [*made, message.SerializeToString(deterministic=True)]

    first = [inputs(f"1/{number}") for number in range(10)]
    assert first == [inputs(f"1/{number}") for number in range(10)]
    assert len({made[0] for made in first}) > 7


def test_members_of_archives_are_changed_behind_the_right_sums() -> None:
    file, n_changed, n_readable = graph_files()[1], 0, 0
    for number in range(60):
        changed = Mutator(f"2/{number}").archive(file)
        n_changed += changed != file
        try:
            with zipfile.ZipFile(io.BytesIO(changed)) as packed:
                n_readable += packed.testzip() is None
        except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
            pass
    assert n_changed > 50
    assert n_readable > 30


def test_what_is_not_mutated_is_imported_and_other_errors_are_foreign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for data in graph_files()[::2]:  # without programs, which need another process
        (tmp_path / "graph").write_bytes(data)
        assert importer.answer(str(tmp_path / "graph"))["outcome"] == "imported"
    assert importer.answer("none") == {"outcome": "refused", "error": "NotFoundError"}

    def fails(_: str) -> None:
        raise KeyError("x")

    monkeypatch.setattr(tf.train, "import_meta_graph", fails)
    assert importer.answer("any") == {"outcome": "foreign", "error": "KeyError: 'x'"}


@pytest.mark.parametrize(
    ("code", "said", "outcome", "found"),
    [
        (-11, "", "ran", "the server has ended with -11"),
        (0, "", "ran", ""),
        (None, "Traceback of something", "ran", "Traceback of something"),
        (None, "", "no answer", "a call got no answer in time"),
        (None, "", "ran", ""),
    ],
)
def test_what_a_server_must_not_do_is_found(
    code: int | None,
    said: str,
    outcome: str,
    found: str,
    campaign: Campaign,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Server:
        growth = Growth()

        def __init__(self) -> None:
            self.code = code

        def stop(self) -> str:
            return said

    def attempt(_: object, mutator: Mutator) -> tuple[bytes, Callable[[], str]]:
        return mutator.mutated(b"an input"), lambda: outcome

    monkeypatch.setattr(servers, "FuzzedServer", Server)
    tally = Tally("inputs", campaign.kept)
    servers._try(campaign, tally, 0, 1, attempt)
    assert tally.n_inputs == 4
    assert bool(found) == bool(tally.violations)
    for violation in tally.violations:
        assert found in violation
        file = Path(violation.partition("kept as ")[2].partition(")")[0])
        number = int(file.name.rpartition("-")[2])
        assert file.read_bytes() == campaign.mutator(number).mutated(b"an input")


def test_an_attempt_that_fails_is_a_violation_and_time_ends_a_campaign(campaign: Campaign) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no")

    assert run(campaign, fails).violations == ["the attempt itself failed: RuntimeError: no"] * 2
    over = Campaign("late", 5, 4, until=0.0, kept=campaign.kept)
    tally = run(over, lambda *_: [*over.numbers()])
    assert str(tally).endswith("4 not tried in time; 0 violations")


def test_growth_is_told_once_for_each_time_the_limit_is_passed() -> None:
    growth = Growth(limit=32 << 20, n_warm=2)
    assert growth.check() == growth.check() == ""
    held = bytes(range(256)) * (64 << 12)
    assert "has grown by" in growth.check()
    assert growth.check() == ""
    del held


@pytest.mark.long
def test_a_short_run_finds_nothing() -> None:
    sizes = {"PROGRAMS": 300, "FILES": 100, "SERVERS": 20, "PLANS": 50, "FRAMES": 50}
    environ = os.environ | {f"JFLOW_FUZZ_{name}": str(n) for name, n in sizes.items()}
    command = [sys.executable, "-m", "tests.fuzz"]
    ran = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=10 * PATIENCE_S, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "programs: 300 inputs" in ran.stdout

"""What a long run would find; `make soak` is the long run."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from jflow.testing import wait_until
from tests.soak import work
from tests.soak.__main__ import sampled
from tests.soak.figures import Sample, growth, of_process


def samples(figure: str, values: list[float], steps: int = 10_000) -> list[Sample]:
    return [Sample(i * steps, {("ps 0", figure): value}) for i, value in enumerate(values)]


def test_memory_that_grows_with_the_steps_is_found_and_caches_that_fill_are_not() -> None:
    filling = [200_000 + 10_000 * min(i, 30) for i in range(100)]
    assert growth(samples("memory", filling)) == []
    noisy = [value + (i % 7) * 300 for i, value in enumerate(filling)]
    assert growth(samples("memory", noisy)) == []
    leaking = [value + 150 * i for i, value in enumerate(noisy)]  # 1.5 MB in 100,000 steps
    (found,) = growth(samples("memory", leaking))
    assert re.fullmatch(r"ps 0: memory grows by 1[45]\d\d KiB in 100,000 steps", found)


@pytest.mark.parametrize("figure", ["fds", "threads", "segments", "files", "sessions", "usage"])
def test_what_is_there_more_often_in_the_end_is_found(figure: str) -> None:
    flat = [20 + i % 2 for i in range(60)]
    assert growth(samples(figure, flat)) == []
    (found,) = growth(samples(figure, [20 + i // 3 for i in range(60)]))
    assert found.startswith(f"ps 0: {figure} grew from ")


def test_a_process_is_measured_as_it_is() -> None:
    before = of_process(os.getpid())
    assert before["memory"] > 10_000
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    with Path(__file__).open("rb"):
        during = of_process(os.getpid())
    end.set()
    thread.join()
    assert during["threads"] >= before["threads"] + 1
    assert during["fds"] >= before["fds"] + 1
    wait_until(lambda: of_process(os.getpid())["threads"] < during["threads"], "the thread to end")


def test_rounds_with_kills_moves_and_saves_count_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KILL_EVERY", "MOVE_EVERY", "SAVE_EVERY"):
        monkeypatch.setattr(work, name, 2)
    with work.Work(tmp_path) as done:
        for _ in range(4):
            done.round()
        assert done.violations == []
        figures = sampled(done, tmp_path).figures
        assert figures["/job:ps/task:0", "queues"] == 1
        assert figures["worker 0", "memory"] > 10_000
        assert (done.done["kills"], done.done["saves"]) == (2, 2)
        assert done.done["moves"] >= 1
        done._expected_total += 1
        done.round()
        assert len(done.violations) == 1
        assert "closures" in done.violations[0]

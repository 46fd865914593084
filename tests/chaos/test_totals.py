"""Records of long runs, and the table of all of them."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.totals import ChaosRecord, append, load, points, table


def record(faults: dict[str, int], mode: str = "exactly_once", **others) -> ChaosRecord:
    """A record of a minute."""
    return ChaosRecord("2026-01-01T00:00:00+00:00", "abc", mode, 7, faults, 60.0, **others)


def test_records_are_appended_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "chaos.jsonl"
    assert load(path) == []
    first = record({"worker_kills": 50}, n_rounds=9, n_rerun=4)
    second = record({"ps_restarts": 5}, violations=("one is lost",))
    append(first, path)
    append(second, path)
    assert load(path) == [first, second]


def test_the_table_sums_up_what_failed_and_what_came_of_it() -> None:
    records = [
        record({"worker_kills": 50}, n_rounds=9, n_rerun=4),
        record({"worker_kills": 1000, "ps_restarts": 5}, n_rounds=1, violations=("one is lost",)),
        record({"worker_kills": 8}, mode="at_least_once", n_doubled=3),
        record({"ps at worker.after_run": 2, "ps at worker.before_run": 1}),
        record({"tasks that save": 4}, mode="", n_rounds=20),
    ]
    assert table(records).splitlines()[2:] == [
        "| ps killed at a failpoint | 3 | 0 | 0 |",
        "| ps restarts | 5 | 0 | 0 |",
        "| tasks that save | 0 | 0 | 4 |",
        "| worker kills | 1,050 | 8 | 0 |",
        "| runs | 3 | 1 | 1 |",
        "| minutes | 3 | 1 | 1 |",
        "| rounds, or saves | 10 | 0 | 20 |",
        "| closures run again | 4 | 0 | 0 |",
        "| increments doubled | 0 | 3 | 0 |",
        "| violations | 1 | 0 | 0 |",
    ]


def test_kills_at_failpoints_are_counted_by_their_point() -> None:
    records = [record({"ps at worker.after_run": 2}), record({"ps at worker.after_run": 3})]
    assert points([*records, record({"worker_kills": 1})]) == {"ps at worker.after_run": 5}

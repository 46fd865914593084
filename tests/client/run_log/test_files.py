"""Logs on disk: what was cut is read up to there, what was changed is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import jflow as tf
from jflow.base.machine import this_platform
from jflow.client.run_log import LogFullError, LogWriter, RunLog, data_path, read_logs
from jflow.client.run_log.frames import MAGIC, decoded
from jflow.client.run_log.records import LogHeader, LogRun, LogStep, LogValue
from jflow.launch.testing.backends import in_process


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a few steps."""
    path = tmp_path_factory.mktemp("log") / "run.jlog"
    graph = tf.Graph()
    with graph.as_default(), in_process() as backend:
        x = tf.placeholder(tf.float32, [100])
        v = tf.Variable(np.zeros(100, np.float32), name="v")
        step = v.assign_add(x)
        config = tf.ConfigProto(record=str(path))
        with tf.Session(backend.target, graph, config) as session:
            session.run(v.initializer)
            for n in range(4):
                session.run(step, {x: np.full(100, n, np.float32)})
    return path


def copied(recorded: Path, directory: Path, log: bytes, data: bytes | None = None) -> str:
    path = str(directory / "copy.jlog")
    Path(path).write_bytes(log)
    beside = Path(data_path(path))
    if data is not None:
        beside.write_bytes(data)
    elif not beside.exists():
        beside.write_bytes(Path(data_path(str(recorded))).read_bytes())
    return path


def loaded(log: RunLog) -> int:
    """Loads all that a log has; returns how many runs that is."""
    for attempt in log.attempts:
        attempt.run.feeds()
        attempt.run.step.artifacts()
    return len(log.attempts)


def test_a_changed_byte_is_refused_wherever_it_is(recorded: Path, tmp_path: Path) -> None:
    whole = recorded.read_bytes()
    assert loaded(read_logs([copied(recorded, tmp_path, whole)])) == 5
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << (at % 8)
        with pytest.raises((tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
            read_logs([copied(recorded, tmp_path, bytes(changed))])


def test_a_changed_value_is_refused(recorded: Path, tmp_path: Path) -> None:
    whole, data = recorded.read_bytes(), Path(data_path(str(recorded))).read_bytes()
    values = [
        one
        for one in decoded(whole, str(recorded))
        if isinstance(one, LogValue) and one.data is None
    ]
    assert len(values) > 3
    for one in values:
        for at in (one.offset, one.offset + one.n_bytes // 3, one.offset + one.n_bytes - 1):
            changed = bytearray(data)
            changed[at] ^= 1 << (at % 8)
            path = copied(recorded, tmp_path, whole, bytes(changed))
            refused = r"value \d+ of the run log .*copy.jlog"
            with pytest.raises(tf.errors.DataLossError, match=refused):
                loaded(read_logs([path]))
    path = copied(recorded, tmp_path, whole, data[:-1])
    with pytest.raises(tf.errors.DataLossError, match="not the one that was written"):
        loaded(read_logs([path]))
    Path(data_path(path)).unlink()
    with pytest.raises(tf.errors.NotFoundError, match=r"are not in .*copy.jlog.data"):
        loaded(read_logs([path]))


def test_a_log_that_was_cut_anywhere_is_read_up_to_there(recorded: Path, tmp_path: Path) -> None:
    whole, n_runs = recorded.read_bytes(), list[int]()
    header_end = next(
        length for length in range(len(MAGIC), len(whole)) if [*decoded(whole[:length], "log")]
    )
    for length in range(len(whole)):
        path = copied(recorded, tmp_path, whole[:length])
        if length < header_end:
            refused = r"not a run log|was cut before"
            with pytest.raises(tf.errors.InvalidArgumentError, match=refused):
                read_logs([path])
            continue
        log = read_logs([path])
        assert log.problems[0] == f"{path} was cut: its program was killed, or still runs"
        n_runs.append(loaded(log))
    assert n_runs == sorted(n_runs)
    assert n_runs[-1] == 5


def test_records_that_are_left_out_or_moved_are_refused(recorded: Path, tmp_path: Path) -> None:
    whole, path = recorded.read_bytes(), str(recorded)
    ends = []
    for length in range(len(MAGIC), len(whole) + 1):
        n = sum(1 for _ in decoded(whole[:length], path))
        if n > len(ends):
            ends.append(length)
    starts = [len(MAGIC), *ends[:-1]]
    for i in range(1, len(ends) - 1):
        rest = whole[: starts[i]] + whole[ends[i] :]
        with pytest.raises(tf.errors.DataLossError, match=f"the record at byte {starts[i]} is not"):
            read_logs([copied(recorded, tmp_path, rest)])


def test_a_log_of_another_format_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "run.jlog")
    writer = LogWriter(path, 1 << 20)
    writer.write(LogHeader(99, "9.9", this_platform()))
    writer.end()
    writer.close()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"format 99.*with jflow 9\.9"):
        tf.Replay(path)
    with pytest.raises(tf.errors.NotFoundError, match="cannot be read: No such file"):
        tf.Replay(str(tmp_path / "none.jlog"))


def test_a_full_log_takes_nothing_more_and_stays_readable(tmp_path: Path) -> None:
    path = str(tmp_path / "run.jlog")
    writer = LogWriter(path, 2000)
    writer.write(LogStep((), {}, "title"))

    def fill() -> None:
        for n in range(1000):
            writer.write(LogRun(n, 0, writer.values([np.full(40, n)]), 0.0))

    with pytest.raises(LogFullError, match="its limit of 2000 bytes"):
        fill()
    writer.end("it is full")
    writer.close()
    size = Path(path).stat().st_size + Path(data_path(path)).stat().st_size
    assert size <= 2000 + len("it is full") + 50
    records = [*decoded(Path(path).read_bytes(), path)]
    assert len(records) > 3
    assert records[-1].reason == "it is full"  # type: ignore[attr-defined]

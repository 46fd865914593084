"""Records of traced steps in replies, between processes whose clocks differ."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from jflow.errors import InternalError, InvalidArgumentError
from jflow.net.protocol import run_rpcs
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.plan.trace.record import Recorder, TaskRecord

VALUES = [np.arange(3.0), np.float32(7)]


def reply(monkeypatch: pytest.MonkeyPatch, name: str, offset: float) -> tuple[pb.Traced, Any]:
    """A reply from a process whose clock is `offset` behind; it works from 10 to 13 here."""
    times = iter([10.0, 11.0, 12.0, 13.0])

    def now() -> float:
        return next(times) - offset

    monkeypatch.setattr(run_rpcs, "now", now)
    monkeypatch.setattr(run_rpcs, "boot_id", lambda: name)

    async def run(records: list[TaskRecord]) -> Any:
        recorder = Recorder("/job:ps/task:0", now)
        records.append(recorder.record())
        return VALUES

    message, tensors = asyncio.run(run_rpcs.serve_traced(run))
    return message, list(tensors)


@pytest.mark.parametrize(
    ("server", "client", "offset", "error"),
    [
        ("", "", 500.0, 0.75),  # sent at 9.5, answered at 14: 1.5 of 4.5 seconds are not the work's
        ("boot", "another", 500.0, 0.75),
        ("boot", "boot", 0.0, 0.0),
        ("boot", "boot", 500.0, 0.75),  # a time namespace: the bounds contradict the name
    ],
)
def test_times_are_by_the_clock_of_the_caller(
    monkeypatch: pytest.MonkeyPatch, server: str, client: str, offset: float, error: float
) -> None:
    message, tensors = reply(monkeypatch, server, offset)
    monkeypatch.setattr(run_rpcs, "now", lambda: 14.0)
    monkeypatch.setattr(run_rpcs, "boot_id", lambda: client)
    records: list[TaskRecord] = []
    values = run_rpcs.without_records(message, tensors, 9.5, records)
    assert len(values) == len(VALUES)
    (record,) = records
    assert record.error == error
    assert abs(record.begun - 11.0) <= error
    assert abs(record.ended - 12.0) <= error
    assert record.ended - record.begun == pytest.approx(1.0)


def test_a_reply_that_names_more_records_than_it_has_is_refused() -> None:
    with pytest.raises(InternalError, match="with 1 tensors names 2 records"):
        run_rpcs.without_records(pb.Traced(n_records=2), [np.zeros(1)], 0.0, [])


def test_a_malformed_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    message, tensors = reply(monkeypatch, "", 0.0)
    monkeypatch.setattr(run_rpcs, "now", lambda: 14.0)
    with pytest.raises(InvalidArgumentError, match="the record of a traced step"):
        run_rpcs.without_records(message, [*tensors[:-1], tensors[-1][:-3]], 9.5, [])

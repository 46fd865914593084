"""Records of traced steps in replies, and their times by the clock of the caller.

The records are the last tensors of a reply, because they can be longer than its control part.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import numpy as np

from jflow.base.deadline.clock import clock_name, now
from jflow.base.values import Array
from jflow.errors import InternalError
from jflow.net.protocol.rpc import Outgoing
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.plan.trace.alignment import Exchange, offset_of
from jflow.plan.trace.record import TaskRecord


async def serve_traced(
    run: Callable[[list[TaskRecord]], Awaitable[Sequence[Array]]],
) -> Outgoing:
    """Runs a step, or the plans of one, and makes the reply of its values and records.

    Args:
      run: adds the records of tasks to a list, and returns the values.
    """
    begun, records = now(), list[TaskRecord]()
    values = await run(records)
    packed = [np.frombuffer(record.to_bytes(), np.uint8) for record in records]
    message = pb.Traced(n_records=len(records), begun_s=begun, ended_s=now(), clock=clock_name())
    return message, [*values, *packed]


def without_records(
    message: pb.Traced, tensors: Sequence[Array], sent: float, records: list[TaskRecord]
) -> list[Array]:
    """The fetched values of the reply to a traced call, which has just come.

    Args:
      message: the body of the reply.
      tensors: its values and records.
      sent: when the request left, by this process's clock.
      records: the records are added to it, by this process's clock.

    Raises:
      InternalError: if the reply is malformed.
    """
    answered, n_values = now(), len(tensors) - message.n_records
    if n_values < 0:
        raise InternalError(
            f"a reply with {len(tensors)} tensors names {message.n_records} records"
        )
    is_one_clock = bool(message.clock) and message.clock == clock_name()
    times = Exchange(sent, message.begun_s, message.ended_s, answered, is_one_clock)
    offset, error = offset_of(times)
    for packed in tensors[n_values:]:
        records.append(TaskRecord.from_bytes(packed.tobytes()).shifted(offset, error))
    return list(tensors[:n_values])

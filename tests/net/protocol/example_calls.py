"""One call of each remote method, the same in every run."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jflow.base.cluster import Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.base.values import Array
from jflow.base.versions import VERSION, since_of
from jflow.net.protocol.signatures import rpc_of
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.state.effects import Effect
from jflow.state.journal import JournalPosition
from jflow.state.moves import End, StateId
from jflow.state.watch import StatusRequest


def example_call(
    method: Callable[..., Any], version: int = VERSION
) -> tuple[pb.Envelope, Sequence[Any]]:
    """The envelope of a call of a remote method in a version, and its tensors."""
    hints, marked = (
        typing.get_type_hints(method),
        typing.get_type_hints(method, include_extras=True),
    )
    arguments = {
        one: _example(hints[one])
        for one in [*inspect.signature(method).parameters][1:]
        if since_of(marked[one]).version <= version
    }
    return rpc_of(method).in_version(version, "a task").envelope(**arguments)


def _example(annotation: Any) -> Any:
    """One value of an annotation."""
    fixed: dict[Any, Any] = {
        str: "text",
        int: 7,
        int | None: 7,
        float: 1.5,
        bool: True,
        bytes: b"bytes",
        Task: Task("ps", 0),
        Deadline: FOREVER,
        StateId: StateId("/job:ps/task:0/device:CPU:0", "variable", "", "x"),
        Effect: Effect("client", 1, 2),
        End: End.MOVED,
        Array: np.arange(2, dtype=np.int32),
        StatusRequest: StatusRequest(("sessions",)),
        JournalPosition: JournalPosition(Task("ps", 0), 7, 3),
    }
    if annotation in fixed:
        return fixed[annotation]
    inner = typing.get_args(annotation)[-1 if typing.get_origin(annotation) is Mapping else 0]
    value = _example(inner)
    return {"key": value} if typing.get_origin(annotation) is Mapping else [value]

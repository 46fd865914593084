"""The failpoints, and the functions that mark them in the code of jflow."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Protocol

VARIABLE = "JFLOW_TESTING_FAILPOINTS"
"""The variable with the actions of failpoints, as JSON, in processes that a test starts."""

NAMES: Mapping[str, str] = {
    "checkpoint.before_shard": "a task is about to create the file of its part of a checkpoint",
    "checkpoint.in_shard": "half of a task's tensors are written to its file",
    "checkpoint.shard_written": "the file of a task is on the disk",
    "checkpoint.before_manifest": "the files of all tasks are on the disk; no manifest names them",
    "checkpoint.manifest_written": "the manifest is on the disk under a temporary name",
    "checkpoint.manifest_renamed": "the manifest has its name, which may not be on the disk yet",
    "checkpoint.committed": "a checkpoint is on the disk; the one that it replaces is there too",
    "client.before_reconnect": "a client that lost its connection is about to connect again",
    "client.before_repeat": "a client is about to repeat a step whose answer was lost",
    "compiler.before_compile": "the process that compiles has received a program",
    "master.after_register": "every task has registered its plans; the client has no answer yet",
    "master.after_commit": "every task has committed a step; the client has no answer yet",
    "master.before_commit": "every task has staged a step; none has been told to commit it",
    "master.after_run": "every task has run its plans; the client has no answer yet",
    "peer.before_connect": "a task is about to connect to another one",
    "server.before_listen": "a server is about to listen at its address",
    "worker.after_commit": "a task has committed a checkpoint; the master has no answer yet",
    "worker.after_decision": "a task has decided a staged step; the master has no answer yet",
    "worker.after_effect": "a task has applied a step alone; the master has no answer yet",
    "worker.after_move": "a task has ended a hold with a move; the mover has no answer yet",
    "worker.after_run": "a task has run its plans; the master has no answer yet",
    "worker.after_stage": "a task has staged what a step writes; the master has no answer yet",
    "worker.after_take_over": "a task obeys a later attempt of a step, which has no answer yet",
    "worker.before_compile": "a task has received plans and programs that it has not compiled",
    "worker.before_decision": "a task is about to apply or drop what it has staged",
    "worker.before_deliver": "a task has received a value that its rendezvous does not have yet",
    "worker.before_effect": "a task is about to note that a step begins which is applied once",
    "worker.before_restore": "a task has read what it is about to restore",
    "worker.before_save": "a task holds state and is about to save it for a move",
    "worker.before_run": "a task is about to run plans",
    "worker.before_snapshot": "a task is about to take a snapshot",
}
"""All failpoints by name, and the situation at each. A test checks that code uses no others."""


class ActingPoint(Protocol):
    """The interface of the action at a failpoint that is switched on."""

    def act(self, name: str) -> None:
        """Acts in a thread, which may block."""

    def act_async(self, name: str) -> Awaitable[None]:
        """Acts in a coroutine without blocking the event loop."""


actions: dict[str, ActingPoint] = {}
"""The failpoints that are on."""


def failpoint(name: str) -> None:
    """Marks a failpoint in blocking code. Costs about 20 ns while no failpoint is on.

    A path where that counts has none: what is decided for every call is decided when a step is
    made, and so is where a failpoint stands.
    """
    if actions and (action := actions.get(name)) is not None:
        action.act(name)


def async_failpoint(name: str) -> Awaitable[None] | None:
    """Marks a failpoint in a coroutine, which awaits the result unless it is None.

    A coroutine function would cost five times as much while no failpoint is on:

        if (action := async_failpoint("worker.before_run")) is not None:
            await action
    """
    if actions and (action := actions.get(name)) is not None:
        return action.act_async(name)
    return None

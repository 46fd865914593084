"""The RPCs of saves and restores, for the table in `rpcs.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jflow.cluster import Task
from jflow.moves import StateId
from jflow.protocol.codec import state_from_proto, state_to_proto
from jflow.protocol.rpc import Incoming, Outgoing, Rpc
from jflow.protocol.services import MasterSession, WorkerSession
from jflow.protocol.v1 import service_pb2 as pb
from jflow.values import Array

_DONE: Outgoing = (None, ())


def _nothing(_: Any, __: list[Array]) -> None:
    """The result of an RPC that returns nothing."""


def _record(message: Any, _: list[Array]) -> bytes:
    record: bytes = message.record
    return record


def _n_bytes(message: pb.Sized, _: list[Array]) -> int:
    return message.n_bytes


# Of the master ----------------------------------------------------------------------------------


def _save_checkpoint(
    prefix: str,
    items: bytes,
    is_consistent: bool,
    about: Mapping[str, str],
    connect_timeout: float,
) -> Outgoing:
    message = pb.SaveCheckpoint(
        prefix=prefix,
        items=items,
        is_consistent=is_consistent,
        about=about,
        connect_timeout_s=connect_timeout,
    )
    return message, ()


async def _serve_save_checkpoint(session: MasterSession, call: Incoming) -> Outgoing:
    body = call.envelope.save_checkpoint
    about, patience = dict(body.about), body.connect_timeout_s
    record = await session.save(
        body.prefix, body.items, body.is_consistent, about, patience, call.deadline
    )
    return pb.SaveReport(record=record), ()


SAVE_CHECKPOINT = Rpc(
    "save_checkpoint",
    _save_checkpoint,
    _serve_save_checkpoint,
    _record,
    "save_report",
    lambda body: f"saving {body.prefix!r}",
)


def _restore_checkpoint(prefix: str, items: bytes, connect_timeout: float) -> Outgoing:
    message = pb.RestoreCheckpoint(prefix=prefix, items=items, connect_timeout_s=connect_timeout)
    return message, ()


async def _serve_restore_checkpoint(session: MasterSession, call: Incoming) -> Outgoing:
    body = call.envelope.restore_checkpoint
    record = await session.restore(body.prefix, body.items, body.connect_timeout_s, call.deadline)
    return pb.SaveReport(record=record), ()


RESTORE_CHECKPOINT = Rpc(
    "restore_checkpoint",
    _restore_checkpoint,
    _serve_restore_checkpoint,
    _record,
    "save_report",
    lambda body: f"restoring {body.prefix!r}",
)

# Of the worker ----------------------------------------------------------------------------------


def _pause_steps(
    name: str,
    states: Sequence[StateId],
    seconds: float,
    is_exclusive: bool,
    masters: Collection[Task],
) -> Outgoing:
    message = pb.PauseSteps(
        name=name,
        states=map(state_to_proto, states),
        seconds=seconds,
        is_exclusive=is_exclusive,
        masters=map(str, masters),
    )
    return message, ()


async def _serve_pause_steps(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.pause_steps
    states = [state_from_proto(state) for state in body.states]
    masters = [Task.parse(master) for master in body.masters]
    await worker.saves.pause(body.name, states, body.seconds, body.is_exclusive, masters)
    return _DONE


PAUSE_STEPS = Rpc(
    "pause_steps",
    _pause_steps,
    _serve_pause_steps,
    _nothing,
    method=lambda worker: worker.saves.pause,
)


def _resume_steps(name: str) -> Outgoing:
    return pb.ResumeSteps(name=name), ()


async def _serve_resume_steps(worker: WorkerSession, call: Incoming) -> Outgoing:
    has_lasted = await worker.saves.resume(call.envelope.resume_steps.name)
    return pb.Resumed(has_lasted=has_lasted), ()


def _has_lasted(message: pb.Resumed, _: list[Array]) -> bool:
    return message.has_lasted


RESUME_STEPS = Rpc(
    "resume_steps",
    _resume_steps,
    _serve_resume_steps,
    _has_lasted,
    "resumed",
    method=lambda worker: worker.saves.resume,
)


def _take_snapshot(name: str, items: bytes, seconds: float) -> Outgoing:
    return pb.TakeSnapshot(name=name, items=items, seconds=seconds), ()


async def _serve_take_snapshot(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.take_snapshot
    return pb.Sized(n_bytes=await worker.saves.take(body.name, body.items, body.seconds)), ()


TAKE_SNAPSHOT = Rpc(
    "take_snapshot",
    _take_snapshot,
    _serve_take_snapshot,
    _n_bytes,
    "sized",
    method=lambda worker: worker.saves.take,
)


def _write_shard(name: str, prefix: str) -> Outgoing:
    return pb.WriteShard(name=name, prefix=prefix), ()


async def _serve_write_shard(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.write_shard
    return pb.ShardWritten(record=await worker.saves.write(body.name, body.prefix)), ()


WRITE_SHARD = Rpc(
    "write_shard",
    _write_shard,
    _serve_write_shard,
    _record,
    "shard_written",
    method=lambda worker: worker.saves.write,
)


def _commit_checkpoint(
    name: str, prefix: str, shards: Sequence[bytes], about: Mapping[str, str]
) -> Outgoing:
    return pb.CommitCheckpoint(name=name, prefix=prefix, shards=shards, about=about), ()


async def _serve_commit_checkpoint(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.commit_checkpoint
    await worker.saves.commit(body.name, body.prefix, list(body.shards), dict(body.about))
    return _DONE


COMMIT_CHECKPOINT = Rpc(
    "commit_checkpoint",
    _commit_checkpoint,
    _serve_commit_checkpoint,
    _nothing,
    method=lambda worker: worker.saves.commit,
)


def _end_save(name: str, is_committed: bool) -> Outgoing:
    return pb.EndSave(name=name, is_committed=is_committed), ()


async def _serve_end_save(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.end_save
    await worker.saves.end(body.name, body.is_committed)
    return _DONE


END_SAVE = Rpc(
    "end_save", _end_save, _serve_end_save, _nothing, method=lambda worker: worker.saves.end
)


def _load_checkpoint(name: str, prefix: str, items: bytes) -> Outgoing:
    return pb.LoadCheckpoint(name=name, prefix=prefix, items=items), ()


async def _serve_load_checkpoint(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.load_checkpoint
    return pb.Sized(n_bytes=await worker.saves.load(body.name, body.prefix, body.items)), ()


LOAD_CHECKPOINT = Rpc(
    "load_checkpoint",
    _load_checkpoint,
    _serve_load_checkpoint,
    _n_bytes,
    "sized",
    method=lambda worker: worker.saves.load,
)


def _close_writes(name: str, seconds: float) -> Outgoing:
    return pb.CloseWrites(name=name, seconds=seconds), ()


async def _serve_close_writes(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.close_writes
    await worker.saves.close_writes(body.name, body.seconds)
    return _DONE


CLOSE_WRITES = Rpc(
    "close_writes",
    _close_writes,
    _serve_close_writes,
    _nothing,
    method=lambda worker: worker.saves.close_writes,
)


def _put_loaded(name: str, seconds: float) -> Outgoing:
    return pb.PutLoaded(name=name, seconds=seconds), ()


async def _serve_put_loaded(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.put_loaded
    await worker.saves.put(body.name, body.seconds)
    return _DONE


PUT_LOADED = Rpc(
    "put_loaded", _put_loaded, _serve_put_loaded, _nothing, method=lambda worker: worker.saves.put
)


def _forget_loaded(name: str) -> Outgoing:
    return pb.ForgetLoaded(name=name), ()


async def _serve_forget_loaded(worker: WorkerSession, call: Incoming) -> Outgoing:
    await worker.saves.forget(call.envelope.forget_loaded.name)
    return _DONE


FORGET_LOADED = Rpc(
    "forget_loaded",
    _forget_loaded,
    _serve_forget_loaded,
    _nothing,
    method=lambda worker: worker.saves.forget,
)

OF_MASTER = (SAVE_CHECKPOINT, RESTORE_CHECKPOINT)
OF_WORKER = (
    *(PAUSE_STEPS, RESUME_STEPS, TAKE_SNAPSHOT, WRITE_SHARD, COMMIT_CHECKPOINT, END_SAVE),
    *(LOAD_CHECKPOINT, CLOSE_WRITES, PUT_LOADED, FORGET_LOADED),
)

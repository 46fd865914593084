"""What the fields of the records of watchers may be, for the tests of all records."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from jflow.state.watch import (
    KINDS,
    MAX_ITEMS,
    ContainerStatus,
    CoordinatorList,
    CoordinatorStatus,
    DeviceStatus,
    QueueStatus,
    SessionStatus,
    SessionWait,
    SessionWaits,
    StatusRequest,
    StepStatus,
    TaskStatus,
    ThreadStatus,
    UsageStatus,
    VariableStatus,
    WaitStatus,
    WorkerClosures,
)
from tests.base.test_packing import TEXTS

COUNTS = st.integers(0, 2**63 - 1)
SECONDS = st.floats(0, 1e9)
NAMES = st.lists(TEXTS, max_size=2).map(tuple)

ITEMS: dict[type, dict[str, Any]] = {
    ContainerStatus: {
        "name": TEXTS,
        **dict.fromkeys(("n_variables", "n_bytes", "n_resources"), COUNTS),
    },
    DeviceStatus: {"name": TEXTS, "type": TEXTS, "memory_bytes": COUNTS},
    QueueStatus: {
        **dict.fromkeys(("container", "name", "device", "kind", "owner"), TEXTS),
        **dict.fromkeys(("size", "n_bytes", "n_enqueues", "n_dequeues"), COUNTS),
        "capacity": st.integers(-1, 2**62),
        "capacity_bytes": st.none() | COUNTS,
        "is_closed": st.booleans(),
    },
    SessionStatus: {
        **dict.fromkeys(("number", "n_steps", "n_waiting"), COUNTS),
        "age_s": SECONDS,
        "claim": TEXTS,
        "restarted": NAMES,
    },
    StepStatus: {"step": TEXTS, "age_s": SECONDS, "devices": NAMES, "waiting_for": NAMES},
    ThreadStatus: {"name": TEXTS, "frames": NAMES},
    UsageStatus: {
        **dict.fromkeys(("container", "master", "user"), TEXTS),
        **dict.fromkeys(("session", "n_bytes", "n_steps", "n_slots", "n_programs"), COUNTS),
    },
    VariableStatus: {
        **dict.fromkeys(("container", "name", "device", "dtype"), TEXTS),
        "shape": st.lists(COUNTS, max_size=3).map(tuple),
        "n_bytes": COUNTS,
    },
    WaitStatus: {
        **dict.fromkeys(("step", "cause", "op", "device"), TEXTS),
        "plans": COUNTS,
        "age_s": SECONDS,
        "edge": st.none() | COUNTS,
    },
}

SESSION_WAIT: dict[str, Any] = {
    "handle": COUNTS,
    "task": TEXTS,
    "wait": st.builds(WaitStatus, **ITEMS[WaitStatus]),
}

WORKER: dict[str, Any] = {"task": TEXTS, "n_running": COUNTS, "is_lost": st.booleans()}
COORDINATOR: dict[str, Any] = {
    "name": TEXTS,
    **dict.fromkeys(("n_waiting", "n_running", "n_done"), COUNTS),
    **dict.fromkeys(("n_failed", "n_cancelled", "n_retried"), COUNTS),
    "workers": st.lists(st.builds(WorkerClosures, **WORKER), max_size=2).map(tuple),
}

BUILDS: dict[type, dict[str, Any]] = ITEMS | {
    WorkerClosures: WORKER,
    CoordinatorStatus: COORDINATOR,
    CoordinatorList: {
        "coordinators": st.lists(st.builds(CoordinatorStatus, **COORDINATOR), max_size=2).map(tuple)
    },
    SessionWait: SESSION_WAIT,
    SessionWaits: {
        "found": st.lists(st.builds(SessionWait, **SESSION_WAIT), max_size=2).map(tuple)
    },
    StatusRequest: {
        "kinds": st.lists(st.sampled_from([*KINDS]), max_size=3, unique=True).map(tuple),
        "first": COUNTS,
        "limit": st.integers(1, MAX_ITEMS),
    },
    TaskStatus: {
        **dict.fromkeys(("task", "address", "version"), TEXTS),
        "incarnation": st.integers(1, 2**64 - 1),
        **dict.fromkeys(("pid", "memory_bytes", "n_begun", "n_compiled"), COUNTS),
        **dict.fromkeys(("uptime_s", "cpu_s"), SECONDS),
        "log": TEXTS,
        "log_inode": COUNTS,
        "totals": st.dictionaries(st.sampled_from([*KINDS]), COUNTS, max_size=2),
        **{
            kind: st.lists(st.builds(record, **ITEMS[record]), max_size=1).map(tuple)
            for kind, record in KINDS.items()
        },
    },
}
